//! What is read and in which states: one table of workloads, phases and amounts.
//!
//! Nothing is measured here. Every target is given the same amounts, so a cell of one target can be
//! divided by the same cell of another.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Workload {
    /// 10,000 small files in shuffled order, 8 threads: open, read to the end, close.
    Small,
    /// 140 MB files in reads of 1 MiB, one thread.
    Large1,
    /// The same with 4 threads, each on its own file.
    Large4,
    /// Reads of 128 KiB at random places of one 1 GiB file, 4 threads.
    Rand,
    /// `find` over the small files.
    Find,
    /// `ls -lR` over the small files.
    Lslr,
    /// stat of every small file, 8 threads.
    Stat8,
    /// A training loop: 8 loaders, batches of 256 in order, 50 ms a step.
    Loop,
}

/// The state that a workload finds. They are measured in this order, in one life of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Phase {
    /// Wiped cache, fresh daemon, empty page cache.
    Cold,
    /// At once again: cache and page cache as the cold pass left them.
    Kept,
    /// Page, dentry and inode caches of the kernel dropped; the daemon lives on.
    Dropped,
    /// A new daemon over the old cache; the kernel's caches dropped.
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    PerSecond,
    MegabytesPerSecond,
    /// The only one where less is better.
    Seconds,
}

pub const WORKLOADS: [Workload; 8] = [
    Workload::Small,
    Workload::Large1,
    Workload::Large4,
    Workload::Rand,
    Workload::Find,
    Workload::Lslr,
    Workload::Stat8,
    Workload::Loop,
];

impl Workload {
    pub fn name(self) -> &'static str {
        match self {
            Workload::Small => "small",
            Workload::Large1 => "large1",
            Workload::Large4 => "large4",
            Workload::Rand => "rand",
            Workload::Find => "find",
            Workload::Lslr => "lslr",
            Workload::Stat8 => "stat8",
            Workload::Loop => "loop",
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Workload::Small | Workload::Rand | Workload::Stat8 | Workload::Loop => Unit::PerSecond,
            Workload::Large1 | Workload::Large4 => Unit::MegabytesPerSecond,
            Workload::Find | Workload::Lslr => Unit::Seconds,
        }
    }

    pub fn threads(self) -> usize {
        match self {
            Workload::Small | Workload::Stat8 | Workload::Loop => 8,
            Workload::Large4 | Workload::Rand => 4,
            Workload::Large1 | Workload::Find | Workload::Lslr => 1,
        }
    }

    pub fn phases(self) -> &'static [Phase] {
        match self {
            // A loader that restarts reads what `small` reads; the time is better spent elsewhere.
            Workload::Loop => &[Phase::Cold, Phase::Kept, Phase::Dropped],
            _ => &[Phase::Cold, Phase::Kept, Phase::Dropped, Phase::Restart],
        }
    }

    /// How often the set is gone through in one measurement. A kept pass over the large files or
    /// the names takes a few milliseconds; CPU time of a daemon is counted in steps of ten.
    pub fn passes(self, phase: Phase) -> u32 {
        match (self, phase) {
            (Workload::Large1 | Workload::Large4, Phase::Kept) => 4,
            (Workload::Find | Workload::Lslr, Phase::Kept) => 5,
            (Workload::Stat8, Phase::Kept) => 10,
            (Workload::Small, Phase::Kept) => 3,
            _ => 1,
        }
    }

    /// Random reads in one measurement; more where they are faster, for the same reason.
    pub fn random_reads(phase: Phase) -> usize {
        match phase {
            Phase::Cold => 1024,
            Phase::Dropped | Phase::Restart => 4096,
            Phase::Kept => 32_768,
        }
    }

    /// Whether bytes of files are read, not names alone.
    pub fn reads_files(self) -> bool {
        !matches!(self, Workload::Find | Workload::Lslr | Workload::Stat8)
    }

    /// Whether the rest of the file is read, unmeasured, after the cold phase. 1,024 random reads
    /// touch an eighth of the file; the later phases are about data that is cached.
    pub fn fills_after_cold(self) -> bool {
        self == Workload::Rand
    }
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Cold => "cold",
            Phase::Kept => "kept",
            Phase::Dropped => "dropped",
            Phase::Restart => "restart",
        }
    }
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::PerSecond => "per s",
            Unit::MegabytesPerSecond => "MB/s",
            Unit::Seconds => "s",
        }
    }
}
