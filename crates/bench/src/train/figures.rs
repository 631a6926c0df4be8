//! From moments to figures: utilisation by both formulas, percentiles of steps, the parts of ranks put together.
//!
//! It measures nothing. Invariant: the same parts give the same figures, in whatever order they are put together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use block::{Error, Result};
use hdrhistogram::Histogram;
use report::{Epoch, Node, Process, Second};
use serde::{Deserialize, Serialize};
use targets::clock::{Moment, seconds};

use super::cause::{CAUSES, Waits};
use super::counters::{Tiers, hit_percent};
use super::pace::{Course, Ran};
use crate::sweep::latency::buckets;

/// Three digits: percentiles are within 0.1 %.
const DIGITS: u8 = 3;

/// Bytes that each process counts for itself; others its machine counts for all.
const OF_RANK: [&str; 3] = ["asked", "verified", "storage"];

/// What one rank has to tell of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Name of the machine.
    pub node: String,
    /// Whether its caches were empty when the epoch began.
    pub cold: bool,
    pub lanes: u64,
    /// Whether its accelerators are processes that wait for no other.
    pub alone: bool,
    pub seconds: f64,
    pub steps: u64,
    /// Steps that count.
    pub counted: u64,
    /// In percent, of each lane.
    pub au: Vec<f64>,
    pub au_dlio: Vec<f64>,
    pub waits: Waits,
    /// Nanoseconds from one step to the next, of each party.
    pub intervals: Vec<u64>,
    pub bytes: BTreeMap<String, u64>,
    /// What the target of this machine counted meanwhile, of all its ranks.
    pub tiers: Option<Tiers>,
    pub processes: Vec<Process>,
    pub timeline: Vec<Second>,
}

/// What one party of accelerators did.
pub(crate) struct Track<'a> {
    pub begun: Moment,
    /// As each step should have ended, and was seen to.
    pub ends: &'a [(Moment, Moment)],
    /// Batches that lay there when each step ended.
    pub ready: &'a [u64],
    pub lanes: u64,
    pub step: u64,
    /// Steps that count.
    pub counted: Range<usize>,
}

impl Track<'_> {
    fn last(&self) -> Moment {
        self.ends[self.ends.len() - 1].1
    }

    /// Nominal time of the steps that count, over the time that they took. Batches that lay there when they began and not
    /// when they ended came in a time that isn't counted: their steps aren't either.
    pub fn utilisation(&self) -> f64 {
        let Range { start, end } = self.counted;
        // Where all steps to the last count, nothing is left at their end, however fast the storage.
        let is_cut = end < self.ends.len();
        let used = if is_cut { self.ready[start - 1].saturating_sub(self.ready[end - 1]) } else { 0 };
        let computed = ((end - start) as u64 * self.lanes).saturating_sub(used) * self.step;
        let took = (self.ends[end - 1].1 - self.ends[start - 1].0).max(1) * self.lanes;
        100.0 * computed as f64 / took as f64
    }

    /// DLIO's way: computing is what was measured of it, and what is left out of the whole is the load and computing
    /// of the first step, but not the barrier behind it.
    fn utilisation_dlio(&self, first: u64) -> f64 {
        let computed: u64 = self.ends[1..].iter().map(|(should, seen)| self.step + (seen - should)).sum();
        let whole = (self.last() - self.begun).saturating_sub(first);
        100.0 * computed as f64 / whole.max(1) as f64
    }

    fn intervals(&self) -> impl Iterator<Item = u64> {
        self.ends[self.counted.start - 1..self.counted.end].windows(2).map(|pair| pair[1].1.saturating_sub(pair[0].1))
    }
}

impl Part {
    /// The figures of this rank.
    pub fn of(course: &Course, ran: &Ran, batch: u64, epoch: u64, node: &str) -> Part {
        let (lanes, steps, counted) = (course.lanes as u64, course.steps, course.counted.end - course.counted.start);
        let alone = !course.together;
        let mut part = Part { node: node.to_owned(), lanes, steps, counted, alone, ..Part::default() };
        let rank = |lane: usize| course.first + lane as u64;
        for party in &ran.board.parties {
            let track = Track {
                begun: ran.begun,
                ends: &party.ends,
                ready: &party.ready,
                lanes: party.lanes.len() as u64,
                step: course.step,
                counted: course.counted.start as usize..course.counted.end as usize,
            };
            let took = seconds(track.last() - ran.begun);
            part.seconds = part.seconds.max(took);
            part.intervals.extend(track.intervals());
            let samples = course.steps * batch;
            for number in party.lanes.clone() {
                let lane = &ran.board.lanes[number];
                part.au.push(track.utilisation());
                part.au_dlio.push(track.utilisation_dlio(lane.first));
                part.waits.merge(&lane.waits);
                if alone {
                    let samples_per_second = samples as f64 / took;
                    part.processes.push(Process {
                        node: node.to_owned(),
                        rank: rank(number),
                        epoch,
                        samples,
                        seconds: took,
                        samples_per_second,
                        wait_seconds_by_cause: by_cause(&lane.waits),
                        ..Process::default()
                    });
                }
            }
        }
        if !alone && course.ranks.size() > 1 {
            let samples = part.lanes * course.steps * batch;
            let samples_per_second = samples as f64 / part.seconds;
            let (node, rank, seconds) = (node.to_owned(), u64::from(course.ranks.rank()), part.seconds);
            let wait_seconds_by_cause = by_cause(&part.waits);
            part.processes.push(Process {
                node,
                rank,
                epoch,
                samples,
                seconds,
                samples_per_second,
                wait_seconds_by_cause,
                ..Process::default()
            });
        }
        part
    }

