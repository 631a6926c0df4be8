//! What a target gives by itself: time to the first byte, bandwidth and reads per second.
//!
//! It reads the files of the set that is measured next, which may leave some of them in caches: who wants a cold epoch
//! empties caches afterwards. Invariant: only what was begun and ended is counted, over the time that it took.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use block::{Error, Result};
use data::noise::Chance;
use serde::{Deserialize, Serialize};
use targets::Target;
use targets::clock::{Clock, Moment, SECOND, seconds};

use crate::bound::Supply;
use crate::samples::Set;

/// How long each of the three parts may take. With fewer than this many reads a figure says little, and the part goes
/// on to the second limit.
const PART: u64 = SECOND / 2;
const READS_MIN: u64 = 8;
const PART_MAX: u64 = 4 * SECOND;

/// A read that is all latency.
const SMALL: usize = 4096;

/// As much of a sample as is read to see how fast it comes.
const LONG: u64 = 8 << 20;

/// A pace is a number even where all of the time was latency.
const PACE_MIN: f64 = 1e-4;

/// More streams than this show no more of a target from one machine.
const STREAMS_MAX: u64 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub supply: Supply,
    /// Streams that its rates of requests and bytes are of.
    pub streams: u64,
    /// Bytes per second of one stream, the times to its first bytes included.
    #[serde(default)]
    pub alone_bytes_per_second: f64,
    /// Time to the first byte that 99 of 100 reads kept within.
    pub latency_p99_seconds: f64,
    pub seconds: f64,
}

/// Reads of one part.
struct Part {
    reads: u64,
    bytes: u64,
    seconds: f64,
    /// Of each stream by itself, added: what one began and hadn't ended when another stopped is lost otherwise.
    reads_per_second: f64,
    times: Vec<u64>,
}

/// Streams whose rates together come so near to those of one, times their number, are held back by nothing they share.
const FREE: f64 = 0.9;

impl Probe {
    /// What so many streams get, for all that was seen: a rate that was only that of single streams is more with more.
    pub fn supply(&self, streams: u64) -> Supply {
        let seen = self.streams.max(1) as f64;
        let more = (streams as f64 / seen).max(1.0);
        let grown = |rate: f64, alone: f64| if alone > 0.0 && rate > FREE * seen * alone { rate * more } else { rate };
        let Supply { bytes_per_second, requests_per_second, latency_seconds, .. } = self.supply;
        let alone = if latency_seconds > 0.0 { 1.0 / latency_seconds } else { 0.0 };
        Supply {
            bytes_per_second: grown(bytes_per_second, self.alone_bytes_per_second),
            requests_per_second: grown(requests_per_second, alone),
            ..self.supply
        }
    }
}

/// Ask a target what it gives to so many streams.
pub fn probe(target: &dyn Target, set: &Set, streams: u64, seed: u64, clock: &dyn Clock) -> Result<Probe> {
    let begun = clock.now();
    let streams = streams.clamp(1, STREAMS_MAX);
    let prober = Prober { target, set, clock };
    let mut small = prober.part(1, seed, SMALL as u64)?;
    small.times.sort_unstable();
    let at = |share: f64| seconds(small.times[(share * (small.times.len() - 1) as f64) as usize]);
    let latency = at(0.5);
    let alone = prober.part(1, seed + 1, LONG)?;
    let requests = prober.part(streams, seed + 2, SMALL as u64)?;
    let many = prober.part(streams, seed + 3, LONG)?;
    let transfer = transfer(&alone, latency);
    let supply = Supply {
        bytes_per_second: many.bytes as f64 / many.seconds,
        stream_bytes_per_second: alone.bytes as f64 / transfer,
        requests_per_second: requests.reads_per_second,
        latency_seconds: latency,
    };
    Ok(Probe {
        supply,
        streams,
        alone_bytes_per_second: alone.bytes as f64 / alone.seconds,
        latency_p99_seconds: at(0.99),
        seconds: seconds(clock.now() - begun),
    })
}

/// Seconds of a stream that went into transfer: what the first bytes took is not its pace. Of small reads nothing is
/// left; the rest of the time is then latency, seen a little longer, and must not be counted as both.
fn transfer(alone: &Part, latency: f64) -> f64 {
    (alone.seconds - latency * alone.reads as f64).max(alone.seconds * PACE_MIN)
}

struct Prober<'a> {
    target: &'a dyn Target,
    set: &'a Set,
    clock: &'a dyn Clock,
}

