//! A folder of any file system: a local disk, Lustre, NFS, a mounted bucket.
//!
//! A listing follows no symbolic links and skips what begins with a dot. Invariants: a file that is being written is not
//! seen under its name; nothing is written or removed outside of the folder, whatever a name or a link in it says.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use block::{Error, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::{Created, Listed, Opened, Target, Writable, beneath};

#[derive(Clone)]
pub struct Folder {
    root: PathBuf,
    url: String,
}

impl Folder {
    pub fn at(root: &Path) -> Result<Folder> {
        let doing = |error: std::io::Error| Error::io("cannot open the folder", root.display(), &error);
        let root = fs::canonicalize(root).map_err(doing)?;
        if !root.is_dir() {
            return Err(Error::invalid("this is no folder", root.display()).hint("name the folder that it lies in"));
        }
        Ok(Folder { url: root.display().to_string(), root })
    }

    fn walk(&self, folder: &Path, found: &mut Vec<Listed>) -> Result<()> {
        let doing = |error: std::io::Error| Error::io("cannot list a folder", folder.display(), &error);
        for entry in fs::read_dir(folder).map_err(doing)? {
            let entry = entry.map_err(doing)?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let kind = entry.file_type().map_err(doing)?;
            if kind.is_dir() {
                self.walk(&entry.path(), found)?;
            } else if kind.is_file() {
                found.push(self.listed(&entry.path(), entry.metadata().map_err(doing)?.len()));
            }
        }
        Ok(())
    }

    fn listed(&self, path: &Path, bytes: u64) -> Listed {
        let name = path.strip_prefix(&self.root).unwrap_or(path);
        Listed { name: name.to_string_lossy().into(), bytes }
    }
}

impl Target for Folder {
    fn url(&self) -> &str {
        &self.url
    }

    fn is_empty(&self) -> Result<bool> {
        let doing = |error| Error::io("cannot list a folder", self.root.display(), &error);
        Ok(fs::read_dir(&self.root).map_err(doing)?.next().is_none())
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        self.walk(&self.root, &mut found)?;
        found.sort();
        Ok(found)
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        beneath(name)?;
        let path = self.root.join(name);
        let found = fs::metadata(&path).map_err(|error| Error::io("cannot stat a file", path.display(), &error))?;
        if !found.is_file() {
            // Reading a pipe would wait for ever.
            return Err(Error::invalid("this is no regular file", path.display()).hint("move it away"));
        }
        Ok(self.listed(&path, found.len()))
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        beneath(&file.name)?;
        let path = self.root.join(&*file.name);
        let doing = |error: std::io::Error| Error::io("cannot open a file", path.display(), &error);
        // A pipe that took the place of the file would wait for a writer.
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let opened = File::options().read(true).custom_flags(nonblocking).open(&path).map_err(doing)?;
        if !opened.metadata().map_err(doing)?.is_file() {
            let error = Error::changed("a file is none any more", path.display());
            return Err(error.hint("let nobody change the set while it is measured"));
        }
        Ok(Box::new(Reading { file: opened, path }))
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

/// A file that is read.
pub struct Reading {
    pub file: File,
    pub path: PathBuf,
}

impl Opened for Reading {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("cannot read a file", self.path.display(), &error)),
            }
        }
        Ok(filled)
    }

    fn alone(&mut self) {
        // Advice: where a file system has no use for it, it reads as it does.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::Random);
    }
}

impl Folder {
    /// The way to a file, through no link. Folders that are missing are made, if asked.
    fn descend(&self, name: &str, make: bool) -> rustix::io::Result<Way> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folders = vec![openat(CWD, &self.root, flags, Mode::empty())?];
        let mut above_made = None;
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        for part in folder.split('/').filter(|part| !part.is_empty()) {
            let above = folders.last().expect("the root is there");
            if make {
                match mkdirat(above, part, Mode::from_raw_mode(0o777)) {
                    Ok(()) => _ = above_made.get_or_insert(folders.len() - 1),
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
            }
            folders.push(openat(above, part, flags | OFlags::NOFOLLOW, Mode::empty())?);
        }
        folders.drain(..above_made.unwrap_or(folders.len() - 1));
        Ok(Way(folders))
    }
}

/// Folders on the way to a file that have changed for it: that which it is in, and those that got another below them.
struct Way(Vec<OwnedFd>);

impl Way {
    /// The one that it is in.
    fn last(&self) -> &OwnedFd {
        self.0.last().expect("the root is there")
    }
}

