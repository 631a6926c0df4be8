//! What a run takes and what is paid for it.
//!
//! Invariant: accelerators are paid for every hour from the copy to the last step, whether they compute or wait.

use super::flow::Flow;
use super::{Case, Outcome, bounds};
use crate::candidate::Way;
use crate::catalog::quantity::{Of, Scope};
use crate::catalog::{Attach, Class, Method, Service};
use crate::demand::Checkpoint;
use crate::money::{Money, Prices};
use crate::nodes::trusted;
use crate::supply::{Cap, least};

/// Names in one answer to a LIST.
const NAMES_OF_LIST: f64 = 1000.0;
/// Stoker asks again for one request of so many at most, where an answer is late.
const SERVED_PER_HEDGED: f64 = 400.0;
/// Checkpoints are written in parts of this size.
const PART_BYTES: f64 = 16.0 * 1_048_576.0;

/// What is asked of the place where the data lie, over the whole run.
#[derive(Default)]
struct Asked {
    requests: f64,
    lists: f64,
    bytes: f64,
}

impl<'a> Case<'a> {
    pub(crate) fn prices<'s>(&'s self, service: &'s Service) -> Prices<'s> {
        // Everything at its worst costs most and is slowest at once.
        Prices { service, demand: self.scene.demand, place: self.knobs.price, factor: self.knobs.storage_price }
    }

    pub(crate) fn outcome(&self, flow: &Flow) -> Outcome {
        let (demand, knobs) = (self.scene.demand, self.knobs);
        let mb = demand.mb();
        let (au_cold, au_warm) = (au(&flow.cold, mb), au(&flow.warm, mb));
        let ideal = demand.ideal_hours();
        let epoch = ideal / demand.epochs;
        let checkpoint_hours = demand.checkpoint.map_or(0.0, |checkpoint| self.checkpoint_hours(&checkpoint, flow));
        let training = epoch / au_cold + (demand.epochs - 1.0) * epoch / au_warm + checkpoint_hours;
        let lost = demand.losses_per_node_hour * self.nodes.count * training * flow.refill_hours;
        let training = training + lost;
        let hours = flow.staging_hours + training;
        let node = self.nodes.usd_hour(demand, knobs.price).unwrap_or(0.0) * knobs.accelerator_price;
        let nodes_usd_hour = node * self.nodes.count;
        let held_usd_hour = self.held(flow);
        let asked = self.asked(flow);
        let mut money = self.fees(&asked);
        money.busy = nodes_usd_hour * ideal;
        money.idle = nodes_usd_hour * (training - ideal).max(0.0);
        money.staging = nodes_usd_hour * flow.staging_hours;
        money.capacity = held_usd_hour * hours;
        let (first, _) = least(&flow.warm);
        Outcome {
            au: ideal / training,
            au_cold,
            au_warm,
            hours,
            staging_hours: flow.staging_hours,
            checkpoint_hours,
            money,
            bounds: bounds(&flow.warm, mb),
            cold_mb: least(&flow.cold).0.map_or(mb, |cap| cap.mb),
            supply_mb: first.map_or(mb, |cap| cap.mb),
            held_usd_hour,
            nodes_usd_hour,
            gib: flow.gib,
            hit: flow.hit,
            requests: asked.requests,
            store_bytes: asked.bytes,
        }
    }

    /// USD for an hour of training: what is held all month is paid by the hours in which it is used.
    fn held(&self, flow: &Flow) -> f64 {
        let (demand, candidate) = (self.scene.demand, &self.candidate);
        let month = demand.hours_per_month.map_or(1.0, |hours| crate::catalog::quantity::MONTH_HOURS / hours);
        let units = f64::from(candidate.units);
        let data = demand.dataset_bytes / crate::catalog::quantity::GIB;
        let of = |service: &'a Service| self.prices(service).held(data, 0.0, 0.0) * month;
        match candidate.way {
            Way::Straight if candidate.service.class == Class::Object => of(candidate.service),
            Way::Straight => {
                self.prices(candidate.service).held(flow.gib, flow.bought.0, flow.bought.1) * units * month
            }
            Way::Disks { origin, .. } => {
                let copies = if candidate.service.attach == Attach::One { self.nodes.count } else { 1.0 };
                let volumes =
                    self.prices(candidate.service).held(flow.gib, flow.bought.0, flow.bought.1) * units * copies;
                volumes + of(origin)
            }
            Way::Own | Way::Ondemand { .. } => of(candidate.service),
            Way::Rented { node, count } => {
                let price =
                    node.price(demand.region.as_deref()).map_or(0.0, |price| price.figure.value.at(self.knobs.price));
                price * self.knobs.storage_price * f64::from(count) + of(candidate.service)
            }
        }
    }

