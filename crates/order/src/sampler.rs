//! What `torch.utils.data.DistributedSampler` deals to one rank in an epoch.
//!
//! Invariant: it is a function of its settings and the epoch alone, and the same that PyTorch deals.

use crate::Mersenne;

/// The arguments of a `DistributedSampler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    pub seed: u64,
    pub rank: u64,
    /// Ranks in all: `num_replicas`.
    pub world: u64,
    pub shuffle: bool,
    /// Leave out the last samples where ranks would not have equally many, rather than repeat some.
    pub drop_last: bool,
}

impl Sampler {
    /// How many of so many samples the rank reads in an epoch.
    pub fn share(&self, samples: u64) -> u64 {
        match self.drop_last && !samples.is_multiple_of(self.world) {
            true => samples / self.world,
            false => samples.div_ceil(self.world),
        }
    }

    /// Numbers of the samples that the rank reads after `set_epoch(epoch)`, of so many: at most 2^32 - 1.
    pub fn deal(&self, epoch: u64, samples: u64) -> Vec<u32> {
        let order = match self.shuffle {
            true => Mersenne::of(self.seed.wrapping_add(epoch)).permutation(samples),
            false => (0..samples as u32).collect(),
        };
        if order.is_empty() {
            return order;
        }
        let place = |number: u64| order[((number * self.world + self.rank) % samples) as usize];
        (0..self.share(samples)).map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Sampler = Sampler { seed: 0, rank: 0, world: 1, shuffle: true, drop_last: false };

    #[test]
    fn each_rank_gets_what_pytorch_gives_it() {
        // list(DistributedSampler(range(11), 3, rank, seed=123)) after set_epoch(2), PyTorch 1.13.
        for (rank, wanted) in [[8, 1, 2, 7], [10, 4, 6, 5], [0, 3, 9, 8]].iter().enumerate() {
            let sampler = Sampler { seed: 123, rank: rank as u64, world: 3, ..PLAIN };
            assert_eq!(sampler.deal(2, 11), wanted);
            let fewer = Sampler { drop_last: true, ..sampler };
            assert_eq!((fewer.deal(2, 11), fewer.share(11), sampler.share(11)), (wanted[..3].to_vec(), 3, 4));
        }
        // Fewer samples than ranks: they are repeated as often as it takes.
        let sampler = Sampler { seed: 5, rank: 6, world: 7, ..PLAIN };
        assert_eq!((sampler.deal(0, 3), sampler.deal(0, 0)), (Sampler { rank: 0, ..sampler }.deal(0, 3), Vec::new()));
    }

    #[test]
    fn ranks_read_all_samples_and_none_twice_but_what_makes_them_equal() {
        for (samples, world) in [(100, 1), (100, 4), (101, 4), (7, 8), (1, 1)] {
            for shuffle in [false, true] {
                let of = |rank, drop_last| Sampler { rank, world, shuffle, drop_last, ..PLAIN }.deal(9, samples);
                let mut all: Vec<u32> = (0..world).flat_map(|rank| of(rank, false)).collect();
                let cut: Vec<u32> = (0..world).flat_map(|rank| of(rank, true)).collect();
                assert_eq!(all.len() as u64, samples.div_ceil(world) * world);
                assert_eq!(cut.len() as u64, samples / world * world);
                all.sort_unstable();
                all.dedup();
                assert_eq!(all, (0..samples as u32).collect::<Vec<_>>());
                assert!(shuffle || of(0, false)[0] == 0);
            }
        }
    }
}
