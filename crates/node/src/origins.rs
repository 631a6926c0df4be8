//! The bottom of the stack: each object is asked of the store that it lives in.

use block::{Blocks, Checksum, Error, Object, Result, Run, Source, Waiting};
use futures_util::StreamExt;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use store::{Counts, Origin};

/// The stores of all data sets of a node.
#[derive(Default)]
pub struct Origins {
    stores: RwLock<HashMap<Arc<str>, Vec<Opened>>>,
}

/// A store, opened with somebody's credentials.
struct Opened {
    who: String,
    origin: Arc<Origin>,
}

impl Origins {
    /// Use a store from now on. Mounts with the same credentials share the connections of the first; with others,
    /// the store goes by those that were used last.
    pub fn add(&self, identity: &Arc<str>, who: &str, origin: Origin) {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        let opened = stores.entry(identity.clone()).or_default();
        let known = opened.iter().position(|opened| opened.who == who).map(|at| opened.remove(at));
        opened.push(known.unwrap_or_else(|| Opened { who: who.into(), origin: Arc::new(origin) }));
    }

    /// What was asked of all stores so far.
    pub fn counts(&self) -> Vec<(Arc<str>, Counts)> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        let all = stores.iter().flat_map(|(identity, opened)| opened.iter().map(move |opened| (identity, opened)));
        all.map(|(identity, opened)| (identity.clone(), opened.origin.store().counters().snapshot())).collect()
    }

    /// Requests that may be in flight at the moment, summed over all stores.
    pub fn requests_limit(&self) -> u64 {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        stores.values().flatten().map(|opened| u64::from(opened.origin.requests_limit())).sum()
    }

    fn of(&self, object: &Object) -> Result<Arc<Origin>> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        let found = stores.get(&object.store).and_then(|opened| opened.last());
        found
            .map(|opened| opened.origin.clone())
            .ok_or_else(|| Error::missing("the store of this object is not open here", object))
    }
}

impl Source for Origins {
    fn fetch(&self, run: Run) -> Blocks {
        match self.of(&run.object) {
            Ok(origin) => origin.fetch(run),
            Err(error) => futures_util::stream::iter([Err(error)]).boxed(),
        }
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        match self.of(object) {
            Ok(origin) => Source::checksum(&*origin, object),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}
