//! One stream of an accelerator: it reads the samples of a batch one after the other, checks and decodes them.
//!
//! It doesn't choose what to read. Invariants: what is counted as verified was compared with a checksum; a file that
//! is shorter than its listing said is an error.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{Error, Result};
use targets::clock::Clock;
use targets::{Opened, Target};

use super::cause::{Cause, Log};
use super::check::{Checks, decode};
use crate::samples::{Run, Set};

/// Bytes of one read of a store: a request is worth making for about so many, as clients of stores have found.
pub const REQUEST: u64 = 16 << 20;

/// Small samples that lie side by side are read together, up to so many bytes.
const TOGETHER: u64 = 4 << 20;

/// A sample up to this size is held whole, to be checked and decoded; a larger one is only checked, as it passes.
const HELD: u64 = 64 << 20;

/// Of all streams together no more is held at once: they may be thousands.
const HELD_OF_ALL: u64 = 8 << 30;

/// A sample up to this size is held by each of so many streams.
pub fn held(streams: u64) -> u64 {
    (HELD_OF_ALL / streams.max(1)).min(HELD)
}

/// What all readers did so far.
#[derive(Debug, Default)]
pub struct ReadCounters {
    pub requests: AtomicU64,
    pub asked: AtomicU64,
    pub verified: AtomicU64,
    pub samples: AtomicU64,
    /// Nanoseconds of checking and decoding.
    pub cpu: AtomicU64,
}

/// How all readers of an epoch read.
pub struct Manner<'a> {
    pub target: &'a dyn Target,
    pub set: &'a Set,
    pub checks: &'a Checks,
    pub clock: &'a dyn Clock,
    pub tally: &'a ReadCounters,
    pub decode: bool,
    /// What the transfer of bytes is waited for: `Store` or `Disk`.
    pub transfer: Cause,
    /// Bytes per second that one stream gets of the target by itself, as the probe found it: of a read's time so much is
    /// the bytes' own.
    pub pace: Option<f64>,
    /// Bytes of a sample that each reader holds whole at most.
    pub held: u64,
    /// Files that each reader keeps open; whole files are closed when they were read.
    pub kept: usize,
}

pub struct Reader<'a> {
    manner: &'a Manner<'a>,
    pub log: Log,
    buffer: Vec<u8>,
    kept: VecDeque<(usize, Box<dyn Opened>)>,
    /// The row group that was read last, by file and number: of its other rows nothing is asked again.
    group: Option<(usize, usize)>,
    /// Nanoseconds of checking since the last batch.
    cpu: u64,
}

