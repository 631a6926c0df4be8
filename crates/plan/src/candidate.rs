//! Ways to feed a job: each service in each tier, by each client, in the few sizes that can be the best.
//!
//! It judges none. With a price that grows with the size and a speed that grows with it up to a cap, the best size is one
//! of a few: what the data need, what the speed needs, the cap. Invariant: the number of candidates is bounded by the
//! catalogue, not by the demand.

use crate::catalog::quantity::Of;
use crate::catalog::{Catalog, Class, Client, Method, Node, Service};
use crate::demand::Demand;
use crate::nodes::trusted;

/// How many accounts, volumes a node or file systems are worth a look.
pub const UNITS: [u32; 4] = [1, 2, 4, 8];

/// How large a service is bought, and how fast where speed is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// As large as the data, with the speed that is included.
    Data,
    /// As large and fast as the demand needs.
    Speed,
    /// As large and fast as there is.
    Cap,
}

/// Where bytes come from while a job reads.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// From the service, in every epoch.
    Straight,
    /// From volumes of the nodes, to which the data are copied before.
    Disks { origin: &'a Service, copy: &'a Client },
    /// From Stoker's cache on the training nodes' own disks.
    Own,
    /// From Stoker's cache on nodes that are rented for it.
    Rented { node: &'a Node, count: u32 },
    /// From a file system over the nodes' own disks, to which the data are copied before.
    Ondemand { copy: &'a Client },
}

#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// What is read; with [`Way::Own`], [`Way::Rented`] and [`Way::Ondemand`], where the data lie.
    pub service: &'a Service,
    pub client: &'a Client,
    pub units: u32,
    pub size: Size,
    pub way: Way<'a>,
}

impl Candidate<'_> {
    /// A name that tells it from all others.
    pub fn id(&self) -> String {
        let (service, client) = (&self.service.id, &self.client.id);
        let units = if self.units > 1 { format!("x{}", self.units) } else { String::new() };
        let size = match self.size {
            Size::Data => "",
            Size::Speed => "/sized-for-speed",
            Size::Cap => "/largest",
        };
        match self.way {
            Way::Straight => format!("{service}{units}/{client}{size}"),
            Way::Disks { origin, .. } => format!("{service}{units}/{client}{size}/from-{}", origin.id),
            Way::Own => format!("stoker/own-disks/{service}{units}"),
            Way::Rented { node, count } => format!("stoker/{count}x{}/{service}{units}", node.id),
            Way::Ondemand { .. } => format!("ondemand/own-disks/{service}{units}"),
        }
    }

    /// What the method grants.
    pub fn lacks(&self, demand: &Demand) -> Option<&'static str> {
        let need = demand.needs.iter().find(|need| !self.client.grants.contains(need))?;
        crate::catalog::NEEDS.iter().find(|(_, known)| known == need).map(|(word, _)| *word)
    }
}

/// All of a catalogue.
pub fn all<'a>(catalog: &'a Catalog, demand: &Demand) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for service in &catalog.services {
        for client in catalog.clients.iter().filter(|client| client.reads(service)) {
            match (service.class, client.method) {
                (Class::Disk, Method::Disk) => disks(catalog, service, client, &mut found),
                (_, Method::Stoker) => stoker(catalog, service, client, demand, &mut found),
                (_, Method::Copy | Method::Disk | Method::Ondemand) => {}
                _ => straight(service, client, &mut found),
            }
        }
        if service.class == Class::Object {
            ondemand(catalog, service, &mut found);
        }
    }
    found
}

fn straight<'a>(service: &'a Service, client: &'a Client, found: &mut Vec<Candidate<'a>>) {
    let sizes: &[Size] = match grows(service) {
        true => &[Size::Data, Size::Speed, Size::Cap],
        false => &[Size::Data],
    };
    for (units, size) in UNITS.iter().flat_map(|units| sizes.iter().map(move |size| (*units, *size))) {
        found.push(Candidate { service, client, units, size, way: Way::Straight });
    }
}

/// Whether more speed is to be had for a larger size, or bought.
fn grows(service: &Service) -> bool {
    service.limits.iter().any(|limit| limit.slope > 0.0 || limit.is_bought)
}

fn disks<'a>(catalog: &'a Catalog, service: &'a Service, client: &'a Client, found: &mut Vec<Candidate<'a>>) {
    for (origin, copy) in origins(catalog, &service.provider) {
        for units in UNITS {
            for size in [Size::Data, Size::Speed, Size::Cap] {
                if size == Size::Data || grows(service) {
                    found.push(Candidate { service, client, units, size, way: Way::Disks { origin, copy } });
                }
            }
        }
    }
}

/// Where a provider keeps objects, and who copies them.
fn origins<'a>(catalog: &'a Catalog, provider: &str) -> Vec<(&'a Service, &'a Client)> {
    let of_provider = |service: &&Service| service.provider == provider && service.class == Class::Object;
    let copies = |service: &'a Service| {
        let copy = catalog.clients.iter().find(|client| client.method == Method::Copy && client.reads(service));
        copy.map(|copy| (service, copy))
    };
    catalog.services.iter().filter(of_provider).filter_map(copies).collect()
}

fn ondemand<'a>(catalog: &'a Catalog, service: &'a Service, found: &mut Vec<Candidate<'a>>) {
    let Some(client) = catalog.clients.iter().find(|client| client.method == Method::Ondemand) else { return };
    for (origin, copy) in origins(catalog, &service.provider) {
        if origin.id == service.id {
            let size = Size::Data;
            found.extend([1, 4].map(|units| Candidate { service, client, units, size, way: Way::Ondemand { copy } }));
        }
    }
}

fn stoker<'a>(
    catalog: &'a Catalog,
    service: &'a Service,
    client: &'a Client,
    demand: &Demand,
    found: &mut Vec<Candidate<'a>>,
) {
    let size = Size::Data;
    found.extend(UNITS.map(|units| Candidate { service, client, units, size, way: Way::Own }));
    let stores = |node: &&Node| node.provider == service.provider && node.accelerators == 0;
    for node in catalog.nodes.iter().filter(stores) {
        for count in rented(node, demand) {
            found.extend([1, 4].map(|units| Candidate {
                service,
                client,
                units,
                size,
                way: Way::Rented { node, count },
            }));
        }
    }
}

/// Cache nodes that are worth a look: one; those that hold half of the data and all of them; those whose network, and whose
/// disks, carry the demand.
fn rented(node: &Node, demand: &Demand) -> Vec<u32> {
    let has = |of: Of| trusted(node.limit(of), demand).map(|limit| limit.figure.value.likely);
    let gib = demand.dataset_bytes / crate::catalog::quantity::GIB;
    let needed = |wanted: f64, each: Option<f64>| each.map(|each| (wanted / each).ceil());
    let counts = [
        Some(1.0),
        needed(gib / 2.0, has(Of::LocalGib)),
        needed(gib, has(Of::LocalGib)),
        needed(demand.mb(), has(Of::Network)),
        needed(demand.mb(), has(Of::LocalBandwidth)),
    ];
    let mut counts: Vec<u32> = counts
        .into_iter()
        .flatten()
        .filter(|count| (1.0..=10_000.0).contains(count))
        .map(|count| count as u32)
        .collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}
