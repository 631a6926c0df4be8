//! One phase of one cell on this rank: a thread for each share of the files.
//!
//! Latency is the time in calls of the target; making content and comparing it is outside of it, and inside of the
//! throughput. Invariants: no thread waits for another between start and end; each thread's error ends the others.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use block::{Error, Result};
use data::noise::Chance;
use serde::{Deserialize, Serialize};
use targets::{Listed, Opened, Writable};

use super::Phase;
use super::buffer::Buffer;
use super::clock::Watch;
use super::latency::Latencies;
use super::pattern::Content;

/// Of one thread in one cell, so that every file has a number of its own.
pub const FILES_MAX: u64 = 1 << 24;
/// Blocks of a file whose order is dealt like cards; of longer files each block is drawn by itself.
const DEALT_BLOCKS_MAX: u64 = 1 << 20;
/// A stream of chance that no content uses: the order of blocks.
const ORDER: u64 = 1 << 63;

/// What happens now: read by whoever shows it, who may ask to stop.
#[derive(Default)]
pub struct Live {
    pub bytes: AtomicU64,
    pub files: AtomicU64,
    pub operations: AtomicU64,
    pub stop: AtomicBool,
}

/// The files of one thread.
#[derive(Clone, Debug)]
pub struct Share {
    /// As the target knows it.
    pub folder: String,
    /// Of its first file; each has its own.
    pub number: u64,
    pub files: u64,
}

impl Share {
    pub fn name(&self, file: u64) -> String {
        format!("{}/f{file}", self.folder)
    }
}

pub struct Job<'a> {
    pub files: &'a dyn Writable,
    pub phase: Phase,
    pub shares: &'a [Share],
    pub file_bytes: u64,
    pub block: u64,
    pub seed: u64,
    /// A write ends when its file is on the disk.
    pub durable: bool,
    pub verify: bool,
    pub time_max: Option<Duration>,
    pub live: &'a Live,
}

/// How far all threads of a rank had come at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    pub seconds: f64,
    pub files: u64,
    pub operations: u64,
    pub bytes: u64,
}

pub struct Done {
    /// Files that each thread came to the end of.
    pub files: Vec<u64>,
    /// When the first thread had nothing left to do, and when the last.
    pub first: Mark,
    pub last: Mark,
    pub verified: u64,
    pub processor_seconds: f64,
    pub latencies: Latencies,
    pub timed_out: bool,
}

/// What one thread found.
#[derive(Default)]
struct Found {
    files: u64,
    verified: u64,
    latencies: Latencies,
    timed_out: bool,
}

impl Job<'_> {
    /// Returns when all threads have ended, with what they did or with the first failure.
    pub fn run(&self) -> Result<Done> {
        for counter in [&self.live.bytes, &self.live.files, &self.live.operations] {
            counter.store(0, Ordering::Relaxed);
        }
        let (failed, first, gate) = (AtomicBool::new(false), OnceLock::new(), OnceLock::<Option<Watch>>::new());
        let (ready, is_ready) = sync_channel(self.shares.len());
        let member = |share: &Share| -> Result<Found> {
            let mut buffer = Buffer::of(self.block.min(self.file_bytes) as usize);
            let _ = ready.send(());
            let Some(watch) = *gate.wait() else { return Ok(Found::default()) };
            let mut turn =
                Turn { job: self, share, buffer: &mut buffer, watch, failed: &failed, found: Found::default() };
            let done = turn.work();
            let found = turn.found;
            done.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
            first.get_or_init(|| self.mark(&watch));
            Ok(found)
        };
        let member = &member;
        let tallies = thread::scope(|scope| {
            let spawn = |share| thread::Builder::new().spawn_scoped(scope, move || member(share));
            let crew: std::io::Result<Vec<_>> = self.shares.iter().map(spawn).collect();
            let crew = crew.map_err(|error| {
                let _ = gate.set(None);
                Error::io("cannot start a thread", format!("{} threads", self.shares.len()), &error)
                    .hint("give fewer --threads, or raise the limit of this user on them")
            })?;
            // All have their memory before time begins.
            crew.iter().for_each(|_| is_ready.recv().expect("each thread says it before it can end"));
            let _ = gate.set(Some(Watch::start()));
            let ends: Vec<_> = crew.into_iter().map(|member| member.join().expect("no share panics")).collect();
            ends.into_iter().collect::<Result<Vec<Found>>>()
        })?;
        let watch = gate.get().copied().flatten().expect("the gate was opened, or this is not reached");
        let last = self.mark(&watch);
        let mut latencies = Latencies::default();
        tallies.iter().for_each(|found| latencies.merge(&found.latencies));
        Ok(Done {
            files: tallies.iter().map(|found| found.files).collect(),
            first: first.get().copied().unwrap_or(last),
            last,
            verified: tallies.iter().map(|found| found.verified).sum(),
            processor_seconds: watch.processor_seconds(),
            latencies,
            timed_out: tallies.iter().any(|found| found.timed_out),
        })
    }

    fn mark(&self, watch: &Watch) -> Mark {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Mark {
            seconds: watch.elapsed().as_secs_f64(),
            files: now(&self.live.files),
            operations: now(&self.live.operations),
            bytes: now(&self.live.bytes),
        }
    }
}

/// One thread at its share.
struct Turn<'a> {
    job: &'a Job<'a>,
    share: &'a Share,
    buffer: &'a mut Buffer,
    watch: Watch,
    failed: &'a AtomicBool,
    found: Found,
}

