//! Argonne's file system, and rows of MLPerf Storage v1.0 that tell something of the harness.

use super::{Figure, Latency, Published, Row, Utilisation, au, question, wide};
use crate::simulate::{Nodes, Overhead, Question, Store};

pub fn rows() -> Vec<Row> {
    [argonne(), harness()].into_iter().flatten().collect()
}

fn row(point: &'static str, source: &'static str, published: Published, given: &'static str, simulated: f64) -> Row {
    Row { point, source, published, given, is_fitted: false, simulated, parts: String::new() }
}

fn argonne() -> Vec<Row> {
    let with = |accelerators| au(Question { store: wide(650e9), ..question("unet3d", "v100", accelerators) });
    let fed = (1400..).step_by(10).find(|count| with(*count) < 99.0).unwrap();
    vec![
        row("3D U-Net, AU at 512 V100", "Argonne", Utilisation(99.5), "650 GB/s, published", with(512)),
        row("3D U-Net, V100 that are fed", "Argonne", Figure(1500.0, 0), "650 GB/s", fed as f64),
    ]
}

/// What a barrier and the program cost is nowhere published: it is from the first row of a pair.
fn harness() -> Vec<Row> {
    let barrier = |every| {
        let nodes = Nodes { accelerators: 3, ..Nodes::default() };
        let overhead = Overhead { seconds: 0.0273, every };
        au(Question { nodes, overhead, ..question("unet3d", "h100", 411) })
    };
    let store = Store { latency: Latency::constant(0.0001), ..wide(6e9) };
    let overhead = Overhead { seconds: 0.000727, every: 1 };
    let alone = au(Question { store, overhead, steps: 2000, ..question("cosmoflow", "h100", 1) });
    let each = "a step costs 27.3 ms, from this figure";
    let rarer = |given, every| {
        row("3D U-Net, AU at 411 H100, fewer barriers", "Volumez", Utilisation(97.8), given, barrier(every))
    };
    let disk = "a step costs 0.727 ms, from this figure; a disk of 6 GB/s and 0.1 ms, assumed";
    vec![
        Row { is_fitted: true, ..row("3D U-Net, AU at 411 H100", "Volumez", Utilisation(92.2), each, barrier(1)) },
        rarer("27.3 ms each 50 steps, assumed; how many is not published", 50),
        Row { is_fitted: true, ..rarer("27.3 ms each 4 steps, from this figure", 4) },
        Row { is_fitted: true, ..row("CosmoFlow, AU of one H100", "YanRong", Utilisation(82.8), disk, alone) },
        row("CosmoFlow, AU of one H100", "Juicedata", Utilisation(80.7), "0.727 ms, from YanRong's", alone),
    ]
}