impl<'a> Reader<'a> {
    pub fn new(manner: &'a Manner<'a>) -> Reader<'a> {
        Reader { manner, log: Log::default(), buffer: Vec::new(), kept: VecDeque::new(), group: None, cpu: 0 }
    }

    /// Read all samples of a batch.
    pub fn read(&mut self, batch: &[Range<u64>]) -> Result<()> {
        self.log.clear();
        let set = self.manner.set;
        for samples in batch {
            for run in set.locate(samples, &mut self.group) {
                let mut from = run.range.start;
                while from < run.range.end {
                    let to = set.stop(&run, from, TOGETHER.max(set.piece));
                    self.piece(&Run { file: run.file, range: from..to })?;
                    from = to;
                }
            }
            self.manner.tally.samples.fetch_add(samples.end - samples.start, Ordering::Relaxed);
        }
        self.manner.tally.cpu.fetch_add(std::mem::take(&mut self.cpu), Ordering::Relaxed);
        Ok(())
    }

    /// Read one sample, or a few that lie side by side.
    fn piece(&mut self, run: &Run) -> Result<()> {
        self.log.enter(self.manner.clock.now(), Cause::Requests);
        let mut opened = self.open(run.file)?;
        let length = run.range.end - run.range.start;
        let wanted = if self.manner.set.share < 1.0 { self.part(length) } else { length };
        // Row groups are large, and nothing of them is decoded.
        let is_held = length <= self.manner.held && self.manner.set.groups.is_none();
        let done = if is_held { self.held(&mut *opened, run, wanted) } else { self.passing(&mut *opened, run, wanted) };
        if !self.manner.set.whole() && self.manner.kept > 0 {
            self.kept.push_back((run.file, opened));
            if self.kept.len() > self.manner.kept {
                self.kept.pop_front();
            }
        }
        done
    }

    /// Where only a part of a sample is read and nobody knows which, it is the beginning.
    fn part(&self, length: u64) -> u64 {
        ((length as f64 * self.manner.set.share).ceil() as u64).clamp(1, length)
    }

    fn open(&mut self, file: usize) -> Result<Box<dyn Opened>> {
        if let Some(place) = self.kept.iter().position(|(kept, _)| *kept == file) {
            return Ok(self.kept.remove(place).expect("it was just found").1);
        }
        self.manner.target.open(&self.manner.set.files[file])
    }

    fn held(&mut self, opened: &mut dyn Opened, run: &Run, wanted: u64) -> Result<()> {
        // Fresh zeroed memory costs nothing until it is written, and a null target never writes.
        if (self.buffer.len() as u64) < wanted {
            self.buffer = vec![0; (wanted as usize).next_power_of_two()];
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut done = Ok(());
        let mut at = 0;
        while at < wanted && done.is_ok() {
            let to = (at + self.manner.set.piece).min(wanted);
            done = self.fill(opened, run, at, &mut buffer[at as usize..to as usize]);
            at = to;
        }
        let done = done.and_then(|()| self.judge(run, &buffer[..wanted as usize], wanted));
        self.buffer = buffer;
        done
    }

    /// Compare with checksums and decode.
    fn judge(&mut self, run: &Run, bytes: &[u8], wanted: u64) -> Result<()> {
        let Manner { set, checks, tally, .. } = self.manner;
        let whole = set.real && wanted == run.range.end - run.range.start;
        if !whole || !(self.manner.decode || checks.knows(set, run)) {
            return Ok(());
        }
        self.thinking(|| {
            tally.verified.fetch_add(checks.check(set, run, bytes)?, Ordering::Relaxed);
            if self.manner.decode { decode(set, run, bytes) } else { Ok(()) }
        })
        .inspect(|spent| self.cpu += spent)
        .map(drop)
    }

    /// Do what takes the processor. Gives the time that it took.
    fn thinking(&mut self, work: impl FnOnce() -> Result<()>) -> Result<u64> {
        let begun = self.manner.clock.now();
        self.log.enter(begun, Cause::Cpu);
        work()?;
        Ok(self.manner.clock.now() - begun)
    }

    /// A large piece, checked as it passes.
    fn passing(&mut self, opened: &mut dyn Opened, run: &Run, wanted: u64) -> Result<()> {
        let Manner { set, checks, tally, .. } = self.manner;
        if (self.buffer.len() as u64) < set.piece {
            self.buffer = vec![0; set.piece as usize];
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut proof = if wanted == run.range.end - run.range.start { checks.begin(set, run) } else { None };
        let mut at = 0;
        let mut done = Ok(());
        while at < wanted && done.is_ok() {
            let piece = &mut buffer[..set.piece.min(wanted - at) as usize];
            done = self.fill(opened, run, at, piece);
            if let (Ok(()), Some(proof)) = (&done, &mut proof) {
                done = self
                    .thinking(|| {
                        proof.update(piece);
                        Ok(())
                    })
                    .map(|spent| self.cpu += spent);
            }
            at += piece.len() as u64;
        }
        self.buffer = buffer;
        done?;
        if let Some(proof) = proof {
            tally.verified.fetch_add(proof.finish(set, run)?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// One read of the target, at a place of the run.
    fn fill(&mut self, opened: &mut dyn Opened, run: &Run, at: u64, buffer: &mut [u8]) -> Result<()> {
        let begun = self.manner.clock.now();
        let count = opened.read_at(run.range.start + at, buffer)?;
        self.log.moved(begun, self.manner.clock.now(), count as u64, self.manner.transfer, self.manner.pace);
        if count < buffer.len() {
            let file = &self.manner.set.files[run.file];
            let end = run.range.start + at + count as u64;
            let what = format!("a file of {} bytes ended at byte {end} during the run", file.bytes);
            return Err(Error::changed(what, &file.name).hint("let nobody change the set while it is measured"));
        }
        self.manner.tally.requests.fetch_add(1, Ordering::Relaxed);
        self.manner.tally.asked.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }
}
