//! What is done to files of the cache: made, written, read back and compared. Knows no index.
//!
//! Invariant: bytes that are given out were compared with their checksums.

use super::medium::{Handle, How, Medium};
use super::{log, medium};
use block::{Error, Kind, Result, SUM, crc64};
use bytes::Bytes;
use std::io::{ErrorKind, IoSlice};
use std::path::Path;
use std::sync::Arc;

/// Pieces of one vectored write (IOV_MAX of Linux is 1,024).
const PIECES_PER_WRITE: usize = 512;

/// Make the file of a segment. Nobody else has its name, so what is there is of no use to anybody.
pub fn create(medium: &dyn Medium, path: &Path, mode: u32) -> std::io::Result<Arc<dyn Handle>> {
    let open = || medium.open(path, How::Create { mode });
    open().or_else(|error| {
        match error.kind() {
            ErrorKind::NotFound => medium.make_folder(path.parent().expect("a file lies in a folder"))?,
            ErrorKind::AlreadyExists => medium.remove(path)?,
            _ => return Err(error),
        }
        open()
    })
}

/// Write pieces at an offset, all of them.
pub fn write(file: &dyn Handle, pieces: &[Bytes], mut offset: u64) -> std::io::Result<()> {
    for group in pieces.chunks(PIECES_PER_WRITE) {
        let total: usize = group.iter().map(Bytes::len).sum();
        let slices: Vec<IoSlice<'_>> = group.iter().map(|piece| IoSlice::new(piece)).collect();
        let wrote = match file.write(&slices, offset) {
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            wrote => wrote?,
        };
        if wrote < total {
            // Rare: a signal or a nearly full disk. The rest goes out piece by piece, with its true error.
            let mut skip = wrote;
            let mut at = offset + wrote as u64;
            for piece in group {
                let rest = &piece[skip.min(piece.len())..];
                skip -= skip.min(piece.len());
                log::write(file, rest, at)?;
                at += rest.len() as u64;
            }
        }
        offset += total as u64;
    }
    Ok(())
}

/// Bytes of a file, compared with these checksums, one for each 64 KiB.
pub fn read_verified(file: &dyn Handle, path: &Path, offset: u64, length: usize, wanted: &[u64]) -> Result<Bytes> {
    let bytes = log::read(file, offset, length).map_err(|error| failed("cannot read a cache file", path, &error))?;
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

/// Open a file that was written before. A wrong length is damage.
pub fn open(medium: &dyn Medium, path: &Path, how: How, bytes: u64) -> Result<Arc<dyn Handle>> {
    let doing = |error: std::io::Error| failed("cannot open a cache file", path, &error);
    let file = medium.open(path, how).map_err(doing)?;
    has_length(&*file, path, bytes)?;
    Ok(file)
}

/// An error if an open file is longer or shorter than this.
pub fn has_length(file: &dyn Handle, path: &Path, bytes: u64) -> Result<()> {
    let status = file.status().map_err(|error| failed("cannot look at a cache file", path, &error));
    let medium::Status { bytes: found, .. } = status?;
    if found != bytes {
        return Err(Error::corrupt(format!("a cache file has {found} bytes instead of {bytes}"), path.display()));
    }
    Ok(())
}

/// A failed call on a file. What the disk can't give back and what is not there or no file is damage; what this
/// process lacks for the moment (descriptors, memory, rights) is not.
pub fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    let is_damage = error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
        || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    match is_damage {
        true => Error::corrupt(format!("{doing}: {error}"), path.display()),
        false => Error::io(doing, path.display(), error),
    }
}

/// Whether a failure says that a file is of no use any more.
pub fn is_damage(error: &Error) -> bool {
    error.kind == Kind::Corrupt
}

/// The checksum of a file from those of its pieces.
pub fn whole_sum(sums: &[u64], size: u64) -> u64 {
    const FULL: crc64::Append = crc64::Append::bytes(SUM);
    let full = (size / SUM) as usize;
    let left = sums[..full].iter().fold(0, |left, right| FULL.combine(left, *right));
    let rest = sums[full..].first();
    rest.map_or(left, |right| crc64::Append::bytes(size % SUM).combine(left, *right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::sums;

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

    /// A file whose writes are interrupted, or short, in turn.
    struct Halting(std::fs::File, std::sync::atomic::AtomicUsize);

    impl Handle for Halting {
        fn read(&self, into: &mut Vec<u8>, at: u64) -> std::io::Result<usize> {
            self.0.read(into, at)
        }

        fn write(&self, pieces: &[IoSlice<'_>], at: u64) -> std::io::Result<usize> {
            match self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 3 {
                0 => Err(ErrorKind::Interrupted.into()),
                1 => self.0.write(&[IoSlice::new(&pieces[0][..pieces[0].len().min(3)])], at),
                _ => self.0.write(pieces, at),
            }
        }

        fn set_len(&self, bytes: u64) -> std::io::Result<()> {
            self.0.set_len(bytes)
        }

        fn sync(&self) -> std::io::Result<()> {
            Ok(())
        }

        fn status(&self) -> std::io::Result<medium::Status> {
            self.0.status()
        }

        fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn what_is_written_in_halting_steps_is_there_and_what_is_not_there_is_said() {
        let bytes: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
        for first in 0..3 {
            let file = Halting(tempfile::tempfile().expect("a file"), first.into());
            let pieces: Vec<Bytes> = bytes.chunks(7).map(Bytes::copy_from_slice).collect();
            write(&file, &pieces, 5).expect("written");
            let (path, sum) = (Path::new("it"), [crc64::of(&bytes)]);
            assert!(read_verified(&file, path, 5, bytes.len(), &sum).expect("verified") == bytes);
            let cut = read_verified(&file, path, 6, bytes.len(), &sum).expect_err("a byte is missing");
            assert!(is_damage(&cut) && cut.what.contains("too early"), "{cut}");
        }
    }
}
