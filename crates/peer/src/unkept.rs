//! What an owner says to those who ask for what nobody keeps. Who asks first fetches it for itself, so that it crosses the
//! network once; who asks soon after it is sent to that one, the next one to this one, and so on: each gives once, and the store
//! too. That does for as long as readers have in memory what they read. Those who read one object at their own pace lose sight
//! of each other, and each would soon ask the store: so of an object that several read at once each of them fetches another part
//! of what nobody asked for yet, and has it in memory for all.
//!
//! Pure: nothing is asked here. Invariants: what is remembered is bounded, and what is forgotten costs a fetch; who asks waits for
//! who asked before him, so that nobody waits in a circle.

use block::ObjectId;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// How long somebody may be sent to the one who asked before, and an object counts as read by several at once.
const LENT_FOR: Duration = Duration::from_secs(5);

/// Blocks of which that is remembered: some 64 bytes each, and 16 GiB of large ones.
const LENT_MAX: usize = 1 << 16;

/// How many of them one asker may be remembered for, so that whoever asks for much leaves room to others.
const LENT_EACH: usize = LENT_MAX / 4;

/// Objects that several read at once, and how many of their readers are remembered.
const SHARED_MAX: usize = 1 << 12;
const READERS_MAX: usize = 64;

/// Blocks side by side that the same member fetches for all who read them.
const PART_BLOCKS: u32 = 16;

/// In place of a ticket: who is named fetches it for all who read it.
pub const FOR_ALL: u64 = u64::MAX;

/// Between two looks for what is too old, while there is no room.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// What one owner knows.
#[derive(Default)]
pub struct Unkept {
    /// Who asked last for a block.
    asked: HashMap<(ObjectId, u32), Asked>,
    /// Of how many blocks each of them asked last.
    asked_by: HashMap<u128, usize>,
    shared: HashMap<ObjectId, Shared>,
    tickets: u64,
    /// When what is too old was last taken off.
    swept: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Asked {
    by: u128,
    at: Instant,
    ticket: u64,
    /// Who fetches it for all.
    giver: Option<u128>,
}

/// An object that several read at once.
struct Shared {
    /// When that was last seen.
    at: Instant,
    /// Who they are: each may read it.
    readers: Vec<u128>,
}

impl Shared {
    fn giver(&self, block: u32) -> Option<u128> {
        self.readers.get((block / PART_BLOCKS) as usize % self.readers.len().max(1)).copied()
    }
}

/// What somebody is told who asks for what nobody keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Lent(Loan),
    /// The owner fetches it for all, up to this block.
    Given(u32),
}

/// Who is to be asked in the owner's stead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// As which asker he counts, of all who ask for such: who asks later has a greater one. 0 is none.
    pub ticket: u64,
    /// The block up to which that holds. Of what comes then, others may know more.
    pub until: u32,
    /// Who asked before and may have it in memory; without one, the store.
    pub lender: Option<Lender>,
}

