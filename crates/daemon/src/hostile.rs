//! Terms of a mount that goes on, as bytes that mean harm. For `make fuzz`; what it found is read again by the test below.
//!
//! Invariant: no bytes panic, and what was understood is written so that it is understood again.

use crate::resume::parse;

/// Terms as a process left them.
pub fn terms(bytes: &[u8]) {
    let Ok(terms) = parse(bytes) else { return };
    let _ = terms.settled();
    let written = serde_json::to_vec(&terms).expect("terms are plain values");
    let again = parse(&written).expect("what was written is understood");
    assert_eq!(serde_json::to_vec(&again).expect("as above"), written);
}

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::corpus::each_is_borne;

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        each_is_borne("terms", super::terms);
    }
}
