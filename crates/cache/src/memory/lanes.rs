//! Memory that blocks on their way from one store may take together, so that stores that hang leave some to others.
//!
//! A lane, of one store by the credentials of one mount, may have three times as much on its way as is free of all:
//! alone three quarters of the memory, and each one that hangs beside it leaves a quarter of the rest (dynamic thresholds,
//! as switches share their buffers: Choudhury and Hahne, 1998).
//!
//! Invariants: blocks that have come take none of it; nobody waits for longer than the patience while nothing comes.

use crate::budget::{BYTES_MIN, Budget};
use crate::waits::clock;
use block::{Door, last_try};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Times as much as is free, that a lane may have on its way for readers; what is asked for ahead leaves some to those.
const FOR_READERS: u64 = 3;
const AHEAD: u64 = 2;

/// What a lane may have in any case: the blocks that one reader holds together.
pub const LANE_MIN: u64 = BYTES_MIN / 2;

/// A store, and by whose credentials it is asked.
pub type Key = (Arc<str>, Door);

/// The lanes of all stores.
#[derive(Clone)]
pub struct Lanes(Arc<Parts>);

struct Parts {
    budget: Budget,
    patience: Duration,
    ways: Mutex<Ways>,
    /// Notified when a block came, or will not come.
    left: Notify,
}

/// Bytes on their way.
#[derive(Default)]
struct Ways {
    taken: u64,
    /// When a block last came, wherever from.
    came: Option<Instant>,
    of: HashMap<Key, Lane>,
}

#[derive(Default)]
struct Lane {
    taken: u64,
    came: Option<Instant>,
    /// Readers wait in the order in which they came.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Room in a lane for a block on its way, given back when it is dropped.
pub struct Place {
    lanes: Lanes,
    key: Key,
    bytes: u64,
}

impl Place {
    /// The block came: from its store or from another member, of which one is then alive, or from the disk, wherever it was
    /// looked for.
    pub fn came(&self, is_of_store: bool) {
        let (now, mut ways) = (Some(now()), self.lanes.ways());
        ways.came = now;
        let lane = ways.lane(&self.key);
        lane.came = if is_of_store { now } else { lane.came };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut ways = self.lanes.ways();
            ways.taken -= self.bytes;
            ways.lane(&self.key).taken -= self.bytes;
            drop(ways);
            self.lanes.0.left.notify_waiters();
        }
    }
}

impl Lanes {
    /// Lanes of the memory that a budget has at the time, in which nobody waits for longer than this while nothing comes.
    pub fn over(budget: Budget, patience: Duration) -> Lanes {
        Lanes(Arc::new(Parts { budget, patience, ways: Mutex::default(), left: Notify::new() }))
    }

    /// Room for blocks of these lengths, all at once, for a reader who has waited `since` then; and for how long nothing
    /// has come. None if nothing comes.
    pub async fn room(&self, key: &Key, lengths: &[u64], since: Instant) -> Option<(Vec<Place>, Duration)> {
        let turn =
            if lengths.iter().all(|length| *length == 0) { Arc::default() } else { self.ways().lane(key).turn.clone() };
        let waited = async {
            let _turn = turn.lock().await;
            loop {
                let left = self.0.left.notified();
                if let Some(places) = self.take(key, lengths, FOR_READERS) {
                    return places;
                }
                left.await;
            }
        };
        let places = self.unless_silent(Some(key), since, waited).await?;
        Some((places, self.silence(Some(key), since).elapsed()))
    }

    /// Room for a block, if there is some that no reader waits for.
    pub fn spare(&self, key: &Key, length: u64) -> Option<Place> {
        if length > 0 && self.ways().lane(key).turn.try_lock().is_err() {
            return None;
        }
        self.take(key, &[length], AHEAD)?.pop()
    }

    /// What somebody waits for since then, unless nothing comes for longer than the patience: in a lane, or at all.
    pub async fn unless_silent<T>(
        &self,
        key: Option<&Key>,
        since: Instant,
        what: impl Future<Output = T>,
    ) -> Option<T> {
        let mut what = std::pin::pin!(what);
        loop {
            let silent = self.silence(key, since);
            match tokio::time::timeout_at(later(silent, self.0.patience), &mut what).await {
                Ok(got) => return Some(got),
                Err(_) if self.silence(key, since) == silent => return None,
                Err(_) => {}
            }
        }
    }

