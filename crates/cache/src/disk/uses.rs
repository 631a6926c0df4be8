//! Opens, which are what is known of uses; and that it outlives the daemon: a file beside the log, written now and then and
//! at the end.
//!
//! Losing it costs hits and nothing else, so a failure is only logged.

use super::index::Index;
use super::medium::How;
use super::segment::{STRIPE_BLOCKS, Segment};
use super::{Alone, Disk, log};
use block::{Error, Object, ObjectId, blocks_of, bytes_of};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Opens after which the uses are written again, at least; and one in so many of the segments, since all of them are
/// written each time. Opens that a kill loses are counted anew within an epoch.
const OPENS_PER_SAVE: u64 = 1 << 14;
const SEGMENTS_PER_OPEN: u64 = 4;

/// Segments of one object that an open counts for: of more than 64 GiB in pieces, those at the end are never used, and give
/// way. More would hold up the reader who opens it.
const PIECES_MAX: usize = 4096;

/// Segments that are counted before others may have the index: some tenth of a millisecond.
pub(super) const STEPS_MAX: usize = 1000;

/// Bytes of a file of uses that are believed to be one.
const BYTES_MAX: u64 = 256 << 20;

const NAME: &str = "uses";

/// Parts of an object that somebody has use of, on this node or on another member.
#[derive(Clone, Debug)]
pub struct Use {
    pub object: ObjectId,
    /// Bytes of the whole object.
    pub size: u64,
    /// Blocks: where it is kept in pieces, the pieces that they fill.
    pub parts: Vec<Range<u32>>,
    /// Of the data set that it belongs to, as far as it may lie here.
    pub set_bytes: u64,
    pub kind: Kind,
}

/// What kind of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A reader opened it, and it is this node's.
    Opened,
    /// A reader opened it, and it is another member's: it may lie here as a copy, or in that one's stead.
    OpenedOfAnother,
    /// A reader on another member has it open still.
    Open,
}

impl Index {
    /// Count a use of some segments.
    fn used(&mut self, used: &Use, pieces: &[(ObjectId, u64)]) {
        for (id, bytes) in pieces {
            match used.kind {
                Kind::Opened => self.opened_piece(*id, *bytes, used.set_bytes),
                Kind::OpenedOfAnother => self.opened_of_another(*id, *bytes, used.set_bytes),
                Kind::Open => self.open_elsewhere(*id),
            }
        }
    }

    /// The segments that these parts lie in, or would, and the bytes of each.
    fn pieces(&self, used: &Use) -> Vec<(ObjectId, u64)> {
        let Use { object, size, parts, .. } = used;
        let blocks = blocks_of(*size).unwrap_or(0);
        if !Segment::is_size_cut(*size, blocks, self.whole_max.load(Relaxed)) || self.is_kept_whole(*object) {
            return vec![(*object, parts.iter().map(|part| bytes_of(*size, part)).sum())];
        }
        let stripes = parts.iter().flat_map(|part| part.clone().step_by(STRIPE_BLOCKS as usize));
        let stripe = |start: u32| {
            let part = start..(start + STRIPE_BLOCKS).min(blocks);
            (Segment::part_id(*object, &part), bytes_of(*size, &part))
        };
        stripes.take(PIECES_MAX).map(stripe).collect()
    }
}

impl Disk {
    /// Somebody opened an object, whichever way it is read then. `set_bytes`: of the data set that it belongs to.
    pub fn opened(&self, object: &Object, set_bytes: u64) {
        let (size, parts) = (object.size, std::iter::once(0..object.blocks()).collect());
        self.used(&[Use { object: object.id(), size, parts, set_bytes, kind: Kind::Opened }]);
    }

    /// Count uses, and write them if it is time to.
    pub fn used(&self, uses: &[Use]) {
        let (mut index, mut steps) = (self.index(), 0);
        for used in uses {
            for pieces in index.pieces(used).chunks(STEPS_MAX) {
                steps += pieces.len();
                if steps > STEPS_MAX {
                    drop(index);
                    std::thread::yield_now();
                    (index, steps) = (self.index(), pieces.len());
                }
                index.used(used, pieces);
            }
            index.opens += u64::from(used.kind != Kind::Open);
        }
        let (opens, segments) = (index.opens, index.files());
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
