//! Blocks that lie in one file that is open, for whoever has the kernel send them from there: in a complete one, or in one with holes,
//! as members have those of large objects, of which each owns a part.
//!
//! Invariant: nobody waits for a disk to have one of these; and the blocks of a file with holes were written, or read and compared,
//! under this boot.

use super::filling::Filling;
use super::medium::{self, Handle};
use super::whole::Whole;
use block::{Address, Run, SUM};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Blocks of a run in their file.
pub struct Lying(From);

enum From {
    Whole(Arc<Whole>),
    Part(Part),
}

struct Part {
    /// As long as somebody has this, the segment gives way to nobody.
    filling: Arc<Filling>,
    file: Arc<dyn Handle>,
    /// The first of the blocks, and the checksums of all.
    first: u32,
    sums: Vec<u64>,
}

impl Lying {
    /// In a complete file. None if that has not its length any more.
    pub(super) fn in_whole(whole: Arc<Whole>) -> Option<Lying> {
        whole.has_its_length().ok()?;
        Some(Lying(From::Whole(whole)))
    }

    /// In a file with holes, if all of them are here.
    pub(super) fn in_filling(filling: Arc<Filling>, run: &Run) -> Option<Lying> {
        let (file, sums) = filling.open_with(&run.blocks)?;
        Some(Lying(From::Part(Part { filling, file, first: run.blocks.start, sums })))
    }

    /// None of a file that is simulated.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            From::Whole(whole) => whole.descriptor(),
            From::Part(part) => part.file.descriptor(),
        }
    }

    /// Where a block begins in the file.
    pub fn place(&self, address: &Address) -> u64 {
        match &self.0 {
            From::Whole(whole) => whole.place(address),
            From::Part(part) => address.range().start - part.filling.segment.start(),
        }
    }

    /// The checksums of a block.
    pub fn sums(&self, address: &Address) -> &[u64] {
        match &self.0 {
            From::Whole(whole) => whole.sums(address),
            From::Part(part) => {
                let from = (address.index - part.first) as usize * (address.object.block_bytes() / SUM) as usize;
                &part.sums[from..from + address.len().div_ceil(SUM as usize)]
            }
        }
    }

    /// Whether the kernel has a block in memory, so that nobody waits for the disk.
    pub fn is_at_hand(&self, address: &Address) -> bool {
        let is_cached = |file| medium::is_cached(file, self.place(address), address.len() as u64);
        self.descriptor().is_some_and(is_cached)
    }
}
