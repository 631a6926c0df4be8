//! The objects that were admitted, in memory, and who gives way to whom. Knows sizes and states, not files.
//!
//! Of objects that are not here it is remembered when they were opened, for a bounded number of them.
//!
//! Invariant: what is used is the sum over the slots.

mod saved;

use super::admission::{Admission, Stamp, Uses};
use super::room::Used;
use super::slab::{Keyed, Slab};
use block::ObjectId;

/// Names of objects that are not here whose uses are remembered: 37 to 45 bytes each. With more, those that were not
/// opened for long are forgotten, and take the place of others later than they might.
const NAMES_MAX: usize = 1 << 20;

/// Slots, or names, looked at to find one that gives way.
const LOOKS: usize = 16;

/// Slots looked at for one newcomer, however large it is: about a tenth of a millisecond.
const LOOKS_MAX: usize = 4096;

/// Slots looked at to tell how much is probably not read any more: about half a millisecond, in which nobody else has the index.
/// That tells it to a hundredth of all.
const STALE_LOOKS: usize = 1 << 14;

/// Slots looked at to tell how much of what gives way to anybody is held: it is asked more often, and known well enough to a
/// thirtieth.
const HELD_LOOKS: usize = 1 << 10;

/// An object that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Where the log tells of it.
    pub at: u64,
    /// Bytes reserved for it. Changed by [`Table::resize`] alone.
    pub bytes: u64,
    /// Length of its record in the log.
    pub length: u32,
    /// A number of its own for each stay: whoever began with one can tell whether it is still this one.
    pub residency: u32,
    /// Its last use.
    opened: Stamp,
    pub state: State,
    pub class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Filling,
    /// Complete, but written before the last boot: to be read once before it is trusted.
    Unchecked,
    Complete,
}

/// Which objects give way first, from first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Its data set does not list it any more: gives way to anybody.
    Released,
    /// Kept for another member, who keeps it too: gives way to anybody.
    Copy,
    /// Gives way on evidence.
    Owned,
}

struct Resident {
    id: ObjectId,
    slot: Slot,
}

/// An object that is not here, and was opened.
struct Name {
    id: ObjectId,
    opened: Stamp,
    uses: Uses,
}

pub struct Table {
    residents: Slab<Resident>,
    names: Slab<Name>,
    admission: Admission,
    pub used: Used,
    /// Bytes and files that give way to anybody.
    yielding: (u64, u64),
    residencies: u32,
    /// Where the search for slots and for names goes on.
    hands: (usize, usize),
}

impl Table {
    pub fn new(capacity_bytes: u64) -> Table {
        Table {
            residents: Slab::new(),
            names: Slab::new(),
            admission: Admission::new(capacity_bytes),
            used: Used { free_bytes: u64::MAX, ..Used::default() },
            yielding: (0, 0),
            residencies: 0,
            hands: (0, 0),
        }
    }

    /// Admit an object. Its residency comes back.
    pub fn insert(&mut self, id: ObjectId, at: u64, bytes: u64, state: State) -> u32 {
        self.take(id);
        self.names.remove(id);
        self.residencies = self.residencies.wrapping_add(1);
        let opened = self.admission.now();
        let residency = self.residencies;
        let slot = Slot { at, bytes, length: 0, residency, opened, state, class: Class::Owned };
        self.residents.insert(Resident { id, slot });
        self.used.bytes += bytes;
        self.used.files += 1;
        residency
    }

    /// Forget an object that has left. When it was opened is remembered, unless it was released.
    pub fn remove(&mut self, id: ObjectId) -> Option<Slot> {
        let slot = self.take(id)?;
        if slot.class != Class::Released {
            self.remember(Name { id, opened: slot.opened, uses: [slot.opened, 0, 0] });
        }
        Some(slot)
    }

    fn take(&mut self, id: ObjectId) -> Option<Slot> {
        let slot = self.residents.remove(id)?.slot;
        self.count(&slot, false);
        self.used.bytes -= slot.bytes;
        self.used.files -= 1;
        Some(slot)
    }

    pub fn get(&self, id: ObjectId) -> Option<Slot> {
        self.residents.get(id).map(|resident| resident.slot)
    }

