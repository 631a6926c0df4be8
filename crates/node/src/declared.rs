//! What a job said that it will read, in which order, and how far its readers have come.
//!
//! Opens come in, what to ask for next comes out; nothing is read here. An order is advice: files that are opened in another
//! order than was said cost nothing but what was asked for in vain, and an order that nobody follows rests until somebody
//! does. Invariant: what is remembered of an order is its files of two epochs and a window, whatever was said.

use crate::process::Process;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Files ahead of the readers that are looked at.
pub const WINDOW_FILES: usize = 16 << 10;

/// Files of all orders of a data set: eight bytes each in memory, and as many again while the next epoch is dealt.
pub const FILES_MAX: usize = 1 << 23;

/// Files by which workers open out of order; what lies further back was left out.
const OUT_OF_ORDER: usize = 1024;

/// Opens of files that no order names, and of those that others name, after which one of whose files none was opened
/// meanwhile rests.
const STRAYS_MAX: u32 = 64;
const OTHERS_MAX: u32 = 4096;

/// The same of an order that no job said, or of which no file was opened yet.
const STRAYS_UNPROVEN_MAX: u32 = 16;

/// After so long without an open by it, an order that belongs to no process is forgotten; and for another one, where there is no
/// room for both, any order.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);
const GIVES_WAY_AFTER: Duration = Duration::from_secs(3600);

/// Threads that are remembered of those that open by an order.
const OPENERS_MAX: usize = 64;

/// Files of an epoch that nobody said, after which it is believed to have begun as it was thought.
const BEGUN_MIN: u32 = 4;

/// Share of the past that an open takes off the estimate of how fast files are read.
const FORGOTTEN: f64 = 1.0 / 64.0;

/// Between two files, before it is known how fast they are read: the order counts.
const PACE_UNKNOWN: Duration = Duration::from_millis(1);

/// How an order is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A job said so.
    #[default]
    Declared,
    /// Its sampler was looked at.
    Peeked,
    /// From opens alone: those that a sampler deals.
    Formula,
    /// From opens alone: an epoch repeats the one before.
    Repeat,
}

impl Source {
    /// As it stands in the status.
    pub fn name(self) -> &'static str {
        match self {
            Source::Declared => "declared",
            Source::Peeked => "peeked",
            Source::Formula => "formula",
            Source::Repeat => "repeat",
        }
    }

    fn is_guessed(self) -> bool {
        matches!(self, Source::Formula | Source::Repeat)
    }
}

/// All orders of a data set, by name.
#[derive(Default)]
pub struct Orders {
    all: Vec<Order>,
    ids: u64,
    /// Files that were asked for, and that nobody will open now.
    let_go: Vec<u64>,
}

/// One reader's order.
pub struct Order {
    /// Among all that there ever were: a name may be given again.
    id: u64,
    pub name: String,
    pub source: Source,
    /// Whose it is: with that process and the threads that open by it, it ends.
    process: Option<Process>,
    openers: Vec<u32>,
    /// When it was said, or something was opened by it last.
    followed: Instant,
    /// Files that are still to be opened, as nodes; the first ones are in the window.
    files: VecDeque<u64>,
    window: VecDeque<Seen>,
    /// Number of the first of them among all that there ever were.
    first: u64,
    /// Where in the window a node is, by such numbers.
    places: HashMap<u64, VecDeque<u64>>,
    /// Bytes of the window that were not opened, and those of them that were asked for.
    ahead_bytes: u64,
    pub asked_bytes: u64,
    pace: Pace,
    /// Number of the furthest file that was opened.
    furthest: u64,
    strays: u32,
    others: u32,
    /// Whether more files will be said when these run out.
    pub goes_on: bool,
    /// Number of the first file of an epoch that is only thought to come, and how many of its files were opened.
    held: Option<u64>,
    begun: u32,
    /// Opened as said; and left out.
    pub opened: u64,
    pub skipped: u64,
    /// Opens of files that no order names, while it was followed.
    pub misses: u64,
}

/// A file of the window.
struct Seen {
    bytes: u64,
    asked: u64,
    is_open: bool,
}

/// How fast files are read.
#[derive(Default)]
struct Pace {
    bytes: f64,
    seconds: f64,
    last: Option<Instant>,
}

