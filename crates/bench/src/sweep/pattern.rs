//! What stands in the files of a sweep: a function of (seed, file, offset), so that any byte can be checked where it
//! was read, by whichever rank.
//!
//! It is not random in any strong sense: it is made at the speed of memory, doesn't repeat within a file or between
//! files, and leaves a compressor nothing. Invariant: one seed and file give the same bytes on every machine.

use block::{Error, Result};
use data::noise::Chance;

/// An odd number near 2^64 divided by the golden ratio: multiples of it spread evenly over all 64 bits.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = 8;
/// Words that are compared before their differences are looked at, so that the loop has no branch.
const STRIDE_WORDS: usize = 512;

/// The content of one file.
#[derive(Clone, Copy)]
pub struct Content {
    key: u64,
}

impl Content {
    /// `file` is a number that no other file of the seed has.
    pub fn of(seed: u64, file: u64) -> Content {
        Content { key: Chance::of(seed, file).draw() }
    }

    fn word(self, index: u64) -> u64 {
        let mixed = self.key.wrapping_add(index.wrapping_mul(STRIDE));
        mixed ^ (mixed >> 29)
    }

    /// Make the bytes from this offset on.
    pub fn fill(self, offset: u64, buffer: &mut [u8]) {
        let (head, body) = buffer.split_at_mut(ragged(offset).min(buffer.len()));
        self.fill_ragged(offset, head);
        let mut index = offset.div_ceil(WORD as u64);
        let mut words = body.chunks_exact_mut(WORD);
        for word in &mut words {
            word.copy_from_slice(&self.word(index).to_le_bytes());
            index += 1;
        }
        self.fill_ragged(index * WORD as u64, words.into_remainder());
    }

    fn fill_ragged(self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            *byte = self.byte(at);
        }
    }

    fn byte(self, offset: u64) -> u8 {
        self.word(offset / WORD as u64).to_le_bytes()[(offset % WORD as u64) as usize]
    }

    /// Compare what was read from this offset on.
    pub fn verify(self, name: &str, offset: u64, buffer: &[u8]) -> Result<()> {
        let (head, body) = buffer.split_at(ragged(offset).min(buffer.len()));
        self.verify_ragged(name, offset, head)?;
        let mut at = offset + head.len() as u64;
        for piece in body.chunks(WORD * STRIDE_WORDS) {
            let first = at / WORD as u64;
            let words = piece.chunks_exact(WORD);
            let rest = words.remainder();
            let differences = (first..).zip(words).fold(0, |differences, (index, word)| {
                differences | (self.word(index) ^ u64::from_le_bytes(word.try_into().expect("eight bytes")))
            });
            if differences != 0 {
                self.verify_ragged(name, at, piece)?;
            }
            self.verify_ragged(name, at + (piece.len() - rest.len()) as u64, rest)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn verify_ragged(self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        match (offset..).zip(bytes).find(|(at, byte)| self.byte(*at) != **byte) {
            None => Ok(()),
            Some((at, byte)) => {
                let wrong = format!("byte {at} is {byte:#04x}, and {:#04x} was written", self.byte(at));
                Err(Error::corrupt(wrong, name).hint(
                    "the target changes what it keeps: run again without --direct, or with one thread, to see which part does",
                ))
            }
        }
    }
}

/// Bytes up to the next word.
fn ragged(offset: u64) -> usize {
    (offset.next_multiple_of(WORD as u64) - offset) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_of_a_file_is_the_same_as_in_the_whole() {
        let content = Content::of(3, 4);
        let mut whole = vec![0; 10_000];
        content.fill(0, &mut whole);
        for (start, end) in [(0, 10_000), (1, 2), (3, 4_099), (8, 16), (4_096, 9_999), (9_999, 10_000), (5, 5)] {
            let mut piece = vec![0; end - start];
            content.fill(start as u64, &mut piece);
            assert!(piece == whole[start..end], "{start}..{end}");
            content.verify("x", start as u64, &piece).expect("what was made is right");
        }
    }

    #[test]
    fn a_flipped_bit_a_moved_block_and_another_file_are_found() {
        let content = Content::of(3, 4);
        let mut whole = vec![0; 9_001];
        content.fill(0, &mut whole);
        for at in [0, 7, 4_095, 4_096, 8_999, 9_000] {
            let mut wrong = whole.clone();
            wrong[at] ^= 1;
            let error = content.verify("a/f1", 0, &wrong).expect_err("a bit was flipped");
            assert!(error.what.starts_with(&format!("byte {at} is")) && error.on == "a/f1", "{error}");
        }
        assert!(content.verify("x", 4_096, &whole[..4_096]).is_err(), "a block of another place");
        assert!(Content::of(3, 5).verify("x", 0, &whole).is_err(), "another file");
        assert!(Content::of(4, 4).verify("x", 0, &whole).is_err(), "another seed");
    }
}
