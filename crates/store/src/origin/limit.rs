//! Leave to send requests: as many at a time as [`Window`] says; those that a reader waits for first, as they come, then
//! those that are due first.
//!
//! What the window learns is measured here, by the round: as many requests as may be in flight, after as many
//! that were sent before the limit last changed.
//!
//! Invariant: no more requests are let out than the limit; those in flight when it was cut are not replaced.

mod turns;

use super::pace::{Pace, Timing};
use super::window::{Outcome, Round, Window};
use block::{Cause, Course};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use turns::Turns;

/// Requests and time of a round at least: fewer say too little on a machine that is busy with other things.
const ROUND_REQUESTS_MIN: u32 = 16;
const ROUND_MIN: Duration = Duration::from_millis(50);

/// What a request is worth beside its bytes: very small objects cost by the request.
const REQUEST_BYTES: u64 = 64 << 10;

/// The limit, and who waits for it.
pub struct Limit {
    free: Arc<Semaphore>,
    /// Of those that nobody waits for yet, one at a time stands in line with the others: in its folder.
    patient: Turns,
    state: Mutex<State>,
}

struct State {
    window: Window,
    /// Requests in flight beyond the limit since it was cut; they are not replaced.
    excess: u32,
    cut_at: Option<Instant>,
    /// When the store last answered anybody.
    answered_at: Option<Instant>,
    pace: Pace,
    tally: Sent,
}

/// A round on its way.
#[derive(Default)]
struct Sent {
    /// Requests still to end that were sent before the limit changed.
    stale: u32,
    began: Option<Instant>,
    requests: u32,
    bound: u32,
    bytes: u64,
    /// Seconds that the requests took, and would have taken alone.
    took: f64,
    alone: f64,
}

impl Limit {
    pub fn new(first: u32, max: u32) -> Arc<Limit> {
        let window = Window::new(first, max);
        let free = Arc::new(Semaphore::new(window.limit as usize));
        let (cut_at, answered_at, pace, tally) = Default::default();
        let state = Mutex::new(State { window, excess: 0, cut_at, answered_at, pace, tally });
        Arc::new(Limit { free, patient: Turns::default(), state })
    }

    /// Leave to send a request; it is given back when dropped. One that a reader waits for passes those that none does,
    /// also if the reader comes later.
    pub async fn leave(self: Arc<Self>, course: &Course) -> Leave {
        // What has no time by which it is wanted was wanted when it was asked for.
        let asked = Instant::now();
        let _turn = loop {
            let due = course.due();
            tokio::select! {
                biased;
                () = course.urged() => break None,
                () = course.hastened(due) => {}
                turn = self.patient.take(due.map_or(asked, Instant::from_std)) => break Some(turn),
            }
        };
        let permit = self.free.clone().acquire_owned().await.expect("the semaphore is never closed");
        self.clone().given(permit)
    }

    /// Leave to send a request if nobody has to wait for it.
    pub fn spare(self: &Arc<Self>) -> Option<Leave> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        Some(self.clone().given(permit))
    }

    fn given(self: Arc<Self>, permit: OwnedSemaphorePermit) -> Leave {
        let in_flight = self.state().in_flight(self.free.available_permits());
        Leave { limit: self, permit: Some(permit), outcome: Outcome::Neutral, timing: None, in_flight }
    }

    pub fn now(&self) -> u32 {
        self.state().window.limit
    }

    /// Why a request has to wait for leave.
    pub fn cause(&self) -> Cause {
        self.state().window.cause()
    }

    /// Whether more bytes could not come faster.
    pub fn bandwidth_binds(&self) -> bool {
        let state = self.state();
        state.window.is_saturated() || state.pace.binds()
    }

    /// Where bandwidth binds, the time to the first byte that is not owed to it.
    pub fn first_byte_if_bound(&self) -> Option<Duration> {
        let state = self.state();
        let is_bound = state.window.is_saturated() || state.pace.binds();
        let alone = if is_bound { state.pace.first_byte_alone() } else { None };
        alone.map(Duration::from_secs_f64)
    }

    /// Time since the store last could not follow.
    pub fn since_cut(&self) -> Option<Duration> {
        self.state().cut_at.map(|at| at.elapsed())
    }

    /// The store answered somebody.
    pub fn answered(&self) {
        self.state().answered_at = Some(Instant::now());
    }

    /// Since when the store answered nobody, as seen by who waits since a moment.
    pub fn unanswered_since(&self, asked: Instant) -> Instant {
        self.state().answered_at.map_or(asked, |at| at.max(asked))
    }

    fn ended(&self, outcome: Outcome, timing: Option<Timing>, permit: OwnedSemaphorePermit) {
        let mut state = self.learned(outcome, timing);
        if state.excess > 0 {
            state.excess -= 1;
            permit.forget();
        }
    }

    /// A request showed how much the store can bear.
    fn learned(&self, outcome: Outcome, timing: Option<Timing>) -> MutexGuard<'_, State> {
        let is_full = self.free.available_permits() == 0;
        let mut state = self.state();
        let before = state.window.limit;
        if let Some(timing) = timing {
            state.window = state.fine(timing, is_full);
        } else if let Some(cut) = state.window.failed(outcome, state.cut_at.map(|at| at.elapsed())) {
            (state.window, state.cut_at) = (cut, Some(Instant::now()));
        }
        let after = state.window.limit;
        if after != before && !state.window.is_starting {
            state.tally = Sent { stale: before, ..Sent::default() };
        }
        if after < before {
            let taken = self.free.forget_permits((before - after) as usize);
            state.excess += before - after - u32::try_from(taken).expect("at most what was asked for");
        }
        if after > before {
            let repaid = state.excess.min(after - before);
            state.excess -= repaid;
            self.free.add_permits((after - before - repaid) as usize);
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Requests in flight while so many more may be sent.
    fn in_flight(&self, free: usize) -> u32 {
        (self.window.limit + self.excess).saturating_sub(u32::try_from(free).unwrap_or(u32::MAX))
    }

    /// The window after a request that went well.
    fn fine(&mut self, timing: Timing, is_full: bool) -> Window {
        let alone = self.pace.note(timing);
        if self.window.is_starting && is_full {
            self.window = self.window.started();
        }
        let tally = &mut self.tally;
        if tally.stale > 0 {
            tally.stale -= 1;
            return self.window;
        }
        // Its first request began the round and belongs to what came before.
        let Some(began) = tally.began else {
            tally.began = Some(Instant::now());
            return self.window;
        };
        tally.requests += 1;
        tally.bound += u32::from(is_full);
        tally.bytes += timing.bytes + REQUEST_BYTES;
        tally.took += timing.seconds();
        tally.alone += alone;
        if tally.requests < self.window.limit.max(ROUND_REQUESTS_MIN) || began.elapsed() < ROUND_MIN {
            return self.window;
        }
        let tally = std::mem::take(tally);
        self.window.after(Round {
            is_bound: tally.bound * 4 >= tally.requests * 3,
            rate: tally.bytes as f64 / began.elapsed().as_secs_f64(),
            slowdown: tally.took / tally.alone.max(f64::MIN_POSITIVE),
        })
    }
}

