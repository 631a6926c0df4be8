//! What becomes of a demand with a candidate: time, accelerators kept busy, money.
//!
//! Layout: `size` how large a service is bought, `flow` how fast each epoch is, `bill` what is paid. All figures are taken at one place of their ranges; who wants
//! the range asks at its ends. Invariant: the same arguments give the same outcome.

mod bill;
mod flow;
mod size;

use crate::candidate::{Candidate, Way};
use crate::catalog::quantity::Of;
use crate::catalog::{Attach, Catalog, Client, Method, Observed, Service, is_within};
use crate::demand::Demand;
use crate::evidence::{Efficiency, Evidence, counts, efficiency};
use crate::luck::Luck;
use crate::money::Money;
use crate::nodes::{self, Nodes};
use crate::supply::{Cap, Reader, doubtful};

/// What candidates are judged in.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    pub catalog: &'a Catalog,
    pub demand: &'a Demand,
    /// Which observations count.
    pub evidence: Evidence<'a>,
}

/// How figures turn out, and what is changed to see what it changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    /// Limits and efficiencies: at 0 the worst, at 1 the best.
    pub supply: Luck,
    pub price: Luck,
    pub accelerator_price: f64,
    pub storage_price: f64,
}

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs { supply: Luck::LIKELY, price: Luck::LIKELY, accelerator_price: 1.0, storage_price: 1.0 }
    }
}

/// A limit and how much of the demand it carries.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Bound {
    pub limit: &'static str,
    /// 1 carries the demand; what is above it is slack.
    pub of_demand: f64,
    pub extrapolated: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Of accelerators' time, the share in which they compute: over the whole run, the copy included; after the copy; in the
    /// first epoch; in later ones.
    pub au_run: f64,
    pub au: f64,
    pub au_cold: f64,
    pub au_warm: f64,
    pub hours: f64,
    pub staging_hours: f64,
    pub checkpoint_hours: f64,
    /// Hours that the run takes longer as request rates grow by and by.
    pub ramp_hours: f64,
    /// Hours that a copy of the data to this region takes, before anything is rented.
    pub ready_hours: f64,
    pub money: Money,
    /// Limits of the later epochs, the tightest first.
    pub bounds: Vec<Bound>,
    /// MB/s that the tightest of them carries.
    pub supply_mb: f64,
    /// The same of the first epoch.
    pub cold_mb: f64,
    /// USD an hour for what is held, and what an hour of all nodes costs.
    pub held_usd_hour: f64,
    pub nodes_usd_hour: f64,
    pub gib: f64,
    /// The share of the data that a cache holds.
    pub hit: f64,
    pub requests: f64,
    pub store_bytes: f64,
}

/// One candidate with everything that is known of it.
pub(crate) struct Case<'a> {
    pub scene: Scene<'a>,
    pub candidate: Candidate<'a>,
    pub nodes: Nodes<'a>,
    /// Nodes that are rented to keep data, where there are some.
    pub keepers: Option<Nodes<'a>>,
    pub knobs: Knobs,
}

/// What comes of a candidate, or all reasons why that can't be told.
pub fn evaluate(scene: Scene, candidate: &Candidate, knobs: Knobs) -> Result<Outcome, Vec<String>> {
    let case = Case::of(scene, candidate, knobs)?;
    let reasons = case.reasons();
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let flow = case.flow().map_err(|reason| vec![reason])?;
    Ok(case.outcome(&flow))
}

/// The node and hour prices of a scene's provider, for who shows them.
pub fn nodes_of<'a>(scene: Scene<'a>, candidate: &Candidate) -> Option<Nodes<'a>> {
    nodes::of_provider(scene.catalog, &candidate.service.provider, scene.demand).ok()
}

