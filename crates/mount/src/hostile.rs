//! What a process left for the next one, as bytes that mean harm: memory errs, and so does whoever hands it over. For `make fuzz`; what
//! it found is read again by the test below.
//!
//! Invariant: nothing panics, goes on for ever, or reaches beyond what is mapped.

use crate::ledger::Ledger;
use rustix::fs::{MemfdFlags, SealFlags};
use std::io::Write;

/// A ledger whose first bytes are these, gone on with by two processes.
pub fn ledger(bytes: &[u8]) {
    let sound = Ledger::new(1).expect("memory");
    let length = rustix::fs::fstat(sound.file()).expect("memory").st_size;
    let file = rustix::fs::memfd_create("ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).and_then(|()| file.set_len(length as u64)).expect("memory takes it");
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).expect("memory");
    for turn in 0..2 {
        let Ok(ledger) = Ledger::of(file.try_clone().expect("a descriptor").into()) else { return };
        let retired = ledger.take_over(|unique| unique % 2 == turn);
        retired.iter().filter_map(|retired| retired.line).for_each(|line| ledger.erase(line));
        assert!(ledger.entries().all(|entry| entry.opens > 0), "what is not open is not gone on with");
        drop(ledger.opening(2, 7));
        let line = ledger.enter(7, None);
        ledger.set(line, 2);
    }
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
