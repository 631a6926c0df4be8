//! A complete file, open for reading. It is never written.

use super::file;
use super::medium::{Handle, How, Medium};
use super::segment::{Residency, Segment};
use block::{Address, Block, Checksum, Digest, Error, Object, Result, SUM};
use bytes::Bytes;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read at a time of a file that is read whole: no memory is taken for them from anybody, and a score of
/// files may be read at once.
const FEED_BYTES: u32 = 256 << 10;

/// A complete file, open for reading.
pub struct Whole {
    pub object: Arc<Object>,
    pub(super) segment: Segment,
    pub(super) residency: Residency,
    path: PathBuf,
    file: Arc<dyn Handle>,
    sums: Vec<u64>,
    /// Held by whoever reads all of it: others who want that wait and find it done.
    pub(super) checking: tokio::sync::Mutex<()>,
}

impl Whole {
    /// Open a complete file. A wrong length is damage.
    pub(super) fn open(
        medium: &dyn Medium,
        path: PathBuf,
        segment: Segment,
        number: u32,
        sums: Vec<u64>,
    ) -> Result<Whole> {
        let file = file::open(medium, &path, How::Read, segment.bytes())?;
        let residency = Residency { id: segment.id(), number };
        Ok(Whole { object: segment.object.clone(), segment, residency, path, file, sums, checking: Default::default() })
    }

    /// Write the only block of a small object as a complete file.
    pub(super) fn create(medium: &dyn Medium, path: &Path, block: &Block) -> Result<()> {
        let done = file::create(medium, path, 0o400).and_then(|file| file::write(&*file, block.pieces(), 0));
        done.map_err(|error| {
            let _ = medium.remove(path);
            Error::io("cannot write a cache file", path.display(), &error)
        })
    }

    /// An error if the file has another length than when it was opened.
    pub(super) fn has_its_length(&self) -> Result<()> {
        file::has_length(&*self.file, &self.path, self.segment.bytes())
    }

    /// The checksum of the whole, from those of its pieces.
    pub fn sum(&self) -> u64 {
        file::whole_sum(&self.sums, self.segment.bytes())
    }

    /// Whether somebody reads all of it at the moment, to compare it.
    pub fn is_being_checked(&self) -> bool {
        self.checking.try_lock().is_err()
    }

    /// The descriptor, read-only.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    /// Where a block of the object begins in the file.
    pub fn place(&self, address: &Address) -> u64 {
        address.range().start - self.segment.start()
    }

    /// The checksums of a block.
    pub fn sums(&self, address: &Address) -> &[u64] {
        let from = (self.place(address) / SUM) as usize;
        &self.sums[from..from + address.len().div_ceil(SUM as usize)]
    }

    /// Read and compare some of its blocks.
    pub(super) fn compare(&self, blocks: Range<u32>) -> Result<()> {
        let mut addresses = blocks.map(|index| Address { object: self.object.clone(), index });
        addresses.try_for_each(|address| self.read(address.range().start, address.len() as u32).map(drop))
    }

    /// The open file.
    #[cfg(any(test, feature = "simulate"))]
    pub(super) fn handle(&self) -> &Arc<dyn Handle> {
        &self.file
    }

    /// Verified bytes of the object, as far as the file has them: the 64 KiB that the range touches are read and
    /// compared, the range is cut out.
    pub fn read(&self, offset: u64, length: u32) -> Result<Bytes> {
        let start = offset.saturating_sub(self.segment.start());
        let end = (start + u64::from(length)).min(self.segment.bytes());
        if offset < self.segment.start() || start >= end {
            return Ok(Bytes::new());
        }
        let (from, until) = (start / SUM, end.div_ceil(SUM));
        let cover = (until * SUM).min(self.segment.bytes()) - from * SUM;
        let sums = &self.sums[from as usize..until as usize];
        let bytes = file::read_verified(&*self.file, &self.path, from * SUM, cover as usize, sums)?;
        let skip = (start - from * SUM) as usize;
        Ok(bytes.slice(skip..skip + (end - start) as usize))
    }

    /// Read and compare every byte; what the store says about the whole object is compared too, where it is known.
    pub(super) fn verify(&self, described: Option<Checksum>) -> Result<()> {
        let mut digest = described.filter(|_| self.segment.is_whole()).map(Checksum::digest);
        self.feed(digest.as_mut())?;
        match (digest, described) {
            (Some(digest), Some(described)) if !digest.matches(described) => {
                Err(Error::corrupt("a cache file differs from the checksum that the store gives", &*self.object))
            }
            _ => Ok(()),
        }
    }

    /// Read and compare every byte, and feed it to a digest.
    pub(super) fn feed(&self, mut digest: Option<&mut Digest>) -> Result<()> {
        let mut at = 0;
        while at < self.segment.bytes() {
            let bytes = self.read(self.segment.start() + at, FEED_BYTES)?;
            if let Some(digest) = &mut digest {
                digest.update(&bytes);
            }
            at += bytes.len() as u64;
        }
        Ok(())
    }
}
