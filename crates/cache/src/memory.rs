//! The memory tier: blocks in flight, blocks that were just read, and blocks that can't be kept elsewhere.
//!
//! One fetch per block is in flight, whoever asks; all others wait for it. Every block here, on its way here
//! or still held by a reader counts against one budget. A reader that needs a block may push out older ones;
//! asking ahead takes only what is free or was read to its end, so that many readers cannot starve each other.
//!
//! Invariant: the sum of the blocks alive never exceeds the budget.

mod shelf;

use crate::budget::{Budget, Holder, Share};
use crate::readahead::Readahead;
use crate::tally::Tally;
use crate::waits::{Waits, clock};
use block::{
    Address, Block, Blocks, Checksum, Course, Door, Error, Kind, Object, RUN_BLOCKS_MAX, Result, Run, Source, Waiting,
    stripe_end,
};
use bytes::Bytes;
use futures_util::StreamExt;
use shelf::{Coming, Place, Shelf};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::watch;

/// Blocks of one request made ahead: eight mebibytes reach the bandwidth of a store, and several such requests
/// run side by side within one window.
const AHEAD_RUN_BLOCKS: u32 = 32;

/// Blocks that a request made ahead has at least, unless less is wanted: while many streams share the memory,
/// room comes free a block at a time, and a request for each would cost the store and us many times as much.
const AHEAD_RUN_BLOCKS_MIN: usize = 16;

/// Blocks of shorter runs are copied before they stay: at both ends of a run they share buffers of the connection with
/// bytes that are gone, which makes random reads hold twice what they count (measured: 270 MB of a limit of 256).
const APART_BELOW: usize = 4;

const _: () = assert!(AHEAD_RUN_BLOCKS <= RUN_BLOCKS_MAX && AHEAD_RUN_BLOCKS_MIN <= AHEAD_RUN_BLOCKS as usize);

/// The memory tier over whoever answers for what is not in memory.
#[derive(Clone)]
pub struct Memory(Arc<Parts>);

struct Parts {
    below: Arc<dyn Source>,
    shelf: Mutex<Shelf>,
    budget: Budget,
    tally: Tally,
    waits: Waits,
    wrong: OnceLock<Wrong>,
    runtime: tokio::runtime::Handle,
}

/// Hears of objects whose bytes were wrong.
type Wrong = Box<dyn Fn(&Object) + Send + Sync>;

impl Holder for Parts {
    fn let_go(&self, spent_only: bool) -> bool {
        let pushed = self.shelf.lock().unwrap_or_else(PoisonError::into_inner).push_out(spent_only);
        pushed.is_some()
    }
}

impl Memory {
    /// Lay memory over a source. Other holders may draw on the same budget.
    pub fn over(below: Arc<dyn Source>, budget: Budget, runtime: tokio::runtime::Handle) -> Memory {
        let (shelf, tally, waits, wrong) = Default::default();
        let parts = Arc::new(Parts { below, shelf, budget: budget.clone(), tally, waits, wrong, runtime });
        let holder: Weak<Parts> = Arc::downgrade(&parts);
        budget.add(holder);
        Memory(parts)
    }

    /// Bytes `offset..offset + length` of an object if all of them are in memory now.
    pub fn at_hand(&self, object: &Arc<Object>, offset: u64, length: u64) -> Option<Vec<Bytes>> {
        let (id, mut pieces) = (object.id(), Vec::new());
        let mut shelf = self.shelf();
        // Read in part, none of them is read: it would be the first to leave, and is about to be asked for.
        if !parts(object, offset, length).all(|(index, ..)| shelf.has(&(id, index))) {
            return None;
        }
        for (index, start, length) in parts(object, offset, length) {
            let block = shelf.get(&(id, index), start + length)?;
            self.0.tally.here.add(1, length as u64);
            pieces.extend(block.cut(start, length));
        }
        Some(pieces)
    }

    /// Bytes `offset..offset + length` of an object, fetched as far as they are not in memory. Blocks side by
    /// side are asked for together.
    pub async fn read(&self, object: &Arc<Object>, offset: u64, length: u64, via: Door) -> Result<Vec<Bytes>> {
        let parts: Vec<_> = parts(object, offset, length).collect();
        if parts.len() > 1 {
            let blocks = parts[0].0..parts[parts.len() - 1].0 + 1;
            self.ask(object, blocks.clone(), via, true);
            // The later ones must not leave for somebody else while the earlier ones are waited for.
            let (id, mut shelf) = (object.id(), self.shelf());
            blocks.for_each(|index| shelf.read_until(&(id, index), 1));
        }
        let mut pieces = Vec::new();
        for (index, start, length) in parts {
            let block = self.block(&Address { object: object.clone(), index }, start + length, via).await?;
            pieces.extend(block.cut(start, length));
        }
        Ok(pieces)
    }

