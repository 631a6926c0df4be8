//! What becomes of a demand with a candidate: time, accelerators kept busy, money.
//!
//! Layout: `flow` how fast each epoch is, `bill` what is paid. All figures are taken at one place of their ranges; who wants
//! the range asks at its ends. Invariant: the same arguments give the same outcome.

mod bill;
mod flow;

use crate::candidate::{Candidate, Size, Way};
use crate::catalog::quantity::{Charge, GIB, Of, Scope};
use crate::catalog::{Attach, Catalog, Class, Service};
use crate::demand::Demand;
use crate::evidence::{Efficiency, Evidence, efficiency};
use crate::money::Money;
use crate::nodes::{self, Nodes, trusted};
use crate::supply::{Cap, Reader};

/// What candidates are judged in.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    pub catalog: &'a Catalog,
    pub demand: &'a Demand,
    /// Which observations count.
    pub evidence: Evidence<'a>,
}

/// Where in their ranges figures are taken, and what is changed to see what it changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    /// Limits and efficiencies: 0 the worst, 0.5 the likely ones, 1 the best.
    pub supply: f64,
    pub price: f64,
    pub accelerator_price: f64,
    pub storage_price: f64,
}

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs { supply: 0.5, price: 0.5, accelerator_price: 1.0, storage_price: 1.0 }
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
    /// Of accelerators' time after the copy, the share in which they compute: overall, in the first epoch, in later ones.
    pub au: f64,
    pub au_cold: f64,
    pub au_warm: f64,
    pub hours: f64,
    pub staging_hours: f64,
    pub checkpoint_hours: f64,
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
    pub knobs: Knobs,
}

