//! Opens, reads and bytes over time, in slices that become longer as the run does.
//!
//! Invariant: there are at most [`SLICES_MAX`], and their sums are those of all events.

use serde::{Deserialize, Serialize};

/// Enough to see seconds within an hour; then two become one.
const SLICES_MAX: usize = 3600;

/// What was asked in a slice of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub opens: u64,
    pub reads: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Timeline {
    pub width_ns: u64,
    pub slices: Vec<Slice>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { width_ns: 100_000_000, slices: Vec::new() }
    }
}

impl Timeline {
    /// The slice of a moment.
    pub fn slice(&mut self, at_ns: u64) -> &mut Slice {
        while at_ns / self.width_ns >= SLICES_MAX as u64 {
            self.halve();
        }
        let place = (at_ns / self.width_ns) as usize;
        if place >= self.slices.len() {
            self.slices.resize(place + 1, Slice::default());
        }
        &mut self.slices[place]
    }

    /// At most so many slices, for a picture.
    pub fn coarse(&self, most: usize) -> Timeline {
        let mut coarse = self.clone();
        while coarse.slices.len() > most.max(1) {
            coarse.halve();
        }
        coarse
    }

    fn halve(&mut self) {
        let sum = |pair: &[Slice]| {
            pair.iter().fold(Slice::default(), |sum, slice| Slice {
                opens: sum.opens + slice.opens,
                reads: sum.reads + slice.reads,
                bytes: sum.bytes + slice.bytes,
            })
        };
        self.slices = self.slices.chunks(2).map(sum).collect();
        self.width_ns *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_longer_slices_and_loses_nothing() {
        let mut timeline = Timeline::default();
        for second in 0..100_000_u64 {
            timeline.slice(second * 1_000_000_000).reads += 1;
        }
        assert!(timeline.slices.len() <= SLICES_MAX);
        assert_eq!(timeline.slices.iter().map(|slice| slice.reads).sum::<u64>(), 100_000);
        let coarse = timeline.coarse(10);
        assert!(coarse.slices.len() <= 10);
        assert_eq!(coarse.slices.iter().map(|slice| slice.reads).sum::<u64>(), 100_000);
    }
}
