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

/// The least budget, four small objects: less could not serve an unaligned read.
pub const BYTES_MIN: u64 = 4 * SMALL;
const UNITS_MIN: usize = BYTES_MIN as usize / UNIT;

/// Part of the budget that is not spent on what nobody waits for yet, so that a reader who begins need not push out
/// what others are about to read.
const LEFT_SHARE: usize = 8;

/// Shares of blocks.
#[derive(Clone)]
pub struct Budget(Arc<Parts>);

struct Parts {
    free: Arc<Semaphore>,
    /// What the budget is now, and what it is while others use no memory.
    units: AtomicUsize,
    units_whole: usize,
    /// Taken off the budget while readers held it; it goes once they let go.
    owed: Arc<AtomicUsize>,
    /// Readers that wait for a share: while there are any, nothing is held that nobody waits for.
    hungry: AtomicUsize,
    holders: RwLock<Vec<Weak<dyn Holder>>>,
}

/// A share of the budget, given back when it is dropped.
pub type Share = OwnedSemaphorePermit;

/// Holds blocks that could be had again. It asks [`Budget::is_short`] under the lock under which it lets go, before it
/// holds another one: who is hungry says so, then asks it.
pub trait Holder: Send + Sync {
    /// Let go of one, or with `spent_only` of one that was read to its end. False if there is none.
    fn let_go(&self, spent_only: bool) -> bool;
}

impl Budget {
    /// At least four small objects.
    pub fn of(bytes: u64) -> Budget {
        let units_whole = (bytes as usize / UNIT).max(UNITS_MIN);
        let (free, units) = (Arc::new(Semaphore::new(units_whole)), AtomicUsize::new(units_whole));
        let (owed, hungry, holders) = Default::default();
        Budget(Arc::new(Parts { free, units, units_whole, owed, hungry, holders }))
    }

    /// Ask this holder too, from now on until it is dropped.
    pub fn add(&self, holder: Weak<dyn Holder>) {
        self.0.holders.write().unwrap_or_else(PoisonError::into_inner).push(holder);
    }

    /// A share; waits if all of them are in the hands of readers.
    pub async fn share(&self, bytes: usize) -> Share {
        self.wait_for(units(bytes)).await
    }

    /// Shares for blocks of these lengths, all at once: who held some while waiting for more could wait for ever, for
    /// somebody who does the same. Together at most what the least budget has.
    pub async fn shares(&self, lengths: &[usize]) -> Vec<Share> {
        let mut all = self.wait_for(lengths.iter().map(|length| units(*length)).sum()).await;
        let part = |length: &usize| all.split(units(*length) as usize).expect("their sum was taken");
        lengths.iter().map(part).collect()
    }

    async fn wait_for(&self, units: u32) -> Share {
        if let Some(share) = self.take(units) {
            return share;
        }
        self.0.hungry.fetch_add(1, Relaxed);
        let _leave = Leave(&self.0.hungry);
        // What was kept until somebody was seen to be hungry, nobody else would let go of.
        if let Some(share) = self.take(units) {
            return share;
        }
        self.0.free.clone().acquire_many_owned(units).await.expect("the budget is never closed")
    }

