//! Histories that are played at every test, and seeds that failed once.

use super::*;
use std::ops::Range;

/// Seeds that failed once: the mark of a clean end that came back with the power, and with it a file that nobody knew;
/// a limit that was not kept because a signal came; and seeds that find a mend that is taken out.
const FAILED_ONCE: [u64; 5] = [48_750, 85_124, 832, 86, 528];

fn hold(mut seeds: Range<u64>) {
    if let Some(seed) = seeds.find(|seed| play(*seed).failure.is_some()) {
        panic!("{}", explain(seed).join("\n"));
    }
}

#[test]
fn thousands_of_histories_hold() {
    hold(0..2_000);
}

#[test]
fn thousands_more_histories_hold() {
    hold(2_000..4_000);
}

#[test]
fn histories_that_failed_once_hold() {
    FAILED_ONCE.iter().for_each(|seed| hold(*seed..*seed + 1));
}

#[test]
fn a_seed_always_tells_the_same_history() {
    for seed in 0..20 {
        assert_eq!(explain(seed), explain(seed));
    }
}
