//! A store as a target: an object is a file, and each read is one request for just the range that was asked.
//!
//! Threads that read wait for the runtime that requests run on, so they must be none of its own. It doesn't read
//! ahead, keep or share anything: what a loader asks is what the store is asked. A request that fails in passing is
//! sent again a few times; [`Store::counters`] tells requests, bytes, repetitions and throttling answers.
//! Invariant: bytes are of the version that was opened, or the read fails.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::store::{Chance, Counters, Part, Sink, Upload};
use block::{Error, Kind, Object, Result};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{Created, Given, Listed, Opened, Target, Writable, beneath};

/// Tries of one request, the first included.
const TRIES: u32 = 8;

/// How long one request is repeated in all.
const BUDGET: Duration = Duration::from_secs(60);

/// Objects up to this size are written in one request.
const PUT_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a part of a larger one; more where the parts would be too many.
const PART_BYTES: u64 = 8 << 20;

/// Parts of one object on their way at a time. Four fill a link at the latency of a bucket near by.
const PARTS_IN_FLIGHT: usize = 4;

/// Everything under a prefix of a store.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    url: String,
    prefix: String,
    store: Arc<dyn ::store::Store>,
    sink: Arc<dyn Sink>,
    runtime: Handle,
    chance: Chance,
    /// Listed versions, by key: what an open asks for.
    known: Mutex<HashMap<Arc<str>, Arc<Object>>>,
}

impl Store {
    /// `prefix` is what keys begin with, and ends in a slash unless it is empty; `seed` decides how long to wait before
    /// a request is repeated.
    pub fn over(
        url: &str,
        prefix: &str,
        (store, sink): (Arc<dyn ::store::Store>, Arc<dyn Sink>),
        runtime: Handle,
        seed: u64,
    ) -> Store {
        let (url, prefix) = (url.to_owned(), prefix.to_owned());
        let chance = Chance::new(seed);
        Store(Arc::new(Shared { url, prefix, store, sink, runtime, chance, known: Mutex::default() }))
    }

    /// What was asked of the store since it was opened; take a snapshot before and after to count what lies between.
    pub fn counters(&self) -> &Arc<Counters> {
        self.0.store.counters()
    }

    /// Files as they come, up to so many, by name; and whether these are all. Of a large store it asks for no more.
    pub fn some(&self, most: usize) -> Result<(Vec<Listed>, bool)> {
        self.0.runtime.block_on(self.0.list(most))
    }
}

impl Shared {
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn remember(&self, name: &str, found: &::store::Listed) -> Listed {
        let name: Arc<str> = name.into();
        let object = ::store::object(&*self.store, found);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), object);
        Listed { name, bytes: found.size }
    }

    fn recall(&self, name: &str) -> Option<Arc<Object>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn forget(&self, name: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Repeats what fails in passing, with longer and longer waits.
    async fn patiently<T, Answer>(&self, ask: impl Fn() -> Answer) -> Result<T>
    where
        Answer: Future<Output = Result<T>>,
    {
        let mut tries = 1;
        let mut waited = Duration::ZERO;
        loop {
            let error = match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match ::store::advise(&error, tries, waited, BUDGET, self.chance.next()) {
                ::store::Advice::Wait(wait) if tries < TRIES => {
                    self.store.counters().repeated_after(wait);
                    tokio::time::sleep(wait).await;
                    waited += wait;
                    tries += 1;
                }
                _ => {
                    self.store.counters().gave_up();
                    return Err(error);
                }
            }
        }
    }

    async fn find(&self, name: &str) -> Result<Listed> {
        let key = self.key(name);
        let found = self.patiently(|| self.sink.find(&key)).await?;
        Ok(self.remember(name, &found))
    }

    async fn is_empty(&self) -> Result<bool> {
        let mut pages = self.store.list(&self.prefix);
        while let Some(page) = pages.next().await {
            // The key that marks an empty folder is nothing in it.
            if page?.iter().any(|listed| *listed.key != *self.prefix) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All, or the first that come until there are so many. Whether it is all.
    async fn list(&self, most: usize) -> Result<(Vec<Listed>, bool)> {
        let mut pages = self.store.list(&self.prefix);
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            for listed in page? {
                if found.len() >= most {
                    found.sort();
                    return Ok((found, false));
                }
                // A key that ends in a slash is how tools mark an empty folder.
                // What begins with a dot is no data, as in a folder.
                let is_seen = |name: &&str| !name.ends_with('/') && !name.split('/').any(|part| part.starts_with('.'));
                if let Some(name) = listed.key.strip_prefix(&self.prefix).filter(is_seen) {
                    found.push(self.remember(name, &listed));
                }
            }
        }
        found.sort();
        Ok((found, true))
    }
}

impl Target for Store {
    fn url(&self) -> &str {
        &self.0.url
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.some(usize::MAX).map(|(all, _)| all)
    }

    /// Asks for no more than the first page that has a key.
    fn is_empty(&self) -> Result<bool> {
        self.0.runtime.block_on(self.0.is_empty())
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        self.0.runtime.block_on(self.0.find(name))
    }

    /// Costs no request where the file was listed; else one, for its version.
    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        if self.0.recall(&file.name).is_none() {
            self.stat(&file.name)?;
        }
        let object = self.0.recall(&file.name);
        let object = object.ok_or_else(|| Error::missing("the file was removed meanwhile", &file.name))?;
        Ok(Box::new(Reading { shared: self.0.clone(), object }))
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }

    fn is_cached(&self) -> bool {
        false
    }

    fn given(&self) -> Option<Given> {
        let counts = self.counters().snapshot();
        Some(Given { reads: counts.gets, bytes: counts.bytes, busy: None })
    }
}

