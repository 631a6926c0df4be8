//! How many requests may be in flight, as arithmetic: more for as long as more at once bring more, half when the
//! store can't follow.
//!
//! What a number of requests brings is measured by the round. When a quarter more of them brought hardly more work,
//! the wire, the store or this machine is full: further requests would only wait, and those of readers with them.
//! Then the number goes back, and on to what keeps the pipe full: by Little's law, that many times the share of its
//! time that a request would take alone. It is tried and taken back if less work is done, and after a while more is
//! tried again. The idea is that of TCP Vegas and of gradient limits; the proof by throughput keeps stores whose
//! latency only varies from being taken for full ones.
//!
//! Invariant: never fewer than one, never more than the limit that was set, and never fewer than [`ENOUGH`] for the
//! sake of latency.

use block::Cause;
use std::time::Duration;

/// Failures within this time are one event: the requests that were in flight together fail together.
const ONE_EVENT: Duration = Duration::from_secs(1);

/// Requests that latency alone never takes away: eight readers of small files are common, and none should stand in
/// line for a gain that nobody notices.
pub const ENOUGH: u32 = 8;

/// Growth of a round: up to double, one for each request that went well, until it first does not pay or fails; then
/// by a quarter.
const START: u32 = 2;
const STEP: f64 = 1.25;

/// Of the work that more requests could bring in proportion, the share that shows that they pay. Rounds vary by some
/// percent on a machine that is shared.
const PAYS: f64 = 0.3;

/// Share of the work that fewer requests must still bring: less, and they were too few.
const AS_MUCH: f64 = 0.92;

/// What keeps the pipe full although requests come and go unevenly, as a multiple of what just would.
const SPARE: f64 = 1.5;

/// Rounds after which more is tried again.
const HOLD_ROUNDS: u32 = 16;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fine,
    /// The store wishes to be asked less.
    Throttled,
    /// The store can't follow: silence, a broken connection.
    Congested,
    /// It says nothing about how much the store can bear.
    Neutral,
}

/// What a round of requests brought, at one limit.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Whether most of them ended while all that may be in flight were.
    pub is_bound: bool,
    /// Work per second, in any unit that stays the same.
    pub rate: f64,
    /// How many times as long they took as each would have taken alone.
    pub slowdown: f64,
}

/// The state of the decision. Pure: time comes in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub limit: u32,
    max: u32,
    /// Nothing went wrong yet, and every round paid.
    pub is_starting: bool,
    /// The limit when the round began.
    base: u32,
    phase: Phase,
    /// The last limit that was known to pay, and its rate.
    anchor: Option<(u32, f64)>,
    /// What the limit was before the store was last seen not to follow, and why it was cut.
    cut: Option<(u32, Cause)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Climbing,
    /// More did not pay; fewer are being tried.
    Trying,
    /// More did not pay, for so many rounds to come.
    Holding(u32),
}

impl Window {
    pub fn new(first: u32, max: u32) -> Window {
        let max = max.max(1);
        let limit = first.clamp(1, max);
        Window { limit, max, is_starting: true, base: limit, phase: Phase::Climbing, anchor: None, cut: None }
    }

    /// Whether more requests at once would bring no more work.
    pub fn is_saturated(&self) -> bool {
        self.phase != Phase::Climbing
    }

    /// Why there are not more.
    pub fn cause(&self) -> Cause {
        match self.cut {
            Some((_, cause)) => cause,
            None if self.is_saturated() => Cause::Bandwidth,
            None => Cause::Requests,
        }
    }

    /// After a request that failed; none if that changes nothing. `since_cut`: time since the last cut.
    pub fn failed(self, outcome: Outcome, since_cut: Option<Duration>) -> Option<Window> {
        let cause = match outcome {
            Outcome::Throttled => Cause::Throttling,
            Outcome::Congested => Cause::Errors,
            Outcome::Fine | Outcome::Neutral => return None,
        };
        if since_cut.is_some_and(|since| since < ONE_EVENT) {
            return None;
        }
        let cut = Some((self.limit, cause));
        let limit = (self.limit / 2).max(1);
        Some(Window { limit, is_starting: false, phase: Phase::Climbing, anchor: None, cut, ..self })
    }

    /// At the start: after a request that went well while all that may be in flight were.
    pub fn started(self) -> Window {
        let limit = (self.limit + 1).min(self.base.saturating_mul(START)).min(self.max);
        Window { limit, ..self }
    }

