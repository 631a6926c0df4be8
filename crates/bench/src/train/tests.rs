//! The loop as a whole: on nothing, on a folder, on a folder with the limits of a disk.

mod columns;
mod faults;
mod steady;

use std::sync::Arc;

use super::*;
use crate::samples::Run;
use ranks::Alone;
use report::{Environment, Kind};
use targets::clock::Monotonic;
use targets::{Folder, Null, Shape, Shaped};
use workload::{Files, Format, Partition, Read};

pub(super) fn job(accelerators: u64, step_seconds: f64) -> Job {
    Job {
        workload: Workload {
            name: "small".into(),
            source: "this test".into(),
            files: Files {
                format: Format::Raw,
                count: 1,
                samples_per_file: 1,
                sample_bytes: 100_000.0,
                ..Files::default()
            },
            read: Read {
                batch: 4,
                threads: 2,
                prefetch_batches: 4,
                order: Order::Shuffled,
                partition: Partition::Fresh,
                shuffle_buffer: None,
                epochs: 1,
                steps_max: None,
                pause_seconds: None,
                pass_au_percent: 90.0,
            },
            checkpoint: None,
        },
        step_seconds,
        changes: Vec::new(),
        accelerators,
        repetitions: 1,
        seed: 1,
        decode: false,
        together: true,
        transfer: Cause::Disk,
        chill: Chill::Never,
    }
}

fn with_outside<T>(work: impl FnOnce(&Outside) -> T) -> T {
    work(&Outside {
        clock: &Monotonic,
        ranks: &Alone,
        node: "here",
        counters: &Counters::default,
        tiers: &|| None,
        chill: &|_| Ok(false),
        forget: &|_, _| Ok(Vec::new()),
        look: &|_| (),
    })
}

fn measured(job: &Job, target: &dyn Target, set: &Set) -> Result<Epoch> {
    with_outside(|outside| {
        let checks = Checks::default();
        let mut bench = Bench { job, target, set, checks: &checks, outside, probe: None };
        if set.real {
            bench.probe(&job.reads(set, 0))?;
        }
        Ok(bench.epoch(0, false, "a test")?.expect("the only rank is rank 0").0)
    })
}

/// A folder of files that differ.
fn folder(files: u64, bytes: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..files {
        std::fs::write(folder.path().join(format!("{number:04}")), vec![number as u8; bytes]).unwrap();
    }
    folder
}

fn shaped(folder: &tempfile::TempDir, shape: Shape) -> Shaped {
    Shaped::over(Box::new(Folder::at(folder.path()).unwrap()), shape, Arc::new(Monotonic))
}

#[test]
fn every_sample_is_read_once_and_waits_explain_the_rest() {
    let folder = folder(64, 100_000);
    let job = job(2, 0.002);
    let target = shaped(&folder, Shape { bytes_per_second: Some(50_000_000), ..Shape::default() });
    let set = Set::of(&target, &job.workload.files, 2).unwrap();
    let epoch = measured(&job, &target, &set).unwrap();
    assert_eq!((epoch.steps, epoch.samples, epoch.bytes["asked"]), (8, 64, 6_400_000));
    // What is missing to full utilisation is what was waited for in the steps that count: the last four of eight.
    let waited = epoch.wait_seconds_by_cause.values().sum::<f64>() - epoch.wait_seconds_by_cause["start"];
    let computed = 2.0 * 4.0 * job.step_seconds;
    let counted = computed / (epoch.au_percent / 100.0);
    assert!((computed + waited - counted).abs() < 0.05 * counted, "{epoch:?}");
    let storage = waited - epoch.wait_seconds_by_cause["barrier"];
    assert!(epoch.wait_seconds_by_cause["disk"] > 0.9 * storage, "{epoch:?}");
}

#[test]
fn a_limited_disk_gives_what_its_limit_allows() {
    let folder = folder(192, 100_000);
    let job = job(2, 0.04);
    // 2 x 4 x 100 kB each 40 ms are 20 MB/s: half of it is there. Other work on the machine shifts a run, not each of four.
    let once = |_| {
        let target = shaped(&folder, Shape { bytes_per_second: Some(10_000_000), ..Shape::default() });
        let set = Set::of(&target, &job.workload.files, 2).unwrap();
        measured(&job, &target, &set).unwrap().au_percent
    };
    let found: Vec<f64> = (0..4).map(once).take_while(|found| !(46.0..51.0).contains(found)).collect();
    assert!(found.len() < 4, "{found:?} of 50");
}

