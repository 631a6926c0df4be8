//! What a client may send, and type, as bytes that mean harm. For `make fuzz`; what it found is read again by the test below.
//!
//! Invariant: no bytes panic, and a body says the same in whatever parts it arrives.

use crate::chunked::joined;
use crate::parse;
use crate::{Faults, Latency, Throttle};

/// A body cut into signed pieces, which arrives at once, and byte by byte.
pub fn chunked(bytes: &[u8]) {
    let (whole, parts) = (joined(bytes, bytes.len().max(1)), joined(bytes, 1));
    if let (Ok(whole), Ok(parts)) = (whole, parts) {
        assert_eq!(whole, parts, "how it arrives is of no account");
    }
}

/// Sizes, times, rates, faults and limits as people write them.
pub fn typed(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = (parse::bytes(text), parse::size(text), parse::bandwidth(text), parse::duration(text));
    let _ = (text.parse::<Faults>(), text.parse::<Latency>(), text.parse::<Throttle>());
}

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::corpus::each_is_borne;

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        each_is_borne("chunked", super::chunked);
        each_is_borne("typed", super::typed);
    }
}
