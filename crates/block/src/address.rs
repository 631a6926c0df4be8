//! Objects, addresses and runs. Pure values: no input or output, no clock.
//!
//! Invariant: two addresses are equal only if they name the same bytes for ever.

use crate::{Course, Door};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Bytes of a block: a constant of the disk format. Whoever reads a record here and there moves no more than
/// this for it; what follows one another is asked for in long runs (docs/decisions/0016).
pub const BLOCK: u64 = 256 << 10;

/// An object up to this size is small: it is one block of its own length, whole or not there at all.
pub const SMALL: u64 = 1 << 20;

/// Blocks in one request to a source. Sixteen mebibytes amortise a round trip at any bandwidth seen.
pub const RUN_BLOCKS_MAX: u32 = 64;

/// Comes between the name of a store and a hash of the principal that it is asked by, where both make up the identity.
pub const PRINCIPAL: char = '\0';

/// One version of one thing in a store. Sizes and versions are the store's own words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Canonical identity of the store, independent of the spelling of its endpoint: `s3://bucket`. In a cluster the
    /// principal is part of it ([`PRINCIPAL`]): what one principal may read is no other one's.
    pub store: Arc<str>,
    /// The key within the store, byte for byte as the store lists it.
    pub key: String,
    /// Etag or generation; for a POSIX file its times, size and inode.
    pub version: String,
    /// Length in bytes.
    pub size: u64,
}

impl Object {
    /// Blocks that the object holds; an empty object holds none.
    pub fn blocks(&self) -> u32 {
        self.blocks_checked().expect("an object has at most 1 PiB")
    }

    /// The same of a size that nobody has checked yet: nothing of one that no object has.
    pub fn blocks_checked(&self) -> Option<u32> {
        blocks_of(self.size)
    }

    /// Length of its blocks, but for the last one.
    pub fn block_bytes(&self) -> u64 {
        block_bytes(self.size)
    }

    /// Where a block begins.
    pub fn start(&self, block: u32) -> u64 {
        u64::from(block) * self.block_bytes()
    }

    /// A short name for indexes and files. Equal names are confirmed against the full identity before use.
    pub fn id(&self) -> ObjectId {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for part in [self.store.as_bytes(), self.key.as_bytes(), self.version.as_bytes()] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(&self.size.to_le_bytes());
        ObjectId(hash.digest128())
    }

    /// The whole object as one run, if it is small enough for one.
    pub fn whole(self: &Arc<Self>) -> Option<Run> {
        (1..=RUN_BLOCKS_MAX).contains(&self.blocks()).then(|| Run::new(self.clone(), 0..self.blocks()))
    }
}

/// Blocks of an object of which the size alone is known; nothing of a size that no object has.
pub fn blocks_of(size: u64) -> Option<u32> {
    u32::try_from(size.div_ceil(block_bytes(size))).ok()
}

/// Bytes of some of the blocks of an object of this size.
pub fn bytes_of(size: u64, blocks: &Range<u32>) -> u64 {
    let start = |block: u32| (u64::from(block) * block_bytes(size)).min(size);
    start(blocks.end).saturating_sub(start(blocks.start))
}

fn block_bytes(size: u64) -> u64 {
    if size <= SMALL { SMALL } else { BLOCK }
}

impl fmt::Display for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store.split(PRINCIPAL).next().unwrap_or_default();
        write!(out, "{store}/{}", self.key)
    }
}

/// Hash of an object's whole identity (XXH3, 128 bits).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u128);

impl fmt::Display for ObjectId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// One block of one version of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    pub object: Arc<Object>,
    pub index: u32,
}

impl Address {
    /// The bytes of the object that this block holds; the last block may be short.
    pub fn range(&self) -> Range<u64> {
        let start = self.object.start(self.index);
        assert!(start < self.object.size, "address past the end of its object");
        start..self.object.start(self.index + 1).min(self.object.size)
    }

    /// Length of the block in bytes.
    pub fn len(&self) -> usize {
        let range = self.range();
        usize::try_from(range.end - range.start).expect("a block fits in memory")
    }

