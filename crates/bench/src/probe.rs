//! What a target gives by itself: time to the first byte, bandwidth and reads per second.
//!
//! It reads ranges of the files of the set that is measured next: no byte twice, as far as the set allows none that the
//! job reads soon, and each part of it only after caches were made to forget its ranges. Invariants: only what was begun
//! and ended is counted, over the time that it took; what didn't come from storage makes no bound.

mod part;
mod pool;

pub(crate) use pool::LONG;

use block::Result;
use ranks::Ranks;
use serde::{Deserialize, Serialize};
use targets::Target;
use targets::clock::{Clock, SECOND, seconds};

use crate::bound::Supply;
use crate::cold::Forget;
use crate::samples::{Run, Set};
use part::{ANSWERS_MIN, Course, Part};
use pool::{Pool, Share};

/// How long each part lasts, if the set is large enough. What many streams get decides most bounds: limits that give a
/// tenth of a second's worth at once weigh little in it.
const LATENCY_LASTS: u64 = SECOND / 2;
const ALONE_LASTS: u64 = SECOND;
const REQUESTS_LASTS: u64 = 2 * SECOND;
const MANY_LASTS: u64 = 2 * SECOND;

/// Of what there is, the part (one in so many) that one stream of short reads gets, one of long ones, and many of short
/// ones; many of long ones get what they are likely to read of the rest.
const PARTS: [usize; 3] = [8, 8, 4];

/// Ranges of a rank that are enough for all parts: a few answers in each.
const RANGES_MIN: usize = 32;

/// Short reads of a part at most. Storage that gives more than these in its time, 32,768 a second to many streams, ends it
/// early.
const SHORT_READS_MAX: [usize; 2] = [8192, 65_536];

/// Long reads of one stream: 8 GiB.
const ALONE_READS_MAX: usize = 1024;

/// More is given to a part than it is likely to read in its time.
const PLENTY: f64 = 2.0;

/// A pace is a number even where all of the time was latency.
const PACE_MIN: f64 = 1e-4;

/// More streams than this show no more of a target from one machine.
const STREAMS_MAX: u64 = 64;

/// Of the bytes of each part, this much must have come from storage.
pub const GIVEN_MIN_PERCENT: f64 = 95.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub supply: Supply,
    /// Streams of all ranks that its rates of requests and bytes are of.
    pub streams: u64,
    /// Bytes per second of one stream, the times to its first bytes included.
    #[serde(default)]
    pub alone_bytes_per_second: f64,
    /// Time to the first byte that 99 of 100 reads kept within.
    pub latency_p99_seconds: f64,
    pub seconds: f64,
    #[serde(default)]
    pub bytes: u64,
    /// Of the bytes that it read, how many storage gave, as whoever moved them counted: of the part that got the least.
    /// Nothing where nobody counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_percent: Option<f64>,
    /// Ranges that there were for it.
    #[serde(default)]
    pub ranges: u64,
    /// Whether those are enough.
    #[serde(default)]
    pub is_enough: bool,
}

/// Who asks, and what is around it.
pub struct Asking<'a> {
    pub target: &'a dyn Target,
    pub set: &'a Set,
    pub clock: &'a dyn Clock,
    pub ranks: &'a dyn Ranks,
    /// Of all ranks.
    pub streams: u64,
    pub seed: u64,
    /// Bytes that storage gave to this process since it began, if anybody counts them.
    pub given: &'a dyn Fn() -> Option<u64>,
    /// Make caches forget these ranges. Gives those that were in memory.
    pub forget: &'a Forget<'a>,
    /// What was in memory before is there again afterwards.
    pub is_kept: bool,
}

/// Streams whose rates together come so near to those of one, times their number, are held back by nothing they share.
const FREE: f64 = 0.9;

impl Probe {
    /// Why it makes no bound, if it makes none.
    pub fn no_bound(&self) -> Option<String> {
        if !self.is_enough {
            return Some(format!(
                "the set has {} ranges of up to 8 MiB, and a probe that reads no byte twice takes {RANGES_MIN} for each rank: \
                make a larger set",
                self.ranges
            ));
        }
        let given = self.given_percent.filter(|percent| *percent < GIVEN_MIN_PERCENT)?;
        Some(format!(
            "{:.0} % of the probe's bytes came from the page cache, not from storage: try --drop-command or a larger set",
            100.0 - given
        ))
    }

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

/// What one rank has to tell of the parts.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    latency: f64,
    latency_p99: f64,
    stream_bytes_per_second: f64,
    alone_bytes_per_second: f64,
    requests_per_second: f64,
    bytes_per_second: f64,
    streams: u64,
    bytes: u64,
    given: Option<f64>,
    ranges: u64,
    is_enough: bool,
}

