//! The state of a model, written by all processes at once and made durable, then read back and compared.
//!
//! It keeps one state at a time, in a folder of its own. Invariants: nothing is written where there is no room for all of
//! it; a write counts when it would survive a loss of power; what is left when it ends, well or badly, is nothing; all
//! ranks end together, whatever happens to one.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use block::{Error, Kind, Result};
use ranks::Ranks;
use serde::{Deserialize, Serialize};
use targets::clock::{Clock, SECOND, nanoseconds, seconds};
use targets::{Listed, Writable};
use workload::Checkpoint;

use crate::ground::{Ground, Work, is_numbered};
use crate::room::{self, Room};
use crate::samples::PIECE;
use crate::sweep::pattern::Content;

/// Where the states lie: a folder `r0` of each rank, with a file of each process. Drafts are of a target that writes aside.
pub const WORK: Work = Work {
    folder: "stoker-checkpoint",
    command: "stoker bench train",
    is_folder: |name| is_numbered(name, &["r"], ""),
    is_file: |name| {
        is_numbered(name, &["checkpoint-"], ".state") || is_numbered(name, &[".checkpoint-"], ".state.draft")
    },
};

/// Between two looks whether a pause is still wanted.
const LOOK: u64 = SECOND / 10;

/// Between two passes: a day.
const PAUSE_SECONDS_MAX: f64 = 86_400.0;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Finished,
    Interrupted,
}

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
    /// Where on the target.
    pub ground: &'a Ground,
    /// Ends it early, on all ranks.
    pub stop: &'a AtomicBool,
    pub seed: u64,
    /// What there is to write to, where anybody knows.
    pub room: Option<Room>,
    /// Before each read, so that memory doesn't answer. Whether nothing of it is there.
    pub chill: &'a dyn Fn(&[Listed]) -> Result<bool>,
    pub look: &'a dyn Fn(&str),
    /// What somebody should know although it went on.
    pub warn: &'a dyn Fn(String),
}

/// What a rank found in one pass, or what failed, on what, what to try.
type Found = std::result::Result<Took, [String; 3]>;

/// What each process of a rank took.
#[derive(Serialize, Deserialize)]
struct Took {
    seconds: Vec<f64>,
    cold: Option<bool>,
    interrupted: bool,
}

/// What rank 0 says after a pass.
#[derive(Serialize, Deserialize)]
struct Verdict {
    interrupted: bool,
    /// What failed, on what, what to try; at which rank.
    failure: Option<([String; 3], usize)>,
}

/// The file of one process, as it is after a write.
struct State<'a> {
    file: &'a Listed,
    content: Content,
    halt: Halt<'a>,
}

/// Whether the processes of this rank are to go on.
#[derive(Clone, Copy)]
struct Halt<'a> {
    stop: &'a AtomicBool,
    /// Another process of this rank failed, so that this one works for nothing.
    failed: &'a AtomicBool,
}

impl Halt<'_> {
    fn check(self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed) {
            return Err(Error::unavailable("the checkpoint was ended early", "a process"));
        }
        Ok(())
    }
}

/// Write the state as often as asked, then read it as often. At rank 0 `ended` is called with each pass as it ends.
pub fn run(course: &Course, shape: &Checkpoint, ended: &mut dyn FnMut(Pass) -> Result<()>) -> Result<Ended> {
    let (rank, size) = (course.ranks.rank(), u64::from(course.ranks.size()));
    let own = shape.processes.div_ceil(size);
    let first = u64::from(rank).saturating_mul(own).min(shape.processes);
    let bytes = ((shape.bytes / shape.processes as f64).ceil() as u64).max(1);
    let name = |process| course.ground.below(&format!("r{rank}/checkpoint-{process:05}.state"));
    let files: Vec<Listed> = (first..(first + own).min(shape.processes))
        .map(|process| Listed { name: name(process).into(), bytes })
        .collect();
    // Also after an error or a panic nothing of it stays, and the error counts more than what could not be removed.
    let done = catch_unwind(AssertUnwindSafe(|| {
        if shape.pause_seconds > PAUSE_SECONDS_MAX {
            let what = format!("a pause between checkpoints is at most {PAUSE_SECONDS_MAX} seconds");
            return Err(Error::invalid(what, format!("{} s", shape.pause_seconds)).hint("ask for a shorter one"));
        }
        room::check(course.ranks, course.room.as_ref(), bytes.saturating_mul(files.len() as u64))?;
        passes(course, shape, &files, first, ended)
    }));
    let (left, _) = removed(course, &files);
    let done = done.unwrap_or_else(|panic| {
        // Other ranks may still be at work, and wait for this one in other places than here.
        if size == 1 {
            let _ = course.ground.clear();
        }
        resume_unwind(panic)
    });
    let stays = course.ground.leave(course.ranks, left);
    stays.iter().flatten().for_each(|warning| (course.warn)(warning.clone()));
    let ended = done?;
    stays.map(|_| ended)
}

