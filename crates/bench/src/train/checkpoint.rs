//! The state of a model, written by all processes at once and made durable, then read back and compared.
//!
//! It keeps one state at a time. Invariants: a write counts when it would survive a loss of power; what is left when it
//! ends, well or badly, is nothing.

use std::sync::Mutex;
use std::thread;

use block::{Error, Kind, Result};
use crc_fast::{CrcAlgorithm, Digest};
use data::noise::{Chance, LANES, Noise};
use ranks::Ranks;
use serde::{Deserialize, Serialize};
use targets::clock::{Clock, nanoseconds, seconds};
use targets::{Listed, Writable};
use workload::Checkpoint;

use crate::samples::PIECE;

/// One write or read of the whole state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// `write` or `read`.
    pub what: String,
    /// Counts from 1.
    pub number: u64,
    /// Until the slowest process was done.
    pub seconds: f64,
    pub bytes: u64,
    pub bytes_per_second: f64,
    /// What the slowest process reached, times their number.
    pub slowest_bytes_per_second: f64,
    /// Of a read, whether nothing of the state was in memory on any rank, proven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<bool>,
}

/// What it runs with.
pub struct Course<'a> {
    pub target: &'a dyn Writable,
    pub clock: &'a dyn Clock,
    pub ranks: &'a dyn Ranks,
    pub seed: u64,
    /// Before each read, so that memory doesn't answer. Whether nothing of it is there.
    pub chill: &'a dyn Fn(&[Listed]) -> Result<bool>,
    pub look: &'a dyn Fn(&str),
}

/// Write the state as often as asked, then read it as often. At rank 0 `ended` is called with each pass as it ends.
pub fn run(course: &Course, shape: &Checkpoint, ended: &mut dyn FnMut(Pass) -> Result<()>) -> Result<()> {
    let size = u64::from(course.ranks.size());
    let own = shape.processes.div_ceil(size);
    let first = u64::from(course.ranks.rank()) * own;
    let bytes = ((shape.bytes / shape.processes as f64).ceil() as u64).max(1);
    let files: Vec<Listed> = (first..(first + own).min(shape.processes))
        .map(|process| Listed { name: format!("checkpoint-{process:05}.state").into(), bytes })
        .collect();
    let block = content(course.seed);
    let sum = checksum(&block, bytes);
    let done = passes(course, shape, &files, &block, sum, ended);
    // Also after an error: nothing of it stays, and the error counts more than what could not be removed.
    let removed =
        files.iter().filter(|file| course.target.stat(&file.name).is_ok()).map(|file| course.target.remove(&file.name));
    let removed: Result<()> = removed.collect();
    done.and(removed)
}

fn passes(
    course: &Course,
    shape: &Checkpoint,
    files: &[Listed],
    block: &[u8],
    sum: u64,
    ended: &mut dyn FnMut(Pass) -> Result<()>,
) -> Result<()> {
    let plan =
        (1..=shape.writes).map(|number| ("write", number)).chain((1..=shape.reads).map(|number| ("read", number)));
    for (place, (what, number)) in plan.enumerate() {
        if place > 0 {
            course.clock.sleep_until(course.clock.now() + nanoseconds(shape.pause_seconds));
        }
        let cold = if what == "read" { Some((course.chill)(files)?) } else { None };
        (course.look)(&format!("{what} {number}"));
        course.ranks.barrier()?;
        let (target, clock) = (course.target, course.clock);
        let took = each(files, &|file| {
            let begun = clock.now();
            if what == "write" {
                write(target, file, block)?
            } else {
                read(target, file, sum)?
            }
            Ok(seconds(clock.now() - begun))
        })?;
        let own = took.into_iter().fold(0.0, f64::max);
        let mut told = own.to_le_bytes().to_vec();
        told.push(u8::from(cold != Some(false)));
        let gathered = course.ranks.gather(&told)?;
        let times = gathered.iter().filter_map(|bytes| Some(f64::from_le_bytes(*bytes.first_chunk()?)));
        if let Some(slowest) = times.reduce(f64::max) {
            let each = files.first().map_or(0, |file| file.bytes);
            let bytes = each * shape.processes;
            let rate = bytes as f64 / slowest;
            ended(Pass {
                what: what.into(),
                number,
                seconds: slowest,
                bytes,
                bytes_per_second: rate,
                cold: cold.map(|_| gathered.iter().all(|bytes| bytes.last() == Some(&1))),
                slowest_bytes_per_second: each as f64 / slowest * shape.processes as f64,
            })?;
        }
    }
    Ok(())
}

/// One thread a process.
fn each(files: &[Listed], work: &(dyn Fn(&Listed) -> Result<f64> + Sync)) -> Result<Vec<f64>> {
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for file in files {
            let done = &done;
            scope.spawn(move || {
                let result = work(file);
                done.lock().expect("nothing panics while it holds the results").push(result);
            });
        }
    });
    done.into_inner().expect("all threads have ended").into_iter().collect()
}

fn write(target: &dyn Writable, file: &Listed, block: &[u8]) -> Result<()> {
    let done = put(target, file, block);
    done.map_err(|error| match error.kind {
        Kind::Full => error.hint(format!(
            "free some space: each process writes {} bytes; or write less: --set checkpoint-bytes=N",
            file.bytes
        )),
        _ => error,
    })
}

fn put(target: &dyn Writable, file: &Listed, block: &[u8]) -> Result<()> {
    let mut created = target.create(&file.name, file.bytes)?;
    let mut left = file.bytes;
    while left > 0 {
        let count = left.min(block.len() as u64);
        created.write(&block[..count as usize])?;
        left -= count;
    }
    created.finish(true)
}

fn read(target: &dyn Writable, file: &Listed, sum: u64) -> Result<()> {
    let mut opened = target.open(file)?;
    let mut buffer = vec![0; PIECE as usize];
    let (mut at, mut digest) = (0, Digest::new(CrcAlgorithm::Crc64Nvme));
    loop {
        let count = opened.read_at(at, &mut buffer)?;
        if count == 0 {
            break;
        }
        digest.update(&buffer[..count]);
        at += count as u64;
    }
    if at != file.bytes || digest.finalize() != sum {
        return Err(Error::corrupt("a checkpoint is not what was written", &file.name)
            .hint("look for a fault in what it was written or read through"));
    }
    Ok(())
}

/// What a file repeats: nothing that compresses.
fn content(seed: u64) -> Vec<u8> {
    let mut noise = Noise::of(&mut Chance::of(seed, 0xc4ec));
    let words = (0..PIECE as usize / (4 * LANES)).flat_map(|_| noise.draw());
    words.flat_map(u32::to_le_bytes).collect()
}

fn checksum(block: &[u8], bytes: u64) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut left = bytes;
    while left > 0 {
        let count = left.min(block.len() as u64);
        digest.update(&block[..count as usize]);
        left -= count;
    }
    digest.finalize()
}
