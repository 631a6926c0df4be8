//! The bottom of the stack: each run is asked of the store of its object, by the credentials of the mount that it
//! came in through.
//!
//! Deliberately nothing of who may see what another fetched. Invariant: a door that is closed is asked nothing more,
//! what was on its way through it ends, and the doors beside it notice nothing.

use crate::{Counts, Origin, OriginSettings, Store};
use block::{Blocks, Checksum, Door, Error, Object, Result, Run, Source, Waiting};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The stores of all data sets of a node.
#[derive(Default)]
pub struct Origins(Mutex<Doors>);

#[derive(Default)]
struct Doors {
    open: HashMap<Door, Opened>,
    /// Doors so far: no number is given out twice.
    ever: u64,
    /// What was asked through doors that are closed.
    past: HashMap<Arc<str>, Counts>,
}

/// A store, as it is reached through one door.
#[derive(Clone)]
struct Opened {
    /// What objects call the store that come in here.
    name: Arc<str>,
    origin: Origin,
    closed: watch::Sender<bool>,
}

impl Origins {
    /// Use a store, which objects call by this name, for as long as the entrance lives. Entrances that lead to one store in
    /// the same way share its connections and its limit of requests.
    pub fn open(self: &Arc<Self>, store: &Arc<dyn Store>, name: &Arc<str>, settings: OriginSettings) -> Entrance {
        let mut doors = self.doors();
        doors.ever += 1;
        let door = Door::of(doors.ever);
        let known = doors.open.values().find(|opened| opened.leads_to(&**store)).map(|opened| opened.origin.clone());
        let origin = known.unwrap_or_else(|| Origin::new(store.clone(), settings));
        doors.open.insert(door, Opened { name: name.clone(), origin, closed: watch::channel(false).0 });
        Entrance { origins: self.clone(), door }
    }

    /// What was asked of each store so far.
    pub fn counts(&self) -> Vec<(Arc<str>, Counts)> {
        let doors = self.doors();
        let mut all = doors.past.clone();
        for origin in doors.origins() {
            let store = origin.store();
            *all.entry(store.identity().clone()).or_default() += store.counters().snapshot();
        }
        for opened in doors.open.values() {
            all.entry(opened.origin.store().identity().clone()).or_default().doors += 1;
        }
        all.into_iter().collect()
    }

    /// Requests that may be in flight at the moment, summed over all stores.
    pub fn requests_limit(&self) -> u64 {
        self.doors().origins().iter().map(|origin| u64::from(origin.requests_limit())).sum()
    }

    /// A door through which a store of this name is asked.
    pub fn door(&self, name: &str) -> Option<Door> {
        let doors = self.doors();
        doors.open.iter().find(|(_, opened)| *opened.name == *name).map(|(door, _)| *door)
    }

    fn of(&self, object: &Object, via: Door) -> Result<Opened> {
        let doors = self.doors();
        let opened = doors.open.get(&via).filter(|opened| opened.name == object.store);
        opened.cloned().ok_or_else(|| ended(object))
    }

    fn close(&self, door: Door) {
        let mut doors = self.doors();
        let Some(opened) = doors.open.remove(&door) else { return };
        opened.closed.send_replace(true);
        if !doors.open.values().any(|other| other.origin.is(&opened.origin)) {
            let store = opened.origin.store();
            let past = Counts { in_flight: 0, ..store.counters().snapshot() };
            *doors.past.entry(store.identity().clone()).or_default() += past;
        }
    }

    fn doors(&self) -> MutexGuard<'_, Doors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doors {
    /// Each origin once.
    fn origins(&self) -> Vec<Origin> {
        let mut all: Vec<Origin> = Vec::new();
        for opened in self.open.values() {
            if !all.iter().any(|known| known.is(&opened.origin)) {
                all.push(opened.origin.clone());
            }
        }
        all
    }
}

impl Opened {
    fn leads_to(&self, store: &dyn Store) -> bool {
        let here = self.origin.store();
        here.identity() == store.identity() && here.reach() == store.reach()
    }

    /// What comes, unless the door is closed before it does.
    async fn while_open<T>(&self, coming: impl Future<Output = T>) -> Option<T> {
        let mut closed = self.closed.subscribe();
        let closed = pin!(closed.wait_for(|closed| *closed));
        match select(pin!(coming), closed).await {
            Either::Left((came, _)) => Some(came),
            Either::Right(_) => None,
        }
    }
}

/// A way in, for as long as it lives.
pub struct Entrance {
    origins: Arc<Origins>,
    door: Door,
}

impl Entrance {
    /// What each run that comes in here goes by.
    pub fn door(&self) -> Door {
        self.door
    }

    pub fn is_open(&self) -> bool {
        self.origins.doors().open.contains_key(&self.door)
    }

    /// Ask nothing more through it, and end what is on its way.
    pub fn close(&self) {
        self.origins.close(self.door);
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.close();
    }
}

impl Source for Origins {
    fn fetch(&self, run: Run) -> Blocks {
        let object = run.object.clone();
        let opened = match self.of(&object, run.via) {
            Ok(opened) => opened,
            Err(error) => return futures_util::stream::iter([Err(error)]).boxed(),
        };
        let blocks = opened.origin.fetch(run);
        let each = futures_util::stream::unfold(Some((blocks, opened, object)), |under_way| async move {
            let (mut blocks, opened, object) = under_way?;
            match opened.while_open(blocks.next()).await {
                Some(got) => got.map(|got| (got, Some((blocks, opened, object)))),
                None => Some((Err(ended(&object)), None)),
            }
        });
        each.boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        let (opened, object) = (self.of(object, via), object.clone());
        Box::pin(async move {
            let opened = opened?;
            let found = opened.while_open(Source::checksum(&opened.origin, &object, via)).await;
            found.unwrap_or_else(|| Err(ended(&object)))
        })
    }
}

fn ended(object: &Object) -> Error {
    Error::denied("the mount that asked for this has ended", object).hint("mount the data set again")
}

#[cfg(test)]
mod tests;