/// Ask a target what it gives to so many streams; all ranks ask at once. `read` is what the job reads soon.
pub fn probe(asking: &Asking, read: &[Run]) -> Result<Probe> {
    let begun = asking.clock.now();
    let own = Prober { asking, found: Found::default(), in_memory: Vec::new() }.all(read)?;
    let parts = crate::gathered(asking.ranks, &own)?;
    let took = seconds(asking.clock.now() - begun);
    let whole = if parts.is_empty() { Probe::default() } else { Probe { seconds: took, ..together(&parts) } };
    crate::told(asking.ranks, &whole)
}

/// One stream is that of rank 0; what many get is the sum.
fn together(parts: &[Found]) -> Probe {
    let sum = |of: fn(&Found) -> f64| parts.iter().map(of).sum::<f64>();
    let first = &parts[0];
    let supply = Supply {
        bytes_per_second: sum(|part| part.bytes_per_second),
        stream_bytes_per_second: first.stream_bytes_per_second,
        requests_per_second: sum(|part| part.requests_per_second),
        latency_seconds: first.latency,
    };
    Probe {
        supply,
        streams: parts.iter().map(|part| part.streams).sum(),
        alone_bytes_per_second: first.alone_bytes_per_second,
        latency_p99_seconds: first.latency_p99,
        seconds: 0.0,
        bytes: parts.iter().map(|part| part.bytes).sum(),
        given_percent: parts.iter().filter_map(|part| part.given).reduce(f64::min),
        ranges: parts.iter().map(|part| part.ranges).sum(),
        is_enough: parts.iter().all(|part| part.is_enough),
    }
}

/// Seconds of a stream that went into transfer: what the first bytes took is not its pace. Of small reads nothing is
/// left; the rest of the time is then latency, seen a little longer, and must not be counted as both.
fn transfer(alone: &Part, latency: f64) -> f64 {
    (alone.seconds - latency * alone.reads as f64).max(alone.seconds * PACE_MIN)
}

struct Prober<'a> {
    asking: &'a Asking<'a>,
    found: Found,
    /// What caches were made to forget, where the job is to find it in them.
    in_memory: Vec<Run>,
}

impl Prober<'_> {
    fn all(mut self, read: &[Run]) -> Result<Found> {
        let Asking { set, ranks, streams, seed, .. } = *self.asking;
        let (rank, size) = (u64::from(ranks.rank()), u64::from(ranks.size()));
        let streams = streams.div_ceil(size).min(STREAMS_MAX);
        let mut pool = Pool::of(set, read, seed, (rank, size), streams);
        let all = pool.len();
        (self.found.ranges, self.found.is_enough) = (all as u64, all >= RANGES_MIN);
        // Ranks that have too little still meet the others, and a bound is made of nobody's.
        let [first, alone, short] = PARTS.map(|part| (all / part).max(1));
        let is_first = rank == 0;
        let to_first = |share: Share| if is_first { share } else { Share::default() };

        let part = self.part(1, LATENCY_LASTS, to_first(pool.short(first, SHORT_READS_MAX[0], seed)))?;
        let mut times = part.times;
        times.sort_unstable();
        let at = |share: f64| times.get((share * times.len().saturating_sub(1) as f64) as usize);
        let at = |share| at(share).map_or(0.0, |time| seconds(*time));
        (self.found.latency, self.found.latency_p99) = (at(0.5), at(0.99));

        // Short reads come behind short ones: what limits requests saves up those that nobody asked for meanwhile.
        let share = pool.short(short, SHORT_READS_MAX[1], seed.wrapping_add(1));
        let left = pool.len().saturating_sub(if is_first { alone } else { 0 });
        let streams = streams.min(left.min(share.reads.len()) as u64 / 4).max(1);
        self.found.streams = streams;
        self.found.requests_per_second = self.part(streams, REQUESTS_LASTS, share)?.answers_per_second;

        let part = self.part(1, ALONE_LASTS, to_first(pool.long(alone.min(ALONE_READS_MAX))))?;
        self.found.stream_bytes_per_second = part.bytes as f64 / transfer(&part, self.found.latency).max(1e-9);
        self.found.alone_bytes_per_second = part.bytes as f64 / part.seconds.max(1e-9);
        let alone = crate::told(ranks, &self.found.alone_bytes_per_second)?;

        let likely = PLENTY * alone * streams as f64 * seconds(MANY_LASTS) / pool::LONG.min(mean(set)) as f64;
        let most = (likely as usize).max((4 * streams.max(ANSWERS_MIN)) as usize);
        self.found.bytes_per_second = self.part(streams, MANY_LASTS, pool.long(most))?.bytes_per_second;
        self.restore()?;
        Ok(self.found)
    }

    /// Forget, meet the other ranks, and read.
    fn part(&mut self, streams: u64, lasts: u64, share: Share) -> Result<Part> {
        let Asking { target, set, clock, ranks, given, forget, is_kept, .. } = *self.asking;
        ranks.barrier()?;
        let were = forget(set, &share.own)?;
        if is_kept {
            self.in_memory.extend(were);
        }
        ranks.barrier()?;
        if share.reads.is_empty() {
            return Ok(Part::default());
        }
        let before = given();
        let part = part::run(&Course { target, set, clock, streams, lasts }, &share.reads)?;
        if let (Some(before), Some(after)) = (before, given()) {
            let percent = (100.0 * after.saturating_sub(before) as f64 / part.bytes.max(1) as f64).min(100.0);
            self.found.given = Some(self.found.given.map_or(percent, |least| least.min(percent)));
        }
        self.found.bytes += part.bytes;
        Ok(part)
    }

    /// Bring back what was in memory before.
    fn restore(&mut self) -> Result<()> {
        let Asking { target, set, .. } = *self.asking;
        let mut buffer = vec![0; crate::samples::PIECE as usize];
        for run in std::mem::take(&mut self.in_memory) {
            let mut opened = target.open(&set.files[run.file])?;
            for at in run.range.clone().step_by(buffer.len()) {
                let length = (run.range.end - at).min(buffer.len() as u64) as usize;
                opened.read_at(at, &mut buffer[..length])?;
            }
        }
        Ok(())
    }
}