    /// A share if it is free, or held by blocks that were read to their end. Some of the budget stays free for those
    /// who wait.
    pub fn spare(&self, bytes: usize) -> Option<Share> {
        let (left, units) = (self.0.units.load(Relaxed) / LEFT_SHARE, units(bytes));
        loop {
            if self.is_short() {
                return None;
            }
            if self.0.free.available_permits() >= left + units as usize
                && let Some(share) = self.free(units)
            {
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

    /// Leave so many bytes to others, such as an index that grew, in place of what was left to them before. Blocks give
    /// way; what readers hold goes once they let go of it, of which `runtime` sees to it. Four small objects remain.
    pub fn leave(&self, bytes: u64, runtime: &tokio::runtime::Handle) {
        let parts = &self.0;
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(UNIT);
        let units = parts.units_whole.saturating_sub(wanted).max(UNITS_MIN);
        let before = parts.units.swap(units, Relaxed);
        parts.free.add_permits(units.saturating_sub(before));
        let mut missing = before.saturating_sub(units);
        loop {
            missing -= parts.free.forget_permits(missing);
            if missing == 0 || !self.let_go(false) {
                break;
            }
        }
        if missing > 0 {
            let (free, owed) = (parts.free.clone(), parts.owed.clone());
            owed.fetch_add(missing, Relaxed);
            runtime.spawn(async move {
                free.acquire_many(missing as u32).await.expect("the budget is never closed").forget();
                owed.fetch_sub(missing, Relaxed);
            });
        }
    }

    /// Bytes held, and the budget.
    pub fn usage(&self) -> (u64, u64) {
        let (units, owed) = (self.0.units.load(Relaxed), self.0.owed.load(Relaxed));
        let held = (units + owed).saturating_sub(self.0.free.available_permits());
        ((held.min(units) * UNIT) as u64, (units * UNIT) as u64)
    }

    /// A share that is free, or that a holder lets go of.
    fn take(&self, units: u32) -> Option<Share> {
        loop {
            let share = self.free(units);
            if share.is_some() || !self.let_go(false) {
                return share;
            }
        }
    }

    fn free(&self, units: u32) -> Option<Share> {
        self.0.free.clone().try_acquire_many_owned(units).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Mutex;

    /// Holds shares that nobody reads.
    #[derive(Default)]
    struct Held(Mutex<Vec<Share>>);

    impl Holder for Held {
        fn let_go(&self, _spent_only: bool) -> bool {
            self.0.lock().expect("nobody panicked").pop().is_some()
        }
    }

    /// Holds shares that were read to their end, and others.
    #[derive(Default)]
    struct Read {
        spent: Held,
        unspent: Held,
    }

    impl Holder for Read {
        fn let_go(&self, spent_only: bool) -> bool {
            self.spent.let_go(spent_only) || !spent_only && self.unspent.let_go(spent_only)
        }
    }

    fn free(budget: &Budget) -> u64 {
        (budget.0.free.available_permits() * UNIT) as u64
    }

    #[tokio::test]
    async fn what_was_not_read_gives_way_only_to_those_who_need_it_and_no_more_than_they_need() {
        let (budget, first, second) = (Budget::of(8 * SMALL), Arc::new(Held::default()), Arc::new(Read::default()));
        let holders: [Weak<dyn Holder>; 2] = [Arc::downgrade(&first) as _, Arc::downgrade(&second) as _];
        holders.into_iter().for_each(|holder| budget.add(holder));
        let runtime = tokio::runtime::Handle::current();
        let length = SMALL as usize;
        for held in [&second.spent, &second.spent, &second.unspent, &second.unspent, &second.unspent, &second.unspent] {
            let share = budget.share(length).await;
            held.0.lock().expect("nobody panicked").push(share);
        }
        let unspent = || second.unspent.0.lock().expect("nobody panicked").len();
        // An eighth is left to those who wait.
        let spare: Vec<_> = std::iter::from_fn(|| budget.spare(length)).collect();
        assert_eq!((spare.len(), unspent(), free(&budget)), (3, 4, SMALL));
        let urgent = [budget.share(length).await, budget.share(length).await];
        assert_eq!((unspent(), free(&budget)), (3, 0));
        budget.leave(SMALL, &runtime);
        assert_eq!((unspent(), budget.0.owed.load(Relaxed)), (2, 0), "no more than is wanted gives way");
        budget.leave(4 * SMALL, &runtime);
        assert_eq!((unspent(), budget.0.owed.load(Relaxed) * UNIT), (0, length));
        drop((spare, urgent));
        while budget.0.owed.load(Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!((budget.usage(), free(&budget)), ((0, 4 * SMALL), 4 * SMALL));
    }

    /// Holds a share that is kept, unless somebody is short, just after it was asked to let go of what it has.
    struct Late {
        budget: Budget,
        coming: Mutex<Option<Share>>,
        kept: Held,
    }

    impl Holder for Late {
        fn let_go(&self, spent_only: bool) -> bool {
            let let_go = self.kept.let_go(spent_only);
            let coming = self.coming.lock().expect("nobody panicked").take();
            if let Some(share) = coming.filter(|_| !self.budget.is_short()) {
                self.kept.0.lock().expect("nobody panicked").push(share);
            }
            let_go
        }
    }

    #[tokio::test]
    async fn nobody_waits_for_what_was_kept_while_it_asked() {
        let budget = Budget::of(0);
        let all = budget.share(4 * SMALL as usize).await;
        let late = Arc::new(Late { budget: budget.clone(), coming: Some(all).into(), kept: Held::default() });
        let holder: Weak<Late> = Arc::downgrade(&late);
        budget.add(holder);
        let share = budget.share(SMALL as usize).now_or_never();
        assert!(share.is_some(), "nobody else would ever give it back");
        assert!(!budget.is_short());
    }

    #[tokio::test]
    async fn what_is_left_to_others_is_taken_from_blocks_and_given_back() {
        let (budget, held) = (Budget::of(12 * SMALL), Arc::new(Held::default()));
        let holder: Weak<Held> = Arc::downgrade(&held);
        budget.add(holder);
        let runtime = tokio::runtime::Handle::current();
        let mut read = Vec::new();
        for n in 0..12 {
            let share = budget.share(SMALL as usize).await;
            if n % 2 == 0 { read.push(share) } else { held.0.lock().expect("nobody panicked").push(share) }
        }
        budget.leave(10 * SMALL, &runtime);
        assert_eq!(budget.usage(), (4 * SMALL, 4 * SMALL), "never above its limit, and four remain");
        assert!(held.0.lock().expect("nobody panicked").is_empty(), "what nobody reads gave way");
        assert_eq!(budget.0.owed.load(Relaxed) * UNIT, 2 * SMALL as usize, "the rest once it is read");
        read.clear();
        while budget.0.owed.load(Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!((budget.usage(), free(&budget)), ((0, 4 * SMALL), 4 * SMALL));
        budget.leave(0, &runtime);
        assert_eq!((budget.usage(), free(&budget)), ((0, 12 * SMALL), 12 * SMALL));
    }
}
