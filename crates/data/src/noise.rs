//! Chance from a seed: single choices, and noise by the gigabyte.
//!
//! It is not for secrets, and takes no entropy from the machine.
//! Invariant: the same seed and stream give the same numbers on every machine, for ever: data sets depend on it.

/// Numbers that the noise makes at once; the compiler turns them into vector instructions.
pub const LANES: usize = 16;

/// A sequence of choices (SplitMix64).
pub struct Chance(u64);

impl Chance {
    /// The choices of one thing among the many that share a seed.
    pub fn of(seed: u64, stream: u64) -> Chance {
        let mut start = Chance(seed);
        let mixed = start.draw() ^ stream;
        Chance(Chance(mixed).draw())
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to below `bound`, evenly.
    pub fn below(&mut self, bound: u64) -> u64 {
        let scaled = (u128::from(self.draw()) * u128::from(bound)) >> 64;
        u64::try_from(scaled).expect("a product shifted by 64 bits fits in 64")
    }

    /// A permutation, each as likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// A number from `low` to below `high`.
    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.below(1 << 24) as f32 / (1 << 24) as f32)
    }
}

/// Noise in bulk: one xorshift generator a lane.
pub struct Noise([u32; LANES]);

impl Noise {
    pub fn of(chance: &mut Chance) -> Noise {
        // Zero is the one state that a xorshift generator never leaves.
        Noise(std::array::from_fn(|_| (chance.draw() as u32) | 1))
    }

    #[inline]
    pub fn draw(&mut self) -> [u32; LANES] {
        for lane in &mut self.0 {
            *lane ^= *lane << 13;
            *lane ^= *lane >> 17;
            *lane ^= *lane << 5;
        }
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_those_published_for_splitmix64() {
        // The reference implementation (prng.di.unimi.it/splitmix64.c) with state 1234567.
        let mut chance = Chance(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| chance.draw()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let of = |stream| Chance::of(7, stream).draw();
        assert_ne!(of(1), of(2));
        assert_eq!(of(1), of(1));
    }

    #[test]
    fn choices_stay_within_their_bounds() {
        let mut chance = Chance::of(1, 1);
        assert!((0..1_000).all(|_| chance.below(7) < 7));
        assert!((0..1_000).all(|_| (-2.0..3.0).contains(&chance.between(-2.0, 3.0))));
    }
}