    /// What was moved meanwhile. Of accelerators that are processes by themselves nobody counts it one by one.
    pub fn told(&mut self, bytes: BTreeMap<String, u64>, together: bool) {
        for process in self.processes.iter_mut().filter(|_| together) {
            process.bytes = of_rank(&bytes);
        }
        self.bytes = bytes;
    }
}

/// What is counted for a process, and not for its whole machine.
fn of_rank(bytes: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let own = bytes.iter().filter(|(name, _)| OF_RANK.contains(&name.as_str()));
    own.map(|(name, count)| (name.clone(), *count)).collect()
}

/// Seconds by the names of the causes.
fn by_cause(waits: &Waits) -> BTreeMap<String, f64> {
    let name = |cause| serde_json::to_value(cause).ok()?.as_str().map(str::to_owned);
    CAUSES.into_iter().filter_map(|cause| Some((name(cause)?, seconds(waits.of(cause))))).collect()
}

/// An epoch out of the parts of all ranks.
pub fn epoch(parts: &[Part], batch: u64) -> Result<Epoch> {
    let mean = |of: fn(&Part) -> &[f64]| {
        let all = parts.iter().flat_map(of);
        let (sum, count) = all.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
        sum / count.max(1) as f64
    };
    let took = parts.iter().map(|part| part.seconds).fold(0.0, f64::max);
    let samples: u64 = parts.iter().map(|part| part.lanes * part.steps * batch).sum();
    let mut waits = Waits::default();
    let mut bytes = BTreeMap::new();
    for part in parts {
        waits.merge(&part.waits);
        // What a machine counts for all its ranks is counted once for each machine.
        let is_first =
            !parts.iter().take_while(|other| !std::ptr::eq(*other, part)).any(|other| other.node == part.node);
        for (name, count) in part.bytes.iter().filter(|(name, _)| is_first || OF_RANK.contains(&name.as_str())) {
            *bytes.entry(name.clone()).or_insert(0) += count;
        }
    }
    let asked = bytes.get("asked").copied().unwrap_or_default();
    let of_rank = |part: &'_ Part| part.bytes.get("asked").copied().unwrap_or(0);
    let nodes = nodes(parts.iter().map(|part| (part.node.as_str(), of_rank(part), part.tiers)));
    // A process without a barrier moves as many samples a second as it moves.
    let alone: f64 = parts.iter().flat_map(|part| &part.processes).map(|process| process.samples_per_second).sum();
    let samples_per_second = if parts.iter().any(|part| part.alone) { alone } else { samples as f64 / took };
    Ok(Epoch {
        seconds: took,
        steps: parts.first().map_or(0, |part| part.steps),
        steps_counted: parts.first().map_or(0, |part| part.counted),
        samples,
        au_percent: mean(|part| &part.au),
        au_dlio_percent: mean(|part| &part.au_dlio),
        samples_per_second,
        bytes_per_second: asked as f64 / samples.max(1) as f64 * samples_per_second,
        wait_seconds_by_cause: by_cause(&waits),
        bytes,
        step_seconds: percentiles(parts)?,
        step_histogram: buckets(parts.iter().flat_map(|part| &part.intervals).map(|took| Duration::from_nanos(*took))),
        processes: parts.iter().flat_map(|part| part.processes.clone()).collect(),
        hit_percent: shared(&nodes),
        nodes,
        ..Epoch::default()
    })
}

/// Each machine whose target tells, once, with what all its ranks asked.
pub(crate) fn nodes<'a>(ranks: impl Iterator<Item = (&'a str, u64, Option<Tiers>)>) -> Vec<Node> {
    let mut found: Vec<(&str, u64, Tiers)> = Vec::new();
    for (node, asked, tiers) in ranks {
        match (found.iter_mut().find(|(name, ..)| *name == node), tiers) {
            (Some((_, sum, _)), _) => *sum += asked,
            (None, Some(tiers)) => found.push((node, asked, tiers)),
            (None, None) => {}
        }
    }
    found.into_iter().map(|(node, asked, tiers)| tiers.node(node, asked)).collect()
}

