//! The local disk tier: what this node keeps.
//!
//! An object is admitted at first touch until the limits are reached; then others are served without being kept,
//! unless there is evidence that they are wanted more. A block is given to its reader first and written afterwards,
//! except the only block of a small object, which is written first because its reader is about to read the file
//! itself.
//!
//! Invariants: bytes of a file are verified on each read through this tier; a file is complete only after this boot
//! wrote or compared each of its blocks, and they agree with the store's checksum, where there is one; nothing here
//! waits for an fsync.

mod admission;
mod file;
mod filling;
mod flow;
#[cfg(any(test, feature = "simulate"))]
pub mod histories;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod index;
mod keep;
mod log;
mod lying;
pub mod medium;
mod member;
mod record;
mod room;
mod segment;
mod slab;
mod table;
mod uses;
mod verify;
mod whole;

pub use lying::Lying;
pub use room::{Limits, Used};
pub use uses::{Kind, Use};
pub use whole::Whole;

use crate::distinct::Distinct;
use crate::tally::Tally;
use block::{Address, Blocks, Checksum, Clock, Door, Error, Object, Result, Run, Source, Waiting};
use index::{Found, Held, Index};
use log::Log;
use medium::{How, Medium};
use segment::{STRIPE_BLOCKS, Segment};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use table::Class;
use tokio::sync::Semaphore;

/// Longest wait for blocks that were handed on to be written: a disk that takes longer is left behind.
const KEPT_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// Threads that may read whole files at a time, shorter and longer ones.
const READINGS: [usize; 2] = [16, 4];

/// Reading more takes long: a tenth of a second on a local disk.
const LONG_BYTES: u64 = 64 << 20;

/// The disk tier over whoever answers for what is not on the disk.
#[derive(Clone)]
pub struct Disk(Arc<Parts>, Below);

/// Who is asked for what is not on the disk, and in which class it is kept, if it is.
#[derive(Clone)]
struct Below {
    source: Arc<dyn Source>,
    class: Option<Class>,
}

struct Parts {
    index: Mutex<Index>,
    folder: PathBuf,
    medium: Arc<dyn Medium>,
    capacity: u64,
    /// Bytes up to which an object is one file.
    whole_max: Arc<AtomicU64>,
    tally: Tally,
    /// What came from below since the node began.
    distinct: Mutex<Distinct>,
    keeps: fn(&Object) -> bool,
    dropped: Mutex<Dropped>,
    is_compacting: AtomicBool,
    is_saving: AtomicBool,
    /// Threads that may read whole files at a time: few read large ones, so that reads of a moment find one.
    readings: [Arc<Semaphore>; 2],
    /// Readers outside the runtime: waits for the disk happen on its blocking threads.
    runtime: tokio::runtime::Handle,
}

/// Hears of objects whose file left the disk, or whose bytes turned out to be wrong after some were handed out.
type Dropped = Arc<dyn Fn(&Object) + Send + Sync>;

/// Settings of the disk tier.
pub struct Settings {
    /// Folder of the cache; everything in it may be deleted while no node runs.
    pub folder: PathBuf,
    pub limits: Limits,
    /// Identity of this boot of the machine (Linux: `/proc/sys/kernel/random/boot_id`).
    pub boot: [u8; 16],
    /// Whether an object may be kept at all.
    pub keeps: fn(&Object) -> bool,
    pub medium: Arc<dyn Medium>,
    pub clock: Clock,
    /// Asked now and then whether the folder is still this node's.
    pub hold: Arc<dyn Fn() -> Result<Hold> + Send + Sync>,
    /// The number of the first residency in a new log. Another one for each program, so that two of them which take turns
    /// in a folder that was removed give no file the same name.
    pub first: u32,
}

/// What became of a folder that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nobody else had it since.
    Same,
    /// Nobody can look at the moment: whose it was, it is.
    Unknown,
    /// It was taken again just now; others may have had it, or removed it.
    Anew,
}

/// Where an object stands.
pub enum Standing {
    /// Complete: this file holds exactly its bytes.
    Complete(Arc<Whole>),
    /// Complete, but not read since the machine booted: each read is compared, and [`Disk::check`] compares all of it.
    Unchecked(Arc<Whole>),
    /// All of it is here, in several files.
    Cut,
    /// Not complete, or not here.
    Absent,
}

