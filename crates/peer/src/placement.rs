//! Where an owner that has no room for a stripe sends those who ask for it: to a member that has room, which keeps it in the
//! owner's stead. Where nobody has any, [`crate::unkept`] says what is done.
//!
//! Pure: who has how much room is told, nothing is asked here. Invariant: what is remembered is bounded; what is forgotten
//! costs a fetch.

use block::Stripe;
use std::collections::HashMap;

/// Stripes of which it is remembered who keeps them: some 64 bytes each.
const PLACED_MAX: usize = 1 << 18;

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

    /// Who keeps a stripe in this owner's stead, as far as it remembers.
    pub fn keeper(&self, stripe: &Stripe) -> Option<u128> {
        self.placed.get(stripe).copied()
    }

    /// A member says that it keeps a stripe in this owner's stead. Who does: the first that said so, of those who answer.
    pub fn keeps(&mut self, stripe: Stripe, member: u128, answers: impl Fn(u128) -> bool) -> u128 {
        self.make_room();
        let keeper = self.placed.entry(stripe).or_insert(member);
        if !answers(*keeper) {
            *keeper = member;
        }
        *keeper
    }

    /// The owner has a stripe itself. Who kept it in its stead.
    pub fn forget(&mut self, stripe: &Stripe) -> Option<u128> {
        self.placed.remove(stripe)
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
    use block::ObjectId;

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
