//! The disk of a member of a cluster: what it keeps for itself, what it keeps as copies, and what it says of its room.
//!
//! Invariant: nothing gives way to a copy.

use super::index::Found;
use super::lying::Lying;
use super::segment::{STRIPE_BLOCKS, Segment};
use super::table::Class;
use super::uses::STEPS_MAX;
use super::{Below, Disk, KEPT_WITHIN, Standing, file};
use block::{Address, Checksum, Fixed, Object, Run, Source};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks whether what was handed on is kept.
const KEPT_LOOK_EVERY: Duration = Duration::from_millis(20);

impl Disk {
    /// The same disk, over nobody: what it doesn't have is missing.
    pub fn alone(&self) -> Disk {
        Disk(self.0.clone(), Below { source: Arc::new(Fixed::default()), class: None })
    }

    /// The same disk, over whoever answers for what others own: what comes from there is kept as copies, in room that
    /// nobody else takes.
    pub fn of_copies(&self, below: Arc<dyn Source>) -> Disk {
        Disk(self.0.clone(), Below { source: below, class: Some(Class::Copy) })
    }

    /// Others are members, too: they ask for the same again and again, and each keeps some stripes of a large object.
    pub fn join(&self) {
        self.index().join();
    }

    /// The file that has all blocks of a run that this member owns, if it is open: whoever sends them from there compares nothing.
    pub fn open_file(&self, run: &Run) -> Option<Lying> {
        let segment = self.segment(&Address { object: run.object.clone(), index: run.blocks.start });
        if run.blocks.end > segment.blocks.end {
            return None;
        }
        let mut index = self.index();
        let (whole, filling) = (index.open_file(&segment), index.open_filling(&segment));
        if whole.is_some() || filling.is_some() {
            index.is_owned(&segment);
        }
        drop(index);
        let lying = match (whole, filling) {
            (Some(whole), _) => Lying::in_whole(whole)?,
            (None, filling) => Lying::in_filling(filling?, run)?,
        };
        self.0.tally.here.add(run.blocks.len() as u64, run.bytes());
        Some(lying)
    }

    /// Whether the segment of a block is here, or some of it.
    pub fn has_any(&self, address: &Address) -> bool {
        let segment = self.segment(address);
        !matches!(self.index().known(&segment), Found::Absent)
    }

    /// Whether a block is here, or will be once it is asked for: the segment has room for it.
    pub fn keeps(&self, address: &Address) -> bool {
        let segment = self.segment(address);
        let mut index = self.index();
        match index.known(&segment) {
            Found::Absent => false,
            Found::Complete(_) | Found::Unchecked(_) => true,
            Found::Filling(filling) => {
                let block = address.index..address.index + 1;
                filling.has(address.index)
                    || index.has_room_for(&filling, &block)
                    || index.has_room(segment.id(), segment.bytes())
            }
        }
    }

    /// Another member owns a block from now on: the segment is a copy until it is asked for as owned again.
    pub fn gives_up(&self, address: &Address) {
        let segment = self.segment(address);
        self.index().is_copy(&segment);
    }

    /// Whether the segment of a block would be kept without anything giving way at all.
    pub fn has_free_room_for(&self, address: &Address) -> bool {
        let segment = self.segment(address);
        self.index().has_free_room(segment.id(), segment.bytes())
    }

    /// Whether the segment of a block would be kept without anything giving way that is owned and listed.
    pub fn has_room_for(&self, address: &Address) -> bool {
        let segment = self.segment(address);
        self.index().has_room(segment.id(), segment.bytes())
    }

    /// Whether the segment of a block would be kept if a reader asked for it: there is room, or others give way to it.
    pub fn may_admit(&self, address: &Address) -> bool {
        let segment = self.segment(address);
        self.index().may_admit(segment.id(), segment.bytes())
    }

    /// The same if its owner has no room for it, and says that readers want it.
    pub fn may_admit_in_stead(&self, address: &Address) -> bool {
        let segment = self.segment(address);
        let mut index = self.index();
        index.vouch(segment.id());
        index.may_admit(segment.id(), segment.bytes())
    }

    /// Whether the segment of a block, which is not here, was used often enough for others to give way to it.
    pub fn is_wanted(&self, address: &Address) -> bool {
        let segment = self.segment(address);
        self.index().is_wanted(segment.id())
    }

    /// Bytes of what is probably not read any more: it gives way to what owners have no room for and readers want.
    pub fn stale_bytes(&self) -> u64 {
        self.index().stale_bytes()
    }

    /// Bytes that can be kept without anything giving way but copies, and what no data set lists any more.
    pub fn spare_bytes(&self) -> u64 {
        self.index().spare_bytes()
    }

    /// Whether all blocks of a run within one segment lie here, once none of them is still to come: each is kept a moment after it
    /// was handed on, if room was taken for it.
    pub async fn keeps_all(&self, run: &Run) -> bool {
        let segment = self.segment(&Address { object: run.object.clone(), index: run.blocks.start });
        let has_all = || run.addresses().all(|address| self.holds(&address));
        let coming = async {
            while !has_all() {
                let found = self.index().known(&segment);
                let Found::Filling(filling) = found else { return };
                let may_come = filling.has_room_for(&run.blocks) && super::is_on_its_way(&filling);
                if !may_come || !self.index().is_filling(&filling) {
                    return;
                }
                tokio::time::sleep(KEPT_LOOK_EVERY).await;
            }
        };
        let _ = tokio::time::timeout(KEPT_WITHIN, coming).await;
        has_all()
    }

