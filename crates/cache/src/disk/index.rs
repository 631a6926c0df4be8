//! What lies in the cache folder, in memory: a slot for each segment, rebuilt from the log.
//!
//! Everything longer (key, version, checksums) stays in the log and is read when a segment is opened, and compared
//! there: equal ids are not believed to be equal objects.
//!
//! Invariants: a segment counts against the limits from the moment that it is admitted until its file is unlinked.
//! What changes a residency names it: one that has gone is never taken for the one that came after it.

mod borrow;
mod compaction;
mod elsewhere;
mod fillings;
mod recent;
mod replay;
mod space;
mod unlink;

use super::Hold;
use super::file;
use super::filling::{Filling, Pool};
use super::log::{Entry, Log};
use super::medium::{Made, Medium};
use super::record::Record;
use super::room::{Limits, Used};
use super::segment::{Residency, Segment};
use super::table::{Class, Slot, State, Table};
use super::whole::Whole;
use block::{Clock, Error, ONE_STRIPE_BYTES_MAX, Object, ObjectId, Result};
pub use borrow::Borrowed;
#[cfg(any(test, feature = "simulate"))]
pub use compaction::{Compaction, Written};
use elsewhere::Elsewhere;
use fillings::Fillings;
use recent::Recent;
use space::Look;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Open files remembered before those that nobody holds any more are swept out.
const OPEN_SWEEP: usize = 4096;

pub struct Index {
    pub medium: Arc<dyn Medium>,
    /// Where the object files lie.
    pub folder: PathBuf,
    /// What tells it from another in its place; none if none could be made.
    made: Option<Made>,
    pub limits: Limits,
    /// Bytes up to which an object is one file.
    pub whole_max: Arc<AtomicU64>,
    log: Log,
    boot: [u8; 16],
    table: Table,
    filling: Fillings,
    pool: Arc<Pool>,
    open: HashMap<ObjectId, Weak<Whole>>,
    /// Some that stay open although nobody holds them.
    recent: Recent,
    look: Look,
    /// Bytes that were promised to segments that have no file yet.
    coming: u64,
    /// Bytes of the log that still mean something.
    pub live_bytes: u64,
    /// The number of the next residency.
    next: u32,
    first: u32,
    hold: Holding,
    /// Since the uses were written.
    pub opens: u64,
    /// Whether files may lie on the disk that the index does not know.
    pub has_strays: bool,
    /// Whether somebody has looked for those of an earlier program, if there may be any.
    pub is_swept: bool,
    /// What left since somebody asked.
    left: Vec<Left>,
    /// Files of these that are not unlinked yet.
    linked: u64,
    /// Bytes and files that somebody is unlinking who may take his time.
    leaving: (u64, u64),
    /// Whether segments gave way since somebody asked.
    gave_way: bool,
    /// Segments that readers on other members have open.
    elsewhere: Elsewhere,
}

/// Asks whether the folder is still this node's.
type Holding = Arc<dyn Fn() -> Result<Hold> + Send + Sync>;

/// A segment that has left: its file is yet to be unlinked, without the index, and whoever holds it open to be notified.
pub struct Left {
    pub object: Arc<Object>,
    pub path: PathBuf,
    bytes: u64,
}

/// What the index knows of a segment.
pub enum Found {
    Complete(Held),
    /// Complete since before the boot.
    Unchecked(Held),
    Filling(Arc<Filling>),
    Absent,
}

/// A complete file: open already, or what it takes to open it without the index.
pub enum Held {
    Open(Arc<Whole>),
    Closed(Closed),
}

/// A complete file that nobody holds open. Opening it waits for the disk, so it is done off the index.
pub struct Closed {
    medium: Arc<dyn Medium>,
    segment: Segment,
    pub residency: Residency,
    path: PathBuf,
    entry: Entry,
}

impl Held {
    pub fn residency(&self) -> Residency {
        match self {
            Held::Open(whole) => whole.residency,
            Held::Closed(closed) => closed.residency,
        }
    }
}

impl Closed {
    /// Open it, after comparing the full identity.
    pub fn open(&self) -> Result<Arc<Whole>> {
        let Record::Complete { segment, number, sums } = self.entry.read()? else {
            return Err(Error::corrupt("the cache index names another kind of record", &*self.segment.object));
        };
        if segment != self.segment || number != self.residency.number {
            return Err(Error::corrupt("two objects share an id; the older one gives way", &*self.segment.object));
        }
        Whole::open(&*self.medium, self.path.clone(), segment, number, sums).map(Arc::new)
    }
}