impl Writable for Folder {
    fn create(&self, name: &str, _bytes: u64) -> Result<Box<dyn Created>> {
        beneath(name)?;
        let path = self.root.join(name);
        let doing = |error: Errno| failed("cannot make a file", &path, error);
        let way = self.descend(name, true).map_err(doing)?;
        let folder = way.last();
        let name = file_name(name).to_owned();
        let draft = format!(".{name}.draft");
        // Left over from a run that was killed, or a link that leads elsewhere.
        let _ = unlinkat(folder, &*draft, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(folder, &*draft, flags, Mode::from_raw_mode(0o666)).map_err(doing)?);
        Ok(Box::new(Writing { file, way, draft, name, path }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        beneath(name)?;
        let way = self.descend(name, false);
        let removed = way.and_then(|way| unlinkat(way.last(), file_name(name), AtFlags::empty()));
        removed.map_err(|error| failed("cannot remove a file", &self.root.join(name), error))
    }
}

/// The last part of a name.
fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// What the system said of a way through folders that must not be links.
fn failed(doing: &str, path: &Path, error: Errno) -> Error {
    if matches!(error, Errno::LOOP | Errno::NOTDIR) {
        let error =
            Error::invalid("the way to this file leads through a link, or through what is no folder", path.display());
        return error.hint("move that away, or choose another folder");
    }
    Error::io(doing, path.display(), &error.into())
}

fn sync(folder: &OwnedFd) -> rustix::io::Result<()> {
    let opened = openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    match opened.and_then(rustix::fs::fsync) {
        // A file system that keeps no names of its own has nothing to sync; who may write to a folder may not always list it.
        Err(Errno::INVAL | Errno::NOTSUP | Errno::ACCESS) => Ok(()),
        other => other,
    }
}

struct Writing {
    file: File,
    way: Way,
    draft: String,
    name: String,
    path: PathBuf,
}

impl Created for Writing {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        use std::io::Write;
        let written = self.file.write_all(bytes);
        written.map_err(|error| Error::io("cannot write a file", self.path.display(), &error))
    }

    fn finish(self: Box<Self>, durable: bool) -> Result<()> {
        let doing = |error: std::io::Error| Error::io("cannot finish a file", self.path.display(), &error);
        if durable {
            self.file.sync_all().map_err(doing)?;
        }
        renameat(self.way.last(), &*self.draft, self.way.last(), &*self.name).map_err(|error| doing(error.into()))?;
        // Without its name on the disk the file is lost with the power; so it is without those of folders made for it.
        let synced = self.way.0.iter().rev().filter(|_| durable).try_for_each(sync);
        synced.map_err(|error| doing(error.into()))
    }
}

impl Drop for Writing {
    /// Nothing half-written is left; after [`Created::finish`] the draft has another name.
    fn drop(&mut self) {
        let _ = unlinkat(self.way.last(), &*self.draft, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use block::Kind;

    /// A folder of ours beside one of somebody else.
    fn beside() -> (tempfile::TempDir, Folder, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let (own, other) = (scratch.path().join("own"), scratch.path().join("other"));
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("keys"), "precious").unwrap();
        let folder = Folder::at(&own).unwrap();
        (scratch, folder, other)
    }

    fn write(folder: &Folder, name: &str, bytes: &[u8]) -> Result<()> {
        let mut created = folder.create(name, bytes.len() as u64)?;
        created.write(bytes)?;
        created.finish(true)
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_no_wait() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Folder::at(scratch.path()).unwrap();
        std::fs::write(scratch.path().join("f"), "text").unwrap();
        let [listed] = &folder.list().unwrap()[..] else { panic!("one file") };
        assert!(folder.open(listed).is_ok());
        std::fs::remove_file(scratch.path().join("f")).unwrap();
        rustix::fs::mkfifoat(CWD, scratch.path().join("f"), Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(folder.open(listed).err().map(|error| error.kind), Some(Kind::Changed));
    }

    #[test]
    fn a_name_leads_nowhere_but_below_the_folder() {
        let (_scratch, folder, other) = beside();
        let absolute = other.join("keys").display().to_string();
        for name in ["../other/keys", &absolute, "a/../../other/keys", "", "a//b", "./a", "a/", "a\0b"] {
            assert_eq!(write(&folder, name, b"evil").unwrap_err().kind, Kind::Invalid, "{name:?}");
            assert_eq!(folder.remove(name).unwrap_err().kind, Kind::Invalid, "{name:?}");
            assert_eq!(folder.stat(name).unwrap_err().kind, Kind::Invalid, "{name:?}");
            let listed = Listed { name: name.into(), bytes: 8 };
            assert_eq!(folder.open(&listed).err().unwrap().kind, Kind::Invalid, "{name:?}");
        }
        assert_eq!(fs::read(other.join("keys")).unwrap(), b"precious");
        assert!(folder.is_empty().unwrap(), "nothing was made");
    }

    #[test]
    fn no_link_in_the_folder_leads_a_write_out_of_it() {
        let (_scratch, folder, other) = beside();
        symlink(&other, folder.root.join("train")).unwrap();
        symlink(other.join("keys"), folder.root.join(".keys.draft")).unwrap();
        symlink(other.join("keys"), folder.root.join("link")).unwrap();
        assert_eq!(write(&folder, "train/keys", b"evil").unwrap_err().kind, Kind::Invalid);
        assert_eq!(folder.remove("train/keys").unwrap_err().kind, Kind::Invalid);
        write(&folder, "keys", b"ours").unwrap();
        write(&folder, "link", b"ours").unwrap();
        assert_eq!(fs::read(other.join("keys")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
        assert!(fs::symlink_metadata(folder.root.join("link")).unwrap().is_file(), "the link gave way to the file");
    }

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let (_scratch, folder, _) = beside();
        fs::create_dir(folder.root.join("a")).unwrap();
        rustix::fs::mknodat(CWD, folder.root.join("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for name in ["a", "pipe"] {
            assert_eq!(folder.stat(name).unwrap_err().kind, Kind::Invalid, "{name}");
        }
    }

    #[test]
    fn a_file_takes_its_name_in_new_folders_and_leaves_no_draft() {
        let (_scratch, folder, _) = beside();
        write(&folder, "a/b/c", b"first").unwrap();
        write(&folder, "a/b/c", b"second").unwrap();
        drop(folder.create("a/b/given-up", 1).unwrap());
        let found: Vec<_> =
            fs::read_dir(folder.root.join("a/b")).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(found, ["c"]);
        assert_eq!(fs::read(folder.root.join("a/b/c")).unwrap(), b"second");
    }
}
