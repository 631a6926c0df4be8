//! Reports as the commands of `bench` write them, made by arithmetic from a seed: to draw and compare, not to believe.
//!
//! Nothing here is shipped or shown to a user as a result. Invariant: every field of the document occurs in one of them.

use std::collections::BTreeMap;

use report::{Environment, Epoch, Kind, Mean, Point, Process, Report, Second, Summary, Verdict};
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
        commit: Some("0123456789ab".into()),
        kernel: "6.12.0".into(),
        processor: Some("Example 9000".into()),
        processors: 16,
        memory_bytes: 64 << 30,
        file_system: Some("fuse.stoker".into()),
        mount_options: Some("ro,noatime".into()),
        ranks: 1,
    };
    Report { finished: true, seed, ..Report::begin(kind, command, target, environment, 1.795e9) }
}

/// What `train` says that it was asked for, as far as pages read it.
fn job(batch: u64, step_seconds: f64) -> Value {
    let read = json!({"batch": batch, "threads": 4, "prefetch_batches": 2, "pass_au_percent": 90.0});
    json!({"workload": {"read": read}, "step_seconds": step_seconds})
}

fn mean(values: &[f64]) -> Option<Mean> {
    report::compare::mean(values)
}

/// Three repetitions of a cold and two warm epochs. `speed` is that of the storage while it is cold.
pub fn train(target: &str, speed: f64, seed: u64) -> Report {
    let mut report = blank("train", Kind::Measured, target, seed);
    (report.workload, report.accelerator, report.accelerators) = (Some("unet3d".into()), Some("v100".into()), Some(8));
    report.settings = job(4, 1.36);
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
    let least = report.epochs.iter().map(|epoch| epoch.au_percent).fold(100.0, f64::min);
    report.summary = Some(Summary {
        cold_au_percent: of(true),
        warm_au_percent: of(false),
        min_au_percent: least,
        samples_per_second: mean(&rates).expect("epochs"),
        pass_au_percent: 90.0,
        passed: least >= 90.0,
        verdict: Some(if least >= 90.0 { Verdict::Passed } else { Verdict::Fails }),
        reason: Some(format!("least utilisation of an epoch {least:.2} %, wanted 90 %")),
        limited_by: "store bandwidth".into(),
    });
    report.timeline = timeline(&report.epochs, seed, speed);
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
        &[("store", 0.5), ("requests", 0.2), ("loader", 0.15), ("barrier", 0.1), ("start", 0.05)]
    } else {
        &[("disk", 0.4), ("cpu", 0.25), ("loader", 0.2), ("barrier", 0.1), ("unknown", 0.05)]
    };
    Epoch {
        repetition,
        epoch,
        cold,
        seconds,
        steps: 30,
        steps_counted: 26,
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
        ..Epoch::default()
    }
}

/// A run that was too short: it has a reason, and no mean of utilisation.
pub fn invalid() -> Report {
    let mut report = train("/mnt/nfs/unet3d", 1.0, 4);
    report.epochs.truncate(1);
    let summary = report.summary.as_mut().expect("a summary");
    (summary.cold_au_percent, summary.warm_au_percent, summary.passed) = (None, None, false);
    summary.verdict = Some(Verdict::Invalid);
    summary.reason = Some("an epoch has 30 steps, and what is read ahead of the first lasts for 8. A run of 8 accelerators takes 176 steps at least, which are 5632 samples or 5632 files".into());
    summary.limited_by = "unknown".into();
    report.epochs[0].share_of_bound_percent = None;
    report
}

/// The state of a model: written twice, read once with caches empty and once without.
pub fn checkpoint(target: &str, speed: f64) -> Report {
    let mut report = blank("train", Kind::Measured, target, 1);
    (report.workload, report.accelerator, report.accelerators) =
        (Some("checkpoint-llama3-8b".into()), Some("fixed".into()), Some(8));
    let pass = |(what, number, rate, cold): (&str, u64, f64, Option<bool>)| {
        let (bytes, rate) = (105e9, rate * speed);
        json!({"what": what, "number": number, "seconds": bytes / rate, "bytes": bytes as u64, "bytes_per_second": rate,
            "slowest_bytes_per_second": rate, "mean_bytes_per_second": rate * 1.07, "cold": cold})
    };
    let passes = [
        ("write", 1, 2.4e9, None),
        ("write", 2, 2.2e9, None),
        ("read", 1, 3.1e9, Some(true)),
        ("read", 2, 3.3e9, Some(false)),
    ];
    report.sections.insert("checkpoint".into(), Value::Array(passes.map(pass).to_vec()));
    report
}

/// Throttling where the requests meet their limit in a cold epoch, little to do in warm ones; the last row of an epoch
/// is as long as what was left.
fn timeline(epochs: &[Epoch], seed: u64, speed: f64) -> Vec<Second> {
    let (mut rows, mut begun) = (Vec::new(), 0.0);
    for epoch in epochs {
        for second in 0..epoch.seconds.ceil() as u64 {
            let at = begun + second as f64;
            let share = (begun + epoch.seconds - at).min(1.0);
            let shaken = 1.0 + 0.15 * jitter(seed, 1000 + at as u64);
            rows.push(row(at, share, epoch.cold, if epoch.cold { 0.95 } else { 0.35 } * speed * shaken));
        }
        begun += epoch.seconds;
    }
    rows
}

