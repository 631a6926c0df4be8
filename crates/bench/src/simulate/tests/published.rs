//! The simulation beside what was published: each figure with the tolerance that `docs/simulation.md` states.
//!
//! It tunes nothing: figures of a question are those of the publication, or are named as assumed. Invariant: a point
//! that misfits stays here as a misfit, with the range that the simulation gives.

use crate::simulate::bound::accelerators_at;
use crate::simulate::latency::Latency;
use crate::simulate::{Answer, Cache, Nodes, Overhead, Placement, Question, Rule, Store, ask};
use workload::Order;
use workload::accelerator;

const GBIT: f64 = 1e9 / 8.0;

fn question(workload_name: &str, accelerator_name: &str, accelerators: u64) -> Question {
    let step = accelerator::shipped(accelerator_name).unwrap().step(workload_name).unwrap().clone();
    Question {
        step_seconds: step.step_seconds,
        workload: step.applied(workload::shipped(workload_name).unwrap()),
        accelerators,
        steps: 100,
        epochs: 1,
        store: Store::default(),
        cache: Cache::default(),
        nodes: Nodes::default(),
        overhead: Overhead::default(),
    }
}

/// A store that has nothing but bandwidth.
fn wide(bytes_per_second: f64) -> Store {
    Store { bytes_per_second: Some(bytes_per_second), ..Store::default() }
}

fn answer(question: Question, seeds: &[u64]) -> Answer {
    ask(&[question], seeds, 2, &|_| ()).unwrap().remove(0)
}

fn au(question: Question) -> f64 {
    answer(question, &[1, 2, 3]).au_percent().mean
}

#[track_caller]
#[expect(
    clippy::print_stdout,
    reason = "seen with --nocapture: the table of docs/simulation.md is made of these lines"
)]
fn assert_within(what: &str, found: f64, low: f64, high: f64) {
    println!("{what}: {found:.2} in {low} to {high}");
    assert!((low..=high).contains(&found), "{what}: {found} is not from {low} to {high}");
}

/// JuiceFS' experiment: 3D U-Net on V100 from an object store of 300 Gbit/s.
fn unet3d(accelerators: u64) -> Question {
    Question { store: wide(300.0 * GBIT), ..question("unet3d", "v100", accelerators) }
}

/// The same with shares of hits, and what its full cache loses: 1.2 % of a step.
fn cached(accelerators: u64, rates: &[f64]) -> Question {
    let cache = Cache { rule: Rule::Rates(rates.to_vec()), ..Cache::default() };
    let overhead = Overhead { seconds: 0.016, every: 1 };
    Question { cache, overhead, epochs: rates.len() as u64, ..unet3d(accelerators) }
}

#[test]
fn without_a_cache_utilisation_leaves_its_plateau_where_the_store_is_full() {
    let knee = (80..=105).find(|count| au(unet3d(*count)) < 99.0).unwrap();
    assert_within("knee, published 98", knee as f64, 85.0, 100.0);
    assert_within("AU at 60", au(unet3d(60)), 99.0, 100.01);
    // The reference of section 5.3 of the notes: another program, written apart from this one.
    for (count, other) in [(90, 96.7), (98, 89.0), (110, 79.1), (140, 63.1), (180, 49.7)] {
        assert_within(&format!("AU at {count}, another program {other}"), au(unet3d(count)), other - 1.5, other + 1.5);
    }
}

#[test]
fn without_a_cache_180_accelerators_are_half_busy() {
    assert_within("AU at 180, published 49", au(unet3d(180)), 47.0, 52.0);
}

#[test]
fn at_110_the_published_90_percent_need_a_page_cache_that_hits_12_percent() {
    assert_within("AU at 110, published 90: a misfit", au(unet3d(110)), 78.0, 92.0);
    let with = |accelerators| {
        let cache = Cache { rule: Rule::Rates(vec![0.12]), ..Cache::default() };
        Question { cache, ..unet3d(accelerators) }
    };
    assert_within("AU at 110 with 12 % of hits", au(with(110)), 88.0, 92.0);
    // The same 12 % don't give the published 49 % at 180: no single figure gives both.
    assert_within("AU at 180 with 12 % of hits, published 49: a misfit", au(with(180)), 53.0, 58.0);
}

