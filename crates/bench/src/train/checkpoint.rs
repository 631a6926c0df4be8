//! The state of a model, written by all processes at once and made durable, then read back and compared.
//!
//! It keeps one state at a time. Invariants: nothing is written where there is no room for all of it; a write counts when
//! it would survive a loss of power; what is left when it ends, well or badly, is nothing.

mod room;
#[cfg(test)]
mod tests;

use std::thread;

use block::{Error, Kind, Result};
use ranks::Ranks;
use serde::{Deserialize, Serialize};
use targets::clock::{Clock, nanoseconds, seconds};
use targets::{Listed, Writable};
use workload::Checkpoint;

use crate::samples::PIECE;
use crate::sweep::pattern::Content;
pub use room::Room;

/// One write or read of the whole state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// `write` or `read`.
    pub what: String,
    /// Counts from 1.
    pub number: u64,
    /// When it began, since the first did.
    pub start_seconds: f64,
    /// Until the slowest process was done.
    pub seconds: f64,
    pub bytes: u64,
    /// Over `seconds`.
    pub bytes_per_second: f64,
    /// What the slowest process reached, times their number: the measure of MLPerf Storage.
    pub slowest_bytes_per_second: f64,
    /// What processes reached in the mean, times their number.
    pub mean_bytes_per_second: f64,
    /// The process in the middle.
    pub p50_seconds: f64,
    /// What each process took, to the microsecond, in the order of their numbers.
    pub process_seconds: Vec<f64>,
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
    /// What there is to write to, where anybody knows.
    pub room: Option<Room>,
    /// Before each read, so that memory doesn't answer. Whether nothing of it is there.
    pub chill: &'a dyn Fn(&[Listed]) -> Result<bool>,
    pub look: &'a dyn Fn(&str),
}

/// The file of one process, as it is after a write.
struct State<'a> {
    file: &'a Listed,
    content: Content,
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
    room::check(course.ranks, course.room.as_ref(), bytes * files.len() as u64)?;
    let done = passes(course, shape, &files, first, ended);
    // Also after an error: nothing of it stays, and the error counts more than what could not be removed.
    done.and(removed(course, &files))
}

fn removed(course: &Course, files: &[Listed]) -> Result<()> {
    let mut left = files.iter().filter(|file| course.target.stat(&file.name).is_ok());
    left.try_for_each(|file| course.target.remove(&file.name))
}

fn passes(
    course: &Course,
    shape: &Checkpoint,
    files: &[Listed],
    first: u64,
    ended: &mut dyn FnMut(Pass) -> Result<()>,
) -> Result<()> {
    let plan =
        (1..=shape.writes).map(|number| ("write", number)).chain((1..=shape.reads).map(|number| ("read", number)));
    let mut begun = None;
    for (place, (what, number)) in plan.enumerate() {
        if place > 0 {
            if shape.pause_seconds > 0.0 {
                (course.look)(&format!("pausing {} s before {what} {number}", shape.pause_seconds));
            }
            course.clock.sleep_until(course.clock.now() + nanoseconds(shape.pause_seconds));
        }
        let cold = if what == "read" {
            Some((course.chill)(files)?)
        } else {
            // The new state takes the place of the old one on the disk too.
            removed(course, files)?;
            None
        };
        (course.look)(&format!("{what} {number}"));
        course.ranks.barrier()?;
        let now = course.clock.now();
        let start_seconds = seconds(now - *begun.get_or_insert(now));
        let writing = if what == "write" { number } else { shape.writes };
        let (target, clock, seed) = (course.target, course.clock, course.seed);
        let took = each(files, &|place, file| {
            // No other file of any write has this number.
            let number = writing * shape.processes + first + place as u64;
            let state = State { file, content: Content::of(seed, number) };
            let begun = clock.now();
            if what == "write" {
                write(target, &state)?
            } else {
                read(target, &state)?
            }
            Ok(seconds(clock.now() - begun))
        })?;
        if let Some((times, is_cold)) = gathered(course.ranks, took, cold)? {
            let each = files.first().map_or(0, |file| file.bytes);
            let cold = cold.map(|_| is_cold);
            ended(Pass { number, start_seconds, cold, ..Pass::of(what, each, &times) })?;
        }
    }
    Ok(())
}

/// At rank 0, the times of all processes in the order of their numbers, and whether no rank had any of it in memory.
fn gathered(ranks: &dyn Ranks, took: Vec<f64>, cold: Option<bool>) -> Result<Option<(Vec<f64>, bool)>> {
    let told = crate::gathered(ranks, &(took, cold))?;
    let is_cold = told.iter().all(|(_, cold)| *cold != Some(false));
    let times: Vec<f64> = told.into_iter().flat_map(|(times, _)| times).collect();
    Ok((!times.is_empty()).then_some((times, is_cold)))
}

impl Pass {
    /// From what each process took for its bytes.
    fn of(what: &str, each: u64, times: &[f64]) -> Pass {
        let count = times.len() as f64;
        let bytes = each * times.len() as u64;
        let rate = |seconds: f64| each as f64 / seconds.max(f64::MIN_POSITIVE);
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let slowest = sorted.last().copied().unwrap_or_default();
        Pass {
            what: what.into(),
            number: 0,
            start_seconds: 0.0,
            seconds: slowest,
            bytes,
            bytes_per_second: bytes as f64 / slowest.max(f64::MIN_POSITIVE),
            slowest_bytes_per_second: rate(slowest) * count,
            mean_bytes_per_second: times.iter().copied().map(rate).sum(),
            p50_seconds: sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default(),
            process_seconds: times.iter().map(|seconds| (seconds * 1e6).round() / 1e6).collect(),
            cold: None,
        }
    }
}

/// One thread a process, counted within this rank.
fn each(files: &[Listed], work: &(dyn Fn(usize, &Listed) -> Result<f64> + Sync)) -> Result<Vec<f64>> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            files.iter().enumerate().map(|(place, file)| scope.spawn(move || work(place, file))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a process doesn't panic")).collect()
    })
}

fn write(target: &dyn Writable, state: &State) -> Result<()> {
    put(target, state).map_err(|error| match error.kind {
        Kind::Full => error.hint(format!(
            "free some space: each process writes {} bytes; or write less: --set checkpoint-bytes=N",
            state.file.bytes
        )),
        _ => error,
    })
}

fn put(target: &dyn Writable, State { file, content }: &State) -> Result<()> {
    let mut created = target.create(&file.name, file.bytes)?;
    let mut buffer = vec![0; PIECE.min(file.bytes) as usize];
    let mut at = 0;
    while at < file.bytes {
        let count = (file.bytes - at).min(PIECE);
        let piece = &mut buffer[..count as usize];
        content.fill(at, piece);
        created.write(piece)?;
        at += count;
    }
    created.finish(true)
}

fn read(target: &dyn Writable, State { file, content }: &State) -> Result<()> {
    let wrong = |error: Error| error.hint("look for a fault in what it was written or read through");
    let mut opened = target.open(file)?;
    let mut buffer = vec![0; PIECE as usize];
    let mut at = 0;
    loop {
        let count = opened.read_at(at, &mut buffer)?;
        if count == 0 {
            break;
        }
        content.verify(&file.name, at, &buffer[..count]).map_err(wrong)?;
        at += count as u64;
    }
    if at != file.bytes {
        let what = format!("a checkpoint of {} bytes has {at}", file.bytes);
        return Err(wrong(Error::corrupt(what, &file.name)));
    }
    Ok(())
}
