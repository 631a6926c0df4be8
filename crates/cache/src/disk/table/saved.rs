//! What the table knows of uses, as bytes that outlive the daemon. Reads hostile bytes; does no input or output.
//!
//! `docs/format.md` draws them.
//!
//! Invariant: no bytes can do more than let the wrong object give way.

use super::{NAMES_MAX, Name, Table};
use crate::disk::admission::{Admission, Stamp};
use block::{ObjectId, crc64};

/// The first bytes: eight letters and the version of the format. Another version is not read.
const HEADER: &[u8; 12] = b"STOKERUS\x01\0\0\0";

/// Bytes of what comes first, of a trial, of a resident and of a name.
const HEAD: usize = 36;
const TRIAL: usize = 40;
const RESIDENT: usize = 20;
const NAME: usize = 32;

impl Table {
    /// What is known of uses.
    pub fn save(&self) -> Vec<u8> {
        let (residents, names) = (self.residents.values(), self.names.values());
        let mut out = Vec::with_capacity(64 + residents.len() * RESIDENT + names.len() * NAME);
        out.extend_from_slice(HEADER);
        out.extend_from_slice(&[0; 8]);
        self.admission.save().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&self.admission.patience.to_le_bytes());
        let trials = self.admission.trials();
        for count in [trials.len(), residents.len()] {
            out.extend_from_slice(&u32::try_from(count).expect("fewer than four billion files").to_le_bytes());
        }
        for (came, left, bytes) in trials {
            out.extend_from_slice(&came.0.to_le_bytes());
            out.extend_from_slice(&left.0.to_le_bytes());
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        for resident in residents {
            out.extend_from_slice(&resident.id.0.to_le_bytes());
            out.extend_from_slice(&resident.slot.opened.to_le_bytes());
        }
        for name in names {
            out.extend_from_slice(&name.id.0.to_le_bytes());
            [name.opened].iter().chain(&name.uses).for_each(|stamp| out.extend_from_slice(&stamp.to_le_bytes()));
        }
        let sum = crc64::of(&out[HEADER.len() + 8..]);
        out[HEADER.len()..HEADER.len() + 8].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Know again what was saved; called once, after the objects that are here were inserted. False if these are no
    /// such bytes, and nothing has changed.
    pub fn restore(&mut self, bytes: &[u8]) -> bool {
        self.read(bytes).is_some()
    }

    fn read(&mut self, bytes: &[u8]) -> Option<()> {
        let (sum, body) = bytes.strip_prefix(HEADER)?.split_first_chunk::<8>()?;
        if crc64::of(body) != u64::from_le_bytes(*sum) {
            return None;
        }
        let (head, body) = body.split_first_chunk::<HEAD>()?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (trials, body) = body.split_at_checked((half(28) as usize).checked_mul(TRIAL)?)?;
        let (residents, names) = body.split_at_checked((half(32) as usize).checked_mul(RESIDENT)?)?;
        let (names, rest) = names.as_chunks::<NAME>();
        if !rest.is_empty() {
            return None;
        }
        let before = self.admission.restore([word(0), word(8), word(16)], half(24));
        let id = |bytes: &[u8]| ObjectId(u128::from_le_bytes(bytes[..16].try_into().expect("sixteen bytes")));
        let stamp = |bytes: &[u8], at: usize, admission: &Admission| -> Stamp {
            let then = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            admission.stamp_of(then, before)
        };
        for trial in trials.as_chunks::<TRIAL>().0 {
            let bytes = u64::from_le_bytes(trial[32..].try_into().expect("eight bytes"));
            self.admission.try_out(id(trial), id(&trial[16..]), bytes);
        }
        for bytes in residents.as_chunks::<RESIDENT>().0 {
            let opened = stamp(bytes, 16, &self.admission).max(1);
            self.know(Name { id: id(bytes), opened, uses: [opened, 0, 0] });
        }
        for bytes in names {
            let opened = stamp(bytes, 16, &self.admission).max(1);
            let uses = [20, 24, 28].map(|at| stamp(bytes, at, &self.admission));
            self.know(Name { id: id(bytes), opened, uses });
        }
        Some(())
    }

    fn know(&mut self, name: Name) {
        match self.residents.get_mut(name.id) {
            Some(resident) => resident.slot.opened = name.opened,
            None if self.names.len() < NAMES_MAX => {
                self.names.insert(name);
            }
            None => {}
        }
    }
}