#[test]
fn a_mean_of_85_percent_hits_with_a_cold_first_epoch_gives_the_published_93() {
    let quarter = au(cached(180, &[0.25, 1.0, 1.0, 1.0, 1.0]));
    assert_within("AU at 180, hits 25 % then 100 %, published 93.1", quarter, 91.0, 95.0);
    let most = au(cached(180, &[0.4, 0.9625, 0.9625, 0.9625, 0.9625]));
    assert_within("AU at 180, hits 40 % then 96.25 %, published 93.1: a misfit", most, 91.0, 95.8);
    // Spread evenly over epochs the same hits would lose nothing but the overhead.
    assert_within("AU at 180, hits 85 % in each epoch", au(cached(180, &[0.85])), 98.0, 99.5);
}

#[test]
fn a_full_cache_reaches_the_published_figures_at_180_and_483() {
    let few = au(cached(180, &[1.0]));
    assert_within("AU at 180, all hits, published 98.8", few, 98.0, 99.5);
    // Where the cache was and how full the nodes were is not published: 97 lies between these placements.
    let with = |per_node, place| {
        let nodes = Nodes { accelerators: per_node, bytes_per_second: Some(25.0 * GBIT), ..Nodes::default() };
        let question = cached(483, &[1.0]);
        let cache = Cache { place, ..question.cache.clone() };
        answer(Question { nodes, cache, ..question }, &[1, 2, 3, 4, 5])
    };
    let full = with(7, Placement::Peers);
    assert_within(
        "AU at 483, nodes of 7 read from each other, published 97: a misfit",
        full.au_percent().mean,
        94.5,
        97.0,
    );
    let sparse = with(6, Placement::Peers).au_percent().mean;
    assert_within("AU at 483, nodes of 6 read from each other, published 97", sparse, 96.0, 99.0);
    assert_within(
        "AU at 483, nodes of 7, cache apart, published 97",
        with(7, Placement::Apart).au_percent().mean,
        96.0,
        99.0,
    );
    let terabits = |answer: &Answer| answer.bytes_per_second() / GBIT / 1000.0;
    assert_within("Tbit/s, nodes of 7 read from each other, published 1.7: a misfit", terabits(&full), 1.45, 1.7);
    let long = Question { steps: 500, ..with(7, Placement::Apart).question };
    assert_within("Tbit/s, cache apart, 500 steps, published 1.7", terabits(&answer(long, &[1])), 1.6, 1.7);
    let line = |few: f64, many: f64| 483.0 + (many - 90.0) / ((few - many) / (483.0 - 180.0));
    assert_within("line through the published points to 90 %", line(98.8, 97.0), 1400.0, 1750.0);
    // The line is steep or flat as the nodes are full or not: no more than that it is of this size can be said.
    assert_within(
        "line through simulated points to 90 %, published 1,500: a misfit",
        line(few, full.au_percent().mean),
        900.0,
        2000.0,
    );
}

#[test]
fn argonnes_bandwidth_feeds_the_published_1500() {
    let question = Question { store: wide(650e9), ..question("unet3d", "v100", 512) };
    assert_within("accelerators, published ~1,500", accelerators_at(&question, 0.0, 1.0).unwrap(), 1450.0, 1550.0);
    assert_within("AU at 512, published 99.5", au(question), 99.0, 100.01);
}

#[test]
fn a_store_with_100_ms_keeps_1000_accelerators_busy_with_bert() {
    let store = Store { latency: Latency::constant(0.1), ..wide(300.0 * GBIT) };
    assert_within("AU, published > 98", au(Question { store, ..question("bert", "v100", 1000) }), 98.0, 100.01);
}