impl Turn<'_> {
    fn work(&mut self) -> Result<()> {
        for number in 0..self.share.files {
            // A phase that removes has to remove all, and without a file there would be nothing to read.
            let by_time = match self.job.phase {
                Phase::Delete => false,
                Phase::Write => number > 0,
                Phase::Stat | Phase::Read | Phase::Random => true,
            };
            if self.is_over(by_time) {
                break;
            }
            let name = self.share.name(number);
            let content = Content::of(self.job.seed, self.share.number + number);
            let is_whole = match self.job.phase {
                Phase::Write => self.write(&name, content)?,
                Phase::Stat => self.stat(&name)?,
                Phase::Read => self.read(&name, content)?,
                Phase::Random => self.read_random(&name, content, number)?,
                Phase::Delete => {
                    let ((), took) = self.timed(|job| job.files.remove(&name))?;
                    self.count(took)
                }
            };
            if !is_whole {
                break;
            }
            self.found.files += 1;
            self.job.live.files.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether to stop: asked to, another thread failed, or the time is up.
    fn is_over(&mut self, by_time: bool) -> bool {
        let is_late = by_time && self.job.time_max.is_some_and(|limit| self.watch.elapsed() >= limit);
        self.found.timed_out |= is_late;
        is_late || self.job.live.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    fn timed<T>(&self, call: impl FnOnce(&Job) -> Result<T>) -> Result<(T, Duration)> {
        let start = self.watch.elapsed();
        let done = call(self.job)?;
        Ok((done, self.watch.elapsed().saturating_sub(start)))
    }

    /// An operation came to its end.
    fn count(&mut self, took: Duration) -> bool {
        self.found.latencies.record(took);
        self.job.live.operations.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn moved(&self, bytes: usize) {
        self.job.live.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn write(&mut self, name: &str, content: Content) -> Result<bool> {
        let bytes = self.job.file_bytes;
        let (mut created, mut took) = self.timed(|job| job.files.create(name, bytes))?;
        for offset in (0..bytes).step_by(self.job.block as usize) {
            // The time limit doesn't cut a file: a phase that follows reads it whole.
            if self.is_over(false) {
                return Ok(false);
            }
            let length = self.job.block.min(bytes - offset) as usize;
            content.fill(offset, &mut self.buffer.bytes()[..length]);
            let start = self.watch.elapsed();
            created.write(&self.buffer.bytes()[..length])?;
            took += self.watch.elapsed().saturating_sub(start);
            self.moved(length);
        }
        let ((), end) = self.timed(|_| created.finish(self.job.durable))?;
        Ok(self.count(took + end))
    }

    fn stat(&mut self, name: &str) -> Result<bool> {
        let (found, took) = self.timed(|job| job.files.stat(name))?;
        if found.bytes != self.job.file_bytes {
            let what = format!("the target says {} bytes, and {} were written", found.bytes, self.job.file_bytes);
            return Err(
                Error::corrupt(what, name).hint("look at what the target does with sizes; a cache may be stale")
            );
        }
        Ok(self.count(took))
    }

    fn open(&mut self, name: &str) -> Result<(Box<dyn Opened>, Duration)> {
        let file = Listed { name: name.into(), bytes: self.job.file_bytes };
        self.timed(|job| job.files.open(&file))
    }

    fn read(&mut self, name: &str, content: Content) -> Result<bool> {
        let (mut opened, mut took) = self.open(name)?;
        for offset in (0..self.job.file_bytes).step_by(self.job.block as usize) {
            if self.is_over(true) {
                return Ok(false);
            }
            took += self.read_block(&mut *opened, name, content, offset)?;
        }
        Ok(self.count(took))
    }

    /// Every block of the file once, in an order of chance; each is an operation.
    fn read_random(&mut self, name: &str, content: Content, number: u64) -> Result<bool> {
        let blocks = self.job.file_bytes.div_ceil(self.job.block);
        let mut chance = Chance::of(self.job.seed, ORDER | (self.share.number + number));
        let dealt = (blocks <= DEALT_BLOCKS_MAX).then(|| deal(blocks, &mut chance));
        let (mut opened, _) = self.open(name)?;
        // Nothing is read ahead of what comes by chance, or the next blocks might come from memory.
        opened.alone();
        for turn in 0..blocks {
            if self.is_over(true) {
                return Ok(false);
            }
            let block = dealt.as_ref().map_or_else(|| chance.below(blocks), |dealt| u64::from(dealt[turn as usize]));
            let took = self.read_block(&mut *opened, name, content, block * self.job.block)?;
            self.count(took);
        }
        Ok(true)
    }

    fn read_block(&mut self, opened: &mut dyn Opened, name: &str, content: Content, offset: u64) -> Result<Duration> {
        let length = self.job.block.min(self.job.file_bytes - offset) as usize;
        let buffer = &mut self.buffer.bytes()[..length];
        let start = self.watch.elapsed();
        let count = opened.read_at(offset, buffer)?;
        let took = self.watch.elapsed().saturating_sub(start);
        if count != length {
            let what =
                format!("the file ends at byte {}, and {} were written", offset + count as u64, self.job.file_bytes);
            return Err(Error::corrupt(what, name).hint("see who else writes to this target"));
        }
        if self.job.verify {
            content.verify(name, offset, buffer)?;
            self.found.verified += length as u64;
        }
        self.moved(length);
        Ok(took)
    }
}

/// The numbers below `count`, each once.
fn deal(count: u64, chance: &mut Chance) -> Vec<u32> {
    let mut cards: Vec<u32> = (0..u32::try_from(count).expect("fewer blocks than DEALT_BLOCKS_MAX")).collect();
    chance.shuffle(&mut cards);
    cards
}

#[cfg(test)]
mod order {
    use super::*;

    #[test]
    fn every_block_is_dealt_once_and_not_in_its_place() {
        let mut dealt = deal(1_000, &mut Chance::of(1, 2));
        assert!(dealt.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 10);
        dealt.sort_unstable();
        assert!(dealt.into_iter().eq(0..1_000));
    }
}
