//! Many hosts at once, and the end of what was begun on them.
//!
//! Invariant: no more hosts are under way than asked for, and each has its outcome, in the order of the roster.

use crate::{Failure, Host};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The wish that all ends, and what waits for it or for the end of a connection.
#[derive(Default)]
pub struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Ended,
    Stopped,
    TimedOut,
}

impl Stop {
    /// Ask for the end of all; whether somebody had before.
    pub fn stop(&self) -> bool {
        let was = std::mem::replace(&mut *self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner), true);
        self.changed.notify_all();
        was
    }

    pub fn is_wanted(&self) -> bool {
        *self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Say that something has ended.
    pub(crate) fn tell(&self, ended: &AtomicBool) {
        // Under the lock, so that nobody looks before and sleeps after.
        let held = self.is_wanted.lock();
        ended.store(true, Ordering::SeqCst);
        drop(held);
        self.changed.notify_all();
    }

    /// Wait for an end, the wish for one (unless that `is_heard` no more), or the limit.
    pub(crate) fn wait(&self, ended: &AtomicBool, limit: Option<Duration>, is_heard: bool) -> Over {
        let held = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |wanted: &mut bool| !(ended.load(Ordering::SeqCst) || is_heard && *wanted);
        let held = match limit {
            Some(limit) => self
                .changed
                .wait_timeout_while(held, limit, goes_on)
                .map_or_else(|held| held.into_inner().0, |held| held.0),
            None => self.changed.wait_while(held, goes_on).unwrap_or_else(PoisonError::into_inner),
        };
        match (ended.load(Ordering::SeqCst), is_heard && *held) {
            (true, _) => Over::Ended,
            (false, true) => Over::Stopped,
            (false, false) => Over::TimedOut,
        }
    }
}

/// Work on each host, so many at a time.
pub fn each<T: Send>(
    hosts: &[Host],
    at_once: usize,
    stop: &Stop,
    work: impl Fn(&Host) -> Result<T, Failure> + Sync,
) -> Vec<Result<T, Failure>> {
    let next = AtomicUsize::new(0);
    let outcomes: Vec<Mutex<Option<Result<T, Failure>>>> = hosts.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..at_once.clamp(1, hosts.len().max(1)) {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::SeqCst)).filter(|at| *at < hosts.len()) {
                    let done = if stop.is_wanted() { Err(Failure::Stopped) } else { work(&hosts[at]) };
                    *outcomes[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                }
            });
        }
    });
    let outcome = |slot: Mutex<Option<_>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.into_iter().map(|slot| outcome(slot).expect("each host was worked on")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: usize) -> Vec<Host> {
        (0..count).map(|number| Host::named(&format!("a{number}")).expect("a host")).collect()
    }

    #[test]
    fn no_more_are_under_way_than_asked_for_and_outcomes_stand_in_order() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let done = each(&hosts(40), 3, &Stop::default(), |host| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(host.label())
        });
        assert!(most.load(Ordering::SeqCst) <= 3);
        assert_eq!(
            done.into_iter().map(|label| label.expect("done")).collect::<Vec<_>>(),
            hosts(40).iter().map(Host::label).collect::<Vec<_>>()
        );
    }

    #[test]
    fn who_was_not_begun_when_all_is_to_end_is_not_begun() {
        let stop = Stop::default();
        let done = each(&hosts(3), 1, &stop, |_| {
            stop.stop();
            Ok(())
        });
        assert_eq!(done, [Ok(()), Err(Failure::Stopped), Err(Failure::Stopped)]);
    }

    #[test]
    fn a_wait_ends_with_what_it_waits_for_with_the_wish_for_an_end_or_with_time() {
        let (stop, ended) = (Stop::default(), AtomicBool::new(false));
        assert_eq!(stop.wait(&ended, Some(Duration::from_millis(1)), true), Over::TimedOut);
        thread::scope(|scope| {
            scope.spawn(|| stop.stop());
            assert_eq!(stop.wait(&ended, None, true), Over::Stopped);
        });
        assert_eq!(stop.wait(&ended, Some(Duration::from_millis(1)), false), Over::TimedOut);
        thread::scope(|scope| {
            scope.spawn(|| stop.tell(&ended));
            assert_eq!(stop.wait(&ended, None, false), Over::Ended);
        });
    }
}