/// Remove what there is of these files. How many could not be, and why the first of them.
fn removed(course: &Course, files: &[Listed]) -> (u64, Option<Error>) {
    let failed = files.iter().filter_map(|file| course.target.remove(&file.name).err());
    failed
        .filter(|error| error.kind != Kind::Missing)
        .fold((0, None), |(count, first), error| (count + 1, first.or(Some(error))))
}

fn passes(
    course: &Course,
    shape: &Checkpoint,
    files: &[Listed],
    first: u64,
    ended: &mut dyn FnMut(Pass) -> Result<()>,
) -> Result<Ended> {
    let plan =
        (1..=shape.writes).map(|number| ("write", number)).chain((1..=shape.reads).map(|number| ("read", number)));
    let mut begun = None;
    for (place, (what, number)) in plan.enumerate() {
        if place > 0 {
            if shape.pause_seconds > 0.0 {
                (course.look)(&format!("pausing {} s before {what} {number}", shape.pause_seconds));
            }
            pause(course, nanoseconds(shape.pause_seconds));
        }
        let cold = match what {
            "read" => (course.chill)(files).map(Some),
            _ if place == 0 => Ok(None),
            // The new state takes the place of the old one on the disk too.
            _ => removed(course, files).1.map_or(Ok(None), Err),
        };
        (course.look)(&format!("{what} {number}"));
        course.ranks.barrier()?;
        let now = course.clock.now();
        let start_seconds = seconds(now - *begun.get_or_insert(now));
        let writing = if what == "write" { number } else { shape.writes };
        // No other file of any write has this number.
        let number_of = |place: usize| writing.saturating_mul(shape.processes) + first + place as u64;
        let (target, clock, seed) = (course.target, course.clock, course.seed);
        let work = |place: usize, file: &Listed, halt: Halt| {
            let state = State { file, content: Content::of(seed, number_of(place)), halt };
            let begun = clock.now();
            let done = if what == "write" { write(target, &state) } else { read(target, &state) };
            done.map(|()| seconds(clock.now() - begun))
        };
        let took = cold.and_then(|cold| {
            let seconds = each(course.stop, files, &work)?;
            Ok(Took { seconds, cold, interrupted: false })
        });
        let verdict = agreed(course, took, &mut |times, cold| {
            let each = files.first().map_or(0, |file| file.bytes);
            ended(Pass { number, start_seconds, cold, ..Pass::of(what, each, &times) })
        })?;
        if verdict == Ended::Interrupted {
            return Ok(verdict);
        }
    }
    Ok(Ended::Finished)
}

fn pause(course: &Course, pause: u64) {
    let end = course.clock.now().saturating_add(pause);
    while course.clock.now() < end && !course.stop.load(Ordering::Relaxed) {
        let (before, next) = (course.clock.now(), end.min(course.clock.now().saturating_add(LOOK)));
        course.clock.sleep_until(next);
        if course.clock.now() == before {
            return;
        }
    }
}

