//! A trace as a workload that `bench train` replays, and its pauses as the step of an accelerator.
//!
//! Invariants: what is written can be run, and its steps fit into the run that they were seen in; each figure that was
//! judged and not counted is called derived, and what the trace can't tell is said.

use std::collections::BTreeMap;

use block::{Error, Result};
use serde::Serialize;
use workload::accelerator::{Accelerator, Step};
use workload::{Files, Format, Partition, Read, Workload};

use super::{Group, Inside, Pace, Trace};

/// Ahead of the step, where it can't be told: what loaders commonly have (two a worker in PyTorch's).
const PREFETCH_BATCHES: u64 = 2;

/// MLPerf Storage's mark for most workloads.
const PASS_AU_PERCENT: f64 = 90.0;

/// Reads of less than this share of a file leave a part of it out on purpose.
const WHOLE: f64 = 0.95;

/// Less of the run between epochs changes no rate by a tenth.
const LEFT_OUT_PERCENT: f64 = 10.0;

/// What was derived of a trace.
pub struct Derived {
    pub workload: Workload,
    pub accelerator: Accelerator,
    /// What the trace can't tell, and what was taken in its place.
    pub doubts: Vec<String>,
}

/// The workload that asks for the same, and the accelerator whose step is what the program did besides reading.
pub fn of(trace: &Trace, name: &str) -> Result<Derived> {
    let group = trace.groups.first().ok_or_else(nothing)?;
    let samples = Samples::of(group);
    let mut doubts = Vec::new();
    if trace.lost > 0 {
        doubts.push(format!("{} events were lost", trace.lost));
    }
    let batch = trace.pace.map_or(1.0, |pace| batch(&pace, group, &samples));
    let read = Read {
        batch: at_least_one(batch),
        threads: trace.streams.max(1),
        prefetch_batches: ahead(trace, &mut doubts),
        order: group.order,
        partition: Partition::Fresh,
        shuffle_buffer: None,
        epochs: at_least_one(group.epochs),
        steps_max: None,
        pause_seconds: None,
        pass_au_percent: PASS_AU_PERCENT,
    };
    if group.is_packed() && group.inside == Inside::Sequential && trace.pace.is_some() {
        doubts.push("records may have passed a shuffle buffer, of which nothing is seen".to_owned());
    }
    let all = samples.count(group);
    doubts.extend(trace.pace.and_then(|pace| left_out(trace, all / batch * pace.batch_seconds())));
    let (step, doubt) = step(trace, read.batch, batch, all, read.prefetch_batches > 0);
    doubts.extend(doubt);
    let source = format!("`stoker observe`: {} reads in {:.1} s", trace.reads, trace.seconds);
    let source = [&[source][..], &doubts].concat().join("; ");
    let files = Files {
        format: samples.format,
        count: group.files.max(1),
        samples_per_file: samples.per_file,
        sample_bytes: samples.bytes.max(1.0),
        sample_bytes_stdev: samples.stdev,
        sample_bytes_read: samples.read,
        ..Files::default()
    };
    let workload = Workload { name: name.to_owned(), source, files, read, checkpoint: None };
    let accelerator = Accelerator { name: "observed".into(), steps: BTreeMap::from([(name.to_owned(), step)]) };
    Ok(Derived { workload, accelerator, doubts })
}

/// Whether much of the run was no batch like the others, whose time is not in the step.
fn left_out(trace: &Trace, batches_seconds: f64) -> Option<String> {
    let percent = 100.0 * (1.0 - batches_seconds / trace.seconds);
    (percent > LEFT_OUT_PERCENT).then(|| {
        format!(
            "{percent:.0} % of the time went to long pauses, between epochs or for checkpoints, that are not replayed"
        )
    })
}

/// Samples of a batch.
fn batch(pace: &Pace, group: &Group, samples: &Samples) -> f64 {
    if group.is_packed() && group.inside == Inside::Sequential { pace.batch_bytes / samples.bytes } else { pace.batch }
}

