//! How fast a service feeds nodes: each of its limits, in MB/s.
//!
//! It knows no price. Invariants: a limit that is unknown is left out and never taken as none where nothing else is known; a
//! limit through which only a share of the bytes goes binds by as much later.

use crate::catalog::quantity::{Of, Scope};
use crate::catalog::{Client, Limit, Method, Service};
use crate::demand::Demand;
use crate::figure::Layer;
use crate::nodes::{Nodes, trusted};

/// A request to a volume moves no more.
const DISK_REQUEST_MB: f64 = 1.048_576;
/// What is at least a limit is taken as up to so much more in the best case.
const LEAST_AT_BEST: f64 = 4.0;

/// A limit in MB/s of what the job reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Cap {
    pub name: &'static str,
    pub mb: f64,
    /// It was measured with fewer nodes, and carried on.
    pub extrapolated: bool,
}

impl Cap {
    pub fn new(name: &'static str, mb: f64) -> Cap {
        Cap { name, mb: mb.max(0.0), extrapolated: false }
    }
}

/// What reads a service, and how much of it there is.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    pub service: &'a Service,
    pub client: &'a Client,
    pub demand: &'a Demand,
    pub nodes: &'a Nodes<'a>,
    pub node_count: f64,
    /// Accounts, volumes, file systems; and GiB of each.
    pub units: f64,
    pub gib: f64,
    /// MB/s bought of each, where speed is bought, and operations a second.
    pub bought: (f64, f64),
    /// Where in the range of each limit: 0 the worst, 0.5 the likely one, 1 the best.
    pub place: f64,
    /// The share of listed limits that the client reaches.
    pub share: f64,
}

