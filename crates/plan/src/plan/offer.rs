//! One candidate in figures, and why it is where it is.

use serde::Serialize;

use crate::candidate::{Candidate, Way};
use crate::catalog::quantity::{GIB, Of, Scope};
use crate::date::Date;
use crate::evidence::efficiency;
use crate::figure::Range;
use crate::money::{Money, Prices};
use crate::nodes::trusted;
use crate::outcome::{Bound, Knobs, Outcome, Scene, evaluate, nodes_of};

#[derive(Clone, Debug, Serialize)]
pub struct Offer {
    pub id: String,
    /// Always true of an offer: what can't be ranked is in `unranked`.
    pub ranked: bool,
    pub rank: usize,
    /// Its range of costs overlaps with that of the first.
    pub is_tie: bool,
    pub service: String,
    pub client: String,
    pub method: &'static str,
    pub node: String,
    pub nodes: f64,
    pub accelerators_per_node: f64,
    pub units: u32,
    pub cache_nodes: u32,
    pub au_percent: f64,
    pub au_percent_low: f64,
    pub au_percent_high: f64,
    pub au_cold_percent: f64,
    pub hours: Range,
    pub staging_hours: f64,
    pub total_usd: Range,
    pub usd_per_epoch: f64,
    pub busy_usd: f64,
    pub idle_usd: f64,
    pub staging_usd: f64,
    pub capacity_usd: f64,
    pub requests_usd: f64,
    pub bytes_usd: f64,
    pub egress_usd: f64,
    /// All but the accelerators.
    pub storage_usd: f64,
    pub accelerators_usd_per_hour: f64,
    pub storage_usd_per_hour: f64,
    /// `(nodes x price + storage) / AU`: the smaller of two pays.
    pub rule_usd_per_hour: f64,
    pub supply_mb_per_s: f64,
    /// The same of the first epoch, and how long the service takes to begin an answer.
    pub cold_supply_mb_per_s: f64,
    pub first_byte_ms: Option<f64>,
    pub node_network_mb_per_s: Option<f64>,
    pub mb_per_s_per_usd_hour: f64,
    pub samples_per_usd: f64,
    pub binding_limit: String,
    pub next_limit: String,
    pub limits: Vec<Bound>,
    pub provisioned_gib: f64,
    pub cache_ratio: f64,
    pub requests: f64,
    pub read_tb: f64,
    pub efficiency: crate::evidence::Efficiency,
    pub extrapolated: bool,
    /// The share of draws from all ranges in which it is the cheapest.
    pub chance_of_best: f64,
    pub oldest_price: Option<Date>,
    pub undated_prices: bool,
}

/// A candidate that has no rank, and every reason.
#[derive(Clone, Debug, Serialize)]
pub struct Unranked {
    pub id: String,
    pub reasons: Vec<String>,
}

/// Everything at its worst and at its best.
const WORST: Knobs = Knobs { supply: 0.0, price: 1.0, accelerator_price: 1.0, storage_price: 1.0 };
const BEST: Knobs = Knobs { supply: 1.0, price: 0.0, accelerator_price: 1.0, storage_price: 1.0 };

