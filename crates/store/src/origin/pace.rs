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

/// Requests in flight that hardly take from each other, and how many such must be seen to go by them.
const ALONE: u32 = 2;
const ALONE_MIN: u32 = 8;

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
    /// Requests that were in flight when it was sent, itself among them.
    pub in_flight: u32,
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
    /// The same of requests that were sent with hardly another in flight, and how many there were.
    alone: f64,
    alone_count: u32,
    /// What bodies take longer than alone.
    excess: f64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            least_first_byte: f64::MAX,
            least_body: [f64::MAX; CLASSES],
            first_byte: 0.0,
            alone: 0.0,
            alone_count: 0,
            excess: 0.0,
        }
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
        if timing.in_flight <= ALONE {
            self.alone_count = self.alone_count.saturating_add(1);
            self.alone += (first_byte - self.alone) * NEWEST.max(1.0 / f64::from(self.alone_count));
        }
        self.excess += (body - self.least_body[class] - self.excess) * NEWEST;
        self.least_first_byte + self.least_body[class]
    }

    /// Whether bandwidth binds: requests lose more time to each other than one alone waits for its answer. That answers
    /// take long says nothing by itself, only that they take longer the more are in flight.
    pub fn binds(&self) -> bool {
        let alone = self.first_byte_alone().unwrap_or(self.first_byte);
        self.first_byte - alone + self.excess > alone
    }

    /// Seconds to the first byte with hardly another request in flight, if that was ever seen.
    pub fn first_byte_alone(&self) -> Option<f64> {
        (self.alone_count >= ALONE_MIN).then_some(self.alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(bytes: u64, first_byte_ms: u64, body_ms: u64) -> Timing {
        let ms = Duration::from_millis;
        Timing { bytes, first_byte: ms(first_byte_ms), body: ms(body_ms), in_flight: 8 }
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

    #[test]
    fn answers_that_take_longer_the_more_are_in_flight_show_it_too() {
        let mut pace = Pace::default();
        for at in 0..200 {
            pace.note(timing(100_000, 5 + at % 100, 1));
            pace.note(Timing { in_flight: 1, ..timing(100_000, 5 + (at * 7) % 100, 1) });
        }
        assert!(!pace.binds(), "latency that varies is no full wire");
        for _ in 0..100 {
            pace.note(Timing { in_flight: 1, ..timing(100_000, 1, 1) });
            pace.note(timing(100_000, 8, 1));
        }
        for _ in 0..100 {
            pace.note(timing(100_000, 8, 1));
        }
        assert!(pace.binds());
    }
}
