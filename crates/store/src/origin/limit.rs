//! How many requests may be in flight: one more for each that went well while all were in use, half when the
//! store can't follow (additive increase, multiplicative decrease, as TCP has it).
//!
//! Invariant: never fewer than one, never more than the limit that was set.

use block::{Cause, Error, Kind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Failures within this time are one event: the requests that were in flight together fail together.
const ONE_EVENT: Duration = Duration::from_secs(1);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fine,
    /// The store can't follow: throttling, silence, a broken connection.
    Congested,
    /// It says nothing about how much the store can bear.
    Neutral,
}

impl Outcome {
    pub fn of(error: &Error) -> Outcome {
        match error.kind {
            Kind::Unavailable { .. } => Outcome::Congested,
            _ => Outcome::Neutral,
        }
    }
}

/// The state of the decision. Pure: time comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    limit: u32,
    max: u32,
    /// Requests that went well since the limit last rose.
    fine: u32,
    /// Nothing went wrong yet: grow by one a request instead of one a round of them.
    is_starting: bool,
}

impl Window {
    /// The window after a request ended. `is_full`: all that may be in flight were. `since_cut`: time since the last cut.
    fn after(self, outcome: Outcome, is_full: bool, since_cut: Option<Duration>) -> Window {
        match outcome {
            Outcome::Neutral => self,
            Outcome::Fine if !is_full || self.limit >= self.max => self,
            Outcome::Fine if self.is_starting || self.fine + 1 >= self.limit => {
                Window { limit: self.limit + 1, fine: 0, ..self }
            }
            Outcome::Fine => Window { fine: self.fine + 1, ..self },
            Outcome::Congested if since_cut.is_some_and(|since| since < ONE_EVENT) => self,
            Outcome::Congested => Window { limit: (self.limit / 2).max(1), fine: 0, is_starting: false, ..self },
        }
    }
}

/// The limit, and who waits for it; first come, first served.
pub struct Limit {
    free: Arc<Semaphore>,
    state: Mutex<State>,
}

struct State {
    window: Window,
    /// Requests in flight beyond the limit since it was cut; they are not replaced.
    excess: u32,
    cut_at: Option<Instant>,
    /// What the limit was before it was cut last.
    before_cut: u32,
}

impl Limit {
    pub fn new(first: u32, max: u32) -> Arc<Limit> {
        let max = max.max(1);
        let limit = first.clamp(1, max);
        let window = Window { limit, max, fine: 0, is_starting: true };
        let free = Arc::new(Semaphore::new(limit as usize));
        Arc::new(Limit { free, state: Mutex::new(State { window, excess: 0, cut_at: None, before_cut: 0 }) })
    }

    /// Leave to send a request; it is given back when dropped.
    pub async fn leave(self: Arc<Self>) -> Leave {
        let permit = self.free.clone().acquire_owned().await.expect("the semaphore is never closed");
        Leave { limit: self, permit: Some(permit), outcome: Outcome::Neutral }
    }

    pub fn now(&self) -> u32 {
        self.state().window.limit
    }

    /// Why a request has to wait for leave.
    pub fn cause(&self) -> Cause {
        let state = self.state();
        if state.window.limit < state.before_cut { Cause::Throttling } else { Cause::Requests }
    }

    fn ended(&self, outcome: Outcome, permit: OwnedSemaphorePermit) {
        let is_full = self.free.available_permits() == 0;
        let mut state = self.state();
        let since_cut = state.cut_at.map(|at| at.elapsed());
        let before = state.window.limit;
        state.window = state.window.after(outcome, is_full, since_cut);
        let after = state.window.limit;
        if after < before {
            state.cut_at = Some(Instant::now());
            state.before_cut = before;
            let taken = self.free.forget_permits((before - after) as usize);
            state.excess += before - after - u32::try_from(taken).expect("at most what was asked for");
        }
        if after > before {
            let repaid = state.excess.min(after - before);
            state.excess -= repaid;
            self.free.add_permits((after - before - repaid) as usize);
        }
        if state.excess > 0 {
            state.excess -= 1;
            permit.forget();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leave to send one request.
pub struct Leave {
    limit: Arc<Limit>,
    permit: Option<OwnedSemaphorePermit>,
    outcome: Outcome,
}

impl Leave {
    /// Give it back and tell how the request ended.
    pub fn done(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.limit.ended(self.outcome, permit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: Window = Window { limit: 10, max: 12, fine: 0, is_starting: false };

    #[test]
    fn the_limit_rises_by_one_a_round_and_only_when_it_binds() {
        let mut window = STEADY;
        for _ in 0..100 {
            window = window.after(Outcome::Fine, false, None);
        }
        assert_eq!(window, STEADY);
        for _ in 0..10 {
            window = window.after(Outcome::Fine, true, None);
        }
        assert_eq!(window.limit, 11);
        for _ in 0..100 {
            window = window.after(Outcome::Fine, true, None);
        }
        assert_eq!(window.limit, 12, "never beyond what was set");
    }

    #[test]
    fn one_event_halves_once_and_never_to_nothing() {
        let cut = STEADY.after(Outcome::Congested, true, None);
        assert_eq!(cut.limit, 5);
        assert_eq!(cut.after(Outcome::Congested, true, Some(ONE_EVENT / 2)), cut);
        assert_eq!(cut.after(Outcome::Congested, true, Some(ONE_EVENT)).limit, 2);
        let one = Window { limit: 1, ..STEADY };
        assert_eq!(one.after(Outcome::Congested, true, None).limit, 1);
        assert_eq!(STEADY.after(Outcome::Neutral, true, None), STEADY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_limit_binds_those_who_come_after() {
        let limit = Limit::new(4, 8);
        let mut leaves = Vec::new();
        for _ in 0..4 {
            leaves.push(limit.clone().leave().await);
        }
        leaves.pop().expect("four").done(Outcome::Congested);
        assert_eq!(limit.now(), 2);
        leaves.pop();
        let waiting = tokio::time::timeout(Duration::from_secs(9), limit.clone().leave());
        assert!(waiting.await.is_err(), "two are still in flight");
        leaves.pop();
        let _third = limit.clone().leave().await;
        drop(leaves);
        let _fourth = limit.clone().leave().await;
    }
}
