//! Batches and the pauses between them: what a program that reads, computes and reads again looks like from below.
//!
//! Invariant: a pause is a time in which whoever reads the batch asked for nothing; what overlaps its reads is none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gaps::{PAUSE_SECONDS_MIN, split};
use super::tally::Moment;

/// Batches are alike that differ from the middle one by no more than this share of it.
const ALIKE: f64 = 0.25;

/// With fewer of them there are no batches: storage that stalls makes pieces of any size.
const ALIKE_PERCENT_MIN: f64 = 50.0;

/// Percent of batches by which those of single readers must be more alike than those of readers taken together.
const MORE_ALIKE: f64 = 20.0;

/// Of cycles this share is left out at either end: starts and ends of epochs, checkpoints.
const LEFT_OUT: f64 = 0.1;

/// A program may look at a file or two before it loads, so the longest of the first few bursts is what it reads ahead.
const BURSTS: usize = 3;

/// More than this share of an epoch that is read at once is a scan, and says nothing of reading ahead.
const AHEAD_SHARE: f64 = 0.5;

/// What is counted between pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Visits of files: a sample is a file.
    Visits,
    /// Reads: a sample is a record.
    Reads,
}

/// Who reads a batch, from all to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// All that read, together; a single reader is all.
    #[default]
    All,
    Process,
    Thread,
}

/// The rhythm of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    pub owner: Owner,
    /// Of them, how many read at the same time.
    pub owners: u64,
    /// Files or records that were read between two pauses: the middle.
    pub batch: f64,
    pub batch_bytes: f64,
    /// Batches that differ from it by a quarter at most.
    pub alike_percent: f64,
    /// Pauses that were seen.
    pub pauses: u64,
    /// How long an owner asked for nothing between two batches: the middle, and the mean.
    pub pause_seconds: f64,
    pub pause_seconds_mean: f64,
    /// From the beginning of one batch of an owner to that of its next; the mean without a tenth at either end.
    pub cycle_seconds: f64,
    /// The part of that in which it asked for nothing, for a millisecond or longer each time.
    pub work_seconds: f64,
    /// Between samples of one batch.
    pub gap_seconds: f64,
    /// Batches that were read before the first pause, without the one that was taken; none if that can't be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
}

/// A sample, or a part of one, after a gap.
#[derive(Clone, Copy)]
struct Piece {
    gap: Option<f64>,
    begin: f64,
    end: f64,
    bytes: f64,
    /// Time within in which nothing was asked.
    idle: f64,
}

/// One batch of one owner.
#[derive(Clone, Copy)]
struct Batch {
    begin: f64,
    end: f64,
    units: f64,
    bytes: f64,
    idle: f64,
}

impl Pace {
    /// From one batch of the program to the next.
    pub fn batch_seconds(&self) -> f64 {
        self.cycle_seconds / self.owners.max(1) as f64
    }
}

/// The pace of the reads of files that count.
pub fn judge(moments: &[Moment], unit: Unit, counts: impl Fn(u32) -> bool) -> Option<Pace> {
    let moments: Vec<&Moment> = moments.iter().filter(|moment| counts(moment.file)).collect();
    let found = [Owner::All, Owner::Process, Owner::Thread].into_iter().filter_map(|owner| of(&moments, unit, owner));
    // Parts of a batch are less alike than batches, and so are batches of several owners that happen to touch.
    found.reduce(|many, few| if few.alike_percent > many.alike_percent + MORE_ALIKE { few } else { many })
}

/// The pace, if batches belong to such owners.
fn of(moments: &[&Moment], unit: Unit, owner: Owner) -> Option<Pace> {
    let pieces = pieces(moments, unit, owner);
    let mut gaps: Vec<f64> = pieces.iter().flatten().filter_map(|piece| piece.gap).collect();
    gaps.sort_by(f64::total_cmp);
    let at = split(&gaps)?;
    let owners: Vec<Vec<Batch>> = pieces.iter().map(|pieces| cut(pieces, gaps[at])).collect();
    // What the run ended in is seldom a whole batch.
    let whole = |found: &Vec<Batch>| found[..found.len() - usize::from(found.len() > 1)].to_vec();
    let batches: Vec<Batch> = owners.iter().flat_map(whole).collect();
    let units = median(&mut batches.iter().map(|batch| batch.units).collect::<Vec<_>>());
    let epoch = moments.iter().filter(|moment| moment.visit == 1 && (moment.starts || unit == Unit::Reads)).count();
    if 2.0 * units > epoch as f64 {
        // These are pauses between epochs.
        return None;
    }
    let is_alike = |batch: &Batch| (batch.units - units).abs() <= ALIKE * units;
    let alike_percent = 100.0 * batches.iter().filter(|batch| is_alike(batch)).count() as f64 / batches.len() as f64;
    if alike_percent < ALIKE_PERCENT_MIN {
        return None;
    }
    let (short, long) = gaps.split_at(at);
    // What is read ahead at first, and parts of it, are no cycles.
    let pairs = || owners.iter().flat_map(|found| found.windows(2)).filter(|pair| pair.iter().all(is_alike));
    let cycles = pairs().map(|pair| pair[1].begin - pair[0].begin).collect();
    let work = pairs().map(|pair| pair[1].idle).collect();
    let mut pace = Pace {
        owner,
        owners: concurrent(&owners),
        batch: units,
        batch_bytes: median(&mut batches.iter().map(|batch| batch.bytes).collect::<Vec<_>>()),
        alike_percent,
        pauses: long.len() as u64,
        pause_seconds: median(&mut long.to_vec()),
        pause_seconds_mean: long.iter().sum::<f64>() / long.len() as f64,
        cycle_seconds: usual(cycles)?,
        work_seconds: usual(work)?,
        gap_seconds: median(&mut short.to_vec()),
        ahead: None,
    };
    pace.ahead = ahead(&owners, &pace).filter(|&ahead| ahead as f64 * units <= AHEAD_SHARE * epoch as f64);
    Some(pace)
}

