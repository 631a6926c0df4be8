//! When to send a request a second time because its answer is late, as arithmetic. Pure: nothing here sends.
//!
//! Only the first byte may be late: a body under way is on its wire, and a second one would take from it. What is
//! late follows from the answers of this very store, and what hedges may ask for is earned by bytes that were served.
//!
//! Invariant: hedges ask for at most one byte in [`SERVED_PER_HEDGED`] that was served.

use std::time::Duration;

/// Bytes that are served for each that a hedge may ask for: a quarter of a percent.
pub const SERVED_PER_HEDGED: u64 = 400;

/// Bytes that an account holds at most, so that a long quiet time is not followed by a burst of hedges: two of the
/// largest requests.
const ACCOUNT_MAX: u64 = 32 << 20;

/// Answers before anything is called late.
const ANSWERS_MIN: f64 = 100.0;

/// Answers that are remembered; then each counts half.
const ANSWERS_MAX: f64 = 2_000.0;

/// The share of answers that are not late.
const IN_TIME: f64 = 0.99;

/// A late answer takes at least so many times the median, and so long: less is not worth a request.
const MEDIANS: f64 = 2.0;
const LATE_MIN: Duration = Duration::from_millis(25);

/// What is late by the clock gets this much more: if it was us who were held up, by as much as 14 ms on two busy cores,
/// the answer has come meanwhile and only waits to be read.
pub const GRACE: Duration = Duration::from_millis(15);

/// No hedges for so long after the store could not follow.
const CALM: Duration = Duration::from_secs(10);

/// Buckets are an eighth of an octave wide, from 64 us to some 70 s.
const BUCKETS: usize = 160;
const PER_OCTAVE: f64 = 8.0;
const FIRST_EDGE: f64 = 64e-6;

/// Answers by the time that they took, and what may be spent on hedges.
pub struct Hedges {
    answers: [f64; BUCKETS],
    total: f64,
    /// Bytes served, counted in parts: each earns one part in [`SERVED_PER_HEDGED`] of a byte.
    earned: u64,
}

impl Default for Hedges {
    fn default() -> Hedges {
        Hedges { answers: [0.0; BUCKETS], total: 0.0, earned: 0 }
    }
}

impl Hedges {
    /// Note how long an answer took, or that it took at least so long.
    pub fn answered(&mut self, took: Duration) {
        self.answers[bucket(took)] += 1.0;
        self.total += 1.0;
        if self.total >= ANSWERS_MAX {
            self.answers.iter_mut().for_each(|count| *count /= 2.0);
            self.total /= 2.0;
        }
    }

    /// From when on an answer is late; none while too little is known.
    pub fn late(&self) -> Option<Duration> {
        let known = self.total >= ANSWERS_MIN;
        known.then(|| self.quantile(IN_TIME).max(self.quantile(0.5).mul_f64(MEDIANS)).max(LATE_MIN))
    }

    /// Bytes were served.
    pub fn earn(&mut self, bytes: u64) {
        self.earned = (self.earned + bytes).min(ACCOUNT_MAX * SERVED_PER_HEDGED);
    }

    /// Pay for a hedge, if there is enough.
    pub fn spend(&mut self, bytes: u64) -> bool {
        let left = self.earned.checked_sub(bytes.saturating_mul(SERVED_PER_HEDGED));
        self.earned = left.unwrap_or(self.earned);
        left.is_some()
    }

    /// The upper edge of the bucket that this share of the answers reaches.
    fn quantile(&self, share: f64) -> Duration {
        let mut seen = 0.0;
        let at = self.answers.iter().position(|count| {
            seen += count;
            seen >= self.total * share
        });
        let edge = FIRST_EDGE * (at.unwrap_or(BUCKETS - 1) as f64 / PER_OCTAVE).exp2();
        Duration::from_secs_f64(edge)
    }
}

/// Whether a hedge is of any use: not where bandwidth binds, for it would take what others wait for, and not at a
/// store that could not follow a moment ago.
pub fn is_welcome(bandwidth_binds: bool, since_cut: Option<Duration>) -> bool {
    !bandwidth_binds && since_cut.is_none_or(|since| since >= CALM)
}

/// The bucket with the lowest upper edge that is not below.
fn bucket(took: Duration) -> usize {
    let octaves = (took.as_secs_f64() / FIRST_EDGE).max(1.0).log2();
    ((octaves * PER_OCTAVE).ceil() as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_what_few_answers_of_this_store_are() {
        let mut hedges = Hedges::default();
        let ms = Duration::from_millis;
        (0..99).for_each(|_| hedges.answered(ms(20)));
        assert_eq!(hedges.late(), None, "too little is known");
        (0..901).for_each(|_| hedges.answered(ms(20)));
        let late = hedges.late().expect("enough is known");
        assert!((ms(40)..ms(45)).contains(&late), "{late:?}");
        (0..50).for_each(|_| hedges.answered(ms(300)));
        let late = hedges.late().expect("enough is known");
        assert!((ms(300)..ms(330)).contains(&late), "{late:?}");
        (0..20_000).for_each(|_| hedges.answered(Duration::from_micros(300)));
        assert_eq!(hedges.late(), Some(LATE_MIN), "the store got better");
    }

    #[test]
    fn hedges_ask_for_a_quarter_of_a_percent_of_what_was_served() {
        let mut hedges = Hedges::default();
        assert!(!hedges.spend(1));
        let (mut served, mut hedged) = (0, 0);
        for _ in 0..10_000 {
            hedges.earn(100_000);
            served += 100_000;
            hedged += if hedges.spend(100_000) { 100_000 } else { 0 };
            assert!(hedged * 400 <= served);
        }
        assert_eq!(hedged, 25 * 100_000);
        hedges.earn(u64::MAX / 2);
        assert!(!hedges.spend(ACCOUNT_MAX + 1) && hedges.spend(ACCOUNT_MAX), "an account does not grow for ever");
    }

    #[test]
    fn a_hedge_is_welcome_only_where_it_takes_from_nobody() {
        assert!(is_welcome(false, None) && is_welcome(false, Some(CALM)));
        assert!(!is_welcome(true, None) && !is_welcome(false, Some(CALM / 2)));
    }
}