    /// Change what is known of an object. Its size is changed by [`Table::resize`].
    pub fn change(&mut self, id: ObjectId, change: impl FnOnce(&mut Slot)) {
        let Some(resident) = self.residents.get_mut(id) else { return };
        let before = resident.slot;
        change(&mut resident.slot);
        let after = Slot { bytes: before.bytes, ..resident.slot };
        resident.slot = after;
        self.count(&before, false);
        self.count(&after, true);
    }

    /// Reserve more or less for an object.
    pub fn resize(&mut self, id: ObjectId, bytes: u64) {
        let Some(resident) = self.residents.get_mut(id) else { return };
        let before = resident.slot;
        resident.slot.bytes = bytes;
        let after = resident.slot;
        self.used.bytes = self.used.bytes - before.bytes + bytes;
        self.count(&before, false);
        self.count(&after, true);
    }

    /// Count a slot among those that give way to anybody, or not any more.
    fn count(&mut self, slot: &Slot, comes: bool) {
        if slot.class == Class::Owned {
            return;
        }
        let (bytes, files) = &mut self.yielding;
        (*bytes, *files) = if comes { (*bytes + slot.bytes, *files + 1) } else { (*bytes - slot.bytes, *files - 1) };
    }

    /// A data set does not list this object any more.
    pub fn release(&mut self, id: ObjectId) {
        self.change(id, |slot| slot.class = Class::Released);
    }

    /// Bytes and files that give way to anybody, if nobody holds them.
    #[cfg(test)]
    pub fn yielding(&self) -> (u64, u64) {
        self.yielding
    }

    /// A reader opens an object, whether it is here or not. Its set tells what a burst of opens is.
    pub fn opened(&mut self, id: ObjectId, bytes: u64, set_bytes: u64) {
        let admission = &mut self.admission;
        let now = admission.now();
        if let Some(resident) = self.residents.get_mut(id) {
            if resident.slot.class == Class::Released {
                // Another mount still lists it.
                self.yielding = (self.yielding.0 - resident.slot.bytes, self.yielding.1 - 1);
                resident.slot.class = Class::Owned;
            }
            if admission.is_use(resident.slot.opened, set_bytes) {
                admission.read_again(resident.slot.opened);
                resident.slot.opened = now;
                admission.used(id, bytes);
            }
        } else if let Some(name) = self.names.get_mut(id) {
            if admission.is_use(name.opened, set_bytes) {
                admission.read_again(name.opened);
                name.opened = now;
                admission.note(&mut name.uses, set_bytes);
                admission.used(id, bytes);
            }
        } else {
            admission.used(id, bytes);
            self.remember(Name { id, opened: now, uses: [now, 0, 0] });
        }
        if let Some(back) = self.admission.turn_back() {
            let earlier = |stamp: &mut Stamp| *stamp = if *stamp == 0 { 0 } else { stamp.saturating_sub(back).max(1) };
            self.residents.values_mut().for_each(|resident| earlier(&mut resident.slot.opened));
            self.names.values_mut().for_each(|name| {
                earlier(&mut name.opened);
                name.uses.iter_mut().for_each(earlier);
            });
        }
    }

    /// Somebody opens an object that another member owns: if it is kept in that one's stead, that is a use of it. A copy
    /// was read of late, no more.
    pub fn opened_of_another(&mut self, id: ObjectId, bytes: u64, set_bytes: u64) {
        let now = self.admission.now();
        match self.get(id).map(|slot| slot.class) {
            Some(Class::Owned) => self.opened(id, bytes, set_bytes),
            Some(Class::Copy) => self.change(id, |slot| slot.opened = now),
            Some(Class::Released) => self.change(id, |slot| (slot.opened, slot.class) = (now, Class::Copy)),
            None => {}
        }
    }

    /// Whether an object that is not here was used often enough for others to give way to it.
    pub fn is_wanted(&self, id: ObjectId) -> bool {
        self.names.get(id).is_some_and(|name| self.admission.evidence(&name.uses).is_some())
    }

