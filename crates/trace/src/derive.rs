//! A trace as a workload that `bench train` replays, and its pauses as the step of an accelerator.
//!
//! Invariant: what is written can be run; each figure that was judged and not counted is called derived.

use std::collections::BTreeMap;

use block::{Error, Result};
use serde::Serialize;
use workload::accelerator::{Accelerator, Step};
use workload::{Files, Format, Partition, Read, Workload};

use super::{Group, Inside, Trace};

/// Ahead of the step: what loaders commonly have (two a worker in PyTorch's).
const PREFETCH_BATCHES: u64 = 2;

/// MLPerf Storage's mark for most workloads.
const PASS_AU_PERCENT: f64 = 90.0;

/// Reads of less than this share of a file leave a part of it out on purpose.
const WHOLE: f64 = 0.95;

/// The workload that asks for the same.
pub fn workload(trace: &Trace, name: &str) -> Result<Workload> {
    let group = trace.groups.first().ok_or_else(nothing)?;
    let pace = trace.pace.unwrap_or_default();
    let samples = Samples::of(group);
    let batch = if group.is_packed() && group.inside == Inside::Sequential {
        pace.batch_bytes / samples.bytes
    } else {
        pace.batch
    };
    let dropped = if trace.lost > 0 { format!("; {} events were lost", trace.lost) } else { String::new() };
    let source =
        format!("`stoker observe`: {} reads in {:.1} s{dropped}; the batch is derived", trace.reads, trace.seconds);
    Ok(Workload {
        name: name.to_owned(),
        source,
        files: Files {
            format: samples.format,
            count: group.files.max(1),
            samples_per_file: samples.per_file,
            sample_bytes: samples.bytes.max(1.0),
            sample_bytes_stdev: samples.stdev,
            sample_bytes_read: samples.read,
        },
        read: Read {
            batch: at_least_one(batch),
            threads: trace.streams.max(1),
            prefetch_batches: PREFETCH_BATCHES,
            order: group.order,
            partition: Partition::Fresh,
            shuffle_buffer: None,
            epochs: at_least_one(group.epochs),
            steps_max: None,
            pause_seconds: None,
            pass_au_percent: PASS_AU_PERCENT,
        },
        checkpoint: None,
    })
}

/// The accelerator whose step is what the program did between its reads.
pub fn accelerator(trace: &Trace, workload: &Workload) -> Result<Accelerator> {
    let pace = trace.pace.ok_or_else(|| {
        Error::missing("no pause between batches was seen, so no step time can be derived", &workload.name)
            .hint("give the time of a step yourself: stoker bench train --set step=20ms")
    })?;
    let (step_seconds, source) = if trace.streams <= 1 {
        (pace.pause_seconds, format!("median of {} pauses of the process that read", pace.pauses))
    } else {
        let source = format!(
            "time from batch to batch of {} readers; an upper bound, as reading may have been in it",
            trace.streams
        );
        (pace.cycle_seconds / trace.streams as f64, source)
    };
    let step = Step {
        step_seconds: step_seconds.clamp(1e-6, 3600.0),
        batch: Some(workload.read.batch),
        prefetch_batches: None,
        derived: true,
        source: format!("`stoker observe`: {source}"),
    };
    Ok(Accelerator { name: "observed".into(), steps: BTreeMap::from([(workload.name.clone(), step)]) })
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
}
