//! Complete files that stay open a while although nobody holds them, so that who is asked for many of them again and again
//! doesn't open each anew.
//!
//! Invariants: none stays open that has left the cache, for its space would stay in use; and that it is kept here holds none of
//! them in the cache.

use super::super::segment::Residency;
use super::super::whole::Whole;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Files, if the system lets this node have eight times as many; and bytes of them, whose checksums take a part in 8,192 of
/// memory.
const FILES_MAX: u64 = 4096;
const FILES_SHARE: u64 = 8;
const BYTES_MAX: u64 = 64 << 30;

/// Those that were opened last.
#[derive(Default)]
pub struct Recent {
    files: VecDeque<Arc<Whole>>,
    residencies: HashSet<Residency>,
    files_max: usize,
    bytes: u64,
}

impl Recent {
    /// From now on some are kept.
    pub fn begin(&mut self) {
        use rustix::process::{Resource, getrlimit};
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        self.files_max = FILES_MAX.min(files / FILES_SHARE) as usize;
    }

    /// One was opened.
    pub fn keep(&mut self, whole: &Arc<Whole>) {
        if self.files_max == 0 || whole.segment.bytes() > BYTES_MAX {
            return;
        }
        self.files.push_back(whole.clone());
        self.residencies.insert(whole.residency);
        self.bytes += whole.segment.bytes();
        while self.files.len() > self.files_max || self.bytes > BYTES_MAX {
            let Some(oldest) = self.files.pop_front() else { return };
            self.residencies.remove(&oldest.residency);
            self.bytes -= oldest.segment.bytes();
        }
    }

    /// Whether one stays open for this alone, if nobody else holds it.
    pub fn has(&self, residency: Residency) -> bool {
        self.residencies.contains(&residency)
    }

    /// One has left the cache.
    pub fn drop(&mut self, residency: Residency) {
        if !self.residencies.remove(&residency) {
            return;
        }
        self.files.retain(|whole| whole.residency != residency);
        self.bytes = self.files.iter().map(|whole| whole.segment.bytes()).sum();
    }
}
