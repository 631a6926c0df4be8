//! The memory tier: blocks in flight, blocks that were just read, and blocks that can't be kept elsewhere.
//!
//! One fetch per block is in flight, whoever asks; all others wait for it. Every block here, on its way here
//! or still held by a reader counts against one budget. A reader that needs a block may push out older ones;
//! asking ahead takes only what is free or was read to its end, so that many readers cannot starve each other.
//!
//! Invariant: the sum of the blocks alive never exceeds the budget.

pub(crate) mod lanes;
mod lend;
mod promised;
mod shelf;

use crate::budget::{BYTES_MIN, Budget, Holder, Share};
use crate::readahead::Readahead;
use crate::tally::Tally;
use crate::waits::{Wait, Waits, clock};
use block::{
    Address, Block, Blocks, Checksum, Course, Door, Error, Object, RUN_BLOCKS_MAX, Result, Run, Source, Waiting,
};
use bytes::Bytes;
use futures_util::StreamExt;
use lanes::{LANE_MIN, Lanes};
use promised::{Declared, Promise, Promised};
use shelf::{Coming, Place, Shelf};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Blocks of one request made ahead: eight mebibytes reach the bandwidth of a store, and several such requests
/// run side by side within one window.
const AHEAD_RUN_BLOCKS: u32 = 32;

/// Blocks that a request made ahead has at least, unless less is wanted: while many streams share the memory,
/// room comes free a block at a time, and a request for each would cost the store and us many times as much.
const AHEAD_RUN_BLOCKS_MIN: usize = 16;

/// Requests that are under way for what somebody declared that he will read soon, and later. The first are enough to fill a
/// store that takes 100 ms with 1,000 small files a second. More would stand before what is wanted sooner in every queue on
/// the way that knows no due times: processors, threads, connections, memory of others. If fewer don't do for what is wanted
/// later, it comes to be wanted soon.
const DECLARED_AT_ONCE: (usize, usize) = (128, 32);
const SOON: Duration = Duration::from_secs(1);

/// Blocks of shorter runs are copied before they stay: at both ends of a run they share buffers of the connection with
/// bytes that are gone, which makes random reads hold twice what they count (measured: 270 MB of a limit of 256).
pub(crate) const APART_BELOW: usize = 4;

/// Blocks that a reader holds while it waits for others: more than the longest read of a kernel touches.
const TOGETHER_MAX: usize = 8;

const _: () = assert!(TOGETHER_MAX as u64 * block::BLOCK <= LANE_MIN && LANE_MIN <= BYTES_MIN);
const _: () = assert!(AHEAD_RUN_BLOCKS <= RUN_BLOCKS_MAX && AHEAD_RUN_BLOCKS_MIN <= AHEAD_RUN_BLOCKS as usize);

/// The memory tier over whoever answers for what is not in memory.
#[derive(Clone)]
pub struct Memory(Arc<Parts>);

struct Parts {
    below: Arc<dyn Source>,
    shelf: Mutex<Shelf>,
    budget: Budget,
    lanes: Lanes,
    tally: Tally,
    waits: Waits,
    wrong: OnceLock<Wrong>,
    declared: Arc<AtomicUsize>,
    runtime: tokio::runtime::Handle,
}

/// Room for a block on its way: a share that it keeps when it has come, and a place in the lane of its store.
type Room = (Share, lanes::Place);

/// Hears of objects whose bytes were wrong.
type Wrong = Box<dyn Fn(&Object) + Send + Sync>;

impl Holder for Parts {
    fn let_go(&self, spent_only: bool) -> bool {
        let pushed = self.shelf.lock().unwrap_or_else(PoisonError::into_inner).push_out(spent_only);
        pushed.is_some()
    }
}

