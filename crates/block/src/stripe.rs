//! Which member of a cluster keeps a block. Blocks are kept in stripes, aligned runs of one object, so that a run asks
//! one member; and each stripe has an order of members, the first of which owns it.
//!
//! Pure: no member is asked, and none is known to be there. The order is that of weighted rendezvous hashing, in
//! integers, so that every member of every version finds the same one (docs/format.md draws it bit for bit).
//!
//! Invariant: a member that comes or goes changes the owner of no stripe but those that it has, or had.

use crate::{Address, Object, ObjectId, RUN_BLOCKS_MAX, blocks_of};
use std::cmp::Ordering;
use std::ops::Range;

/// Blocks of a stripe of a large object: 16 MiB, as many as one request takes.
pub const STRIPE_BLOCKS: u32 = RUN_BLOCKS_MAX;

/// Objects up to this size are one stripe: whoever owns one can have the kernel read its file (docs/decisions/0022).
pub const ONE_STRIPE_BYTES_MAX: u64 = 256 << 20;

/// Bits behind the point of a logarithm.
const FRACTION_BITS: u32 = 32;

/// An aligned run of one object; an object of up to [`ONE_STRIPE_BYTES_MAX`] is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stripe {
    pub object: ObjectId,
    pub index: u32,
}

/// One who keeps stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it is known by, the same for as long as it keeps its cache.
    pub id: u128,
    /// Its part of all stripes, beside the weights of the others. Nothing is kept by a member of weight 0.
    pub weight: u32,
}

impl Stripe {
    /// The stripe that a block lies in.
    pub fn of(address: &Address) -> Stripe {
        let index = if address.object.size <= ONE_STRIPE_BYTES_MAX { 0 } else { address.index / STRIPE_BLOCKS };
        Stripe { object: address.object.id(), index }
    }

    /// The blocks of the stripe; its object may end before.
    pub fn blocks(&self, object: &Object) -> Range<u32> {
        Stripe::within(object.size, object.blocks(), self.index)
    }

    /// The stripes of an object of this size, and the blocks of each; none of a size that no object has.
    pub fn all(object: ObjectId, size: u64) -> impl Iterator<Item = (Stripe, Range<u32>)> {
        let blocks = blocks_of(size).unwrap_or(0);
        let count = if size <= ONE_STRIPE_BYTES_MAX { blocks.min(1) } else { blocks.div_ceil(STRIPE_BLOCKS) };
        (0..count).map(move |index| (Stripe { object, index }, Stripe::within(size, blocks, index)))
    }

    fn within(size: u64, blocks: u32, index: u32) -> Range<u32> {
        if size <= ONE_STRIPE_BYTES_MAX {
            return 0..blocks;
        }
        let start = index.saturating_mul(STRIPE_BLOCKS).min(blocks);
        start..start.saturating_add(STRIPE_BLOCKS).min(blocks)
    }

    /// The member that keeps the stripe; none if no member keeps anything.
    pub fn owner<'m>(&self, members: &'m [Member]) -> Option<&'m Member> {
        self.placed(members).min_by(Placed::compare).map(|placed| placed.member)
    }

    /// Those who keep something, the owner first: whoever can't have the stripe of one asks the next.
    pub fn order<'m>(&self, members: &'m [Member]) -> Vec<&'m Member> {
        let mut order: Vec<_> = self.placed(members).collect();
        order.sort_unstable_by(Placed::compare);
        order.into_iter().map(|placed| placed.member).collect()
    }

    fn placed<'m>(&self, members: &'m [Member]) -> impl Iterator<Item = Placed<'m>> + use<'_, 'm> {
        let able = members.iter().filter(|member| member.weight > 0);
        able.map(|member| Placed { distance: self.distance(member), member })
    }

    /// Minus the binary logarithm of a number between 0 and 1 that chance gives this member for this stripe: of such
    /// distances over weights, each is the least as often as its weight says.
    fn distance(&self, member: &Member) -> u64 {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.object.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.index.to_le_bytes());
        bytes[20..].copy_from_slice(&member.id.to_le_bytes());
        (64 << FRACTION_BITS) - logarithm(xxhash_rust::xxh3::xxh3_64(&bytes).max(1))
    }
}

/// A member at its distance, which takes a while to compute.
struct Placed<'m> {
    distance: u64,
    member: &'m Member,
}

impl Placed<'_> {
    /// Less is nearer: a distance over a weight, compared without dividing.
    fn compare(&self, other: &Placed<'_>) -> Ordering {
        let crossed =
            |placed: &Placed<'_>, other: &Placed<'_>| u128::from(placed.distance) * u128::from(other.member.weight);
        crossed(self, other).cmp(&crossed(other, self)).then_with(|| self.member.id.cmp(&other.member.id))
    }
}

/// The binary logarithm, cut off after thirty-two bits behind the point. The square of a number has twice its logarithm,
/// so each squaring tells one bit more.
fn logarithm(number: u64) -> u64 {
    let whole = number.ilog2();
    let mut rest = number << (63 - whole);
    let mut bits = u64::from(whole);
    for _ in 0..FRACTION_BITS {
        let square = u128::from(rest) * u128::from(rest);
        let is_two = square >> 127 == 1;
        rest = (square >> if is_two { 64 } else { 63 }) as u64;
        bits = bits << 1 | u64::from(is_two);
    }
    bits
}

