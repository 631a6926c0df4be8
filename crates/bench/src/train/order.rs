//! Which samples each stream of each accelerator reads in an epoch, batch by batch.
//!
//! It reads nothing. Invariants: the order is a function of (seed, epoch) alone; batch k of an accelerator belongs to
//! its stream k mod W, as a PyTorch `DataLoader` deals them to its workers. Of files that are read from end to end an
//! accelerator has every N-th, whole: so `tf.data.Dataset.shard(n, i)` deals a list of TFRecord files (its elements whose
//! index modulo n is i), `split_by_node` of WebDataset the shards of tar, and `DistributedSampler` without a shuffle files of one
//! sample.

use std::ops::Range;

use order::Mersenne;
use workload::{Order, Partition};

/// What decides an order.
#[derive(Clone, Debug)]
pub struct Dealing {
    pub order: Order,
    pub partition: Partition,
    pub seed: u64,
    /// Accelerators of all ranks together: what PyTorch calls replicas.
    pub replicas: u64,
    pub batch: u64,
    pub streams: u64,
    /// Steps of an epoch; the last, smaller batch is dropped.
    pub steps: u64,
    /// Samples read ahead of those that are handed on, over all streams of an accelerator.
    pub shuffle_buffer: u64,
}

/// One epoch.
pub struct Hand {
    dealing: Dealing,
    samples: u64,
    lots: Lots,
}

enum Lots {
    /// A permutation of all samples, every `replicas`th of which is an accelerator's.
    Picks(Vec<u32>),
    /// Of each accelerator, a permutation of its own samples.
    Parts(Vec<Vec<u32>>),
    /// Of each accelerator, the runs of samples that it reads one after the other.
    Runs(Vec<Laid>),
}

/// Runs of samples laid end to end.
struct Laid {
    runs: Vec<Range<u64>>,
    /// Where each begins.
    starts: Vec<u64>,
}

/// Samples of one accelerator in an epoch, with those that `DistributedSampler` repeats to make all equal.
pub fn share(samples: u64, replicas: u64) -> u64 {
    samples.div_ceil(replicas)
}

impl Dealing {
    /// Deal an epoch, counted from 0. `files` has the samples of each file.
    pub fn deal(&self, epoch: u64, files: &[Range<u64>]) -> Hand {
        let samples = files.last().map_or(0, |range| range.end);
        let mut generator = Mersenne::of(self.seed.wrapping_add(epoch));
        let mut mixed = |runs: &[Range<u64>]| -> Vec<Range<u64>> {
            generator.permutation(runs.len() as u64).iter().map(|&run| runs[run as usize].clone()).collect()
        };
        let laid = |dealt: Vec<Vec<Range<u64>>>| Lots::Runs(dealt.into_iter().map(Laid::of).collect());
        let lots = match (self.order, self.partition) {
            (Order::Sequential, _) => laid(self.dealt(files.to_vec(), samples)),
            (Order::Shards, Partition::Fresh) => laid(self.dealt(mixed(files), samples)),
            (Order::Shards, Partition::Fixed) => {
                laid(self.dealt(files.to_vec(), samples).iter().map(|own| mixed(own)).collect())
            }
            (Order::Shuffled | Order::Random, Partition::Fresh) => Lots::Picks(generator.permutation(samples)),
            (Order::Shuffled | Order::Random, Partition::Fixed) => {
                let each = share(samples, self.replicas);
                Lots::Parts((0..self.replicas).map(|_| generator.permutation(each)).collect())
            }
        };
        Hand { dealing: self.clone(), samples, lots }
    }

    /// The files of each accelerator: every N-th, or where there are too few an equal length of them laid end to end.
    fn dealt(&self, files: Vec<Range<u64>>, samples: u64) -> Vec<Vec<Range<u64>>> {
        let (count, each) = (self.replicas, samples / self.replicas);
        if (files.len() as u64) < count {
            let whole = Laid::of(files);
            return (0..count).map(|replica| whole.cut(replica * each..(replica + 1) * each)).collect();
        }
        (0..count as usize).map(|first| files[first..].iter().step_by(count as usize).cloned().collect()).collect()
    }
}

impl Hand {
    /// What one batch of an accelerator reads, as runs of samples.
    pub fn batch(&self, replica: u64, batch: u64) -> Vec<Range<u64>> {
        let Dealing { replicas, batch: size, streams, order, .. } = self.dealing;
        match &self.lots {
            Lots::Picks(order) => (batch * size..(batch + 1) * size)
                .map(|place| u64::from(order[((place * replicas + replica) % self.samples) as usize]))
                .map(|sample| sample..sample + 1)
                .collect(),
            Lots::Parts(orders) => orders[replica as usize][(batch * size) as usize..((batch + 1) * size) as usize]
                .iter()
                .map(|&place| (replica * share(self.samples, replicas) + u64::from(place)) % self.samples)
                .map(|sample| sample..sample + 1)
                .collect(),
            Lots::Runs(runs) => {
                let places = if order == Order::Shards {
                    self.of_stream(batch / streams, batch % streams)
                } else {
                    batch * size..(batch + 1) * size
                };
                // Each accelerator has as many steps as the others.
                debug_assert!(places.end <= self.dealing.steps * size, "a batch of the epoch");
                runs[replica as usize].cut(places)
            }
        }
    }

