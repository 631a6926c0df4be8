//! Blocks at hand and blocks announced. Pure bookkeeping: no fetching, no waiting.
//!
//! Blocks that were read to their end leave first. Then those go that were asked for ahead and nobody has begun to read,
//! the last one first, because it will be wanted last: the first would have to be fetched again at once.

use block::{Block, Course, Door, ObjectId, Result, stripe_end};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use tokio::sync::watch;
use tokio::time::Instant;

pub type Key = (ObjectId, u32);

/// A block on its way.
#[derive(Clone)]
pub struct Coming {
    pub promise: watch::Receiver<Option<Result<Block>>>,
    /// What its run waits for.
    pub course: Course,
    /// By whose credentials it is fetched.
    pub via: Door,
    /// Since when its asker is patient.
    pub since: Instant,
}

/// Where a block is.
pub enum Place {
    Here(Block),
    Coming(Coming),
}

/// Keys in a queue before those of blocks that left are swept out of it.
const QUEUE_SWEEP: usize = 1024;

#[derive(Default)]
pub struct Shelf {
    slots: HashMap<Key, Slot>,
    /// By [`Read`]: keys in the order in which blocks came to that; those of blocks that went on are skipped.
    queues: [VecDeque<(Key, u64)>; 3],
    stamps: u64,
}

enum Slot {
    Coming { coming: Coming, read_until: usize, stamp: u64 },
    Here { block: Block, read: Read, stamp: u64 },
}

/// How far a block was read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    /// Asked for ahead: the one that came last will be wanted last.
    Not,
    InPart,
    ToItsEnd,
}

impl Shelf {
    /// Where a block is, if anywhere, noting that its bytes up to `until` are being read.
    pub fn place(&mut self, key: &Key, until: usize) -> Option<Place> {
        self.read_until(key, until);
        self.look(key)
    }

    /// Where a block is, if anywhere, for somebody who doesn't read it here.
    pub fn look(&self, key: &Key) -> Option<Place> {
        self.slots.get(key).map(|slot| match slot {
            Slot::Here { block, .. } => Place::Here(block.clone()),
            Slot::Coming { coming, .. } => Place::Coming(coming.clone()),
        })
    }

    /// The block if it is here, noting that its bytes up to `until` are being read.
    pub fn get(&mut self, key: &Key, until: usize) -> Option<Block> {
        match self.place(key, until) {
            Some(Place::Here(block)) => Some(block),
            _ => None,
        }
    }

    /// Whether the block is here.
    pub fn has(&self, key: &Key) -> bool {
        matches!(self.slots.get(key), Some(Slot::Here { .. }))
    }

    /// Whether the block is here or announced.
    pub fn knows(&self, key: &Key) -> bool {
        self.slots.contains_key(key)
    }

    /// The first blocks side by side that are neither here nor announced. They lie in one stripe, since each stripe has
    /// an owner of its own.
    pub fn unknown(&self, id: ObjectId, mut blocks: Range<u32>) -> Option<Range<u32>> {
        let start = blocks.find(|index| !self.knows(&(id, *index)))?;
        let most = blocks.end.min(stripe_end(start));
        let end = (start + 1..most).find(|index| self.knows(&(id, *index)));
        Some(start..end.unwrap_or(most))
    }

    /// A block is on its way; the stamp by which it is known again when it arrives comes back.
    pub fn announce(&mut self, key: Key, coming: Coming) -> u64 {
        self.stamps += 1;
        self.slots.insert(key, Slot::Coming { coming, read_until: 0, stamp: self.stamps });
        self.stamps
    }

    /// A block came, to stay or not; or its fetch failed. If the object was forgotten meanwhile, it does not stay.
    pub fn arrive(&mut self, key: Key, of: u64, block: Option<Block>) {
        let read_until = match self.slots.get(&key) {
            Some(Slot::Coming { read_until, stamp, .. }) if *stamp == of => *read_until,
            _ => return,
        };
        self.slots.remove(&key);
        let Some(block) = block else { return };
        let read = read_to(read_until, &block);
        self.slots.insert(key, Slot::Here { block, read, stamp: 0 });
        self.queue(key, read);
    }

    /// Drop all blocks of an object. Who waits for one gets it, but it will not stay, and who comes now asks anew.
    pub fn forget(&mut self, id: ObjectId) {
        self.slots.retain(|(object, _), _| *object != id);
    }

    /// Note that a block was read up to here: at its end it is spent.
    pub fn read_until(&mut self, key: &Key, until: usize) {
        match self.slots.get_mut(key) {
            Some(Slot::Here { block, read, .. }) => {
                let now = read_to(until, block);
                if now > *read {
                    self.queue(*key, now);
                }
            }
            Some(Slot::Coming { read_until, .. }) => *read_until = until.max(*read_until),
            None => {}
        }
    }

    /// Nobody will read these blocks, if nobody began to.
    pub fn abandon(&mut self, id: ObjectId, blocks: Range<u32>) {
        for key in blocks.map(|index| (id, index)) {
            match self.slots.get_mut(&key) {
                Some(Slot::Here { read: Read::Not, .. }) => self.queue(key, Read::ToItsEnd),
                Some(Slot::Coming { read_until, .. }) if *read_until == 0 => *read_until = usize::MAX,
                _ => {}
            }
        }
    }

    /// A reader will wait for these blocks from this moment on: so much for those on their way.
    pub fn hasten(&self, id: ObjectId, blocks: Range<u32>, due: std::time::Instant) {
        for index in blocks {
            if let Some(Slot::Coming { coming, .. }) = self.slots.get(&(id, index)) {
                coming.course.hasten(due);
            }
        }
    }

    /// Take the block that may best leave off the shelf; with `spent_only`, one that was read to its end.
    pub fn push_out(&mut self, spent_only: bool) -> Option<Block> {
        let spent = self.take(Read::ToItsEnd);
        if spent.is_some() || spent_only {
            return spent;
        }
        self.take(Read::Not).or_else(|| self.take(Read::InPart))
    }

    /// Put a block that is here into the queue of those that were read as far.
    fn queue(&mut self, key: Key, now: Read) {
        self.stamps += 1;
        let queue = &mut self.queues[now as usize];
        if queue.len() >= QUEUE_SWEEP.max(2 * self.slots.len()) {
            let slots = &self.slots;
            queue.retain(|(key, stamp)| is_current(slots, key, *stamp));
        }
        if let Some(Slot::Here { read, stamp, .. }) = self.slots.get_mut(&key) {
            (*read, *stamp) = (now, self.stamps);
            queue.push_back((key, self.stamps));
        }
    }

    fn take(&mut self, read: Read) -> Option<Block> {
        let queue = &mut self.queues[read as usize];
        loop {
            let (key, stamp) = if read == Read::Not { queue.pop_back() } else { queue.pop_front() }?;
            if is_current(&self.slots, &key, stamp)
                && let Some(Slot::Here { block, .. }) = self.slots.remove(&key)
            {
                return Some(block);
            }
        }
    }
}

fn is_current(slots: &HashMap<Key, Slot>, key: &Key, of: u64) -> bool {
    matches!(slots.get(key), Some(Slot::Here { stamp, .. }) if *stamp == of)
}

fn read_to(until: usize, block: &Block) -> Read {
    match until {
        0 => Read::Not,
        _ if until < block.len() => Read::InPart,
        _ => Read::ToItsEnd,
    }
}
