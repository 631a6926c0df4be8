//! The samples of a target: which files there are, and where in them each sample lies.
//!
//! It reads no sample; `index` and `footer` scan packed files, `spans` is what they find. Invariant: samples are numbered from 0 in the order of
//! their files, without gaps.

mod footer;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
pub mod index;
mod spans;

use std::ops::Range;
use std::sync::Arc;

use block::{Error, Result};
use data::noise::Chance;
use targets::{Listed, Target};
use workload::{Files, Format};

use footer::Group;
use spans::{Spans, even};

/// Bytes of one read of a file. Larger reads are cut by the kernel anyway, and a reader's memory stays small.
pub const PIECE: u64 = 1 << 20;

pub struct Set {
    pub files: Vec<Listed>,
    spans: Vec<Spans>,
    /// Whether each sample is a whole file.
    is_whole: bool,
    /// Samples of each file.
    pub numbers: Vec<Range<u64>>,
    pub format: Format,
    /// The share of each sample that is read: its leading bytes, where columns are not known.
    pub share: f64,
    /// Row groups, where samples are read by them.
    pub groups: Option<Groups>,
    /// Samples that are read at once where they lie side by side.
    pub together: f64,
    /// Bytes of one read of the target: more where each read is a request to a store.
    pub piece: u64,
    /// Whether there are bytes in it that can be checked.
    pub real: bool,
}

impl Set {
    /// Whether each read is a request that waits by itself: of files the kernel reads ahead, and keeps what it read.
    pub fn is_of_store(&self) -> bool {
        self.piece > PIECE
    }
}

/// How many row groups a set has, and ranges of bytes that are read of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Groups {
    pub groups: u64,
    pub ranges: u64,
    /// What a row asks for on average where rows come by chance: all of its row group, unless the one before was of it.
    pub bytes_by_chance: f64,
}

/// Bytes of one file, in which samples lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub file: usize,
    pub range: Range<u64>,
}

/// Endings of the files of a format; others in the folder are not of the set.
fn endings(format: Format) -> &'static [&'static str] {
    match format {
        Format::Jpeg => &["jpg", "jpeg"],
        Format::Npz => &["npz"],
        Format::Npy => &["npy"],
        Format::Tfrecord => &["tfrecord", "tfrecords"],
        Format::Parquet => &["parquet"],
        Format::Tar => &["tar"],
        Format::Raw => &[],
    }
}

/// Whether a file is of the set. TFRecord shards are often named without an ending: `train-00000-of-01024`.
pub fn belongs(format: Format, name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let ending = file.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    let endings = endings(format);
    endings.is_empty()
        || endings.contains(&ending.as_str())
        || format == Format::Tfrecord && (file.contains("-of-") || file.contains(".tfrecord"))
}

impl Set {
    /// What a target has of the workload's format. Packed files are scanned by so many threads.
    pub fn of(target: &dyn Target, files: &Files, threads: usize) -> Result<Set> {
        let listed = target.list()?;
        let count = listed.len();
        let found: Vec<Listed> =
            listed.into_iter().filter(|file| file.bytes > 0 && belongs(files.format, &file.name)).collect();
        if found.is_empty() {
            let what = format!("there is no file of the workload's format among {count}");
            return Err(Error::missing(what, target.url()).hint(format!(
                "it reads {} files; make a set with `stoker bench data`, or name another folder or workload",
                files.format.name()
            )));
        }
        let spans = index::spans(target, &found, files, threads)?;
        Ok(Set::joined(found, spans, files, true))
    }

    /// These files as they are, whatever is in them: enough to probe a target with.
    pub fn plain(listed: Vec<Listed>) -> Set {
        let spans = listed.iter().map(|_| Spans::Whole).collect();
        let mean = listed.iter().map(|file| file.bytes as f64).sum::<f64>() / listed.len().max(1) as f64;
        let files = Files { count: listed.len() as u64, samples_per_file: 1, sample_bytes: mean, ..Files::default() };
        Set::joined(listed, spans, &files, true)
    }

    /// The set of a workload without any bytes, sizes drawn as the workload says.
    pub fn imagined(files: &Files, samples: u64, seed: u64) -> Set {
        let count = samples.div_ceil(files.samples_per_file).max(1);
        let mut chance = Chance::of(seed, 0x5e7);
        let drawn = |number: u64, chance: &mut Chance| {
            let sample = (files.sample_bytes + files.sample_bytes_stdev * normal(chance)).abs().max(1.0) as u64;
            Listed { name: Arc::from(format!("{number:08}")), bytes: sample * files.samples_per_file }
        };
        let listed: Vec<Listed> = (0..count).map(|number| drawn(number, &mut chance)).collect();
        let spans = listed.iter().map(|file| even(file.bytes, files.samples_per_file)).collect();
        Set::joined(listed, spans, files, false)
    }

