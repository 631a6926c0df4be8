//! What compare says, against answers worked out by hand.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Environment, Kind, SCHEMA, Summary, Verdict};

fn report(epochs: &[(u64, bool, f64)]) -> Report {
    let before = |index: usize, repetition| epochs[..index].iter().filter(|epoch| epoch.0 == repetition).count() as u64;
    let epochs = epochs.iter().enumerate().map(|(index, &(repetition, cold, rate))| Epoch {
        repetition,
        epoch: 1 + before(index, repetition),
        cold,
        samples_per_second: rate,
        au_percent: 50.0,
        bytes_per_second: rate * 1e6,
        ..Epoch::default()
    });
    Report {
        schema: SCHEMA,
        kind: Kind::Measured,
        command: "train".into(),
        finished: true,
        started: 0.0,
        environment: Environment { ranks: 1, ..Environment::default() },
        settings: serde_json::Value::Null,
        target: "somewhere".into(),
        seed: 1,
        workload: Some("unet3d".into()),
        accelerator: Some("v100".into()),
        accelerators: Some(8),
        epochs: epochs.collect(),
        summary: None,
        points: Vec::new(),
        cells: Vec::new(),
        timeline: Vec::new(),
        sections: BTreeMap::new(),
        warnings: Vec::new(),
    }
}

fn row<'a>(comparison: &'a Comparison, measure: &str) -> &'a Row {
    comparison.rows.iter().find(|row| row.measure == measure).expect("the measure is there")
}

fn near(left: Option<f64>, right: f64) {
    let left = left.expect("a value");
    assert!((left - right).abs() < 1e-3 * right.abs(), "{left} is not {right}");
}

#[test]
fn a_mean_has_the_interval_of_students_t() {
    let found = mean(&[10.0, 12.0, 14.0]).expect("values");
    // Standard error 2 / sqrt(3); t of 2 degrees of freedom is 4.30265.
    near(Some(found.mean), 12.0);
    near(found.low, 12.0 - 4.30265 * 2.0 / 3f64.sqrt());
    near(found.high, 12.0 + 4.30265 * 2.0 / 3f64.sqrt());
    assert_eq!(mean(&[5.0]).and_then(|mean| mean.low), None, "one value has no interval");
    assert_eq!(mean(&[1.0, f64::NAN]), None);
}

#[test]
fn a_ratio_has_welchs_interval_on_its_logarithm() {
    // Means 200 and 100, standard deviations 10 and 5, three values each.
    let found = ratio(&[190.0, 200.0, 210.0], &[95.0, 100.0, 105.0]).expect("a ratio");
    // Relative errors are both 0.05 / sqrt(3): 4 degrees of freedom, t = 2.77645.
    let half = 2.77645 * (2.0 * 0.05f64.powi(2) / 3.0).sqrt();
    near(Some(found.ratio), 2.0);
    near(found.low, 2.0 * (-half).exp());
    near(found.high, 2.0 * half.exp());
    assert_eq!(found.is_clear(), Some(true));
    let inverse = ratio(&[95.0, 100.0, 105.0], &[190.0, 200.0, 210.0]).expect("a ratio");
    near(inverse.low, 1.0 / found.high.expect("an interval"));
}

#[test]
fn what_was_not_repeated_has_a_ratio_without_interval() {
    let found = ratio(&[3.0], &[2.0, 2.1]).expect("a ratio");
    assert_eq!((found.ratio > 1.4, found.low, found.is_clear()), (true, None, None));
    assert_eq!(ratio(&[3.0], &[0.0]), None, "nothing is divided by zero");
    let same = ratio(&[2.0, 2.0], &[2.0, 2.0]).expect("a ratio");
    assert_eq!((same.low, same.high, same.is_clear()), (Some(1.0), Some(1.0), Some(false)));
}

