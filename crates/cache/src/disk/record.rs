//! Records of the index log: what each says, and its bytes. Reads hostile bytes; does no input or output.
//!
//! A record is `length: u32 | checksum: u64 | payload`, little endian; the checksum is CRC-64/NVME of the
//! payload. The payload is `kind: u8` and the fields of the kind. `docs/format.md` draws it.
//!
//! Invariant: bytes that were not written by [`Record::encode`] do not decode, and never panic.

use super::segment::{Residency, Segment};
use block::{Object, ObjectId, SUM, crc64};
use std::sync::Arc;

/// Bytes before the payload.
pub const FRAME: usize = 12;

/// A payload holds an identity (keys and versions of at most a few KiB) or the checksums of one segment: at 16
/// a mebibyte, sixteen mebibytes are the checksums of 128 GiB. Longer ones are damage.
const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Objects over 96 GiB are kept in stripes: the record of their checksums would be too long.
pub const WHOLE_BYTES_MAX: u64 = 96 << 30;

const _: () = assert!(WHOLE_BYTES_MAX / SUM * 8 + (1 << 20) < PAYLOAD_BYTES_MAX as u64);

/// One thing that happened to the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// From here on the machine runs under this boot id.
    Boot([u8; 16]),
    /// A segment has a file; none of its blocks is there yet.
    Started { segment: Segment, number: u32 },
    /// A block was verified and lies in the file; one checksum per 64 KiB.
    Block { residency: Residency, index: u32, sums: Vec<u64> },
    /// Every block is there and the whole was checked; one checksum per 64 KiB of the segment.
    Complete { segment: Segment, number: u32, sums: Vec<u64> },
    /// A complete file was read again and found whole under the current boot.
    Verified(Residency),
    /// The file was unlinked.
    Gone(Residency),
}

impl Record {
    /// The record with its frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; FRAME];
        match self {
            Record::Boot(boot) => {
                out.push(1);
                out.extend_from_slice(boot);
            }
            Record::Started { segment, number } => {
                out.push(2);
                put_segment(&mut out, segment, *number);
            }
            Record::Block { residency, index, sums } => {
                out.push(3);
                put_residency(&mut out, residency);
                out.extend_from_slice(&index.to_le_bytes());
                put_sums(&mut out, sums);
            }
            Record::Complete { segment, number, sums } => {
                out.push(4);
                put_segment(&mut out, segment, *number);
                put_sums(&mut out, sums);
            }
            Record::Verified(residency) => {
                out.push(5);
                put_residency(&mut out, residency);
            }
            Record::Gone(residency) => {
                out.push(6);
                put_residency(&mut out, residency);
            }
        }
        let length = u32::try_from(out.len() - FRAME).expect("a record is far below 4 GiB");
        let sum = crc64::of(&out[FRAME..]);
        out[..4].copy_from_slice(&length.to_le_bytes());
        out[4..FRAME].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Whether more bytes could make a record of these: they end before it does.
    pub fn is_cut(bytes: &[u8]) -> bool {
        let length = Reader(bytes).u32();
        length.is_none_or(|length| length as usize <= PAYLOAD_BYTES_MAX && bytes.len() < FRAME + length as usize)
    }

    /// The first record of some bytes and its length with the frame; `None` at the end or at damage.
    pub fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
        let mut head = Reader(bytes);
        let length = head.u32()? as usize;
        let sum = head.u64()?;
        if length > PAYLOAD_BYTES_MAX {
            return None;
        }
        let payload = head.take(length)?;
        if crc64::of(payload) != sum {
            return None;
        }
        let mut reader = Reader(payload);
        let record = match reader.take(1)?[0] {
            1 => Record::Boot(reader.take(16)?.try_into().ok()?),
            2 => {
                let (segment, number) = reader.segment()?;
                Record::Started { segment, number }
            }
            3 => Record::Block { residency: reader.residency()?, index: reader.u32()?, sums: reader.sums()? },
            4 => {
                let ((segment, number), sums) = (reader.segment()?, reader.sums()?);
                let fits = sums.len() as u64 == segment.bytes().div_ceil(SUM);
                fits.then_some(Record::Complete { segment, number, sums })?
            }
            5 => Record::Verified(reader.residency()?),
            6 => Record::Gone(reader.residency()?),
            _ => return None,
        };
        reader.0.is_empty().then_some((record, FRAME + length))
    }
}

