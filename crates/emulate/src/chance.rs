//! Chance that can be repeated: a hash of a seed, a stream and a number. There is no state, so the
//! outcome of the n-th draw does not depend on which connection happened to come first.
//!
//! Invariant: equal arguments give equal draws, on every machine and in every version.

/// Uniform in [0, 1): the draw with this number in this stream.
pub fn draw(seed: u64, stream: u64, number: u64) -> f64 {
    let mixed = mix(mix(mix(seed) ^ stream) ^ number);
    // The upper 53 bits fill the mantissa of a double exactly.
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// The finaliser of SplitMix64: every bit of the input reaches every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The quantile of the standard normal distribution (Acklam's approximation, relative error 1.2e-9).
pub fn normal_quantile(share: f64) -> f64 {
    const TAIL: f64 = 0.024_25;
    let share = share.clamp(1e-12, 1.0 - 1e-12);
    if share < TAIL {
        return tail((-2.0 * share.ln()).sqrt());
    }
    if share > 1.0 - TAIL {
        return -tail((-2.0 * (1.0 - share).ln()).sqrt());
    }
    let (q, r) = (share - 0.5, (share - 0.5) * (share - 0.5));
    let top = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    let bottom = [
        -54.476_098_798_224_06,
        161.585_836_858_040_9,
        -155.698_979_859_886_6,
        66.801_311_887_719_72,
        -13.280_681_552_885_72,
        1.0,
    ];
    q * polynomial(&top, r) / polynomial(&bottom, r)
}

fn tail(q: f64) -> f64 {
    let top = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_4,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    let bottom =
        [0.007_784_695_709_041_462, 0.322_467_129_070_039_8, 2.445_134_137_142_996, 3.754_408_661_907_416, 1.0];
    polynomial(&top, q) / polynomial(&bottom, q)
}

fn polynomial(coefficients: &[f64], at: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * at + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform_and_repeatable() {
        let mean = (0..10_000).map(|number| draw(7, 1, number)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert_eq!(draw(7, 1, 42), draw(7, 1, 42));
        assert_ne!(draw(7, 1, 42), draw(8, 1, 42));
        assert_ne!(draw(7, 1, 42), draw(7, 2, 42));
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (share, value) in
            [(0.5, 0.0), (0.975, 1.959_964), (0.99, 2.326_348), (0.01, -2.326_348), (0.999, 3.090_232)]
        {
            assert!((normal_quantile(share) - value).abs() < 1e-5, "{share}");
        }
    }
}
