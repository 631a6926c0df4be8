//! Memory that blocks on their way from one store may take together, so that a store that hangs leaves some to others.
//!
//! Invariant: blocks that have come take none of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Part of the memory that one store may take.
const PART: (u64, u64) = (3, 4);

/// Unit of it: a semaphore counts in 32 bits.
const UNIT: u64 = 4 << 10;

/// Stores that are remembered before those are forgotten that nothing is on its way from.
const SWEEP: usize = 64;

/// The lanes of all stores.
pub struct Lanes {
    units: usize,
    of: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// Room in a lane, given back when it is dropped.
pub type Lane = OwnedSemaphorePermit;

impl Lanes {
    /// Lanes of a memory of so many bytes.
    pub fn over(bytes: u64) -> Lanes {
        Lanes { units: (bytes / UNIT * PART.0 / PART.1) as usize, of: Mutex::default() }
    }

    /// Room for blocks of these lengths, all at once; waits until as much of the same store has come.
    pub async fn room(&self, store: &Arc<str>, lengths: &[usize]) -> Vec<Lane> {
        let all = lengths.iter().map(|length| units(*length)).sum();
        let mut all = self.of(store).acquire_many_owned(all).await.expect("it is never closed");
        let part = |length: &usize| all.split(units(*length) as usize).expect("their sum was taken");
        lengths.iter().map(part).collect()
    }

    /// Room for a block, if there is some.
    pub fn spare(&self, store: &Arc<str>, length: usize) -> Option<Lane> {
        self.of(store).try_acquire_many_owned(units(length)).ok()
    }

    fn of(&self, store: &Arc<str>) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= SWEEP && !of.contains_key(store) {
            of.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        of.entry(store.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.units))).clone()
    }
}

fn units(length: usize) -> u32 {
    (length as u64).div_ceil(UNIT) as u32
}
