//! The objects that were admitted, in memory: forty bytes each. Knows sizes and states, not files.
//!
//! Invariant: what is used is the sum over the slots.

use super::room::Used;
use block::ObjectId;
use std::collections::HashMap;

/// An object that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Where the log tells of it.
    pub at: u64,
    pub size: u64,
    /// Epoch of its last use; 0 when released.
    pub used: u32,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Filling,
    /// Complete, but written before the last boot: to be read once before it is trusted.
    Unchecked,
    Complete,
}

pub struct Table {
    slots: HashMap<ObjectId, Slot>,
    pub used: Used,
    epoch: u32,
    opens: u64,
}

impl Table {
    pub fn new() -> Table {
        Table { slots: HashMap::new(), used: Used { free_bytes: u64::MAX, ..Used::default() }, epoch: 1, opens: 0 }
    }

    pub fn insert(&mut self, id: ObjectId, at: u64, size: u64, state: State) {
        self.remove(id);
        self.used.bytes += size;
        self.used.files += 1;
        self.slots.insert(id, Slot { at, size, used: self.epoch, state });
    }

    pub fn remove(&mut self, id: ObjectId) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.used.bytes -= slot.size;
        self.used.files -= 1;
        Some(slot)
    }

    pub fn get(&self, id: ObjectId) -> Option<Slot> {
        self.slots.get(&id).copied()
    }

    pub fn change(&mut self, id: ObjectId, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.get_mut(&id) {
            change(slot);
        }
    }

    /// Epochs passed, from 1.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// An object is being opened. An epoch has passed when as many objects were opened as there are.
    pub fn touch(&mut self, id: ObjectId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.used = self.epoch;
        self.opens += 1;
        if self.opens > self.slots.len() as u64 {
            (self.opens, self.epoch) = (0, self.epoch + 1);
        }
    }

    /// Another boot: what was complete is to be read once more before it is trusted.
    pub fn distrust(&mut self) {
        let complete = self.slots.values_mut().filter(|slot| slot.state == State::Complete);
        complete.for_each(|slot| slot.state = State::Unchecked);
    }

    /// Objects that may give way, those unread for longest first.
    pub fn idle(&self, gives_way: impl Fn(u32, u32) -> bool, held: impl Fn(ObjectId) -> bool) -> Vec<(ObjectId, Slot)> {
        let all = self.slots.iter().map(|(id, slot)| (*id, *slot));
        let mut idle: Vec<_> = all
            .filter(|(id, slot)| slot.state != State::Filling && gives_way(slot.used, self.epoch) && !held(*id))
            .collect();
        idle.sort_unstable_by_key(|(id, slot)| (slot.used, *id));
        idle
    }

    /// Objects in a state, in the order in which the log tells of them.
    pub fn in_state(&self, state: State) -> Vec<(ObjectId, u64)> {
        let all = self.slots.iter().filter(|(_, slot)| slot.state == state);
        let mut all: Vec<_> = all.map(|(id, slot)| (*id, slot.at)).collect();
        all.sort_unstable_by_key(|(_, at)| *at);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::room::gives_way;

    #[test]
    fn objects_read_each_epoch_stay_and_others_go_the_longest_unread_first() {
        let mut table = Table::new();
        let id = |n| ObjectId(n);
        for n in 0..10 {
            table.insert(id(n), 0, 100, State::Complete);
        }
        assert_eq!((table.used.bytes, table.used.files), (1_000, 10));
        for _ in 0..10 {
            for n in 0..5 {
                table.touch(id(n));
            }
        }
        let idle: Vec<_> = table.idle(gives_way, |id| id.0 == 7).into_iter().map(|(id, _)| id.0).collect();
        assert_eq!(idle, vec![5, 6, 8, 9]);
        table.change(id(0), |slot| slot.used = 0);
        assert_eq!(table.idle(gives_way, |_| false)[0].0, id(0));
        table.remove(id(0));
        assert_eq!((table.used.bytes, table.used.files), (900, 9));
    }
}
