//! Where an owner that has no room for a stripe sends those who ask for it: to a member that has room, which keeps it in the
//! owner's stead; where nobody has any, the asker fetches it for itself, so that what nobody keeps crosses the network once. Who
//! asks soon after it is sent to it, the next one to that one, and so on: many who read the same at once make a chain, in
//! which each gives once, and the store too.
//!
//! Pure: who has how much room is told, nothing is asked here. Invariant: what is remembered is bounded; what is forgotten
//! costs a fetch.

use block::{ObjectId, Stripe};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// Stripes of which it is remembered who keeps them: some 64 bytes each.
const PLACED_MAX: usize = 1 << 18;

/// How long somebody may be sent to the one who asked before.
const LENT_FOR: Duration = Duration::from_secs(5);

/// Blocks of which that is remembered: some 64 bytes each, and 16 GiB of large ones.
const LENT_MAX: usize = 1 << 16;

/// How many of them one asker may be remembered for, so that whoever asks for much leaves room to others.
const LENT_EACH: usize = LENT_MAX / 4;

/// Between two looks for what is too old, while there is no room.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// What an owner without room says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Ask this member, which keeps it, or is to.
    Elsewhere(u128),
    /// Nobody has room for it: fetch it yourself.
    Yours,
}

/// What one owner knows.
#[derive(Default)]
pub struct Placement {
    placed: HashMap<Stripe, u128>,
    /// Bytes that others said they have room for, less what was sent to them since.
    free: HashMap<u128, u64>,
    /// Bytes that others said they would give up for what readers want, less what was sent to them since.
    stale: HashMap<u128, u64>,
    /// Who asked last for a block of what nobody keeps, when, and as which of all.
    lent: HashMap<(ObjectId, u32), (u128, Instant, u64)>,
    /// Of how many blocks each of them asked last.
    lent_to: HashMap<u128, usize>,
    tickets: u64,
    /// When what is too old was last taken off.
    swept: Option<Instant>,
}

/// What somebody is told who asks for what nobody keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// As which asker he counts, of all who ask for such: who asks later has a greater one. 0 is none.
    pub ticket: u64,
    /// The block up to which that holds. Of what comes then, others may know more.
    pub until: u32,
    /// Who asked before and may have it in memory.
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
    /// As which asker it counted.
    pub ticket: u64,
}

impl Placement {
    /// A member told how much room it has.
    pub fn told(&mut self, member: u128, free_bytes: u64) {
        self.free.insert(member, free_bytes);
    }

    /// A member told how much it would give up for what readers want.
    pub fn told_stale(&mut self, member: u128, stale_bytes: u64) {
        self.stale.insert(member, stale_bytes);
    }

    /// Somebody was sent to a member that doesn't have this and won't keep it.
    pub fn refused(&mut self, stripe: &Stripe, member: u128) {
        // Others may have come back before, and somebody else keeps it by now.
        if self.placed.get(stripe) == Some(&member) {
            self.placed.remove(stripe);
            self.free.insert(member, 0);
            self.stale.insert(member, 0);
        }
    }

    /// Where a stripe of so many bytes is to be had that this owner has no room for. `others` are those who come next in
    /// line for it, of whom some answer. `is_wanted`: readers asked for it often enough for something else to give way.
    pub fn verdict(
        &mut self,
        (stripe, bytes, is_wanted): (Stripe, u64, bool),
        others: &[u128],
        answers: impl Fn(u128) -> bool,
    ) -> Verdict {
        if let Some(member) = self.placed.get(&stripe).filter(|member| others.contains(member)) {
            // Who is away for a moment keeps it still.
            return if answers(*member) { Verdict::Elsewhere(*member) } else { Verdict::Yours };
        }
        let next = |room: &HashMap<u128, u64>| {
            let has_room = |member: &&u128| room.get(*member).is_some_and(|room| *room >= bytes) && answers(**member);
            others.iter().find(has_room).copied()
        };
        let free = next(&self.free);
        let Some(member) = free.or_else(|| next(&self.stale).filter(|_| is_wanted)) else {
            self.placed.remove(&stripe);
            return Verdict::Yours;
        };
        self.make_room();
        let room = if free.is_some() { &mut self.free } else { &mut self.stale };
        room.entry(member).and_modify(|room| *room -= bytes);
        self.placed.insert(stripe, member);
        Verdict::Elsewhere(member)
    }

