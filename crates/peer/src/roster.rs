//! Who is in the cluster, as this node sees it at a moment. Others may see it otherwise for a while: what they ask then is
//! answered all the same.
//!
//! Pure values. Invariant: a member of one name has one id everywhere, so all who see the same members agree on owners.

use block::{Member, Stripe};
use std::collections::BTreeMap;

/// One member, and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub id: u128,
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// Its part of all stripes, beside the weights of the others.
    pub weight: u32,
}

impl Seat {
    pub fn new(name: impl Into<String>, address: impl Into<String>, weight: u32) -> Seat {
        let name = name.into();
        Seat { id: xxhash_rust::xxh3::xxh3_128(name.as_bytes()), name, address: address.into(), weight }
    }
}

/// All members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    me: u128,
    seats: BTreeMap<u128, Seat>,
    members: Vec<Member>,
    trouble: Option<String>,
}

impl Roster {
    /// Of several seats of one name the first counts.
    pub fn of(me: u128, all: impl IntoIterator<Item = Seat>) -> Roster {
        let mut roster = Roster { me, ..Roster::default() };
        for seat in all {
            let std::collections::btree_map::Entry::Vacant(place) = roster.seats.entry(seat.id) else { continue };
            roster.members.push(Member { id: seat.id, weight: seat.weight });
            place.insert(seat);
        }
        // So that the same members are the same roster, in whatever order they were told.
        roster.members.sort_unstable_by_key(|member| member.id);
        roster
    }

    /// The same members, because of a trouble with who tells of them.
    pub fn kept(&self, trouble: String) -> Roster {
        Roster { trouble: Some(trouble), ..self.clone() }
    }

    /// Whether all that is owned has the same owners as by another one: nothing changed but where they are reached, or what is the
    /// matter with who tells of them.
    pub fn owns_like(&self, other: &Roster) -> bool {
        self.me == other.me && self.members == other.members
    }

    /// Why nothing newer is known of the members.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub fn me(&self) -> u128 {
        self.me
    }

    pub fn seat(&self, id: u128) -> Option<&Seat> {
        self.seats.get(&id)
    }

    /// All of them by name, this node too if it is one.
    pub fn seats(&self) -> Vec<&Seat> {
        let mut all: Vec<_> = self.seats.values().collect();
        all.sort_by(|left, right| left.name.cmp(&right.name));
        all
    }

    /// Ids of those who keep something of a stripe, the owner first.
    pub fn order(&self, stripe: &Stripe) -> Vec<u128> {
        stripe.order(&self.members).iter().map(|member| member.id).collect()
    }

    /// As much of a set as this node owns, give or take what chance does.
    pub fn share(&self, bytes: u64) -> u64 {
        let weight = |member: &Member| u128::from(member.weight);
        let all: u128 = self.members.iter().map(weight).sum();
        let mine = self.members.iter().find(|member| member.id == self.me).map_or(0, weight);
        (u128::from(bytes) * mine / all.max(1)) as u64
    }

    /// The owner of a stripe.
    pub fn owner(&self, stripe: &Stripe) -> Option<u128> {
        stripe.owner(&self.members).map(|member| member.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::ObjectId;

    #[test]
    fn all_who_see_the_same_members_agree_on_owners_in_whatever_order_they_were_told() {
        let seats: Vec<_> = (0..9).map(|n| Seat::new(format!("n{n}"), format!("10.0.0.{n}:1"), 1 + n % 2)).collect();
        let (one, other) = (Roster::of(1, seats.clone()), Roster::of(2, seats.iter().rev().cloned()));
        for object in 0..500 {
            let stripe = Stripe { object: ObjectId(object), index: 3 };
            assert_eq!(one.order(&stripe), other.order(&stripe));
            assert_eq!(one.owner(&stripe), one.order(&stripe).first().copied());
        }
        assert_eq!(one, Roster::of(1, seats.into_iter().rev()));
        assert_eq!(one.seats().iter().map(|seat| &*seat.name).collect::<Vec<_>>().concat(), "n0n1n2n3n4n5n6n7n8");
    }

    #[test]
    fn a_member_s_share_of_a_set_is_as_its_weight() {
        let seats = [Seat::new("a", "x:1", 1), Seat::new("b", "x:2", 3), Seat::new("c", "x:3", 0)];
        let share = |me: &str, bytes| Roster::of(Seat::new(me, "", 1).id, seats.clone()).share(bytes);
        assert_eq!(["a", "b", "c", "d"].map(|me| share(me, 1_000)), [250, 750, 0, 0]);
        assert_eq!((share("b", u64::MAX), Roster::default().share(9)), (u64::MAX / 4 * 3 + 2, 0));
    }

    #[test]
    fn troubles_and_addresses_change_nothing_of_what_members_own() {
        let of = |address: &str, weight| Roster::of(7, [Seat::new("a", address, weight), Seat::new("b", "y:1", 1)]);
        let (one, moved, heavier) = (of("x:1", 1), of("z:1", 1), of("x:1", 2));
        assert!(one.owns_like(&moved) && one.owns_like(&one.kept("no answer".into())) && !one.owns_like(&heavier));
        assert!(!one.owns_like(&Roster::of(7, [Seat::new("a", "x:1", 1)])));
    }

    #[test]
    fn of_two_members_of_one_name_the_first_counts() {
        let roster = Roster::of(0, [Seat::new("a", "x:1", 1), Seat::new("a", "y:1", 9)]);
        assert_eq!(roster.seats().iter().map(|seat| &*seat.address).collect::<Vec<_>>(), ["x:1"]);
    }
}
