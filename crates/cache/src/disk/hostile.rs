//! What may stand in the index log and beside it, as bytes that mean harm. For `make fuzz`; what it found is read again by the test
//! below.
//!
//! Invariant: no bytes panic, what is read as a record is written as it was read, and uses change nothing of what is here.

use super::record::{FRAME, Record};
use super::segment::Residency;
use super::table::{State, Table};
use block::{ObjectId, crc64};
use std::ops::Range;

/// Records one after the other. The first byte says whether their frames are put right, which nobody does by chance.
pub fn log(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= FRAME) {
        if how & 1 == 1 {
            mend(rest);
        }
        let Some((record, length)) = Record::decode(rest) else {
            let _ = Record::is_cut(rest);
            return;
        };
        assert_eq!(record.encode(), rest[..length], "a record has one spelling");
        use_of(&record);
        at += length;
    }
    let _ = std::str::from_utf8(&bytes).ok().map(Residency::of_name);
}

/// Put length and checksum of the first record right, as far as its bytes go.
fn mend(rest: &mut [u8]) {
    let told = u32::from_le_bytes(rest[..4].try_into().expect("four bytes")) as usize;
    let length = told.min(rest.len() - FRAME);
    let sum = crc64::of(&rest[FRAME..FRAME + length]);
    rest[..4].copy_from_slice(&(length as u32).to_le_bytes());
    rest[4..FRAME].copy_from_slice(&sum.to_le_bytes());
}

/// What is asked of a record's segment when it is replayed.
fn use_of(record: &Record) {
    if let Record::Started { segment, .. } | Record::Complete { segment, .. } = record {
        let _ = (segment.id(), segment.bytes(), segment.start(), segment.is_whole());
    }
}

/// Where the checksum of uses stands, with all behind it summed up (`docs/format.md`).
const SUM: Range<usize> = 12..20;

/// When objects were opened, told to a table that has some of them. The first byte says whether the checksum is put right.
pub fn uses(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if how & 1 == 1 && bytes.len() >= SUM.end {
        let sum = crc64::of(&bytes[SUM.end..]);
        bytes[SUM].copy_from_slice(&sum.to_le_bytes());
    }
    let mut table = Table::new(1_000);
    for number in 0..10 {
        table.opened(ObjectId(number), 100, 2_000);
        table.insert(ObjectId(number), 0, 100, State::Complete);
    }
    let is_known = table.restore(&bytes);
    assert_eq!((table.used.bytes, table.used.files), (1_000, 10), "it says nothing of what is here");
    assert!(!is_known || Table::new(1_000).restore(&table.save()), "what is known is known again");
    (0..30).for_each(|number| table.opened(ObjectId(number), 100, 2_000));
    let _ = table.give_way(ObjectId(20), 100, 1, |_, _| false);
}

#[cfg(test)]
#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::corpus::each_is_borne;

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        each_is_borne("log", super::log);
        each_is_borne("uses", super::uses);
    }
}
