//! The cells of a sweep, one after another, on all ranks at once.
//!
//! After each phase the ranks tell rank 0 what they found, and hear from it whether to go on, so that a failure or an
//! interrupt at one ends it at all. Invariants: every rank makes the same calls of [`Ranks`] in the same order,
//! whatever happens to it in between; at the end no rank's files are left.

use std::sync::atomic::{AtomicU64, Ordering};

use block::{Error, Kind, Result};
use ranks::Ranks;
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Coordinates, Part};
use super::job::{FILES_MAX, Job, Live, Share};
use super::{Phase, Settings, THREADS_MAX};
use crate::cold::Cooled;
use crate::ground::Ground;

/// The number of the first file of a share: rank, cell and thread above the bits of its files.
const THREAD_BITS: u32 = FILES_MAX.trailing_zeros();
const CELL_BITS: u32 = THREAD_BITS + THREADS_MAX.trailing_zeros();
const RANK_BITS: u32 = CELL_BITS + 12;
const _: () = assert!(1 << (RANK_BITS - CELL_BITS) == super::CELLS_MAX && RANK_BITS < 62);

/// Objects one after another that may fail to be removed before the rest is given up: each takes the patience of a store.
const FAILURES_MAX: u64 = 3;

/// Hears of a sweep, at every rank.
pub trait Observer: Sync {
    /// A phase begins.
    fn began(&self, step: &Step);

    /// A phase ended; only rank 0 calls it. An error ends the sweep.
    fn ended(&self, cell: Cell) -> Result<()>;

    /// A sweep goes on, but somebody should know.
    fn warn(&self, warning: String);
}

/// Which phase of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// From 0.
    pub number: u64,
    pub of: u64,
    pub phase: Phase,
    pub file_bytes: u64,
    pub threads: u64,
    /// Of this rank.
    pub files: u64,
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Finished,
    Interrupted,
}

/// What rank 0 says after a phase.
#[derive(Serialize, Deserialize)]
struct Verdict {
    /// Files of each thread of each rank.
    files: Vec<Vec<u64>>,
    interrupted: bool,
    /// What failed, on what, what to try; at which rank.
    failure: Option<(String, String, String, u32)>,
}

struct Sweep<'a> {
    settings: &'a Settings,
    ground: &'a Ground,
    ranks: &'a dyn Ranks,
    live: &'a Live,
    observer: &'a dyn Observer,
    /// Objects of this rank that could not be removed, or more.
    left: AtomicU64,
}

/// Run all cells, and remove all files. `live.stop` ends it early.
pub fn run(
    settings: &Settings,
    ground: &Ground,
    ranks: &dyn Ranks,
    live: &Live,
    observer: &dyn Observer,
) -> Result<Ended> {
    let sweep = Sweep { settings, ground, ranks, live, observer, left: AtomicU64::new(0) };
    let done = sweep.cells();
    let stays = ground.leave(ranks, sweep.left.load(Ordering::Relaxed));
    stays.iter().flatten().for_each(|warning| observer.warn(warning.clone()));
    let ended = done?;
    stays.map(|_| ended)
}

/// Which sizes were not tried with how many threads.
fn too_large(left_out: &[(u64, u64)], files: Option<u64>, limit: u64) -> String {
    let mut sizes: Vec<u64> = left_out.iter().map(|(size, _)| *size).collect();
    sizes.dedup();
    let each = sizes.into_iter().map(|size| {
        let threads = left_out.iter().filter(|(other, _)| *other == size).map(|(_, threads)| threads.to_string());
        format!("{} with {}", amount(size), threads.collect::<Vec<_>>().join(", "))
    });
    let each = each.collect::<Vec<_>>().join("; ");
    let limit = amount(limit);
    let what = files.map_or("a file for each thread takes".to_owned(), |files| format!("{files} files take"));
    format!("not tried, because {what} more than the limit of {limit}: files of {each} threads")
}

/// An amount of bytes in the largest binary unit of which it has one.
fn amount(bytes: u64) -> String {
    let unit = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)].into_iter().find(|(_, scale)| bytes >= *scale);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(unit, scale)| {
            let number = format!("{:.1}", bytes as f64 / scale as f64);
            format!("{} {unit}", number.trim_end_matches(".0"))
        },
    )
}

