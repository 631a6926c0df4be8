//! How a node is doing at the moment: rates over the last seconds, and which stores answer.
//!
//! It is fed with totals once a second, and decides from their differences alone.

use client::messages::{Rates, StoreState};
use std::collections::{BTreeMap, VecDeque};

/// Looks over which rates are taken, a second apart.
const LOOKS: usize = 5;

/// A store that is asked and says nothing for so many seconds does not answer.
const SILENT_SECONDS: f64 = 3.0;

/// Totals at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub at: f64,
    pub store_bytes: u64,
    pub store_requests: u64,
    /// Bytes that mounts were served with by the daemon, and opens of any kind.
    pub served_bytes: u64,
    pub opens: u64,
}

/// Totals of one store at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Answers that began.
    pub answers: u64,
    /// Requests that failed, for the moment or for good.
    pub failures: u64,
    /// Of these, those that were handed to readers.
    pub given_up: u64,
    /// Answers that began after the last failure.
    pub answers_since: u64,
    pub in_flight: u64,
    /// No mount uses it.
    pub is_unused: bool,
}

/// What is known of the last seconds.
#[derive(Clone, Default)]
pub struct Pulse {
    looks: VecDeque<Totals>,
    stores: BTreeMap<String, Store>,
}

#[derive(Clone, Default)]
struct Store {
    last: Asked,
    /// When it answered last, and since when it was asked without an answer.
    answered_at: Option<f64>,
    waiting_since: Option<f64>,
    failing: bool,
    /// When a request failed last, and with what.
    failed: Option<(f64, String)>,
    /// Whether it was said last that it does not answer.
    told: bool,
}

impl Pulse {
    /// Look at everything once more.
    pub fn look(&mut self, totals: Totals) {
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(totals);
    }

    /// Look at one store.
    pub fn look_at(&mut self, store: &str, now: f64, asked: Asked, failed: Option<(f64, String)>) {
        let known = self.stores.entry(store.to_owned()).or_default();
        let answers = asked.answers.saturating_sub(known.last.answers);
        let failures = asked.failures.saturating_sub(known.last.failures);
        let (is_failing, has_given_up) = (failures > 0, asked.given_up > known.last.given_up);
        // A refusal is an answer too. What came last counts for one who was just given an error.
        if answers > 0 && (asked.answers_since > 0 || answers > failures && !has_given_up) {
            (known.answered_at, known.waiting_since, known.failing) = (Some(now), None, false);
        } else if asked.is_unused {
            // Nobody would ask it again, and hear that it answers.
            (known.waiting_since, known.failing) = (None, false);
        } else if is_failing || asked.in_flight > 0 {
            known.waiting_since.get_or_insert(now);
            known.failing |= is_failing;
        } else if !known.failing {
            // Nothing is asked of it.
            known.waiting_since = None;
        }
        (known.last, known.failed) = (asked, failed);
    }

    pub fn rates(&self) -> Rates {
        let (Some(first), Some(last)) = (self.looks.front(), self.looks.back()) else { return Rates::default() };
        let seconds = last.at - first.at;
        let per_second = |total: fn(&Totals) -> u64| match seconds > 0.0 {
            true => total(last).saturating_sub(total(first)) as f64 / seconds,
            false => 0.0,
        };
        Rates {
            seconds,
            store_bytes_per_second: per_second(|totals| totals.store_bytes),
            store_requests_per_second: per_second(|totals| totals.store_requests),
            served_bytes_per_second: per_second(|totals| totals.served_bytes),
            opens_per_second: per_second(|totals| totals.opens),
        }
    }

    /// Stores that answer no more, or answer again, since this was asked last.
    pub fn turned(&mut self, now: f64) -> Vec<StoreState> {
        let mut turned = self.stores(now);
        turned.retain(|state| {
            let known = self.stores.get_mut(&state.store);
            known.is_some_and(|known| std::mem::replace(&mut known.told, !state.answering) == state.answering)
        });
        turned
    }

    pub fn stores(&self, now: f64) -> Vec<StoreState> {
        let state = |(name, store): (&String, &Store)| StoreState {
            store: name.clone(),
            answering: store.waiting_since.is_none_or(|since| !store.failing && now - since < SILENT_SECONDS),
            silent_since: store.waiting_since.filter(|since| store.failing || now - since >= SILENT_SECONDS),
            answered_at: store.answered_at,
            failed_at: store.failed.as_ref().map(|(at, _)| *at),
            failure: store.failed.as_ref().map(|(_, what)| what.clone()),
        };
        self.stores.iter().map(state).collect()
    }
}