/// Bytes of a file of the set.
fn mean(set: &Set) -> u64 {
    (set.bytes() / set.files.len().max(1) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use targets::{Null, Shape, Shaped};
    use workload::{Files, Format};

    use super::*;
    use crate::pair::Pair;

    /// Time that passes for nothing but the limits of a target, however busy the machine is.
    #[derive(Default)]
    struct Jumping(AtomicU64);

    impl Clock for Jumping {
        fn now(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn sleep_until(&self, moment: u64) {
            self.0.fetch_max(moment, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_small_read_is_latency_once() {
        // Ten reads of 4 kB, each of 20 ms from beginning to end: nothing is left for the transfer.
        let alone = Part { reads: 10, bytes: 40_000, seconds: 0.2, ..Part::default() };
        let pace = alone.bytes as f64 / transfer(&alone, 0.02);
        assert!((0.02 + 4_000.0 / pace) / 0.02 < 1.001, "{pace}");
        // Of 40 MB in 2 s, a tenth of which was latency, the pace is that of the rest.
        let long = Part { bytes: 40_000_000, seconds: 2.0, reads: 10, ..Part::default() };
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

    #[test]
    fn ranks_that_share_a_target_find_together_what_it_gives() {
        let files =
            Files { format: Format::Raw, count: 400, samples_per_file: 1, sample_bytes: 1e6, ..Files::default() };
        let set = Set::imagined(&files, 400, 1);
        let shape =
            Shape { bytes_per_second: Some(200_000_000), operations_per_second: Some(1000), ..Shape::default() };
        let clock = Arc::new(Jumping::default());
        let target = Shaped::over(Box::new(Null::of(set.files.clone())), shape, clock.clone());
        let [one, other] = Pair::both();
        let forgot = AtomicU64::new(0);
        let ask = |ranks: &dyn Ranks| {
            let asking = Asking {
                target: &target,
                set: &set,
                clock: &*clock,
                ranks,
                streams: 8,
                seed: 1,
                given: &|| target.given().map(|given| given.bytes),
                forget: &|_, runs| {
                    forgot.fetch_add(runs.len() as u64, Ordering::Relaxed);
                    Ok(Vec::new())
                },
                is_kept: false,
            };
            probe(&asking, &[]).unwrap()
        };
        let (first, second) = thread::scope(|scope| {
            let other = scope.spawn(|| ask(&other));
            (ask(&one), other.join().unwrap())
        });
        assert_eq!((first, first.streams, first.ranges), (second, 8, 400));
        assert!(first.no_bound().is_none() && forgot.load(Ordering::Relaxed) > 200, "{first:?}");
        // Time that jumps makes ranks take turns. One alone finds what there is, and what several find is added.
        let alone = ask(&ranks::Alone).supply;
        let close = |found: f64, truth: f64| (found / truth - 1.0).abs() < 0.1;
        assert!(close(alone.bytes_per_second, 200e6) && close(alone.requests_per_second, 1000.0), "{alone:?}");
        let part = |share| Found {
            bytes_per_second: share * 200e6,
            requests_per_second: share * 1000.0,
            latency: 0.001,
            ..Found::default()
        };
        let both = together(&[part(0.4), part(0.6)]).supply;
        assert_eq!((both.bytes_per_second, both.requests_per_second, both.latency_seconds), (200e6, 1000.0, 0.001));
    }
}
