//! Background fill: once reads show an epoch, the rest of what it reads is fetched at spare bandwidth.
//!
//! What an epoch reads is the folder that holds everything that was opened so far; reads elsewhere widen it once
//! there are as many again. In an epoch every file will be read, so a byte fetched early is not fetched again:
//! fill costs the store nothing that demand would not have cost. What it may not cost is the time of a reader that waits: the number
//! of requests that fill keeps in flight follows the latency that demand sees (as LEDBAT, RFC 6817, follows delay).
//!
//! Invariant: an object that would not be kept is never fetched by fill.

use crate::load::{self, Reach};
use block::{Address, Object, Run};
use futures_util::StreamExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// When a data set is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Once reads show an epoch.
    #[default]
    Auto,
    /// Never.
    Off,
    /// From the moment of mounting.
    All,
}

/// Cold opens that show an epoch: a fiftieth of the set, within these. Whoever looks at a few files opens fewer.
const COLD_SHARE: u64 = 50;
const COLD_OPENS_MIN: u64 = 4;
const COLD_OPENS_MAX: u64 = 64;

/// Requests that fill begins with.
const WINDOW_FIRST: f64 = 4.0;

/// Requests that fill keeps in flight at most: at 20 ms they carry 12,000 small files a second.
const WINDOW_MAX: f64 = 256.0;

/// How much longer the slower of the demand's waits may be than before fill began. Half as much again would just fill the
/// wire (a queue of half a round trip).
const LATENCY_RISE: f64 = 1.1;

/// A rise that nobody notices, in seconds: it keeps stores without latency from looking congested.
const LATENCY_SLACK: f64 = 0.0005;

/// What a wait shorter than the mark takes off it: of a longer one all of it is believed at once. So the mark stays near
/// the slowest of some sixteen waits: a mean would let single readers meet each burst.
const DECAY: f64 = 1.0 / 16.0;

/// Waits that show how long demand waits without fill.
const BASELINE_WAITS: u32 = 16;

/// Demand that is older than this says nothing any more: its readers pause, and the bandwidth is spare.
const DEMAND_STALE: Duration = Duration::from_millis(250);

/// Files after which others get their turn: to look at one takes microseconds.
const YIELD_EVERY: usize = 1024;

/// When owners are asked again for copies that they could not be asked for.
const OWNERS_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The next number of requests in flight, after one has ended: one more for each window, or an eighth of a request
/// less for each that ends. Pure, and the whole policy.
pub fn window(now: f64, latency: f64, baseline: f64) -> f64 {
    let congested = latency > baseline * LATENCY_RISE + LATENCY_SLACK;
    let next = if congested { now - 0.125 } else { now + 1.0 / now.max(1.0) };
    next.clamp(1.0, WINDOW_MAX)
}

/// What fill knows of demand, and how far it has come.
#[derive(Default)]
pub struct Fill {
    when: When,
    /// Cold opens that show an epoch of this set.
    enough: u64,
    started: AtomicBool,
    /// Runs begun: an older one ends when a wider one begins.
    runs: AtomicU64,
    /// The mount has ended.
    over: AtomicBool,
    scope: Mutex<Scope>,
    demand: Mutex<Demand>,
    pub files: AtomicU64,
    pub bytes: AtomicU64,
}

/// Where cold opens fell.
#[derive(Default)]
struct Scope {
    /// The folder that is being filled, as a path; none before fill began.
    filling: Option<Vec<u8>>,
    /// The folder that holds what was opened outside of it, and how often that was.
    outside: Option<Vec<u8>>,
    opens: u64,
}

/// How long demand waits, in seconds.
#[derive(Default)]
struct Demand {
    /// Where the mark of latency stood before fill took more than one request.
    baseline: f64,
    /// The mark of the slower waits.
    latency: f64,
    /// Waits that went into the baseline.
    known: u32,
    last: Option<Instant>,
}

