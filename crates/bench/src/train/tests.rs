//! The loop as a whole: on nothing, on a folder, on a folder with the limits of a disk.

mod columns;

use std::sync::Arc;

use super::*;
use ranks::Alone;
use report::{Environment, Kind};
use targets::clock::Monotonic;
use targets::{Folder, Null, Shape, Shaped};
use workload::{Files, Format, Read};

fn job(accelerators: u64, step_seconds: f64) -> Job {
    Job {
        workload: Workload {
            name: "small".into(),
            source: "this test".into(),
            files: Files {
                format: Format::Raw,
                count: 1,
                samples_per_file: 1,
                sample_bytes: 100_000.0,
                sample_bytes_stdev: 0.0,
                sample_bytes_read: None,
            },
            read: Read {
                batch: 4,
                threads: 2,
                prefetch_batches: 4,
                order: Order::Shuffled,
                shuffle_buffer: None,
                epochs: 1,
                steps_max: None,
                pause_seconds: None,
                pass_au_percent: 90.0,
            },
            checkpoint: None,
        },
        step_seconds,
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
        chill: &|_| Ok(false),
        look: &|_| (),
    })
}

fn measured(job: &Job, target: &dyn Target, set: &Set) -> Result<Epoch> {
    with_outside(|outside| {
        let checks = Checks::default();
        let mut bench = Bench { job, target, set, checks: &checks, outside, probe: None };
        if set.real {
            bench.probe()?;
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
    // What is missing to full utilisation is what was waited for.
    let waited: f64 = epoch.wait_seconds_by_cause.values().sum();
    let computed = 2.0 * 7.0 * job.step_seconds;
    let counted = computed / (epoch.au_percent / 100.0);
    assert!((computed + waited - counted).abs() < 0.05 * counted, "{epoch:?}");
    let storage = waited - epoch.wait_seconds_by_cause["barrier"];
    assert!(epoch.wait_seconds_by_cause["disk"] > 0.9 * storage, "{epoch:?}");
}

#[test]
fn processes_by_themselves_are_told_one_by_one() {
    let set = Set::imagined(&job(1, 1.0).workload.files, 400, 1);
    let null = Null::of(set.files.clone());
    let epoch = measured(&Job { together: false, ..job(4, 0.001) }, &null, &set).unwrap();
    assert_eq!(epoch.processes.len(), 4);
    assert!(epoch.processes.iter().all(|process| process.samples == 100 && process.epoch == 1));
    let sum: f64 = epoch.processes.iter().map(|process| process.samples_per_second).sum();
    assert!((sum - epoch.samples_per_second).abs() < 1e-6);
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

#[test]
fn a_report_is_handed_out_after_each_epoch() {
    let mut job = job(2, 0.001);
    (job.workload.read.epochs, job.repetitions) = (2, 2);
    let set = Set::imagined(&job.workload.files, 80, 1);
    let null = Null::of(set.files.clone());
    let mut report = Report::begin(Kind::Measured, "train", "null:", Environment::default(), 0.0);
    let mut saved = Vec::new();
    with_outside(|outside| {
        let checks = Checks::default();
        let mut bench = Bench { job: &job, target: &null, set: &set, checks: &checks, outside, probe: None };
        run(&mut bench, &mut report, &mut |report| {
            saved.push((report.epochs.len(), report.finished));
            Ok(())
        })
    })
    .unwrap();
    assert_eq!(saved, [(1, false), (2, false), (3, false), (4, false), (4, true)]);
    let summary = report.summary.unwrap();
    assert!(summary.cold_au_percent.is_none(), "nothing emptied a cache");
    assert_eq!(summary.warm_au_percent.unwrap().count, 2);
    assert!(report.sections.contains_key("ceiling"));
}

#[test]
fn a_checkpoint_is_written_read_and_gone() {
    let folder = tempfile::tempdir().unwrap();
    let target = Folder::at(folder.path()).unwrap();
    let course = checkpoint::Course {
        target: target.writable().unwrap(),
        clock: &Monotonic,
        ranks: &Alone,
        seed: 1,
        chill: &|_| Ok(()),
        look: &|_| (),
    };
    let shape = workload::Checkpoint { bytes: 5e6, processes: 2, writes: 2, reads: 1, pause_seconds: 0.0 };
    let mut passes = Vec::new();
    checkpoint::run(&course, &shape, &mut |pass| {
        passes.push((pass.what, pass.number, pass.bytes));
        Ok(())
    })
    .unwrap();
    assert_eq!(passes, [("write".into(), 1, 5_000_000), ("write".into(), 2, 5_000_000), ("read".into(), 1, 5_000_000)]);
    assert!(target.list().unwrap().is_empty());
}

#[test]
fn caches_are_blamed_only_where_one_may_have_been_full() {
    let epoch = |share, cold| Epoch { share_of_bound_percent: Some(share), cold, ..Epoch::default() };
    let (cold, warm) = (epoch(105.0, true), epoch(105.0, false));
    let names_caches = |is_cached, epochs: &[Epoch]| over(105.0, is_cached, epochs).contains("caches");
    assert!(names_caches(true, &[cold.clone(), warm.clone()]));
    assert!(!names_caches(true, &[cold, epoch(90.0, false)]), "the one that was over it was cold");
    assert!(!names_caches(false, &[warm]), "what reads a store keeps nothing");
    let folder = folder(1, 10);
    assert!(shaped(&folder, Shape::default()).is_cached());
    assert!(!Null::of(Vec::new()).is_cached());
}
