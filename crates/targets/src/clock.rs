//! The time that measurements are taken by: all but the sweep's stopwatch read it here, so that tests can give another.
//!
//! It doesn't know the time of day. Invariant: it never goes back.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since a beginning that only the clock knows.
pub type Moment = u64;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// How long before a moment a sleeping thread wakes, to meet it by watching the clock: the kernel's timers come up to
/// 50 us late by default, and a processor takes about as long again to leave its sleep.
pub const WATCH: u64 = 150_000;

/// What tells the time and waits for it.
pub trait Clock: Send + Sync {
    fn now(&self) -> Moment;

    /// Returns at the moment, not before.
    fn sleep_until(&self, moment: Moment);
}

/// The machine's own, which nobody sets.
pub struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> Moment {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec.cast_unsigned() * SECOND + time.tv_nsec.cast_unsigned()
    }

    fn sleep_until(&self, moment: Moment) {
        if self.now() + WATCH < moment {
            let early = moment - WATCH;
            let request = Timespec { tv_sec: (early / SECOND).cast_signed(), tv_nsec: (early % SECOND).cast_signed() };
            // A signal may end the sleep; then the rest is slept again.
            while clock_nanosleep_absolute(ClockId::Monotonic, &request).is_err() {}
        }
        while self.now() < moment {
            std::hint::spin_loop();
        }
    }
}

/// Nanoseconds as seconds.
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / SECOND as f64
}

/// Seconds as nanoseconds, to the nearest.
pub fn nanoseconds(seconds: f64) -> u64 {
    (seconds * SECOND as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_never_ends_early() {
        for wait in [0, 1, 20_000, WATCH, 2 * WATCH, 3_000_000] {
            let until = Monotonic.now() + wait;
            Monotonic.sleep_until(until);
            assert!(Monotonic.now() >= until);
        }
    }
}
