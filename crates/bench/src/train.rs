//! The loop of a training job against a target: streams read batches ahead, accelerators step in nominal time, and
//! what they waited for is reported with its causes.
//!
//! It makes no data, prints nothing and knows nothing of who serves the target. Invariants: the utilisation is of
//! nominal time; an epoch is called cold only if caches were seen to be emptied; what was measured is handed out after
//! each epoch.

mod board;
mod bounded;
mod cause;
pub mod ceiling;
mod check;
pub mod checkpoint;
pub mod closed;
pub mod counters;
mod demand;
mod figures;
pub mod forecast;
pub mod most;
mod order;
mod pace;
mod reader;
pub mod search;
mod steady;
mod summary;
/// One of a thing, or several.
fn several(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
mod timeline;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use block::{Error, Result};
use ranks::Ranks;
use report::{Epoch, Report, Second, Summary};
use targets::Target;
use targets::clock::{Clock, nanoseconds};
use workload::{Order, Workload};

pub use bounded::{Against, OVER_PERCENT, against};
pub use cause::Cause;
pub use check::{Checks, complete, decodes};
pub use figures::Part;
pub(crate) use figures::Track;
pub use order::{Dealing, share};
pub use reader::{REQUEST, ReadCounters};
pub use steady::Steady;
pub use summary::{limit, mean, summary};

use crate::cold::Forget;
use crate::probe::Probe;
use crate::samples::Set;
use counters::{Counters, Tiers};
use figures::epoch;
use pace::Course;
use reader::Manner;
use timeline::{Timeline, together};

/// An epoch of fewer steps has no step to be measured after the first.
const STEPS_MIN: u64 = 2;

/// Samples of a set of which each is dealt by itself: four bytes of memory each.
const DEALT_SINGLY_MAX: u64 = 1 << 30;

/// Files that all readers together keep open of packed sets, within what a process may open by default.
const KEPT_MAX: u64 = 512;

/// Files that are compared with their listing after each epoch.
const LOOKED_AT: usize = 8;

/// When caches are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Chill {
    Never,
    /// Before each repetition: its first epoch is cold.
    First,
    Each,
}

/// What is to be measured.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Job {
    pub workload: Workload,
    pub step_seconds: f64,
    /// How it is otherwise than the workload and the accelerator say, in words: `batch 40`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Over all ranks.
    pub accelerators: u64,
    pub repetitions: u64,
    pub seed: u64,
    pub decode: bool,
    /// All accelerators wait for each other after each step; else each is a process by itself.
    pub together: bool,
    /// What a transfer is waited for: `Store`, or `Disk`.
    pub transfer: Cause,
    pub chill: Chill,
}

/// What is around the loop: clocks, the other ranks, the machine.
pub struct Outside<'a> {
    pub clock: &'a dyn Clock,
    pub ranks: &'a dyn Ranks,
    /// Name of this machine.
    pub node: &'a str,
    pub counters: &'a dyn Fn() -> Counters,
    /// What the target counts of where its bytes came from, if it tells; asked of it while nobody reads.
    pub tiers: &'a dyn Fn() -> Option<Tiers>,
    /// Empty caches of the files. Whether they are proved to be cold.
    pub chill: &'a dyn Fn(&Set) -> Result<bool>,
    /// Make caches forget these ranges alone. Gives those that were in memory.
    pub forget: &'a Forget<'a>,
    /// Called a few times a second.
    pub look: &'a dyn Fn(&Progress),
}

/// How far an epoch is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub what: String,
    /// Steps of all accelerators of this rank.
    pub steps: u64,
    pub steps_total: u64,
    pub bytes: u64,
    pub seconds: f64,
}

/// A job on a target: all that an epoch needs.
pub struct Bench<'a> {
    pub job: &'a Job,
    pub target: &'a dyn Target,
    pub set: &'a Set,
    pub checks: &'a Checks,
    pub outside: &'a Outside<'a>,
    pub probe: Option<Probe>,
}