#[test]
fn first_and_later_epochs_are_apart_and_repetitions_are_the_values() {
    let slow = report(&[(1, true, 50.0), (1, false, 90.0), (1, false, 110.0), (2, true, 60.0), (2, false, 100.0)]);
    let fast = report(&[(1, true, 110.0), (1, false, 200.0), (2, true, 110.0), (2, false, 300.0)]);
    let found = compare(&[slow, fast]);
    let cold = row(&found, "samples per second, first epoch").entries[1].expect("an entry");
    near(cold.ratio.map(|ratio| ratio.ratio), 2.0);
    let warm = row(&found, "samples per second, later epochs");
    let first = warm.entries[0].expect("an entry");
    assert_eq!((first.mean.mean, first.mean.count, first.ratio), (100.0, 2, None), "two epochs of one run are one");
    near(warm.entries[1].expect("an entry").ratio.map(|ratio| ratio.ratio), 2.5);
}

#[test]
fn cells_points_and_syncs_meet_their_own_kind_only() {
    let mut first = report(&[]);
    let cell = |threads: u64, rate: f64| serde_json::json!({"phase": "read", "file_bytes": 1 << 20, "threads": threads, "ranks": 1, "bytes_per_second": rate});
    let remove = serde_json::json!({"phase": "delete", "file_bytes": 1 << 20, "threads": 1, "ranks": 2,
        "bytes_per_second": 0.0, "files_per_second": 40.0});
    first.cells = vec![cell(1, 1e8), cell(2, 2e8), remove];
    first.points = vec![Point { accelerators: 8, au_percent: 80.0, ..Point::default() }];
    first.sections.insert("sync".into(), serde_json::json!([{"store": "s3", "seconds": 4.0}]));
    let mut second = first.clone();
    second.cells = vec![cell(2, 3e8), cell(4, 1e8), serde_json::json!({"phase": "read"})];
    second.sections.insert("sync".into(), serde_json::json!([{"store": "s3", "seconds": 2.0}]));
    let found = compare(&[first, second]);
    let read = |threads| row(&found, &format!("read, 1 MiB x {threads} threads"));
    near(read(2).entries[1].expect("an entry").ratio.map(|ratio| ratio.ratio), 1.5);
    assert!(read(1).entries[1].is_none() && read(4).entries[0].is_none());
    assert_eq!(read(4).entries[1].expect("an entry").ratio, None, "the first has no such cell");
    assert_eq!(row(&found, "delete, 1 MiB x 1 threads x 2 ranks").unit, "files/s");
    near(row(&found, "sync of s3").entries[1].expect("an entry").ratio.map(|ratio| ratio.ratio), 0.5);
    assert_eq!(row(&found, "sync of s3").better, Better::Less);
    near(
        row(&found, "utilisation at 8 accelerators").entries[1].expect("an entry").ratio.map(|ratio| ratio.ratio),
        1.0,
    );
}

#[test]
fn what_makes_runs_differ_is_said_and_another_target_is_not() {
    let first = report(&[(1, true, 50.0), (2, true, 50.0)]);
    let mut second = Report { target: "elsewhere".into(), ..first.clone() };
    assert_eq!(compare(&[first.clone(), second.clone()]).warnings, Vec::<String>::new());
    second.seed = 2;
    second.kind = Kind::Simulated;
    second.workload = None;
    second.environment.processors = 64;
    second.finished = false;
    let warnings = compare(&[first, second]).warnings.join("\n");
    for word in ["seed differs: 1, 2", "kind differs: measured, simulated", "unet3d, none", "processors", "interrupted"]
    {
        assert!(warnings.contains(word), "{word} is missing in\n{warnings}");
    }
}

