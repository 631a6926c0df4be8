//! A run second by second.
//!
//! It keeps no clock. Invariant: what the seconds count adds up to what was counted, on one rank and on all.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::counters::Counters;
use super::reader::ReadCounters;
use report::Second;
use targets::clock::{Moment, SECOND, seconds};

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
    pub fn look(&mut self, now: Moment, tally: &ReadCounters, counters: &dyn Fn() -> Counters) {
        if now >= self.last + SECOND {
            self.note(now, tally, &counters());
        }
    }

    /// Note what is left.
    pub fn end(&mut self, now: Moment, tally: &ReadCounters, counters: &Counters) {
        if now > self.last {
            self.note(now, tally, counters);
        }
    }

    fn note(&mut self, now: Moment, tally: &ReadCounters, counters: &Counters) {
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

/// The seconds of all ranks, which began together, as they fall into those of the first. The clocks of ranks notice the
/// end of a second at different moments: what another counted is taken to be spread evenly over its own.
pub fn together(ranks: &[(Vec<Second>, f64)]) -> Vec<Second> {
    let Some(((own, _), others)) = ranks.split_first() else { return Vec::new() };
    let mut sum = own.clone();
    for (rows, end) in others.iter().filter(|_| !own.is_empty()) {
        let mut at = 0;
        for (number, row) in rows.iter().enumerate() {
            let next = rows.get(number + 1).map_or(*end, |next| next.second);
            let (mut from, mut left) = (row.second, row.clone());
            loop {
                let until = sum.get(at + 1).map_or(f64::INFINITY, |next| next.second);
                let share = if until < next { (until - from) / (next - from) } else { 1.0 };
                for (into, left) in counts(&mut sum[at]).into_iter().zip(counts(&mut left)) {
                    let given = (*left as f64 * share).round() as u64;
                    (*into, *left) = (*into + given, *left - given);
                }
                if until >= next {
                    break;
                }
                (from, at) = (until, at + 1);
            }
        }
    }
    sum
}

fn counts(row: &mut Second) -> [&mut u64; 4] {
    [&mut row.requests, &mut row.bytes, &mut row.throttled, &mut row.errors]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_count_falls_into_the_seconds_of_the_first() {
        let rows = |all: &[(f64, u64)]| -> Vec<Second> {
            all.iter().map(|&(second, bytes)| Second { second, bytes, ..Second::default() }).collect()
        };
        let first = (rows(&[(0.0, 10), (1.0, 10), (2.0, 5)]), 2.5);
        let second = (rows(&[(0.0, 300), (1.5, 100), (3.5, 7)]), 3.5);
        let found = together(&[first.clone(), second, (Vec::new(), 2.5)]);
        // Two thirds of 300 in the first second; the rest, and a quarter of 100, in the next.
        let bytes: Vec<u64> = found.iter().map(|row| row.bytes).collect();
        assert_eq!(bytes, [10 + 200, 10 + 100 + 25, 5 + 75 + 7]);
        assert_eq!(together(std::slice::from_ref(&first)), first.0);
        assert!(together(&[]).is_empty());
    }

    #[test]
    fn seconds_add_up() {
        let tally = ReadCounters::default();
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
