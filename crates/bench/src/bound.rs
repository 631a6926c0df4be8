//! What a target could give at best: the rates of a closed model, and which of them binds.
//!
//! Closed formulas only, no queues and no chance; `simulate` has those. Invariant: a bound is never below what the
//! same figures allow.
//!
//! Each accelerator asks for batches of b samples of s bytes, k requests each, in steps of t seconds, through W streams
//! that read one sample after the other. Steps per second of N accelerators are then at most
//!
//! - 1 / t: the accelerator itself;
//! - B / (N b s): the bandwidth B of the target, shared;
//! - M / (N b k): the requests per second M that it answers. Where long reads come in more pieces than so many, somebody reads
//!   ahead of them, and f of the k count, one for each place where that can't be;
//! - W / (b (f L + s / r)): streams that wait L seconds for each of f first bytes a sample and then get r bytes per
//!   second (Little's law), where no more streams can be busy than batches may be on their way.
//!
//! and the utilisation is t times the least of them: of the steady loop, as the steps that count measure it. Where nothing
//! is read during a step, t is added to the time of the last.

use serde::{Deserialize, Serialize};

/// What accelerators ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    pub accelerators: u64,
    pub batch: u64,
    pub sample_bytes: f64,
    pub step_seconds: f64,
    pub streams: u64,
    pub prefetch_batches: u64,
    pub requests_per_sample: f64,
    /// Less than one where small samples that lie side by side are read together.
    pub first_bytes_per_sample: f64,
    /// Of one request of a long read, as the probe makes them.
    pub piece_bytes: f64,
}

/// What a target gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Supply {
    /// Of all streams together.
    pub bytes_per_second: f64,
    /// Of one stream alone.
    pub stream_bytes_per_second: f64,
    pub requests_per_second: f64,
    /// To the first byte.
    pub latency_seconds: f64,
}

/// The bound, and what makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub au_percent: f64,
    /// `accelerator`, `store bandwidth`, `store requests`, `latency`.
    pub limited_by: String,
    /// Utilisation that each rate would allow alone, over 100 where it would allow more.
    pub by_rate: Vec<(String, f64)>,
}

impl Demand {
    /// Bytes that all accelerators ask for in a second when none waits.
    pub fn bytes_per_second(&self) -> f64 {
        self.accelerators as f64 * self.batch as f64 * self.sample_bytes / self.step_seconds
    }

    /// Streams of one accelerator that can be busy at once.
    fn busy(&self) -> u64 {
        if self.prefetch_batches == 0 { self.streams.min(self.batch) } else { self.streams.min(self.prefetch_batches) }
    }

    /// Streams of all accelerators that can be busy at once.
    pub fn all_streams(&self) -> u64 {
        self.accelerators * self.busy()
    }
}

/// Rates so near to each other are one limit, seen twice.
const TIE: f64 = 1.1;

/// Which rate binds, by the utilisation that each allows.
fn named(by_rate: &[(String, f64)]) -> (String, f64) {
    let at = |name: &str| by_rate.iter().find(|(own, _)| own == name).map_or(f64::INFINITY, |(_, percent)| *percent);
    let (name, least) =
        by_rate.iter().min_by(|left, right| left.1.total_cmp(&right.1)).expect("there are four").clone();
    let is_near = |other: &str| at(other) < TIE * least;
    // Of files that are small, a probe of the bandwidth sees no more than the requests allow; and of requests no more
    // than the latency allows its streams, where a store would answer more of them: then those are what binds.
    let cause = match name.as_str() {
        "store bandwidth" | "store requests" if is_near("latency") && is_near("store requests") => "latency",
        "store bandwidth" if is_near("store requests") => "store requests",
        own => own,
    };
    (cause.to_owned(), least)
}

