//! Which steps of an epoch count, and how many of them a verdict takes. What was read ahead before the first step came
//! while nothing was counted; a short epoch that began to count there would find any storage fast. At the end there is
//! nothing left to be read ahead, so that what was is used up: as many steps don't count there.
//!
//! It measures nothing. Invariant: while steps count, batches are read for as many as are used.

use std::ops::Range;

use report::{Epoch, Verdict};
use workload::Order;

use super::{Job, several};
use crate::samples::Set;

/// So many times as many steps count as were read ahead. What lay there when they began is taken off, to the batch; a batch
/// more or less is then a twentieth of a window.
const TURNS: u64 = 20;

/// Of an epoch of one accelerator, whatever loads for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Batches that can be read before the first step, and so steps that don't count, at either end.
    pub lead: u64,
    /// Steps that an epoch has at least, all counted in.
    pub least: u64,
    samples_per_file: f64,
}

impl Job {
    /// What can be read ahead: the window, what a shuffle buffer holds, and what streams keep of row groups. Without
    /// the set that is what the workload says.
    pub fn steady(&self, set: Option<&Set>) -> Steady {
        let read = &self.workload.read;
        let streams = read.busy();
        let rows = set.and_then(|set| Some(set.samples().div_ceil(set.groups?.groups))).unwrap_or(0);
        let lead = match read.order {
            Order::Shards => {
                let buffer = read.shuffle_buffer.unwrap_or(0).div_ceil(read.batch);
                (read.prefetch_batches + buffer).max(streams * rows.div_ceil(read.batch))
            }
            Order::Sequential => read.prefetch_batches.max(rows.div_ceil(read.batch)),
            Order::Shuffled | Order::Random => read.prefetch_batches,
        };
        let own = self.workload.files.samples_per_file as f64;
        Steady::of(lead, set.map_or(own, |set| set.samples() as f64 / set.files.len() as f64))
    }
}

impl Steady {
    /// Where so many batches can be read ahead.
    pub fn of(lead: u64, samples_per_file: f64) -> Steady {
        let lead = lead.max(1);
        Steady { lead, least: 2 * lead + TURNS * lead, samples_per_file }
    }

    /// Steps that count, of so many: of too few for a verdict all after those that don't, and always one.
    pub fn counted(&self, steps: u64) -> Range<u64> {
        let end = if steps >= self.least { steps - self.lead } else { steps };
        self.lead.min(end - 1)..end
    }

    /// Samples and files of the smallest set that gives each accelerator the least steps.
    pub fn least_set(&self, job: &Job) -> (u64, u64) {
        self.set_of(job, self.least)
    }

    /// The same of so many steps. Where whole files are dealt, each accelerator has as many of them as the others.
    pub fn set_of(&self, job: &Job, steps: u64) -> (u64, u64) {
        let own = steps * job.workload.read.batch;
        let files = |samples: u64| (samples as f64 / self.samples_per_file).ceil() as u64;
        let samples = own * job.accelerators;
        let are_dealt = matches!(job.workload.read.order, Order::Sequential | Order::Shards);
        match files(samples) {
            even if are_dealt && even >= job.accelerators => (samples, files(own) * job.accelerators),
            even => (samples, even),
        }
    }

    /// Why epochs of so many steps have no verdict.
    pub fn invalid(&self, job: &Job, steps: u64) -> Option<String> {
        if steps >= self.least {
            return None;
        }
        let (samples, files) = self.least_set(job);
        let read = &job.workload.read;
        let cure = if read.steps_max.is_some_and(|most| most < self.least) {
            format!("--set steps={} or more", self.least)
        } else {
            format!(
                "make it with `stoker bench data --files {files}`, or ask for fewer accelerators or smaller batches"
            )
        };
        Some(format!(
            "an epoch has {}, and what is read ahead of the first lasts for {}. A run of {} takes {} steps at least, \
            which are {samples} samples or {}: {cure}",
            several(steps, "step"),
            self.lead,
            several(job.accelerators, "accelerator"),
            self.least,
            several(files, "file"),
        ))
    }

    /// The verdict on all epochs, and why.
    pub fn verdict(&self, job: &Job, epochs: &[Epoch]) -> (Verdict, String) {
        let pass = job.workload.read.pass_au_percent;
        let steps = epochs.iter().map(|epoch| epoch.steps).min().unwrap_or(0);
        if let Some(reason) = self.invalid(job, steps) {
            return (Verdict::Invalid, reason);
        }
        let least = epochs.iter().map(|epoch| epoch.au_percent).fold(f64::INFINITY, f64::min);
        let verdict = if least >= pass { Verdict::Passed } else { Verdict::Fails };
        (verdict, format!("least utilisation of an epoch {least:.2} %, wanted {pass} %"))
    }
}