    /// Bytes of what is probably not read any more; with many slots, as some of them let expect.
    pub fn stale_bytes(&self) -> u64 {
        let before = self.admission.stale_before();
        if before == 0 {
            return 0;
        }
        let (mut stale, mut all) = (0u64, 0u64);
        for Resident { slot, .. } in self.some_residents(STALE_LOOKS) {
            all += slot.bytes;
            stale += if slot.class == Class::Owned && slot.opened < before { slot.bytes } else { 0 };
        }
        (u128::from(stale) * u128::from(self.used.bytes) / u128::from(all.max(1))) as u64
    }

    /// So many from all over: one of each few that lie together, which one is as good as chance.
    fn some_residents(&self, looks: usize) -> impl Iterator<Item = &Resident> {
        let few = self.residents.values().chunks(self.residents.len().div_ceil(looks).max(1));
        few.zip(1u64..).map(|(few, number)| {
            let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            &few[mixed as usize % few.len()]
        })
    }

    /// Bytes that give way to anybody and are not held; with many slots, as some of them let expect.
    pub fn yielding_bytes(&self, held: impl Fn(ObjectId, &Slot) -> bool) -> u64 {
        if self.yielding.0 == 0 {
            return 0;
        }
        let (mut free, mut all) = (0u64, 0u64);
        for Resident { id, slot } in self.some_residents(HELD_LOOKS) {
            if slot.class != Class::Owned {
                all += slot.bytes;
                free += if held(*id, slot) { 0 } else { slot.bytes };
            }
        }
        // None was met among many others.
        if all == 0 {
            self.yielding.0
        } else {
            (u128::from(free) * u128::from(self.yielding.0) / u128::from(all)) as u64
        }
    }

    /// The owner of an object that is not here says that it is wanted: what is probably not read any more may give way to it.
    pub fn vouch(&mut self, id: ObjectId) {
        let before = self.admission.stale_before();
        if before > 0 && self.residents.get(id).is_none() {
            let uses = self.admission.uses_since(before);
            self.remember(Name { id, opened: uses[0], uses });
        }
    }

    /// Whether somebody would leave so that an object may come that is not here and lacks this much. Who asks for that next
    /// looks at the same slots.
    pub fn may_give_way(
        &mut self,
        newcomer: ObjectId,
        bytes: u64,
        files: u64,
        held: impl Fn(ObjectId, &Slot) -> bool,
    ) -> bool {
        let uses = self.names.get(newcomer).map_or([0; 3], |name| name.uses);
        let Some(since) = self.admission.evidence(&uses) else { return false };
        let hand = self.hands.0;
        let may = self.leave(bytes, files, since, held).is_some();
        if may {
            self.hands.0 = hand;
        }
        may
    }

    /// Whether so much would leave for anybody who has nothing to show. Looks where it would be looked for them, and if it is
    /// not there, elsewhere the next time.
    pub fn yields(&mut self, bytes: u64, files: u64, held: impl Fn(ObjectId, &Slot) -> bool) -> bool {
        if self.yielding.0 < bytes || self.yielding.1 < files {
            return false;
        }
        let (hand, count, mut freed, mut gone) = (self.hands.0, self.residents.len(), 0, 0);
        for _ in 0..LOOKS_MAX.min(count) {
            if freed >= bytes && gone >= files {
                break;
            }
            self.hands.0 = (self.hands.0 + 1) % count;
            let Resident { id, slot } = &self.residents.values()[self.hands.0];
            if slot.class != Class::Owned && !held(*id, slot) {
                (freed, gone) = (freed + slot.bytes, gone + 1);
            }
        }
        let yields = freed >= bytes && gone >= files;
        if yields {
            self.hands.0 = hand;
        }
        yields
    }

    /// Who leaves so that an object may come that lacks this much; nobody, if it has to show too little, as what is
    /// fetched before it is read. It is for the caller to remove them. Looks at a bounded number of slots, so it may find none where there is one.
    pub fn give_way(
        &mut self,
        newcomer: ObjectId,
        bytes: u64,
        files: u64,
        held: impl Fn(ObjectId, &Slot) -> bool,
    ) -> Option<Vec<ObjectId>> {
        let uses = self.names.get(newcomer).map_or([0; 3], |name| name.uses);
        let since = self.admission.evidence(&uses).unwrap_or(0);
        let leave = self.leave(bytes, files, since, |id, slot| id == newcomer || held(id, slot))?;
        for (id, slot) in leave.iter().filter(|(_, slot)| slot.class == Class::Owned) {
            self.admission.traded(newcomer, *id, slot.bytes);
        }
        Some(leave.into_iter().map(|(id, _)| id).collect())
    }

