//! Where the records of a packed file lie, and the checksum of each: a small file beside the set for each packed file.
//!
//! Its bytes: `STOKERI1`; the number of records and the offset of the first, each of eight bytes, little end first; for
//! each record its length and its CRC-64/NVME, eight bytes each; the CRC-64/NVME of all that. Records follow each other
//! without a gap. Invariant: an index that was torn or belongs to another file is refused, not half read.

use block::{Error, Result, crc64};

/// Folder of the indexes, below that of the set.
pub const INDEXES: &str = ".stoker-index";

const MAGIC: &[u8; 8] = b"STOKERI1";
const HEAD: usize = 24;
const EACH: usize = 16;
const TAIL: usize = 8;

/// A piece of a file that a loader reads by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of its first byte in the file.
    pub offset: u64,
    pub bytes: u64,
    /// CRC-64/NVME of these bytes.
    pub crc64: u64,
}

impl Record {
    /// Whether these are the bytes of the record, all of them.
    pub fn check(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.bytes && crc64::of(bytes) == self.crc64
    }
}

/// Name of the index of a file, below the folder of the set.
pub fn name(path: &str) -> String {
    format!("{INDEXES}/{path}.index")
}

/// Bytes of an index of so many records.
pub fn bytes(records: u64) -> u64 {
    records * EACH as u64 + (HEAD + TAIL) as u64
}

pub fn encode(records: &[Record]) -> Vec<u8> {
    let first = records.first().map_or(0, |record| record.offset);
    let mut out = Vec::with_capacity(records.len() * EACH + HEAD + TAIL);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(records.len() as u64).to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
    for record in records {
        out.extend_from_slice(&record.bytes.to_le_bytes());
        out.extend_from_slice(&record.crc64.to_le_bytes());
    }
    let sum = crc64::of(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// `path` and `file_bytes` are of the file that the index is about.
pub fn decode(index: &[u8], path: &str, file_bytes: u64) -> Result<Vec<Record>> {
    let wrong = |what: &str| {
        let hint = "make the data set again in the same folder: what stands is kept, indexes are written anew";
        Err(Error::corrupt(format!("the index {what}"), name(path)).hint(hint))
    };
    let number = |at: usize| u64::from_le_bytes(index[at..at + 8].try_into().expect("eight bytes"));
    if index.len() < HEAD + TAIL || &index[..8] != MAGIC {
        return wrong("is none");
    }
    let body = &index[..index.len() - TAIL];
    if crc64::of(body) != number(body.len()) {
        return wrong("is damaged");
    }
    if (body.len() - HEAD) as u64 != number(8).saturating_mul(EACH as u64) {
        return wrong("has another length than it says");
    }
    let mut offset = number(16);
    let mut records = Vec::with_capacity((body.len() - HEAD) / EACH);
    for at in (HEAD..body.len()).step_by(EACH) {
        let record = Record { offset, bytes: number(at), crc64: number(at + 8) };
        let Some(next) = offset.checked_add(record.bytes).filter(|&next| next <= file_bytes) else {
            return wrong("reaches past the end of its file");
        };
        offset = next;
        records.push(record);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_as_it_was_written_or_refused() {
        let records = [(12, 5), (17, 0), (17, 90)].map(|(offset, bytes)| Record { offset, bytes, crc64: offset * 7 });
        let index = encode(&records);
        assert_eq!(index.len() as u64, bytes(3));
        assert_eq!(decode(&index, "f", 107).unwrap(), records);
        assert!(decode(&index, "f", 106).is_err(), "of a longer file");
        for at in 0..index.len() {
            let mut torn = index.clone();
            torn[at] ^= 1;
            assert!(decode(&torn, "f", 107).is_err(), "byte {at}");
            assert!(decode(&index[..at], "f", 107).is_err(), "cut at {at}");
        }
        assert_eq!(decode(&encode(&[]), "f", 0).unwrap(), []);
    }
}
