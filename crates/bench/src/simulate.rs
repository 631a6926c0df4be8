//! The loop of a training job in simulated time, for more accelerators than there are.
//!
//! It reads no files and no clock, and says nothing that its figures don't: `docs/simulation.md` tells what is
//! simulated, by which formulas, and where it misfits what was published. Invariants: the same question and seed give
//! the same answer; what comes out is always called simulated.

pub mod answer;
pub mod bound;
pub mod cache;
mod epoch;
pub mod latency;
mod order;
pub mod server;
mod totals;

#[cfg(test)]
mod tests;

use std::ops::Range;

use block::{Error, Result};
use report::Report;
use serde::{Deserialize, Serialize};
use workload::{Order, Workload, place_of};

use crate::probe::Probe;
use crate::train::Steady;
use cache::Policy;
use latency::Latency;

pub use answer::{Answer, Run, ask};

/// Steps that a simulation may have over all accelerators and epochs: more takes hours.
const STEPS_MAX: u64 = 1_000_000_000;

/// Bytes of a request by which records of one file are read in order: the buffer of TensorFlow's reader of records.
const RECORDS_REQUEST_BYTES: f64 = 262_144.0;

/// Readers and batches ahead that a simulation may have: some 100 bytes for each.
const AHEAD_MAX: u64 = 10_000_000;
/// Items that the caches of all nodes may be asked for, each of them for all of the set.
const PRIVATE_MAX: u64 = 1 << 26;
/// Samples of a batch: the place of each is looked up.
const BATCH_MAX: u64 = 10_000_000;

/// What is asked: a workload on so many accelerators, and what feeds them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub workload: Workload,
    pub step_seconds: f64,
    pub accelerators: u64,
    /// Steps of an epoch. The set has as many samples as they take.
    pub steps: u64,
    pub epochs: u64,
    pub store: Store,
    pub cache: Cache,
    pub nodes: Nodes,
    pub overhead: Overhead,
}

/// What the store gives. No figure is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    pub name: String,
    pub bytes_per_second: Option<f64>,
    /// Of one stream.
    pub stream_bytes_per_second: Option<f64>,
    pub requests_per_second: Option<f64>,
    /// Bytes of one request at most; samples that are larger take several, one after another. No figure is a sample a
    /// request, or 256 KiB where records of one file are read in order.
    pub request_bytes: Option<f64>,
    pub latency: Latency,
}

/// A cache before the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    pub rule: Rule,
    pub place: Placement,
    /// What the disk of one node gives.
    pub bytes_per_second: Option<f64>,
    pub latency: Latency,
}

/// Which reads find the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// A share of each epoch, in any place of it; the last one is of all further epochs. None is no cache.
    Rates(Vec<f64>),
    /// As much of the set as fits; what hits comes out.
    Ratio { ratio: f64, policy: Policy },
}

/// Where the cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// In each node, for itself alone: of what is simulated all nodes have equal parts, of shares all that hits.
    Local,
    /// Spread over the nodes, which read from each other.
    #[default]
    Peers,
    /// On machines of its own.
    Apart,
}

/// The machines that the accelerators are in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nodes {
    /// Accelerators of one.
    pub accelerators: u64,
    /// Of its network, each way.
    pub bytes_per_second: Option<f64>,
    /// Share of the accelerators that read slowly, and how many times as long each read takes there.
    pub stragglers: f64,
    pub straggling: f64,
}

/// What a step costs besides data and computing: the barrier and the program around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    pub seconds: f64,
    /// Steps from one barrier to the next.
    pub every: u64,
}

/// A rate of requests is a limit of the store where it is less than this share of what latency alone would allow.
const REQUESTS_BIND: f64 = 0.8;

