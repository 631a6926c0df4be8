//! Writing an object: into a hidden file first, which takes its place in one step.
//! Also taking objects away. Knows nothing of HTTP.
//!
//! Invariant: a reader sees the old object or the new one, never half of one; two objects of one key
//! never have the same version, because modification times only grow.

use crate::folder::{Folder, Refusal};
use crate::keys;
use crate::metadata::Metadata;
use crate::version::Version;
use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, fstat, futimens, mkdirat, openat, openat2, renameat,
    unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Hidden files of objects that are being written, within their bucket and so on its file system.
const DRAFTS: &str = ".stoker/drafts";

const ALL: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
const READ_WRITE: Mode = Mode::from_raw_mode(0o666);

/// Which object is to be written.
#[derive(Clone, Copy)]
pub struct ObjectName<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
}

/// An object that is being written; dropped, it leaves nothing behind.
pub struct Draft {
    folder: OwnedFd,
    name: String,
    pub file: File,
    placed: bool,
}

impl Draft {
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Unique within this bucket for as long as this process lives.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Let it be an ordinary file of a hidden folder.
    pub fn move_to(mut self, folder: &OwnedFd, name: &str) -> Result<(), Refusal> {
        renameat(&self.folder, &self.name, folder, name)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

impl Folder {
    /// Begin an object in a bucket.
    pub fn draft(&self, bucket: &str) -> Result<Draft, Refusal> {
        if !self.has_bucket(bucket) {
            return Err(Refusal::NoBucket);
        }
        let folder = self.make_folders(bucket, DRAFTS)?;
        let name = format!("{}-{}", std::process::id(), self.serial.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&folder, &name, flags, READ_WRITE)?;
        Ok(Draft { folder, name, file: file.into(), placed: false })
    }

    /// Let a finished draft take its place, if what is there now is `allowed`. `wall` is nanoseconds since 1970.
    pub fn place<E: From<Refusal>>(
        &self,
        mut draft: Draft,
        at: ObjectName<'_>,
        metadata: &Metadata,
        wall: i64,
        allowed: impl FnOnce(Option<Version>) -> Result<(), E>,
    ) -> Result<Version, E> {
        metadata.save(&draft.file)?;
        let _one_at_a_time = self.commit.lock().expect("no panic while held");
        let current = match self.object(at.bucket, at.key) {
            Ok(opened) => Some(opened.version),
            Err(Refusal::NoObject) => None,
            Err(other) => return Err(other.into()),
        };
        allowed(current)?;
        self.stamp(&draft.file, wall)?;
        self.take_place(&mut draft, at)?;
        let stat = fstat(&draft.file).map_err(Refusal::from)?;
        Ok(Version { changes: self.changes(at.bucket, at.key), ..Version::of(&stat) })
    }

    /// Give a file a modification time later than any given before.
    pub fn stamp(&self, file: &File, wall: i64) -> Result<(), Refusal> {
        let wall = u64::try_from(wall).unwrap_or(0);
        let last = self.stamped.fetch_max(wall, Ordering::Relaxed);
        let mine = if last < wall { wall } else { self.stamped.fetch_add(1, Ordering::Relaxed) + 1 };
        let time = Timespec { tv_sec: (mine / 1_000_000_000) as _, tv_nsec: (mine % 1_000_000_000) as _ };
        Ok(futimens(file, &Timestamps { last_access: time, last_modification: time })?)
    }

    fn take_place(&self, draft: &mut Draft, at: ObjectName<'_>) -> Result<(), Refusal> {
        let plain = keys::object_path(at.key);
        let escaped = keys::escaped_object_path(at.key);
        let (folders, plain_name) = plain.rsplit_once('/').unwrap_or(("", &plain));
        let escaped_name = escaped.rsplit_once('/').map_or(escaped.as_str(), |(_, name)| name);
        let parent = self.make_folders(at.bucket, folders)?;
        match renameat(&draft.folder, &draft.name, &parent, plain_name) {
            Ok(()) if plain_name != escaped_name => drop(unlinkat(&parent, escaped_name, AtFlags::empty())),
            Ok(()) => {}
            // A folder has the plain name: the object lies beside it.
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                renameat(&draft.folder, &draft.name, &parent, escaped_name)?
            }
            Err(errno) => return Err(errno.into()),
        }
        draft.placed = true;
        Ok(())
    }

    /// Open a folder of a bucket, making what is missing. A file in the way becomes an object beside it.
    pub fn make_folders(&self, bucket: &str, path: &str) -> Result<OwnedFd, Refusal> {
        let whole = self.path(bucket, path)?;
        match self.open_folder(&whole) {
            Err(Refusal::NoObject) => {}
            other => return other,
        }
        let mut folder = self.open_folder(&self.bucket_path(bucket)?).map_err(|_| Refusal::NoBucket)?;
        for name in path.split('/') {
            let open = || {
                openat2(
                    &folder,
                    name,
                    OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
                    Mode::empty(),
                    ResolveFlags::BENEATH,
                )
            };
            let next = match open() {
                Err(Errno::NOTDIR) => {
                    renameat(&folder, name, &folder, keys::escaped_object_name(name))?;
                    make(&folder, name)?;
                    open()?
                }
                Err(Errno::NOENT) => {
                    make(&folder, name)?;
                    open()?
                }
                other => other?,
            };
            folder = next;
        }
        Ok(folder)
    }

    /// Take an object away, and the folders that it leaves empty. Whether it was there makes no difference.
    pub fn remove(&self, at: ObjectName<'_>) -> Result<(), Refusal> {
        if !self.has_bucket(at.bucket) {
            return Err(Refusal::NoBucket);
        }
        let _one_at_a_time = self.commit.lock().expect("no panic while held");
        let plain = keys::object_path(at.key);
        for within in [&*plain, &keys::escaped_object_path(at.key)] {
            let (folders, name) = within.rsplit_once('/').unwrap_or(("", within));
            match self.open_folder(&self.path(at.bucket, folders)?) {
                Ok(parent) => match unlinkat(&parent, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR | Errno::NAMETOOLONG | Errno::NOTDIR) => {}
                    Err(errno) => return Err(errno.into()),
                },
                Err(Refusal::NoObject | Refusal::TooLong) => {}
                Err(other) => return Err(other),
            }
        }
        self.prune(at.bucket, &plain);
        Ok(())
    }

