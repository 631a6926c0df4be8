//! 3D U-Net and BERT of MLPerf Storage v0.5 on V100, from an object store of 300 Gbit/s, with and without a cache in the
//! clients.

use super::{Above, Figure, GBIT, Row, Utilisation, answer, au, question, rates, steady_bytes, wide};
use crate::simulate::latency::Latency;
use crate::simulate::{Answer, Nodes, Overhead, Placement, Question, Store};

const SOURCE: &str = "JuiceFS";

fn unet3d(accelerators: u64) -> Question {
    Question { store: wide(300.0 * GBIT), ..question("unet3d", "v100", accelerators) }
}

/// With shares of hits, one an epoch, and what a step costs beside data where all of them hit.
fn cached(accelerators: u64, shares: &[f64]) -> Question {
    let overhead = Overhead { seconds: 0.016, every: 1 };
    Question { cache: rates(shares), overhead, epochs: shares.len() as u64, ..unet3d(accelerators) }
}

/// The same with so many bytes/s in a stream of the store.
fn streams(bytes_per_second: f64, question: Question) -> f64 {
    let store = Store { stream_bytes_per_second: Some(bytes_per_second), ..question.store.clone() };
    au(Question { store, ..question })
}

/// All hits, on nodes of 25 Gbit/s.
fn full(per_node: u64, place: Placement) -> Answer {
    let nodes = Nodes { accelerators: per_node, bytes_per_second: Some(25.0 * GBIT), ..Nodes::default() };
    let question = cached(483, &[1.0]);
    let cache = crate::simulate::Cache { place, ..question.cache.clone() };
    answer(Question { nodes, cache, ..question }, &[1, 2, 3, 4, 5])
}

/// Where utilisation leaves its plateau.
fn knee(from: u64) -> f64 {
    (from..).find(|count| au(unet3d(*count)) < 99.0).unwrap() as f64
}

pub fn rows() -> Vec<Row> {
    [without_cache(), with_hits(), all_hits()].into_iter().flatten().collect()
}

fn row(point: &'static str, published: super::Published, given: &'static str, simulated: f64) -> Row {
    Row { point, source: SOURCE, published, given, is_fitted: false, simulated, parts: String::new() }
}

fn fitted(row: Row) -> Row {
    Row { is_fitted: true, ..row }
}

fn without_cache() -> Vec<Row> {
    let page_cache = |accelerators| au(Question { cache: rates(&[0.12]), ..unet3d(accelerators) });
    let at_110 = |given, simulated| row("3D U-Net, AU at 110", Utilisation(90.0), given, simulated);
    let at_180 = |given, simulated| row("3D U-Net, AU at 180", Utilisation(49.0), given, simulated);
    vec![
        row("3D U-Net, V100 that fill the store", Figure(98.0, 0), "300 Gbit/s, published", knee(80)),
        at_110("300 Gbit/s", au(unet3d(110))),
        fitted(at_110("12 % of hits in page caches, from this figure", page_cache(110))),
        at_110("streams of 60 MB/s, from 93.1 below", streams(60e6, unet3d(110))),
        at_180("300 Gbit/s", au(unet3d(180))),
        at_180("12 % of hits, from 90 above", page_cache(180)),
        at_180("streams of 60 MB/s, from 93.1 below", streams(60e6, unet3d(180))),
        fitted(at_180("streams of 70 MB/s, from this figure and 93.1 in another model", streams(70e6, unet3d(180)))),
    ]
}

fn with_hits() -> Vec<Row> {
    let with = |given, simulated| row("3D U-Net, AU at 180, 85 % of hits", Utilisation(93.1), given, simulated);
    let cold = answer(cached(180, &[0.25, 1.0, 1.0, 1.0, 1.0]), &[1, 2, 3]);
    let summary = cold.summary();
    let (first, others) = (summary.cold_au_percent.unwrap().mean, summary.warm_au_percent.unwrap().mean);
    let parts = format!(": cold {first:.1}, warm {others:.1}");
    let spread = with("a first epoch of 25 % and four of 100 %, from this figure", cold.au_percent().mean);
    let even = || cached(180, &[0.85; 5]);
    vec![
        with("85 % in each of five epochs; 16 ms from 98.8 below", au(even())),
        fitted(Row { parts, ..spread }),
        fitted(with("streams of 70 MB/s, from this figure and 49 in another model", streams(70e6, even()))),
        fitted(with("streams of 60 MB/s, from this figure", streams(60e6, even()))),
    ]
}

fn all_hits() -> Vec<Row> {
    let at_180 = au(cached(180, &[1.0]));
    let (peers, sparse, apart) = (full(7, Placement::Peers), full(6, Placement::Peers), full(7, Placement::Apart));
    let line = |few: f64, many: f64| 483.0 + (many - 90.0) / ((few - many) / (483.0 - 180.0));
    let point = "3D U-Net, AU at 483, all hits";
    let with = |given, answer: &Answer| row(point, Utilisation(97.0), given, answer.au_percent().mean);
    let store = Store { latency: Latency::constant(0.1), ..wide(300.0 * GBIT) };
    vec![
        fitted(row("3D U-Net, AU at 180, all hits", Utilisation(98.8), "a step costs 16 ms, from this figure", at_180)),
        with("25 Gbit/s, published, for 7 V100 that it is enough for; 16 ms from 98.8", &peers),
        fitted(with("6 V100 a node, chosen", &sparse)),
        fitted(with("7 V100 a node, cache apart, chosen", &apart)),
        row("3D U-Net, Tbit/s at 483", Figure(1.7, 2), "the same", steady_bytes(&peers) / GBIT / 1000.0),
        row(
            "3D U-Net, V100 at 90 % by the line from 180 to 483",
            Figure(1500.0, 0),
            "the same",
            line(at_180, peers.au_percent().mean),
        ),
        row(
            "BERT, AU at 1,000",
            Above(98.0),
            "300 Gbit/s, first bytes after 100 ms, assumed",
            au(Question { store, ..question("bert", "v100", 1000) }),
        ),
    ]
}

#[test]
fn another_program_gives_the_same_utilisation_without_a_cache() {
    // The loop of DLIO in a hundred lines, written apart from this one.
    for (count, other) in [(60, 100.0), (90, 96.7), (98, 89.0), (110, 79.1), (140, 63.1), (180, 49.7)] {
        let found = au(unet3d(count));
        assert!((found - other).abs() < 1.5, "AU at {count}: {found}, and {other} there");
    }
}