impl Memory {
    /// Lay memory over a source. Other holders may draw on the same budget. Who waits for memory that others take who wait
    /// for the same store waits for no longer than `patience` while nothing comes from it.
    pub fn over(below: Arc<dyn Source>, budget: Budget, patience: Duration, runtime: tokio::runtime::Handle) -> Memory {
        let (shelf, tally, waits, wrong, declared) = Default::default();
        let lanes = Lanes::over(budget.clone(), patience);
        let of_all = budget.clone();
        let parts = Arc::new(Parts { below, shelf, budget: of_all, lanes, tally, waits, wrong, declared, runtime });
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
        let mut pieces = Vec::new();
        for parts in parts.chunks(TOGETHER_MAX) {
            let first = parts[0].0;
            let run = Run::new(object.clone(), first..first + parts.len() as u32).via(via);
            let until: Vec<_> = parts.iter().map(|(_, start, length)| start + length).collect();
            let blocks = self.together(&run, &until, Some(&self.0.waits)).await?;
            pieces.extend(blocks.iter().zip(parts).flat_map(|(block, (_, start, length))| block.cut(*start, *length)));
        }
        Ok(pieces)
    }

    /// One block, of which a reader wants the bytes up to `until`. What it waits for is booked.
    pub async fn block(&self, address: &Address, until: usize, via: Door) -> Result<Block> {
        let run = Run::new(address.object.clone(), address.index..address.index + 1).via(via);
        self.one(&run, until, Some(&self.0.waits)).await
    }

    async fn one(&self, run: &Run, until: usize, waits: Option<&Waits>) -> Result<Block> {
        let block = self.together(run, &[until], waits).await?.pop();
        Ok(block.expect("as many as were asked for"))
    }

