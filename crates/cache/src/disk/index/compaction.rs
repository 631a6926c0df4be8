//! The log without what means nothing any more. It is made while others use the index, since the disk takes its time.
//!
//! Invariants: what was not proven under this boot never comes to lie behind its word; what happens meanwhile is written
//! behind what was drafted.

use super::{Index, State};
use crate::disk::log::{Draft, Line, Log};
use crate::disk::record::Record;
use crate::disk::{Alone, Disk};
use block::Result;

/// What a log must say, as it was when this was begun.
pub struct Compaction {
    log: Log,
    live_bytes: u64,
    boot: Record,
    /// What belongs before the word of this boot, and what belongs behind it.
    before: Records,
    after: Records,
}

struct Records {
    /// Where the records of complete files lie.
    complete: Vec<u64>,
    filling: Vec<Record>,
}

/// A compaction that the disk has, and from where to where its records moved, in the order of the old places.
pub struct Written {
    draft: Draft,
    live_bytes: u64,
    moved: Vec<(u64, u64)>,
}

impl Disk {
    /// Rewrite the log.
    pub(in crate::disk) fn compact(&self) -> Result<()> {
        let mut index = self.index();
        if !index.is_held() {
            return Ok(());
        }
        let begun = index.begin_compaction();
        drop(index);
        let written = begun.write()?;
        self.index().end_compaction(&written)
    }

    /// The same, by one at a time, on a thread that may wait for the disk.
    pub(super) fn compact_aside(&self) {
        let Some(alone) = Alone::begin(self, |parts| &parts.is_compacting) else { return };
        let work = move || {
            if let Err(error) = alone.disk().compact() {
                tracing::warn!("the cache index stays as long as it is: {error}");
                alone.disk().index().put_compaction_off();
            }
        };
        match self.0.medium.is_instant() {
            true => work(),
            false => drop(self.0.runtime.spawn_blocking(work)),
        }
    }
}

impl Index {
    /// Whether most of the log is about segments that have become complete or have gone.
    pub fn wants_compaction(&self) -> bool {
        !self.is_lost() && self.log.wants_compaction(self.live_bytes)
    }

    pub fn begin_compaction(&self) -> Compaction {
        let mut filling: Vec<_> = self.filling.values().collect();
        filling.sort_unstable_by_key(|filling| filling.residency.number);
        let (before, after): (Vec<_>, Vec<_>) = filling.into_iter().map(|filling| filling.story()).unzip();
        let records = |state, filling: Vec<Vec<Record>>| Records {
            complete: self.table.slots().filter(|slot| slot.state == state).map(|slot| slot.at).collect(),
            filling: filling.into_iter().flatten().collect(),
        };
        Compaction {
            log: self.log.clone(),
            live_bytes: self.live_bytes,
            boot: Record::Boot(self.boot),
            before: records(State::Unchecked, before),
            after: records(State::Complete, after),
        }
    }

    /// Let it take the place of the log, unless the log is another one by now.
    pub fn end_compaction(&mut self, written: &Written) -> Result<()> {
        let Written { draft, live_bytes, moved } = written;
        if !self.is_held() || !self.log.adopt(draft)? {
            return Ok(());
        }
        for slot in self.table.slots_mut() {
            match moved.binary_search_by_key(&slot.at, |(from, _)| *from) {
                Ok(found) => slot.at = moved[found].1,
                Err(_) if slot.at >= draft.copied => slot.at = slot.at - draft.copied + draft.bytes,
                Err(_) => {}
            }
        }
        self.live_bytes = (self.live_bytes + draft.bytes).saturating_sub(*live_bytes);
        Ok(())
    }

    /// It is tried again when there is as much garbage once more.
    fn put_compaction_off(&mut self) {
        self.live_bytes = self.log.bytes();
    }
}

impl Compaction {
    /// Write it beside the log, and wait until the disk has it.
    pub fn write(self) -> Result<Written> {
        let Compaction { log, live_bytes, boot, mut before, mut after } = self;
        before.complete.sort_unstable();
        after.complete.sort_unstable();
        let first = before.complete.len() + before.filling.len() + 1;
        let boot = std::iter::once(Line::New(boot));
        let (before, after) = ((before.complete, before.filling), (after.complete, after.filling));
        let lines = before.0.iter().copied().map(Line::At).chain(before.1.into_iter().map(Line::New)).chain(boot);
        let lines = lines.chain(after.0.iter().copied().map(Line::At)).chain(after.1.into_iter().map(Line::New));
        let (draft, places) = log.draft(lines)?;
        let moved = before.0.into_iter().zip(places.iter().copied());
        let mut moved: Vec<_> = moved.chain(after.0.into_iter().zip(places[first..].iter().copied())).collect();
        moved.sort_unstable();
        Ok(Written { draft, live_bytes, moved })
    }
}
