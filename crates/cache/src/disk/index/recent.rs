//! Complete files that stay open a while although nobody holds them, so that who is asked for many of them again and again
//! doesn't open each anew.
//!
//! Invariants: none stays open that has left the cache, for its space would stay in use; and that it is kept here holds none of
//! them in the cache.

use super::super::segment::Residency;
use super::super::whole::Whole;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Files, if the system lets this node have eight times as many; and bytes of them, whose checksums take a part in 8,192 of
/// memory.
const FILES_MAX: u64 = 4096;
const FILES_SHARE: u64 = 8;
const BYTES_MAX: u64 = 64 << 30;

/// Those that were opened last.
#[derive(Default)]
pub struct Recent {
    /// In the order in which they were opened.
    files: BTreeMap<u64, Arc<Whole>>,
    turns: HashMap<Residency, u64>,
    /// The turn of the next one.
    next: u64,
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
        self.drop(whole.residency);
        self.files.insert(self.next, whole.clone());
        self.turns.insert(whole.residency, self.next);
        self.next += 1;
        self.bytes += whole.segment.bytes();
        while self.files.len() > self.files_max || self.bytes > BYTES_MAX {
            let Some(oldest) = self.files.values().next().map(|whole| whole.residency) else { return };
            self.drop(oldest);
        }
    }

    /// Whether one stays open for this alone, if nobody else holds it.
    pub fn has(&self, residency: Residency) -> bool {
        self.turns.contains_key(&residency)
    }

    /// One has left the cache.
    pub fn drop(&mut self, residency: Residency) {
        let file = self.turns.remove(&residency).and_then(|turn| self.files.remove(&turn));
        self.bytes -= file.map_or(0, |whole| whole.segment.bytes());
    }
}
