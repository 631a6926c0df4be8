//! From a listing of a store to a snapshot of names.
//!
//! Invariant: an empty listing is an error with what to check, never an empty data set.

use super::DataSet;
use crate::home::needs_room;
use crate::manifest::{self, Builder, Manifest};
use crate::node::Node;
use block::{Error, Result};
use futures_util::StreamExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A listing, and when it began.
pub struct Listing {
    builder: Builder,
    began_ns: i64,
}

/// `name` is what objects call the store.
pub async fn list(source: &DataSet, name: &Arc<str>, progress: impl Fn(u64)) -> Result<Listing> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let mut builder = Builder::new(name.clone(), &source.prefix)?;
    let mut pages = source.store.list(&source.prefix);
    while let Some(page) = pages.next().await {
        builder.add(&page?)?;
        progress(builder.keys());
    }
    if builder.keys() == 0 {
        let (what, hint) = match source.store.identity().starts_with("file://") {
            true => ("there is no file in this folder", "name a folder with files"),
            false => {
                let hint = "check the bucket and the prefix, and that the credentials may list it";
                ("there is nothing under this URL", hint)
            }
        };
        return Err(Error::missing(what, &source.url).hint(hint));
    }
    Ok(Listing { builder, began_ns })
}

/// List a data set into a snapshot that only we know; it takes its room in this folder.
pub async fn list_nameless(source: &DataSet, folder: &std::path::Path) -> Result<Manifest> {
    let listing = list(source, source.store.identity(), |_| ()).await?;
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
    let build = move || {
        node.hold()?;
        listing.builder.build(&path, listing.began_ns, previous.as_deref())
    };
    apart(build).await.map_err(needs_room)
}

/// Seconds of work for millions of names, so not on a thread that others wait for.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::corrupt(format!("a listing was given up: {error}"), ""))?
}
