//! What the loop could reach at most, in closed form: the least of what each resource lets through.
//!
//! It knows no chance: barriers, spread of sizes and of latencies only lower what it says. Invariant: every term is a
//! figure of the question divided by what one step asks of that resource.

use super::{Placement, Question};

/// The bound and what sets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Share of the time in which accelerators compute.
    pub au: f64,
    pub limited_by: &'static str,
}

/// The bound at a share of hits, in the mean over all accelerators.
pub fn bound(question: &Question, hit: f64) -> Bound {
    let nodes = &question.nodes;
    if nodes.stragglers == 0.0 {
        return at_pace(question, hit, 1.0);
    }
    let (slow, own) = (at_pace(question, hit, nodes.straggling), at_pace(question, hit, 1.0));
    // Those that wait for stragglers at a barrier are ahead of them by less than the steps from it to the next.
    let steps = question.counted().count().max(1) as f64;
    let ahead = (question.overhead.every - 1) as f64 / steps;
    let others = own.au.min(slow.au * (1.0 + ahead));
    Bound { au: nodes.stragglers * slow.au + (1.0 - nodes.stragglers) * others, ..slow }
}

/// The bound of accelerators whose reads take so many times as long.
fn at_pace(question: &Question, hit: f64, slow: f64) -> Bound {
    let read = &question.workload.read;
    let (store, cache, nodes) = (&question.store, &question.cache, &question.nodes);
    let (batch, size) = (read.batch as f64, question.workload.bytes_per_sample());
    let all = question.accelerators as f64 * batch;
    let per_node = question.accelerators.min(nodes.accelerators) as f64 * batch;
    let (miss, requests) = (1.0 - hit, question.requests_per_sample());
    let others = 1.0 - 1.0 / question.node_count() as f64;
    let remote = match cache.place {
        Placement::Local => 0.0,
        Placement::Peers => hit * others,
        Placement::Apart => hit,
    };
    let over = |capacity: Option<f64>, asked: f64| {
        capacity.filter(|_| asked > 0.0).map_or(f64::INFINITY, |capacity| capacity / asked)
    };
    let pace = store.stream_bytes_per_second.map_or(0.0, |pace| size / pace);
    let sample = (miss * (requests * store.latency.mean() + pace) + hit * cache.latency.mean()) * slow;
    let streams = read.threads.min(read.prefetch_batches) as f64;
    let ways = [
        ("accelerator", 1.0 / (question.step_seconds + question.overhead.seconds / question.overhead.every as f64)),
        ("store bandwidth", over(store.bytes_per_second, miss * all * size)),
        ("store requests", over(store.requests_per_second, miss * all * requests)),
        ("network", over(nodes.bytes_per_second, (miss + remote) * per_node * size)),
        ("disk", over(cache.bytes_per_second, hit * per_node * size)),
        ("latency", if sample > 0.0 { streams / (batch * sample) } else { f64::INFINITY }),
    ];
    let (limited_by, steps_per_second) =
        ways.into_iter().min_by(|left, right| left.1.total_cmp(&right.1)).expect("the list is not empty");
    Bound { au: question.step_seconds * steps_per_second, limited_by }
}

/// Accelerators that the bandwidth of the store keeps at a utilisation; none where nothing limits it.
pub fn accelerators_at(question: &Question, hit: f64, au: f64) -> Option<f64> {
    let demand = question.workload.read.batch as f64 * question.workload.bytes_per_sample() / question.step_seconds;
    Some(question.store.bytes_per_second? / ((1.0 - hit) * demand * au)).filter(|count| count.is_finite())
}

/// Standard deviations that chance is taken to reach: it passes them once in three million epochs.
const DEVIATIONS: f64 = 5.0;

/// In percent of the bound at a share of hits, what an epoch may have more by chance: its sizes, hits and latencies are
/// drawn, of each stream a batch may be half read when the steps that count begin, and one rare barrier more or less may
/// lie among them.
pub fn chance_percent(question: &Question, hit: f64) -> f64 {
    let read = &question.workload.read;
    let steps = question.counted().count() as f64;
    let samples = steps * (read.batch * question.accelerators) as f64;
    let sizes = question.workload.files.sample_bytes_stdev / question.workload.bytes_per_sample();
    // Which of the two is the limit doesn't matter: the rarer of hits and misses spreads more.
    let rarer = hit.min(1.0 - hit);
    let (spread, drawn) = if rarer > 0.0 { ((1.0 - rarer) / rarer, rarer) } else { (0.0, 1.0) };
    let waits = question.store.latency.spread().max(question.cache.latency.spread());
    let variance = (sizes.powi(2) + waits.powi(2)) / (samples * drawn) + spread / samples;
    let overhead = &question.overhead;
    let seconds = steps * (question.step_seconds + overhead.seconds / overhead.every as f64);
    let barrier = if overhead.every > 1 { overhead.seconds / seconds } else { 0.0 };
    100.0 * (DEVIATIONS * variance.sqrt() + read.threads.min(read.prefetch_batches) as f64 / steps + barrier)
}