impl Store {
    /// What a probe of the target found, from the report of a measured run.
    pub fn probed(report: &Report, place: &str) -> Result<Store> {
        let advice = "name a report of `stoker bench train`, which probes its target";
        let missing = |what: &str| Error::missing(what, place).hint(advice);
        let found = report.sections.get("probe").ok_or_else(|| missing("this report has no probe of its target"))?;
        let Probe { supply, streams, latency_p99_seconds, .. } = Probe::deserialize(found)
            .map_err(|error| missing(&format!("the probe of this report can't be read: {error}")))?;
        let untrue = |what: String| Error::invalid(what, place).hint("measure it again, and simulate from that report");
        if let Some(reason) = found["no_bound"].as_str() {
            return Err(untrue(format!("the probe of this report found nothing of the storage: {reason}")));
        }
        if let Some(failed) = report.failed().first() {
            return Err(untrue(format!("the figures of this report contradict each other: {failed}")));
        }
        let positive = |figure: f64| (figure > 0.0).then_some(figure);
        let (median, p99) = (supply.latency_seconds, latency_p99_seconds.max(supply.latency_seconds));
        // Streams that each wait for one answer after the other get no more than this, however many a store could give.
        let by_latency = streams as f64 / supply.latency_seconds;
        let bandwidth = positive(supply.bytes_per_second);
        Ok(Store {
            name: format!("{}, probed", report.target),
            bytes_per_second: Some(bandwidth.ok_or_else(|| missing("the probe of this report has no bandwidth"))?),
            stream_bytes_per_second: positive(supply.stream_bytes_per_second),
            requests_per_second: positive(supply.requests_per_second).filter(|rate| *rate < REQUESTS_BIND * by_latency),
            request_bytes: found["request_bytes"].as_f64(),
            latency: Latency { median, p99, ..Latency::default() },
        })
    }
}

/// The fields of a file that describes a store, as they are typed after `--store`.
pub fn fields(text: &str, place: &str) -> Result<Vec<(String, String)>> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let what = format!("this describes no store: {}", error.message());
        Error::invalid(what, place_of(text, place, error.span()))
            .hint("write lines such as bandwidth = \"300Gbit/s\" and latency = \"20ms\"")
    })?;
    let field = |(name, value): (String, toml::Value)| match value {
        toml::Value::String(text) => Ok((name, text)),
        toml::Value::Integer(_) | toml::Value::Float(_) => Ok((name, value.to_string())),
        _ => Err(Error::invalid("a field of a store is a text or a number", format!("{place}, {name}"))),
    };
    table.into_iter().map(field).collect()
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            rule: Rule::Rates(Vec::new()),
            place: Placement::default(),
            bytes_per_second: None,
            latency: Latency::default(),
        }
    }
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes { accelerators: 1, bytes_per_second: None, stragglers: 0.0, straggling: 1.0 }
    }
}

impl Default for Overhead {
    fn default() -> Overhead {
        Overhead { seconds: 0.0, every: 1 }
    }
}

impl Question {
    /// Samples of an epoch, over all accelerators.
    pub fn samples(&self) -> u64 {
        self.steps * self.workload.read.batch * self.accelerators
    }

    /// Steps of all accelerators in all epochs.
    pub fn steps_of_all(&self) -> u64 {
        self.accelerators.saturating_mul(self.steps).saturating_mul(self.epochs)
    }

    /// Steps that count: by the rule of the measured loop.
    pub fn counted(&self) -> Range<u64> {
        self.steady().counted(self.steps)
    }

    /// Steps that an epoch takes, for a share of the bound to be that of a steady loop.
    pub fn least(&self) -> u64 {
        self.steady().least
    }

    /// Readers here have a window and nothing else that is ahead.
    fn steady(&self) -> Steady {
        Steady::of(self.workload.read.prefetch_batches, self.workload.files.samples_per_file as f64)
    }

    fn node_count(&self) -> u64 {
        self.accelerators.div_ceil(self.nodes.accelerators)
    }

