//! What changes the answer: prices, efficiencies, sizes, and chance within all ranges.
//!
//! Invariant: draws come from a sequence that is always the same, and what two offers share is drawn once for both.

use serde::Serialize;

use super::Offer;
use crate::candidate::Candidate;
use crate::demand::Demand;
use crate::outcome::{Knobs, Scene, evaluate};

/// How often all ranges are drawn from, and how many offers take part: the others are never the cheapest at their best.
const DRAWS: u64 = 200;
const DRAWN_MAX: usize = 60;

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

/// How often each is the cheapest.
pub(super) fn chances(scene: Scene, offers: &mut [(Offer, Candidate)]) {
    let least = offers.iter().map(|(offer, _)| offer.total_usd.high).fold(f64::INFINITY, f64::min);
    let drawn: Vec<usize> =
        (0..offers.len()).filter(|index| offers[*index].0.total_usd.low <= least).take(DRAWN_MAX).collect();
    let mut wins = vec![0_u64; offers.len()];
    for draw in 0..DRAWS {
        let usd = |index: &usize| {
            let (offer, candidate) = &offers[*index];
            // One client on one service is as good for all offers that use it.
            let knobs = Knobs {
                supply: place(draw, &[&offer.client, &offer.service]),
                price: place(draw, &[&offer.service]),
                ..Knobs::default()
            };
            evaluate(scene, candidate, knobs).map_or(f64::INFINITY, |outcome| outcome.money.total())
        };
        let costs: Vec<(usize, f64)> = drawn.iter().map(|index| (*index, usd(index))).collect();
        if let Some((best, _)) = costs.iter().min_by(|left, right| left.1.total_cmp(&right.1)) {
            wins[*best] += 1;
        }
    }
    for (index, (offer, _)) in offers.iter_mut().enumerate() {
        offer.chance_of_best = wins[index] as f64 / DRAWS as f64;
    }
}

/// A number from 0 to 1 for a draw and what it is of.
fn place(draw: u64, of: &[&str]) -> f64 {
    // FNV-1a, then a mix so that neighbouring draws differ in all bits.
    let bytes = of.iter().flat_map(|name| name.bytes().chain([0]));
    let mut hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64 ^ draw, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (hash >> 11) as f64 / (1_u64 << 53) as f64
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
        knob("limits and efficiencies, over their range", |knobs, value| knobs.supply = value, 1.0, 0.0),
        ("size of the data, 20 % less and more", sized(0.8), sized(1.2)),
    ];
    let finite = rows.into_iter().filter(|(_, low, high)| low.is_finite() && high.is_finite());
    finite.map(|(of, low_usd, high_usd)| Sensitivity { of, low_usd, high_usd }).collect()
}

/// The accelerator prices, nearest to today's on each side, at which another offer becomes cheaper than the first.
pub(super) fn break_even(offers: &[&Offer]) -> Vec<BreakEven> {
    let Some((first, others)) = offers.split_first() else { return Vec::new() };
    let each = first.nodes * first.accelerators_per_node;
    let today = first.accelerators_usd_per_hour / each;
    let crossing = |other: &&Offer| {
        // hours x accelerators x price + storage is the same for both.
        let hours = (first.hours.likely - other.hours.likely) * each;
        let price = (other.storage_usd - first.storage_usd) / hours;
        (other.node == first.node && price.is_finite() && price >= 0.0).then_some((price, hours > 0.0))
    };
    let crossings: Vec<(f64, bool, &Offer)> = others
        .iter()
        .filter_map(|other| crossing(other).map(|(price, is_first_below)| (price, is_first_below, *other)))
        .collect();
    let below = crossings.iter().filter(|(price, ..)| *price <= today).max_by(|left, right| left.0.total_cmp(&right.0));
    let above = crossings.iter().filter(|(price, ..)| *price > today).min_by(|left, right| left.0.total_cmp(&right.0));
    let told = |(price, is_first_below, other): &(f64, bool, &Offer)| {
        let (below, above) = if *is_first_below { (*first, *other) } else { (*other, *first) };
        BreakEven { cheaper_below: below.id.clone(), cheaper_above: above.id.clone(), usd_per_accelerator_hour: *price }
    };
    [below, above].into_iter().flatten().map(told).collect()
}
