//! The kernel's file systems.

use super::{Handle, How, Made, Medium, Space, Status};
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, fstat, statvfs, statx};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Files of this machine.
pub struct System;

/// Whether this is said by a disk that fell off its bus, or whose file system shut itself down: it gives errors alone.
pub fn is_gone(error: &std::io::Error) -> bool {
    const GONE: [Errno; 6] = [Errno::IO, Errno::NODEV, Errno::NXIO, Errno::SHUTDOWN, Errno::NOTCONN, Errno::STALE];
    GONE.iter().any(|gone| error.raw_os_error() == Some(gone.raw_os_error()))
}

impl Medium for System {
    fn open(&self, path: &Path, how: How) -> Result<Arc<dyn Handle>> {
        let mut options = File::options();
        match how {
            How::Read => options.read(true),
            How::Write => options.read(true).write(true),
            How::OpenOrCreate => options.read(true).write(true).create(true).truncate(false).mode(0o600),
            How::Create { mode } => options.read(true).write(true).create_new(true).mode(mode),
        };
        // A link in the place of a file would lead out of the cache folder, and a pipe be waited for, for ever.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
        Ok(Arc::new(options.open(path)?))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).or_else(|error| match error.kind() {
            ErrorKind::IsADirectory => std::fs::remove_dir_all(path),
            _ => Err(error),
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to)
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        let is_there = || std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && is_there() => Ok(()),
            made => made,
        }
    }

    fn folder(&self, path: &Path) -> Result<Made> {
        let found = std::fs::symlink_metadata(path)?;
        match found.is_dir() {
            true => Ok((found.ino(), found.dev(), found.created().ok())),
            false => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let names = std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name().into_string()));
        names.filter_map(|name| name.map(|name| name.ok()).transpose()).collect()
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let found = statvfs(path)?;
        let free_files = (found.f_files > 0).then_some(found.f_favail);
        Ok(Space { free_bytes: found.f_bavail * found.f_frsize, free_files })
    }

    /// The device and the number of its mount, which Linux 6.8 and later never gives twice. Earlier ones do, so there
    /// each start finds another number.
    fn mounted(&self, path: &Path) -> Result<u128> {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS | MNT_ID_UNIQUE)?;
        let device = u128::from(found.stx_dev_major) << 32 | u128::from(found.stx_dev_minor);
        let now = || {
            let now = clock_gettime(ClockId::Boottime);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        let is_given = found.stx_mask & MNT_ID_UNIQUE.bits() != 0;
        Ok(device << 64 | u128::from(if is_given { found.stx_mnt_id } else { now() }))
    }

    fn is_instant(&self) -> bool {
        false
    }
}

/// `STATX_MNT_ID_UNIQUE` of `linux/stat.h`.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Whether the kernel has all of these bytes of a file in memory. False where it can't tell: before Linux 6.5, or where a
/// container forbids to ask.
pub fn is_cached(file: BorrowedFd<'_>, at: u64, length: u64) -> bool {
    /// `cachestat`, which has the same number on all machines.
    const CACHESTAT: libc::c_long = 451;
    let page = rustix::param::page_size() as u64;
    let pages = (at + length).div_ceil(page) - at / page;
    // Offset and length; then pages in memory, dirty, being written, evicted, and evicted just now (linux/mman.h).
    let (range, mut found) = ([at, length], [0u64; 5]);
    // SAFETY: the kernel reads the first and writes the second structure, which are as long as it defines them, and keeps
    // neither.
    let asked = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0) };
    asked == 0 && found[0] >= pages
}

impl Handle for File {
    fn read(&self, into: &mut Vec<u8>, at: u64) -> Result<usize> {
        // Into memory that was not cleared before: clearing it costs as much as checking it (measured, 7 % of the
        // processor time of a cold stream).
        Ok(rustix::io::pread(self, rustix::buffer::spare_capacity(into), at)?)
    }

    fn write(&self, pieces: &[IoSlice<'_>], at: u64) -> Result<usize> {
        Ok(rustix::io::pwritev(self, pieces, at)?)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        File::set_len(self, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.sync_data()
    }

    fn status(&self) -> Result<Status> {
        let found = fstat(self)?;
        Ok(Status { bytes: found.st_size as u64, is_linked: found.st_nlink > 0, number: (found.st_ino, found.st_dev) })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_in_memory_is_told_from_what_it_has_not() {
        use rustix::fs::{Advice, fadvise};
        use std::os::unix::fs::FileExt;
        // Not in memory, as scratch folders may be: what lies there alone can't leave it.
        let file = tempfile::tempfile_in(std::env::current_dir().expect("a folder")).expect("a file");
        file.write_all_at(&[1; 300_000], 0).expect("written");
        if !is_cached(file.as_fd(), 0, 300_000) {
            return assert!(!is_cached(file.as_fd(), 4096, 1), "SKIPPED: this kernel doesn't tell");
        }
        assert!(is_cached(file.as_fd(), 299_999, 1) && is_cached(file.as_fd(), 4095, 2));
        file.sync_all().expect("on the disk");
        fadvise(&file, 0, None, Advice::DontNeed).expect("dropped");
        assert!(!is_cached(file.as_fd(), 0, 1) && !is_cached(file.as_fd(), 65_536, 65_536));
        file.read_at(&mut [0; 1], 0).expect("read");
        assert!(is_cached(file.as_fd(), 0, 1));
    }

    #[test]
    fn what_is_no_folder_is_not_taken_for_one_that_is_there() {
        let scratch = tempfile::tempdir().expect("a folder");
        let at = |name: &str| scratch.path().join(name);
        System.make_folder(&at("folder")).expect("made");
        System.make_folder(&at("folder")).expect("it is there");
        std::fs::write(at("file"), b"").expect("a file");
        std::os::unix::fs::symlink(at("folder"), at("link")).expect("a link");
        for name in ["file", "link"] {
            assert!(
                System.make_folder(&at(name)).is_err_and(|error| error.kind() == ErrorKind::AlreadyExists),
                "{name}"
            );
        }
        assert!(System.make_folder(&at("none/folder")).is_err());
    }
}
