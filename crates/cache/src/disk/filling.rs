//! A run of blocks on its way through the disk tier: from the file what is there, from below what is not.
//!
//! Invariant: blocks come up in order, each verified; one that came from below is handed on before it is kept,
//! and is kept even if nobody asks for the next one.

use super::Disk;
use super::file::{self, Filling, Whole};
use super::index::Found;
use block::{Block, Blocks, Cause, Error, Object, Result, Run};
use futures_util::StreamExt;
use std::sync::{Arc, PoisonError};

/// Blocks that could not be kept and are remembered as seen: eight bytes each. Beyond it they count as seen.
const SEEN_MAX: usize = 1 << 20;

/// The blocks of a run.
pub fn serve(disk: Disk, run: Run) -> Blocks {
    let from = disk.place(&run.object);
    match from {
        Place::Whole(whole) => from_file(disk, whole, run),
        Place::Nowhere => disk.ask_below(run, false),
        Place::Small => small(disk, run),
        Place::Filling(filling) => {
            let flow =
                Flow { disk, filling, next: run.blocks.start, run, below: None, unkept: None, fetched: 0, over: false };
            futures_util::stream::unfold(flow, Flow::step).boxed()
        }
    }
}

/// Where the blocks of an object go.
enum Place {
    Whole(Arc<Whole>),
    Filling(Arc<Filling>),
    /// Admitted, and written in one go once it is there.
    Small,
    /// Not admitted.
    Nowhere,
}

impl Disk {
    fn place(&self, object: &Arc<Object>) -> Place {
        let mut index = self.index();
        match index.known(object) {
            // The bytes of a file of an earlier boot are verified on each read here, so it serves as it is.
            Found::Complete(held) | Found::Unchecked(held) => {
                drop(index);
                return match self.open(held) {
                    Some(whole) => Place::Whole(whole),
                    None => self.place(object),
                };
            }
            Found::Filling(filling) => return Place::Filling(filling),
            Found::Absent => {}
        }
        if !(self.0.keeps)(object) || index.knows(object.id()) || !index.admit(object) {
            return Place::Nowhere;
        }
        if object.blocks() == 1 {
            return Place::Small;
        }
        match index.start(object) {
            Ok(filling) => Place::Filling(filling),
            Err(error) => {
                drop(index);
                self.give_up(object, &error);
                Place::Nowhere
            }
        }
    }

    /// Blocks that came from below, counted. Those that will be kept come once per residency; of the others it
    /// is remembered whether they were seen before.
    fn ask_below(&self, run: Run, kept: bool) -> Blocks {
        let disk = self.clone();
        let counted = self.0.below.fetch(run).inspect(move |got| {
            if let Ok(block) = got {
                let (tally, bytes) = (&disk.0.tally, block.len() as u64);
                tally.below.add(1, bytes);
                if kept || disk.seen_first(&block.address) {
                    tally.unique.add(1, bytes);
                }
                if !kept {
                    tally.unkept.add(1, bytes);
                }
            }
        });
        counted.boxed()
    }

    fn seen_first(&self, address: &block::Address) -> bool {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.len() < SEEN_MAX && seen.insert(address.object.id().0 as u64 ^ u64::from(address.index).rotate_left(32))
    }
}

/// From a complete file. Damaged, it is dropped and the rest comes from below.
fn from_file(disk: Disk, whole: Arc<Whole>, run: Run) -> Blocks {
    let blocks = futures_util::stream::iter(run.addresses()).then(move |address| {
        let (whole, disk, run) = (whole.clone(), disk.clone(), run.clone());
        async move {
            let range = address.range();
            let again = run.part(address.index..address.index + 1);
            run.course.enter(Cause::Disk);
            let runtime = disk.0.runtime.clone();
            let read = runtime.spawn_blocking(move || whole.read(range.start, (range.end - range.start) as u32)).await;
            match read.map_err(|error| Error::corrupt(format!("a read was given up: {error}"), "")).flatten() {
                Ok(bytes) => {
                    disk.0.tally.here.add(1, bytes.len() as u64);
                    Block::verified(address, vec![bytes]).map(Block::kept)
                }
                Err(error) => {
                    tracing::warn!("dropped a cache file and will fetch the object again: {error}");
                    disk.index().drop_object(address.object.id(), &address.object);
                    disk.ask_below(again, true).next().await.unwrap_or_else(|| Err(too_few(&address.object)))
                }
            }
        }
    });
    blocks.boxed()
}

