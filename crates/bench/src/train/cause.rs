//! Why an accelerator waits, judged by what the reader of its batch was doing meanwhile.
//!
//! It takes no time itself. Invariant: the causes of a wait add up to the wait.

use serde::{Deserialize, Serialize};
use targets::clock::Moment;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Bytes came over a network.
    Store,
    /// Opens, and the time to the first byte.
    Requests,
    /// Checking and decoding.
    Cpu,
    /// Bytes came from a local disk.
    Disk,
    /// No reader had begun the batch.
    Loader,
    /// Another accelerator was not ready.
    Barrier,
    Unknown,
}

pub const CAUSES: [Cause; 7] =
    [Cause::Store, Cause::Requests, Cause::Cpu, Cause::Disk, Cause::Loader, Cause::Barrier, Cause::Unknown];

/// Nanoseconds by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits([u64; CAUSES.len()]);

impl Waits {
    pub fn add(&mut self, cause: Cause, nanoseconds: u64) {
        self.0[cause as usize] += nanoseconds;
    }

    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    pub fn merge(&mut self, other: &Waits) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What a reader did with one batch: since when, and what.
#[derive(Debug, Default)]
pub struct Log(Vec<(Moment, Cause)>);

impl Log {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn enter(&mut self, moment: Moment, cause: Cause) {
        if self.0.last().is_none_or(|(_, last)| *last != cause) {
            self.0.push((moment, cause));
        }
    }

    /// Book a wait to what was done in it. Before the log begins nobody had begun the batch.
    pub fn book(&self, from: Moment, to: Moment, waits: &mut Waits) {
        let mut end = to;
        for &(since, cause) in self.0.iter().rev() {
            if end <= from {
                return;
            }
            let start = since.max(from).min(end);
            waits.add(cause, end - start);
            end = start;
        }
        waits.add(Cause::Loader, end.saturating_sub(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_booked_to_what_its_reader_did_and_adds_up() {
        let mut log = Log::default();
        for (moment, cause) in [(100, Cause::Requests), (130, Cause::Store), (150, Cause::Store), (190, Cause::Cpu)] {
            log.enter(moment, cause);
        }
        let booked = |from, to| {
            let mut waits = Waits::default();
            log.book(from, to, &mut waits);
            assert_eq!(waits.total(), to - from);
            [Cause::Loader, Cause::Requests, Cause::Store, Cause::Cpu].map(|cause| waits.of(cause))
        };
        assert_eq!(booked(80, 200), [20, 30, 60, 10]);
        assert_eq!(booked(140, 195), [0, 0, 50, 5]);
        assert_eq!(booked(195, 200), [0, 0, 0, 5]);
        assert_eq!(booked(200, 200), [0, 0, 0, 0]);
    }
}