    /// Never: an address names at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Neighbouring blocks of one object, asked for together.
#[derive(Clone, Debug)]
pub struct Run {
    pub object: Arc<Object>,
    pub blocks: Range<u32>,
    /// What it waits for on its way, if anybody wants to know.
    pub course: Course,
    /// Whose credentials it goes by.
    pub via: Door,
    /// Whether its asker holds room in memory for all of its blocks.
    pub has_room: bool,
    /// Patience that its reader used up before, while nothing came from the store.
    pub waited: Duration,
    /// Counts bytes that come from a store for it, if anybody wants to know: not those that another run asked for.
    pub came: Option<Arc<AtomicU64>>,
    /// Whether no other member of a cluster is to be asked: one of them asks.
    pub is_own: bool,
    /// Whether another member keeps it, or would: what of it is kept here is a copy.
    pub is_copy: bool,
}

impl Run {
    /// A run of one to [`RUN_BLOCKS_MAX`] blocks within the object.
    pub fn new(object: Arc<Object>, blocks: Range<u32>) -> Run {
        assert!(blocks.start < blocks.end && blocks.end <= object.blocks(), "run outside its object");
        assert!(blocks.end - blocks.start <= RUN_BLOCKS_MAX, "run longer than its limit");
        let (course, via, waited) = (Course::default(), Door::NONE, Duration::ZERO);
        Run { object, blocks, course, via, has_room: false, waited, came: None, is_own: false, is_copy: false }
    }

    /// The same run, for whose blocks the asker holds room.
    #[must_use]
    pub fn with_room(self) -> Run {
        Run { has_room: true, ..self }
    }

    /// The same run for whoever came in through this door.
    #[must_use]
    pub fn via(self, via: Door) -> Run {
        Run { via, ..self }
    }

    /// Some of the blocks, on the same course through the same door.
    pub fn part(&self, blocks: Range<u32>) -> Run {
        let (whole, course, came) = (Run::new(self.object.clone(), blocks), self.course.clone(), self.came.clone());
        let Run { via, has_room, waited, is_own, is_copy, .. } = *self;
        Run { course, via, has_room, waited, came, is_own, is_copy, ..whole }
    }

    /// The addresses in order.
    pub fn addresses(&self) -> impl Iterator<Item = Address> + use<> {
        let object = self.object.clone();
        self.blocks.clone().map(move |index| Address { object: object.clone(), index })
    }

    /// The bytes of the object that the run covers.
    pub fn range(&self) -> Range<u64> {
        self.object.start(self.blocks.start)..self.object.start(self.blocks.end).min(self.object.size)
    }

    /// Length of the run in bytes.
    pub fn bytes(&self) -> u64 {
        let range = self.range();
        range.end - range.start
    }

    /// Whether the run covers every byte of its object.
    pub fn is_whole(&self) -> bool {
        self.blocks == (0..self.object.blocks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(size: u64) -> Arc<Object> {
        Arc::new(Object { store: "s3://b".into(), key: "k".into(), version: "v".into(), size })
    }

    #[test]
    fn the_last_block_may_be_short() {
        let object = object(SMALL + 5);
        assert_eq!(object.blocks(), 5);
        assert_eq!(Address { object: object.clone(), index: 4 }.range(), SMALL..SMALL + 5);
        assert_eq!(object.whole().expect("five blocks").bytes(), SMALL + 5);
        assert_eq!(self::object(SMALL).blocks(), 1, "a small object is one block");
        assert_eq!(self::object(0).blocks(), 0);
        let bytes = [0..5, 3..5, 4..5, 4..9, 7..9].map(|blocks| bytes_of(SMALL + 5, &blocks));
        assert_eq!(bytes, [SMALL + 5, BLOCK + 5, 5, 5, 0]);
        assert_eq!((bytes_of(7, &(0..1)), blocks_of(SMALL + 5), blocks_of(u64::MAX)), (7, Some(5), None));
        assert!(self::object(0).whole().is_none());
    }

    #[test]
    fn an_identity_is_more_than_its_letters() {
        let left = Object { store: "s3://b".into(), key: "ab".into(), version: "c".into(), size: 1 };
        let right = Object { key: "a".into(), version: "bc".into(), ..left.clone() };
        assert_ne!(left.id(), right.id());
        assert_ne!(left.id(), Object { size: 2, ..left.clone() }.id());
        // The name of a cache file (docs/format.md): changing it would lose every cache in use.
        assert_eq!(left.id().to_string(), "26bc42f7d816b1246d86488346daef80");
    }
}
