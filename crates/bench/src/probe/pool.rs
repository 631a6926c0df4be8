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

/// So many ranges that lie one behind the other are read in one go, if each stream has as many such chains.
const TOGETHER: u64 = 8;
const CHAINS_OF_STREAM: u64 = 4;

/// A read that is all latency.
pub const SHORT: u64 = 4096;

/// Bytes from one short read to the next within a range: far enough for a kernel that was told that reads are alone, and
/// near enough for a fast disk to find reads for all of the time.
const APART: u64 = 32 << 10;

/// Ranges in the order in which they are given out.
pub struct Pool {
    ranges: VecDeque<Run>,
    /// Whether neighbours are read in one go.
    is_joined: bool,
}

/// What one part of the probe reads, and the ranges that are its alone.
#[derive(Default)]
pub struct Share {
    pub reads: Vec<Run>,
    pub own: Vec<Run>,
}

impl Pool {
    /// All of a set, in an order by the seed; what is `read` soon comes last, and the first of it at the very
    /// end. Of several ranks each gets its part.
    ///
    /// Ranges of one file stay together, as far as there are enough of them for so many streams: what a kernel reads
    /// ahead beyond the end of a range (megabytes, on some disks) is then what the stream reads next, and not lost.
    pub fn of(set: &Set, read: &[Run], seed: u64, rank: (u64, u64), streams: u64) -> Pool {
        let (rank, ranks) = rank;
        let is_joined = set.piece < LONG;
        let count: u64 = set.files.iter().map(|file| file.bytes.div_ceil(LONG)).sum();
        let together =
            if is_joined { (count / (CHAINS_OF_STREAM * ranks * streams.max(1))).clamp(1, TOGETHER) } else { 1 };
        let cut = |(file, listed): (usize, &targets::Listed)| {
            let bytes = listed.bytes;
            let chain = together * LONG;
            (0..bytes).step_by(chain as usize).map(move |at| Run { file, range: at..(at + chain).min(bytes) })
        };
        let mut chains: Vec<Run> = set.files.iter().enumerate().flat_map(cut).collect();
        let touched = touched(&chains, read);
        let mut order: Vec<usize> = (0..chains.len()).collect();
        Chance::of(seed, 0x9001).shuffle(&mut order);
        order.sort_by_key(|&place| Reverse(touched[place]));
        let own = order.into_iter().skip(rank as usize).step_by(ranks as usize);
        let own = own.map(|place| std::mem::replace(&mut chains[place], Run { file: 0, range: 0..0 }));
        Pool { ranges: own.flat_map(|chain| ranges(&chain)).collect(), is_joined }
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Up to so many ranges, to be read from end to end.
    pub fn long(&mut self, most: usize) -> Share {
        let own: Vec<Run> = self.ranges.drain(..most.min(self.ranges.len())).collect();
        let mut reads: Vec<Run> = Vec::new();
        for run in &own {
            match reads.last_mut() {
                Some(last) if self.is_joined && last.file == run.file && last.range.end == run.range.start => {
                    last.range.end = run.range.end;
                }
                _ => reads.push(run.clone()),
            }
        }
        Share { reads, own }
    }

    /// Short reads, up to so many, out of so many ranges at most, in an order by the seed.
    pub fn short(&mut self, ranges: usize, most: usize, seed: u64) -> Share {
        let mut found = Share::default();
        while found.own.len() < ranges && found.reads.len() < most {
            let Some(run) = self.ranges.pop_front() else { break };
            let place = |at: u64| Run { file: run.file, range: at..(at + SHORT).min(run.range.end) };
            found.reads.extend(run.range.clone().step_by(APART as usize).map(place));
            found.own.push(run);
        }
        Chance::of(seed, 0x5407).shuffle(&mut found.reads);
        found
    }
}

/// What lies in one chain, range by range.
fn ranges(chain: &Run) -> Vec<Run> {
    let Run { file, range } = chain.clone();
    range.clone().step_by(LONG as usize).map(|at| Run { file, range: at..(at + LONG).min(range.end) }).collect()
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
        let files =
            Files { format: Format::Raw, count: files, samples_per_file: 1, sample_bytes: bytes, ..Files::default() };
        Set::imagined(&files, files.count, 1)
    }