#[test]
fn processes_by_themselves_are_told_one_by_one() {
    let set = Set::imagined(&job(1, 1.0).workload.files, 400, 1);
    let null = Null::of(set.files.clone());
    let epoch = measured(&Job { together: false, ..job(4, 0.001) }, &null, &set).unwrap();
    assert_eq!(epoch.processes.len(), 4);
    assert!(epoch.processes.iter().all(|process| process.samples == 100 && process.epoch == 1));
    for (cause, all) in &epoch.wait_seconds_by_cause {
        let sum: f64 = epoch.processes.iter().map(|process| process.wait_seconds_by_cause[cause]).sum();
        assert!((sum - all).abs() < 1e-6, "{cause}: {epoch:?}");
    }
    let sum: f64 = epoch.processes.iter().map(|process| process.samples_per_second).sum();
    assert!((sum - epoch.samples_per_second).abs() < 1e-6);
}

#[test]
fn one_short_shard_takes_no_steps_from_the_others() {
    let mut job = job(1, 1.0);
    (job.workload.files.count, job.workload.files.samples_per_file) = (64, 1000);
    (job.workload.read.order, job.workload.read.batch) = (Order::Shards, 64);
    let mut set = Set::imagined(&job.workload.files, 64_000, 1);
    *set.numbers.last_mut().unwrap() = 63_000..63_030;
    let steps = |accelerators| Job { accelerators, ..job.clone() }.steps(&set).unwrap();
    // Who has it among its 64, 32 and 16 files has so many samples less.
    assert_eq!([1, 2, 4].map(steps), [63_030 / 64, 31_030 / 64, 15_030 / 64]);
}

#[test]
fn warm_epochs_have_a_rate_that_no_cold_one_lowers() {
    let epoch = |number: u64| Epoch {
        repetition: 1,
        epoch: number,
        cold: number == 1,
        samples_per_second: [10.0, 100.0, 110.0][number as usize - 1],
        ..Epoch::default()
    };
    let mut report = Report::begin(Kind::Measured, "bench train", "null:", Environment::default(), 0.0);
    let of = |report: &Report| {
        let set = Set::imagined(&job(1, 1.0).workload.files, 400, 1);
        summary::summary(report, &job(1, 1.0), None, &job(1, 1.0).steady(Some(&set))).samples_per_second.mean
    };
    report.epochs = vec![epoch(1)];
    assert_eq!(of(&report), 10.0);
    report.epochs.extend([epoch(2), epoch(3)]);
    assert_eq!(of(&report), 105.0);
}

#[test]
fn a_set_that_is_too_small_says_how_many_files_it_takes() {
    let folder = folder(10, 10);
    let target = Folder::at(folder.path()).unwrap();
    let set = Set::of(&target, &job(1, 1.0).workload.files, 1).unwrap();
    let error = measured(&job(4, 0.001), &target, &set).unwrap_err();
    assert!(error.hint.contains("32 such files"), "{error}");
    let (early, checks) = (job(4, 0.001), Checks::default());
    let mut report = Report::begin(Kind::Measured, "train", "a folder", Environment::default(), 0.0);
    with_outside(|outside| {
        let outside = Outside { look: &|_| panic!("something was measured first"), ..*outside };
        let mut bench =
            Bench { job: &early, target: &target, set: &set, checks: &checks, outside: &outside, probe: None };
        assert_eq!(run(&mut bench, &mut report, &mut |_| Ok(())).unwrap_err().hint, error.hint);
    });
    let mut packed = job(1, 1.0).workload.files;
    packed.format = Format::Tfrecord;
    assert_eq!(Set::of(&target, &packed, 1).err().unwrap().kind, block::Kind::Missing);
}

#[test]
fn a_file_that_changes_during_the_run_ends_it() {
    for change in ["shorter", "longer", "gone"] {
        let folder = folder(64, 1000);
        let target = Folder::at(folder.path()).unwrap();
        let job = job(1, 0.001);
        let set = Set::of(&target, &job.workload.files, 1).unwrap();
        let path = folder.path().join("0000");
        match change {
            "shorter" => std::fs::write(&path, [1; 999]).unwrap(),
            "longer" => std::fs::write(&path, [1; 1001]).unwrap(),
            _ => std::fs::remove_file(&path).unwrap(),
        }
        let wanted = if change == "gone" { block::Kind::Missing } else { block::Kind::Changed };
        let checks = Checks::default();
        let failed = with_outside(|outside| {
            let bench = Bench { job: &job, target: &target, set: &set, checks: &checks, outside, probe: None };
            bench.epoch(0, false, "a test").unwrap_err()
        });
        assert_eq!(failed.kind, wanted, "{change}: {failed}");
    }
}

