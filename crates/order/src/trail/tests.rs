//! Opens as loaders make them, and what is concluded from those; of chance nothing.

use super::*;
use crate::Sampler;

/// A loader with so many workers, of which each reads whole batches in turn.
#[derive(Clone, Copy, Debug)]
struct Loader {
    workers: usize,
    batch: usize,
}

impl Loader {
    /// The first opens of its workers, so many in all, one after the other as they are equally fast.
    fn opens(self, share: &[u32], count: usize) -> Vec<Vec<u32>> {
        let of = |worker: usize| {
            let batches = share.chunks(self.batch).skip(worker).step_by(self.workers);
            batches.flatten().copied().collect::<Vec<_>>()
        };
        let mut all: Vec<Vec<u32>> = (0..self.workers).map(of).collect();
        let each = |worker: usize| count / self.workers + usize::from(worker < count % self.workers);
        all.iter_mut().enumerate().for_each(|(worker, opens)| opens.truncate(each(worker)));
        all
    }
}

fn find(opens: Vec<Vec<u32>>, samples: u32, sums: impl IntoIterator<Item = u64>) -> Option<Finding> {
    let mut trail = Trail::of(opens, samples);
    sums.into_iter().find_map(|sum| trail.try_sum(sum))
}

/// Numbers that mean nothing.
fn noise(seed: u64) -> Mersenne {
    Mersenne::of(seed ^ 0x5eed)
}

#[test]
fn sixteen_opens_of_a_rank_say_seed_world_and_rank() {
    let mut chance = noise(1);
    for case in 0..300 {
        let samples = [1_000, 3_000, 10_000, 50_000, 200_000, 1_000_000][case % 6];
        let world = 1 + u64::from(chance.draw() % 64);
        let (rank, sum) = (u64::from(chance.draw()) % world, u64::from(chance.draw() % 1_000));
        let workers = [1, 2, 4][chance.draw() as usize % 3];
        let loader = Loader { workers, batch: 2 + chance.draw() as usize % 127 };
        let sampler = Sampler { seed: sum, rank, world, shuffle: true, drop_last: false };
        // With fewer, all that a rank has is one batch.
        let loader = Loader { batch: loader.batch.min((samples / world) as usize / workers).max(2), ..loader };
        let opens = loader.opens(&sampler.deal(0, samples), 16);
        // Those that are not meant come first.
        let sums = (0..8).map(|_| u64::from(chance.draw() % 1_000)).filter(|other| *other != sum).chain([sum]);
        let found = find(opens, samples as u32, sums.collect::<Vec<_>>());
        let found = found.map(|found| (found.sum, found.world, found.ranks));
        assert_eq!(found, Some((sum, world, vec![rank])), "of {samples} by {loader:?}");
    }
}

#[test]
fn a_thousand_orders_by_chance_are_no_sampler_s() {
    let mut chance = noise(2);
    for case in 0..1_000 {
        let samples = [1_000, 3_000, 20_000][case % 3];
        let workers = [1, 4, 16][case / 3 % 3];
        let order = Mersenne::of((1 << 31) + case as u64).permutation(samples);
        let opens = Loader { workers, batch: 8 }.opens(&order, 64);
        let sums: Vec<u64> = (0..20).map(|_| u64::from(chance.draw() % 1_000)).collect();
        assert_eq!(find(opens, samples as u32, sums), None, "of {samples}, {workers} workers");
    }
}

#[test]
fn names_in_their_order_and_the_same_file_again_and_again_are_no_sampler_s() {
    for opens in [vec![(0..64).collect::<Vec<u32>>()], vec![vec![7; 64]], vec![Vec::new()], Vec::new()] {
        assert_eq!(find(opens, 1_000, sums().take(100)), None);
    }
    assert_eq!(find(vec![vec![0]], 1, [0]), None);
    assert_eq!(find(vec![vec![5, 9, u32::MAX]], 3, [0]), None, "more than there are");
}

#[test]
fn several_ranks_on_one_node_are_found_together_and_a_few_other_opens_don_t_matter() {
    let share = |rank| Sampler { seed: 40, rank, world: 16, shuffle: true, drop_last: true }.deal(2, 30_000);
    let mut opens: Vec<Vec<u32>> =
        [3, 9].into_iter().flat_map(|rank| Loader { workers: 4, batch: 32 }.opens(&share(rank), 16)).collect();
    opens.push(vec![17, 18]);
    opens[0].insert(2, 20_000);
    let found = find(opens, 30_000, sums()).expect("a finding");
    assert_eq!((found.sum, found.world, found.ranks), (42, 16, vec![3, 9]));
}

#[test]
fn likely_sums_come_first_and_all_below_a_thousand() {
    let all: Vec<u64> = sums().collect();
    assert!((0..1_024).all(|sum| all.contains(&sum)));
    assert!([0, 1, 42, 43, 1_234].iter().all(|sum| all[..160].contains(sum)));
}
