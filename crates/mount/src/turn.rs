//! How many threads listen to the kernel. While all requests are answered in a moment, few do, because
//! the kernel wakes another thread for each request if it can: measured on two cores, the warm open and
//! close of a file cost 6 us of daemon time with one listener and 12 us with eight. As soon as answers
//! take longer, all threads listen again.
//!
//! Invariant: as long as a thread is free, somebody listens.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The listeners of one session.
pub struct Turns {
    threads: Mutex<Threads>,
    /// Fewer are never left while a thread is free.
    least: usize,
    wanted: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Threads {
    listening: usize,
    resting: usize,
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
        Turns { threads: Mutex::default(), least: least.max(1), wanted: Condvar::new() }
    }

    /// A thread that will listen.
    pub fn join(&self) -> Turn<'_> {
        Turn { turns: self, listens: false, quick: 0 }
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut threads = self.turns.threads();
        if !self.listens {
            threads.listening += 1;
            self.listens = true;
        } else if threads.listening > self.turns.least {
            threads.listening -= 1;
            threads.resting += 1;
            let wanted = self.turns.wanted.wait_while(threads, |threads| threads.listening >= self.turns.least);
            let mut threads = wanted.unwrap_or_else(PoisonError::into_inner);
            threads.resting -= 1;
            threads.listening += 1;
        }
    }

    /// Something slow comes: see to it that others listen meanwhile.
    pub fn pass(&mut self) {
        self.quick = 0;
        if !std::mem::take(&mut self.listens) {
            return;
        }
        let mut threads = self.turns.threads();
        threads.listening -= 1;
        let wanted = threads.resting > 0 && threads.listening < self.turns.least;
        drop(threads);
        if wanted {
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

    /// Threads that take their turns until they are stopped.
    fn threads(turns: &Turns, slow_every: usize, during: impl FnOnce()) {
        let (joined, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut turn = turns.join();
                    turn.take();
                    joined.fetch_add(1, Ordering::Relaxed);
                    let mut step = 0;
                    while !stop.load(Ordering::Relaxed) {
                        turn.take();
                        step += 1;
                        if step % slow_every == 0 {
                            turn.pass();
                        }
                        std::thread::yield_now();
                    }
                });
            }
            wait_until(|| joined.load(Ordering::Relaxed) == 4);
            during();
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(*turns.threads(), Threads::default());
    }

    fn wait_until(holds: impl Fn() -> bool) {
        while !holds() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_listener_is_left_while_all_requests_are_quick_and_the_end_wakes_all() {
        let turns = Turns::new(1);
        threads(&turns, usize::MAX, || wait_until(|| turns.threads().listening == 1));
    }

    #[test]
    fn no_thread_rests_while_requests_are_slow() {
        let turns = Turns::new(4);
        threads(&turns, 2, || wait_until(|| turns.threads().listening == 4));
    }

    #[test]
    fn a_slow_request_brings_a_resting_thread_back() {
        let turns = Turns::new(1);
        let joined = AtomicBool::new(false);
        let mut first = turns.join();
        first.take();
        std::thread::scope(|scope| {
            let woken = scope.spawn(|| {
                let mut second = turns.join();
                second.take();
                joined.store(true, Ordering::Relaxed);
                (0..=QUICK_STREAK).for_each(|_| second.take());
            });
            wait_until(|| joined.load(Ordering::Relaxed));
            wait_until(|| turns.threads().listening == 1);
            first.pass();
            woken.join().expect("the second thread listens and ends");
        });
        assert_eq!(*turns.threads(), Threads::default());
    }
}
