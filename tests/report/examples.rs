//! Reports as the commands of `bench` write them, made by arithmetic from a seed: to draw and compare, not to believe.
//!
//! Nothing here is shipped or shown to a user as a result. Invariant: every field of the document occurs in one of them.

use std::collections::BTreeMap;

use report::{Environment, Epoch, Kind, Mean, Point, Process, Report, Second, Summary};
use serde_json::{Value, json};

const MIB: f64 = 1_048_576.0;

/// From -1 to 1, the same at every call.
fn jitter(seed: u64, at: u64) -> f64 {
    let mut mixed = seed.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

fn map<T: Copy>(entries: &[(&str, T)]) -> BTreeMap<String, T> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn blank(command: &str, kind: Kind, target: &str, seed: u64) -> Report {
    let environment = Environment {
        version: "0.1.0".into(),
        kernel: "6.12.0".into(),
        processors: 16,
        memory_bytes: 64 << 30,
        file_system: Some("fuse.stoker".into()),
        ranks: 1,
    };
    Report {
        finished: true,
        settings: json!({"threads": 4, "prefetch_batches": 2, "shuffle": true}),
        seed,
        ..Report::begin(kind, command, target, environment, 1.795e9)
    }
}

fn mean(values: &[f64]) -> Option<Mean> {
    report::compare::mean(values)
}

/// Three repetitions of a cold and two warm epochs. `speed` is that of the storage while it is cold.
pub fn train(target: &str, speed: f64, seed: u64) -> Report {
    let mut report = blank("train", Kind::Measured, target, seed);
    (report.workload, report.accelerator, report.accelerators) = (Some("unet3d".into()), Some("v100".into()), Some(8));
    for repetition in 1..=3 {
        for epoch in 1..=3 {
            let shaken = 1.0 + 0.012 * jitter(seed, repetition * 10 + epoch);
            let busy = if epoch == 1 { 78.0 * speed } else { 96.5 } * shaken;
            report.epochs.push(epoch_of(repetition, epoch, busy.min(99.3)));
        }
    }
    let of = |cold: bool| {
        let some = report.epochs.iter().filter(|epoch| epoch.cold == cold);
        mean(&some.map(|epoch| epoch.au_percent).collect::<Vec<_>>())
    };
    let rates: Vec<f64> = report.epochs.iter().map(|epoch| epoch.samples_per_second).collect();
    report.summary = Some(Summary {
        cold_au_percent: of(true),
        warm_au_percent: of(false),
        min_au_percent: report.epochs.iter().map(|epoch| epoch.au_percent).fold(100.0, f64::min),
        samples_per_second: mean(&rates).expect("epochs"),
        pass_au_percent: 90.0,
        passed: true,
        limited_by: "accelerator".into(),
    });
    report.timeline = timeline(seed, speed);
    let limits = json!({"requests_per_second": 5500.0, "bytes_per_second": 1.25e9, "read_iops": 16000.0, "read_bytes_per_second": 1.0e9});
    report.sections.insert("limits".into(), limits);
    report.warnings =
        vec!["the set (22 GB) fits in the memory of this machine (64 GiB): warm epochs may measure memory".into()];
    report
}

fn epoch_of(repetition: u64, epoch: u64, busy: f64) -> Epoch {
    let seconds = 42.0 * 98.0 / busy;
    let waited = 8.0 * seconds * (1.0 - busy / 100.0);
    let cold = epoch == 1;
    let bound = if cold { 84.0 } else { 99.1 };
    let causes: &[(&str, f64)] = if cold {
        &[("store", 0.55), ("requests", 0.2), ("loader", 0.15), ("barrier", 0.1)]
    } else {
        &[("disk", 0.4), ("cpu", 0.25), ("loader", 0.2), ("barrier", 0.1), ("unknown", 0.05)]
    };
    Epoch {
        repetition,
        epoch,
        cold,
        seconds,
        steps: 30,
        samples: 960,
        au_percent: busy,
        au_dlio_percent: busy * 0.991,
        ceiling_percent: 99.7,
        bound_percent: Some(bound),
        share_of_bound_percent: Some(100.0 * busy / bound),
        samples_per_second: 960.0 / seconds,
        bytes_per_second: 960.0 * 146.6e6 / seconds,
        wait_seconds_by_cause: causes.iter().map(|(name, share)| ((*name).to_owned(), share * waited)).collect(),
        bytes: map(&[
            ("asked", 140_736_000_000),
            ("verified", 140_736_000_000),
            ("network", if cold { 140_900_000_000 } else { 0 }),
            ("disk", 90_000_000_000),
        ]),
        step_seconds: map(&[("p50", 1.362), ("p99", 1.9), ("p99.9", 2.4), ("max", 2.61)]),
        processes: Vec::new(),
    }
}

/// Bursts at the start, throttling where the requests meet their limit, silence between the epochs.
fn timeline(seed: u64, speed: f64) -> Vec<Second> {
    (0..180)
        .map(|second| {
            let (phase, epoch) = (second % 60, second / 60);
            let pause = phase > 54;
            let shaken = 1.0 + 0.15 * jitter(seed, 1000 + second);
            let load = if pause { 0.0 } else { (if epoch == 0 { 0.95 } else { 0.35 }) * speed * shaken };
            let requests = (5500.0 * load).min(5500.0);
            let throttled = if epoch == 0 && requests > 5200.0 { (requests - 5000.0) * 0.6 } else { 0.0 };
            let busy = (100.0 * load * 0.9).min(100.0);
            Second {
                second: second as f64,
                requests: requests as u64,
                bytes: (requests * 0.2 * MIB) as u64,
                throttled: throttled as u64,
                errors: u64::from(second == 30) * 12,
                disk: map(&[
                    ("utilisation_percent", busy),
                    ("read_iops", 14_000.0 * load),
                    ("read_bytes_per_second", 8.6e8 * load),
                    ("write_iops", if epoch == 0 { 3_000.0 * load } else { 0.0 }),
                    ("write_bytes_per_second", if epoch == 0 { 6.0e8 * load } else { 0.0 }),
                ]),
            }
        })
        .collect()
}

/// The images of a folder, read by the processes of two nodes.
pub fn processes(target: &str, per_process: f64, nodes: u64) -> Report {
    let mut report = blank("train", Kind::Measured, target, 3);
    (report.workload, report.accelerator, report.accelerators) =
        (Some("imagenet-folder".into()), Some("fixed-0.5s".into()), Some(4 * nodes));
    report.environment.ranks = 2 * nodes;
    for epoch in 1..=3 {
        let each = (0..2 * nodes).map(|rank| {
            let speed = per_process * if epoch == 1 { 0.55 } else { 1.0 } * (1.0 + 0.05 * jitter(5, rank * 10 + epoch));
            let node = format!("node-{}", rank / 2 + 1);
            Process { node, rank, epoch, samples: 32_000, seconds: 32_000.0 / speed, samples_per_second: speed }
        });
        let each: Vec<Process> = each.collect();
        let sum: f64 = each.iter().map(|process| process.samples_per_second).sum();
        let base = epoch_of(1, epoch, if epoch == 1 { 52.0 } else { 93.0 });
        report.epochs.push(Epoch { samples_per_second: sum, bytes_per_second: sum * 110e3, processes: each, ..base });
    }
    let rates: Vec<f64> = report.epochs.iter().map(|epoch| epoch.samples_per_second).collect();
    report.summary = Some(Summary {
        samples_per_second: mean(&rates).expect("epochs"),
        cold_au_percent: mean(&[52.0]),
        warm_au_percent: mean(&[93.0, 93.4]),
        min_au_percent: 52.0,
        pass_au_percent: 90.0,
        passed: false,
        limited_by: "store requests".into(),
    });
    report
}

/// Probes of a bisection.
pub fn find_max() -> Report {
    let mut report = blank("train", Kind::Measured, "s3://training/unet3d", 1);
    (report.workload, report.accelerator, report.accelerators) = (Some("unet3d".into()), Some("h100".into()), Some(14));
    report.points = [1, 2, 4, 8, 16, 12, 14, 13].map(|count| point(count, 13.4, 1.0)).to_vec();
    report.summary = Some(Summary {
        pass_au_percent: 90.0,
        passed: true,
        limited_by: "store bandwidth".into(),
        ..Summary::default()
    });
    report
}

/// Utilisation that falls once the target is spent at `knee` accelerators.
fn point(accelerators: u64, knee: f64, share: f64) -> Point {
    let bound = (99.6 * knee / accelerators as f64).min(99.6);
    let busy = bound * share * (1.0 - 0.004 * (1.0 + jitter(9, accelerators)));
    Point {
        accelerators,
        au_percent: busy,
        bound_percent: Some(bound),
        bytes_per_second: busy * 2.8e7 * accelerators as f64,
        seconds: 61.0,
        at: BTreeMap::new(),
    }
}

/// Curves of a simulation: hit rates, and nodes.
pub fn simulated() -> Report {
    let mut report = blank("simulate", Kind::Simulated, "catalogue: shared file system, 20 GB/s", 1);
    (report.workload, report.accelerator, report.accelerators) =
        (Some("resnet50".into()), Some("a100".into()), Some(1024));
    for (hits, knee) in [(0.0, 88.0), (50.0, 176.0), (85.0, 560.0), (100.0, 4096.0)] {
        for count in [8, 16, 32, 64, 96, 128, 180, 256, 360, 512, 768, 1024] {
            report.points.push(Point {
                at: map(&[("hit_percent", hits), ("nodes", (count as f64 / 8.0).ceil())]),
                ..point(count, knee, 0.985)
            });
        }
    }
    report.summary =
        Some(Summary { pass_au_percent: 90.0, passed: false, limited_by: "network".into(), ..Summary::default() });
    report
}

pub fn nodes() -> Report {
    let mut report = blank("simulate", Kind::Simulated, "s3://training", 1);
    (report.workload, report.accelerator) = (Some("unet3d".into()), Some("h100".into()));
    for count in [1u64, 2, 4, 8, 12, 16] {
        let rate = 2.7e9 * count as f64 / (1.0 + 0.012 * (count as f64 - 1.0));
        let point = point(8 * count, 90.0, 1.0);
        let at = map(&[
            ("nodes", count as f64),
            ("hit_percent", 40.0 + count as f64),
            ("au_percent_low", point.au_percent - 5.0),
            ("au_percent_high", point.au_percent + 3.0),
        ]);
        report.points.push(Point { at, bytes_per_second: rate, ..point });
    }
    report
}

/// Sizes by threads by phases, with latencies; the time of a sync beside it.
pub fn sweep(target: &str, speed: f64) -> Report {
    let mut report = blank("sweep", Kind::Measured, target, 2);
    for phase in ["write", "stat", "read", "delete"] {
        for size in [0.25, 1.0, 4.0, 16.0, 64.0] {
            for threads in [1u64, 2, 4, 8, 16, 32, 64, 128] {
                report.cells.push(cell(phase, size * MIB, threads, speed));
            }
        }
    }
    let syncs = [("s3://training", 171.0), ("s3://far-away", 402.0), ("/mnt/lustre", 96.0)];
    let sync = |(store, seconds): (&str, f64)| json!({"store": store, "seconds": seconds, "bytes": 150_000_000_000u64, "requests": 1_281_167});
    let regime = |phase: &str, threads: u64| {
        json!({"phase": phase, "threads": threads, "ranks": 1, "latency_seconds": 0.0181,
        "bytes_per_second": 95e6 * threads as f64, "files_per_second": 55.2 * threads as f64, "knee_bytes": 1.7e6, "r_squared": 0.997})
    };
    report.sections.insert("regimes".into(), json!([regime("write", 1), regime("read", 1), regime("read", 128)]));
    report
        .sections
        .insert("probe".into(), json!({"supply": {"requests_per_second": 5000.0, "bytes_per_second": 1.9e9}}));
    report.sections.insert("sync".into(), Value::Array(syncs.map(sync).to_vec()));
    report
}

fn cell(phase: &str, bytes: f64, threads: u64, speed: f64) -> Value {
    let moves = matches!(phase, "write" | "read");
    let first = if moves { 0.018 } else { 0.009 };
    let alone = first + if moves { bytes / 95e6 } else { 0.0 };
    let wanted = threads as f64 / alone;
    let most = if moves { (1.9e9 * speed / bytes).min(4800.0) } else { 5200.0 };
    // Two regimes, with a soft knee between them.
    let files = 1.0 / (1.0 / wanted.powi(3) + 1.0 / most.powi(3)).cbrt();
    let time = threads as f64 / files;
    json!({
        "phase": phase, "file_bytes": bytes as u64, "threads": threads, "ranks": 1, "cold": true,
        "files_per_second": files, "operations_per_second": files * 1.2, "bytes_per_second": if moves { files * bytes } else { 0.0 },
        "latency_seconds": {"min": time * 0.6, "mean": time, "p50": time * 0.95, "p90": time * 1.4, "p99": time * 2.3, "p99.9": time * 4.1, "max": time * 7.0},
    })
}