impl Reader<'_> {
    fn limit(&self, of: Of, scope: Scope) -> Option<&Limit> {
        trusted(self.service.limit(of, scope, &self.client.id), self.demand)
    }

    fn client_has(&self, of: Of) -> Option<f64> {
        trusted(self.client.limit(of), self.demand).map(|limit| limit.figure.value.at(self.place))
    }

    /// MB of one request to the service.
    pub fn request_mb(&self) -> f64 {
        let read = self.demand.read_bytes / 1e6;
        let most = match self.client.method {
            Method::Disk => Some(DISK_REQUEST_MB),
            _ => self.client_has(Of::RequestSize),
        };
        // Stoker asks for whole files in runs, however small the reads are; so does a copy.
        let file = self.demand.dataset_bytes / self.demand.files / 1e6;
        let wanted = if matches!(self.client.method, Method::Stoker | Method::Copy) { file } else { read };
        most.map_or(wanted, |most| wanted.min(most))
    }

    /// All limits between the service and the nodes, lowered to what the client reaches of them.
    pub fn caps(&self) -> Vec<Cap> {
        let mut caps: Vec<Cap> = [self.bandwidth(), self.requests(), self.metadata(), self.first_byte()]
            .into_iter()
            .flatten()
            .chain(self.of_nodes())
            .collect();
        for cap in &mut caps {
            cap.mb *= self.share;
        }
        match self.measured(&caps) {
            Some(measured) => vec![measured],
            None => caps,
        }
    }

    /// What the user measured through this client. Past as many nodes, it grows with them up to what is listed.
    fn measured(&self, listed: &[Cap]) -> Option<Cap> {
        let limit = self.limit(Of::Bandwidth, Scope::Service)?;
        let is_measured = limit.figure.origin.layer == Layer::Measured && limit.client.is_some();
        let clients = limit.clients.filter(|_| is_measured)?;
        let value = limit.at(self.gib).at(self.place);
        if self.node_count <= clients {
            return Some(Cap::new("measured bandwidth", value));
        }
        let grown = value * self.node_count / clients;
        let mb =
            listed.iter().filter(|cap| cap.name != BANDWIDTH).fold(grown, |least, cap| least.min(cap.mb / self.share));
        Some(Cap { extrapolated: true, ..Cap::new("measured bandwidth", mb) })
    }

    fn bandwidth(&self) -> Option<Cap> {
        let limit = self.limit(Of::Bandwidth, Scope::Service)?;
        let each = match limit.is_bought {
            true => self.bought.0,
            false => self.with_burst(limit),
        };
        Some(Cap::new(BANDWIDTH, each * self.units))
    }

    /// The mean over the run: first what credit grants, then the baseline.
    fn with_burst(&self, limit: &Limit) -> f64 {
        let base = limit.at(self.gib).at(self.place);
        let Some((burst, credit)) = limit.burst_at(self.gib).map(|burst| burst.at(self.place)).zip(limit.burst) else {
            return base;
        };
        if burst <= base {
            return base;
        }
        let mb_per_gib = crate::catalog::quantity::GIB / 1e6;
        let seconds = credit.credit_gib_per_gib * self.gib * mb_per_gib / (burst - base);
        let read = self.demand.dataset_bytes * self.demand.epochs / 1e6 / self.units / self.volumes();
        let fast = burst * seconds;
        match read <= fast || base <= 0.0 {
            true => burst,
            false => read / (seconds + (read - fast) / base),
        }
    }

    /// Copies of the volumes: each node has its own.
    fn volumes(&self) -> f64 {
        match self.service.attach {
            crate::catalog::Attach::One => self.node_count,
            _ => 1.0,
        }
    }

    fn requests(&self) -> Option<Cap> {
        let limit = self.limit(Of::Requests, Scope::Service)?;
        let each = match (limit.is_bought, limit.is_least && self.place > 0.5) {
            (true, _) => self.bought.1,
            (false, true) => {
                limit.at(self.gib).at(self.place) * (1.0 + (LEAST_AT_BEST - 1.0) * (self.place - 0.5) * 2.0)
            }
            (false, false) => limit.at(self.gib).at(self.place),
        };
        Some(Cap::new("requests", each * self.units * self.request_mb()))
    }

    fn metadata(&self) -> Option<Cap> {
        let opens =
            self.limit(Of::Metadata, Scope::Service).map(|limit| limit.at(self.gib).at(self.place) * self.units);
        let opens = opens.or(self.client_has(Of::Metadata))?;
        Some(Cap::new("metadata", opens * self.demand.dataset_bytes / self.demand.files / 1e6))
    }

    /// Little's law: what is in flight, over the time that an answer takes.
    fn first_byte(&self) -> Option<Cap> {
        let first = self.limit(Of::FirstByte, Scope::Connection)?.figure.value.at(1.0 - self.place);
        let delay = first + self.demand.data.delay_ms;
        let request = self.request_mb();
        let each = self
            .limit(Of::Bandwidth, Scope::Connection)
            .map_or(f64::INFINITY, |limit| limit.figure.value.at(self.place));
        let seconds = self.client_has(Of::RoundTrips).unwrap_or(1.0) * delay / 1e3 + request / each;
        let reads = self.demand.streams * f64::from(self.demand.accelerators);
        let pieces = (self.demand.read_bytes / 1e6 / request).max(1.0);
        let in_flight = self.client_has(Of::InFlight).map_or(reads * pieces, |each| each * self.node_count);
        (seconds > 0.0).then(|| Cap::new("first byte x requests in flight", in_flight * request / seconds))
    }

    fn of_nodes(&self) -> Vec<Cap> {
        let mut caps = Vec::new();
        let mut cap = |name, each: Option<f64>| caps.extend(each.map(|each| Cap::new(name, each * self.node_count)));
        match self.client.method {
            Method::Disk => {
                cap("a node's way to its volumes", self.nodes.has(Of::DiskBandwidth, self.demand, self.place));
                let requests = self.nodes.has(Of::DiskRequests, self.demand, self.place);
                cap("a node's requests to its volumes", requests.map(|each| each * self.request_mb()));
            }
            _ => cap("node network", self.nodes.has(Of::Network, self.demand, self.place)),
        }
        let node = self.limit(Of::Bandwidth, Scope::Node).map(|limit| limit.figure.value.at(self.place));
        cap("one node of the service", node);
        let connection = self.limit(Of::Bandwidth, Scope::Connection).map(|limit| limit.figure.value.at(self.place));
        cap(
            "connections of a node",
            self.client_has(Of::Connections).zip(connection).map(|(count, each)| count * each),
        );
        let file = self.limit(Of::Bandwidth, Scope::File).map(|limit| limit.figure.value.at(self.place));
        let streams = self.demand.streams * f64::from(self.demand.accelerators) / self.node_count;
        cap("one file", file.map(|each| each * streams));
        caps
    }
}

pub const BANDWIDTH: &str = "service bandwidth";

/// The least of some limits, and what comes next.
pub fn least(caps: &[Cap]) -> (Option<&Cap>, Option<&Cap>) {
    let mut caps: Vec<&Cap> = caps.iter().filter(|cap| cap.mb.is_finite()).collect();
    caps.sort_by(|left, right| left.mb.total_cmp(&right.mb));
    (caps.first().copied(), caps.get(1).copied())
}

/// A limit through which only a share of what is read goes.
pub fn through(caps: Vec<Cap>, share: f64) -> Vec<Cap> {
    let widened =
        caps.into_iter().map(|cap| Cap { mb: if share > 0.0 { cap.mb / share } else { f64::INFINITY }, ..cap });
    widened.filter(|cap| cap.mb.is_finite()).collect()
}
