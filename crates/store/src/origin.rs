//! Blocks out of a store: the truth that all tiers stand on. It lays patience, a limit on requests and
//! checks over a [`Store`], whose calls are single tries.
//!
//! One run is one request. A body that breaks is taken up again at the last complete block. An object of
//! one block is handed out only when the store's checksum, if it gives one, matches; of a longer object
//! that is asked for as a whole the last block is held back until it does.
//!
//! A stream holds one of the limited requests from its first poll to its end: whoever opens many polls
//! them all, or drops them.
//!
//! Layout: `fetch` (one run), `ask` (one answer), `hedge` (when to ask a second time), `limit` (how many requests at
//! once), `window` (the same as arithmetic), `pace` (how long requests take).
//!
//! Invariant: a block has the length and the place that its address says, and bytes that the store vouches
//! for as far as it can; an error comes out only when trying again is no use or the budget is spent.

mod ask;
mod fetch;
mod hedge;
mod limit;
mod pace;
mod window;

use crate::retry::{Advice, Chance, advise, gave_up};
use crate::{Counters, Store};
use block::{Blocks, Cause, Checksum, Course, Door, Error, Kind, Object, Result, Run, Source, Waiting, last_try};
use futures_util::StreamExt;
use futures_util::stream;
use hedge::Hedges;
use limit::{Leave, Limit};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use window::Outcome;

/// Part of the patience that the first request takes if it hangs. The next one has all that is left: the store may be that slow.
const FIRST_TRY_PART: u32 = 3;

/// How patient an origin is, and how much it asks at once.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a block, or a checksum, is asked for in vain before its reader gets an error.
    pub budget: Duration,
    /// How long a try may bring nothing. Longer than the store's own timeouts, which say more.
    pub silence: Duration,
    /// Requests in flight to begin with. Sixteen of 8 MiB fill ten gigabits at S3's usual speed.
    pub requests_first: u32,
    /// Requests in flight at most. S3 gives some 90 MB/s each, so this is more than a hundred gigabits.
    pub requests_max: u32,
    /// Where chance begins: jitter.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            budget: Duration::from_secs(60),
            silence: Duration::from_secs(30),
            requests_first: 16,
            requests_max: 256,
            seed: 0,
        }
    }
}

/// A store as a source of verified blocks.
#[derive(Clone)]
pub struct Origin(Arc<Parts>);

struct Parts {
    store: Arc<dyn Store>,
    counters: Arc<Counters>,
    limit: Arc<Limit>,
    hedges: Mutex<Hedges>,
    chance: Chance,
    settings: Settings,
}

impl Origin {
    /// Blocks of what this store holds.
    pub fn new(store: Arc<dyn Store>, settings: Settings) -> Origin {
        let counters = store.counters().clone();
        let limit = Limit::new(settings.requests_first, settings.requests_max);
        let (hedges, chance) = (Mutex::default(), Chance::new(settings.seed));
        Origin(Arc::new(Parts { store, counters, limit, hedges, chance, settings }))
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Whether both are one, with one limit and the same connections.
    pub fn is(&self, other: &Origin) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Requests that may be in flight at the moment.
    pub fn requests_limit(&self) -> u32 {
        self.0.limit.now()
    }
}

impl Source for Origin {
    fn fetch(&self, run: Run) -> Blocks {
        let fetch = fetch::Fetch::new(self.0.clone(), run);
        stream::try_unfold(fetch, fetch::Fetch::step).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, _via: Door) -> Waiting<Option<Checksum>> {
        let (parts, object) = (self.0.clone(), object.clone());
        Box::pin(async move { parts.checksum(&object).await })
    }
}

impl Parts {
    async fn checksum(&self, object: &Arc<Object>) -> Result<Option<Checksum>> {
        let (mut tries, course) = (Tries::begin(), Course::default());
        loop {
            let error = match self.leave(&mut tries, object, &course).await {
                Ok(leave) => match self.in_time(&tries, object, self.store.checksum(object)).await {
                    Ok(checksum) => {
                        leave.done(Outcome::Fine);
                        self.limit.answered();
                        return Ok(checksum);
                    }
                    Err(error) => {
                        tries.kept = leave.failed(outcome(&error));
                        error
                    }
                },
                Err(error) => error,
            };
            self.wait_or_fail(&mut tries, error, &course).await?;
        }
    }

