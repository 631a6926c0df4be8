//! How fast each epoch is, by every limit on the way.
//!
//! Stoker's own bounds: never evicting, a cache with room for a share r hits r; of that, min(1, r/N) lies on the node that
//! reads, N times r/N over all. Missed bytes pass through the node that owns them. Invariant: paths that overlap bind by
//! the slower one; they never add up.

use super::Case;
use crate::candidate::Way;
use crate::catalog::quantity::{GIB, Of, Scope};
use crate::catalog::{Attach, Client, Service};
use crate::nodes::Nodes;
use crate::supply::{Cap, NETWORK, Ramp, Reader, through};

/// The limit of what a cache is filled with.
const WRITTEN: &str = "writes to the disks of the nodes";

/// Limits of the first epoch and of the later ones, and what comes before.
pub(crate) struct Flow {
    pub cold: Vec<Cap>,
    pub warm: Vec<Cap>,
    pub staging_hours: f64,
    /// Hours to bring back what a lost node held, and how many nodes hold something.
    pub refill_hours: f64,
    pub holders: f64,
    /// The share of the data that a cache holds, and of it what a reader finds on its own node.
    pub hit: f64,
    pub local: f64,
    pub gib: f64,
    pub bought: (f64, f64),
    pub request_mb: f64,
    /// How request rates grow of what is read while accelerators compute, from the objects.
    pub ramp: Option<Ramp>,
}

