//! A run second by second.
//!
//! It keeps no clock. Invariant: what the seconds count adds up to what was counted.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::counters::Counters;
use super::reader::Tally;
use crate::clock::{Moment, SECOND, seconds};
use crate::report::Second;

pub struct Timeline {
    begun: Moment,
    last: Moment,
    counters: Counters,
    requests: u64,
    bytes: u64,
    pub seconds: Vec<Second>,
}

impl Timeline {
    pub fn begin(now: Moment, counters: Counters) -> Timeline {
        Timeline { begun: now, last: now, counters, requests: 0, bytes: 0, seconds: Vec::new() }
    }

    pub fn passed(&self, now: Moment) -> f64 {
        seconds(now - self.begun)
    }

    /// Note a second if one has passed.
    pub fn look(&mut self, now: Moment, tally: &Tally, counters: &dyn Fn() -> Counters) {
        if now >= self.last + SECOND {
            self.note(now, tally, &counters());
        }
    }

    /// Note what is left.
    pub fn end(&mut self, now: Moment, tally: &Tally, counters: &Counters) {
        if now > self.last {
            self.note(now, tally, counters);
        }
    }

    fn note(&mut self, now: Moment, tally: &Tally, counters: &Counters) {
        let passed = seconds(now - self.last);
        let (requests, bytes) = (tally.requests.load(Ordering::Relaxed), tally.asked.load(Ordering::Relaxed));
        let mut disk = BTreeMap::new();
        if let (Some(old), Some(new)) = (&self.counters.disk, &counters.disk) {
            let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / passed;
            let figures = [
                ("utilisation_percent", (rate(new.busy_ms, old.busy_ms) / 10.0).min(100.0)),
                ("read_iops", rate(new.reads, old.reads)),
                ("read_bytes_per_second", rate(new.read_bytes, old.read_bytes)),
                ("write_iops", rate(new.writes, old.writes)),
                ("write_bytes_per_second", rate(new.written_bytes, old.written_bytes)),
            ];
            disk.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        }
        self.seconds.push(Second {
            second: seconds(self.last - self.begun),
            requests: requests - self.requests,
            bytes: bytes - self.bytes,
            throttled: counters.throttled.saturating_sub(self.counters.throttled),
            errors: counters.errors.saturating_sub(self.counters.errors),
            disk,
        });
        (self.last, self.requests, self.bytes, self.counters) = (now, requests, bytes, counters.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_add_up() {
        let tally = Tally::default();
        let mut timeline = Timeline::begin(0, Counters::default());
        for now in 1..=10_u64 {
            tally.asked.fetch_add(10, Ordering::Relaxed);
            timeline.look(now * SECOND * 2 / 5, &tally, &Counters::default);
        }
        timeline.end(4 * SECOND, &tally, &Counters::default());
        assert_eq!(timeline.seconds.iter().map(|second| second.bytes).sum::<u64>(), 100);
        assert_eq!(timeline.seconds.len(), 4);
    }
}
