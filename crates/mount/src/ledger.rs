//! What the kernel relies on for as long as a mount lives, in memory that outlives the process: which nodes are open, by
//! which backing file, and what is being answered at the moment. Whoever serves the mount next goes on from it.
//!
//! One page of words and marks, then a line for each node ([docs/format.md](../../../docs/format.md) draws it). It is
//! written before the answer that the kernel will rely on is sent, and with stores of one word each, so that a process
//! may be killed between any two of them: at worst it then counts one open too many, never one too few.
//!
//! Invariant: a backing file by which a node is open stands in a line of that node.

use crate::abi::UNIQUE_RESENT;
use crate::device::BackingId;
use block::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `STOKEROP` and the version of all that follows.
const MARK: u64 = u64::from_le_bytes(*b"STOKEROP");
const VERSION: u32 = 1;

/// Nodes that are open or kept at a time. Pages that were never written take no memory: sixteen bytes a node do.
pub const LINES_MAX: u32 = 1 << 22;

/// Answers on their way: more than the threads that send some.
const MARKS_MAX: usize = 120;

/// Backing files that may have been registered and not been entered yet when a process was killed: one for each thread that
/// opens files, and those that were registered while such a thread stood still.
const UNENTERED_MAX: u32 = 4096;

const PAGE: usize = 4096;
const BYTES: usize = PAGE + LINES_MAX as usize * size_of::<Words>();

/// The first words.
#[repr(C)]
struct Head {
    mark: AtomicU64,
    version: AtomicU32,
    /// Processes that went on with it.
    restarts: AtomicU32,
    /// The names that the mount began with.
    first: AtomicU32,
    /// Those of which the kernel was told all that went stale.
    told: AtomicU32,
    /// The highest backing file that was ever registered.
    highest: AtomicU32,
    /// There was no line for a node, so nobody can go on with it.
    is_full: AtomicU32,
    /// Lines that were ever in use.
    lines: AtomicU32,
    /// The latest names that the kernel may know nodes of.
    newest: AtomicU32,
    marks: [Mark; MARKS_MAX],
}

const _: () = assert!(size_of::<Head>() <= PAGE && size_of::<Words>() == 16 && size_of::<Mark>() == 24);

/// An answer on its way.
#[repr(C)]
struct Mark {
    /// Of the request; 0 is none, [`TAKEN`] one that is about to be one.
    unique: AtomicU64,
    node: AtomicU64,
    closes: AtomicU64,
}

const TAKEN: u64 = u64::MAX;

/// One node.
#[repr(C)]
struct Words {
    /// 0 once it is neither open nor kept; then its backing file is about to be closed.
    node: AtomicU64,
    /// 0: the line is free.
    way: AtomicU32,
    opens: AtomicU32,
}

/// The way of nodes that the daemon serves; no backing file has this number.
const SERVED: u32 = u32::MAX;

/// The line of a node. None was free: [`Line::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(u32);

impl Line {
    const NONE: Line = Line(u32::MAX);
}

/// A node that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub line: Line,
    pub node: u64,
    /// `None`: the daemon serves it.
    pub backing: Option<BackingId>,
    pub opens: u32,
}

/// A backing file that nobody needs any more: to be closed, then its line erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Retired {
    pub id: BackingId,
    pub line: Option<Line>,
}

/// What is known of one mount.
pub struct Ledger {
    file: OwnedFd,
    start: NonNull<u8>,
    free: Mutex<Vec<u32>>,
}

