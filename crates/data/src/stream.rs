//! A packed file on its way: bytes in their order, given on in large pieces, with a checksum of each record.
//!
//! It knows no format. Invariant: records follow each other in the file, and what was given on has the checksums that
//! are returned.

use block::Result;
use crc_fast::{CrcAlgorithm, Digest};

use super::Put;
use super::index::Record;
use super::noise::{LANES, Noise};

/// Bytes that are given on at once: they stay in the processor's cache from the noise over the checksums to the disk.
const PIECE: usize = 256 << 10;

/// What a file turned out to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    pub crc64: u64,
    /// Where it is more than one.
    pub records: Vec<Record>,
}

pub struct Stream<'a, 'b> {
    put: &'a mut Put<'b>,
    piece: Vec<u8>,
    filled: usize,
    /// Offset in the file of the first byte of the piece.
    at: u64,
    whole: Digest,
    record: Option<(u64, Span)>,
    payload: Option<Span>,
    records: Vec<Record>,
}

/// Bytes under a checksum; those from `from` in the piece are not in it yet.
struct Span {
    from: usize,
    digest: Digest,
}

impl Span {
    fn begin(from: usize, algorithm: CrcAlgorithm) -> Span {
        Span { from, digest: Digest::new(algorithm) }
    }

    fn take(&mut self, piece: &[u8]) {
        self.digest.update(&piece[self.from..]);
        self.from = 0;
    }
}

impl<'a, 'b> Stream<'a, 'b> {
    pub fn into(put: &'a mut Put<'b>) -> Stream<'a, 'b> {
        Stream {
            put,
            piece: vec![0; PIECE],
            filled: 0,
            at: 0,
            whole: Digest::new(CrcAlgorithm::Crc64Nvme),
            record: None,
            payload: None,
            records: Vec::new(),
        }
    }

    pub fn bytes(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.filled));
            self.piece[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.advance(now.len())?;
            bytes = later;
        }
        Ok(())
    }

    pub fn noise(&mut self, noise: &mut Noise, mut bytes: u64) -> Result<()> {
        while bytes > 0 {
            let room = (PIECE - self.filled).min(usize::try_from(bytes).unwrap_or(usize::MAX));
            fill(noise, &mut self.piece[self.filled..self.filled + room]);
            self.advance(room)?;
            bytes -= room as u64;
        }
        Ok(())
    }

    /// What follows belongs to a record.
    pub fn begin_record(&mut self) {
        let offset = self.at + self.filled as u64;
        self.record = Some((offset, Span::begin(self.filled, CrcAlgorithm::Crc64Nvme)));
    }

    pub fn end_record(&mut self) {
        let (offset, mut span) = self.record.take().expect("a record was begun");
        span.take(&self.piece[..self.filled]);
        let bytes = self.at + self.filled as u64 - offset;
        self.records.push(Record { offset, bytes, crc64: span.digest.finalize() });
    }

    /// What follows is summed by CRC-32C, too.
    pub fn begin_payload(&mut self) {
        self.payload = Some(Span::begin(self.filled, CrcAlgorithm::Crc32Iscsi));
    }

    pub fn end_payload(&mut self) -> u32 {
        let mut span = self.payload.take().expect("a payload was begun");
        span.take(&self.piece[..self.filled]);
        u32::try_from(span.digest.finalize()).expect("32 bits")
    }

    pub fn finish(mut self) -> Result<Made> {
        self.flush()?;
        // A single record that is the whole file needs no index.
        let is_whole = matches!(&self.records[..], [only] if only.offset == 0 && only.bytes == self.at);
        let records = if is_whole { Vec::new() } else { self.records };
        Ok(Made { crc64: self.whole.finalize(), records })
    }

    fn advance(&mut self, by: usize) -> Result<()> {
        self.filled += by;
        if self.filled == PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let piece = &self.piece[..self.filled];
        self.whole.update(piece);
        if let Some((_, span)) = &mut self.record {
            span.take(piece);
        }
        if let Some(span) = &mut self.payload {
            span.take(piece);
        }
        (self.put)(self.at, piece)?;
        self.at += self.filled as u64;
        self.filled = 0;
        Ok(())
    }
}

/// Fills a buffer with noise; what the last draw has too much is dropped.
pub fn fill(noise: &mut Noise, buffer: &mut [u8]) {
    let mut turns = buffer.chunks_exact_mut(LANES * 4);
    for turn in &mut turns {
        for (four, drawn) in turn.chunks_exact_mut(4).zip(noise.draw()) {
            four.copy_from_slice(&drawn.to_le_bytes());
        }
    }
    let rest = turns.into_remainder();
    for (four, drawn) in rest.chunks_mut(4).zip(noise.draw()) {
        four.copy_from_slice(&drawn.to_le_bytes()[..four.len()]);
    }
}
