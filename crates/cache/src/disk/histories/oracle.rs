//! What must hold, whatever happened: the judge of a history. It looks at the simulated disk from outside, as the kernel
//! does when a file passes through, and at what the tier gives and says.

use super::forgetful::{Forgetful, Inode, Open};
use super::pages::PAGE;
use super::step::Scene;
use super::truth::{STORE_FAILS, Store, Truth, lie};
use crate::disk::filling::OPEN_MAX;
use crate::disk::index::Found;
use crate::disk::segment::{Residency, Segment};
use crate::disk::{Disk, Whole};
use block::{Block, Error, Kind, ObjectId};
use std::any::Any;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

/// Where the files of objects lie on the simulated disk.
pub const OBJECTS: &str = "/cache/objects/";

/// How names of files end that the cache did not make.
pub const STRAY: &str = ".stray";

/// Descriptors that the tier may have beside those of files that somebody holds: files with holes, the log, and one
/// that is being opened.
const HANDLES_OF_ITS_OWN: usize = OPEN_MAX + 2;

pub type Verdict = Result<(), String>;

/// A complete file that was handed out: the kernel may read it until it is let go.
pub struct Held {
    /// Held open, as the kernel does.
    _whole: Arc<Whole>,
    inode: Arc<Inode>,
    truth: Truth,
    /// How often the file had changed when it was compared last.
    compared: u64,
    /// How many drops had been reported when it was handed out.
    since: usize,
}

/// Whose files were dropped, in the order in which the tier reported them.
pub type Dropped = Arc<Mutex<Vec<ObjectId>>>;

/// The bytes of a file as the kernel sees them: nothing of the tier stands in between.
pub fn raw(inode: &Inode) -> Vec<u8> {
    let pages = inode.pages();
    let mut bytes = Vec::with_capacity(pages.size() as usize);
    pages.peek(&mut bytes, 0, pages.size());
    bytes
}

impl Held {
    /// A file is handed out: it must hold exactly the bytes of its object, unless they changed on the disk under this
    /// boot and nobody can have noticed.
    pub fn new(whole: Arc<Whole>, truth: &Truth, dropped: &Dropped) -> Result<Held, String> {
        let handle: &dyn Any = &**whole.handle();
        let inode = handle.downcast_ref::<Open>().ok_or("a file that is not of this disk")?.inode.clone();
        inode.is_given_out.store(true, Relaxed);
        if inode.pages().is_rot_seen() {
            return Err(format!("{} was handed out although its damage was seen", truth.object));
        }
        let since = dropped.lock().unwrap_or_else(PoisonError::into_inner).len();
        let mut held = Held { _whole: whole, inode, truth: truth.clone(), compared: u64::MAX, since };
        held.compare()?;
        Ok(held)
    }

    /// The kernel may read it at any time.
    pub fn compare(&mut self) -> Verdict {
        let (changes, is_excused) = {
            let pages = self.inode.pages();
            (pages.changes(), pages.is_rotten_unseen() || pages.is_rot_seen())
        };
        if changes == std::mem::replace(&mut self.compared, changes) || is_excused {
            return Ok(());
        }
        let (got, due) = (raw(&self.inode), &self.truth.bytes);
        if got == *due {
            return Ok(());
        }
        let at = got.iter().zip(due.iter()).position(|(got, due)| got != due).unwrap_or(got.len().min(due.len()));
        Err(format!("the kernel would read wrong bytes of {} by passthrough, from byte {at} on", self.truth.object))
    }

    /// Who holds a file that was found damaged hears of it.
    fn knows_of_damage(&self, dropped: &Dropped) -> bool {
        let dropped = dropped.lock().unwrap_or_else(PoisonError::into_inner);
        !self.inode.pages().is_rot_seen() || dropped[self.since..].contains(&self.truth.object.id())
    }
}

/// A block that a reader got.
pub fn block(truth: &Truth, block: &Block, store: &Store) -> Verdict {
    let got = block.pieces().concat();
    let due = truth.block(block.address.index);
    let is_lie = || store.state().lies.contains(&(truth.object.id(), block.address.index)) && got == lie(&due);
    match got == due || is_lie() {
        true => Ok(()),
        false => Err(format!("a reader got wrong bytes in block {} of {}", block.address.index, truth.object)),
    }
}

/// An error that a reader got: only the store may be the reason, never the disk.
pub fn error(truth: &Truth, error: &Error, store: &Store) -> Verdict {
    let lied = store.state().lies.iter().any(|(id, _)| *id == truth.object.id());
    match error.what == STORE_FAILS || error.kind == Kind::Corrupt && lied {
        true => Ok(()),
        false => Err(format!("a reader of {} got an error that the store did not give: {}", truth.object, error.what)),
    }
}