// SAFETY: all that is reached through the pointer are atomics, and they lie there until it is dropped.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Ledger {
    /// Of a mount that begins with these names.
    pub fn new(first: u32) -> Result<Ledger> {
        let made = || -> rustix::io::Result<OwnedFd> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("stoker-opens", flags)?;
            rustix::fs::ftruncate(&file, BYTES as u64)?;
            // Nobody can take a page away that somebody looks at.
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file)
        };
        let file = made().map_err(|errno| Error::io("making room for what is open", "memory", &errno.into()))?;
        let ledger = Ledger::map(file)?;
        let head = ledger.head();
        head.version.store(VERSION, Relaxed);
        head.first.store(first, Relaxed);
        head.told.store(first, Relaxed);
        head.newest.store(first, Relaxed);
        head.mark.store(MARK, Release);
        Ok(ledger)
    }

    /// That of a process that is gone. [`Ledger::take_over`] makes it fit to go on with.
    pub fn of(file: OwnedFd) -> Result<Ledger> {
        let odd = |what: &str| Error::corrupt(what, "what was open").hint("unmount, and mount again");
        let sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let bytes = rustix::fs::fstat(&file).map_or(0, |found| found.st_size);
        if !sealed || bytes != BYTES as i64 {
            return Err(odd("it is not what a daemon left"));
        }
        let ledger = Ledger::map(file)?;
        let head = ledger.head();
        if head.mark.load(Acquire) != MARK || head.version.load(Relaxed) != VERSION {
            return Err(odd("it was left by a version of Stoker that this one does not go on with"));
        }
        if head.is_full.load(Relaxed) != 0 || head.lines.load(Relaxed) > LINES_MAX {
            return Err(odd("more files were open than can be known"));
        }
        Ok(ledger)
    }

    fn map(file: OwnedFd) -> Result<Ledger> {
        let (how, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses a free range, which nobody else uses until it is unmapped in `drop`.
        let mapped = unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, how, flags, &file, 0) };
        let failed = |errno: rustix::io::Errno| Error::io("mapping what is open", "memory", &errno.into());
        let start = NonNull::new(mapped.map_err(failed)?.cast()).expect("a mapping is not at zero");
        Ok(Ledger { file, start, free: Mutex::default() })
    }

    /// Whoever holds it can go on with the mount.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Processes that went on with it so far.
    pub fn restarts(&self) -> u32 {
        self.head().restarts.load(Relaxed)
    }

    /// The names that the mount began with.
    pub fn first(&self) -> u32 {
        self.head().first.load(Relaxed)
    }

    /// The names of which the kernel was told all that went stale.
    pub fn told(&self) -> u32 {
        self.head().told.load(Acquire)
    }

    pub fn tell(&self, generation: u32) {
        self.head().told.store(generation, Release);
    }

    /// The latest names that the kernel may know nodes of.
    pub fn newest(&self) -> u32 {
        self.head().newest.load(Acquire)
    }

    /// The kernel may know nodes of these names from now on.
    pub fn expect(&self, generation: u32) {
        self.head().newest.fetch_max(generation, Release);
    }

    /// A backing file was registered.
    pub fn registered(&self, id: BackingId) {
        self.head().highest.fetch_max(id.0, Relaxed);
    }

    /// A node is open once, from now on; without a backing file the daemon serves it.
    pub fn enter(&self, node: u64, backing: Option<BackingId>) -> Line {
        let given_back = self.free().pop();
        let number = given_back.unwrap_or_else(|| {
            let unused = |lines| (lines < LINES_MAX).then_some(lines + 1);
            self.head().lines.fetch_update(AcqRel, Acquire, unused).unwrap_or(u32::MAX)
        });
        let Some(words) = self.words(Line(number)) else {
            self.head().is_full.store(1, Relaxed);
            return Line::NONE;
        };
        // The node last: without one the line says nothing but that its backing file may be closed.
        words.opens.store(1, Relaxed);
        words.way.store(backing.map_or(SERVED, |id| id.0), Relaxed);
        words.node.store(node, Release);
        Line(number)
    }

    /// How often it is open by now.
    pub fn set(&self, line: Line, opens: u32) {
        if let Some(words) = self.words(line) {
            words.opens.store(opens, Release);
        }
    }

    /// Nobody needs the node any more; its backing file is closed next, and then the line erased.
    pub fn retire(&self, line: Line) {
        if let Some(words) = self.words(line) {
            words.node.store(0, Release);
        }
    }

    /// The line is free for another node.
    pub fn erase(&self, line: Line) {
        if let Some(words) = self.words(line) {
            words.node.store(0, Release);
            words.way.store(0, Release);
            self.free().push(line.0);
        }
    }

    /// An answer is about to be sent by which a node is open once more, as is counted already.
    pub fn opening(&self, unique: u64, node: u64) -> Sending<'_> {
        self.mark(unique, node, false)
    }

    /// An answer is about to be sent by which a node is open once less, as is not counted yet.
    pub fn closing(&self, unique: u64, node: u64) -> Sending<'_> {
        self.mark(unique, node, true)
    }

    fn mark(&self, unique: u64, node: u64, closes: bool) -> Sending<'_> {
        // The kernel's numbers are two apart, so those of a moment begin at different marks.
        let (unique, marks) = (unique & !UNIQUE_RESENT, &self.head().marks);
        let first = (unique / 2) as usize % MARKS_MAX;
        let free = marks[first..].iter().chain(&marks[..first]).find(|mark| {
            mark.unique.load(Relaxed) == 0 && mark.unique.compare_exchange(0, TAKEN, AcqRel, Relaxed).is_ok()
        });
        if let Some(mark) = free {
            mark.node.store(node, Relaxed);
            mark.closes.store(closes.into(), Relaxed);
            mark.unique.store(unique, Release);
        }
        Sending(free)
    }

    /// Go on with what another process left, which may have been killed at any moment. `is_asked_again`: whether the kernel
    /// asks a request again, because it was not answered. The backing files that are to be closed come back; those of
    /// which nobody knows whether they are registered among them.
    pub fn take_over(&self, is_asked_again: impl Fn(u64) -> bool) -> Vec<Retired> {
        let head = self.head();
        let (mut less, mut closed) = (Vec::new(), Vec::new());
        for mark in &head.marks {
            let (unique, closes) = (mark.unique.load(Acquire), mark.closes.load(Relaxed) != 0);
            // An open that is asked again will be counted again; a close that was answered is to be counted now.
            if unique != 0 && unique != TAKEN && is_asked_again(unique) != closes {
                less.push(mark.node.load(Relaxed));
            }
            mark.unique.store(0, Release);
        }
        let (mut in_use, mut free) = (HashSet::new(), self.free());
        for number in (0..head.lines.load(Acquire)).rev() {
            let Some(words) = self.words(Line(number)) else { continue };
            let (node, way) = (words.node.load(Acquire), words.way.load(Relaxed));
            let mut opens = words.opens.load(Relaxed);
            if node != 0 && !less.is_empty() {
                opens = opens.saturating_sub(less.iter().filter(|closed| **closed == node).count() as u32);
                words.opens.store(opens, Relaxed);
            }
            if node != 0 && way != 0 && opens > 0 {
                in_use.insert(way);
                continue;
            }
            words.node.store(0, Release);
            if way == 0 || way == SERVED {
                words.way.store(0, Release);
                free.push(number);
            } else {
                // Kept, and not open: it is registered again at its next open. The line says so until it is closed.
                closed.push(Retired { id: BackingId(way), line: Some(Line(number)) });
            }
        }
        let highest = head.highest.load(Relaxed);
        let doubtful = highest.saturating_sub(UNENTERED_MAX).max(1)..=highest.saturating_add(MARKS_MAX as u32);
        in_use.extend(closed.iter().map(|retired| retired.id.0));
        closed.extend(doubtful.filter(|id| !in_use.contains(id)).map(|id| Retired { id: BackingId(id), line: None }));
        head.restarts.fetch_add(1, Relaxed);
        closed
    }

    /// All nodes that are open.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.head().lines.load(Acquire)).filter_map(|number| {
            let words = self.words(Line(number))?;
            let (node, way) = (words.node.load(Acquire), words.way.load(Relaxed));
            let backing = (way != SERVED).then_some(BackingId(way));
            let entry = Entry { line: Line(number), node, backing, opens: words.opens.load(Relaxed) };
            (node != 0 && way != 0).then_some(entry)
        })
    }

    fn head(&self) -> &Head {
        // SAFETY: a head lies there, aligned and all of it atomics, until `drop`.
        unsafe { self.start.cast::<Head>().as_ref() }
    }

    fn words(&self, Line(number): Line) -> Option<&Words> {
        let at = PAGE + usize::try_from(number).ok()? * size_of::<Words>();
        // SAFETY: the line lies within what is mapped, aligned and all of it atomics, until `drop`.
        (number < LINES_MAX).then(|| unsafe { self.start.add(at).cast::<Words>().as_ref() })
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `map`, and no reference into it outlives the ledger.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), BYTES) };
        if let Err(errno) = unmapped {
            tracing::debug!("unmapping what is open: {errno}");
        }
    }
}

