//! Files of the cache: one sparse file per object version, its bytes at the object's own offsets.
//!
//! [`Filling`] is a file with holes and a bitmap of what is there; [`Whole`] is a complete one. Neither knows
//! the index: what was written is told to the log by the tier.
//!
//! Invariant: a bit is set only after the bytes are in the file, and a whole file is never written again.

use super::record::Record;
use block::{Address, Block, Checksum, Error, Object, ObjectId, Result, SMALL, crc64};
use bytes::Bytes;
use rustix::io::{Errno, pwritev};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes under one checksum. A reader of 4 KiB pays for 64 KiB of checksum at most, about 5 microseconds.
pub const SUM: u64 = 64 << 10;

/// Pieces of one vectored write (IOV_MAX of Linux is 1,024).
const PIECES_PER_WRITE: usize = 512;

/// Times that the whole of an object may differ from the store's checksum before reading it is an error.
const FLAWS_MAX: u8 = 3;

/// Checksums of a block that starts at a multiple of [`SUM`], one for each 64 KiB.
pub fn sums(pieces: &[Bytes]) -> Vec<u64> {
    let mut out = Vec::with_capacity((SMALL / SUM) as usize);
    let mut digest = Checksum::Crc64Nvme(0).digest();
    let mut room = SUM as usize;
    let mut fed = false;
    for piece in pieces {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(room));
            digest.update(now);
            (rest, room, fed) = (later, room - now.len(), true);
            if room == 0 {
                out.push(digest.value());
                (digest, room, fed) = (Checksum::Crc64Nvme(0).digest(), SUM as usize, false);
            }
        }
    }
    if fed {
        out.push(digest.value());
    }
    out
}

/// Where the file of an object lies: objects of one folder lie in one folder, as they would natively, so that
/// the file system puts them near each other.
pub fn path(folder: &Path, object: &Object, id: ObjectId) -> PathBuf {
    let parent = object.key.rsplit_once('/').map_or("", |(parent, _)| parent);
    let near = crc64::of(parent.as_bytes()) ^ crc64::of(object.store.as_bytes());
    folder.join(format!("{:04x}", near & 0xffff)).join(id.to_string())
}

/// Make the file of an object anew. What a killed daemon left there is unlinked first, never written over.
fn create(path: &Path, mode: u32) -> std::io::Result<File> {
    let open = || File::options().read(true).write(true).create_new(true).mode(mode).open(path);
    open().or_else(|error| {
        match error.kind() {
            std::io::ErrorKind::NotFound => std::fs::create_dir(path.parent().expect("a file lies in a folder"))
                .or_else(|error| if path.parent().is_some_and(Path::is_dir) { Ok(()) } else { Err(error) })?,
            std::io::ErrorKind::AlreadyExists => std::fs::remove_file(path)?,
            _ => return Err(error),
        }
        open()
    })
}