/// What is true after each step.
pub fn always(disk: &Disk, forgetful: &Forgetful, held: &mut [Held], scene: &Scene, dropped: &Dropped) -> Verdict {
    if let Some(crime) = forgetful.state().crime.take() {
        return Err(crime);
    }
    for held in held.iter_mut() {
        held.compare()?;
        if !held.knows_of_damage(dropped) {
            return Err(format!("nobody was notified that {} is damaged", held.truth.object));
        }
    }
    let (counted, due) = {
        let index = disk.index();
        (index.unwritten(), index.owed())
    };
    if counted != due {
        return Err(format!("{due} bytes were promised and not written, and {counted} are counted"));
    }
    let (used, _) = disk.usage();
    if used.bytes > scene.bytes_max || used.files > scene.files_max {
        return Err(format!(
            "{} bytes and {} files are over the limits of {} and {}",
            used.bytes, used.files, scene.bytes_max, scene.files_max
        ));
    }
    Ok(())
}

/// Descriptors are bounded, whatever is open.
pub fn descriptors(open: usize, held: usize, streams: usize) -> Verdict {
    match open <= held + streams + HANDLES_OF_ITS_OWN {
        true => Ok(()),
        false => Err(format!("{open} descriptors are open with {held} files held and {streams} readers")),
    }
}

/// The bytes that the tier calls distinct are no more than that.
pub fn distinct(disk: &Disk, store: &Store) -> Verdict {
    let (counted, due) = (disk.tally().unique.get().1, store.state().fetched_bytes());
    match counted <= due {
        true => Ok(()),
        false => Err(format!("{counted} distinct bytes are counted, and the store gave {due}")),
    }
}

/// The complete file that holds all of an object, as far as the index tells.
pub fn residency(disk: &Disk, truth: &Truth) -> Option<Residency> {
    match disk.index().known(&Segment::whole(&truth.object)) {
        Found::Complete(held) | Found::Unchecked(held) => Some(held.residency()),
        Found::Filling(_) | Found::Absent => None,
    }
}

/// The files of an object, of those that the index knows, that hold anything else.
pub fn wrong_files(truth: &Truth, disk: &Disk, forgetful: &Forgetful) -> Vec<Arc<Inode>> {
    let (files, index) = (forgetful.state().files(OBJECTS), disk.index());
    let is_of_it = |path: &str| {
        let residency = Residency::of_name(name(path));
        residency.is_some_and(|residency| residency.id == truth.object.id() && index.knows(residency))
    };
    let files = files.into_iter().filter(|(path, inode)| is_of_it(path) && raw(inode) != truth.bytes);
    files.map(|(_, inode)| inode).collect()
}

/// An object was verified and found right: no file of it that was wrong before is still there and wrong.
pub fn verified(truth: &Truth, wrong: &[Arc<Inode>], disk: &Disk, forgetful: &Forgetful) -> Verdict {
    let now = wrong_files(truth, disk, forgetful);
    match now.iter().any(|inode| wrong.iter().any(|before| Arc::ptr_eq(before, inode))) {
        true => Err(format!("{} was verified, called right, and is not", truth.object)),
        false => Ok(()),
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// What the index counts is what lies on the disk, in fair weather, after a start behind an end in order. A file that
/// somebody lost may be counted until it is missed.
pub fn accounts(disk: &Disk, forgetful: &Forgetful, has_losses: bool) -> Verdict {
    let files: Vec<_> =
        forgetful.state().files(OBJECTS).into_iter().filter(|(path, _)| !path.ends_with(STRAY)).collect();
    let index = disk.index();
    for (path, _) in &files {
        match Residency::of_name(name(path)) {
            Some(residency) if index.knows(residency) => {}
            _ => return Err(format!("{path} lies on the disk and no record tells of it")),
        }
    }
    let (used, _) = index.usage();
    let written: u64 = files.iter().map(|(_, inode)| inode.pages().written()).sum();
    let long: u64 = files.iter().map(|(_, inode)| inode.pages().size()).sum();
    // The last page of a file is counted as far as it is used. Where the end of the log was lost, and with it the word of
    // blocks in a second stripe, room is counted for the first until another block comes.
    if !has_losses && (written > used.bytes + PAGE * files.len() as u64 || used.bytes > long) {
        return Err(format!("{written} bytes lie on the disk in files of {long}, and {} are counted", used.bytes));
    }
    if used.files < files.len() as u64 || !has_losses && used.files != files.len() as u64 {
        return Err(format!("{} files lie on the disk and {} are counted", files.len(), used.files));
    }
    Ok(())
}
