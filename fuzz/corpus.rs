//! What fuzzing kept, given to what reads it, and then thousands of changes of it by chance: as much of `make fuzz` as each run of the
//! tests can bear. Crates take this file in by its path, for their tests alone.
//!
//! It knows nothing of what it changes and measures no coverage. Invariant: the same bytes in the same order, on every machine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const SEED: u64 = 38;

/// Changes of a corpus: what takes longest to read, takes a second with all of them.
const CHANGES: usize = 4_000;

/// As long as `make fuzz` makes them.
const BYTES_MAX: usize = 8192;
const PIECE_BYTES_MAX: usize = 64;

/// Beside which arithmetic goes wrong.
const EDGES: [u64; 10] = [0, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 20, 1 << 31, 1 << 32, 10_000_000_000, 1 << 63];

/// Each file of `fuzz/corpus/NAME`, and changes of them, are read without a panic.
#[track_caller]
pub fn each_is_borne(name: &str, read: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let kept: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("it is read")).collect();
    assert!(!kept.is_empty(), "{} is empty", folder.display());
    let is_borne = |bytes: &[u8], what: &str| {
        let borne = catch_unwind(AssertUnwindSafe(|| read(bytes)));
        assert!(borne.is_ok(), "{name}: {what} is not borne: b\"{}\"", bytes.escape_ascii());
    };
    files.iter().zip(&kept).for_each(|(file, bytes)| is_borne(bytes, &file.display().to_string()));
    for number in 0..CHANGES {
        let (mut bytes, mut chance) = (kept[number % kept.len()].clone(), Chance(SEED + number as u64));
        for _ in 0..=chance.below(4) {
            let other = &kept[chance.below(kept.len())];
            change(&mut bytes, other, &mut chance);
            bytes.truncate(BYTES_MAX);
        }
        is_borne(&bytes, &format!("change {number} by seed {SEED}"));
    }
}

fn change(bytes: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    let at = chance.below(bytes.len() + 1);
    let length = chance.below(PIECE_BYTES_MAX.min(bytes.len() - at) + 1);
    let number = EDGES[chance.below(EDGES.len())].wrapping_add(chance.below(3) as u64).wrapping_sub(1);
    match chance.below(8) {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << chance.below(8)),
        1 => bytes.truncate(at),
        2 => drop(bytes.drain(at..at + length)),
        3 => {
            let again = bytes[at..at + length].repeat(1 << chance.below(7));
            bytes.splice(at..at, again);
        }
        4 => {
            bytes.truncate(at);
            bytes.extend_from_slice(&other[chance.below(other.len() + 1)..]);
        }
        5 => {
            let mut written = number.to_le_bytes()[..1 << chance.below(4)].to_vec();
            if chance.below(2) == 0 {
                written.reverse();
            }
            bytes.splice(at..bytes.len().min(at + written.len()), written);
        }
        6 => {
            let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            bytes.splice(at..at + digits, number.to_string().into_bytes());
        }
        _ => {
            let of_text = other.get(chance.below(other.len() + 1)).copied();
            let byte = of_text.unwrap_or(chance.below(256) as u8);
            bytes.splice(at..at, vec![byte; 1 + chance.below(4)]);
        }
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}
