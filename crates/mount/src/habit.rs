//! Whether whoever lists a folder looks at the attributes of its files too. The kernel asks for them with each
//! listing and then makes an inode for each name, which costs it 5 us a name and is in vain for a program that
//! wants names only; without them, a program that looks at attributes pays a request a name.
//!
//! So one file of each folder is listed without attributes: if it is looked up, they are given from then on.
//!
//! Invariant: a wrong guess costs time, never an answer.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Walkers that are distinguished, by the thread that asks. Two that share a place slow each other down, no more.
const WALKERS: usize = 64;

/// Files on probation at a time. One that is pushed out counts as not looked up.
const PROBES: usize = 256;

/// Names in the first answer to an unknown walker: if it looks at attributes between two answers, the next one has them.
pub const FIRST_NAMES: usize = 64;

/// What a walker wants of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Manner {
    Unknown = 0,
    Names = 1,
    Attributes = 2,
}

/// All walkers.
pub struct Habits {
    walkers: [Walker; WALKERS],
    probes: [Probe; PROBES],
}

#[derive(Default)]
struct Walker {
    manner: AtomicU8,
    /// The node of the file that was listed without attributes, until it is looked up.
    waiting: AtomicU64,
}

#[derive(Default)]
struct Probe {
    node: AtomicU64,
    walker: AtomicU32,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            walkers: std::array::from_fn(|_| Walker::default()),
            probes: std::array::from_fn(|_| Probe::default()),
        }
    }
}

impl Habits {
    /// How a listing is to be answered. One that begins says that the walker is done with the folder before.
    pub fn listing(&self, thread: u32, begins: bool) -> Manner {
        let walker = &self.walkers[place(thread)];
        if begins && walker.waiting.swap(0, Relaxed) != 0 {
            walker.manner.store(Manner::Names as u8, Relaxed);
        }
        match walker.manner.load(Relaxed) {
            0 => Manner::Unknown,
            1 => Manner::Names,
            _ => Manner::Attributes,
        }
    }

    /// This file was listed without attributes.
    pub fn probe(&self, thread: u32, node: u64) {
        let probe = &self.probes[node as usize % PROBES];
        probe.walker.store(place(thread) as u32, Relaxed);
        probe.node.store(node, Relaxed);
        self.walkers[place(thread)].waiting.store(node, Relaxed);
    }

    /// A file was looked up, by whatever thread.
    pub fn looked_up(&self, node: u64) {
        let probe = &self.probes[node as usize % PROBES];
        if probe.node.load(Relaxed) != node {
            return;
        }
        probe.node.store(0, Relaxed);
        let walker = &self.walkers[probe.walker.load(Relaxed) as usize % WALKERS];
        if walker.waiting.compare_exchange(node, 0, Relaxed, Relaxed).is_ok() {
            walker.manner.store(Manner::Attributes as u8, Relaxed);
        }
    }
}

fn place(thread: u32) -> usize {
    thread as usize % WALKERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walker_gets_attributes_once_it_looks_at_them_and_until_it_does_not() {
        let habits = Habits::default();
        assert_eq!(habits.listing(1, true), Manner::Unknown);
        habits.probe(1, 700);
        habits.looked_up(701);
        assert_eq!(habits.listing(1, false), Manner::Unknown);
        habits.looked_up(700);
        assert_eq!(habits.listing(1, false), Manner::Attributes);
        assert_eq!(habits.listing(1, true), Manner::Attributes);
        habits.probe(1, 800);
        assert_eq!(habits.listing(1, false), Manner::Attributes);
        assert_eq!(habits.listing(1, true), Manner::Names, "nobody looked at the last one");
        habits.looked_up(800);
        assert_eq!(habits.listing(1, true), Manner::Names, "too late");
    }

    #[test]
    fn walkers_are_told_apart_also_if_another_thread_looks() {
        let habits = Habits::default();
        habits.probe(1, 700);
        habits.probe(2, 701);
        habits.looked_up(701);
        assert_eq!((habits.listing(1, true), habits.listing(2, true)), (Manner::Names, Manner::Attributes));
    }
}