/// Batches that are read ahead; none where nothing is read while the program computes.
fn ahead(trace: &Trace, doubts: &mut Vec<String>) -> u64 {
    let threads = trace.streams.max(1);
    let Some(pace) = trace.pace else {
        doubts.push(
            "no batches were seen: a sample was taken for a batch, and how many are read ahead is a guess".into(),
        );
        return PREFETCH_BATCHES.max(threads);
    };
    match pace.ahead {
        None => {
            doubts.push("how many batches are read ahead can't be told and is a guess".into());
            PREFETCH_BATCHES.max(threads)
        }
        // Readers that own batches are at work on several at once.
        Some(0) if pace.owners > 1 => pace.owners,
        Some(0) => 0,
        // Those that share one can only be replayed by readers that own one each.
        Some(ahead) => ahead.max(threads),
    }
}

/// The step, and what there is to be said of it. `batch` as it was rounded and as it was found; `all` samples were read.
fn step(trace: &Trace, batch: u64, found: f64, all: f64, is_ahead: bool) -> (Step, Option<String>) {
    // What is read ahead was asked for before its step: reads alone span less than the steps.
    let most = trace.run_seconds.unwrap_or(f64::INFINITY) * batch as f64 / all.max(1.0);
    let (seconds, source) = match trace.pace {
        None => (
            trace.seconds * batch as f64 / all.max(1.0),
            "at most: no batches were seen, so that this is the time of the run over its samples".to_owned(),
        ),
        Some(pace) if is_ahead => (
            pace.batch_seconds() * batch as f64 / found,
            format!("time from batch to batch, of {} pauses; what is read ahead is not waited for", pace.pauses),
        ),
        Some(pace) => (
            pace.work_seconds * batch as f64 / found,
            format!("time from batch to batch in which nothing was read, of {} pauses", pace.pauses),
        ),
    };
    let doubt = match trace.pace {
        None => Some("the step is an upper bound".to_owned()),
        Some(_) if seconds > most => Some(format!(
            "all batches in steps of {:.1} ms would take longer than the run: the step was lowered to {:.1} ms, an upper bound",
            1e3 * seconds,
            1e3 * most
        )),
        Some(_) => None,
    };
    let source = if seconds > most { "at most: the time of the run over its batches".to_owned() } else { source };
    let step = Step {
        step_seconds: seconds.min(most).clamp(1e-6, 3600.0),
        batch: Some(batch),
        prefetch_batches: None,
        derived: true,
        source: format!("`stoker observe`: {source}"),
    };
    (step, doubt)
}

/// A workload or an accelerator as its file.
pub fn text(value: &impl Serialize) -> String {
    toml::to_string(value).expect("names, numbers and tables of them can be written")
}

fn nothing() -> Error {
    Error::missing("nothing was read, so there is no workload", "the folder that was observed")
        .hint("check that the program reads files below that folder, and not copies elsewhere")
}

fn at_least_one(value: f64) -> u64 {
    (value.round() as u64).max(1)
}

/// What one sample is taken to be.
struct Samples {
    format: Format,
    per_file: u64,
    bytes: f64,
    stdev: f64,
    read: Option<f64>,
}

impl Samples {
    fn of(group: &Group) -> Samples {
        if let Some(records) = group.records {
            let (bytes, stdev) = (records.bytes_mean, records.bytes_stdev);
            let per_file = at_least_one(records.per_file);
            return Samples { format: Format::Tfrecord, per_file, bytes, stdev, read: None };
        }
        if group.inside == Inside::Random {
            let (bytes, stdev) = (group.read_bytes_mean, group.read_bytes_stdev);
            let per_file = at_least_one(group.file_bytes_mean / bytes.max(1.0));
            // What was read at random of a Parquet file is replayed as such, not as the row groups around it.
            let format = if group.format == Format::Parquet { Format::Raw } else { group.format };
            return Samples { format, per_file, bytes, stdev, read: None };
        }
        let (bytes, stdev) = (group.file_bytes_mean, group.file_bytes_stdev);
        let visits = group.epochs_mean * group.files as f64;
        let read = group.bytes as f64 / visits.max(1.0);
        let read = (read < WHOLE * bytes).then_some(read.max(1.0));
        Samples { format: group.format, per_file: 1, bytes, stdev, read }
    }
    /// Samples that were read in all epochs.
    fn count(&self, group: &Group) -> f64 {
        group.bytes as f64 / self.read.unwrap_or(self.bytes).max(1.0)
    }
}