/// A row of `share` of a second.
fn row(second: f64, share: f64, cold: bool, load: f64) -> Second {
    let requests = (5500.0 * load).min(5500.0);
    let throttled = if cold && requests > 5200.0 { (requests - 5000.0) * 0.6 } else { 0.0 };
    Second {
        second,
        requests: (share * requests) as u64,
        bytes: (share * requests * 0.2 * MIB) as u64,
        throttled: (share * throttled) as u64,
        errors: u64::from(second == 30.0) * 12,
        disk: map(&[
            ("utilisation_percent", (100.0 * load * 0.9).min(100.0)),
            ("read_iops", 14_000.0 * load),
            ("read_bytes_per_second", 8.6e8 * load),
            ("write_iops", if cold { 3_000.0 * load } else { 0.0 }),
            ("write_bytes_per_second", if cold { 6.0e8 * load } else { 0.0 }),
        ]),
    }
}

/// What a cache on each machine gave: in the first epoch from the store, then from its disk.
fn machines(count: u64, is_first: bool) -> Vec<report::Node> {
    let each = (1..=count).map(|node| {
        let (store, disk) = if is_first { (7.0e9, 0) } else { (0.0, 1_000_000_000) };
        report::Node {
            node: format!("node-{node}"),
            asked_bytes: 7_000_000_000,
            bytes_by_tier: [
                ("store".to_owned(), store as u64),
                ("disk".to_owned(), disk),
                ("passthrough".to_owned(), 7_000_000_000 - store as u64 - disk),
            ]
            .into(),
            ..report::Node::default()
        }
    });
    each.collect()
}

/// The images of a folder, read by the processes of two nodes.
pub fn processes(target: &str, per_process: f64, nodes: u64) -> Report {
    let mut report = blank("train", Kind::Measured, target, 3);
    (report.workload, report.accelerator, report.accelerators) =
        (Some("imagenet-folder".into()), Some("fixed-0.5s".into()), Some(4 * nodes));
    report.environment.ranks = 2 * nodes;
    report.settings = job(256, 0.5);
    for epoch in 1..=3 {
        let each = (0..2 * nodes).map(|rank| {
            let speed = per_process * if epoch == 1 { 0.55 } else { 1.0 } * (1.0 + 0.05 * jitter(5, rank * 10 + epoch));
            let node = format!("node-{}", rank / 2 + 1);
            let seconds = 32_000.0 / speed;
            // Rank 2 is behind: the others wait for it.
            let (store, barrier) = if rank == 2 { (0.4, 0.01) } else { (0.2, 0.2) };
            let wait_seconds_by_cause = [("store", store), ("barrier", barrier)];
            let wait_seconds_by_cause = wait_seconds_by_cause.map(|(name, share)| (name.to_owned(), share * seconds));
            Process {
                node,
                rank,
                epoch,
                samples: 32_000,
                seconds,
                samples_per_second: speed,
                wait_seconds_by_cause: wait_seconds_by_cause.into(),
                ..Process::default()
            }
        });
        let each: Vec<Process> = each.collect();
        let sum: f64 = each.iter().map(|process| process.samples_per_second).sum();
        let base =
            Epoch { nodes: machines(nodes, epoch == 1), ..epoch_of(1, epoch, if epoch == 1 { 52.0 } else { 93.0 }) };
        report.epochs.push(Epoch { samples_per_second: sum, bytes_per_second: sum * 110e3, processes: each, ..base });
    }
    let rule = |number: &str, rule: &str, judgement: &str, figures: &str| json!({"number": number, "rule": rule, "judgement": judgement, "figures": figures});
    let rules = json!([
        rule("1.1", "utilisation is at least that of the workload", "broken", "52.0 % in the mean, wanted 90 %"),
        rule("1.2", "a result is of five runs", "kept", "5 runs"),
        rule("1.3", "the machines are dedicated", "not judgeable", "a run can't see who else uses them"),
    ]);
    report.sections.insert("closed".into(), json!({"document": "MLPerf Storage v2.0", "rules": rules}));
    let rates: Vec<f64> = report.epochs.iter().map(|epoch| epoch.samples_per_second).collect();
    report.summary = Some(Summary {
        samples_per_second: mean(&rates).expect("epochs"),
        cold_au_percent: mean(&[52.0]),
        warm_au_percent: mean(&[93.0, 93.4]),
        min_au_percent: 52.0,
        pass_au_percent: 90.0,
        passed: false,
        verdict: Some(Verdict::Fails),
        reason: None,
        limited_by: "store requests".into(),
    });
    report
}

