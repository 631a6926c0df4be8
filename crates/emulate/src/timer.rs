//! Wakes tasks at a moment, to within some tens of microseconds: the runtime's own timers go by steps of a millisecond,
//! which would make a store of 2 ms half as slow again.
//!
//! Invariant: a timer never ends early, and ends though nobody polls it for any other reason.

use crate::clock::moment;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Ends at its moment.
pub struct Timer {
    due: Instant,
    sleeper: Option<Arc<Sleeper>>,
}

/// Whom to wake.
#[derive(Default)]
struct Sleeper(Mutex<Option<Waker>>);

impl Sleeper {
    fn set(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), waker)
    }
}

impl Timer {
    pub fn at(due: Instant) -> Timer {
        Timer { due, sleeper: None }
    }

    pub fn after(time: Duration) -> Timer {
        Timer::at(moment() + time)
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let due = self.due;
        if moment() >= due {
            return Poll::Ready(());
        }
        let is_new = self.sleeper.is_none();
        let sleeper = self.sleeper.get_or_insert_default();
        sleeper.set(Some(context.waker().clone()));
        if is_new {
            let _ = watch().send(Alarm { due, sleeper: sleeper.clone() });
        }
        // Whoever was to be woken may have been a moment ago, in the place of this task.
        if moment() >= due { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A moment, and who sleeps until then. The nearest is the greatest: a heap gives that first.
struct Alarm {
    due: Instant,
    sleeper: Arc<Sleeper>,
}

impl Ord for Alarm {
    fn cmp(&self, other: &Alarm) -> Ordering {
        other.due.cmp(&self.due)
    }
}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Alarm) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Alarm) -> bool {
        self.due == other.due
    }
}

impl Eq for Alarm {}

/// The thread that watches the clock for all.
fn watch() -> &'static Sender<Alarm> {
    static WATCH: OnceLock<Sender<Alarm>> = OnceLock::new();
    WATCH.get_or_init(|| {
        let (sender, alarms) = channel();
        std::thread::Builder::new()
            .name("timer".into())
            .spawn(move || keep(&alarms))
            .expect("one thread can be started");
        sender
    })
}

fn keep(alarms: &Receiver<Alarm>) {
    let mut waiting = BinaryHeap::<Alarm>::new();
    loop {
        let now = moment();
        while waiting.peek().is_some_and(|alarm| alarm.due <= now) {
            let waker = waiting.pop().and_then(|alarm| alarm.sleeper.set(None));
            waker.into_iter().for_each(Waker::wake);
        }
        let next = match waiting.peek() {
            Some(alarm) => alarms.recv_timeout(alarm.due.saturating_duration_since(now)),
            None => alarms.recv().map_err(RecvTimeoutError::from),
        };
        match next {
            Ok(alarm) => waiting.push(alarm),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn timers_end_in_the_order_of_their_moments_and_never_early() {
        let begun = moment();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let each = [30, 10, 20, 0, 10].map(|milliseconds| {
            let ended = ended.clone();
            tokio::spawn(async move {
                let due = begun + Duration::from_millis(milliseconds);
                Timer::at(due).await;
                assert!(moment() >= due);
                ended.lock().unwrap().push(milliseconds);
            })
        });
        for one in each {
            one.await.unwrap();
        }
        assert_eq!(*ended.lock().unwrap(), [0, 10, 10, 20, 30]);
    }

    #[tokio::test]
    async fn a_timer_that_changes_hands_wakes_who_holds_it() {
        let mut timer = Box::pin(Timer::after(Duration::from_millis(20)));
        // Polled here once, and then waited for by another task.
        let nobody = futures_util::task::noop_waker();
        assert!(timer.as_mut().poll(&mut Context::from_waker(&nobody)).is_pending());
        tokio::spawn(timer).await.unwrap();
    }

    #[tokio::test]
    async fn thousands_wait_at_once_and_those_given_up_are_forgotten() {
        let due = moment() + Duration::from_millis(30);
        for _ in 0..1_000 {
            let mut given_up = Box::pin(Timer::at(due));
            let nobody = futures_util::task::noop_waker();
            assert!(given_up.as_mut().poll(&mut Context::from_waker(&nobody)).is_pending());
        }
        futures_util::future::join_all((0..4_000).map(|_| Timer::at(due))).await;
        assert!(moment() >= due);
    }
}
