//! Which limit binds: requests for small files, bandwidth for large ones, and the size between them.
//!
//! The model is t(size) = latency + size / bandwidth, with t the mean time of a file at one number of threads. It is
//! fitted by least squares with weights 1 / t^2, so that a relative error counts the same at every size.
//! It knows nothing of how it was measured. Invariant: no figure is given that the points can't bear: a fit needs two
//! sizes, without latency or without bandwidth there is no knee, and none is claimed beyond the sizes that were measured.

use std::collections::BTreeMap;

use report::compare::quantile;
use serde::{Deserialize, Serialize};

use super::{Cell, Phase};

/// A throughput within this share of the best counts as the best: less is noise of a short cell.
const AS_GOOD_AS_BEST: f64 = 0.95;

/// Mean time of a file of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    pub file_bytes: u64,
    pub mean_seconds: f64,
}

/// The two regimes at one number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regimes {
    pub phase: String,
    pub threads: u64,
    pub ranks: u64,
    /// Of one file, before its bytes flow.
    pub latency_seconds: f64,
    /// Of one thread; `None` where larger files take no longer.
    pub thread_bytes_per_second: Option<f64>,
    /// Of all threads of all ranks: the limit for large files.
    pub bytes_per_second: Option<f64>,
    /// Of all threads of all ranks: the limit for small files; `None` where the fit finds no latency.
    pub files_per_second: Option<f64>,
    /// Latency times bandwidth: a file of this size spends half of its time on each. `None` beyond the sizes measured.
    pub knee_bytes: Option<f64>,
    /// Its interval of 95 %; each end `None` where it lies beyond the sizes measured, or nothing tells.
    #[serde(default)]
    pub knee_low_bytes: Option<f64>,
    #[serde(default)]
    pub knee_high_bytes: Option<f64>,
    /// Weighted share of the variance that the fit explains; `None` for two sizes, which any line meets.
    pub r_squared: Option<f64>,
    pub request_limited: Vec<u64>,
    pub bandwidth_limited: Vec<u64>,
}

/// Latency and seconds a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    latency: f64,
    slope: f64,
}

/// Fit the regimes of one phase at one number of threads; `None` with fewer than two sizes.
pub fn fit(phase: &str, threads: u64, ranks: u64, points: &[Timed]) -> Option<Regimes> {
    let line = least_squares(points)?;
    let all = (threads * ranks) as f64;
    let bandwidth = (line.slope > 0.0).then(|| 1.0 / line.slope);
    let knee = bandwidth.map(|bandwidth| line.latency * bandwidth).filter(|knee| *knee > 0.0);
    let times_off = half_interval(points, line).exp();
    let is_small = |size: u64| match (bandwidth, knee) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(_), Some(knee)) => (size as f64) < knee,
    };
    let mut sizes: Vec<u64> = points.iter().map(|point| point.file_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let measured = *sizes.first()? as f64..=*sizes.last()? as f64;
    let claimed = |bytes: f64| Some(bytes).filter(|bytes| measured.contains(bytes));
    let (request_limited, bandwidth_limited) = sizes.into_iter().partition(|size| is_small(*size));
    Some(Regimes {
        phase: phase.into(),
        threads,
        ranks,
        latency_seconds: line.latency,
        thread_bytes_per_second: bandwidth,
        bytes_per_second: bandwidth.map(|bandwidth| bandwidth * all),
        files_per_second: (line.latency > 0.0).then(|| all / line.latency),
        knee_bytes: knee.and_then(claimed),
        knee_low_bytes: knee.and_then(claimed).and_then(|knee| claimed(knee / times_off)),
        knee_high_bytes: knee.and_then(claimed).and_then(|knee| claimed(knee * times_off)),
        r_squared: (points.len() > 2).then(|| r_squared(points, line)),
        request_limited,
        bandwidth_limited,
    })
}

fn weight(point: &Timed) -> f64 {
    1.0 / (point.mean_seconds * point.mean_seconds).max(f64::MIN_POSITIVE)
}

