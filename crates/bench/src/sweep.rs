//! Files of each size by each number of threads: written, looked up, read, read at random places, removed.
//!
//! Layout:
//! - [`Settings`], [`Phase`]: what to do; [`run`] does it, cell by cell.
//! - `job`: one phase on this rank; `latency`: how long each operation took.
//! - [`Cell`]: what all ranks found in one phase, as reports have it; [`regime`]: what the cells say together.
//! - `buffer`, `pattern`, `clock`: what stands in the files. Where they lie is a [`Ground`].
//!
//! It draws nothing. Invariants: work is dealt to threads and ranks in equal shares beforehand, so that nobody waits for
//! a queue; whatever way a sweep ends, it removes its files and no other.

mod buffer;
mod cell;
mod clock;
mod job;
pub(crate) mod latency;
pub(crate) mod pattern;
pub mod regime;
mod run;

#[cfg(test)]
mod tests;

use std::time::Duration;

use block::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::cold::Cooler;
use crate::ground::{Work, is_numbered};
pub use buffer::ALIGNMENT;

pub use cell::{Cell, Rate, TELLING_SECONDS};
pub use job::Live;
pub use run::{Ended, Observer, Step, run};

/// Threads of one rank: more is no longer a question about storage. Numbers of files depend on it.
pub const THREADS_MAX: u64 = 4096;
const CELLS_MAX: usize = 4096;
/// Of one block: each thread has a buffer of it.
const BLOCK_MAX: u64 = 1 << 30;

/// What is done with the files, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Write,
    Stat,
    Read,
    Random,
    Delete,
}

impl Phase {
    pub const ALL: [Phase; 5] = [Phase::Write, Phase::Stat, Phase::Read, Phase::Random, Phase::Delete];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Write => "write",
            Phase::Stat => "stat",
            Phase::Read => "read",
            Phase::Random => "random",
            Phase::Delete => "delete",
        }
    }

    pub fn moves_bytes(self) -> bool {
        matches!(self, Phase::Write | Phase::Read | Phase::Random)
    }
}

/// Where a sweep works: folders `r0.c0.t0` of each rank, cell and thread, with files `f0` in them.
pub const WORK: Work = Work {
    folder: "stoker-sweep",
    command: "stoker bench sweep",
    is_folder: |name| is_numbered(name, &["r", ".c", ".t"], ""),
    is_file: |name| is_numbered(name, &["f"], ""),
};

/// What to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of a file, each once.
    pub sizes: Vec<u64>,
    /// Of each rank.
    pub threads: Vec<u64>,
    /// Besides writing and deleting, without which there is nothing to look at.
    pub phases: Vec<Phase>,
    /// What one call writes or reads; a file that is smaller moves at once.
    pub block: u64,
    /// The same at random places.
    pub random_block: u64,
    /// How often each cell is run: all of them once, then again, so that what drifts is not taken for one of them.
    pub repetitions: u64,
    /// Written by one rank in one cell.
    pub bytes_max: u64,
    /// Written by one rank in one cell, where a number of files was asked for.
    pub files: Option<u64>,
    /// Of one phase in one cell. A file that is being written is finished.
    pub time_max: Option<Duration>,
    pub direct: bool,
    /// A file that was written counts once it is on the disk.
    pub durable: bool,
    pub verify: bool,
    /// Before each phase, and after the last.
    pub cooler: Option<Cooler>,
    /// Read what the next rank wrote.
    pub rotate: bool,
    pub seed: u64,
}

impl Settings {
    /// Refuse what can't be measured, before anything is written.
    pub fn check(&self, ranks: u32) -> Result<()> {
        let wrong = |what: &str, on: String, hint: &str| Err(Error::invalid(what, on).hint(hint));
        if let Some(size) = self.sizes.iter().find(|size| **size == 0) {
            return wrong("a file of a sweep has at least one byte", format!("--sizes {size}"), "give 256KiB or so");
        }
        if let Some(threads) = self.threads.iter().find(|threads| !(1..=THREADS_MAX).contains(threads)) {
            return wrong("a rank has 1 to 4096 threads", format!("--threads {threads}"), "give 1,8,64 or so");
        }
        let cells = (self.sizes.len() * self.threads.len()) as u64 * self.repetitions;
        if !(1..=CELLS_MAX as u64).contains(&cells) {
            let hint = "give --repetitions from 1, or fewer sizes";
            return wrong("a sweep has 1 to 4096 cells, repetitions counted", cells.to_string(), hint);
        }
        if let Some(block) = [self.block, self.random_block].iter().find(|block| !(1..=BLOCK_MAX).contains(*block)) {
            return wrong("a block has 1 byte to 1 GiB", format!("--block {block}"), "give 1MiB,128KiB or so");
        }
        let lengths = self.sizes.iter().chain([&self.block, &self.random_block]);
        if let Some(length) = lengths.copied().find(|length| self.direct && length % ALIGNMENT as u64 != 0) {
            let hint =
                "give sizes and blocks in multiples of 4 KiB, such as 256KiB (256kB is none), or leave out --direct";
            return wrong("direct I/O moves multiples of 4096 bytes", length.to_string(), hint);
        }
        if self.rotate && ranks < 2 {
            let hint = "start the command on two nodes or more, as with mpirun, or leave out --rotate";
            return wrong("one rank has no other whose files it could read", "--rotate".into(), hint);
        }
        if let Some((files, threads)) = self.files.and_then(|files| {
            self.threads.iter().find(|threads| !files.is_multiple_of(**threads)).map(|threads| (files, threads))
        }) {
            let hint = "give a multiple of each number of threads, such as 12800files";
            return wrong(
                "each thread has as many files as the others",
                format!("{files} files, {threads} threads"),
                hint,
            );
        }
        if !self.sizes.iter().any(|size| self.threads.iter().any(|threads| self.fits(*size, *threads))) {
            let limit = format!("{} bytes", self.bytes_max);
            let hint = "raise the bytes of --limit, or give smaller sizes or fewer threads";
            return wrong("no cell has room for a file of each thread", limit, hint);
        }
        Ok(())
    }

    /// Whether each thread can have at least one file, or all of those that were asked for.
    fn fits(&self, size: u64, threads: u64) -> bool {
        size.checked_mul(self.files.unwrap_or(threads)).is_some_and(|bytes| bytes <= self.bytes_max)
    }

    /// Files of one thread.
    fn files(&self, size: u64, threads: u64) -> u64 {
        self.files.map_or(self.bytes_max / (size * threads), |files| files / threads).clamp(1, job::FILES_MAX)
    }

    fn block_of(&self, phase: Phase) -> u64 {
        if phase == Phase::Random { self.random_block } else { self.block }
    }
}
