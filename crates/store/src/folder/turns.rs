//! Whose turn it is to read from a folder, among all threads that may wait for one.
//!
//! It reads nothing. Invariant: a file system that hangs keeps turns only for threads that wait for it, and however many
//! folders lie on it, it leaves some to every other.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Turns of all file systems. Half the threads of a node that may block: one that hangs keeps its threads for ever, and
/// none of them is taken from the cache and from what the node is asked.
pub const ALL: usize = 32;

/// Turns of one.
pub const ONE_MAX: usize = 16;

/// How many each has, by its number.
static TAKEN: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());
static FREED: Notify = Notify::const_new();

/// A turn, given back when it is dropped.
pub struct Turn(u64);

impl Turn {
    /// The next turn to read from a file system of this number.
    pub async fn of(device: u64) -> Turn {
        let mut freed = std::pin::pin!(FREED.notified());
        loop {
            freed.as_mut().enable();
            if take(&mut taken(), device) {
                return Turn(device);
            }
            freed.as_mut().await;
            freed.set(FREED.notified());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = taken();
        let own = taken.get_mut(&self.0).expect("it was counted");
        *own -= 1;
        if *own == 0 {
            taken.remove(&self.0);
        }
        drop(taken);
        FREED.notify_waiters();
    }
}

/// One more, as long as that leaves as many to others: the first that hangs keeps half, the next half of the rest.
fn take(taken: &mut BTreeMap<u64, usize>, device: u64) -> bool {
    let free = ALL - taken.values().sum::<usize>();
    let own = taken.get(&device).copied().unwrap_or(0);
    let is_free = own < ONE_MAX.min(free);
    if is_free {
        taken.insert(device, own + 1);
    }
    is_free
}

fn taken() -> MutexGuard<'static, BTreeMap<u64, usize>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_leaves_turns_to_others() {
        let mut taken = BTreeMap::new();
        let mut all_of = |device| (0..2 * ALL).filter(|_| take(&mut taken, device)).count();
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(&mut all_of), [16, 8, 4, 2, 1, 1, 0]);
    }
}
