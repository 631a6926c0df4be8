//! The bytes of a file as a stream. What lies in the page cache is read at once, on the thread that
//! sends it; what does not is waited for elsewhere, so that a slow disk holds up nobody else.
//!
//! Invariant: a stream ends with an error unless the file kept its version from opening to the last byte.

use crate::folder::Opened;
use crate::pool::{BUFFER, Loan, Pool};
use crate::version::Version;
use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use std::io::{Error, IoSliceMut, Result};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::JoinHandle;

/// A range of an open file, read buffer by buffer.
pub struct Content {
    file: Arc<OwnedFd>,
    version: Version,
    range: Range<u64>,
    pool: Arc<Pool>,
    waiting: Option<JoinHandle<Result<Bytes>>>,
}

impl Content {
    pub fn new(opened: Opened, range: Range<u64>, pool: Arc<Pool>) -> Content {
        Content { file: Arc::new(opened.file), version: opened.version, range, pool, waiting: None }
    }

    /// Bytes still to come.
    pub fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Leave out what comes after the next `length` bytes.
    pub fn shorten(&mut self, length: u64) {
        self.range.end = self.range.end.min(self.range.start + length);
    }

    /// The next piece; must not be called when nothing is left.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes>> {
        let piece = match &mut self.waiting {
            None => {
                let want = usize::try_from(self.left()).unwrap_or(usize::MAX).min(BUFFER);
                let mut loan = self.pool.lend();
                match read_cached(&self.file, &mut loan.space()[..want], self.range.start) {
                    Some(length) if length == want => loan.filled(want),
                    _ => {
                        let (file, offset) = (self.file.clone(), self.range.start);
                        let mut read = tokio::task::spawn_blocking(move || read_fully(&file, loan, want, offset));
                        let polled = Pin::new(&mut read).poll(context);
                        self.waiting = Some(read);
                        ready!(polled).map_err(Error::other)??
                    }
                }
            }
            Some(read) => ready!(Pin::new(read).poll(context)).map_err(Error::other)??,
        };
        self.waiting = None;
        self.range.start += piece.len() as u64;
        if self.range.is_empty() {
            unchanged(&self.file, &self.version)?;
        }
        Poll::Ready(Ok(piece))
    }

    /// All that is left as one piece, if it fits a buffer; waits for the disk where it must.
    pub async fn whole(&mut self) -> Result<Bytes> {
        assert!(self.left() <= BUFFER as u64, "more than a buffer holds");
        if self.range.is_empty() {
            return Ok(Bytes::new());
        }
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// CRC-64/NVME of the rest, which stays to be read.
    pub async fn checksum(&self) -> Result<u64> {
        let (file, range, pool) = (self.file.clone(), self.range.clone(), self.pool.clone());
        let sum = move || {
            let mut sum = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
            let mut at = range.start;
            while at < range.end {
                let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(BUFFER);
                let piece = read_fully(&file, pool.lend(), want, at)?;
                sum.update(&piece);
                at += want as u64;
            }
            Ok(sum.finalize())
        };
        tokio::task::spawn_blocking(sum).await.map_err(Error::other)?
    }
}

/// Read what the page cache holds; none where the file system cannot tell.
fn read_cached(file: &OwnedFd, space: &mut [u8], offset: u64) -> Option<usize> {
    match preadv2(file, &mut [IoSliceMut::new(space)], offset, ReadWriteFlags::NOWAIT) {
        Ok(length) => Some(length),
        // A file system without NOWAIT is mostly one in memory: an ordinary read waits for nothing.
        Err(Errno::OPNOTSUPP) => pread(file, space, offset).ok(),
        Err(_) => None,
    }
}

fn read_fully(file: &OwnedFd, mut loan: Loan, want: usize, offset: u64) -> Result<Bytes> {
    let mut done = 0;
    while done < want {
        match pread(file, &mut loan.space()[done..want], offset + done as u64) {
            Ok(0) => return Err(Error::other("the file became shorter while it was sent")),
            Ok(length) => done += length,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(loan.filled(want))
}

fn unchanged(file: &OwnedFd, version: &Version) -> Result<()> {
    let now = Version { changes: version.changes, ..Version::of(&rustix::fs::fstat(file)?) };
    if now == *version { Ok(()) } else { Err(Error::other("the file changed while it was sent")) }
}
