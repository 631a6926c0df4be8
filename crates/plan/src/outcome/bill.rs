//! What a run takes and what is paid for it.
//!
//! Invariant: accelerators are paid for every hour from the copy to the last step, whether they compute or wait.

use super::flow::Flow;
use super::{Case, Outcome, bounds};
use crate::candidate::Way;
use crate::catalog::quantity::{Charge, GIB, MONTH_HOURS, Of, Scope};
use crate::catalog::{Attach, Class, Client, Method, Service};
use crate::demand::{Checkpoint, Demand};
use crate::figure::Figure;
use crate::money::{Money, Prices};
use crate::nodes::trusted;
use crate::supply::{Cap, least};

/// Names in one answer to a LIST.
const NAMES_OF_LIST: f64 = 1000.0;
/// Stoker asks again for one request of so many at most, where an answer is late.
const SERVED_PER_HEDGED: f64 = 400.0;
const DAY_HOURS: f64 = 24.0;
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
    /// The prices of a service: where the data lie, or where the nodes are.
    pub(super) fn prices(&self, service: &'a Service) -> Prices<'a> {
        let (demand, luck, factor) = (self.scene.demand, self.knobs.price, self.knobs.storage_price);
        let is_store = service.id == self.store().id && !demand.data.replica;
        let region = self.away().filter(|_| is_store).or(Some(self.nodes.home));
        Prices { service, demand, region, luck, factor }
    }

    /// The same of the data that a replica is a copy of.
    fn original(&self) -> Option<Prices<'a>> {
        let region = self.away().filter(|_| self.scene.demand.data.replica)?;
        Some(Prices { region: Some(region), ..self.prices(self.store()) })
    }

    /// Whether each epoch reads from another region.
    fn is_far(&self) -> bool {
        self.away().is_some() && !self.scene.demand.data.replica
    }

    /// The prices of what leaves the nodes, where these are.
    fn at_home(&self) -> Prices<'a> {
        Prices { region: Some(self.nodes.home), ..self.prices(self.store()) }
    }

    /// What the data are charged for, where they lie, beside what the service always charges.
    fn also(&self) -> &'static [Charge] {
        if self.is_far() { &[Charge::Egress] } else { &[] }
    }

    /// The share of what is read and written that crosses zones between the nodes and the service.
    fn crossing(&self) -> f64 {
        let (demand, store) = (self.scene.demand, self.store());
        match () {
            // Whoever pays for the way between regions pays for no zones on it.
            () if self.is_far() => 0.0,
            () if demand.beside(store, self.nodes.home) => 1.0,
            () if store.is_zonal => demand.across(self.nodes.count),
            () => 0.0,
        }
    }

    /// What is charged where the nodes are: what they send each other from zone to zone, and what they write to another region.
    fn of_home(&self) -> Vec<Charge> {
        let demand = self.scene.demand;
        // Nodes in several zones pay for what they send each other, and nothing for a service that all zones reach.
        let sends = matches!(self.candidate.way, Way::Own | Way::Rented { .. } | Way::Ondemand { .. });
        let crosses = self.crossing() > 0.0 || sends && demand.across(self.nodes.count) > 0.0;
        let leaves = self.is_far() && written(demand) > 0.0;
        let charges = [(leaves, Charge::Egress), (crosses, Charge::CrossZone)];
        charges.into_iter().filter(|(is_charged, _)| *is_charged).map(|(_, charge)| charge).collect()
    }

    pub(super) fn price_reasons(&self) -> Vec<String> {
        let mut reasons = self.prices(self.store()).reasons(self.also());
        reasons.extend(self.at_home().lacks(&self.of_home()));
        if self.candidate.service.id != self.store().id {
            reasons.extend(self.prices(self.candidate.service).reasons(&[]));
        }
        reasons.extend(self.original().iter().flat_map(|prices| prices.reasons(&[Charge::Egress])));
        reasons
    }

    /// All prices that it rests on; those of nodes where no contract replaces them.
    pub(crate) fn figures(&self) -> Vec<&'a Figure> {
        let mut figures = self.prices(self.store()).figures(self.also());
        figures.extend(self.at_home().figures_of(&self.of_home()));
        if self.candidate.service.id != self.store().id {
            figures.extend(self.prices(self.candidate.service).figures(&[]));
        }
        figures.extend(self.original().iter().flat_map(|prices| prices.figures(&[Charge::Egress])));
        let listed = self.nodes.price.filter(|_| self.scene.demand.accelerator_usd_hour.is_none());
        let keepers = self.keepers.as_ref().and_then(|keepers| keepers.price);
        figures.into_iter().chain([listed, keepers].into_iter().flatten().map(|price| &price.figure)).collect()
    }

    pub(crate) fn outcome(&self, flow: &Flow) -> Outcome {
        let (demand, knobs) = (self.scene.demand, self.knobs);
        let mb = demand.mb();
        let (au_cold, au_warm) = (au(&flow.cold, mb), au(&flow.warm, mb));
        let ideal = demand.ideal_hours();
        let epoch = ideal / demand.epochs;
        let checkpoint_hours = demand.checkpoint.map_or(0.0, |checkpoint| self.checkpoint_hours(&checkpoint, flow));
        let asked = self.asked(flow);
        // The rate has grown to what the first epoch asks for, and stays there.
        let ramp_hours = flow.ramp.map_or(0.0, |ramp| ramp.longer(asked.bytes / 1e6, mb * au_cold) / 3600.0);
        let training = epoch / au_cold + (demand.epochs - 1.0) * epoch / au_warm + checkpoint_hours + ramp_hours;
        let training = training + self.lost_hours(training, flow);
        let hours = flow.staging_hours + training;
        let node = self.nodes.usd_hour(demand, knobs.price).unwrap_or(0.0) * knobs.accelerator_price;
        let nodes_usd_hour = node * self.nodes.count;
        let held_usd_hour = self.held(flow, hours);
        let mut money = self.fees(&asked, flow);
        money.busy = nodes_usd_hour * ideal;
        money.idle = nodes_usd_hour * (training - ideal).max(0.0);
        money.staging = nodes_usd_hour * flow.staging_hours;
        money.capacity = held_usd_hour * hours;
        let (first, _) = least(&flow.warm);
        Outcome {
            au_run: ideal / hours,
            au: ideal / training,
            au_cold,
            au_warm,
            hours,
            staging_hours: flow.staging_hours,
            checkpoint_hours,
            ramp_hours,
            ready_hours: self.ready_hours(),
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

    /// Hours that lost nodes cost. With a node that trains, all go back to the last checkpoint, or to the last epoch where
    /// none is written: half of what lies between, in the mean. Whoever writes checkpoints keeps nothing at the end of an epoch
    /// but these. With a node that holds data, these have to come again.
    fn lost_hours(&self, training: f64, flow: &Flow) -> f64 {
        let demand = self.scene.demand;
        let writes = demand.checkpoint.map(|checkpoint| checkpoint.writes).filter(|writes| *writes > 0.0);
        // The last is written at the end, as the last epoch is.
        let spans = writes.unwrap_or(demand.epochs).max(1.0);
        let of_all = self.nodes.count * training / spans / 2.0 + flow.holders * flow.refill_hours;
        demand.losses_per_node_hour * training * of_all
    }

    /// Hours that a copy of the data to this region takes, before anything is rented.
    pub(crate) fn ready_hours(&self) -> f64 {
        let demand = self.scene.demand;
        let way = demand.data.transit_mb.filter(|_| self.original().is_some());
        way.map_or(0.0, |mb| demand.dataset_bytes / 1e6 / mb / 3600.0)
    }

    /// GiB that a service charges for the data: a small file is one of the least size.
    fn charged_gib(&self, service: &Service) -> f64 {
        let demand = self.scene.demand;
        demand.dataset_bytes.max(demand.files * service.min_object_kib * 1024.0) / GIB
    }

    /// USD for an hour of a run of so many: what exists all month, volumes as well, is paid by the hours in which it is used, what
    /// is copied before also while it waits for that, and what is deleted early for the days that it is charged at least.
    fn held(&self, flow: &Flow, hours: f64) -> f64 {
        let (demand, candidate) = (self.scene.demand, &self.candidate);
        let month = demand.hours_per_month.map_or(1.0, |hours| MONTH_HOURS / hours);
        let waits = |service: &Service| if service.id == self.store().id { self.ready_hours() } else { 0.0 };
        let paid = |service: &Service| (month + waits(service) / hours).max(service.min_days * DAY_HOURS / hours);
        let units = f64::from(candidate.units);
        let data = |service: &Service| self.charged_gib(service);
        let of = |service: &'a Service| self.prices(service).held(data(service), 0.0, 0.0) * paid(service);
        let bought = |service: &'a Service| {
            self.prices(service).held(flow.gib, flow.bought.0, flow.bought.1) * units * paid(service)
        };
        let original =
            self.original().map_or(0.0, |prices| prices.held(data(prices.service), 0.0, 0.0) * paid(prices.service));
        original
            + match candidate.way {
                Way::Straight if candidate.service.class == Class::Object => of(candidate.service),
                Way::Straight => bought(candidate.service),
                Way::Disks { origin, .. } => {
                    let copies = if candidate.service.attach == Attach::One { self.nodes.count } else { 1.0 };
                    bought(candidate.service) * copies + of(origin)
                }
                Way::Own | Way::Ondemand { .. } | Way::Rented { .. } => self.keepers_usd_hour() + of(candidate.service),
            }
    }

    fn keepers_usd_hour(&self) -> f64 {
        let Some(keepers) = &self.keepers else { return 0.0 };
        let place = self.knobs.price.place(&["price", &keepers.node.id]);
        let each = keepers.price.map_or(0.0, |price| price.figure.value.at(place));
        each * self.knobs.storage_price * keepers.count
    }

    fn asked(&self, flow: &Flow) -> Asked {
        let demand = self.scene.demand;
        let requests_of = |bytes: f64, request_mb: f64| (bytes / 1e6 / request_mb).max(demand.files.min(bytes));
        let all = demand.dataset_bytes * demand.epochs;
        let jobs = f64::from(demand.jobs);
        match self.candidate.way {
            Way::Straight => {
                let trips = trusted(self.candidate.client.limit(Of::RoundTrips), demand);
                let trips = trips.map_or(1.0, |limit| limit.figure.value.likely);
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

    /// Bytes that nodes send each other from zone to zone, over the whole run. Nodes are spread evenly, and so is what each holds.
    fn sent_across(&self, flow: &Flow) -> f64 {
        let demand = self.scene.demand;
        let (count, across) = (self.nodes.count, demand.across(self.nodes.count));
        let read = demand.dataset_bytes * f64::from(demand.jobs);
        let (first, later) = match self.candidate.way {
            // Whoever owns what is missed is any node, the reader included. What is hit elsewhere lies on one of the others.
            Way::Own => {
                let of_others = (flow.hit - flow.local).max(0.0) * across * count / (count - 1.0).max(1.0);
                (across, of_others + (1.0 - flow.hit) * across)
            }
            Way::Rented { .. } => (across, across),
            // The copy is spread over all nodes as well, once.
            Way::Ondemand { .. } => (across + across / f64::from(demand.jobs), across),
            Way::Straight | Way::Disks { .. } => (0.0, 0.0),
        };
        read * (first + (demand.epochs - 1.0) * later)
    }

    /// What is paid for requests and bytes, to whom the data are with.
    fn fees(&self, asked: &Asked, flow: &Flow) -> Money {
        let (demand, store) = (self.scene.demand, self.store());
        let prices = self.prices(store);
        let checkpoint = demand.checkpoint.unwrap_or(Checkpoint { bytes: 0.0, writes: 0.0 });
        let written = written(demand);
        let parts = (checkpoint.bytes / PART_BYTES).ceil() * checkpoint.writes;
        let crosses = self.sent_across(flow) + (asked.bytes + written) * self.crossing();
        let mut egress = self.at_home().cross_zone(crosses);
        if self.is_far() {
            egress += prices.egress(asked.bytes) + self.at_home().egress(written);
        }
        let mut money = Money {
            requests: prices.reads(asked.requests) + prices.lists(asked.lists) + prices.writes(parts),
            bytes: prices.read_bytes(asked.bytes) + prices.write_bytes(written),
            egress,
            ..Money::default()
        };
        if let Some(original) = self.original() {
            let requests = (demand.dataset_bytes / PART_BYTES).max(demand.files);
            money.requests += original.reads(requests) + prices.writes(requests);
            money.bytes += original.read_bytes(demand.dataset_bytes) + prices.write_bytes(demand.dataset_bytes);
            money.egress += original.egress(demand.dataset_bytes);
        }
        money
    }

    /// Who writes checkpoints, and what share of the limits it reaches.
    fn writer(&self) -> (&'a Client, f64) {
        let (store, client) = (self.store(), self.candidate.client);
        match self.candidate.way {
            Way::Disks { origin, copy } => (copy, self.share(&origin.id, copy)),
            Way::Ondemand { copy } => (copy, self.share(&store.id, copy)),
            Way::Own | Way::Rented { .. } => (client, self.store_share(store)),
            Way::Straight => (client, self.share(&store.id, client)),
        }
    }

    /// Where checkpoints are written and nobody lists how fast: what holds them instead.
    pub(crate) fn unlisted_checkpoints(&self) -> Option<String> {
        let (store, (writer, _)) = (self.store(), self.writer());
        let reader = self.reader(store, writer, 1.0, 0.0);
        let has = |of| reader.has(of, Scope::Service).is_some();
        let is_written =
            self.scene.demand.checkpoint.is_some_and(|checkpoint| checkpoint.bytes * checkpoint.writes > 0.0);
        if !is_written || has(Of::WriteBandwidth) {
            return None;
        }
        let by = if has(Of::Bandwidth) { "what is read of it" } else { "the nodes' network alone" };
        Some(format!("what {} takes of writes is not listed: checkpoints are held by {by}", store.id))
    }

    /// Accelerators wait while the state of the model is written, to where the data lie: nothing is read meanwhile, and what
    /// a client reaches of the limits of reading it reaches of those of writing.
    fn checkpoint_hours(&self, checkpoint: &Checkpoint, flow: &Flow) -> f64 {
        let store = self.store();
        let (writer, share) = self.writer();
        let is_straight = matches!(self.candidate.way, Way::Straight);
        let units = if matches!(self.candidate.way, Way::Disks { .. }) { 1 } else { self.candidate.units };
        let reader = self.reader(store, writer, f64::from(units), flow.gib);
        let writes = reader.has(Of::WriteBandwidth, Scope::Service);
        // What is not listed is taken as reading.
        let bought = (is_straight && flow.bought.0 > 0.0).then_some(flow.bought.0);
        let reads = bought.or(reader.has(Of::Bandwidth, Scope::Service));
        let listed = writes.or(reads).map(|each| each * reader.units);
        let network = self.nodes.has(Of::Network, self.scene.demand, self.knobs.supply);
        let network = network.map(|each| each * self.nodes.count);
        let lowered = [listed, network].into_iter().flatten().map(|mb| mb * share);
        let measured = reader.measured().map(|cap| cap.mb);
        let mb = lowered
            .chain(measured)
            .chain(self.scene.demand.transit_mb(store, self.nodes.home))
            .fold(f64::INFINITY, f64::min);
        if mb.is_finite() && mb > 0.0 { checkpoint.bytes * checkpoint.writes / 1e6 / mb / 3600.0 } else { 0.0 }
    }
}

/// Bytes of all checkpoints.
fn written(demand: &Demand) -> f64 {
    demand.checkpoint.map_or(0.0, |checkpoint| checkpoint.bytes * checkpoint.writes)
}

fn au(caps: &[Cap], demand_mb: f64) -> f64 {
    let (first, _) = least(caps);
    // A trickle instead of nothing, so that hours stay a number.
    first.map_or(1.0, |cap| (cap.mb / demand_mb).clamp(1e-9, 1.0))
}