/// The most that the supply allows.
pub fn bound(demand: &Demand, supply: &Supply) -> Bound {
    let Demand { accelerators, batch, sample_bytes, step_seconds, .. } = *demand;
    let is_read_ahead = supply.bytes_per_second > TIE * supply.requests_per_second * demand.piece_bytes;
    let requests = if is_read_ahead { demand.first_bytes_per_sample } else { demand.requests_per_sample };
    let (all, batch) = (accelerators as f64 * batch as f64, batch as f64);
    let sample_seconds =
        demand.first_bytes_per_sample * supply.latency_seconds + sample_bytes / supply.stream_bytes_per_second;
    let batch_seconds = batch * sample_seconds / demand.busy() as f64;
    // A limited rate may be made up for after a step in which nothing was asked; latency may not.
    let own = if demand.prefetch_batches == 0 { step_seconds } else { 0.0 };
    let rates = [
        ("store bandwidth", supply.bytes_per_second / (all * sample_bytes)),
        ("store requests", supply.requests_per_second / (all * requests)),
        ("latency", 1.0 / (own + batch_seconds)),
    ];
    let percent = |rate: f64| 100.0 * step_seconds * rate;
    let mut by_rate = vec![("accelerator".to_owned(), 100.0)];
    by_rate.extend(rates.map(|(name, rate)| (name.to_owned(), percent(rate))));
    let (limited_by, least) = named(&by_rate);
    Bound { au_percent: least, limited_by, by_rate }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// unet3d on V100, as MLPerf Storage v0.5 has it.
    fn unet3d(accelerators: u64) -> Demand {
        Demand {
            accelerators,
            batch: 4,
            sample_bytes: 146_600_628.0,
            step_seconds: 1.3604,
            streams: 4,
            prefetch_batches: 8,
            requests_per_sample: 140.0,
            first_bytes_per_sample: 1.0,
            piece_bytes: 1_048_576.0,
        }
    }

    fn plenty() -> Supply {
        Supply {
            bytes_per_second: 1e15,
            stream_bytes_per_second: 1e15,
            requests_per_second: 1e15,
            latency_seconds: 0.0,
        }
    }

    #[test]
    fn shared_bandwidth_binds_from_the_knee_on() {
        // 300 Gbit/s over 431 MB/s each: full until 87 accelerators, then in proportion.
        let supply = Supply { bytes_per_second: 37.5e9, ..plenty() };
        let at = |accelerators| bound(&unet3d(accelerators), &supply);
        assert_eq!((at(86).au_percent, at(86).limited_by.as_str()), (100.0, "accelerator"));
        assert!((at(180).au_percent - 48.3).abs() < 0.1, "{:?}", at(180));
        assert_eq!(at(180).limited_by, "store bandwidth");
    }

    #[test]
    fn each_rate_binds_where_it_is_least() {
        let small = Demand {
            accelerators: 4,
            batch: 64,
            sample_bytes: 114_660.0,
            step_seconds: 0.195,
            streams: 8,
            prefetch_batches: 16,
            requests_per_sample: 1.0,
            first_bytes_per_sample: 1.0,
            piece_bytes: 1_048_576.0,
        };
        // A disk of 500 MB/s and 500 requests per second: its requests bind, not its bandwidth.
        let disk = Supply { bytes_per_second: 500e6, requests_per_second: 500.0, ..plenty() };
        let found = bound(&small, &disk);
        assert_eq!(found.limited_by, "store requests");
        assert!((found.au_percent - 100.0 * 0.195 * 500.0 / 256.0).abs() < 0.01);
        // Files of that size show the disk's 500 requests as 57 MB/s, or a little less.
        let seen = Supply { bytes_per_second: 57e6, ..disk };
        assert_eq!(bound(&small, &seen).limited_by, "store requests");
        // 8 streams, 100 ms each: 80 samples a second of 328.
        let far = Supply { latency_seconds: 0.1, ..plenty() };
        let found = bound(&small, &far);
        assert_eq!(found.limited_by, "latency");
        assert!((found.au_percent - 100.0 * 80.0 / (64.0 / 0.195)).abs() < 0.01);
    }

    #[test]
    fn short_reads_are_no_limit_of_long_ones() {
        // Disks behind a read-ahead: 800 short reads a second, and 2 GB/s of volumes in pieces of 1 MiB.
        let array = Supply { bytes_per_second: 2e9, requests_per_second: 800.0, ..plenty() };
        let found = bound(&unet3d(8), &array);
        assert_eq!(found.limited_by, "store bandwidth");
        assert!((found.au_percent - 100.0 * 2e9 / unet3d(8).bytes_per_second()).abs() < 0.01, "{found:?}");
        // A disk that grants 500 requests a second gives as many pieces: those are what binds.
        let disk = Supply { bytes_per_second: 500.0 * 1_048_576.0, requests_per_second: 500.0, ..plenty() };
        assert_eq!(bound(&unet3d(8), &disk).limited_by, "store requests");
        // Smaller ones are as many: of records that a batch shares, two pieces of 1.8 MB.
        let packed =
            Demand { sample_bytes: 114_688.0, batch: 16, step_seconds: 0.01, requests_per_sample: 0.125, ..unet3d(8) };
        let rate = 500.0 / (8.0 * 16.0 * 0.125);
        assert!((bound(&packed, &disk).au_percent - 100.0 * packed.step_seconds * rate).abs() < 0.01);
    }

    #[test]
    fn what_is_not_read_ahead_is_waited_for_after_each_step() {
        let demand = Demand { prefetch_batches: 0, ..unet3d(1) };
        // Four streams read a batch of four, each as long as a step takes.
        let supply = Supply { stream_bytes_per_second: demand.sample_bytes / demand.step_seconds, ..plenty() };
        let found = bound(&demand, &supply);
        assert!((found.au_percent - 50.0).abs() < 0.01 && found.limited_by == "latency", "{found:?}");
        // Ahead of the step it is in time.
        assert!((bound(&unet3d(1), &supply).au_percent - 100.0).abs() < 0.01);
    }

    #[test]
    fn requests_that_only_latency_holds_back_are_called_latency() {
        // 4 streams of 20 ms show 198 requests a second, and small files of that rate as bandwidth.
        let small = Demand {
            accelerators: 1,
            batch: 8,
            sample_bytes: 4_000.0,
            step_seconds: 0.025,
            streams: 4,
            prefetch_batches: 8,
            requests_per_sample: 1.0,
            first_bytes_per_sample: 1.0,
            piece_bytes: 1_048_576.0,
        };
        let seen = Supply {
            latency_seconds: 0.02,
            requests_per_second: 198.0,
            bytes_per_second: 198.0 * 4_000.0 * 0.99,
            ..plenty()
        };
        assert_eq!(bound(&small, &seen).limited_by, "latency");
        let limited = Supply { requests_per_second: 100.0, bytes_per_second: 99.0 * 4_000.0, ..seen };
        assert_eq!(bound(&small, &limited).limited_by, "store requests");
    }
}
