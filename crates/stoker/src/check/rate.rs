//! How fast a store gives files, and how busy that would keep accelerators in a first epoch.
//!
//! By the probe of `stoker bench`, on a part of what lies there. Invariants: no byte is read twice, and no more than
//! [`BYTES_MAX`]; what was computed and not measured is called a bound.

use super::disk::Speed;
use super::finding::Finding;
use super::reach::Reached;
use crate::bench::end::End;
use crate::bench::machine::Machine;
use crate::show;
use ::bench::probe::{Asking, Probe, probe};
use ::bench::samples::Set;
use ::bench::train::{REQUEST, forecast};
use block::Result;
use ranks::Alone;
use serde::{Deserialize, Serialize};
use targets::Listed;
use targets::clock::Monotonic;
use workload::accelerator;

/// Bytes that are read at most.
const BYTES_MAX: u64 = 2 << 30;

/// Of one file no more than this, unless there are few.
const FILE_BYTES: u64 = 64 << 20;

/// Streams that read at the same time.
const STREAMS: u64 = 16;

/// Accelerators whose steps are taken for a workload, the first that is known.
const ACCELERATORS: [&str; 7] = ["h100", "b200", "a100", "mi355", "v100", "p100", "fixed"];

/// Accelerators of a machine, where there is one and where it is full.
const COUNTS: [u64; 2] = [1, 8];

/// A bound of one workload on so many accelerators of one machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    pub accelerator: String,
    pub accelerators: u64,
    /// At most, in an epoch of which nothing lies in a cache.
    pub au_percent: f64,
    pub limited_by: String,
    /// What counts as busy.
    pub pass_au_percent: f64,
}

/// What the store gives, or why that isn't known.
pub fn measure(reached: &Reached, disk: Option<Speed>, found: &mut Vec<Finding>) -> Vec<Row> {
    let is_store = matches!(reached.end, End::Store(_));
    let probed = match ask(reached, is_store) {
        Ok(probed) => probed,
        Err(error) => {
            found.push(Finding::of("reading", &error));
            return Vec::new();
        }
    };
    found.push(given(&probed));
    if let Some(counts) = reached.end.counts() {
        found.extend(complaints(counts.throttled, counts.retries, counts.errors));
    }
    if let Some(unknown) = no_bounds(&probed) {
        found.push(unknown);
        return Vec::new();
    }
    found.extend(disk.map(|disk| beside(&probed, disk)));
    rows(&probed, is_store)
}

/// Why nothing follows from what was read.
fn no_bounds(probed: &Probe) -> Option<Finding> {
    let why = probed.no_bound()?;
    Some(Finding::warning("bounds", format!("not known: {why}"), "name more of the set, or a larger one"))
}

fn ask(reached: &Reached, is_store: bool) -> Result<Probe> {
    let mut set = Set::plain(some(&reached.files));
    if is_store {
        set.piece = REQUEST;
    }
    let mut machine = Machine::look(reached.end.target().url(), None);
    machine.settle(&set.files);
    let asking = Asking {
        target: reached.end.target(),
        set: &set,
        clock: &Monotonic,
        ranks: &Alone,
        streams: STREAMS,
        seed: crate::bench::machine::seed(),
        given: &|| machine.counters(reached.end.counts()).given,
        forget: &|set, runs| machine.forget(&Alone, set, runs),
        is_kept: true,
    };
    probe(&asking, &[])
}

/// Files, and of large ones the beginnings, as far as there is leave to read.
fn some(files: &[Listed]) -> Vec<Listed> {
    let most = FILE_BYTES.max(BYTES_MAX / files.len().max(1) as u64);
    let mut left = BYTES_MAX;
    let cut = |file: &Listed| {
        let bytes = file.bytes.min(most).min(left);
        left -= bytes;
        Listed { name: file.name.clone(), bytes }
    };
    files.iter().map(cut).filter(|file| file.bytes > 0).collect()
}

fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", show::bytes(bytes_per_second as u64))
}

fn given(probed: &Probe) -> Finding {
    let supply = probed.supply;
    let said = format!(
        "first bytes after {:.1} ms (99 of 100 within {:.1}); {} by one stream; {} and {} short reads/s by {} streams",
        1e3 * supply.latency_seconds,
        1e3 * probed.latency_p99_seconds,
        rate(probed.alone_bytes_per_second),
        rate(supply.bytes_per_second),
        show::count(supply.requests_per_second as u64),
        probed.streams,
    );
    Finding::ok("reading", said)
        .with("first_byte_seconds", supply.latency_seconds)
        .with("first_byte_p99_seconds", probed.latency_p99_seconds)
        .with("stream_bytes_per_second", probed.alone_bytes_per_second)
        .with("bytes_per_second", supply.bytes_per_second)
        .with("requests_per_second", supply.requests_per_second)
        .with("streams", probed.streams)
        .with("bytes_read", probed.bytes)
        .with("seconds", probed.seconds)
}

/// What the store said while it was read.
fn complaints(throttled: u64, retries: u64, errors: u64) -> Option<Finding> {
    if throttled > 0 {
        let said = format!(
            "it said {} to slow down",
            if throttled == 1 { "once".into() } else { format!("{throttled} times") }
        );
        return Some(Finding::warning(
            "throttling",
            said,
            "ask who runs the store for more requests a second, or spread the set over more prefixes",
        ));
    }
    let said = match retries {
        0 => format!("{} failed", show::count_of(errors, "request")),
        _ => format!(
            "{} repeated",
            if retries == 1 { "1 request was".into() } else { format!("{} requests were", show::count(retries)) }
        ),
    };
    (retries + errors > 0).then(|| Finding::warning("requests", said, "look at the way to the store, and at its log"))
}

/// A cache is of use where it is faster than what it stands before.
fn beside(probed: &Probe, disk: Speed) -> Finding {
    let store = probed.supply.bytes_per_second;
    match () {
        () if disk.read < store => Finding::warning(
            "cache speed",
            format!("the disk reads {}, less than the store gives: {}", rate(disk.read), rate(store)),
            "choose a folder of a faster disk with --cache; later epochs are as fast as it",
        ),
        () if disk.write < store => Finding::warning(
            "cache speed",
            format!("the disk writes {}, less than the store gives: {}", rate(disk.write), rate(store)),
            "choose a folder of a faster disk with --cache, or expect that not all is kept in a first epoch",
        ),
        () => Finding::ok(
            "cache speed",
            format!(
                "later epochs may be {:.1} times as fast as the first, by the disk alone",
                disk.read / store.max(1.0)
            ),
        ),
    }
}

/// The bounds of all workloads whose steps are known.
fn rows(probed: &Probe, is_store: bool) -> Vec<Row> {
    let all = workload::names().filter_map(|name| workload::shipped(name).ok());
    let all = all.filter(|workload| workload.checkpoint.is_none());
    let known = |name: &str| {
        let of = |accelerator: &&str| Some(accelerator::shipped(accelerator).ok()?.step(name).ok()?.clone());
        ACCELERATORS.iter().find_map(|accelerator| Some((*accelerator, of(accelerator)?)))
    };
    let mut rows = Vec::new();
    for workload in all {
        let Some((accelerator, step)) = known(&workload.name) else { continue };
        let workload = step.applied(workload);
        for accelerators in COUNTS {
            let bound = forecast::cold(&workload, step.step_seconds, accelerators, probed, is_store);
            rows.push(Row {
                workload: workload.name.clone(),
                accelerator: accelerator.into(),
                accelerators,
                au_percent: bound.au_percent,
                limited_by: bound.limited_by,
                pass_au_percent: workload.read.pass_au_percent,
            });
        }
    }
    rows
}

