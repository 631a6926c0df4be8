//! What is known of uses outlives the daemon: a file beside the log, written now and then and at the end.
//!
//! Losing it costs hits and nothing else, so a failure is only logged.

use super::medium::How;
use super::{Alone, Disk, log};
use block::Error;

/// Opens after which the uses are written again, at least; and one in so many of the segments, since all of them are
/// written each time. Opens that a kill loses are counted anew within an epoch.
const OPENS_PER_SAVE: u64 = 1 << 14;
const SEGMENTS_PER_OPEN: u64 = 4;

/// Bytes of a file of uses that are believed to be one.
const BYTES_MAX: u64 = 256 << 20;

const NAME: &str = "uses";

impl Disk {
    /// Count an open, and write the uses if it is time to.
    pub(super) fn count_open(&self, object: &block::Object, set_bytes: u64) {
        let mut index = self.index();
        let (opens, segments) = index.used(object, set_bytes);
        if index.is_lost() || opens < OPENS_PER_SAVE.max(segments / SEGMENTS_PER_OPEN) {
            return;
        }
        index.opens = 0;
        drop(index);
        let Some(alone) = Alone::begin(self, |parts| &parts.is_saving) else { return };
        let work = move || alone.disk().save_uses();
        match self.0.medium.is_instant() {
            true => work(),
            false => drop(self.0.runtime.spawn_blocking(work)),
        }
    }

    /// Write what is known of uses.
    pub(super) fn save_uses(&self) {
        let index = self.index();
        if index.is_lost() {
            return;
        }
        let bytes = index.uses();
        drop(index);
        let (medium, beside) = (&self.0.medium, self.0.folder.join("uses.new"));
        let written = medium.open(&beside, How::OpenOrCreate).and_then(|file| {
            file.set_len(0)?;
            log::write(&*file, &bytes, 0)?;
            medium.rename(&beside, &self.0.folder.join(NAME))
        });
        if let Err(error) = written {
            tracing::warn!("{}", Error::io("cannot write the uses of the cache", beside.display(), &error));
        }
    }

    /// What an earlier daemon knew of uses.
    pub(super) fn saved_uses(&self) -> Vec<u8> {
        let opened = self.0.medium.open(&self.0.folder.join(NAME), How::Read);
        let read = opened.and_then(|file| {
            let bytes = file.status()?.bytes.min(BYTES_MAX);
            log::read(&*file, 0, bytes as usize)
        });
        read.unwrap_or_default()
    }
}