impl Case<'_> {
    pub(crate) fn flow(&self) -> Result<Flow, String> {
        let mut flow = match self.candidate.way {
            Way::Straight => self.straight(),
            Way::Disks { origin, copy } => self.disks(origin, copy),
            Way::Own => self.own(),
            Way::Rented { .. } => self.rented(),
            Way::Ondemand { copy } => self.ondemand(copy),
        }?;
        if let Some(mb) = self.cpu_mb() {
            flow.cold.push(Cap::new("CPU", mb));
            flow.warm.push(Cap::new("CPU", mb));
        }
        if flow.warm.is_empty() || flow.cold.is_empty() {
            return Err(format!("nothing is known of the speed of {}", self.candidate.service.id));
        }
        match flow.cold.iter().chain(&flow.warm).find(|cap| cap.mb <= 0.0) {
            None => Ok(flow),
            Some(cap) => Err(format!("{} gives nothing at this size: {} is 0", self.candidate.service.id, cap.name)),
        }
    }

    /// What all cores decode, where it is told what a sample takes of one.
    pub(super) fn cpu_mb(&self) -> Option<f64> {
        let demand = self.scene.demand;
        let samples = self.nodes.count * self.nodes.node.cores / demand.cpu_seconds;
        (demand.cpu_seconds > 0.0).then_some(samples * demand.sample_bytes / 1e6)
    }

    /// The way from elsewhere, where the data are.
    fn transit(&self) -> Option<Cap> {
        self.scene.demand.transit_mb(self.store(), self.nodes.home).map(|mb| Cap::new("the way to the data", mb))
    }

    /// Limits of a service, and how it is bought.
    fn bought_of(&self, copies: f64) -> Result<(Vec<Cap>, Flow), String> {
        let (service, client) = (self.candidate.service, self.candidate.client);
        let gib = self.gib()?;
        let mut reader = self.reader(service, client, f64::from(self.candidate.units) * copies, gib);
        reader.bought = self.bought();
        reader.share = self.share(&service.id, client);
        let (bought, request_mb, ramp) = (reader.bought, reader.request_mb(), reader.ramp());
        let flow = Flow { gib, bought, request_mb, ramp, ..Flow::none() };
        Ok((reader.caps(), flow))
    }

    fn straight(&self) -> Result<Flow, String> {
        let (mut caps, flow) = self.bought_of(1.0)?;
        caps.extend(self.transit());
        Ok(Flow { cold: caps.clone(), warm: caps, ..flow })
    }

    /// Limits from the objects to those who read them: a copy, or Stoker.
    fn store_caps(&self, service: &Service, client: &Client, units: f64, share: f64) -> Vec<Cap> {
        let gib = self.scene.demand.dataset_bytes / GIB;
        let reader = Reader { share, ..self.reader(service, client, units, gib) };
        reader.caps().into_iter().chain(self.transit()).collect()
    }

    /// Hours that a copy takes longer as its request rate grows by and by.
    fn copy_ramp_hours(&self, service: &Service, copy: &Client, units: f64, bytes: f64, hours: f64) -> f64 {
        let share = self.share(&service.id, copy);
        let ramp = Reader { share, ..self.reader(service, copy, units, 0.0) }.ramp();
        let mb = bytes / 1e6;
        ramp.map_or(0.0, |ramp| ramp.longer(mb, mb / hours / 3600.0) / 3600.0)
    }

    fn staging_hours(&self, bytes: f64, caps: &[Cap]) -> f64 {
        let mb = caps.iter().fold(f64::INFINITY, |least, cap| least.min(cap.mb));
        // A trickle instead of nothing, so that hours stay a number.
        bytes / 1e6 / mb.max(self.scene.demand.mb() * 1e-9) / 3600.0
    }

    fn disks(&self, origin: &Service, copy: &Client) -> Result<Flow, String> {
        let copies = if self.candidate.service.attach == Attach::One { self.nodes.count } else { 1.0 };
        let (caps, flow) = self.bought_of(copies)?;
        let mut way = self.store_caps(origin, copy, 1.0, self.share(&origin.id, copy));
        // Written at the speed at which it is read: what volumes write is rarely listed.
        way.extend(caps.iter().cloned());
        let bytes = self.scene.demand.dataset_bytes * copies;
        let staging_hours = self.staging_hours(bytes, &way);
        let staging_hours = staging_hours + self.copy_ramp_hours(origin, copy, 1.0, bytes, staging_hours);
        Ok(Flow { cold: caps.clone(), warm: caps, staging_hours, hit: 1.0, local: 1.0, ..flow })
    }

    /// Limits of the objects as Stoker reads them.
    fn behind_cache(&self) -> Vec<Cap> {
        let (service, client) = (self.candidate.service, self.candidate.client);
        self.store_caps(service, client, f64::from(self.candidate.units), self.store_share(service))
    }

    fn has(&self, nodes: &Nodes, of: Of) -> Result<f64, String> {
        let all = nodes.has(of, self.scene.demand, self.knobs.supply).map(|each| each * nodes.count);
        all.ok_or_else(|| format!("no verified figure of {} of {}", of.name(), nodes.node.id))
    }

    /// What the disks of nodes write, MB/s of all of them: as much as they read where that alone is listed.
    fn written(&self, nodes: &Nodes) -> Result<f64, String> {
        self.has(nodes, Of::WriteBandwidth).or_else(|_| self.has(nodes, Of::LocalBandwidth))
    }

    /// Whose disks are filled, where what they write is not listed, and half of what they read would hold the filling back.
    pub(crate) fn unlisted_writes(&self, flow: &Flow) -> Option<String> {
        let nodes = self.keepers.as_ref().unwrap_or(&self.nodes);
        let is_listed = nodes.has(Of::WriteBandwidth, self.scene.demand, self.knobs.supply).is_some();
        let of_disks = flow.cold.iter().find(|cap| cap.name == WRITTEN).filter(|_| !is_listed)?;
        let others = flow.cold.iter().filter(|cap| cap.name != WRITTEN).map(|cap| cap.mb);
        let is_near = of_disks.mb / 2.0 < others.fold(self.scene.demand.mb(), f64::min);
        is_near.then(|| {
            format!(
                "what disks of {} write is not listed: the first epoch is planned with what they read",
                nodes.node.id
            )
        })
    }

    fn own(&self) -> Result<Flow, String> {
        let count = self.nodes.count;
        let has = |of| self.has(&self.nodes, of);
        let (room, disk, network) = (has(Of::LocalGib)?, has(Of::LocalBandwidth)?, has(Of::Network)?);
        let ratio = room / (self.scene.demand.dataset_bytes / GIB);
        let (hit, local) = (ratio.min(1.0), (ratio / count).min(1.0));
        let peers = (hit - local).max(0.0);
        let mut store = self.behind_cache();
        for cap in store.iter_mut().filter(|cap| cap.name == NETWORK) {
            cap.name = "node network from the store";
        }
        let disk_share = self.share("stoker.local", self.candidate.client);
        let others = (count - 1.0) / count;
        // What is missed comes in at its owner, and again at the node that reads it.
        let network = |miss: f64, peers: f64| Cap::new(NETWORK, network / (miss * (1.0 + others) + peers));
        let mut warm = through(store.clone(), 1.0 - hit);
        warm.push(Cap::new("disks of the nodes", disk * disk_share / hit));
        if peers > 0.0 || hit < 1.0 {
            warm.push(network(1.0 - hit, peers));
        }
        // What is kept is written once; what finds no room is not.
        let written = Cap::new(WRITTEN, self.written(&self.nodes)? * disk_share / hit);
        let cold = store.into_iter().chain([network(1.0, 0.0), written]).collect();
        Ok(self.cached(cold, warm, hit, local, count))
    }

    fn rented(&self) -> Result<Flow, String> {
        let Some(keepers) = &self.keepers else { return Err("no cache nodes are rented".into()) };
        let hit = (self.has(keepers, Of::LocalGib)? / (self.scene.demand.dataset_bytes / GIB)).min(1.0);
        // The cache nodes read the store; those that train read the cache nodes.
        let mut store = self.behind_cache();
        store.retain(|cap| cap.name != NETWORK);
        let disk_share = self.share("stoker.local", self.candidate.client);
        let networks = [
            Cap::new(NETWORK, self.has(&self.nodes, Of::Network)?),
            Cap::new("network of the cache nodes", self.has(keepers, Of::Network)?),
        ];
        let mut warm = through(store.clone(), 1.0 - hit);
        warm.extend(networks.clone());
        warm.push(Cap::new("disks of the cache nodes", self.has(keepers, Of::LocalBandwidth)? * disk_share / hit));
        let written = Cap::new(WRITTEN, self.written(keepers)? * disk_share / hit);
        let cold = store.into_iter().chain(networks).chain([written]).collect();
        Ok(self.cached(cold, warm, hit, 0.0, keepers.count))
    }

    /// A cache of so many nodes before the objects.
    fn cached(&self, cold: Vec<Cap>, warm: Vec<Cap>, hit: f64, local: f64, holders: f64) -> Flow {
        let (service, client) = (self.candidate.service, self.candidate.client);
        let bytes = self.scene.demand.dataset_bytes;
        let refill_hours = self.staging_hours(bytes * hit / holders, &cold);
        let share = self.store_share(service);
        let reader = Reader { share, ..self.reader(service, client, f64::from(self.candidate.units), 0.0) };
        let (request_mb, ramp) = (reader.request_mb(), reader.ramp());
        Flow { cold, warm, refill_hours, holders, hit, local, gib: bytes / GIB, request_mb, ramp, ..Flow::none() }
    }

    fn ondemand(&self, copy: &Client) -> Result<Flow, String> {
        let (demand, luck, count) = (self.scene.demand, self.knobs.supply, self.nodes.count);
        let (room, disk) = (self.has(&self.nodes, Of::LocalGib)?, self.has(&self.nodes, Of::LocalBandwidth)?);
        let data = demand.dataset_bytes / GIB;
        if data > room {
            return Err(format!(
                "the disks of {count} {} hold {room:.0} GiB, and the data have {data:.0}",
                self.nodes.node.id
            ));
        }
        let (service, client) = (self.candidate.service, self.candidate.client);
        let share = self.share("ondemand.local", client);
        let disks = Cap::new("disks of the nodes", disk * share);
        let mut warm = vec![disks];
        let network = self.nodes.has(Of::Fabric, demand, luck).or(self.nodes.has(Of::Network, demand, luck));
        warm.extend(
            network
                .filter(|_| count > 1.0)
                .map(|each| Cap::new("network between nodes", each * count * share * count / (count - 1.0))),
        );
        let opens = client.limits.iter().filter(|limit| limit.scope == Scope::Service && limit.of == Of::Metadata);
        // The only place where it was seen.
        let case_of_opens = "nag-beeond-elbencho";
        let known = opens
            .filter(|_| self.scene.evidence.counts(case_of_opens))
            .filter(|limit| limit.figure.is_trusted(demand.unverified));
        warm.extend(known.map(|limit| {
            let opens = limit.figure.value.at(luck.place(&[&client.id, limit.of.name()]));
            Cap::new("metadata", opens * demand.dataset_bytes / demand.files / 1e6)
        }));
        let mut way = self.store_caps(service, copy, f64::from(self.candidate.units), self.share(&service.id, copy));
        way.push(Cap::new(WRITTEN, self.written(&self.nodes)? * share));
        let staging_hours = self.staging_hours(demand.dataset_bytes, &way);
        let units = f64::from(self.candidate.units);
        let longer = self.copy_ramp_hours(service, copy, units, demand.dataset_bytes, staging_hours);
        let staging_hours = staging_hours + longer;
        Ok(Flow {
            cold: warm.clone(),
            warm,
            staging_hours,
            refill_hours: staging_hours,
            holders: count,
            hit: 1.0,
            local: 1.0 / count,
            gib: data,
            request_mb: demand.read_bytes / 1e6,
            ..Flow::none()
        })
    }
}

impl Flow {
    fn none() -> Flow {
        Flow {
            cold: Vec::new(),
            warm: Vec::new(),
            staging_hours: 0.0,
            refill_hours: 0.0,
            holders: 0.0,
            hit: 0.0,
            local: 0.0,
            gib: 0.0,
            bought: (0.0, 0.0),
            request_mb: 0.0,
            ramp: None,
        }
    }
}
