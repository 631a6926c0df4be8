//! Memory that blocks on their way from one store may take together, so that a store that hangs leaves some to others.
//!
//! Invariants: blocks that have come take none of it; nobody waits for longer than the patience while nothing comes.

use crate::waits::clock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Part of the memory that one store may take.
const PART: (u64, u64) = (3, 4);

/// Unit of it: a semaphore counts in 32 bits.
const UNIT: u64 = 4 << 10;

/// Stores that are remembered before those are forgotten that nothing is on its way from.
const SWEEP: usize = 64;

/// The lanes of all stores.
pub struct Lanes {
    units: usize,
    patience: Duration,
    of: Mutex<HashMap<Arc<str>, Arc<Lane>>>,
}

struct Lane {
    free: Arc<Semaphore>,
    /// When a block last came.
    came: Mutex<Option<Instant>>,
}

/// Room in a lane for a block on its way, given back when it is dropped.
pub struct Place {
    lane: Arc<Lane>,
    _room: OwnedSemaphorePermit,
}

impl Place {
    /// The block came.
    pub fn came(&self) {
        *self.lane.came() = Some(now());
    }
}

impl Lanes {
    /// Lanes of a memory of so many bytes, in which nobody waits for longer than this while nothing comes.
    pub fn over(bytes: u64, patience: Duration) -> Lanes {
        Lanes { units: (bytes / UNIT * PART.0 / PART.1) as usize, patience, of: Mutex::default() }
    }

    /// Room for blocks of these lengths, all at once; waits until as much of the same store has come. None if nothing
    /// comes.
    pub async fn room(&self, store: &Arc<str>, lengths: &[usize]) -> Option<Vec<Place>> {
        let (lane, began) = (self.of(store), now());
        let units_all = lengths.iter().map(|length| units(*length)).sum();
        let mut room = std::pin::pin!(lane.free.clone().acquire_many_owned(units_all));
        let mut all = loop {
            let last = lane.came().map_or(began, |came| came.max(began));
            match tokio::time::timeout_at(later(last, self.patience), &mut room).await {
                Ok(room) => break room.expect("it is never closed"),
                Err(_) if lane.came().is_none_or(|came| came <= last) => return None,
                Err(_) => {}
            }
        };
        let part = |length: &usize| {
            let room = all.split(units(*length) as usize).expect("their sum was taken");
            Place { lane: lane.clone(), _room: room }
        };
        Some(lengths.iter().map(part).collect())
    }

    /// Room for a block, if there is some.
    pub fn spare(&self, store: &Arc<str>, length: usize) -> Option<Place> {
        let lane = self.of(store);
        let room = lane.free.clone().try_acquire_many_owned(units(length)).ok()?;
        Some(Place { lane, _room: room })
    }

    fn of(&self, store: &Arc<str>) -> Arc<Lane> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= SWEEP && !of.contains_key(store) {
            of.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        let new = || Arc::new(Lane { free: Arc::new(Semaphore::new(self.units)), came: Mutex::default() });
        of.entry(store.clone()).or_insert_with(new).clone()
    }
}

impl Lane {
    fn came(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Instant {
    Instant::from_std(clock())
}

/// A patience of any length.
fn later(from: Instant, patience: Duration) -> Instant {
    /// Longer than any mount lives.
    const YEARS: Duration = Duration::from_secs(1 << 30);
    from + patience.min(YEARS)
}

fn units(length: usize) -> u32 {
    (length as u64).div_ceil(UNIT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stores_that_nothing_is_on_its_way_from_are_forgotten_and_no_others() {
        let (lanes, whole) = (Lanes::over(16 << 20, Duration::MAX), 12 << 20);
        let busy: Arc<str> = "busy:".into();
        let on_its_way = lanes.spare(&busy, whole).expect("nothing else is");
        for n in 0..10 * SWEEP {
            assert!(lanes.spare(&format!("{n}:").into(), whole).is_some());
        }
        assert!(lanes.of.lock().expect("nobody panicked").len() <= SWEEP);
        assert!(lanes.spare(&busy, 1).is_none(), "its lane is full still");
        drop(on_its_way);
        assert!(lanes.room(&busy, &[whole / 2, whole / 2]).await.is_some_and(|room| room.len() == 2));
    }
}
