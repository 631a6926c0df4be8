//! The limits of a service as arithmetic: bandwidth, requests per second and latency.
//! Time and chance are passed in; nothing here sleeps.
//!
//! Invariant: over any span a meter lets through at most `rate x span` plus its small credit.

use crate::{chance, parse};
use block::{Error, Result};
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds since the server started; signed, because credit reaches back before the start.
pub type Nanoseconds = i64;

const SECOND: i64 = 1_000_000_000;

/// Credit of an idle line. It covers timers that fire late (1 ms steps, a busy machine), so that the
/// rate over a second is met exactly; more would be seen as a burst.
const BANDWIDTH_CREDIT: Nanoseconds = 5_000_000;

/// Credit of requests in seconds: a tenth of a second's worth may come at once, as services allow.
const REQUEST_CREDIT_SHARE: i64 = 10;

/// The longest that a request waits for its turn. Clients give up after 30 to 60 s.
pub const QUEUE_WAIT_MAX: Duration = Duration::from_secs(30);

/// What the service grants. The default has no limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes per second, shared by all connections; each direction has as much.
    pub bandwidth: Option<u64>,
    /// Time until the first byte of an answer.
    pub latency: Latency,
    /// Requests per second of the whole endpoint.
    pub requests_per_second: Option<u32>,
    /// What happens to requests above that.
    pub throttle: Throttle,
}

/// What happens to a request that comes too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Throttle {
    /// It waits for its turn.
    #[default]
    Queue,
    /// It is answered with 503 SlowDown, and with Retry-After if a time is given.
    Refuse { retry_after: Option<Duration> },
}

/// Distribution of the time until the first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Latency {
    #[default]
    None,
    Fixed(Duration),
    Uniform(Duration, Duration),
    /// Log-normal, named by the two figures that services publish.
    Lognormal {
        median: Duration,
        p99: Duration,
    },
}

impl Latency {
    /// The value below which `share` of all answers lie: a uniform draw gives a sample.
    pub fn quantile(self, share: f64) -> Duration {
        match self {
            Latency::None => Duration::ZERO,
            Latency::Fixed(time) => time,
            Latency::Uniform(low, high) => low + high.saturating_sub(low).mul_f64(share),
            Latency::Lognormal { median, p99 } => {
                let sigma = (p99.as_secs_f64() / median.as_secs_f64()).ln() / chance::normal_quantile(0.99);
                let factor = (sigma * chance::normal_quantile(share)).exp();
                // No answer takes longer than a client would wait.
                Duration::try_from_secs_f64(median.as_secs_f64() * factor).unwrap_or(QUEUE_WAIT_MAX).min(QUEUE_WAIT_MAX)
            }
        }
    }
}

impl FromStr for Latency {
    type Err = Error;

    fn from_str(text: &str) -> Result<Latency> {
        let bad = || {
            Error::invalid("a latency was not understood", format!("`{text}`")).hint(
                "write it like 20ms, `20ms,p99=100ms`, `lognormal(20ms,100ms)` (median, p99) or `uniform(10ms,30ms)`",
            )
        };
        let pair = |inside: &str| {
            let (left, right) = inside.split_once(',').ok_or_else(bad)?;
            let right = right.trim().trim_start_matches("p99=");
            Ok((parse::duration(left).map_err(|_| bad())?, parse::duration(right).map_err(|_| bad())?))
        };
        let inside = |name: &str| text.trim().strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(inside) = inside("uniform") {
            let (low, high) = pair(inside)?;
            return if low <= high { Ok(Latency::Uniform(low, high)) } else { Err(bad()) };
        }
        if inside("lognormal").is_none() && !text.contains(',') {
            return Ok(Latency::Fixed(parse::duration(text).map_err(|_| bad())?));
        }
        let (median, p99) = pair(inside("lognormal").unwrap_or(text))?;
        let sound = !median.is_zero() && p99 >= median;
        if sound { Ok(Latency::Lognormal { median, p99 }) } else { Err(bad()) }
    }
}

impl FromStr for Throttle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Throttle> {
        let bad = || {
            Error::invalid("a way of throttling was not understood", format!("`{text}`"))
                .hint("write `queue` to delay requests, `503` to refuse them, or `503,retry-after=1s`")
        };
        match text.trim() {
            "queue" => Ok(Throttle::Queue),
            "503" => Ok(Throttle::Refuse { retry_after: None }),
            other => {
                let after = other.strip_prefix("503,retry-after=").ok_or_else(bad)?;
                Ok(Throttle::Refuse { retry_after: Some(parse::duration(after).map_err(|_| bad())?) })
            }
        }
    }
}

/// Lets amounts through at a rate, in the order in which they are asked for (virtual scheduling).
#[derive(Debug)]
pub struct Meter {
    per_second: u64,
    credit: Nanoseconds,
    /// When everything let through so far is paid for.
    paid: Nanoseconds,
}

/// Whether a request may go on, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    At(Nanoseconds),
    Refused,
}

impl Meter {
    /// A meter for bytes: smooth, with credit only for late timers.
    pub fn of_bytes(per_second: u64) -> Meter {
        Meter { per_second: per_second.max(1), credit: BANDWIDTH_CREDIT, paid: Nanoseconds::MIN / 2 }
    }

    /// A meter for requests: a tenth of a second's worth, at least one, may come at once.
    pub fn of_requests(per_second: u32) -> Meter {
        let per_second = u64::from(per_second.max(1));
        let credit = (SECOND / REQUEST_CREDIT_SHARE).max(SECOND.div_euclid(per_second as i64) + 1);
        Meter { per_second, credit, paid: Nanoseconds::MIN / 2 }
    }

    /// When the last of `amount` has passed, if it is asked for now. In the past: at once.
    pub fn reserve(&mut self, amount: u64, now: Nanoseconds) -> Nanoseconds {
        self.paid = self.due(amount, now);
        self.paid
    }

    /// As `reserve` for one, unless the turn is further away than `wait_max`.
    pub fn admit(&mut self, now: Nanoseconds, wait_max: Duration) -> Turn {
        let due = self.due(1, now);
        if due - now > nanoseconds(wait_max) {
            return Turn::Refused;
        }
        self.paid = due;
        Turn::At(due)
    }

    fn due(&self, amount: u64, now: Nanoseconds) -> Nanoseconds {
        let start = self.paid.max(now - self.credit);
        let cost = u128::from(amount) * SECOND as u128 / u128::from(self.per_second);
        start.saturating_add(i64::try_from(cost).unwrap_or(i64::MAX / 4))
    }
}

/// A duration as signed nanoseconds.
pub fn nanoseconds(time: Duration) -> Nanoseconds {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 4)
}

/// Bytes to send at a time under a bandwidth limit: two milliseconds' worth, so that connections
/// take turns quickly, and never so little that system calls dominate.
pub fn piece_bytes(per_second: u64) -> usize {
    usize::try_from(per_second / 500).unwrap_or(usize::MAX).clamp(16 << 10, 256 << 10)
}

#[cfg(test)]
#[path = "limits/tests.rs"]
mod tests;