    /// One block, of which a reader wants the bytes up to `until`. What it waits for is booked.
    pub async fn block(&self, address: &Address, until: usize, via: Door) -> Result<Block> {
        self.wait(address, until, via, Some(&self.0.waits)).await
    }

    async fn wait(&self, address: &Address, until: usize, via: Door, waits: Option<&Waits>) -> Result<Block> {
        let mut booked = None;
        let key = (address.object.id(), address.index);
        loop {
            let place = self.shelf().place(&key, until);
            let Coming { mut promise, course, via: begun_by } = match place {
                Place::Here(block) => {
                    self.0.tally.here.add(1, block.len() as u64);
                    return Ok(block);
                }
                Place::Coming(coming) => coming,
                Place::Nowhere => {
                    booked = booked.or_else(|| waits.map(Waits::begin));
                    let share = self.0.budget.share(address.len()).await;
                    let run = Run::new(address.object.clone(), address.index..address.index + 1).via(via);
                    match self.claim(&run, vec![share], waits.is_some()) {
                        Some(coming) => coming,
                        None => continue,
                    }
                }
            };
            booked = booked.or_else(|| waits.map(Waits::begin));
            booked.iter_mut().for_each(|wait| wait.follow(&course));
            // The sender is dropped without a value only if the runtime ends.
            let gone = || Error::unavailable("the node is stopping", &*address.object);
            let got = promise.wait_for(Option::is_some).await.map_err(|_| gone())?.clone().ok_or_else(gone)?;
            if begun_by != via && got.as_ref().is_err_and(Error::is_of_asker) {
                continue;
            }
            self.shelf().read_until(&key, until);
            return got;
        }
    }

    /// Ask for blocks that will be wanted, as far as there is room for requests worth making. Never waits. The first
    /// block that was not asked for comes back.
    pub fn ahead(&self, object: &Arc<Object>, blocks: Range<u32>, via: Door) -> u32 {
        self.ask(object, blocks, via, false)
    }

    fn ask(&self, object: &Arc<Object>, blocks: Range<u32>, via: Door, is_urgent: bool) -> u32 {
        let id = object.id();
        let mut next = blocks.start;
        while next < blocks.end {
            if self.shelf().knows(&(id, next)) {
                next += 1;
                continue;
            }
            // A run lies in one stripe, since each stripe has an owner of its own.
            let most = blocks.end.min(next + AHEAD_RUN_BLOCKS).min(stripe_end(next));
            let end = (next + 1..most).find(|index| self.shelf().knows(&(id, *index))).unwrap_or(most);
            let run = Run::new(object.clone(), next..end).via(via);
            let share = |length| if is_urgent { self.0.budget.at_once(length) } else { self.0.budget.spare(length) };
            let shares: Vec<Share> = run.addresses().map_while(|address| share(address.len())).collect();
            if shares.len() < run.addresses().count().min(AHEAD_RUN_BLOCKS_MIN) {
                return next;
            }
            let run = run.part(next..next + shares.len() as u32);
            next = run.blocks.end;
            self.claim(&run, shares, is_urgent);
        }
        next
    }

    /// Note a read of an open file and ask for what will follow.
    pub fn follow(&self, object: &Arc<Object>, readahead: &Mutex<Readahead>, offset: u64, length: u64, via: Door) {
        let mut past = readahead.lock().unwrap_or_else(PoisonError::into_inner);
        let before = past.ahead();
        let ask = past.note(offset, length, object.blocks());
        if past.ahead().is_empty() && !before.is_empty() {
            self.abandon(object, before);
        }
        if !ask.is_empty() {
            past.asked_until(self.ahead(object, ask, via));
        }
    }

    /// Blocks that were asked for ahead will not be read: they leave before all others, if nobody else reads them.
    pub fn abandon(&self, object: &Arc<Object>, blocks: Range<u32>) {
        self.shelf().abandon(object.id(), blocks);
    }

    /// Let go of all blocks of an object, because one of them is wrong.
    pub fn forget(&self, object: &Object) {
        self.shelf().forget(object.id());
        if let Some(tell) = self.0.wrong.get() {
            tell(object);
        }
    }

    /// Tell somebody of each object of which wrong bytes may have been handed out. Only the first is told.
    pub fn tell_wrong(&self, wrong: impl Fn(&Object) + Send + Sync + 'static) {
        let _ = self.0.wrong.set(Box::new(wrong));
    }

    /// Bytes held, and the budget.
    pub fn usage(&self) -> (u64, u64) {
        self.0.budget.usage()
    }