    /// The same files, each of them a row group of so many samples.
    pub fn in_groups(self, rows: u64, files: &Files) -> Set {
        let group = |file: &Listed| {
            Spans::Groups(vec![Group { rows: 0..rows, ranges: std::iter::once(0..file.bytes).collect() }])
        };
        let spans = self.files.iter().map(group).collect();
        Set::joined(self.files, spans, files, self.real)
    }

    fn joined(listed: Vec<Listed>, spans: Vec<Spans>, files: &Files, real: bool) -> Set {
        let mut numbers = Vec::with_capacity(listed.len());
        let mut next = 0;
        for span in &spans {
            numbers.push(next..next + span.count());
            next += span.count();
        }
        let mut count = Groups::default();
        for group in spans.iter().flat_map(Spans::groups) {
            (count.groups, count.ranges) = (count.groups + 1, count.ranges + group.ranges.len() as u64);
            let part = (group.rows.end - group.rows.start) as f64 / next as f64;
            count.bytes_by_chance += part * (1.0 - part) * group.bytes() as f64;
        }
        let groups = (count.groups > 0).then_some(count);
        // Of row groups all is read that their spans name.
        let share = if groups.is_some() { 1.0 } else { files.share() };
        let (format, is_whole) = (files.format, spans.iter().all(|span| *span == Spans::Whole));
        Set { files: listed, spans, is_whole, numbers, format, share, groups, together: 1.0, piece: PIECE, real }
    }

    pub fn samples(&self) -> u64 {
        self.numbers.last().map_or(0, |range| range.end)
    }

    pub fn bytes(&self) -> u64 {
        // Of a store they are what the store says.
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Bytes that a sample asks of the target, on average.
    pub fn sample_bytes(&self) -> f64 {
        let wanted: u64 = self.files.iter().zip(&self.spans).map(|(file, spans)| spans.wanted(file)).sum();
        wanted as f64 * self.share / self.samples().max(1) as f64
    }

    /// What is read of each row group of a file, in the order of the file.
    pub fn ranges(&self, file: usize) -> impl Iterator<Item = &Range<u64>> {
        self.spans[file].groups().iter().flat_map(|group| &group.ranges)
    }

    /// Whether a sample is a whole file.
    pub fn whole(&self) -> bool {
        self.is_whole
    }

    /// Where samples lie that are in one run: one piece for each file. Of row groups all is read that is wanted of any
    /// row, but of the one that a reader `kept`, as (file, number), nothing anew; it keeps the last.
    pub fn locate(&self, samples: &Range<u64>, kept: &mut Option<(usize, usize)>) -> Vec<Run> {
        let mut found = Vec::new();
        let mut next = samples.start;
        let mut file = self.numbers.partition_point(|numbers| numbers.end <= next);
        while next < samples.end {
            let numbers = &self.numbers[file];
            let to = samples.end.min(numbers.end);
            let within = next - numbers.start..to - numbers.start;
            match &self.spans[file] {
                Spans::Groups(groups) => {
                    let first = groups.partition_point(|group| group.rows.end <= within.start);
                    let touched = groups.iter().enumerate().skip(first);
                    for (place, group) in touched.take_while(|(_, group)| group.rows.start < within.end) {
                        if kept.replace((file, place)) != Some((file, place)) {
                            found.extend(group.ranges.iter().map(|range| Run { file, range: range.clone() }));
                        }
                    }
                }
                spans => found.push(Run { file, range: spans.range(&self.files[file], within) }),
            }
            (next, file) = (to, file + 1);
        }
        found
    }

    /// Where each sample of a run begins and ends, counted from the beginning of the run.
    pub fn bounds(&self, run: &Run) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut from = run.range.start;
        while from < run.range.end {
            let to = self.stop(run, from, 0);
            found.push(((from - run.range.start) as usize, (to - run.range.start) as usize));
            from = to;
        }
        found
    }

