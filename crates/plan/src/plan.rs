//! All candidates of a demand, ranked and explained.
//!
//! Layout: `offer` one candidate in figures, `sense` what changes the answer. Ranked is by what a run costs; offers whose ranges
//! overlap with the best are a tie and say so. Invariants: the same demand and catalogue give the same plan; what can't be
//! ranked is listed with every reason.

mod offer;
mod sense;

pub use offer::{Offer, Unranked};
pub use sense::{BreakEven, Sensitivity};

use serde::Serialize;

use crate::candidate;
use crate::catalog::Catalog;
use crate::date::Date;
use crate::demand::Demand;
use crate::outcome::Scene;
use crate::wrong::{Result, Wrong};

/// Prices that are older than this many days are warned of.
pub use crate::catalog::check::OLD_DAYS;

#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub demand: Demand,
    /// What all accelerators ask for, MB/s, and hours of the run if none ever waits.
    pub demand_mb_per_s: f64,
    pub ideal_hours: f64,
    /// How many ways were looked at.
    pub candidates: usize,
    pub offers: Vec<Offer>,
    pub unranked: Vec<Unranked>,
    /// Offers than which none is both cheaper and faster, the fastest first.
    pub pareto: Vec<String>,
    /// Those that may be as cheap as the first.
    pub ties: Vec<String>,
    pub break_even: Vec<BreakEven>,
    pub sensitivity: Vec<Sensitivity>,
    pub oldest_price: Option<Date>,
    pub warnings: Vec<String>,
    pub not_modelled: Vec<&'static str>,
}

/// What nobody should take from a plan.
const NOT_MODELLED: [&str; 6] = [
    "stragglers and barriers (`stoker bench simulate` has them)",
    "whether a quota is granted and nodes can be had",
    "the first upload of the data",
    "taxes, support plans and the people who run it",
    "prices of request rates that a provider throttles for a while",
    "how long a copy in another zone lags behind",
];

/// How many offers are looked at more closely.
const CLOSER: usize = 5;

impl Plan {
    pub fn of(catalog: &Catalog, demand: &Demand, today: Date) -> Result<Plan> {
        demand.check()?;
        known(catalog, demand)?;
        let scene = Scene { catalog, demand, evidence: crate::evidence::Evidence::All };
        let candidates = candidate::all(catalog, demand);
        let (mut offers, mut unranked) = (Vec::new(), Vec::new());
        for candidate in &candidates {
            match offer::judge(scene, candidate) {
                Ok(offer) => offers.push((offer, *candidate)),
                Err(reasons) => unranked.push(Unranked { id: candidate.id(), reasons }),
            }
        }
        fewest(&mut offers);
        once(&mut unranked);
        offers.sort_by(|(left, _), (right, _)| {
            left.total_usd
                .likely
                .total_cmp(&right.total_usd.likely)
                .then(left.hours.likely.total_cmp(&right.hours.likely))
                .then(left.id.cmp(&right.id))
        });
        for (index, (offer, _)) in offers.iter_mut().enumerate() {
            offer.rank = index + 1;
        }
        sense::chances(scene, &mut offers);
        let best = offers.first().map(|(offer, _)| offer.total_usd);
        let ties = offers.iter().skip(1).filter(|(offer, _)| best.is_some_and(|best| best.overlaps(offer.total_usd)));
        let ties: Vec<String> = ties.map(|(offer, _)| offer.id.clone()).collect();
        for (offer, _) in &mut offers {
            offer.is_tie = ties.contains(&offer.id) || offer.rank == 1 && !ties.is_empty();
        }
        let sensitivity = offers.first().map_or(Vec::new(), |(_, candidate)| sense::sensitivity(scene, candidate));
        let break_even = sense::break_even(&offers.iter().map(|(offer, _)| offer).take(CLOSER * 4).collect::<Vec<_>>());
        let oldest_price = offers.iter().take(CLOSER).filter_map(|(offer, _)| offer.oldest_price).min();
        let mut plan = Plan {
            demand: demand.clone(),
            demand_mb_per_s: demand.mb(),
            ideal_hours: demand.ideal_hours(),
            candidates: candidates.len(),
            pareto: pareto(offers.iter().map(|(offer, _)| offer)),
            offers: offers.into_iter().map(|(offer, _)| offer).collect(),
            unranked,
            ties,
            break_even,
            sensitivity,
            oldest_price,
            warnings: Vec::new(),
            not_modelled: NOT_MODELLED.to_vec(),
        };
        plan.warn(today);
        Ok(plan)
    }