/// What is to be asked for next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    order: u64,
    number: u64,
    pub node: u64,
    pub due: Instant,
}

impl Orders {
    /// An order begins, in place of one of that name.
    pub fn begin(&mut self, name: &str, source: Source, files: Vec<u64>, goes_on: bool, now: Instant) -> u64 {
        self.forget(name);
        self.ids += 1;
        self.all.push(Order {
            id: self.ids,
            name: name.into(),
            source,
            process: None,
            openers: Vec::new(),
            followed: now,
            files: files.into(),
            window: VecDeque::new(),
            first: 0,
            places: HashMap::new(),
            ahead_bytes: 0,
            asked_bytes: 0,
            pace: Pace::default(),
            furthest: 0,
            strays: 0,
            others: 0,
            goes_on,
            held: None,
            begun: 0,
            opened: 0,
            skipped: 0,
            misses: 0,
        });
        self.ids
    }

    /// Files that come after those of an order. False if there is no such order any more.
    pub fn go_on(&mut self, id: u64, files: Vec<u64>, goes_on: bool) -> bool {
        let order = self.all.iter_mut().find(|order| order.id == id);
        let Some(order) = order else { return false };
        if order.source.is_guessed() && order.held.is_none() {
            (order.held, order.begun) = (Some(order.first + order.files.len() as u64), 0);
        }
        order.files.extend(files);
        order.goes_on = goes_on;
        true
    }

    /// Whether there was one of that name.
    pub fn forget(&mut self, name: &str) -> bool {
        let Some(at) = self.all.iter().position(|order| order.name == name) else { return false };
        let mut order = self.all.remove(at);
        order.let_go(&mut self.let_go);
        true
    }

    /// Forget those that were found out and that rest.
    pub fn forget_unfollowed(&mut self) {
        let unfollowed = self.all.extract_if(.., |order| order.source.is_guessed() && order.rests());
        for mut order in unfollowed {
            order.let_go(&mut self.let_go);
        }
    }

    /// An order is that of a process, and ends with it.
    pub fn belongs(&mut self, id: u64, process: Process) {
        let order = self.all.iter_mut().find(|order| order.id == id);
        order.into_iter().for_each(|order| order.process = Some(process));
    }

    /// Forget those whose process has ended, with all threads that opened by it, and those that nobody has followed for long.
    /// Whether there were any.
    pub fn forget_left(&mut self, now: Instant, is_process: fn(Process) -> bool, is_thread: fn(u32) -> bool) -> bool {
        let left = |order: &mut Order| match order.process {
            Some(process) => !is_process(process) && !order.openers.iter().any(|thread| is_thread(*thread)),
            None => now.saturating_duration_since(order.followed) >= FORGOTTEN_AFTER,
        };
        let left: Vec<Order> = self.all.extract_if(.., left).collect();
        let are_any = !left.is_empty();
        left.into_iter().for_each(|mut order| order.let_go(&mut self.let_go));
        are_any
    }

    /// Forget the one that nobody has followed for longest, for another one. Whether there was one that gives way.
    pub fn give_way(&mut self, now: Instant) -> bool {
        let unfollowed = |order: &&Order| now.saturating_duration_since(order.followed) >= GIVES_WAY_AFTER;
        let longest = self.all.iter().filter(unfollowed).min_by_key(|order| order.followed);
        let Some(name) = longest.map(|order| order.name.clone()) else { return false };
        self.forget(&name)
    }

    /// Of an order that has just begun, these were opened already.
    pub fn read(&mut self, id: u64, nodes: &[u64], now: Instant) {
        let Some(order) = self.all.iter_mut().find(|order| order.id == id) else { return };
        for node in nodes {
            match order.distance(*node) {
                Some(_) => order.opened(*node, now, &mut self.let_go),
                None => drop(order.catch_up(*node, &mut self.let_go)),
            }
        }
    }

    /// Whether an order is still there.
    pub fn has(&self, id: u64) -> bool {
        self.all.iter().any(|order| order.id == id)
    }

    /// Files of all orders.
    pub fn files(&self) -> usize {
        self.all.iter().map(|order| order.files.len()).sum()
    }

