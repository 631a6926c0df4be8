//! The same demand for each provider, on each of its nodes, in one region, and with a copy of the data there.
//!
//! Invariants: of one provider's nodes, the cheapest stand in offers without a name, all others with theirs; a variant has one
//! region for nodes and services, which its demand names.

use super::Unranked;
use crate::catalog::{Catalog, Service};
use crate::demand::Demand;
use crate::nodes::{Nodes, all_of_provider, stored};

pub(super) struct Variant {
    pub demand: Demand,
    /// What its offers have behind their names.
    pub suffix: String,
    /// Of which provider's services.
    provider: String,
}

impl Variant {
    pub fn is_of(&self, service: &Service) -> bool {
        self.provider == service.provider
    }
}

/// All variants, and what none could be made of.
#[derive(Default)]
pub(super) struct Variants {
    pub all: Vec<Variant>,
    pub unranked: Vec<Unranked>,
    /// What is to be known of regions: of which providers nothing can be ranked, as nodes and storage have no prices in one
    /// region; and where nodes of a contract are taken to be.
    pub warnings: Vec<String>,
}

pub(super) fn all(catalog: &Catalog, demand: &Demand) -> Variants {
    let mut variants = Variants::default();
    let of_nodes = catalog.nodes.iter().map(|node| node.provider.as_str());
    let of_services = catalog.services.iter().map(|service| service.provider.as_str());
    let mut providers: Vec<&str> = of_nodes.chain(of_services).collect();
    providers.sort_unstable();
    providers.dedup();
    for provider in providers {
        of_provider(catalog, provider, demand, &mut variants);
    }
    if let Some(region) = demand.data.region() {
        let away = variants.all.iter().filter(|variant| variant.demand.region.as_deref() != Some(region));
        let replicas: Vec<Variant> = away.map(replica).collect();
        variants.all.extend(replicas);
    }
    variants
}

fn of_provider(catalog: &Catalog, provider: &str, demand: &Demand, variants: &mut Variants) {
    let of = |demand: Demand, suffix: String| Variant { demand, suffix, provider: provider.to_owned() };
    let all = all_of_provider(catalog, provider, demand);
    if all.is_empty() {
        variants.all.push(of(demand.clone(), String::new()));
    }
    let stored = stored(catalog, provider, demand);
    // Whoever names a region, or that of the data, reads for each service what is missing there.
    let is_open = demand.region.is_none() && demand.data.region().is_none() && !stored.is_empty();
    let is_apart = |nodes: &Nodes| is_open && nodes.price.is_some() && !stored.contains(&nodes.home);
    for (place, nodes) in all.iter().enumerate() {
        let id = nodes.node.id.clone();
        if is_apart(nodes) {
            let reasons = vec![no_region(nodes, &stored)];
            variants.warnings.extend((place == 0).then(|| format!("{provider}: {}", reasons[0])));
            variants.unranked.push(Unranked { id, reasons });
            continue;
        }
        let reasons = nodes.reasons(demand);
        if place > 0 && !reasons.is_empty() {
            variants.unranked.push(Unranked { id, reasons });
            continue;
        }
        if nodes.price.is_none() && demand.accelerator_usd_hour.is_some() && demand.region.is_none() && place == 0 {
            let home = nodes.home;
            variants.warnings.push(format!(
                "{id} is taken to be in {home}, where storage is priced: no list has it there; --region says otherwise"
            ));
        }
        let suffix = if place == 0 { String::new() } else { format!("@{id}") };
        let (node, region) = (Some(id), Some(nodes.home.to_owned()));
        variants.all.push(of(Demand { node, region, ..demand.clone() }, suffix));
    }
}

/// The same with a copy of the data in the region of the nodes.
fn replica(variant: &Variant) -> Variant {
    let mut demand = variant.demand.clone();
    demand.data.replica = true;
    Variant { demand, suffix: format!("+replica{}", variant.suffix), provider: variant.provider.clone() }
}

/// Which price is missing where, and how it is added.
fn no_region(nodes: &Nodes, stored: &[&str]) -> String {
    let node = nodes.node;
    let mut regions: Vec<&str> = node.prices.iter().map(|price| price.region.as_str()).collect();
    regions.sort_unstable();
    regions.dedup();
    format!(
        "no region has prices of both: {} is priced in {}, storage of {} in {}. Import a price list that has both (`stoker plan catalog import`), lay your own over it (--catalog), or say what the nodes cost you (--accelerator-price)",
        node.id,
        regions.join(", "),
        node.provider,
        stored.join(", ")
    )
}

/// Services that are in no candidate, as nobody says how they are read.
pub(super) fn unread(catalog: &Catalog) -> Vec<Unranked> {
    let is_unread = |service: &&Service| !catalog.clients.iter().any(|client| client.reads(service));
    let reason =
        |service: &Service| format!("no client reads {}: name it among the services of a [[client]]", service.id);
    let unread = catalog.services.iter().filter(is_unread);
    unread.map(|service| Unranked { id: service.id.clone(), reasons: vec![reason(service)] }).collect()
}