/// The only block of a small object: kept first, then handed on, since its reader wants the file.
fn small(disk: Disk, run: Run) -> Blocks {
    let (object, course) = (run.object.clone(), run.course.clone());
    let place = Reserved { disk: disk.clone(), object, kept: false };
    let blocks = disk.ask_below(run, true).scan(place, move |place, got| {
        let kept = got.map(|block| {
            place.kept = true;
            course.enter(Cause::Cpu);
            let sums = file::sums(block.pieces());
            course.enter(Cause::Disk);
            place.disk.keep_small(block, sums)
        });
        std::future::ready(Some(kept))
    });
    blocks.boxed()
}

/// Room for a small object that has not come yet; given back if it never does.
struct Reserved {
    disk: Disk,
    object: Arc<Object>,
    kept: bool,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.kept {
            self.disk.index().drop_object(self.object.id(), &self.object);
        }
    }
}

/// A run through a file with holes.
struct Flow {
    disk: Disk,
    filling: Arc<Filling>,
    run: Run,
    next: u32,
    /// What comes from below, and the block at which that ends.
    below: Option<(Blocks, u32)>,
    /// Handed on, not yet kept.
    unkept: Option<Block>,
    fetched: u32,
    over: bool,
}

impl Flow {
    async fn step(mut self) -> Option<(Result<Block>, Flow)> {
        self.keep();
        if self.over {
            return None;
        }
        if self.next == self.run.blocks.end {
            return self.end().await;
        }
        let got = self.block().await;
        self.next += 1;
        self.over = got.is_err();
        Some((got, self))
    }

    /// The next block, from the file if it is there.
    async fn block(&mut self) -> Result<Block> {
        if self.below.is_none() && self.filling.has(self.next) {
            self.run.course.enter(Cause::Disk);
            let (filling, index) = (self.filling.clone(), self.next);
            let read = self.disk.0.runtime.spawn_blocking(move || filling.read(index)).await;
            match read.map_err(|error| Error::corrupt(format!("a read was given up: {error}"), "")).flatten() {
                Ok(block) => {
                    self.disk.0.tally.here.add(1, block.len() as u64);
                    return Ok(block);
                }
                Err(error) => tracing::warn!("fetching a block again: {error}"),
            }
        }
        if self.below.is_none() {
            let end = (self.next + 1..self.run.blocks.end).find(|index| self.filling.has(*index));
            let end = end.unwrap_or(self.run.blocks.end);
            let missing = self.run.part(self.next..end);
            self.below = Some((self.disk.ask_below(missing, true), end));
        }
        let (below, end) = self.below.as_mut().expect("it was set above");
        let got = below.next().await.unwrap_or_else(|| Err(too_few(&self.run.object)));
        if self.next + 1 == *end {
            self.below = None;
        }
        if self.fetched > 0 && got.as_ref().is_err_and(|error| error.kind == block::Kind::Corrupt) {
            // The whole differs from its checksum, so any block of it that is out already may be the wrong one.
            self.filling.flawed();
        }
        let block = got?;
        self.fetched += 1;
        self.unkept = Some(block.clone());
        Ok(block)
    }

    fn keep(&mut self) {
        if let Some(block) = self.unkept.take() {
            self.disk.keep(&self.filling, &block, &self.run.course);
        }
    }

    /// After the last block: if the object is filled, see whether it is right.
    async fn end(mut self) -> Option<(Result<Block>, Flow)> {
        self.over = true;
        if self.filling.missing() > 0 {
            return None;
        }
        let compared_below = self.run.is_whole() && self.fetched == self.run.object.blocks();
        match self.disk.finish(&self.filling, compared_below, self.run.via).await {
            Ok(()) => None,
            Err(error) if error.kind == block::Kind::Corrupt => Some((Err(error), self)),
            Err(error) => {
                tracing::warn!("an object is whole but could not be compared with the store yet: {error}");
                None
            }
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.keep();
    }
}

fn too_few(object: &Object) -> Error {
    Error::corrupt("a source ended before the last block", object)
}
