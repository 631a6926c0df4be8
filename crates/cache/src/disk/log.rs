//! The index log: one append-only file that says what lies in the cache folder.
//!
//! It is written after the bytes that it speaks of and never forced to the disk: a killed daemon loses
//! nothing (the kernel has the pages), a lost machine loses at most the tail, and what the log then says
//! of a file is checked against the file before it is believed (boot id, checksums).
//!
//! Invariant: the log is a prefix of what happened. The first damaged record ends it.

use super::record::Record;
use block::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// The first bytes of a log: eight letters and the format version. Another version is discarded, never guessed.
const HEADER: &[u8; 12] = b"STOKERLG\x02\0\0\0";

/// Bytes read at a time while replaying.
const REPLAY_BYTES: usize = 4 << 20;

/// Garbage worth a compaction: below this the log costs less than rewriting it.
const GARBAGE_BYTES_MIN: u64 = 32 << 20;

/// An open log.
pub struct Log {
    file: Arc<File>,
    path: Arc<Path>,
    bytes: u64,
}

/// Where a record lies. It can be read without the log, also after a rewrite: the old file is still there for it.
pub struct Entry {
    file: Arc<File>,
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

/// A record of a rewritten log.
pub enum Told {
    /// The one that lies at this offset so far.
    At(u64),
    New(Record),
}

impl Log {
    /// Open or create. What is in it is read by [`Log::replay`], which comes before anything else.
    pub fn open(path: &Path) -> Result<(Log, Found)> {
        let doing = |error: std::io::Error| Error::io("cannot open the cache index", path.display(), &error);
        let file = options().open(path).map_err(doing)?;
        let mut head = Vec::new();
        (&file).take(HEADER.len() as u64).read_to_end(&mut head).map_err(doing)?;
        let found = match &head[..] {
            [] => Found::New,
            head if head == HEADER => Found::Ours,
            _ => Found::Foreign,
        };
        let log = Log { file: Arc::new(file), path: path.into(), bytes: HEADER.len() as u64 };
        if found != Found::Ours {
            log.file.set_len(0).and_then(|()| log.file.write_all_at(HEADER, 0)).map_err(doing)?;
        }
        Ok((log, found))
    }

    /// Give every whole record with its offset to `each`, and cut a torn tail off.
    pub fn replay(&mut self, mut each: impl FnMut(Record, u64)) -> Result<()> {
        let doing = |error: std::io::Error| Error::io("cannot read the cache index", self.path.display(), &error);
        let end = self.records(&mut each).map_err(doing)?;
        self.file.set_len(end).map_err(doing)?;
        self.bytes = end;
        Ok(())
    }

    /// Add a record; its offset comes back.
    pub fn append(&mut self, record: &Record) -> Result<u64> {
        let bytes = record.encode();
        let at = self.bytes;
        self.file
            .write_all_at(&bytes, at)
            .map_err(|error| Error::io("cannot write the cache index", self.path.display(), &error))?;
        self.bytes += bytes.len() as u64;
        Ok(at)
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
        self.bytes.saturating_sub(live) > GARBAGE_BYTES_MIN.max(live)
    }

    /// Bytes of the log.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Replace the log by these records, atomically. Their new offsets come back in order.
    pub fn rewrite(&mut self, records: &[Told]) -> Result<Vec<u64>> {
        let beside = self.path.with_extension("new");
        let doing = |error: std::io::Error| Error::io("cannot compact the cache index", beside.display(), &error);
        let file = options().truncate(true).open(&beside).map_err(doing)?;
        let mut out = std::io::BufWriter::with_capacity(1 << 20, &file);
        out.write_all(HEADER).map_err(doing)?;
        let (mut bytes, mut offsets) = (HEADER.len() as u64, Vec::new());
        for told in records {
            let encoded = match told {
                Told::At(at) => self.read(*at)?.encode(),
                Told::New(record) => record.encode(),
            };
            out.write_all(&encoded).map_err(doing)?;
            offsets.push(bytes);
            bytes += encoded.len() as u64;
        }
        out.flush().map_err(doing)?;
        drop(out);
        std::fs::rename(&beside, &self.path).map_err(doing)?;
        (self.file, self.bytes) = (Arc::new(file), bytes);
        Ok(offsets)
    }

