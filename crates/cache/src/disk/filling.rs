//! A file with holes: what of a segment is there, and how far that may be believed.
//!
//! Bytes that an earlier boot wrote may be lost although the log tells of them, so a block is *claimed* until it was read
//! and compared, and only what is *here* makes a file complete.
//!
//! Invariant: nothing is here that this boot did not write, or read and compare; a block is written by one at a time,
//! and never again once it is here, so a file that is complete is never written.

use super::file;
use super::medium::{Handle, How, Medium};
use super::record::Record;
use super::segment::{Residency, STRIPE_BLOCKS, Segment};
use block::{Address, Block, Checksum, Error, Proof, Result, SUM};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Files with holes that are held open. More would take descriptors that readers need; opening one again is cheap.
/// Simulations have few files.
pub const OPEN_MAX: usize = if cfg!(any(test, feature = "simulate")) { 2 } else { 256 };

/// Anonymous memory of one without its blocks.
const FIXED_BYTES: u64 = 900;

/// A file with holes.
pub struct Filling {
    pub segment: Segment,
    pub residency: Residency,
    path: PathBuf,
    medium: Arc<dyn Medium>,
    open: Arc<Slot>,
    pool: Arc<Pool>,
    there: Mutex<There>,
    /// Notified when the segment became complete, or was given up.
    pub settled: tokio::sync::Notify,
    /// Its file is no longer the segment's: what is in it may be wrong.
    is_dropped: AtomicBool,
    /// Held by whoever checks the whole.
    pub finishing: tokio::sync::Mutex<()>,
}

type Slot = Mutex<Option<Arc<dyn Handle>>>;

/// What the files with holes of a cache share.
#[derive(Default)]
pub struct Pool {
    /// Those that are open, the one opened longest ago first.
    open: Mutex<VecDeque<Weak<Slot>>>,
    /// Whether another node may have the folder: then nothing is here, and no file is touched.
    pub is_lost: AtomicBool,
}

struct There {
    blocks: Vec<State>,
    sums: Vec<u64>,
    /// Blocks that are not here, and bytes of those that were written, or that the log tells of.
    missing: u32,
    written: u64,
    /// The first stripe that was asked for: room is taken for it alone until another one is.
    stripe: Option<u32>,
    is_grown: bool,
    is_sealed: bool,
    /// A block that was right under this boot is not any more: what the log says of the others is in doubt.
    is_rotten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// The log tells of it, from before this boot.
    Claimed,
    /// Somebody is writing it.
    Writing,
    Here,
}

impl Filling {
    /// A new file without any block.
    pub fn create(filling: Filling) -> Result<Filling> {
        let doing = |error: std::io::Error| Error::io("cannot create a cache file", filling.path.display(), &error);
        let file = file::create(&*filling.medium, &filling.path, 0o600).map_err(doing)?;
        file.set_len(filling.segment.bytes()).map_err(doing)?;
        filling.hold(&mut filling.open(), file);
        Ok(filling)
    }

    /// A file of which nothing is known yet. It is opened when it is needed.
    pub fn new(medium: Arc<dyn Medium>, pool: Arc<Pool>, path: PathBuf, segment: Segment, number: u32) -> Filling {
        let blocks = segment.blocks.end - segment.blocks.start;
        let there = There {
            blocks: vec![State::Absent; blocks as usize],
            sums: vec![0; segment.bytes().div_ceil(SUM) as usize],
            missing: blocks,
            written: 0,
            stripe: None,
            is_grown: blocks <= STRIPE_BLOCKS,
            is_sealed: false,
            is_rotten: false,
        };
        let residency = Residency { id: segment.id(), number };
        let (open, settled, is_dropped, finishing) = Default::default();
        Filling { segment, residency, path, medium, open, pool, there: there.into(), settled, is_dropped, finishing }
    }

    /// Keep a block, unless it is here or being written: bytes first, then the word that it is here. True if it was kept.
    pub fn keep(&self, block: &Block, sums: &[u64]) -> Result<bool> {
        let index = block.address.index;
        if !self.begin(index) {
            return Ok(false);
        }
        let written = self.handle().and_then(|file| {
            file::write(&*file, block.pieces(), self.offset(&block.address))
                .map_err(|error| file::failed("cannot write a cache file", &self.path, &error))
        });
        let is_here = self.end(index, written.is_ok().then_some(sums));
        written.map(|()| is_here)
    }

