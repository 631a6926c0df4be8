//! Which item of the set is read where in an epoch, and whether it is in the cache.
//!
//! It knows no time. Invariants: an epoch reads each item of the set once; no more memory than [`ITEMS_MAX`] asks for.

use super::cache::Shelf;
use super::latency::Draws;
use super::{Cache, Question, Rule};
use workload::Order;

/// Items that are followed one by one; in larger sets neighbours are one item. Two numbers of 4 bytes for each.
const ITEMS_MAX: u64 = 1 << 22;

/// The order of the epoch and what is kept; nothing of the set is held where hits are given as a rate.
pub struct Visit {
    rates: Vec<f64>,
    rate: f64,
    shelf: Option<Shelf>,
    items: Vec<u32>,
    /// Of each item, where it stands for several samples: what the first of them found in this epoch.
    answers: Vec<Option<bool>>,
    group: u64,
    run: usize,
    order: Order,
}

impl Visit {
    pub fn new(question: &Question) -> Visit {
        let samples = question.samples();
        let group = samples.div_ceil(ITEMS_MAX).max(1);
        let count = samples.div_ceil(group) as u32;
        let Cache { rule, .. } = &question.cache;
        let (rates, shelf) = match rule {
            Rule::Rates(rates) => (rates.clone(), None),
            Rule::Ratio { ratio, policy } => {
                let room = (f64::from(count) * ratio).round() as u32;
                (Vec::new(), Some(Shelf::new(*policy, count, room)))
            }
        };
        let items = if shelf.is_some() { (0..count).collect() } else { Vec::new() };
        let answers = if group > 1 { vec![None; items.len()] } else { Vec::new() };
        let run = (question.workload.files.samples_per_file / group).max(1) as usize;
        Visit { rates, rate: 0.0, shelf, items, answers, group, run, order: question.workload.read.order }
    }

    /// Begin an epoch; they count from 0.
    pub fn begin(&mut self, epoch: u64, draws: &mut Draws) {
        let last = self.rates.len().saturating_sub(1);
        self.rate = self.rates.get(last.min(epoch as usize)).copied().unwrap_or(0.0);
        self.answers.fill(None);
        match self.order {
            Order::Sequential => {}
            Order::Shuffled | Order::Random => draws.shuffle(&mut self.items),
            Order::Shards => self.shuffle_shards(draws),
        }
    }

    fn shuffle_shards(&mut self, draws: &mut Draws) {
        let count = self.items.len();
        let mut shards: Vec<u32> = (0..count.div_ceil(self.run) as u32).collect();
        draws.shuffle(&mut shards);
        let inside = |shard: u32| {
            let first = shard as usize * self.run;
            first as u32..(first + self.run).min(count) as u32
        };
        self.items = shards.into_iter().flat_map(inside).collect();
    }

    /// How many of the samples at these places of the epoch are in the cache.
    pub fn hits(&mut self, places: impl ExactSizeIterator<Item = u64>, draws: &mut Draws) -> u64 {
        match &mut self.shelf {
            Some(shelf) => {
                let mut found = 0;
                for place in places {
                    let index = (place / self.group) as usize;
                    let is_kept = match self.answers.get(index).copied().flatten() {
                        Some(answer) => answer,
                        None => shelf.ask(self.items[index], draws),
                    };
                    if let Some(answer) = self.answers.get_mut(index) {
                        *answer = Some(is_kept);
                    }
                    found += u64::from(is_kept);
                }
                found
            }
            None if self.rate <= 0.0 => 0,
            None if self.rate >= 1.0 => places.len() as u64,
            None => (self.rate * places.len() as f64 + draws.even()).floor() as u64,
        }
    }
}
