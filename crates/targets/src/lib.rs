//! What is measured: a folder (of any file system), a store, or nothing at all. Every target answers the same calls,
//! made by threads that wait for them, as the readers of a training job do.
//!
//! It never asks a target who made it. Invariant: a call moves the bytes that it is asked for, or says why not.

pub mod clock;
mod folder;
mod null;
mod shaped;
mod store;

use std::sync::Arc;

use block::{Error, Result};

pub use folder::Folder;
pub use folder::Reading;
pub use null::Null;
pub use shaped::{Shape, Shaped};
pub use store::Store;

/// Refuse a name that leads out of the root of a target. Names come out of manifests, which anybody may have written.
pub fn beneath(name: &str) -> Result<()> {
    let is_wrong = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
    if !name.split('/').any(is_wrong) {
        return Ok(());
    }
    Err(Error::invalid("this is no name of a file below a target", format!("{name:?}"))
        .hint("whoever wrote this name can't be trusted: get the data set from somewhere else"))
}

/// A file, as a listing tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Below the root of the target, with `/` between its parts.
    pub name: Arc<str>,
    pub bytes: u64,
}

/// What can be read. Calls block.
pub trait Target: Send + Sync {
    /// What a user types to reach it: `/mnt/data`, `s3://bucket/prefix`, `null:`.
    fn url(&self) -> &str;

    /// Every file, by name.
    fn list(&self) -> Result<Vec<Listed>>;

    /// Whether nothing at all lies there, hidden files included.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.list()?.is_empty())
    }

    /// What a file is now, asked of the target anew.
    fn stat(&self, name: &str) -> Result<Listed>;

    /// Open a file that a listing named.
    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>>;

    /// The same as something that can be written, if it can be.
    fn writable(&self) -> Option<&dyn Writable>;

    /// Whether this machine may keep what was read, as the kernel keeps pages of files.
    fn is_cached(&self) -> bool {
        true
    }

    /// What it gave so far, if it counts that itself. Of files the kernel counts it.
    fn given(&self) -> Option<Given> {
        None
    }
}

/// What a target gave since it was opened, as it counts it itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub reads: u64,
    pub bytes: u64,
    /// Nanoseconds in which the limits of a shaped disk were used up; nothing of others.
    pub busy: Option<u64>,
}

/// An open file.
pub trait Opened: Send {
    /// Fill the buffer from this offset; fewer bytes only at the end of the file.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The reads that follow have nothing to do with each other: nobody is to read ahead of them.
    fn alone(&mut self) {}
}

/// A target that can be written.
pub trait Writable: Target {
    /// A new file, or a new version of one; nobody sees it under its name before it is finished.
    fn create(&self, name: &str, bytes: u64) -> Result<Box<dyn Created>>;

    fn remove(&self, name: &str) -> Result<()>;
}

/// A file that is being written.
pub trait Created: Send {
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// The file is whole: give it its name. `durable` returns only when it would survive a loss of power.
    fn finish(self: Box<Self>, durable: bool) -> Result<()>;
}
