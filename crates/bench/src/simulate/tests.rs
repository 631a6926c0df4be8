//! The loop against what can be computed without it.

mod published;
mod rows;

use super::latency::Latency;
use super::{Cache, Nodes, Overhead, Placement, Policy, Question, Rule, Store, ask};
use report::Epoch;

/// Accelerators with steps of 100 ms, batches of 4 samples of 1 MB, 4 readers and 4 batches ahead.
fn question(accelerators: u64) -> Question {
    let mut workload = workload::shipped("unet3d").unwrap();
    (workload.files.sample_bytes, workload.files.sample_bytes_stdev, workload.read.batch) = (1e6, 0.0, 4);
    Question {
        workload,
        step_seconds: 0.1,
        accelerators,
        steps: 400,
        epochs: 1,
        store: Store::default(),
        cache: Cache::default(),
        nodes: Nodes::default(),
        overhead: Overhead::default(),
    }
}

fn epochs(question: &Question) -> Vec<Epoch> {
    ask(std::slice::from_ref(question), &[11], 1, &|_| ()).unwrap().remove(0).runs.remove(0)
}

#[track_caller]
fn assert_au(question: &Question, right: f64) {
    let found = epochs(question)[0].au_percent;
    assert!((found - right).abs() < 1.0, "{found} is not {right}");
}

#[test]
fn without_limits_only_the_overhead_costs() {
    let overhead = Overhead { seconds: 0.025, every: 1 };
    let epoch = epochs(&Question { overhead, ..question(10) }).remove(0);
    assert!((epoch.au_percent - 80.0).abs() < 1e-6 && (epoch.ceiling_percent - 80.0).abs() < 1e-6);
    assert!((epoch.au_dlio_percent - 80.0).abs() < 0.1);
    assert!(epoch.wait_seconds_by_cause.is_empty());
    // 4 in 5 barriers less leave a fifth of it.
    let overhead = Overhead { seconds: 0.025, every: 5 };
    assert_au(&Question { overhead, ..question(10) }, 100.0 / 1.05);
}

#[test]
fn what_limits_is_what_limits_the_epoch_that_is_judged() {
    let store = Store { bytes_per_second: Some(200e6), ..Store::default() };
    let cache = Cache { rule: Rule::Rates(vec![0.0, 1.0]), ..Cache::default() };
    let asked = Question { store, cache, epochs: 5, ..question(10) };
    let summary = ask(&[asked], &[11], 1, &|_| ()).unwrap().remove(0).summary();
    // Half of the demand in the cold epoch; four epochs of hits are no excuse.
    assert!(!summary.passed);
    assert_eq!(summary.limited_by, "store bandwidth");
}

#[test]
fn each_limit_alone_binds_at_its_closed_form() {
    // 10 x 4 MB each 100 ms are 400 MB/s.
    let bandwidth = Store { bytes_per_second: Some(200e6), ..Store::default() };
    assert_au(&Question { store: bandwidth, ..question(10) }, 50.0);
    let requests = Store { requests_per_second: Some(100.0), ..Store::default() };
    assert_au(&Question { store: requests, ..question(10) }, 25.0);
    let stream = Store { stream_bytes_per_second: Some(5e6), ..Store::default() };
    assert_au(&Question { store: stream, ..question(10) }, 50.0);
    // Little: 4 readers with 0.2 s a sample fetch 20 samples/s of the 40 that are asked.
    let latency = Store { latency: Latency::constant(0.2), ..Store::default() };
    assert_au(&Question { store: latency.clone(), ..question(10) }, 50.0);
    let parts = Store { latency: Latency::constant(0.1), request_bytes: Some(250e3), ..Store::default() };
    assert_au(&Question { store: parts, ..question(10) }, 25.0);
    let nodes = Nodes { accelerators: 5, bytes_per_second: Some(150e6), ..Nodes::default() };
    assert_au(&Question { nodes, ..question(10) }, 75.0);
    let nodes = Nodes { stragglers: 0.1, straggling: 1.5, ..Nodes::default() };
    assert_au(&Question { nodes, store: latency, ..question(10) }, 100.0 / 3.0);
    let disk = Cache {
        rule: Rule::Rates(vec![1.0]),
        place: Placement::Local,
        bytes_per_second: Some(20e6),
        ..Cache::default()
    };
    assert_au(&Question { cache: disk.clone(), ..question(10) }, 50.0);
    // Read from any of 10 disks, 40 streams leave disks idle: a closed network of 10 equal servers is busy for
    // 40 / (40 + 10 - 1) of the time, and barriers cost some of that.
    let spread = Question { cache: Cache { place: Placement::Peers, ..disk }, ..question(10) };
    let found = epochs(&spread)[0].au_percent;
    assert!((36.0..50.0 * 40.0 / 49.0).contains(&found), "{found}");
}

#[test]
fn the_steps_that_count_are_those_of_the_measured_loop_and_no_share_is_above_the_bound() {
    let least = question(1).least();
    for (steps, share) in [(least, 0.5), (least, 0.95), (4 * least, 0.83)] {
        let store = Store { bytes_per_second: Some(share * 10.0 * 40e6), ..Store::default() };
        let epoch = epochs(&Question { store, steps, ..question(10) }).remove(0);
        assert_eq!(epoch.steps_counted, steps - 2 * question(1).workload.read.prefetch_batches);
        let found = epoch.share_of_bound_percent.expect("a steady loop has a share");
        assert!((97.0..=100.5).contains(&found), "{found} of {steps} steps with {share}");
    }
    let plenty = Store { bytes_per_second: Some(1.5 * 10.0 * 40e6), ..Store::default() };
    let fed = epochs(&Question { store: plenty, steps: least, ..question(10) }).remove(0);
    assert!((fed.au_percent - 100.0).abs() < 1e-6, "what storage gives in time is not made smaller: {fed:?}");
    let few = epochs(&Question { steps: least - 1, ..question(10) }).remove(0);
    assert_eq!(few.share_of_bound_percent, None);
}

