//! How many there are of each size, in powers of two.
//!
//! Invariant: a bin holds what is at least its `from` and less than twice that; nothing is left out.

use serde::{Deserialize, Serialize};

/// Counts by the number of binary digits: zero, one, two to three, four to seven...
#[derive(Clone, Copy, Debug)]
pub struct Sizes([u64; 65]);

/// One bin that isn't empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// The least size in it, in bytes.
    pub from: u64,
    pub count: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes([0; 65])
    }
}

impl Sizes {
    pub fn add(&mut self, size: u64) {
        self.0[(64 - size.leading_zeros()) as usize] += 1;
    }

    pub fn bins(&self) -> Vec<Bin> {
        let bins = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        bins.map(|(digits, &count)| Bin { from: digits.checked_sub(1).map_or(0, |power| 1 << power), count }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_its_bin() {
        let mut sizes = Sizes::default();
        [0, 1, 2, 3, 4096, 8191, u64::MAX].into_iter().for_each(|size| sizes.add(size));
        let bins: Vec<(u64, u64)> = sizes.bins().iter().map(|bin| (bin.from, bin.count)).collect();
        assert_eq!(bins, [(0, 1), (1, 1), (2, 2), (4096, 2), (1 << 63, 1)]);
    }
}
