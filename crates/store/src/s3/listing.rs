//! Listing a bucket, many requests at a time; Google's and Azure's are listed by the same plan.
//!
//! The keys below a prefix are found by its *folders* (what a delimiter folds together), and each folder is
//! listed by itself. Where there are few folders, theirs are looked for, too. Where the folders turn out to
//! be small, asking for each would cost more than it gains: the rest is then listed in one row, after the
//! last folder that was begun.
//!
//! Invariant: each key exactly once, whatever way was taken; a page that can't be had is an error, not a gap.

use super::page::Page;
use crate::retry::{Advice, Chance, advise, gave_up};
use crate::{Counters, Listed, Pages};
use block::{Error, Kind, Result};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Folders that are listed before it is known whether folders are large.
const SAMPLE: u64 = 16;

/// A folder that has fewer keys is small: a page holds a thousand, so a request of its own brings a fifth.
const SMALL: u64 = 200;

/// How deep folders are looked for within folders where there are too few to keep all requests busy.
const DEEP: u8 = 4;

/// Levels of folders that are kept apart; further ones are listed without looking for folders.
const LEVELS_MAX: usize = 64;

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
}

/// The pages of a listing.
pub fn pages(bucket: Arc<dyn Listing>, prefix: String) -> Pages {
    let levels = vec![Level { prefix: prefix.clone(), ..Level::default() }];
    let waiting = VecDeque::from([Task { prefix, level: 0, shape: Shape::Folders, next: None, found: 0 }]);
    let walk = Walk { bucket, plan: Plan { waiting, levels }, running: FuturesUnordered::new() };
    stream::try_unfold(walk, Walk::step).boxed()
}

/// A request to be sent.
#[derive(Clone, Debug)]
struct Task {
    prefix: String,
    /// The level that this task tells about.
    level: usize,
    shape: Shape,
    /// Where the page begins.
    next: Option<String>,
    /// Keys that earlier pages of this row had.
    found: u64,
}

impl Task {
    fn question(&self) -> Question<'_> {
        let is_folded = matches!(self.shape, Shape::Folders);
        let after = if let Shape::Rest { after, .. } = &self.shape { Some(after.as_str()) } else { None };
        Question { prefix: &self.prefix, is_folded, after, next: self.next.as_deref() }
    }
}

#[derive(Clone, Debug)]
enum Shape {
    /// Keys and folders directly under the prefix.
    Folders,
    /// All keys under the prefix.
    All,
    /// All keys under the prefix that are not known yet.
    Rest { after: String, direct_until: String },
}

/// The folders under one prefix, and how large they turn out to be.
#[derive(Debug, Default)]
struct Level {
    prefix: String,
    deep: u8,
    /// Folders found so far.
    width: usize,
    /// Folders not begun yet, one page of them, and where the next page begins.
    folders: VecDeque<String>,
    next: Option<String>,
    /// The last folder that was begun, and the last name that is known.
    last_begun: String,
    last_known: String,
    is_disordered: bool,
    /// Folders that were listed to their end, and the keys that they had.
    listed: u64,
    keys: u64,
}

/// What to ask next. Pure: it never sends.
struct Plan {
    waiting: VecDeque<Task>,
    levels: Vec<Level>,
}

impl Plan {
    fn next(&mut self, requests: usize) -> Option<Task> {
        let found = self.waiting.pop_front();
        found.or_else(|| (0..self.levels.len()).find_map(|level| self.begin(level, requests)))
    }

    /// The next folder of a level, or the rest of it in one row.
    fn begin(&mut self, level: usize, requests: usize) -> Option<Task> {
        let is_full = self.levels.len() >= LEVELS_MAX;
        let at = &mut self.levels[level];
        let task = |prefix, shape| Some(Task { prefix, level, shape, next: None, found: 0 });
        if at.is_better_in_a_row() {
            at.folders.clear();
            at.next = None;
            let (after, direct_until) = (at.last_begun.clone(), at.last_known.clone());
            return task(at.prefix.clone(), Shape::Rest { after, direct_until });
        }
        let is_narrow = at.next.is_none() && at.width < requests && at.deep < DEEP && !is_full;
        let Some(folder) = at.folders.pop_front() else {
            let next = Some(at.next.take()?);
            return Some(Task { prefix: at.prefix.clone(), level, shape: Shape::Folders, next, found: 0 });
        };
        at.last_begun.clone_from(&folder);
        if !is_narrow {
            return task(folder, Shape::All);
        }
        let deep = at.deep + 1;
        self.levels.push(Level { prefix: folder.clone(), deep, ..Level::default() });
        let level = self.levels.len() - 1;
        Some(Task { prefix: folder, level, shape: Shape::Folders, next: None, found: 0 })
    }

