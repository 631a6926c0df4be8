//! What was counted while an epoch was simulated, and what follows from it.
//!
//! It decides nothing of the simulation. Invariant: times add up: what accelerators computed, waited and spent around
//! it is what the epoch took.

use std::collections::BTreeMap;
use std::ops::Range;

/// What held a read up last, or an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    Latency,
    Store,
    Requests,
    Network,
    Disk,
    Straggler,
    Barrier,
}

/// As reports name them, in the order of [`Cause`].
const NAMES: [&str; 7] = ["latency", "store", "requests", "network", "disk", "straggler", "barrier"];

/// Counts of one epoch, over all accelerators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub seconds: f64,
    /// When the first step that counts began and when the last ended: sums over accelerators.
    pub counted_seconds: [f64; 2],
    /// Batches that lay there then, of all accelerators.
    pub ready: [u64; 2],
    /// DLIO's utilisation, as a sum over accelerators of shares of `seconds`.
    pub first_step_ends: Vec<f64>,
    /// Times from one step of the first accelerator to its next.
    pub steps: Vec<f64>,
    pub waits: [f64; 7],
    pub bytes: f64,
    pub bytes_cached: f64,
    pub bytes_network: f64,
    pub hits: u64,
    pub samples: u64,
}

impl Totals {
    pub fn wait(&mut self, cause: Cause, seconds: f64) {
        self.waits[cause as usize] += seconds;
    }

    /// Seconds that accelerators waited, by cause.
    pub fn wait_seconds(&self) -> BTreeMap<String, f64> {
        let named = NAMES.iter().zip(self.waits).filter(|(_, seconds)| *seconds > 0.0);
        named.map(|(name, seconds)| ((*name).to_owned(), seconds)).collect()
    }

    /// Nominal time of the steps that count over the time that they took, of all accelerators: as a measured epoch has it.
    /// Batches that lay there when they began and not when they ended came in a time that isn't counted; where all steps
    /// to the last count, nothing is left at their end.
    pub fn au(&self, counted: &Range<u64>, steps: u64, step_seconds: f64) -> f64 {
        let is_cut = counted.end < steps;
        let used = if is_cut { self.ready[0].saturating_sub(self.ready[1]) } else { 0 };
        let all = (counted.end - counted.start) * self.first_step_ends.len() as u64;
        let [began, ended] = self.counted_seconds;
        all.saturating_sub(used) as f64 * step_seconds / (ended - began)
    }

    /// The same as DLIO computes it: each process leaves out its own first step, without its barrier.
    pub fn au_dlio(&self, steps: u64, step_seconds: f64) -> f64 {
        if steps == 1 {
            return step_seconds / self.seconds;
        }
        let computed = (steps - 1) as f64 * step_seconds;
        let each = self.first_step_ends.iter().map(|end| computed / (self.seconds - end));
        each.sum::<f64>() / self.first_step_ends.len() as f64
    }

    /// Times of steps by percentile, as reports have them.
    pub fn step_seconds(&self) -> BTreeMap<String, f64> {
        let mut sorted = self.steps.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted.get((sorted.len() as f64 * share) as usize).or(sorted.last()).copied();
        let named = [("p50", at(0.5)), ("p99", at(0.99)), ("p99.9", at(0.999)), ("max", sorted.last().copied())];
        named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
