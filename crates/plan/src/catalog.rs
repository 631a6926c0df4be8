//! What can be rented: services, nodes and clients, each figure with its source.
//!
//! Layout: [`entry`] one table as it is read, [`quantity`] what figures are of, `read` a whole text, [`layers`] texts
//! over each other, [`check`] what is doubtful in one, [`shipped`] those that travel with the program.
//!
//! It opens no files: texts come in. Invariant: of a figure that several layers have, the last layer's is here and says so.

pub mod check;
pub mod entry;
pub mod layers;
pub mod quantity;
mod read;
pub mod shipped;

pub use read::TEXT_BYTES_MAX;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::figure::{Figure, Layer, Range};
use quantity::{Charge, Of, Scope};

/// Everything of all layers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Catalog {
    pub services: Vec<Service>,
    pub nodes: Vec<Node>,
    pub clients: Vec<Client>,
    /// The texts that it was made of: provider, version, layer.
    pub parts: Vec<Part>,
}

/// One text of a catalogue.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    pub place: String,
    pub provider: String,
    pub version: String,
    pub layer: Layer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Objects by requests.
    Object,
    /// A file system that others run.
    File,
    /// A volume of a node.
    Disk,
    /// What a provider puts before its objects.
    Cache,
}

pub const CLASSES: [(&str, Class); 4] =
    [("object", Class::Object), ("file", Class::File), ("disk", Class::Disk), ("cache", Class::Cache)];

/// Who can use one at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attach {
    Many,
    ManyReaders,
    One,
}

pub const ATTACHES: [(&str, Attach); 3] =
    [("many", Attach::Many), ("many-readers", Attach::ManyReaders), ("one", Attach::One)];

/// A service in one tier.
#[derive(Clone, Debug, Serialize)]
pub struct Service {
    pub id: String,
    pub name: String,
    pub provider: String,
    pub class: Class,
    pub attach: Attach,
    /// What the bill has a line for: of each of these, a price has to be known.
    pub charges: Vec<Charge>,
    pub min_gib: f64,
    pub step_gib: f64,
    pub max_gib: Option<f64>,
    /// What is deleted before so many days is paid for so many.
    pub min_days: f64,
    /// A smaller file is paid for as one of so many KiB.
    pub min_object_kib: f64,
    /// It is in one zone: who reads it from another pays for the way.
    pub is_zonal: bool,
    /// The region that is meant where none is named.
    pub region: String,
    pub prices: Vec<Price>,
    pub limits: Vec<Limit>,
    pub note: Option<String>,
}

/// A price, in the unit of its charge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Price {
    pub of: Charge,
    pub region: String,
    /// From how many GiB on it holds, and above how much something is included.
    pub from_gib: f64,
    pub above: f64,
    #[serde(flatten)]
    pub figure: Figure,
}

/// A limit: `clamp(value + slope x size, floor, cap)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    pub of: Of,
    pub scope: Scope,
    /// The client that it is of, where it was measured through one.
    pub client: Option<String>,
    #[serde(flatten)]
    pub figure: Figure,
    /// By how much it grows with each GiB.
    pub slope: f64,
    pub floor: f64,
    pub cap: Option<f64>,
    /// While credit lasts: growth with each GiB, and how many GiB of transfer each GiB of size is credited.
    pub burst: Option<Burst>,
    /// It is bought by itself, from `floor` up to the value.
    pub is_bought: bool,
    /// At least this much; what comes above it is the provider's choice.
    pub is_least: bool,
    /// It begins with this much and doubles in so many minutes, as far as it is asked for.
    pub doubles_minutes: Option<f64>,
    /// With how many nodes it was measured.
    pub clients: Option<f64>,
}

impl Price {
    /// Whether it is one that a node can be ranked by: an hour for nothing is paid elsewhere, as that of a block of capacity.
    pub fn costs(&self) -> bool {
        self.of != Charge::Hour || self.figure.value.likely > 0.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    pub slope: f64,
    pub credit_gib_per_gib: f64,
}

impl Limit {
    /// What it is for a size.
    pub fn at(&self, gib: f64) -> Range {
        self.figure.value.map(|value| self.clamp(value + self.slope * gib))
    }

    /// What it is while credit lasts.
    pub fn burst_at(&self, gib: f64) -> Option<Range> {
        let burst = self.burst?;
        Some(self.figure.value.map(|value| self.clamp(value + burst.slope * gib)))
    }