    fn sorted(mut runs: Vec<Run>) -> Vec<(usize, u64, u64)> {
        runs.sort_by_key(|run| (run.file, run.range.start));
        runs.into_iter().map(|run| (run.file, run.range.start, run.range.end)).collect()
    }

    #[test]
    fn no_byte_is_given_twice_to_any_part_of_any_rank() {
        for (files, bytes) in [(7, 20e6), (300, 100_000.0), (40, 8_388_608.0), (4, 200e6)] {
            let set = set(files, bytes);
            let mut reads = Vec::new();
            for rank in 0..3 {
                let mut pool = Pool::of(&set, &[], 5, (rank, 3), 1);
                let (short, long) = (pool.short(2, 1000, 1), pool.long(3));
                assert!(short.reads.len() >= 2 && long.own.len() == 3, "{files} of {bytes}");
                let rest = pool.long(usize::MAX);
                assert_eq!(pool.len(), 0);
                for share in [short, long, rest] {
                    let own = sorted(share.own.clone());
                    let within = |run: &Run| {
                        own.iter().any(|(file, start, end)| {
                            *file == run.file && *start <= run.range.start && run.range.end <= *end
                        })
                    };
                    assert!(
                        share.reads.iter().flat_map(ranges).all(|run| within(&run)),
                        "a part reads what is its own"
                    );
                    reads.extend(share.reads);
                }
            }
            let reads = sorted(reads);
            assert!(reads.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[0].2 <= pair[1].1));
        }
    }

    #[test]
    fn neighbours_are_read_in_one_go_as_far_as_there_are_enough_for_all_streams() {
        let longest = |set: &Set, streams| {
            let share = Pool::of(set, &[], 1, (0, 1), streams).long(usize::MAX);
            assert_eq!(share.own.len() as u64, 4 * 200_000_000_u64.div_ceil(LONG));
            share.reads.iter().map(|run| run.range.end - run.range.start).max()
        };
        let mut set = set(4, 200e6);
        assert!(longest(&set, 3) >= Some(8 * LONG));
        assert!(longest(&set, 12) >= Some(2 * LONG));
        // Of a store, each range is a request.
        set.piece = 2 * LONG;
        assert_eq!(longest(&set, 3), Some(LONG));
    }

    #[test]
    fn what_the_job_reads_is_given_last() {
        let set = set(10, 20e6);
        // Three ranges of each file; the job reads the files from 4 on, and a piece in the middle of the first.
        let mut read = vec![Run { file: 0, range: LONG + 5..LONG + 6 }];
        read.extend((4..10).map(|file| Run { file, range: 0..20_000_000 }));
        let mut pool = Pool::of(&set, &read, 3, (0, 1), 8);
        let free = pool.long(11).own;
        let is_read = |run: &Run| run.file >= 4 || run.file == 0 && run.range.start == LONG;
        assert!(!free.iter().any(is_read), "{free:?}");
        assert!(pool.long(usize::MAX).own.iter().all(is_read));
        // What the job reads last is taken before what it reads first.
        let mut pool = Pool::of(&set, &[Run { file: 4, range: 0..9 }, Run { file: 2, range: 0..9 }], 3, (0, 1), 8);
        pool.long(28);
        let rest: Vec<usize> = pool.long(usize::MAX).own.iter().map(|run| run.file).collect();
        assert_eq!(rest, [2, 4]);
        let order = |seed| Pool::of(&set, &[], seed, (0, 1), 4).long(usize::MAX).own;
        assert!(order(1) == order(1) && order(1) != order(2));
    }
}