    /// Somebody asks for blocks that nobody keeps: who asked for the first of them just before, if that was somebody else, and
    /// until which block that is so. `refused`: this one was asked in vain. Who asks waits for who asked before him, as long as that one
    /// did: so nobody waits in a circle.
    pub fn lend(
        &mut self,
        object: ObjectId,
        blocks: Range<u32>,
        asker: u128,
        refused: Option<u128>,
        now: Instant,
    ) -> Loan {
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < LENT_FOR;
        if !self.has_place(&blocks, asker)
            && self.swept.is_none_or(|at| now.saturating_duration_since(at) > SWEPT_EVERY)
        {
            self.lent.retain(|_, (_, at, _)| is_fresh(*at));
            self.lent_to.clear();
            self.lent.values().for_each(|(member, ..)| *self.lent_to.entry(*member).or_default() += 1);
            self.swept = Some(now);
        }
        if !self.has_place(&blocks, asker) {
            return Loan::none(blocks.end);
        }
        let had = |block: u32| {
            let (member, at, ticket) = *self.lent.get(&(object, block))?;
            (member != asker && Some(member) != refused && is_fresh(at)).then_some((member, ticket))
        };
        let before = had(blocks.start);
        let until = blocks.clone().find(|block| had(*block) != before).unwrap_or(blocks.end);
        self.tickets += 1;
        for block in blocks.start..until {
            let before = self.lent.insert((object, block), (asker, now, self.tickets));
            *self.lent_to.entry(asker).or_default() += 1;
            before.map(|(member, ..)| self.lent_to.entry(member).and_modify(|count| *count -= 1));
        }
        Loan { ticket: self.tickets, until, lender: before.map(|(member, ticket)| Lender { member, ticket }) }
    }

    /// Whether it may be remembered that an asker asks for these.
    fn has_place(&self, blocks: &Range<u32>, asker: u128) -> bool {
        let has = self.lent_to.get(&asker).copied().unwrap_or(0);
        self.lent.len() + blocks.len() <= LENT_MAX && has + blocks.len() <= LENT_EACH
    }

    /// Who keeps a stripe in this owner's stead, as far as it remembers.
    pub fn keeper(&self, stripe: &Stripe) -> Option<u128> {
        self.placed.get(stripe).copied()
    }

    /// A member says that it keeps a stripe in this owner's stead.
    pub fn keeps(&mut self, stripe: Stripe, member: u128) {
        self.make_room();
        self.placed.entry(stripe).or_insert(member);
    }

    /// Forget some stripe where there are too many.
    fn make_room(&mut self) {
        let some = self.placed.keys().next().copied().filter(|_| self.placed.len() >= PLACED_MAX);
        some.map(|stripe| self.placed.remove(&stripe));
    }