#[test]
fn rows_meet_by_what_was_set_and_what_was_found_otherwise_is_said() {
    let mut first = report(&[(1, true, 50.0), (1, false, 90.0), (2, true, 50.0), (2, false, 90.0)]);
    let mut second = report(&[(1, false, 80.0), (1, false, 90.0), (2, false, 80.0), (2, false, 90.0)]);
    let point = |hit: f64, low: f64| Point {
        accelerators: 8,
        au_percent: 80.0,
        at: [("hit_percent".to_owned(), hit), ("au_percent_low".to_owned(), low)].into(),
        ..Point::default()
    };
    let cell = |cold: bool| {
        serde_json::json!({"phase": "read", "file_bytes": 1024, "threads": 1, "ranks": 1,
        "bytes_per_second": 1e6, "cold": cold})
    };
    (first.points, second.points) = (vec![point(40.0, 79.0)], vec![point(60.0, 78.0)]);
    (first.cells, second.cells) = (vec![cell(true)], vec![cell(false)]);
    first.settings =
        serde_json::json!({"workload": {"read": {"batch": 4, "threads": 4}}, "chill": "first", "transfer": "disk"});
    second.settings =
        serde_json::json!({"workload": {"read": {"batch": 7, "threads": 4}}, "chill": "never", "transfer": "store"});
    second.environment.commit = Some("abc".into());
    let found = compare(&[first, second]);
    assert!(found.rows.iter().all(|row| row.entries.iter().all(Option::is_some)), "{:?}", found.rows);
    assert!(row(&found, "utilisation at 8 accelerators").entries[1].is_some());
    let warnings = found.warnings.join("\n");
    for said in [
        "settings differ: chill (first, never); workload.read.batch (4, 7)\n",
        "\"first epoch\" differs: cold, not cold",
        "\"read, 1 KiB x 1 threads\" differs: cold, not cold",
        "commit of stoker differs: none, abc",
    ] {
        assert!(warnings.contains(said), "{said} is missing in\n{warnings}");
    }
    assert!(!warnings.contains("later epochs"), "{warnings}");
}

#[test]
fn points_of_several_shares_of_hits_stay_apart() {
    let mut one = report(&[]);
    let point = |hit| Point {
        accelerators: 8,
        au_percent: hit,
        at: [("hit_percent".to_owned(), hit)].into(),
        ..Point::default()
    };
    one.points = vec![point(40.0), point(60.0)];
    let found = compare(&[one.clone(), one]);
    assert_eq!(row(&found, "utilisation at 8 accelerators, 40 % hits").entries[0].expect("an entry").mean.mean, 40.0);
}

#[test]
fn cold_and_warm_points_meet_their_own_kind_however_many_bytes_hit() {
    let point = |cold: f64, hit: f64| Point {
        accelerators: 8,
        au_percent: 50.0 + hit,
        at: [("hit_percent".to_owned(), hit), ("cold".to_owned(), cold)].into(),
        ..Point::default()
    };
    let (mut one, mut other) = (report(&[]), report(&[]));
    (one.points, other.points) = (vec![point(1.0, 0.0), point(0.0, 40.0)], vec![point(1.0, 0.0), point(0.0, 41.3)]);
    let found = compare(&[one, other]);
    for (name, mean) in [("utilisation at 8 accelerators, cold", 50.0), ("utilisation at 8 accelerators, warm", 91.3)] {
        assert_eq!(row(&found, name).entries[1].expect("an entry").mean.mean, mean);
    }
}

#[test]
fn a_warning_that_several_reports_give_is_shown_once() {
    let mut first = report(&[(1, true, 50.0), (2, true, 50.0)]);
    first.warnings = vec!["the set fits in memory".into()];
    let found = compare(&[first.clone(), first]).warnings;
    assert_eq!(found, ["reports 1, 2 say: the set fits in memory"]);
}

#[test]
fn epochs_of_a_single_run_are_said_to_be_no_repetitions() {
    let found = compare(&[report(&[(1, true, 50.0), (1, false, 60.0), (1, false, 61.0)])]);
    assert!(found.warnings.iter().any(|warning| warning.contains("one repetition")), "{:?}", found.warnings);
}

