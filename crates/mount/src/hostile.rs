//! What a process left for the next one, as bytes that mean harm: memory errs, and so does whoever hands it over. For `make fuzz`; what
//! it found is read again by the test below.
//!
//! Invariant: nothing panics, goes on for ever, or reaches beyond what is mapped.

use crate::ledger::{LINES_MAX, Ledger};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Where a ledger says how many lines were ever in use (`docs/format.md`).
const LINES: Range<usize> = 32..36;

/// Lines that are looked at: behind the bytes all are free, and there is room for four million.
const LOOKED_AT_MAX: u32 = 1_000;

thread_local! {
    /// One for all bytes: to make it and to map it takes far longer than to read it.
    static LEFT: File = {
        let made = Ledger::new(1).expect("memory");
        File::from(made.file().try_clone_to_owned().expect("a descriptor"))
    };
}

/// A ledger whose first bytes are these, gone on with by two processes.
pub fn ledger(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some(lines) = bytes.get_mut(LINES) {
        let told = u32::from_le_bytes(lines.try_into().expect("four bytes"));
        let told = if told <= LINES_MAX { told.min(LOOKED_AT_MAX) } else { told };
        lines.copy_from_slice(&told.to_le_bytes());
    }
    LEFT.with(|left| {
        let length = left.metadata().expect("memory").len();
        let empty = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(left, empty, 0, length).expect("memory is given back");
        left.write_all_at(&bytes, 0).expect("memory takes it");
        for turn in 0..2 {
            let Ok(ledger) = Ledger::of(left.try_clone().expect("a descriptor").into()) else { return };
            let retired = ledger.take_over(|unique| unique % 2 == turn);
            retired.iter().filter_map(|retired| retired.line).for_each(|line| ledger.erase(line));
            assert!(ledger.entries().all(|entry| entry.opens > 0), "what is not open is not gone on with");
            drop(ledger.opening(2, 7));
            let line = ledger.enter(7, None);
            ledger.set(line, 2);
        }
    });
}

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::corpus::each_is_borne;

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        each_is_borne("ledger", super::ledger);
    }
}
