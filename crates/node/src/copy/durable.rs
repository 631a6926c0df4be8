//! What a copy asks of the disk so that its files outlive a power loss: few calls, so that a test can be a disk that
//! loses what it was not asked to keep.

use std::fs::File;
use std::io::Result;
use std::path::Path;

/// A disk, as far as it can promise something.
pub trait Disk: Send + Sync {
    /// From now on the bytes, the length and the time of a file are there, whatever happens.
    fn sync(&self, file: &File) -> Result<()>;

    /// Give a file its name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// From now on the names on the file system of this folder are there.
    fn sync_names(&self, folder: &File) -> Result<()>;
}

/// The disk of this machine.
pub struct Real;

impl Disk for Real {
    fn sync(&self, file: &File) -> Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to)
    }

    /// All of the file system at once: a data set has thousands of folders, each of which would cost a write.
    fn sync_names(&self, folder: &File) -> Result<()> {
        folder.sync_all()?;
        rustix::fs::syncfs(folder).map_err(Into::into)
    }
}