    /// Leave to send the next request. Standing in line takes patience only while the store answers nobody; with too
    /// little of it left for a request, none is sent.
    async fn leave(&self, tries: &mut Tries, object: &Object, course: &Course) -> Result<Leave> {
        if let Some(kept) = tries.kept.take() {
            tries.start();
            return Ok(kept);
        }
        course.enter(self.limit.cause());
        tries.pause();
        let budget = self.settings.budget;
        let (asked, left) = (Instant::now(), budget.saturating_sub(tries.spent() + last_try(budget) / 2));
        let mut line = pin!(self.limit.clone().leave(course));
        let leave = loop {
            let since = self.limit.unanswered_since(asked);
            match tokio::time::timeout_at(since + left, &mut line).await {
                Ok(leave) => break Some(leave),
                Err(_) if self.limit.unanswered_since(asked) == since => break None,
                Err(_) => {}
            }
        };
        Counters::add_time(&self.counters.waited_ns, asked.elapsed());
        tries.used += self.limit.unanswered_since(asked).elapsed();
        match leave {
            Some(leave) => {
                tries.start();
                Ok(leave)
            }
            None => Err(tries.last.take().unwrap_or_else(|| {
                Error::unavailable(format!("the store answered nobody for {:.1} s", left.as_secs_f64()), object)
            })),
        }
    }

    /// What a try brings, unless it brings nothing for too long.
    async fn in_time<T>(&self, tries: &Tries, object: &Object, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let budget = self.settings.budget;
        let left = budget.saturating_sub(tries.spent()).max(Duration::from_millis(1));
        let first = if tries.count > 1 { left } else { budget / FIRST_TRY_PART };
        let limit = self.settings.silence.min(first).min(left);
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::unavailable(format!("the store was silent for {:.1} s", limit.as_secs_f64()), object)),
        }
    }

    /// Wait before the next try, or hand the error out if there is to be none.
    async fn wait_or_fail(&self, tries: &mut Tries, error: Error, course: &Course) -> Result<()> {
        if !is_news(&error) {
            self.counters.failed_with(&error);
        }
        if !error.passes() {
            self.limit.answered();
        }
        match advise(&error, tries.count, tries.spent(), self.settings.budget, self.chance.next()) {
            Advice::Wait(wait) => {
                tracing::debug!(what = error.what, on = error.on, ?wait, "trying again");
                Counters::add(&self.counters.retries, 1);
                Counters::add_time(&self.counters.backed_off_ns, wait);
                course.enter(if error.is_throttling() { Cause::Throttling } else { Cause::Errors });
                tries.last = Some(error);
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Advice::GiveUp => {
                self.failed(&error);
                Err(gave_up(error, tries.count, tries.spent()))
            }
        }
    }
}

impl Parts {
    fn hedges(&self) -> MutexGuard<'_, Hedges> {
        self.hedges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Count a failure.
    fn failed(&self, error: &Error) {
        if !is_news(error) {
            Counters::add(&self.counters.errors, 1);
        }
    }
}

/// A version that is gone is news for the reader, not a failure of the store.
fn is_news(error: &Error) -> bool {
    matches!(error.kind, Kind::Changed | Kind::Missing)
}

/// What a failed request tells of how much the store can bear.
fn outcome(error: &Error) -> Outcome {
    match error.kind {
        Kind::Unavailable { .. } if error.is_throttling() => Outcome::Throttled,
        Kind::Unavailable { .. } => Outcome::Congested,
        _ => Outcome::Neutral,
    }
}

/// Tries since something last came.
struct Tries {
    count: u32,
    /// Patience that was used up before it last began to run.
    used: Duration,
    /// Since when it runs: not in line.
    since: Option<Instant>,
    last: Option<Error>,
    /// Leave that the next try has already.
    kept: Option<Leave>,
}

impl Tries {
    fn begin() -> Tries {
        Tries { count: 0, used: Duration::ZERO, since: None, last: None, kept: None }
    }

    fn start(&mut self) {
        self.count += 1;
        self.go_on();
    }

    fn go_on(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn pause(&mut self) {
        self.used = self.spent();
        self.since = None;
    }

    fn spent(&self) -> Duration {
        self.used + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
#[path = "origin/tests.rs"]
mod tests;
