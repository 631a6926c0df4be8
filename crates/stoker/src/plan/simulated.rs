//! The second opinion on a plan: its best offers, as `stoker bench simulate` has them, at the sizes of large jobs.
//!
//! It plans nothing itself and runs in simulated time alone. Invariants: the simulator is told the same figures as were planned
//! with; whatever comes out is called simulated.

use ::bench::simulate::cache::Policy;
use ::bench::simulate::{Answer, Cache, Nodes, Overhead, Placement, Question, Rule, Store, ask};
use ::plan::catalog::Catalog;
use ::plan::demand::Demand;
use ::plan::plan::{Offer, Plan};
use anyhow::Result;
use block::Error;
use serde::Serialize;
use workload::Workload;

use super::{asked::Asked, today, wrong};

/// How many offers of each size.
const OFFERS: usize = 3;
/// Steps of an epoch, and samples of one at most: more takes minutes.
const STEPS: u64 = 40;
const STEPS_LEAST: u64 = 10;
const SAMPLES_MAX: u64 = 2_000_000;

/// One epoch of one offer, as it was planned and as it was simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub accelerators: u32,
    pub offer: String,
    pub rank: usize,
    /// Whether it is the first epoch.
    pub cold: bool,
    pub au_percent: f64,
    /// The simulator's own closed form, and what its loop reached.
    pub bound_percent: f64,
    pub simulated_au_percent: f64,
    pub steps: u64,
}

impl Row {
    /// As people read it: all but its steps.
    pub fn cells(&self) -> Vec<String> {
        let percent = |value: f64| format!("{value:.1}");
        vec![
            self.accelerators.to_string(),
            self.rank.to_string(),
            self.offer.clone(),
            if self.cold { "first" } else { "later" }.to_owned(),
            percent(self.au_percent),
            percent(self.bound_percent),
            percent(self.simulated_au_percent),
        ]
    }
}

/// The best offers that the simulator knows the way of, for each number of accelerators.
pub fn rows(catalog: &Catalog, asked: &Asked, counts: &[u32]) -> Result<Vec<Row>> {
    let (demand, workload) = asked.simulated()?;
    let Some(workload) = workload else {
        let error = Error::invalid("what is simulated is a workload, and none is known", "--simulate");
        return Err(error.hint("--workload, or --measured with a run of one").into());
    };
    let mut rows = Vec::new();
    for count in counts {
        let demand = Demand { accelerators: *count, ..demand.clone() };
        let plan = Plan::of(catalog, &demand, today()).map_err(wrong)?;
        for offer in best(&plan) {
            let question = question(&demand, offer, &workload);
            let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
            let answers = ask(&[question], &[1], threads, &|_| ())?;
            rows.extend(answers.iter().flat_map(|answer| of_answer(answer, offer, *count)));
        }
    }
    Ok(rows)
}

/// The first offers of ways that the simulator has: straight from a store, and a cache on the nodes that train.
fn best(plan: &Plan) -> Vec<&Offer> {
    let is_known = |offer: &&Offer| matches!(offer.method, "straight" | "stoker-own-disks");
    let mut found: Vec<&Offer> = Vec::new();
    for offer in plan.offers.iter().filter(is_known) {
        let is_like = |other: &&Offer| other.method == offer.method && other.service == offer.service;
        if found.len() < OFFERS && !found.iter().any(is_like) {
            found.push(offer);
        }
    }
    found
}

fn question(demand: &Demand, offer: &Offer, workload: &Workload) -> Question {
    let batch = workload.read.batch.max(1);
    let samples = batch * u64::from(demand.accelerators);
    let is_cached = offer.method == "stoker-own-disks";
    let cache = Cache {
        // It knows no copies in room to spare: a ratio of 1 is its most.
        rule: Rule::Ratio { ratio: offer.cache_ratio.min(1.0), policy: Policy::Never },
        place: Placement::Peers,
        bytes_per_second: disk_mb(demand, offer).map(|mb| mb * 1e6),
        ..Cache::default()
    };
    let mb = |mb: f64| Some(mb * 1e6);
    Question {
        steps: (SAMPLES_MAX / samples.max(1)).clamp(STEPS_LEAST, STEPS),
        workload: workload.clone(),
        step_seconds: batch as f64 / demand.samples_per_second,
        accelerators: u64::from(demand.accelerators),
        epochs: if is_cached { 2 } else { 1 },
        store: Store {
            name: offer.service.clone(),
            bytes_per_second: mb(offer.cold_supply_mb_per_s),
            ..Store::default()
        },
        cache: if is_cached { cache } else { Cache::default() },
        nodes: Nodes {
            accelerators: offer.accelerators_per_node as u64,
            bytes_per_second: offer.node_network_mb_per_s.and_then(mb),
            ..Nodes::default()
        },
        overhead: Overhead::default(),
    }
}

/// MB/s that the disks of one node give to readers.
fn disk_mb(demand: &Demand, offer: &Offer) -> Option<f64> {
    let disks = offer.limits.iter().find(|bound| bound.limit == "disks of the nodes")?;
    Some(disks.of_demand * demand.mb() * offer.cache_ratio / offer.nodes)
}

fn of_answer(answer: &Answer, offer: &Offer, accelerators: u32) -> Vec<Row> {
    let epochs = answer.runs.iter().flatten();
    let row = |epoch: &report::Epoch| {
        let cold = epoch.epoch == 1;
        Row {
            accelerators,
            offer: offer.id.clone(),
            rank: offer.rank,
            cold,
            au_percent: if cold { offer.au_cold_percent } else { offer.au_warm_percent },
            bound_percent: epoch.bound_percent.unwrap_or(epoch.ceiling_percent),
            simulated_au_percent: epoch.au_percent,
            steps: epoch.steps,
        }
    };
    epochs.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::plan::catalog::shipped::SHIPPED;

    #[test]
    fn what_is_simulated_of_the_first_epoch_is_what_was_planned() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let asked = Asked::of("unet3d", "v100", 180, "20TB", "aws.p3dn.24xlarge");
        let rows = rows(&catalog, &asked, &[180]).unwrap();
        assert!(rows.iter().any(|row| row.offer.starts_with("stoker/own-disks")) && rows.len() >= 3, "{rows:?}");
        for row in rows.iter().filter(|row| row.cold) {
            assert!((row.bound_percent - row.au_percent).abs() < 0.5, "{row:?}");
            assert!((row.simulated_au_percent - row.bound_percent).abs() < 5.0, "{row:?}");
        }
    }
}