impl Job {
    /// Steps of an epoch on a set, or how large a set is needed.
    pub fn steps(&self, set: &Set) -> Result<u64> {
        let read = &self.workload.read;
        let is_dealt_singly = matches!(read.order, Order::Shuffled | Order::Random);
        if is_dealt_singly && set.samples() > DEALT_SINGLY_MAX {
            let on = several(set.samples(), "sample");
            let hint = format!("up to {DEALT_SINGLY_MAX} are; or read whole files by chance: --set order=shards");
            return Err(Error::invalid("so many samples are not dealt one by one", on).hint(hint));
        }
        let own = match read.order {
            Order::Shuffled | Order::Random => share(set.samples(), self.accelerators),
            Order::Sequential | Order::Shards => self.least_own(set),
        };
        let steps = own / read.batch;
        if steps < STEPS_MIN {
            let samples = STEPS_MIN * read.batch * self.accelerators;
            let files = (samples as f64 * set.files.len() as f64 / set.samples() as f64).ceil();
            let there = (several(set.samples(), "sample"), several(set.files.len() as u64, "file"));
            let on = format!("{} in {}, {}", there.0, there.1, several(self.accelerators, "accelerator"));
            return Err(Error::invalid("the set is too small for so many accelerators", on).hint(format!(
                "{files} such files give each of them {STEPS_MIN} batches of {}; or ask for fewer accelerators or smaller batches",
                read.batch
            )));
        }
        Ok(steps.min(read.steps_max.unwrap_or(u64::MAX)).max(STEPS_MIN))
    }

    /// Samples of the accelerator that has the fewest, where whole files are dealt: whoever has more leaves them, because one
    /// that began again would find in memory what it has read.
    fn least_own(&self, set: &Set) -> u64 {
        let count = self.accelerators as usize;
        if set.numbers.len() < count {
            return set.samples() / self.accelerators;
        }
        let mut lengths: Vec<u64> = set.numbers.iter().map(|file| file.end - file.start).collect();
        if self.workload.read.order == Order::Shards {
            // Files come to each by chance: at worst the shortest of them.
            let own = lengths.len() / count;
            lengths.select_nth_unstable(own - 1);
            return lengths[..own].iter().sum();
        }
        (0..count).map(|first| lengths[first..].iter().step_by(count).sum()).min().unwrap_or(0)
    }

    /// Accelerators of a rank, and the number of its first.
    pub fn lanes(&self, ranks: &dyn Ranks) -> Result<(u64, u64)> {
        let (rank, size) = (u64::from(ranks.rank()), u64::from(ranks.size()));
        if !self.accelerators.is_multiple_of(size) {
            let on = format!("{} accelerators on {size} ranks", self.accelerators);
            let near = self.accelerators.next_multiple_of(size);
            return Err(Error::invalid("each rank needs as many accelerators as the others", on)
                .hint(format!("ask for {near}, or start another number of ranks")));
        }
        let each = self.accelerators / size;
        Ok((each, rank * each))
    }
}