#[test]
fn a_barrier_each_step_costs_what_volumez_gained_without() {
    let with = |every| {
        let nodes = Nodes { accelerators: 3, ..Nodes::default() };
        let overhead = Overhead { seconds: 0.02, every };
        au(Question { nodes, overhead, ..question("unet3d", "h100", 411) })
    };
    assert_within("points lost, published 97.8 - 92.2", with(50) - with(1), 4.0, 7.0);
}

#[test]
fn one_accelerator_is_not_busy_where_a_step_takes_as_long_as_the_harness_needs_in_four() {
    // An NVMe disk, and the harness of 0.7 to 0.85 ms a step that the rows of one accelerator show.
    for seconds in [0.0007, 0.00085] {
        let store = Store { latency: Latency::constant(0.0001), ..wide(6e9) };
        let overhead = Overhead { seconds, every: 1 };
        let question = Question { store, overhead, steps: 2000, ..question("cosmoflow", "h100", 1) };
        assert_within("AU of cosmoflow, published 80.7 to 82.8", au(question), 78.0, 85.0);
    }
}

/// Rescale's experiment: data nodes of 11 Gbit/s each, clients of 8 V100 and 25 Gbit/s.
fn hadoop(workload_name: &str, accelerators: u64, data_nodes: f64) -> Question {
    let nodes = Nodes { accelerators: 8, bytes_per_second: Some(25.0 * GBIT), ..Nodes::default() };
    let store = wide(data_nodes * 11.0 * GBIT);
    Question { store, nodes, steps: 300, ..question(workload_name, "v100", accelerators) }
}

#[test]
fn data_nodes_limit_images_per_second_as_rescale_measured() {
    for (data_nodes, published) in [(2.0, 25_000.0), (4.0, 48_000.0)] {
        let found = answer(hadoop("trivial-5120", 64, data_nodes), &[1]).samples_per_second().mean;
        let what = format!("images/s from {data_nodes} data nodes, published {published}");
        assert_within(&what, found, published * 0.85, published * 1.15);
    }
    assert_within("AU of ResNet-152 on 64, two data nodes", au(hadoop("resnet-152-5120", 64, 2.0)), 97.0, 100.01);
    assert_within("AU of ResNet-50 on 32, two data nodes", au(hadoop("resnet-50-5120", 32, 2.0)), 97.0, 100.01);
    assert_within("AU of ResNet-50 on 64, two data nodes", au(hadoop("resnet-50-5120", 64, 2.0)), 70.0, 82.0);
}

#[test]
fn disks_bind_on_what_they_bind_on_by_their_limits() {
    // Records by index: each costs a request. Disks of the experiment: MB/s and requests/s.
    let with = |megabytes: f64, requests: f64, accelerators| {
        let store = Store { requests_per_second: Some(requests), ..wide(megabytes * 1e6) };
        let mut question = Question { store, steps: 200, ..question("resnet-50-5120", "v100", accelerators) };
        question.workload.read.order = Order::Random;
        let answer = answer(question, &[1]);
        (answer.samples_per_second().mean, answer.bound().limited_by)
    };
    let (gp2, st1, io1) = (with(160.0, 10_000.0, 4), with(500.0, 500.0, 4), with(500.0, 32_000.0, 4));
    assert_eq!((gp2.1, st1.1, io1.1), ("store bandwidth", "store requests", "accelerator"));
    assert_within("images/s from gp2: 160 MB/s", gp2.0, 1400.0, 1500.0);
    assert_within("images/s from st1: 500 requests/s", st1.0, 470.0, 510.0);
    // Published 1.75 for 8 instead of 4: the input pipeline of the program is not simulated. A misfit.
    assert_within("8 over 4 V100 on io1, published 1.75", with(500.0, 32_000.0, 8).0 / io1.0, 1.9, 2.01);
}

/// Published rows: workload, accelerator, hosts, accelerators, AU in percent, samples/s.
fn rows() -> Vec<(&'static str, &'static str, u64, u64, f64, f64)> {
    let lines = include_str!("../mlperf-v1.0.tsv").lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let number = |index: usize| cells[index].parse::<f64>().unwrap();
        (cells[0], cells[1], number(2) as u64, number(3) as u64, number(4), number(5))
    };
    lines.map(row).collect()
}

