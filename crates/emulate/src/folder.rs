//! The folder on disk: buckets are its first-level folders, or it is one bucket itself.
//! Opens files and stats them; knows nothing of HTTP.
//!
//! Invariant: every path is resolved by the kernel beneath the folder (`RESOLVE_BENEATH`), so that
//! neither a key nor a symbolic link leads out of it.

use crate::keys;
use crate::names::Names;
use crate::version::Version;
use block::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

/// Objects whose version has been made to look changed by a fault. Beyond it the fault does nothing.
const CHANGED_MAX: usize = 100_000;

/// A folder that is served.
pub struct Folder {
    pub root: OwnedFd,
    /// The one bucket that the folder itself is.
    single: Option<String>,
    pub names: Names,
    changed: RwLock<HashMap<String, u32>>,
    any_changed: AtomicBool,
    /// Taken for the short step in which a finished object takes its place.
    pub commit: Mutex<()>,
    pub serial: AtomicU64,
    /// The latest modification time given to an object, in nanoseconds since 1970.
    pub stamped: AtomicU64,
}

/// A regular file, open for reading.
pub struct Opened {
    pub file: OwnedFd,
    pub version: Version,
}

/// Why an object cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoBucket,
    NoObject,
    /// A link leads out of the folder, or the permissions of the file forbid it.
    Denied,
    /// No name on disk is that long.
    TooLong,
    NoSpace,
    Failed(Errno),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Refusal::NoObject,
            Errno::XDEV | Errno::ACCESS | Errno::PERM => Refusal::Denied,
            Errno::NAMETOOLONG => Refusal::TooLong,
            Errno::NOSPC | Errno::DQUOT => Refusal::NoSpace,
            other => Refusal::Failed(other),
        }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        error.raw_os_error().map_or(Refusal::Failed(Errno::IO), |code| Refusal::from(Errno::from_raw_os_error(code)))
    }
}

impl Folder {
    /// The folder at `path`, as one bucket if that has a name.
    pub fn open(path: &Path, single: Option<String>) -> Result<Folder> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
            Error::io("the folder to serve could not be opened", path.display(), &errno.into())
                .hint("name a folder that exists and that you may read")
        })?;
        if let Some(name) = single.as_ref().filter(|name| !is_bucket_name(name)) {
            return Err(Error::invalid("this cannot be the name of a bucket", format!("`{name}`"))
                .hint("use letters, digits, `-`, `_` and `.`, not first a dot"));
        }
        openat2(&root, ".", flags, Mode::empty(), ResolveFlags::BENEATH).map_err(|errno| {
            Error::io("the kernel refused a safe way of opening files", path.display(), &errno.into())
                .hint("use Linux 5.6 or newer, and allow openat2 where a sandbox filters system calls")
        })?;
        Ok(Folder {
            root,
            single,
            names: Names::default(),
            changed: RwLock::default(),
            any_changed: AtomicBool::new(false),
            commit: Mutex::default(),
            serial: AtomicU64::new(0),
            stamped: AtomicU64::new(0),
        })
    }

    /// Where a bucket's path begins, relative to the root; `.` for the root itself.
    pub fn bucket_path(&self, bucket: &str) -> Result<String, Refusal> {
        match &self.single {
            Some(single) if single == bucket => Ok(".".into()),
            Some(_) => Err(Refusal::NoBucket),
            None => Ok(bucket.into()),
        }
    }

    /// A path within a bucket, relative to the root.
    pub fn path(&self, bucket: &str, within: &str) -> Result<String, Refusal> {
        match (&self.single, within) {
            (_, "") => self.bucket_path(bucket),
            (None, within) => Ok(format!("{bucket}/{within}")),
            (Some(_), within) => self.bucket_path(bucket).map(|_| within.to_string()),
        }
    }

    /// Whether there is such a bucket.
    pub fn has_bucket(&self, bucket: &str) -> bool {
        self.bucket_path(bucket).is_ok_and(|path| self.open_folder(&path).is_ok())
    }

    /// All buckets in byte order.
    pub fn buckets(&self) -> Vec<String> {
        if let Some(single) = &self.single {
            return vec![single.clone()];
        }
        let Ok(list) = rustix::fs::Dir::read_from(&self.root) else { return Vec::new() };
        let names = list.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(String::from));
        let mut buckets: Vec<String> = names.filter(|name| is_bucket_name(name) && self.has_bucket(name)).collect();
        buckets.sort();
        buckets
    }

    /// Make a bucket; false if it was there.
    pub fn make_bucket(&self, bucket: &str) -> Result<bool, Refusal> {
        if self.bucket_path(bucket)? == "." {
            return Ok(false);
        }
        match mkdirat(&self.root, bucket, Mode::from_raw_mode(0o777)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Open an object for reading.
    pub fn object(&self, bucket: &str, key: &str) -> Result<Opened, Refusal> {
        let plain = self.path(bucket, &keys::object_path(key))?;
        let opened = match self.open_file(&plain) {
            Err(Refusal::NoObject) => self.open_file(&self.path(bucket, &keys::escaped_object_path(key))?),
            other => other,
        };
        match opened {
            Ok(mut opened) => {
                opened.version.changes = self.changes(bucket, key);
                Ok(opened)
            }
            Err(Refusal::NoObject | Refusal::TooLong) if self.has_bucket(bucket) => Err(Refusal::NoObject),
            Err(Refusal::NoObject | Refusal::TooLong) => Err(Refusal::NoBucket),
            Err(other) => Err(other),
        }
    }

    /// Open a regular file; anything else is no object.
    pub fn open_file(&self, path: &str) -> Result<Opened, Refusal> {
        // A pipe with no writer would block an open without NONBLOCK; files do not care.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::BENEATH)?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Refusal::NoObject);
        }
        Ok(Opened { file, version: Version::of(&stat) })
    }

    /// Open a folder to work in.
    pub fn open_folder(&self, path: &str) -> Result<OwnedFd, Refusal> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        Ok(openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::BENEATH)?)
    }

    /// How often an object was made to look changed.
    pub fn changes(&self, bucket: &str, key: &str) -> u32 {
        if !self.any_changed.load(Ordering::Acquire) {
            return 0;
        }
        let changed = self.changed.read().expect("no panic while held");
        changed.get(&format!("{bucket}/{key}")).copied().unwrap_or(0)
    }

    /// Make an object look changed from now on.
    pub fn change(&self, path: &str) {
        let mut changed = self.changed.write().expect("no panic while held");
        if changed.len() < CHANGED_MAX {
            *changed.entry(path.to_string()).or_default() += 1;
            self.any_changed.store(true, Ordering::Release);
        }
    }
}

