//! What lies in the cache folder, in memory: under 64 bytes an object, rebuilt from the log.
//!
//! Everything longer (key, version, checksums) stays in the log and is read when an object is opened, and
//! compared there: equal ids are not believed to be equal objects.
//!
//! Invariant: an object counts against the limits from the moment that it is admitted until its file is unlinked.

use super::file::{self, Filling, Whole};
use super::log::{Entry, Log, Told};
use super::record::{OBJECT_BYTES_MAX, Record};
use super::room::{self, Limits, Used};
use super::table::{Slot, State, Table};
use block::{Error, Object, ObjectId, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Admissions after which the file system is asked again how much is free. Fewer than that cannot fill it
/// unnoticed: a write that fails is served around.
const ADMISSIONS_PER_LOOK: u32 = 256;

/// Bytes admitted after which the file system is asked again.
const BYTES_PER_LOOK: u64 = 64 << 20;

/// Open files remembered before those that nobody holds any more are swept out.
const OPEN_SWEEP: usize = 4096;

pub struct Index {
    /// Where the object files lie.
    pub folder: PathBuf,
    limits: Limits,
    log: Log,
    boot: [u8; 16],
    table: Table,
    filling: HashMap<ObjectId, Arc<Filling>>,
    open: HashMap<ObjectId, Weak<Whole>>,
    /// Admissions and bytes since the file system was asked.
    looked: (u32, u64),
    live_bytes: u64,
    full: bool,
    /// Hears of each object whose file is unlinked.
    pub dropped: Dropped,
}

/// Hears of objects that leave the disk. Called with the index held, so it must not come back here.
pub type Dropped = Box<dyn Fn(&Object) + Send + Sync>;

/// What the index knows of an object.
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
    object: Arc<Object>,
    path: PathBuf,
    entry: Entry,
}

impl Closed {
    /// Open it, after comparing the full identity.
    pub fn open(&self) -> Result<Arc<Whole>> {
        let Record::Complete { object, sums } = self.entry.read()? else {
            return Err(Error::corrupt("the cache index names another kind of record", &*self.object));
        };
        if object != self.object {
            return Err(Error::corrupt("two objects share an id; the older one gives way", &*self.object));
        }
        Whole::open(self.path.clone(), object, sums).map(Arc::new)
    }
}

impl Index {
    pub fn new(folder: PathBuf, limits: Limits, log: Log, boot: [u8; 16]) -> Index {
        let (table, filling, open) = (Table::new(limits.bytes), HashMap::new(), HashMap::new());
        Index {
            folder,
            limits,
            log,
            boot,
            table,
            filling,
            open,
            looked: (u32::MAX, 0),
            live_bytes: 0,
            full: false,
            dropped: Box::new(|_| ()),
        }
    }

    /// Rebuild from the log. Complete files are not looked at: one that is gone is noticed when it is opened.
    pub fn replay(&mut self) -> Result<()> {
        let (table, filling, folder, now) = (&mut self.table, &mut self.filling, &self.folder, self.boot);
        let mut boot = None;
        self.log.replay(|record, at| match record {
            Record::Boot(id) => boot = Some(id),
            Record::Started(object) => {
                let id = object.id();
                if let Ok(file) = Filling::reopen(file::path(folder, &object, id), object) {
                    table.insert(id, at, file.object.size, State::Filling);
                    filling.insert(id, Arc::new(file));
                }
            }
            Record::Block { id, index, sums } => {
                filling.get(&id).map(|filling| filling.note(index, &sums));
            }
            Record::Complete { object, .. } => {
                let state = if boot == Some(now) { State::Complete } else { State::Unchecked };
                filling.remove(&object.id());
                table.insert(object.id(), at, object.size, state);
            }
            Record::Verified(id) if boot == Some(now) => table.change(id, |slot| slot.state = State::Complete),
            Record::Verified(_) => {}
            Record::Gone(id) => {
                filling.remove(&id);
                table.remove(id);
            }
        })?;
        // A boot id that comes back after another one would be a forged clock, not a boot: compared with the last only.
        if boot != Some(self.boot) {
            self.table.distrust();
            self.log.append(&Record::Boot(self.boot))?;
        }
        if let Ok(saved) = std::fs::read(self.uses()) {
            self.table.restore(&saved);
        }
        Ok(())
    }

    /// Write down what is known of uses, for the next start.
    pub fn save_uses(&self) -> std::io::Result<()> {
        let beside = self.uses().with_extension("new");
        std::fs::write(&beside, self.table.save())?;
        std::fs::rename(beside, self.uses())
    }

    fn uses(&self) -> PathBuf {
        self.folder.with_file_name("uses")
    }

    /// Bytes of memory taken by what is known of objects.
    pub fn memory_bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// A reader opens an object of a set of so many bytes.
    pub fn is_opened(&mut self, object: &Object, set_bytes: u64) {
        self.table.opened(object.id(), object.size, set_bytes);
    }

