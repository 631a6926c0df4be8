//! Files that the daemon serves, from OPEN to RELEASE, and how each was read.
//!
//! Invariant: a handle number is never 0, which stands for "no handle", and never used again, not by the next process
//! either.

use node::namespace::Content;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Opens that pass through, and reads of mounts that never open, carry no handle.
pub const NONE: u64 = 0;

/// Several times the threads of a session.
const SHARDS: u64 = 16;

/// Handles of one process: at a million opens a second, a week's.
const HANDLE_BITS: u32 = 40;

/// The first handle of the process that is so many restarts after the first one.
pub fn first(restarts: u32) -> u64 {
    u64::from(restarts) << HANDLE_BITS | 1
}

/// Reads after which the manner of reading can be judged.
const JUDGED_READS: u64 = 16;

/// Measured: from here up reading past the page cache is cheaper, below it the page cache is.
const SMALL_READ_BYTES: u64 = 32 << 10;

/// A file that the daemon serves.
pub struct OpenFile {
    pub content: Arc<dyn Content>,
    pub size: u64,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl OpenFile {
    pub fn count(&self, bytes: u32) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    /// Whether it was read in many small steps.
    pub fn small_reads(&self) -> bool {
        small(self.reads.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

fn small(reads: u64, bytes: u64) -> bool {
    reads >= JUDGED_READS && bytes / reads < SMALL_READ_BYTES
}

/// All files that the daemon serves.
pub struct Handles {
    first: u64,
    next: AtomicU64,
    shards: [RwLock<HashMap<u64, Arc<OpenFile>>>; SHARDS as usize],
}

impl Handles {
    pub fn new(first: u64) -> Handles {
        Handles { first, next: AtomicU64::new(first), shards: std::array::from_fn(|_| RwLock::default()) }
    }

    pub fn insert(&self, content: Arc<dyn Content>, size: u64) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.put(handle, content, size);
        handle
    }

    /// Go on with a file that another process opened.
    pub fn put(&self, handle: u64, content: Arc<dyn Content>, size: u64) {
        let file = OpenFile { content, size, reads: AtomicU64::new(0), bytes: AtomicU64::new(0) };
        self.shard(handle).write().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(file));
    }

    /// Whether a process that is gone gave the handle.
    pub fn is_of_another(&self, handle: u64) -> bool {
        handle != NONE && handle < self.first
    }

    pub fn get(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.shard(handle).read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    pub fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.shard(handle).write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }

    fn shard(&self, handle: u64) -> &RwLock<HashMap<u64, Arc<OpenFile>>> {
        &self.shards[(handle % SHARDS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_reads_are_told_from_few_and_from_large_ones() {
        assert!(small(16, 16 * 4096));
        assert!(!small(15, 15 * 4096));
        assert!(!small(16, 16 * SMALL_READ_BYTES));
    }
}
