//! Files of a folder as a sweep needs them: under their own names at once, past the page cache if asked.
//!
//! Unlike [`targets::Folder`] it makes no draft and renames nothing, which would be timed with each file.
//! Invariants: a file that exists is never opened for writing; one that wasn't finished is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use block::{Error, Result};
use rustix::fs::OFlags;
use targets::{Created, Listed, Opened, Reading, Target, Writable};

pub struct Plain {
    root: PathBuf,
    url: String,
    direct: bool,
}

impl Plain {
    /// `direct` needs buffers, blocks and sizes in multiples of [`crate::sweep::ALIGNMENT`].
    pub fn at(root: &Path, direct: bool) -> Result<Plain> {
        let doing = |error: std::io::Error| {
            Error::io("cannot open the folder", root.display(), &error).hint("name a folder that exists, or make it")
        };
        let root = fs::canonicalize(root).map_err(doing)?;
        if !root.is_dir() {
            return Err(Error::invalid("this is no folder", root.display()).hint("name the folder that it lies in"));
        }
        Ok(Plain { url: root.display().to_string(), root, direct })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        if self.direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        options
    }

    /// A failure to open; a file system without direct I/O says that the argument is invalid.
    fn failed(&self, doing: &str, path: &Path, error: &std::io::Error) -> Error {
        if self.direct && error.kind() == ErrorKind::InvalidInput {
            return Error::invalid("this file system has no direct I/O", path.display()).hint("leave out --direct");
        }
        Error::io(doing, path.display(), error)
    }
}

impl Target for Plain {
    fn url(&self) -> &str {
        &self.url
    }

    /// What a sweep made it knows by name.
    fn list(&self) -> Result<Vec<Listed>> {
        Err(Error::invalid("a sweep lists nothing", &self.url))
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        let path = self.path(name);
        let found = fs::metadata(&path).map_err(|error| Error::io("cannot stat a file", path.display(), &error))?;
        Ok(Listed { name: name.into(), bytes: found.len() })
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        let path = self.path(&file.name);
        let opened = self.options().read(true).open(&path);
        let file = opened.map_err(|error| self.failed("cannot open a file", &path, &error))?;
        Ok(Box::new(Reading { file, path }))
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

impl Writable for Plain {
    fn create(&self, name: &str, _bytes: u64) -> Result<Box<dyn Created>> {
        let path = self.path(name);
        let made = self.options().write(true).create_new(true).open(&path);
        let file = made.map_err(|error| self.failed("cannot make a file", &path, &error))?;
        Ok(Box::new(Writing { file, path, is_finished: false }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        fs::remove_file(&path).map_err(|error| Error::io("cannot remove a file", path.display(), &error))
    }
}

struct Writing {
    file: File,
    path: PathBuf,
    is_finished: bool,
}

impl Created for Writing {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let doing = |error: std::io::Error| {
            Error::io("cannot write a file", self.path.display(), &error)
                .hint("make room, or write less at a time with --limit")
        };
        self.file.write_all(bytes).map_err(doing)
    }

    fn finish(mut self: Box<Self>, durable: bool) -> Result<()> {
        if durable {
            let doing = |error: std::io::Error| Error::io("cannot finish a file", self.path.display(), &error);
            self.file.sync_all().map_err(doing)?;
        }
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}
