//! The runs of a report as the rules count them: the first is a warm-up where there are more than five.
//!
//! It judges nothing. Invariant: figures are means over the epochs of a run.

use std::collections::BTreeMap;

use report::{Epoch, Report};

#[derive(Clone, Debug, Default)]
pub struct Run {
    /// As DLIO computes it.
    pub au_percent: f64,
    pub own_au_percent: f64,
    pub samples_per_second: f64,
    pub seconds: f64,
}

pub struct Runs {
    pub all: Vec<Run>,
    /// Those that make the result.
    pub tested: Vec<Run>,
    /// Of the shortest epoch.
    pub steps: Option<u64>,
    /// Ranks of each host. One host, without a name, where the report names none.
    pub hosts: BTreeMap<String, usize>,
}

impl Runs {
    pub fn of(report: &Report) -> Runs {
        let mut epochs = BTreeMap::<u64, Vec<&Epoch>>::new();
        for epoch in &report.epochs {
            epochs.entry(epoch.repetition).or_default().push(epoch);
        }
        let all: Vec<Run> = epochs.values().map(|epochs| run(epochs)).collect();
        let tested = all[usize::from(all.len() > super::RUNS)..].to_vec();
        let mut ranks = BTreeMap::<String, Vec<u64>>::new();
        for process in report.epochs.first().into_iter().flat_map(|epoch| &epoch.processes) {
            let of_host = ranks.entry(process.node.clone()).or_default();
            if !of_host.contains(&process.rank) {
                of_host.push(process.rank);
            }
        }
        let mut hosts: BTreeMap<_, _> = ranks.into_iter().map(|(node, ranks)| (node, ranks.len())).collect();
        if hosts.is_empty() {
            hosts.insert(String::new(), 1);
        }
        Runs { all, tested, steps: report.epochs.iter().map(|epoch| epoch.steps).min(), hosts }
    }

    pub fn seconds(&self) -> f64 {
        self.all.iter().map(|run| run.seconds).sum()
    }

    pub fn shortest_seconds(&self) -> f64 {
        self.all.iter().map(|run| run.seconds).fold(f64::INFINITY, f64::min)
    }

    /// How far the run that lies farthest from the mean does, of several.
    pub fn apart_percent(&self) -> Option<f64> {
        let mean = average(&self.tested, |run| run.samples_per_second);
        let far = self.tested.iter().map(|run| (run.samples_per_second / mean - 1.0).abs()).fold(0.0, f64::max);
        (self.tested.len() > 1 && mean > 0.0).then_some(100.0 * far)
    }
}

fn run(epochs: &[&Epoch]) -> Run {
    let mean = |of: fn(&Epoch) -> f64| epochs.iter().map(|epoch| of(epoch)).sum::<f64>() / epochs.len() as f64;
    Run {
        au_percent: mean(|epoch| epoch.au_dlio_percent),
        own_au_percent: mean(|epoch| epoch.au_percent),
        samples_per_second: mean(|epoch| epoch.samples_per_second),
        seconds: epochs.iter().map(|epoch| epoch.seconds).sum(),
    }
}

pub fn average(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
}