/// Write pieces at an offset, all of them.
fn write(file: &File, pieces: &[Bytes], mut offset: u64) -> std::io::Result<()> {
    for group in pieces.chunks(PIECES_PER_WRITE) {
        let total: usize = group.iter().map(Bytes::len).sum();
        let slices: Vec<IoSlice<'_>> = group.iter().map(|piece| IoSlice::new(piece)).collect();
        let wrote = match pwritev(file, &slices, offset) {
            Ok(wrote) => wrote,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        if wrote < total {
            // Rare: a signal or a nearly full disk. The rest goes out piece by piece, with its true error.
            let mut skip = wrote;
            let mut at = offset + wrote as u64;
            for piece in group {
                let rest = &piece[skip.min(piece.len())..];
                skip -= skip.min(piece.len());
                file.write_all_at(rest, at)?;
                at += rest.len() as u64;
            }
        }
        offset += total as u64;
    }
    Ok(())
}

/// A file with holes.
pub struct Filling {
    pub object: Arc<Object>,
    pub path: PathBuf,
    file: File,
    there: Mutex<There>,
    /// Told when the object became complete, or was given up.
    pub settled: tokio::sync::Notify,
    /// Held by whoever checks the whole.
    pub finishing: tokio::sync::Mutex<()>,
}

struct There {
    bits: Vec<u64>,
    sums: Vec<u64>,
    missing: u32,
    flaws: u8,
}

impl Filling {
    /// A new file without any block.
    pub fn create(path: PathBuf, object: Arc<Object>) -> Result<Filling> {
        let file =
            create(&path, 0o600).map_err(|error| Error::io("cannot create a cache file", path.display(), &error))?;
        file.set_len(object.size).map_err(|error| Error::io("cannot size a cache file", path.display(), &error))?;
        Ok(Filling::of(file, path, object))
    }

    /// A file that an earlier daemon began; what is there is told by [`Filling::note`].
    pub fn reopen(path: PathBuf, object: Arc<Object>) -> Result<Filling> {
        let opened = File::options().read(true).write(true).open(&path);
        let file = opened.map_err(|error| Error::io("cannot open a cache file", path.display(), &error))?;
        let length = file.metadata().map_or(0, |found| found.len());
        if length != object.size {
            return Err(Error::corrupt(
                format!("a cache file has {length} bytes instead of {}", object.size),
                path.display(),
            ));
        }
        Ok(Filling::of(file, path, object))
    }

    fn of(file: File, path: PathBuf, object: Arc<Object>) -> Filling {
        let there = There {
            bits: vec![0; object.blocks().div_ceil(64) as usize],
            sums: vec![0; object.size.div_ceil(SUM) as usize],
            missing: object.blocks(),
            flaws: 0,
        };
        Filling { object, path, file, there: there.into(), settled: Default::default(), finishing: Default::default() }
    }

    /// Keep a block: bytes first, then the bit. False if it was there already.
    pub fn keep(&self, block: &Block, sums: &[u64]) -> Result<bool> {
        write(&self.file, block.pieces(), block.address.range().start)
            .map_err(|error| Error::io("cannot write a cache file", self.path.display(), &error))?;
        Ok(self.note(block.address.index, sums))
    }

    /// Believe that a block is there with these checksums. False if it was already, or makes no sense.
    pub fn note(&self, index: u32, sums: &[u64]) -> bool {
        let (mut there, per_block) = (self.there(), self.sums_per_block());
        let from = index as usize * per_block;
        let until = (from + per_block).min(there.sums.len());
        if index >= self.object.blocks() || sums.len() != until - from || there.has(index) {
            return false;
        }
        there.sums[from..until].copy_from_slice(sums);
        there.bits[index as usize / 64] |= 1 << (index % 64);
        there.missing -= 1;
        true
    }

    /// Whether a block is there.
    pub fn has(&self, index: u32) -> bool {
        self.there().has(index)
    }

    /// Blocks that are not there yet.
    pub fn missing(&self) -> u32 {
        self.there().missing
    }

    /// Read a block that is there and verify it. Damaged, it counts as missing from now on.
    pub fn read(&self, index: u32) -> Result<Block> {
        let address = Address { object: self.object.clone(), index };
        let wanted = {
            let (there, per_block) = (self.there(), self.sums_per_block());
            let from = index as usize * per_block;
            there.sums[from..(from + per_block).min(there.sums.len())].to_vec()
        };
        let read = read_verified(&self.file, &self.path, address.range().start, address.len(), &wanted);
        let bytes = read.inspect_err(|_| self.lose(index))?;
        Block::verified(address, vec![bytes]).map(Block::kept)
    }

    /// Checksums of the whole file, for the record of completion.
    pub fn sums(&self) -> Vec<u64> {
        self.there().sums.clone()
    }

    /// What a log must say so that this file is found again as it is.
    pub fn story(&self) -> Vec<Record> {
        let (there, per_block) = (self.there(), self.sums_per_block());
        let id = self.object.id();
        let held = (0..self.object.blocks()).filter(|index| there.has(*index)).map(|index| {
            let sums = there.sums[index as usize * per_block..].iter().take(per_block).copied().collect();
            Record::Block { id, index, sums }
        });
        std::iter::once(Record::Started(self.object.clone())).chain(held).collect()
    }

    /// Whether the file's bytes are the ones that the store described. Reads the file again only for
    /// checksums that do not combine.
    pub fn matches(&self, told: Checksum) -> Result<bool> {
        if let Checksum::Crc64Nvme(told) = told {
            return Ok(whole_sum(&self.sums(), self.object.size) == told);
        }
        let mut digest = told.digest();
        for index in 0..self.object.blocks() {
            self.read(index)?.pieces().iter().for_each(|piece| digest.update(piece));
        }
        Ok(digest.matches(told))
    }

    /// The whole was wrong: forget every block. True once that has happened too often.
    pub fn flawed(&self) -> bool {
        let mut there = self.there();
        there.bits.fill(0);
        there.missing = self.object.blocks();
        there.flaws += 1;
        there.flaws >= FLAWS_MAX
    }

    fn lose(&self, index: u32) {
        let mut there = self.there();
        if there.has(index) {
            there.bits[index as usize / 64] &= !(1 << (index % 64));
            there.missing += 1;
        }
    }

    fn sums_per_block(&self) -> usize {
        (self.object.block_bytes() / SUM) as usize
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl There {
    fn has(&self, index: u32) -> bool {
        self.bits.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }
}

/// A complete file, open for reading.
pub struct Whole {
    pub object: Arc<Object>,
    path: PathBuf,
    file: File,
    sums: Vec<u64>,
}

impl Whole {
    /// Open a complete file. A wrong length is damage.
    pub fn open(path: PathBuf, object: Arc<Object>, sums: Vec<u64>) -> Result<Whole> {
        let file = File::open(&path).map_err(|error| Error::io("cannot open a cache file", path.display(), &error))?;
        let length = file.metadata().map_or(0, |found| found.len());
        if length != object.size || sums.len() as u64 != object.size.div_ceil(SUM) {
            return Err(Error::corrupt(
                format!("a cache file has {length} bytes instead of {}", object.size),
                path.display(),
            ));
        }
        Ok(Whole { object, path, file, sums })
    }

    /// Write the only block of a small object as a complete file.
    pub fn create(path: &Path, block: &Block) -> Result<()> {
        let done = create(path, 0o400).and_then(|file| write(&file, block.pieces(), 0));
        done.map_err(|error| {
            let _ = std::fs::remove_file(path);
            Error::io("cannot write a cache file", path.display(), &error)
        })
    }

    /// The descriptor, read-only.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Verified bytes: the 64 KiB that the range touches are read and checked, the range is cut out.
    pub fn read(&self, offset: u64, length: u32) -> Result<Bytes> {
        let end = (offset + u64::from(length)).min(self.object.size);
        if offset >= end {
            return Ok(Bytes::new());
        }
        let (from, until) = (offset / SUM, end.div_ceil(SUM));
        let cover = (until * SUM).min(self.object.size) - from * SUM;
        let sums = &self.sums[from as usize..until as usize];
        let bytes = read_verified(&self.file, &self.path, from * SUM, cover as usize, sums)?;
        let skip = (offset - from * SUM) as usize;
        Ok(bytes.slice(skip..skip + (end - offset) as usize))
    }

    /// Read and check every byte; what the store says about the whole is checked too, where it is known.
    pub fn verify(&self, told: Option<Checksum>) -> Result<()> {
        let mut digest = told.map(Checksum::digest);
        let mut at = 0;
        while at < self.object.size {
            let bytes = self.read(at, SMALL as u32)?;
            if let Some(digest) = &mut digest {
                digest.update(&bytes);
            }
            at += bytes.len() as u64;
        }
        match (digest, told) {
            (Some(digest), Some(told)) if !digest.matches(told) => {
                Err(Error::corrupt("a cache file differs from the checksum that the store gives", &*self.object))
            }
            _ => Ok(()),
        }
    }
}

/// The checksum of a file from those of its pieces.
fn whole_sum(sums: &[u64], size: u64) -> u64 {
    const FULL: crc64::Append = crc64::Append::bytes(SUM);
    let full = (size / SUM) as usize;
    let left = sums[..full].iter().fold(0, |left, right| FULL.combine(left, *right));
    let rest = sums[full..].first();
    rest.map_or(left, |right| crc64::Append::bytes(size % SUM).combine(left, *right))
}

fn read_verified(file: &File, path: &Path, offset: u64, length: usize, wanted: &[u64]) -> Result<Bytes> {
    let failed = |error| Error::corrupt(format!("cannot read a cache file: {error}"), path.display());
    let bytes = read(file, offset, length).map_err(failed)?;
    if bytes.len() < length {
        return Err(Error::corrupt("a cache file ends too early", path.display()));
    }
    let right = bytes.chunks(SUM as usize).map(crc64::of).eq(wanted.iter().copied());
    if !right {
        let what = format!("a cache file is damaged between byte {offset} and {}", offset + length as u64);
        return Err(Error::corrupt(what, path.display()));
    }
    Ok(bytes.into())
}

/// Bytes of a file, fewer only at its end. Into memory that was not cleared before: clearing it costs as much as
/// checking it (measured, 7 % of the processor time of a cold stream).
fn read(file: &File, offset: u64, length: usize) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_do_not_depend_on_how_the_network_cut_the_bytes() {
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n * 7 % 253) as u8).collect();
        let whole = sums(&[Bytes::from(bytes.clone())]);
        assert_eq!(whole.len(), 4);
        for cut in [1, 1_000, 65_535, 65_536, 65_537] {
            let pieces: Vec<Bytes> = bytes.chunks(cut).map(Bytes::copy_from_slice).collect();
            assert_eq!(sums(&pieces), whole, "cut every {cut}");
        }
        assert_eq!(whole_sum(&whole, bytes.len() as u64), crc64::of(&bytes));
        assert!(sums(&[]).is_empty());
    }
}