/// A line for each workload.
pub fn table(rows: &[Row]) -> String {
    let mut out =
        String::from("how busy a first epoch keeps accelerators at most, by what was measured (a bound, not a run):\n");
    for of_one in rows.chunks(COUNTS.len()) {
        let Some(first) = of_one.first() else { continue };
        out += &format!("  {:<18} {:<6}", first.workload, first.accelerator);
        for row in of_one {
            out += &format!("  {:>2}: {:>5.1} %", row.accelerators, row.au_percent);
        }
        let last = of_one.last().filter(|last| last.limited_by != "accelerator");
        out += &last.map_or_else(|| "\n".into(), |last| format!("  ({})\n", last.limited_by));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;
    use ::bench::bound::Supply;

    #[test]
    fn no_more_is_read_than_there_is_leave_for() {
        let listed = |name: &str, bytes| Listed { name: name.into(), bytes };
        let few = some(&[listed("a", 1 << 40), listed("b", 1 << 40)]);
        assert_eq!(few.iter().map(|file| file.bytes).collect::<Vec<_>>(), [BYTES_MAX / 2; 2]);
        let many: Vec<Listed> = (0..1000).map(|number| listed(&number.to_string(), 1 << 30)).collect();
        let taken = some(&many);
        assert_eq!(taken.iter().map(|file| file.bytes).sum::<u64>(), BYTES_MAX);
        assert!(taken.iter().all(|file| file.bytes <= FILE_BYTES));
        assert_eq!(some(&[listed("empty", 0), listed("c", 5)]).len(), 1);
    }

    #[test]
    fn a_bound_is_told_only_of_what_was_measured() {
        let supply = Supply { bytes_per_second: 64e6, requests_per_second: 400.0, ..Supply::default() };
        assert!(no_bounds(&Probe { supply, is_enough: true, ..Probe::default() }).is_none());
        let cached = Probe { supply, is_enough: true, given_percent: Some(5.0), ..Probe::default() };
        assert!(no_bounds(&cached).is_some_and(|found| found.said.contains("95 % of the probe's bytes")));
        let found = no_bounds(&Probe::default()).expect("nothing was read");
        assert!(found.about == "bounds" && found.outcome == Outcome::Warning && found.cure.is_some(), "{found:?}");
    }

    #[test]
    fn a_workload_has_a_line_and_what_limits_it() {
        let supply = Supply {
            bytes_per_second: 64e6,
            stream_bytes_per_second: 60e6,
            requests_per_second: 400.0,
            latency_seconds: 0.02,
        };
        let rows = rows(&Probe { supply, streams: 16, ..Probe::default() }, true);
        let text = table(&rows);
        assert!(rows.len() >= 20 && text.lines().count() == 1 + rows.len() / COUNTS.len(), "{text}");
        let unet3d = text.lines().find(|line| line.contains("unet3d")).expect("a line");
        assert!(unet3d.contains("h100") && unet3d.contains("(store bandwidth)"), "{text}");
        for (write, read, outcome, word) in [
            (1e9, 1e6, Outcome::Warning, "reads 1.00 MB/s, less than the store gives: 64.0 MB/s"),
            (1e6, 1e9, Outcome::Warning, "writes 1.00 MB/s, less than the store gives: 64.0 MB/s"),
            (65e6, 128e6, Outcome::Ok, "2.0 times as fast"),
        ] {
            let said = beside(&Probe { supply, ..Probe::default() }, Speed { write, read });
            assert!(said.outcome == outcome && said.said.contains(word), "{said:?}");
        }
        for (counted, about, word) in [
            ((2, 3, 0), "throttling", "2 times"),
            ((0, 3, 0), "requests", "3 requests"),
            ((0, 0, 1), "requests", "1 request failed"),
        ] {
            let said = complaints(counted.0, counted.1, counted.2).expect("something is to be said");
            assert!(said.about == about && said.outcome == Outcome::Warning && said.said.contains(word), "{said:?}");
        }
        assert!(complaints(0, 0, 0).is_none());
    }
}