impl Demand {
    fn note(&mut self, seconds: f64, is_undisturbed: bool) {
        self.latency += (seconds - self.latency) * if seconds < self.latency { DECAY } else { 1.0 };
        if is_undisturbed || self.known < BASELINE_WAITS {
            (self.baseline, self.known) = (self.latency, self.known.saturating_add(1));
        }
    }

    /// The next number of requests: none but one while it isn't known what demand waits without them.
    fn next(&self, now: f64) -> f64 {
        match self.known {
            0..BASELINE_WAITS => 1.0,
            _ => window(now, self.latency, self.baseline),
        }
    }
}

impl Fill {
    /// For a set of so many files.
    pub fn new(when: When, files: u64) -> Fill {
        Fill { when, enough: (files / COLD_SHARE).clamp(COLD_OPENS_MIN, COLD_OPENS_MAX), ..Fill::default() }
    }

    /// A file was opened that is not here. If that shows an epoch, the folder that is to be filled from now on.
    pub fn opened(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.when != When::Auto {
            return None;
        }
        let folder = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |end| &path[..end]);
        let mut scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        if scope.filling.as_ref().is_some_and(|filling| common(filling, folder) == &filling[..]) {
            return None;
        }
        let outside = scope.outside.take();
        scope.outside = Some(outside.map_or_else(|| folder.to_vec(), |outside| common(&outside, folder).to_vec()));
        scope.opens += 1;
        if scope.opens < self.enough {
            return None;
        }
        let outside = scope.outside.take().unwrap_or_default();
        let wider = scope.filling.take().map_or_else(|| outside.clone(), |filling| common(&filling, &outside).to_vec());
        (scope.filling, scope.opens) = (Some(wider.clone()), 0);
        self.started.store(true, Relaxed);
        Some(wider)
    }

    /// A reader waited this long for a small file.
    pub fn waited(&self, seconds: f64) {
        let mut demand = self.demand.lock().unwrap_or_else(PoisonError::into_inner);
        demand.note(seconds, !self.started.load(Relaxed));
        demand.last = Some(Instant::now());
    }

    /// Whether fill is to begin at mounting.
    pub fn at_once(&self) -> bool {
        self.when == When::All && !self.started.swap(true, Relaxed)
    }

    /// Whether fill began.
    pub fn is_on(&self) -> bool {
        self.started.load(Relaxed)
    }

    /// The mount has ended: what runs stops, and nothing begins any more.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
        self.runs.fetch_add(1, Relaxed);
    }

    fn next(&self, now: f64) -> f64 {
        let demand = self.demand.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = demand.last.is_some_and(|last| last.elapsed() < DEMAND_STALE);
        if is_fresh { demand.next(now) } else { window(now, 0.0, demand.baseline) }
    }
}

/// The deepest folder that holds both.
fn common<'a>(left: &'a [u8], right: &[u8]) -> &'a [u8] {
    let same = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    let ends = |path: &[u8]| path.len() == same || path[same] == b'/';
    if ends(left) && ends(right) {
        return &left[..same];
    }
    left[..same].iter().rposition(|byte| *byte == b'/').map_or(b"", |end| &left[..end])
}

/// Fetch what is not there of a folder, in the order of the names, until the end of the folder, of the room or of the
/// mount. A member of a cluster first fetches what it owns, from the store; in the room that is left then it keeps copies of
/// what others do, from them.
pub async fn run(reach: Reach, fill: Arc<Fill>, folder: Vec<u8>) {
    let run = fill.runs.fetch_add(1, Relaxed) + 1;
    pass(&reach, &fill, (run, &folder), true).await;
    // Members may come later than this one, and copies are no reason to ask the store.
    while pass(&reach, &fill, (run, &folder), false).await > 0 {
        tokio::time::sleep(OWNERS_AGAIN_AFTER).await;
    }
}

