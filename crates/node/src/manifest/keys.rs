//! The objects of a snapshot in the order of their keys, byte by byte: for whoever compares names with others.
//!
//! A snapshot is ordered by folders. The keys of a folder lie together in either order, so each folder is brought into the order
//! of keys by itself, with a slash behind the names of folders. Names that don't tell their key as it is are few; they are
//! put aside and merged. Holds four bytes a child of the folders that it is in, and the keys of odd names.
//!
//! Invariant: each key once, greater than the one before, whatever the bytes of the snapshot are.

use super::{Manifest, TOP, names};
use std::iter::Peekable;
use std::sync::Arc;
use store::{Listed, UNSETTLED};

/// Objects in the order of their keys. Ask for the next by [`Keys::advance`].
pub struct Keys {
    manifest: Arc<Manifest>,
    /// The key that the walk is at, with the prefix.
    key: String,
    levels: Vec<Level>,
    next: Option<Listed>,
    /// Odd ones, last first.
    aside: Vec<Listed>,
}

/// A folder that the walk is in.
struct Level {
    children: Peekable<std::vec::IntoIter<u32>>,
    key_bytes: usize,
}

impl Keys {
    pub fn of(manifest: Arc<Manifest>) -> Keys {
        let key = manifest.prefix().to_owned();
        let mut keys = Keys { manifest, key, levels: Vec::new(), next: None, aside: Vec::new() };
        if keys.manifest.totals().odd.iter().any(|count| *count > 0) {
            keys.put_aside();
        }
        keys.enter(TOP);
        keys.next = keys.step();
        keys
    }

    /// Objects that will come if the snapshot is sound: files, and folders with nothing in them. A snapshot keeps the
    /// keys of files alone, so a folder in the place of a path that is too long is left out.
    pub fn count(manifest: &Manifest) -> u64 {
        let entries = (1..).map_while(|index| manifest.entry(index));
        let empty = entries.filter(|entry| entry.folder() && entry.children().1 == 0);
        let told = empty.filter(|entry| !manifest.name(*entry).is_some_and(names::is_hashed));
        manifest.totals().files + told.count() as u64
    }

    /// Files with a version that may come to mean other bytes.
    pub fn unsettled(manifest: &Manifest) -> u64 {
        let versions = (1..).map_while(|index| manifest.entry(index)).filter(|entry| !entry.folder());
        let versions = versions.filter_map(|entry| manifest.version(entry));
        versions.filter(|version| version.starts_with(UNSETTLED)).count() as u64
    }

    /// The next object; `None` after the last. A folder with nothing in it comes as what makes one in a bucket: no bytes
    /// under a key with a slash at its end.
    pub fn advance(&mut self) -> Option<Listed> {
        let is_aside = match (&self.next, self.aside.last()) {
            (Some(next), Some(aside)) => aside.key < next.key,
            (None, aside) => aside.is_some(),
            (Some(_), None) => false,
        };
        if is_aside {
            return self.aside.pop();
        }
        let next = self.step();
        std::mem::replace(&mut self.next, next)
    }

    /// The next object whose name tells its key.
    fn step(&mut self) -> Option<Listed> {
        loop {
            let level = self.levels.last_mut()?;
            self.key.truncate(level.key_bytes);
            let Some(index) = level.children.next() else {
                self.levels.pop();
                continue;
            };
            let manifest = self.manifest.clone();
            let Some((entry, name)) = manifest.entry(index).and_then(|entry| Some((entry, manifest.name(entry)?)))
            else {
                continue;
            };
            let Ok(name) = str::from_utf8(name) else { continue };
            self.key.push_str(name);
            if !entry.folder() {
                if let Some(version) = manifest.version(entry) {
                    let (size, modified_ns) = (entry.size(), entry.modified_ns());
                    return Some(Listed { key: self.key.clone(), version, size, modified_ns });
                }
                continue;
            }
            self.key.push('/');
            if entry.children().1 == 0 {
                return Some(marker(self.key.clone()));
            }
            self.enter(index);
        }
    }

    /// Go into a folder, if its children are to be walked in the order of their keys.
    fn enter(&mut self, folder: u32) {
        let manifest = &self.manifest;
        let key = |index: &u32| -> (&[u8], bool) {
            let entry = manifest.entry(*index);
            let name = entry.and_then(|entry| manifest.name(entry)).unwrap_or_default();
            (name, entry.is_some_and(|entry| entry.folder()))
        };
        let range = manifest.range(folder).unwrap_or_default();
        let own = |index: &u32| manifest.child(folder, *index).is_some_and(|(_, name)| !names::is_reserved(name));
        let mut children: Vec<u32> = range.filter(own).collect();
        let spelled = |index: &u32| {
            let (name, is_folder) = key(index);
            name.iter().copied().chain(is_folder.then_some(b'/'))
        };
        children.sort_by(|left, right| spelled(left).cmp(spelled(right)));
        self.levels.push(Level { children: children.into_iter().peekable(), key_bytes: self.key.len() });
    }

    /// Take all objects with a name in their path that doesn't tell its part of the key.
    fn put_aside(&mut self) {
        let manifest = self.manifest.clone();
        let mut folders = vec![(TOP, false)];
        while let Some((folder, is_odd)) = folders.pop() {
            for (index, entry, name) in manifest.children(folder, 0) {
                let is_odd = is_odd || names::is_reserved(name);
                if entry.folder() && entry.children().1 > 0 {
                    folders.push((index, is_odd));
                } else if is_odd {
                    let key = if entry.folder() {
                        manifest.names(index).and_then(names::key).map(|key| key + "/")
                    } else {
                        manifest.key(index, entry)
                    };
                    let key = key.map(|key| format!("{}{key}", manifest.prefix()));
                    let found = key.and_then(|key| {
                        if entry.folder() {
                            return Some(marker(key));
                        }
                        let version = manifest.version(entry)?;
                        Some(Listed { key, version, size: entry.size(), modified_ns: entry.modified_ns() })
                    });
                    self.aside.extend(found);
                }
            }
        }
        self.aside.sort_unstable_by(|left, right| right.key.cmp(&left.key));
        self.aside.dedup_by(|left, right| left.key == right.key);
    }
}

fn marker(key: String) -> Listed {
    Listed { key, version: String::new(), size: 0, modified_ns: 0 }
}
