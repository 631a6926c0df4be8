//! How fast a service feeds nodes: each of its limits, in MB/s.
//!
//! It knows no price. Invariants: a limit that is unknown is a reason, and never taken as none; a limit through which only a
//! share of the bytes goes binds by as much later.

use crate::catalog::quantity::{Of, Scope};
use crate::catalog::{Class, Client, Limit, Method, Service};
use crate::demand::Demand;
use crate::figure::Confidence;
use crate::luck::Luck;
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

/// A request rate in MB/s, and in how many seconds it doubles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    pub mb: f64,
    pub seconds: f64,
}

impl Ramp {
    /// Seconds by which so many MB take longer than at the speed that is reached in the end.
    pub fn longer(self, mb: f64, wanted: f64) -> f64 {
        let (mut left, mut rate, mut longer) = (mb, self.mb.max(wanted * 1e-6), 0.0);
        while rate < wanted && left > 0.0 {
            let moved = left.min(rate * self.seconds);
            longer += moved / rate - moved / wanted;
            left -= moved;
            rate *= 2.0;
        }
        longer
    }
}

/// What reads a service, and how much of it there is.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    pub service: &'a Service,
    pub client: &'a Client,
    pub demand: &'a Demand,
    pub nodes: &'a Nodes<'a>,
    /// Accounts, volumes of all nodes, file systems; and GiB of each.
    pub units: f64,
    pub gib: f64,
    /// MB/s bought of each, where speed is bought, and operations a second.
    pub bought: (f64, f64),
    pub luck: Luck,
    /// The share of listed limits that the client reaches.
    pub share: f64,
}

