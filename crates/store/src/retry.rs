//! How long to wait before asking again, as plain arithmetic. Nothing here waits, and chance is a seed.
//!
//! Invariant: whoever follows the advice waits a bounded time in all.

use block::{Error, Kind, last_try};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Longest first wait. S3 asks for patience of this order; a blip of the network is over sooner.
const FIRST: Duration = Duration::from_millis(100);

/// Longest wait of our own choosing: a store that has been down for a while is asked every ten seconds.
const LONGEST: Duration = Duration::from_secs(10);

/// Longest wait that a store may ask for. A day, say, would be an outage and is better reported.
const ASKED_LONGEST: Duration = Duration::from_secs(30);

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    Wait(Duration),
    GiveUp,
}

/// What to do after the `tries`-th try failed, `spent` after the first began. `chance` is any number.
pub fn advise(error: &Error, tries: u32, spent: Duration, budget: Duration, chance: u64) -> Advice {
    if !error.passes() {
        return Advice::GiveUp;
    }
    let asked = match error.kind {
        Kind::Unavailable { retry_after: Some(asked) } => asked.min(ASKED_LONGEST),
        _ => Duration::ZERO,
    };
    let doubled = FIRST.saturating_mul(1 << tries.saturating_sub(1).min(16));
    let own = fraction(doubled.min(LONGEST), chance);
    let (left, last) = (budget.saturating_sub(spent), last_try(budget));
    if left <= last {
        return Advice::GiveUp;
    }
    // Our own waits shrink towards the end. A store that named a time is not asked before it; if the patience ends
    // before that, it is asked once more, in the last moment.
    Advice::Wait((asked + own).min(left / 2).max(asked).min(left - last))
}

/// The last error of a row, with how many tries it took.
pub fn gave_up(mut error: Error, tries: u32, spent: Duration) -> Error {
    if error.passes() && tries > 1 {
        error.what = format!("gave up after {tries} tries in {:.1} s: {}", spent.as_secs_f64(), error.what);
    }
    error
}

/// An even share of a time: "full jitter", so that many who failed together don't come back together.
fn fraction(of: Duration, chance: u64) -> Duration {
    of.mul_f64((chance >> 11) as f64 / (1u64 << 53) as f64)
}

/// Numbers by chance from one seed (SplitMix64), for many threads.
pub struct Chance(AtomicU64);

/// Step of SplitMix64: the golden ratio in 64 bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(AtomicU64::new(seed))
    }

    pub fn next(&self) -> u64 {
        let mut z = self.0.fetch_add(GOLDEN, Relaxed).wrapping_add(GOLDEN);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_secs(60);

    fn wait(error: &Error, tries: u32, chance: u64) -> Duration {
        match advise(error, tries, Duration::ZERO, BUDGET, chance) {
            Advice::Wait(wait) => wait,
            Advice::GiveUp => panic!("gave up after {tries} tries"),
        }
    }

    #[test]
    fn waits_double_up_to_a_limit_and_are_cut_by_chance() {
        let error = Error::unavailable("slow down", "s3://b");
        let longest = |tries| wait(&error, tries, u64::MAX).as_secs_f64();
        for (tries, seconds) in [(1, 0.1), (2, 0.2), (3, 0.4), (7, 6.4), (8, 10.0), (u32::MAX, 10.0)] {
            assert!((longest(tries) - seconds).abs() < 1e-6, "{tries}: {}", longest(tries));
        }
        assert_eq!(wait(&error, 1, 0), Duration::ZERO);
    }

    #[test]
    fn no_chance_ends_the_patience_early_or_exceeds_it() {
        let error = Error::unavailable("slow down", "s3://b");
        for (seed, seconds) in (0..200).flat_map(|seed| [1, 3, 10, 60].map(|seconds| (seed, seconds))) {
            let (chance, budget) = (Chance::new(seed), Duration::from_secs(seconds));
            let (mut spent, mut tries) = (Duration::ZERO, 1);
            while let Advice::Wait(wait) = advise(&error, tries, spent, budget, chance.next()) {
                (spent, tries) = (spent + wait, tries + 1);
            }
            let left = budget.checked_sub(spent).expect("never exceeded");
            assert!(left <= last_try(budget) && tries < 60, "{budget:?}: {spent:?} in {tries} tries");
        }
    }

    #[test]
    fn the_store_may_ask_for_more_but_not_for_ever() {
        let asks = |seconds| {
            let retry_after = Some(Duration::from_secs(seconds));
            Error::new(Kind::Unavailable { retry_after }, "slow down", "s3://b")
        };
        assert_eq!(wait(&asks(7), 1, 0), Duration::from_secs(7));
        assert_eq!(wait(&asks(86_400), 1, 0), ASKED_LONGEST);
    }

    #[test]
    fn a_store_is_not_asked_before_the_time_that_it_named_but_for_one_last_try() {
        let retry_after = Some(Duration::from_secs(30));
        let error = Error::new(Kind::Unavailable { retry_after }, "slow down", "s3://b");
        for (seed, (seconds, tries_due)) in
            (0..50).flat_map(|seed| [(2, 2), (5, 2), (30, 2), (31, 2), (60, 3), (90, 4)].map(|case| (seed, case)))
        {
            let (chance, budget) = (Chance::new(seed), Duration::from_secs(seconds));
            let (mut spent, mut tries, mut waits) = (Duration::ZERO, 1, Vec::new());
            while let Advice::Wait(wait) = advise(&error, tries, spent, budget, chance.next()) {
                (spent, tries) = (spent + wait, tries + 1);
                waits.push(wait);
            }
            assert_eq!(spent, budget - last_try(budget), "the last try is in the last moment");
            assert!(waits[..waits.len() - 1].iter().all(|wait| *wait >= ASKED_LONGEST), "{budget:?}: {waits:?}");
            assert_eq!(tries, tries_due, "{budget:?}: {waits:?}");
        }
    }

    #[test]
    fn what_does_not_pass_is_given_up_at_once_and_all_else_after_the_budget() {
        let denied = Error::denied("no", "s3://b");
        assert_eq!(advise(&denied, 1, Duration::ZERO, BUDGET, 0), Advice::GiveUp);
        let corrupt = Error::corrupt("short", "s3://b");
        assert_eq!(advise(&corrupt, 9, BUDGET, BUDGET, 0), Advice::GiveUp);
        let said = gave_up(corrupt, 9, BUDGET).to_string();
        assert!(said.starts_with("gave up after 9 tries in 60.0 s: short"), "{said}");
    }

    #[test]
    fn chance_is_the_published_sequence() {
        // The first outputs of SplitMix64 for seed 0, as in the reference implementation.
        let chance = Chance::new(0);
        assert_eq!(chance.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(chance.next(), 0x6e78_9e6a_a1b9_65f4);
    }
}
