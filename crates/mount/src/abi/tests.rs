//! The messages of the kernel, sound and damaged.

use super::reply::{Accepted, Attr, HEADER_BYTES, Validity};
use super::request::Malformed;
use super::*;
use proptest::prelude::*;

/// A request as the kernel writes it.
fn request(code: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&((40 + body.len()) as u32).to_ne_bytes());
    bytes.extend_from_slice(&code.to_ne_bytes());
    bytes.extend_from_slice(&77_u64.to_ne_bytes());
    bytes.extend_from_slice(&5_u64.to_ne_bytes());
    for caller in [1000, 1000, 4321, 0_u32] {
        bytes.extend_from_slice(&caller.to_ne_bytes());
    }
    bytes.extend_from_slice(body);
    bytes
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn decoded(bytes: &[u8]) -> Operation<'_> {
    let request = Request::decode(bytes).expect("a well-formed request");
    assert_eq!((request.unique, request.node, request.thread), (77, 5, 4321));
    request.operation
}

const ATTR: Attr =
    Attr { node: 9, size: 1000, modified_ns: -1, mode: KIND_FILE | 0o444, links: 1, owner: 0, group: 0, block: 4096 };
const VALIDITY: Validity = Validity { name_s: 1, attributes_s: 2 };

#[test]
fn requests_are_read_field_by_field() {
    assert_eq!(decoded(&request(opcode::LOOKUP, b"name\0")), Operation::Lookup { name: b"name" });
    let read = words(&[3, 4096, 512, 0, 0]);
    assert_eq!(decoded(&request(opcode::READ, &read)), Operation::Read { handle: 3, offset: 4096, size: 512 });
    let list = Operation::List { handle: 3, offset: 7, size: 100, plus: true };
    assert_eq!(decoded(&request(opcode::READDIRPLUS, &words(&[3, 7, 100, 0, 0]))), list);
    assert_eq!(decoded(&request(opcode::INTERRUPT, &words(&[8]))), Operation::Interrupt { unique: 8 });
    assert_eq!(decoded(&request(opcode::UNLINK, b"x\0")), Operation::Modify);
    assert_eq!(decoded(&request(4000, b"")), Operation::Unknown(4000));
}

#[test]
fn a_batch_of_forgets_is_read_to_its_end_and_no_further() {
    let body = words(&[2, 10, 1, 11, 3, 12, 9]);
    let bytes = request(opcode::BATCH_FORGET, &body);
    let Operation::BatchForget(forgets) = decoded(&bytes) else { panic!("not a batch") };
    assert_eq!(forgets.collect::<Vec<_>>(), [(10, 1), (11, 3)]);
}

#[test]
fn the_handshake_carries_both_words_of_flags_only_if_it_says_so() {
    let plain: Vec<u8> = [7_u32, 31, 4096, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let expected = Init { major: 7, minor: 31, max_readahead: 4096, flags: 1 };
    assert_eq!(decoded(&request(opcode::INIT, &plain)), Operation::Init(expected));
    let low = 1 | init::EXT as u32;
    let both: Vec<u8> = [7_u32, 45, 4096, low, 1 << 5].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let bytes = request(opcode::INIT, &both);
    let Operation::Init(Init { flags, .. }) = decoded(&bytes) else { panic!("not a handshake") };
    assert_eq!(flags, 1 | init::EXT | init::PASSTHROUGH);
}

#[test]
fn a_short_request_is_refused_by_its_number() {
    let bytes = request(opcode::READ, &[0; 8]);
    assert_eq!(Request::decode(&bytes), Err(Malformed { unique: Some(77) }));
    assert_eq!(Request::decode(&bytes[..30]), Err(Malformed { unique: None }));
    let unfinished = request(opcode::LOOKUP, b"name without a zero");
    assert_eq!(Request::decode(&unfinished), Err(Malformed { unique: Some(77) }));
}

#[test]
fn answers_have_the_sizes_of_the_kernel_structures() {
    let accepted = Accepted { minor: 45, max_readahead: 0, flags: init::PASSTHROUGH, stack_depth: 1 };
    for (mut reply, body) in [
        (Reply::new(1, -2), 0),
        (Reply::entry(1, &ATTR, VALIDITY), 128),
        (Reply::no_entry(1, 1), 128),
        (Reply::attributes(1, &ATTR, VALIDITY), 104),
        (Reply::open(1, 2, open::KEEP_CACHE, 0), 16),
        (Reply::space(1, 10_000, 3, 4096), 80),
        (Reply::init(1, &accepted), 64),
        (Reply::invalidate_node(1), 24),
    ] {
        let bytes = reply.seal();
        assert_eq!(bytes.len(), HEADER_BYTES + body);
        assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
    }
    assert_eq!(Reply::invalidate_name(1, b"abc").len(), HEADER_BYTES + 16 + 4);
}

#[test]
fn a_time_before_1970_has_a_positive_fraction() {
    let mut reply = Reply::attributes(1, &ATTR, VALIDITY);
    let bytes = reply.seal();
    let attr = HEADER_BYTES + 16;
    assert_eq!(bytes[attr + 32..attr + 40], (-1_i64).to_ne_bytes());
    assert_eq!(bytes[attr + 52..attr + 56], 999_999_999_u32.to_ne_bytes());
}

#[test]
fn a_listing_ends_before_the_kernel_s_buffer_does() {
    let mut bytes = Vec::new();
    let mut listing = Listing::new(&mut bytes, 1, 100);
    assert!(listing.name(1, b"four", 2, false)); // 32 bytes
    assert!(listing.name(2, b"nine char", 2, false)); // 40 bytes
    assert!(!listing.name(3, b"four+", 2, false));
    assert_eq!(listing.seal().len(), HEADER_BYTES + 72);
    let mut listing = Listing::new(&mut bytes, 1, 160);
    assert!(listing.entry(1, b"12345678", &ATTR, VALIDITY));
    assert!(!listing.entry(2, b"", &ATTR, VALIDITY));
    assert_eq!(listing.seal().len(), HEADER_BYTES + 160);
}

proptest! {
    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(Request { operation: Operation::BatchForget(forgets), .. }) = Request::decode(&bytes) {
            forgets.for_each(drop);
        }
    }

    #[test]
    fn no_body_makes_decoding_panic(code in 0_u32..60, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(Request { operation: Operation::BatchForget(forgets), .. }) = Request::decode(&request(code, &body)) {
            forgets.for_each(drop);
        }
    }
}
