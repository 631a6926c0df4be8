//! What a job asks of its target, as the closed formulas of a bound take it.
//!
//! It reads nothing. Invariant: bytes and requests are those that the readers of this folder make.

use workload::Order;

use super::Job;
use crate::bound::Demand;
use crate::probe::LONG;
use crate::samples::{PIECE, Set};

impl Job {
    /// Samples that lie side by side and are read at once.
    pub fn together(&self, set: &Set) -> f64 {
        if let Some(groups) = set.groups {
            return set.samples() as f64 / groups.ranges as f64;
        }
        let side_by_side = matches!(self.workload.read.order, Order::Sequential | Order::Shards) && !set.whole();
        let fit = (4 * PIECE).max(set.piece) as f64 / set.sample_bytes().max(1.0);
        if side_by_side { fit.min(self.workload.read.batch as f64).max(1.0) } else { 1.0 }
    }

    /// How often what is read of a sample is read of the target: where rows come by chance, with each other row of its
    /// group; where they come in order, by each stream that has a batch of its group, but for what a file system keeps.
    fn times(&self, set: &Set) -> f64 {
        let Some(groups) = set.groups else { return 1.0 };
        let read = &self.workload.read;
        if matches!(read.order, Order::Shuffled | Order::Random) {
            return (groups.bytes_by_chance / set.sample_bytes()).max(1.0);
        }
        if !set.is_of_store() {
            return 1.0;
        }
        let (streams, own) = (read.threads as f64, groups.groups as f64 / self.accelerators as f64);
        match read.order {
            // Each stream has rows of every group that a batch has.
            _ if read.prefetch_batches == 0 => streams.min(read.batch as f64),
            // The batches of a stream lie side by side: only a group in which one stream ends and the next begins is read twice.
            Order::Shards => (1.0 + (streams - 1.0) / own.max(1.0)).min(streams),
            _ => again(set.samples() / groups.groups, read.batch).min(read.busy() as f64),
        }
    }

    pub fn demand(&self, set: &Set) -> Demand {
        let read = &self.workload.read;
        let (at_once, times) = (set.together * set.sample_bytes(), self.times(set));
        let requests = times * (at_once / set.piece as f64).ceil() / set.together;
        Demand {
            accelerators: self.accelerators,
            batch: read.batch,
            sample_bytes: times * set.sample_bytes(),
            step_seconds: self.step_seconds,
            streams: read.threads,
            prefetch_batches: read.prefetch_batches,
            requests_per_sample: requests,
            // Each request to a store has a first byte of its own; of files the kernel reads ahead.
            piece_bytes: set.piece.min(LONG) as f64,
            first_bytes_per_sample: if set.is_of_store() { requests } else { times / set.together },
        }
    }
}

/// Of how many row groups a batch has rows, over those that would hold as many: it begins at a multiple of what divides
/// both.
fn again(group_rows: u64, batch: u64) -> f64 {
    let (mut divisor, mut rest) = (group_rows, batch);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (group_rows + batch - divisor) as f64 / batch as f64
}