    /// Bytes from the beginning of a file at which one of its samples ends, at or before `most` bytes past `from`, but
    /// at least one sample further: where a long run can be cut.
    pub fn stop(&self, run: &Run, from: u64, most: u64) -> u64 {
        let limit = from + most;
        if limit >= run.range.end {
            return run.range.end;
        }
        match &self.spans[run.file] {
            Spans::Whole | Spans::Groups(_) => run.range.end,
            Spans::Even { bytes, .. } => (limit / bytes * bytes).max(from + bytes).min(run.range.end),
            Spans::Starts(starts) => {
                let last = starts.partition_point(|&start| start <= limit) - 1;
                let next = starts.partition_point(|&start| start <= from);
                starts[last.max(next)].min(run.range.end)
            }
        }
    }
}

/// A number of the standard normal distribution (Box and Muller).
fn normal(chance: &mut Chance) -> f64 {
    let mut even = || (chance.draw() >> 11) as f64 / (1_u64 << 53) as f64;
    let (first, second) = (1.0 - even(), even());
    (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}

#[cfg(test)]
// One range of bytes is one column, not a list of bytes.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    fn set(spans: Vec<Spans>) -> Set {
        let files = spans.iter().enumerate().map(|(number, span)| {
            let bytes = match span {
                Spans::Whole => 7,
                Spans::Even { count, bytes } => count * bytes,
                Spans::Starts(starts) => *starts.last().unwrap(),
                Spans::Groups(_) => 100,
            };
            Listed { name: number.to_string().into(), bytes }
        });
        let shape = Files { format: Format::Raw, count: 1, samples_per_file: 1, sample_bytes: 7.0, ..Files::default() };
        Set::joined(files.collect(), spans.clone(), &shape, true)
    }

    #[test]
    fn samples_are_found_where_they_lie() {
        let set = set(vec![Spans::Whole, Spans::Even { count: 3, bytes: 10 }, Spans::Starts(vec![0, 5, 20])]);
        assert_eq!(set.samples(), 6);
        let run = |file, range| Run { file, range };
        assert_eq!(set.locate(&(0..1), &mut None), [run(0, 0..7)]);
        assert_eq!(set.locate(&(2..4), &mut None), [run(1, 10..30)]);
        assert_eq!(set.locate(&(0..6), &mut None), [run(0, 0..7), run(1, 0..30), run(2, 0..20)]);
        assert_eq!(set.stop(&run(1, 0..30), 0, 25), 20);
        assert_eq!(set.stop(&run(1, 0..30), 0, 1), 10);
        assert_eq!(set.stop(&run(2, 0..20), 0, 6), 5);
        assert_eq!(set.stop(&run(2, 0..20), 5, 6), 20);
    }

    #[test]
    fn a_row_group_is_read_once_for_rows_that_follow_each_other() {
        let group = |rows, ranges: &[Range<u64>]| Group { rows, ranges: ranges.to_vec() };
        let two = || vec![group(0..4, &[4..10, 20..22]), group(4..6, &[30..40])];
        let set = set(vec![Spans::Groups(two()), Spans::Groups(two())]);
        assert_eq!(set.samples(), 12);
        // Two thirds of the rows are of groups of 8 bytes and a third of 10, and each group is read anew but by chance.
        let bytes_by_chance = 16.0 / 3.0 * 2.0 / 3.0 + 10.0 / 3.0 * 5.0 / 6.0;
        assert_eq!(set.groups.map(|count| (count.groups, count.ranges)), Some((4, 6)));
        assert!(set.groups.is_some_and(|count| (count.bytes_by_chance - bytes_by_chance).abs() < 1e-9));
        assert!((set.sample_bytes() - 3.0).abs() < 1e-9);
        let run = |file, range| Run { file, range };
        let mut kept = None;
        assert_eq!(set.locate(&(1..3), &mut kept), [run(0, 4..10), run(0, 20..22)]);
        assert_eq!(set.locate(&(3..4), &mut kept), []);
        assert_eq!(set.locate(&(3..7), &mut kept), [run(0, 30..40), run(1, 4..10), run(1, 20..22)]);
        assert_eq!(set.locate(&(7..8), &mut kept), []);
        assert_eq!(set.locate(&(3..4), &mut kept), [run(0, 4..10), run(0, 20..22)], "another was read meanwhile");
        assert_eq!(set.stop(&run(0, 4..10), 4, 1), 10, "a range is never cut between rows");
    }

    #[test]
    fn shards_are_known_by_their_names() {
        assert!(belongs(Format::Tfrecord, "a/train-00000-of-01024"));
        assert!(belongs(Format::Jpeg, "train/n1/n1_1.JPEG"));
        assert!(!belongs(Format::Jpeg, "train/labels.txt"));
        assert!(belongs(Format::Raw, "anything"));
    }
}
