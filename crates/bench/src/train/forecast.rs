//! What a target that was probed allows jobs that don't lie on it: the bound of a workload over a set that is imagined.
//!
//! Closed formulas of figures that were measured; nothing is run. Invariant: the demand is the one that the loop would
//! make of a set of the workload's own shape.

use workload::{Files, Format, Workload};

use super::{Cause, Chill, Job, REQUEST};
use crate::bound::{Bound, bound};
use crate::probe::Probe;
use crate::samples::Set;

/// Files of a set that stand for all of it.
const FILES: u64 = 64;

/// A seed for sizes that are drawn: the figures are the same each time.
const SEED: u64 = 1;

/// At most how busy so many accelerators are in an epoch of which nothing lies in a cache.
pub fn cold(workload: &Workload, step_seconds: f64, accelerators: u64, probe: &Probe, is_store: bool) -> Bound {
    let mut set = imagined(&workload.files);
    if is_store {
        set.piece = REQUEST;
    }
    let job = Job {
        workload: workload.clone(),
        step_seconds,
        changes: Vec::new(),
        accelerators,
        repetitions: 1,
        seed: SEED,
        decode: false,
        together: true,
        transfer: Cause::Store,
        chill: Chill::First,
    };
    set.together = job.together(&set);
    let demand = job.demand(&set);
    bound(&demand, &probe.supply(demand.all_streams()))
}

/// Of columns each file is one row group, of what is read of it.
fn imagined(files: &Files) -> Set {
    if files.format != Format::Parquet {
        return Set::imagined(files, FILES * files.samples_per_file, SEED);
    }
    let rows = files.rows_of_group();
    let shape = Files {
        format: Format::Raw,
        count: FILES,
        samples_per_file: 1,
        sample_bytes: rows as f64 * files.bytes_read(),
        ..Files::default()
    };
    Set::imagined(&shape, FILES, SEED).in_groups(rows, &shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Supply;

    fn probe(bytes_per_second: f64) -> Probe {
        let supply = Supply {
            bytes_per_second,
            // So that four streams have more than all of it, whatever they wait.
            stream_bytes_per_second: bytes_per_second / 2.0,
            requests_per_second: 5_000.0,
            latency_seconds: 0.02,
        };
        Probe { supply, streams: 16, alone_bytes_per_second: bytes_per_second / 5.0, ..Probe::default() }
    }

    #[test]
    fn a_slow_store_allows_less_and_more_accelerators_get_less_each() {
        let unet3d = workload::shipped("unet3d").expect("it is shipped");
        let step = workload::accelerator::shipped("h100").expect("it is shipped");
        let step = step.step("unet3d").expect("it is known").clone();
        let at = |rate, count| cold(&step.applied(unet3d.clone()), step.step_seconds, count, &probe(rate), true);
        assert!((at(1e12, 1).au_percent - 100.0).abs() < 1e-9, "{:?}", at(1e12, 1));
        // A batch of 7 volumes of 147 MB each 0.323 s: 3.2 GB/s.
        let slow = at(64e6, 1);
        assert!((1.0..4.0).contains(&slow.au_percent) && slow.limited_by == "store bandwidth", "{slow:?}");
        assert!((at(64e6, 8).au_percent - slow.au_percent / 8.0).abs() < 0.01);
    }

    #[test]
    fn every_workload_that_is_shipped_has_a_bound() {
        let all = workload::names().map(|name| (name, workload::shipped(name).expect("it is shipped")));
        for (name, workload) in all.filter(|(_, workload)| workload.checkpoint.is_none()) {
            let found = cold(&workload, 0.1, 1, &probe(1e9), true);
            assert!((0.0..=100.0).contains(&found.au_percent), "{name}: {found:?}");
        }
    }
}
