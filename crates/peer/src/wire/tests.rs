//! What is said is understood, and nothing else is.

use super::*;
use block::{BLOCK, Proof};
use proptest::prelude::*;

fn object(size: u64) -> Arc<Object> {
    Arc::new(Object { store: "s3://b".into(), key: "a/ü".into(), version: "\"v\"".into(), size })
}

#[test]
fn what_is_said_is_understood() {
    let greeting = Greeting { from: 7, to: u128::MAX };
    assert_eq!(Greeting::decode(&greeting.encode()), Some(greeting));
    for word in WORDS {
        let header = Header { word, length: 3, request: u32::MAX, block: 9 };
        assert_eq!(Header::decode(&header.encode(), 3), Some(header));
        assert_eq!(Header::decode(&header.encode(), 2), None, "longer than it may be");
    }
    for bits in 0u8..128 {
        let due = if bits % 2 == 0 { NEVER } else { NEVER - u32::from(bits) };
        let opened = if bits & 32 == 0 { 0 } else { u64::MAX - u64::from(bits) };
        let refused = if bits & 4 == 0 { 0 } else { u128::MAX - u128::from(bits) };
        let lent = if bits & 16 == 0 { 0 } else { u64::from(bits) };
        let numbers = [lent.to_le_bytes(), opened.to_le_bytes()].concat();
        let told = [&[bits][..], &due.to_le_bytes(), &refused.to_le_bytes(), &numbers].concat();
        let manner = Manner::decode(&mut Reader(&told)).expect("seven bits");
        assert_eq!(manner.encode(), told);
        let wish = Wish { run: Run::new(object(200 * BLOCK), 3..67), manner };
        let told = Wish::decode(&wish.encode().expect("short names")).expect("a wish");
        assert_eq!(told.run.object, wish.run.object);
        assert_eq!((told.run.blocks, told.manner), (3..67, manner));
    }
    assert_eq!(Manner::decode(&mut Reader(&[&[128][..], &[0; 36]].concat())), None);
    let lender = Lender { member: u128::MAX - 1, ticket: 8 };
    for loan in [Loan::none(u32::MAX), Loan { ticket: 9, until: 7, lender: Some(lender) }] {
        let told = encode_loan(loan);
        assert_eq!(decode_loan(&told), Some(loan));
        assert!((1..told.len()).all(|end| end == 12 || decode_loan(&told[..end]).is_none()));
    }
    let there = |found, sum| Brought::There { found, sum };
    for brought in [Brought::Unkept, there(0, None), there(u64::MAX, Some(0)), there(7, Some(u64::MAX))] {
        let told = brought.encode();
        assert_eq!(Brought::decode(&told), Some(brought));
        assert!((1..told.len()).all(|end| end == 9 || Brought::decode(&told[..end]).is_none()));
    }
    assert_eq!(there(1, Some(2)).encode(), [&[1, 1][..], &[0; 7], &[2], &[0; 7]].concat());
    assert_eq!((Brought::decode(&[]), Brought::decode(&[1]), Brought::decode(&[0, 0])), (None, None, None));
    for sum in [None, Some(Checksum::Crc64Nvme(u64::MAX)), Some(Checksum::Crc32C(7)), Some(Checksum::Crc32(u32::MAX))] {
        assert_eq!(decode_sum(&encode_sum(sum)), Some(sum));
    }
    assert_eq!((decode_sum(&[4, 0, 0, 0, 0, 0, 0, 0, 0]), decode_sum(&[2; 9]), decode_sum(&[1])), (None, None, None));
    let state = State { free_bytes: 9, kept_bytes: 8, age_ms: u64::MAX, stale_bytes: 7 };
    assert_eq!(State::decode(&[state.encode(), vec![1]].concat()), Some(state));
}

