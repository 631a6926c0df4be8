//! The one place of this crate where time is read; everything else is given it.
//!
//! Invariant: `now` never goes back; `wall` is for comparing with the times of files.

use crate::limits::Nanoseconds;
use crate::timer::Timer;
use std::time::{Duration, Instant, SystemTime};

/// Now, for timers.
pub fn moment() -> Instant {
    Instant::now()
}

/// Time since the server started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { started: Instant::now() }
    }

    pub fn now(&self) -> Nanoseconds {
        crate::limits::nanoseconds(self.started.elapsed())
    }

    /// Nanoseconds since 1970.
    pub fn wall(&self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        crate::limits::nanoseconds(since)
    }

    /// The timer for a moment; none if it is so near that waking up would only be late.
    pub fn until(&self, due: Nanoseconds) -> Option<Timer> {
        const NEAR: Nanoseconds = 50_000;
        let left = due - self.now();
        (left > NEAR).then(|| Timer::after(Duration::from_nanos(left as u64)))
    }
}
