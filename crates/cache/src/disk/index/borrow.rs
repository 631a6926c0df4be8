//! The index in somebody's hands. Who hears of what left the disk is notified when it is given back.

use super::Index;
use crate::disk::Disk;
use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError};

impl Disk {
    /// The index, for a moment. Of what left the disk meanwhile others are notified afterwards.
    pub(in crate::disk) fn index(&self) -> Borrowed<'_> {
        let mut index = self.0.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.ask_hold();
        Borrowed { disk: self, index: Some(index) }
    }
}

/// The index while somebody has it.
pub struct Borrowed<'a> {
    disk: &'a Disk,
    index: Option<MutexGuard<'a, Index>>,
}

impl Deref for Borrowed<'_> {
    type Target = Index;

    fn deref(&self) -> &Index {
        self.index.as_ref().expect("it is given back only at the end")
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut Index {
        self.index.as_mut().expect("it is given back only at the end")
    }
}

impl Drop for Borrowed<'_> {
    /// Who hears of what left may take its time and look here again, so it is notified without the index.
    fn drop(&mut self) {
        let Some(mut index) = self.index.take() else { return };
        let (left, wants_compaction) = (index.take_left(), index.wants_compaction());
        drop(index);
        if !left.is_empty() {
            self.disk.unlink(left);
        }
        if wants_compaction {
            self.disk.compact_aside();
        }
    }
}
