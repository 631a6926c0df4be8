//! The nodes that train: which, how many, and what each takes in.
//!
//! Invariant: whole nodes are paid; what is unknown of one is a reason, not a number.

use crate::catalog::quantity::{Charge, Of};
use crate::catalog::{Catalog, Limit, Node, Price};
use crate::demand::Demand;
use crate::luck::Luck;

/// Nodes of one provider that hold the accelerators of a demand.
#[derive(Clone, Debug)]
pub struct Nodes<'a> {
    pub node: &'a Node,
    pub count: f64,
    /// An hour of one of them.
    pub price: Option<&'a Price>,
}

/// The cheapest nodes of a provider for this demand, or why there are none.
pub fn of_provider<'a>(catalog: &'a Catalog, provider: &str, demand: &Demand) -> Result<Nodes<'a>, String> {
    all_of_provider(catalog, provider, demand).into_iter().next().ok_or_else(|| match &demand.node {
        Some(id) => format!("{provider} has no node {id}"),
        None => format!("no node of {provider} with {} is known", demand.accelerator),
    })
}

/// All nodes of a provider for this demand: those of which everything is known first, and of these the cheapest.
pub fn all_of_provider<'a>(catalog: &'a Catalog, provider: &str, demand: &Demand) -> Vec<Nodes<'a>> {
    let fits = |node: &&Node| {
        node.provider == provider
            && node.accelerators > 0
            && match &demand.node {
                Some(id) => node.id == *id,
                None => is_called(&node.accelerator, &demand.accelerator),
            }
    };
    let mut all: Vec<Nodes> = catalog.nodes.iter().filter(fits).map(|node| nodes(node, demand)).collect();
    let key = |nodes: &Nodes| {
        let usd = nodes.usd_hour(demand, Luck::LIKELY).map_or(f64::INFINITY, |usd| usd * nodes.count);
        let is_unknown = trusted(nodes.node.limit(Of::Network), demand).is_none();
        (u8::from(usd.is_infinite()) + u8::from(is_unknown), usd)
    };
    all.sort_by(|left, right| {
        let (left, right) = (key(left), key(right));
        left.0.cmp(&right.0).then(left.1.total_cmp(&right.1))
    });
    all
}

fn nodes<'a>(node: &'a Node, demand: &Demand) -> Nodes<'a> {
    of_count(node, (f64::from(demand.accelerators) / f64::from(node.accelerators)).ceil(), demand)
}

/// So many nodes of a kind, at the price of the list where it may decide.
pub fn of_count<'a>(node: &'a Node, count: f64, demand: &Demand) -> Nodes<'a> {
    let price = node.price(demand.region.as_deref()).filter(|price| price.figure.is_trusted(demand.unverified));
    Nodes { node, count, price }
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
            reasons.push(match (&demand.region, of_node) {
                (Some(region), true) => format!("no verified price of {id} in {region}"),
                _ => format!("no verified price of {id}"),
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
