//! A run of blocks on its way through the disk tier: from the file what is there, from below what is not.
//!
//! Invariant: blocks come up in order, each verified; one that came from below is handed on before it is kept,
//! and is kept even if nobody asks for the next one.

use super::Disk;
use super::filling::Filling;
use super::index::{Found, Index};
use super::segment::{Residency, Segment};
use super::table::Class;
use super::whole::Whole;
use block::{Block, Blocks, Cause, Error, Object, Proof, Result, Run};
use futures_util::StreamExt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

/// The blocks of a run.
pub fn serve(disk: Disk, run: Run) -> Blocks {
    let mut parts = disk.parts(&run);
    if parts.len() == 1 {
        let (segment, run) = parts.remove(0);
        return serve_part(disk, &segment, run);
    }
    let blocks =
        futures_util::stream::iter(parts).flat_map(move |(segment, run)| serve_part(disk.clone(), &segment, run));
    block::until_failed(blocks)
}

/// The part of a run that lies in one segment.
fn serve_part(disk: Disk, segment: &Segment, run: Run) -> Blocks {
    match disk.place(segment, &run) {
        Destination::Whole(whole) => from_file(disk, whole, run),
        Destination::Nowhere => disk.ask_below(run, false),
        Destination::Small(residency) => small(disk, segment, residency, run),
        Destination::Filling { filling, keeps } => {
            let next = run.blocks.start;
            let flow = Flow {
                disk,
                filling,
                keeps,
                run,
                next,
                below: None,
                unkept: None,
                is_compared: false,
                kept: 0,
                is_over: false,
            };
            futures_util::stream::unfold(flow, Flow::step).boxed()
        }
    }
}

/// Where the blocks of a segment go.
enum Destination {
    Whole(Arc<Whole>),
    /// Into a file with holes, if there is room for them.
    Filling {
        filling: Arc<Filling>,
        keeps: bool,
    },
    /// Admitted, and written in one go once it is there.
    Small(Residency),
    /// Not admitted.
    Nowhere,
}

/// Times that room is asked for: what gave way for one may be taken by another who came in between.
const ROOM_TRIES: u32 = 4;

impl Disk {
    fn place(&self, segment: &Segment, run: &Run) -> Destination {
        let mut tries = 1..ROOM_TRIES;
        loop {
            let (place, gave_way) = self.place_once(segment, run);
            if !gave_way || tries.next().is_none() {
                return place;
            }
        }
    }

    /// The same, and whether there may be room now because others gave way.
    fn place_once(&self, segment: &Segment, run: &Run) -> (Destination, bool) {
        let mut index = self.index();
        index.take_gave_way();
        let Some(class) = self.1.class else { return (self.place_as_it_is(index, segment), false) };
        let class = if run.is_copy { Class::Copy } else { class };
        if class == Class::Owned {
            index.is_owned(segment);
        }
        let place = match index.known(segment) {
            // The bytes of a file of an earlier boot are verified on each read here, so it serves as it is.
            Found::Complete(held) | Found::Unchecked(held) => {
                drop(index);
                return match self.open(held) {
                    Ok(Some(whole)) => (Destination::Whole(whole), false),
                    Ok(None) => self.place_once(segment, run),
                    Err(error) => {
                        tracing::warn!("asking the store for what is kept: {error}");
                        (Destination::Nowhere, false)
                    }
                };
            }
            Found::Filling(filling) => index.with_room(filling, run),
            Found::Absent if !(self.0.keeps)(&segment.object) => Destination::Nowhere,
            Found::Absent if segment.object.blocks() == 1 => {
                index.admit(segment, segment.bytes(), class).map_or(Destination::Nowhere, Destination::Small)
            }
            Found::Absent => match index.start(segment, run.blocks.start, class) {
                Ok(Some(filling)) => index.with_room(filling, run),
                Ok(None) => Destination::Nowhere,
                Err(error) => {
                    index.refused(&error);
                    Destination::Nowhere
                }
            },
        };
        let gave_way = index.take_gave_way();
        (place, gave_way)
    }

    /// Where the blocks of a segment are, of which nothing more is to be kept.
    fn place_as_it_is(&self, index: super::index::Borrowed<'_>, segment: &Segment) -> Destination {
        match index.known(segment) {
            Found::Filling(filling) => Destination::Filling { filling, keeps: false },
            Found::Absent => Destination::Nowhere,
            Found::Complete(held) | Found::Unchecked(held) => {
                drop(index);
                self.open(held).ok().flatten().map_or(Destination::Nowhere, Destination::Whole)
            }
        }
    }

    /// Blocks that came from below, counted. Those of other members, they count.
    fn ask_below(&self, run: Run, is_kept: bool) -> Blocks {
        if self.1.class != Some(Class::Owned) {
            return self.1.source.fetch(run);
        }
        let (disk, came) = (self.clone(), run.came.clone());
        let counted = self.1.source.fetch(run).inspect(move |got| {
            // What another member had didn't come from the store.
            if let Ok(block) = got
                && block.proof() != Proof::Peer
            {
                let (tally, bytes) = (&disk.0.tally, block.len() as u64);
                tally.below.add(1, bytes);
                if let Some(came) = &came {
                    came.fetch_add(bytes, Relaxed);
                }
                let mut distinct = disk.0.distinct.lock().unwrap_or_else(PoisonError::into_inner);
                tally.unique.add(1, distinct.came(&block.address));
                if !is_kept {
                    tally.unkept.add(1, bytes);
                }
            }
        });
        counted.boxed()
    }
}

