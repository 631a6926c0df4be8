//! Why an accelerator waits, judged by what the reader of its batch was doing meanwhile.
//!
//! It takes no time itself. Invariant: the causes of a wait add up to the wait.

use serde::{Deserialize, Serialize};
use targets::clock::{Moment, nanoseconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Bytes came over a network, at the rate of a stream by itself.
    Store,
    /// Opens, and what a read of a store took beyond the time of its bytes.
    Requests,
    /// Checking and decoding.
    Cpu,
    /// A read of a local disk, whatever it waits for there.
    Disk,
    /// No reader had begun the batch.
    Loader,
    /// Another accelerator was not ready.
    Barrier,
    /// In the steps that don't count, before those that do and after them.
    Start,
    Unknown,
}

pub const CAUSES: [Cause; 8] = [
    Cause::Store,
    Cause::Requests,
    Cause::Cpu,
    Cause::Disk,
    Cause::Loader,
    Cause::Barrier,
    Cause::Start,
    Cause::Unknown,
];

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

    /// A read that is over, of so many bytes. A stream gets `pace` bytes per second when it is alone: what a read of a
    /// store takes beyond that is its request, and others that wait in line; a disk is one thing.
    pub fn moved(&mut self, begun: Moment, ended: Moment, bytes: u64, transfer: Cause, pace: Option<f64>) {
        let took = ended - begun;
        let own = pace.map_or(took, |pace| nanoseconds(bytes as f64 / pace.max(1.0)).min(took));
        if transfer == Cause::Store && own < took {
            self.enter(begun, Cause::Requests);
            self.enter(ended - own, transfer);
        } else {
            self.enter(begun, transfer);
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

    #[test]
    fn what_a_read_takes_beyond_the_time_of_its_bytes_is_the_request() {
        let booked = |transfer, pace| {
            let (mut log, mut waits) = (Log::default(), Waits::default());
            log.enter(0, Cause::Requests);
            // 4 MB in 50 ms.
            log.moved(1_000_000, 51_000_000, 4_000_000, transfer, pace);
            log.book(0, 51_000_000, &mut waits);
            [Cause::Requests, Cause::Store, Cause::Disk].map(|cause| waits.of(cause) / 1_000_000)
        };
        // A stream gets 200 MB/s: 20 ms are its bytes, and 30 ms it waited for the answer.
        assert_eq!(booked(Cause::Store, Some(200e6)), [31, 20, 0]);
        assert_eq!(booked(Cause::Store, Some(50e6)), [1, 50, 0], "never more than it took");
        assert_eq!(booked(Cause::Store, None), [1, 50, 0]);
        assert_eq!(booked(Cause::Disk, Some(1e9)), [1, 0, 50], "a disk that answers few requests is the disk");
    }
}
