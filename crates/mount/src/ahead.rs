//! Small complete files are read ahead when their name is looked up: whoever asks for a name that the kernel has
//! forgotten mostly reads the file next, and the disk works while the two messages in between are on their way.
//!
//! Invariant: reads in vain are at most [`GUESSES_MAX`] more than files that were opened meanwhile.

use rustix::fs::{Advice, fadvise};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Files read ahead beyond those that were opened since. More than the readers that a machine has between the two messages,
/// and few enough that a walk over all names, which opens nothing, costs no more than a moment of the disk.
const GUESSES_MAX: u32 = 64;

/// What was guessed, and what may be kept for guessing.
pub struct Ahead {
    guesses: AtomicU32,
    descriptors: u64,
}

impl Default for Ahead {
    /// At most half of the process's descriptors: the others are for files that are read.
    fn default() -> Ahead {
        let limit = getrlimit(Resource::Nofile).current;
        Ahead { guesses: AtomicU32::new(0), descriptors: limit.unwrap_or(u64::MAX) / 2 }
    }
}

impl Ahead {
    /// A file is being opened for the first time: a small one is read at once. A descriptor to do so again later comes
    /// back if there are descriptors to spare.
    pub fn opening(&self, file: BorrowedFd<'_>, size: u64) -> Option<Arc<OwnedFd>> {
        if size > block::SMALL {
            return None;
        }
        read(file);
        // The lowest number that is free: above the limit, all below it are taken.
        let again = file.try_clone_to_owned().ok()?;
        ((again.as_raw_fd() as u64) < self.descriptors).then(|| Arc::new(again))
    }

    /// The name of this file was looked up.
    pub fn looked_up(&self, file: &OwnedFd) {
        if self.guesses.fetch_update(Relaxed, Relaxed, |now| (now < GUESSES_MAX).then_some(now + 1)).is_ok() {
            read(file.as_fd());
        }
    }

    /// A file was opened, so looking names up pays again.
    pub fn opened(&self) {
        if self.guesses.load(Relaxed) > 0 {
            let _ = self.guesses.fetch_update(Relaxed, Relaxed, |now| now.checked_sub(1));
        }
    }
}

/// Have the kernel read a file into the page cache, without waiting for it. What fails here fails at the read.
fn read(file: BorrowedFd<'_>) {
    let _ = fadvise(file, 0, None, Advice::WillNeed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_takes_no_more_descriptors_than_it_may_whoever_closes_others_meanwhile() {
        let open = || std::fs::File::open("/proc/self/exe").expect("this program");
        let ahead = Ahead { descriptors: open().as_raw_fd() as u64 + 16, ..Ahead::default() };
        // The file's own number is free again each time.
        let kept: Vec<_> = (0..100).filter_map(|_| ahead.opening(open().as_fd(), 1)).collect();
        assert!(kept.len() <= 16, "{}", kept.len());
    }
}
