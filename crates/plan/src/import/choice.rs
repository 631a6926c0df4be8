//! Which of several prices of one thing holds.
//!
//! Invariants: of one product the newest that has begun; prices of two products that differ are a conflict, which is named and
//! left out, never a guess; tiers of two products are never put together.

use std::collections::BTreeMap;

use super::Found;
use crate::catalog::quantity::Charge;

/// What holds of all that was found, and what contradicts itself.
pub(super) fn of(found: Vec<Found>) -> (Vec<Found>, Vec<String>) {
    let mut groups: BTreeMap<(String, Charge, String), BTreeMap<String, Vec<Found>>> = BTreeMap::new();
    for found in found {
        let key = (found.id.clone(), found.charge, found.region.clone());
        groups.entry(key).or_default().entry(found.sku.clone()).or_default().push(found);
    }
    let (mut chosen, mut conflicts) = (Vec::new(), Vec::new());
    for ((id, charge, region), products) in groups {
        let lists: Result<Vec<Vec<Found>>, String> = products.into_values().map(of_product).collect();
        match lists.and_then(one) {
            Ok(list) => chosen.extend(list),
            Err(between) => conflicts.push(format!("{} of {id} in {region}: {between}", charge.name())),
        }
    }
    (chosen, conflicts)
}

/// The tiers of one product, each at its newest price.
fn of_product(mut prices: Vec<Found>) -> Result<Vec<Found>, String> {
    prices.sort_by(|left, right| left.from.total_cmp(&right.from).then(left.date.cmp(&right.date)));
    let mut tiers: Vec<Found> = Vec::new();
    for price in prices {
        match tiers.last_mut() {
            Some(last) if last.from == price.from && last.date == price.date && last.usd != price.usd => {
                return Err(between(last, &price));
            }
            Some(last) if last.from == price.from => *last = price,
            _ => tiers.push(price),
        }
    }
    Ok(tiered(tiers))
}

/// A catalogue has tiers of what is held. Of requests and bytes the first that costs something stands for all: what is free
/// of them each month is little.
fn tiered(tiers: Vec<Found>) -> Vec<Found> {
    match tiers.first() {
        Some(first) if first.charge != Charge::Capacity => {
            let paid = tiers.iter().find(|tier| tier.usd > 0.0).unwrap_or(first);
            vec![Found { from: 0.0, ..paid.clone() }]
        }
        _ => tiers,
    }
}

/// The list that all products have, the first of them.
fn one(lists: Vec<Vec<Found>>) -> Result<Vec<Found>, String> {
    let mut lists = lists.into_iter();
    let first = lists.next().unwrap_or_default();
    let same = |list: &[Found]| {
        let tiers = |list: &[Found]| list.iter().map(|tier| (tier.from, tier.usd)).collect::<Vec<_>>();
        tiers(list) == tiers(&first)
    };
    match lists.find(|list| !same(list)) {
        None => Ok(first),
        Some(other) => Err(match (first.first(), other.first()) {
            (Some(left), Some(right)) => between(left, right),
            _ => "no price".to_owned(),
        }),
    }
}

fn between(left: &Found, right: &Found) -> String {
    format!("{} USD ({}) and {} USD ({})", left.usd, left.sku, right.usd, right.sku)
}
