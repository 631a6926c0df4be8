//! The clocks of a sweep: time that passes, and processor time of this process.
//!
//! It decides nothing. Invariant: no other file of the sweep reads a clock.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Started together with what it times.
#[derive(Clone, Copy)]
pub struct Watch {
    start: Instant,
    processor_start: f64,
}

impl Watch {
    pub fn start() -> Watch {
        Watch { start: Instant::now(), processor_start: processor_seconds() }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Of all threads of this process, in user space and in the kernel.
    pub fn processor_seconds(&self) -> f64 {
        processor_seconds() - self.processor_start
    }
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