/// With weights w: slope = (S Sxy - Sx Sy) / (S Sxx - Sx^2), written with differences from the weighted means, which
/// loses no digits. Neither latency nor slope is below zero; where the free line has one there, it is zero and the
/// other is fitted alone.
fn least_squares(points: &[Timed]) -> Option<Line> {
    let (mean_size, mean_seconds) = means(points)?;
    let sum = |term: &dyn Fn(&Timed) -> f64| points.iter().map(|point| weight(point) * term(point)).sum::<f64>();
    let spread = sum(&|point| (point.file_bytes as f64 - mean_size).powi(2));
    if spread <= 0.0 {
        return None;
    }
    let together = sum(&|point| (point.file_bytes as f64 - mean_size) * (point.mean_seconds - mean_seconds));
    let slope = together / spread;
    let latency = mean_seconds - slope * mean_size;
    if slope <= 0.0 {
        return Some(Line { latency: mean_seconds, slope: 0.0 });
    }
    if latency < 0.0 {
        let through_zero = sum(&|point| point.file_bytes as f64 * point.mean_seconds)
            / sum(&|point| (point.file_bytes as f64).powi(2));
        return Some(Line { latency: 0.0, slope: through_zero });
    }
    Some(Line { latency, slope })
}

/// Weighted means of sizes and times.
fn means(points: &[Timed]) -> Option<(f64, f64)> {
    let total: f64 = points.iter().map(weight).sum();
    let size: f64 = points.iter().map(|point| weight(point) * point.file_bytes as f64).sum();
    let seconds: f64 = points.iter().map(|point| weight(point) * point.mean_seconds).sum();
    (points.len() > 1 && total.is_finite()).then(|| (size / total, seconds / total))
}

/// Half of the 95 % interval of the knee's logarithm: the delta method on latency / slope, by Student's t with the
/// variance that the fit leaves. Infinite where nothing tells.
fn half_interval(points: &[Timed], line: Line) -> f64 {
    let Some((mean_size, _)) = means(points).filter(|_| points.len() > 2 && line.latency > 0.0 && line.slope > 0.0)
    else {
        return f64::INFINITY;
    };
    let freedom = points.len() as f64 - 2.0;
    let left = |point: &Timed| {
        weight(point) * (point.mean_seconds - line.latency - line.slope * point.file_bytes as f64).powi(2)
    };
    let variance = points.iter().map(left).sum::<f64>() / freedom;
    let spread: f64 = points.iter().map(|point| weight(point) * (point.file_bytes as f64 - mean_size).powi(2)).sum();
    // Of slope and latency, and of both together; each over its square.
    let slope = variance / spread;
    let latency = variance / points.iter().map(weight).sum::<f64>() + mean_size * mean_size * slope;
    let both = -mean_size * slope;
    let relative =
        latency / line.latency.powi(2) + slope / line.slope.powi(2) - 2.0 * both / (line.latency * line.slope);
    quantile(freedom) * relative.sqrt()
}

fn r_squared(points: &[Timed], line: Line) -> f64 {
    let (_, mean) = means(points).expect("there are points where there is a line");
    let fitted = |point: &Timed| line.latency + line.slope * point.file_bytes as f64;
    let left: f64 = points.iter().map(|point| weight(point) * (point.mean_seconds - fitted(point)).powi(2)).sum();
    let all: f64 = points.iter().map(|point| weight(point) * (point.mean_seconds - mean).powi(2)).sum();
    if all > 0.0 { 1.0 - left / all } else { 0.0 }
}

/// Where more threads stop helping, for one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    pub phase: String,
    pub file_bytes: u64,
    /// The fewest threads that reach 95 % of the best throughput.
    pub threads: u64,
    pub bytes_per_second: f64,
    pub best_bytes_per_second: f64,
    /// Of the most threads: below the best where more threads make it slower.
    pub last_bytes_per_second: f64,
    /// Whether more threads than these were tried; if not, more may still help.
    pub reached: bool,
}

/// What all cells say together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub regimes: Vec<Regimes>,
    pub saturation: Vec<Saturation>,
}

