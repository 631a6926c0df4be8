//! The generator that PyTorch shuffles with on a CPU: MT19937, the 32-bit Mersenne Twister.
//!
//! It is not for secrets, and not what data sets are made from. Invariant: the same seed gives the numbers that
//! `torch.Generator` gives.

const LENGTH: usize = 624;
const SHIFT: usize = 397;

/// From so many on PyTorch takes 64 bits for each place, for the remainder to stay even.
const LONG_FROM: u64 = u32::MAX as u64 / 20;

pub struct Mersenne {
    state: [u32; LENGTH],
    next: usize,
}

impl Mersenne {
    /// `torch.Generator().manual_seed(seed)`, which keeps the lower 32 bits.
    pub fn of(seed: u64) -> Mersenne {
        let mut state = [0; LENGTH];
        state[0] = (seed & 0xffff_ffff) as u32;
        for place in 1..LENGTH {
            let before = state[place - 1];
            state[place] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(place as u32);
        }
        Mersenne { state, next: LENGTH }
    }

    pub fn draw(&mut self) -> u32 {
        if self.next == LENGTH {
            self.turn();
        }
        let mut drawn = self.state[self.next];
        self.next += 1;
        drawn ^= drawn >> 11;
        drawn ^= (drawn << 7) & 0x9d2c_5680;
        drawn ^= (drawn << 15) & 0xefc6_0000;
        drawn ^ (drawn >> 18)
    }

    fn draw_long(&mut self) -> u64 {
        // PyTorch draws the upper half first.
        let upper = u64::from(self.draw());
        (upper << 32) | u64::from(self.draw())
    }

    /// `torch.randperm(count)` on a CPU.
    pub fn permutation(&mut self, count: u64) -> Vec<u32> {
        assert!(u32::try_from(count).is_ok(), "samples are numbered with 32 bits");
        if count >= LONG_FROM {
            return self.inside_out(count as u32);
        }
        let mut order: Vec<u32> = (0..count as u32).collect();
        for place in 0..count.saturating_sub(1) {
            order.swap(place as usize, (place + u64::from(self.draw()) % (count - place)) as usize);
        }
        order
    }

    /// How PyTorch shuffles since 2.7 what remainders of 32 bits would shuffle unevenly; before, it did so with those.
    fn inside_out(&mut self, count: u32) -> Vec<u32> {
        let mut order = vec![0; count as usize];
        for place in 0..count {
            let other = (self.draw_long() % (u64::from(place) + 1)) as usize;
            order[place as usize] = order[other];
            order[other] = place;
        }
        order
    }

    fn turn(&mut self) {
        for place in 0..LENGTH {
            let joined = (self.state[place] & 0x8000_0000) | (self.state[(place + 1) % LENGTH] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[place] = self.state[(place + SHIFT) % LENGTH] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut generator = Mersenne::of(5489);
        assert_eq!([generator.draw(), generator.draw(), generator.draw()], [3_499_211_612, 581_869_302, 3_890_346_734]);
    }

    #[test]
    fn permutations_are_those_of_torch() {
        // torch.randperm(n, generator=torch.Generator().manual_seed(seed)), PyTorch 1.13 on a CPU.
        assert_eq!(Mersenne::of(0).permutation(10), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
        for seed in [7, (1 << 40) + 7] {
            assert_eq!(Mersenne::of(seed).permutation(8), [7, 0, 3, 4, 1, 5, 2, 6]);
        }
        let many = Mersenne::of(125).permutation(100_000);
        assert_eq!(many[..5], [71_645, 89_085, 97_392, 43_036, 43_343]);
        assert_eq!(many[99_997..], [81_988, 80_614, 23_623]);
    }

    #[test]
    fn permutations_of_very_many_are_those_of_torch_since_2_7() {
        // Of 214,748,364 this gave what a program of its own after the source of 2.7 gives, for which no PyTorch was at hand:
        // 93,268,064, 63,068,233, 165,770,247 ... 143,705,087, 187,216,702. Of eight it is that program's too.
        assert_eq!(Mersenne::of(7).inside_out(8), [1, 2, 7, 3, 4, 5, 0, 6]);
    }
}
