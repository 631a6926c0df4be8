//! Which item of the set is read where in an epoch, and whether it is in the cache.
//!
//! It knows no time, and no place of an item in the store: those of one accelerator have numbers one behind the other, and
//! stand for the samples of the files that are dealt to it, which are every N-th (`train::order`). So a fixed part is
//! whole shards, and the last is read as far as the steps go. Invariants: an epoch reads each item of the set once; no more
//! memory than [`ITEMS_MAX`] asks for.

use std::ops::Range;

use super::cache::Shelf;
use super::latency::Draws;
use super::{Cache, Placement, Question, Rule};
use workload::{Order, Partition};

/// Items that are followed one by one; in larger sets neighbours are one item. Two numbers of 4 bytes for each.
const ITEMS_MAX: u64 = 1 << 22;

/// The order of the epoch and what is kept; nothing of the set is held where hits are given as a rate.
pub struct Visit {
    rates: Vec<f64>,
    rate: f64,
    shelves: Shelves,
    /// The items of each accelerator, one accelerator after the other.
    items: Vec<u32>,
    /// Of each item, where it stands for several samples: what the first of them found in this epoch.
    answers: Vec<Option<bool>>,
    /// Samples of an item, and items of an accelerator.
    group: u64,
    own: usize,
    /// Items of what stays together: of a part that is dealt anew, and of a shard.
    part: usize,
    run: usize,
    order: Order,
}

/// One cache, or one of each node.
struct Shelves {
    shelves: Vec<Shelf>,
    /// Accelerators of one.
    ranks: u64,
    /// Items that one may be asked for: all, or those of its own accelerators.
    span: usize,
}

impl Shelves {
    fn ask(&mut self, rank: u64, item: u32, draws: &mut Draws) -> bool {
        let node = rank / self.ranks;
        self.shelves[node as usize].ask(item % self.span as u32, draws)
    }
}

impl Visit {
    pub fn new(question: &Question) -> Visit {
        let Question { accelerators: ranks, workload, cache: Cache { rule, place, .. }, .. } = question;
        let is_fixed = workload.read.partition == Partition::Fixed || workload.read.order == Order::Sequential;
        // Of each node's own cache nobody else knows what is in it: where samples are dealt anew, it may be any.
        let (nodes, of_node) = match place {
            Placement::Local => (question.node_count(), question.nodes.accelerators),
            Placement::Peers | Placement::Apart => (1, *ranks),
        };
        let kinds = if is_fixed { 1 } else { nodes };
        let samples = question.steps * workload.read.batch;
        let group = (samples * ranks).div_ceil((ITEMS_MAX / kinds).max(1)).max(1);
        let own = samples.div_ceil(group) as usize;
        let count = own * *ranks as usize;
        let span = if is_fixed { own * of_node as usize } else { count };
        let (rates, shelves) = match rule {
            Rule::Rates(rates) => (rates.clone(), Vec::new()),
            Rule::Ratio { ratio, policy } => {
                // Rounded together, so that all nodes have the ratio.
                let until = |node: u64| (count as f64 * ratio * node as f64 / nodes as f64).round() as u32;
                let shelf = |node| Shelf::new(*policy, span.min(count) as u32, until(node + 1) - until(node));
                (Vec::new(), (0..nodes).map(shelf).collect())
            }
        };
        let items = if shelves.is_empty() { Vec::new() } else { (0..count as u32).collect() };
        let answers = if group > 1 { vec![None; items.len()] } else { Vec::new() };
        let run = (workload.files.samples_per_file / group).max(1) as usize;
        Visit {
            rates,
            rate: 0.0,
            shelves: Shelves { shelves, ranks: of_node, span },
            items,
            answers,
            group,
            own,
            part: if is_fixed { own } else { count },
            run,
            order: workload.read.order,
        }
    }

    /// Begin an epoch; they count from 0.
    pub fn begin(&mut self, epoch: u64, draws: &mut Draws) {
        let last = self.rates.len().saturating_sub(1);
        self.rate = self.rates.get(last.min(epoch as usize)).copied().unwrap_or(0.0);
        self.answers.fill(None);
        for first in (0..self.items.len()).step_by(self.part) {
            let part = first..first + self.part;
            match self.order {
                Order::Sequential => {}
                Order::Shuffled | Order::Random => draws.shuffle(&mut self.items[part]),
                Order::Shards => self.shuffle_shards(part, draws),
            }
        }
    }

    fn shuffle_shards(&mut self, part: Range<usize>, draws: &mut Draws) {
        let mut shards: Vec<u32> = (0..part.len().div_ceil(self.run) as u32).collect();
        draws.shuffle(&mut shards);
        let inside = |shard: u32| {
            let first = part.start + shard as usize * self.run;
            first as u32..(first + self.run).min(part.end) as u32
        };
        let order: Vec<u32> = shards.into_iter().flat_map(inside).collect();
        self.items[part].copy_from_slice(&order);
    }

    /// How many of these samples of an accelerator, counted within its epoch, are in the cache.
    pub fn hits(&mut self, rank: u64, numbers: Range<u64>, draws: &mut Draws) -> u64 {
        let count = numbers.end - numbers.start;
        if !self.items.is_empty() {
            return numbers.filter(|number| self.is_hit(rank, *number, draws)).count() as u64;
        }
        match self.rate {
            rate if rate <= 0.0 => 0,
            rate if rate >= 1.0 => count,
            rate => (rate * count as f64 + draws.even()).floor() as u64,
        }
    }

    fn is_hit(&mut self, rank: u64, number: u64, draws: &mut Draws) -> bool {
        let index = rank as usize * self.own + (number / self.group) as usize;
        if let Some(answer) = self.answers.get(index).copied().flatten() {
            return answer;
        }
        let is_kept = self.shelves.ask(rank, self.items[index], draws);
        if let Some(answer) = self.answers.get_mut(index) {
            *answer = Some(is_kept);
        }
        is_kept
    }
}