/// What comes of a candidate, or all reasons why that can't be told.
pub fn evaluate(scene: Scene, candidate: &Candidate, knobs: Knobs) -> Result<Outcome, Vec<String>> {
    let nodes =
        nodes::of_provider(scene.catalog, &candidate.service.provider, scene.demand).map_err(|reason| vec![reason])?;
    let case = Case { scene, candidate: *candidate, nodes, knobs };
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
    /// Everything that keeps it from being ranked.
    fn reasons(&self) -> Vec<String> {
        let (demand, candidate) = (self.scene.demand, &self.candidate);
        let mut reasons = self.nodes.reasons(demand);
        if let Some(need) = candidate.lacks(demand) {
            reasons.insert(0, format!("{} does not grant {need}", candidate.client.name));
        }
        // Nodes in several zones pay for what they send each other, and nothing for a service that all zones reach.
        let sends = matches!(candidate.way, Way::Own | Way::Rented { .. } | Way::Ondemand { .. });
        let also: &[Charge] = match demand.data {
            data if data.other_region => &[Charge::Egress],
            data if data.other_zone || demand.zones > 1 && sends => &[Charge::CrossZone],
            _ => &[],
        };
        let prices = |service| self.prices(service);
        match candidate.way {
            Way::Disks { origin, .. } => {
                reasons.extend(prices(candidate.service).reasons(&[]));
                reasons.extend(prices(origin).reasons(also));
            }
            _ => reasons.extend(prices(candidate.service).reasons(also)),
        }
        if let Way::Rented { node, .. } = candidate.way {
            if node.price(demand.region.as_deref()).is_none_or(|price| !price.figure.is_trusted(demand.unverified)) {
                reasons.push(format!("no verified price of {}", node.id));
            }
            let lacks = [Of::Network, Of::LocalGib, Of::LocalBandwidth]
                .into_iter()
                .find(|of| trusted(node.limit(*of), demand).is_none());
            reasons.extend(lacks.map(|of| format!("no verified figure of {} of {}", of.name(), node.id)));
        }
        if matches!(candidate.way, Way::Own | Way::Ondemand { .. }) {
            let lacks =
                [Of::LocalGib, Of::LocalBandwidth].into_iter().find(|of| self.nodes.has(*of, demand, 0.5).is_none());
            reasons.extend(lacks.map(|of| format!("no verified figure of {} of {}", of.name(), self.nodes.node.id)));
        }
        reasons
    }

    /// The share of listed limits that a client reaches on a service.
    fn share(&self, service: &str, client: &crate::catalog::Client) -> f64 {
        let Efficiency { share, .. } = efficiency(self.scene.catalog, service, client, self.scene.evidence);
        share.at(self.knobs.supply)
    }

    /// The objects, as they are read by a copy or by Stoker: nobody measured Stoker on this service, so what a parallel copy
    /// reached holds for both until somebody does.
    fn store_share(&self, service: &Service) -> f64 {
        let client = self.candidate.client;
        let own = client.observed.iter().any(|observed| crate::catalog::is_within(&service.id, &observed.service));
        let copies = || {
            self.scene
                .catalog
                .clients
                .iter()
                .find(|client| client.method == crate::catalog::Method::Copy && client.reads(service))
        };
        match (own, copies()) {
            (false, Some(copy)) => self.share(&service.id, copy),
            _ => self.share(&service.id, client),
        }
    }

    fn reader(&self, service: &'a Service, client: &'a crate::catalog::Client, units: f64, gib: f64) -> Reader<'_> {
        Reader {
            service,
            client,
            demand: self.scene.demand,
            nodes: &self.nodes,
            node_count: self.nodes.count,
            units,
            gib,
            bought: (0.0, 0.0),
            place: self.knobs.supply,
            share: 1.0,
        }
    }

    /// GiB of one unit of the service, as it is sold.
    fn gib(&self) -> Result<f64, String> {
        let service = self.candidate.service;
        let units = f64::from(self.candidate.units);
        let data = self.scene.demand.dataset_bytes / GIB / units;
        let wanted = match self.candidate.size {
            Size::Data => data,
            Size::Speed => data.max(self.gib_for_speed(units)),
            Size::Cap => data.max(self.gib_at_cap()),
        };
        if matches!(service.class, Class::Object) {
            return Ok(wanted);
        }
        let least = wanted.max(service.min_gib);
        let steps = ((least - service.min_gib) / service.step_gib - 1e-9).ceil().max(0.0);
        let stepped = service.min_gib + steps * service.step_gib;
        match service.max_gib {
            Some(most) if data > most => {
                Err(format!("{} holds at most {most:.0} GiB, and {data:.0} are needed", service.id))
            }
            Some(most) => Ok(stepped.min(most)),
            None => Ok(stepped),
        }
    }

    /// MB/s that each unit has to give so that no accelerator waits.
    fn wanted_of_unit(&self) -> f64 {
        let of_all = self.scene.demand.mb() / self.share(&self.candidate.service.id, self.candidate.client);
        let copies = match (self.candidate.way, self.candidate.service.attach) {
            (Way::Disks { .. }, Attach::One) => self.nodes.count,
            _ => 1.0,
        };
        of_all / f64::from(self.candidate.units) / copies
    }

    fn slopes(&self, of: Of) -> Option<&crate::catalog::Limit> {
        let service = self.candidate.service;
        let limit = service.limit(of, Scope::Service, &self.candidate.client.id);
        trusted(limit, self.scene.demand).filter(|limit| limit.slope > 0.0)
    }

    fn gib_for_speed(&self, units: f64) -> f64 {
        let wanted = self.wanted_of_unit();
        let reader = self.reader(self.candidate.service, self.candidate.client, units, 0.0);
        let of = |of: Of, wanted: f64| {
            let limit = self.slopes(of);
            limit.map_or(0.0, |limit| {
                (limit.cap.map_or(wanted, |cap| wanted.min(cap)) - limit.figure.value.at(self.knobs.supply))
                    / limit.slope
            })
        };
        of(Of::Bandwidth, wanted).max(of(Of::Requests, wanted / reader.request_mb())).max(0.0)
    }

    fn gib_at_cap(&self) -> f64 {
        let limit = self.slopes(Of::Bandwidth);
        let at_cap = limit.and_then(|limit| Some((limit.cap? - limit.figure.value.likely) / limit.slope));
        at_cap.or(self.candidate.service.max_gib).unwrap_or(0.0)
    }

    /// MB/s and operations a second that are bought of each unit.
    fn bought(&self, reader: &Reader) -> (f64, f64) {
        let of = |of: Of, wanted: f64| {
            let limit =
                trusted(self.candidate.service.limit(of, Scope::Service, &self.candidate.client.id), self.scene.demand);
            limit.filter(|limit| limit.is_bought).map_or(0.0, |limit| {
                let most = limit.figure.value.at(self.knobs.supply);
                match self.candidate.size {
                    Size::Data => limit.floor.min(most),
                    Size::Speed => wanted.clamp(limit.floor.min(most), most),
                    Size::Cap => most,
                }
            })
        };
        let wanted = self.wanted_of_unit();
        (of(Of::Bandwidth, wanted), of(Of::Requests, wanted / reader.request_mb()))
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
