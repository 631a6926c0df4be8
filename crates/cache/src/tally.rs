//! Counts of what a tier served. Relaxed atomics: figures for people, never decisions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count and the bytes that belong to it.
#[derive(Default)]
pub struct Count {
    times: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    pub fn add(&self, times: u64, bytes: u64) {
        self.times.fetch_add(times, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Times and bytes so far.
    pub fn get(&self) -> (u64, u64) {
        (self.times.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// What a tier served itself, had from below, and could not keep.
#[derive(Default)]
pub struct Tally {
    pub here: Count,
    pub below: Count,
    /// Of what came from below, the bytes that came for the first time since the node began.
    pub unique: Count,
    pub unkept: Count,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_bytes_are_counted() {
        let tally = Tally::default();
        [(1, 10), (2, 20)].into_iter().for_each(|(times, bytes)| tally.here.add(times, bytes));
        assert_eq!((tally.here.get(), tally.below.get()), ((3, 30), (0, 0)));
    }
}