impl Sweep<'_> {
    fn cells(&self) -> Result<Ended> {
        let settings = self.settings;
        let pairs = settings.sizes.iter().flat_map(|size| settings.threads.iter().map(|threads| (*size, *threads)));
        let (fitting, left_out): (Vec<_>, Vec<_>) = pairs.partition(|(size, threads)| settings.fits(*size, *threads));
        if !left_out.is_empty() {
            self.observer.warn(too_large(&left_out, settings.files, settings.bytes_max));
        }
        let phases: Vec<Phase> = Phase::ALL
            .into_iter()
            .filter(|phase| matches!(phase, Phase::Write | Phase::Delete) || settings.phases.contains(phase))
            .collect();
        let cells =
            (1..=settings.repetitions).flat_map(|repetition| fitting.iter().map(move |cell| (repetition, *cell)));
        let of = settings.repetitions * (fitting.len() * phases.len()) as u64;
        for (cell, (repetition, (file_bytes, threads))) in cells.enumerate() {
            let share = settings.files(file_bytes, threads);
            let mut files = vec![vec![share; threads as usize]; self.ranks.size() as usize];
            let (mut ended, mut left) = (Ok(Ended::Finished), Left::Nothing);
            for (index, phase) in phases.iter().enumerate() {
                let block = settings.block_of(*phase);
                let point = Coordinates { repetition, phase: *phase, file_bytes, threads, block };
                let number = (cell * phases.len() + index) as u64;
                ended = self.phase(point, cell, (number, of), &mut files);
                if !matches!(ended, Ok(Ended::Finished)) {
                    left = if *phase == Phase::Write && ended.is_err() { Left::FromFirst } else { Left::UpToLast };
                    break;
                }
            }
            self.remove(cell, &files, left);
            if !matches!(ended, Ok(Ended::Finished)) {
                return ended;
            }
        }
        if let Some(cooler) = &settings.cooler {
            self.ground.cool(cooler, std::iter::empty())?;
        }
        Ok(Ended::Finished)
    }

    fn shares(&self, rank: u32, cell: usize, files: &[Vec<u64>]) -> Vec<Share> {
        let share = |(thread, files): (usize, &u64)| Share {
            folder: self.ground.below(&format!("r{rank}.c{cell}.t{thread}")),
            number: u64::from(rank) << RANK_BITS | (cell as u64) << CELL_BITS | (thread as u64) << THREAD_BITS,
            files: *files,
        };
        files[rank as usize].iter().enumerate().map(share).collect()
    }

    /// One phase at all ranks. After writing, `files` is what was written.
    fn phase(
        &self,
        point: Coordinates,
        cell: usize,
        (number, of): (u64, u64),
        files: &mut Vec<Vec<u64>>,
    ) -> Result<Ended> {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let reads = matches!(point.phase, Phase::Stat | Phase::Read | Phase::Random);
        let whose = if self.settings.rotate && reads { (rank + 1) % size } else { rank };
        let shares = self.shares(whose, cell, files);
        let Coordinates { phase, file_bytes, threads, .. } = point;
        let mine = shares.iter().map(|share| share.files).sum();
        self.observer.began(&Step { number, of, phase, file_bytes, threads, files: mine });
        let ready = self.prepare(point, cell, &shares);
        self.ranks.barrier()?;
        let part = ready.and_then(|cooled| {
            let done = self.job(point, &shares).run()?;
            Ok(Part::of(done, cooled, self.live.stop.load(Ordering::Relaxed)))
        });
        let verdict = self.agree(point, &part)?;
        if phase == Phase::Write && verdict.files.len() == files.len() {
            *files = verdict.files;
        }
        part?;
        match verdict.failure {
            Some((what, on, hint, at)) if at == rank => Err(Error::unavailable(what, on).hint(hint)),
            Some((what, on, hint, at)) => Err(Error::unavailable(format!("rank {at} failed: {what}"), on).hint(hint)),
            None if verdict.interrupted => Ok(Ended::Interrupted),
            None => Ok(Ended::Finished),
        }
    }

    /// What isn't timed: folders, and dropping caches.
    fn prepare(&self, point: Coordinates, cell: usize, shares: &[Share]) -> Result<Option<Cooled>> {
        let is_write = point.phase == Phase::Write;
        if is_write {
            for thread in 0..point.threads {
                self.ground.make_folder(&format!("r{}.c{cell}.t{thread}", self.ranks.rank()))?;
            }
        }
        let Some(cooler) = &self.settings.cooler else { return Ok(None) };
        let names = shares.iter().filter(|_| !is_write).flat_map(|share| (0..share.files).map(|file| share.name(file)));
        self.ground.cool(cooler, names).map(Some)
    }

    fn job<'a>(&'a self, point: Coordinates, shares: &'a [Share]) -> Job<'a> {
        Job {
            files: self.ground.files(),
            phase: point.phase,
            shares,
            file_bytes: point.file_bytes,
            block: point.block,
            seed: self.settings.seed,
            durable: self.settings.durable,
            verify: self.settings.verify,
            time_max: self.settings.time_max,
            live: self.live,
        }
    }

    /// Tell rank 0, and hear what all are to do.
    fn agree(&self, point: Coordinates, part: &Result<Part>) -> Result<Verdict> {
        let own: Result<&Part, [&str; 3]> = part.as_ref().map_err(|error| [&*error.what, &*error.on, &*error.hint]);
        let gathered = self.ranks.gather(&serde_json::to_vec(&own).expect("a part has no keys but strings"))?;
        let verdict = if self.ranks.rank() == 0 { self.judge(point, &gathered)? } else { Vec::new() };
        let verdict = self.ranks.broadcast(verdict)?;
        serde_json::from_slice(&verdict).map_err(|error| garbled(&error))
    }

    fn judge(&self, point: Coordinates, gathered: &[Vec<u8>]) -> Result<Vec<u8>> {
        let (mut parts, mut failure) = (Vec::<Part>::new(), None);
        for (rank, sent) in (0..).zip(gathered) {
            match serde_json::from_slice::<Result<Part, [String; 3]>>(sent).map_err(|error| garbled(&error))? {
                Ok(part) => parts.push(part),
                Err([what, on, hint]) => failure = failure.or(Some((what, on, hint, rank))),
            }
        }
        let interrupted = parts.iter().any(|part| part.interrupted);
        let files = parts.iter().map(|part| part.files.clone()).collect();
        if failure.is_none() {
            let saved = self.observer.ended(Cell::of(point, &parts));
            failure = saved.err().map(|error| (error.what, error.on, error.hint, 0));
        }
        let verdict = Verdict { files, interrupted, failure };
        Ok(serde_json::to_vec(&verdict).expect("a verdict has no keys but strings"))
    }

    /// Remove what is left of this rank's files after a cell. Of a folder, [`Ground::clear`] finds it by walking; of a
    /// store, it is asked for by name: files are written in order, so that those of a phase of writing that failed end
    /// at the first that is missing, and removed in order, so that the rest ends at the last that is missing.
    fn remove(&self, cell: usize, files: &[Vec<u64>], left: Left) {
        let rank = self.ranks.rank();
        for (thread, share) in self.shares(rank, cell, files).iter().enumerate() {
            self.ground.remove_folder(&format!("r{rank}.c{cell}.t{thread}"));
            let left = match left {
                _ if !self.ground.is_store() => 0,
                Left::Nothing => 0,
                Left::FromFirst => self.removed((0..share.files).map(|file| share.name(file))),
                Left::UpToLast => self.removed((0..share.files).rev().map(|file| share.name(file))),
            };
            self.left.fetch_add(left, Ordering::Relaxed);
        }
    }

    /// Remove objects up to the first that is missing. How many stay at most: one that can't be asked for may be there.
    fn removed(&self, mut names: impl Iterator<Item = String>) -> u64 {
        let target = self.ground.files();
        let (mut left, mut failures) = (0, 0);
        while let Some(name) = names.next() {
            let removed = match target.stat(&name) {
                Err(error) if error.kind == Kind::Missing => return left,
                Err(error) => Err(error),
                Ok(_) => target.remove(&name),
            };
            match removed {
                Ok(()) => failures = 0,
                Err(_) => (left, failures) = (left + 1, failures + 1),
            }
            if failures >= FAILURES_MAX {
                return left + names.count() as u64;
            }
        }
        left
    }
}

/// Which of a share's files may still be there.
#[derive(Clone, Copy)]
enum Left {
    Nothing,
    FromFirst,
    UpToLast,
}

fn garbled(error: &serde_json::Error) -> Error {
    Error::invalid(format!("a rank said what another doesn't understand: {error}"), "the ranks of the sweep")
        .hint("start the same version of stoker everywhere")
}
