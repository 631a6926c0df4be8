//! The index as the log has it. Files are not looked at: one that is gone is noticed when it is opened.
//!
//! Invariant: what was logged before the last word of this boot is believed only as far as somebody reads it and
//! compares.

use super::{Filling, Index, Residency, Segment, State};
use crate::disk::record::Record;
use block::Result;
use std::sync::Arc;

impl Index {
    /// Rebuild from the log. True if there can be no file on the disk that the log tells nothing of.
    pub fn replay(&mut self) -> Result<bool> {
        let mut log = self.log.clone();
        let mut boot = None;
        let read = log.replay(|record, at, length| match record {
            Record::Boot(id) => {
                if boot.replace(id) != Some(id) {
                    self.distrust();
                }
            }
            record => self.take_in(record, at, length),
        });
        self.log = log;
        let is_whole = match read {
            Ok(is_whole) => is_whole,
            Err(error) => {
                // Half of it would be worse than nothing: files that are not in it would look like strays.
                self.all().into_iter().for_each(|id| self.leave(Residency { id, number: 0 }));
                return Err(error);
            }
        };
        if boot != Some(self.boot) {
            self.distrust();
            // Without it, what this boot writes is compared once more at the next start.
            if let Err(error) = self.log.append(&Record::Boot(self.boot)) {
                tracing::warn!("{error}");
            }
        }
        self.shrink();
        // Another boot may have brought files back, and with them the mark of a clean end.
        Ok(is_whole && boot == Some(self.boot))
    }

    fn take_in(&mut self, record: Record, at: u64, length: u32) {
        match record {
            Record::Boot(_) => {}
            Record::Started { segment, number } => {
                self.enter(&segment, number, at, length, State::Filling);
                let residency = Residency { id: segment.id(), number };
                let path = residency.path(&self.folder, &segment.object);
                let filling = Filling::new(self.medium.clone(), self.pool.clone(), path, segment, number);
                self.table.resize(residency.id, filling.reserves());
                self.filling.insert(Arc::new(filling));
            }
            Record::Block { residency, index, sums } => {
                let Some(filling) = self.filling.get(residency.id).filter(|known| known.residency == residency) else {
                    return;
                };
                filling.note(index, &sums);
                self.table.resize(residency.id, filling.reserves());
                self.table.change(residency.id, |slot| slot.length += length);
                self.live_bytes += u64::from(length);
            }
            Record::Complete { segment, number, .. } => self.enter(&segment, number, at, length, State::Complete),
            Record::Verified(residency) => {
                if self.current(residency).is_some_and(|slot| slot.state == State::Unchecked) {
                    self.table.change(residency.id, |slot| slot.state = State::Complete);
                }
            }
            Record::Gone(residency) => {
                if self.current(residency).is_some() {
                    self.leave(residency);
                }
            }
        }
    }

    fn enter(&mut self, segment: &Segment, number: u32, at: u64, length: u32, state: State) {
        let id = segment.id();
        if let Some(slot) = self.table.get(id) {
            self.leave(Residency { id, number: slot.residency });
        }
        self.table.insert(id, at, segment.bytes(), state);
        self.table.change(id, |slot| (slot.residency, slot.length) = (number, length));
        self.live_bytes += u64::from(length);
        // A bit further on: a node that lost the folder to this one may be at the next number.
        self.next = self.next.max(number.saturating_add(1 + (self.first & 0xffff)));
    }

    fn leave(&mut self, residency: Residency) {
        self.filling.remove(residency.id);
        if let Some(slot) = self.table.remove(residency.id) {
            self.live_bytes = self.live_bytes.saturating_sub(u64::from(slot.length));
        }
    }

    /// Another boot began: what is in the files is to be read and compared before it is believed.
    fn distrust(&mut self) {
        self.table.distrust();
        self.filling.values().for_each(|filling| filling.distrust());
    }
}
