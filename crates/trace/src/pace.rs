//! Batches and the pauses between them: what a program that reads, computes and reads again looks like from below.
//!
//! Invariant: a pause is a time in which its whole process asked for nothing; what overlaps reads is none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tally::Moment;

/// Shorter gaps can't be told from what a file system and a scheduler take.
const PAUSE_SECONDS_MIN: f64 = 1e-3;

/// Fewer pauses are chance: a start, an end, a disturbance.
const PAUSES_MIN: usize = 3;

/// How many spreads apart short and long gaps must lie to be two kinds: halves of one kind are 1.3 apart.
const SPREADS_MIN: f64 = 2.0;

/// And how many times longer the long ones must be: a sleep of one length that ends on time or late is of one kind.
const TIMES_MIN: f64 = 2.0;

/// A kind of gap is rare if there are so many times more of it and the kind below it together.
const RARE: usize = 8;

/// What is counted between pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Visits of files: a sample is a file.
    Visits,
    /// Reads: a sample is a record.
    Reads,
}

/// The rhythm of the run. Medians, so that a start, an end and a short last batch change nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Files or records that one process read between two pauses.
    pub batch: f64,
    pub batch_bytes: f64,
    /// Pauses that were seen.
    pub pauses: u64,
    /// How long a process asked for nothing between two batches.
    pub pause_seconds: f64,
    pub pause_seconds_mean: f64,
    /// From the beginning of one batch of a process to that of its next.
    pub cycle_seconds: f64,
    /// Between samples of one batch.
    pub gap_seconds: f64,
}

/// A sample, or a part of one, after a gap.
#[derive(Clone, Copy)]
struct Piece {
    gap: Option<f64>,
    begin: f64,
    bytes: f64,
}

/// One batch of one process.
struct Batch {
    begin: f64,
    units: f64,
    bytes: f64,
}

/// The pace of the reads of files that count.
pub fn judge(moments: &[Moment], unit: Unit, counts: impl Fn(u32) -> bool) -> Option<Pace> {
    let mut processes: BTreeMap<u32, Vec<Piece>> = BTreeMap::new();
    for moment in moments.iter().filter(|moment| counts(moment.file)) {
        let pieces = processes.entry(moment.process).or_default();
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let (begin, bytes) = (seconds(moment.begin_ns), f64::from(moment.length));
        match pieces.last_mut() {
            Some(last) if unit == Unit::Visits && !moment.starts => last.bytes += bytes,
            _ => pieces.push(Piece { gap: moment.gap_ns.map(seconds), begin, bytes }),
        }
    }
    let mut gaps: Vec<f64> = processes.values().flatten().filter_map(|piece| piece.gap).collect();
    gaps.sort_by(f64::total_cmp);
    let from = gaps[split(&gaps)?..].first().copied()?;
    let mut pauses: Vec<f64> = gaps.iter().copied().filter(|&gap| gap >= from).collect();
    let mut short: Vec<f64> = gaps.iter().copied().filter(|&gap| gap < from).collect();
    let (mut batches, mut cycles) = (Vec::new(), Vec::new());
    for pieces in processes.values() {
        let mut found = cut(pieces, from);
        cycles.extend(found.windows(2).map(|pair| pair[1].begin - pair[0].begin));
        // What the run ended in is seldom a whole batch.
        if found.len() > 1 {
            found.pop();
        }
        batches.append(&mut found);
    }
    Some(Pace {
        batch: median(&mut batches.iter().map(|batch| batch.units).collect::<Vec<_>>()),
        batch_bytes: median(&mut batches.iter().map(|batch| batch.bytes).collect::<Vec<_>>()),
        pauses: pauses.len() as u64,
        pause_seconds_mean: pauses.iter().sum::<f64>() / pauses.len() as f64,
        pause_seconds: median(&mut pauses),
        cycle_seconds: median(&mut cycles),
        gap_seconds: median(&mut short),
    })
}

fn cut(pieces: &[Piece], from: f64) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for piece in pieces {
        match batches.last_mut() {
            Some(batch) if piece.gap.is_none_or(|gap| gap < from) => {
                batch.units += 1.0;
                batch.bytes += piece.bytes;
            }
            _ => batches.push(Batch { begin: piece.begin, units: 1.0, bytes: piece.bytes }),
        }
    }
    batches
}

/// Index of the first pause among sorted gaps; all of them, if they are of one kind and long.
fn split(gaps: &[f64]) -> Option<usize> {
    let long = |gaps: &[f64]| two_kinds(gaps).filter(|&at| gaps[at] >= PAUSE_SECONDS_MIN);
    let Some(mut from) = long(gaps) else {
        let middle = gaps.get(gaps.len() / 2)?;
        return (gaps.len() >= PAUSES_MIN && *middle >= PAUSE_SECONDS_MIN).then_some(0);
    };
    // What happens between epochs lasts longest, and is rare: then the pauses are the kind below it.
    while let Some(at) = long(&gaps[..from]).filter(|at| (gaps.len() - from) * RARE < gaps.len() - at) {
        from = at;
    }
    // On a busy machine short gaps during which others ran are a kind of their own: then the pauses are the kind above.
    let above = |from: usize| two_kinds(&gaps[from..]).map(|at| from + at);
    while let Some(at) = above(from).filter(|at| (gaps.len() - at) * RARE >= gaps.len() - from) {
        from = at;
    }
    Some(from)
}

