//! Which files were opened without anybody being asked, so that whoever keeps them knows which ones are in use.
//!
//! Noted on the hottest path of a mount, hence in short lists that are handed on together: once one is full, and a
//! moment after the first of a quiet time.
//!
//! Invariant: a list never grows beyond [`LIST_MAX`]; what comes while it is full is not reported.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Nodes noted in one list: at 150,000 opens a second all lists together are full after a fifth of a second.
const LIST_MAX: usize = 1024;

/// A list is handed on from here on, while there is still room.
const LIST_ENOUGH: usize = LIST_MAX / 2;

/// Several times the threads of a session.
const LISTS: usize = 32;

/// How long the first of a quiet time waits for others. Much less than an epoch: a file whose open is not reported yet
/// looks unread, and gives way to others.
const GATHERED: Duration = Duration::from_millis(50);

/// The notes of one mount.
pub struct Used {
    lists: [Mutex<Vec<u64>>; LISTS],
    begun: Notify,
    enough: Notify,
}

impl Default for Used {
    fn default() -> Used {
        let lists = std::array::from_fn(|_| Mutex::new(Vec::new()));
        Used { lists, begun: Notify::new(), enough: Notify::new() }
    }
}

impl Used {
    /// A file was opened. Told twice in a row, it is noted once.
    pub fn note(&self, node: u64) {
        let mut list = self.list(node as usize);
        if list.last() == Some(&node) || list.len() == LIST_MAX {
            return;
        }
        list.push(node);
        let length = list.len();
        drop(list);
        match length {
            1 => self.begun.notify_one(),
            LIST_ENOUGH => self.enough.notify_one(),
            _ => {}
        }
    }

    /// Wait until there is something worth handing on.
    pub async fn gathered(&self) {
        self.begun.notified().await;
        let _ = tokio::time::timeout(GATHERED, self.enough.notified()).await;
    }

    /// Have whoever waits look, though nothing was noted.
    pub fn wake(&self) {
        self.begun.notify_one();
        self.enough.notify_one();
    }

    /// Everything noted so far, each node once.
    pub fn take(&self) -> Vec<u64> {
        let mut nodes: Vec<u64> = (0..LISTS).flat_map(|index| std::mem::take(&mut *self.list(index))).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    fn list(&self, node: usize) -> MutexGuard<'_, Vec<u64>> {
        self.lists[node % LISTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_reported_once_and_never_more_than_there_is_room_for() {
        let used = Used::default();
        [7, 7, 8, 7].into_iter().for_each(|node| used.note(node));
        assert_eq!(used.take(), [7, 8]);
        assert!(used.take().is_empty());
        let same_list = |index: usize| (index * LISTS) as u64;
        (0..2 * LIST_MAX).for_each(|index| used.note(same_list(index)));
        assert_eq!(used.take().len(), LIST_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_note_is_reported_after_a_moment_and_many_at_once() {
        let used = Used::default();
        let start = tokio::time::Instant::now();
        used.note(7);
        used.gathered().await;
        assert_eq!((start.elapsed(), used.take()), (GATHERED, vec![7]));
        let start = tokio::time::Instant::now();
        (0..LIST_ENOUGH).for_each(|index| used.note((index * LISTS) as u64));
        used.gathered().await;
        assert_eq!((start.elapsed(), used.take().len()), (Duration::ZERO, LIST_ENOUGH));
    }
}