    /// What is known of an object. Not counted as a use.
    pub fn known(&self, object: &Arc<Object>) -> Found {
        let id = object.id();
        let Some(slot) = self.table.get(id) else { return Found::Absent };
        match slot.state {
            State::Filling => match self.filling.get(&id) {
                Some(filling) if filling.object == *object => Found::Filling(filling.clone()),
                _ => Found::Absent,
            },
            State::Unchecked => Found::Unchecked(self.held(object, slot)),
            State::Complete => Found::Complete(self.held(object, slot)),
        }
    }

    fn held(&self, object: &Arc<Object>, slot: Slot) -> Held {
        let id = object.id();
        let open = self.open.get(&id).and_then(Weak::upgrade).filter(|whole| whole.object == *object);
        let closed = || {
            let path = file::path(&self.folder, object, id);
            Closed { object: object.clone(), path, entry: self.log.entry(slot.at) }
        };
        open.map_or_else(|| Held::Closed(closed()), Held::Open)
    }

    /// Take note of a file that was opened off the index; nothing comes back if it has gone meanwhile. One that the log
    /// tells of elsewhere by now is given out, but nobody else shares it.
    pub fn opened(&mut self, closed: &Closed, whole: Arc<Whole>) -> Option<Arc<Whole>> {
        let id = closed.object.id();
        let slot = self.table.get(id).filter(|slot| slot.state != State::Filling)?;
        if slot.at != closed.entry.at {
            return Some(whole);
        }
        if let Some(open) = self.open.get(&id).and_then(Weak::upgrade).filter(|open| open.object == whole.object) {
            return Some(open);
        }
        if self.open.len() >= OPEN_SWEEP && self.open.len() == self.open.capacity() {
            self.open.retain(|_, whole| whole.strong_count() > 0);
        }
        self.open.insert(id, Arc::downgrade(&whole));
        Some(whole)
    }

    /// A file could not be opened. If it is still what the log told of, it is damaged, and goes.
    pub fn not_opened(&mut self, closed: &Closed, error: &Error) {
        let id = closed.object.id();
        if self.table.get(id).is_some_and(|slot| slot.state != State::Filling && slot.at == closed.entry.at) {
            tracing::warn!("dropped a cache file and will fetch the object again: {error}");
            self.drop_object(id, &closed.object);
        }
    }

    /// Give an object a place, or say that there is none. Other objects may give way.
    pub fn admit(&mut self, object: &Arc<Object>) -> bool {
        if object.size > OBJECT_BYTES_MAX {
            return false;
        }
        if self.full && self.looked.0 < ADMISSIONS_PER_LOOK {
            self.looked.0 += 1;
            return false;
        }
        self.look();
        let (bytes, files) = room::shortage(&self.limits, &self.table.used, object.size);
        if (bytes, files) != (0, 0) && !self.make_room(object.id(), bytes, files) {
            return false;
        }
        let used = &mut self.table.used;
        used.free_bytes = used.free_bytes.saturating_sub(object.size);
        used.free_files = used.free_files.map(|free| free.saturating_sub(1));
        self.looked = (self.looked.0.saturating_add(1), self.looked.1 + object.size);
        self.table.insert(object.id(), 0, object.size, State::Filling);
        true
    }

    /// Whether the object has a place, or would be given one now without anything to show.
    pub fn has_room(&mut self, object: &Object) -> bool {
        self.look();
        if object.size > OBJECT_BYTES_MAX {
            return false;
        }
        let (bytes, files) = room::shortage(&self.limits, &self.table.used, object.size);
        let (free, count) = self.table.yielding();
        self.table.get(object.id()).is_some() || (free >= bytes && count >= files)
    }

    /// Begin the file of an admitted object of several blocks.
    pub fn start(&mut self, object: &Arc<Object>) -> Result<Arc<Filling>> {
        let id = object.id();
        let filling = Arc::new(Filling::create(file::path(&self.folder, object, id), object.clone())?);
        self.log.append(&Record::Started(object.clone()))?;
        self.filling.insert(id, filling.clone());
        Ok(filling)
    }

    /// Tell the log that a block lies in its file.
    pub fn block_kept(&mut self, id: ObjectId, index: u32, sums: Vec<u64>) -> Result<()> {
        self.log.append(&Record::Block { id, index, sums }).map(drop)
    }

    /// Call an object complete.
    pub fn complete(&mut self, object: &Arc<Object>, sums: Vec<u64>) -> Result<()> {
        let id = object.id();
        let at = self.log.append(&Record::Complete { object: object.clone(), sums })?;
        self.filling.remove(&id);
        self.table.change(id, |slot| (slot.at, slot.state) = (at, State::Complete));
        self.live_bytes += self.log.bytes() - at;
        self.compact()
    }

    /// Trust a complete file that was read again under this boot.
    pub fn verified(&mut self, id: ObjectId) -> Result<()> {
        self.table.change(id, |slot| slot.state = State::Complete);
        self.log.append(&Record::Verified(id)).map(drop)
    }

