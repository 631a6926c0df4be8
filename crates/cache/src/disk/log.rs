//! The index log: one append-only file that says what lies in the cache folder.
//!
//! It is written after the bytes that it speaks of and not forced to the disk, but for a draft that is to take its
//! place: a killed daemon loses nothing (the kernel has the pages), a lost machine loses at most the tail, and what the
//! log then says of a file is checked against the file before it is believed (boot id, checksums).
//!
//! Invariant: the log is a prefix of what happened. The first damaged record ends it.

use super::medium::{Handle, How, Medium, is_gone};
use super::record::Record;
use block::{Error, Result};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first bytes of a log: eight letters and the format version. Another version is discarded, never guessed.
const HEADER: &[u8; 12] = b"STOKERLG\x03\0\0\0";

/// Bytes read at a time while replaying, and written at a time while rewriting.
const PASSAGE_BYTES: usize = 4 << 20;

/// Garbage worth a compaction: below this the log costs less than rewriting it.
const GARBAGE_BYTES_MIN: u64 = 32 << 20;

/// The length of a log that could not be read.
const UNREAD: u64 = u64::MAX;

/// An open log. A clone stands for the same file, and knows what was written into it up to its making.
#[derive(Clone)]
pub struct Log {
    medium: Arc<dyn Medium>,
    file: Arc<dyn Handle>,
    path: Arc<Path>,
    bytes: u64,
    /// Whether the file ends where the log does. Nothing is appended in front of what was not cut off: it would be
    /// taken for records that came later.
    is_cut: bool,
}

/// Where a record lies. It can be read without the log, also after a rewrite: the old file is still there for it.
pub struct Entry {
    file: Arc<dyn Handle>,
    path: Arc<Path>,
    pub at: u64,
    /// Where the log ended.
    end: u64,
}

/// How a log was found at opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There was none.
    New,
    /// It was of this format.
    Ours,
    /// It was something else: the caller discards what lies beside it.
    Foreign,
}

/// A log before it has its name.
pub struct Draft {
    file: Arc<dyn Handle>,
    path: PathBuf,
    /// Where it ends.
    pub bytes: u64,
    of: Arc<dyn Handle>,
    /// Where the log ended of which it is the draft.
    pub copied: u64,
}

/// A record of a draft.
pub enum Line {
    /// The one that lies at this offset so far.
    At(u64),
    New(Record),
}

impl Log {
    /// Open or create. What is in it is read by [`Log::replay`], which comes before anything else.
    pub fn open(medium: Arc<dyn Medium>, path: &Path) -> Result<(Log, Found)> {
        let doing = |error: std::io::Error| Error::io("cannot open the cache index", path.display(), &error);
        // Of a program that was killed while it wrote it.
        let _ = medium.remove(&draft_of(path));
        let file = medium.open(path, How::OpenOrCreate).map_err(doing)?;
        let head = read(&*file, 0, HEADER.len()).map_err(doing)?;
        let found = match &head[..] {
            [] => Found::New,
            head if head == HEADER => Found::Ours,
            _ => Found::Foreign,
        };
        let bytes = if found == Found::Ours { UNREAD } else { HEADER.len() as u64 };
        let log = Log { medium, file, path: path.into(), bytes, is_cut: found != Found::Ours };
        if found != Found::Ours {
            log.file.set_len(0).and_then(|()| write(&*log.file, HEADER, 0)).map_err(doing)?;
        }
        Ok((log, found))
    }

    /// Give every whole record to `each`, with its offset and its bytes, and cut a torn tail off. True if there was
    /// none. What can't be read for want of memory is still there: then nothing is cut, and nothing appended.
    pub fn replay(&mut self, mut each: impl FnMut(Record, u64, u32)) -> Result<bool> {
        let doing = |error: std::io::Error| Error::io("cannot read the cache index", self.path.display(), &error);
        self.bytes = UNREAD;
        let end = self.records(&mut each).map_err(doing)?;
        let is_whole = self.file.status().is_ok_and(|status| status.bytes == end);
        self.bytes = end;
        self.is_cut = is_whole || self.file.set_len(end).is_ok();
        Ok(is_whole)
    }

    /// Add a record; its offset and its bytes come back.
    pub fn append(&mut self, record: &Record) -> Result<(u64, u32)> {
        let (bytes, at) = (record.encode(), self.bytes);
        let doing = |error: std::io::Error| Error::io("cannot write the cache index", self.path.display(), &error);
        self.must_be_read()?;
        if !self.is_cut {
            self.file.set_len(at).map_err(doing)?;
            self.is_cut = true;
        }
        if let Err(error) = write(&*self.file, &bytes, at) {
            // What was written of it would be taken for records once shorter ones have overwritten its head.
            self.is_cut = self.file.set_len(at).is_ok();
            return Err(doing(error));
        }
        self.bytes += bytes.len() as u64;
        Ok((at, bytes.len() as u32))
    }

