//! Orders that nobody said: concluded from opens alone, and then asked for in time as those that jobs say.
//!
//! Two ways. An epoch that begins as the one before is taken to go on like it ([`Record`]). And the first opens of each
//! reader say what `DistributedSampler` deals them, if one does ([`order::Trail`]): that is searched for in the
//! background, on a thread of low priority and within a share of processor time.
//!
//! What is concluded is advice, as all orders are: it is forgotten as soon as readers don't keep to it. Invariant: an open
//! costs a lock and a few comparisons here, and what is remembered is four bytes and a bit a file.

mod record;
mod search;

use crate::prefetch::{Deal, Declaration, Sampler, Source};
use crate::select::Wanted;
use crate::view::View;
use order::Finding;
use record::{Epoch, Record};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Opens of one reader that are looked at, and readers.
const OPENS_MAX: usize = 16;
const READERS_MAX: usize = 256;

/// Opens in all after which it is searched for the first time; each time after they are twice as many, or as many as are looked at.
const OPENS_FIRST: usize = 16;

/// Readers that pause for so long begin something new.
const PAUSE: Duration = Duration::from_secs(2);

/// Processor time for searches: to begin with, and as a part of all time.
const SEARCH_FIRST: Duration = Duration::from_secs(10);
const SEARCH_PART: u32 = 200;

/// As a part of the time since readers were first seen, for those that look at more opens of the same readers: the first one finds
/// nearly all that there is to find.
const SEARCH_PART_AGAIN: u32 = 20;

/// How nice searches are: beside a program that keeps a processor busy they have a tenth of it. At 19 it is a hundredth, and where
/// all processors are busy a search of a tenth of a second lasts ten.
const NICE: i32 = 10;

/// Epochs that a sampler is taken to go on.
const EPOCHS: u64 = 1 << 20;

/// A thread opened a file.
#[derive(Clone, Copy)]
pub struct Opened {
    pub node: u64,
    pub thread: u32,
    /// By an order that names it.
    pub is_named: bool,
    /// And whoever serves it was asked: otherwise the whole of it was there.
    pub is_asked: bool,
}

/// What is known of one data set.
pub struct Unsaid {
    /// Whether anything is concluded at all.
    is_on: bool,
    state: Mutex<State>,
    news: Notify,
    over: AtomicBool,
}

#[derive(Default)]
struct State {
    record: Record,
    /// First opens by thread, since readers began.
    readers: Vec<(u32, Vec<u64>)>,
    opens: usize,
    /// Opens at which the next search begins; none while one runs.
    next: Option<usize>,
    /// How often readers began, and whether it was searched since, in vain.
    beginnings: u64,
    is_again: bool,
    last: Option<Instant>,
    /// The first open of all, and the last.
    seen: Option<(Instant, Instant)>,
    /// Processor time that searches took.
    spent: Duration,
    /// The last sum of seed and epoch that was found.
    sum: Option<u64>,
    repeats: Option<Epoch>,
}

/// What is to be looked into.
enum Work {
    Repeat(Epoch),
    Search { readers: Vec<Vec<u64>>, sum: Option<u64>, beginning: u64 },
}

impl Unsaid {
    pub fn new(is_on: bool) -> Unsaid {
        let state = State { next: Some(OPENS_FIRST), ..State::default() };
        Unsaid { is_on, state: Mutex::new(state), news: Notify::new(), over: AtomicBool::new(false) }
    }

    pub fn opened(&self, open: Opened, now: Instant) {
        if !self.is_on {
            return;
        }
        let mut state = self.state();
        state.seen = Some((state.seen.map_or(now, |(first, _)| first), now));
        let turned = state.record.opened(open.node);
        if let Some(turn) = turned {
            // The same readers begin anew.
            state.begin();
            state.repeats = turn.repeats;
        }
        if !open.is_named {
            state.note(open.node, open.thread, now);
        }
        let is_work = state.repeats.is_some() || state.next.is_some_and(|next| state.opens >= next);
        drop(state);
        // Whoever asks for nothing has all there is.
        if is_work && open.is_asked {
            self.news.notify_one();
        }
    }

