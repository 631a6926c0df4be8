//! The rules of MLPerf Storage's closed division, as far as a run can be held against them. Each one that is broken is
//! named; none broken doesn't make a submission.
//!
//! It measures nothing. Invariant: a rule that can't be judged is named as such, not passed over.

use super::{Chill, Job};
use workload::Workload;

/// What else the rules ask about.
pub struct Circumstances<'a> {
    /// The workload as it is shipped with this accelerator's changes, if it is shipped.
    pub shipped: Option<&'a Workload>,
    pub set_bytes: u64,
    pub steps: u64,
    /// Of all machines together.
    pub memory_bytes: u64,
    pub shaped: bool,
    pub step_changed: bool,
    /// Utilisation of each epoch.
    pub au_percent: Vec<f64>,
    /// Why there is no verdict on them.
    pub invalid: Option<&'a str>,
}

/// A set has at least so many times the memory of the machines, and an epoch so many steps.
const MEMORY: u64 = 5;
const STEPS: u64 = 500;
/// Runs of a result.
const RUNS: u64 = 5;
const THREADS_MAX: u64 = 32;

/// The rules that are broken, as sentences.
pub fn broken(job: &Job, around: &Circumstances) -> Vec<String> {
    let mut found = Vec::new();
    let mut rule = |holds: bool, text: String| {
        if !holds {
            found.push(text);
        }
    };
    let read = &job.workload.read;
    if let Some(shipped) = around.shipped {
        let is_same = shipped.files.format == job.workload.files.format
            && shipped.files.samples_per_file == job.workload.files.samples_per_file
            && shipped.files.sample_bytes.total_cmp(&job.workload.files.sample_bytes).is_eq();
        rule(is_same, "the samples are not those of the workload: format, size and number in a file are fixed".into());
        let is_same = [shipped.read.batch, shipped.read.epochs] == [read.batch, read.epochs]
            && (shipped.read.order, shipped.read.partition) == (read.order, read.partition);
        rule(is_same, "batch, order, partition and epochs are fixed by the workload".into());
    } else {
        rule(false, format!("{} is no workload of the benchmark", job.workload.name));
    }
    rule(!around.step_changed, "the time of a step is fixed by workload and accelerator".into());
    rule(read.threads <= THREADS_MAX, format!("at most {THREADS_MAX} reader threads, here {}", read.threads));
    rule(read.steps_max.is_none(), "an epoch reads the whole set; here it ends earlier".into());
    rule(around.steps >= STEPS, format!("an epoch has at least {STEPS} steps, here {}", around.steps));
    let least = MEMORY * around.memory_bytes;
    let (gigabytes, wanted) = (around.set_bytes as f64 / 1e9, least as f64 / 1e9);
    rule(
        around.set_bytes >= least,
        format!(
            "the set has at least {MEMORY} times the memory of the machines: {wanted:.0} GB, here {gigabytes:.1} GB"
        ),
    );
    rule(job.repetitions >= RUNS, format!("a result is of {RUNS} runs one after the other, here {}", job.repetitions));
    rule(job.together, "accelerators wait for each other after each step; here each is by itself".into());
    rule(!around.shaped, "the storage is measured as it is; here it was slowed down".into());
    rule(job.chill != Chill::Each, "caches are not emptied between epochs of a run".into());
    let least = around.au_percent.iter().copied().fold(f64::INFINITY, f64::min);
    rule(
        around.au_percent.is_empty() || least >= read.pass_au_percent,
        format!("utilisation is at least {} %, here {least:.1} % in one epoch", read.pass_au_percent),
    );
    rule(around.invalid.is_none(), format!("utilisation is that of a steady loop; {}", around.invalid.unwrap_or("")));
    found
}