    fn asked(&self, flow: &Flow) -> Asked {
        let demand = self.scene.demand;
        let requests_of = |bytes: f64, request_mb: f64| (bytes / 1e6 / request_mb).max(demand.files.min(bytes));
        let all = demand.dataset_bytes * demand.epochs;
        let jobs = f64::from(demand.jobs);
        match self.candidate.way {
            Way::Straight => {
                let trips = self
                    .candidate
                    .client
                    .limits
                    .iter()
                    .find(|limit| limit.of == Of::RoundTrips)
                    .map_or(1.0, |limit| limit.figure.value.likely);
                let opens = (trips - 1.0) * demand.files * demand.epochs;
                let requests = all / 1e6 / flow.request_mb + opens;
                let lists = if self.candidate.client.method == Method::Rest {
                    demand.files / NAMES_OF_LIST
                } else {
                    demand.files
                };
                Asked { requests: requests * jobs, lists: lists * jobs, bytes: all * jobs }
            }
            Way::Own | Way::Rented { .. } => {
                let missed = (1.0 - flow.hit) * demand.dataset_bytes * (demand.epochs - 1.0) * jobs;
                let bytes = demand.dataset_bytes + missed;
                let per_epoch = requests_of(demand.dataset_bytes, flow.request_mb);
                let requests = per_epoch * bytes / demand.dataset_bytes * (1.0 + 1.0 / SERVED_PER_HEDGED);
                Asked { requests, lists: demand.files / NAMES_OF_LIST, bytes }
            }
            Way::Disks { copy, .. } | Way::Ondemand { copy } => {
                let is_each =
                    matches!(self.candidate.way, Way::Disks { .. }) && self.candidate.service.attach == Attach::One;
                let copies = if is_each { self.nodes.count } else { 1.0 };
                let request_mb = self.reader(self.candidate.service, copy, 1.0, 0.0).request_mb();
                let requests = requests_of(demand.dataset_bytes, request_mb) * copies;
                Asked { requests, lists: demand.files / NAMES_OF_LIST * copies, bytes: demand.dataset_bytes * copies }
            }
        }
    }

    /// What is paid for requests and bytes, to whom the data are with.
    fn fees(&self, asked: &Asked) -> Money {
        let demand = self.scene.demand;
        let store = match self.candidate.way {
            Way::Disks { origin, .. } => origin,
            _ => self.candidate.service,
        };
        let prices = self.prices(store);
        let checkpoint = demand.checkpoint.unwrap_or(Checkpoint { bytes: 0.0, writes: 0.0 });
        let written = checkpoint.bytes * checkpoint.writes;
        let parts = (checkpoint.bytes / PART_BYTES).ceil() * checkpoint.writes;
        let between = match self.candidate.way {
            Way::Own | Way::Ondemand { .. } | Way::Rented { .. } if demand.zones > 1 => {
                let zones = f64::from(demand.zones);
                demand.dataset_bytes * demand.epochs * (zones - 1.0) / zones
            }
            _ => 0.0,
        };
        let mut egress = prices.cross_zone(between);
        if demand.data.other_region {
            egress += prices.egress(asked.bytes);
        }
        if demand.data.other_zone {
            egress += prices.cross_zone(asked.bytes);
        }
        Money {
            requests: prices.reads(asked.requests) + prices.lists(asked.lists) + prices.writes(parts),
            bytes: prices.read_bytes(asked.bytes) + prices.write_bytes(written),
            egress,
            ..Money::default()
        }
    }

    /// Accelerators wait while the state of the model is written, to where the data lie.
    fn checkpoint_hours(&self, checkpoint: &Checkpoint, flow: &Flow) -> f64 {
        let store = match self.candidate.way {
            Way::Disks { origin, .. } => origin,
            _ => self.candidate.service,
        };
        let limit = |of| trusted(store.limit(of, Scope::Service, &self.candidate.client.id), self.scene.demand);
        let place = self.knobs.supply;
        let listed =
            limit(Of::WriteBandwidth).map(|limit| limit.at(flow.gib).at(place) * f64::from(self.candidate.units));
        // What is not listed is taken as reading.
        let read = limit(Of::Bandwidth)
            .map(|limit| if limit.is_bought { flow.bought.0 } else { limit.at(flow.gib).at(place) });
        let network = self.nodes.has(Of::Network, self.scene.demand, place).map(|each| each * self.nodes.count);
        let mb = [listed.or(read), network].into_iter().flatten().fold(f64::INFINITY, f64::min);
        if mb.is_finite() && mb > 0.0 { checkpoint.bytes * checkpoint.writes / 1e6 / mb / 3600.0 } else { 0.0 }
    }
}

fn au(caps: &[Cap], demand_mb: f64) -> f64 {
    let (first, _) = least(caps);
    // A trickle instead of nothing, so that hours stay a number.
    first.map_or(1.0, |cap| (cap.mb / demand_mb).clamp(1e-9, 1.0))
}