    fn warn(&mut self, today: Date) {
        if let Some(date) = self.oldest_price.filter(|date| today.days() - date.days() > OLD_DAYS) {
            self.warnings.push(format!("the oldest price behind the first offers is of {date}: import a newer list"));
        }
        if self.demand.accelerator_usd_hour.is_none() {
            self.warnings
                .push("accelerators at list prices, which decide most: give your own with --accelerator-price".into());
        }
        if self.offers.iter().take(CLOSER).any(|offer| offer.undated_prices) {
            self.warnings.push("some prices behind the first offers have no date".into());
        }
        if self.offers.iter().take(CLOSER).any(|offer| offer.extrapolated) {
            self.warnings
                .push("a measured speed was carried to more nodes than it was measured with: extrapolated".into());
        }
        if self.demand.unverified {
            self.warnings.push("unverified figures decide, as was asked for".into());
        }
    }
}

/// More accounts or a larger size that change nothing are no offer of their own.
fn fewest(offers: &mut Vec<(Offer, candidate::Candidate)>) {
    let mut kept: Vec<(String, u64, u64)> = Vec::new();
    offers.retain(|(offer, candidate)| {
        let one = candidate::Candidate { units: 1, size: candidate::Size::Data, ..*candidate };
        let key = (one.id(), offer.total_usd.likely.to_bits(), offer.hours.likely.to_bits());
        let is_new = !kept.contains(&key);
        kept.push(key);
        is_new
    });
}

/// One line for all sizes that lack the same.
fn once(unranked: &mut Vec<Unranked>) {
    let mut kept: Vec<Vec<String>> = Vec::new();
    unranked.retain(|unranked| {
        let is_new = !kept.contains(&unranked.reasons);
        kept.push(unranked.reasons.clone());
        is_new
    });
}

/// Whether the words of a demand are those of the catalogue.
fn known(catalog: &Catalog, demand: &Demand) -> Result<()> {
    if catalog.services.is_empty() {
        let hint = "the shipped catalogue, or one of your own with services";
        return Err(Wrong::new("there is no service in it", "the catalogue", "service", hint));
    }
    if let Some(region) = &demand.region {
        let of_services = catalog.services.iter().flat_map(|service| &service.prices);
        let mut regions: Vec<&str> = of_services
            .chain(catalog.nodes.iter().flat_map(|node| &node.prices))
            .map(|price| price.region.as_str())
            .collect();
        regions.sort_unstable();
        regions.dedup();
        if !regions.contains(&region.as_str()) {
            return Err(Wrong::new(
                format!("no price of a region `{region}` is known"),
                "the demand",
                "region",
                regions.join(", "),
            ));
        }
    }
    if let Some(id) = demand.node.as_ref().filter(|id| !catalog.nodes.iter().any(|node| node.id == **id)) {
        let ids: Vec<&str> =
            catalog.nodes.iter().filter(|node| node.accelerators > 0).map(|node| node.id.as_str()).collect();
        return Err(Wrong::new(format!("no node `{id}` is known"), "the demand", "node", ids.join(", ")));
    }
    let is_called = |node: &&crate::catalog::Node| crate::nodes::is_called(&node.accelerator, &demand.accelerator);
    if demand.node.is_none() && !catalog.nodes.iter().any(|node| node.accelerators > 0 && is_called(&node)) {
        let mut names: Vec<&str> =
            catalog.nodes.iter().map(|node| node.accelerator.as_str()).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        return Err(Wrong::new(
            format!("no node with `{}` is known", demand.accelerator),
            "the demand",
            "accelerator",
            names.join(", "),
        ));
    }
    Ok(())
}

/// Offers than which none is both cheaper and faster.
fn pareto<'a>(offers: impl Iterator<Item = &'a Offer>) -> Vec<String> {
    let mut offers: Vec<&Offer> = offers.collect();
    offers.sort_by(|left, right| {
        left.hours
            .likely
            .total_cmp(&right.hours.likely)
            .then(left.total_usd.likely.total_cmp(&right.total_usd.likely))
            .then(left.rank.cmp(&right.rank))
    });
    let mut cheapest = f64::INFINITY;
    offers.retain(|offer| {
        let is_cheaper = offer.total_usd.likely < cheapest;
        cheapest = cheapest.min(offer.total_usd.likely);
        is_cheaper
    });
    offers.into_iter().map(|offer| offer.id.clone()).collect()
}