/// Samples/s over utilisation x accelerators x batch / time of a step.
fn identity(question: &Question, au_percent: f64, samples_per_second: f64) -> f64 {
    let batch = question.workload.read.batch as f64;
    samples_per_second * question.step_seconds / (au_percent / 100.0 * question.accelerators as f64 * batch)
}

#[test]
fn shipped_step_times_and_batches_fit_all_131_rows_of_mlperf_storage() {
    let stated = [
        ("cosmoflow", "a100", 0.968, 0.996, 0.999),
        ("cosmoflow", "h100", 0.978, 0.997, 1.0),
        ("resnet50", "a100", 0.996, 0.998, 1.0),
        ("resnet50", "h100", 0.991, 0.997, 1.0),
        ("unet3d", "a100", 0.833, 0.977, 0.992),
        ("unet3d", "h100", 0.908, 0.977, 0.996),
    ];
    assert_eq!(rows().len(), 131);
    for (workload_name, accelerator_name, low, middle, high) in stated {
        let of = rows().into_iter().filter(|row| (row.0, row.1) == (workload_name, accelerator_name));
        let ratio = |row: (&str, &str, u64, u64, f64, f64)| identity(&question(row.0, row.1, row.3), row.4, row.5);
        let mut ratios: Vec<f64> = of.map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let what = format!("{workload_name} on {accelerator_name}");
        // Samples/s of small rows are rounded to whole ones: of 20, that is 2.5 %.
        assert_within(&format!("{what}, least"), ratios[0], low - 0.005, low + 0.005);
        let half = ratios.len() / 2;
        let median = if ratios.len() % 2 == 1 { ratios[half] } else { (ratios[half - 1] + ratios[half]) / 2.0 };
        assert_within(&format!("{what}, middle"), median, middle - 0.002, middle + 0.002);
        assert_within(&format!("{what}, most"), ratios[ratios.len() - 1], high - 0.005, high + 0.012);
    }
}

#[test]
fn rows_read_as_limited_by_bandwidth_come_out_with_their_utilisation_and_samples() {
    // The rows don't say what limited them. Read as a store that gives just what AU x N asks, the simulation has to
    // give back that AU, and samples/s a little below the identity: they count the first step, which AU leaves out.
    // Rows of more accelerators would take this test minutes.
    const ACCELERATORS_MAX: u64 = 130;
    const WORK: u64 = 20_000;
    let (mut points, mut errors) = (Vec::new(), Vec::new());
    for (workload_name, accelerator_name, hosts, accelerators, au_percent, samples) in rows() {
        if accelerators > ACCELERATORS_MAX {
            continue;
        }
        let mut question = question(workload_name, accelerator_name, accelerators);
        let demand = question.workload.read.batch as f64 * question.workload.bytes_per_sample() / question.step_seconds;
        question.store = wide(au_percent / 100.0 * accelerators as f64 * demand);
        question.steps = (WORK / accelerators).clamp(200, 500);
        question.nodes.accelerators = accelerators.div_ceil(hosts);
        let answer = answer(question.clone(), &[1]);
        let (found, each) = (answer.au_percent().mean, answer.samples_per_second().mean);
        assert!(identity(&question, found, each) <= 1.005, "{workload_name} {accelerators}");
        points.push((found - au_percent).abs());
        errors.push(100.0 * (each / samples - 1.0).abs());
    }
    let count = points.len();
    points.sort_by(f64::total_cmp);
    errors.sort_by(f64::total_cmp);
    assert_within("rows of up to 130 accelerators", count as f64, 90.0, 131.0);
    assert_within("points of AU between published and simulated, middle", points[count / 2], 0.0, 2.0);
    assert_within("points of AU, 9 of 10 rows", points[count * 9 / 10], 0.0, 4.0);
    assert_within("percent between samples/s, middle", errors[count / 2], 0.0, 3.0);
    assert_within("percent between samples/s, 9 of 10 rows", errors[count * 9 / 10], 0.0, 6.0);
}