    /// Files that were asked for and that nobody will open now, since this was asked last.
    pub fn take_let_go(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.let_go)
    }

    pub fn all(&self) -> &[Order] {
        &self.all
    }

    /// The order whose files are about to run out, if more are to be had.
    pub fn runs_out(&self) -> Option<u64> {
        let short = |order: &&Order| {
            order.goes_on && order.held.is_none() && order.files.len() - order.window.len() < WINDOW_FILES
        };
        self.all.iter().find(short).map(|order| order.id)
    }

    /// A thread opened a file; 0 where it is not known. Whether an order names it.
    pub fn opened(&mut self, node: u64, thread: u32, now: Instant) -> bool {
        // Of several that name it, the one whose reader is nearest to it.
        let near = self.all.iter().enumerate().filter_map(|(at, order)| Some((order.distance(node)?, at))).min();
        let found = match near {
            Some((_, at)) => {
                self.all[at].opened(node, now, &mut self.let_go);
                Some(at)
            }
            // Readers that are faster than whoever asks ahead go on all the same.
            None => self.all.iter_mut().position(|order| order.catch_up(node, &mut self.let_go)),
        };
        if let Some(at) = found {
            self.all[at].is_followed_by(thread, now);
        }
        for (_, order) in self.all.iter_mut().enumerate().filter(|(at, _)| Some(*at) != found) {
            let rested = order.rests();
            order.misses += u64::from(found.is_none() && !rested);
            let count = if found.is_none() { &mut order.strays } else { &mut order.others };
            *count = count.saturating_add(1);
            if order.rests() && !rested {
                order.let_go(&mut self.let_go);
            }
        }
        found.is_some()
    }

    /// The file that is due first of those that were not asked for, while less than so many bytes that were are not opened.
    pub fn next(&self, asked_max: u64, now: Instant) -> Option<Next> {
        let followed = self.all.iter().filter(|order| !order.rests());
        if followed.map(|order| order.asked_bytes).sum::<u64>() >= asked_max {
            return None;
        }
        self.all.iter().filter_map(|order| order.next(now)).min_by_key(|next| next.due)
    }

    /// What was next was looked at: its bytes, and those of them that were asked for.
    pub fn asked(&mut self, next: &Next, bytes: u64, asked: u64) {
        let order = self.all.iter_mut().find(|order| order.id == next.order);
        let Some(order) = order.filter(|order| order.end() == next.number) else { return };
        order.window.push_back(Seen { bytes, asked, is_open: false });
        order.places.entry(next.node).or_default().push_back(next.number);
        order.ahead_bytes += bytes;
        order.asked_bytes += asked;
    }
}

impl Order {
    /// Whether nobody follows it at the moment.
    pub fn rests(&self) -> bool {
        let is_unproven = self.source.is_guessed() || self.opened == 0;
        self.strays >= if is_unproven { STRAYS_UNPROVEN_MAX } else { STRAYS_MAX } || self.others >= OTHERS_MAX
    }

    fn is_followed_by(&mut self, thread: u32, now: Instant) {
        self.followed = now;
        if thread != 0 && !self.openers.contains(&thread) {
            if self.openers.len() == OPENERS_MAX {
                self.openers.remove(0);
            }
            self.openers.push(thread);
        }
    }

    /// Files that are still to be opened, of those that were said.
    pub fn left(&self) -> u64 {
        self.files.len() as u64
    }

    /// Files that were looked at ahead of the readers.
    pub fn ahead(&self) -> u64 {
        self.window.len() as u64
    }

    /// Number of the first file behind the window.
    fn end(&self) -> u64 {
        self.first + self.window.len() as u64
    }

    fn next(&self, now: Instant) -> Option<Next> {
        let is_held = self.held.is_some_and(|held| self.end() >= held);
        if self.rests() || is_held || self.window.len() >= WINDOW_FILES {
            return None;
        }
        let node = *self.files.get(self.window.len())?;
        let left = self.pace.time_of(self.ahead_bytes).unwrap_or(PACE_UNKNOWN * self.window.len() as u32);
        Some(Next { order: self.id, number: self.end(), node, due: now + left })
    }

    /// How far ahead of its readers a file is; none if it isn't, or is that far that it is another epoch's.
    fn distance(&self, node: u64) -> Option<u64> {
        let number = *self.places.get(&node)?.front()?;
        (number <= self.furthest + OUT_OF_ORDER as u64).then(|| number - self.first)
    }