impl Prober<'_> {
    /// Read up to so many bytes of samples by chance, in so many streams, for a while.
    fn part(&self, streams: u64, seed: u64, bytes: u64) -> Result<Part> {
        let begun = self.clock.now();
        let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let parts = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for stream in 0..streams {
                let (done, failed, parts) = (&done, &failed, &parts);
                scope.spawn(move || {
                    let read = self.stream(Chance::of(seed, stream), bytes, begun, done, failed);
                    failed.fetch_add(u64::from(read.is_err()), Ordering::Relaxed);
                    parts.lock().expect("nothing panics while it holds the parts").push(read);
                });
            }
        });
        let took = seconds(self.clock.now() - begun);
        let mut whole = Part { reads: 0, bytes: 0, seconds: took, reads_per_second: 0.0, times: Vec::new() };
        for part in parts.into_inner().expect("all streams have ended") {
            let (bytes, times) = part?;
            whole.reads += times.len() as u64;
            whole.bytes += bytes;
            whole.reads_per_second += times.len() as f64 / seconds(times.iter().sum::<u64>().max(1));
            whole.times.extend(times);
        }
        if whole.reads == 0 {
            return Err(Error::unavailable("the target answered no read of the probe", self.target.url()));
        }
        Ok(whole)
    }

    fn stream(
        &self,
        mut chance: Chance,
        most: u64,
        begun: Moment,
        done: &AtomicU64,
        failed: &AtomicU64,
    ) -> Result<(u64, Vec<u64>)> {
        let (mut bytes, mut times, mut buffer) = (0, Vec::new(), vec![0; self.set.piece.min(most) as usize]);
        loop {
            let start = self.clock.now();
            let passed = start - begun;
            let is_enough = passed >= PART && done.load(Ordering::Relaxed) >= READS_MIN || passed >= PART_MAX;
            if !times.is_empty() && is_enough || failed.load(Ordering::Relaxed) > 0 {
                return Ok((bytes, times));
            }
            let sample = chance.below(self.set.samples());
            let run = &self.set.locate(&(sample..sample + 1), &mut None)[0];
            let file = &self.set.files[run.file];
            let mut opened = self.target.open(file)?;
            // Of packed files a long read goes over its neighbours: small samples would show requests, not bandwidth.
            let is_long = most == LONG && !self.set.whole();
            let end = if is_long { file.bytes } else { run.range.end };
            let mut at = if is_long { run.range.start.min(file.bytes.saturating_sub(LONG)) } else { run.range.start };
            let to = end.min(at + most);
            while at < to {
                let length = (to - at).min(buffer.len() as u64) as usize;
                let count = opened.read_at(at, &mut buffer[..length])?;
                if count == 0 {
                    break;
                }
                (at, bytes) = (at + count as u64, bytes + count as u64);
            }
            times.push(self.clock.now() - start);
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_read_is_latency_once() {
        // Ten reads of 4 kB, each of 20 ms from beginning to end: nothing is left for the transfer.
        let alone =
            Part { reads: 10, bytes: 40_000, seconds: 0.2, reads_per_second: 50.0, times: vec![20_000_000; 10] };
        let pace = alone.bytes as f64 / transfer(&alone, 0.02);
        assert!((0.02 + 4_000.0 / pace) / 0.02 < 1.001, "{pace}");
        // Of 40 MB in 2 s, a tenth of which was latency, the pace is that of the rest.
        let long = Part { bytes: 40_000_000, seconds: 2.0, ..alone };
        assert!((transfer(&long, 0.02) - 1.8).abs() < 1e-9);
    }

    #[test]
    fn what_single_streams_held_back_grows_with_them() {
        let supply = Supply {
            bytes_per_second: 396e6,
            stream_bytes_per_second: 110e6,
            requests_per_second: 196.0,
            latency_seconds: 0.02,
        };
        let probe = Probe { supply, streams: 4, alone_bytes_per_second: 100e6, ..Probe::default() };
        assert_eq!(probe.supply(4), supply);
        assert_eq!(probe.supply(1), supply, "what fewer streams get is for their latency to say");
        let grown = probe.supply(40);
        assert!((grown.requests_per_second - 1960.0).abs() < 1e-6 && (grown.bytes_per_second - 3960e6).abs() < 1.0);
        // A store that answers 150 requests and gives 300 MB a second gives no more to ten times the streams.
        let limited = Supply { bytes_per_second: 300e6, requests_per_second: 150.0, ..supply };
        assert_eq!(Probe { supply: limited, ..probe }.supply(40), limited);
    }
}
