//! In which order files were visited: as they lie, the same in each epoch, or in an order of each epoch.
//!
//! Judged by rank correlation (Spearman's), so that workers that overtake each other a little change nothing.
//! Invariant: a judgement says what it was judged by.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::tally::Moment;

/// From here on an order counts as the same: neighbours that change places leave it above.
const SAME: f64 = 0.9;

/// How visits were ordered; each figure is a rank correlation, 1 for the same order and about 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// With the order of names, or of names with numbers taken as such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_names: Option<f64>,
    /// With the order in which the folder listed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_listing: Option<f64>,
    /// Of the second epoch with the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_epoch_before: Option<f64>,
    /// Files that it was judged by.
    pub files: u64,
}

impl Judgement {
    /// Whether files were visited as they lie, or in one order in each epoch.
    pub fn is_fixed(&self) -> bool {
        let figures = [self.with_names, self.with_listing, self.with_epoch_before];
        self.files < 2 || figures.iter().flatten().any(|&figure| figure > SAME)
    }
}

/// Judge the first visits of the files that match; `names` by index: path, and place in its listing.
pub fn judge(moments: &[Moment], names: &[(Arc<[u8]>, u32)], counts: impl Fn(u32) -> bool) -> Judgement {
    let starts = |visit: u32| {
        let starts = moments.iter().filter(move |moment| moment.starts && moment.visit == visit);
        starts.filter(|moment| (moment.file as usize) < names.len() && counts(moment.file))
    };
    let mut sequences: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    starts(1).for_each(|moment| sequences.entry(moment.process).or_default().push(moment.file));
    let first: Vec<u32> = starts(1).map(|moment| moment.file).collect();
    let by = |compare: &dyn Fn(u32, u32) -> Ordering| over_processes(&sequences, compare);
    let name = |file: u32| &*names[file as usize].0;
    let with_names = [by(&|one, other| name(one).cmp(name(other))), by(&|one, other| natural(name(one), name(other)))];
    let with_names = with_names.into_iter().flatten().reduce(f64::max);
    let listed = first.iter().all(|&file| names[file as usize].1 > 0);
    let place = |file: u32| (folder(name(file)), names[file as usize].1);
    let with_listing = if listed { by(&|one, other| place(one).cmp(&place(other))) } else { None };
    Judgement {
        with_names,
        with_listing,
        with_epoch_before: repeated(&first, starts(2).map(|moment| moment.file)),
        files: first.len() as u64,
    }
}

/// The mean over processes, each as heavy as what it visited.
fn over_processes(sequences: &BTreeMap<u32, Vec<u32>>, compare: &dyn Fn(u32, u32) -> Ordering) -> Option<f64> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for sequence in sequences.values().filter(|sequence| sequence.len() > 1) {
        let mut sorted = sequence.clone();
        sorted.sort_by(|&one, &other| compare(one, other));
        sum += correlation(sequence, &sorted) * sequence.len() as f64;
        weight += sequence.len() as f64;
    }
    (weight > 0.0).then(|| sum / weight)
}

/// The order of the files that were visited twice, the second time against the first.
fn repeated(first: &[u32], second: impl Iterator<Item = u32>) -> Option<f64> {
    let second: Vec<u32> = second.collect();
    let both: std::collections::HashSet<u32> = second.iter().copied().collect();
    let first: Vec<u32> = first.iter().copied().filter(|file| both.contains(file)).collect();
    (first.len() > 1 && first.len() == second.len()).then(|| correlation(&first, &second))
}

/// Spearman's rank correlation of two orders of the same things.
fn correlation(one: &[u32], other: &[u32]) -> f64 {
    let places: std::collections::HashMap<u32, usize> =
        other.iter().enumerate().map(|(place, &file)| (file, place)).collect();
    let count = one.len() as f64;
    let far = one.iter().enumerate().filter_map(|(place, file)| Some(place as f64 - *places.get(file)? as f64));
    let squares: f64 = far.map(|far| far * far).sum();
    1.0 - 6.0 * squares / (count * (count * count - 1.0))
}

fn folder(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&[][..], |at| &path[..at])
}

/// Names with runs of digits compared as numbers.
fn natural(one: &[u8], other: &[u8]) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (Some(first), Some(second)) = (one.first(), other.first()) else { return one.len().cmp(&other.len()) };
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let (left, right) = (number(&mut one), number(&mut other));
            match left.len().cmp(&right.len()).then_with(|| left.cmp(right)) {
                Ordering::Equal => continue,
                different => return different,
            }
        }
        match first.cmp(second) {
            Ordering::Equal => (one, other) = (&one[1..], &other[1..]),
            different => return different,
        }
    }
}

/// Take the digits off the front, without leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    &digits[digits.iter().position(|&digit| digit != b'0').unwrap_or(digits.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let mut names = [&b"part-10.jpg"[..], b"part-9.jpg", b"part-010b", b"part", b"other"];
        names.sort_by(|one, other| natural(one, other));
        assert_eq!(names, [&b"other"[..], b"part", b"part-9.jpg", b"part-10.jpg", b"part-010b"]);
    }

    #[test]
    fn the_same_order_correlates_fully_and_the_reverse_not_at_all() {
        assert_eq!(correlation(&[4, 2, 9], &[4, 2, 9]), 1.0);
        assert_eq!(correlation(&[4, 2, 9], &[9, 2, 4]), -1.0);
    }
}