impl Index {
    pub fn new(
        (folder, made): (PathBuf, Made),
        limits: Limits,
        log: Log,
        (medium, boot, clock): (Arc<dyn Medium>, [u8; 16], Clock),
        (hold, first): (Holding, u32),
    ) -> Index {
        let (filling, pool, open, recent, left) = Default::default();
        Index {
            look: Look::new(clock),
            medium,
            folder,
            made: Some(made),
            limits,
            whole_max: Arc::new(Segment::whole_max(limits.bytes).into()),
            log,
            boot,
            table: Table::new(limits.bytes),
            filling,
            pool,
            open,
            recent,
            coming: 0,
            live_bytes: 0,
            next: first.max(1),
            first,
            hold,
            opens: 0,
            has_strays: false,
            is_swept: false,
            left,
            linked: 0,
            leaving: (0, 0),
            gave_way: false,
            elsewhere: Elsewhere::default(),
        }
    }

    /// Whether another node may have the folder: then nothing is here, and no file is touched.
    pub fn is_lost(&self) -> bool {
        self.pool.is_lost.load(Relaxed)
    }

    /// It is read as what this member owns, or keeps in an owner's stead: a copy until now, it is none any more. Never the
    /// other way round: whoever reads what another owns doesn't know whether that one has it.
    pub fn is_owned(&mut self, segment: &Segment) {
        let id = segment.id();
        if self.table.get(id).is_some_and(|slot| slot.class == Class::Copy) {
            self.table.change(id, |slot| slot.class = Class::Owned);
        }
    }

    /// Another member owns it from now on, and has it or will.
    pub fn is_copy(&mut self, segment: &Segment) {
        let id = segment.id();
        if self.table.get(id).is_some_and(|slot| slot.class == Class::Owned) {
            self.table.change(id, |slot| slot.class = Class::Copy);
        }
    }

    /// What is known of a segment.
    pub fn known(&self, segment: &Segment) -> Found {
        match self.slot(segment) {
            None => Found::Absent,
            Some((_, Some(filling))) => Found::Filling(filling.clone()),
            Some((slot, None)) if slot.state == State::Complete => Found::Complete(self.held(segment, slot)),
            Some((slot, None)) => Found::Unchecked(self.held(segment, slot)),
        }
    }

    /// Whether a block of a segment is here.
    pub fn has(&self, segment: &Segment, block: u32) -> bool {
        self.slot(segment).is_some_and(|(_, filling)| filling.is_none_or(|filling| filling.has(block)))
    }

    /// The slot of a segment that is here, and its file while blocks come into it.
    fn slot(&self, segment: &Segment) -> Option<(Slot, Option<&Arc<Filling>>)> {
        let id = segment.id();
        let slot = self.table.get(id).filter(|_| !self.is_lost())?;
        match slot.state {
            State::Filling => {
                let filling = self.filling.get(id).filter(|filling| filling.segment == *segment)?;
                Some((slot, Some(filling)))
            }
            State::Unchecked | State::Complete => Some((slot, None)),
        }
    }

    fn held(&self, segment: &Segment, slot: Slot) -> Held {
        let residency = Residency { id: segment.id(), number: slot.residency };
        let open = self.held_open(segment, residency);
        let closed = || Closed {
            medium: self.medium.clone(),
            segment: segment.clone(),
            residency,
            path: residency.path(&self.folder, &segment.object),
            entry: self.log.entry(slot.at),
        };
        open.map_or_else(|| Held::Closed(closed()), Held::Open)
    }

    /// Take note of a file that was opened off the index; nothing comes back if it has gone meanwhile.
    pub fn opened(&mut self, closed: &Closed, whole: Arc<Whole>) -> Option<Arc<Whole>> {
        self.current(closed.residency).filter(|slot| slot.state != State::Filling)?;
        let id = closed.residency.id;
        if let Some(open) = self.open.get(&id).and_then(Weak::upgrade).filter(|open| open.residency == whole.residency)
        {
            return Some(open);
        }
        if self.open.len() >= OPEN_SWEEP && self.open.len() == self.open.capacity() {
            self.open.retain(|_, whole| whole.strong_count() > 0);
        }
        self.open.insert(id, Arc::downgrade(&whole));
        self.recent.keep(&whole);
        Some(whole)
    }

    /// A file could not be opened. If it is damaged and still what the log names, it goes: whether it did.
    pub fn not_opened(&mut self, closed: &Closed, error: &Error) -> bool {
        let is_named = self.current(closed.residency).is_some_and(|slot| slot.at == closed.entry.at);
        let goes = file::is_damage(error) && is_named;
        if goes {
            tracing::warn!("dropped a cache file and will fetch the object again: {error}");
            self.drop_segment(closed.residency, &closed.segment.object);
        }
        goes
    }

    /// The file of a segment that is complete, if it is open.
    pub fn open_file(&self, segment: &Segment) -> Option<Arc<Whole>> {
        match self.slot(segment)? {
            (slot, None) => self.held_open(segment, Residency { id: segment.id(), number: slot.residency }),
            (_, Some(_)) => None,
        }
    }