/// Where runs end: the first block behind this one that begins a stripe.
pub fn stripe_end(block: u32) -> u32 {
    (block / STRIPE_BLOCKS + 1).saturating_mul(STRIPE_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SMALL;
    use std::sync::Arc;

    fn stripes() -> impl Iterator<Item = Stripe> {
        (0..40_000u32).map(|number| Stripe { object: ObjectId(u128::from(number) * 0x9e37_79b9), index: number % 7 })
    }

    fn member(id: u128, weight: u32) -> Member {
        Member { id, weight }
    }

    #[test]
    fn a_stripe_is_an_aligned_run_and_a_small_object_is_one() {
        let object = |size| Arc::new(Object { store: "m".into(), key: "k".into(), version: "1".into(), size });
        let large = object(ONE_STRIPE_BYTES_MAX + 1);
        let of = |index| Stripe::of(&Address { object: large.clone(), index });
        assert_eq!([0, 63, 64, 1024].map(|index| of(index).index), [0, 0, 1, 16]);
        assert_eq!([of(0).blocks(&large), of(1024).blocks(&large)], [0..64, 1024..1025]);
        let whole = object(ONE_STRIPE_BYTES_MAX);
        let last = Stripe::of(&Address { object: whole.clone(), index: 1023 });
        assert_eq!((last.index, last.blocks(&whole)), (0, 0..1024));
        let small = object(SMALL);
        assert_eq!(Stripe::of(&Address { object: small.clone(), index: 0 }).blocks(&small), 0..1);
        let all: Vec<_> = Stripe::all(large.id(), large.size).collect();
        assert!(all.len() == 17 && all[16] == (of(1024), 1024..1025) && all[3].1 == (192..256));
        let counts = [0, 1, whole.size, u64::MAX].map(|size| Stripe::all(ObjectId(1), size).count());
        assert_eq!(counts, [0, 1, 1, 0]);
        assert_eq!([0, 63, 64, u32::MAX].map(stripe_end), [64, 64, 128, u32::MAX]);
    }

    #[test]
    fn a_logarithm_is_right_to_its_last_bit_but_one() {
        for number in [1, 2, 3, 10, 1 << 20, (1 << 20) + 1, 0x9e37_79b9_7f4a_7c15, u64::MAX] {
            let expected = (number as f64).log2() * f64::from(1 << 16) * f64::from(1 << 16);
            assert!((logarithm(number) as f64 - expected).abs() <= 64.0, "{number}");
        }
        assert_eq!([1, 2, 1 << 63].map(logarithm), [0, 1 << 32, 63 << 32]);
    }

    #[test]
    fn owners_are_what_the_format_says() {
        let members = [member(1, 1), member(2, 3), member(u128::MAX, 7)];
        let stripe = |object, index| Stripe { object: ObjectId(object), index };
        for (object, index, distances, order) in VECTORS {
            let stripe = stripe(object, index);
            assert_eq!(members.map(|member| stripe.distance(&member)), distances, "{stripe:?}");
            let found: Vec<u128> = stripe.order(&members).iter().map(|member| member.id).collect();
            assert_eq!(found, order, "{stripe:?}");
            assert_eq!(stripe.owner(&members).map(|member| member.id), Some(order[0]));
        }
    }

    #[test]
    fn each_member_has_its_part_and_none_that_weighs_nothing() {
        let members = [member(1, 1), member(2, 2), member(3, 4), member(4, 0), member(5, 1)];
        let mut owned = [0u32; 5];
        for stripe in stripes() {
            let owner = stripe.owner(&members).expect("four of them keep something");
            owned[members.iter().position(|member| member == owner).expect("one of them")] += 1;
        }
        // Of 40,000 draws, four deviations are some 400.
        for (owned, weight) in owned.into_iter().zip([1, 2, 4, 0, 1]) {
            assert!(owned.abs_diff(40_000 * weight / 8) <= 400 * weight.min(1), "{owned} with {weight} of 8");
        }
        assert_eq!(stripes().next().and_then(|stripe| stripe.owner(&members[3..4]).copied()), None);
    }

    #[test]
    fn who_goes_leaves_its_stripes_to_the_next_and_changes_no_other() {
        let members: Vec<_> = (1..9).map(|id| member(id, 1 + (id % 3) as u32)).collect();
        let left: Vec<_> = members.iter().copied().filter(|member| member.id != 3).collect();
        for stripe in stripes() {
            let (before, order) = (stripe.owner(&members).expect("one"), stripe.order(&members));
            let next = if before.id == 3 { order[1] } else { before };
            assert_eq!(stripe.owner(&left), Some(next));
            assert_eq!((order[0], order.len()), (before, 8));
        }
    }

    /// Object, index; the distances of the three members; their order.
    const VECTORS: [(u128, u32, [u64; 3], [u128; 3]); 3] = [
        (0, 0, [256_007_520, 17_012_923_750, 2_008_308_867], [1, u128::MAX, 2]),
        (
            0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
            0,
            [3_760_005_919, 4_368_429_824, 28_133_403_709],
            [2, 1, u128::MAX],
        ),
        (u128::MAX, 4_095, [1_044_005_061, 10_352_212_278, 3_587_290_693], [u128::MAX, 1, 2]),
    ];
}