/// An answer on its way, until this is dropped.
pub struct Sending<'a>(Option<&'a Mark>);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.0 {
            mark.unique.store(0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Made by version 1.
    const OF_VERSION_1: [u8; PAGE + 4 * size_of::<Words>()] = *include_bytes!("ledger/1.bin");

    /// A node, its backing file and how often it is open.
    type Open = (u64, Option<u32>, u32);

    /// What the next process finds, and what it closes of the ids below 100.
    fn next(ledger: &Ledger, again: &[u64]) -> (Vec<Open>, Vec<u32>) {
        let file = ledger.file().try_clone_to_owned().expect("a descriptor");
        let next = Ledger::of(file).expect("it is sound");
        let retired = next.take_over(|unique| again.contains(&unique));
        retired.iter().filter_map(|retired| retired.line).for_each(|line| next.erase(line));
        let mut closed: Vec<u32> = retired.iter().map(|retired| retired.id.0).collect();
        closed.sort_unstable();
        closed.dedup();
        let mut open: Vec<_> =
            next.entries().map(|entry| (entry.node, entry.backing.map(|id| id.0), entry.opens)).collect();
        open.sort_unstable();
        (open, closed.into_iter().filter(|id| *id < 100).collect())
    }

    #[test]
    fn what_is_open_is_known_to_the_next_process_and_what_is_kept_is_closed() {
        let ledger = Ledger::new(1).expect("memory");
        let through = ledger.enter(7, Some(BackingId(3)));
        ledger.set(through, 2);
        ledger.enter(8, None);
        let kept = ledger.enter(9, Some(BackingId(4)));
        ledger.set(kept, 0);
        let retired = ledger.enter(10, Some(BackingId(5)));
        ledger.retire(retired);
        ledger.registered(BackingId(6));
        let (open, closed) = next(&ledger, &[]);
        assert_eq!(open, [(7, Some(3), 2), (8, None, 1)]);
        assert_eq!(closed, [1, 2, 4, 5].into_iter().chain(6..100).collect::<Vec<u32>>(), "all but the one in use");
        assert_eq!((ledger.restarts(), ledger.first(), ledger.told()), (1, 1, 1));
    }

    #[test]
    fn an_answer_that_was_cut_off_counts_once_whether_it_was_sent_or_not() {
        for (closes, is_sent, opens) in [(false, true, 2), (false, false, 1), (true, true, 1), (true, false, 2)] {
            let ledger = Ledger::new(1).expect("memory");
            let line = ledger.enter(7, Some(BackingId(3)));
            ledger.set(line, 2);
            let sending = if closes { ledger.closing(40, 7) } else { ledger.opening(40 | UNIQUE_RESENT, 7) };
            std::mem::forget(sending);
            let again: &[u64] = if is_sent { &[] } else { &[40] };
            assert_eq!(next(&ledger, again).0, [(7, Some(3), opens)], "closes {closes}, sent {is_sent}");
        }
    }

    #[test]
    fn lines_are_used_again_and_a_file_of_others_is_refused() {
        let ledger = Ledger::new(1).expect("memory");
        let first = ledger.enter(7, None);
        ledger.erase(first);
        assert_eq!(ledger.enter(8, None), first);
        assert!(Ledger::of(tempfile::tempfile().expect("a file").into()).is_err());
        ledger.head().version.store(VERSION + 1, Relaxed);
        let file = ledger.file().try_clone_to_owned().expect("a descriptor");
        assert!(Ledger::of(file).is_err_and(|error| error.what.contains("version")));
    }

    #[test]
    fn what_version_1_left_is_gone_on_with_and_written_the_same() {
        let ledger = Ledger::new(2).expect("memory");
        ledger.tell(3);
        ledger.expect(4);
        ledger.registered(BackingId(6));
        ledger.head().restarts.store(5, Relaxed);
        for (node, backing, opens) in [(7, Some(BackingId(3)), 2), (8, None, 1), (9, Some(BackingId(4)), 0)] {
            let line = ledger.enter(node, backing);
            ledger.set(line, opens);
        }
        let retired = ledger.enter(10, Some(BackingId(5)));
        ledger.retire(retired);
        std::mem::forget((ledger.closing(40, 7), ledger.opening(42, 8)));
        let file = File::from(ledger.file().try_clone_to_owned().expect("a descriptor"));
        let mut written = [0; OF_VERSION_1.len()];
        file.read_exact_at(&mut written, 0).expect("it is read");
        assert!(
            written == OF_VERSION_1,
            "another layout takes another VERSION, and a file of its own (docs/format.md)"
        );

        let file = rustix::fs::memfd_create("ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        let file = File::from(file);
        file.write_all_at(&OF_VERSION_1, 0).and_then(|()| file.set_len(BYTES as u64)).expect("memory takes it");
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("memory");
        let left = Ledger::of(file.into()).expect("it is sound");
        assert_eq!((left.restarts(), left.first(), left.told(), left.newest()), (5, 2, 3, 4));
        // The close of node 7 was answered, and the open of node 8 was not.
        assert_eq!(next(&left, &[42]).0, [(7, Some(3), 1)]);
    }
}
