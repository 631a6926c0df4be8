//! What a program asks of a folder, and the workload that asks the same: events in, figures out.
//!
//! Layout:
//! - [`Event`] is one open, read or close; [`Tracer`] adds them up as they come; [`Trace`] is what was found.
//! - `tally`: what is remembered of a file, an open and a process. `timeline`: opens, reads and bytes over time.
//! - `sizes`: how many of each size. `order`: in which order files were visited. `gaps`: which of them are pauses; `pace`:
//!   the batches between them, and who reads one.
//! - `records`: the records of TFRecord files. [`derive`]: a trace as a workload and as the step of an accelerator.
//!
//! It takes no time, opens no file and knows nothing of how events were gathered. Invariants: its memory is bounded by
//! the constants here, whatever the program does; what was left out for that is counted.

pub mod derive;
mod gaps;
mod order;
mod pace;
pub mod records;
mod sizes;
mod summary;
mod tally;
mod timeline;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hdrhistogram::Histogram;

pub use order::Judgement;
pub use pace::{Owner, Pace};
pub use sizes::{Bin, Sizes};
pub use summary::{Group, Inside, Process, Trace};
pub use timeline::Slice;

use tally::{FileTally, GroupTally, Idle, Moment, OpenTally, ProcessTally};
use timeline::Timeline;

/// Files of which more is remembered than that there were more: 100 bytes each, and their names for the first.
pub const FILES_MAX: usize = 1 << 20;

/// Files whose names are kept, to compare the order of visits with that of the names.
pub const NAMES_MAX: usize = 1 << 16;

/// Reads that order and pace are judged by, the first of the run: 96 bytes each. All others are counted.
pub const MOMENTS_MAX: usize = 1 << 18;

/// Files open at the same moment; a process may commonly have 1024.
pub const OPENS_MAX: usize = 1 << 16;

/// Processes told apart, and threads of each.
pub const PROCESSES_MAX: usize = 1 << 12;

/// Endings of names told apart; the others are one.
pub const GROUPS_MAX: usize = 256;

/// Longer reads count as this long: an hour.
const READ_NS_MAX: u64 = 3_600_000_000_000;

/// One thing that a program did. Times are nanoseconds since the observation began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub begin_ns: u64,
    /// When it was answered.
    pub end_ns: u64,
    pub process: u32,
    pub thread: u32,
    /// The same for the same path, and for no other.
    pub file: u64,
    /// The same from an open to its close, and never again.
    pub open: u64,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Open {
        /// Relative to the folder.
        path: Arc<[u8]>,
        size: u64,
        /// Place in the listing of its folder, from 1; 0 if the program never listed it.
        listed: u32,
    },
    /// What lay in the file of what was asked for.
    Read {
        offset: u64,
        length: u32,
    },
    Close,
}

/// Adds events up. They are to come in the order in which they began.
pub struct Tracer {
    first_ns: Option<u64>,
    last_ns: u64,
    timeline: Timeline,
    files: HashMap<u64, FileTally>,
    /// By index of the file, as far as they are kept.
    names: Vec<(Arc<[u8]>, u32)>,
    groups: Vec<GroupTally>,
    group_of: HashMap<Box<[u8]>, u16>,
    opens: HashMap<u64, OpenTally>,
    processes: BTreeMap<u32, ProcessTally>,
    /// Of all processes together.
    idle: Idle,
    moments: Vec<Moment>,
    requests: Sizes,
    read_ns: Histogram<u64>,
    totals: Totals,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    opens: u64,
    reads: u64,
    bytes: u64,
    /// Events of files, opens or processes beyond those that are told apart.
    beyond: u64,
}

impl Default for Tracer {
    fn default() -> Tracer {
        Tracer::new()
    }
}

impl Tracer {
    pub fn new() -> Tracer {
        Tracer {
            first_ns: None,
            last_ns: 0,
            timeline: Timeline::default(),
            files: HashMap::new(),
            names: Vec::new(),
            groups: Vec::new(),
            group_of: HashMap::new(),
            opens: HashMap::new(),
            processes: BTreeMap::new(),
            idle: Idle::default(),
            moments: Vec::new(),
            requests: Sizes::default(),
            read_ns: Histogram::new_with_bounds(1, READ_NS_MAX, 3).expect("the bounds are in order"),
            totals: Totals::default(),
        }
    }

    pub fn add(&mut self, event: &Event) {
        self.first_ns.get_or_insert(event.begin_ns);
        self.last_ns = self.last_ns.max(event.end_ns);
        match &event.what {
            What::Open { path, size, listed } => self.opened(event, path, *size, *listed),
            What::Read { offset, length } => self.read(event, *offset, *length),
            What::Close => self.closed(event),
        }
    }

