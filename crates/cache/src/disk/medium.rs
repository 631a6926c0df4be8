//! The file system under the disk tier, as the few operations that the tier makes of it. All of them go through
//! here, so that a simulation can stand in for a disk that fails, fills up or forgets.
//!
//! Nothing here decides: no retry, no check, no cleaning up. `System` is the kernel's.

mod system;

pub use system::{System, is_cached, is_gone};

use std::io::{IoSlice, Result};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A file system. More methods than a trait should have, because it mirrors the system calls that the tier makes.
pub trait Medium: Send + Sync {
    /// Open a file.
    fn open(&self, path: &Path, how: How) -> Result<Arc<dyn Handle>>;

    /// Unlink a file; a folder in its place goes with everything in it.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Give a file another name, replacing what has it.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Make a folder in one that is there; one of that name is fine.
    fn make_folder(&self, path: &Path) -> Result<()>;

    /// Names in a folder.
    fn list(&self, path: &Path) -> Result<Vec<String>>;

    /// What is free.
    fn space(&self, path: &Path) -> Result<Space>;

    /// What tells a folder from any other that has its place later.
    fn folder(&self, path: &Path) -> Result<Made>;

    /// What is different once the file system was away in between: a number of its mount.
    fn mounted(&self, path: &Path) -> Result<u128>;

    /// Whether its operations take no time, so that they need no thread of their own.
    fn is_instant(&self) -> bool;
}

/// An open file. Reads and writes may be short, as the kernel's.
pub trait Handle: std::any::Any + Send + Sync {
    /// Append bytes of the file from an offset to the spare capacity of a buffer; how many, 0 at the end.
    fn read(&self, into: &mut Vec<u8>, at: u64) -> Result<usize>;

    fn write(&self, pieces: &[IoSlice<'_>], at: u64) -> Result<usize>;

    fn set_len(&self, bytes: u64) -> Result<()>;

    /// Wait until the disk has all of it.
    fn sync(&self) -> Result<()>;

    fn status(&self) -> Result<Status>;

    /// The descriptor, for the kernel to read from; a simulated file has none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// A folder: its number, that of its file system, and when it was made, as far as that is known.
pub type Made = (u64, u64, Option<SystemTime>);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Read,
    Write,
    /// Opened for writing, made if it is not there.
    OpenOrCreate,
    /// Made; it must not be there. With this mode.
    Create {
        mode: u32,
    },
}

/// What a file system tells of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub bytes: u64,
    /// Whether it still has a name.
    pub is_linked: bool,
    /// Its number, and that of its file system: no other file's while it is open.
    pub number: (u64, u64),
}

/// What is free for this user. Without a limit on inodes there is no number of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub free_bytes: u64,
    pub free_files: Option<u64>,
}