    /// Take what a page tells: its keys, and what to ask next.
    fn learn(&mut self, mut task: Task, page: Page) -> Vec<Listed> {
        let mut listed = page.listed;
        match &task.shape {
            Shape::Folders => {
                self.levels[task.level].learn(&listed, page.prefixes, page.next);
                return listed;
            }
            Shape::All => {}
            Shape::Rest { after, direct_until } => {
                listed.retain(|listed| is_new(&listed.key, &task.prefix, after, direct_until));
            }
        }
        task.found += listed.len() as u64;
        match page.next {
            Some(next) => self.waiting.push_back(Task { next: Some(next), ..task }),
            None => {
                let level = &mut self.levels[task.level];
                level.listed += 1;
                level.keys += task.found;
            }
        }
        listed
    }
}

impl Level {
    fn learn(&mut self, listed: &[Listed], prefixes: Vec<String>, next: Option<String>) {
        let is_ascending = prefixes.is_sorted() && prefixes.first().is_none_or(|first| *first > self.last_begun);
        self.is_disordered |= !is_ascending;
        let names = listed.iter().map(|listed| &listed.key).chain(&prefixes);
        if let Some(last) = names.max() {
            self.last_known.clone_from(last);
        }
        self.width += prefixes.len();
        self.folders.extend(prefixes);
        self.next = next;
    }

    /// Whether folders are so small, and so many are left, that one row through them asks less.
    fn is_better_in_a_row(&self) -> bool {
        let is_long = self.folders.len() as u64 > SAMPLE || self.next.is_some();
        is_long && !self.is_disordered && self.listed >= SAMPLE && self.keys < self.listed * SMALL
    }
}

/// Whether a key of the row through the rest of a level was not listed before.
fn is_new(key: &str, prefix: &str, after: &str, direct_until: &str) -> bool {
    let is_direct = key.strip_prefix(prefix).is_some_and(|name| !name.contains('/'));
    key > after && !key.starts_with(after) && !(is_direct && key <= direct_until)
}

struct Walk {
    bucket: Arc<dyn Listing>,
    plan: Plan,
    running: FuturesUnordered<BoxFuture<'static, Result<(Task, Page)>>>,
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
            let (task, page) = done?;
            let listed = self.plan.learn(task, page);
            if !listed.is_empty() {
                return Ok(Some((listed, self)));
            }
        }
    }
}

/// The page that a task asks for. A server that refuses delimiters is asked without.
async fn found(bucket: Arc<dyn Listing>, mut task: Task) -> Result<(Task, Page)> {
    let page = patiently(&*bucket, &task).await;
    let is_refused = page.as_ref().is_err_and(|error| matches!(error.kind, Kind::Denied | Kind::Invalid));
    if is_refused && matches!(task.shape, Shape::Folders) && task.next.is_none() {
        task.shape = Shape::All;
        return Ok((task.clone(), patiently(&*bucket, &task).await?));
    }
    Ok((task, page?))
}

/// One page, asked for again as long as there is hope.
async fn patiently(bucket: &dyn Listing, task: &Task) -> Result<Page> {
    let is_first = task.level == 0 && matches!(task.shape, Shape::Folders) && task.next.is_none();
    let Manner { identity, counters, chance, budget, .. } = bucket.manner();
    let (began, budget) = (Instant::now(), if is_first { budget.min(FIRST_BUDGET) } else { budget });
    for tries in 1.. {
        let left = budget.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
        let error = match tokio::time::timeout(left, asked(bucket, task)).await {
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

/// One page, which leads further if it leads anywhere.
async fn asked(bucket: &dyn Listing, task: &Task) -> Result<Page> {
    let page = bucket.page(task.question()).await?;
    if page.next.is_some() && page.next == task.next {
        let on = format!("{}/{}", bucket.manner().identity, task.prefix);
        return Err(Error::corrupt("the listing goes round in a circle", on));
    }
    Ok(page)
}

#[cfg(test)]
#[path = "listing/tests.rs"]
mod tests;