    /// Requests of one sample, on average. Records that are read in the order in which they lie share requests.
    fn requests_per_sample(&self) -> f64 {
        let Workload { files, read, .. } = &self.workload;
        let size = self.workload.bytes_per_sample();
        let is_in_order = matches!(read.order, Order::Sequential | Order::Shards);
        if !files.columns.is_empty() && is_in_order {
            // Each range of a row group is asked for by itself.
            let (rows, bytes) = (files.rows_of_group() as f64, self.store.request_bytes.unwrap_or(f64::INFINITY));
            let requests = |range: &u64| (*range as f64 * rows / bytes).ceil().max(1.0);
            return files.ranges_of_row().iter().map(requests).sum::<f64>() / rows;
        }
        if files.samples_per_file > 1 && is_in_order {
            return size / self.store.request_bytes.unwrap_or(RECORDS_REQUEST_BYTES);
        }
        self.store.request_bytes.map_or(1.0, |bytes| (size / bytes).ceil())
    }

    /// As errors name it.
    fn place(&self) -> String {
        format!("{} from {}", self.workload.name, self.store.name)
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: &str, on: String| Err(Error::invalid(what, on));
        let read = &self.workload.read;
        if [self.accelerators, self.steps, self.epochs, self.nodes.accelerators, self.overhead.every].contains(&0) {
            return wrong("accelerators, steps, epochs and barriers are at least 1", self.workload.name.clone());
        }
        if read.prefetch_batches == 0 {
            let on = format!("{}, prefetch_batches = 0", self.workload.name);
            return Err(Error::invalid("only jobs that read ahead of their steps are simulated", on)
                .hint("write prefetch_batches = 1 into the workload; what comes out is then an upper bound"));
        }
        let ahead = self.accelerators.saturating_mul(read.threads.max(read.prefetch_batches));
        let is_private = self.cache.place == Placement::Local && matches!(self.cache.rule, Rule::Ratio { .. });
        let private = if is_private { self.node_count().saturating_mul(self.accelerators) } else { 0 };
        let is_large = self.steps_of_all() > STEPS_MAX || ahead > AHEAD_MAX || private > PRIVATE_MAX;
        if is_large || read.batch > BATCH_MAX {
            let on = format!("{} accelerators, {} epochs of {} steps", self.accelerators, self.epochs, self.steps);
            return Err(Error::invalid("that is too much to simulate", on)
                .hint("ask for fewer accelerators, steps or epochs, or smaller batches"));
        }
        let store = &self.store;
        let rates = [
            store.bytes_per_second,
            store.stream_bytes_per_second,
            store.requests_per_second,
            store.request_bytes,
            self.cache.bytes_per_second,
            self.nodes.bytes_per_second,
        ];
        if rates.into_iter().flatten().any(|rate| !(rate > 0.0 && rate.is_finite())) {
            return wrong("bandwidths, requests per second and sizes are above 0", self.place());
        }
        let latencies = [store.latency, self.cache.latency];
        let is_time = |latency: &Latency| {
            let range = 0.0..3600.0;
            range.contains(&latency.median) && range.contains(&latency.p99) && latency.p99 >= latency.median
        };
        if !latencies.iter().all(is_time) || !(0.0..3600.0).contains(&self.overhead.seconds) {
            return wrong("a latency is below an hour, and its 99th percentile no less", self.place());
        }
        let shares: &[f64] = match &self.cache.rule {
            Rule::Rates(rates) => rates,
            Rule::Ratio { ratio, .. } => std::slice::from_ref(ratio),
        };
        if !shares.iter().chain([&self.nodes.stragglers]).all(|share| (0.0..=1.0).contains(share)) {
            return wrong("a share is from 0 to 1", format!("{shares:?}, stragglers {}", self.nodes.stragglers));
        }
        if !(1.0..=1e6).contains(&self.nodes.straggling) {
            return wrong("stragglers take at least as long as the others", self.nodes.straggling.to_string());
        }
        Ok(())
    }
}
