//! How many threads listen to the kernel. While all requests are answered in a moment, few do, because
//! the kernel wakes another thread for each request if it can: measured on two cores, the warm open and
//! close of a file cost 6 us of daemon time with one listener and 12 us with eight. As soon as answers
//! take longer, all threads listen again.
//!
//! Invariant: as long as a thread is free, somebody listens.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The listeners of one session.
pub struct Turns {
    listening: Mutex<usize>,
    /// Fewer are never left while a thread is free.
    least: usize,
    wanted: Condvar,
}

/// The part of one thread in it.
pub struct Turn<'a> {
    turns: &'a Turns,
    listens: bool,
    /// Requests since the last slow one.
    quick: u32,
}

/// Quick requests in a row after which a thread leaves the listening to others: enough to tell a warm
/// epoch from the opens between two reads.
const QUICK_STREAK: u32 = 64;

impl Turns {
    pub fn new(least: usize) -> Turns {
        Turns { listening: Mutex::new(0), least: least.max(1), wanted: Condvar::new() }
    }

    /// A thread that will listen.
    pub fn join(&self) -> Turn<'_> {
        Turn { turns: self, listens: false, quick: 0 }
    }

    fn listening(&self) -> MutexGuard<'_, usize> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Before each request: returns when this thread is to listen.
    pub fn take(&mut self) {
        let resting = self.quick >= QUICK_STREAK;
        if self.listens && !resting {
            self.quick += 1;
            return;
        }
        self.quick = 0;
        let mut listening = self.turns.listening();
        if !self.listens {
            *listening += 1;
            self.listens = true;
        } else if *listening > self.turns.least {
            *listening -= 1;
            let wait = self.turns.wanted.wait_while(listening, |listening| *listening >= self.turns.least);
            *wait.unwrap_or_else(PoisonError::into_inner) += 1;
        }
    }

    /// Something slow comes: see to it that others listen meanwhile.
    pub fn pass(&mut self) {
        self.quick = 0;
        if !std::mem::take(&mut self.listens) {
            return;
        }
        let mut listening = self.turns.listening();
        *listening -= 1;
        if *listening < self.turns.least {
            self.turns.wanted.notify_one();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pass();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Threads that take their turns until they are told to stop.
    fn threads(turns: &Turns, slow_every: usize, during: impl FnOnce()) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut turn = turns.join();
                    let step = AtomicUsize::new(0);
                    while !stop.load(Ordering::Relaxed) {
                        turn.take();
                        if (step.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(slow_every) {
                            turn.pass();
                        }
                        std::thread::yield_now();
                    }
                });
            }
            during();
            stop.store(true, Ordering::Relaxed);
        });
    }

    fn wait_until(holds: impl Fn() -> bool) {
        while !holds() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_listener_is_left_while_all_requests_are_quick_and_the_end_wakes_all() {
        let turns = Turns::new(1);
        threads(&turns, usize::MAX, || {
            wait_until(|| *turns.listening() > 1);
            wait_until(|| *turns.listening() == 1);
        });
        assert_eq!(*turns.listening(), 0);
    }

    #[test]
    fn no_thread_rests_while_requests_are_slow() {
        let turns = Turns::new(1);
        let rounds = AtomicUsize::new(0);
        threads(&turns, 2, || wait_until(|| rounds.fetch_add(1, Ordering::Relaxed) > 1000));
        assert_eq!(*turns.listening(), 0);
    }

    #[test]
    fn a_slow_request_brings_a_resting_thread_back() {
        let turns = Turns::new(1);
        let mut first = turns.join();
        first.take();
        std::thread::scope(|scope| {
            let woken = scope.spawn(|| {
                let mut second = turns.join();
                (0..=QUICK_STREAK + 1).for_each(|_| second.take());
            });
            wait_until(|| *turns.listening() == 2);
            wait_until(|| *turns.listening() == 1);
            first.pass();
            woken.join().expect("the second thread listens and ends");
        });
        assert_eq!(*turns.listening(), 0);
    }
}