    fn opened(&mut self, node: u64, now: Instant, let_go: &mut Vec<u64>) {
        let Some(number) = self.take_place(node) else { return };
        self.furthest = self.furthest.max(number);
        self.believe(number);
        let seen = &mut self.window[(number - self.first) as usize];
        (seen.is_open, self.strays, self.others, self.opened) = (true, 0, 0, self.opened + 1);
        self.ahead_bytes -= seen.bytes;
        self.asked_bytes -= std::mem::take(&mut seen.asked);
        let bytes = std::mem::take(&mut seen.bytes);
        self.pace.note(bytes, now);
        let last = number.saturating_sub(OUT_OF_ORDER as u64);
        while self.window.front().is_some_and(|seen| seen.is_open || self.first < last) {
            self.pass(let_go);
        }
    }

    /// A file just behind the window was opened: the window goes on to it.
    fn catch_up(&mut self, node: u64, let_go: &mut Vec<u64>) -> bool {
        // Whoever is that far ahead has opened what is in the window, or will not.
        if self.window.len() as u64 > self.furthest.saturating_sub(self.first) + OUT_OF_ORDER as u64 {
            return false;
        }
        let behind = self.files.iter().skip(self.window.len()).take(OUT_OF_ORDER);
        let Some(further) = behind.into_iter().position(|known| *known == node) else { return false };
        for _ in 0..=further {
            let (node, number) = (self.files[self.window.len()], self.end());
            self.places.entry(node).or_default().push_back(number);
            self.window.push_back(Seen { bytes: 0, asked: 0, is_open: false });
        }
        let number = self.take_place(node).expect("it was just put there");
        self.window[(number - self.first) as usize].is_open = true;
        self.believe(number);
        (self.strays, self.others, self.opened, self.furthest) = (0, 0, self.opened + 1, number);
        while self.window.front().is_some_and(|seen| seen.is_open) || self.window.len() > WINDOW_FILES {
            self.pass(let_go);
        }
        true
    }

    /// A file of this number was opened as it was thought.
    fn believe(&mut self, number: u64) {
        let is_next = self.held.is_some_and(|held| number >= held);
        self.begun += u32::from(is_next);
        if is_next && self.begun >= BEGUN_MIN {
            self.held = None;
        }
    }

    /// The first place of a node in the window.
    fn take_place(&mut self, node: u64) -> Option<u64> {
        let places = self.places.get_mut(&node)?;
        let number = places.pop_front();
        if places.is_empty() {
            self.places.remove(&node);
        }
        number
    }

    /// The first file of the window is behind the readers.
    fn pass(&mut self, let_go: &mut Vec<u64>) {
        let (Some(seen), Some(node)) = (self.window.pop_front(), self.files.pop_front()) else { return };
        if !seen.is_open {
            let taken = self.take_place(node);
            debug_assert_eq!(taken, Some(self.first));
            self.skipped += 1;
            let_go.extend((seen.asked > 0).then_some(node));
        }
        self.first += 1;
        self.ahead_bytes -= seen.bytes;
        self.asked_bytes -= seen.asked;
    }

    /// Nobody follows it: what was asked for by it will not be opened.
    fn let_go(&mut self, into: &mut Vec<u64>) {
        let asked = self.window.iter_mut().zip(&self.files).filter(|(seen, _)| seen.asked > 0);
        into.extend(asked.map(|(seen, node)| (seen.asked = 0, *node).1));
        self.asked_bytes = 0;
    }
}

impl Pace {
    fn note(&mut self, bytes: u64, now: Instant) {
        let seconds = self.last.map_or(0.0, |last| now.saturating_duration_since(last).as_secs_f64());
        self.bytes += bytes as f64 - self.bytes * FORGOTTEN;
        self.seconds += seconds - self.seconds * FORGOTTEN;
        self.last = Some(now);
    }

    /// How long it takes to read so many bytes.
    fn time_of(&self, bytes: u64) -> Option<Duration> {
        let seconds = bytes as f64 * self.seconds / self.bytes;
        (self.seconds > 0.0 && seconds.is_finite()).then(|| Duration::from_secs_f64(seconds.min(3600.0)))
    }
}

#[cfg(test)]
mod tests;
