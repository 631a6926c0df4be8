//! What a cache holds while epochs pass over it, by the policy that it evicts by.
//!
//! It counts items and knows no bytes and no time; an item is kept from the moment that it is asked for.
//! Invariant: never more items than fit; the same order and seed give the same hits.

use serde::{Deserialize, Serialize};

use super::latency::Draws;

/// No item.
const NONE: u32 = u32::MAX;

/// What makes room for an item that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nothing: what came first stays.
    #[default]
    Never,
    /// The item that was asked for longest ago.
    Lru,
    /// Any item.
    Random,
}

/// Items of a set, some of which are kept.
pub struct Shelf {
    policy: Policy,
    room: usize,
    kept: usize,
    /// Of each item: its neighbours by age, or its slot; `NONE` where it is not kept.
    older: Vec<u32>,
    newer: Vec<u32>,
    oldest: u32,
    newest: u32,
    slots: Vec<u32>,
}

impl Shelf {
    pub fn new(policy: Policy, items: u32, room: u32) -> Shelf {
        let links = if policy == Policy::Lru { items as usize } else { 0 };
        Shelf {
            policy,
            room: room.min(items) as usize,
            kept: 0,
            older: vec![NONE; links],
            newer: vec![NONE; items as usize],
            oldest: NONE,
            newest: NONE,
            slots: Vec::new(),
        }
    }

    /// Ask for an item: whether it was there. Afterwards it is, if the policy makes room.
    pub fn ask(&mut self, item: u32, draws: &mut Draws) -> bool {
        match self.policy {
            Policy::Never => self.ask_never(item),
            Policy::Random => self.ask_random(item, draws),
            Policy::Lru => self.ask_lru(item),
        }
    }

    fn ask_never(&mut self, item: u32) -> bool {
        let is_kept = self.newer[item as usize] != NONE;
        if !is_kept && self.kept < self.room {
            self.newer[item as usize] = item;
            self.kept += 1;
        }
        is_kept
    }

    fn ask_random(&mut self, item: u32, draws: &mut Draws) -> bool {
        if self.newer[item as usize] != NONE {
            return true;
        }
        if self.slots.len() < self.room {
            self.newer[item as usize] = self.slots.len() as u32;
            self.slots.push(item);
        } else if self.room > 0 {
            let slot = draws.below(self.room as u64) as u32;
            let gone = std::mem::replace(&mut self.slots[slot as usize], item);
            self.newer[gone as usize] = NONE;
            self.newer[item as usize] = slot;
        }
        false
    }

    fn ask_lru(&mut self, item: u32) -> bool {
        let is_kept = self.newest == item || self.newer[item as usize] != NONE;
        if is_kept {
            self.unlink(item);
        } else if self.room == 0 {
            return false;
        } else if self.kept == self.room {
            self.unlink(self.oldest);
        }
        self.link(item);
        is_kept
    }

    fn unlink(&mut self, item: u32) {
        let (older, newer) = (self.older[item as usize], self.newer[item as usize]);
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        (self.older[item as usize], self.newer[item as usize]) = (NONE, NONE);
        self.kept -= 1;
    }

    fn link(&mut self, item: u32) {
        self.older[item as usize] = self.newest;
        match self.newest {
            NONE => self.oldest = item,
            newest => self.newer[newest as usize] = item,
        }
        self.newest = item;
        self.kept += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Policy, Shelf};
    use crate::simulate::latency::Draws;

    /// Share of hits of each epoch of permutations.
    fn hits(policy: Policy, ratio: f64, epochs: usize) -> Vec<f64> {
        const ITEMS: u32 = 20_000;
        let mut draws = Draws::of(5, 6);
        let mut shelf = Shelf::new(policy, ITEMS, (f64::from(ITEMS) * ratio) as u32);
        let mut items: Vec<u32> = (0..ITEMS).collect();
        let mut epoch = || {
            draws.shuffle(&mut items);
            let found = items.iter().filter(|item| shelf.ask(**item, &mut draws)).count();
            found as f64 / f64::from(ITEMS)
        };
        (0..epochs).map(|_| epoch()).collect()
    }

    #[test]
    fn what_is_never_evicted_hits_as_much_as_fits() {
        assert_eq!(hits(Policy::Never, 0.6, 3), [0.0, 0.6, 0.6]);
    }

    #[test]
    fn the_least_recently_used_hits_as_the_closed_form_says() {
        // An item at u of one permutation and v of the next lies under 1 - u (1 - v) of the set:
        // P(hit) = c + (1 - c) ln(1 - c).
        for ratio in [0.25_f64, 0.5, 0.85] {
            let right = ratio + (1.0 - ratio) * (1.0 - ratio).ln();
            let found = hits(Policy::Lru, ratio, 3);
            assert_eq!(found[0], 0.0);
            assert!((found[2] - right).abs() < 0.01, "{ratio}: {} is not {right}", found[2]);
        }
    }

    #[test]
    fn random_eviction_hits_as_its_fixed_point_says() {
        // A share m misses an epoch of n asks, each of which evicts one of c n: what was kept at u of one epoch stays
        // until v of the next with exp(-m (1 - u + v) / c), whose mean over both is 1 - m.
        for ratio in [0.3_f64, 0.7] {
            let mut misses: f64 = 0.5;
            for _ in 0..200 {
                let turns = misses / ratio;
                let stays = ((1.0 - (-turns).exp()) / turns).powi(2);
                misses = 0.5 * misses + 0.5 * (1.0 - stays);
            }
            let found = hits(Policy::Random, ratio, 12)[11];
            assert!((found - (1.0 - misses)).abs() < 0.015, "{ratio}: {found} is not {}", 1.0 - misses);
        }
    }

    #[test]
    fn an_order_that_repeats_never_hits_the_least_recently_used() {
        let (mut shelf, mut draws) = (Shelf::new(Policy::Lru, 100, 99), Draws::of(1, 1));
        assert!((0..300).all(|index| !shelf.ask(index % 100, &mut draws)));
        assert!(shelf.ask(99, &mut draws), "the last one is kept");
    }
}
