//! The local disk tier: what this node keeps.
//!
//! Objects are admitted at first touch, whole, until the limits are reached; then others are served without
//! being kept. A block is given to its reader first and written afterwards, except the only block of a small
//! object, which is written first because its reader is about to read the file itself.
//!
//! Invariants: bytes of a file are verified on each read through this tier; an object is complete only after
//! its blocks agree with the store's checksum, where there is one; nothing here waits for an fsync.

mod admission;
mod file;
mod filling;
mod index;
mod log;
mod record;
mod room;
mod slab;
mod table;

pub use file::Whole;
pub use room::{Limits, Used};

use crate::tally::Tally;
use block::{Block, Blocks, Cause, Checksum, Course, Door, Error, Kind, Object, Result, Run, Source, Waiting};
use file::Filling;
use index::{Found, Held, Index};
use log::Log;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest wait for blocks that were handed on to be written: a disk that takes longer is left behind.
const KEPT_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// The disk tier over whoever answers for what is not on the disk.
#[derive(Clone)]
pub struct Disk(Arc<Parts>);

struct Parts {
    below: Arc<dyn Source>,
    index: Mutex<Index>,
    folder: PathBuf,
    tally: Tally,
    /// Hashes of blocks that came and could not be kept.
    seen: Mutex<std::collections::HashSet<u64>>,
    keeps: fn(&Object) -> bool,
    /// Readers outside the runtime: waits for the disk happen on its blocking threads.
    runtime: tokio::runtime::Handle,
}

/// Settings of the disk tier.
pub struct Settings {
    /// Folder of the cache; everything in it may be deleted while no node runs.
    pub folder: PathBuf,
    pub limits: Limits,
    /// Identity of this boot of the machine (Linux: `/proc/sys/kernel/random/boot_id`).
    pub boot: [u8; 16],
    /// Whether an object may be kept at all.
    pub keeps: fn(&Object) -> bool,
}

/// Where an object stands.
pub enum Standing {
    /// Complete: this file holds exactly its bytes.
    Complete(Arc<Whole>),
    /// Complete, but not read since the machine booted: [`Disk::check`] first.
    Unchecked,
    /// Not complete, or not here.
    Absent,
}

