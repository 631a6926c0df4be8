//! `bench train --loader`: the same workload through the data loader of a library in Python.
//!
//! It knows no probe and no bound: what a loader asks of a folder is the loader's own affair. Invariant: beside each
//! result stands what the same loader reaches on samples without bytes.

use super::{Args, tell};
use crate::bench::loader;
use crate::bench::machine::Machine;
use ::bench::loader::{Job as Asked, Loader, Watch};
use ::bench::report::Report;
use ::bench::target::{Folder, Listed, Target};
use ::bench::train::{Chill, Job, summary, warn};
use anyhow::Result;
use block::Error;
use indicatif::ProgressBar;
use std::path::Path;
use std::process::ExitCode;

/// The ceiling is measured about so long, in steps of which there are not fewer than this.
const CEILING_SECONDS: f64 = 2.0;
const CEILING_STEPS_MIN: f64 = 10.0;

pub fn run(library: Loader, args: &Args, job: &Job, machine: &Machine, mut report: Report) -> Result<ExitCode> {
    let target = report.target.clone();
    if target.contains("://") {
        return Err(Error::invalid("the loaders read folders", target).hint("mount it, and name the folder").into());
    }
    if report.environment.ranks > 1 {
        let hint = "start it once on each machine, or leave out --loader";
        return Err(Error::invalid("the loaders of ranks don't wait for each other", "--loader").hint(hint).into());
    }
    let files = if target == "null:" { Vec::new() } else { Folder::at(Path::new(&target))?.list()? };
    let bar = super::line();
    let ceiling = {
        let steps = (CEILING_SECONDS / job.step_seconds).ceil().max(CEILING_STEPS_MIN) as u64;
        let short = Asked { epochs: 1, steps_max: Some(steps), pause_seconds: None, ..asked(job, None) };
        let mut watch = Around { job, machine, files: &[], bar: &bar, what: "ceiling" };
        let found = loader::run(library, &short, &mut watch)?;
        found.first().map_or(0.0, |epoch| epoch.au_percent)
    };
    report.sections.insert("ceiling".into(), serde_json::json!({ "null_percent": ceiling, "loader": true }));
    let folder = (target != "null:").then_some(target.as_str());
    for repetition in 1..=job.repetitions {
        // Each repetition has other permutations, as runs of a job have.
        let asked = Asked { seed: job.seed + repetition - 1, ..asked(job, folder) };
        let mut watch = Around { job, machine, files: &files, bar: &bar, what: "epoch" };
        for mut epoch in loader::run(library, &asked, &mut watch)? {
            (epoch.repetition, epoch.ceiling_percent) = (repetition, ceiling);
            report.epochs.push(epoch);
        }
        report.summary = Some(summary(&report, job, None));
        args.output.save(&report)?;
    }
    if folder.is_some() {
        warn(&mut report, "what a loader in Python reads is not compared with checksums");
    }
    report.finished = true;
    bar.finish_and_clear();
    tell(&report, job, &args.output)
}

fn asked(job: &Job, folder: Option<&str>) -> Asked {
    let step = ::bench::accelerator::Step {
        step_seconds: job.step_seconds,
        batch: None,
        prefetch_batches: None,
        derived: false,
        source: String::new(),
    };
    Asked { decode: job.decode, ..Asked::of(&job.workload, &step, job.accelerators, folder, job.seed) }
}

/// What is done between epochs, and shown during them.
struct Around<'a> {
    job: &'a Job,
    machine: &'a Machine,
    files: &'a [Listed],
    bar: &'a ProgressBar,
    what: &'static str,
}

impl Watch for Around<'_> {
    fn begin(&mut self, epoch: u64) -> block::Result<bool> {
        let is_due = match self.job.chill {
            Chill::Never => false,
            Chill::First => epoch == 1 || self.job.workload.read.pause_seconds.is_some(),
            Chill::Each => true,
        };
        Ok(is_due && !self.files.is_empty() && self.machine.empty(self.files)?.is_some())
    }

    fn made(&mut self, epoch: u64, step: u64, steps: u64) {
        self.bar.set_message(format!("{} {epoch}: step {step} of {steps}", self.what));
    }
}
