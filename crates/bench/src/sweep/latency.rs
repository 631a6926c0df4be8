//! How long each operation took: a histogram that threads and ranks merge, its figures, and itself in few bytes.
//!
//! It takes no time. Invariant: no figure is off by more than a thousandth, and none is averaged from percentiles.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use report::Buckets;
use serde::{Deserialize, Serialize};

/// Three digits: off by at most a thousandth.
const DIGITS: u8 = 3;
/// A longer operation is counted as one of this length; its true length stays in `max`.
const LONGEST: Duration = Duration::from_secs(3600);

/// Percentiles that a cell gives, by the names that reports use.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

pub struct Latencies {
    histogram: Histogram<u64>,
    nanoseconds: u128,
    shortest: Option<u64>,
    longest: u64,
}

/// Operations of a rank as it sends them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    pub buckets: Buckets,
    pub nanoseconds: u128,
    pub shortest: Option<u64>,
    pub longest: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let longest = u64::try_from(LONGEST.as_nanos()).expect("an hour in nanoseconds fits in 64 bits");
        let histogram = Histogram::new_with_bounds(1, longest, DIGITS).expect("the bounds are in order");
        Latencies { histogram, nanoseconds: 0, shortest: None, longest: 0 }
    }
}

/// How long each took, in few bytes.
pub fn buckets(times: impl Iterator<Item = Duration>) -> Buckets {
    let mut latencies = Latencies::default();
    times.for_each(|took| latencies.record(took));
    latencies.buckets()
}

impl Latencies {
    pub fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanoseconds);
        self.nanoseconds += u128::from(nanoseconds);
        self.note(Some(nanoseconds), nanoseconds);
    }

    fn note(&mut self, shortest: Option<u64>, longest: u64) {
        self.shortest = [self.shortest, shortest].into_iter().flatten().min();
        self.longest = self.longest.max(longest);
    }

    pub fn merge(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
        self.nanoseconds += other.nanoseconds;
        self.note(other.shortest, other.longest);
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub fn mean_seconds(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.nanoseconds as f64 / self.count() as f64 / 1e9 }
    }

    /// `min`, `mean`, `p50`, `p90`, `p99`, `p99.9`, `max` in seconds; nothing of no operations.
    pub fn seconds(&self) -> BTreeMap<String, f64> {
        let Some(shortest) = self.shortest else { return BTreeMap::new() };
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let at = |quantile| seconds(self.histogram.value_at_quantile(quantile).min(self.longest).max(shortest));
        let mut figures: BTreeMap<String, f64> =
            PERCENTILES.iter().map(|(name, quantile)| ((*name).into(), at(*quantile))).collect();
        let exact = [("min", seconds(shortest)), ("mean", self.mean_seconds()), ("max", seconds(self.longest))];
        figures.extend(exact.map(|(name, value)| (name.to_owned(), value)));
        figures
    }

    pub fn recorded(&self) -> Recorded {
        let (nanoseconds, counts) =
            self.histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).unzip();
        let buckets = Buckets { nanoseconds, counts };
        Recorded { buckets, nanoseconds: self.nanoseconds, shortest: self.shortest, longest: self.longest }
    }

    /// Operations of another rank, added.
    pub fn add(&mut self, recorded: &Recorded) {
        for (value, count) in recorded.buckets.nanoseconds.iter().zip(&recorded.buckets.counts) {
            self.histogram.saturating_record_n(*value, *count);
        }
        self.nanoseconds += recorded.nanoseconds;
        self.note(recorded.shortest, recorded.longest);
    }

    /// With two digits, for a report: a cell keeps a few hundred buckets at most, and charts show no difference.
    pub fn buckets(&self) -> Buckets {
        let mut coarse =
            Histogram::<u64>::new_with_bounds(1, self.histogram.high(), 2).expect("the bounds are in order");
        coarse.add(&self.histogram).expect("the bounds are the same");
        let (nanoseconds, counts) =
            coarse.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).unzip();
        Buckets { nanoseconds, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(microseconds: impl Iterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        microseconds.for_each(|value| latencies.record(Duration::from_micros(value)));
        latencies
    }

    #[test]
    fn figures_are_those_of_the_operations() {
        let figures = of(1..=1_000).seconds();
        for (name, microseconds) in [
            ("min", 1.0),
            ("mean", 500.5),
            ("p50", 500.0),
            ("p90", 900.0),
            ("p99", 990.0),
            ("p99.9", 999.0),
            ("max", 1_000.0),
        ] {
            assert!((figures[name] * 1e6 / microseconds - 1.0).abs() < 0.0011, "{name}: {}", figures[name]);
        }
        assert!(Latencies::default().seconds().is_empty());
    }

    #[test]
    fn what_ranks_send_adds_up_to_what_one_would_have_seen() {
        let whole = of(1..=5_000);
        let (even, odd) =
            (of((1..=5_000).filter(|value| value % 2 == 0)), of((1..=5_000).filter(|value| value % 2 == 1)));
        let text = serde_json::to_string(&[even.recorded(), odd.recorded()]).expect("lists of numbers");
        let sent: [Recorded; 2] = serde_json::from_str(&text).expect("as it was sent");
        let mut sum = Latencies::default();
        sent.iter().for_each(|recorded| sum.add(recorded));
        assert_eq!(sum.seconds(), whole.seconds());
        assert_eq!(sum.buckets(), whole.buckets());
        assert_eq!(sum.buckets().counts.iter().sum::<u64>(), 5_000);
        assert!(sum.buckets().counts.len() < 1_200);
    }
}
