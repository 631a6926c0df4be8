//! The names of a data set as the nodes of a cluster share them: one lists, the others follow.
//!
//! Invariants: names follow only what they were built on, so that a number of a node never comes to mean another file; a time that
//! another member tells hides no names that are listed later; and what a member lists only because others did is nobody's news, or two
//! that can't follow each other would list in turn without end.

use super::View;
use super::listing::latest_ns;
use crate::manifest::{self, Manifest};
use crate::namespace::Stale;
use crate::node::Node;
use crate::shared;
use block::Result;
use peer::Names;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl View {
    /// Take newer names that another member has, if one has. Names that went stale come back. What was built on other names
    /// than this node's can't follow them: then this node lists too.
    pub async fn follow(&self) -> Result<Option<Stale>> {
        let shares = !self.is_local() && self.given().is_none();
        let Some(lines) = self.node.stack.lines().filter(|_| shares) else { return Ok(None) };
        let _one = self.refreshing.lock().await;
        let previous = self.names.current();
        // Also of what this node has itself: its clock may have been set back since.
        let latest = latest_ns();
        let known = [previous.listed_ns(), self.seen_ns.load(Relaxed)].into_iter().filter(|ns| *ns <= latest).max();
        let newer = lines.names(self.set, latest_ns, |_| ()).await;
        let newer = newer.filter(|(_, names)| known.is_none_or(|known_ns| names.listed_ns > known_ns));
        let Some((member, names)) = newer else { return Ok(None) };
        if names.before != previous.short_id() {
            if names.fingerprint == previous.fingerprint() {
                self.seen_ns.fetch_max(names.listed_ns, Relaxed);
                return Ok(None);
            }
            tracing::info!("listing {} too: another member's names don't follow this node's", self.url());
            return self.list_alone(Some(names.listed_ns), |_| ()).await.map(Some);
        }
        let is_right = |store: &str, prefix: &str| *store == *self.name && prefix == self.source.prefix;
        let manifest = shared::take(lines, self.set, (member, names), &self.snapshot, is_right).await?;
        let stale = manifest::stale(&previous, &manifest);
        self.go_on_with(manifest, previous).await?;
        Ok(Some(stale))
    }

    /// When the names were listed that this node has, or others that are the same.
    pub fn listed_ns(&self) -> i64 {
        self.manifest().listed_ns().max(self.seen_ns.load(Relaxed))
    }

    /// Whether another member of the cluster lists this set whenever it is to be listed again.
    pub async fn is_listed_by_another(&self) -> bool {
        match self.node.stack.lines().filter(|_| !self.is_local() && self.given().is_none()) {
            Some(lines) => lines.is_listed_by_another(self.set).await,
            None => false,
        }
    }

    /// Ends when another member said that it has newer names.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    pub(crate) fn hear_news(&self) {
        self.news.notify_one();
    }

    /// What others are told of the names here.
    pub(crate) fn shared_names(&self) -> Names {
        let manifest = self.manifest();
        let (id, before, bytes) = (manifest.id(), manifest.before(), manifest.file_bytes());
        let (listed_ns, fingerprint) = (manifest.listed_ns(), manifest.fingerprint());
        Names { id, before, bytes, listed_ns, fingerprint, ..Names::default() }
    }
}

/// The names of a set from another member that has them, or is about to, if they are newer than what is pinned here. None if
/// this node is to list.
pub(super) async fn of_another(
    node: &Node,
    (set, opening, snapshot): (u128, &shared::Opening<'_>, &Path),
    (name, prefix): (&Arc<str>, &str),
    pinned: Option<&Manifest>,
) -> Option<Manifest> {
    let lines = node.stack.lines()?;
    let theirs = lines.names(set, latest_ns, |lists| opening.lists(lists)).await?;
    let pinned_ns = pinned.map(Manifest::listed_ns).filter(|ns| *ns <= latest_ns());
    if pinned_ns.is_some_and(|ns| ns >= theirs.1.listed_ns) {
        return None;
    }
    let is_right = |store: &str, with: &str| *store == **name && with == prefix;
    let taken = shared::take(lines, set, theirs, snapshot, is_right).await;
    taken.inspect_err(|error| tracing::warn!("listing, since names of another member can't be had: {error}")).ok()
}
