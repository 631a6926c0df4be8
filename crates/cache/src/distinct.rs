//! How many distinct bytes came from the stores since the node began: each counts once, however often it is fetched.
//! Beside the bytes of the set it tells what part of it was read, and beside the bytes fetched what was fetched again.
//!
//! Doesn't fetch and doesn't keep. One bit a block while an object is there in part; one number an object once all of
//! it was seen, which small objects are from the first.
//!
//! Invariant: the sum never exceeds the distinct bytes. It is exact (but for equal hashes, one in 10^12 with a million
//! objects) until [`OBJECTS_MAX`] or [`BITS_BYTES_MAX`] is reached, and [`Distinct::is_exact`] tells.

use block::{Address, ObjectId};
use std::collections::{HashMap, HashSet};

/// Objects that are remembered: some eighteen bytes each, so a hundred megabytes at most.
const OBJECTS_MAX: usize = 4 << 20;

/// Bytes of all bitmaps: 128 TiB of objects that are there in part.
const BITS_BYTES_MAX: usize = 64 << 20;

/// What came so far.
pub struct Distinct {
    whole: HashSet<u64>,
    parts: HashMap<u64, Part>,
    bytes: u64,
    bits_bytes: usize,
    is_exact: bool,
    objects_max: usize,
    bits_bytes_max: usize,
}

/// Blocks of an object that came.
struct Part {
    bits: Box<[u64]>,
    missing: u32,
}

impl Default for Distinct {
    fn default() -> Self {
        Distinct::within(OBJECTS_MAX, BITS_BYTES_MAX)
    }
}

impl Distinct {
    fn within(objects_max: usize, bits_bytes_max: usize) -> Distinct {
        let (whole, parts) = Default::default();
        Distinct { whole, parts, bytes: 0, bits_bytes: 0, is_exact: true, objects_max, bits_bytes_max }
    }

    /// A block came from a store; its bytes, if they came for the first time.
    pub fn came(&mut self, address: &Address) -> u64 {
        if !self.is_first(address) {
            return 0;
        }
        let bytes = address.len() as u64;
        self.bytes += bytes;
        bytes
    }

    /// Anonymous memory that this takes: a hash table has a byte a place beside what it holds.
    pub fn memory_bytes(&self) -> u64 {
        let (whole, parts) = (size_of::<u64>() + 1, size_of::<(u64, Part)>() + 1);
        (self.whole.capacity() * whole + self.parts.capacity() * parts + self.bits_bytes) as u64
    }

    /// The sum.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// False once something came that there was no room to remember.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    fn is_first(&mut self, address: &Address) -> bool {
        let (key, blocks) = (key(address.object.id()), address.object.blocks());
        if self.whole.contains(&key) {
            return false;
        }
        let has_room = self.whole.len() + self.parts.len() < self.objects_max;
        if blocks == 1 {
            self.is_exact &= has_room;
            return has_room && self.whole.insert(key);
        }
        let words = blocks.div_ceil(64) as usize;
        if !self.parts.contains_key(&key) {
            if !has_room || self.bits_bytes + words * 8 > self.bits_bytes_max {
                self.is_exact = false;
                return false;
            }
            self.bits_bytes += words * 8;
            self.parts.insert(key, Part { bits: vec![0; words].into(), missing: blocks });
        }
        let part = self.parts.get_mut(&key).expect("it was put there");
        let (word, bit) = (address.index as usize / 64, 1 << (address.index % 64));
        // Only another object of the same hash has fewer blocks.
        let is_first = part.bits.get(word).is_some_and(|word| word & bit == 0);
        if is_first {
            part.bits[word] |= bit;
            part.missing -= 1;
            if part.missing == 0 {
                self.bits_bytes -= part.bits.len() * 8;
                self.parts.remove(&key);
                self.whole.insert(key);
            }
        }
        is_first
    }
}

/// Half of an id: it is a hash, so any half is one.
fn key(id: ObjectId) -> u64 {
    id.0 as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{BLOCK, Object, SMALL};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn object(name: u32, size: u64) -> Arc<Object> {
        Arc::new(Object { store: "m".into(), key: name.to_string(), version: "1".into(), size })
    }

    fn come(distinct: &mut Distinct, object: &Arc<Object>, index: u32) -> u64 {
        distinct.came(&Address { object: object.clone(), index })
    }

    #[test]
    fn a_byte_counts_once_however_often_it_comes() {
        let (mut distinct, small, large) = (Distinct::default(), object(1, SMALL), object(2, SMALL + 5));
        for turn in 0..3 {
            assert_eq!(come(&mut distinct, &small, 0), if turn == 0 { SMALL } else { 0 });
            for index in [4, 0, 2, 1, 3] {
                let expected = if index == 4 { 5 } else { BLOCK };
                assert_eq!(come(&mut distinct, &large, index), if turn == 0 { expected } else { 0 });
            }
            assert_eq!(distinct.bytes(), SMALL + SMALL + 5);
        }
        assert!(distinct.is_exact() && distinct.parts.is_empty() && distinct.bits_bytes == 0);
    }

    #[test]
    fn what_there_is_no_room_for_is_not_counted_and_told() {
        let mut few = Distinct::within(2, 64);
        assert_eq!([1, 2, 3, 1].map(|name| come(&mut few, &object(name, 7), 0)), [7, 7, 0, 0]);
        assert!(!few.is_exact() && few.bytes() == 14);
        let mut narrow = Distinct::within(9, 8);
        assert_eq!([1, 2].map(|name| come(&mut narrow, &object(name, SMALL + 1), 0)), [BLOCK, 0]);
        assert!(!narrow.is_exact());
        let mut small = Distinct::within(9, 0);
        assert_eq!((come(&mut small, &object(1, SMALL), 0), small.is_exact()), (SMALL, true), "it needs no bitmap");
    }

    #[test]
    fn the_memory_that_it_takes_is_counted() {
        let mut distinct = Distinct::default();
        assert_eq!(distinct.memory_bytes(), 0);
        // As many as a table holds that is full.
        (0..14).for_each(|name| _ = come(&mut distinct, &object(name, 100 * BLOCK), 0));
        let parts = 14 * (8 + size_of::<Part>() as u64 + 1 + 2 * 8);
        assert!((parts..2 * parts).contains(&distinct.memory_bytes()), "{} bytes", distinct.memory_bytes());
        (100..1892).for_each(|name| _ = come(&mut distinct, &object(name, 7), 0));
        let all = parts + 1792 * 9;
        assert!((all..2 * all).contains(&distinct.memory_bytes()), "{} bytes", distinct.memory_bytes());
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_a_plain_set(came in proptest::collection::vec((0..6u32, any::<u32>()), 0..300)) {
            let (mut distinct, mut seen) = (Distinct::default(), HashSet::new());
            for (name, number) in came {
                let object = object(name, 1 + u64::from(name) * 9 * (BLOCK * 3 - 11));
                let address = Address { index: number % object.blocks(), object };
                let length = address.len() as u64;
                let expected = if seen.insert((name, address.index)) { length } else { 0 };
                prop_assert_eq!(distinct.came(&address), expected);
            }
            prop_assert!(distinct.is_exact());
        }
    }
}