    /// Believe the log: a block lies in the file with these checksums.
    pub fn note(&self, index: u32, sums: &[u64]) {
        let mut there = self.there();
        let Some(at) = self.at(index).filter(|at| there.blocks[*at] != State::Here) else { return };
        if there.put_sums(self.sums_of(index), sums) {
            self.put(&mut there, at, State::Here);
            there.is_grown |= !there.touch(index);
        }
    }

    /// Another boot began since: what the log says of the file is to be compared first.
    pub fn distrust(&self) {
        let mut there = self.there();
        for state in there.blocks.iter_mut().filter(|state| **state == State::Here) {
            *state = State::Claimed;
        }
        there.missing = there.blocks.len() as u32;
    }

    /// Anonymous memory that it takes: measured for names of some sixty bytes, with a byte and its checksums for a block.
    pub fn memory_bytes(&self) -> u64 {
        let blocks = u64::from(self.segment.blocks.end - self.segment.blocks.start);
        FIXED_BYTES + blocks + 8 * self.segment.bytes().div_ceil(SUM)
    }

    /// The file and the checksums of some blocks that are all here, if it is open.
    pub fn open_with(&self, blocks: &std::ops::Range<u32>) -> Option<(Arc<dyn Handle>, Vec<u64>)> {
        let (first, last) = (self.at(blocks.start)?, self.at(blocks.end.checked_sub(1)?)?);
        let there = self.there();
        let is_here = there.blocks.get(first..=last)?.iter().all(|state| *state == State::Here);
        if !is_here || self.is_dropped.load(Relaxed) || self.pool.is_lost.load(Relaxed) {
            return None;
        }
        let sums = there.sums[self.sums_of(blocks.start).start..self.sums_of(blocks.end - 1).end].to_vec();
        drop(there);
        // Whoever has it at this moment may be opening it.
        let open = self.open.try_lock().ok()?;
        Some((open.clone()?, sums))
    }

    /// The checksums of some blocks, if all of them are here, or the log tells of them.
    pub fn sums(&self, blocks: &std::ops::Range<u32>) -> Option<Vec<u64>> {
        let (first, last) = (self.at(blocks.start)?, self.at(blocks.end.checked_sub(1)?)?);
        let there = self.there();
        let is_written = there.blocks.get(first..=last)?.iter().all(|state| state.is_written());
        is_written.then(|| there.sums[self.sums_of(blocks.start).start..self.sums_of(blocks.end - 1).end].to_vec())
    }

    /// Whether some blocks are all here.
    pub fn is_sure_of(&self, blocks: &std::ops::Range<u32>) -> bool {
        let there = self.there();
        let is_here = |index| self.at(index).is_some_and(|at| there.blocks[at] == State::Here);
        !self.is_dropped.load(Relaxed) && blocks.clone().all(is_here)
    }

    /// Whether a block is worth looking for in the file.
    pub fn has(&self, index: u32) -> bool {
        let at = self.at(index).filter(|_| !self.is_dropped.load(Relaxed));
        at.is_some_and(|at| self.there().blocks[at].is_written())
    }

    /// It lost its place, or was found wrong. Nobody reads on from it, and nobody waits for it.
    pub fn drop_out(&self) {
        self.is_dropped.store(true, Relaxed);
        self.settled.notify_waiters();
    }

    /// Blocks that the log tells of and nobody has compared under this boot.
    pub fn unproven(&self) -> Vec<u32> {
        let there = self.there();
        let all = self.segment.blocks.clone().zip(&there.blocks);
        all.filter(|(_, state)| **state == State::Claimed).map(|(index, _)| index).collect()
    }

    /// Whether every block is here, or the log tells of it.
    pub fn is_full(&self) -> bool {
        self.there().blocks.iter().all(|state| state.is_written())
    }