/// The hits of all machines together.
pub(crate) fn shared(nodes: &[Node]) -> Option<f64> {
    let sum = |of: fn(&Node) -> u64| nodes.iter().map(of).sum::<u64>();
    let store = sum(|node| node.bytes_by_tier.get("store").copied().unwrap_or(0));
    (!nodes.is_empty()).then(|| hit_percent(sum(|node| node.asked_bytes), store))
}

/// Percentiles of the time from one step to the next, as measured: the loop is closed, so that a late step keeps none
/// from being counted.
fn percentiles(parts: &[Part]) -> Result<BTreeMap<String, f64>> {
    let failed = |error: &dyn std::fmt::Display| Error::invalid(format!("no percentiles: {error}"), "the steps");
    let mut histogram = Histogram::<u64>::new(DIGITS).map_err(|error| failed(&error))?;
    for interval in parts.iter().flat_map(|part| &part.intervals) {
        histogram.record(*interval).map_err(|error| failed(&error))?;
    }
    if histogram.is_empty() {
        return Ok(BTreeMap::new());
    }
    let at = |quantile| seconds(histogram.value_at_quantile(quantile));
    let named = [("p50", at(0.5)), ("p99", at(0.99)), ("p99.9", at(0.999)), ("max", seconds(histogram.max()))];
    Ok(named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_is_nominal_and_leaves_out_what_was_read_ahead() {
        // Steps of 100 that end at 400 (a slow first one), 500, 700, 800; the last is seen 10 late.
        let ends = [(400, 400), (500, 500), (700, 705), (800, 810)];
        let track = Track { begun: 0, ends: &ends, ready: &[2, 1, 0, 0], lanes: 1, step: 100, counted: 1..4 };
        assert!((track.utilisation() - 100.0 * 300.0 / 410.0).abs() < 1e-9);
        // DLIO counts the lateness as computing, and here leaves out the same first 400.
        assert!((track.utilisation_dlio(400) - 100.0 * 315.0 / 410.0).abs() < 1e-9);
        // Of a window of three batches the first three steps are left out, and so is what they waited for.
        let late = Track { counted: 3..4, ..track };
        assert!((late.utilisation() - 100.0 * 100.0 / 110.0).abs() < 1e-9);
        assert_eq!(late.intervals().collect::<Vec<_>>(), [105]);
        // Of two steps that count, one used a batch that lay there before, of the two of both accelerators.
        let cut = Track { counted: 1..3, ready: &[2, 1, 1, 0], lanes: 2, ..late };
        assert!((cut.utilisation() - 100.0 * 300.0 / 610.0).abs() < 1e-9, "{}", cut.utilisation());
        // Where as many lie there at both ends, nothing is taken off.
        let full = [(100, 100), (200, 200), (300, 300), (400, 400)];
        let fed = Track { ends: &full, ready: &[2, 1, 2, 0], ..cut };
        assert!((fed.utilisation() - 100.0).abs() < 1e-9, "{}", fed.utilisation());
    }

    #[test]
    fn percentiles_are_of_the_steps_that_happened() {
        // Each takes two and a half times as long as it should; one stalls.
        let part = Part { intervals: [vec![250; 90], vec![1000]].concat(), ..Part::default() };
        let found = percentiles(&[part]).unwrap();
        assert!((found["p50"] - 250e-9).abs() < 1e-9 && (found["max"] - 1000e-9).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn what_a_machine_counts_for_its_ranks_is_counted_once() {
        let tiers = |store| Some(Tiers { store, ..Tiers::default() });
        let ranks = [("a", 100, tiers(50)), ("a", 100, tiers(50)), ("b", 200, tiers(0))];
        let found = nodes(ranks.into_iter());
        let said: Vec<_> = found.iter().map(|one| (one.node.as_str(), one.asked_bytes, one.hit_percent)).collect();
        assert_eq!(said, [("a", 200, 75.0), ("b", 200, 100.0)]);
        assert_eq!((shared(&found), shared(&[])), (Some(87.5), None));
    }

    #[test]
    fn parts_of_ranks_are_put_together() {
        let part = |au: f64, asked| Part {
            lanes: 2,
            seconds: 2.0,
            steps: 10,
            au: vec![au; 2],
            au_dlio: vec![au; 2],
            bytes: BTreeMap::from([("asked".to_owned(), asked)]),
            intervals: vec![100, asked * 1000],
            ..Part::default()
        };
        let whole = epoch(&[part(90.0, 10), part(80.0, 30)], 4).unwrap();
        assert!((whole.au_percent - 85.0).abs() < 1e-9);
        assert_eq!((whole.samples, whole.bytes["asked"]), (160, 40));
        // Of both ranks, to two digits, and no stall counted twice.
        let steps = &whole.step_histogram;
        assert_eq!((steps.counts.iter().sum::<u64>(), steps.nanoseconds[0]), (4, 100));
        assert!(steps.nanoseconds[1].abs_diff(10_000) < 100, "{steps:?}");
        assert!((whole.samples_per_second - 80.0).abs() < 1e-9 && (whole.bytes_per_second - 20.0).abs() < 1e-9);
    }
}
