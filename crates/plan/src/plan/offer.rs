//! One candidate in figures, and why it is where it is.

use serde::Serialize;

use crate::candidate::{Candidate, Way};
use crate::catalog::quantity::{GIB, Of, Scope};
use crate::date::Date;
use crate::evidence::{Efficiency, efficiency};
use crate::figure::Range;
use crate::luck::Luck;
use crate::nodes::trusted;
use crate::outcome::{Bound, Case, Knobs, Outcome, Scene, evaluate};

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
    /// Where the nodes are, and the service; and where the data are read from, if that is elsewhere.
    pub region: String,
    pub data_region: Option<String>,
    pub accelerators_per_node: f64,
    pub units: u32,
    pub cache_nodes: u32,
    pub au_percent: f64,
    pub au_percent_low: f64,
    pub au_percent_high: f64,
    pub au_cold_percent: f64,
    pub au_warm_percent: f64,
    /// Of the whole run, the copy before it included.
    pub au_run_percent: f64,
    pub hours: Range,
    pub staging_hours: f64,
    /// By how much the run takes longer as request rates grow by and by.
    pub ramp_hours: f64,
    /// It reads a copy of the data in the region of the nodes; what that takes, before anything is rented.
    pub is_replica: bool,
    pub ready_hours: f64,
    /// After how many minutes such a copy has what changed; None where it is no copy, or nobody tells.
    pub replica_lag_minutes: Option<f64>,
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
    /// `(nodes x price + storage) / AU`, of the whole run: the smaller of two pays.
    pub rule_usd_per_hour: f64,
    pub supply_mb_per_s: f64,
    /// The same of the first epoch, and how long the service takes to begin an answer.
    pub cold_supply_mb_per_s: f64,
    pub first_byte_ms: Option<f64>,
    /// What the way to the data adds to each answer.
    pub way_ms: f64,
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
    pub efficiency: Efficiency,
    pub extrapolated: bool,
    /// The share of draws from all ranges in which it is the cheapest.
    pub chance_of_best: f64,
    pub oldest_price: Option<Date>,
    pub undated_prices: bool,
    /// What keeps it from being used as it is.
    pub warnings: Vec<String>,
}

/// A candidate that has no rank, and every reason.
#[derive(Clone, Debug, Serialize)]
pub struct Unranked {
    pub id: String,
    pub reasons: Vec<String>,
}

/// Everything at its worst and at its best.
const WORST: Knobs = Knobs { supply: Luck::At(0.0), price: Luck::At(1.0), accelerator_price: 1.0, storage_price: 1.0 };
const BEST: Knobs = Knobs { supply: Luck::At(1.0), price: Luck::At(0.0), accelerator_price: 1.0, storage_price: 1.0 };

/// A candidate in a scene, by the name that it has there.
pub(super) fn judge(scene: Scene, candidate: &Candidate, id: String) -> Result<Offer, Vec<String>> {
    let likely = evaluate(scene, candidate, Knobs::default())?;
    let (worst, best) = (evaluate(scene, candidate, WORST)?, evaluate(scene, candidate, BEST)?);
    let case = Case::of(scene, candidate, Knobs::default())?;
    let range = |of: fn(&Outcome) -> f64| Range::of(of(&best), of(&likely), of(&worst));
    let (demand, nodes, figures) = (scene.demand, &case.nodes, case.figures());
    let (total, storage_hour) = (likely.money.total(), likely.money.storage() / likely.hours);
    let (binding_limit, next_limit) = limits(&likely);
    Ok(Offer {
        id,
        ranked: true,
        rank: 0,
        is_tie: false,
        service: candidate.service.id.clone(),
        client: candidate.client.id.clone(),
        method: method(candidate),
        node: nodes.node.id.clone(),
        nodes: nodes.count,
        region: nodes.home.to_owned(),
        data_region: case.away().filter(|_| !demand.data.replica).map(str::to_owned),
        accelerators_per_node: f64::from(nodes.node.accelerators),
        units: candidate.units,
        cache_nodes: if let Way::Rented { count, .. } = candidate.way { count } else { 0 },
        au_percent: likely.au * 100.0,
        au_percent_low: worst.au.min(likely.au) * 100.0,
        au_percent_high: best.au.max(likely.au) * 100.0,
        au_cold_percent: likely.au_cold * 100.0,
        au_warm_percent: likely.au_warm * 100.0,
        au_run_percent: likely.au_run * 100.0,
        hours: range(|outcome| outcome.hours),
        staging_hours: likely.staging_hours,
        ramp_hours: likely.ramp_hours,
        is_replica: demand.data.replica,
        ready_hours: likely.ready_hours,
        replica_lag_minutes: lag(scene, candidate),
        total_usd: range(|outcome| outcome.money.total()),
        usd_per_epoch: total / demand.epochs,
        busy_usd: likely.money.busy,
        idle_usd: likely.money.idle,
        staging_usd: likely.money.staging,
        capacity_usd: likely.money.capacity,
        requests_usd: likely.money.requests,
        bytes_usd: likely.money.bytes,
        egress_usd: likely.money.egress,
        storage_usd: likely.money.storage(),
        accelerators_usd_per_hour: likely.nodes_usd_hour,
        storage_usd_per_hour: storage_hour,
        rule_usd_per_hour: (likely.nodes_usd_hour + storage_hour) / likely.au_run,
        supply_mb_per_s: likely.supply_mb,
        cold_supply_mb_per_s: likely.cold_mb,
        first_byte_ms: first_byte(scene, candidate),
        way_ms: case.way_ms(),
        node_network_mb_per_s: nodes.has(Of::Network, demand, Luck::LIKELY),
        mb_per_s_per_usd_hour: if storage_hour > 0.0 { demand.mb() * likely.au_warm / storage_hour } else { 0.0 },
        samples_per_usd: if total > 0.0 { demand.samples() * demand.epochs / total } else { 0.0 },
        binding_limit,
        next_limit,
        extrapolated: likely.bounds.iter().any(|bound| bound.extrapolated),
        limits: likely.bounds.clone(),
        provisioned_gib: likely.gib,
        cache_ratio: likely.hit,
        requests: likely.requests,
        read_tb: likely.store_bytes / 1e12,
        efficiency: reached(scene, candidate),
        chance_of_best: 0.0,
        oldest_price: figures.iter().filter_map(|figure| figure.origin.date).min(),
        undated_prices: figures.iter().any(|figure| figure.origin.date.is_none()),
        warnings: warnings(&case),
    })
}

