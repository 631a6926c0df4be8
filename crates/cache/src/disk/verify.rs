//! Reading what is kept once more: before it is trusted under a new boot, or because somebody asked.
//!
//! Invariant: what is damaged is dropped, and all who opened it through this node are notified.

use super::filling::Filling;
use super::index::Found;
use super::segment::Segment;
use super::whole::Whole;
use super::{Disk, file};
use block::{Checksum, Digest, Door, Object, Result};
use std::ops::Range;
use std::sync::Arc;

impl Disk {
    /// Read a complete file of an earlier boot once, and trust it from then on. Damaged, it is dropped. Those who ask
    /// at the same time share one reading.
    pub async fn check(&self, object: &Arc<Object>) -> Result<Option<Arc<Whole>>> {
        let segment = Segment::whole(object);
        let Some(whole) = self.held(&segment)? else { return Ok(None) };
        let _one = whole.checking.lock().await;
        // Of this very file: another may have come while this one was waited for.
        let is_checked = self.index().trusts(whole.residency);
        if !is_checked && !self.inspect(&whole, None).await? {
            return Ok(None);
        }
        Ok(Some(whole.clone()))
    }

    /// Read a complete object again and compare it with what the store says, as far as the store says anything. False if
    /// it was damaged or is not here. All that is damaged is dropped.
    pub async fn verify(&self, object: &Arc<Object>, via: Door) -> Result<bool> {
        let described = self.1.source.checksum(object, via).await?;
        let mut digest = described.filter(|_| self.cuts(object)).map(Checksum::digest);
        let mut is_sound = true;
        for segment in self.segments(object) {
            let Some(whole) = self.held(&segment)? else {
                (is_sound, digest) = (false, None);
                continue;
            };
            let _one = whole.checking.lock().await;
            let is_right = match digest.take() {
                Some(fed) => {
                    let (fed, is_right) = self.feed(&whole, fed).await?;
                    digest = is_right.then_some(fed);
                    is_right
                }
                None => self.inspect(&whole, described).await?,
            };
            is_sound &= is_right;
        }
        if !is_sound {
            return Ok(false);
        }
        let is_right = digest.zip(described).is_none_or(|(digest, described)| digest.matches(described));
        if !is_right {
            tracing::warn!("{object} differs from the checksum that the store gives; it will be fetched again");
            for segment in self.segments(object) {
                if let Some(whole) = self.held(&segment)? {
                    self.index().drop_segment(whole.residency, object);
                }
            }
        }
        Ok(is_right)
    }

    /// Read again what lies here of some blocks of an object, and compare it with the sums that it was kept with. False if some
    /// of it was damaged: that is dropped.
    pub async fn compare_kept(&self, object: &Arc<Object>, blocks: &Range<u32>) -> Result<bool> {
        let mut is_sound = true;
        for (segment, part) in self.parts_of(object, blocks) {
            let found = self.index().known(&segment);
            is_sound &= match found {
                Found::Absent => true,
                Found::Filling(filling) => self.compare_filling(&filling, part).await?,
                Found::Complete(held) | Found::Unchecked(held) => match self.open_or_drop(held)? {
                    Ok(whole) => self.compare_whole(&whole, part).await?,
                    Err(was_damaged) => !was_damaged,
                },
            };
        }
        Ok(is_sound)
    }

    async fn compare_filling(&self, filling: &Arc<Filling>, blocks: Range<u32>) -> Result<bool> {
        let file = filling.clone();
        let read = move || blocks.filter(|index| file.has(*index)).try_for_each(|index| file.read(index).map(drop));
        match self.aside_whole(&filling.segment, read).await {
            Ok(()) => Ok(true),
            Err(error) if file::is_damage(&error) => {
                tracing::warn!("a block will be fetched again: {error}");
                self.drop_rotten(filling);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn compare_whole(&self, whole: &Arc<Whole>, blocks: Range<u32>) -> Result<bool> {
        let (file, is_all) = (whole.clone(), blocks == whole.segment.blocks);
        let _one = whole.checking.lock().await;
        let read = move || if is_all { file.verify(None) } else { file.compare(blocks) };
        match self.aside_whole(&whole.segment, read).await {
            // One that gave way meanwhile was no less sound.
            Ok(()) if is_all => {
                self.index().verified(whole.residency);
                Ok(true)
            }
            Err(error) if file::is_damage(&error) => {
                self.damaged(whole, &error);
                Ok(false)
            }
            read => read.map(|()| true),
        }
    }

    /// The complete file of a segment, if there is one.
    fn held(&self, segment: &Segment) -> Result<Option<Arc<Whole>>> {
        let found = self.index().known(segment);
        match found {
            Found::Complete(held) | Found::Unchecked(held) => self.open(held),
            Found::Filling(_) | Found::Absent => Ok(None),
        }
    }

    /// Read a complete file. Right, it is trusted; damaged, it is dropped.
    async fn inspect(&self, whole: &Arc<Whole>, described: Option<Checksum>) -> Result<bool> {
        let file = whole.clone();
        let read = self.aside_whole(&whole.segment, move || file.verify(described)).await;
        self.judge(whole, read)
    }

    async fn feed(&self, whole: &Arc<Whole>, mut digest: Digest) -> Result<(Digest, bool)> {
        let file = whole.clone();
        let fed = self
            .aside_whole(&whole.segment, move || {
                let read = file.feed(Some(&mut digest));
                Ok((digest, read))
            })
            .await;
        let (digest, read) = fed?;
        Ok((digest, self.judge(whole, read)?))
    }

    fn judge(&self, whole: &Whole, read: Result<()>) -> Result<bool> {
        match read {
            Ok(()) => Ok(self.index().verified(whole.residency)),
            Err(error) if file::is_damage(&error) => {
                self.damaged(whole, &error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