/// Tell rank 0 what this one found, and hear what all are to do. There `ended` gets the times of all processes in the order
/// of their numbers, and whether no rank had any of the state in memory.
fn agreed(
    course: &Course,
    took: Result<Took>,
    ended: &mut dyn FnMut(Vec<f64>, Option<bool>) -> Result<()>,
) -> Result<Ended> {
    let is_stopped = course.stop.load(Ordering::Relaxed);
    let own: Found = match &took {
        // What fails because it was told to stop is no failure.
        Err(_) if is_stopped => Ok(Took { seconds: Vec::new(), cold: None, interrupted: true }),
        Ok(took) => Ok(Took { seconds: took.seconds.clone(), cold: took.cold, interrupted: is_stopped }),
        Err(error) => Err([error.what.clone(), error.on.clone(), error.hint.clone()]),
    };
    let told: Vec<Found> = crate::gathered(course.ranks, &own)?;
    let mut verdict = Verdict { interrupted: false, failure: None };
    let (mut times, mut cold, mut is_whole) = (Vec::new(), None, true);
    for (rank, found) in told.into_iter().enumerate() {
        match found {
            Err(said) => verdict.failure = verdict.failure.or(Some((said, rank))),
            Ok(took) => {
                verdict.interrupted |= took.interrupted;
                is_whole &= !(took.interrupted && took.seconds.is_empty());
                times.extend(took.seconds);
                cold = match (cold, took.cold) {
                    (Some(all), Some(one)) => Some(all && one),
                    (all, one) => all.or(one),
                };
            }
        }
    }
    if course.ranks.rank() == 0 && verdict.failure.is_none() && is_whole && !times.is_empty() {
        let saved = ended(times, cold);
        verdict.failure = saved.err().map(|error| ([error.what, error.on, error.hint], 0));
    }
    let verdict = crate::told(course.ranks, &verdict)?;
    match verdict.failure {
        Some((_, rank)) if rank == course.ranks.rank() as usize && took.is_err() && !is_stopped => {
            Err(took.err().expect("asked above"))
        }
        Some(([what, on, hint], rank)) => {
            let what = if course.ranks.size() > 1 { format!("rank {rank} failed: {what}") } else { what };
            Err(Error::unavailable(what, on).hint(hint))
        }
        None if verdict.interrupted => Ok(Ended::Interrupted),
        None => Ok(Ended::Finished),
    }
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

type Process<'a> = dyn Fn(usize, &Listed, Halt) -> Result<f64> + Sync + 'a;

/// One thread a process, counted within this rank. The first failure ends them all.
fn each(stop: &AtomicBool, files: &[Listed], work: &Process) -> Result<Vec<f64>> {
    let failed = AtomicBool::new(false);
    let halt = Halt { stop, failed: &failed };
    let first = std::sync::Mutex::new(None);
    let fail = |error: Error| {
        failed.store(true, Ordering::Relaxed);
        first.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
        0.0
    };
    let fail = &fail;
    let done = thread::scope(|scope| {
        let mut threads = Vec::with_capacity(files.len());
        for (place, file) in files.iter().enumerate() {
            let process = move || {
                let panicked = |_| {
                    Err(Error::corrupt("a process panicked, which is a fault of stoker", &file.name)
                        .hint("report it with what it said above"))
                };
                let done = catch_unwind(AssertUnwindSafe(|| work(place, file, halt))).unwrap_or_else(panicked);
                done.unwrap_or_else(fail)
            };
            match thread::Builder::new().spawn_scoped(scope, process) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let on = format!("{} processes", files.len());
                    fail(Error::io("cannot start a process", on, &error).hint(
                        "raise the limit on processes (ulimit -u), or ask for fewer: --set checkpoint-processes=N",
                    ));
                    break;
                }
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    match first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(done),
    }
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

fn put(target: &dyn Writable, State { file, content, halt }: &State) -> Result<()> {
    let mut created = target.create(&file.name, file.bytes)?;
    let mut buffer = vec![0; PIECE.min(file.bytes) as usize];
    let mut at = 0;
    while at < file.bytes {
        halt.check()?;
        let count = (file.bytes - at).min(PIECE);
        let piece = &mut buffer[..count as usize];
        content.fill(at, piece);
        created.write(piece)?;
        at += count;
    }
    created.finish(true)
}

fn read(target: &dyn Writable, State { file, content, halt }: &State) -> Result<()> {
    let wrong = |error: Error| error.hint("look for a fault in what it was written or read through");
    let mut opened = target.open(file)?;
    let mut buffer = vec![0; PIECE as usize];
    let mut at = 0;
    loop {
        halt.check()?;
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
