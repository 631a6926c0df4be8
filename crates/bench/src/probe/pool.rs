//! The ranges of a set that a probe may read, each of them once.
//!
//! It reads nothing. Invariants: no two ranges that it gives overlap; the same seed gives the same ranges.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;

use data::noise::Chance;

use crate::samples::{Run, Set};

/// Bytes of one long read, and of a file that belongs to one part of the probe: whole, a part can make caches forget it.
/// It is a multiple of the largest pages of a cache (2 MiB), which are forgotten whole or not at all.
pub const LONG: u64 = 8 << 20;

/// A read that is all latency.
pub const SHORT: u64 = 4096;

/// Bytes from one short read to the next within a range: more than a kernel reads at once.
const APART: u64 = 128 << 10;

/// Ranges in the order in which they are given out.
pub struct Pool(VecDeque<Run>);

/// What one part of the probe reads, and the ranges that are its alone.
#[derive(Default)]
pub struct Share {
    pub reads: Vec<Run>,
    pub own: Vec<Run>,
}

impl Pool {
    /// All of a set, in an order by the seed; what is `read` soon comes last, and the first of it at the very end. Of several
    /// ranks each gets its part.
    pub fn of(set: &Set, read: &[Run], seed: u64, rank: (u64, u64)) -> Pool {
        let cut = |(file, listed): (usize, &targets::Listed)| {
            let bytes = listed.bytes;
            (0..bytes).step_by(LONG as usize).map(move |at| Run { file, range: at..(at + LONG).min(bytes) })
        };
        let mut all: Vec<Run> = set.files.iter().enumerate().flat_map(cut).collect();
        let touched = touched(&all, read);
        let mut order: Vec<usize> = (0..all.len()).collect();
        Chance::of(seed, 0x9001).shuffle(&mut order);
        order.sort_by_key(|&place| Reverse(touched[place]));
        let (rank, ranks) = rank;
        let own = order.into_iter().skip(rank as usize).step_by(ranks as usize);
        Pool(own.map(|place| std::mem::replace(&mut all[place], Run { file: 0, range: 0..0 })).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Up to so many ranges, to be read from end to end.
    pub fn long(&mut self, most: usize) -> Share {
        let own: Vec<Run> = self.0.drain(..most.min(self.0.len())).collect();
        Share { reads: own.clone(), own }
    }

    /// Short reads, up to so many, out of so many ranges at most, in an order by the seed.
    pub fn short(&mut self, ranges: usize, most: usize, seed: u64) -> Share {
        let mut found = Share::default();
        while found.own.len() < ranges && found.reads.len() < most {
            let Some(run) = self.0.pop_front() else { break };
            let place = |at: u64| Run { file: run.file, range: at..(at + SHORT).min(run.range.end) };
            found.reads.extend(run.range.clone().step_by(APART as usize).map(place));
            found.own.push(run);
        }
        Chance::of(seed, 0x5407).shuffle(&mut found.reads);
        found
    }
}

/// Of each of these ranges, in the order of their files, the first of the reads that has bytes in common with it; of
/// others a number above all.
fn touched(all: &[Run], read: &[Run]) -> Vec<usize> {
    let mut found = vec![usize::MAX; all.len()];
    for (number, Run { file, range: Range { start, end } }) in read.iter().enumerate() {
        let first = all.partition_point(|run| (run.file, run.range.end) <= (*file, *start));
        for (place, run) in all.iter().enumerate().skip(first) {
            if run.file != *file || run.range.start >= *end {
                break;
            }
            found[place] = found[place].min(number);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::{Files, Format};

    fn set(files: u64, bytes: f64) -> Set {
        let files = Files {
            format: Format::Raw,
            count: files,
            samples_per_file: 1,
            sample_bytes: bytes,
            sample_bytes_stdev: 0.0,
            sample_bytes_read: None,
        };
        Set::imagined(&files, files.count, 1)
    }

    fn sorted(mut runs: Vec<Run>) -> Vec<(usize, u64, u64)> {
        runs.sort_by_key(|run| (run.file, run.range.start));
        runs.into_iter().map(|run| (run.file, run.range.start, run.range.end)).collect()
    }

    #[test]
    fn no_byte_is_given_twice_to_any_part_of_any_rank() {
        for (files, bytes) in [(7, 20e6), (300, 100_000.0), (40, 8_388_608.0)] {
            let set = set(files, bytes);
            let mut reads = Vec::new();
            for rank in 0..3 {
                let mut pool = Pool::of(&set, &[], 5, (rank, 3));
                let (short, long) = (pool.short(2, 1000, 1), pool.long(3));
                assert!(short.reads.len() >= 2 && long.reads.len() == 3, "{files} of {bytes}");
                let rest = pool.long(usize::MAX);
                assert_eq!(pool.len(), 0);
                for share in [short, long, rest] {
                    let own = sorted(share.own.clone());
                    let within = |run: &Run| {
                        own.iter().any(|(file, start, end)| {
                            *file == run.file && *start <= run.range.start && run.range.end <= *end
                        })
                    };
                    assert!(share.reads.iter().all(within), "a part reads what is its own");
                    reads.extend(share.reads);
                }
            }
            let reads = sorted(reads);
            assert!(reads.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[0].2 <= pair[1].1));
        }
    }

    #[test]
    fn what_the_job_reads_is_given_last() {
        let set = set(10, 20e6);
        // Three ranges of each file; the job reads the files from 4 on, and a piece in the middle of the first.
        let mut read = vec![Run { file: 0, range: LONG + 5..LONG + 6 }];
        read.extend((4..10).map(|file| Run { file, range: 0..20_000_000 }));
        let mut pool = Pool::of(&set, &read, 3, (0, 1));
        let free = pool.long(11).own;
        let is_read = |run: &Run| run.file >= 4 || run.file == 0 && run.range.start == LONG;
        assert!(!free.iter().any(is_read), "{free:?}");
        assert!(pool.long(usize::MAX).own.iter().all(is_read));
        // What the job reads last is taken before what it reads first.
        let mut pool = Pool::of(&set, &[Run { file: 4, range: 0..9 }, Run { file: 2, range: 0..9 }], 3, (0, 1));
        pool.long(28);
        let rest: Vec<usize> = pool.long(usize::MAX).own.iter().map(|run| run.file).collect();
        assert_eq!(rest, [2, 4]);
        let order = |seed| Pool::of(&set, &[], seed, (0, 1)).long(usize::MAX).own;
        assert!(order(1) == order(1) && order(1) != order(2));
    }
}