impl Disk {
    /// Lay the disk over a source. The index is read in the background; whoever needs it first waits for it.
    pub fn over(below: Arc<dyn Source>, settings: Settings, runtime: tokio::runtime::Handle) -> Result<Disk> {
        let Settings { folder, limits, boot, keeps, medium, clock, hold, first } = settings;
        let objects = folder.join("objects");
        let failed = |error: std::io::Error| Error::io("cannot make the cache folder", objects.display(), &error);
        medium.make_folder(&folder).and_then(|()| medium.make_folder(&objects)).map_err(failed)?;
        let (log, found) = Log::open(medium.clone(), &folder.join("index"))?;
        if found == log::Found::Foreign {
            tracing::warn!("{} was written by another version of Stoker; its content is discarded", folder.display());
        }
        if found != log::Found::Ours {
            medium.remove(&objects).and_then(|()| medium.make_folder(&objects)).map_err(failed)?;
        }
        // It must not outlive this start: after a kill it would hide strays.
        let was_clean = match medium.remove(&folder.join("clean")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            removed => removed.is_ok(),
        };
        // A file system that was away in between may have forgotten what a boot forgets.
        let mounted = medium.mounted(&folder).map_err(failed)?;
        let boot = (u128::from_le_bytes(boot) ^ mounted.wrapping_mul(SPREAD)).to_le_bytes();
        let made = medium.folder(&objects).map_err(failed)?;
        let index = Index::new((objects, made), limits, log, (medium.clone(), boot, clock), (hold, first));
        let (whole_max, index) = (index.whole_max.clone(), index.into());
        let (tally, distinct, dropped) = (Tally::default(), Default::default(), Mutex::new(nobody()));
        let capacity = limits.bytes;
        let (is_compacting, is_saving) = Default::default();
        let readings = READINGS.map(|count| Arc::new(Semaphore::new(count)));
        let parts = Arc::new(Parts {
            index,
            folder,
            medium,
            capacity,
            whole_max,
            tally,
            distinct,
            keeps,
            dropped,
            is_compacting,
            is_saving,
            readings,
            runtime,
        });
        let disk = Disk(parts, Below { source: below, class: Some(Class::Owned) });
        disk.load(!was_clean);
        Ok(disk)
    }

    /// Replay the log on a thread of its own, holding the index from before this returns.
    fn load(&self, sweep: bool) {
        let (held, holds) = std::sync::mpsc::sync_channel::<()>(1);
        let disk = self.clone();
        let replay = move || {
            let mut index = disk.index();
            drop(held);
            let is_whole = index.replay().inspect_err(|error| {
                tracing::warn!("the cache index could not be read, and nothing is kept until it can be: {error}");
            });
            index.know_uses(&disk.saved_uses());
            let folder = index.folder.clone();
            drop(index);
            // Without its index, every file would look like a stray.
            let is_tidy = match is_whole {
                Ok(is_whole) => is_whole && !sweep || disk.sweep(&folder),
                Err(_) => false,
            };
            disk.index().is_swept = is_tidy;
        };
        if self.0.medium.is_instant() {
            return replay();
        }
        let started = std::thread::Builder::new().name("stoker-index".into()).spawn(replay);
        if started.is_ok() {
            let _ = holds.recv();
        }
    }

    /// Say that everything the files hold is in the log, so that the next start need not look for strays.
    pub fn close(&self) {
        if !self.index().is_held() {
            return;
        }
        self.save_uses();
        let index = self.index();
        if index.is_tidy() {
            let _ = self.0.medium.open(&self.0.folder.join("clean"), How::OpenOrCreate);
        }
    }

    /// Tell somebody of each object whose file left the disk, since whoever holds it open keeps its space in use, and
    /// of each whose bytes were found to be wrong after some were handed out.
    pub fn tell_dropped(&self, dropped: impl Fn(&Object) + Send + Sync + 'static) {
        *self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(dropped);
    }

    /// Tell of an object that has left, or was wrong.
    fn tell_left(&self, object: &Object) {
        let dropped = self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        dropped(object);
    }