impl Summary {
    /// Of the phases that move whole files. Cells that were interrupted or over too soon say nothing.
    pub fn of(cells: &[Cell]) -> Summary {
        let mut summary = Summary::default();
        for phase in [Phase::Write, Phase::Read] {
            let mut by_threads = BTreeMap::<(u64, u64), Vec<Timed>>::new();
            let mut by_size = BTreeMap::<u64, Vec<(u64, f64)>>::new();
            let is_sound = |cell: &&Cell| cell.ended_by != "interrupt" && !cell.is_short();
            let whole = |cell: &&Cell| cell.phase == phase && is_sound(cell) && cell.mean_seconds() > 0.0;
            for cell in cells.iter().filter(whole) {
                let timed = Timed { file_bytes: cell.file_bytes, mean_seconds: cell.mean_seconds() };
                by_threads.entry((cell.threads, cell.ranks)).or_default().push(timed);
                by_size.entry(cell.file_bytes).or_default().push((cell.threads, cell.bytes_per_second));
            }
            let fits =
                by_threads.iter().filter_map(|((threads, ranks), points)| fit(phase.name(), *threads, *ranks, points));
            summary.regimes.extend(fits);
            let ends = by_size.iter().filter_map(|(size, rates)| saturation(phase.name(), *size, rates));
            summary.saturation.extend(ends);
        }
        summary
    }
}

