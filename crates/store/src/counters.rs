//! What was asked of a store and what it took. Numbers only: nothing here decides or prints.
//!
//! Invariant: counts only grow, except `in_flight`; a snapshot may be torn between counts, never within one.

use block::Error;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Buckets of the first-byte histogram: powers of two from below 128 us to 4 s and above.
pub const FIRST_BYTE_BUCKETS: usize = 17;

/// Upper edge of the first bucket, in microseconds, as a power of two.
const FIRST_EDGE_LOG2: u32 = 7;

/// Running counts of one store, shared by the store and whatever is laid over it.
#[derive(Default)]
pub struct Counters {
    pub(crate) gets: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) heads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) weak: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) backed_off_ns: AtomicU64,
    pub(crate) hedged: AtomicU64,
    pub(crate) hedged_bytes: AtomicU64,
    pub(crate) hedges_won: AtomicU64,
    first_byte_ns: AtomicU64,
    first_byte: [AtomicU64; FIRST_BYTE_BUCKETS],
    /// What failed last, and answers that had begun by then.
    failed: Mutex<Option<(Failed, u64)>>,
}

/// A request that failed, for the moment or for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub what: String,
    pub when: Instant,
    /// Answers that began after it.
    pub answers_since: u64,
}

/// The counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were sent, by kind; each try counts.
    pub gets: u64,
    pub lists: u64,
    pub heads: u64,
    /// Requests that change something: puts, parts, removals.
    pub writes: u64,
    /// Bytes of bodies that a store took.
    pub bytes_written: u64,
    /// Bytes of bodies that were received, whether or not they were of use.
    pub bytes: u64,
    /// Answers that asked us to slow down.
    pub throttled: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Failures that were handed to the caller.
    pub errors: u64,
    /// Requests between being sent and the end of their body.
    pub in_flight: u64,
    /// Names that a listing left out because they can't be served; each was logged.
    pub skipped: u64,
    /// Objects that were listed without an ETag: their version is their time of change, to the second, and their size.
    pub weak: u64,
    /// Time spent waiting for leave to send, and time spent backing off, in nanoseconds.
    pub waited_ns: u64,
    pub backed_off_ns: u64,
    /// Requests that were sent a second time because the first answer was late, the bytes that they asked for, and
    /// how many were answered first.
    pub hedged: u64,
    pub hedged_bytes: u64,
    pub hedges_won: u64,
    /// Sum of the times from request to answer, and how many fell below 128 us, 256 us, ...; the last
    /// bucket holds the rest.
    pub first_byte_ns: u64,
    pub first_byte: [u64; FIRST_BYTE_BUCKETS],
    /// The last request that failed.
    pub failed: Option<Failed>,
    /// Mounts by which it is used now.
    pub doors: u64,
}

impl Counters {
    pub fn snapshot(&self) -> Counts {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answers = self.answers();
        Counts {
            gets: self.gets.load(Relaxed),
            lists: self.lists.load(Relaxed),
            heads: self.heads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            throttled: self.throttled.load(Relaxed),
            retries: self.retries.load(Relaxed),
            errors: self.errors.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            weak: self.weak.load(Relaxed),
            waited_ns: self.waited_ns.load(Relaxed),
            backed_off_ns: self.backed_off_ns.load(Relaxed),
            hedged: self.hedged.load(Relaxed),
            hedged_bytes: self.hedged_bytes.load(Relaxed),
            hedges_won: self.hedges_won.load(Relaxed),
            first_byte_ns: self.first_byte_ns.load(Relaxed),
            first_byte: std::array::from_fn(|at| self.first_byte[at].load(Relaxed)),
            failed: failed.map(|(failed, before)| Failed { answers_since: answers - before, ..failed }),
            doors: 0,
        }
    }

    /// Book the time from request to answer.
    pub fn answered_after(&self, took: Duration) {
        self.first_byte_ns.fetch_add(nanoseconds(took), Relaxed);
        self.first_byte[bucket(took)].fetch_add(1, Relaxed);
    }

    /// Book a request that will be repeated, and how long that waits.
    pub fn repeated_after(&self, wait: Duration) {
        Counters::add(&self.retries, 1);
        Counters::add_time(&self.backed_off_ns, wait);
    }

    /// Book a failure that was handed on.
    pub fn gave_up(&self) {
        Counters::add(&self.errors, 1);
    }

    /// Note what a request failed with, whether it is repeated or not.
    pub(crate) fn failed_with(&self, error: &Error) {
        let mut last = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = Failed { what: error.what.clone(), when: Instant::now(), answers_since: 0 };
        *last = Some((failed, self.answers()));
    }

    /// Answers that began.
    fn answers(&self) -> u64 {
        self.first_byte.iter().map(|count| count.load(Relaxed)).sum()
    }

    pub(crate) fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Relaxed);
    }

    pub(crate) fn add_time(count: &AtomicU64, more: Duration) {
        count.fetch_add(nanoseconds(more), Relaxed);
    }
}

/// Counts a request as in flight for as long as it lives.
pub struct InFlight(Arc<Counters>);

impl InFlight {
    pub fn begin(counters: &Arc<Counters>) -> InFlight {
        counters.in_flight.fetch_add(1, Relaxed);
        InFlight(counters.clone())
    }
}

impl std::ops::Deref for InFlight {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.gets += more.gets;
        self.lists += more.lists;
        self.heads += more.heads;
        self.writes += more.writes;
        self.bytes_written += more.bytes_written;
        self.bytes += more.bytes;
        self.throttled += more.throttled;
        self.retries += more.retries;
        self.errors += more.errors;
        self.in_flight += more.in_flight;
        self.skipped += more.skipped;
        self.weak += more.weak;
        self.waited_ns += more.waited_ns;
        self.backed_off_ns += more.backed_off_ns;
        self.hedged += more.hedged;
        self.hedged_bytes += more.hedged_bytes;
        self.hedges_won += more.hedges_won;
        self.first_byte_ns += more.first_byte_ns;
        self.first_byte = std::array::from_fn(|at| self.first_byte[at] + more.first_byte[at]);
        let both = [self.failed.take(), more.failed];
        self.failed = both.into_iter().flatten().max_by_key(|failed| failed.when);
        self.doors += more.doors;
    }
}

/// The bucket of the first-byte histogram that a time falls into.
fn bucket(took: Duration) -> usize {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let bits = u64::BITS - us.leading_zeros();
    (bits.saturating_sub(FIRST_EDGE_LOG2) as usize).min(FIRST_BYTE_BUCKETS - 1)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_bucket_below_its_edge() {
        for (us, expected) in
            [(0, 0), (127, 0), (128, 1), (255, 1), (256, 2), (4_194_303, 15), (4_194_304, 16), (u64::MAX / 2, 16)]
        {
            assert_eq!(bucket(Duration::from_micros(us)), expected, "{us} us");
        }
    }

    #[test]
    fn a_snapshot_tells_what_was_booked() {
        let counters = Counters::default();
        counters.answered_after(Duration::from_micros(200));
        Counters::add(&counters.gets, 2);
        let counts = counters.snapshot();
        assert_eq!((counts.gets, counts.first_byte_ns, counts.first_byte[1]), (2, 200_000, 1));
    }
}