    /// Slots that give way to anybody or were not opened since, at the hand; the longest unread of them.
    fn leave(
        &mut self,
        bytes: u64,
        files: u64,
        since: Stamp,
        held: impl Fn(ObjectId, &Slot) -> bool,
    ) -> Option<Vec<(ObjectId, Slot)>> {
        let count = self.residents.len();
        if count == 0 || (since == 0 && (self.yielding.0 < bytes || self.yielding.1 < files)) {
            return None;
        }
        let mean = (self.used.bytes / count as u64).max(1);
        let wanted = usize::try_from((bytes / mean).max(files) + 1).unwrap_or(usize::MAX);
        let looks = if self.yielding.1 > 0 { LOOKS_MAX } else { wanted.saturating_mul(LOOKS).min(LOOKS_MAX) };
        let mut found: Vec<(ObjectId, Slot)> = Vec::new();
        for _ in 0..looks.min(count) {
            self.hands.0 = (self.hands.0 + 1) % count;
            let Resident { id, slot } = &self.residents.values()[self.hands.0];
            if (slot.class != Class::Owned || slot.opened < since) && !held(*id, slot) {
                found.push((*id, *slot));
            }
        }
        found.sort_unstable_by_key(|(id, slot)| (slot.class, slot.opened, *id));
        let (mut freed, mut gone) = (0, 0);
        let last = found.iter().position(|(_, slot)| {
            (freed, gone) = (freed + slot.bytes, gone + 1);
            freed >= bytes && gone >= files
        })?;
        found.truncate(last + 1);
        Some(found)
    }

    /// Remember a name; with too many, the longest unread one at the hand is forgotten.
    fn remember(&mut self, name: Name) {
        if self.names.len() >= NAMES_MAX {
            let count = self.names.len();
            let hand = self.hands.1;
            self.hands.1 = (hand + LOOKS) % count;
            let near = (0..LOOKS).map(|step| &self.names.values()[(hand + step) % count]);
            let oldest = near.min_by_key(|name| name.opened).map(|name| name.id);
            oldest.map(|id| self.names.remove(id));
        }
        self.names.insert(name);
    }

    /// Another boot: what was complete is to be read once more before it is trusted.
    pub fn distrust(&mut self) {
        let slots = self.residents.values_mut().map(|resident| &mut resident.slot);
        let complete = slots.filter(|slot| slot.state == State::Complete);
        complete.for_each(|slot| slot.state = State::Unchecked);
    }

    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.residents.values().iter().map(|resident| &resident.slot)
    }

    #[cfg(any(test, feature = "simulate"))]
    pub fn residents(&self) -> impl Iterator<Item = (ObjectId, &Slot)> {
        self.residents.values().iter().map(|resident| (resident.id, &resident.slot))
    }

    /// To change where the log tells of them.
    pub fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.residents.values_mut().map(|resident| &mut resident.slot)
    }

    /// Objects in a state, in the order in which the log tells of them.
    pub fn in_state(&self, state: State) -> Vec<(ObjectId, u64)> {
        let all = self.residents.values().iter().filter(|resident| resident.slot.state == state);
        let mut all: Vec<_> = all.map(|resident| (resident.id, resident.slot.at)).collect();
        all.sort_unstable_by_key(|(_, at)| *at);
        all
    }

    /// Bytes of memory taken.
    pub fn bytes(&self) -> u64 {
        self.residents.bytes() + self.names.bytes() + Admission::BYTES_MAX
    }
}

impl Keyed for Resident {
    fn id(&self) -> ObjectId {
        self.id
    }
}

impl Keyed for Name {
    fn id(&self) -> ObjectId {
        self.id
    }
}

const _: () = assert!(size_of::<Resident>() == 48 && size_of::<Name>() == 32);

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