    /// The record at an offset that [`Log::append`] or the replay gave.
    pub fn read(&self, at: u64) -> Result<Record> {
        self.entry(at).read()
    }

    /// The same, to be read later.
    pub fn entry(&self, at: u64) -> Entry {
        Entry { file: self.file.clone(), path: self.path.clone(), at, end: self.bytes }
    }

    /// Whether a rewrite that keeps `live` bytes is worth its cost.
    pub fn wants_compaction(&self, live: u64) -> bool {
        self.is_read() && self.bytes.saturating_sub(live) > GARBAGE_BYTES_MIN.max(live)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the log.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the file still has a name: without one, what is written into it is lost with this process. Where nobody
    /// can tell, it has.
    pub fn is_linked(&self) -> bool {
        self.file.status().map_or(true, |status| status.is_linked)
    }

    /// Whether the disk still gives what was written: one that fell off its bus, or whose file system shut itself down, doesn't.
    pub fn is_readable(&self) -> bool {
        !self.file.read(&mut Vec::with_capacity(1), 0).is_err_and(|error| is_gone(&error))
    }

    /// Whether it is still what its path leads to, and ends where this program left it: nobody else wrote into it, if
    /// nobody does now.
    pub fn is_as_it_was(&self) -> bool {
        let there = self.medium.open(&self.path, How::Read).and_then(|file| file.status());
        there.is_ok_and(|there| there.bytes == self.bytes && self.file.status().is_ok_and(|ours| ours == there))
    }

    /// Write these records into a file beside the log, and wait until the disk has them: without that, the name of the
    /// log could reach the disk before the bytes, and a lost machine would lose all that the log ever held. Their offsets
    /// come back in order. More may be written into the log meanwhile.
    pub fn draft(&self, lines: impl Iterator<Item = Line>) -> Result<(Draft, Vec<u64>)> {
        self.must_be_read()?;
        let beside = draft_of(&self.path);
        let doing = |error: std::io::Error| Error::io("cannot compact the cache index", beside.display(), &error);
        let file = self.medium.open(&beside, How::OpenOrCreate).map_err(doing)?;
        file.set_len(0).map_err(doing)?;
        let (mut written, mut offsets, mut passage) = (0, Vec::new(), HEADER.to_vec());
        for line in lines {
            offsets.push(written + passage.len() as u64);
            match line {
                Line::At(at) => passage.extend(self.read(at)?.encode()),
                Line::New(record) => passage.extend(record.encode()),
            }
            if passage.len() >= PASSAGE_BYTES {
                write(&*file, &passage, written).map_err(doing)?;
                written += passage.len() as u64;
                passage.clear();
            }
        }
        write(&*file, &passage, written).map_err(doing)?;
        file.sync().map_err(doing)?;
        let bytes = written + passage.len() as u64;
        Ok((Draft { file, path: beside, bytes, of: self.file.clone(), copied: self.bytes }, offsets))
    }

    /// Let a draft take the place of the log, atomically, with what was written into the log since. False if it is the draft of
    /// another log by now.
    pub fn adopt(&mut self, draft: &Draft) -> Result<bool> {
        if !Arc::ptr_eq(&self.file, &draft.of) {
            return Ok(false);
        }
        let doing = |error: std::io::Error| Error::io("cannot compact the cache index", draft.path.display(), &error);
        let (mut from, mut bytes) = (draft.copied, draft.bytes);
        while from < self.bytes {
            let length = (self.bytes - from).min(PASSAGE_BYTES as u64);
            let passage = read(&*self.file, from, length as usize).map_err(doing)?;
            if passage.is_empty() {
                return Err(doing(std::io::ErrorKind::UnexpectedEof.into()));
            }
            write(&*draft.file, &passage, bytes).map_err(doing)?;
            (from, bytes) = (from + passage.len() as u64, bytes + passage.len() as u64);
        }
        self.medium.rename(&draft.path, &self.path).map_err(doing)?;
        (self.file, self.bytes, self.is_cut) = (draft.file.clone(), bytes, true);
        Ok(true)
    }

    /// Whether it was read to its end, so that more can be appended.
    pub fn is_read(&self) -> bool {
        self.bytes != UNREAD
    }

    fn must_be_read(&self) -> Result<()> {
        let unread = || Error::unavailable("the cache index could not be read", self.path.display());
        if self.is_read() { Ok(()) } else { Err(unread()) }
    }

    /// Feed every whole record to `each`; the offset after the last one comes back.
    fn records(&self, each: &mut impl FnMut(Record, u64, u32)) -> std::io::Result<u64> {
        let mut buffer = Vec::new();
        let (mut base, mut used) = (HEADER.len() as u64, 0);
        loop {
            while let Some((record, length)) = Record::decode(&buffer[used..]) {
                each(record, base + used as u64, length as u32);
                used += length;
            }
            if !Record::is_cut(&buffer[used..]) {
                return Ok(base + used as u64);
            }
            buffer.drain(..used);
            base += used as u64;
            used = 0;
            let more = match read(&*self.file, base + buffer.len() as u64, PASSAGE_BYTES) {
                // What the disk can't give back any more ends the log as other damage does.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => return Ok(base),
                more => more?,
            };
            if more.is_empty() {
                return Ok(base);
            }
            buffer.extend(more);
        }
    }
}

impl Entry {
    pub fn read(&self) -> Result<Record> {
        let damaged = || Error::corrupt("the cache index is damaged", self.path.display());
        let bytes = |length| {
            read(&*self.file, self.at, length)
                .map_err(|error| Error::io("cannot read the cache index", self.path.display(), &error))
        };
        let frame = bytes(4)?.try_into().map_err(|_| damaged())?;
        let length = super::record::FRAME as u64 + u64::from(u32::from_le_bytes(frame));
        if self.at + length > self.end {
            return Err(damaged());
        }
        let bytes = bytes(usize::try_from(length).map_err(|_| damaged())?)?;
        Record::decode(&bytes).map(|(record, _)| record).ok_or_else(damaged)
    }
}

fn draft_of(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Bytes of a file, fewer only at its end.
pub fn read(file: &dyn Handle, at: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let from = at + bytes.len() as u64;
        match file.read(&mut bytes, from) {
            Ok(0) => break,
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    // A vector may have room for more than was asked.
    bytes.truncate(length);
    Ok(bytes)
}

/// Write all of the bytes.
pub fn write(file: &dyn Handle, mut bytes: &[u8], mut at: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match file.write(&[IoSlice::new(bytes)], at) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(wrote) => (bytes, at) = (&bytes[wrote..], at + wrote as u64),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::medium::System;

    fn open(path: &Path) -> (Log, Found) {
        Log::open(Arc::new(System), path).expect("log opens")
    }

    fn replayed(path: &Path) -> (Vec<Record>, Found) {
        let mut seen = Vec::new();
        let (mut log, found) = open(path);
        log.replay(|record, _, _| seen.push(record)).expect("log replays");
        (seen, found)
    }

    #[test]
    fn a_torn_tail_is_cut_and_the_rest_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index");
        let (mut log, found) = open(&path);
        assert_eq!(found, Found::New);
        let (at, length) = log.append(&Record::Boot([1; 16])).expect("written");
        log.append(&Record::Boot([2; 16])).expect("written");
        assert_eq!(log.read(at).expect("read"), Record::Boot([1; 16]));
        let whole = std::fs::read(&path).expect("log");
        for cut in HEADER.len()..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("cut");
            let (seen, found) = replayed(&path);
            let expected = (cut - HEADER.len()) / length as usize;
            assert_eq!((seen.len(), found), (expected, Found::Ours), "cut at {cut}");
        }
    }

    #[test]
    fn another_format_is_discarded_and_said_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index");
        std::fs::write(&path, b"STOKERLG\x02\0\0\0whatever").expect("written");
        assert_eq!(replayed(&path), (vec![], Found::Foreign));
        assert_eq!(replayed(&path), (vec![], Found::Ours));
    }

    #[test]
    fn a_draft_keeps_what_it_is_given_and_what_came_since() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index");
        let (mut log, _) = open(&path);
        for n in 0..100 {
            log.append(&Record::Boot([n; 16])).expect("written");
        }
        let (draft, offsets) = log.draft(std::iter::once(Line::New(Record::Boot([9; 16])))).expect("drafted");
        let (late, _) = log.append(&Record::Boot([7; 16])).expect("written");
        assert!(log.adopt(&draft).expect("adopted") && !log.adopt(&draft).expect("refused"), "once");
        assert_eq!(log.read(offsets[0]).expect("read"), Record::Boot([9; 16]));
        assert_eq!(log.read(late - draft.copied + draft.bytes).expect("moved"), Record::Boot([7; 16]));
        log.append(&Record::Boot([8; 16])).expect("written");
        let error = log.entry(1 << 40).read().expect_err("nothing is there");
        assert_eq!(error.on, path.display().to_string(), "it names the log, not what was looked for");
        assert_eq!(replayed(&path).0, [9, 7, 8].map(|n| Record::Boot([n; 16])));
    }
}
