//! A store that can't be had any more, as when the certificates are gone by which it was trusted: it keeps its name.
//!
//! Invariant: nothing is asked of anybody, and each request is refused with the reason.

use crate::{Body, Counters, Pages, Store};
use block::{Checksum, Error, Object, Waiting};
use futures_util::{StreamExt, stream};
use std::ops::Range;
use std::sync::Arc;

/// A store of this name, and why it can't be had.
pub struct Lost {
    identity: Arc<str>,
    why: Error,
    counters: Arc<Counters>,
}

impl Lost {
    pub fn new(identity: Arc<str>, why: Error) -> Lost {
        Lost { identity, why, counters: Arc::default() }
    }

    fn refuse<T: Send + 'static>(&self) -> Waiting<T> {
        Box::pin(std::future::ready(Err(self.why.clone())))
    }
}

impl Store for Lost {
    fn identity(&self) -> &Arc<str> {
        &self.identity
    }

    fn who(&self) -> Waiting<String> {
        self.refuse()
    }

    fn list(&self, _prefix: &str) -> Pages {
        stream::iter([Err(self.why.clone())]).boxed()
    }

    fn get(&self, _object: &Arc<Object>, _range: Range<u64>) -> Waiting<Body> {
        self.refuse()
    }

    fn checksum(&self, _object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        self.refuse()
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