/// Tries of a search: one of 15 passed by chance, and was repeated.
pub fn find_max() -> Report {
    let mut report = blank("train", Kind::Measured, "s3://training/unet3d", 1);
    (report.workload, report.accelerator, report.accelerators) = (Some("unet3d".into()), Some("h100".into()), Some(14));
    report.settings = job(7, 0.323);
    report.points = [1, 2, 4, 8, 16, 12, 14, 13, 14, 15, 15].map(|count| point(count, 13.4, 1.0)).to_vec();
    report.points.iter_mut().for_each(|point| point.verified_percent = Some(100.0));
    report.points[8].au_percent -= 2.2;
    report.points[9].au_percent = 90.4;
    report.points[10].au_percent = 86.1;
    report.sections.insert("find_max".into(), json!({"accelerators": 14}));
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
        verified_percent: None,
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
                at: map(&[("hit_percent", hits), ("nodes", count as f64)]),
                ..point(count, knee, 0.985)
            });
        }
    }
    report.settings = json!({"question": job(400, 0.435)});
    report
}

/// Curves of cold and of warm epochs.
pub fn cold_and_warm() -> Report {
    let mut report = blank("simulate", Kind::Simulated, "s3://training", 1);
    (report.workload, report.accelerator) = (Some("unet3d".into()), Some("h100".into()));
    report.settings = json!({"question": job(7, 0.323)});
    for count in [4, 8, 16, 32, 64] {
        for (cold, hits, knee) in [(1.0, 0.0, 8.0), (0.0, 60.0, 20.0)] {
            let at = map(&[("cold", cold), ("hit_percent", hits), ("nodes", count as f64)]);
            report.points.push(Point { at, ..point(count, knee, 1.0) });
        }
    }
    report
}

/// Nodes of eight, with intervals over seeds and a share of hits that grows with them.
pub fn nodes() -> Report {
    let mut report = blank("simulate", Kind::Simulated, "s3://training", 1);
    (report.workload, report.accelerator) = (Some("unet3d".into()), Some("h100".into()));
    report.settings = json!({"question": job(7, 0.323)});
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

/// Sizes by threads by phases, with latencies, caches empty; the time of a sync beside it.
pub fn sweep(target: &str, speed: f64) -> Report {
    sweep_of(target, speed, true)
}

/// The same from caches: it says nothing of the storage, and its smallest cells are over at once.
pub fn warm_sweep() -> Report {
    sweep_of("/mnt/local", 13.0, false)
}

fn sweep_of(target: &str, speed: f64, cold: bool) -> Report {
    let mut report = blank("sweep", Kind::Measured, target, 2);
    for phase in ["write", "stat", "read", "delete"] {
        for size in [0.25, 1.0, 4.0, 16.0, 64.0] {
            for threads in [1u64, 2, 4, 8, 16, 32, 64, 128] {
                let mut found = cell(phase, size * MIB, threads, speed);
                found["cold"] = cold.into();
                found["seconds"] = if size < 1.0 && !cold { 0.02 } else { 3.0 }.into();
                for (repetition, speed) in [(1, 1.0), (2, 0.96)] {
                    let mut again = found.clone();
                    again["repetition"] = repetition.into();
                    let rates = ["bytes_per_second", "files_per_second", "operations_per_second"];
                    rates.iter().for_each(|rate| again[rate] = (found[rate].as_f64().unwrap_or(0.0) * speed).into());
                    report.cells.push(again);
                }
            }
        }
    }
    let syncs = [("s3://training", 171.0), ("s3://far-away", 402.0), ("/mnt/lustre", 96.0)];
    let sync = |(store, seconds): (&str, f64)| json!({"store": store, "seconds": seconds, "bytes": 150_000_000_000u64, "requests": 1_281_167});
    let regime = |phase: &str, threads: u64| {
        json!({"phase": phase, "threads": threads, "ranks": 1, "latency_seconds": 0.0181,
        "bytes_per_second": 95e6 * threads as f64, "files_per_second": 55.2 * threads as f64, "knee_bytes": 1.7e6, "knee_low_bytes": 1.3e6, "knee_high_bytes": 2.2e6, "r_squared": 0.997})
    };
    report.sections.insert("regimes".into(), json!([regime("write", 1), regime("read", 1), regime("read", 128)]));
    let stops = |size: f64| {
        json!({"phase": "read", "file_bytes": (size * MIB) as u64, "threads": 64, "bytes_per_second": 1.7e9,
        "best_bytes_per_second": 1.75e9, "last_bytes_per_second": 1.75e9, "reached": true})
    };
    report.sections.insert("saturation".into(), Value::Array([4.0, 16.0, 64.0].map(stops).to_vec()));
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
        "phase": phase, "file_bytes": bytes as u64, "threads": threads, "ranks": 1,
        "files_per_second": files, "operations_per_second": files * 1.2, "bytes_per_second": if moves { files * bytes } else { 0.0 },
        "latency_seconds": {"min": time * 0.6, "mean": time, "p50": time * 0.95, "p90": time * 1.4, "p99": time * 2.3, "p99.9": time * 4.1, "max": time * 7.0},
    })
}
