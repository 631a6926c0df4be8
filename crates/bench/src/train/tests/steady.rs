//! The loop and the search on shaped targets, against the closed form: utilisation is what the storage gives over what
//! is asked of it. A busy machine makes the loop slower, never faster: it is bounded from above here, and from below by the
//! moments of steps in `figures` and by the simulation, which has the same rule and no machine.

use super::*;

/// Bytes per second that one accelerator of these asks for: 4 samples of 100 KB in 5 ms.
const EACH: u64 = 80_000_000;

fn shaped_null(files: u64, share: f64, accelerators: u64) -> (Shaped, Set) {
    let set = Set::imagined(&job(1, 1.0).workload.files, files, 1);
    let bytes_per_second = Some((share * (accelerators * EACH) as f64) as u64);
    let shape = Shape { bytes_per_second, ..Shape::default() };
    (Shaped::over(Box::new(Null::of(set.files.clone())), shape, Arc::new(Monotonic)), set)
}

#[test]
fn storage_that_lacks_a_sixth_never_passes() {
    for (accelerators, threads, window, share) in [(1, 4, 4, 0.83), (2, 4, 8, 0.85), (4, 2, 2, 0.6), (1, 8, 8, 0.5)] {
        let mut job = job(accelerators, 0.005);
        (job.workload.read.threads, job.workload.read.prefetch_batches) = (threads, window);
        let steady = job.steady(None);
        let (target, set) = shaped_null(steady.least * 4 * accelerators, share, accelerators);
        let epoch = measured(&job, &target, &set).unwrap();
        assert_eq!((epoch.steps, epoch.steps_counted), (steady.least, steady.least - 2 * window));
        // A batch more or less of what lay there at the ends.
        let close = 100.0 / epoch.steps_counted as f64 + 1.0;
        let found = epoch.au_percent - 100.0 * share;
        assert!(found < close, "{share} of {accelerators}, {window} ahead: {}", epoch.au_percent);
        assert_eq!(steady.verdict(&job, &[epoch]).0, report::Verdict::Fails);
    }
}

#[test]
fn the_most_accelerators_are_those_of_the_closed_form() {
    // 90 % of 5.1 accelerators are all of 4.6. Long steps, so that a busy machine weighs little in them.
    let (gives, truth) = (4.6, 5_u64);
    let mut job = job(1, 0.02);
    job.workload.read.prefetch_batches = 2;
    job.workload.read.steps_max = Some(job.steady(None).least);
    let (target, set) = shaped_null(10_000, gives / 4.0, 1);
    let mut report = Report::begin(Kind::Measured, "train", "null:", Environment::default(), 0.0);
    let found = with_outside(|outside| {
        let checks = Checks::default();
        let mut bench = Bench { job: &job, target: &target, set: &set, checks: &checks, outside, probe: None };
        most::find(&mut bench, Some(20), &mut report, &mut |_| Ok(())).unwrap().unwrap_or(0)
    });
    assert!(found.abs_diff(truth) <= 1, "{found} of {truth}: {:?}", report.points);
    let tries = |number| report.points.iter().filter(|point| point.accelerators == number).count();
    assert!(tries(found) >= 2 && tries(found + 1) >= 2, "{:?}", report.points);
}

#[test]
fn nobody_reads_a_file_twice_in_an_epoch_because_others_have_more() {
    for order in [Order::Sequential, Order::Shards] {
        let mut job = job(2, 0.001);
        (job.workload.files.samples_per_file, job.workload.read.order) = (200, order);
        // Three files: two for one, and one for the other.
        let set = Set::imagined(&job.workload.files, 600, 1);
        let steps = job.steps(&set).unwrap();
        assert_eq!(steps, 200 / 4);
        let hand = job.dealing(steps).deal(0, &set.numbers);
        for lane in 0..2 {
            let mut read: Vec<u64> = (0..steps).flat_map(|batch| hand.batch(lane, batch)).flatten().collect();
            let all = read.len();
            read.sort_unstable();
            read.dedup();
            assert_eq!(read.len(), all, "{order:?}: accelerator {lane} read a sample again");
        }
        // Of fewer files than accelerators each is cut.
        job.accelerators = 6;
        assert_eq!(job.steps(&set).unwrap(), 100 / 4);
    }
}

#[test]
fn a_machine_that_cannot_check_so_many_bytes_is_not_taken_for_slow_storage() {
    let report = |memory: f64, au: f64| {
        let mut report = Report::begin(Kind::Measured, "train", "/data", Environment::default(), 0.0);
        report.sections.insert("ceiling".into(), serde_json::json!({ "memory_percent": memory }));
        let summary = report::Summary {
            min_au_percent: au,
            pass_au_percent: 90.0,
            limited_by: "store bandwidth".into(),
            ..Default::default()
        };
        report.summary = Some(summary);
        by_memory(&mut report);
        (report.summary.unwrap().limited_by, report.warnings.len())
    };
    assert_eq!(report(38.0, 36.0), ("cpu".to_owned(), 1));
    assert_eq!(report(38.0, 20.0), ("store bandwidth".to_owned(), 1));
    assert_eq!(report(100.0, 96.0), ("store bandwidth".to_owned(), 0));
}