#[test]
fn who_waits_for_stragglers_now_and_then_is_at_most_so_far_ahead_of_them() {
    let store = Store { latency: Latency::constant(0.2), ..Store::default() };
    let nodes = Nodes { stragglers: 0.1, straggling: 1.5, ..Nodes::default() };
    for every in [1, 8, 64, 10_000] {
        let overhead = Overhead { seconds: 0.0, every };
        let asked = Question { nodes: nodes.clone(), overhead, store: store.clone(), ..question(10) };
        let epoch = epochs(&asked).remove(0);
        let share = epoch.share_of_bound_percent.expect("a steady loop has a share");
        assert!((80.0..=100.5).contains(&share), "{share} of the bound with a barrier each {every} steps");
    }
}

#[test]
fn times_of_an_epoch_add_up() {
    let store = Store {
        latency: Latency { median: 0.02, p99: 0.3, ..Latency::default() },
        bytes_per_second: Some(300e6),
        ..Store::default()
    };
    let overhead = Overhead { seconds: 0.01, every: 1 };
    let epoch = epochs(&Question { store, overhead, ..question(10) }).remove(0);
    let waited: f64 = epoch.wait_seconds_by_cause.values().sum();
    let whole = 10.0 * epoch.seconds;
    assert!((waited + 10.0 * 400.0 * 0.11 - whole).abs() < 1e-6 * whole, "{waited} of {whole}");
    assert_eq!((epoch.samples, epoch.bytes["asked"]), (16_000, 16_000_000_000));
}

#[test]
fn a_cache_hits_what_fits_after_a_cold_epoch() {
    let rule = Rule::Ratio { ratio: 0.6, policy: Policy::Never };
    let cache = Cache { rule, ..Cache::default() };
    let store = Store { bytes_per_second: Some(100e6), ..Store::default() };
    let found = epochs(&Question { cache, store, epochs: 3, steps: 1000, ..question(10) });
    assert_eq!((found[0].cold, found[1].cold), (true, false));
    assert_eq!(found[0].bytes["cached"], 0);
    let share = found[2].bytes["cached"] as f64 / found[2].bytes["asked"] as f64;
    assert!((share - 0.6).abs() < 1e-3, "{share}");
    assert!((found[0].au_percent - 25.0).abs() < 0.5 && (found[2].au_percent - 62.5).abs() < 1.0);
}

#[test]
fn caches_that_nobody_shares_keep_what_their_nodes_read_again() {
    use workload::{Order, Partition};
    // Half of the set in four nodes, each of which has an eighth: of samples that are dealt anew so many are there.
    let share = |place, partition, order| {
        let cache = Cache { rule: Rule::Ratio { ratio: 0.5, policy: Policy::Never }, place, ..Cache::default() };
        let nodes = Nodes { accelerators: 2, ..Nodes::default() };
        let mut question = Question { cache, nodes, epochs: 2, steps: 1000, ..question(8) };
        (question.workload.read.partition, question.workload.read.order) = (partition, order);
        question.workload.files.samples_per_file = 10;
        let epoch = epochs(&question).remove(1);
        epoch.bytes["cached"] as f64 / epoch.bytes["asked"] as f64
    };
    for order in [Order::Shuffled, Order::Shards, Order::Sequential] {
        for (place, partition, right) in [
            (Placement::Peers, Partition::Fresh, 0.5),
            (Placement::Peers, Partition::Fixed, 0.5),
            (Placement::Local, Partition::Fixed, 0.5),
            // What lies in sequence is read by the same accelerator in each epoch.
            (Placement::Local, Partition::Fresh, if order == Order::Sequential { 0.5 } else { 0.125 }),
        ] {
            let found = share(place, partition, order);
            assert!((found - right).abs() < 0.02, "{order:?}, {place:?}, {partition:?}: {found} is not {right}");
        }
    }
}

#[test]
fn the_answer_depends_on_the_seed_alone() {
    let store = Store { latency: Latency { median: 0.05, p99: 0.5, ..Latency::default() }, ..Store::default() };
    let questions = [Question { store: store.clone(), ..question(7) }, Question { store, ..question(9) }];
    let with = |threads, seeds: &[u64]| {
        let answers = ask(&questions, seeds, threads, &|_| ()).unwrap();
        answers.into_iter().map(|answer| answer.runs).collect::<Vec<_>>()
    };
    assert_eq!(with(1, &[1, 2]), with(4, &[1, 2]));
    assert_ne!(with(1, &[1, 2]), with(1, &[1, 3]));
}

#[test]
fn a_question_that_makes_no_sense_is_refused() {
    let nodes = |nodes| Question { nodes, ..question(1) };
    let rule = Rule::Ratio { ratio: 0.5, policy: Policy::Lru };
    let private = Cache { rule, place: Placement::Local, ..Cache::default() };
    for wrong in [
        question(0),
        Question { steps: 2_000_000, ..question(1000) },
        Question { store: Store { bytes_per_second: Some(0.0), ..Store::default() }, ..question(1) },
        Question { cache: Cache { rule: Rule::Rates(vec![1.5]), ..Cache::default() }, ..question(1) },
        Question { cache: private, steps: 1, ..question(10_000) },
        nodes(Nodes { accelerators: 0, ..Nodes::default() }),
        nodes(Nodes { straggling: 0.5, ..Nodes::default() }),
    ] {
        let error = ask(&[wrong], &[1], 1, &|_| ()).unwrap_err();
        assert!(!error.on.is_empty() && !error.hint.is_empty());
    }
}
