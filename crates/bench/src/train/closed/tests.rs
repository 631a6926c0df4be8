//! Each rule in both directions where a run can tell: kept as it is, and broken by one change.

use super::*;
use crate::train::tests::job;
use report::{Environment, Epoch, Kind, Process};
use workload::{Order, shipped};

use Judgement::{Broken, Kept, NotJudgeable};

/// A run that keeps every rule that a run can keep.
struct Case {
    job: Job,
    report: Report,
    shipped: Option<Workload>,
    set_bytes: u64,
    is_real: bool,
    is_shaped: bool,
    seconds: f64,
}

impl Case {
    fn new(model: &str) -> Case {
        let step = workload::accelerator::shipped("h100").unwrap().step(model).unwrap().clone();
        let workload = step.applied(shipped(model).unwrap());
        let environment = Environment {
            memory_bytes: 16_000_000_000,
            file_system: Some("ext4".into()),
            ranks: 1,
            ..Environment::default()
        };
        let mut report = Report::begin(Kind::Measured, "train", "/data", environment, 0.0);
        report.accelerator = Some("h100".into());
        let epoch = |number: u64| Epoch {
            repetition: number / 5 + 1,
            epoch: number % 5 + 1,
            seconds: 100.0,
            steps: 500,
            au_percent: 94.0,
            au_dlio_percent: 95.0,
            samples_per_second: 200.0,
            ..Epoch::default()
        };
        report.epochs = (0..30).map(epoch).collect();
        report.sections.insert("find_max".into(), serde_json::json!({ "accelerators": 2 }));
        let mut job = Job { workload: workload.clone(), repetitions: 6, ..job(2, step.step_seconds) };
        job.chill = Chill::Never;
        Case {
            job,
            report,
            shipped: Some(workload),
            set_bytes: 80_000_000_000,
            is_real: true,
            is_shaped: false,
            seconds: 3_400.0,
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let around = Circumstances {
            report: &self.report,
            shipped: self.shipped.as_ref(),
            set_bytes: self.set_bytes,
            is_real: self.is_real,
            is_shaped: self.is_shaped,
            seconds: self.seconds,
        };
        judge(&self.job, &around)
    }

    /// Epochs of each repetition, counted from 1, changed.
    fn runs(&mut self, change: impl Fn(u64, &mut Epoch)) {
        self.report.epochs.iter_mut().for_each(|epoch| change(epoch.repetition, epoch));
    }

    fn hosts(&mut self, nodes: &[&str]) {
        self.report.environment.ranks = nodes.len() as u64;
        let process = |(rank, node): (u64, &&str)| Process { node: (*node).into(), rank, ..Process::default() };
        let processes: Vec<Process> = (0..).zip(nodes).map(process).collect();
        self.runs(|_, epoch| epoch.processes.clone_from(&processes));
    }
}

/// What is said of the rules with this number after a change.
fn said(number: &str, change: impl FnOnce(&mut Case)) -> Vec<Judgement> {
    let mut case = Case::new("unet3d");
    change(&mut case);
    let rules = case.rules();
    rules.iter().filter(|rule| rule.number == number).map(|rule| rule.judgement).collect()
}

#[test]
fn a_run_that_keeps_all_that_it_can_breaks_nothing() {
    for model in ["unet3d", "resnet50", "cosmoflow"] {
        let rules = Case::new(model).rules();
        let broken: Vec<&Rule> = rules.iter().filter(|rule| rule.judgement == Broken).collect();
        assert!(broken.is_empty(), "{model}: {broken:#?}");
        let why = |rule: &&Rule| rule.judgement == NotJudgeable && rule.figures.is_empty();
        assert!(!rules.iter().any(|rule| why(&rule)), "{model}: what can't be judged says why");
    }
}

/// A change that breaks a rule, which is kept without it.
type Change = fn(&mut Case);

#[test]
fn each_rule_that_can_be_broken_is_kept_without_and_broken_with_a_change() {
    let breaks: [(&str, Change); 24] = [
        ("1.1.3", |case| case.runs(|run, epoch| epoch.samples_per_second = if run == 3 { 270.0 } else { 200.0 })),
        ("1.5.1", |case| case.report.environment.file_system = Some("tmpfs".into())),
        ("1.5.1", |case| case.is_real = false),
        ("1.5.2", |case| case.is_real = false),
        ("2.2.3", |case| case.job.decode = true),
        ("2.2.4", |case| case.job.step_seconds /= 2.0),
        ("2.2.4", |case| case.job.workload.read.batch += 1),
        ("2.2.5", |case| case.report.accelerator = Some("b200".into())),
        ("2.3.2", |case| case.runs(|_, epoch| epoch.au_dlio_percent = 89.9)),
        ("2.4.2", |case| case.set_bytes -= 1),
        ("2.4.2", |case| case.hosts(&["a", "b"])),
        ("2.4.3", |case| case.report.epochs[7].steps = 499),
        ("2.4.4", |case| case.job.workload.files.sample_bytes_stdev = 0.0),
        ("2.4.4", |case| case.job.workload.files.samples_per_file = 2),
        ("2.6.1", |case| drop(case.report.epochs.drain(25..))),
        ("2.7.1", |case| drop(case.report.epochs.drain(20..))),
        ("2.7.1", |case| case.runs(|run, epoch| epoch.repetition = run + u64::from(epoch.epoch > 3) * 6)),
        ("2.7.2", |case| drop(case.report.epochs.drain(20..))),
        ("2.7.3", |case| case.job.workload.read.epochs = 1),
        ("2.7.3", |case| case.job.workload.read.steps_max = Some(500)),
        ("2.8.2", |case| case.runs(|_, epoch| epoch.au_dlio_percent = 89.9)),
        ("2.8.3", |case| case.job.accelerators = 33),
        ("G 9", |case| case.job.together = false),
        ("2.1.1", |case| case.shipped = None),
    ];
    for (number, change) in breaks {
        assert_eq!(said(number, |_| ()), [Kept], "{number}");
        let expected: &[Judgement] = if number == "2.1.1" { &[] } else { &[Broken] };
        assert_eq!(said(number, change), expected, "{number}");
    }
    assert_eq!(said("2.1", |case| case.shipped = None), [Broken]);
    assert_eq!(said("2.1", |case| case.shipped.as_mut().unwrap().name = "bert".into()), [Broken]);
    assert_eq!(said("1.1.1", |case| case.is_shaped = true), [Broken]);
    assert_eq!(said("2.4.1", |case| case.is_real = false), [Broken]);
}

#[test]
fn only_what_the_guidelines_leave_free_may_be_changed() {
    assert_eq!(said("G 10.1", |_| ()), [Kept, Kept]);
    let free: [Change; 3] = [
        |case| case.job.workload.files.count = 5_000,
        |case| (case.job.workload.read.threads, case.job.workload.read.prefetch_batches) = (64, 128),
        |case| case.job.workload.read.prefetch_batches = 1,
    ];
    for change in free {
        assert_eq!(said("G 10.1", change), [Kept, Kept]);
    }
    assert_eq!(said("G 10.1", |case| case.job.workload.read.order = Order::Sequential), [Broken, Kept]);
    assert_eq!(said("G 10.1", |case| case.job.workload.read.shuffle_buffer = Some(2)), [Broken, Kept]);
    assert_eq!(said("G 10.1", |case| case.job.workload.read.prefetch_batches = 100), [Kept, Broken]);
}

#[test]
fn utilisation_is_the_mean_over_epochs_and_runs_without_the_warm_up() {
    // One epoch of each run is far below, and the warm-up worse than all.
    let uneven = |case: &mut Case, low: f64| {
        case.runs(|run, epoch| {
            epoch.au_dlio_percent = if epoch.epoch == 1 { low } else { 97.0 };
            if run == 1 {
                epoch.au_dlio_percent = 1.0;
            }
        });
    };
    assert_eq!(said("2.3.2", |case| uneven(case, 62.0)), [Kept], "90 % in the mean");
    assert_eq!(said("2.3.2", |case| uneven(case, 61.9)), [Broken]);
    assert_eq!(said("2.3.2", |case| case.report.fail("figures contradict each other")), [NotJudgeable]);
    assert_eq!(said("2.3.2", |case| case.report.epochs.clear()), [NotJudgeable]);
    // Of CosmoFlow less is asked, but where the rules speak of all models.
    let mut case = Case::new("cosmoflow");
    case.runs(|_, epoch| epoch.au_dlio_percent = 71.0);
    let of = |number: &str| case.rules().into_iter().find(|rule| rule.number == number).map(|rule| rule.judgement);
    assert_eq!((of("2.3.2"), of("2.8.2")), (Some(Kept), Some(NotJudgeable)));
}

#[test]
fn what_one_run_does_not_tell_is_named_with_why() {
    for number in ["1.1.3", "1.6.1", "1.6.2", "1.7.4", "2.6.2"] {
        assert_eq!(said(number, |_| ()), [Kept], "{number}");
        assert_eq!(said(number, |case| drop(case.report.epochs.drain(5..))), [NotJudgeable], "{number}");
    }
    assert_eq!(said("1.6.2", |case| case.seconds = 5_000.0), [NotJudgeable], "more passed than one run takes");
    assert_eq!(said("2.8.1", |_| ()), [Kept]);
    assert_eq!(said("2.8.1", |case| case.report.sections.clear()), [NotJudgeable]);
    for number in
        ["1.1.1", "1.1.2", "1.2", "1.3.1", "1.3.2", "1.3.3", "1.6.3", "1.7.1-1.7.3", "2.2.2", "2.5.1", "2.5.2", "2.5.3"]
    {
        assert_eq!(said(number, |_| ()), [NotJudgeable], "{number}");
    }
    assert_eq!(said("1.5.1", |case| case.report.environment.file_system = Some("nfs4".into())), [NotJudgeable]);
}

#[test]
fn several_hosts_have_rules_of_their_own() {
    let on = |nodes: &[&str], number: &str| {
        said(number, |case| {
            case.hosts(nodes);
            case.set_bytes *= 2;
        })
    };
    for number in ["2.4.2", "2.9.1", "2.9.2", "2.9.3", "2.9.4", "2.9.5"] {
        assert_eq!(on(&["a", "b"], number), [Kept], "{number}");
    }
    assert_eq!(on(&["a", "a"], "2.9.2"), [], "two ranks of one host");
    assert_eq!(on(&["a", "b", "a"], "2.9.2"), [Broken]);
    assert_eq!(said("2.4.2", |case| case.hosts(&["a", "a"])), [Kept], "its memory counts once");
    let null = |case: &mut Case| {
        case.hosts(&["a", "b"]);
        case.is_real = false;
    };
    assert_eq!(said("2.9.1", null), [Broken]);
    assert_eq!(
        said("2.9.4", |case| {
            case.hosts(&["a", "b"]);
            case.runs(|_, epoch| epoch.au_dlio_percent = 89.0);
        }),
        [Broken]
    );
}
