//! TensorFlow's benchmarks on ImageNet five times over, from disks, from Hadoop's file system and from Google's store.

use super::{AtLeast, Figure, GBIT, Published, Row, answer, question, steady_bytes, steady_samples, wide};
use crate::simulate::{Answer, Nodes, Question, Store};
use workload::Order;

const SOURCE: &str = "Rescale";

pub fn rows() -> Vec<Row> {
    [data_nodes(), disks(), google()].into_iter().flatten().collect()
}

fn row(point: &'static str, published: Published, given: &'static str, simulated: f64) -> Row {
    Row { point, source: SOURCE, published, given, is_fitted: false, simulated, parts: String::new() }
}

/// Data nodes of 11 Gbit/s each, clients of 8 V100 and 25 Gbit/s.
fn hadoop(workload_name: &str, accelerators: u64, data_nodes: f64) -> Question {
    let nodes = Nodes { accelerators: 8, bytes_per_second: Some(25.0 * GBIT), ..Nodes::default() };
    let store = wide(data_nodes * 11.0 * GBIT);
    Question { store, nodes, steps: 300, ..question(workload_name, "v100", accelerators) }
}

fn asked(question: Question) -> Answer {
    answer(question, &[1])
}

fn data_nodes() -> Vec<Row> {
    let images = |workload, accelerators, nodes| steady_samples(&asked(hadoop(workload, accelerators, nodes)));
    // Where the publication reckons, an image has 100 KB; the set has 109 KB an image.
    let reckoned = |nodes| {
        let mut question = hadoop("trivial-5120", 64, nodes);
        question.workload.files.sample_bytes = 100e3;
        steady_samples(&asked(question))
    };
    let trivial = asked(hadoop("trivial-5120", 64, 2.0));
    let grows = |workload, many| images(workload, many, 2.0) / images(workload, 8, 2.0);
    let free = steady_samples(&asked(Question { store: Store::default(), ..hadoop("resnet-50-5120", 64, 2.0) }));
    let each = "11 Gbit/s a data node, published";
    let step = "525 images/s a V100, from the ideal of 4,200 for 8";
    vec![
        row("trivial, 64 V100, two data nodes: images/s", Figure(25_000.0, 0), each, steady_samples(&trivial)),
        row("trivial, 64 V100, two data nodes: GB/s", Figure(2.5, 2), each, steady_bytes(&trivial) / 1e9),
        row(
            "two data nodes as reckoned: images/s",
            Figure(27_000.0, 0),
            "11 Gbit/s a data node, images of 100 KB",
            reckoned(2.0),
        ),
        row("trivial, 64 V100, four data nodes: images/s", Figure(48_000.0, 0), each, images("trivial-5120", 64, 4.0)),
        row(
            "four data nodes as reckoned: images/s",
            Figure(55_000.0, 0),
            "11 Gbit/s a data node, images of 100 KB",
            reckoned(4.0),
        ),
        row("ResNet-50, 8 V100, one data node: images/s", AtLeast(4_000.0), step, images("resnet-50-5120", 8, 1.0)),
        row("ResNet-50, 64 V100, ideal images/s", Figure(33_000.0, 0), step, free),
        row("ResNet-152, 64 over 8 V100, two data nodes", Figure(8.0, 2), each, grows("resnet-152-5120", 64)),
        row("ResNet-50, 32 over 8 V100, two data nodes", Figure(4.0, 2), each, grows("resnet-50-5120", 32)),
        row("trivial, 32 over 8 V100, two data nodes", Figure(4.0, 2), each, grows("trivial-5120", 32)),
    ]
}

/// Disks by their limits, which are published; each record costs a request, by an index.
fn disks() -> Vec<Row> {
    let with = |workload, megabytes: f64, requests: f64, accelerators| {
        let store = Store { requests_per_second: Some(requests), ..wide(megabytes * 1e6) };
        let mut question = Question { store, steps: 200, ..question(workload, "v100", accelerators) };
        question.workload.read.order = Order::Random;
        asked(question)
    };
    let io1 = |workload, accelerators| steady_samples(&with(workload, 500.0, 32_000.0, accelerators));
    let (gp2, st1) = (with("resnet-50-5120", 160.0, 10_000.0, 4), with("resnet-50-5120", 500.0, 500.0, 4));
    let grows = |workload| io1(workload, 8) / io1(workload, 4);
    let limits = "500 MB/s, 32,000 requests/s, published";
    vec![
        row(
            "ResNet-50, 4 V100, gp2: MB/s",
            Figure(160.0, 0),
            "160 MB/s, 10,000 requests/s, published",
            steady_bytes(&gp2) / 1e6,
        ),
        row(
            "ResNet-50, 4 V100, st1: requests/s",
            Figure(500.0, 0),
            "500 MB/s, 500 requests/s, published; one a record, assumed",
            steady_samples(&st1),
        ),
        row("ResNet-50, 8 over 4 V100, io1", Figure(1.75, 2), limits, grows("resnet-50-5120")),
        row("ResNet-152, 8 over 4 V100, io1", Figure(1.73, 2), limits, grows("resnet-152-5120")),
    ]
}

/// P100, four a node. What one node has of the store is not published: 3 GB/s of 32 P100 are 375 MB/s.
fn google() -> Vec<Row> {
    let from = |workload, accelerators: u64, node: f64| {
        let nodes = Nodes { accelerators: 4, bytes_per_second: Some(node), ..Nodes::default() };
        asked(Question { nodes, steps: 300, ..question(workload, "p100", accelerators) })
    };
    let share = |workload, node| {
        let store = Store { requests_per_second: Some(40_000.0), ..wide(800e6) };
        let disk = asked(Question { store, steps: 300, ..question(workload, "p100", 4) });
        steady_samples(&from(workload, 4, node)) / steady_samples(&disk)
    };
    let (node, slow) = (375e6, 67e6);
    let grows = |workload| steady_samples(&from(workload, 32, node)) / steady_samples(&from(workload, 4, node));
    let total = |node| steady_bytes(&from("trivial-5120", 32, node)) / 1e9;
    let (half, whole) =
        ("ResNet-50, 4 P100, Google's store over its disks", "ResNet-152, 4 P100, Google's store over its disks");
    let given = "375 MB/s a node of 4, assumed, from 3 GB/s below; disk of 800 MB/s, published";
    let low = "67 MB/s a node, from 0.70 of ResNet-50";
    vec![
        row(half, Figure(0.7, 2), given, share("resnet-50-5120", node)),
        Row {
            is_fitted: true,
            ..row(half, Figure(0.7, 2), "67 MB/s a node, from this figure", share("resnet-50-5120", slow))
        },
        row(whole, Figure(1.0, 2), given, share("resnet-152-5120", node)),
        row(whole, Figure(1.0, 2), low, share("resnet-152-5120", slow)),
        Row {
            is_fitted: true,
            ..row("trivial, 32 P100: GB/s", Figure(3.0, 2), "375 MB/s a node, from this figure", total(node))
        },
        row("trivial, 32 P100: GB/s", Figure(3.0, 2), low, total(slow)),
        Row {
            is_fitted: true,
            ..row(
                "trivial, 32 over 4 P100",
                Figure(8.0, 2),
                "375 MB/s for each node, from this line",
                grows("trivial-5120"),
            )
        },
        row("ResNet-50, 32 over 4 P100", Figure(8.0, 2), "375 MB/s a node, from 3 GB/s", grows("resnet-50-5120")),
        row("ResNet-152, 32 over 4 P100", Figure(8.0, 2), "375 MB/s a node, from 3 GB/s", grows("resnet-152-5120")),
    ]
}