    /// Unlink the file of an object and forget it. Whoever has it open reads on undisturbed.
    pub fn drop_object(&mut self, id: ObjectId, object: &Object) {
        if self.table.remove(id).is_none() {
            return;
        }
        if let Some(filling) = self.filling.remove(&id) {
            filling.settled.notify_waiters();
        }
        self.open.remove(&id);
        (self.dropped)(object);
        let path = file::path(&self.folder, object, id);
        if let Err(error) = std::fs::remove_file(&path).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }) {
            tracing::warn!("{}", Error::io("cannot unlink a cache file", path.display(), &error));
        }
        if let Err(error) = self.log.append(&Record::Gone(id)) {
            tracing::warn!("{error}");
        }
    }

    /// A write failed for want of room: look again before anything else is admitted.
    pub fn disk_is_full(&mut self) {
        (self.full, self.looked) = (true, (0, 0));
    }

    /// An object that its data set does not list any more gives way first.
    pub fn release(&mut self, id: ObjectId) {
        self.table.release(id);
    }

    /// Bytes and files in use, and the limits.
    pub fn usage(&self) -> (Used, Limits) {
        (self.table.used, self.limits)
    }

    /// Whether this very file is the one that the object is being filled into.
    pub fn is_filling(&self, filling: &Arc<Filling>) -> bool {
        self.filling.get(&filling.object.id()).is_some_and(|known| Arc::ptr_eq(known, filling))
    }

    /// Whether a complete file bears this id.
    pub fn is_complete(&self, id: ObjectId) -> bool {
        self.table.get(id).is_some_and(|slot| slot.state != State::Filling)
    }

    /// Whether the id is known: a file that is not is a killed daemon's.
    pub fn knows(&self, id: ObjectId) -> bool {
        self.table.get(id).is_some()
    }

    /// Ask the file system how much is free, now and then.
    fn look(&mut self) {
        if self.looked.0 < ADMISSIONS_PER_LOOK && self.looked.1 < BYTES_PER_LOOK {
            return;
        }
        (self.looked, self.full) = ((0, 0), false);
        if let Ok(found) = rustix::fs::statvfs(&self.folder) {
            self.table.used.free_bytes = found.f_bavail * found.f_frsize;
            self.table.used.free_files = (found.f_files > 0).then_some(found.f_favail);
        }
    }

    /// Let objects give way to one that has more to show for itself. Those in use stay.
    fn make_room(&mut self, newcomer: ObjectId, bytes: u64, files: u64) -> bool {
        let (open, filling) = (&self.open, &self.filling);
        let held = |id, slot: &Slot| match slot.state {
            // One that has no file yet is a small object on its way.
            State::Filling => filling.get(&id).is_none_or(|filling| Arc::strong_count(filling) > 1),
            _ => open.get(&id).is_some_and(|whole| whole.strong_count() > 0),
        };
        let Some(leave) = self.table.give_way(newcomer, bytes, files, held) else { return false };
        for id in leave {
            let Some(slot) = self.table.get(id) else { continue };
            match (self.log.read(slot.at), self.filling.get(&id)) {
                (_, Some(filling)) => self.drop_object(id, &filling.object.clone()),
                (Ok(Record::Complete { object, .. }), None) => self.drop_object(id, &object),
                _ => drop(self.table.remove(id)),
            }
        }
        self.looked.0 = u32::MAX;
        self.look();
        true
    }

    /// Rewrite the log once most of it is about blocks of objects that have become complete or have gone.
    fn compact(&mut self) -> Result<()> {
        match self.log.wants_compaction(self.live_bytes) {
            true => self.compact_now(),
            false => Ok(()),
        }
    }

    pub fn compact_now(&mut self) -> Result<()> {
        let unchecked = self.table.in_state(State::Unchecked);
        let complete = self.table.in_state(State::Complete);
        let mut told: Vec<Told> = unchecked.iter().map(|(_, at)| Told::At(*at)).collect();
        told.push(Told::New(Record::Boot(self.boot)));
        told.extend(complete.iter().map(|(_, at)| Told::At(*at)));
        let filling = self.filling.values();
        told.extend(filling.flat_map(|filling| filling.story()).map(Told::New));
        let offsets = self.log.rewrite(&told)?;
        let moved = unchecked.iter().zip(&offsets).chain(complete.iter().zip(&offsets[unchecked.len() + 1..]));
        moved.for_each(|((id, _), at)| self.table.change(*id, |slot| slot.at = *at));
        self.live_bytes = self.log.bytes();
        Ok(())
    }
}

/// Unlink files that the index does not know: a killed daemon began them and never told the log.
pub fn sweep(folder: &Path, knows: impl Fn(ObjectId) -> bool) {
    let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in folders.flat_map(|near| std::fs::read_dir(near.path()).into_iter().flatten().flatten()) {
        let name = file.file_name();
        let id = name.to_str().and_then(|name| u128::from_str_radix(name, 16).ok());
        if id.is_some_and(|id| !knows(ObjectId(id))) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}