#[test]
fn an_impossible_wish_is_not_understood() {
    let wish = |blocks, size| {
        Wish { run: Run { blocks, ..Run::new(object(200 * BLOCK), 0..1) }, manner: Manner::default() }.encode().map(
            |mut bytes| {
                bytes[45..53].copy_from_slice(&u64::to_le_bytes(size));
                Wish::decode(&bytes).is_some()
            },
        )
    };
    assert_eq!(wish(0..64, 200 * BLOCK), Some(true));
    for (blocks, size) in [(0..65, 200 * BLOCK), (5..5, 200 * BLOCK), (0..64, 63 * BLOCK), (0..1, 0), (0..1, u64::MAX)]
    {
        assert_eq!(wish(blocks.clone(), size), Some(false), "{blocks:?} of {size}");
    }
    let long = Object { key: "k".repeat(70_000), ..(*object(9)).clone() };
    assert!(Wish { run: Run::new(Arc::new(long), 0..1), manner: Manner::default() }.encode().is_none());
}

#[test]
fn a_failure_arrives_as_it_was_without_what_could_play_with_a_terminal() {
    let kind = Kind::Unavailable { retry_after: Some(Duration::from_millis(1_500)) };
    let error = Error::new(kind, format!("slow\u{1b}[31m down {}", "x".repeat(5_000)), "there").throttled();
    let told = Failure::decode(&Failure::encode(&error), "s3://b/a/ü").expect("a failure");
    assert!(told.kind == kind && told.is_throttling() && told.what.starts_with("slow[31m down"), "{told}");
    assert!(told.what.len() <= TEXT_MAX && told.on == "s3://b/a/ü");
    let denied = Failure::decode(&Failure::encode(&Error::denied("no", "x")), "s3://b/a/ü").expect("a failure");
    assert!(denied.kind == Kind::Denied && !denied.is_throttling());
}

#[test]
fn a_block_travels_with_sums_that_find_any_flipped_bit() {
    let content: Vec<u8> = (0..BLOCK).map(|at| (at * 7 % 251) as u8).collect();
    let address = block::Address { object: object(3 * BLOCK + SMALL), index: 1 };
    let pieces = content.chunks(10_001).map(Bytes::copy_from_slice).collect();
    let block = Block::verified(address, pieces, Proof::Local).expect("a block");
    let frame = block_frame(5, &block).concat();
    let header = Header::decode(frame[..HEADER].try_into().expect("a header"), ANSWER_BYTES_MAX).expect("a header");
    let (sums, bytes) = frame[HEADER..].split_at(sums_bytes(content.len()));
    assert_eq!((header.word, header.request, header.block), (Word::Block, 5, 1));
    assert!(header.length as usize == frame.len() - HEADER && bytes == content && are_right(sums, bytes));
    for at in [0, 65_535, 65_536, content.len() - 1] {
        let mut wrong = bytes.to_vec();
        wrong[at] ^= 4;
        assert!(!are_right(sums, &wrong), "byte {at}");
    }
    assert!(!are_right(&sums[8..], bytes) && !are_right(sums, &bytes[..65_536]));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Wish::decode(&bytes);
        let _ = (Failure::decode(&bytes, "it"), decode_sum(&bytes), State::decode(&bytes), decode_member(&bytes));
        if let Some(head) = bytes.first_chunk() {
            let _ = Header::decode(head, 100);
        }
        if let Some(head) = bytes.first_chunk() {
            let _ = Greeting::decode(head);
        }
    }

    #[test]
    fn a_wish_that_was_changed_is_another_or_none(at in 0usize..68, with in any::<u8>()) {
        let bytes = Wish { run: Run::new(object(200 * BLOCK), 3..67), manner: Manner::default() }.encode().expect("short names");
        let mut changed = bytes.clone();
        let at = at % bytes.len();
        changed[at] = with;
        if let Some(wish) = Wish::decode(&changed) {
            prop_assert!(wish.run.blocks.end <= wish.run.object.blocks());
        }
    }
}
