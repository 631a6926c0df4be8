//! The reader: goes through one workload below a folder and says how long it took.
//!
//! It runs as a process of its own, so that its CPU time is the cost to the program that reads. It
//! knows nothing of targets: a mount and a local folder are read by the same lines. Names, orders
//! and threads are made ready before the clock starts. Nothing is retried: an error is counted.

mod files;
mod looping;
mod names;

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::dataset::Scale;
use crate::workload::{Phase, Workload};

/// What to read.
#[derive(Clone, Debug, clap::Args)]
pub struct Order {
    /// The folder that holds the data set.
    #[arg(long)]
    pub root: PathBuf,
    #[arg(long)]
    pub workload: Workload,
    /// Says how much is read, not in which state: that is the caller's business.
    #[arg(long)]
    pub phase: Phase,
    #[arg(long, default_value = "full")]
    pub scale: Scale,
    /// Seed of the order of files and places.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Read the whole 1 GiB file once in sequence instead.
    #[arg(long)]
    pub fill: bool,
}

/// What came of it. Seconds are wall time, CPU seconds of all threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub items: u64,
    pub bytes: u64,
    /// Bytes of the blocks, or whole small files, that were touched: what a store must send at
    /// least once. Zero where only names are read.
    pub touched_bytes: u64,
    pub passes: u32,
    pub errors: u64,
    pub wrong_tags: u64,
    pub first_error: Option<String>,
}

/// What one thread did; sums up.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub items: u64,
    pub bytes: u64,
    errors: u64,
    pub wrong_tags: u64,
    first_error: Option<String>,
}

pub fn read(order: &Order) -> Result<Outcome> {
    if order.fill {
        return files::fill(order);
    }
    match order.workload {
        Workload::Small => files::small(order),
        Workload::Large1 | Workload::Large4 => files::large(order),
        Workload::Rand => files::random(order),
        Workload::Stat8 => names::stat(order),
        Workload::Find => names::find(order),
        Workload::Lslr => names::list(order),
        Workload::Loop => looping::train(order),
    }
}

impl Counts {
    pub fn error(&mut self, name: &str, what: &str) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| format!("{name}: {what}"));
    }

    fn add(&mut self, other: Counts) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.wrong_tags += other.wrong_tags;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    pub fn outcome(self, took: Took, passes: u32) -> Outcome {
        Outcome {
            seconds: took.wall.as_secs_f64(),
            cpu_seconds: took.cpu.as_secs_f64(),
            items: self.items,
            bytes: self.bytes,
            touched_bytes: self.bytes / u64::from(passes),
            passes,
            errors: self.errors,
            wrong_tags: self.wrong_tags,
            first_error: self.first_error,
        }
    }
}

#[derive(Clone, Copy)]
pub struct Took {
    wall: Duration,
    cpu: Duration,
}

/// Starts when made, stops when asked.
struct Clock {
    wall: Instant,
    cpu: Duration,
}

impl Clock {
    fn start() -> Clock {
        Clock { wall: Instant::now(), cpu: own_cpu() }
    }

    fn took(&self) -> Took {
        Took { wall: self.wall.elapsed(), cpu: own_cpu() - self.cpu }
    }
}

/// Processor time of this process so far.
pub fn own_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs `work` in so many threads that start at one moment, each with a buffer of so many bytes, and times until the
/// last has ended.
pub fn together(threads: usize, buffer: usize, work: impl Fn(usize, &mut [u8]) -> Counts + Sync) -> (Counts, Took) {
    let gate = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|index| {
                let (gate, work) = (&gate, &work);
                scope.spawn(move || {
                    let mut buffer = touched(buffer);
                    gate.wait();
                    work(index, &mut buffer)
                })
            })
            .collect();
        let clock = Clock::start();
        gate.wait();
        let mut sum = Counts::default();
        for thread in running {
            sum.add(thread.join().expect("a reading thread does not panic"));
        }
        (sum, clock.took())
    })
}

/// A buffer whose pages are there already: the first touch is not part of any figure.
fn touched(length: usize) -> Vec<u8> {
    vec![1; length]
}

fn open_folder(root: &Path) -> Result<OwnedFd> {
    rustix::fs::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("opening the folder {}", root.display()))
}