    /// Read a block that is there and compare it. Damaged, it counts as missing from now on.
    pub fn read(&self, index: u32) -> Result<Block> {
        let address = Address { object: self.segment.object.clone(), index };
        let wanted = self.there().sums[self.sums_of(index)].to_vec();
        let read = self
            .handle()
            .and_then(|file| file::read_verified(&*file, &self.path, self.offset(&address), address.len(), &wanted));
        let bytes = read.inspect_err(|error| {
            if file::is_damage(error) {
                self.lose(index);
            }
        })?;
        self.prove(index, &wanted);
        Block::verified(address, vec![bytes], Proof::Local).map(Block::kept)
    }

    /// Checksums of the whole file, if all of it is here; from then on it is never written again.
    pub fn seal(&self) -> Option<Vec<u64>> {
        let mut there = self.there();
        there.is_sealed = there.missing == 0;
        there.is_sealed.then(|| there.sums.clone())
    }

    /// Whether the disk lost what it had under this boot.
    pub fn is_rotten(&self) -> bool {
        self.there().is_rotten
    }

    /// The word that it is complete could not be written: it goes on to be filled.
    pub fn unseal(&self) {
        self.there().is_sealed = false;
    }

    /// Bytes that room is to be taken for: one stripe until a second one is wanted.
    pub fn reserves(&self) -> u64 {
        let there = self.there();
        match (there.is_grown, there.stripe) {
            (false, Some(block)) => Segment::stripe(&self.segment.object, block).bytes(),
            (false, None) => Segment::stripe(&self.segment.object, self.segment.blocks.start).bytes(),
            (true, _) => self.segment.bytes(),
        }
    }

    /// Whether room was taken for these blocks.
    pub fn has_room_for(&self, blocks: &std::ops::Range<u32>) -> bool {
        let mut there = self.there();
        there.is_grown || there.touch(blocks.start) && there.touch(blocks.end - 1)
    }

    /// Room was taken for all of it.
    pub fn grown(&self) {
        self.there().is_grown = true;
    }

    /// Bytes that were written, or that the log tells of.
    pub fn written(&self) -> u64 {
        self.there().written
    }

    /// What a log must say so that this file is found again as it is: first what belongs before the word of this
    /// boot, then what belongs behind it.
    pub fn story(&self) -> (Vec<Record>, Vec<Record>) {
        let there = self.there();
        let record = |index| {
            let sums = there.sums[self.sums_of(index)].to_vec();
            Record::Block { residency: self.residency, index, sums }
        };
        let in_state = |wanted| {
            let all = self.segment.blocks.clone().zip(&there.blocks);
            all.filter(move |(_, state)| **state == wanted).map(|(index, _)| record(index))
        };
        let started = Record::Started { segment: self.segment.clone(), number: self.residency.number };
        (std::iter::once(started).chain(in_state(State::Claimed)).collect(), in_state(State::Here).collect())
    }

    /// Whether the file's bytes are the ones that the store described. Reads the file again only for
    /// checksums that do not combine.
    pub fn agrees(&self, described: Checksum) -> Result<bool> {
        if let Checksum::Crc64Nvme(described) = described {
            return Ok(file::whole_sum(&self.there().sums, self.segment.bytes()) == described);
        }
        let mut digest = described.digest();
        for index in self.segment.blocks.clone() {
            self.read(index)?.pieces().iter().for_each(|piece| digest.update(piece));
        }
        Ok(digest.matches(described))
    }

    fn begin(&self, index: u32) -> bool {
        let mut there = self.there();
        // Where another node may have the folder, or another file its place, its name may lead to what is somebody else's.
        let is_ours = !self.is_dropped.load(Relaxed) && !self.pool.is_lost.load(Relaxed);
        let Some(at) = self.at(index).filter(|_| is_ours && !there.is_sealed) else { return false };
        let is_free = matches!(there.blocks[at], State::Absent | State::Claimed);
        if is_free {
            self.put(&mut there, at, State::Writing);
        }
        is_free
    }

