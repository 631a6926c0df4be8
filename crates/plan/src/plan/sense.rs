//! What changes the answer: prices, efficiencies, sizes, and chance within all ranges.
//!
//! Invariant: draws come from a sequence that is always the same, and what two offers share is drawn once for both.

use serde::Serialize;

use super::{Judged, Offer};
use crate::candidate::Candidate;
use crate::demand::Demand;
use crate::luck::Luck;
use crate::outcome::{Knobs, Scene, evaluate};

/// How often all ranges are drawn from, and how many offers take part: the others are never the cheapest at their best.
const DRAWS: u64 = 200;
const DRAWN_MAX: usize = 150;

/// At which price of an accelerator two offers cost the same.
#[derive(Clone, Debug, Serialize)]
pub struct BreakEven {
    pub cheaper_below: String,
    pub cheaper_above: String,
    pub usd_per_accelerator_hour: f64,
}

/// What the first offer costs if one thing is otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    pub of: &'static str,
    pub low_usd: f64,
    pub high_usd: f64,
}

/// How often each is the cheapest. A figure that several use is drawn once for all of them.
pub(super) fn chances(judged: &mut [Judged]) {
    let least = judged.iter().map(|judged| judged.offer.total_usd.high).fold(f64::INFINITY, f64::min);
    let can_win = |index: &usize| judged[*index].offer.total_usd.low <= least;
    let drawn: Vec<usize> = (0..judged.len()).filter(can_win).take(DRAWN_MAX).collect();
    let mut wins = vec![0_u64; judged.len()];
    for draw in 0..DRAWS {
        let knobs = Knobs { supply: Luck::Drawn(draw), price: Luck::Drawn(draw), ..Knobs::default() };
        let usd = |index: &usize| {
            let Judged { candidate, scene, .. } = &judged[*index];
            evaluate(*scene, candidate, knobs).map_or(f64::INFINITY, |outcome| outcome.money.total())
        };
        let costs = drawn.iter().map(|index| (*index, usd(index)));
        if let Some((best, _)) = costs.min_by(|left, right| left.1.total_cmp(&right.1)) {
            wins[best] += 1;
        }
    }
    for (judged, wins) in judged.iter_mut().zip(wins) {
        judged.offer.chance_of_best = wins as f64 / DRAWS as f64;
    }
}

/// What the cost of one candidate becomes by one change at a time: prices and size by a fifth, efficiencies over their range.
pub(super) fn sensitivity(scene: Scene, candidate: &Candidate) -> Vec<Sensitivity> {
    let usd = |demand: &Demand, knobs: Knobs| {
        evaluate(Scene { demand, ..scene }, candidate, knobs).map_or(f64::NAN, |outcome| outcome.money.total())
    };
    let knob = |of: &'static str, change: fn(&mut Knobs, f64), low: f64, high: f64| {
        let at = |value: f64| {
            let mut knobs = Knobs::default();
            change(&mut knobs, value);
            usd(scene.demand, knobs)
        };
        (of, at(low), at(high))
    };
    let sized = |factor: f64| {
        let mut demand = scene.demand.clone();
        demand.dataset_bytes *= factor;
        demand.files = (demand.files * factor).max(1.0);
        usd(&demand, Knobs::default())
    };
    let rows = [
        knob("accelerator price, 20 % less and more", |knobs, value| knobs.accelerator_price = value, 0.8, 1.2),
        knob("storage prices, 20 % less and more", |knobs, value| knobs.storage_price = value, 0.8, 1.2),
        knob("limits and efficiencies, over their range", |knobs, value| knobs.supply = Luck::At(value), 1.0, 0.0),
        ("size of the data, 20 % less and more", sized(0.8), sized(1.2)),
    ];
    let finite = rows.into_iter().filter(|(_, low, high)| low.is_finite() && high.is_finite());
    finite.map(|(of, low_usd, high_usd)| Sensitivity { of, low_usd, high_usd }).collect()
}

/// The accelerator prices, nearest to today's on each side, at which another offer becomes cheaper than the first: of all
/// offers, on whichever nodes. Other nodes keep their price in proportion.
pub(super) fn break_even(offers: &[Offer]) -> Vec<BreakEven> {
    let Some((first, others)) = offers.split_first() else { return Vec::new() };
    let today = first.accelerators_usd_per_hour / (first.nodes * first.accelerators_per_node);
    // Accelerator hours that are paid, as many of the first's as they cost.
    let hours = |offer: &Offer| match today > 0.0 {
        true => (offer.busy_usd + offer.idle_usd + offer.staging_usd) / today,
        false => offer.hours.likely * offer.nodes * offer.accelerators_per_node,
    };
    let crossing = |other: &Offer| {
        // hours x price + storage is the same for both.
        let saved = hours(first) - hours(other);
        let price = (other.storage_usd - first.storage_usd) / saved;
        // Those that differ by rounding alone never cross, nor those that differ in accelerators alone.
        let is_apart = saved.abs() > 1e-9 * hours(first) && price > 1e-9 * today;
        (is_apart && price.is_finite() && price > 0.0).then_some((price, saved > 0.0))
    };
    let crossings: Vec<(f64, bool, &Offer)> = others
        .iter()
        .filter_map(|other| crossing(other).map(|(price, is_first_below)| (price, is_first_below, other)))
        .collect();
    let below = crossings.iter().filter(|(price, ..)| *price <= today).max_by(|left, right| left.0.total_cmp(&right.0));
    let above = crossings.iter().filter(|(price, ..)| *price > today).min_by(|left, right| left.0.total_cmp(&right.0));
    let told = |(price, is_first_below, other): &(f64, bool, &Offer)| {
        let (below, above) = if *is_first_below { (first, *other) } else { (*other, first) };
        BreakEven { cheaper_below: below.id.clone(), cheaper_above: above.id.clone(), usd_per_accelerator_hour: *price }
    };
    [below, above].into_iter().flatten().map(told).collect()
}