    /// After a round of requests that went well.
    pub fn after(self, round: Round) -> Window {
        if !round.is_bound {
            // The limit kept nobody waiting, so the round tells nothing of it.
            return Window { phase: Phase::Climbing, anchor: None, base: self.limit, ..self };
        }
        let Some((limit, rate)) = self.anchor else {
            return Window { anchor: Some((self.limit, round.rate)), ..self }.grown();
        };
        match self.phase {
            Phase::Climbing if f64::from(self.limit) < f64::from(limit) * 1.2 && self.limit < limit + ENOUGH => {
                self.grown()
            }
            Phase::Climbing if round.rate >= rate * (1.0 + PAYS * (f64::from(self.limit) / f64::from(limit) - 1.0)) => {
                Window { anchor: Some((self.limit, round.rate)), ..self }.grown()
            }
            Phase::Climbing => {
                let full = Window { is_starting: false, cut: None, ..self };
                full.lowered(limit, round.slowdown)
            }
            Phase::Trying if round.rate >= rate * AS_MUCH => {
                Window { anchor: Some((self.limit, rate)), ..self }.lowered(self.limit, round.slowdown)
            }
            Phase::Trying => Window { limit, phase: Phase::Holding(HOLD_ROUNDS), ..self },
            Phase::Holding(0) => {
                Window { phase: Phase::Climbing, anchor: Some((self.limit, round.rate)), ..self }.grown()
            }
            Phase::Holding(rounds) => Window { phase: Phase::Holding(rounds - 1), ..self },
        }
    }

    fn grown(self) -> Window {
        let limit = match self.cut {
            Some((before, _)) if self.limit + 1 < before => self.limit + 1,
            _ if self.is_starting => self.limit,
            _ => (f64::from(self.limit) * STEP).ceil() as u32,
        };
        let limit = limit.min(self.max);
        Window { limit, base: limit, cut: self.cut.filter(|(before, _)| limit < *before), ..self }
    }

    /// Back to a limit that is known to bring as much, or on to fewer if that should do.
    fn lowered(self, known: u32, slowdown: f64) -> Window {
        let fit = (f64::from(self.limit) / slowdown.max(1.0) * SPARE).ceil() as u32;
        let fit = fit.max(known / 2).max(ENOUGH).min(known);
        let is_worth_it = f64::from(fit) < f64::from(known) * 0.9;
        let (limit, phase) = if is_worth_it { (fit, Phase::Trying) } else { (known, Phase::Holding(HOLD_ROUNDS)) };
        Window { limit, phase, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(mut window: Window, full: f64) -> Window {
        if window.is_starting {
            (0..window.limit * START).for_each(|_| window = window.started());
        }
        window.after(pipe(window.limit, full))
    }

    /// A round at a pipe that is full with so many requests.
    fn pipe(limit: u32, full: f64) -> Round {
        let limit = f64::from(limit);
        Round { is_bound: true, rate: limit.min(full), slowdown: (limit / full).max(1.0) }
    }

    #[test]
    fn a_pipe_gets_what_fills_it_and_little_more() {
        for full in [3.0, 20.0, 40.0, 100.0] {
            let mut window = Window::new(16, 256);
            for round in 0..300 {
                window = self::round(window, full);
                let is_probe = window.phase == Phase::Climbing;
                if round > 30 && !is_probe {
                    let least = full.max(f64::from(ENOUGH)) * 0.9;
                    assert!((least..=least * 2.3).contains(&f64::from(window.limit)), "{full}: {window:?}");
                }
            }
        }
    }

    #[test]
    fn where_more_bring_more_the_limit_grows_to_what_was_set() {
        let mut window = Window::new(16, 256);
        for _ in 0..4 {
            assert!(!window.is_saturated());
            window = round(window, 1e9);
        }
        assert_eq!(window.limit, 256);
        let idle = Round { is_bound: false, rate: 1.0, slowdown: 9.0 };
        assert_eq!(Window::new(16, 256).after(idle).limit, 16, "a limit that does not bind stays");
    }

    #[test]
    fn a_pipe_that_widens_is_noticed() {
        let mut window = Window::new(16, 256);
        for _ in 0..50 {
            window = round(window, 10.0);
        }
        assert!(window.limit <= 20, "{window:?}");
        for _ in 0..100 {
            window = round(window, 100.0);
        }
        assert!(window.limit >= 90, "{window:?}");
    }

    #[test]
    fn one_event_halves_once_and_never_to_nothing() {
        let window = Window::new(10, 12);
        let cut = window.failed(Outcome::Throttled, None).expect("a cut");
        assert_eq!((cut.limit, cut.cause()), (5, Cause::Throttling));
        assert_eq!(cut.failed(Outcome::Congested, Some(ONE_EVENT / 2)), None);
        let again = cut.failed(Outcome::Congested, Some(ONE_EVENT)).expect("a cut");
        assert_eq!((again.limit, again.cause()), (2, Cause::Errors));
        assert_eq!(Window::new(1, 9).failed(Outcome::Congested, None).expect("a cut").limit, 1);
        assert_eq!(window.failed(Outcome::Neutral, None), None);
        let (first, second) = (cut.after(pipe(5, 1e9)), cut.after(pipe(5, 1e9)).after(pipe(6, 1e9)));
        assert_eq!((first.limit, second.limit), (6, 7), "one more a round until it is where it was cut");
    }
}
