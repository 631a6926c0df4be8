//! One page of a listing: prefix, delimiter, start and length, walked folder by folder so that a page
//! costs what it shows and not what the bucket holds.
//!
//! Invariant: items come in the byte order of their keys, a common prefix standing at its own place.

use crate::folder::{Folder, Refusal};
use crate::keys;
use crate::version::Version;
use rustix::fs::{AtFlags, statat};

/// Items of a page, as S3 limits them.
pub const PAGE_MAX: usize = 1000;

/// What to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    pub delimiter: &'a str,
    /// Only items after this one: a key or a common prefix.
    pub after: &'a str,
    pub limit: usize,
}

/// A key with its version, or a common prefix.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    Object { key: String, version: Version },
    Common(String),
}

/// A page and whether more follows.
#[derive(Debug, Default)]
pub struct Page {
    pub items: Vec<Item>,
    /// The last item, if more follow.
    pub next: Option<String>,
}

/// An item found, before its version is asked for.
struct Found {
    name: String,
    /// Path of the file, and whether it is a link; none for a common prefix.
    file: Option<(String, bool)>,
}

struct Walk<'a> {
    folder: &'a Folder,
    query: Query<'a>,
    now: i64,
    found: Vec<Found>,
}

impl Folder {
    /// One page of the objects of a bucket. `now` is the wall clock in nanoseconds since 1970.
    pub fn list(&self, query: Query<'_>, now: i64) -> Result<Page, Refusal> {
        if !self.has_bucket(query.bucket) {
            return Err(Refusal::NoBucket);
        }
        if query.limit == 0 {
            return Ok(Page::default());
        }
        let mut walk = Walk { folder: self, query, now, found: Vec::with_capacity(query.limit.min(PAGE_MAX) + 1) };
        // The walk begins in the folder that the prefix names; nothing outside it can match.
        let start = query.prefix.rfind('/').map_or("", |slash| &query.prefix[..=slash]);
        let path = self.path(query.bucket, &keys::folder_path(start))?;
        walk.folder(&path, &mut start.to_string())?;
        let mut found = walk.found;
        let more = found.len() > query.limit;
        found.truncate(query.limit);
        let next = more.then(|| found.last().map(|last| last.name.clone())).flatten();
        let items = found.into_iter().filter_map(|found| self.item(query.bucket, found)).collect();
        Ok(Page { items, next })
    }

    /// A file that vanished since it was found is left out.
    fn item(&self, bucket: &str, found: Found) -> Option<Item> {
        let Some((path, linked)) = found.file else { return Some(Item::Common(found.name)) };
        let mut version = if linked {
            self.open_file(&path).ok()?.version
        } else {
            Version::of(&statat(&self.root, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?)
        };
        version.changes = self.changes(bucket, &found.name);
        Some(Item::Object { key: found.name, version })
    }

    /// Whether any object lies beneath a folder. As deep as the folders are nested: paths have an end.
    fn holds_any(&self, path: &str, now: i64) -> bool {
        let Ok(entries) = self.entries(path, now) else { return false };
        entries.iter().any(|entry| !entry.is_folder())
            || entries.iter().any(|entry| self.holds_any(&format!("{path}/{}", entry.name()), now))
    }
}

impl Walk<'_> {
    /// Visit the entries of a folder whose keys begin with `key`, which is restored before returning.
    fn folder(&mut self, path: &str, key: &mut String) -> Result<(), Refusal> {
        let entries = match self.folder.entries(path, self.now) {
            // A folder that is gone, or that may not be read, holds nothing that can be listed.
            Err(Refusal::NoObject | Refusal::Denied | Refusal::TooLong) => return Ok(()),
            entries => entries?,
        };
        let base = key.len();
        let low = self.query.after.max(self.query.prefix);
        let first = low.strip_prefix(key.as_str()).map_or(0, |rest| {
            entries
                .partition_point(|entry| &*entry.part < rest && !(entry.is_folder() && rest.starts_with(&*entry.part)))
        });
        for entry in &entries[first..] {
            if self.found.len() > self.query.limit {
                break;
            }
            key.truncate(base);
            key.push_str(&entry.part);
            let within = key.starts_with(self.query.prefix);
            if !within && key.as_str() > self.query.prefix {
                break;
            }
            let file = || if path == "." { entry.name().to_string() } else { format!("{path}/{}", entry.name()) };
            if entry.is_folder() {
                self.subfolder(&file(), key)?;
            } else if within {
                self.object(key, || (file(), entry.linked));
            }
        }
        key.truncate(base);
        Ok(())
    }

    fn subfolder(&mut self, path: &str, key: &mut String) -> Result<(), Refusal> {
        if let Some(common) = self.common(key) {
            let shown = common > self.query.after && !self.is_last(common) && self.folder.holds_any(path, self.now);
            if shown {
                self.found.push(Found { name: common.to_string(), file: None });
            }
            return Ok(());
        }
        let prefix = self.query.prefix;
        let reaches = prefix.starts_with(key.as_str()) || key.starts_with(prefix);
        let passed = self.query.after > key.as_str() && !self.query.after.starts_with(key.as_str());
        if reaches && !passed { self.folder(path, key) } else { Ok(()) }
    }

    fn object(&mut self, key: &str, file: impl FnOnce() -> (String, bool)) {
        let (name, file) = match self.common(key) {
            Some(common) if self.is_last(common) => return,
            Some(common) => (common, None),
            None => (key, Some(file())),
        };
        if name > self.query.after {
            self.found.push(Found { name: name.to_string(), file });
        }
    }

    /// The prefix that this key shares with others up to the delimiter.
    fn common<'k>(&self, key: &'k str) -> Option<&'k str> {
        let Query { prefix, delimiter, .. } = self.query;
        if delimiter.is_empty() {
            return None;
        }
        let at = key.strip_prefix(prefix)?.find(delimiter)?;
        Some(&key[..prefix.len() + at + delimiter.len()])
    }

    fn is_last(&self, common: &str) -> bool {
        self.found.last().is_some_and(|last| last.file.is_none() && last.name == common)
    }
}

#[cfg(test)]
#[path = "listing/tests.rs"]
mod tests;
