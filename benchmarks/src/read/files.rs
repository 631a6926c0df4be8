//! Reading the content of files: whole small ones, large ones in sequence, places of a big one.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

use super::{Counts, Order, Outcome, open_folder, together};
use crate::dataset::{Member, mixed, shuffle};
use crate::workload::Workload;

/// Holds any small file, so that one read takes it whole and a second one sees its end.
const SMALL_BUFFER: usize = 256 << 10;
const LARGE_READ: usize = 1 << 20;
const RANDOM_READ: usize = 128 << 10;
/// What Stoker fetches at least; some peers fetch less, some more.
const BLOCK: u64 = 256 << 10;

/// A member whose name is ready for the system call.
pub struct Named {
    pub path: CString,
    pub member: Member,
}

impl Named {
    pub fn all(members: Vec<Member>) -> Vec<Named> {
        members.into_iter().map(Named::one).collect()
    }

    fn one(member: Member) -> Named {
        let path = CString::new(member.name.as_str()).expect("no name holds a zero byte");
        Named { path, member }
    }

    fn open(&self, root: BorrowedFd) -> rustix::io::Result<OwnedFd> {
        rustix::fs::openat(root, self.path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens, reads to the end with reads of the buffer's size, closes.
    pub fn whole(&self, root: BorrowedFd, buffer: &mut [u8], tally: &mut Counts) {
        let name = &self.member.name;
        let file = match self.open(root) {
            Ok(file) => file,
            Err(error) => return tally.error(name, &format!("open: {error}")),
        };
        let mut at = 0;
        loop {
            match rustix::io::read(&file, &mut *buffer) {
                Ok(0) => break,
                Ok(length) => {
                    tally.wrong_tags += self.member.wrong_tags(&buffer[..length], at);
                    at += length as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tally.error(name, &format!("read at {at}: {error}")),
            }
        }
        if at != self.member.size {
            return tally.error(name, &format!("{at} bytes instead of {}", self.member.size));
        }
        tally.items += 1;
        tally.bytes += at;
    }
}

pub fn small(order: &Order) -> Result<Outcome> {
    let root = open_folder(&order.root)?;
    let passes = order.workload.passes(order.phase);
    let files = Named::all(order.scale.small());
    let mut sequence = Vec::new();
    for pass in 0..passes {
        let mut indices: Vec<u32> = (0..files.len() as u32).collect();
        shuffle(&mut indices, mixed(order.seed, u64::from(pass)));
        sequence.extend(indices);
    }
    let next = AtomicUsize::new(0);
    let (tally, took) = together(order.workload.threads(), SMALL_BUFFER, |_, buffer| {
        let mut tally = Counts::default();
        while let Some(&index) = sequence.get(next.fetch_add(1, Ordering::Relaxed)) {
            files[index as usize].whole(root.as_fd(), buffer, &mut tally);
        }
        tally
    });
    Ok(tally.outcome(took, passes))
}

pub fn large(order: &Order) -> Result<Outcome> {
    let root = open_folder(&order.root)?;
    let passes = order.workload.passes(order.phase);
    let files = Named::all(order.scale.large());
    let next = AtomicUsize::new(0);
    let (tally, took) = together(order.workload.threads(), LARGE_READ, |_, buffer| {
        let mut tally = Counts::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= files.len() * passes as usize {
                return tally;
            }
            files[index % files.len()].whole(root.as_fd(), buffer, &mut tally);
        }
    });
    Ok(tally.outcome(took, passes))
}

/// Random places: all of the file's 128 KiB pieces in shuffled order, again in another order when
/// more reads are asked for than there are pieces. Each thread has a descriptor of its own.
pub fn random(order: &Order) -> Result<Outcome> {
    let root = open_folder(&order.root)?;
    let big = Named::one(order.scale.big());
    let reads = Workload::random_reads(order.phase);
    let pieces = big.member.size / RANDOM_READ as u64;
    let mut places = Vec::new();
    for turn in 0.. {
        let mut all: Vec<u64> = (0..pieces).collect();
        shuffle(&mut all, mixed(order.seed, turn));
        places.extend(all);
        if places.len() >= reads {
            break;
        }
    }
    places.truncate(reads);
    let threads = order.workload.threads();
    let files: Vec<OwnedFd> =
        (0..threads).map(|_| big.open(root.as_fd()).context("opening the big file")).collect::<Result<_>>()?;
    let next = AtomicUsize::new(0);
    let (tally, took) = together(threads, RANDOM_READ, |thread, buffer| {
        let mut tally = Counts::default();
        while let Some(&piece) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
            let at = piece * RANDOM_READ as u64;
            piece_at(&files[thread], &big.member, at, buffer, &mut tally);
        }
        tally
    });
    let touched_bytes = touched_blocks(&places);
    Ok(Outcome { touched_bytes, ..tally.outcome(took, 1) })
}

/// Bytes of the distinct blocks at these places. The big file is a whole number of blocks.
fn touched_blocks(places: &[u64]) -> u64 {
    let of_block = |piece: &u64| piece * RANDOM_READ as u64 / BLOCK;
    places.iter().map(of_block).collect::<BTreeSet<_>>().len() as u64 * BLOCK
}

/// One whole pass over the big file, one thread.
pub fn fill(order: &Order) -> Result<Outcome> {
    let root = open_folder(&order.root)?;
    let big = Named::one(order.scale.big());
    let (tally, took) = together(1, LARGE_READ, |_, buffer| {
        let mut tally = Counts::default();
        big.whole(root.as_fd(), buffer, &mut tally);
        tally
    });
    Ok(tally.outcome(took, 1))
}

fn piece_at(file: &OwnedFd, member: &Member, at: u64, buffer: &mut [u8], tally: &mut Counts) {
    let mut have = 0;
    while have < buffer.len() {
        match rustix::io::pread(file, &mut buffer[have..], at + have as u64) {
            Ok(0) => return tally.error(&member.name, &format!("ends at {}", at + have as u64)),
            Ok(length) => have += length,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return tally.error(&member.name, &format!("read at {at}: {error}")),
        }
    }
    tally.wrong_tags += member.wrong_tags(buffer, at);
    tally.items += 1;
    tally.bytes += have as u64;
}