/// Objects that this node owns, or that others do. How many of these were left out since their owner doesn't answer.
async fn pass(reach: &Reach, fill: &Arc<Fill>, (run, folder): (u64, &[u8]), is_own: bool) -> u64 {
    let mut left_out = 0;
    let (mut flights, mut width, mut under_way) = (JoinSet::new(), fill.next(WINDOW_FIRST), 0);
    for (number, (node, size)) in load::below(&reach.manifest, folder).into_iter().enumerate() {
        if number % YIELD_EVERY == 0 {
            tokio::task::yield_now().await;
            if fill.over.load(Relaxed) || fill.runs.load(Relaxed) != run {
                return 0;
            }
        }
        let owns = |object: &Arc<Object>| reach.stack.owns(&Address { object: object.clone(), index: 0 }) == is_own;
        let is_wanted = |object: &Arc<Object>| object.size > 0 && owns(object) && !reach.stack.is_complete(object);
        let Some(object) = reach.manifest.object(node).filter(is_wanted) else { continue };
        // Files under way may not have taken their room yet, so it is left to them until they are here.
        while flights.len() >= width as usize || !fits(reach, &object, under_way) {
            let Some(ended) = flights.join_next().await else { break };
            under_way -= ended.unwrap_or(0);
            width = fill.next(width);
        }
        if fill.over.load(Relaxed) || fill.runs.load(Relaxed) != run {
            return 0;
        }
        if !reach.stack.owner_answers(&object) {
            left_out += 1;
            continue;
        }
        if !fits(reach, &object, under_way) {
            continue;
        }
        under_way += size;
        let (reach, fill) = (reach.clone(), fill.clone());
        flights.spawn(async move {
            if fetch(&reach, &object).await {
                fill.files.fetch_add(1, Relaxed);
                fill.bytes.fetch_add(size, Relaxed);
            }
            size
        });
    }
    while flights.join_next().await.is_some() {}
    left_out
}

/// Whether there is free room for an object beside what is under way: nothing gives way for what nobody asked for.
fn fits(reach: &Reach, object: &Arc<Object>, under_way: u64) -> bool {
    reach.stack.free_bytes() >= object.size + under_way && reach.stack.has_room(object)
}