    fn opened(&mut self, event: &Event, path: &Arc<[u8]>, size: u64, listed: u32) {
        self.totals.opens += 1;
        self.slice(event).opens += 1;
        let known = self.file(event.file, path, size, listed);
        if known {
            let file = self.files.get_mut(&event.file).expect("it was just seen to be there");
            file.opens = file.opens.saturating_add(1);
            file.size = size;
        }
        if known && self.opens.len() < OPENS_MAX {
            self.opens.insert(event.open, OpenTally::default());
        } else {
            self.totals.beyond += 1;
        }
        self.idle.wait(event);
        if let Some(process) = self.process(event) {
            process.opens += 1;
            process.wait(event);
        }
    }

    fn read(&mut self, event: &Event, offset: u64, length: u32) {
        self.totals.reads += 1;
        self.totals.bytes += u64::from(length);
        let slice = self.slice(event);
        slice.reads += 1;
        slice.bytes += u64::from(length);
        self.requests.add(u64::from(length));
        self.read_ns.saturating_record(event.end_ns.saturating_sub(event.begin_ns).max(1));
        let all = self.idle.wait(event);
        let Some(process) = self.process(event) else { return self.totals.beyond += 1 };
        let [own, thread] = process.wait(event);
        process.count(event, u64::from(length));
        let last_file = process.last_file.replace(event.file);
        let (Some(open), Some(file)) = (self.opens.get_mut(&event.open), self.files.get_mut(&event.file)) else {
            return self.totals.beyond += 1;
        };
        let follows = open.follow(offset, length);
        // A file opened again right away, to look at its head first, is still the same visit.
        let again = offset == 0 && open.bytes >= file.size;
        let starts = again || open.reads == 0 && last_file != Some(event.file);
        if again {
            (open.bytes, open.reads) = (0, 0);
        }
        let first = open.reads == 0;
        open.reads += 1;
        open.bytes += u64::from(length);
        if starts {
            file.visits = file.visits.saturating_add(1);
        }
        file.bytes += u64::from(length);
        self.groups[usize::from(file.group)].count(length, first, follows);
        if self.moments.len() < MOMENTS_MAX {
            let (file, visit) = (file.index, file.visits);
            let Event { begin_ns, end_ns, process, thread: by, .. } = *event;
            let gaps_ns = [all, own, thread];
            self.moments.push(Moment { begin_ns, end_ns, gaps_ns, process, thread: by, file, visit, length, starts });
        }
    }

    /// The slice of time that an event began in, from the first on.
    fn slice(&mut self, event: &Event) -> &mut Slice {
        self.timeline.slice(event.begin_ns.saturating_sub(self.first_ns.unwrap_or(0)))
    }

    fn closed(&mut self, event: &Event) {
        self.opens.remove(&event.open);
    }

    /// Whether the file is among those that are told apart.
    fn file(&mut self, file: u64, path: &Arc<[u8]>, size: u64, listed: u32) -> bool {
        if self.files.contains_key(&file) {
            return true;
        }
        if self.files.len() >= FILES_MAX {
            return false;
        }
        let index = self.files.len() as u32;
        if self.names.len() < NAMES_MAX {
            self.names.push((path.clone(), listed));
        }
        let group = self.group(path);
        self.files.insert(file, FileTally { index, group, size, ..FileTally::default() });
        true
    }

    /// The group of a name: those that end alike.
    fn group(&mut self, path: &[u8]) -> u16 {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let dot = name.iter().rposition(|&byte| byte == b'.').filter(|&at| at > 0);
        let ending: Box<[u8]> = dot.map_or(&[][..], |at| &name[at + 1..]).to_ascii_lowercase().into();
        if let Some(&group) = self.group_of.get(&ending) {
            return group;
        }
        if self.groups.len() >= GROUPS_MAX {
            return (GROUPS_MAX - 1) as u16;
        }
        let group = self.groups.len() as u16;
        self.groups.push(GroupTally::of(&String::from_utf8_lossy(&ending)));
        self.group_of.insert(ending, group);
        group
    }

    fn process(&mut self, event: &Event) -> Option<&mut ProcessTally> {
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&event.process) {
            return None;
        }
        Some(self.processes.entry(event.process).or_default())
    }

    /// All that was found. `lost`: events that never came here.
    pub fn finish(self, lost: u64) -> Trace {
        summary::of(self, lost)
    }
}
