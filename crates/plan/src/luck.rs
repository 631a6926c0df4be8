//! Where in its range each figure is taken: all at one place, or each drawn.
//!
//! It asks no clock and no generator. Invariants: within a draw a figure has one place, whoever uses it; the same draw is the
//! same everywhere.

/// How figures turn out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Luck {
    /// All at this place: 0 is the lower bound, 0.5 the likely value, 1 the higher bound.
    At(f64),
    /// Each at a place of its own, in this draw.
    Drawn(u64),
}

impl Luck {
    pub const LIKELY: Luck = Luck::At(0.5);

    /// The place of a figure, by what it is of.
    pub fn place(self, of: &[&str]) -> f64 {
        match self {
            Luck::At(place) => place,
            Luck::Drawn(draw) => drawn(draw, of),
        }
    }
}

/// A number from 0 to 1 for a draw and what it is of.
fn drawn(draw: u64, of: &[&str]) -> f64 {
    // FNV-1a, then a mix so that neighbouring draws differ in all bits.
    let bytes = of.iter().flat_map(|name| name.bytes().chain([0]));
    let mut hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64 ^ draw, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_fill_the_range_and_a_figure_has_one_place_in_each() {
        let places: Vec<f64> = (0..1000).map(|draw| Luck::Drawn(draw).place(&["node", "x", "network"])).collect();
        let mean = places.iter().sum::<f64>() / 1000.0;
        assert!((0.47..0.53).contains(&mean) && places.iter().all(|place| (0.0..1.0).contains(place)), "{mean}");
        assert_eq!(Luck::Drawn(7).place(&["a"]), Luck::Drawn(7).place(&["a"]));
        assert_ne!(Luck::Drawn(7).place(&["a"]), Luck::Drawn(7).place(&["b"]));
        assert_eq!(Luck::At(0.25).place(&["a"]), 0.25);
    }
}
