//! How long requests take, and how long they would take alone. Pure: times come in.
//!
//! The shortest body of its size class stands for a body that has the wire to itself. It is never forgotten: a wire
//! that stays full would else come to look like an empty one. If the line gets worse for good, that errs towards
//! sending less.
//!
//! Invariant: no request would take longer alone than it took.

use std::time::Duration;

/// Sizes within a factor of two are one class.
const CLASSES: usize = 40;

/// Weight of the newest request in the running means.
const NEWEST: f64 = 1.0 / 32.0;

/// What one request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    pub bytes: u64,
    /// From the request to its answer.
    pub first_byte: Duration,
    /// Waiting for the bytes after that.
    pub body: Duration,
}

impl Timing {
    pub fn seconds(&self) -> f64 {
        (self.first_byte + self.body).as_secs_f64()
    }
}

/// Running figures of one store, in seconds.
pub struct Pace {
    least_first_byte: f64,
    least_body: [f64; CLASSES],
    first_byte: f64,
    /// What bodies take longer than alone.
    excess: f64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { least_first_byte: f64::MAX, least_body: [f64::MAX; CLASSES], first_byte: 0.0, excess: 0.0 }
    }
}

impl Pace {
    /// Note a request; the seconds that it would have taken alone come back.
    pub fn note(&mut self, timing: Timing) -> f64 {
        let (first_byte, body) = (timing.first_byte.as_secs_f64(), timing.body.as_secs_f64());
        let class = (timing.bytes.max(1).ilog2() as usize).min(CLASSES - 1);
        self.least_first_byte = self.least_first_byte.min(first_byte);
        self.least_body[class] = self.least_body[class].min(body);
        self.first_byte += (first_byte - self.first_byte) * NEWEST;
        self.excess += (body - self.least_body[class] - self.excess) * NEWEST;
        self.least_first_byte + self.least_body[class]
    }

    /// Whether bandwidth binds: bodies lose more time to each other than requests wait for their answers.
    pub fn binds(&self) -> bool {
        self.excess > self.first_byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(bytes: u64, first_byte_ms: u64, body_ms: u64) -> Timing {
        let ms = Duration::from_millis;
        Timing { bytes, first_byte: ms(first_byte_ms), body: ms(body_ms) }
    }

    #[test]
    fn bodies_that_share_a_wire_show_that_bandwidth_binds() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            assert_eq!(pace.note(timing(100_000, 20, 2)), 0.022);
            pace.note(timing(8 << 20, 20, 90));
        }
        assert!(!pace.binds(), "a long body is no reason, only one that takes longer than others of its size");
        for _ in 0..100 {
            assert_eq!(pace.note(timing(100_000, 20, 50)), 0.022);
        }
        assert!(pace.binds());
        for _ in 0..100 {
            pace.note(timing(100_000, 20, 2));
        }
        assert!(!pace.binds());
    }
}