    /// What was served from here and from below.
    pub fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// What readers waited for.
    pub fn waits(&self) -> &Waits {
        &self.0.waits
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announce a run and start its fetch; `None` if somebody else was faster with its first block.
    fn claim(&self, run: &Run, shares: Vec<Share>, is_urgent: bool) -> Option<Coming> {
        let run = Run { course: Course::begin(clock, is_urgent), ..run.clone() };
        let mut shelf = self.shelf();
        let id = run.object.id();
        let mut senders = Vec::with_capacity(shares.len());
        for (index, share) in run.blocks.clone().zip(shares) {
            if shelf.knows(&(id, index)) {
                break;
            }
            let (sender, receiver) = watch::channel(None);
            shelf.announce((id, index), Coming { promise: receiver, course: run.course.clone(), via: run.via });
            senders.push(Promise { index, sender, share });
        }
        let first = Coming { promise: senders.first()?.sender.subscribe(), course: run.course.clone(), via: run.via };
        drop(shelf);
        let run = Run { blocks: run.blocks.start..run.blocks.start + senders.len() as u32, ..run };
        let announced = Announced { memory: self.clone(), object: run.object.clone(), promises: senders.into() };
        self.0.runtime.spawn(announced.flight(run));
        Some(first)
    }
}

/// Blocks that were promised and did not come yet. However their fetch ends, each promise is kept or broken: a block that
/// stayed announced would never be asked for again.
struct Announced {
    memory: Memory,
    object: Arc<Object>,
    /// In the order of the object.
    promises: VecDeque<Promise>,
}

struct Promise {
    index: u32,
    sender: watch::Sender<Option<Result<Block>>>,
    share: Share,
}

impl Announced {
    /// Fetch a run to its end, telling the waiters of each block as it comes.
    async fn flight(mut self, run: Run) {
        let is_short = run.blocks.len() < APART_BELOW;
        let mut blocks = self.memory.0.below.fetch(run.with_room());
        let mut arrived = false;
        while !self.promises.is_empty() {
            let too_few = || Err(Error::corrupt("a source ended too early", &*self.object));
            match blocks.next().await.unwrap_or_else(too_few) {
                Ok(block) => self.keep(block, is_short),
                Err(error) => {
                    if arrived && error.kind == Kind::Corrupt {
                        self.memory.forget(&self.object);
                    }
                    return self.fail(&error);
                }
            }
            arrived = true;
        }
        // Drained to its end, so that the tiers below can finish what they keep. They may find the whole wrong.
        while let Some(end) = blocks.next().await {
            if let Err(error) = end {
                tracing::warn!("forgetting an object, to fetch it again: {error}");
                self.memory.forget(&self.object);
            }
        }
    }

    /// The next block came.
    fn keep(&mut self, block: Block, is_short: bool) {
        let Some(Promise { index, sender, share }) = self.promises.pop_front() else { return };
        let block = block.holding(Arc::new(share));
        let memory = &self.memory.0;
        memory.tally.below.add(1, block.len() as u64);
        // A small file that lies on the disk is read there from now on.
        let elsewhere = block.is_kept() && self.object.blocks() == 1;
        let keep = !elsewhere && !memory.budget.is_short();
        // What comes from a file lies in memory of its own already.
        let block = if keep && is_short && !block.is_kept() { block.apart() } else { block };
        let mut shelf = self.memory.shelf();
        let keep = keep && !memory.budget.is_short();
        shelf.arrive((self.object.id(), index), keep.then(|| block.clone()));
        drop(shelf);
        sender.send_replace(Some(Ok(block)));
    }

    /// None of the others will come.
    fn fail(&mut self, error: &Error) {
        for Promise { index, sender, share } in self.promises.drain(..) {
            drop(share);
            self.memory.shelf().arrive((self.object.id(), index), None);
            sender.send_replace(Some(Err(error.clone())));
        }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if !self.promises.is_empty() {
            self.fail(&Error::unavailable("a fetch was given up", &*self.object));
        }
    }
}

impl Source for Memory {
    /// Asks for the run ahead as far as there is room, then waits for one block after the other.
    fn fetch(&self, run: Run) -> Blocks {
        self.ahead(&run.object, run.blocks.clone(), run.via);
        let (memory, via) = (self.clone(), run.via);
        let addresses = futures_util::stream::iter(run.addresses());
        let blocks = addresses.then(move |address| {
            let memory = memory.clone();
            async move { memory.wait(&address, address.len(), via, None).await }
        });
        // Nothing after the first error.
        let until_failed = blocks.scan(false, |failed, got| {
            let over = std::mem::replace(failed, got.is_err());
            std::future::ready((!over).then_some(got))
        });
        until_failed.boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.below.checksum(object, via)
    }
}

/// The blocks that a range touches: index, start within the block, length within it.
fn parts(object: &Object, offset: u64, length: u64) -> impl Iterator<Item = (u32, usize, usize)> + use<> {
    let end = (offset.saturating_add(length)).min(object.size);
    let each = object.block_bytes();
    let blocks = if offset < end { (offset / each) as u32..end.div_ceil(each) as u32 } else { 0..0 };
    blocks.map(move |index| {
        let start = u64::from(index) * each;
        let (from, until) = (offset.max(start), end.min(start + each));
        (index, (from - start) as usize, (until - from) as usize)
    })
}

#[cfg(test)]
mod tests;