/// Say that a store answers no more, or again.
pub fn tell(turned: &StoreState) {
    match (turned.answering, &turned.failure) {
        (true, _) => tracing::info!("{} answers again", turned.store),
        (false, Some(failure)) => tracing::warn!("{} does not answer, and its readers wait: {failure}", turned.store),
        (false, None) => tracing::warn!("{} does not answer, and its readers wait", turned.store),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Look at one store of which no more is known than what was asked.
    fn look_at(pulse: &mut Pulse, store: &str, now: f64, asked: Asked) {
        pulse.look_at(store, now, asked, None);
    }

    fn asked(answers: u64, failures: u64, in_flight: u64) -> Asked {
        Asked { answers, failures, in_flight, ..Asked::default() }
    }

    #[test]
    fn a_store_that_fails_or_hangs_is_seen_within_seconds_and_again_when_it_answers() {
        let mut pulse = Pulse::default();
        let is_answering = |pulse: &Pulse, now| pulse.stores(now)[0].answering;
        look_at(&mut pulse, "s3", 1.0, asked(10, 0, 2));
        assert!(is_answering(&pulse, 1.0));
        // It hangs: asked, and silent.
        (2..=5).for_each(|now| look_at(&mut pulse, "s3", f64::from(now), asked(10, 0, 2)));
        assert!(!is_answering(&pulse, 5.0));
        assert_eq!(pulse.stores(5.0)[0].silent_since, Some(2.0));
        look_at(&mut pulse, "s3", 6.0, asked(11, 0, 2));
        assert!(is_answering(&pulse, 6.0));
        assert_eq!(pulse.turned(6.0).len(), 0, "nobody asked in between");
        // It refuses: at once, and also while nobody asks again.
        look_at(&mut pulse, "s3", 7.0, asked(11, 3, 0));
        look_at(&mut pulse, "s3", 8.0, asked(11, 3, 0));
        assert!(!is_answering(&pulse, 8.0));
        let turned = |pulse: &mut Pulse, now| pulse.turned(now).iter().map(|store| store.answering).collect::<Vec<_>>();
        assert_eq!((turned(&mut pulse, 8.0), turned(&mut pulse, 8.5)), (vec![false], vec![]));
        // Nothing is asked of it.
        look_at(&mut pulse, "s3", 9.0, asked(12, 3, 0));
        (10..60).for_each(|now| look_at(&mut pulse, "s3", f64::from(now), asked(12, 3, 0)));
        assert!(is_answering(&pulse, 60.0));
        assert_eq!(pulse.stores(60.0)[0].answered_at, Some(9.0));
        // It refuses some: it answers.
        look_at(&mut pulse, "s3", 61.0, asked(22, 6, 0));
        assert!(is_answering(&pulse, 61.0));
        pulse.look_at("s3", 62.0, asked(23, 7, 0), Some((61.5, "503 SlowDown".into())));
        let state = &pulse.stores(62.0)[0];
        assert!(!state.answering && state.failed_at == Some(61.5) && state.failure.as_deref() == Some("503 SlowDown"));
    }

    #[test]
    fn of_what_a_store_did_since_the_last_look_its_last_word_counts() {
        let mut pulse = Pulse::default();
        look_at(&mut pulse, "s3", 1.0, asked(10, 0, 0));
        let is_answering = |pulse: &Pulse| pulse.stores(1.5)[0].answering;
        let given_up = Asked { given_up: 1, ..asked(20, 3, 0) };
        look_at(&mut pulse, "s3", 1.5, given_up);
        assert!(!is_answering(&pulse), "seven answers, and then an error for a reader");
        look_at(&mut pulse, "s3", 1.5, Asked { answers_since: 1, ..asked(21, 9, 0) });
        assert!(is_answering(&pulse), "an answer came after the errors");
    }

    #[test]
    fn a_store_that_no_mount_uses_is_not_said_to_fail() {
        let mut pulse = Pulse::default();
        look_at(&mut pulse, "s3", 1.0, asked(0, 3, 0));
        assert!(!pulse.stores(1.0)[0].answering);
        let unused = Asked { is_unused: true, ..asked(0, 4, 0) };
        pulse.look_at("s3", 2.0, unused, Some((1.5, "403 AccessDenied".into())));
        let state = &pulse.stores(2.0)[0];
        assert!(state.answering && state.silent_since.is_none());
        assert_eq!(state.failure.as_deref(), Some("403 AccessDenied"), "why its mount failed is still shown");
        look_at(&mut pulse, "s3", 3.0, asked(0, 5, 0));
        assert!(!pulse.stores(3.0)[0].answering, "somebody asks again");
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.rates().store_bytes_per_second, 0.0);
        for second in 0..20_u64 {
            let store_bytes = if second < 10 { 1_000_000 * second } else { 10_000_000 + 50 * (second - 10) };
            pulse.look(Totals { at: second as f64, store_bytes, ..Totals::default() });
        }
        assert_eq!(pulse.rates().store_bytes_per_second, 50.0);
    }
}