    /// The file with holes of a segment.
    pub fn open_filling(&self, segment: &Segment) -> Option<Arc<Filling>> {
        self.slot(segment)?.1.cloned()
    }

    fn held_open(&self, segment: &Segment, residency: Residency) -> Option<Arc<Whole>> {
        let open = self.open.get(&residency.id).and_then(Weak::upgrade);
        open.filter(|whole| whole.segment == *segment && whole.residency == residency)
    }

    /// From now on some files stay open although nobody holds them, for others who ask for what was asked for before; and of objects
    /// in stripes of many members room is taken for those alone that are kept here.
    pub fn join(&mut self) {
        self.recent.begin();
        self.whole_max.fetch_min(ONE_STRIPE_BYTES_MAX, Relaxed);
    }

    /// The slot of a residency, as long as it lasts.
    fn current(&self, residency: Residency) -> Option<Slot> {
        self.table.get(residency.id).filter(|slot| slot.residency == residency.number && !self.is_lost())
    }

    /// Begin the file of a segment of several blocks, with room for the stripe of the first one that is wanted.
    pub fn start(&mut self, segment: &Segment, first: u32, class: Class) -> Result<Option<Arc<Filling>>> {
        let stripe = Segment::stripe(&segment.object, first);
        let Some(residency) = self.admit(segment, stripe.bytes().min(segment.bytes()), class) else { return Ok(None) };
        let path = residency.path(&self.folder, &segment.object);
        let filling = Filling::new(self.medium.clone(), self.pool.clone(), path, segment.clone(), residency.number);
        filling.has_room_for(&(first..first + 1));
        let record = Record::Started { segment: segment.clone(), number: residency.number };
        let begun = Filling::create(filling).and_then(|filling| Ok((filling, self.log.append(&record)?)));
        let (filling, (_, length)) = begun.inspect_err(|_| self.drop_segment(residency, &segment.object))?;
        let filling = Arc::new(filling);
        self.filling.insert(filling.clone());
        self.coming -= filling.reserves();
        self.table.change(residency.id, |slot| slot.length = length);
        self.live_bytes += u64::from(length);
        Ok(Some(filling))
    }

    /// Write into the log that a block lies in its file. False if the file is not the segment's any more.
    pub fn block_kept(&mut self, filling: &Arc<Filling>, index: u32, sums: Vec<u64>) -> Result<bool> {
        if !self.is_filling(filling) {
            return Ok(false);
        }
        let (_, length) = self.log.append(&Record::Block { residency: filling.residency, index, sums })?;
        self.table.change(filling.residency.id, |slot| slot.length += length);
        self.live_bytes += u64::from(length);
        Ok(true)
    }

    /// Call a small object complete whose file was just written. False if it lost its place meanwhile.
    pub fn complete_small(&mut self, segment: &Segment, residency: Residency, sums: Vec<u64>) -> Result<bool> {
        if self.current(residency).is_none_or(|slot| slot.state != State::Filling) {
            return Ok(false);
        }
        self.complete(segment, residency, sums)?;
        self.coming -= segment.bytes();
        Ok(true)
    }

    /// Call a segment complete if every block of its file is here.
    pub fn complete_filled(&mut self, filling: &Arc<Filling>) -> Result<bool> {
        let Some(sums) = self.is_filling(filling).then(|| filling.seal()).flatten() else { return Ok(false) };
        self.complete(&filling.segment, filling.residency, sums).inspect_err(|_| filling.unseal())?;
        self.filling.remove(filling.residency.id);
        Ok(true)
    }

    fn complete(&mut self, segment: &Segment, residency: Residency, sums: Vec<u64>) -> Result<()> {
        let record = Record::Complete { segment: segment.clone(), number: residency.number, sums };
        let (at, length) = self.log.append(&record)?;
        let before = self.current(residency).map_or(0, |slot| slot.length);
        self.table.change(residency.id, |slot| (slot.at, slot.length, slot.state) = (at, length, State::Complete));
        self.live_bytes = self.live_bytes.saturating_sub(u64::from(before)) + u64::from(length);
        Ok(())
    }

    /// Trust a complete file that was read again under this boot. False if it has gone meanwhile.
    pub fn verified(&mut self, residency: Residency) -> bool {
        match self.current(residency).map(|slot| slot.state) {
            Some(State::Unchecked) => {
                self.table.change(residency.id, |slot| slot.state = State::Complete);
                // Unwritten, it costs another reading after the next start, and no reader an error.
                if let Err(error) = self.log.append(&Record::Verified(residency)) {
                    tracing::warn!("{error}");
                }
                true
            }
            Some(State::Complete) => true,
            _ => false,
        }
    }