    /// The mount has ended.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
        self.news.notify_one();
    }

    /// Look into what readers do until the mount has ended.
    pub async fn run(self: Arc<Unsaid>, view: Weak<View>) {
        if !self.is_on {
            return;
        }
        loop {
            self.news.notified().await;
            let Some(view) = view.upgrade().filter(|_| !self.over.load(Relaxed)) else { return };
            match self.work() {
                Some(Work::Repeat(epoch)) => {
                    let _ = tokio::task::spawn_blocking(move || repeat(&view, &epoch)).await;
                }
                // What it takes goes by what others leave of the processors.
                Some(Work::Search { readers, sum, beginning }) => {
                    drop(tokio::spawn(self.clone().search(view, readers, sum, beginning)));
                }
                None => {}
            }
        }
    }

    fn work(&self) -> Option<Work> {
        let mut state = self.state();
        if let Some(epoch) = state.repeats.take() {
            return Some(Work::Repeat(epoch));
        }
        let since = state.seen.map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first));
        let is_enough = state.next.is_some_and(|next| state.opens >= next);
        let is_too_soon = state.is_again && state.spent > since / SEARCH_PART_AGAIN;
        if !is_enough || is_too_soon || state.spent > SEARCH_FIRST + since / SEARCH_PART {
            return None;
        }
        state.next = None;
        let readers = state.readers.iter().map(|(_, opens)| opens.clone()).collect();
        Some(Work::Search { readers, sum: state.sum, beginning: state.beginnings })
    }

    /// Search on a thread that gives way to others.
    async fn search(self: Arc<Unsaid>, view: Arc<View>, readers: Vec<Vec<u64>>, sum: Option<u64>, beginning: u64) {
        let opens = readers.iter().map(Vec::len).sum();
        let (done, found) = tokio::sync::oneshot::channel();
        let (unsaid, searching, reach) = (self.clone(), view.clone(), view.reach());
        let work = move || {
            let _ = rustix::process::setpriority_process(None, NICE);
            let found = search::search(&reach, &readers, sum, &|| unsaid.over.load(Relaxed));
            let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            unsaid.state().spent += Duration::try_from(spent).unwrap_or_default();
            let _ = done.send(found.map(|found| unsaid.take(&searching, found)));
        };
        let started = std::thread::Builder::new().name("stoker-order".into()).spawn(work);
        let found = if started.is_ok() { found.await.ok().flatten() } else { None };
        drop(view);
        self.state().searched(opens, beginning, found.is_some());
    }

    /// Have what was found asked for.
    fn take(&self, view: &Arc<View>, found: search::Found) {
        let search::Found { wanted, nodes, finding } = found;
        let Finding { sum, world, ranks, .. } = finding;
        let orders = view.prefetch().progress();
        if orders.iter().any(|order| order.source == Source::Repeat && !order.rests) {
            return;
        }
        let (is_still, read) = {
            let mut state = self.state();
            (state.sum.replace(sum) == Some(sum), state.record.recent())
        };
        for rank in ranks {
            let sampler = Sampler { seed: sum, rank, world, shuffle: true, drop_last: false };
            // Without set_epoch all epochs are the same.
            let deal = match is_still {
                true => Deal::Again(sampler.deal(0, nodes.len() as u64).iter().map(|at| nodes[*at as usize]).collect()),
                false => Deal::Sampler { sampler, epoch: 0, until: EPOCHS },
            };
            let wanted = wanted.clone();
            let declaration = found_out(wanted, deal, Source::Formula, read.clone());
            let name = format!("rank {rank} of {world}, seed + epoch = {sum}");
            say(view, &name, declaration);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self) {
        self.readers.clear();
        self.opens = 0;
        self.next = self.next.map(|_| OPENS_FIRST);
        self.beginnings += 1;
        self.is_again = false;
    }

    /// So many opens were searched, which were of readers of that beginning.
    fn searched(&mut self, opens: usize, beginning: u64, is_found: bool) {
        let is_of_these = self.beginnings == beginning;
        let most = (self.readers.len() * OPENS_MAX).min(opens * 2);
        self.next = Some(if is_found || !is_of_these { OPENS_FIRST } else { most.max(opens + 1) });
        if is_found {
            self.begin();
        } else if is_of_these {
            self.is_again = true;
        }
    }

    fn note(&mut self, node: u64, thread: u32, now: Instant) {
        let paused = self.last.replace(now).is_some_and(|last| now.saturating_duration_since(last) > PAUSE);
        let known = self.readers.iter().position(|(known, _)| *known == thread);
        let all_full = || self.readers.iter().all(|(_, opens)| opens.len() >= OPENS_MAX);
        // Workers of an epoch are new, or pause before it.
        if !self.readers.is_empty() && (paused || known.is_none() && all_full()) {
            self.begin();
        }
        let at = self.readers.iter().position(|(known, _)| *known == thread).unwrap_or(self.readers.len());
        if at == self.readers.len() {
            if at == READERS_MAX {
                return;
            }
            self.readers.push((thread, Vec::with_capacity(OPENS_MAX)));
        }
        let opens = &mut self.readers[at].1;
        if opens.len() < OPENS_MAX && opens.last() != Some(&node) {
            opens.push(node);
            self.opens += 1;
        }
    }
}

fn repeat(view: &Arc<View>, epoch: &Epoch) {
    let orders = view.prefetch().progress();
    if orders.iter().any(|order| order.source != Source::Formula && !order.rests) {
        return;
    }
    let read = view.unsaid().state().record.recent();
    let deal = Deal::Again(epoch.nodes().collect());
    say(view, "the epoch before", found_out(Wanted::default(), deal, Source::Repeat, read));
}

fn found_out(wanted: Wanted, deal: Deal, source: Source, read: Vec<u64>) -> Declaration {
    Declaration { wanted, deal, source, process: None, expected: None, read }
}

