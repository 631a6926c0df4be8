//! All candidates of a demand, ranked and explained.
//!
//! Layout: `known` whether a demand can be meant, `variant` on which nodes, in which region and with which copy of the data, `offer` one candidate in
//! figures, `sense` what changes the answer. Ranked is by what a run costs; offers whose ranges
//! overlap with the best are a tie and say so. Invariants: the same demand and catalogue give the same plan; what can't be
//! ranked is listed with every reason.

mod known;
mod offer;
mod sense;
mod variant;

pub use known::priced;
pub use offer::{Offer, Unranked};
pub use sense::{BreakEven, Sensitivity};

use std::collections::HashSet;
use std::hash::Hash;

use serde::Serialize;

use crate::candidate::{self, Candidate};
use crate::catalog::Catalog;
use crate::date::Date;
use crate::demand::Demand;
use crate::outcome::Scene;
use crate::wrong::Result;

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
const NOT_MODELLED: [&str; 8] = [
    "stragglers and barriers (`stoker bench simulate` has them)",
    "whether a quota is granted and nodes can be had",
    "the first upload of the data",
    "the room that checkpoints take",
    "taxes, support plans and the people who run it",
    "how request rates grow where a provider tells no pace (S3: the least that it promises is planned with)",
    "changes to the data while a job runs",
    "disks that write slower than they read, where their nodes list no write-bandwidth",
];

/// How many offers warnings are of.
const CLOSER: usize = 5;

/// An offer, and what it was judged by.
struct Judged<'a> {
    offer: Offer,
    candidate: Candidate<'a>,
    scene: Scene<'a>,
}

impl Plan {
    pub fn of(catalog: &Catalog, demand: &Demand, today: Date) -> Result<Plan> {
        demand.check()?;
        known::check(catalog, demand)?;
        let variant::Variants { all: variants, mut unranked, warnings } = variant::all(catalog, demand);
        unranked.extend(variant::unread(catalog));
        let (mut judged, mut candidates) = (Vec::new(), 0);
        for variant in &variants {
            let scene = Scene { catalog, demand: &variant.demand, evidence: crate::evidence::Evidence::All };
            let all = candidate::all(catalog, &variant.demand);
            for candidate in all.into_iter().filter(|candidate| variant.is_of(candidate.service)) {
                candidates += 1;
                let id = candidate.id() + &variant.suffix;
                match offer::judge(scene, &candidate, id.clone()) {
                    Ok(offer) => judged.push(Judged { offer, candidate, scene }),
                    Err(reasons) => unranked.push(Unranked { id, reasons }),
                }
            }
        }
        fewest(&mut judged);
        once(&mut unranked);
        rank(&mut judged);
        sense::chances(&mut judged);
        let sensitivity = judged.first().map_or(Vec::new(), |first| sense::sensitivity(first.scene, &first.candidate));
        let offers: Vec<Offer> = judged.into_iter().map(|judged| judged.offer).collect();
        let mut plan = Plan {
            demand: demand.clone(),
            demand_mb_per_s: demand.mb(),
            ideal_hours: demand.ideal_hours(),
            candidates,
            pareto: pareto(offers.iter()),
            ties: offers.iter().skip(1).filter(|offer| offer.is_tie).map(|offer| offer.id.clone()).collect(),
            break_even: sense::break_even(&offers),
            oldest_price: offers.iter().filter_map(|offer| offer.oldest_price).min(),
            offers,
            unranked,
            sensitivity,
            warnings,
            not_modelled: NOT_MODELLED.to_vec(),
        };
        plan.warn(today);
        Ok(plan)
    }

    fn warn(&mut self, today: Date) {
        if let Some(date) = self.oldest_price.filter(|date| today.days() - date.days() > OLD_DAYS) {
            self.warnings.push(format!("the oldest price of all offers is of {date}: import a newer list"));
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
fn fewest(judged: &mut Vec<Judged>) {
    first_of(judged, |Judged { offer, candidate, scene }| {
        let one = Candidate { units: 1, size: candidate::Size::Data, ..*candidate };
        let (usd, hours) = (offer.total_usd.likely.to_bits(), offer.hours.likely.to_bits());
        (one.id(), offer.node.clone(), scene.demand.data.replica, usd, hours)
    });
}

/// Keep the first of those that have the same key. A catalogue may make a hundred thousand of them: none is compared with
/// all others.
fn first_of<T, K: Hash + Eq>(all: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut kept = HashSet::new();
    all.retain(|one| kept.insert(key(one)));
}

/// By what a run costs; what may be as cheap as the first is a tie.
fn rank(judged: &mut [Judged]) {
    judged.sort_by(|Judged { offer: left, .. }, Judged { offer: right, .. }| {
        left.total_usd
            .likely
            .total_cmp(&right.total_usd.likely)
            .then(left.hours.likely.total_cmp(&right.hours.likely))
            .then(left.id.cmp(&right.id))
    });
    let best = judged.first().map(|first| first.offer.total_usd);
    for (index, judged) in judged.iter_mut().enumerate() {
        judged.offer.rank = index + 1;
        judged.offer.is_tie = index > 0 && best.is_some_and(|best| best.overlaps(judged.offer.total_usd));
    }
    let any = judged.iter().any(|judged| judged.offer.is_tie);
    judged.iter_mut().take(1).for_each(|first| first.offer.is_tie = any);
}

/// One line for all sizes that lack the same.
fn once(unranked: &mut Vec<Unranked>) {
    first_of(unranked, |unranked| unranked.reasons.clone());
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use super::*;

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// A key that counts how often it is compared.
    struct Counted(u64);

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Counted) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted {}

    #[test]
    fn of_many_offers_none_is_compared_with_all_others() {
        let mut all: Vec<u64> = (0..20_000).collect();
        first_of(&mut all, |one| Counted(one / 2));
        assert!(all.iter().copied().eq((0..20_000).step_by(2)));
        assert!((10_000..40_000).contains(&COMPARED.get()), "{}", COMPARED.get());
    }
}