impl Bench<'_> {
    /// Measure one epoch, counted from 0, and empty caches before it if asked. At rank 0 the epoch of all ranks comes
    /// back, with its seconds one by one.
    pub fn epoch(&self, number: u64, empty: bool, what: &str) -> Result<Option<(Epoch, Vec<Second>)>> {
        // Nobody reads while others still empty caches.
        self.outside.ranks.barrier()?;
        // What reads a store keeps nothing from one epoch to the next.
        let is_kept = self.target.is_cached() || !self.set.real;
        let cold = empty && (self.outside.chill)(self.set)? || !is_kept;
        let before = (self.outside.tiers)();
        self.outside.ranks.barrier()?;
        let part = Part { cold, ..self.part(number, what)? };
        // Others on this machine may still read.
        self.outside.ranks.barrier()?;
        let tiers = before.zip((self.outside.tiers)()).map(|(before, after)| after.since(before));
        let part = Part { tiers, ..part };
        self.unchanged()?;
        let parts = crate::gathered(self.outside.ranks, &part)?;
        if parts.is_empty() {
            return Ok(None);
        }
        let mut found = epoch(&parts, self.job.workload.read.batch)?;
        found.cold = parts.iter().all(|part| part.cold);
        self.beside(&mut found);
        let timelines: Vec<_> = parts.into_iter().map(|part| (part.timeline, part.seconds)).collect();
        Ok(Some((found, together(&timelines))))
    }

    /// The part of this rank.
    fn part(&self, number: u64, what: &str) -> Result<Part> {
        let Bench { job, outside, set, .. } = self;
        let read = &job.workload.read;
        let steps = job.steps(set)?;
        let (lanes, first) = job.lanes(outside.ranks)?;
        let dealing = job.dealing(steps);
        let hand = dealing.deal(number, &set.numbers);
        let tally = ReadCounters::default();
        let manner = Manner {
            target: self.target,
            set,
            checks: self.checks,
            clock: outside.clock,
            tally: &tally,
            decode: job.decode,
            transfer: job.transfer,
            pace: self.trusted().map(|probe| probe.supply.stream_bytes_per_second),
            held: reader::held(lanes * read.threads),
            kept: (KEPT_MAX / (lanes * read.threads)).max(1) as usize,
        };
        let before = self.counters();
        let timeline = RefCell::new(Timeline::begin(outside.clock.now(), before.clone()));
        let look = |done| {
            let now = outside.clock.now();
            let mut timeline = timeline.borrow_mut();
            timeline.look(now, &tally, &|| self.counters());
            (outside.look)(&Progress {
                what: what.to_owned(),
                steps: done,
                steps_total: steps * lanes,
                bytes: tally.asked.load(Ordering::Relaxed),
                seconds: timeline.passed(now),
            });
        };
        let course = Course {
            lanes: lanes as usize,
            first,
            streams: read.threads,
            batch: read.batch,
            window: read.prefetch_batches,
            steps,
            counted: job.steady(Some(set)).counted(steps),
            step: nanoseconds(job.step_seconds),
            together: job.together,
            clock: outside.clock,
            ranks: outside.ranks,
        };
        let ran = pace::run(&course, &hand, &manner, &look)?;
        let after = self.counters();
        let mut part = Part::of(&course, &ran, read.batch, number + 1, outside.node);
        part.told(moved(&tally, &before, &after), job.together);
        timeline.borrow_mut().end(outside.clock.now(), &tally, &after);
        part.timeline = timeline.into_inner().seconds;
        Ok(part)
    }

    /// Whether some files are still what the listing said.
    fn unchanged(&self) -> Result<()> {
        let files = &self.set.files;
        for file in files.iter().step_by(files.len().div_ceil(LOOKED_AT)).filter(|_| self.set.real) {
            let now = self.target.stat(&file.name)?;
            if now.bytes != file.bytes {
                let what = format!("a file of {} bytes has {} now", file.bytes, now.bytes);
                return Err(Error::changed(what, &file.name).hint("let nobody change the set while it is measured"));
            }
        }
        Ok(())
    }
}

/// Bytes by what they passed.
fn moved(tally: &ReadCounters, before: &Counters, after: &Counters) -> BTreeMap<String, u64> {
    let mut bytes = BTreeMap::from([
        ("asked".to_owned(), tally.asked.load(Ordering::Relaxed)),
        ("verified".to_owned(), tally.verified.load(Ordering::Relaxed)),
        ("network".to_owned(), after.network.saturating_sub(before.network)),
        ("loopback".to_owned(), after.loopback.saturating_sub(before.loopback)),
    ]);
    if let (Some(before), Some(after)) = (before.given, after.given) {
        bytes.insert("storage".to_owned(), after.saturating_sub(before));
    }
    if let (Some(before), Some(after)) = (&before.disk, &after.disk) {
        bytes.insert("disk".to_owned(), after.read_bytes.saturating_sub(before.read_bytes));
    }
    bytes
}

/// Measure all repetitions. The report is handed out after each epoch, at rank 0 alone.
pub fn run(bench: &mut Bench, report: &mut Report, save: &mut dyn FnMut(&Report) -> Result<()>) -> Result<()> {
    let job = bench.job;
    // What can't be run is refused before anything is measured.
    job.steps(bench.set)?;
    job.lanes(bench.outside.ranks)?;
    let ceiling = ceiling::measure(bench, report)?;
    bench.probed(&job.reads(bench.set, 0), report)?;
    let (mut clock, epochs) = (0.0, job.workload.read.epochs);
    for repetition in 1..=job.repetitions {
        // Each repetition has other permutations, as runs of a job have.
        let offset = (repetition - 1) * epochs;
        for number in 0..epochs {
            let what = format!("repetition {repetition}, epoch {}", number + 1);
            if let Some(pause) = job.workload.read.pause_seconds.filter(|pause| number > 0 && *pause > 0.0) {
                let what = format!("pausing {pause} s before {what}");
                (bench.outside.look)(&Progress { what, ..Progress::default() });
                bench.outside.clock.sleep_until(bench.outside.clock.now() + nanoseconds(pause));
            }
            let is_paused = job.workload.read.pause_seconds.is_some();
            let empty = match job.chill {
                Chill::Never => false,
                Chill::First => number == 0 || is_paused,
                Chill::Each => true,
            };
            let Some((mut found, seconds)) = bench.epoch(offset + number, empty, &what)? else { continue };
            (found.repetition, found.epoch, found.ceiling_percent) = (repetition, number + 1, ceiling);
            if empty && !found.cold && bench.set.real {
                warn(report, "caches could not be emptied: no epoch of this run is cold");
            }
            bench.held(&mut found, &what, report);
            let passed = found.seconds;
            report
                .timeline
                .extend(seconds.into_iter().map(|second| Second { second: second.second + clock, ..second }));
            clock += passed;
            report.epochs.push(found);
            // There is a verdict at the end.
            report.summary = Some(Summary { passed: false, verdict: None, reason: None, ..summed(bench, report) });
            save(report)?;
        }
    }
    if !report.epochs.is_empty() {
        report.summary = Some(summed(bench, report));
    }
    doubts(bench, report);
    report.finished = true;
    if bench.outside.ranks.rank() == 0 { save(report) } else { Ok(()) }
}

