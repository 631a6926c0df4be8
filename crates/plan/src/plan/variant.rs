//! The same demand on other nodes of a provider, and with a copy of the data in their region.
//!
//! Invariant: of one provider's nodes, the cheapest stand in offers without a name, all others with theirs.

use super::Unranked;
use crate::catalog::{Catalog, Service};
use crate::demand::Demand;
use crate::nodes::all_of_provider;

pub(super) struct Variant {
    pub demand: Demand,
    /// What its offers have behind their names.
    pub suffix: String,
    /// Of which provider's services; None: of all.
    provider: Option<String>,
}

impl Variant {
    pub fn is_of(&self, service: &Service) -> bool {
        self.provider.as_ref().is_none_or(|provider| *provider == service.provider)
            && (!self.demand.data.replica || self.demand.away(service).is_some())
    }
}

/// All of them, and the nodes that no offer can be made on.
pub(super) fn all(catalog: &Catalog, demand: &Demand) -> (Vec<Variant>, Vec<Unranked>) {
    let mut unranked = Vec::new();
    let as_asked = Variant { demand: demand.clone(), suffix: String::new(), provider: None };
    let mut variants = vec![as_asked];
    let mut providers: Vec<&str> = catalog.nodes.iter().map(|node| node.provider.as_str()).collect();
    providers.sort_unstable();
    providers.dedup();
    for provider in providers {
        for nodes in all_of_provider(catalog, provider, demand).iter().skip(1) {
            let (id, reasons) = (&nodes.node.id, nodes.reasons(demand));
            if !reasons.is_empty() {
                unranked.push(Unranked { id: id.clone(), reasons });
                continue;
            }
            let demand = Demand { node: Some(id.clone()), ..demand.clone() };
            variants.push(Variant { demand, suffix: format!("@{id}"), provider: Some(provider.to_owned()) });
        }
    }
    if demand.data.region().is_some() {
        let replicas = variants.iter().map(|variant| {
            let mut demand = variant.demand.clone();
            demand.data.replica = true;
            let suffix = format!("+replica{}", variant.suffix);
            Variant { demand, suffix, provider: variant.provider.clone() }
        });
        let replicas: Vec<Variant> = replicas.collect();
        variants.extend(replicas);
    }
    (variants, unranked)
}

/// Services that are in no candidate, as nobody says how they are read.
pub(super) fn unread(catalog: &Catalog) -> Vec<Unranked> {
    let is_unread = |service: &&Service| !catalog.clients.iter().any(|client| client.reads(service));
    let reason =
        |service: &Service| format!("no client reads {}: name it among the services of a [[client]]", service.id);
    let unread = catalog.services.iter().filter(is_unread);
    unread.map(|service| Unranked { id: service.id.clone(), reasons: vec![reason(service)] }).collect()
}