    /// The blocks of a run, of each of which somebody wants the bytes up to what `until` names. Those that came are held
    /// until the last one has come.
    async fn together(&self, run: &Run, until: &[usize], waits: Option<&Waits>) -> Result<Vec<Block>> {
        let (mut wait, mut run, since) = (None, run.clone(), lanes::now());
        let mut is_again = false;
        'again: loop {
            let places = self.claim_or_wait(&mut run, until, waits, &mut wait, since).await?;
            let mut blocks = Vec::with_capacity(places.len());
            for place in places {
                let Coming { mut promise, course, via, since: began } = match place {
                    Place::Coming(coming) => coming,
                    Place::Here(block) => {
                        self.0.tally.here.add(1, block.len() as u64);
                        blocks.push(block);
                        continue;
                    }
                };
                wait = wait.or_else(|| waits.map(Waits::begin));
                if let Some(wait) = &mut wait {
                    course.urge();
                    wait.follow(&course);
                }
                // The sender is dropped without a value only if the runtime ends.
                let gone = || Error::unavailable("the node is stopping", &*run.object);
                let (key, asked) = ((run.object.store.clone(), via), promise.wait_for(Option::is_some));
                // Who asked for it later is patient for longer.
                let got = if began > since {
                    let in_time = self.0.lanes.unless_silent(Some(&key), since, asked).await;
                    in_time.ok_or_else(|| silent(&run, "from the store"))?
                } else {
                    asked.await
                };
                let got = got.map_err(|_| gone())?.clone().ok_or_else(gone)?;
                // What a store says to others by their credentials is no answer to this one.
                if via != run.via && got.as_ref().is_err_and(Error::is_of_asker) {
                    continue 'again;
                }
                // Nor is it one that others were patient before this one came.
                let lanes = &self.0.lanes;
                let is_passing = began < since && got.as_ref().is_err_and(Error::passes);
                if is_passing && lanes.is_patient(&key, since, is_again) {
                    run.waited = run.waited.max(lanes.silence(Some(&key), since).elapsed());
                    is_again = true;
                    continue 'again;
                }
                blocks.push(got?);
            }
            return Ok(blocks);
        }
    }

    /// Where the blocks of a run are, or come from, once there is room for those that nobody asked for yet.
    ///
    /// It is taken for all of them at once, while none is held: readers who wait for room with blocks in their hands
    /// would wait for each other.
    async fn claim_or_wait<'a>(
        &'a self,
        run: &mut Run,
        until: &[usize],
        waits: Option<&'a Waits>,
        wait: &mut Option<Wait<'a>>,
        since: Instant,
    ) -> Result<Vec<Place>> {
        let (mut room, mut is_first) = (HashMap::new(), true);
        loop {
            let missing = match self.claim(run, until, &mut room, waits.is_some(), since) {
                Ok(places) => return Ok(places),
                Err(missing) => missing,
            };
            *wait = wait.take().or_else(|| waits.map(Waits::begin));
            // Others may leave while room is waited for: the second time there is enough for all.
            let wanted: Vec<_> = run.addresses().filter(|one| !is_first || missing.contains(&one.index)).collect();
            is_first = false;
            room.clear();
            let (lanes, of_store) = (&self.0.lanes, (run.object.store.clone(), run.via));
            let on_way: Vec<_> = wanted.iter().map(|one| self.on_way(one, true)).collect();
            let (lane, waited) =
                lanes.room(&of_store, &on_way, since).await.ok_or_else(|| silent(run, "from the store"))?;
            let lengths: Vec<_> = wanted.iter().map(Address::len).collect();
            let shares = lanes.unless_silent(None, since, self.0.budget.shares(&lengths)).await;
            let shares = shares.ok_or_else(|| silent(run, "into the memory"))?;
            run.waited = run.waited.max(waited);
            room = wanted.iter().map(|one| one.index).zip(shares.into_iter().zip(lane)).collect();
        }
    }

    /// Bytes of a block that come from a store.
    fn on_way(&self, address: &Address, may_wait: bool) -> u64 {
        if self.0.below.holds(address, may_wait) { 0 } else { address.len() as u64 }
    }

    /// Where the blocks of a run are. Those that nobody asked for yet are asked for, if there is room for all of them;
    /// otherwise they come back.
    fn claim(
        &self,
        run: &Run,
        until: &[usize],
        room: &mut HashMap<u32, Room>,
        is_urgent: bool,
        since: Instant,
    ) -> std::result::Result<Vec<Place>, Vec<u32>> {
        let (id, mut shelf) = (run.object.id(), self.shelf());
        let is_missing = |index: &u32| !shelf.knows(&(id, *index)) && !room.contains_key(index);
        let missing: Vec<_> = run.blocks.clone().filter(is_missing).collect();
        if !missing.is_empty() {
            // The others must not leave for somebody else while room is waited for.
            run.blocks.clone().for_each(|index| shelf.read_until(&(id, index), 1));
            return Err(missing);
        }
        let mut announced = Vec::new();
        let mut rest = run.blocks.clone();
        while let Some(blocks) = shelf.unknown(id, rest.clone()) {
            rest.start = blocks.end;
            let room = blocks.clone().filter_map(|index| room.remove(&index)).collect();
            announced.push(self.announce(
                &mut shelf,
                &run.part(blocks),
                room,
                Course::wanted(clock, is_urgent, run.course.due()),
                since,
            ));
        }
        let places = run.blocks.clone().zip(until).filter_map(|(index, until)| shelf.place(&(id, index), *until));
        let places = places.collect();
        drop(shelf);
        announced.into_iter().for_each(|(run, promised)| drop(self.0.runtime.spawn(promised.flight(run))));
        Ok(places)
    }

    /// Ask for blocks that will be wanted, as far as there is room for requests worth making. Never waits. The first
    /// block that was not asked for comes back.
    pub fn ahead(&self, object: &Arc<Object>, blocks: Range<u32>, via: Door) -> u32 {
        self.ahead_of(&Run::new(object.clone(), 0..1).via(via), blocks, None, false)
    }

    /// The same for a reader who declared that he will wait for them from a moment on.
    pub fn ahead_until(&self, object: &Arc<Object>, blocks: Range<u32>, via: Door, due: std::time::Instant) -> u32 {
        self.ahead_of(&Run::new(object.clone(), 0..1).via(via), blocks, Some(due), true)
    }

    /// Ask for blocks in the manner of one run.
    fn ahead_of(&self, like: &Run, mut blocks: Range<u32>, due: Option<std::time::Instant>, is_declared: bool) -> u32 {
        let (id, of_store) = (like.object.id(), (like.object.store.clone(), like.via));
        due.inspect(|due| self.shelf().hasten(id, blocks.clone(), *due));
        loop {
            let Some(unknown) = self.shelf().unknown(id, blocks.clone()) else { return blocks.end };
            blocks.start = unknown.start;
            if is_declared && self.0.declared.load(Relaxed) >= declared_at_once(due) {
                return blocks.start;
            }
            let run = like.part(unknown.start..unknown.end.min(unknown.start + AHEAD_RUN_BLOCKS));
            let spare = |address: Address| {
                let share = self.0.budget.spare(address.len())?;
                Some((share, self.0.lanes.spare(&of_store, self.on_way(&address, false))?))
            };
            let mut room: Vec<Room> = run.addresses().map_while(spare).collect();
            if room.len() < run.blocks.len().min(AHEAD_RUN_BLOCKS_MIN) {
                return blocks.start;
            }
            let mut shelf = self.shelf();
            // Others may have asked for some meanwhile.
            let known = run.blocks.clone().position(|index| shelf.knows(&(id, index)));
            room.truncate(known.unwrap_or(room.len()));
            blocks.start += room.len() as u32;
            if room.is_empty() {
                continue;
            }
            let course = Course::wanted(clock, false, due);
            let (run, mut promised) = self.announce(&mut shelf, &run, room, course, lanes::now());
            drop(shelf);
            promised.declared = is_declared.then(|| Declared::of(&self.0.declared));
            self.0.runtime.spawn(promised.flight(run));
        }
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
        self.0.below.forget(object);
        self.shelf().forget(object.id());
        if let Some(tell) = self.0.wrong.get() {
            tell(object);
        }
    }

    /// Tell somebody of each object of which wrong bytes may have been handed out. Only the first call counts.
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

    /// Announce the blocks of a run that room was taken for, and for which somebody is patient since then.
    fn announce(
        &self,
        shelf: &mut Shelf,
        run: &Run,
        room: Vec<Room>,
        course: Course,
        since: Instant,
    ) -> (Run, Promised) {
        let id = run.object.id();
        let run = Run { course: course.clone(), ..run.part(run.blocks.start..run.blocks.start + room.len() as u32) };
        let promise = |(index, (share, lane))| {
            let (sender, promise) = watch::channel(None);
            let coming = Coming { promise, course: course.clone(), via: run.via, since };
            let stamp = shelf.announce((id, index), coming);
            Promise { index, sender, share, stamp, lane }
        };
        let promises = run.blocks.clone().zip(room).map(promise).collect();
        (run.clone(), Promised { memory: self.clone(), object: run.object, promises, declared: None })
    }
}

impl Source for Memory {
    /// Asks for the run ahead as far as there is room, then waits for one block after the other.
    fn fetch(&self, run: Run) -> Blocks {
        self.ahead_of(&run, run.blocks.clone(), run.course.due(), false);
        let memory = self.clone();
        let blocks = futures_util::stream::iter(run.blocks.clone()).then(move |index| {
            let (memory, one) = (memory.clone(), run.part(index..index + 1));
            async move { memory.one(&one, one.bytes() as usize, None).await }
        });
        block::until_failed(blocks)
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.below.checksum(object, via)
    }
}

fn declared_at_once(due: Option<std::time::Instant>) -> usize {
    let (soon, later) = DECLARED_AT_ONCE;
    let is_soon = due.is_none_or(|due| due.saturating_duration_since(clock()) < SOON);
    if is_soon { soon } else { later }
}

fn silent(run: &Run, what: &str) -> Error {
    Error::unavailable(format!("nothing comes {what} that others wait for"), &*run.object)
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
