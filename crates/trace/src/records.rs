//! The records of a TFRecord file, counted by their heads, so that a packed file is known by its samples.
//!
//! It reads 12 bytes a record and no content. Invariant: a file whose lengths don't agree with their checksums has no
//! records here, whatever its name says.

use crc_fast::{CrcAlgorithm, checksum};
use serde::{Deserialize, Serialize};

/// Length (8 bytes) and its checksum before a record, the checksum of its content after it.
const HEAD_BYTES: u64 = 12;
const TAIL_BYTES: u64 = 4;

/// Records looked at in one file; the rest is taken to be alike.
const LOOKED_AT_MAX: u64 = 50_000;

/// How many records there are and how long they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Records {
    pub per_file: f64,
    pub bytes_mean: f64,
    pub bytes_stdev: f64,
}

/// The records of one file of this size; `read` fills a buffer from an offset, and says whether it could.
pub fn of_tfrecord(size: u64, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<Records> {
    let (mut at, mut count, mut sum, mut squares) = (0, 0_u64, 0.0, 0.0);
    while at < size && count < LOOKED_AT_MAX {
        let mut head = [0; HEAD_BYTES as usize];
        if !read(at, &mut head) {
            return None;
        }
        let (length, check) = head.split_at(8);
        if masked(length) != u32::from_le_bytes(check.try_into().ok()?) {
            return None;
        }
        let length = u64::from_le_bytes(length.try_into().ok()?);
        at = at.checked_add(length)?.checked_add(HEAD_BYTES + TAIL_BYTES)?;
        count += 1;
        sum += length as f64;
        squares += (length as f64).powi(2);
    }
    if count == 0 || at > size {
        return None;
    }
    let mean = sum / count as f64;
    let per_file = count as f64 * size as f64 / at as f64;
    Some(Records { per_file, bytes_mean: mean, bytes_stdev: (squares / count as f64 - mean * mean).max(0.0).sqrt() })
}

/// Several files as one.
pub fn mean(of: &[Records]) -> Option<Records> {
    let count = of.len() as f64;
    let mean = |value: fn(&Records) -> f64| of.iter().map(value).sum::<f64>() / count;
    (!of.is_empty()).then(|| Records {
        per_file: mean(|records| records.per_file),
        bytes_mean: mean(|records| records.bytes_mean),
        bytes_stdev: mean(|records| records.bytes_stdev),
    })
}

/// CRC32C, rotated and shifted as TFRecord has it.
fn masked(bytes: &[u8]) -> u32 {
    (checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lengths: &[u64]) -> Vec<u8> {
        let mut file = Vec::new();
        for length in lengths {
            let head = length.to_le_bytes();
            file.extend_from_slice(&head);
            file.extend_from_slice(&masked(&head).to_le_bytes());
            file.resize(file.len() + (length + TAIL_BYTES) as usize, 7);
        }
        file
    }

    fn look(file: &[u8]) -> Option<Records> {
        of_tfrecord(file.len() as u64, |at, head| {
            let part = file.get(at as usize..at as usize + head.len());
            part.map(|part| head.copy_from_slice(part)).is_some()
        })
    }

    #[test]
    fn records_are_counted_and_what_is_none_is_not() {
        // CRC32C of eight zero bytes is 0x8c28b28a.
        assert_eq!(masked(&[0; 8]), 0x8c28_b28a_u32.rotate_right(15).wrapping_add(0xa282_ead8));
        let records = look(&file(&[100, 200, 300])).expect("three records");
        assert_eq!((records.per_file, records.bytes_mean), (3.0, 200.0));
        assert_eq!(look(&[1; 1000]), None);
        let whole = file(&[100, 200]);
        assert_eq!(look(&whole[..whole.len() - 1]), None);
        assert_eq!(look(&[]), None);
    }
}