fn say(view: &Arc<View>, name: &str, declaration: Declaration) {
    view.prefetch().forget_unfollowed();
    match view.declare(name, declaration) {
        Ok(_) => tracing::info!("files of {} are read in the order `{name}`", view.url()),
        Err(error) => tracing::debug!("an order that was found out is not followed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsaid() -> Unsaid {
        Unsaid::new(true)
    }

    fn open(node: u64, thread: u32) -> Opened {
        Opened { node, thread, is_named: false, is_asked: true }
    }

    /// Opens and readers that are remembered.
    fn counted(unsaid: &Unsaid) -> (usize, usize) {
        let state = unsaid.state();
        (state.opens, state.readers.len())
    }

    #[test]
    fn readers_that_are_new_or_paused_begin_anew_and_only_their_first_opens_count() {
        let (unsaid, now) = (unsaid(), Instant::now());
        for node in 0..40 {
            unsaid.opened(open(100 + node, 1), now);
        }
        assert_eq!(counted(&unsaid), (OPENS_MAX, 1));
        unsaid.opened(open(500, 2), now);
        assert_eq!(unsaid.state().readers, [(2, vec![500])], "the other one is in the middle");
        unsaid.opened(open(501, 1), now);
        unsaid.opened(open(501, 1), now);
        assert_eq!(unsaid.state().opens, 2, "opened twice in a row");
        unsaid.opened(open(502, 1), now + 2 * PAUSE);
        assert_eq!(unsaid.state().readers, [(1, vec![502])]);
        unsaid.opened(Opened { is_named: true, ..open(503, 1) }, now + 2 * PAUSE);
        assert_eq!(unsaid.state().opens, 1, "an order names it");
    }

    #[test]
    fn searches_begin_with_enough_opens_one_at_a_time_and_end_when_they_took_too_long() {
        let (unsaid, now) = (unsaid(), Instant::now());
        (0..15).for_each(|node| unsaid.opened(open(node, 1), now));
        assert!(unsaid.work().is_none());
        unsaid.opened(open(15, 1), now);
        assert!(matches!(unsaid.work(), Some(Work::Search { readers, .. }) if readers[0].len() == 16));
        (0..16).for_each(|node| unsaid.opened(open(100 + node, 2), now));
        assert!(unsaid.work().is_none(), "one runs");
        unsaid.state().next = Some(1);
        unsaid.state().spent = SEARCH_FIRST * 2;
        assert!(unsaid.work().is_none());
        unsaid.opened(Opened { is_named: true, ..open(200, 2) }, now + SEARCH_FIRST * SEARCH_PART);
        assert!(unsaid.work().is_some());
    }

    #[test]
    fn a_search_in_vain_is_repeated_with_more_opens_of_the_same_readers_and_after_a_while() {
        let (unsaid, now) = (unsaid(), Instant::now());
        let opened = |node, thread, millis| unsaid.opened(open(node, thread), now + Duration::from_millis(millis));
        let begins = |searched: usize| {
            let Some(Work::Search { readers, beginning, .. }) = unsaid.work() else { return None };
            assert_eq!(readers.iter().map(Vec::len).sum::<usize>(), searched);
            Some(beginning)
        };
        // Two readers, of which each opens eight files and then four more while it is searched.
        (0..16).for_each(|node| opened(node, node as u32 % 2, 0));
        let beginning = begins(16).expect("a search");
        (16..24).for_each(|node| opened(node, node as u32 % 2, 0));
        unsaid.state().spent = Duration::from_millis(100);
        unsaid.state().searched(16, beginning, false);
        (24..32).for_each(|node| opened(node, node as u32 % 2, 1990));
        assert_eq!(begins(32), None, "too soon");
        opened(32, 0, 2001);
        let again = begins(32).expect("all that is looked at");
        unsaid.state().searched(32, again, false);
        opened(33, 0, 60_000);
        assert_eq!(begins(32), None, "there is no more");
        // Readers that begin while others are searched wait for nothing.
        unsaid.state().next = None;
        (0..20).for_each(|node| opened(100 + node, 7, 120_000));
        assert_eq!(begins(16), None);
        unsaid.state().spent = SEARCH_FIRST / 2;
        unsaid.state().searched(32, again, false);
        assert!(begins(16).is_some());
        // And once something is found, all others may be sought at once.
        let beginning = unsaid.state().beginnings;
        unsaid.state().searched(16, beginning, true);
        (0..16).for_each(|node| opened(200 + node, 8, 120_000));
        assert!(begins(16).is_some());
    }

    #[test]
    fn where_nothing_is_to_be_concluded_nothing_is_remembered() {
        let unsaid = Unsaid::new(false);
        (0..100).for_each(|node| unsaid.opened(open(node, 1), Instant::now()));
        assert_eq!(counted(&unsaid), (0, 0));
        assert!(unsaid.state().record.recent().is_empty());
    }
}
