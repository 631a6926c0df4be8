//! What was found, of what was added up.
//!
//! It judges order and pace by the files that most bytes were read of: a list of labels beside a million images is no
//! part of the workload. Invariant: every figure of a [`Trace`] can be written as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use workload::{Format, Order};

use super::Tracer;
use super::order::{self, Judgement};
use super::pace::{self, Pace, Unit, median};
use super::records::Records;
use super::sizes::{Bin, Sizes};
use super::tally::{FileTally, GroupTally};
use super::timeline::{Slice, Timeline};

/// Processes that are listed one by one: those that read most.
const PROCESSES_LISTED: usize = 64;

/// Files that are named.
const EXAMPLES: usize = 8;

/// A thread that read a smaller share than this of what the busiest read is no reader of the set.
const READER_SHARE: f64 = 0.05;

/// So many reads of an open before reading here and there counts as random: heads, indexes and tails are fewer.
const RANDOM_READS_MIN: f64 = 8.0;

/// What a program asked of a folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// From the first request to the last answer.
    pub seconds: f64,
    pub opens: u64,
    pub reads: u64,
    pub bytes: u64,
    /// Those that it is all judged by comes first: most bytes were read of it.
    pub groups: Vec<Group>,
    pub request_sizes: Vec<Bin>,
    /// How long reads took, in seconds, by percentile: `p50`, `p99`, `max`.
    pub read_seconds: BTreeMap<String, f64>,
    pub processes: Vec<Process>,
    pub process_count: u64,
    /// Threads that read at the same time, over all processes.
    pub streams: u64,
    /// How long the command ran, as far as that is known: what is derived has to fit in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// The same if each read is a record, for files that turn out to hold many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_of_reads: Option<Pace>,
    pub slice_seconds: f64,
    pub timeline: Vec<Slice>,
    /// Events that were dropped because they came faster than they could be taken.
    pub lost: u64,
    /// Events that were counted, but of files, opens or processes beyond those that are told apart.
    pub beyond: u64,
}

/// Files whose names end alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Of their names; empty if they have none.
    pub ending: String,
    pub format: Format,
    /// Files that were read.
    pub files: u64,
    pub file_bytes_mean: f64,
    pub file_bytes_stdev: f64,
    pub file_sizes: Vec<Bin>,
    pub reads: u64,
    pub bytes: u64,
    pub read_bytes_mean: f64,
    pub read_bytes_stdev: f64,
    /// How often a file was read, in the middle and on average.
    pub epochs: f64,
    pub epochs_mean: f64,
    /// Files that were read to the end each time.
    pub whole_percent: f64,
    /// Reads that went on where one before had ended, of all but the first of an open.
    pub sequential_percent: f64,
    pub inside: Inside,
    pub order: Order,
    pub judged_by: Judgement,
    /// A few of the files, relative to the folder.
    pub examples: Vec<String>,
    /// Of a sample of files, where they hold records that can be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Records>,
}

/// How files were read inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Inside {
    Sequential,
    Random,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub process: u32,
    pub threads: u64,
    pub opens: u64,
    pub reads: u64,
    pub bytes: u64,
}

pub fn of(tracer: Tracer, lost: u64) -> Trace {
    let groups = groups(&tracer);
    let pace_of_reads = groups.first().and_then(|group| pace_of(&tracer, group, Unit::Reads));
    let unit = |group: &Group| if group.is_packed() { Unit::Reads } else { Unit::Visits };
    let pace = groups.first().and_then(|group| pace_of(&tracer, group, unit(group)));
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let Timeline { width_ns, slices } = &tracer.timeline;
    let read = |(name, at): (&str, f64)| (name.to_owned(), seconds(tracer.read_ns.value_at_quantile(at)));
    let read_seconds = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)].map(read).into();
    let mut processes: Vec<Process> = tracer.processes.iter().map(process).collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.bytes));
    processes.truncate(PROCESSES_LISTED);
    Trace {
        seconds: seconds(tracer.last_ns - tracer.first_ns.unwrap_or(tracer.last_ns)),
        opens: tracer.totals.opens,
        reads: tracer.totals.reads,
        bytes: tracer.totals.bytes,
        groups,
        request_sizes: tracer.requests.bins(),
        read_seconds,
        processes,
        process_count: tracer.processes.len() as u64,
        streams: streams(&tracer),
        run_seconds: None,
        pace,
        pace_of_reads,
        slice_seconds: seconds(*width_ns),
        timeline: slices.clone(),
        lost,
        beyond: tracer.totals.beyond,
    }
}

fn process((&process, tally): (&u32, &super::tally::ProcessTally)) -> Process {
    let threads = tally.threads.values().filter(|thread| thread.reads > 0).count() as u64;
    Process { process, threads, opens: tally.opens, reads: tally.reads, bytes: tally.bytes }
}

