//! A data set as it was asked for, and what an earlier mount left of its names.

use super::listing;
use crate::manifest::Manifest;
use crate::node::SNAPSHOTS;
use crate::{cluster, snapshots};
use block::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Folder, Store};

/// A data set: where its names and bytes come from.
#[derive(Clone)]
pub struct DataSet {
    /// As the user wrote it.
    pub url: String,
    pub store: Arc<dyn Store>,
    /// What all keys begin with: empty, or ends with a slash.
    pub prefix: String,
    /// A folder on a local file system, which is read where it lies.
    pub local: Option<Arc<Folder>>,
    /// A manifest as text that its names are taken from: the store is never listed.
    pub manifest: Option<PathBuf>,
    /// Names are expected to come: a listing without any is no error.
    pub may_be_empty: bool,
}

impl DataSet {
    /// The snapshot of names that the last mount by these credentials left in a cache folder, if there is one.
    pub async fn kept_names(&self, cache: &Path) -> Result<Option<PathBuf>> {
        let who = self.store.who().await?;
        let alone = self.store.identity().clone();
        let stores = [cluster::store_name(&alone, &who), alone];
        let names = stores.iter().map(|store| snapshots::name(store, &self.prefix, &who, None));
        let paths = names.map(|name| cache.join(SNAPSHOTS).join(name)).filter(|path| path.is_file());
        Ok(paths.max_by_key(|path| path.metadata().and_then(|about| about.modified()).ok()))
    }

    /// Its names as they are now, by a listing, in a snapshot that takes its room in this folder until it is dropped.
    /// `progress` gets the number of names listed so far.
    pub async fn names(&self, folder: &Path, progress: impl Fn(u64)) -> Result<Manifest> {
        listing::list_into(self, folder, progress).await
    }
}

/// The snapshot of an earlier listing of this very data set, if there is a sound one.
pub fn pinned(snapshot: &Path, name: &str, prefix: &str) -> Option<Manifest> {
    if !snapshot.exists() {
        return None;
    }
    // Reading all of it costs some twenty milliseconds for a million names, and finds what a lost machine left.
    match Manifest::open(snapshot).and_then(|manifest| manifest.verify().map(|()| manifest)) {
        Ok(manifest) if **manifest.store() == *name && manifest.prefix() == prefix => Some(manifest),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!("listing the data set again: {error}");
            None
        }
    }
}
