//! A folder of any file system: a local disk, Lustre, NFS, a mounted bucket.
//!
//! It follows no symbolic links out of the folder and skips what begins with a dot. Invariant: a file that is being
//! written is not seen under its name.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use block::{Error, Result};

use super::{Created, Listed, Opened, Target, Writable};

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

    fn list(&self) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        self.walk(&self.root, &mut found)?;
        found.sort();
        Ok(found)
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        let path = self.root.join(name);
        let found = fs::metadata(&path).map_err(|error| Error::io("cannot stat a file", path.display(), &error))?;
        Ok(self.listed(&path, found.len()))
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        let path = self.root.join(&*file.name);
        let opened = File::open(&path).map_err(|error| Error::io("cannot open a file", path.display(), &error))?;
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

impl Writable for Folder {
    fn create(&self, name: &str, _bytes: u64) -> Result<Box<dyn Created>> {
        let path = self.root.join(name);
        let draft = path.with_file_name(format!(".{}.draft", path.file_name().unwrap_or_default().to_string_lossy()));
        let doing = |error: std::io::Error| Error::io("cannot make a file", draft.display(), &error);
        fs::create_dir_all(path.parent().unwrap_or(&self.root)).map_err(doing)?;
        let file = File::create(&draft).map_err(doing)?;
        Ok(Box::new(Writing { file, draft: draft.clone(), path }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.root.join(name);
        fs::remove_file(&path).map_err(|error| Error::io("cannot remove a file", path.display(), &error))
    }
}

struct Writing {
    file: File,
    draft: PathBuf,
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
        fs::rename(&self.draft, &self.path).map_err(doing)
    }
}

impl Drop for Writing {
    /// Nothing half-written is left; after [`Created::finish`] the draft has another name.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.draft);
    }
}
