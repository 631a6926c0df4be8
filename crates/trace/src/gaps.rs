//! Which gaps between reads are pauses: those of the longer kind, if there are two.
//!
//! Invariant: what can't be told apart is not divided.

/// Shorter gaps can't be told from what a file system and a scheduler take.
pub const PAUSE_SECONDS_MIN: f64 = 1e-3;

/// Fewer pauses are chance: a start, an end, a disturbance.
const PAUSES_MIN: usize = 3;

/// How many spreads apart short and long gaps must lie to be two kinds: halves of one kind are 1.3 apart.
const SPREADS_MIN: f64 = 2.0;

/// And how many times longer the long ones must be: a sleep of one length that ends on time or late is of one kind.
const TIMES_MIN: f64 = 2.0;

/// A kind of gap is rare if there are so many times more of it and the kind below it together.
const RARE: usize = 8;

/// Index of the first pause among sorted gaps; all of them, if they are of one kind and long.
pub fn split(gaps: &[f64]) -> Option<usize> {
    let long = |gaps: &[f64]| two_kinds(gaps).filter(|&at| gaps[at] >= PAUSE_SECONDS_MIN);
    let Some(mut from) = long(gaps) else {
        let middle = gaps.get(gaps.len() / 2)?;
        return (gaps.len() >= PAUSES_MIN && *middle >= PAUSE_SECONDS_MIN).then_some(0);
    };
    // What happens between epochs lasts longest, and is rare: then the pauses are the kind below it.
    while let Some(at) = long(&gaps[..from]).filter(|at| (gaps.len() - from) * RARE < gaps.len() - at) {
        from = at;
    }
    // On a busy machine short gaps during which others ran are a kind of their own: then the pauses are the kind above.
    let above = |from: usize| two_kinds(&gaps[from..]).map(|at| from + at);
    while let Some(at) = above(from).filter(|at| (gaps.len() - at) * RARE >= gaps.len() - from) {
        from = at;
    }
    Some(from)
}

/// Where sorted gaps divide into short and long, if they do.
///
/// Otsu's threshold over the logarithms, where each gap weighs as much as it lasts: a batch of hundreds has hundreds of
/// short gaps to one pause, and yet the pauses are what the time goes to.
fn two_kinds(gaps: &[f64]) -> Option<usize> {
    let points: Vec<(f64, f64)> = gaps.iter().map(|&gap| (gap.max(1e-6).ln(), gap.max(1e-6))).collect();
    let all = Sums::of(&points);
    let mut lower = Sums::default();
    let mut best: Option<(f64, usize)> = None;
    for at in 1..points.len().saturating_sub(PAUSES_MIN - 1) {
        lower.add(points[at - 1]);
        let upper = all.less(lower);
        let apart = lower.weight * upper.weight * (upper.mean() - lower.mean()).powi(2);
        if points[at].0 > points[at - 1].0 && best.is_none_or(|(most, _)| apart > most) {
            best = Some((apart, at));
        }
    }
    let (_, at) = best?;
    // Whether they are two kinds is a matter of how many there are, not of how long they last.
    let plain = |points: &[(f64, f64)]| Sums::of(&points.iter().map(|point| (point.0, 1.0)).collect::<Vec<_>>());
    let (short, long) = (plain(&points[..at]), plain(&points[at..]));
    let apart = long.mean() - short.mean();
    (apart >= TIMES_MIN.ln() && apart >= SPREADS_MIN * (short.spread() + long.spread())).then_some(at)
}

/// Weighted sums of logarithms.
#[derive(Clone, Copy, Default)]
struct Sums {
    weight: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn of(points: &[(f64, f64)]) -> Sums {
        points.iter().fold(Sums::default(), |mut sums, &point| {
            sums.add(point);
            sums
        })
    }

    fn add(&mut self, (value, weight): (f64, f64)) {
        self.weight += weight;
        self.sum += weight * value;
        self.squares += weight * value * value;
    }

    fn less(self, other: Sums) -> Sums {
        Sums { weight: self.weight - other.weight, sum: self.sum - other.sum, squares: self.squares - other.squares }
    }

    fn mean(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }

    fn spread(&self) -> f64 {
        if self.weight > 0.0 { (self.squares / self.weight - self.mean().powi(2)).max(0.0).sqrt() } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(gaps: &[f64]) -> Option<usize> {
        let mut gaps = gaps.to_vec();
        gaps.sort_by(f64::total_cmp);
        split(&gaps).map(|at| gaps.len() - at)
    }

    /// Gaps that spread around a middle by up to a factor.
    fn around(middle: f64, factor: f64, count: usize) -> Vec<f64> {
        (0..count).map(|place| middle * factor.powf(2.0 * (place as f64 + 0.5) / count as f64 - 1.0)).collect()
    }

    #[test]
    fn one_pause_to_hundreds_of_short_gaps_is_found() {
        assert_eq!(pauses(&[around(60e-6, 6.0, 25_600), around(40e-3, 1.2, 100)].concat()), Some(100));
        let disturbed = [around(80e-6, 3.0, 750), around(5e-3, 1.6, 40), around(22e-3, 1.1, 50)].concat();
        assert_eq!(pauses(&disturbed), Some(50));
        let epochs = [around(80e-6, 3.0, 4000), around(20e-3, 1.2, 100), around(1.0, 1.1, 4)].concat();
        assert_eq!(pauses(&epochs), Some(104));
        assert_eq!(pauses(&[around(10e-3, 1.5, 310), around(100e-3, 1.1, 10)].concat()), Some(10));
    }

    #[test]
    fn gaps_of_one_kind_are_no_batches() {
        assert_eq!(pauses(&around(60e-6, 6.0, 1000)), None);
        assert_eq!(pauses(&around(30e-3, 1.5, 1000)), Some(1000));
        assert_eq!(pauses(&[around(60e-6, 6.0, 1000), vec![1.0]].concat()), None);
        assert_eq!(pauses(&[]), None);
    }

    #[test]
    fn pauses_that_ended_late_are_of_the_same_kind() {
        let late = [around(60e-6, 6.0, 168), around(0.1502, 1.001, 20), around(0.155, 1.002, 3)].concat();
        assert_eq!(pauses(&late), Some(23));
    }
}