struct Reading {
    shared: Arc<Shared>,
    object: Arc<Object>,
}

impl Opened for Reading {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let end = self.object.size.min(offset.saturating_add(buffer.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let due = usize::try_from(end - offset).expect("no longer than the buffer");
        let buffer = Mutex::new(&mut buffer[..due]);
        let ask = || async {
            let mut body = self.shared.store.get(&self.object, offset..end).await?.bytes;
            let mut filled = 0;
            while let Some(piece) = body.next().await {
                let piece = piece?;
                let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                let room = buffer.get_mut(filled..filled + piece.len());
                let room = room.ok_or_else(|| Error::corrupt("the store sent more than was asked", &*self.object))?;
                room.copy_from_slice(&piece);
                filled += piece.len();
            }
            if filled < due {
                return Err(Error::corrupt(format!("the store sent {filled} of {due} bytes"), &*self.object));
            }
            Ok(filled)
        };
        self.shared.runtime.block_on(self.shared.patiently(ask))
    }
}

impl Writable for Store {
    fn create(&self, name: &str, bytes: u64) -> Result<Box<dyn Created>> {
        beneath(name)?;
        let mut writing = Writing {
            shared: self.0.clone(),
            name: name.to_owned(),
            upload: None,
            part_bytes: PUT_BYTES_MAX,
            buffer: Vec::with_capacity(usize::try_from(bytes.min(PUT_BYTES_MAX)).expect("a part fits in memory")),
            sent: Part { number: 0, offset: 0 },
            in_flight: VecDeque::new(),
        };
        if bytes > PUT_BYTES_MAX {
            writing.part_bytes = PART_BYTES.max(bytes.div_ceil(::store::PARTS_MAX).next_multiple_of(1 << 20));
            writing.begin()?;
        }
        Ok(Box::new(writing))
    }

    fn remove(&self, name: &str) -> Result<()> {
        beneath(name)?;
        let key = self.0.key(name);
        self.0.runtime.block_on(self.0.patiently(|| self.0.sink.delete(&key)))?;
        self.0.forget(name);
        Ok(())
    }
}

/// An object on its way into the store.
struct Writing {
    shared: Arc<Shared>,
    name: String,
    /// None as long as it may all go in one request.
    upload: Option<Arc<dyn Upload>>,
    part_bytes: u64,
    buffer: Vec<u8>,
    /// The number of the last part that was sent, and the offset of the next.
    sent: Part,
    in_flight: VecDeque<JoinHandle<Result<()>>>,
}

impl Writing {
    fn begin(&mut self) -> Result<()> {
        let key = self.shared.key(&self.name);
        let shared = self.shared.clone();
        self.upload = Some(shared.runtime.block_on(shared.patiently(|| shared.sink.begin(&key)))?);
        Ok(())
    }

    /// Sends what is in the buffer as the next part, once there is room on the way.
    fn send(&mut self) -> Result<()> {
        if self.upload.is_none() {
            self.begin()?;
        }
        let upload = self.upload.clone().expect("it was begun above");
        while self.in_flight.len() >= PARTS_IN_FLIGHT {
            self.arrive()?;
        }
        let capacity = self.buffer.capacity();
        let content: Bytes = std::mem::replace(&mut self.buffer, Vec::with_capacity(capacity)).into();
        let place = Part { number: self.sent.number + 1, offset: self.sent.offset };
        self.sent = Part { number: place.number, offset: place.offset + content.len() as u64 };
        let shared = self.shared.clone();
        let sending = async move { shared.patiently(|| upload.part(place, content.clone())).await };
        self.in_flight.push_back(self.shared.runtime.spawn(sending));
        Ok(())
    }

    /// Waits for the oldest part that is on its way.
    fn arrive(&mut self) -> Result<()> {
        let Some(part) = self.in_flight.pop_front() else { return Ok(()) };
        let ended = self.shared.runtime.block_on(part);
        ended.unwrap_or_else(|error| {
            Err(Error::new(Kind::Unavailable { retry_after: None }, error.to_string(), &self.name))
        })
    }
}

impl Created for Writing {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let part_bytes = usize::try_from(self.part_bytes).expect("a part fits in memory");
        while !bytes.is_empty() {
            if self.buffer.len() >= part_bytes {
                self.send()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(part_bytes - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// A store says yes when the object is safe, so `durable` asks for nothing more.
    fn finish(mut self: Box<Self>, _durable: bool) -> Result<()> {
        let shared = self.shared.clone();
        if self.upload.is_some() {
            self.send()?;
            while !self.in_flight.is_empty() {
                self.arrive()?;
            }
            let upload = self.upload.clone().expect("asked above");
            shared.runtime.block_on(shared.patiently(|| upload.complete()))?;
            self.upload = None;
        } else {
            let (key, content) = (shared.key(&self.name), Bytes::from(std::mem::take(&mut self.buffer)));
            shared.runtime.block_on(shared.patiently(|| shared.sink.put(&key, content.clone())))?;
        }
        shared.forget(&self.name);
        Ok(())
    }
}

impl Drop for Writing {
    /// What was not finished leaves no parts in the store, which would be paid for.
    fn drop(&mut self) {
        for part in self.in_flight.drain(..) {
            part.abort();
        }
        let Some(upload) = self.upload.take() else { return };
        if Handle::try_current().is_ok() {
            self.shared.runtime.spawn(async move { upload.abort().await });
        } else {
            let _ = self.shared.runtime.block_on(async { upload.abort().await });
        }
    }
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;
