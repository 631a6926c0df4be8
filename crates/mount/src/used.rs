//! Which files were used without anybody being asked, by whom and in which order, so that whoever keeps them knows which
//! ones are in use, and what comes next.
//!
//! Noted on the hottest path of a mount, hence in short lists that are handed on together: once one is full, and a
//! moment after the first of a quiet time.
//!
//! Invariant: a list never grows beyond [`LIST_MAX`]; what comes while it is full is not reported.

use node::namespace::Use;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
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
    lists: [Mutex<Vec<(u64, Use)>>; LISTS],
    /// Number of the next note, and of the first that was not handed on.
    next: AtomicU64,
    first: AtomicU64,
    begun: Notify,
    enough: Notify,
}

impl Default for Used {
    fn default() -> Used {
        let lists = std::array::from_fn(|_| Mutex::new(Vec::new()));
        let (next, first) = Default::default();
        Used { lists, next, first, begun: Notify::new(), enough: Notify::new() }
    }
}

impl Used {
    /// A file was used. By the same thread twice in a row, it is noted once.
    pub fn note(&self, used: Use) {
        let mut list = self.list(used.node as usize);
        let is_same = |last: &Use| last.node == used.node && (last.thread == used.thread || !used.is_open);
        let is_told = |last: &Use| is_same(last) && last.is_open >= used.is_open;
        if list.last().is_some_and(|(_, last)| is_told(last)) || list.len() == LIST_MAX {
            return;
        }
        list.push((self.next.fetch_add(1, Relaxed), used));
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

    /// How much was noted that was not handed on.
    pub fn waiting(&self) -> u64 {
        self.next.load(Relaxed).saturating_sub(self.first.load(Acquire))
    }

    /// Hand on everything noted so far, in order, of each node and thread once: when it was opened, if it was. Until that is done, it waits.
    pub fn hand_on(&self, to: impl FnOnce(&[Use])) {
        let next = self.next.load(Relaxed);
        let uses = self.take();
        if !uses.is_empty() {
            to(&uses);
        }
        self.first.store(next, Release);
    }

    fn take(&self) -> Vec<Use> {
        let mut noted: Vec<(u64, Use)> = (0..LISTS).flat_map(|index| std::mem::take(&mut *self.list(index))).collect();
        noted.sort_unstable_by_key(|(number, used)| (used.node, used.thread, !used.is_open, *number));
        noted.dedup_by_key(|(_, used)| (used.node, used.thread));
        noted.sort_unstable_by_key(|(number, _)| *number);
        noted.into_iter().map(|(_, used)| used).collect()
    }

    fn list(&self, node: usize) -> MutexGuard<'_, Vec<(u64, Use)>> {
        self.lists[node % LISTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(node: u64) -> Use {
        Use { node, thread: 1, is_open: true }
    }

    #[test]
    fn what_is_noted_is_reported_once_in_its_order_and_never_more_than_there_is_room_for() {
        let used = Used::default();
        assert_eq!(used.waiting(), 0);
        let more = Use { is_open: false, ..open(6) };
        [more, open(9), open(7), open(7), open(8), open(7), open(6), more].into_iter().for_each(|file| used.note(file));
        let other = Use { thread: 2, ..open(7) };
        used.note(other);
        assert_eq!(used.waiting(), 6);
        used.hand_on(|uses| {
            assert_eq!(uses, [open(9), open(7), open(8), open(6), other], "when it was opened");
            assert_eq!(used.waiting(), 6, "until it was handed on");
        });
        assert_eq!(used.waiting(), 0);
        used.hand_on(|_| panic!("it was handed on"));
        used.note(more);
        assert_eq!(used.take(), [more]);
        let same_list = |index: usize| (index * LISTS) as u64;
        (0..2 * LIST_MAX).for_each(|index| used.note(open(same_list(index))));
        assert_eq!(used.take().len(), LIST_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_note_is_reported_after_a_moment_and_many_at_once() {
        let used = Used::default();
        let start = tokio::time::Instant::now();
        used.note(open(7));
        used.gathered().await;
        assert_eq!((start.elapsed(), used.take()), (GATHERED, vec![open(7)]));
        let start = tokio::time::Instant::now();
        (0..LIST_ENOUGH).for_each(|index| used.note(open((index * LISTS) as u64)));
        used.gathered().await;
        assert_eq!((start.elapsed(), used.take().len()), (Duration::ZERO, LIST_ENOUGH));
    }
}
