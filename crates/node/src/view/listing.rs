//! From a listing of a store to a snapshot of names.
//!
//! Invariant: an empty listing is an error with what to check, never an empty data set.

use super::DataSet;
use crate::home::needs_room;
use crate::manifest::{self, Builder, Manifest};
use crate::node::Node;
use block::{Error, Result};
use futures_util::StreamExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far another clock may be ahead of this node's. A listing that is said to be of a later time counts as of none: nobody would
/// follow newer ones until that time.
const AHEAD_MAX: Duration = Duration::from_mins(5);

/// Objects that are named to the cache at once which no listing names any more: each takes some hundred bytes until then.
const RELEASED_AT_ONCE: usize = 1000;

/// A listing, and when it began.
pub struct Listing {
    builder: Builder,
    began_ns: i64,
    /// When others listed whom this one only answers.
    answers_ns: Option<i64>,
}

impl Listing {
    /// Names that were listed at this time, by whomever.
    pub fn of(builder: Builder, began_ns: i64) -> Listing {
        Listing { builder, began_ns, answers_ns: None }
    }

    /// It is to count as of the time of those that it answers: later, they would take it for news.
    pub fn in_answer_to(self, answers_ns: Option<i64>) -> Listing {
        Listing { answers_ns, ..self }
    }
}

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// The latest time of a listing that is believed now.
pub fn latest_ns() -> i64 {
    latest(now_ns())
}

fn latest(now_ns: i64) -> i64 {
    now_ns.saturating_add(AHEAD_MAX.as_nanos() as i64)
}

/// When a listing began that takes the place of another, as it is said: later than that one, by whichever clock that was listed, if
/// others believe so.
fn after(began_ns: i64, previous_ns: i64) -> i64 {
    if previous_ns > latest(began_ns) { began_ns } else { began_ns.max(previous_ns.saturating_add(1)) }
}

/// `name` is what objects call the store; names that don't fit into memory take room in `folder`.
pub async fn list(source: &DataSet, name: &Arc<str>, folder: &Path, progress: impl Fn(u64)) -> Result<Listing> {
    let began_ns = now_ns();
    let mut builder = Builder::new(name.clone(), &source.prefix)?.spill_to(folder);
    let mut pages = source.store.list(&source.prefix);
    while let Some(page) = pages.next().await {
        builder.add(&page?)?;
        progress(builder.keys());
    }
    if builder.keys() == 0 && !source.may_be_empty {
        let (what, hint) = match source.store.identity().starts_with("file://") {
            true => (
                "there is no file in this folder",
                "name a folder with files; to wait for some, mount it with --refresh 60s",
            ),
            false => {
                let hint = "check the bucket and the prefix, which is one of whole folders, and that the credentials may list it; \
                            to wait for files that are yet to come, mount it with --refresh 60s";
                ("there is nothing under this URL", hint)
            }
        };
        return Err(Error::missing(what, &source.url).hint(hint));
    }
    Ok(Listing::of(builder, began_ns))
}

/// List a data set into a snapshot that only we know; it takes its room in this folder.
pub async fn list_nameless(source: &DataSet, folder: &Path) -> Result<Manifest> {
    list_into(source, folder, |_| ()).await
}

/// The same; `progress` gets the number of names listed so far.
pub async fn list_into(source: &DataSet, folder: &Path, progress: impl Fn(u64)) -> Result<Manifest> {
    let listing = list(source, source.store.identity(), folder, progress).await?;
    let folder = folder.to_owned();
    apart(move || listing.builder.build_nameless(&folder, listing.began_ns)).await
}

/// Objects that the new listing does not name any more give way first in the cache. There may be millions: it is called
/// where that disturbs nobody.
pub fn release(node: &Node, previous: &Manifest, current: &Manifest) {
    let mut gone = Vec::new();
    let mut walk = previous.walk(crate::namespace::ROOT);
    while let Some(file) = walk.advance() {
        if current.object(file.node).is_none() {
            gone.extend(previous.object(file.node));
        }
        if gone.len() >= RELEASED_AT_ONCE {
            node.stack.release(&gone);
            gone.clear();
        }
    }
    node.stack.release(&gone);
}

/// Write a snapshot.
pub async fn write(
    node: &Arc<Node>,
    listing: Listing,
    path: PathBuf,
    previous: Option<Arc<Manifest>>,
) -> Result<manifest::Built> {
    let node = node.clone();
    let follows = |previous: &Arc<Manifest>| after(listing.began_ns, previous.listed_ns());
    let listed_ns = listing.answers_ns.unwrap_or_else(|| previous.as_ref().map_or(listing.began_ns, follows));
    let build = move || {
        node.hold()?;
        listing.builder.build(&path, listed_ns, previous.as_deref())
    };
    apart(build).await.map_err(needs_room)
}

/// Seconds of work for millions of names, so not on a thread that others wait for.
pub async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::corrupt(format!("a listing was given up: {error}"), ""))?
}