/// Leave to send one request.
pub struct Leave {
    limit: Arc<Limit>,
    permit: Option<OwnedSemaphorePermit>,
    outcome: Outcome,
    timing: Option<Timing>,
    in_flight: u32,
}

impl Leave {
    /// Give it back and tell how the request ended.
    pub fn done(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// Tell how a request failed. Where the store wishes to be asked less it is kept: who was refused waits in its
    /// place, so that nobody else asks meanwhile, and need not stand in line again.
    pub fn failed(mut self, outcome: Outcome) -> Option<Leave> {
        if outcome == Outcome::Throttled {
            drop(self.limit.learned(outcome, None));
            return Some(self);
        }
        self.outcome = outcome;
        None
    }

    /// Give it back after a request that went well, and tell what it took.
    pub fn fine(mut self, timing: Timing) {
        let in_flight = self.in_flight;
        (self.outcome, self.timing) = (Outcome::Fine, Some(Timing { in_flight, ..timing }));
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.limit.ended(self.outcome, self.timing, permit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> std::time::Instant {
        Instant::now().into_std()
    }

    fn urgent() -> Course {
        Course::begin(clock, true)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_a_reader_waits_for_passes_those_that_nobody_waits_for() {
        let limit = Limit::new(1, 1);
        let held = limit.clone().leave(&urgent()).await;
        let [later, ahead] = [Course::begin(clock, false), Course::begin(clock, false)];
        let ask = |course: &Course, letter| {
            let (limit, course) = (limit.clone(), course.clone());
            async move {
                limit.leave(&course).await.done(Outcome::Neutral);
                letter
            }
        };
        let mut all = tokio::task::JoinSet::new();
        let asked = [(&ahead, 'a'), (&ahead, 'b'), (&later, 'c'), (&urgent(), 'D'), (&urgent(), 'E')];
        for (course, letter) in asked {
            all.spawn(ask(course, letter));
            tokio::task::yield_now().await;
        }
        later.urge();
        tokio::task::yield_now().await;
        drop(held);
        let mut order = String::new();
        while let Some(letter) = all.join_next().await {
            order.push(letter.expect("leave"));
        }
        assert_eq!(order, "aDEcb");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_sooner_passes_what_is_due_later_also_if_that_is_known_later() {
        let limit = Limit::new(1, 1);
        let held = limit.clone().leave(&urgent()).await;
        let due = |seconds| clock() + Duration::from_secs(seconds);
        let courses = [1, 9, 5, 7].map(|seconds| Course::until_due(clock, due(seconds)));
        let mut all = tokio::task::JoinSet::new();
        for (course, letter) in courses.iter().zip('a'..) {
            let (limit, course) = (limit.clone(), course.clone());
            all.spawn(async move {
                limit.leave(&course).await.done(Outcome::Neutral);
                letter
            });
            tokio::task::yield_now().await;
        }
        courses[1].hasten(due(2));
        courses[2].hasten(due(8));
        tokio::task::yield_now().await;
        drop(held);
        let mut order = String::new();
        while let Some(letter) = all.join_next().await {
            order.push(letter.expect("leave"));
        }
        assert_eq!(order, "abcd");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_limit_binds_those_who_come_after() {
        let (limit, urgent) = (Limit::new(4, 8), urgent());
        let mut leaves = Vec::new();
        for _ in 0..4 {
            leaves.push(limit.clone().leave(&urgent).await);
        }
        leaves.pop().expect("four").done(Outcome::Congested);
        assert_eq!(limit.now(), 2);
        leaves.pop();
        let waiting = tokio::time::timeout(Duration::from_secs(9), limit.clone().leave(&urgent));
        assert!(waiting.await.is_err(), "two are still in flight");
        leaves.pop();
        let _third = limit.clone().leave(&urgent).await;
        drop(leaves);
        assert!(limit.spare().is_some(), "nobody waits");
        let _fourth = limit.clone().leave(&urgent).await;
        assert!(limit.spare().is_none());
    }
}