    /// Where an object stands; a complete one is opened.
    pub fn find(&self, object: &Arc<Object>) -> Standing {
        if self.cuts(object) && self.is_complete(object) {
            return Standing::Cut;
        }
        let found = self.index().known(&Segment::whole(object));
        let (held, is_checked) = match found {
            Found::Complete(held) => (held, true),
            Found::Unchecked(held) => (held, false),
            Found::Filling(_) | Found::Absent => return Standing::Absent,
        };
        match self.open(held) {
            Ok(Some(whole)) if is_checked => Standing::Complete(whole),
            Ok(Some(whole)) => Standing::Unchecked(whole),
            // It has gone; another may have come.
            Ok(None) => self.find(object),
            Err(error) => {
                tracing::warn!("asking the store for what is kept: {error}");
                Standing::Absent
            }
        }
    }

    /// Open a complete file while others use the index: a disk takes its time. Nothing comes back of one that has gone,
    /// and a damaged one is dropped, also one whose length somebody changed while it was open; an error means that it is
    /// there and can't be opened at the moment.
    fn open(&self, held: Held) -> Result<Option<Arc<Whole>>> {
        Ok(self.open_or_drop(held)?.ok())
    }

    /// The same; what doesn't come back was damaged (true), or has given way.
    fn open_or_drop(&self, held: Held) -> Result<std::result::Result<Arc<Whole>, bool>> {
        let closed = match held {
            Held::Open(whole) => {
                let cut = whole.has_its_length();
                let Err(error) = cut else { return Ok(Ok(whole)) };
                self.damaged(&whole, &error);
                return if file::is_damage(&error) { Ok(Err(true)) } else { Err(error) };
            }
            Held::Closed(closed) => closed,
        };
        match closed.open() {
            Ok(whole) => Ok(self.index().opened(&closed, whole).ok_or(false)),
            Err(error) if file::is_damage(&error) => Ok(Err(self.index().not_opened(&closed, &error))),
            Err(error) => Err(error),
        }
    }

    /// Whether all of an object is here, trusted or to be checked.
    pub fn is_complete(&self, object: &Arc<Object>) -> bool {
        if !self.cuts(object) {
            return self.index().is_complete(object.id());
        }
        // Sizes may be anybody's word: the first piece that is missing ends it.
        let mut starts = (0..object.blocks()).step_by(STRIPE_BLOCKS as usize);
        starts.all(|start| self.index().is_complete(Segment::stripe(object, start).id()))
    }

    /// Bytes of an object that lie on the disk. Opens nothing, and is no use of the object.
    pub fn held_bytes(&self, object: &Arc<Object>) -> u64 {
        let held = |segment: &Segment| {
            let index = self.index();
            match index.is_complete(segment.id()) {
                true => segment.bytes(),
                false => match index.known(segment) {
                    Found::Filling(filling) => filling.written(),
                    _ => 0,
                },
            }
        };
        self.segments(object).iter().map(held).sum()
    }

    /// Whether a block lies on the disk.
    pub fn holds(&self, address: &Address) -> bool {
        self.has(&self.index(), address)
    }

    /// Take the cache folder again if somebody removed it. False if that can't be.
    pub fn hold(&self) -> bool {
        let mut index = self.index();
        index.is_held();
        !index.is_lost()
    }

    /// Whether nothing of it can be had now.
    pub fn is_lost(&self) -> bool {
        self.index().is_lost()
    }

    fn has(&self, index: &Index, address: &Address) -> bool {
        let (object, block) = (&address.object, address.index);
        let is_cut = Segment::is_cut(object, self.0.whole_max.load(Relaxed));
        index.has(&Segment::whole(object), block) || is_cut && index.has(&Segment::stripe(object, block), block)
    }

    /// Wait until an object whose blocks were all handed on is complete, or will not be for now. A block is kept
    /// a moment after its reader has it, so one may still be missing when this is asked.
    pub async fn settled(&self, object: &Arc<Object>, via: Door) -> Standing {
        for segment in self.segments(object) {
            let found = self.index().known(&segment);
            let Found::Filling(filling) = found else { continue };
            let settled = filling.settled.notified();
            // What no room was found for will not come.
            let may_come = filling.has_room_for(&segment.blocks) && is_on_its_way(&filling);
            if may_come && self.index().is_filling(&filling) && !filling.is_full() {
                let _ = tokio::time::timeout(KEPT_WITHIN, settled).await;
            }
            // Blocks that were at hand in memory bring nobody who would compare the whole.
            if filling.is_full()
                && let Err(error) = self.finish(&filling, false, via).await
            {
                tracing::warn!("an object is whole but could not be compared with the store: {error}");
            }
        }
        self.find(object)
    }