/// Where sorted gaps divide into short and long, if they do.
///
/// Otsu's threshold over the logarithms, where each gap weighs as much as it lasts: a batch of hundreds has hundreds of
/// short gaps to one pause, and yet the pauses are what the time goes to.
fn two_kinds(gaps: &[f64]) -> Option<usize> {
    let points: Vec<(f64, f64)> = gaps.iter().map(|&gap| (gap.max(1e-6).ln(), gap.max(1e-6))).collect();
    let all = Sums::of(&points);
    let mut lower = Sums::default();
    let mut best: Option<(f64, usize)> = None;
    for at in 1..points.len().saturating_sub(PAUSES_MIN - 1) {
        lower.add(points[at - 1]);
        let upper = all.less(lower);
        let apart = lower.weight * upper.weight * (upper.mean() - lower.mean()).powi(2);
        if points[at].0 > points[at - 1].0 && best.is_none_or(|(most, _)| apart > most) {
            best = Some((apart, at));
        }
    }
    let (_, at) = best?;
    // Whether they are two kinds is a matter of how many there are, not of how long they last.
    let plain = |points: &[(f64, f64)]| Sums::of(&points.iter().map(|point| (point.0, 1.0)).collect::<Vec<_>>());
    let (short, long) = (plain(&points[..at]), plain(&points[at..]));
    let apart = long.mean() - short.mean();
    (apart >= TIMES_MIN.ln() && apart >= SPREADS_MIN * (short.spread() + long.spread())).then_some(at)
}

/// Weighted sums of logarithms.
#[derive(Clone, Copy, Default)]
struct Sums {
    weight: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn of(points: &[(f64, f64)]) -> Sums {
        points.iter().fold(Sums::default(), |mut sums, &point| {
            sums.add(point);
            sums
        })
    }

    fn add(&mut self, (value, weight): (f64, f64)) {
        self.weight += weight;
        self.sum += weight * value;
        self.squares += weight * value * value;
    }

    fn less(self, other: Sums) -> Sums {
        Sums { weight: self.weight - other.weight, sum: self.sum - other.sum, squares: self.squares - other.squares }
    }

    fn mean(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }

    fn spread(&self) -> f64 {
        if self.weight > 0.0 { (self.squares / self.weight - self.mean().powi(2)).max(0.0).sqrt() } else { 0.0 }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(gaps: &[f64]) -> Option<usize> {
        let mut gaps = gaps.to_vec();
        gaps.sort_by(f64::total_cmp);
        split(&gaps).map(|at| gaps.len() - at)
    }

    /// Gaps that spread around a middle by up to a factor.
    fn around(middle: f64, factor: f64, count: usize) -> Vec<f64> {
        (0..count).map(|place| middle * factor.powf(2.0 * (place as f64 + 0.5) / count as f64 - 1.0)).collect()
    }

    #[test]
    fn one_pause_to_hundreds_of_short_gaps_is_found() {
        assert_eq!(pauses(&[around(60e-6, 6.0, 25_600), around(40e-3, 1.2, 100)].concat()), Some(100));
        let disturbed = [around(80e-6, 3.0, 750), around(5e-3, 1.6, 40), around(22e-3, 1.1, 50)].concat();
        assert_eq!(pauses(&disturbed), Some(50));
        let epochs = [around(80e-6, 3.0, 4000), around(20e-3, 1.2, 100), around(1.0, 1.1, 4)].concat();
        assert_eq!(pauses(&epochs), Some(104));
        assert_eq!(pauses(&[around(10e-3, 1.5, 310), around(100e-3, 1.1, 10)].concat()), Some(10));
    }

    #[test]
    fn gaps_of_one_kind_are_no_batches() {
        assert_eq!(pauses(&around(60e-6, 6.0, 1000)), None);
        assert_eq!(pauses(&around(30e-3, 1.5, 1000)), Some(1000));
        assert_eq!(pauses(&[around(60e-6, 6.0, 1000), vec![1.0]].concat()), None);
        assert_eq!(pauses(&[]), None);
    }

    #[test]
    fn pauses_that_ended_late_are_of_the_same_kind() {
        let late = [around(60e-6, 6.0, 168), around(0.1502, 1.001, 20), around(0.155, 1.002, 3)].concat();
        assert_eq!(pauses(&late), Some(23));
    }
}