pub(super) fn judge(scene: Scene, candidate: &Candidate) -> Result<Offer, Vec<String>> {
    let likely = evaluate(scene, candidate, Knobs::default())?;
    let (worst, best) = (evaluate(scene, candidate, WORST)?, evaluate(scene, candidate, BEST)?);
    let range = |of: fn(&Outcome) -> f64| Range::of(of(&best), of(&likely), of(&worst));
    let demand = scene.demand;
    let Money { busy, idle, staging, capacity, requests, bytes, egress } = likely.money;
    let (total, storage) = (likely.money.total(), likely.money.storage());
    let storage_hour = storage / likely.hours;
    let name =
        |place: usize| likely.bounds.get(place).map_or_else(|| "none".to_owned(), |bound| bound.limit.to_owned());
    let is_fed = likely.bounds.first().is_none_or(|bound| bound.of_demand >= 1.0);
    let (binding, next) = if is_fed { ("accelerators".to_owned(), name(0)) } else { (name(0), name(1)) };
    let nodes = nodes_of(scene, candidate);
    let delivered = demand.mb() * likely.au_warm;
    let (service, client) = read_through(candidate);
    Ok(Offer {
        id: candidate.id(),
        ranked: true,
        rank: 0,
        is_tie: false,
        service: candidate.service.id.clone(),
        client: candidate.client.id.clone(),
        method: method(candidate),
        node: nodes.as_ref().map_or(String::new(), |nodes| nodes.node.id.clone()),
        nodes: nodes.as_ref().map_or(0.0, |nodes| nodes.count),
        accelerators_per_node: nodes.as_ref().map_or(0.0, |nodes| f64::from(nodes.node.accelerators)),
        units: candidate.units,
        cache_nodes: if let Way::Rented { count, .. } = candidate.way { count } else { 0 },
        au_percent: likely.au * 100.0,
        au_percent_low: worst.au.min(likely.au) * 100.0,
        au_percent_high: best.au.max(likely.au) * 100.0,
        au_cold_percent: likely.au_cold * 100.0,
        hours: range(|outcome| outcome.hours),
        staging_hours: likely.staging_hours,
        total_usd: range(|outcome| outcome.money.total()),
        usd_per_epoch: total / demand.epochs,
        busy_usd: busy,
        idle_usd: idle,
        staging_usd: staging,
        capacity_usd: capacity,
        requests_usd: requests,
        bytes_usd: bytes,
        egress_usd: egress,
        storage_usd: storage,
        accelerators_usd_per_hour: likely.nodes_usd_hour,
        storage_usd_per_hour: storage_hour,
        rule_usd_per_hour: (likely.nodes_usd_hour + storage_hour) / likely.au,
        supply_mb_per_s: likely.supply_mb,
        cold_supply_mb_per_s: likely.cold_mb,
        first_byte_ms: first_byte(scene, candidate),
        node_network_mb_per_s: nodes.as_ref().and_then(|nodes| nodes.has(Of::Network, demand, 0.5)),
        mb_per_s_per_usd_hour: if storage_hour > 0.0 { delivered / storage_hour } else { 0.0 },
        samples_per_usd: if total > 0.0 { demand.samples() * demand.epochs / total } else { 0.0 },
        binding_limit: binding,
        next_limit: next,
        extrapolated: likely.bounds.iter().any(|bound| bound.extrapolated),
        limits: likely.bounds.clone(),
        provisioned_gib: likely.gib,
        cache_ratio: likely.hit,
        requests: likely.requests,
        read_tb: likely.store_bytes / 1e12,
        efficiency: efficiency(scene.catalog, &service, client, scene.evidence),
        chance_of_best: 0.0,
        oldest_price: oldest(scene, candidate),
        undated_prices: prices(scene, candidate).iter().any(Prices::has_undated),
    })
}

fn first_byte(scene: Scene, candidate: &Candidate) -> Option<f64> {
    let limit = candidate.service.limit(Of::FirstByte, Scope::Connection, &candidate.client.id);
    trusted(limit, scene.demand).map(|limit| limit.figure.value.likely)
}

/// The service and client whose efficiency decides later epochs.
fn read_through<'a>(candidate: &Candidate<'a>) -> (String, &'a crate::catalog::Client) {
    match candidate.way {
        Way::Own | Way::Rented { .. } => ("stoker.local".to_owned(), candidate.client),
        Way::Ondemand { .. } => ("ondemand.local".to_owned(), candidate.client),
        Way::Straight | Way::Disks { .. } => (candidate.service.id.clone(), candidate.client),
    }
}

fn method(candidate: &Candidate) -> &'static str {
    match candidate.way {
        Way::Straight => "straight",
        Way::Disks { .. } => "attached-disks",
        Way::Own => "stoker-own-disks",
        Way::Rented { .. } => "stoker-cache-nodes",
        Way::Ondemand { .. } => "on-demand-file-system",
    }
}

fn prices<'a>(scene: Scene<'a>, candidate: &Candidate<'a>) -> Vec<Prices<'a>> {
    let of = |service| Prices { service, demand: scene.demand, place: 0.5, factor: 1.0 };
    match candidate.way {
        Way::Disks { origin, .. } => vec![of(candidate.service), of(origin)],
        _ => vec![of(candidate.service)],
    }
}

/// The oldest price that it rests on, those of nodes included where no contract replaces them.
fn oldest(scene: Scene, candidate: &Candidate) -> Option<Date> {
    let services = prices(scene, candidate).iter().filter_map(Prices::oldest).min();
    let nodes = match scene.demand.accelerator_usd_hour {
        Some(_) => None,
        None => nodes_of(scene, candidate).and_then(|nodes| nodes.price?.figure.origin.date),
    };
    let caches = match candidate.way {
        Way::Rented { node, .. } => {
            node.price(scene.demand.region.as_deref()).and_then(|price| price.figure.origin.date)
        }
        _ => None,
    };
    [services, nodes, caches].into_iter().flatten().min()
}

impl Offer {
    /// TB that it provisions.
    pub fn provisioned_tb(&self) -> f64 {
        self.provisioned_gib * f64::from(self.units) * GIB / 1e12
    }
}
