//! Keeping what came from below, and calling it complete.
//!
//! Invariant: a segment is complete only after this boot wrote or compared each of its blocks, and after the whole
//! agrees with the store's checksum, where there is one.

use super::filling::Filling;
use super::segment::{Residency, Segment};
use super::whole::Whole;
use super::{Disk, file};
use block::{Block, Cause, Course, Door, Error, Result};
use std::sync::Arc;

impl Disk {
    /// A complete file could not be read: damaged, it goes.
    pub(super) fn damaged(&self, whole: &Whole, error: &Error) {
        if file::is_damage(error) {
            tracing::warn!("dropped a cache file and will fetch the object again: {error}");
            self.index().drop_segment(whole.residency, &whole.object);
        }
    }

    /// Keep the only block of a small object: a complete file at once. The store's checksum was compared
    /// when the block was made.
    pub(super) fn keep_small(&self, segment: &Segment, residency: Residency, block: &Block, sums: Vec<u64>) -> bool {
        let index = self.index();
        if !index.knows(residency) {
            return false;
        }
        let path = residency.path(&index.folder, &segment.object);
        drop(index);
        let kept = Whole::create(&*self.0.medium, &path, block)
            .and_then(|()| self.index().complete_small(segment, residency, sums));
        match kept {
            Ok(true) => true,
            Ok(false) => {
                let _ = self.0.medium.remove(&path);
                false
            }
            Err(error) => {
                self.index().refused(&error);
                false
            }
        }
    }

    /// Keep a block of a segment that is being filled. True if it was.
    pub(super) fn keep(&self, filling: &Arc<Filling>, block: &Block, course: &Course) -> bool {
        course.enter(Cause::Cpu);
        let sums = block::sums(block.pieces());
        course.enter(Cause::Disk);
        let kept = filling.keep(block, &sums).and_then(|is_kept| match is_kept {
            true => self.index().block_kept(filling, block.address.index, sums),
            false => Ok(false),
        });
        kept.unwrap_or_else(|error| {
            let mut index = self.index();
            index.refused(&error);
            if file::is_damage(&error) {
                index.drop_segment(filling.residency, &filling.segment.object);
            }
            false
        })
    }

    /// Compare a filled file with what the store says, and call it complete. `is_compared` if that was done on the way.
    pub(super) async fn finish(&self, filling: &Arc<Filling>, is_compared: bool, via: Door) -> Result<()> {
        let done = self.compare(filling, is_compared, via).await;
        filling.settled.notify_waiters();
        done
    }

    async fn compare(&self, filling: &Arc<Filling>, is_compared: bool, via: Door) -> Result<()> {
        let _one = filling.finishing.lock().await;
        if !filling.is_full() || !self.index().is_filling(filling) {
            return Ok(());
        }
        let file = filling.clone();
        // What an earlier boot wrote is read and compared before anything is built on it.
        let segment = &filling.segment;
        let proven = move || file.unproven().into_iter().try_for_each(|index| file.read(index).map(drop));
        if let Err(error) = self.aside_whole(segment, proven).await {
            tracing::warn!("a block that an earlier boot wrote will be fetched again: {error}");
            return Ok(());
        }
        let is_known = is_compared || !filling.segment.is_whole();
        let described = if is_known { None } else { self.1.source.checksum(&filling.segment.object, via).await? };
        let file = filling.clone();
        let is_right = match described {
            None => true,
            Some(described) => match self.aside_whole(segment, move || file.agrees(described)).await {
                Ok(is_right) => is_right,
                Err(error) => {
                    // That is the disk's failure, and none of whoever reads: what is damaged is missing now.
                    tracing::warn!("a block will be fetched again: {error}");
                    self.drop_rotten(filling);
                    return Ok(());
                }
            },
        };
        if is_right {
            return self.index().complete_filled(filling).map(drop);
        }
        let what = "the bytes that the store sent differ from its own checksum of the object";
        let error = Error::corrupt(what, &*filling.segment.object);
        self.flawed(filling);
        Err(error)
    }

    /// The whole was wrong, so any block of it may be: the file goes.
    pub(super) fn flawed(&self, filling: &Filling) {
        self.index().drop_segment(filling.residency, &filling.segment.object);
    }

    /// A file that lost what it had goes, since its log would vouch for that again after a restart.
    pub(super) fn drop_rotten(&self, filling: &Filling) {
        if filling.is_rotten() {
            self.index().drop_segment(filling.residency, &filling.segment.object);
        }
    }
}