/// The summary of a run on storage that gives half of what one accelerator asks for.
fn half_fed(steps: u64) -> report::Summary {
    let mut job = job(1, 0.002);
    (job.workload.read.threads, job.workload.read.prefetch_batches) = (8, 8);
    let set = Set::imagined(&job.workload.files, steps * 4, 1);
    let shape = Shape { bytes_per_second: Some(100_000_000), ..Shape::default() };
    let target = Shaped::over(Box::new(Null::of(set.files.clone())), shape, Arc::new(Monotonic));
    let mut report = Report::begin(Kind::Measured, "train", "a disk", Environment::default(), 0.0);
    with_outside(|outside| {
        let checks = Checks::default();
        let mut bench = Bench { job: &job, target: &target, set: &set, checks: &checks, outside, probe: None };
        run(&mut bench, &mut report, &mut |_| Ok(()))
    })
    .unwrap();
    let uncounted = if steps < 176 { 8 } else { 16 };
    assert_eq!(report.epochs[0].steps_counted, steps - uncounted);
    assert!(report.epochs[0].wait_seconds_by_cause["start"] > 0.0, "the first batches were waited for");
    report.summary.unwrap()
}

#[test]
fn only_a_steady_loop_has_a_verdict() {
    let short = half_fed(12);
    assert!(!short.passed && short.cold_au_percent.is_none() && short.warm_au_percent.is_none(), "{short:?}");
    assert_eq!(short.verdict, Some(report::Verdict::Invalid), "12 steps are too few");
    let reason = short.reason.unwrap();
    assert!(reason.contains("704 samples or 704 files") && reason.contains("176 steps"), "{reason}");
    // As many as it named are enough, and tell.
    let long = half_fed(176);
    assert_eq!((long.passed, long.verdict), (false, Some(report::Verdict::Fails)));
    assert!(long.warm_au_percent.unwrap().mean < 52.0, "{long:?}");
}

#[test]
fn more_than_the_window_is_read_ahead_by_shuffle_buffers() {
    let mut job = job(1, 0.002);
    assert_eq!(job.steady(None).lead, 4);
    (job.workload.read.order, job.workload.read.shuffle_buffer) = (Order::Shards, Some(10));
    assert_eq!(job.steady(None).lead, 7, "ten samples are three batches");
    job.workload.read.order = Order::Sequential;
    let rows = Set::imagined(&job.workload.files, 100, 1).in_groups(50, &job.workload.files);
    assert_eq!(job.steady(Some(&rows)).lead, 13, "a row group of 50 samples lasts for 13 batches");
}

#[test]
fn no_search_is_made_of_tries_without_a_verdict() {
    let mut job = job(1, 0.001);
    job.workload.read.steps_max = Some(43);
    let set = Set::imagined(&job.workload.files, 4000, 1);
    let null = Null::of(set.files.clone());
    let mut report = Report::begin(Kind::Measured, "train", "null:", Environment::default(), 0.0);
    let error = with_outside(|outside| {
        let checks = Checks::default();
        let mut bench = Bench { job: &job, target: &null, set: &set, checks: &checks, outside, probe: None };
        most::find(&mut bench, Some(1), &mut report, &mut |_| Ok(())).unwrap_err()
    });
    assert!(error.hint.contains("88 at least"), "{error}");
}

#[test]
fn a_report_is_handed_out_after_each_epoch() {
    let mut job = job(2, 0.001);
    (job.workload.read.epochs, job.repetitions) = (2, 2);
    let set = Set::imagined(&job.workload.files, 704, 1);
    let null = Null::of(set.files.clone());
    let mut report = Report::begin(Kind::Measured, "train", "null:", Environment::default(), 0.0);
    let (mut saved, mut verdicts) = (Vec::new(), Vec::new());
    with_outside(|outside| {
        let checks = Checks::default();
        let mut bench = Bench { job: &job, target: &null, set: &set, checks: &checks, outside, probe: None };
        run(&mut bench, &mut report, &mut |report| {
            saved.push((report.epochs.len(), report.finished));
            verdicts.push(report.summary.as_ref().and_then(|summary| summary.verdict));
            Ok(())
        })
    })
    .unwrap();
    assert_eq!(saved, [(1, false), (2, false), (3, false), (4, false), (4, true)]);
    // Nothing was read: that is no verdict on storage. Until the end there is none at all.
    assert_eq!(verdicts, [None, None, None, None, Some(report::Verdict::Ceiling)]);
    assert!(!report.summary.as_ref().unwrap().passed);
    let summary = report.summary.unwrap();
    assert!(summary.cold_au_percent.is_none(), "nothing emptied a cache");
    assert_eq!(summary.warm_au_percent.unwrap().count, 2);
    assert!(report.sections.contains_key("ceiling"));
}

/// Makes caches forget ranges of a set below a folder.
type ForgetBelow<'a> = dyn Fn(&std::path::Path, &Set, &[Run]) -> Result<Vec<Run>> + 'a;