    /// Remove empty folders above a path, up to the bucket.
    fn prune(&self, bucket: &str, path: &str) {
        let mut path = path;
        while let Some((folders, _)) = path.rsplit_once('/') {
            let (above, name) = folders.rsplit_once('/').unwrap_or(("", folders));
            let parent = self.path(bucket, above).and_then(|above| self.open_folder(&above));
            if !parent.is_ok_and(|parent| unlinkat(parent, name, AtFlags::REMOVEDIR).is_ok()) {
                return;
            }
            path = folders;
        }
    }
}

/// Another request may have made it meanwhile.
fn make(folder: &OwnedFd, name: &str) -> Result<(), Refusal> {
    match mkdirat(folder, name, ALL) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Folder, key: &str, bytes: &[u8]) -> Version {
        let mut draft = folder.draft("bucket").unwrap();
        draft.write(bytes).unwrap();
        let at = ObjectName { bucket: "bucket", key };
        folder.place::<Refusal>(draft, at, &Metadata::default(), 1_000_000_000, |_| Ok(())).unwrap()
    }

    fn read(folder: &Folder, key: &str) -> Option<Vec<u8>> {
        let opened = folder.object("bucket", key).ok()?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut File::from(opened.file), &mut bytes).unwrap();
        Some(bytes)
    }

    #[test]
    fn keys_that_no_folder_can_hold_are_held_all_the_same() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bucket")).unwrap();
        let folder = Folder::open(root.path(), None).unwrap();
        let keys = ["x", "x/y", "x/y/z", "a//b", "a/", "..", "../x", "nul\0", ".stoker/drafts", "/", "a/./b", "100%"];
        let versions: Vec<Version> = keys.iter().map(|key| write(&folder, key, key.as_bytes())).collect();
        for (key, version) in keys.iter().zip(versions) {
            assert_eq!(read(&folder, key).as_deref(), Some(key.as_bytes()), "{key:?}");
            // A file that gave way to a folder keeps its version.
            assert_eq!(folder.object("bucket", key).map(|opened| opened.version), Ok(version), "{key:?}");
        }
        write(&folder, "x", b"new");
        assert_eq!(read(&folder, "x").as_deref(), Some(&b"new"[..]));
        for key in keys {
            folder.remove(ObjectName { bucket: "bucket", key }).unwrap();
            assert_eq!(read(&folder, key), None, "{key:?}");
        }
        let left: Vec<_> =
            std::fs::read_dir(root.path().join("bucket")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [".stoker"], "folders go with their last object");
        assert_eq!(std::fs::read_dir(root.path().join("bucket/.stoker/drafts")).unwrap().count(), 0);
    }

    #[test]
    fn versions_differ_even_within_one_tick_of_the_clock() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bucket")).unwrap();
        let folder = Folder::open(root.path(), None).unwrap();
        let etags: std::collections::BTreeSet<String> = (0..100).map(|_| write(&folder, "k", b"same").etag()).collect();
        assert_eq!(etags.len(), 100);
    }
}
