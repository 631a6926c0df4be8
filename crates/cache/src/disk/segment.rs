//! Segments: the part of an object that one file of the cache holds, and how long each file is the same.
//!
//! An object is one segment, so that the kernel can read its file, unless it is large beside the capacity: then it
//! is cut at stripes, so that a part of it can be kept and give way; or is to be shared with other members, each of whom
//! keeps some of its stripes.
//!
//! Invariant: a residency is never given twice, not even after a restart, and is part of the file's name. So what
//! was begun for one file is never taken for another file of the same object.

use super::record::WHOLE_BYTES_MAX;
use block::{Object, ObjectId, RUN_BLOCKS_MAX, Run, crc64};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Blocks of a stripe: an aligned run. The unit in which large objects are kept, and in which a file's room is taken.
pub const STRIPE_BLOCKS: u32 = RUN_BLOCKS_MAX;

/// Objects of more than this share of the capacity are cut. A whole object gives way whole, so a larger share would
/// leave the cache to a few of them.
const WHOLE_SHARE: u64 = 4;

/// What one file of the cache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub object: Arc<Object>,
    pub blocks: Range<u32>,
}

impl Segment {
    /// The object as one file.
    pub fn whole(object: &Arc<Object>) -> Segment {
        Segment { object: object.clone(), blocks: 0..object.blocks() }
    }

    /// The stripe of an object that holds a block.
    pub fn stripe(object: &Arc<Object>, block: u32) -> Segment {
        let start = block / STRIPE_BLOCKS * STRIPE_BLOCKS;
        Segment { object: object.clone(), blocks: start..(start + STRIPE_BLOCKS).min(object.blocks()) }
    }

    /// All stripes of an object.
    pub fn stripes(object: &Arc<Object>) -> Vec<Segment> {
        (0..object.blocks()).step_by(STRIPE_BLOCKS as usize).map(|block| Segment::stripe(object, block)).collect()
    }

    /// A segment as a record names it, if there can be such a one.
    pub fn read(object: Arc<Object>, blocks: Range<u32>) -> Option<Segment> {
        let fits = blocks.start < blocks.end && blocks.end <= object.blocks_checked()?;
        let is_aligned = blocks.start.is_multiple_of(STRIPE_BLOCKS);
        (fits && is_aligned).then_some(Segment { object, blocks })
    }

    /// Bytes up to which a cache of this capacity keeps an object in one file.
    pub fn whole_max(capacity: u64) -> u64 {
        (capacity / WHOLE_SHARE).min(WHOLE_BYTES_MAX)
    }

    /// Whether a cache that keeps objects up to so many bytes in one file keeps this one in stripes.
    pub fn is_cut(object: &Object, whole_max: u64) -> bool {
        Segment::is_size_cut(object.size, object.blocks(), whole_max)
    }

    /// The same of an object of which no more is known.
    pub fn is_size_cut(size: u64, blocks: u32, whole_max: u64) -> bool {
        size > whole_max && blocks > STRIPE_BLOCKS
    }

    pub fn is_whole(&self) -> bool {
        self.blocks == (0..self.object.blocks())
    }

    /// A name for the index: the object's own for a whole one.
    pub fn id(&self) -> ObjectId {
        if self.is_whole() { self.object.id() } else { Segment::part_id(self.object.id(), &self.blocks) }
    }

    /// The name of a segment that is not all of its object.
    pub fn part_id(object: ObjectId, blocks: &Range<u32>) -> ObjectId {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        hash.update(&object.0.to_le_bytes());
        hash.update(&blocks.start.to_le_bytes());
        hash.update(&blocks.end.to_le_bytes());
        ObjectId(hash.digest128())
    }

    /// Bytes of the segment.
    pub fn bytes(&self) -> u64 {
        self.end() - self.start()
    }

    /// Where it begins in its object.
    pub fn start(&self) -> u64 {
        self.object.start(self.blocks.start)
    }

    fn end(&self) -> u64 {
        self.object.start(self.blocks.end).min(self.object.size)
    }

    /// The part of a run that lies in the segment.
    pub fn part(&self, run: &Run) -> Run {
        run.part(run.blocks.start.max(self.blocks.start)..run.blocks.end.min(self.blocks.end))
    }
}

/// One stay of a segment in the cache, from its admission until its file is unlinked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Residency {
    pub id: ObjectId,
    pub number: u32,
}

impl Residency {
    /// Where its file lies: objects of one folder lie in one folder, as they would natively, so that the file system
    /// puts them near each other.
    pub fn path(&self, folder: &Path, object: &Object) -> PathBuf {
        let parent = object.key.rsplit_once('/').map_or("", |(parent, _)| parent);
        let near = crc64::of(parent.as_bytes()) ^ crc64::of(object.store.as_bytes());
        folder.join(format!("{:04x}", near & 0xffff)).join(format!("{}-{:08x}", self.id, self.number))
    }

    /// The residency that a file's name tells.
    pub fn of_name(name: &str) -> Option<Residency> {
        let (id, number) = name.split_once('-')?;
        let id = u128::from_str_radix(id, 16).ok()?;
        Some(Residency { id: ObjectId(id), number: u32::from_str_radix(number, 16).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::BLOCK;

    fn object(size: u64) -> Arc<Object> {
        Arc::new(Object { store: "s3://b".into(), key: "k".into(), version: "v".into(), size })
    }

    #[test]
    fn stripes_cover_an_object_without_a_gap() {
        let object = object(150 * BLOCK + 7);
        let (mut block, mut bytes, mut names) = (0, 0, vec![object.id()]);
        while block < object.blocks() {
            let stripe = Segment::stripe(&object, block);
            assert_eq!((stripe.blocks.start, stripe.start()), (block, bytes));
            assert_eq!(stripe, Segment::stripe(&object, stripe.blocks.end - 1));
            assert!(!names.contains(&stripe.id()), "each has a name of its own");
            names.push(stripe.id());
            (block, bytes) = (stripe.blocks.end, bytes + stripe.bytes());
        }
        assert_eq!(bytes, object.size);
    }

    #[test]
    fn only_what_is_large_beside_the_capacity_is_cut() {
        assert!(!Segment::is_cut(&object(100 << 20), Segment::whole_max(400 << 20)));
        assert!(Segment::is_cut(&object((100 << 20) + 1), Segment::whole_max(400 << 20)));
        assert!(!Segment::is_cut(&object(16 << 20), Segment::whole_max(1 << 20)), "a stripe is not cut further");
    }

    #[test]
    fn a_record_of_an_impossible_segment_is_not_believed() {
        let large = || object(150 * BLOCK);
        assert!(Segment::read(large(), 0..150).is_some() && Segment::read(large(), 64..128).is_some());
        for blocks in [0..0, 0..151, 1..64] {
            assert_eq!(Segment::read(large(), blocks), None);
        }
        assert_eq!(Segment::read(object(u64::MAX), 0..64), None);
    }

    #[test]
    fn a_file_s_name_tells_its_residency() {
        let residency = Residency { id: ObjectId(7), number: 0xabc };
        let path = residency.path(Path::new("/c"), &object(1));
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_eq!(Residency::of_name(name), Some(residency));
        assert_eq!(Residency::of_name("00000000000000000000000000000007"), None);
    }
}
