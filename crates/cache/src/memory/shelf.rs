//! Blocks at hand and blocks announced. Pure bookkeeping: no fetching, no waiting.
//!
//! Blocks that were read to their end leave first, then those that came first.

use block::{Block, Course, Door, ObjectId, Result};
use std::collections::{HashMap, VecDeque};
use tokio::sync::watch;

pub type Key = (ObjectId, u32);

/// A block on its way.
#[derive(Clone)]
pub struct Coming {
    pub promise: watch::Receiver<Option<Result<Block>>>,
    /// What its run waits for.
    pub course: Course,
    /// By whose credentials it is fetched.
    pub via: Door,
}

/// Where a block is.
pub enum Place {
    Here(Block),
    Coming(Coming),
    Nowhere,
}

/// Keys in a queue before those of blocks that left are swept out of it.
const ARRIVED_SWEEP: usize = 1024;

#[derive(Default)]
pub struct Shelf {
    slots: HashMap<Key, Slot>,
    /// Keys in the order of arrival; those of blocks that left meanwhile are skipped.
    arrived: VecDeque<(Key, u64)>,
    /// Keys in the order in which blocks were read to their end.
    spent: VecDeque<(Key, u64)>,
    arrivals: u64,
}

enum Slot {
    Coming { coming: Coming, read_until: usize },
    Here { block: Block, arrival: u64, spent: bool },
}

impl Shelf {
    /// Where a block is; here, it is noted that its bytes up to `until` are being read.
    pub fn place(&mut self, key: &Key, until: usize) -> Place {
        if let Some(block) = self.get(key, until) {
            return Place::Here(block);
        }
        match self.slots.get(key) {
            Some(Slot::Coming { coming, .. }) => Place::Coming(coming.clone()),
            _ => Place::Nowhere,
        }
    }

    /// The block if it is here, noting that its bytes up to `until` are being read.
    pub fn get(&mut self, key: &Key, until: usize) -> Option<Block> {
        self.read_until(key, until);
        match self.slots.get(key) {
            Some(Slot::Here { block, .. }) => Some(block.clone()),
            _ => None,
        }
    }

    /// Whether the block is here or announced.
    pub fn knows(&self, key: &Key) -> bool {
        self.slots.contains_key(key)
    }

    pub fn announce(&mut self, key: Key, coming: Coming) {
        self.slots.insert(key, Slot::Coming { coming, read_until: 0 });
    }

    /// A block came, to stay or not; or its fetch failed.
    pub fn arrive(&mut self, key: Key, block: Option<Block>) {
        let before = self.slots.remove(&key);
        let Some(block) = block else { return };
        let read_until = match before {
            Some(Slot::Coming { read_until, .. }) => read_until,
            _ => 0,
        };
        self.arrivals += 1;
        if self.arrived.len() >= ARRIVED_SWEEP.max(2 * self.slots.len()) {
            let slots = &self.slots;
            self.arrived
                .retain(|(key, stamp)| matches!(slots.get(key), Some(Slot::Here { arrival, .. }) if arrival == stamp));
        }
        self.arrived.push_back((key, self.arrivals));
        self.slots.insert(key, Slot::Here { block, arrival: self.arrivals, spent: false });
        self.read_until(&key, read_until);
    }

    /// Drop all blocks of an object that are here; those on their way may still come.
    pub fn forget(&mut self, id: ObjectId) {
        self.slots.retain(|(object, _), slot| *object != id || matches!(slot, Slot::Coming { .. }));
    }

    /// Note that a block was read up to here: at its end it is spent.
    pub fn read_until(&mut self, key: &Key, until: usize) {
        match self.slots.get_mut(key) {
            Some(Slot::Here { block, arrival, spent }) if !*spent && until >= block.len() => {
                *spent = true;
                self.spent.push_back((*key, *arrival));
            }
            Some(Slot::Coming { read_until, .. }) => *read_until = until.max(*read_until),
            _ => {}
        }
    }

    /// Take the block that may best leave off the shelf; with `spent_only`, one that was read to its end.
    pub fn push_out(&mut self, spent_only: bool) -> Option<Block> {
        if let Some(block) = Shelf::take_oldest(&mut self.slots, &mut self.spent) {
            return Some(block);
        }
        if spent_only {
            return None;
        }
        Shelf::take_oldest(&mut self.slots, &mut self.arrived)
    }

    fn take_oldest(slots: &mut HashMap<Key, Slot>, queue: &mut VecDeque<(Key, u64)>) -> Option<Block> {
        while let Some((key, stamp)) = queue.pop_front() {
            let current = matches!(slots.get(&key), Some(Slot::Here { arrival, .. }) if *arrival == stamp);
            if current && let Some(Slot::Here { block, .. }) = slots.remove(&key) {
                return Some(block);
            }
        }
        None
    }
}