    /// Objects that their data set does not list any more: they give way first.
    pub fn release<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>>) {
        for object in objects {
            let segments = self.segments(object);
            let mut index = self.index();
            segments.iter().for_each(|segment| index.release(segment));
        }
    }

    /// Whether the object is here, or would be kept if it were fetched now without anything giving way.
    pub fn has_room(&self, object: &Arc<Object>) -> bool {
        // Sizes may be anybody's word.
        if object.size > self.0.capacity || !(self.0.keeps)(object) {
            return false;
        }
        let segments: Vec<_> = self.segments(object).iter().map(|segment| (segment.id(), segment.bytes())).collect();
        self.index().has_room_for_all(&segments)
    }

    /// Use and limits.
    pub fn usage(&self) -> (Used, Limits) {
        self.index().usage()
    }

    /// Anonymous memory that the index and the count of distinct bytes take.
    pub fn memory_bytes(&self) -> u64 {
        let distinct = self.0.distinct.lock().unwrap_or_else(PoisonError::into_inner).memory_bytes();
        self.index().bytes() + distinct
    }

    /// What was served from here and from below.
    pub fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// Whether the object is kept in stripes, and no file holds all of it.
    pub fn cuts(&self, object: &Arc<Object>) -> bool {
        let is_cut = Segment::is_cut(object, self.0.whole_max.load(Relaxed));
        is_cut && matches!(self.index().known(&Segment::whole(object)), Found::Absent)
    }

    /// The segments that an object is kept in.
    fn segments(&self, object: &Arc<Object>) -> Vec<Segment> {
        match self.cuts(object) {
            true => Segment::stripes(object),
            false => vec![Segment::whole(object)],
        }
    }

    /// A run by segments.
    fn parts(&self, run: &Run) -> Vec<(Segment, Run)> {
        if !self.cuts(&run.object) {
            return vec![(Segment::whole(&run.object), run.clone())];
        }
        let mut parts = Vec::with_capacity(2);
        let mut block = run.blocks.start;
        while block < run.blocks.end {
            let segment = Segment::stripe(&run.object, block);
            block = segment.blocks.end;
            let part = segment.part(run);
            parts.push((segment, part));
        }
        parts
    }

    /// The same for work that reads all of a segment, which is long for a large one.
    async fn aside_whole<T: Send + 'static>(
        &self,
        segment: &Segment,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let readings = &self.0.readings[usize::from(segment.bytes() > LONG_BYTES)];
        let turn = readings.clone().acquire_owned().await.expect("it is never closed");
        // Given up by whoever asked, it still takes its thread.
        self.aside(move || {
            let done = work();
            drop(turn);
            done
        })
        .await
    }

    /// Work that may wait for the disk, on a thread that may.
    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        if self.0.medium.is_instant() {
            return work();
        }
        let stopped = |_| Error::unavailable("the node is stopping", "the cache");
        self.0.runtime.spawn_blocking(work).await.map_err(stopped)?
    }
}

/// Work of which a disk tier does one at a time. It ends also if it panics.
struct Alone(Disk, fn(&Parts) -> &AtomicBool);

impl Alone {
    fn begin(disk: &Disk, which: fn(&Parts) -> &AtomicBool) -> Option<Alone> {
        (!which(&disk.0).swap(true, Relaxed)).then(|| Alone(disk.clone(), which))
    }

    fn disk(&self) -> &Disk {
        &self.0
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.1(&self.0.0).store(false, Relaxed);
    }
}

/// Spreads the number of a mount over that of a boot (2^128 / golden ratio, odd).
const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// Whether somebody brings blocks of a file, or is writing one: besides the index and who asks, somebody has it.
fn is_on_its_way(filling: &Arc<filling::Filling>) -> bool {
    Arc::strong_count(filling) > 2
}

fn nobody() -> Dropped {
    Arc::new(|_| ())
}

impl Source for Disk {
    fn fetch(&self, run: Run) -> Blocks {
        flow::serve(self.clone(), run)
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.1.source.checksum(object, via)
    }

    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        // Who reads ahead waits for nobody who has the index. A reader does: else what lies here would wait for a store.
        match may_wait {
            true => Disk::holds(self, address),
            false => self.0.index.try_lock().is_ok_and(|index| self.has(&index, address)),
        }
    }
}

#[cfg(test)]
mod tests;