impl<'a> Case<'a> {
    pub(crate) fn of(scene: Scene<'a>, candidate: &Candidate<'a>, knobs: Knobs) -> Result<Case<'a>, Vec<String>> {
        let nodes = nodes::of_provider(scene.catalog, &candidate.service.provider, scene.demand)
            .map_err(|reason| vec![reason])?;
        let keepers = match candidate.way {
            Way::Rented { node, count } => Some(nodes::of_count(node, f64::from(count), scene.demand, nodes.home)),
            _ => None,
        };
        Ok(Case { scene, candidate: *candidate, nodes, keepers, knobs })
    }

    /// Everything that keeps it from being ranked.
    fn reasons(&self) -> Vec<String> {
        let (demand, candidate) = (self.scene.demand, &self.candidate);
        let mut reasons = self.nodes.reasons(demand);
        if let Some(need) = candidate.lacks(demand) {
            reasons.insert(0, format!("{} does not grant {need}", candidate.client.name));
        }
        reasons.extend(self.price_reasons());
        if self.away().is_some() && demand.data.transit_mb.is_none() {
            let region = demand.data.region().unwrap_or_default();
            reasons.push(format!("it is not known what the way from {region} carries"));
        }
        if let Some(keepers) = &self.keepers {
            let (id, home) = (&keepers.node.id, keepers.home);
            reasons.extend(keepers.price.is_none().then(|| format!("no verified price of {id} in {home}")));
            reasons.extend(keepers.lacks(&[Of::Network, Of::LocalGib, Of::LocalBandwidth], demand));
        }
        if matches!(candidate.way, Way::Own | Way::Ondemand { .. }) {
            reasons.extend(self.nodes.lacks(&[Of::LocalGib, Of::LocalBandwidth], demand));
        }
        let service = candidate.service;
        if service.attach == Attach::ManyReaders && service.is_zonal && demand.across(self.nodes.count) > 0.0 {
            reasons.push(format!("{} is attached within one zone, and the nodes are in {}", service.id, demand.zones));
        }
        reasons.extend(self.readers().iter().flat_map(Reader::unknown));
        if matches!(candidate.way, Way::Ondemand { .. }) {
            reasons.extend(doubtful(candidate.client, demand));
        }
        reasons
    }

    /// The region of the data, where it is not that of the nodes.
    pub(crate) fn away(&self) -> Option<&'a str> {
        self.scene.demand.away(self.nodes.home)
    }

    /// What the way to the data adds to an answer.
    pub(crate) fn way_ms(&self) -> f64 {
        self.scene.demand.delay_ms(self.store(), self.nodes.home)
    }

    /// Who reads which service on the way.
    fn readers(&self) -> Vec<Reader<'_>> {
        let of = |service, client| self.reader(service, client, 1.0, 0.0);
        let (service, client) = (self.candidate.service, self.candidate.client);
        match self.candidate.way {
            Way::Straight | Way::Own | Way::Rented { .. } => vec![of(service, client)],
            Way::Disks { origin, copy } => vec![of(service, client), of(origin, copy)],
            Way::Ondemand { copy } => vec![of(service, copy)],
        }
    }

    /// Where the data lie.
    fn store(&self) -> &'a Service {
        match self.candidate.way {
            Way::Disks { origin, .. } => origin,
            _ => self.candidate.service,
        }
    }

    fn share_at(&self, luck: Luck, service: &str, client: &Client) -> f64 {
        let Scene { catalog, demand, evidence } = self.scene;
        let Efficiency { share, .. } = efficiency(catalog, service, client, evidence, demand.unverified);
        share.at(luck.place(&["share", service, &client.id]))
    }

    /// The share of listed limits that a client reaches on a service.
    fn share(&self, service: &str, client: &Client) -> f64 {
        self.share_at(self.knobs.supply, service, client)
    }

    /// The objects, as they are read by a copy or by Stoker: nobody measured Stoker on this service, so what a parallel copy
    /// reached holds for both until somebody does.
    fn store_share(&self, service: &Service) -> f64 {
        let client = self.candidate.client;
        let is_own = |observed: &Observed| {
            is_within(&service.id, &observed.service)
                && counts(observed, self.scene.evidence, self.scene.demand.unverified)
        };
        let own = client.observed.iter().any(is_own);
        let mut clients = self.scene.catalog.clients.iter();
        let copy = clients.find(|client| client.method == Method::Copy && client.reads(service));
        match (own, copy) {
            (false, Some(copy)) => self.share(&service.id, copy),
            _ => self.share(&service.id, client),
        }
    }

    fn reader<'r>(&'r self, service: &'r Service, client: &'r Client, units: f64, gib: f64) -> Reader<'r> {
        Reader {
            service,
            client,
            demand: self.scene.demand,
            nodes: self.keepers.as_ref().unwrap_or(&self.nodes),
            units,
            gib,
            bought: (0.0, 0.0),
            luck: self.knobs.supply,
            share: 1.0,
        }
    }
}

/// Limits as shares of a demand, the tightest first.
fn bounds(caps: &[Cap], demand_mb: f64) -> Vec<Bound> {
    let mut bounds: Vec<Bound> = caps
        .iter()
        .map(|cap| Bound { limit: cap.name, of_demand: cap.mb / demand_mb, extrapolated: cap.extrapolated })
        .filter(|bound| bound.of_demand.is_finite())
        .collect();
    bounds.sort_by(|left, right| left.of_demand.total_cmp(&right.of_demand));
    bounds
}