impl Disk {
    /// Lay the disk over a source. The index is read in the background; whoever needs it first waits for it.
    pub fn over(below: Arc<dyn Source>, settings: Settings, runtime: tokio::runtime::Handle) -> Result<Disk> {
        let objects = settings.folder.join("objects");
        let make = |path: &Path| {
            std::fs::create_dir_all(path).map_err(|error| {
                Error::io("cannot make the cache folder", path.display(), &error)
                    .hint("choose another folder with --cache")
            })
        };
        make(&objects)?;
        let (log, found) = Log::open(&settings.folder.join("index"))?;
        if found == log::Found::Foreign {
            tracing::warn!(
                "{} was written by another version of Stoker; its content is discarded",
                settings.folder.display()
            );
        }
        if found != log::Found::Ours {
            discard(&objects)?;
            make(&objects)?;
        }
        let clean = settings.folder.join("clean");
        let was_clean = std::fs::remove_file(&clean).is_ok();
        let index = Index::new(objects.clone(), settings.limits, log, settings.boot).into();
        let (tally, seen, keeps) = (Tally::default(), Default::default(), settings.keeps);
        let parts = Parts { below, index, folder: settings.folder, tally, seen, keeps, runtime };
        let disk = Disk(Arc::new(parts));
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
            if let Err(error) = index.replay() {
                tracing::warn!("the cache index could not be read; what it spoke of will be fetched again: {error}");
            }
            let folder = index.folder.clone();
            drop(index);
            if sweep {
                index::sweep(&folder, |id| disk.index().knows(id));
            }
        };
        let started = std::thread::Builder::new().name("stoker-index".into()).spawn(replay);
        if started.is_ok() {
            let _ = holds.recv();
        }
    }

    /// Say that everything the files hold is in the log, so that the next start need not look for strays.
    pub fn close(&self) {
        let index = self.index();
        if let Err(error) = index.save_uses() {
            tracing::warn!("cannot write down when objects were opened, so trades between them begin anew: {error}");
        }
        let _ = std::fs::write(self.0.folder.join("clean"), b"");
    }

    /// Tell somebody of each object that leaves the disk: whoever holds its file open keeps its space in use.
    /// What is told must not call back into this tier.
    pub fn tell_dropped(&self, dropped: impl Fn(&Object) + Send + Sync + 'static) {
        self.index().dropped = Box::new(dropped);
    }

    /// A reader opens an object of a set of so many bytes, whether it is here or not: what is read stays. Runs, checks,
    /// fill and load don't count.
    pub fn opened(&self, object: &Object, set_bytes: u64) {
        self.index().is_opened(object, set_bytes);
    }

    /// Where an object stands; a complete one is opened.
    pub fn find(&self, object: &Arc<Object>) -> Standing {
        let found = self.index().known(object);
        match found {
            Found::Complete(held) => match self.open(held) {
                Some(whole) => Standing::Complete(whole),
                // It has gone; another may have come.
                None => self.find(object),
            },
            Found::Unchecked(_) => Standing::Unchecked,
            Found::Filling(_) | Found::Absent => Standing::Absent,
        }
    }

    /// Open a complete file while others use the index: a disk takes its time. A damaged one is dropped.
    fn open(&self, held: Held) -> Option<Arc<Whole>> {
        let closed = match held {
            Held::Open(whole) => return Some(whole),
            Held::Closed(closed) => closed,
        };
        match closed.open() {
            Ok(whole) => self.index().opened(&closed, whole),
            Err(error) => {
                self.index().not_opened(&closed, &error);
                None
            }
        }
    }

    /// Whether an object is complete here, trusted or to be checked. Does not count as a use.
    pub fn is_complete(&self, object: &Object) -> bool {
        self.index().is_complete(object.id())
    }

    /// Whether a block of an object that is not complete lies on the disk.
    pub fn holds(&self, address: &block::Address) -> bool {
        match self.index().known(&address.object) {
            Found::Complete(_) | Found::Unchecked(_) => true,
            Found::Filling(filling) => filling.has(address.index),
            Found::Absent => false,
        }
    }

    /// Read a complete file of an earlier boot once, and trust it from then on. Damaged, it is dropped.
    pub async fn check(&self, object: &Arc<Object>) -> Result<Option<Arc<Whole>>> {
        self.inspect(object, None).await
    }

    /// Read a complete file again and compare it with what the store says, as far as the store says anything.
    pub async fn verify(&self, object: &Arc<Object>, via: Door) -> Result<bool> {
        let told = self.0.below.checksum(object, via).await?;
        Ok(self.inspect(object, told).await?.is_some())
    }

    async fn inspect(&self, object: &Arc<Object>, told: Option<Checksum>) -> Result<Option<Arc<Whole>>> {
        let (disk, object) = (self.clone(), object.clone());
        let work = move || {
            let found = disk.index().known(&object);
            let (Found::Complete(held) | Found::Unchecked(held)) = found else { return Ok(None) };
            let Some(whole) = disk.open(held) else { return Ok(None) };
            let checked = whole.verify(told);
            let mut index = disk.index();
            match checked {
                Ok(()) => index.verified(object.id()).map(|()| Some(whole)),
                Err(error) => {
                    tracing::warn!("dropped a cache file and will fetch the object again: {error}");
                    index.drop_object(object.id(), &object);
                    Ok(None)
                }
            }
        };
        self.0
            .runtime
            .spawn_blocking(work)
            .await
            .map_err(|error| Error::corrupt(format!("a check was given up: {error}"), ""))?
    }

    /// Wait until an object whose blocks were all handed on is complete, or will not be for now. A block is kept
    /// a moment after its reader has it, so one may still be missing when this is asked.
    pub async fn settled(&self, object: &Arc<Object>, via: Door) -> Standing {
        let found = self.index().known(object);
        if let Found::Filling(filling) = found {
            let told = filling.settled.notified();
            if self.index().is_filling(&filling) {
                let _ = tokio::time::timeout(KEPT_WITHIN, told).await;
            }
            // Blocks that were at hand in memory bring nobody who would compare the whole.
            if filling.missing() == 0
                && let Err(error) = self.finish(&filling, false, via).await
            {
                tracing::warn!("an object is whole but could not be compared with the store: {error}");
            }
        }
        self.find(object)
    }

    /// Objects that their data set does not list any more: they give way first.
    pub fn release<'a>(&self, objects: impl Iterator<Item = &'a Object>) {
        let mut index = self.index();
        objects.for_each(|object| index.release(object.id()));
    }

    /// Whether the object is here, or would be kept if it were fetched now.
    pub fn has_room(&self, object: &Object) -> bool {
        (self.0.keeps)(object) && self.index().has_room(object)
    }

    /// Use and limits.
    pub fn usage(&self) -> (Used, Limits) {
        self.index().usage()
    }

    /// Bytes of memory taken by what is known of objects.
    pub fn memory_bytes(&self) -> u64 {
        self.index().memory_bytes()
    }

    /// What was served from here and from below.
    pub fn tally(&self) -> &Tally {
        &self.0.tally
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keep the only block of a small object: a complete file at once. The store's checksum was compared
    /// when the block was made.
    fn keep_small(&self, block: Block, sums: Vec<u64>) -> Block {
        let object = &block.address.object;
        let path = file::path(&self.index().folder, object, object.id());
        let kept = Whole::create(&path, &block).and_then(|()| self.index().complete(object, sums));
        match kept {
            Ok(()) => block.kept(),
            Err(error) => {
                self.give_up(object, &error);
                block
            }
        }
    }

    /// Keep a block of an object that is being filled.
    fn keep(&self, filling: &Filling, block: &Block, course: &Course) {
        course.enter(Cause::Cpu);
        let sums = file::sums(block.pieces());
        course.enter(Cause::Disk);
        let kept = filling.keep(block, &sums).and_then(|fresh| match fresh {
            true => self.index().block_kept(filling.object.id(), block.address.index, sums),
            false => Ok(()),
        });
        if let Err(error) = kept {
            self.give_up(&filling.object, &error);
        }
    }

    /// Stop keeping an object: the disk is full or refuses. Reads go on from the tiers below.
    fn give_up(&self, object: &Arc<Object>, error: &Error) {
        tracing::warn!("serving without keeping: {error}");
        let mut index = self.index();
        if error.kind == Kind::Full {
            index.disk_is_full();
        }
        index.drop_object(object.id(), object);
    }

    /// Compare a filled file with what the store says, and call it complete. `known` if that was done on the way.
    async fn finish(&self, filling: &Arc<Filling>, known: bool, via: Door) -> Result<()> {
        let done = self.compare(filling, known, via).await;
        filling.settled.notify_waiters();
        done
    }

    async fn compare(&self, filling: &Arc<Filling>, known: bool, via: Door) -> Result<()> {
        let _one = filling.finishing.lock().await;
        if filling.missing() > 0 || !self.index().is_filling(filling) {
            return Ok(());
        }
        let told = if known { None } else { self.0.below.checksum(&filling.object, via).await? };
        let file = filling.clone();
        let matches = match told {
            None => true,
            Some(told) => self.0.runtime.spawn_blocking(move || file.matches(told)).await.unwrap_or(Ok(false))?,
        };
        if matches {
            return self.index().complete(&filling.object, filling.sums());
        }
        let what = "the bytes that the store sent differ from its own checksum of the object";
        let error = Error::corrupt(what, &*filling.object);
        if filling.flawed() {
            self.index().drop_object(filling.object.id(), &filling.object);
        }
        Err(error)
    }
}

impl Source for Disk {
    fn fetch(&self, run: Run) -> Blocks {
        filling::serve(self.clone(), run)
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.below.checksum(object, via)
    }
}

/// Empty a folder of object files whose format is not ours. It is moved aside first, so that a stop halfway
/// leaves nothing that looks like ours.
fn discard(objects: &Path) -> Result<()> {
    std::fs::remove_dir_all(objects)
        .map_err(|error| Error::io("cannot empty the cache folder", objects.display(), &error))
}

#[cfg(test)]
mod tests;