    /// What the `number`th batch of a stream reads: as much as is handed on, and the buffer's filling at first.
    fn of_stream(&self, number: u64, stream: u64) -> Range<u64> {
        let Dealing { batch, streams, steps, shuffle_buffer, .. } = self.dealing;
        let batches = |stream: u64| (steps + streams - 1 - stream) / streams;
        let start: u64 = (0..stream).map(batches).sum::<u64>() * batch;
        let length = batches(stream) * batch;
        let ahead = shuffle_buffer.div_ceil(streams);
        let from = if number == 0 { 0 } else { (number * batch + ahead).min(length) };
        let to = ((number + 1) * batch + ahead).min(length);
        start + from..start + to
    }
}

impl Laid {
    fn of(runs: Vec<Range<u64>>) -> Laid {
        let starts = runs.iter().scan(0, |end, run| {
            let start = *end;
            *end += run.end - run.start;
            Some(start)
        });
        Laid { starts: starts.collect(), runs }
    }

    /// The part that lies at these places.
    fn cut(&self, places: Range<u64>) -> Vec<Range<u64>> {
        let first = self.starts.partition_point(|start| *start <= places.start).saturating_sub(1);
        let from_first = self.runs[first..].iter().zip(&self.starts[first..]);
        let within = from_first.take_while(|(_, start)| **start < places.end).filter_map(|(run, start)| {
            let (from, to) = (places.start.max(*start), places.end.min(start + run.end - run.start));
            (from < to).then(|| run.start + (from - start)..run.start + (to - start))
        });
        within.collect()
    }
}

