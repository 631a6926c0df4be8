//! How far ahead of a reader to ask. Pure: offsets in, blocks out.
//!
//! A reader that starts at the beginning is taken at its word and followed; one that jumps gets the blocks
//! it touches and nothing more, so that random reads fetch no byte in vain.

use block::BLOCK;
use std::ops::Range;

/// Blocks asked for ahead of one open file. Sixty-four mebibytes cover the round trip to a bucket at 50 ms and
/// 1 GiB/s; more only takes memory from the other files.
pub const AHEAD_BLOCKS_MAX: u32 = 256;

/// Blocks asked for ahead of a run that has just begun: enough for two requests side by side.
const AHEAD_BLOCKS_MIN: u32 = 16;

/// The kernel may deliver reads of one reader out of order by about its readahead window.
const JITTER_BYTES: u64 = 4 << 20;

/// The recent past of one open file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readahead {
    /// Where the run has come to.
    reached: u64,
    /// Blocks to stay ahead of it; 0 while the reader jumps.
    window: u32,
    /// First block that has not been asked for ahead.
    asked: u32,
}

impl Readahead {
    /// Note a read, and learn which blocks to ask for now beyond those that it touches.
    pub fn note(&mut self, offset: u64, length: u64, blocks: u32) -> Range<u32> {
        let end = offset + length;
        let first = (offset / BLOCK) as u32;
        let after = (end.div_ceil(BLOCK) as u32).min(blocks);
        let follows = offset <= self.reached + JITTER_BYTES && end + JITTER_BYTES >= self.reached;
        let starts = offset == 0 && self.window == 0;
        if !(follows && self.window > 0 || starts || offset == self.reached && offset > 0) {
            *self = Readahead { reached: end, window: 0, asked: 0 };
            return after..after;
        }
        if self.window == 0 {
            (self.window, self.asked) = (AHEAD_BLOCKS_MIN, after);
        } else if first + self.window >= self.asked {
            self.window = (self.window * 2).min(AHEAD_BLOCKS_MAX);
        }
        self.reached = self.reached.max(end);
        self.asked = self.asked.max(after);
        let until = (after + self.window).min(blocks);
        // Ask in pieces worth a request: not one block at each read, but when half of the window is open.
        if until.saturating_sub(self.asked) < self.window.div_ceil(2) && until < blocks {
            return self.asked..self.asked;
        }
        let ask = self.asked..until.max(self.asked);
        self.asked = ask.end;
        ask
    }

    /// Blocks that were asked for beyond what was read.
    pub fn ahead(&self) -> Range<u32> {
        match self.window {
            0 => 0..0,
            _ => self.reached.div_ceil(BLOCK) as u32..self.asked,
        }
    }

    /// What was to be asked for was asked for up to this block only: the rest will be named again.
    pub fn asked_until(&mut self, block: u32) {
        self.asked = self.asked.min(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_from_the_start_is_followed_ever_further() {
        let mut ahead = Readahead::default();
        let (mut asked, mut furthest) = (vec![false; 800], 0);
        for read in 0..800 {
            let ask = ahead.note(read * BLOCK, BLOCK, 800);
            furthest = furthest.max(ask.end.saturating_sub(read as u32 + 1));
            for block in ask {
                assert!(!asked[block as usize], "block {block} asked twice");
                asked[block as usize] = true;
            }
        }
        assert_eq!(u64::from(furthest) * BLOCK, 64 << 20);
        assert!(asked[1..].iter().all(|asked| *asked), "every block but the first was asked for ahead");
    }

    #[test]
    fn a_reader_that_jumps_gets_nothing_ahead() {
        let mut ahead = Readahead::default();
        for at in [500, 100, 300, 700, 20] {
            assert!(ahead.note(at * BLOCK, 131_072, 1_000).is_empty(), "at {at}");
        }
    }

    #[test]
    fn small_reads_in_slight_disorder_are_still_a_run() {
        let mut ahead = Readahead::default();
        ahead.note(0, 131_072, 1_000);
        for n in [2u64, 1, 4, 3, 6, 5] {
            ahead.note(n * 131_072, 131_072, 1_000);
        }
        assert!(ahead.window > 0);
        ahead.note(900 * BLOCK, 131_072, 1_000);
        assert_eq!(ahead.window, 0, "a far jump ends the run");
        ahead.note(900 * BLOCK + 131_072, 131_072, 1_000);
        assert!(ahead.window > 0, "going on from there begins another");
    }

    #[test]
    fn nothing_is_asked_past_the_end() {
        let mut ahead = Readahead::default();
        assert_eq!(ahead.note(0, BLOCK, 3), 1..3);
        assert!(ahead.note(BLOCK, 2 * BLOCK, 3).is_empty());
    }
}
