//! Complete files that stay open a while although nobody holds them, so that who is asked for many of them again and again
//! doesn't open each anew.
//!
//! Invariant: none stays open that has left the cache, for its space would stay in use.

use super::super::segment::Residency;
use super::super::whole::Whole;
use std::collections::VecDeque;
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
        self.bytes += whole.segment.bytes();
        while self.files.len() > self.files_max || self.bytes > BYTES_MAX {
            let oldest = self.files.pop_front();
            self.bytes -= oldest.map_or(0, |whole| whole.segment.bytes());
        }
    }

    /// One has left the cache.
    pub fn drop(&mut self, residency: Residency) {
        self.files.retain(|whole| whole.residency != residency);
        self.bytes = self.files.iter().map(|whole| whole.segment.bytes()).sum();
    }
}
