//! How long a request takes until its first byte: log-normal, with a share of much slower ones.
//!
//! It moves no bytes. Invariant: the same seed and stream give the same draws on every machine of one word size.

use std::f64::consts::TAU;

use data::noise::Chance;
use serde::{Deserialize, Serialize};

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874;
/// Up to so many requests one after another are drawn one by one; the sum of more is nearly normal.
const DRAWN_MAX: u64 = 8;

/// Seconds from a request to its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub median: f64,
    /// As the median where there is no spread.
    pub p99: f64,
    /// Share of requests that take `slow` instead.
    #[serde(default)]
    pub slow_share: f64,
    #[serde(default)]
    pub slow: f64,
}

impl Latency {
    pub fn constant(seconds: f64) -> Latency {
        Latency { median: seconds, p99: seconds, ..Latency::default() }
    }

    fn sigma(&self) -> f64 {
        if self.p99 > self.median && self.median > 0.0 { (self.p99 / self.median).ln() / NORMAL_P99 } else { 0.0 }
    }

    pub fn mean(&self) -> f64 {
        let body = self.median * (self.sigma().powi(2) / 2.0).exp();
        (1.0 - self.slow_share) * body + self.slow_share * self.slow
    }

    fn variance(&self) -> f64 {
        let body = self.median.powi(2) * (2.0 * self.sigma().powi(2)).exp();
        ((1.0 - self.slow_share) * body + self.slow_share * self.slow.powi(2) - self.mean().powi(2)).max(0.0)
    }

    /// Standard deviation over the mean.
    pub fn spread(&self) -> f64 {
        let mean = self.mean();
        if mean > 0.0 { self.variance().sqrt() / mean } else { 0.0 }
    }

    /// Time of so many requests, one after another.
    pub fn draw(&self, requests: u64, draws: &mut Draws) -> f64 {
        if requests == 0 || (self.median == 0.0 && self.slow_share == 0.0) {
            return 0.0;
        }
        let sigma = self.sigma();
        if sigma == 0.0 && self.slow_share == 0.0 {
            return requests as f64 * self.median;
        }
        if requests <= DRAWN_MAX {
            return (0..requests).map(|_| self.one(sigma, draws)).sum();
        }
        let (mean, spread) = (self.mean() * requests as f64, (self.variance() * requests as f64).sqrt());
        (mean + spread * draws.normal()).max(0.0)
    }

    fn one(&self, sigma: f64, draws: &mut Draws) -> f64 {
        if self.slow_share > 0.0 && draws.even() < self.slow_share {
            return self.slow;
        }
        if sigma == 0.0 { self.median } else { self.median * (sigma * draws.normal()).exp() }
    }
}

/// Choices from a seed, in the distributions of the simulation.
pub struct Draws(Chance);

impl Draws {
    pub fn of(seed: u64, stream: u64) -> Draws {
        Draws(Chance::of(seed, stream))
    }

    /// From 0 to below 1.
    pub fn even(&mut self) -> f64 {
        (self.0.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub fn shuffle(&mut self, items: &mut [u32]) {
        self.0.shuffle(items);
    }

    /// Mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.even()).ln()
    }

    /// Mean 0, standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (TAU * self.even()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::{Draws, Latency};

    #[test]
    fn draws_have_the_median_and_the_percentile_that_were_asked_for() {
        let latency = Latency { median: 0.02, p99: 0.1, ..Latency::default() };
        let mut draws = Draws::of(1, 2);
        let mut times: Vec<f64> = (0..100_000).map(|_| latency.draw(1, &mut draws)).collect();
        times.sort_by(f64::total_cmp);
        assert!((times[50_000] / 0.02 - 1.0).abs() < 0.02, "{}", times[50_000]);
        assert!((times[99_000] / 0.1 - 1.0).abs() < 0.04, "{}", times[99_000]);
        let mean = times.iter().sum::<f64>() / 100_000.0;
        assert!((mean / latency.mean() - 1.0).abs() < 0.02);
    }

    #[test]
    fn many_requests_at_once_take_as_long_as_one_by_one() {
        let latency = Latency { median: 0.02, p99: 0.1, slow_share: 0.01, slow: 1.0 };
        let mut draws = Draws::of(3, 4);
        let (mut single, mut together) = (0.0, 0.0);
        for _ in 0..4000 {
            single += (0..50).map(|_| latency.draw(1, &mut draws)).sum::<f64>();
            together += latency.draw(50, &mut draws);
        }
        assert!((single / together - 1.0).abs() < 0.02, "{single} {together}");
        assert!((single / 4000.0 / (50.0 * latency.mean()) - 1.0).abs() < 0.02);
    }
}