    /// Feed every whole record to `each`; the offset after the last one comes back.
    fn records(&self, each: &mut impl FnMut(Record, u64)) -> std::io::Result<u64> {
        let mut buffer = Vec::new();
        let (mut base, mut used) = (HEADER.len() as u64, 0);
        loop {
            while let Some((record, length)) = Record::decode(&buffer[used..]) {
                each(record, base + used as u64);
                used += length;
            }
            if !Record::is_cut(&buffer[used..]) {
                return Ok(base + used as u64);
            }
            buffer.drain(..used);
            base += used as u64;
            used = 0;
            let held = buffer.len();
            buffer.resize(held + REPLAY_BYTES, 0);
            let got = self.file.read_at(&mut buffer[held..], base + held as u64)?;
            buffer.truncate(held + got);
            if got == 0 {
                return Ok(base);
            }
        }
    }
}

impl Entry {
    pub fn read(&self) -> Result<Record> {
        let damaged = || Error::corrupt("the cache index is damaged", self.path.display());
        let mut frame = [0; 4];
        self.file.read_exact_at(&mut frame, self.at).map_err(|_| damaged())?;
        let length = super::record::FRAME as u64 + u64::from(u32::from_le_bytes(frame));
        if self.at + length > self.end {
            return Err(damaged());
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        self.file.read_exact_at(&mut bytes, self.at).map_err(|_| damaged())?;
        Record::decode(&bytes).map(|(record, _)| record).ok_or_else(damaged)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(path: &Path) -> (Vec<Record>, Found) {
        let mut seen = Vec::new();
        let (mut log, found) = Log::open(path).expect("log opens");
        log.replay(|record, _| seen.push(record)).expect("log replays");
        (seen, found)
    }

    #[test]
    fn a_torn_tail_is_cut_and_the_rest_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index");
        let (mut log, found) = Log::open(&path).expect("log opens");
        assert_eq!(found, Found::New);
        let at = log.append(&Record::Boot([1; 16])).expect("written");
        log.append(&Record::Boot([2; 16])).expect("written");
        assert_eq!(log.read(at).expect("read"), Record::Boot([1; 16]));
        let whole = std::fs::read(&path).expect("log");
        for cut in HEADER.len()..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("cut");
            let (seen, found) = replayed(&path);
            let expected = (cut - HEADER.len()) / (whole.len() - at as usize).div_ceil(2);
            assert_eq!((seen.len(), found), (expected, Found::Ours), "cut at {cut}");
        }
    }

    #[test]
    fn another_format_is_discarded_and_said_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index");
        std::fs::write(&path, b"STOKERLG\x01\0\0\0whatever").expect("written");
        assert_eq!(replayed(&path), (vec![], Found::Foreign));
        assert_eq!(replayed(&path), (vec![], Found::Ours));
    }

    #[test]
    fn a_rewrite_keeps_what_it_is_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index");
        let (mut log, _) = Log::open(&path).expect("log opens");
        for n in 0..100 {
            log.append(&Record::Boot([n; 16])).expect("written");
        }
        let offsets = log.rewrite(&[Told::New(Record::Boot([9; 16]))]).expect("rewritten");
        assert_eq!(log.read(offsets[0]).expect("read"), Record::Boot([9; 16]));
        log.append(&Record::Boot([8; 16])).expect("written");
        let error = log.entry(1 << 40).read().expect_err("nothing is there");
        assert_eq!(error.on, path.display().to_string(), "it names the log, not what was looked for");
        assert_eq!(replayed(&path).0, vec![Record::Boot([9; 16]), Record::Boot([8; 16])]);
    }
}