fn summed(bench: &Bench, report: &Report) -> Summary {
    let bound = bench.bound().filter(|_| report.epochs.iter().all(|epoch| epoch.bound_percent.is_some()));
    summary(report, bench.job, bound.as_ref(), &bench.job.steady(Some(bench.set)))
}

/// Say once what a reader must know.
pub fn warn(report: &mut Report, what: impl Into<String>) {
    let what = what.into();
    if !report.warnings.contains(&what) {
        report.warnings.push(what);
    }
}

pub(crate) const UNVERIFIED: &str = "no byte was verified: the set has no manifest, or samples that lie in files of several (raw, tar) have no checksums of \
    their own there: `stoker bench data --verify` compares whole files";

/// Waits that no storage explains: for each other, and before the steps that count.
pub(crate) const ALWAYS: [&str; 2] = ["barrier", "start"];

/// Where the target could give more than was reached: what the readers did meanwhile.
fn gap(report: &mut Report) {
    let shares = report.epochs.iter().filter_map(|epoch| Some((epoch.share_of_bound_percent?, epoch)));
    let Some((share, worst)) = shares.min_by(|left, right| left.0.total_cmp(&right.0)) else { return };
    let waits = worst
        .wait_seconds_by_cause
        .iter()
        .filter(|(name, seconds)| !ALWAYS.contains(&name.as_str()) && **seconds > 0.0);
    let total: f64 = waits.clone().map(|(_, seconds)| seconds).sum();
    if share >= 95.0 || total <= 0.0 {
        return;
    }
    let words: Vec<String> = waits.map(|(name, seconds)| format!("{name} {:.0} %", 100.0 * seconds / total)).collect();
    let what = format!(
        "epoch {}.{} reached {share:.0} % of the bound; its accelerators waited on {}. Each stream reads, checks and decodes \
        one sample after the other: more threads or batches ahead may reach it, unless the processor is busy",
        worst.repetition,
        worst.epoch,
        words.join(", ")
    );
    warn(report, what);
}

/// What the figures themselves give reason to doubt.
fn doubts(bench: &Bench, report: &mut Report) {
    let verified: u64 = report.epochs.iter().filter_map(|epoch| epoch.bytes.get("verified")).sum();
    if bench.set.real && verified == 0 {
        warn(report, UNVERIFIED);
    }
    gap(report);
    let least = report.epochs.iter().map(|epoch| epoch.ceiling_percent).fold(100.0, f64::min);
    if least < report.summary.as_ref().map_or(0.0, |summary| summary.pass_au_percent) {
        warn(report, "this machine can't drive so many accelerators even without storage: see the ceiling");
    }
    by_memory(report);
}

/// Where the same bytes from memory keep accelerators hardly busier, it is this machine that can't read and check so many:
/// readers that wait for a processor seem to wait for the storage.
fn by_memory(report: &mut Report) {
    let memory = report.sections.get("ceiling").and_then(|ceiling| ceiling["memory_percent"].as_f64());
    let (Some(memory), Some(summary)) = (memory, &mut report.summary) else { return };
    if memory >= summary.pass_au_percent || summary.verdict == Some(report::Verdict::Invalid) {
        return;
    }
    if summary.min_au_percent >= 0.9 * memory {
        summary.limited_by = "cpu".into();
    }
    warn(
        report,
        format!(
            "this machine reads and checks bytes from memory for {memory:.0} % of the demand: no storage could pass here"
        ),
    );
}
