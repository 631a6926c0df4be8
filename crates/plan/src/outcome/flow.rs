//! How fast each epoch is, by every limit on the way.
//!
//! Stoker's own bounds: never evicting, a cache with room for a share r hits r; of that, min(1, r/N) lies on the node that
//! reads, N times r/N over all. Missed bytes pass through the node that owns them. Invariant: paths that overlap bind by
//! the slower one; they never add up.

use super::Case;
use crate::candidate::Way;
use crate::catalog::quantity::{GIB, Of, Scope};
use crate::catalog::{Attach, Client, Service};
use crate::nodes::trusted;
use crate::supply::{Cap, through};

/// Limits of the first epoch and of the later ones, and what comes before.
pub(crate) struct Flow {
    pub cold: Vec<Cap>,
    pub warm: Vec<Cap>,
    pub staging_hours: f64,
    /// Hours to bring back what a lost node held.
    pub refill_hours: f64,
    /// The share of the data that a cache holds.
    pub hit: f64,
    pub gib: f64,
    pub bought: (f64, f64),
    pub request_mb: f64,
}

impl Case<'_> {
    pub(crate) fn flow(&self) -> Result<Flow, String> {
        let mut flow = match self.candidate.way {
            Way::Straight => self.straight(),
            Way::Disks { origin, copy } => self.disks(origin, copy),
            Way::Own => self.own(),
            Way::Rented { node, count } => self.rented(node, f64::from(count)),
            Way::Ondemand { copy } => self.ondemand(copy),
        }?;
        let demand = self.scene.demand;
        if demand.cpu_seconds > 0.0 && self.nodes.node.cores > 0.0 {
            let samples = self.nodes.count * self.nodes.node.cores / demand.cpu_seconds;
            let cap = Cap::new("CPU", samples * demand.sample_bytes / 1e6);
            flow.cold.push(cap.clone());
            flow.warm.push(cap);
        }
        if flow.warm.is_empty() || flow.cold.is_empty() {
            return Err(format!("nothing is known of the speed of {}", self.candidate.service.id));
        }
        Ok(flow)
    }

    /// The way from elsewhere, where the data are.
    fn transit(&self) -> Option<Cap> {
        self.scene.demand.data.transit_mb.map(|mb| Cap::new("the way to the data", mb))
    }

    fn straight(&self) -> Result<Flow, String> {
        let (service, client) = (self.candidate.service, self.candidate.client);
        let gib = self.gib()?;
        let mut reader = self.reader(service, client, f64::from(self.candidate.units), gib);
        reader.bought = self.bought(&reader);
        reader.share = self.share(&service.id, client);
        let mut caps = reader.caps();
        if !has_speed(&caps, service) {
            return Err(format!("nothing is known of the speed of {}", service.id));
        }
        caps.extend(self.transit());
        Ok(Flow {
            cold: caps.clone(),
            warm: caps,
            staging_hours: 0.0,
            refill_hours: 0.0,
            hit: 0.0,
            gib,
            bought: reader.bought,
            request_mb: reader.request_mb(),
        })
    }

    /// Limits from the objects to the nodes, as a copy or Stoker reads them.
    fn store_caps(&self, service: &'_ Service, client: &'_ Client, units: f64, share: f64) -> Vec<Cap> {
        let reader = crate::supply::Reader {
            service,
            client,
            demand: self.scene.demand,
            nodes: &self.nodes,
            node_count: self.nodes.count,
            units,
            gib: self.scene.demand.dataset_bytes / GIB,
            bought: (0.0, 0.0),
            place: self.knobs.supply,
            share,
        };
        let mut caps = reader.caps();
        caps.extend(self.transit());
        caps
    }

    fn staging_hours(&self, bytes: f64, caps: &[Cap]) -> f64 {
        let mb = caps.iter().fold(f64::INFINITY, |least, cap| least.min(cap.mb));
        // A trickle instead of nothing, so that hours stay a number.
        bytes / 1e6 / mb.max(self.scene.demand.mb() * 1e-9) / 3600.0
    }

    fn disks(&self, origin: &Service, copy: &Client) -> Result<Flow, String> {
        let (service, client) = (self.candidate.service, self.candidate.client);
        let gib = self.gib()?;
        let units = f64::from(self.candidate.units);
        let copies = if service.attach == Attach::One { self.nodes.count } else { 1.0 };
        let mut reader = self.reader(service, client, units * copies, gib);
        reader.bought = self.bought(&reader);
        reader.share = self.share(&service.id, client);
        let (caps, bought, request_mb) = (reader.caps(), reader.bought, reader.request_mb());
        if !caps.iter().any(|cap| cap.name == crate::supply::BANDWIDTH) {
            return Err(format!("nothing is known of the speed of {}", service.id));
        }
        let share = self.share(&origin.id, copy);
        let mut way = self.store_caps(origin, copy, 1.0, share);
        // Written at the speed at which it is read: what volumes write is rarely listed.
        way.extend(caps.iter().cloned());
        let staging_hours = self.staging_hours(self.scene.demand.dataset_bytes * copies, &way);
        Ok(Flow { cold: caps.clone(), warm: caps, staging_hours, refill_hours: 0.0, hit: 1.0, gib, bought, request_mb })
    }

    fn own(&self) -> Result<Flow, String> {
        let (demand, place, count) = (self.scene.demand, self.knobs.supply, self.nodes.count);
        let has =
            |of| self.nodes.has(of, demand, place).ok_or_else(|| format!("{} of {}", of.name(), self.nodes.node.id));
        let (room, disk, network) =
            (has(Of::LocalGib)? * count, has(Of::LocalBandwidth)? * count, has(Of::Network)? * count);
        let data = demand.dataset_bytes / GIB;
        let ratio = room / data;
        let (hit, local) = (ratio.min(1.0), (ratio / count).min(1.0));
        let peers = (hit - local).max(0.0);
        let service = self.candidate.service;
        let store =
            self.store_caps(service, self.candidate.client, f64::from(self.candidate.units), self.store_share(service));
        let disk_share = self.share("stoker.local", self.candidate.client);
        let others = (count - 1.0) / count;
        // What is missed comes in at its owner, and again at the node that reads it.
        let network = |miss: f64, peers: f64| Cap::new("node network", network / (miss * (1.0 + others) + peers));
        let mut warm = through(store.clone(), 1.0 - hit);
        warm.push(Cap::new("disks of the nodes", disk * disk_share / hit));
        if peers > 0.0 || hit < 1.0 {
            warm.push(network(1.0 - hit, peers));
        }
        let mut cold = store;
        cold.push(network(1.0, 0.0));
        let refill_hours = self.staging_hours(demand.dataset_bytes * hit / count, &cold);
        Ok(Flow {
            cold,
            warm,
            staging_hours: 0.0,
            refill_hours,
            hit,
            gib: data,
            bought: (0.0, 0.0),
            request_mb: self.request_mb(),
        })
    }

    fn rented(&self, node: &crate::catalog::Node, count: f64) -> Result<Flow, String> {
        let (demand, place) = (self.scene.demand, self.knobs.supply);
        let has = |of: Of| {
            let limit = trusted(node.limit(of), demand).map(|limit| limit.figure.value.at(place));
            limit.ok_or_else(|| format!("no figure of {} of {}", of.name(), node.id))
        };
        let data = demand.dataset_bytes / GIB;
        let hit = (has(Of::LocalGib)? * count / data).min(1.0);
        let service = self.candidate.service;
        // The cache nodes read the store; those that train read the cache nodes.
        let mut store =
            self.store_caps(service, self.candidate.client, f64::from(self.candidate.units), self.store_share(service));
        store.retain(|cap| cap.name != "node network");
        let disk_share = self.share("stoker.local", self.candidate.client);
        let network = self.nodes.has(Of::Network, demand, place).unwrap_or(0.0);
        let trains = Cap::new("node network", network * self.nodes.count);
        let caches = Cap::new("network of the cache nodes", has(Of::Network)? * count);
        let mut warm = through(store.clone(), 1.0 - hit);
        warm.extend([
            trains.clone(),
            caches.clone(),
            Cap::new("disks of the cache nodes", has(Of::LocalBandwidth)? * count * disk_share / hit),
        ]);
        let mut cold = store;
        cold.extend([trains, caches]);
        let refill_hours = self.staging_hours(demand.dataset_bytes * hit / count, &cold);
        Ok(Flow {
            cold,
            warm,
            staging_hours: 0.0,
            refill_hours,
            hit,
            gib: data,
            bought: (0.0, 0.0),
            request_mb: self.request_mb(),
        })
    }

    fn ondemand(&self, copy: &Client) -> Result<Flow, String> {
        let (demand, place, count) = (self.scene.demand, self.knobs.supply, self.nodes.count);
        let has = |of| self.nodes.has(of, demand, place);
        let (room, disk) = (has(Of::LocalGib).unwrap_or(0.0) * count, has(Of::LocalBandwidth).unwrap_or(0.0) * count);
        let data = demand.dataset_bytes / GIB;
        if data > room {
            return Err(format!(
                "the disks of {count} {} hold {room:.0} GiB, and the data have {data:.0}",
                self.nodes.node.id
            ));
        }
        let (service, client) = (self.candidate.service, self.candidate.client);
        let share = self.share("ondemand.local", client);
        let mut warm = vec![Cap::new("disks of the nodes", disk * share)];
        let network = has(Of::Fabric).or(has(Of::Network)).filter(|_| count > 1.0);
        warm.extend(
            network.map(|each| Cap::new("network between nodes", each * count * share * count / (count - 1.0))),
        );
        let opens = client.limits.iter().filter(|limit| limit.scope == Scope::Service && limit.of == Of::Metadata);
        // The only place where it was seen.
        let case_of_opens = "nag-beeond-elbencho";
        let known = opens
            .filter(|_| self.scene.evidence.counts(case_of_opens))
            .filter(|limit| limit.figure.is_trusted(demand.unverified));
        warm.extend(known.map(|limit| {
            Cap::new("metadata", limit.figure.value.at(place) * demand.dataset_bytes / demand.files / 1e6)
        }));
        let way = self.store_caps(service, copy, f64::from(self.candidate.units), self.share(&service.id, copy));
        let staging_hours = self.staging_hours(demand.dataset_bytes, &way);
        Ok(Flow {
            cold: warm.clone(),
            warm,
            staging_hours,
            refill_hours: staging_hours,
            hit: 1.0,
            gib: data,
            bought: (0.0, 0.0),
            request_mb: demand.read_bytes / 1e6,
        })
    }

    fn request_mb(&self) -> f64 {
        self.reader(self.candidate.service, self.candidate.client, 1.0, 0.0).request_mb()
    }
}

/// Whether something is known of the service itself, and not of nodes alone.
fn has_speed(caps: &[Cap], service: &Service) -> bool {
    !caps.is_empty() && !service.limits.is_empty() && caps.iter().any(|cap| cap.name != "node network")
}
