//! What was asked of other members and given to them. Relaxed atomics: figures for people, never decisions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Blocks and their bytes.
#[derive(Default)]
pub struct Count {
    blocks: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    pub fn add(&self, bytes: usize) {
        self.blocks.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Blocks and bytes so far.
    pub fn get(&self) -> (u64, u64) {
        (self.blocks.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// Since the node began.
#[derive(Default)]
pub struct Figures {
    /// Had from other members, and given to them.
    pub had: Count,
    pub served: Count,
    /// Requests to members that broke off, fell silent or were refused a connection.
    pub broken: AtomicU64,
    /// Requests that a member refused, since it doesn't read the store by the same credentials.
    pub not_mine: AtomicU64,
    /// Runs of stripes that others own, for which this node asked the store all the same.
    pub around: AtomicU64,
    /// Blocks that arrived damaged.
    pub damaged: AtomicU64,
}