fn put_residency(out: &mut Vec<u8>, residency: &Residency) {
    out.extend_from_slice(&residency.id.0.to_le_bytes());
    out.extend_from_slice(&residency.number.to_le_bytes());
}

fn put_segment(out: &mut Vec<u8>, segment: &Segment, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&segment.blocks.start.to_le_bytes());
    out.extend_from_slice(&segment.blocks.end.to_le_bytes());
    let object = &segment.object;
    out.extend_from_slice(&object.size.to_le_bytes());
    for text in [&*object.store, &object.key, &object.version] {
        let length = u32::try_from(text.len()).expect("names are far below 4 GiB");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

fn put_sums(out: &mut Vec<u8>, sums: &[u64]) {
    out.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
}

/// Fields taken off the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn residency(&mut self) -> Option<Residency> {
        let id = ObjectId(u128::from_le_bytes(self.take(16)?.try_into().ok()?));
        Some(Residency { id, number: self.u32()? })
    }

    fn segment(&mut self) -> Option<(Segment, u32)> {
        let (number, start, end) = (self.u32()?, self.u32()?, self.u32()?);
        Some((Segment::read(self.object()?, start..end)?, number))
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn object(&mut self) -> Option<Arc<Object>> {
        let size = self.u64()?;
        let (store, key, version) = (self.text()?, self.text()?, self.text()?);
        Some(Arc::new(Object { store: store.into(), key: key.into(), version: version.into(), size }))
    }

    /// All that is left, as checksums.
    fn sums(&mut self) -> Option<Vec<u64>> {
        let (words, rest) = self.0.as_chunks::<8>();
        if !rest.is_empty() {
            return None;
        }
        self.0 = rest;
        Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> Vec<Record> {
        let object =
            Arc::new(Object { store: "s3://b".into(), key: "käse/1".into(), version: "\"e\"".into(), size: 70_000 });
        let segment = Segment::whole(&object);
        let residency = Residency { id: segment.id(), number: 9 };
        vec![
            Record::Boot([7; 16]),
            Record::Started { segment: segment.clone(), number: 9 },
            Record::Block { residency, index: 3, sums: vec![1, u64::MAX] },
            Record::Complete { segment, number: 9, sums: vec![5, 6] },
            Record::Verified(residency),
            Record::Gone(residency),
        ]
    }

    #[test]
    fn records_follow_each_other_in_a_log() {
        let log: Vec<u8> = samples().iter().flat_map(Record::encode).collect();
        let mut rest = &log[..];
        for sample in samples() {
            let (record, length) = Record::decode(rest).expect("a whole record");
            assert_eq!(record, sample);
            rest = &rest[length..];
        }
        assert!(Record::decode(rest).is_none());
    }

    #[test]
    fn a_record_that_is_cut_may_be_ended_and_no_other() {
        for sample in samples().iter().map(Record::encode) {
            (0..sample.len()).for_each(|length| assert!(Record::is_cut(&sample[..length])));
            assert!(!Record::is_cut(&sample), "it ends where it ends");
        }
        let head = |length: usize| (length as u32).to_le_bytes();
        assert!(Record::is_cut(&head(PAYLOAD_BYTES_MAX)));
        assert!(!Record::is_cut(&head(PAYLOAD_BYTES_MAX + 1)), "no record is as long");
    }

    proptest! {
        #[test]
        fn a_damaged_record_is_never_believed(which in 0usize..6, at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = samples()[which].encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Record::decode(&bytes).is_none());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), framed in any::<bool>()) {
            let mut bytes = bytes;
            if framed && bytes.len() > FRAME {
                let (length, sum) = ((bytes.len() - FRAME) as u32, crc64::of(&bytes[FRAME..]));
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[4..FRAME].copy_from_slice(&sum.to_le_bytes());
            }
            let _ = Record::decode(&bytes);
        }
    }
}
