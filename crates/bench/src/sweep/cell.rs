//! What all ranks found in one phase of one cell, in the shape that reports keep (`docs/report.md`).
//!
//! It measures nothing. Invariant: a cell is added up from what ranks counted, never averaged.

use std::collections::BTreeMap;

use report::Buckets;
use serde::{Deserialize, Serialize};

use super::Phase;
use super::job::{Done, Mark};
use super::latency::{Latencies, Recorded};
use crate::cold::Cooled;

/// One phase at one size of files and one number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Counts from 1.
    #[serde(default = "first")]
    pub repetition: u64,
    pub phase: Phase,
    pub file_bytes: u64,
    /// Of each rank.
    pub threads: u64,
    pub ranks: u64,
    /// What one call moved; absent where a phase moves no bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    pub files: u64,
    /// Files, or blocks of a random read.
    pub operations: u64,
    pub bytes: u64,
    pub verified_bytes: u64,
    /// Until the last thread ended: the seconds that the rates below are of.
    pub seconds: f64,
    pub bytes_per_second: f64,
    pub files_per_second: f64,
    pub operations_per_second: f64,
    /// Until the first thread of a rank had nothing left to do.
    pub first_done: Rate,
    /// `min`, `mean`, `p50`, `p90`, `p99`, `p99.9`, `max`.
    pub latency_seconds: BTreeMap<String, f64>,
    pub histogram: Buckets,
    /// Of this program on all ranks, all threads together; not of a program that serves the target.
    pub cpu_seconds: f64,
    pub cold: bool,
    /// How caches were dropped before the phase; absent if nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooled: Option<Cooled>,
    /// `bytes`: every file was come to; `time`: the time limit was first; `interrupt`: somebody was.
    pub ended_by: String,
    /// Of each rank, in their order.
    pub rank_seconds: Vec<f64>,
}

/// A shorter phase says more about starting threads than about storage.
pub const TELLING_SECONDS: f64 = 0.1;

fn first() -> u64 {
    1
}

/// A throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub seconds: f64,
    pub bytes_per_second: f64,
    pub files_per_second: f64,
    pub operations_per_second: f64,
}

/// What one rank found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Of each thread.
    pub files: Vec<u64>,
    first: Mark,
    last: Mark,
    verified: u64,
    processor_seconds: f64,
    recorded: Recorded,
    cooled: Option<Cooled>,
    timed_out: bool,
    pub interrupted: bool,
}

/// What a cell was measured with: its place in the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates {
    pub repetition: u64,
    pub phase: Phase,
    pub file_bytes: u64,
    pub threads: u64,
    pub block: u64,
}

impl Part {
    pub fn of(done: Done, cooled: Option<Cooled>, interrupted: bool) -> Part {
        Part {
            files: done.files,
            first: done.first,
            last: done.last,
            verified: done.verified,
            processor_seconds: done.processor_seconds,
            recorded: done.latencies.recorded(),
            cooled,
            timed_out: done.timed_out,
            interrupted,
        }
    }
}

impl Cell {
    /// Whether its throughput is not to be trusted. Looking names up and removing is short by nature.
    pub fn is_short(&self) -> bool {
        self.phase.moves_bytes() && self.seconds < TELLING_SECONDS
    }

    /// `first_done` adds up the rates that each rank had until its own first thread ended; its seconds are of the
    /// first rank.
    pub fn of(point: Coordinates, parts: &[Part]) -> Cell {
        let mut latencies = Latencies::default();
        parts.iter().for_each(|part| latencies.add(&part.recorded));
        let total = |count: fn(&Mark) -> u64| parts.iter().map(|part| count(&part.last)).sum::<u64>();
        let seconds = parts.iter().map(|part| part.last.seconds).fold(0.0, f64::max);
        let (files, operations) = (total(|mark| mark.files), total(|mark| mark.operations));
        let bytes = total(|mark| mark.bytes);
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let cooled = cooled(parts);
        let is_cold = |cooled: &Cooled| match point.phase {
            Phase::Stat | Phase::Delete => cooled.names_cold,
            Phase::Write | Phase::Read | Phase::Random => cooled.cold,
        };
        let ended_by = match () {
            () if parts.iter().any(|part| part.interrupted) => "interrupt",
            () if parts.iter().any(|part| part.timed_out) => "time",
            () => "bytes",
        };
        Cell {
            repetition: point.repetition,
            phase: point.phase,
            file_bytes: point.file_bytes,
            threads: point.threads,
            ranks: parts.len() as u64,
            block_bytes: point.phase.moves_bytes().then(|| point.block.min(point.file_bytes)),
            files,
            operations,
            bytes,
            verified_bytes: parts.iter().map(|part| part.verified).sum(),
            seconds,
            bytes_per_second: per_second(bytes),
            files_per_second: per_second(files),
            operations_per_second: per_second(operations),
            first_done: first_done(parts),
            latency_seconds: latencies.seconds(),
            histogram: latencies.buckets(),
            cpu_seconds: parts.iter().map(|part| part.processor_seconds).sum(),
            cold: cooled.as_ref().is_some_and(is_cold),
            cooled,
            ended_by: ended_by.into(),
            rank_seconds: parts.iter().map(|part| part.last.seconds).collect(),
        }
    }

    pub fn mean_seconds(&self) -> f64 {
        self.latency_seconds.get("mean").copied().unwrap_or(0.0)
    }
}

fn first_done(parts: &[Part]) -> Rate {
    let rate = |count: fn(&Mark) -> u64| {
        let of = |mark: &Mark| if mark.seconds > 0.0 { count(mark) as f64 / mark.seconds } else { 0.0 };
        parts.iter().map(|part| of(&part.first)).sum()
    };
    Rate {
        seconds: parts.iter().map(|part| part.first.seconds).reduce(f64::min).unwrap_or(0.0),
        bytes_per_second: rate(|mark| mark.bytes),
        files_per_second: rate(|mark| mark.files),
        operations_per_second: rate(|mark| mark.operations),
    }
}

/// It is cold where every rank is; the reasons are of the first that isn't.
fn cooled(parts: &[Part]) -> Option<Cooled> {
    let all: Vec<&Cooled> = parts.iter().filter_map(|part| part.cooled.as_ref()).collect();
    let mut means: Vec<String> = all.iter().flat_map(|cooled| cooled.means.iter().cloned()).collect();
    means.sort_unstable();
    means.dedup();
    (all.len() == parts.len() && !all.is_empty()).then(|| Cooled {
        cold: all.iter().all(|cooled| cooled.cold),
        names_cold: all.iter().all(|cooled| cooled.names_cold),
        means,
        resident_bytes: all.iter().map(|cooled| cooled.resident_bytes).sum(),
        because: all.iter().find_map(|cooled| cooled.because.clone()),
    })
}
