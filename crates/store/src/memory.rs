//! A store in memory, for tests, demonstrations and ceilings. It keeps only the newest version of an
//! object, as a bucket does.
//!
//! Invariant: a version names one content for ever; writing again makes a new version.

use crate::{Body, Counters, Listed, Pages, Part, Sink, Store, Upload};
use block::{Checksum, Error, Object, Result, Waiting, crc64};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Keys of a page, as S3 has it.
const PAGE: usize = 1000;

/// Bytes of a piece: what a network would deliver at once.
const PIECE: usize = 256 << 10;

/// A bucket in memory.
pub struct Memory {
    identity: Arc<str>,
    counters: Arc<Counters>,
    bucket: Mutex<Bucket>,
}

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Stored>,
    writes: u64,
}

#[derive(Clone)]
struct Stored {
    version: String,
    content: Bytes,
    modified_ns: i64,
}

impl Memory {
    /// An empty store, known as `memory://name`.
    pub fn new(name: &str) -> Memory {
        let identity = format!("memory://{name}").into();
        Memory { identity, counters: Arc::default(), bucket: Mutex::default() }
    }

    /// Write an object, under a new version.
    pub fn put(&self, key: &str, content: impl Into<Bytes>) -> Arc<Object> {
        let content = content.into();
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.writes += 1;
        let version = format!("{:016x}-{}", crc64::of(&content), bucket.writes);
        let modified_ns = i64::try_from(bucket.writes).unwrap_or(i64::MAX);
        let stored = Stored { version: version.clone(), content, modified_ns };
        let size = stored.content.len() as u64;
        bucket.objects.insert(key.into(), stored);
        Arc::new(Object { store: self.identity.clone(), key: key.into(), version, size })
    }

    /// Remove an object, if it is there.
    pub fn remove(&self, key: &str) {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).objects.remove(key);
    }

    /// The content of this very version.
    fn content(&self, object: &Object) -> Result<Bytes> {
        let bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stored) = bucket.objects.get(&object.key) else {
            return Err(Error::missing("there is no such object", object));
        };
        if stored.version != object.version || stored.content.len() as u64 != object.size {
            return Err(Error::changed("the object has another version by now", object));
        }
        Ok(stored.content.clone())
    }
}

impl Store for Memory {
    fn identity(&self) -> &Arc<str> {
        &self.identity
    }

    fn list(&self, prefix: &str) -> Pages {
        let bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let under = bucket.objects.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let all: Vec<Listed> = under.map(|(key, stored)| stored.listed(key)).collect();
        let pages: Vec<_> = all.chunks(PAGE).map(|page| Ok(page.to_vec())).collect();
        Counters::add(&self.counters.lists, pages.len().max(1) as u64);
        stream::iter(pages).boxed()
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        Counters::add(&self.counters.gets, 1);
        let answer = self.content(object).and_then(|content| {
            let asked = content.get(range.start as usize..range.end as usize);
            let asked = asked.ok_or_else(|| Error::invalid("the range lies outside the object", &**object))?;
            let is_whole = asked.len() == content.len();
            let checksum = is_whole.then(|| Checksum::Crc64Nvme(crc64::of(&content)));
            Ok(Body { checksum, bytes: pieces(content.slice_ref(asked)).boxed() })
        });
        Box::pin(std::future::ready(answer))
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        Counters::add(&self.counters.heads, 1);
        let checksum = self.content(object).map(|content| Some(Checksum::Crc64Nvme(crc64::of(&content))));
        Box::pin(std::future::ready(checksum))
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

impl Memory {
    fn take(&self, key: &str, content: Bytes) {
        Counters::add(&self.counters.writes, 1);
        Counters::add(&self.counters.bytes_written, content.len() as u64);
        self.put(key, content);
    }
}

/// A clone would be another store; who writes holds the same one.
impl Sink for Arc<Memory> {
    fn put(&self, key: &str, content: Bytes) -> Waiting<()> {
        self.take(key, content);
        Box::pin(std::future::ready(Ok(())))
    }

    fn begin(&self, key: &str) -> Waiting<Arc<dyn Upload>> {
        Counters::add(&self.counters.writes, 1);
        let upload: Arc<dyn Upload> =
            Arc::new(Parts { memory: self.clone(), key: key.to_owned(), parts: Mutex::default() });
        Box::pin(std::future::ready(Ok(upload)))
    }

    fn delete(&self, key: &str) -> Waiting<()> {
        Counters::add(&self.counters.writes, 1);
        self.remove(key);
        Box::pin(std::future::ready(Ok(())))
    }

    fn find(&self, key: &str) -> Waiting<Listed> {
        Counters::add(&self.counters.heads, 1);
        let bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let found = bucket.objects.get(key).map(|stored| stored.listed(key));
        Box::pin(std::future::ready(found.ok_or_else(|| Error::missing("there is no such object", key))))
    }
}

/// An object that waits for its parts.
struct Parts {
    memory: Arc<Memory>,
    key: String,
    parts: Mutex<BTreeMap<u32, Bytes>>,
}

impl Upload for Parts {
    fn part(&self, place: Part, content: Bytes) -> Waiting<()> {
        Counters::add(&self.memory.counters.writes, 1);
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(place.number, content);
        Box::pin(std::future::ready(Ok(())))
    }

    fn complete(&self) -> Waiting<()> {
        let parts = std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        self.memory.take(&self.key, parts.into_values().collect::<Vec<_>>().concat().into());
        Box::pin(std::future::ready(Ok(())))
    }

    fn abort(&self) -> Waiting<()> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Stored {
    fn listed(&self, key: &str) -> Listed {
        let size = self.content.len() as u64;
        Listed { key: key.into(), version: self.version.clone(), size, modified_ns: self.modified_ns }
    }
}

fn pieces(mut content: Bytes) -> impl stream::Stream<Item = Result<Bytes>> {
    stream::iter(std::iter::from_fn(move || {
        let piece = content.split_to(content.len().min(PIECE));
        (!piece.is_empty()).then_some(Ok(piece))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::contract!(promises, Some(crate::contract::InMemory::new()));

    #[test]
    fn writing_the_same_bytes_again_makes_a_new_version() {
        let memory = Memory::new("m");
        assert_ne!(memory.put("k", "same").version, memory.put("k", "same").version);
    }
}