impl Reader<'_> {
    fn limit(&self, of: Of, scope: Scope) -> Option<&Limit> {
        trusted(self.service.limit(of, scope, &self.client.id), self.demand)
    }

    fn supply(&self) -> Option<(&Limit, f64)> {
        let found = self.service.supply(&self.client.id);
        found.filter(|(supply, _)| trusted(Some(supply), self.demand).is_some())
    }

    fn place(&self, limit: &Limit) -> f64 {
        let client = limit.client.as_deref().unwrap_or_default();
        self.luck.place(&[&self.service.id, limit.of.name(), limit.scope.name(), client])
    }

    /// A limit for the size that there is.
    fn value(&self, limit: &Limit) -> f64 {
        limit.at(self.gib).at(self.place(limit))
    }

    pub fn has(&self, of: Of, scope: Scope) -> Option<f64> {
        self.limit(of, scope).map(|limit| self.value(limit))
    }

    fn client_has(&self, of: Of) -> Option<f64> {
        let limit = trusted(self.client.limit(of), self.demand)?;
        Some(limit.figure.value.at(self.luck.place(&[&self.client.id, of.name()])))
    }

    /// MB of one request to the service; none reaches beyond its file.
    pub fn request_mb(&self) -> f64 {
        let read = self.demand.read_bytes.min(self.demand.file_bytes()) / 1e6;
        let most = match self.client.method {
            Method::Disk => Some(DISK_REQUEST_MB),
            _ => self.client_has(Of::RequestSize),
        };
        // Stoker asks for whole files in runs, however small the reads are; so does a copy.
        let file = self.demand.file_bytes() / 1e6;
        let wanted = if matches!(self.client.method, Method::Stoker | Method::Copy) { file } else { read };
        most.map_or(wanted, |most| wanted.min(most))
    }

    /// All limits between the service and the nodes, lowered to what the client reaches of them. Where somebody measured what
    /// it reaches, that is a limit of its own, and the listed ones hold as they are.
    pub fn caps(&self) -> Vec<Cap> {
        let measured = self.measured();
        let share = if measured.is_some() { 1.0 } else { self.share };
        let listed = [self.bandwidth(), self.requests()].into_iter().flatten().chain(self.beside());
        let lowered = listed.map(|cap| Cap { mb: cap.mb * share, ..cap });
        lowered.chain(measured).collect()
    }

    /// Limits that a larger size, or speed that is bought, does not widen; as they are listed.
    pub fn beside(&self) -> Vec<Cap> {
        [self.metadata(), self.first_byte()].into_iter().flatten().chain(self.of_nodes()).collect()
    }

    /// What the user measured through this client with some nodes: as much for each node. More nodes than were measured may
    /// find a limit that those did not; the listed ones hold them, and the offer says so.
    pub fn measured(&self) -> Option<Cap> {
        let (supply, clients) = self.supply()?;
        let mb = supply.figure.value.at(self.place(supply)) * self.nodes.count / clients;
        Some(Cap { extrapolated: self.nodes.count > clients, ..Cap::new("measured bandwidth", mb) })
    }

    fn bandwidth(&self) -> Option<Cap> {
        let limit = self.limit(Of::Bandwidth, Scope::Service)?;
        let each = match limit.is_bought {
            true => self.bought.0.min(self.value(limit)),
            false => self.with_burst(limit),
        };
        Some(Cap::new(BANDWIDTH, each * self.units))
    }

    /// The mean over the run: first what credit grants, then the baseline.
    fn with_burst(&self, limit: &Limit) -> f64 {
        let base = self.value(limit);
        let burst = limit.burst_at(self.gib).map(|burst| burst.at(self.place(limit)));
        let Some((burst, credit)) = burst.zip(limit.burst) else {
            return base;
        };
        if burst <= base {
            return base;
        }
        let mb_per_gib = crate::catalog::quantity::GIB / 1e6;
        let seconds = credit.credit_gib_per_gib * self.gib * mb_per_gib / (burst - base);
        // Where each node has volumes of its own, `units` are those of all nodes.
        let jobs = f64::from(self.demand.jobs);
        let read = self.demand.dataset_bytes * self.demand.epochs * jobs / 1e6 / self.units;
        let fast = burst * seconds;
        match read <= fast || base <= 0.0 {
            true => burst,
            false => read / (seconds + (read - fast) / base),
        }
    }

    /// Where requests begin at a rate that doubles as long as more is asked for: that rate, and in how many seconds.
    pub fn ramp(&self) -> Option<Ramp> {
        let limit = self.limit(Of::Requests, Scope::Service)?;
        let mb = self.value(limit) * self.units * self.request_mb() * self.share;
        Some(Ramp { mb, seconds: limit.doubles_minutes? * 60.0 })
    }

    fn requests(&self) -> Option<Cap> {
        // What grows as it is asked for holds nothing back for long: the time until then is counted by itself.
        let limit = self.limit(Of::Requests, Scope::Service).filter(|limit| limit.doubles_minutes.is_none())?;
        let place = self.place(limit);
        let each = match (limit.is_bought, limit.is_least && place > 0.5) {
            (true, _) => self.bought.1.min(self.value(limit)),
            (false, true) => self.value(limit) * (1.0 + (LEAST_AT_BEST - 1.0) * (place - 0.5) * 2.0),
            (false, false) => self.value(limit),
        };
        Some(Cap::new("requests", each * self.units * self.request_mb()))
    }

    fn metadata(&self) -> Option<Cap> {
        let opens = self.has(Of::Metadata, Scope::Service).map(|each| each * self.units);
        let opens = opens.or(self.client_has(Of::Metadata))?;
        Some(Cap::new("metadata", opens * self.demand.dataset_bytes / self.demand.files / 1e6))
    }

    /// Little's law: what is in flight, over the time that an answer takes.
    fn first_byte(&self) -> Option<Cap> {
        let limit = self.limit(Of::FirstByte, Scope::Connection)?;
        let delay =
            limit.figure.value.at(1.0 - self.place(limit)) + self.demand.delay_ms(self.service, self.nodes.home);
        let request = self.request_mb();
        let each = self.has(Of::Bandwidth, Scope::Connection).unwrap_or(f64::INFINITY);
        let seconds = self.client_has(Of::RoundTrips).unwrap_or(1.0) * delay / 1e3 + request / each;
        let reads = self.demand.streams * f64::from(self.demand.accelerators);
        // Pieces of one file are asked for at once; a reader of several files takes one after the other.
        let read = self.demand.read_bytes.min(self.demand.file_bytes());
        let pieces = (read / 1e6 / request).max(1.0);
        let in_flight = self.client_has(Of::InFlight).map_or(reads * pieces, |each| each * self.nodes.count);
        (seconds > 0.0).then(|| Cap::new("first byte x requests in flight", in_flight * request / seconds))
    }

    fn of_nodes(&self) -> Vec<Cap> {
        let mut caps = Vec::new();
        let mut cap = |name, each: Option<f64>| caps.extend(each.map(|each| Cap::new(name, each * self.nodes.count)));
        let of_node = |of| self.nodes.has(of, self.demand, self.luck);
        match self.client.method {
            Method::Disk => {
                cap("a node's way to its volumes", of_node(Of::DiskBandwidth));
                let requests = of_node(Of::DiskRequests);
                cap("a node's requests to its volumes", requests.map(|each| each * self.request_mb()));
            }
            _ => cap(NETWORK, of_node(Of::Network)),
        }
        cap("one node of the service", self.has(Of::Bandwidth, Scope::Node));
        let connection = self.has(Of::Bandwidth, Scope::Connection);
        cap(
            "connections of a node",
            self.client_has(Of::Connections).zip(connection).map(|(count, each)| count * each),
        );
        let streams = self.demand.streams * f64::from(self.demand.accelerators) / self.nodes.count;
        cap("one file", self.has(Of::Bandwidth, Scope::File).map(|each| each * streams));
        caps
    }

    /// What may be its limit and is not known, or not verified: each is a reason not to rank it.
    pub fn unknown(&self) -> Vec<String> {
        let id = &self.service.id;
        if let Some((_, clients)) = self.supply() {
            let listed = [Of::Bandwidth, Of::Requests].into_iter().any(|of| self.limit(of, Scope::Service).is_some());
            let is_bounded = listed || self.nodes.count <= clients;
            let what =
                format!("{id} was measured with {clients} nodes, and no verified limit says how far more of them get");
            return if is_bounded { Vec::new() } else { vec![what] };
        }
        let mut reasons: Vec<String> = self.unverified().chain(doubtful(self.client, self.demand)).collect();
        let has = |of, scope| self.limit(of, scope).is_some();
        let knows = |of| has(of, Scope::Service);
        // A volume always has both; a store or a file system may well have no limit but one.
        let (both, either) = (knows(Of::Bandwidth) && knows(Of::Requests), knows(Of::Bandwidth) || knows(Of::Requests));
        match self.service.class {
            Class::Disk if !both => {
                let what = "no verified limit of bandwidth and of requests";
                reasons.push(format!("not all is known of the speed of {id}: {what}"));
            }
            Class::Object | Class::File | Class::Cache if !either => {
                let what = "no verified limit of bandwidth or requests";
                reasons.push(format!("nothing is known of the speed of {id}: {what}"));
            }
            _ => {}
        }
        if self.client.method == Method::Disk {
            reasons.extend(self.nodes.lacks(&[Of::DiskBandwidth, Of::DiskRequests], self.demand));
        } else if !has(Of::FirstByte, Scope::Connection) {
            reasons.push(format!("it is not known how long {id} takes to its first byte"));
        }
        let one = [Scope::Connection, Scope::Node, Scope::File].into_iter().any(|scope| has(Of::Bandwidth, scope));
        if self.client.limit(Of::Connections).is_some() && !one {
            reasons.push(format!("it is not known what one connection to {id} carries"));
        }
        reasons
    }

    /// Limits that are listed and not verified: they don't decide, and without them nothing is known.
    fn unverified(&self) -> impl Iterator<Item = String> {
        let writes = self.demand.checkpoint.is_some();
        let counts = move |limit: &&Limit| match limit.of {
            Of::Bandwidth | Of::Requests | Of::Metadata | Of::FirstByte => true,
            Of::WriteBandwidth => writes,
            _ => false,
        };
        let is_doubtful = |limit: &&Limit| {
            limit.figure.origin.confidence == Confidence::Unverified && !limit.figure.is_trusted(self.demand.unverified)
        };
        let is_ours = |limit: &&Limit| limit.client.as_deref().is_none_or(|client| client == self.client.id);
        let found = self.service.limits.iter().filter(counts).filter(is_ours).filter(is_doubtful);
        found.map(|limit| {
            let (of, source) = (limit.of.name(), &limit.figure.origin.source);
            format!("the limit of {of} of {} is not verified ({source})", self.service.id)
        })
    }
}

/// Limits of a client that are listed and not verified: to take them as none would be to verify that there is none.
pub fn doubtful<'a>(client: &'a Client, demand: &'a Demand) -> impl Iterator<Item = String> + 'a {
    let is_doubtful = |limit: &&Limit| {
        limit.figure.origin.confidence == Confidence::Unverified && !limit.figure.is_trusted(demand.unverified)
    };
    client.limits.iter().filter(is_doubtful).map(|limit| {
        let (of, source) = (limit.of.name(), &limit.figure.origin.source);
        format!("the limit of {of} of {} is not verified ({source})", client.name)
    })
}

/// The network of the nodes that read.
pub const NETWORK: &str = "node network";
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
