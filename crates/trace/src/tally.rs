//! What is remembered of a file, of an open, of a process and of a group of files.
//!
//! Plain sums. Invariant: each has a fixed size, but for the threads of a process, which are bounded.

use std::collections::HashMap;

use super::Event;
use workload::Format;

/// Threads of one process that are told apart; a pool has at most a few hundred.
const THREADS_MAX: usize = 1 << 10;

/// Streams within one open that are followed: threads that read parts of one file side by side.
const STREAMS: usize = 4;

/// One file of the folder.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTally {
    /// Its place in the order of first opens.
    pub index: u32,
    pub group: u16,
    pub size: u64,
    pub opens: u32,
    /// How often the program came to read it.
    pub visits: u32,
    pub bytes: u64,
}

/// An open file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenTally {
    pub reads: u64,
    pub bytes: u64,
    /// Where the last reads ended.
    ends: [u64; STREAMS],
    next: usize,
}

impl OpenTally {
    /// Whether a read goes on where an earlier one ended.
    pub fn follow(&mut self, offset: u64, length: u32) -> bool {
        let known = self.ends[..self.next.min(STREAMS)].iter().position(|&end| end == offset);
        let place = known.unwrap_or(self.next % STREAMS);
        self.ends[place] = offset + u64::from(length);
        self.next += usize::from(known.is_none());
        known.is_some()
    }
}

/// A process that asked for something.
#[derive(Clone, Debug, Default)]
pub struct ProcessTally {
    pub opens: u64,
    pub reads: u64,
    pub bytes: u64,
    pub idle: Idle,
    pub last_file: Option<u64>,
    pub threads: HashMap<u32, Thread>,
}

/// A thread that asked for something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thread {
    pub first_ns: u64,
    pub last_ns: u64,
    pub bytes: u64,
    pub reads: u64,
    pub idle: Idle,
}

/// How long somebody asks for nothing: a thread, a process, or all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle {
    /// When the last answer was given.
    last_ns: Option<u64>,
    /// The longest time without a request since the last read.
    gap_ns: u64,
    has_read: bool,
}

impl Idle {
    /// How long nothing was asked before this event, since the last read; an open counts to the read that follows it.
    /// Before the first read there is no pause between reads.
    pub fn wait(&mut self, event: &Event) -> Option<u64> {
        let gap = self.last_ns.map(|last| event.begin_ns.saturating_sub(last));
        self.last_ns = self.last_ns.max(Some(event.end_ns));
        self.gap_ns = self.gap_ns.max(gap.unwrap_or(0));
        let longest = self.has_read.then_some(self.gap_ns);
        if matches!(event.what, super::What::Read { .. }) {
            (self.gap_ns, self.has_read) = (0, true);
        }
        longest
    }
}

impl ProcessTally {
    /// The gaps of the process and of the thread.
    pub fn wait(&mut self, event: &Event) -> [Option<u64>; 2] {
        let process = self.idle.wait(event);
        let thread = self.thread(event).and_then(|thread| thread.idle.wait(event));
        [process, thread]
    }

    pub fn count(&mut self, event: &Event, bytes: u64) {
        self.reads += 1;
        self.bytes += bytes;
        let Some(tally) = self.thread(event) else { return };
        if tally.reads == 0 {
            tally.first_ns = event.begin_ns;
        }
        tally.last_ns = event.end_ns;
        tally.bytes += bytes;
        tally.reads += 1;
    }

    fn thread(&mut self, event: &Event) -> Option<&mut Thread> {
        let is_known = self.threads.len() < THREADS_MAX || self.threads.contains_key(&event.thread);
        is_known.then(|| self.threads.entry(event.thread).or_default())
    }
}

/// One read, as order and pace see it.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// How long all processes, its process and its thread asked for nothing before; none before their first read.
    pub gaps_ns: [Option<u64>; 3],
    pub process: u32,
    pub thread: u32,
    /// Index of the file.
    pub file: u32,
    /// The how manieth visit of the file this belongs to.
    pub visit: u32,
    pub length: u32,
    /// Whether it began that visit.
    pub starts: bool,
}

/// Files whose names end alike.
#[derive(Clone, Debug)]
pub struct GroupTally {
    pub ending: String,
    pub format: Format,
    pub reads: u64,
    pub bytes: u64,
    bytes_squared: f64,
    /// Reads that were not the first of their open, and those of them that went on where another had ended.
    pub later: u64,
    pub followed: u64,
}

impl GroupTally {
    pub fn of(ending: &str) -> GroupTally {
        let format = match ending {
            "jpg" | "jpeg" => Format::Jpeg,
            "npz" => Format::Npz,
            "npy" => Format::Npy,
            "tfrecord" | "tfrecords" | "tfrec" => Format::Tfrecord,
            "parquet" => Format::Parquet,
            "tar" => Format::Tar,
            _ => Format::Raw,
        };
        let ending = ending.to_owned();
        GroupTally { ending, format, reads: 0, bytes: 0, bytes_squared: 0.0, later: 0, followed: 0 }
    }

    pub fn count(&mut self, length: u32, first: bool, follows: bool) {
        self.reads += 1;
        self.bytes += u64::from(length);
        self.bytes_squared += f64::from(length).powi(2);
        self.later += u64::from(!first);
        self.followed += u64::from(!first && follows);
    }

    /// Mean length of a read and its standard deviation.
    pub fn lengths(&self) -> (f64, f64) {
        if self.reads == 0 {
            return (0.0, 0.0);
        }
        let (count, sum) = (self.reads as f64, self.bytes as f64);
        let mean = sum / count;
        (mean, (self.bytes_squared / count - mean * mean).max(0.0).sqrt())
    }
}