    /// Whether it is what so many nodes drew through a client, and no limit by itself.
    pub fn is_supply(&self) -> bool {
        let is_measured = self.figure.origin.layer == Layer::Measured;
        is_measured && self.of == Of::Bandwidth && self.client.is_some() && self.clients.is_some()
    }

    fn clamp(&self, value: f64) -> f64 {
        let value = value.max(self.floor);
        self.cap.map_or(value, |cap| value.min(cap))
    }
}

/// A machine.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    pub id: String,
    pub provider: String,
    /// 0 of a node that only stores.
    pub accelerators: u32,
    pub accelerator: String,
    pub cores: f64,
    pub region: String,
    pub prices: Vec<Price>,
    pub limits: Vec<Limit>,
}

/// How services are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    Rest,
    Fuse,
    Nfs,
    Smb,
    Native,
    Disk,
    /// A copy to disks before the job.
    Copy,
    /// Stoker's own mount.
    Stoker,
    /// A file system on the nodes' own disks, for as long as the job lasts.
    Ondemand,
}

pub const METHODS: [(&str, Method); 9] = [
    ("rest", Method::Rest),
    ("fuse", Method::Fuse),
    ("nfs", Method::Nfs),
    ("smb", Method::Smb),
    ("native", Method::Native),
    ("disk", Method::Disk),
    ("copy", Method::Copy),
    ("stoker", Method::Stoker),
    ("ondemand", Method::Ondemand),
];

/// What a program may want of files beyond reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    Posix,
    Locking,
    SharedWrites,
}

pub const NEEDS: [(&str, Need); 3] =
    [("posix", Need::Posix), ("locking", Need::Locking), ("shared-writes", Need::SharedWrites)];

/// A program that reads a service.
#[derive(Clone, Debug, Serialize)]
pub struct Client {
    pub id: String,
    pub name: String,
    pub method: Method,
    /// Services that it reads: their ids, or beginnings of ids.
    pub services: BTreeSet<String>,
    /// What its documentation grants.
    pub grants: Vec<Need>,
    pub limits: Vec<Limit>,
    pub observed: Vec<Observed>,
}

/// What somebody measured through a client, of what the listed limits allow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Observed {
    pub service: String,
    /// The experiment that it is of.
    pub case: String,
    #[serde(flatten)]
    pub figure: Figure,
}

impl Service {
    /// The tiers of a price, the smallest amounts first; of the region, or of the one that is meant where none is named.
    pub fn prices(&self, of: Charge, region: Option<&str>) -> Vec<&Price> {
        tiers(&self.prices, of, region.unwrap_or(&self.region))
    }

    /// Its limit in a scope; one that is listed of this client comes first.
    pub fn limit(&self, of: Of, scope: Scope, client: &str) -> Option<&Limit> {
        let is = move |limit: &&Limit| limit.of == of && limit.scope == scope && !limit.is_supply();
        let of_scope = || self.limits.iter().filter(is);
        of_scope()
            .find(|limit| limit.client.as_deref() == Some(client))
            .or_else(|| of_scope().find(|limit| limit.client.is_none()))
    }
}

impl Service {
    /// What somebody drew from it through a client, and with how many nodes. It replaces no listed limit.
    pub fn supply(&self, client: &str) -> Option<(&Limit, f64)> {
        let found = self.limits.iter().find(|limit| limit.is_supply() && limit.client.as_deref() == Some(client))?;
        Some((found, found.clients?))
    }
}

impl Node {
    pub fn limit(&self, of: Of) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.of == of)
    }

    /// An hour of it: in the region, or in the one that its text names first.
    pub fn price(&self, region: Option<&str>) -> Option<&Price> {
        let of = |region: &str| tiers(&self.prices, Charge::Hour, region).first().copied();
        of(region.unwrap_or(&self.region))
    }
}

impl Client {
    pub fn limit(&self, of: Of) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.of == of)
    }

    pub fn reads(&self, service: &Service) -> bool {
        // An overlay may name thousands: only those are looked up that the id may lie below.
        let id = &service.id;
        let above = id.match_indices('.').map(|(end, _)| &id[..end]);
        above.chain([id.as_str()]).any(|above| self.services.contains(above))
    }
}

/// Whether an id is another one or lies below it: `azure.blob.hot` below `azure.blob`.
pub fn is_within(id: &str, above: &str) -> bool {
    id.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn tiers<'a>(prices: &'a [Price], of: Charge, region: &str) -> Vec<&'a Price> {
    let mut tiers: Vec<&Price> = prices.iter().filter(|price| price.of == of && price.region == region).collect();
    tiers.sort_by(|left, right| left.from_gib.total_cmp(&right.from_gib));
    tiers
}
