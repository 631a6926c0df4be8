//! Which `DistributedSampler` the first opens of an epoch come from, found out from nothing but them.
//!
//! A hypothesis is a sum of seed and epoch, a world and a rank for each reader. By it each open has a place in the shuffled
//! order, and whoever reads for a rank steps from place to place by the size of the world, but between batches. How much
//! likelier the opens are by it than by chance is a product over opens; that it comes out above some factor by chance
//! alone has at most the inverse of the factor as its probability (Ville), whatever the order is and however often it is asked.
//! So one limit bounds how many false findings there are.
//!
//! Only the first places of an order are dealt, since an epoch begins with those: that costs the same of ten thousand
//! samples and of a hundred million. Invariant: it is a function of its arguments.

use crate::Mersenne;
use std::collections::HashMap;

/// Places of the shuffled order that are looked at: 64 ranks of which each has 8 workers that begin batches of 128.
const PLACES: u32 = 1 << 16;

/// Places that at least one of the opens lies in, of an order that is worth the others.
const FIRST_PLACES: usize = 1 << 12;

/// Ranks in all that are thought of, whatever the opens look like; beyond that, steps between opens say which.
const WORLD_ALWAYS: u64 = 64;
const WORLD_MAX: u64 = 4096;

/// Bits by which opens must be likelier than by chance, beyond those that choose among all hypotheses: one false finding in
/// a thousand million.
const SURE_BITS: f64 = 30.0;

/// What a reader does next: the next sample of its rank, another one of its rank (another batch), or anything.
const STEPS: f64 = 0.85;
const JUMPS: f64 = 0.1;
const STRAYS: f64 = 0.05;

/// Sums of seed and epoch that are tried, likely ones first: from each up to so many.
const SUMS: [(u64, u64); 11] = [
    (0, 32),
    (42, 32),
    (123, 32),
    (1234, 64),
    (32, 992),
    (1337, 64),
    (2020, 96),
    (3407, 64),
    (4321, 64),
    (12_345, 64),
    (31_337, 64),
];

/// Sums of seed and epoch, likely ones first; some come twice.
pub fn sums() -> impl Iterator<Item = u64> {
    SUMS.iter().flat_map(|(from, count)| *from..from + count)
}

/// What the opens come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Seed and epoch, added up.
    pub sum: u64,
    pub world: u64,
    /// The ranks that read, each once.
    pub ranks: Vec<u64>,
    /// By how much likelier than by chance, in bits, beyond what it took to choose.
    pub bits: f64,
}

/// The first opens of each reader, and what it takes to try hypotheses on them: four bytes a sample.
pub struct Trail {
    /// By reader.
    opens: Vec<Vec<u32>>,
    /// Which numbers were opened, by their lowest bits: most others are told apart by it.
    marks: [u64; 64],
    places: HashMap<u32, Option<u32>>,
    order: Vec<u32>,
    swaps: Vec<u32>,
}

impl Trail {
    /// Of numbers of samples, of so many in all: at most 2^32 - 1.
    pub fn of(mut opens: Vec<Vec<u32>>, samples: u32) -> Trail {
        let (mut marks, mut places) = ([0; 64], HashMap::new());
        // What is opened again says nothing new.
        let mut is_new = |number: &u32| *number < samples && places.insert(*number, None).is_none();
        opens.iter_mut().for_each(|opens| opens.retain(&mut is_new));
        places.keys().for_each(|number| marks[(number / 64 % 64) as usize] |= 1 << (number % 64));
        Trail { opens, marks, places, order: (0..samples).collect(), swaps: Vec::new() }
    }

    /// What the opens come from, if seed and epoch add up to this and it is sure enough.
    pub fn try_sum(&mut self, sum: u64) -> Option<Finding> {
        if !self.deal(sum) {
            return None;
        }
        let steps = self.opens.iter().flat_map(|opens| opens.windows(2)).filter_map(|two| {
            let step = self.place(two[1])?.checked_sub(self.place(two[0])?)?;
            Some(u64::from(step)).filter(|step| (WORLD_ALWAYS + 1..=WORLD_MAX).contains(step))
        });
        let mut worlds: Vec<u64> = (1..=WORLD_ALWAYS).chain(steps).collect();
        worlds.dedup();
        let choice = ((SUMS.iter().map(|(_, count)| count).sum::<u64>() * WORLD_MAX) as f64).log2();
        let found = worlds.into_iter().map(|world| (self.bits(world) - choice, world));
        let (bits, world) = found.max_by(|one, other| one.0.total_cmp(&other.0))?;
        (bits >= SURE_BITS).then(|| Finding { sum, world, ranks: self.ranks(world), bits })
    }

    /// Find the places of what was opened among the first of the order of this sum. False if it can't be that one.
    fn deal(&mut self, sum: u64) -> bool {
        self.places.values_mut().for_each(|place| *place = None);
        let samples = self.order.len() as u32;
        let mut generator = Mersenne::of(sum);
        let mut is_worth_it = true;
        for place in 0..samples.min(PLACES) {
            if place as usize == FIRST_PLACES && self.places.values().all(Option::is_none) {
                is_worth_it = false;
                break;
            }
            let other = place + generator.draw() % (samples - place);
            self.order.swap(place as usize, other as usize);
            self.swaps.push(other);
            let number = self.order[place as usize];
            if self.marks[(number / 64 % 64) as usize] >> (number % 64) & 1 == 1
                && let Some(known) = self.places.get_mut(&number)
            {
                *known = Some(place);
            }
        }
        // The next sum begins with the numbers in their order.
        while let Some(other) = self.swaps.pop() {
            self.order.swap(self.swaps.len(), other as usize);
        }
        is_worth_it
    }

    fn place(&self, number: u32) -> Option<u32> {
        self.places.get(&number).copied().flatten()
    }

    /// By how many bits the opens are likelier with so many ranks than by chance.
    fn bits(&self, world: u64) -> f64 {
        let (samples, ranks) = (self.order.len() as f64, world as f64);
        // Where a reader begins: near the beginning of its rank's share, the nearer the likelier.
        let spread = 1.0 + (samples / ranks).max(1.0).ln();
        let mut bits = 0.0;
        for opens in &self.opens {
            let mut last: Option<u64> = None;
            for number in opens {
                let place = self.place(*number).map(u64::from);
                let chance = match (place, last) {
                    (Some(place), None) => {
                        (STEPS + JUMPS) * samples / (ranks * spread * ((place / world) as f64 + 1.0)) + STRAYS
                    }
                    (Some(place), Some(last)) if place == last + world => STEPS * samples + JUMPS * ranks + STRAYS,
                    (Some(place), Some(last)) if place % world == last % world => JUMPS * ranks + STRAYS,
                    _ => STRAYS,
                };
                bits += chance.log2();
                last = match (place, last) {
                    (Some(place), Some(before)) if place % world != before % world => last,
                    (place, last) => place.or(last),
                };
            }
        }
        bits
    }

    /// Whose share the readers read.
    fn ranks(&self, world: u64) -> Vec<u64> {
        let of = |opens: &Vec<u32>| {
            let mut counts: HashMap<u64, usize> = HashMap::new();
            let places = opens.iter().filter_map(|number| self.place(*number));
            places.for_each(|place| *counts.entry(u64::from(place) % world).or_default() += 1);
            // What was opened besides is no rank.
            counts.into_iter().filter(|(_, count)| count * 2 > opens.len()).map(|(rank, _)| rank).next()
        };
        let mut ranks: Vec<u64> = self.opens.iter().filter_map(of).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

#[cfg(test)]
mod tests;
