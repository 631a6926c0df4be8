//! Listing a bucket, many requests at a time. What is asked next says a plan: `rows` where a listing may begin after any key,
//! `folders` where it may not.
//!
//! Invariant: each key exactly once, whatever way was taken; a page that can't be had is an error, not a gap.

mod folders;
mod rows;

use super::page::Page;
use crate::retry::{Advice, Chance, advise, gave_up};
use crate::{Counters, Listed, Pages};
use block::{Error, Result};
use folders::Folders;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use rows::Rows;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the first page is asked for. Whoever typed a wrong endpoint is waiting for this answer.
const FIRST_BUDGET: Duration = Duration::from_secs(10);

/// Bytes of a page: a thousand keys of a thousand bytes, three letters for each, and what is around them.
pub const PAGE_MAX: usize = 8 << 20;

/// What a page is asked for by.
pub struct Question<'a> {
    pub prefix: &'a str,
    /// Whether names below a folder are to be folded together.
    pub is_folded: bool,
    /// Keys up to this one need not be told again.
    pub after: Option<&'a str>,
    /// Where the page begins, as the page before it said.
    pub next: Option<&'a str>,
}

/// Who answers with pages. One call is one attempt.
pub trait Listing: Send + Sync + 'static {
    fn page<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Page>>;

    /// How it is listed.
    fn manner(&self) -> Manner<'_>;
}

/// How a store is listed.
#[derive(Clone, Copy)]
pub struct Manner<'a> {
    pub identity: &'a Arc<str>,
    pub counters: &'a Arc<Counters>,
    pub chance: &'a Chance,
    /// Requests at a time.
    pub requests: usize,
    /// How long a page is asked for again before the listing fails.
    pub budget: Duration,
    /// Whether a listing may begin after any key.
    pub begins_anywhere: bool,
}

/// The pages of a listing.
pub fn pages(bucket: Arc<dyn Listing>, prefix: String) -> Pages {
    let plan: Box<dyn Plan> = match bucket.manner().begins_anywhere {
        true => Box::new(Rows::of(prefix)),
        false => Box::new(Folders::of(prefix)),
    };
    let walk = Walk { bucket, plan, running: FuturesUnordered::new(), trails: HashMap::new() };
    stream::try_unfold(walk, Walk::step).boxed()
}

/// A request to be sent.
#[derive(Clone, Debug)]
struct Task {
    /// By which the plan knows it.
    number: usize,
    prefix: String,
    is_folded: bool,
    after: Option<String>,
    /// Where the page begins.
    next: Option<String>,
    /// Whether somebody waits for it to hear whether there is a store at all.
    is_first: bool,
}

impl Task {
    fn question(&self) -> Question<'_> {
        Question {
            prefix: &self.prefix,
            is_folded: self.is_folded,
            after: self.after.as_deref(),
            next: self.next.as_deref(),
        }
    }
}

/// What to ask next. It never sends.
trait Plan: Send {
    /// The next request, if there is one that doesn't wait for an answer. `requests`: how many may be under way.
    fn next(&mut self, requests: usize) -> Option<Task>;

    /// Take what an answer tells. Keys that nobody told before come back.
    fn learn(&mut self, number: usize, page: Result<Page>) -> Result<Vec<Listed>>;
}

struct Walk {
    bucket: Arc<dyn Listing>,
    plan: Box<dyn Plan>,
    running: FuturesUnordered<BoxFuture<'static, (Task, Result<Page>)>>,
    /// By what a page is asked for that follows others: what is remembered of these.
    trails: HashMap<(String, bool, String), Trail>,
}

/// Notices pages that lead round in a circle, by one of them alone (Brent's way): the mark is set anew after 1, 2, 4, 8
/// pages, so that at last it lies in the circle, and for longer than one round takes.
#[derive(Default)]
struct Trail {
    pages: u64,
    mark: String,
}

impl Trail {
    /// Whether the next page is another than the marked one.
    fn leads_on(&mut self, next: &str) -> bool {
        let is_other = self.pages == 0 || self.mark != next;
        self.pages += 1;
        if self.pages.is_power_of_two() {
            self.mark = next.to_owned();
        }
        is_other
    }
}

impl Walk {
    /// The next page that has keys.
    async fn step(mut self) -> Result<Option<(Vec<Listed>, Walk)>> {
        let requests = self.bucket.manner().requests.max(1);
        loop {
            while self.running.len() < requests {
                let Some(task) = self.plan.next(requests) else { break };
                self.running.push(Box::pin(found(self.bucket.clone(), task)));
            }
            let Some(done) = self.running.next().await else { return Ok(None) };
            let (task, page) = done;
            let number = task.number;
            self.follow(task, &page)?;
            let listed = self.plan.learn(number, page)?;
            if !listed.is_empty() {
                return Ok(Some((listed, self)));
            }
        }
    }

    /// Note where a page leads, which must be further.
    fn follow(&mut self, task: Task, page: &Result<Page>) -> Result<()> {
        let Task { prefix, is_folded, next, .. } = task;
        let mut key = (prefix, is_folded, next.unwrap_or_default());
        let mut trail = self.trails.remove(&key).unwrap_or_default();
        let Ok(Page { next: Some(next), .. }) = page else { return Ok(()) };
        if *next == key.2 || !trail.leads_on(next) {
            let on = format!("{}/{}", self.bucket.manner().identity, key.0);
            let error = Error::corrupt("the store's listing goes round in a circle: a page leads to one before it", on);
            return Err(error.hint("this is a fault of the server; list another prefix, or ask who runs it"));
        }
        key.2.clone_from(next);
        self.trails.insert(key, trail);
        Ok(())
    }
}

/// The page that a task asks for.
async fn found(bucket: Arc<dyn Listing>, task: Task) -> (Task, Result<Page>) {
    let page = patiently(&*bucket, &task).await;
    (task, page)
}

/// One page, asked for again as long as there is hope.
async fn patiently(bucket: &dyn Listing, task: &Task) -> Result<Page> {
    let is_first = task.is_first;
    let Manner { identity, counters, chance, budget, .. } = bucket.manner();
    let (began, budget) = (Instant::now(), if is_first { budget.min(FIRST_BUDGET) } else { budget });
    for tries in 1.. {
        let left = budget.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
        let error = match tokio::time::timeout(left, bucket.page(task.question())).await {
            Ok(Ok(page)) => return Ok(page),
            Ok(Err(error)) => error,
            Err(_) => {
                let what = format!("the store did not answer a listing within {:.1} s", left.as_secs_f64());
                Error::unavailable(what, format!("{identity}/{}", task.prefix))
            }
        };
        counters.failed_with(&error);
        let advice = match is_first && error.is_unreachable() {
            true => Advice::GiveUp,
            false => advise(&error, tries, began.elapsed(), budget, chance.next()),
        };
        match advice {
            Advice::GiveUp => {
                Counters::add(&counters.errors, 1);
                return Err(gave_up(error, tries, began.elapsed()));
            }
            Advice::Wait(wait) => {
                tracing::debug!(%error, ?wait, "a page of the listing is asked for again");
                Counters::add(&counters.retries, 1);
                Counters::add_time(&counters.backed_off_ns, wait);
                tokio::time::sleep(wait).await;
            }
        }
    }
    unreachable!("the number of tries is bounded by the budget")
}

#[cfg(test)]
#[path = "listing/tests.rs"]
mod tests;