    fn end(&self, index: u32, sums: Option<&[u64]>) -> bool {
        let mut there = self.there();
        let Some(at) = self.at(index) else { return false };
        let is_right = there.blocks[at] == State::Writing;
        let is_here = is_right && sums.is_some_and(|sums| there.put_sums(self.sums_of(index), sums));
        self.put(&mut there, at, if is_here { State::Here } else { State::Absent });
        is_here
    }

    /// A block was read and agrees with these checksums.
    fn prove(&self, index: u32, sums: &[u64]) {
        let mut there = self.there();
        let Some(at) = self.at(index).filter(|at| there.blocks[*at] == State::Claimed) else { return };
        if there.sums[self.sums_of(index)] == *sums {
            self.put(&mut there, at, State::Here);
        }
    }

    fn lose(&self, index: u32) {
        let mut there = self.there();
        let Some(at) = self.at(index).filter(|at| there.blocks[*at].is_written()) else {
            return;
        };
        there.is_rotten |= there.blocks[at] == State::Here;
        // A file that is complete is never written: it goes as a whole.
        if !there.is_sealed {
            self.put(&mut there, at, State::Absent);
        }
    }

    /// Change the state of a block, and what is counted of it.
    fn put(&self, there: &mut There, at: usize, state: State) {
        let before = std::mem::replace(&mut there.blocks[at], state);
        let object = &self.segment.object;
        let bytes = Address { object: object.clone(), index: self.segment.blocks.start + at as u32 }.len() as u64;
        there.missing = there.missing + u32::from(before == State::Here) - u32::from(state == State::Here);
        there.written += if state.is_written() { bytes } else { 0 };
        there.written -= if before.is_written() { bytes } else { 0 };
    }

    fn handle(&self) -> Result<Arc<dyn Handle>> {
        let mut open = self.open();
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = file::open(&*self.medium, &self.path, How::Write, self.segment.bytes())?;
        self.hold(&mut open, file.clone());
        Ok(file)
    }

    /// Keep the file open for the next block, closing the one that was opened longest ago.
    fn hold(&self, open: &mut Option<Arc<dyn Handle>>, file: Arc<dyn Handle>) {
        *open = Some(file);
        let mut pool = self.pool.open.lock().unwrap_or_else(PoisonError::into_inner);
        pool.push_back(Arc::downgrade(&self.open));
        let oldest = if pool.len() > OPEN_MAX { pool.pop_front() } else { None };
        drop(pool);
        // One that is being opened at this moment is not waited for.
        if let Some(oldest) =
            oldest.and_then(|oldest| oldest.upgrade()).filter(|oldest| !Arc::ptr_eq(oldest, &self.open))
        {
            match oldest.try_lock() {
                Ok(mut oldest) => *oldest = None,
                Err(_) => {
                    let mut pool = self.pool.open.lock().unwrap_or_else(PoisonError::into_inner);
                    pool.push_back(Arc::downgrade(&oldest));
                }
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<dyn Handle>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a block lies in the file.
    fn offset(&self, address: &Address) -> u64 {
        address.range().start - self.segment.start()
    }

    /// The place of a block among those of the segment.
    fn at(&self, index: u32) -> Option<usize> {
        self.segment.blocks.contains(&index).then(|| (index - self.segment.blocks.start) as usize)
    }

    /// The places of a block's checksums.
    fn sums_of(&self, index: u32) -> std::ops::Range<usize> {
        let per_block = (self.segment.object.block_bytes() / SUM) as usize;
        let from = (index - self.segment.blocks.start) as usize * per_block;
        from..(from + per_block).min(self.segment.bytes().div_ceil(SUM) as usize)
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_written(self) -> bool {
        matches!(self, State::Here | State::Claimed)
    }
}

impl There {
    fn put_sums(&mut self, at: std::ops::Range<usize>, sums: &[u64]) -> bool {
        let fits = sums.len() == at.len();
        if fits {
            self.sums[at].copy_from_slice(sums);
        }
        fits
    }

    /// A block is wanted: whether it lies in the only stripe that was wanted so far.
    fn touch(&mut self, block: u32) -> bool {
        let first = *self.stripe.get_or_insert(block);
        first / STRIPE_BLOCKS == block / STRIPE_BLOCKS
    }
}
