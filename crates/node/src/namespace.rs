//! What a way in asks of a mounted data set: names, attributes, lists, and content to read.
//!
//! Everything here answers at once except [`Opening::Waiting`] and [`Reading::Waiting`]: the caller's
//! threads never block on a store or a disk that may be slow.
//!
//! Invariant: a node number is one (name, version) for as long as the caller holds lookups on it; a
//! refresh makes new nodes and never changes one.

use block::{Result, Waiting};
use bytes::Bytes;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The node number of the top folder.
pub const ROOT: u64 = 1;

/// What `stat` tells of a node, beside owner and mode, which belong to the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The node number, also the inode number.
    pub node: u64,
    pub folder: bool,
    /// Length in bytes; 0 for a folder.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Folders directly within, for the link count (2 + folders).
    pub folders: u32,
}

/// Bytes of a file, in pieces that follow each other; shorter than asked only at the end of the file.
pub type Pieces = Vec<Bytes>;

/// A file that was read without asking for it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    pub node: u64,
    /// Who did; 0 where it is not known.
    pub thread: u32,
    /// Whether it was opened. Otherwise more of it was read.
    pub is_open: bool,
}

/// A mounted data set. Names are raw bytes without slashes.
pub trait Namespace: Send + Sync + 'static {
    /// The child of this name, counting one lookup on it; `None` if there is none.
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<Attributes>;

    /// Attributes of a node that was looked up; `None` if it is not known any more.
    fn attributes(&self, node: u64) -> Option<Attributes>;

    /// Children of a folder from position `from` (0 first) in a stable order, until `each` says false.
    /// `each` receives the position after the child, its name and attributes. No lookup is counted:
    /// a caller that hands nodes out counts them by [`Namespace::remember`]. False if it is no folder.
    fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool;

    /// The names as they are now, which stay so for whoever holds them. `None`: names change as they will.
    fn names(&self) -> Option<Arc<dyn Names>> {
        None
    }

    /// The names as they were at another moment, if they are still kept.
    fn names_of(&self, _generation: u32) -> Option<Arc<dyn Names>> {
        None
    }

    /// These files were used, in this order. Told a while later, and before the next open that is asked for; a file that
    /// was used several times meanwhile is told of once.
    fn used(&self, _uses: &[Use]) {}

    /// Whether a file may be executed. A store knows nothing of that.
    fn executable(&self, _node: u64) -> bool {
        false
    }

    /// Count (positive) or give back (negative) lookups on a node.
    fn remember(&self, node: u64, lookups: i64);

    /// Whether a node is in the data set as it was last listed: only then may it be looked up again.
    fn is_listed(&self, _node: u64) -> bool {
        true
    }

    /// Content of a file, ready where it lies complete on a local disk.
    fn open(&self, node: u64) -> Opening;

    /// The same for whom it matters which thread asks; 0 where that is not known.
    fn open_by(&self, node: u64, _thread: u32) -> Opening {
        self.open(node)
    }
}

/// The names of a data set at one moment.
pub trait Names: Send + Sync {
    /// Which moment: later names have a higher number.
    fn generation(&self) -> u32;

    /// As [`Namespace::list`].
    fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool;
}

/// How an open is answered.
pub enum Opening {
    Ready(Result<Arc<dyn Content>>),
    Waiting(Waiting<Arc<dyn Content>>),
}

/// How a read is answered.
pub enum Reading {
    Ready(Result<Pieces>),
    Waiting(Waiting<Pieces>),
}

/// An open file: one version of one object, whatever happens to the store meanwhile.
pub trait Content: Send + Sync {
    /// A read-only descriptor of a local file with exactly these bytes, if it lies complete on a local disk.
    fn backing(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the backing file holds these bytes for as long as it exists. A file that is not ours may change
    /// in place: it is then asked for anew at each open, and compared with the version that was listed.
    fn lasts(&self) -> bool {
        true
    }

    /// Up to `length` bytes from `offset`, verified on the way wherever they come from.
    fn read(&self, offset: u64, length: u32) -> Reading;

    /// The same for whom it matters which thread asks.
    fn read_by(&self, offset: u64, length: u32, _thread: u32) -> Reading {
        self.read(offset, length)
    }

    /// Whether pages may be kept by the kernel. If not, each read comes here, but for those of mapped memory.
    fn cacheable(&self) -> bool {
        true
    }
}

/// Names that went stale at a refresh, as (parent node, name): the way in forgets what it knows of them.
pub type Stale = Vec<(u64, Vec<u8>)>;