impl Index {
    fn with_room(&mut self, filling: Arc<Filling>, run: &Run) -> Destination {
        let keeps = self.has_room_for(&filling, &run.blocks) || self.grow(&filling);
        Destination::Filling { filling, keeps }
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
            let file = whole.clone();
            match disk.aside(move || file.read(range.start, (range.end - range.start) as u32)).await {
                Ok(bytes) => {
                    disk.0.tally.here.add(1, bytes.len() as u64);
                    Block::verified(address, vec![bytes], Proof::Local).map(Block::kept)
                }
                Err(error) => {
                    disk.damaged(&whole, &error);
                    disk.ask_below(again, false).next().await.unwrap_or_else(|| Err(too_few(&address.object)))
                }
            }
        }
    });
    blocks.boxed()
}

/// The only block of a small object: kept first, then handed on, since its reader wants the file.
fn small(disk: Disk, segment: &Segment, residency: Residency, run: Run) -> Blocks {
    let course = run.course.clone();
    let place = Reserved { disk: disk.clone(), segment: segment.clone(), residency, is_kept: false };
    let blocks = disk.ask_below(run, true).scan(place, move |place, got| {
        let kept = got.map(|block| {
            course.enter(Cause::Cpu);
            let sums = block::sums(block.pieces());
            course.enter(Cause::Disk);
            place.is_kept = place.disk.keep_small(&place.segment, place.residency, &block, sums);
            if place.is_kept { block.kept() } else { block }
        });
        std::future::ready(Some(kept))
    });
    blocks.boxed()
}

/// Room for a small object that has not come yet; given back if it never does.
struct Reserved {
    disk: Disk,
    segment: Segment,
    residency: Residency,
    is_kept: bool,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.is_kept {
            self.disk.index().drop_segment(self.residency, &self.segment.object);
        }
    }
}

/// A run through a file with holes.
struct Flow {
    disk: Disk,
    filling: Arc<Filling>,
    keeps: bool,
    run: Run,
    next: u32,
    /// What comes from below, and the block at which that ends.
    below: Option<(Blocks, u32)>,
    /// Handed on, not yet kept.
    unkept: Option<Block>,
    /// Whether one answer is to bring the whole object, which is then compared on the way.
    is_compared: bool,
    /// Blocks that this flow wrote. Those of others were not compared with that answer.
    kept: u32,
    is_over: bool,
}

impl Flow {
    async fn step(mut self) -> Option<(Result<Block>, Flow)> {
        self.keep();
        if self.is_over {
            return None;
        }
        if self.next == self.run.blocks.end {
            return self.end().await;
        }
        let got = self.block().await;
        self.next += 1;
        self.is_over = got.is_err();
        let is_asked = self.disk.1.class.is_some();
        if is_asked && got.as_ref().is_err_and(|error| !error.passes()) && self.filling.written() == 0 {
            // Nothing of it will come: its room is for others. Who only looks what is here knows nothing of that.
            self.disk.flawed(&self.filling);
        }
        Some((got, self))
    }

    /// The next block, from the file if it is there.
    async fn block(&mut self) -> Result<Block> {
        if self.below.is_none() && self.filling.has(self.next) {
            self.run.course.enter(Cause::Disk);
            let (filling, index) = (self.filling.clone(), self.next);
            match self.disk.aside(move || filling.read(index)).await {
                Ok(block) => {
                    self.disk.0.tally.here.add(1, block.len() as u64);
                    return Ok(block);
                }
                Err(error) => {
                    tracing::warn!("fetching a block again: {error}");
                    self.disk.drop_rotten(&self.filling);
                }
            }
        }
        if self.below.is_none() {
            let end = (self.next + 1..self.run.blocks.end).find(|index| self.filling.has(*index));
            let end = end.unwrap_or(self.run.blocks.end);
            let missing = self.run.part(self.next..end);
            // Who answers for other members compares nothing of the whole.
            self.is_compared = missing.is_whole() && self.disk.1.class == Some(Class::Owned);
            self.below = Some((self.disk.ask_below(missing, self.keeps), end));
        }
        let (below, end) = self.below.as_mut().expect("it was set above");
        let got = below.next().await.unwrap_or_else(|| Err(too_few(&self.run.object)));
        let is_first = self.next == self.run.blocks.start;
        if self.next + 1 == *end {
            self.below = None;
        }
        if !is_first && got.as_ref().is_err_and(|error| error.kind == block::Kind::Corrupt) {
            // The whole differs from its checksum, so any block of it that is out already may be the wrong one.
            self.disk.flawed(&self.filling);
        }
        let block = got?;
        self.is_compared &= block.proof() == Proof::Store;
        self.unkept = Some(block.clone());
        Ok(block)
    }

    fn keep(&mut self) {
        if let Some(block) = self.unkept.take().filter(|_| self.keeps) {
            self.kept += u32::from(self.disk.keep(&self.filling, &block, &self.run.course));
        }
    }

    /// After the last block: if the segment is filled, see whether it is right.
    async fn end(mut self) -> Option<(Result<Block>, Flow)> {
        self.is_over = true;
        // Who keeps nothing completes nothing: what it asks knows no checksum of the whole.
        if !self.filling.is_full() || self.disk.1.class.is_none() {
            return None;
        }
        let is_compared = self.is_compared && self.kept == self.run.object.blocks();
        match self.disk.finish(&self.filling, is_compared, self.run.via).await {
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
