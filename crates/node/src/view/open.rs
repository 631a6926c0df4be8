//! A view begins: from the snapshot of an earlier listing, by listing, or with what another process left.
//!
//! Invariant: names that one principal listed are shown to no other.

use super::listing::{list, write};
use super::principal::Principal;
use super::set::pinned;
use super::shared::of_another;
use super::{DataSet, View, given};
use crate::cluster;
use crate::fill::{self, Fill, When};
use crate::handover;
use crate::manifest::{Generations, Held, Manifest};
use crate::namespace::Stale;
use crate::node::Node;
use crate::snapshots;
use crate::unsaid::Unsaid;
use block::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What names are known by, once it is settled whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What objects call the store.
    pub store: Arc<str>,
    /// Of the data set, for this principal.
    pub set: u128,
    /// The principal; not known of a mount of an earlier version.
    pub who: Option<Arc<str>>,
}

impl View {
    /// Open a data set: from the snapshot of an earlier listing if there is one, else by listing it.
    /// `progress` gets the number of names listed so far, now and then.
    pub async fn open(node: Arc<Node>, source: DataSet, fill: When, progress: impl Fn(u64)) -> Result<Arc<View>> {
        // Names that others listed are not shown.
        let who = source.store.who().await?;
        let store = match node.cluster() {
            Some(_) => cluster::store_name(source.store.identity(), &who),
            None => source.store.identity().clone(),
        };
        let given = given::hash(&source).await?;
        let set = snapshots::identity(&store, &source.prefix, &who, given);
        let snapshot = node.snapshots().join(snapshots::name(&store, &source.prefix, &who, given));
        // A local folder costs little to list, and its owner expects to see what is in it.
        let is_listed = source.local.is_none() && given.is_none();
        let is_kept = is_listed || given.is_some();
        let pinned = is_kept.then(|| pinned(&snapshot, &store, &source.prefix)).flatten();
        let opening = node.sets.opening(set);
        let theirs = match is_listed {
            true => of_another(&node, (set, &opening, &snapshot), (&store, &source.prefix), pinned.as_ref()).await,
            false => None,
        };
        let manifest = match theirs.or(pinned) {
            Some(manifest) => manifest,
            None => {
                let (before, told) = (AtomicU64::new(0), &opening);
                let found = move |keys: u64| {
                    told.found(keys - before.swap(keys, Relaxed));
                    progress(keys);
                };
                let listing = match given {
                    Some(given) => given::take(&source, &store, &node.snapshots(), given).await?,
                    None => list(&source, &store, &node.snapshots(), found).await?,
                };
                write(&node, listing, snapshot.clone(), None).await?.manifest
            }
        };
        let identity = Identity { store, set, who: Some(who.into()) };
        let asked = Principal::known(source.store.clone(), &identity);
        let view = View::begin(node.clone(), (source, asked), identity, Generations::new(manifest), fill);
        drop(opening);
        Ok(view)
    }

    /// Go on with a data set of another process, by the snapshots that it left, oldest first. Nobody is asked who
    /// asks, or for anything else, who may not answer just now: that is for the first request to the store. Of one whose store
    /// is lost, for this reason, what is kept is read.
    pub fn resume(
        node: Arc<Node>,
        (source, lost): (DataSet, Option<Error>),
        fill: When,
        identity: Identity,
        snapshots: Vec<Manifest>,
    ) -> Result<Arc<View>> {
        let is_of_it = |names: &Manifest| *names.store() == identity.store && names.prefix() == source.prefix;
        let names = if snapshots.iter().all(is_of_it) { Generations::resumed(snapshots) } else { None };
        let names =
            names.ok_or_else(|| Error::corrupt("the names of a mount that is to go on are lost", &source.url))?;
        let asked = node.resumed.of(source.store.clone(), &identity, node.cluster().is_some(), lost);
        Ok(View::begin(node, (source, asked), identity, names, fill))
    }

    fn begin(
        node: Arc<Node>,
        (source, asked): (DataSet, Arc<Principal>),
        identity: Identity,
        names: Generations,
        fill: When,
    ) -> Arc<View> {
        let source = DataSet { store: asked.clone(), ..source };
        let Identity { store: name, set, who } = identity;
        let entrance = node.enter(&source.store, &name);
        // What lies on a local disk already is not copied.
        let when = if source.local.is_some() { When::Off } else { fill };
        let unsaid = Arc::new(Unsaid::new(when != When::Off));
        let fill = Arc::new(Fill::new(when, names.current().totals().files));
        let view = View {
            snapshot: node.snapshots().join(format!("{set:032x}")),
            local_reads: node.settings().disk_reads(),
            node: node.clone(),
            source,
            name,
            set,
            who,
            asked,
            seen_ns: Default::default(),
            news: Default::default(),
            entrance,
            names,
            refreshing: Default::default(),
            fill,
            prefetch: Arc::default(),
            unsaid,
            fetched: Default::default(),
            damage_told: Default::default(),
        };
        let view = Arc::new(view);
        view.node.keep(&view);
        handover::opened(&view.node);
        if !view.is_local() && view.given().is_none() {
            node.sets.add(set, &view);
        }
        snapshots::used(&view.snapshot);
        snapshots::bound(&view.node.snapshots(), &view.node.snapshots_in_use());
        view.node.runtime.spawn(view.unsaid.clone().run(Arc::downgrade(&view)));
        if view.fill.at_once() {
            tokio::spawn(fill::run(view.reach(), view.fill.clone(), Vec::new()));
        }
        view
    }

    /// By what its names are known.
    pub fn identity(&self) -> Identity {
        Identity { store: self.name.clone(), set: self.set, who: self.who.clone() }
    }

    /// Why nothing is asked of its store, if so.
    pub fn refused(&self) -> Option<&str> {
        self.asked.refused()
    }

    /// Have the snapshots of names held outside of this process, from now on and before any name is taken from one.
    pub fn hold_names(&self, holder: impl Fn(&Manifest) -> Held + Send + Sync + 'static) {
        self.names.hold_by(Box::new(holder));
    }

    /// What went stale since these names.
    pub fn stale_since(&self, generation: u32) -> Stale {
        self.names.stale_since(generation)
    }
}