#[test]
fn an_invalid_run_has_no_utilisation_to_compare() {
    let (valid, mut invalid) = (report(&[(1, true, 10.0)]), report(&[(1, true, 10.0)]));
    let reason = Some("an epoch has 4 steps".into());
    invalid.summary = Some(Summary { verdict: Some(Verdict::Invalid), reason, ..Summary::default() });
    let found = compare(&[valid, invalid]);
    let entries = &row(&found, "utilisation, first epoch").entries;
    assert!(entries[0].is_some() && entries[1].is_none());
    assert!(row(&found, "samples per second, first epoch").entries[1].is_some());
    let expected = "report 2 is of an invalid run, which did not pass: an epoch has 4 steps";
    assert!(found.warnings.iter().any(|warning| warning == expected), "{:?}", found.warnings);
}

#[test]
fn a_search_whose_figures_contradict_each_other_has_no_utilisation_to_compare() {
    let mut valid = report(&[]);
    valid.points = vec![Point { accelerators: 8, au_percent: 80.0, ..Point::default() }];
    let mut invalid = valid.clone();
    invalid.fail("8 accelerators reached 150 % of the bound");
    let found = compare(&[valid, invalid]);
    let entries = &row(&found, "utilisation at 8 accelerators").entries;
    assert!(entries[0].is_some() && entries[1].is_none());
    assert!(found.warnings.iter().any(|warning| warning.contains("150 % of the bound")), "{:?}", found.warnings);
}

#[test]
fn rates_that_are_too_large_to_be_squared_have_no_interval() {
    let (first, other) = ([1e200, 3e200], [2e200, 5e200]);
    let found = ratio(&other, &first).unwrap();
    assert_eq!((found.ratio, found.low, found.high, found.is_clear()), (1.75, None, None, None));
    let found = mean(&first).unwrap();
    assert_eq!((found.mean, found.low, found.high), (2e200, None, None));
    assert_eq!(mean(&[f64::MAX, f64::MAX]), None, "their sum is no number");
    assert_eq!(ratio(&[f64::MAX], &[f64::MIN_POSITIVE]), None);
}

/// Numbers as a stranger may write them into a report: none, tiny, huge, and those between.
fn numbers() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        any::<f64>(),
        proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL,
        (-300..300_i32).prop_map(|exponent| 10_f64.powi(exponent)),
        1.0..2.0,
    ]
}

proptest! {
    #[test]
    fn no_numbers_in_reports_stop_a_comparison(
        rates in vec((1..4_u64, any::<bool>(), numbers()), 0..8),
        others in vec((1..4_u64, any::<bool>(), numbers()), 0..8),
        cells in vec((any::<u64>(), any::<u64>(), numbers(), numbers()), 0..6),
        points in vec((any::<u64>(), numbers(), numbers()), 0..4),
        seconds in vec(numbers(), 0..4),
    ) {
        let mut reports = [report(&rates), report(&others)];
        for (place, report) in reports.iter_mut().enumerate() {
            for (index, epoch) in report.epochs.iter_mut().enumerate() {
                let number = |at: usize| seconds.get((index + at) % 4).copied().unwrap_or(1.0);
                (epoch.au_percent, epoch.bytes_per_second) = (number(0), number(1));
            }
            report.cells = cells.iter().skip(place).map(|(bytes, threads, rate, files)| serde_json::json!({
                "phase": "read", "file_bytes": bytes, "threads": threads,
                "bytes_per_second": rate, "files_per_second": files, "cold": threads % 2 == 0,
            })).collect();
            report.points = points.iter().map(|&(accelerators, au_percent, hits)| Point {
                accelerators, au_percent, at: [("hit_percent".to_owned(), hits)].into(), ..Point::default()
            }).collect();
            let syncs = seconds.iter().map(|seconds| serde_json::json!({ "store": "s", "seconds": seconds }));
            report.sections.insert("sync".into(), syncs.collect());
        }
        let found = compare(&reports);
        let entries = found.rows.iter().flat_map(|row| row.entries.iter().flatten());
        for entry in entries {
            let ratio = entry.ratio.iter().flat_map(|ratio| [Some(ratio.ratio), ratio.low, ratio.high]);
            let all = [Some(entry.mean.mean), entry.mean.low, entry.mean.high].into_iter().chain(ratio).flatten();
            prop_assert!(all.into_iter().all(f64::is_finite), "{entry:?}");
        }
    }
}