/// Fetch an object for as long as it is kept: somebody may have been faster with the last room. False if it was not.
async fn fetch(reach: &Reach, object: &Arc<Object>) -> bool {
    let mut runs = load::runs(&reach.stack, Run::new(object.clone(), 0..1).via(reach.via), 0..object.blocks());
    let starts = (0..object.blocks()).step_by(load::RUN_BLOCKS as usize);
    for start in starts {
        let first = Address { object: object.clone(), index: start };
        if runs.next().await.is_none_or(|run| run.is_err()) || !reach.stack.holds(&first) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store of bandwidth B and latency l, with d demand requests and w of fill, each of s bytes: what demand waits.
    fn wait(width: f64, demand: f64, bytes: f64, bandwidth: f64, latency: f64) -> f64 {
        (latency + bytes / bandwidth).max((width + demand) * bytes / bandwidth)
    }

    #[test]
    fn the_window_fills_the_wire_and_stops_there() {
        let (demand, bytes, bandwidth, latency) = (8.0, 1e5, 6e7, 0.02);
        let baseline = wait(0.0, demand, bytes, bandwidth, latency);
        let mut width = WINDOW_FIRST;
        for _ in 0..5_000 {
            width = window(width, wait(width, demand, bytes, bandwidth, latency), baseline);
        }
        let in_flight = (width + demand) * bytes;
        assert!(in_flight >= bandwidth * latency, "the wire is not full: {in_flight}");
        let waits = wait(width, demand, bytes, bandwidth, latency);
        // A tenth longer, what nobody notices, and the one request that shows that it is enough.
        assert!(waits <= baseline * 1.1 + 0.0005 + bytes / bandwidth, "demand waits {waits} s instead of {baseline}");
    }

    #[test]
    fn the_window_never_closes_and_never_explodes() {
        assert_eq!(window(1.0, 9.0, 0.01), 1.0);
        assert_eq!(window(WINDOW_MAX, 0.0, 0.01), WINDOW_MAX);
    }

    #[test]
    fn fill_takes_one_request_until_it_knows_what_demand_waits_without_it() {
        let mut demand = Demand::default();
        for _ in 0..BASELINE_WAITS {
            assert_eq!(demand.next(64.0), 1.0);
            demand.note(0.02, false);
        }
        assert!(demand.next(8.0) > 8.0);
        demand.note(0.05, false);
        assert_eq!(demand.baseline, 0.02, "what fill does to demand is no measure of demand without it");
    }

    #[tokio::test(start_paused = true)]
    async fn fill_holds_back_for_readers_that_it_does_not_know_and_not_for_those_who_paused() {
        let fill = Fill::new(When::All, 1_000);
        assert!(fill.at_once() && fill.next(WINDOW_FIRST) > WINDOW_FIRST, "nobody waits");
        fill.waited(0.02);
        assert_eq!(fill.next(64.0), 1.0, "one does, and it is not known how long it would without fill");
        tokio::time::advance(DEMAND_STALE).await;
        assert!(fill.next(64.0) > 64.0, "nobody waits any more");
        (0..BASELINE_WAITS).for_each(|_| fill.waited(0.02));
        assert!(fill.next(64.0) > 64.0, "they wait as long as without it");
        fill.waited(0.02 * LATENCY_RISE + 2.0 * LATENCY_SLACK);
        assert!(fill.next(64.0) < 64.0, "one waited a tenth longer");
    }

    #[test]
    fn one_slow_wait_is_enough_to_give_way_and_many_short_ones_to_come_back() {
        let mut demand = Demand::default();
        (0..100).for_each(|_| demand.note(0.02, true));
        demand.note(0.04, false);
        assert!(demand.next(8.0) < 8.0);
        let short = (1..100).find(|_| {
            demand.note(0.02, false);
            demand.next(8.0) > 8.0
        });
        assert!((16..64).contains(&short.expect("it comes back")), "after {short:?} short waits");
    }

    #[test]
    fn a_few_opens_are_no_epoch_and_an_epoch_begins_once() {
        for (files, enough) in [(10, 4), (1_000, 20), (1_000_000, 64)] {
            let fill = Fill::new(When::Auto, files);
            let began: Vec<bool> = (0..200).map(|_| fill.opened(b"train/a/1").is_some()).collect();
            assert_eq!(began.iter().position(|began| *began), Some(enough - 1));
            assert_eq!(began.iter().filter(|began| **began).count(), 1);
        }
        let off = Fill::new(When::Off, 10);
        assert!((0..200).all(|_| off.opened(b"a").is_none()));
        assert!(Fill::new(When::All, 10).at_once());
    }

    #[test]
    fn what_is_filled_is_the_folder_that_was_read_and_grows_with_it() {
        let fill = Fill::new(When::Auto, 200);
        let opened = |path: &str| fill.opened(path.as_bytes()).map(|folder| String::from_utf8(folder).expect("text"));
        let scopes = ["train/a/1", "train/b/2", "train/a/3", "train/c/4"].map(opened);
        assert_eq!(scopes[3].as_deref(), Some("train"));
        assert!(scopes[..3].iter().all(Option::is_none));
        assert!((0..100).all(|n| opened(&format!("train/d/{n}")).is_none()), "it is being filled already");
        let scopes = ["trainer/1", "val/2", "val/3", "val/4"].map(opened);
        assert_eq!(scopes[3].as_deref(), Some(""));
        for (left, right, both) in
            [("a/b", "a/b", "a/b"), ("a/b", "a/bc", "a"), ("a/b", "a", "a"), ("ab", "a", ""), ("", "a", "")]
        {
            assert_eq!(common(left.as_bytes(), right.as_bytes()), both.as_bytes(), "{left} and {right}");
        }
    }
}