/// What keeps an offer from being used as it is, and what it was planned with that nobody lists.
fn warnings(case: &Case) -> Vec<String> {
    let flow = case.flow().ok();
    let planned = [flow.as_ref().and_then(|flow| case.unlisted_writes(flow)), case.unlisted_checkpoints()];
    let ready = case.ready_hours();
    let ready = (ready > 0.0)
        .then(|| format!("its copy takes {ready:.1} hours before anything is rented, in which both are held and paid"));
    let used = [unopened(&case.candidate), ready, lags(case.scene, &case.candidate)];
    used.into_iter().chain(planned).flatten().collect()
}

/// What binds, and what would bind next.
fn limits(likely: &Outcome) -> (String, String) {
    let name =
        |place: usize| likely.bounds.get(place).map_or_else(|| "none".to_owned(), |bound| bound.limit.to_owned());
    let is_fed = likely.bounds.first().is_none_or(|bound| bound.of_demand >= 1.0);
    if is_fed { ("accelerators".to_owned(), name(0)) } else { (name(0), name(1)) }
}

/// What later epochs reach of listed limits.
fn reached(scene: Scene, candidate: &Candidate) -> Efficiency {
    let (service, client) = read_through(candidate);
    let is_measured =
        matches!(candidate.way, Way::Straight | Way::Disks { .. }) && candidate.service.supply(&client.id).is_some();
    match is_measured {
        true => Efficiency { share: Range::exact(1.0), why: "measured: listed limits hold as they are".into() },
        false => efficiency(scene.catalog, &service, client, scene.evidence, scene.demand.unverified),
    }
}

fn first_byte(scene: Scene, candidate: &Candidate) -> Option<f64> {
    let limit = candidate.service.limit(Of::FirstByte, Scope::Connection, &candidate.client.id);
    trusted(limit, scene.demand).map(|limit| limit.figure.value.likely)
}

/// How long a copy in another region lags behind what changes.
fn lag(scene: Scene, candidate: &Candidate) -> Option<f64> {
    let store = if let Way::Disks { origin, .. } = candidate.way { origin } else { candidate.service };
    let limit = store.limit(Of::ReplicaLag, Scope::Service, &candidate.client.id);
    trusted(limit, scene.demand).filter(|_| scene.demand.data.replica).map(|limit| limit.figure.value.likely)
}

fn lags(scene: Scene, candidate: &Candidate) -> Option<String> {
    scene.demand.data.replica.then(|| match lag(scene, candidate) {
        Some(minutes) => {
            format!("what changes is in the copy after up to {minutes} minutes, where its provider is asked for that")
        }
        None => "it is not known how long the copy lags behind what changes".into(),
    })
}

/// The service and client whose efficiency decides later epochs.
fn read_through<'a>(candidate: &Candidate<'a>) -> (String, &'a crate::catalog::Client) {
    match candidate.way {
        Way::Own | Way::Rented { .. } => ("stoker.local".to_owned(), candidate.client),
        Way::Ondemand { .. } => ("ondemand.local".to_owned(), candidate.client),
        Way::Straight | Way::Disks { .. } => (candidate.service.id.clone(), candidate.client),
    }
}

/// Stoker was measured on S3. What it would have to mount else says so.
fn unopened(candidate: &Candidate) -> Option<String> {
    let is_mounted = matches!(candidate.way, Way::Own | Way::Rented { .. });
    let scheme = match candidate.service.provider.as_str() {
        "azure" => "az",
        "gcp" => "gs",
        _ => return None,
    };
    is_mounted.then(|| format!("needs a mount of {scheme}://, which was not measured yet"))
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

impl Offer {
    /// TB that it provisions.
    pub fn provisioned_tb(&self) -> f64 {
        self.provisioned_gib * f64::from(self.units) * GIB / 1e12
    }
}
