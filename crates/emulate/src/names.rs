//! The names in each folder, sorted as S3 sorts keys and kept until the folder changes.
//! Only names are kept: sizes and times are asked for anew with each page of a listing.
//!
//! Invariant: kept names are used only while the folder's own times say that nobody added or removed one.

use crate::folder::{Folder, Refusal};
use crate::keys::{self, Name};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Names kept over all folders, some 50 bytes each: 200 MB at worst, and 4 million files list fast.
const NAMES_KEPT_MAX: usize = 4_000_000;

/// The times of file systems move in steps of up to 10 ms: a folder that changed this shortly before
/// it was read may have changed again without showing it, and is read again.
const STEP_NANOSECONDS: i64 = 20_000_000;

/// One name within a folder, as a part of keys.
#[derive(Debug)]
pub struct Entry {
    /// The part; that of a folder ends with a slash, which is what makes the order that of whole keys.
    pub part: Box<str>,
    /// The name on disk, where it differs.
    pub on_disk: Option<Box<str>>,
    /// A symbolic link to a file beneath the root.
    pub linked: bool,
}

impl Entry {
    pub fn is_folder(&self) -> bool {
        self.part.ends_with('/')
    }

    /// The name on disk.
    pub fn name(&self) -> &str {
        self.on_disk.as_deref().unwrap_or_else(|| self.part.strip_suffix('/').unwrap_or(&self.part))
    }
}

/// State of a folder when it was read: (inode, change time, modification time).
type Times = (u64, i64, i64);

struct Kept {
    times: Times,
    /// False if the folder had just changed: then its times prove nothing.
    settled: bool,
    entries: Arc<Vec<Entry>>,
}

/// The names of all folders read so far.
#[derive(Default)]
pub struct Names {
    kept: Mutex<HashMap<String, Kept>>,
}

impl Names {
    fn get(&self, path: &str, times: Times) -> Option<Arc<Vec<Entry>>> {
        let kept = self.kept.lock().expect("no panic while held");
        kept.get(path).filter(|kept| kept.settled && kept.times == times).map(|kept| kept.entries.clone())
    }

    fn keep(&self, path: &str, fresh: Kept) {
        let mut kept = self.kept.lock().expect("no panic while held");
        kept.insert(path.to_string(), fresh);
        if kept.values().map(|kept| kept.entries.len() + 1).sum::<usize>() > NAMES_KEPT_MAX {
            kept.clear();
        }
    }
}

impl Folder {
    /// The entries of one folder in the order of keys. `now` is the wall clock in nanoseconds since 1970.
    pub fn entries(&self, path: &str, now: i64) -> Result<Arc<Vec<Entry>>, Refusal> {
        let times = times(&statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)?);
        if let Some(entries) = self.names.get(path, times) {
            return Ok(entries);
        }
        let entries = Arc::new(self.read(path)?);
        let settled = times.1.max(times.2) < now - STEP_NANOSECONDS;
        self.names.keep(path, Kept { times, settled, entries: entries.clone() });
        Ok(entries)
    }

    fn read(&self, path: &str) -> Result<Vec<Entry>, Refusal> {
        let folder = self.open_folder(path)?;
        let mut entries = Vec::new();
        for found in Dir::new(folder)? {
            let found = found?;
            // Keys are UTF-8: a file with another name has no key.
            let Ok(on_disk) = found.file_name().to_str() else { continue };
            if on_disk == "." || on_disk == ".." {
                continue;
            }
            let kind = self.kind(path, on_disk, found.file_type());
            entries.extend(kind.and_then(|kind| entry(on_disk, kind)));
        }
        entries.sort_unstable_by(|left, right| {
            (&left.part, left.on_disk.is_some()).cmp(&(&right.part, right.on_disk.is_some()))
        });
        entries.dedup_by(|later, first| later.part == first.part);
        Ok(entries)
    }

    /// Regular file, folder, or a link to a file beneath the root; links to folders could go in circles.
    fn kind(&self, path: &str, on_disk: &str, kind: FileType) -> Option<FileType> {
        let full = || format!("{path}/{on_disk}");
        let kind = match kind {
            FileType::Unknown => {
                FileType::from_raw_mode(statat(&self.root, full(), AtFlags::SYMLINK_NOFOLLOW).ok()?.st_mode)
            }
            kind => kind,
        };
        if kind != FileType::Symlink {
            return matches!(kind, FileType::RegularFile | FileType::Directory).then_some(kind);
        }
        let target =
            openat2(&self.root, full(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH).ok()?;
        let stat = fstat(&target).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(FileType::Symlink)
    }
}

fn entry(on_disk: &str, kind: FileType) -> Option<Entry> {
    let linked = kind == FileType::Symlink;
    let (part, escaped) = match (keys::name(on_disk), kind == FileType::Directory) {
        (Name::Plain(part), true) => (format!("{part}/"), false),
        (Name::Plain(part), false) => (part.to_string(), false),
        (Name::Folder(part), true) => (format!("{part}/"), true),
        (Name::Object(part), false) => (part, true),
        _ => return None,
    };
    Some(Entry { part: part.into(), on_disk: escaped.then(|| on_disk.into()), linked })
}

#[allow(clippy::unnecessary_cast, reason = "the types of these fields differ between platforms")]
fn times(stat: &rustix::fs::Stat) -> Times {
    let join = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds);
    (
        stat.st_ino as u64,
        join(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        join(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
    )
}
