//! What other members may say, and what a file of them, as bytes that mean harm. For `make fuzz`; what it found is read again by
//! the tests below.
//!
//! Invariant: no bytes panic, and what is understood is said again in the same bytes, where there is one spelling.

use crate::members::hosts;
use crate::wire::{self, Brought, Failure, GREETING, Greeting, HEADER, Header, State, Wish};
use std::path::Path;

/// A greeting, a frame and each of its payloads.
pub fn said(bytes: &[u8]) {
    if let Some(greeting) = bytes.first_chunk::<GREETING>().and_then(Greeting::decode) {
        assert_eq!(greeting.encode(), bytes[..GREETING]);
    }
    for length_max in [wire::REQUEST_BYTES_MAX, wire::ANSWER_BYTES_MAX] {
        if let Some(header) = bytes.first_chunk::<HEADER>().and_then(|head| Header::decode(head, length_max)) {
            assert_eq!(header.encode(), bytes[..HEADER]);
        }
    }
    if let Some(wish) = Wish::decode(bytes) {
        let again = wish.encode().and_then(|bytes| Wish::decode(&bytes));
        let again = again.expect("what was taken is taken again");
        let parts = |wish: &Wish| (wish.run.object.clone(), wish.run.blocks.clone(), wish.manner);
        assert_eq!(parts(&again), parts(&wish));
    }
    if let Some(sum) = wire::decode_sum(bytes) {
        assert_eq!(wire::encode_sum(sum), bytes);
    }
    if let Some(brought) = Brought::decode(bytes) {
        assert_eq!(brought.encode(), bytes);
    }
    if let Some(stripes) = wire::decode_stripes(bytes) {
        assert_eq!(wire::encode_stripes(&stripes), bytes);
    }
    if let Some(loan) = wire::decode_loan(bytes) {
        assert_eq!(wire::encode_loan(loan), bytes);
    }
    if let Some(error) = Failure::decode(bytes, "o") {
        let said = format!("{error} {}", error.hint);
        assert!(!said.replace('\n', "").contains(char::is_control), "it goes to terminals: {said:?}");
        let _ = Failure::encode(&error);
    }
    let _ = (State::decode(bytes), wire::decode_piece(bytes), wire::decode_member(bytes));
    let (sums, block) = bytes.split_at(bytes.len().min(wire::sums_bytes(bytes.len())));
    let _ = wire::are_right(sums, block);
}

/// A file of members.
pub fn members(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = hosts::parse(text, Path::new("members"));
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
        each_is_borne("said", super::said);
        each_is_borne("members", super::members);
    }
}