    /// Stripes that others keep in this owner's stead.
    pub fn placed(&self) -> u64 {
        self.placed.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(number: u32) -> Stripe {
        Stripe { object: ObjectId(7), index: number }
    }

    #[test]
    fn what_has_no_room_goes_to_the_next_who_has_and_stays_there() {
        let mut placement = Placement::default();
        assert_eq!(
            placement.verdict((stripe(0), 10, false), &[1, 2], |_| true),
            Verdict::Yours,
            "nobody said that he has room"
        );
        placement.told(1, 5);
        placement.told(2, 25);
        assert_eq!(placement.verdict((stripe(0), 10, false), &[1, 2], |_| true), Verdict::Elsewhere(2));
        assert_eq!(placement.verdict((stripe(0), 10, false), &[2, 1], |_| true), Verdict::Elsewhere(2), "as before");
        assert_eq!(placement.verdict((stripe(1), 10, false), &[1, 2], |_| true), Verdict::Elsewhere(2));
        assert_eq!(
            placement.verdict((stripe(2), 10, false), &[1, 2], |_| true),
            Verdict::Yours,
            "of 25 bytes 20 are taken"
        );
        assert_eq!(placement.verdict((stripe(3), 5, false), &[1, 2], |_| true), Verdict::Elsewhere(1));
        assert_eq!(placement.placed(), 3);
    }

    #[test]
    fn who_asks_for_what_nobody_keeps_is_sent_to_who_asked_just_before() {
        let (mut placement, now) = (Placement::default(), Instant::now());
        let mut lend = |blocks, asker, refused, after| {
            let loan = placement.lend(ObjectId(1), blocks, asker, refused, now + Duration::from_secs(after));
            assert!(loan.lender.is_none_or(|lender| lender.ticket < loan.ticket));
            (loan.lender.map(|lender| lender.member), loan.until)
        };
        assert_eq!(lend(0..32, 1, None, 0), (None, 32), "the first one asks the store");
        assert_eq!([lend(31..32, 2, None, 1), lend(31..32, 3, None, 2)], [(Some(1), 32), (Some(2), 32)], "a chain");
        assert_eq!(lend(0..40, 4, None, 2), (Some(1), 31), "as far as it goes");
        assert_eq!([lend(31..40, 4, None, 2), lend(32..40, 4, None, 2)], [(Some(3), 32), (None, 40)]);
        assert_eq!(lend(40..44, 1, None, 2), (None, 44));
        assert_eq!(lend(44..46, 2, None, 2), (None, 46));
        assert_eq!(lend(46..50, 1, None, 2), (None, 50));
        assert_eq!(lend(42..48, 1, None, 2), (None, 44), "what others asked for is theirs to give");
        assert_eq!(lend(0..1, 4, None, 3), (None, 1), "it had it itself");
        assert_eq!(lend(0..1, 5, Some(4), 3), (None, 1), "whom it was sent to has let go of it");
        assert_eq!([lend(0..1, 6, Some(9), 7), lend(0..1, 7, None, 12)], [(Some(5), 1), (None, 1)], "long ago");
    }

    #[test]
    fn who_asks_for_much_that_nobody_keeps_leaves_room_for_others_to_be_remembered() {
        let (mut placement, now) = (Placement::default(), Instant::now());
        let mut lend = |object: usize, asker, after| {
            let now = now + Duration::from_secs(after);
            placement.lend(ObjectId(object as u128), 0..64, asker, None, now)
        };
        let remembered = (0..LENT_MAX / 64).filter(|object| lend(*object, 1, 0) != Loan::none(64)).count();
        assert_eq!(remembered, LENT_EACH / 64);
        assert_eq!(lend(0, 2, 1).lender.map(|lender| lender.member), Some(1));
        assert_ne!(lend(LENT_MAX, 1, 1), Loan::none(64), "what another asked for since counts for that one");
        assert_eq!(lend(LENT_MAX + 1, 1, 1), Loan::none(64));
        assert_ne!(lend(LENT_MAX + 1, 1, 7), Loan::none(64), "what is too old counts for nobody");
    }

    /// Whoever asks for whichever blocks in whichever order: following who waits for whom leads to the store.
    #[test]
    fn nobody_waits_in_a_circle_for_what_nobody_keeps() {
        let (mut placement, now, mut state) = (Placement::default(), Instant::now(), 1u64);
        let mut chance = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        // Of a block and a member: when it asked, and whom it waits for.
        let mut waits: HashMap<(u32, u128), (u32, Option<u128>)> = HashMap::new();
        for turn in 0..2_000 {
            let (asker, start) = (u128::from(chance(5)), chance(40) as u32);
            // Each asks once for a block.
            let end = (start..start + 1 + chance(24) as u32).find(|block| waits.contains_key(&(*block, asker)));
            let blocks = start..end.unwrap_or(start + 1);
            if blocks.is_empty() || waits.contains_key(&(start, asker)) {
                continue;
            }
            let loan = placement.lend(ObjectId(1), blocks.clone(), asker, None, now);
            for block in blocks.start..loan.until {
                waits.insert((block, asker), (turn, loan.lender.map(|lender| lender.member)));
            }
        }
        for ((block, _), (turn, holder)) in &waits {
            let Some(holder) = holder else { continue };
            let (before, _) = waits.get(&(*block, *holder)).expect("who is named has asked");
            assert!(before < turn, "block {block}: asked in turn {turn}, of who asked in {before}");
        }
        assert!(waits.values().any(|(_, holder)| holder.is_some()));
    }

    #[test]
    fn who_refuses_is_not_asked_to_keep_anything_until_he_says_that_he_has_room() {
        let mut placement = Placement::default();
        placement.told(1, 100);
        placement.told(2, 100);
        assert_eq!(placement.verdict((stripe(0), 10, false), &[1, 2], |_| true), Verdict::Elsewhere(1));
        placement.refused(&stripe(0), 7);
        assert_eq!(
            placement.verdict((stripe(0), 10, false), &[1, 2], |_| true),
            Verdict::Elsewhere(1),
            "it was not named"
        );
        assert_eq!(
            placement.verdict((stripe(0), 10, false), &[1, 2], |member| member != 1),
            Verdict::Yours,
            "away for a moment"
        );
        placement.refused(&stripe(0), 1);
        assert_eq!(placement.verdict((stripe(0), 10, false), &[1, 2], |_| true), Verdict::Elsewhere(2));
        placement.told(1, 100);
        assert_eq!(placement.verdict((stripe(1), 10, false), &[1, 2], |_| true), Verdict::Elsewhere(1));
        assert_eq!(
            placement.verdict((stripe(1), 10, false), &[2], |_| true),
            Verdict::Elsewhere(2),
            "the other has left"
        );
    }

    #[test]
    fn what_readers_want_goes_to_who_has_something_that_nobody_reads() {
        let mut placement = Placement::default();
        placement.told(1, 0);
        placement.told_stale(1, 15);
        let mut verdict = |number, is_wanted| placement.verdict((stripe(number), 10, is_wanted), &[1], |_| true);
        assert_eq!(
            [verdict(0, false), verdict(0, true), verdict(1, true)],
            [Verdict::Yours, Verdict::Elsewhere(1), Verdict::Yours]
        );
        assert_eq!(verdict(0, false), Verdict::Elsewhere(1), "it lies there");
        placement.told_stale(1, 15);
        placement.refused(&stripe(0), 1);
        assert_eq!(placement.verdict((stripe(0), 10, true), &[1], |_| true), Verdict::Yours, "it has none any more");
    }

    /// Members of equal room keep all of a set that fits exactly, though chance gives some of them more than others.
    #[test]
    fn what_chance_puts_on_one_member_in_excess_finds_room_with_another() {
        use crate::{Roster, Seat};
        for (count, stripes) in [(4u64, 400u64), (64, 64 * 40)] {
            let seats: Vec<_> = (0..count).map(|n| Seat::new(format!("n{n}"), "x:1", 1)).collect();
            let roster = Roster::of(0, seats.clone());
            let (room, mut used) = (stripes / count, HashMap::new());
            let mut owners: HashMap<u128, Placement> = HashMap::new();
            let mut kept = 0;
            for number in 0..stripes as u32 {
                let order = roster.order(&stripe(number));
                let (owner, others) = order.split_first().expect("somebody");
                if number % 32 == 0 {
                    // What is told now and then.
                    for seat in &seats {
                        let place = owners.entry(seat.id).or_default();
                        order.iter().for_each(|id| place.told(*id, room - used.get(id).copied().unwrap_or(0)));
                    }
                }
                let place = owners.entry(*owner).or_default();
                let mut keeper = *owner;
                for _ in 0..count {
                    let free = used.get(&keeper).copied().unwrap_or(0) < room;
                    if free {
                        *used.entry(keeper).or_insert(0) += 1;
                        kept += 1;
                        break;
                    }
                    if keeper != *owner {
                        place.refused(&stripe(number), keeper);
                    }
                    let Verdict::Elsewhere(next) = place.verdict((stripe(number), 1, false), others, |_| true) else {
                        break;
                    };
                    keeper = next;
                }
            }
            assert!(kept as f64 >= 0.995 * stripes as f64, "{kept} of {stripes} on {count}");
        }
    }
}