    /// Whether somebody who waits since then has patience left for more than a last try: as long as the store is silent,
    /// but once, however much it gives to others, where it was tried again already.
    pub fn is_patient(&self, key: &Key, since: Instant, is_again: bool) -> bool {
        let from = if is_again { since } else { self.silence(Some(key), since) };
        from.elapsed() < self.0.patience - last_try(self.0.patience)
    }

    /// Since when nothing came from a store, whoever asked, or from any of them; for somebody who waits since then.
    pub fn silence(&self, key: Option<&Key>, since: Instant) -> Instant {
        let ways = self.ways();
        let of_store = |(store, _): &Key| key.is_none_or(|(wanted, _)| store == wanted);
        let came = ways.of.iter().filter(|(key, _)| of_store(key)).filter_map(|(_, lane)| lane.came).max();
        let came = if key.is_none() { ways.came } else { came };
        came.map_or(since, |came| came.max(since))
    }

    fn take(&self, key: &Key, lengths: &[u64], times: u64) -> Option<Vec<Place>> {
        let bytes: u64 = lengths.iter().sum();
        if bytes > 0 {
            let mut ways = self.ways();
            let free = self.0.budget.usage().1.saturating_sub(ways.taken + bytes);
            let lane = ways.lane(key);
            if lane.taken + bytes > LANE_MIN.max(times * free) {
                return None;
            }
            lane.taken += bytes;
            ways.taken += bytes;
        }
        let place = |bytes: &u64| Place { lanes: self.clone(), key: key.clone(), bytes: *bytes };
        Some(lengths.iter().map(place).collect())
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.0.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ways {
    /// A lane; those that nothing is on its way in, and nobody waits in, are forgotten.
    fn lane(&mut self, key: &Key) -> &mut Lane {
        if !self.of.contains_key(key) {
            self.of.retain(|_, lane| lane.taken > 0 || Arc::strong_count(&lane.turn) > 1);
        }
        self.of.entry(key.clone()).or_default()
    }
}

pub fn now() -> Instant {
    Instant::from_std(clock())
}

/// A patience of any length.
fn later(from: Instant, patience: Duration) -> Instant {
    /// Longer than any mount lives.
    const YEARS: Duration = Duration::from_secs(1 << 30);
    from + patience.min(YEARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn lanes(mebibytes: u64) -> (Budget, Lanes) {
        let budget = Budget::of(mebibytes * MEBIBYTE);
        (budget.clone(), Lanes::over(budget, Duration::MAX))
    }

    fn key(store: &str) -> Key {
        (store.into(), Door::NONE)
    }

    /// Mebibytes that a lane gives out one by one.
    fn fill(lanes: &Lanes, key: &Key, times: u64) -> Vec<Place> {
        std::iter::from_fn(|| lanes.take(key, &[MEBIBYTE], times)?.pop()).collect()
    }

    #[tokio::test]
    async fn lanes_that_nothing_is_on_its_way_in_are_forgotten_and_no_others() {
        let (_, lanes) = lanes(16);
        let busy = key("busy:");
        let on_its_way = fill(&lanes, &busy, FOR_READERS);
        assert_eq!(on_its_way.len(), 12);
        for n in 0..100 {
            assert!(lanes.spare(&key(&format!("{n}:")), MEBIBYTE).is_some());
        }
        assert!(lanes.ways().of.len() <= 2);
        assert!(lanes.spare(&busy, MEBIBYTE).is_none(), "its lane is full still");
        drop(on_its_way);
        assert!(lanes.room(&busy, &[6 * MEBIBYTE; 2], now()).await.is_some_and(|(room, _)| room.len() == 2));
        assert_eq!(lanes.ways().taken, 0);
    }

    #[test]
    fn each_lane_leaves_a_quarter_of_the_rest_and_a_part_of_its_own_to_readers() {
        let (_, lanes) = lanes(64);
        let [first, second, third] = ["1:", "2:", "3:"].map(key);
        let ahead = fill(&lanes, &first, AHEAD);
        let urgent = fill(&lanes, &first, FOR_READERS);
        assert_eq!((ahead.len(), urgent.len()), (42, 6));
        assert_eq!(fill(&lanes, &first, AHEAD).len(), 0);
        let (second, third) = (fill(&lanes, &second, FOR_READERS), fill(&lanes, &third, FOR_READERS));
        assert_eq!((second.len(), third.len()), (12, 3));
        // By other credentials the first store has a lane of its own, of the least length.
        assert_eq!(fill(&lanes, &("1:".into(), Door::of(7)), FOR_READERS).len() as u64, LANE_MIN / MEBIBYTE);
    }

    #[test]
    fn lanes_become_shorter_with_their_budget() {
        let (budget, lanes) = lanes(64);
        assert_eq!(fill(&lanes, &key("1:"), FOR_READERS).len(), 48);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        budget.leave(48 * MEBIBYTE, runtime.handle());
        assert_eq!(fill(&lanes, &key("1:"), FOR_READERS).len(), 12);
    }

    #[tokio::test]
    async fn readers_have_their_turns_in_order_and_what_is_asked_ahead_waits_for_them() {
        let (_, lanes) = lanes(16);
        let way = key("1:");
        let mut held = fill(&lanes, &way, FOR_READERS);
        let ask = |mebibytes| {
            let (lanes, way) = (lanes.clone(), way.clone());
            tokio::spawn(async move { lanes.room(&way, &[mebibytes * MEBIBYTE], now()).await.expect("room").0 })
        };
        let large = ask(6);
        tokio::task::yield_now().await;
        let small = ask(1);
        tokio::task::yield_now().await;
        held.truncate(9);
        tokio::task::yield_now().await;
        assert!(!large.is_finished() && !small.is_finished(), "the first one is served first");
        assert!(lanes.spare(&way, MEBIBYTE).is_none(), "a reader waits");
        assert!(lanes.spare(&way, 0).is_some(), "what is on the disk takes none of it");
        held.truncate(5);
        let (large, small) = (large.await.expect("served"), small.await.expect("served"));
        drop((large, small, held));
        assert_eq!(lanes.ways().taken, 0);
        assert!(lanes.spare(&way, MEBIBYTE).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_from_the_disk_is_no_sign_of_the_store_and_none_of_a_run_passes_others() {
        let (_, lanes) = lanes(16);
        let way = key("1:");
        let (mut held, since) = (fill(&lanes, &way, FOR_READERS), now());
        tokio::time::advance(Duration::from_secs(3)).await;
        let of_disk = lanes.spare(&way, 0).expect("it takes none of it");
        for place in [&of_disk, &held[0]] {
            place.came(false);
            assert_eq!(lanes.silence(Some(&way), since).elapsed().as_secs(), 3);
            assert_eq!(lanes.silence(None, since).elapsed().as_secs(), 0, "something came");
            place.came(true);
            assert_eq!(lanes.silence(Some(&way), since).elapsed().as_secs(), 0, "wherever it was looked for");
            lanes.ways().lane(&way).came = None;
        }
        let ask = |lengths: Vec<u64>| {
            let (lanes, way) = (lanes.clone(), way.clone());
            tokio::spawn(async move { lanes.room(&way, &lengths, now()).await.expect("room").0 })
        };
        let first = ask(vec![6 * MEBIBYTE]);
        tokio::task::yield_now().await;
        let (mixed, of_disk) = (ask(vec![0, MEBIBYTE]), ask(vec![0, 0]));
        held.truncate(9);
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
        assert!(!first.is_finished() && !mixed.is_finished(), "some of it comes from the store");
        assert_eq!(of_disk.await.expect("none of it does").len(), 2);
        drop(held);
        assert_eq!((first.await.expect("room").len(), mixed.await.expect("room").len()), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn who_gets_room_hears_for_how_long_nothing_came() {
        let (_, lanes) = lanes(16);
        let way = key("1:");
        let mut held = fill(&lanes, &way, FOR_READERS);
        let (since, mut after) = (now(), Vec::new());
        for came in [true, false] {
            tokio::time::advance(Duration::from_secs(3)).await;
            let one = held.pop().expect("one is left");
            if came {
                one.came(true);
            }
            drop(one);
            tokio::time::advance(Duration::from_secs(2)).await;
            after.push(lanes.room(&way, &[MEBIBYTE], since).await.expect("room").1.as_secs());
        }
        assert_eq!(after, [2, 7], "a block that will not come is no sign of the store");
    }
}