    /// Whether this very file is complete and was compared under this boot.
    pub fn trusts(&self, residency: Residency) -> bool {
        self.current(residency).is_some_and(|slot| slot.state == State::Complete)
    }

    /// Forget a residency; its file is unlinked once the index is given back. Whoever has it open reads on undisturbed.
    pub fn drop_segment(&mut self, residency: Residency, object: &Arc<Object>) {
        let Some(slot) = self.current(residency) else { return };
        self.table.remove(residency.id);
        self.live_bytes = self.live_bytes.saturating_sub(u64::from(slot.length));
        match self.filling.remove(residency.id) {
            Some(filling) => filling.drop_out(),
            None if slot.state == State::Filling => self.coming -= slot.bytes,
            None => {}
        }
        self.open.remove(&residency.id);
        self.recent.drop(residency);
        let path = residency.path(&self.folder, object);
        self.linked += 1;
        self.left.push(Left { object: object.clone(), path, bytes: slot.bytes });
        if let Err(error) = self.log.append(&Record::Gone(residency)) {
            tracing::warn!("{error}");
        }
    }

    /// Whether segments gave way to somebody since this was asked.
    pub fn take_gave_way(&mut self) -> bool {
        std::mem::take(&mut self.gave_way)
    }

    /// Whether every file on the disk is one that the log tells of: it does of small objects once they are there.
    pub fn is_tidy(&self) -> bool {
        self.is_swept && !self.has_strays && self.linked == 0 && self.coming == 0 && !self.is_lost()
    }

    /// Somebody opened a segment that this node owns, also one that is not here.
    pub fn opened_piece(&mut self, id: ObjectId, bytes: u64, set_bytes: u64) {
        self.table.opened(id, bytes, set_bytes);
    }

    /// Somebody opened a segment that another member owns.
    pub fn opened_of_another(&mut self, id: ObjectId, bytes: u64, set_bytes: u64) {
        self.table.opened_of_another(id, bytes, set_bytes);
    }

    /// A reader on another member has a segment open.
    pub fn open_elsewhere(&mut self, id: ObjectId) {
        if self.table.get(id).is_some() {
            self.elsewhere.said(id, self.look.now());
        }
    }

    /// Whether an object is here in one file, or is to be.
    pub fn is_kept_whole(&self, object: ObjectId) -> bool {
        self.table.get(object).is_some()
    }

    /// What is known of uses, for a later daemon.
    pub fn uses(&self) -> Vec<u8> {
        self.table.save()
    }

    /// What an earlier daemon knew of uses.
    pub fn know_uses(&mut self, saved: &[u8]) {
        if !saved.is_empty() && !self.table.restore(saved) {
            tracing::warn!("what was known of the uses of the cache is damaged; it begins anew");
        }
    }

    /// An object that its data set does not list any more gives way first.
    pub fn release(&mut self, segment: &Segment) {
        self.table.release(segment.id());
    }

    /// Segments that are here.
    pub fn files(&self) -> u64 {
        self.table.used.files
    }

    /// Bytes and files in use, what of the bytes is written, and the limits.
    pub fn usage(&self) -> (Used, Limits) {
        let mut used = self.table.used;
        used.written = used.bytes.saturating_sub(self.unwritten());
        (used, self.limits)
    }

    /// Anonymous memory that the index takes.
    pub fn bytes(&self) -> u64 {
        self.table.bytes() + self.filling.bytes()
    }

    /// Bytes that were promised to segments and are not written yet.
    pub fn unwritten(&self) -> u64 {
        let filling = self.filling.values().map(|filling| filling.reserves() - filling.written());
        self.coming + filling.sum::<u64>()
    }

    /// The same, as the slots tell.
    #[cfg(any(test, feature = "simulate"))]
    pub fn owed(&self) -> u64 {
        let filling = self.table.residents().filter(|(_, slot)| slot.state == State::Filling);
        filling.map(|(id, slot)| slot.bytes - self.filling.get(id).map_or(0, |filling| filling.written())).sum()
    }

    /// Whether this very file is the one that its segment is being filled into.
    pub fn is_filling(&self, filling: &Arc<Filling>) -> bool {
        !self.is_lost() && self.filling.get(filling.residency.id).is_some_and(|known| Arc::ptr_eq(known, filling))
    }

    /// Whether a complete file bears this id.
    pub fn is_complete(&self, id: ObjectId) -> bool {
        !self.is_lost() && self.table.get(id).is_some_and(|slot| slot.state != State::Filling)
    }

    /// Whether anything bears this id.
    pub fn lies_here(&self, id: ObjectId) -> bool {
        self.table.get(id).is_some()
    }

    /// Whether a residency lasts: a file of one that does not is a killed daemon's.
    pub fn knows(&self, residency: Residency) -> bool {
        self.current(residency).is_some()
    }
}
