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
    /// Which numbers were opened, by their lowest bits: most others are told apart by it.
    marks: [u64; 64],
    /// Which open each of them was.
    opens: HashMap<u32, usize>,
    /// Where each open lies in the order that is tried, and where the opens of each reader end.
    places: Vec<u32>,
    readers: Vec<usize>,
    order: Vec<u32>,
    swaps: Vec<u32>,
}

/// The place of what is not among the first of the order.
const NOWHERE: u32 = u32::MAX;

impl Trail {
    /// Of numbers of samples, of so many in all: at most 2^32 - 1.
    pub fn of(of_readers: Vec<Vec<u32>>, samples: u32) -> Trail {
        let (mut marks, mut opens, mut readers) = ([0; 64], HashMap::new(), Vec::new());
        for numbers in of_readers {
            for number in numbers.into_iter().filter(|number| *number < samples) {
                let next = opens.len();
                // What is opened again says nothing new.
                opens.entry(number).or_insert(next);
                marks[(number / 64 % 64) as usize] |= 1 << (number % 64);
            }
            readers.push(opens.len());
        }
        let places = vec![NOWHERE; opens.len()];
        Trail { marks, opens, places, readers, order: (0..samples).collect(), swaps: Vec::new() }
    }

    /// What the opens come from, if seed and epoch add up to this and it is sure enough.
    pub fn try_sum(&mut self, sum: u64) -> Option<Finding> {
        if !self.deal(sum) {
            return None;
        }
        let pairs = self.readers().flat_map(|places| places.windows(2)).filter(|two| !two.contains(&NOWHERE));
        let steps = pairs.filter_map(|two| two[1].checked_sub(two[0])).map(u64::from);
        let steps = steps.filter(|step| (WORLD_ALWAYS + 1..=WORLD_MAX).contains(step));
        let mut worlds: Vec<u64> = (1..=WORLD_ALWAYS).chain(steps).collect();
        worlds.dedup();
        let choice = ((SUMS.iter().map(|(_, count)| count).sum::<u64>() * WORLD_MAX) as f64).log2();
        let found = worlds.into_iter().map(|world| (self.bits(world) - choice, world));
        let (bits, world) = found.max_by(|one, other| one.0.total_cmp(&other.0))?;
        (bits >= SURE_BITS).then(|| Finding { sum, world, ranks: self.ranks(world), bits })
    }

    /// Find the places of what was opened among the first of the order of this sum. False if it can't be that one.
    fn deal(&mut self, sum: u64) -> bool {
        self.places.fill(NOWHERE);
        let samples = self.order.len() as u32;
        let mut generator = Mersenne::of(sum);
        let mut is_worth_it = true;
        for place in 0..samples.min(PLACES) {
            if place as usize == FIRST_PLACES && self.places.iter().all(|place| *place == NOWHERE) {
                is_worth_it = false;
                break;
            }
            let other = place + generator.draw() % (samples - place);
            self.order.swap(place as usize, other as usize);
            self.swaps.push(other);
            let number = self.order[place as usize];
            if self.marks[(number / 64 % 64) as usize] >> (number % 64) & 1 == 1
                && let Some(open) = self.opens.get(&number)
            {
                self.places[*open] = place;
            }
        }
        // The next sum begins with the numbers in their order.
        while let Some(other) = self.swaps.pop() {
            self.order.swap(self.swaps.len(), other as usize);
        }
        is_worth_it
    }

    /// The places of each reader's opens.
    fn readers(&self) -> impl Iterator<Item = &[u32]> {
        let begins = std::iter::once(0).chain(self.readers.iter().copied());
        begins.zip(&self.readers).map(|(begin, end)| &self.places[begin..*end])
    }

    /// By how many bits the opens are likelier with so many ranks than by chance.
    fn bits(&self, world: u64) -> f64 {
        let (samples, ranks) = (self.order.len() as f64, world as f64);
        // Where a reader begins: near the beginning of its rank's share, the nearer the likelier.
        let spread = 1.0 + (samples / ranks).max(1.0).ln();
        let first =
            |turn: u32| ((STEPS + JUMPS) * samples / (ranks * spread * (f64::from(turn) + 1.0)) + STRAYS).log2();
        let jump = JUMPS * ranks + STRAYS;
        let step = STEPS * samples + JUMPS * ranks + STRAYS;
        let [step, jump, stray] = [step, jump, STRAYS].map(f64::log2);
        let (world, mut bits) = (world as u32, 0.0);
        for places in self.readers() {
            // The last one of the rank that is read, and that rank.
            let mut last: Option<(u32, u32)> = None;
            for place in places {
                let rank = place % world;
                let (is_of_rank, more) = match last {
                    _ if *place == NOWHERE => (false, stray),
                    None => (true, first(place / world)),
                    Some((last, _)) if *place == last + world => (true, step),
                    Some((_, same)) if rank == same => (true, jump),
                    Some(_) => (false, stray),
                };
                bits += more;
                last = if is_of_rank { Some((*place, rank)) } else { last };
            }
        }
        bits
    }

    /// Whose share the readers read.
    fn ranks(&self, world: u64) -> Vec<u64> {
        let of = |places: &[u32]| {
            let mut counts: HashMap<u64, usize> = HashMap::new();
            let found = places.iter().filter(|place| **place != NOWHERE);
            found.for_each(|place| *counts.entry(u64::from(*place) % world).or_default() += 1);
            // What was opened besides is no rank.
            counts.into_iter().filter(|(_, count)| count * 2 > places.len()).map(|(rank, _)| rank).next()
        };
        let mut ranks: Vec<u64> = self.readers().filter_map(of).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

#[cfg(test)]
mod tests;