/// All groups of which something was read, the one with most bytes first.
fn groups(tracer: &Tracer) -> Vec<Group> {
    let read = |(index, tally): (usize, &GroupTally)| (tally.reads > 0).then_some(index);
    let mut groups: Vec<Group> = tracer
        .groups
        .iter()
        .enumerate()
        .filter_map(read)
        .map(|index| {
            let files: Vec<&FileTally> =
                tracer.files.values().filter(|file| usize::from(file.group) == index && file.visits > 0).collect();
            group(tracer, index, &files)
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
    groups
}

fn group(tracer: &Tracer, index: usize, files: &[&FileTally]) -> Group {
    let tally = &tracer.groups[index];
    let count = files.len() as f64;
    let mean = files.iter().map(|file| file.size as f64).sum::<f64>() / count.max(1.0);
    let squares = files.iter().map(|file| (file.size as f64 - mean).powi(2)).sum::<f64>();
    let mut sizes = Sizes::default();
    files.iter().for_each(|file| sizes.add(file.size));
    let sequential = if tally.later == 0 { 1.0 } else { tally.followed as f64 / tally.later as f64 };
    let visits = files.iter().map(|file| f64::from(file.visits)).sum::<f64>();
    let whole = files.iter().filter(|file| file.bytes >= file.size * u64::from(file.visits)).count() as f64;
    let is_random = sequential < 0.5 && tally.reads as f64 / visits.max(1.0) >= RANDOM_READS_MIN;
    let inside = if is_random { Inside::Random } else { Inside::Sequential };
    let members = members(tracer, index);
    let judged_by = order::judge(&tracer.moments, &tracer.names, |file| members[file as usize]);
    let is_packed = matches!(tally.format, Format::Tfrecord | Format::Tar | Format::Parquet);
    let order = match inside {
        Inside::Random => Order::Random,
        Inside::Sequential if judged_by.is_fixed() => Order::Sequential,
        Inside::Sequential if is_packed => Order::Shards,
        Inside::Sequential => Order::Shuffled,
    };
    let (read_bytes_mean, read_bytes_stdev) = tally.lengths();
    Group {
        ending: tally.ending.clone(),
        format: tally.format,
        files: files.len() as u64,
        file_bytes_mean: mean,
        file_bytes_stdev: (squares / count.max(1.0)).sqrt(),
        file_sizes: sizes.bins(),
        reads: tally.reads,
        bytes: tally.bytes,
        read_bytes_mean,
        read_bytes_stdev,
        epochs: median(&mut files.iter().map(|file| epochs(file, inside)).collect::<Vec<_>>()),
        epochs_mean: files.iter().map(|file| epochs(file, inside)).sum::<f64>() / count.max(1.0),
        whole_percent: 100.0 * whole / count.max(1.0),
        sequential_percent: 100.0 * sequential,
        inside,
        order,
        judged_by,
        examples: examples(tracer, &members),
        records: None,
    }
}

/// How often a file was read: by visits, or by its bytes where records are read from it while it stays open.
fn epochs(file: &FileTally, inside: Inside) -> f64 {
    match inside {
        Inside::Sequential => f64::from(file.visits),
        Inside::Random => (file.bytes as f64 / file.size.max(1) as f64).round().max(1.0),
    }
}

/// The files that were opened first.
fn examples(tracer: &Tracer, members: &[bool]) -> Vec<String> {
    let names = tracer.names.iter().zip(members).filter(|(_, member)| **member);
    names.take(EXAMPLES).map(|((name, _), _)| String::from_utf8_lossy(name).into_owned()).collect()
}

/// For each file by its index whether it is of the group.
fn members(tracer: &Tracer, group: usize) -> Vec<bool> {
    let mut members = vec![false; tracer.files.len()];
    tracer.files.values().for_each(|file| members[file.index as usize] = usize::from(file.group) == group);
    members
}

fn pace_of(tracer: &Tracer, group: &Group, unit: Unit) -> Option<Pace> {
    let index = tracer.groups.iter().position(|tally| tally.ending == group.ending)?;
    let members = members(tracer, index);
    pace::judge(&tracer.moments, unit, |file| members[file as usize])
}

impl Trace {
    /// The files that it is judged by hold these records: a look into them told.
    pub fn know(&mut self, records: Records) {
        let Some(group) = self.groups.first_mut() else { return };
        group.records = Some(records);
        if group.order == Order::Shuffled {
            group.order = Order::Shards;
        }
        self.pace = self.pace_of_reads;
    }

    /// At most so many slices of time: from when, how long, and what was asked in each.
    pub fn coarse(&self, most: usize) -> Vec<(f64, f64, Slice)> {
        let timeline = Timeline { width_ns: (self.slice_seconds * 1e9) as u64, slices: self.timeline.clone() };
        let coarse = timeline.coarse(most);
        let seconds = coarse.width_ns as f64 / 1e9;
        coarse.slices.iter().enumerate().map(|(place, &slice)| (place as f64 * seconds, seconds, slice)).collect()
    }
}

impl Group {
    /// Whether a file holds many samples, as far as reading it shows: records of their own, or parts of one big file.
    pub fn is_packed(&self) -> bool {
        self.inside == Inside::Random || self.records.is_some() || self.format == Format::Tfrecord || self.files == 1
    }
}

/// The most threads that were reading, each from its first read to its last, at the same moment.
fn streams(tracer: &Tracer) -> u64 {
    let threads =
        || tracer.processes.values().flat_map(|process| process.threads.values()).filter(|thread| thread.reads > 0);
    let busiest = threads().map(|thread| thread.bytes).max().unwrap_or(0) as f64;
    let readers = threads().filter(|thread| thread.bytes as f64 >= READER_SHARE * busiest);
    // An end before a beginning of the same moment: they did not read together.
    let mut edges: Vec<(u64, i64)> = readers.flat_map(|thread| [(thread.first_ns, 1), (thread.last_ns, -1)]).collect();
    edges.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in edges {
        now += change;
        most = most.max(now);
    }
    most.unsigned_abs()
}
