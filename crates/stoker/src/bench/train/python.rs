//! `bench train --loader`: the same workload through the data loader of a library in Python.
//!
//! It knows no probe and no bound: what a loader asks of a folder is the loader's own affair. Invariant: beside each
//! result stands what the same loader reaches on samples without bytes.

use super::Args;
use crate::bench::loader;
use crate::bench::machine::Machine;
use ::bench::loader::{Among, Job as Asked, Loader, Watch};
use ::bench::samples::belongs;
use ::bench::train::{Chill, Job, complete, summary, warn};
use anyhow::Result;
use block::Error;
use data::Manifest;
use indicatif::ProgressBar;
use ranks::Ranks;
use report::{Report, Summary};
use std::path::Path;
use targets::{Folder, Listed, Target};
use workload::Format;

/// The ceiling is measured about so long, in steps of which there are not fewer than this.
const CEILING_SECONDS: f64 = 2.0;
const CEILING_STEPS_MIN: u64 = 10;

/// Gives the bytes of the set, and whether it is one of files.
pub fn run(
    library: Loader,
    args: &Args,
    job: &Job,
    machine: &Machine,
    ranks: &dyn Ranks,
    report: &mut Report,
) -> Result<(u64, bool)> {
    let target = report.target.clone();
    if target.contains("://") {
        return Err(Error::invalid("the loaders read folders", target).hint("mount it, and name the folder").into());
    }
    let among = Among { ranks, node: &machine.node };
    let files = if target == "null:" { Vec::new() } else { listed(Path::new(&target), job.workload.files.format)? };
    let files: Vec<Listed> = files.into_iter().filter(|file| belongs(job.workload.files.format, &file.name)).collect();
    // An older result under this name would be taken for this one.
    if ranks.rank() == 0 {
        args.output.save(report)?;
    }
    let bar = super::line();
    let around = |what| Around { job, machine, ranks, files: &files, bar: &bar, what };
    let ceiling = match library {
        Loader::Dali => {
            warn(report, "DALI reads nothing that doesn't lie in files, so that its ceiling isn't known");
            100.0
        }
        _ => {
            let found =
                ceiling(library, &asked(job, ranks, None)?, among, &mut Around { files: &[], ..around("ceiling") })?;
            report.sections.insert("ceiling".into(), serde_json::json!({ "null_percent": found, "loader": true }));
            found
        }
    };
    let folder = (target != "null:").then_some(target.as_str());
    for repetition in 1..=job.repetitions {
        // Each repetition has other permutations, as runs of a job have.
        let asked = Asked { seed: job.seed.wrapping_add(repetition - 1), ..asked(job, ranks, folder)? };
        for mut epoch in loader::run(library, &asked, among, &mut around("epoch"))? {
            (epoch.repetition, epoch.ceiling_percent) = (repetition, ceiling);
            report.epochs.push(epoch);
        }
        let found = summary(report, job, None, &asked.steady());
        // There is a verdict at the end.
        let early = Summary { passed: false, verdict: None, reason: None, ..found.clone() };
        report.summary = Some(if repetition < job.repetitions { early } else { found });
        if ranks.rank() == 0 {
            args.output.save(report)?;
        }
    }
    warn(
        report,
        "a loader's run has no bound, no share of it and no timeline: nobody counts what its processes get of storage, \
        second by second or in all; its accelerators step together, so that it has no --processes either",
    );
    if folder.is_some() {
        warn(report, "what a loader in Python reads is not compared with checksums");
    }
    report.finished = true;
    bar.finish_and_clear();
    Ok((files.iter().map(|file| file.bytes).sum(), folder.is_some()))
}

/// The files of a set, all of them where it has a manifest.
fn listed(folder: &Path, format: Format) -> Result<Vec<Listed>> {
    let target = Folder::at(folder)?;
    let files = target.list()?;
    if let Some(manifest) = Manifest::read(&target)? {
        complete(&manifest, &files, format, target.url())?;
    }
    Ok(files)
}

/// What the loader reaches on samples without bytes, in percent: of as many as its short epoch takes.
fn ceiling(library: Loader, asked: &Asked, among: Among, watch: &mut dyn Watch) -> Result<f64> {
    let lead = asked.steady().lead;
    let steps = (CEILING_SECONDS / asked.step_seconds).ceil().max((lead + CEILING_STEPS_MIN) as f64) as u64;
    let samples = steps.saturating_add(lead).saturating_mul(asked.batch).saturating_mul(asked.replicas);
    // Each worker has files of its own.
    let files = samples.div_ceil(asked.samples_per_file).max(asked.replicas * asked.workers.max(1));
    let short = Asked {
        epochs: 1,
        steps_max: Some(steps),
        pause_seconds: None,
        files: files.min(asked.files),
        ..asked.clone()
    };
    let found = loader::run(library, &short, among, watch)?;
    Ok(found.first().map_or(0.0, |epoch| epoch.au_percent))
}

/// The part of this rank.
fn asked(job: &Job, ranks: &dyn Ranks, folder: Option<&str>) -> Result<Asked> {
    let step = workload::accelerator::Step {
        step_seconds: job.step_seconds,
        batch: None,
        prefetch_batches: None,
        derived: false,
        source: String::new(),
    };
    let (accelerators, first_accelerator) = job.lanes(ranks)?;
    let alone = Asked::of(&job.workload, &step, accelerators, folder, job.seed);
    Ok(Asked { decode: job.decode, first_accelerator, replicas: job.accelerators, ..alone })
}

/// What is done between epochs, and shown during them.
struct Around<'a> {
    job: &'a Job,
    machine: &'a Machine,
    ranks: &'a dyn Ranks,
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
        Ok(is_due && !self.files.is_empty() && self.machine.empty(self.ranks, self.files)?)
    }

    fn made(&mut self, epoch: u64, step: u64, steps: u64) {
        self.bar.set_message(format!("{} {epoch}: step {step} of {steps}", self.what));
    }
}
