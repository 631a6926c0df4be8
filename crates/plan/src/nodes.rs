//! The nodes that train: which, how many, and what each takes in.
//!
//! Invariants: whole nodes are paid; nodes are in one region, which is told; what is unknown of one is a reason, not a number.

use crate::catalog::quantity::{Charge, Of};
use crate::catalog::{Catalog, Limit, Node, Price, Service};
use crate::demand::Demand;
use crate::luck::Luck;

/// Nodes of one provider that hold the accelerators of a demand.
#[derive(Clone, Debug)]
pub struct Nodes<'a> {
    pub node: &'a Node,
    pub count: f64,
    /// The region that they are in.
    pub home: &'a str,
    /// An hour of one of them, there.
    pub price: Option<&'a Price>,
}

/// The cheapest nodes of a provider for this demand, or why there are none.
pub fn of_provider<'a>(catalog: &'a Catalog, provider: &str, demand: &'a Demand) -> Result<Nodes<'a>, String> {
    all_of_provider(catalog, provider, demand).into_iter().next().ok_or_else(|| match &demand.node {
        Some(id) => format!("{provider} has no node {id}"),
        None => format!("no node of {provider} with {} is known", demand.accelerator),
    })
}

/// All nodes of a provider for this demand: those of which everything is known first, beside storage, and of these the cheapest.
pub fn all_of_provider<'a>(catalog: &'a Catalog, provider: &str, demand: &'a Demand) -> Vec<Nodes<'a>> {
    let fits = |node: &&Node| {
        node.provider == provider
            && node.accelerators > 0
            && match &demand.node {
                Some(id) => node.id == *id,
                None => is_called(&node.accelerator, &demand.accelerator),
            }
    };
    let stored = if demand.region.is_some() { Vec::new() } else { stored(catalog, provider, demand) };
    let at_home = |node| nodes(node, demand, home(node, demand, &stored));
    let mut all: Vec<Nodes> = catalog.nodes.iter().filter(fits).map(at_home).collect();
    let key = |nodes: &Nodes| {
        let usd = nodes.usd_hour(demand, Luck::LIKELY).map_or(f64::INFINITY, |usd| usd * nodes.count);
        let is_unknown = trusted(nodes.node.limit(Of::Network), demand).is_none();
        // Beside them, nothing is known to be kept.
        let is_alone = demand.region.is_none() && !stored.contains(&nodes.home);
        (u8::from(usd.is_infinite()) + u8::from(is_unknown) + u8::from(is_alone), usd)
    };
    all.sort_by(|left, right| {
        let (left, right) = (key(left), key(right));
        left.0.cmp(&right.0).then(left.1.total_cmp(&right.1))
    });
    all
}

fn nodes<'a>(node: &'a Node, demand: &Demand, home: &'a str) -> Nodes<'a> {
    of_count(node, (f64::from(demand.accelerators) / f64::from(node.accelerators)).ceil(), demand, home)
}

/// So many nodes of a kind in a region, at the price of the list where it may decide.
pub fn of_count<'a>(node: &'a Node, count: f64, demand: &Demand, home: &'a str) -> Nodes<'a> {
    let price = node.price(Some(home)).filter(|price| decides(price, demand));
    Nodes { node, count, home, price }
}

/// Whether the listed price of an hour may decide.
fn decides(price: &Price, demand: &Demand) -> bool {
    price.figure.is_trusted(demand.unverified) && price.costs()
}