#[cfg(test)]
// One file of many samples is one range, not a list of its numbers.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    fn dealing(order: Order, replicas: u64, batch: u64, streams: u64, steps: u64) -> Dealing {
        Dealing { order, partition: Partition::Fresh, seed: 123, replicas, batch, streams, steps, shuffle_buffer: 0 }
    }

    fn all(hand: &Hand, replicas: u64, steps: u64) -> Vec<u64> {
        let of = |replica| (0..steps).flat_map(move |batch| hand.batch(replica, batch)).flatten();
        (0..replicas).flat_map(of).collect()
    }

    #[test]
    fn samples_are_dealt_as_pytorch_deals_them() {
        // list(DistributedSampler(range(11), 3, rank, seed=123)) after set_epoch(2), PyTorch 1.13.
        let hand = dealing(Order::Shuffled, 3, 1, 2, 4).deal(2, &[0..11]);
        for (rank, wanted) in [[8, 1, 2, 7], [10, 4, 6, 5], [0, 3, 9, 8]].iter().enumerate() {
            let got: Vec<u64> = (0..4).flat_map(|batch| hand.batch(rank as u64, batch)).flatten().collect();
            assert_eq!(got, wanted);
        }
        assert_eq!(share(11, 3), 4);
        // Fewer samples than ranks: they are repeated as often as it takes.
        let hand = Dealing { seed: 5, ..dealing(Order::Shuffled, 7, 1, 1, 1) }.deal(0, &[0..3]);
        assert_eq!([hand.batch(0, 0), hand.batch(6, 0)], [[2..3], [2..3]]);
    }

    #[test]
    fn each_order_reads_each_sample_once() {
        let files: Vec<Range<u64>> = (0..8).map(|file| file * 10..(file + 1) * 10).collect();
        for order in [Order::Sequential, Order::Shuffled, Order::Shards, Order::Random] {
            let dealing = Dealing { shuffle_buffer: 7, ..dealing(order, 2, 4, 3, 10) };
            let mut read = all(&dealing.deal(1, &files), 2, 10);
            let is_in_order = read[..40].is_sorted() && read[40..].is_sorted();
            assert_eq!(is_in_order, order == Order::Sequential, "{order:?}");
            read.sort_unstable();
            assert_eq!(read, (0..80).collect::<Vec<u64>>(), "{order:?}");
        }
    }

    /// Files that an accelerator reads from in an epoch, each by its number.
    fn files_of(hand: &Hand, replica: u64, steps: u64) -> Vec<u64> {
        let mut found: Vec<u64> =
            (0..steps).flat_map(|batch| hand.batch(replica, batch)).map(|run| run.start / 10).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn files_that_are_read_from_end_to_end_are_dealt_one_by_one() {
        let files: Vec<Range<u64>> = (0..8).map(|file| file * 10..(file + 1) * 10).collect();
        let hand = |order, partition, epoch| Dealing { partition, ..dealing(order, 2, 4, 3, 10) }.deal(epoch, &files);
        for (order, partition) in [(Order::Sequential, Partition::Fresh), (Order::Shards, Partition::Fixed)] {
            for epoch in 0..3 {
                let hand = hand(order, partition, epoch);
                assert_eq!(files_of(&hand, 0, 10), [0, 2, 4, 6], "tf.data: files.shard(2, 0)");
                assert_eq!(files_of(&hand, 1, 10), [1, 3, 5, 7], "tf.data: files.shard(2, 1)");
            }
        }
        let fresh = [0, 1].map(|epoch| files_of(&hand(Order::Shards, Partition::Fresh, epoch), 0, 10));
        assert!(fresh[0] != fresh[1] && fresh.iter().all(|own| own.len() == 4), "whole files, other ones: {fresh:?}");
    }

    #[test]
    fn who_has_more_files_leaves_what_others_have_no_steps_for() {
        let files: Vec<Range<u64>> = (0..3).map(|file| file * 10..(file + 1) * 10).collect();
        let hand = dealing(Order::Sequential, 2, 3, 1, 3).deal(0, &files);
        let read = |replica| (0..3).flat_map(|batch| hand.batch(replica, batch)).flatten().collect::<Vec<u64>>();
        assert_eq!([read(0), read(1)], [(0..9).collect::<Vec<u64>>(), (10..19).collect()]);
        // Fewer files than accelerators: each has a part of one.
        let hand = dealing(Order::Sequential, 2, 5, 1, 3).deal(0, &files[..1]);
        assert_eq!([hand.batch(0, 0), hand.batch(1, 0)], [[0..5], [5..10]]);
    }

    #[test]
    fn parts_of_runs_lie_where_they_were_laid() {
        let laid = Laid::of(vec![10..13, 20..20, 30..31, 0..4]);
        let all: Vec<u64> = laid.runs.iter().cloned().flatten().collect();
        for from in 0..=all.len() {
            for to in from..=all.len() {
                let found: Vec<u64> = laid.cut(from as u64..to as u64).into_iter().flatten().collect();
                assert_eq!(found, all[from..to], "{from}..{to}");
            }
        }
        assert!(Laid::of(Vec::new()).cut(0..0).is_empty());
    }

    #[test]
    fn epochs_differ_and_repeat_with_their_seed() {
        let files: Vec<Range<u64>> = (0..8).map(|file| file * 10..(file + 1) * 10).collect();
        for order in [Order::Shuffled, Order::Shards] {
            let dealing = dealing(order, 1, 8, 1, 10);
            let read = |epoch| all(&dealing.deal(epoch, &files), 1, 10);
            assert_ne!(read(0), read(1));
            assert_eq!(read(1), read(1));
        }
    }

    #[test]
    fn a_fixed_partition_is_the_same_in_each_epoch_and_its_order_is_not() {
        let files: Vec<Range<u64>> = (0..9).map(|file| file * 9..(file + 1) * 9).collect();
        for order in [Order::Shuffled, Order::Shards, Order::Random] {
            let of = |partition, epoch, replica| {
                let hand = Dealing { partition, ..dealing(order, 3, 2, 1, 13) }.deal(epoch, &files);
                (0..13).flat_map(|batch| hand.batch(replica, batch)).flatten().collect::<Vec<u64>>()
            };
            let sorted = |mut read: Vec<u64>| {
                read.sort_unstable();
                read
            };
            for replica in 0..3 {
                let fixed = |epoch| of(Partition::Fixed, epoch, replica);
                assert_ne!(fixed(0), fixed(1), "{order:?}");
                // Every third file, or of samples one by one a third as they lie.
                let is_own = |sample: &u64| match order {
                    Order::Shards => sample / 9 % 3 == replica,
                    _ => sample / 27 == replica,
                };
                assert!(fixed(0).iter().chain(&fixed(1)).all(is_own), "{order:?}");
                assert_ne!(sorted(of(Partition::Fresh, 0, replica)), sorted(of(Partition::Fresh, 1, replica)));
            }
            let mut all: Vec<u64> = (0..3).flat_map(|replica| of(Partition::Fixed, 0, replica)).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 78, "{order:?}: nothing is read twice");
        }
        // Fewer samples than accelerators: they are repeated, and each keeps its own.
        let few = Dealing { partition: Partition::Fixed, ..dealing(Order::Shuffled, 7, 1, 1, 1) };
        assert!((0..5).all(|epoch| few.deal(epoch, &[0..3]).batch(5, 0) == [2..3]));
    }

    #[test]
    fn a_shuffle_buffer_is_filled_before_the_first_batch() {
        let dealing = Dealing { shuffle_buffer: 20, ..dealing(Order::Shards, 1, 4, 1, 10) };
        let hand = dealing.deal(0, &[0..40]);
        let lengths: Vec<u64> =
            (0..10).map(|batch| hand.batch(0, batch).iter().map(|run| run.end - run.start).sum()).collect();
        assert_eq!(lengths, [24, 4, 4, 4, 4, 0, 0, 0, 0, 0]);
    }
}