/// A probe of files that are all in memory, on a disk whose bytes the kernel counts.
fn probed_in_memory(forget: &ForgetBelow) -> (Probe, Report) {
    // The folder for temporary files may lie in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    for number in 0..400 {
        std::fs::write(folder.path().join(format!("{number:04}")), vec![number as u8; 100_000]).unwrap();
    }
    let (job, target) = (job(1, 0.002), Folder::at(folder.path()).unwrap());
    let set = Set::of(&target, &job.workload.files, 2).unwrap();
    let io = || std::fs::read_to_string("/proc/self/io").unwrap();
    let mut report = Report::begin(Kind::Measured, "train", "a folder", Environment::default(), 0.0);
    with_outside(|outside| {
        let outside = Outside {
            counters: &|| Counters { given: counters::read_bytes(&io()), ..Counters::default() },
            forget: &|set, runs| forget(folder.path(), set, runs),
            ..*outside
        };
        let checks = Checks::default();
        let mut bench =
            Bench { job: &job, target: &target, set: &set, checks: &checks, outside: &outside, probe: None };
        bench.probed(&[], &mut report).unwrap();
        (bench.probe.unwrap(), report)
    })
}

#[test]
fn what_a_probe_reads_from_memory_is_no_bound() {
    let (probe, report) = probed_in_memory(&|_, _, _| Ok(Vec::new()));
    assert!(probe.given_percent.unwrap() < 50.0, "{probe:?}");
    let reason = report.sections["probe"]["no_bound"].as_str().unwrap();
    assert!(reason.contains("came from the page cache") && reason.contains("--drop-command"), "{reason}");
    assert!(report.warnings.iter().any(|warning| warning.contains(reason)), "{:?}", report.warnings);
}

#[test]
fn a_probe_of_files_in_memory_reads_the_disk() {
    let cooler = crate::cold::Cooler::default();
    let were = std::sync::atomic::AtomicUsize::new(0);
    let (probe, report) = probed_in_memory(&|folder, set, runs| {
        let ranges: Vec<_> =
            runs.iter().map(|run| (folder.join(&*set.files[run.file].name), run.range.clone())).collect();
        let found = cooler.forget(folder, &ranges)?;
        were.fetch_add(found.iter().filter(|was| **was).count(), Ordering::Relaxed);
        Ok(runs.to_vec())
    });
    assert!(probe.given_percent.unwrap() >= 95.0 && probe.no_bound().is_none(), "{probe:?}");
    assert!(report.sections["probe"]["no_bound"].is_null());
    assert!(were.into_inner() > 0, "files were in memory");
}

#[test]
fn an_epoch_that_beats_its_storage_has_no_verdict() {
    let job = job(1, 0.002);
    let set = Set::imagined(&job.workload.files, 400, 1);
    let null = Null::of(set.files.clone());
    let checks = Checks::default();
    let mut report = Report::begin(Kind::Measured, "train", "a folder", Environment::default(), 0.0);
    with_outside(|outside| {
        // What a probe would have found of half of what the job gets.
        let supply = crate::bound::Supply {
            bytes_per_second: 100e6,
            stream_bytes_per_second: 1e12,
            requests_per_second: 1e9,
            latency_seconds: 0.0,
        };
        let probe = Probe { supply, streams: 2, is_enough: true, given_percent: Some(100.0), ..Probe::default() };
        let bench = Bench { job: &job, target: &null, set: &set, checks: &checks, outside, probe: Some(probe) };
        let mut epoch = bench.epoch(0, false, "a test").unwrap().unwrap().0;
        epoch.bytes.insert("storage".into(), epoch.bytes["asked"]);
        assert!(epoch.bound_percent.unwrap() < 60.0 && epoch.share_of_bound_percent.is_none(), "{epoch:?}");
        bench.held(&mut epoch, "an epoch", &mut report);
        report.epochs.push(epoch);
    });
    assert!(report.failed()[0].contains("one of the two is wrong"), "{:?}", report.failed());
    let summary = summary(&report, &job, None, &job.steady(Some(&set)));
    assert_eq!((summary.passed, summary.verdict), (false, Some(report::Verdict::Invalid)));
}

#[test]
fn nothing_is_read_during_a_step_where_nothing_is_read_ahead() {
    let folder = folder(128, 100_000);
    let mut job = job(1, 0.01);
    job.workload.read = Read { prefetch_batches: 0, threads: 4, ..job.workload.read };
    // A batch of four takes four streams as long as a step.
    let target = shaped(&folder, Shape { latency_seconds: Some(0.01), ..Shape::default() });
    let set = Set::of(&target, &job.workload.files, 1).unwrap();
    let epoch = measured(&job, &target, &set).unwrap();
    assert_eq!((epoch.steps, epoch.samples, epoch.bytes["asked"]), (32, 128, 12_800_000));
    assert!(epoch.au_percent < 60.0, "{epoch:?}");
}