/// What each owner read, sample by sample.
fn pieces(moments: &[&Moment], unit: Unit, owner: Owner) -> Vec<Vec<Piece>> {
    let mut owners: BTreeMap<(u32, u32), Vec<Piece>> = BTreeMap::new();
    for moment in moments {
        let (key, gap_ns) = match owner {
            Owner::All => ((0, 0), moment.gaps_ns[0]),
            Owner::Process => ((moment.process, 0), moment.gaps_ns[1]),
            Owner::Thread => ((moment.process, moment.thread), moment.gaps_ns[2]),
        };
        let pieces = owners.entry(key).or_default();
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let (begin, end, bytes) = (seconds(moment.begin_ns), seconds(moment.end_ns), f64::from(moment.length));
        let gap = gap_ns.map(seconds);
        let idle = gap.filter(|&gap| gap >= PAUSE_SECONDS_MIN).unwrap_or(0.0);
        match pieces.last_mut() {
            Some(last) if unit == Unit::Visits && !moment.starts => {
                (last.bytes, last.idle, last.end) = (last.bytes + bytes, last.idle + idle, last.end.max(end));
            }
            _ => pieces.push(Piece { gap, begin, end, bytes, idle }),
        }
    }
    owners.into_values().collect()
}

/// Divide what an owner read at its pauses: gaps from such a length on.
fn cut(pieces: &[Piece], from: f64) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for piece in pieces {
        match batches.last_mut() {
            Some(batch) if piece.gap.is_none_or(|gap| gap < from) => {
                batch.units += 1.0;
                batch.bytes += piece.bytes;
                batch.idle += piece.idle;
                batch.end = batch.end.max(piece.end);
            }
            _ => {
                let Piece { begin, end, bytes, idle, .. } = *piece;
                batches.push(Batch { begin, end, units: 1.0, bytes, idle });
            }
        }
    }
    batches
}

/// How many owners were at work at the same time, each from its first batch to its last: the mean.
fn concurrent(owners: &[Vec<Batch>]) -> u64 {
    let mut spans: Vec<(f64, f64)> =
        owners.iter().map(|found| (found[0].begin, found[found.len() - 1].begin)).collect();
    spans.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut all, mut any, mut until) = (0.0, 0.0, f64::NEG_INFINITY);
    for (begin, end) in spans {
        all += end - begin;
        any += (end - until.max(begin)).max(0.0);
        until = until.max(end);
    }
    ((all / any).round() as u64).max(1)
}

/// How many batches lie ready or are on their way while the program computes: what was read before the first pause, less
/// the batch that it had then, and those that it took meanwhile.
fn ahead(owners: &[Vec<Batch>], pace: &Pace) -> Option<u64> {
    let paused = owners.iter().map(|found| found[0].end).min_by(f64::total_cmp)?;
    let first: Vec<&Vec<Batch>> = owners.iter().filter(|found| found[0].begin <= paused).collect();
    let longest = |found: &&Vec<Batch>| {
        let bursts = found[..found.len().min(BURSTS)].iter();
        bursts.copied().max_by(|one, other| one.units.total_cmp(&other.units))
    };
    let bursts: Vec<Batch> = first.iter().filter_map(longest).collect();
    let count = bursts.len() as f64;
    let read = bursts.iter().map(|burst| burst.units).sum::<f64>() / pace.batch;
    let seconds = bursts.iter().map(|burst| burst.end - burst.begin).sum::<f64>() / count;
    // Until the first was whole, nothing could be taken.
    let taken = (seconds * (1.0 - count / read).max(0.0) / pace.batch_seconds()).floor();
    Some((read - taken - 1.0).round().max(0.0) as u64)
}

/// The mean without the least and the most.
fn usual(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let out = (LEFT_OUT * values.len() as f64).ceil() as usize;
    let kept = values.get(out..values.len().saturating_sub(out)).filter(|kept| !kept.is_empty());
    kept.or((!values.is_empty()).then_some(&values[..])).map(|kept| kept.iter().sum::<f64>() / kept.len() as f64)
}

/// The middle value; 0 of none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}