impl Loan {
    /// Nobody is known to have it.
    pub fn none(until: u32) -> Loan {
        Loan { ticket: 0, until, lender: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lender {
    pub member: u128,
    /// As which asker it counted, or [`FOR_ALL`].
    pub ticket: u64,
}

impl Unkept {
    /// Somebody asks for blocks that nobody keeps, of this owner: where the first of them comes from, and until which block that
    /// is so. `refused`: this one was asked in vain.
    pub fn turn(
        &mut self,
        (object, blocks): (ObjectId, Range<u32>),
        (me, asker): (u128, u128),
        refused: Option<u128>,
        now: Instant,
    ) -> Turn {
        self.make_room(&blocks, asker, now);
        if !self.has_room(&blocks, asker) {
            return Turn::Lent(Loan::none(blocks.end));
        }
        self.see((object, blocks.start), asker, refused, now);
        let shared = self.shared.get(&object).filter(|shared| is_fresh(shared.at, now));
        // Who gives all of it, or what it had of it.
        let from = |block: u32| {
            let asked = self.asked.get(&(object, block)).filter(|asked| is_fresh(asked.at, now));
            let lent = asked.filter(|asked| asked.giver.is_none() && asked.by != asker && Some(asked.by) != refused);
            let given = asked.and_then(|asked| asked.giver).filter(|giver| Some(*giver) != refused);
            let given = given.or_else(|| shared?.giver(block));
            let lent = lent.map(|asked| Lender { member: asked.by, ticket: asked.ticket });
            lent.or(given.map(|member| Lender { member, ticket: FOR_ALL }))
        };
        let lender = from(blocks.start);
        let until = blocks.clone().find(|block| from(*block) != lender).unwrap_or(blocks.end);
        let giver = lender.filter(|lender| lender.ticket == FOR_ALL).map(|lender| lender.member);
        self.tickets += 1;
        let ticket = self.tickets;
        for block in blocks.start..until {
            let before = self.asked.insert((object, block), Asked { by: asker, at: now, ticket, giver });
            *self.asked_by.entry(asker).or_default() += 1;
            before.map(|asked| self.asked_by.entry(asked.by).and_modify(|count| *count -= 1));
        }
        match lender {
            Some(Lender { member, ticket: FOR_ALL }) if member == me => Turn::Given(until),
            _ => Turn::Lent(Loan { ticket, until, lender }),
        }
    }

    /// Several read an object at once if one asks for a block just after another one.
    fn see(&mut self, of: (ObjectId, u32), asker: u128, refused: Option<u128>, now: Instant) {
        let asked = self.asked.get(&of).filter(|asked| asked.by != asker && is_fresh(asked.at, now));
        let before = asked.map(|asked| asked.by);
        let known = self.shared.get_mut(&of.0).filter(|shared| is_fresh(shared.at, now));
        let is_known = known.is_some();
        if let Some(shared) = known {
            shared.at = if before.is_some() { now } else { shared.at };
            // Who doesn't give what it was to give leaves that to the others.
            shared.readers.retain(|reader| Some(*reader) != refused);
            if !shared.readers.contains(&asker) && shared.readers.len() < READERS_MAX {
                shared.readers.push(asker);
            }
        }
        if let Some(before) = before.filter(|_| !is_known)
            && (self.shared.len() < SHARED_MAX || self.shared.contains_key(&of.0))
        {
            self.shared.insert(of.0, Shared { at: now, readers: vec![before, asker] });
        }
    }

    /// Whether it may be remembered that an asker asks for these.
    fn has_room(&self, blocks: &Range<u32>, asker: u128) -> bool {
        let has = self.asked_by.get(&asker).copied().unwrap_or(0);
        self.asked.len() + blocks.len() <= LENT_MAX && has + blocks.len() <= LENT_EACH
    }

    /// Forget what is too old, if there is no room.
    fn make_room(&mut self, blocks: &Range<u32>, asker: u128, now: Instant) {
        let is_full = !self.has_room(blocks, asker) || self.shared.len() >= SHARED_MAX;
        if !is_full || self.swept.is_some_and(|at| now.saturating_duration_since(at) <= SWEPT_EVERY) {
            return;
        }
        self.shared.retain(|_, shared| is_fresh(shared.at, now));
        self.asked.retain(|_, asked| is_fresh(asked.at, now));
        self.asked_by.clear();
        self.asked.values().for_each(|asked| *self.asked_by.entry(asked.by).or_default() += 1);
        self.swept = Some(now);
    }
}

fn is_fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < LENT_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is named, and until which block.
    fn named(turn: Turn) -> (Option<u128>, u32) {
        match turn {
            Turn::Lent(loan) => (loan.lender.map(|lender| lender.member), loan.until),
            Turn::Given(until) => (Some(OWNER), until),
        }
    }

    /// Stands for the owner itself.
    const OWNER: u128 = 1_000;

    #[test]
    fn who_asks_for_what_nobody_keeps_is_sent_to_who_asked_just_before() {
        let (mut unkept, now) = (Unkept::default(), Instant::now());
        let mut turn = |object, blocks, asker, refused, after| {
            let now = now + Duration::from_secs(after);
            let turn = unkept.turn((ObjectId(object), blocks), (OWNER, asker), refused, now);
            if let Turn::Lent(Loan { ticket, lender: Some(lender), .. }) = turn {
                assert!(lender.ticket < ticket || lender.ticket == FOR_ALL);
            }
            named(turn)
        };
        assert_eq!([turn(1, 0..32, 1, None, 0), turn(1, 32..48, 5, None, 0)], [(None, 32), (None, 48)], "the store");
        assert_eq!(
            [turn(1, 31..32, 2, None, 1), turn(1, 31..32, 3, None, 2)],
            [(Some(1), 32), (Some(2), 32)],
            "a chain"
        );
        assert_eq!(turn(1, 0..40, 4, None, 2), (Some(1), 31), "as far as it goes");
        assert_eq!([turn(1, 31..40, 4, None, 2), turn(1, 32..40, 4, None, 2)], [(Some(3), 32), (Some(5), 40)]);
        assert_eq!([turn(2, 0..1, 4, None, 2), turn(2, 0..1, 4, None, 3)], [(None, 1), (None, 1)], "it had it itself");
        assert_eq!([turn(2, 0..1, 5, Some(9), 7), turn(2, 0..1, 6, None, 12)], [(Some(4), 1), (None, 1)], "long ago");
    }

    #[test]
    fn of_what_several_read_at_once_each_fetches_a_part_for_all() {
        let (mut unkept, now) = (Unkept::default(), Instant::now());
        let mut turn = |blocks, asker, refused, after| {
            let now = now + Duration::from_secs(after);
            unkept.turn((ObjectId(1), blocks), (OWNER, asker), refused, now)
        };
        let for_all = |turn| match turn {
            Turn::Lent(Loan { until, lender: Some(Lender { member, ticket: FOR_ALL }), .. }) => (Some(member), until),
            Turn::Given(until) => (Some(OWNER), until),
            Turn::Lent(loan) => (None, loan.until),
        };
        assert_eq!(named(turn(0..8, 1, None, 0)), (None, 8));
        assert_eq!(named(turn(8..16, 1, None, 0)), (None, 16), "alone");
        let lent = [turn(0..24, 2, None, 1), turn(8..24, 2, None, 1)].map(named);
        assert_eq!(lent, [(Some(1), 8), (Some(1), 16)], "what the first one asked for is his to give");
        for asker in [2, 1] {
            assert_eq!(for_all(turn(16..48, asker, None, 1)), (Some(2), 32), "the same for each who asks");
            assert_eq!(for_all(turn(32..48, asker, None, 1)), (Some(1), 48));
        }
        assert_eq!(for_all(turn(8..16, 3, Some(9), 2)), (None, 16), "the second one has that in memory");
        assert_eq!(for_all(turn(48..96, 1, None, 2)), (Some(1), 64), "three of them by now");
        assert_eq!(for_all(turn(80..96, OWNER, None, 2)), (Some(2), 96));
        assert_eq!(for_all(turn(112..128, 1, None, 2)), (Some(OWNER), 128), "the owner reads it as well");
        assert_eq!(for_all(turn(16..32, 3, Some(2), 2)), (Some(3), 32), "who is to give it doesn't");
        assert_eq!(for_all(turn(16..32, 1, None, 2)), (Some(3), 32), "nor is anybody else sent there");
        assert_eq!(for_all(turn(128..144, 1, None, 6)).0, Some(OWNER));
        assert_eq!(for_all(turn(144..160, 1, None, 7)), (None, 160), "for seconds nobody else came");
    }

    /// Sent to a keeper that has no room, a lone reader is alone still.
    #[test]
    fn who_is_refused_by_a_keeper_is_not_joined_by_it() {
        let (mut unkept, now) = (Unkept::default(), Instant::now());
        for start in [0, 16] {
            let turn = unkept.turn((ObjectId(1), start..start + 16), (OWNER, 1), Some(7), now);
            assert_eq!(named(turn), (None, start + 16));
        }
    }

    #[test]
    fn who_asks_for_much_that_nobody_keeps_leaves_room_for_others_to_be_remembered() {
        let (mut unkept, now) = (Unkept::default(), Instant::now());
        let none = Turn::Lent(Loan::none(64));
        let mut turn = |object: usize, asker, after| {
            let now = now + Duration::from_secs(after);
            unkept.turn((ObjectId(object as u128), 0..64), (OWNER, asker), None, now)
        };
        let remembered = (0..LENT_MAX / 64).filter(|object| turn(*object, 1, 0) != none).count();
        assert_eq!(remembered, LENT_EACH / 64);
        assert_eq!(named(turn(0, 2, 1)), (Some(1), 64));
        assert_ne!(turn(LENT_MAX, 1, 1), none, "what another asked for since counts for that one");
        assert_eq!(turn(LENT_MAX + 1, 1, 1), none);
        assert_ne!(turn(LENT_MAX + 1, 1, 7), none, "what is too old counts for nobody");
    }

    #[test]
    fn objects_that_several_read_are_remembered_up_to_a_number() {
        let (mut unkept, now) = (Unkept::default(), Instant::now());
        let mut shared = |objects: Range<usize>, after| {
            let now = now + Duration::from_secs(after);
            let mut is_given = |object: usize| {
                let id = ObjectId(object as u128);
                for asker in [1, 2] {
                    unkept.turn((id, 0..1), (OWNER, asker), None, now);
                }
                named(unkept.turn((id, 1..2), (OWNER, 1), None, now)).0.is_some()
            };
            objects.filter(|object| is_given(*object)).count()
        };
        assert_eq!(shared(0..SHARED_MAX + 10, 0), SHARED_MAX);
        assert_eq!(shared(SHARED_MAX..SHARED_MAX + 10, 6), 10, "what is too old makes room");
    }

    /// Whoever asks for whichever blocks in whichever order: following who waits for whom leads to the store.
    #[test]
    fn nobody_waits_in_a_circle_for_what_nobody_keeps() {
        let (mut unkept, now, mut state) = (Unkept::default(), Instant::now(), 1u64);
        let mut chance = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        // Of a block and a member: when it asked, and whom it waits for.
        let mut waits: HashMap<(ObjectId, u32, u128), (u32, Option<u128>)> = HashMap::new();
        for turn in 0..4_000 {
            let (id, asker, start) = (ObjectId(chance(40).into()), u128::from(chance(5)), chance(8) as u32);
            // Each asks once for a block.
            let end = (start..start + 1 + chance(8) as u32).find(|block| waits.contains_key(&(id, *block, asker)));
            let blocks = start..end.unwrap_or(start + 1);
            if blocks.is_empty() {
                continue;
            }
            let told = unkept.turn((id, blocks.clone()), (OWNER, asker), None, now);
            // Who fetches it for all waits for nobody but the store.
            let waits_for = match told {
                Turn::Lent(Loan { lender: Some(lender), .. }) if lender.ticket != FOR_ALL => Some(lender.member),
                _ => None,
            };
            for block in blocks.start..named(told).1 {
                waits.insert((id, block, asker), (turn, waits_for));
            }
        }
        let held: Vec<_> = waits.iter().filter_map(|(of, (turn, holder))| Some((of, turn, (*holder)?))).collect();
        assert!(held.len() > 100, "{}", held.len());
        for ((id, block, _), turn, holder) in held {
            let (before, _) = waits.get(&(*id, *block, holder)).expect("who is named has asked");
            assert!(before < turn, "block {block}: asked in turn {turn}, of who asked in {before}");
        }
    }
}
