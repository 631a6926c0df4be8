//! What a mount did so far. Counted only; judged elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

/// Totals since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Opens that the kernel serves from a local file by itself.
    pub opens_through: u64,
    /// Sizes of those files, summed: the kernel does not tell how much of them was read.
    pub bytes_through: u64,
    /// Opens whose reads come to the daemon.
    pub opens_served: u64,
    /// Requests to read that came to the daemon.
    pub reads: u64,
    /// Bytes that the daemon answered with.
    pub bytes_served: u64,
    /// Waits that a reader gave up.
    pub interrupts: u64,
    /// Opens and reads that ended in an error.
    pub errors: u64,
}

/// The same, being counted.
#[derive(Default)]
pub struct Counters {
    pub opens_through: Counter,
    pub bytes_through: Counter,
    pub opens_served: Counter,
    pub reads: Counter,
    pub bytes_served: Counter,
    pub interrupts: Counter,
    pub errors: Counter,
}

/// On a cache line of its own, so that threads which count different things don't slow each other.
#[derive(Default)]
#[repr(align(64))]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub fn counts(&self) -> Counts {
        Counts {
            opens_through: self.opens_through.get(),
            bytes_through: self.bytes_through.get(),
            opens_served: self.opens_served.get(),
            reads: self.reads.get(),
            bytes_served: self.bytes_served.get(),
            interrupts: self.interrupts.get(),
            errors: self.errors.get(),
        }
    }
}
