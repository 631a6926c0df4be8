//! One budget of memory for everybody who holds blocks: the memory tier, and fetches on their way for others.
//!
//! A share is taken before a block is asked for and given back when its last holder lets go. Whoever holds blocks that
//! could be had again is asked to let go of some before anybody waits.
//!
//! Invariant: the sum of the shares never exceeds the budget.

use block::SMALL;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit of the budget: a semaphore counts in 32 bits.
const UNIT: usize = 4 << 10;

/// Shares of blocks.
#[derive(Clone)]
pub struct Budget(Arc<Parts>);

struct Parts {
    free: Arc<Semaphore>,
    units: usize,
    /// Readers that wait for a share: while there are any, nothing is held that nobody waits for.
    hungry: AtomicUsize,
    holders: RwLock<Vec<Weak<dyn Holder>>>,
}

/// A share of the budget, given back when it is dropped.
pub type Share = OwnedSemaphorePermit;

/// Holds blocks that could be had again.
pub trait Holder: Send + Sync {
    /// Let go of one, or with `spent_only` of one that was read to its end. False if there is none.
    fn let_go(&self, spent_only: bool) -> bool;
}

impl Budget {
    /// At least four small objects: less could not serve an unaligned read.
    pub fn of(bytes: u64) -> Budget {
        let units = (bytes.max(4 * SMALL) as usize) / UNIT;
        let (hungry, holders) = Default::default();
        Budget(Arc::new(Parts { free: Arc::new(Semaphore::new(units)), units, hungry, holders }))
    }

    /// Ask this holder too, from now on until it is dropped.
    pub fn add(&self, holder: Weak<dyn Holder>) {
        self.0.holders.write().unwrap_or_else(PoisonError::into_inner).push(holder);
    }

    /// A share; waits if all of them are in the hands of readers.
    pub async fn share(&self, bytes: usize) -> Share {
        loop {
            if let Some(share) = self.free(bytes) {
                return share;
            }
            if !self.let_go(false) {
                break;
            }
        }
        self.0.hungry.fetch_add(1, Relaxed);
        let _leave = Leave(&self.0.hungry);
        self.0.free.clone().acquire_many_owned(units(bytes)).await.expect("the budget is never closed")
    }

    /// A share if it is free, or held by blocks that were read to their end.
    pub fn spare(&self, bytes: usize) -> Option<Share> {
        loop {
            if self.is_short() {
                return None;
            }
            if let Some(share) = self.free(bytes) {
                return Some(share);
            }
            if !self.let_go(true) {
                return None;
            }
        }
    }

    /// Whether readers wait for shares.
    pub fn is_short(&self) -> bool {
        self.0.hungry.load(Relaxed) > 0
    }

    /// Bytes held, and the budget.
    pub fn usage(&self) -> (u64, u64) {
        let free = self.0.free.available_permits();
        ((self.0.units.saturating_sub(free) * UNIT) as u64, (self.0.units * UNIT) as u64)
    }

    fn free(&self, bytes: usize) -> Option<Share> {
        self.0.free.clone().try_acquire_many_owned(units(bytes)).ok()
    }

    fn let_go(&self, spent_only: bool) -> bool {
        let holders = self.0.holders.read().unwrap_or_else(PoisonError::into_inner);
        holders.iter().filter_map(Weak::upgrade).any(|holder| holder.let_go(spent_only))
    }
}

fn units(bytes: usize) -> u32 {
    bytes.div_ceil(UNIT) as u32
}

/// Takes a reader off the count of the hungry, also when its wait is given up.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