    /// The checksum of an object that is here complete, from those of its pieces.
    pub fn sum(&self, object: &Arc<Object>) -> Option<Checksum> {
        match self.find(object) {
            Standing::Complete(whole) => Some(Checksum::Crc64Nvme(whole.sum())),
            Standing::Unchecked(_) | Standing::Cut | Standing::Absent => None,
        }
    }

    /// Whether all of some blocks of an object lie here, and were written or compared under this boot. They are what this member
    /// owns, or keeps in an owner's stead.
    pub fn owns_surely(&self, object: &Arc<Object>, blocks: &Range<u32>) -> bool {
        self.owns_as(object, blocks, |found, part| match found {
            Found::Complete(_) => true,
            Found::Filling(filling) => filling.is_sure_of(part),
            Found::Unchecked(_) | Found::Absent => false,
        })
    }

    /// The same where some of it may be of an earlier boot, and damaged since.
    pub fn has_all(&self, object: &Arc<Object>, blocks: &Range<u32>) -> bool {
        self.owns_as(object, blocks, |found, part| match found {
            Found::Complete(_) | Found::Unchecked(_) => true,
            Found::Filling(filling) => part.clone().all(|index| filling.has(index)),
            Found::Absent => false,
        })
    }

    fn owns_as(
        &self,
        object: &Arc<Object>,
        blocks: &Range<u32>,
        is_here: impl Fn(&Found, &Range<u32>) -> bool,
    ) -> bool {
        let parts = self.parts_of(object, blocks);
        let mut index = self.index();
        let is_all_here = parts.iter().all(|(segment, part)| is_here(&index.known(segment), part));
        if is_all_here {
            parts.iter().for_each(|(segment, _)| index.is_owned(segment));
        }
        is_all_here
    }

    /// The checksum of some blocks of an object as they are kept, from those of their pieces; none if not all of them lie here.
    pub fn sum_of(&self, object: &Arc<Object>, blocks: &Range<u32>) -> Option<u64> {
        let (mut sums, mut bytes) = (Vec::new(), 0);
        for (segment, part) in self.parts_of(object, blocks) {
            let found = self.index().known(&segment);
            let addresses = part.clone().map(|index| Address { object: object.clone(), index });
            match found {
                Found::Absent => return None,
                Found::Filling(filling) => sums.extend(filling.sums(&part)?),
                Found::Complete(held) | Found::Unchecked(held) => {
                    let whole = self.open(held).ok()??;
                    addresses.clone().for_each(|address| sums.extend(whole.sums(&address)));
                }
            }
            bytes += addresses.map(|address| address.len() as u64).sum::<u64>();
        }
        Some(file::whole_sum(&sums, bytes))
    }

    /// Drop what lies here of some blocks of an object, because it is wrong, and what lies in the same files. Sizes may be anybody's
    /// word: a stripe that isn't here costs a look, and others have the index in between.
    pub fn drop_wrong(&self, object: &Arc<Object>, blocks: &Range<u32>) {
        self.drop_segment(&Segment::whole(object));
        if !self.cuts(object) {
            return;
        }
        let (id, all, mut next) = (object.id(), object.blocks(), blocks.start / STRIPE_BLOCKS * STRIPE_BLOCKS);
        while next < blocks.end {
            let end = blocks.end.min(next.saturating_add(STEPS_MAX as u32 * STRIPE_BLOCKS));
            let index = self.index();
            let starts = (next..end).step_by(STRIPE_BLOCKS as usize);
            let name = |start: u32| Segment::part_id(id, &(start..all.min(start.saturating_add(STRIPE_BLOCKS))));
            let here: Vec<u32> = starts.filter(|start| index.lies_here(name(*start))).collect();
            drop(index);
            here.into_iter().for_each(|start| self.drop_segment(&Segment::stripe(object, start)));
            next = end;
        }
    }

    fn drop_segment(&self, segment: &Segment) {
        let mut index = self.index();
        let found = index.known(segment);
        match found {
            Found::Absent => {}
            Found::Filling(filling) => index.drop_segment(filling.residency, &segment.object),
            Found::Complete(held) | Found::Unchecked(held) => index.drop_segment(held.residency(), &segment.object),
        }
    }

    /// The segments that some blocks of an object lie in, and the part of them that lies in each.
    pub(super) fn parts_of(&self, object: &Arc<Object>, blocks: &Range<u32>) -> Vec<(Segment, Range<u32>)> {
        if !self.cuts(object) {
            return vec![(Segment::whole(object), blocks.clone())];
        }
        let first = blocks.start / STRIPE_BLOCKS * STRIPE_BLOCKS;
        let segments = (first..blocks.end).step_by(STRIPE_BLOCKS as usize).map(|block| Segment::stripe(object, block));
        let part = |segment: &Segment| blocks.start.max(segment.blocks.start)..blocks.end.min(segment.blocks.end);
        segments.map(|segment| (segment.clone(), part(&segment))).collect()
    }

    fn segment(&self, address: &Address) -> Segment {
        match self.cuts(&address.object) {
            true => Segment::stripe(&address.object, address.index),
            false => Segment::whole(&address.object),
        }
    }
}