/// Looser than S3, because folders have the names that they have; never a path and never hidden.
pub fn is_bucket_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && !name.contains(['/', '\0']) && name != "-"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let outer = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(outer.path().join("served/bucket/sub")).unwrap();
        std::fs::write(outer.path().join("served/bucket/a"), b"inside").unwrap();
        std::fs::write(outer.path().join("secret"), b"outside").unwrap();
        let folder = Folder::open(&outer.path().join("served"), None).unwrap();
        (outer, folder)
    }

    #[test]
    fn nothing_leads_out_of_the_folder() {
        let (outer, folder) = folder();
        let bucket = outer.path().join("served/bucket");
        std::os::unix::fs::symlink("../../secret", bucket.join("relative")).unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), bucket.join("absolute")).unwrap();
        std::os::unix::fs::symlink("a", bucket.join("within")).unwrap();
        for key in ["../../secret", "/secret", "sub/../../../secret", "a/../../../secret"] {
            assert_eq!(folder.object("bucket", key).err(), Some(Refusal::NoObject), "{key}");
        }
        assert_eq!(folder.object("bucket", "relative").err(), Some(Refusal::Denied));
        assert_eq!(folder.object("bucket", "absolute").err(), Some(Refusal::Denied));
        assert_eq!(folder.object("bucket", "within").map(|opened| opened.version.size), Ok(6));
    }

    #[test]
    fn what_is_missing_is_named() {
        let (_outer, folder) = folder();
        assert_eq!(folder.object("bucket", "b").err(), Some(Refusal::NoObject));
        assert_eq!(folder.object("bucket", "sub").err(), Some(Refusal::NoObject), "a folder is no object");
        assert_eq!(folder.object("bucket", "a/b").err(), Some(Refusal::NoObject));
        assert_eq!(folder.object("bucket", &"x".repeat(300)).err(), Some(Refusal::NoObject));
        assert_eq!(folder.object("other", "a").err(), Some(Refusal::NoBucket));
        assert_eq!(folder.buckets(), ["bucket"]);
        assert!(Folder::open(Path::new("/no/such"), None).is_err_and(|error| error.hint.contains("exists")));
    }

    #[test]
    fn a_folder_can_be_one_bucket() {
        let (outer, _) = folder();
        let folder = Folder::open(&outer.path().join("served/bucket"), Some("train".into())).unwrap();
        assert_eq!(folder.object("train", "a").map(|opened| opened.version.size), Ok(6));
        assert_eq!(folder.object("bucket", "a").err(), Some(Refusal::NoBucket));
        assert_eq!(folder.buckets(), ["train"]);
        assert!(Folder::open(outer.path(), Some("../up".into())).is_err());
    }
}
