//! Listing: many folders at a time, each a row of questions for a thousand names.
//!
//! Folders that wait are a stack, so that a tree is walked in depth and few wait at a time. Names of a folder come in
//! ascending order; where an answer fails, the folder is begun again, and what was told is left out. (One whose names don't ascend is not.)
//!
//! Invariant: each file exactly once; a folder that can't be read is an error, not a gap.

use super::{Cluster, listed, path_of};
use crate::retry::{Advice, advise, gave_up};
use crate::{Counters, Listed, Pages};
use block::{Kind, Result};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use hdfs_native::client::{FileStatus, ListStatusIterator};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Names of a page: as many as a name node tells at a time (`dfs.ls.limit`).
const PAGE: usize = 1000;

/// How long the first folder is asked for. Whoever typed a wrong name node is waiting for this answer.
const FIRST_BUDGET: Duration = Duration::from_secs(10);

/// The pages of a listing.
pub fn pages(cluster: Arc<Cluster>, prefix: &str) -> Pages {
    let start = prefix.rsplit_once('/').map_or("", |(start, _)| start);
    let is_meant = start.is_empty() && !prefix.starts_with('/') || path_of(start).is_some();
    let first = Folder { is_first: true, ..Folder::new(start.to_owned()) };
    let waiting = if is_meant { vec![first] } else { Vec::new() };
    let walk = Walk { cluster, prefix: prefix.into(), waiting, running: FuturesUnordered::new() };
    stream::try_unfold(walk, Walk::step).boxed()
}

/// A folder that is being listed.
struct Folder {
    /// As keys begin with it, without the slash.
    key: String,
    is_first: bool,
    /// The last name that was told, and whether all of them came in order.
    last: String,
    is_ordered: bool,
    names: Option<ListStatusIterator>,
}

impl Folder {
    fn new(key: String) -> Folder {
        Folder { key, is_first: false, last: String::new(), is_ordered: true, names: None }
    }

    fn path(&self) -> String {
        format!("/{}", self.key)
    }
}

/// Some names of a folder, and the folder if there are more.
type Told = (Folder, Vec<FileStatus>, bool);

struct Walk {
    cluster: Arc<Cluster>,
    prefix: Arc<str>,
    waiting: Vec<Folder>,
    running: FuturesUnordered<BoxFuture<'static, Result<Told>>>,
}

impl Walk {
    /// The next page that has files.
    async fn step(mut self) -> Result<Option<(Vec<Listed>, Walk)>> {
        loop {
            while self.running.len() < self.cluster.settings.list_requests.max(1) {
                let Some(folder) = self.waiting.pop() else { break };
                self.running.push(Box::pin(patiently(self.cluster.clone(), folder)));
            }
            let Some(told) = self.running.next().await else { return Ok(None) };
            let (folder, names, is_over) = told?;
            let page: Vec<Listed> = names.iter().filter_map(|found| self.take(&folder, found)).collect();
            if !is_over {
                self.waiting.push(folder);
            }
            if !page.is_empty() {
                return Ok(Some((page, self)));
            }
        }
    }

    /// The file that a name is; a folder waits for its turn, if the prefix leads into it or through it.
    fn take(&mut self, folder: &Folder, found: &FileStatus) -> Option<Listed> {
        let name = name_of(found, folder)?;
        let key = if folder.key.is_empty() { name.to_owned() } else { format!("{}/{name}", folder.key) };
        if !found.isdir {
            return key.starts_with(&*self.prefix).then(|| listed(key, found));
        }
        let below = format!("{key}/");
        if below.starts_with(&*self.prefix) || self.prefix.starts_with(&below) {
            self.waiting.push(Folder::new(key));
        }
        None
    }
}

/// The name of an entry. A file that is asked for its entries tells itself.
fn name_of<'a>(found: &'a FileStatus, folder: &Folder) -> Option<&'a str> {
    let path = folder.path();
    found.path.strip_prefix(path.trim_end_matches('/'))?.strip_prefix('/').filter(|name| !name.is_empty())
}

/// The next names of a folder, asked for again as long as there is hope.
async fn patiently(cluster: Arc<Cluster>, mut folder: Folder) -> Result<Told> {
    let (began, budget) = (Instant::now(), cluster.settings.list_budget);
    let budget = if folder.is_first { budget.min(FIRST_BUDGET) } else { budget };
    for tries in 1.. {
        let error = match some(&cluster, &mut folder).await {
            Ok((names, is_over)) => {
                folder.is_first = false;
                return Ok((folder, names, is_over));
            }
            // It went away in between, or a prefix names a folder that never was.
            Err(error) if error.kind == Kind::Missing => return Ok((folder, Vec::new(), true)),
            Err(error) => error,
        };
        cluster.counters.failed_with(&error);
        let is_hopeless = folder.is_first && error.is_unreachable() || !folder.is_ordered;
        let advice = match is_hopeless {
            true => Advice::GiveUp,
            false => advise(&error, tries, began.elapsed(), budget, cluster.chance.next()),
        };
        match advice {
            Advice::GiveUp => {
                cluster.counters.gave_up();
                return Err(gave_up(error, tries, began.elapsed()));
            }
            Advice::Wait(wait) => {
                tracing::debug!(%error, ?wait, "a folder of the listing is asked for again");
                cluster.counters.repeated_after(wait);
                tokio::time::sleep(wait).await;
            }
        }
    }
    unreachable!("the number of tries is bounded by the budget")
}

/// Some names of a folder, and whether they are the last.
async fn some(cluster: &Cluster, folder: &mut Folder) -> Result<(Vec<FileStatus>, bool)> {
    let (on, path) = (cluster.name_of(&folder.key), folder.path());
    // An answer that failed ends its row: only the first question goes on with one that was begun.
    let begun = Mutex::new(folder.names.take());
    Counters::add(&cluster.counters.lists, 1);
    let asked = cluster.names.ask(&on, |client| {
        let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let told = if begun.is_some() { String::new() } else { folder.last.clone() };
        let names = begun.unwrap_or_else(|| client.list_status_iter(&path, false));
        Box::pin(async move {
            let mut some = Vec::new();
            while some.len() < PAGE {
                match names.next().await {
                    Some(Ok(found)) if comes_after(last_step(&found), &told) => some.push(found),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                    None => return Ok((some, None)),
                }
            }
            Ok((some, Some(names)))
        })
    });
    let (some, more) = asked.await?;
    for found in &some {
        let name = last_step(found);
        folder.is_ordered &= comes_after(name, &folder.last);
        name.clone_into(&mut folder.last);
    }
    let is_over = more.is_none();
    folder.names = more;
    Ok((some, is_over))
}

fn last_step(found: &FileStatus) -> &str {
    found.path.rsplit('/').next().unwrap_or_default()
}

/// Whether a name node tells this name after that one: it compares bytes, and takes those beyond ASCII for negative.
fn comes_after(name: &str, other: &str) -> bool {
    let signed = |name: &str| name.bytes().map(u8::cast_signed).collect::<Vec<_>>();
    other.is_empty() || signed(name) > signed(other)
}