/// Regions in which a provider keeps data at known prices: all that some service of it charges. Most services first.
pub fn stored<'a>(catalog: &'a Catalog, provider: &str, demand: &Demand) -> Vec<&'a str> {
    let of_provider = || catalog.services.iter().filter(|service| service.provider == provider);
    let is_priced = |service: &Service, region: &str| {
        let is_trusted = |price: &&Price| price.figure.is_trusted(demand.unverified);
        let has = |charge: &Charge| {
            let mut tiers = service.prices(*charge, Some(region)).into_iter();
            tiers.next().is_some_and(|price| is_trusted(&price)) && tiers.all(|price| is_trusted(&price))
        };
        service.charges.iter().all(has)
    };
    let mut regions: Vec<&str> = of_provider()
        .flat_map(|service| &service.prices)
        .filter(|price| price.of == Charge::Capacity)
        .map(|price| price.region.as_str())
        .collect();
    regions.sort_unstable();
    regions.dedup();
    let count = |region: &str| of_provider().filter(|service| is_priced(service, region)).count();
    let mut counted: Vec<(usize, &str)> = regions.into_iter().map(|region| (count(region), region)).collect();
    counted.retain(|(count, _)| *count > 0);
    counted.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(right.1)));
    counted.into_iter().map(|(_, region)| region).collect()
}

/// Where nodes are that no region is named of: where an hour of one costs the least beside data that can be kept there. Whoever
/// has a contract has it there. Bytes between regions are never free, so that one region stands for all.
fn home<'a>(node: &'a Node, demand: &'a Demand, stored: &[&'a str]) -> &'a str {
    if let Some(region) = &demand.region {
        return region;
    }
    let hour = |region: &&'a str| {
        let price = node.price(Some(region)).filter(|price| decides(price, demand))?;
        Some((price.figure.value.likely, *region))
    };
    let cheapest = stored.iter().filter_map(hour).min_by(|left, right| left.0.total_cmp(&right.0));
    let contract = stored.first().copied().filter(|_| demand.accelerator_usd_hour.is_some());
    cheapest.map(|(_, region)| region).or(contract).unwrap_or(&node.region)
}

/// `V100` is what V100-32GB is called as well.
pub fn is_called(full: &str, name: &str) -> bool {
    let (full, name) = (full.to_ascii_lowercase(), name.to_ascii_lowercase());
    full.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// A limit that may decide.
pub fn trusted<'a>(limit: Option<&'a Limit>, demand: &Demand) -> Option<&'a Limit> {
    limit.filter(|limit| limit.figure.is_trusted(demand.unverified))
}

impl Nodes<'_> {
    /// An hour of one node: by the user's contract, else by the list.
    pub fn usd_hour(&self, demand: &Demand, luck: Luck) -> Option<f64> {
        match demand.accelerator_usd_hour {
            Some(usd) => Some(usd * f64::from(self.node.accelerators)),
            None => self.price.map(|price| price.figure.value.at(luck.place(&["price", &self.node.id]))),
        }
    }

    /// A figure of one node.
    pub fn has(&self, of: Of, demand: &Demand, luck: Luck) -> Option<f64> {
        let limit = trusted(self.node.limit(of), demand)?;
        Some(limit.figure.value.at(luck.place(&[&self.node.id, of.name()])))
    }

    /// Which of these figures is not known, or not verified.
    pub fn lacks(&self, all: &[Of], demand: &Demand) -> Option<String> {
        let lacks = all.iter().find(|of| trusted(self.node.limit(**of), demand).is_none())?;
        Some(format!("no verified figure of {} of {}", lacks.name(), self.node.id))
    }

    /// Why these nodes can't be planned with.
    pub fn reasons(&self, demand: &Demand) -> Vec<String> {
        let mut reasons = Vec::new();
        let id = &self.node.id;
        if self.usd_hour(demand, Luck::LIKELY).is_none() {
            let of_node = self.node.prices.iter().any(|price| price.of == Charge::Hour);
            reasons.push(match of_node {
                true => format!("no verified price of {id} in {}", self.home),
                false => format!("no verified price of {id}"),
            });
        }
        if self.has(Of::Network, demand, Luck::LIKELY).is_none() {
            reasons.push(format!("no verified network limit of {id}"));
        }
        if demand.cpu_seconds > 0.0 && self.node.cores <= 0.0 {
            reasons.push(format!("it is not known how many cores {id} has"));
        }
        reasons
    }
}