/// From (threads, throughput) of one phase and size, the mean where they were repeated; `None` without any.
pub fn saturation(phase: &str, file_bytes: u64, rates: &[(u64, f64)]) -> Option<Saturation> {
    let mut by_threads = BTreeMap::<u64, Vec<f64>>::new();
    rates.iter().for_each(|(threads, rate)| by_threads.entry(*threads).or_default().push(*rate));
    let mean = |rates: &Vec<f64>| rates.iter().sum::<f64>() / rates.len() as f64;
    let rates: Vec<(u64, f64)> = by_threads.iter().map(|(threads, rates)| (*threads, mean(rates))).collect();
    let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let (threads, rate) = *rates.iter().find(|(_, rate)| *rate >= AS_GOOD_AS_BEST * best)?;
    let (most, last) = *rates.last()?;
    Some(Saturation {
        phase: phase.into(),
        file_bytes,
        threads,
        bytes_per_second: rate,
        best_bytes_per_second: best,
        last_bytes_per_second: last,
        reached: threads < most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Files of a store with this latency and bandwidth of a thread, each time off by its share.
    fn points(latency: f64, bandwidth: f64, off: &[f64]) -> Vec<Timed> {
        let sizes = (0..off.len()).map(|power| (256 << 10) * 4u64.pow(power as u32));
        let time = |(size, off): (u64, &f64)| Timed {
            file_bytes: size,
            mean_seconds: (latency + size as f64 / bandwidth) * (1.0 + off),
        };
        sizes.zip(off).map(time).collect()
    }

    #[test]
    fn the_fit_recovers_a_known_latency_and_bandwidth() {
        let found = fit("read", 8, 2, &points(0.02, 100e6, &[0.0; 5])).expect("five sizes");
        assert!((found.latency_seconds - 0.02).abs() < 1e-9, "{found:?}");
        assert!((found.thread_bytes_per_second.expect("it grows") / 100e6 - 1.0).abs() < 1e-9);
        assert!((found.bytes_per_second.expect("it grows") / 1.6e9 - 1.0).abs() < 1e-9);
        assert!((found.files_per_second.expect("latency") / 800.0 - 1.0).abs() < 1e-9);
        assert!((found.knee_bytes.expect("a knee") / 2e6 - 1.0).abs() < 1e-9);
        assert!(found.r_squared.expect("five sizes") > 0.999_999);
        assert_eq!(found.request_limited, [256 << 10, MIB]);
        assert_eq!(found.bandwidth_limited, [4 * MIB, 16 * MIB, 64 * MIB]);
    }

    #[test]
    fn times_that_are_off_by_a_twentieth_move_the_fit_by_about_as_much() {
        let found = fit("read", 1, 1, &points(0.02, 100e6, &[0.05, -0.05, 0.05, -0.05, 0.05])).expect("five sizes");
        assert!((found.latency_seconds / 0.02 - 1.0).abs() < 0.1, "{found:?}");
        assert!((found.thread_bytes_per_second.expect("it grows") / 100e6 - 1.0).abs() < 0.1, "{found:?}");
        assert!(found.r_squared.expect("five sizes") > 0.97, "{found:?}");
    }

    #[test]
    fn without_latency_or_without_growth_there_is_no_knee() {
        let flat = fit("read", 1, 1, &points(0.02, f64::INFINITY, &[0.0; 4])).expect("four sizes");
        assert_eq!((flat.knee_bytes, flat.bytes_per_second, flat.request_limited.len()), (None, None, 4));
        let falling = points(0.0, 100e6, &[0.0, 0.1, 0.2]);
        let steep = fit("read", 1, 1, &falling).expect("three sizes");
        assert_eq!((steep.latency_seconds, steep.files_per_second, steep.knee_bytes), (0.0, None, None));
        assert_eq!(steep.bandwidth_limited.len(), 3);
        assert_eq!(fit("read", 1, 1, &points(0.02, 100e6, &[0.0])), None);
        assert_eq!(fit("read", 1, 1, &points(0.02, 100e6, &[0.0; 2])).expect("two sizes").r_squared, None);
    }

    #[test]
    fn no_knee_is_claimed_beyond_the_sizes_that_were_measured() {
        // 256 KiB to 16 MiB: below lie 20 kB, above 200 MB.
        for (latency, requests) in [(0.000_2, 0), (2.0, 4)] {
            let found = fit("read", 1, 1, &points(latency, 100e6, &[0.01, -0.01, 0.01, -0.01])).expect("four sizes");
            assert_eq!(
                (found.knee_bytes, found.knee_low_bytes, found.knee_high_bytes),
                (None, None, None),
                "{found:?}"
            );
            assert_eq!(found.request_limited.len(), requests);
        }
    }

    #[test]
    fn the_interval_of_the_knee_holds_it_in_about_95_of_100_sweeps() {
        // Five sizes, three times each, every time off by a tenth (standard deviation): a fixed sequence of chance.
        let mut state = 7_u64;
        let mut chance = || {
            let uniform = |state: &mut u64| {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (*state >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..12).map(|_| uniform(&mut state)).sum::<f64>() - 6.0
        };
        let mut held = 0;
        for _ in 0..400 {
            let off: Vec<f64> = (0..15).map(|_| 0.1 * chance()).collect();
            let all: Vec<Timed> = off.chunks(5).flat_map(|off| points(0.02, 100e6, off)).collect();
            let found = fit("read", 1, 1, &all).expect("five sizes");
            let (low, high) = (found.knee_low_bytes.expect("within"), found.knee_high_bytes.expect("within"));
            assert!(low < high && found.knee_bytes.is_some_and(|knee| low < knee && knee < high), "{found:?}");
            held += u32::from(low <= 2e6 && 2e6 <= high);
        }
        assert!((368..=392).contains(&held), "{held} of 400");
    }

    #[test]
    fn two_sizes_have_a_knee_without_an_interval() {
        let found = fit("read", 1, 1, &points(0.02, 100e6, &[0.0; 5])[1..3]).expect("two sizes");
        assert!(found.knee_bytes.is_some(), "{found:?}");
        assert_eq!((found.knee_low_bytes, found.knee_high_bytes), (None, None));
    }

    #[test]
    fn saturation_is_the_fewest_threads_that_are_as_good_as_the_best() {
        let rates = [(4, 390.0), (1, 100.0), (2, 200.0), (8, 400.0), (16, 300.0)];
        let found = saturation("read", MIB, &rates).expect("rates");
        assert_eq!((found.threads, found.best_bytes_per_second, found.last_bytes_per_second), (4, 400.0, 300.0));
        assert!(found.reached);
        assert!(!saturation("read", MIB, &rates[1..3]).expect("rates").reached);
        assert_eq!(saturation("read", MIB, &[]), None);
        let repeated = [(1, 50.0), (1, 150.0), (2, 190.0), (2, 210.0)];
        let found = saturation("read", MIB, &repeated).expect("rates");
        assert_eq!((found.threads, found.best_bytes_per_second), (2, 200.0));
    }
}
