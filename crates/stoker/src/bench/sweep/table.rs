//! A sweep as text: for each phase a map of sizes by threads, then what the maps say together.
//!
//! Invariant: colour repeats what the figures say, so that nothing is lost without it.

use super::rate;
use crate::show;
use ::bench::sweep::regime::{Regimes, Saturation, Summary};
use ::bench::sweep::{Cell, Phase};
use report::compare;
use std::fmt::Write;

/// From little to much: shades of the 256-colour palette on which black can be read, dark ones with white.
const SHADES: [(u8, u8); 8] = [(236, 250), (17, 255), (18, 255), (25, 255), (31, 255), (37, 16), (78, 16), (227, 16)];

const LABEL: usize = 9;
const COLUMN: usize = 11;
/// Of two latencies, or of a mean with its interval.
const WIDE_COLUMN: usize = 14;

pub fn text(cells: &[Cell], warnings: &[String], colour: bool) -> String {
    let mut out = String::new();
    for phase in Phase::ALL {
        let found: Vec<&Cell> = cells.iter().filter(|cell| cell.phase == phase).collect();
        if !found.is_empty() {
            let title = format!("{}, {}", phase.name(), unit(phase, &found));
            let column = if repetitions(&found) > 1 { WIDE_COLUMN } else { COLUMN };
            map(&mut out, &title, &found, (column, colour), |cells| throughput(phase, cells));
        }
        if matches!(phase, Phase::Read | Phase::Random) && !found.is_empty() {
            let title = format!("{} latency, p50 / p99 of a {}", phase.name(), of_what(phase));
            map(&mut out, &title, &found, (WIDE_COLUMN, false), |cells| (0.0, latencies(cells)));
        }
    }
    let summary = Summary::of(cells);
    regimes(&mut out, &summary.regimes);
    saturation(&mut out, &summary.saturation);
    for warning in warnings {
        let _ = writeln!(out, "  warning: {warning}");
    }
    out
}

fn of_what(phase: Phase) -> &'static str {
    if phase == Phase::Random { "block" } else { "file, from open to its last byte" }
}

fn repetitions(found: &[&Cell]) -> u64 {
    found.iter().map(|cell| cell.repetition).max().unwrap_or(1)
}

fn unit(phase: Phase, found: &[&Cell]) -> String {
    let means = match repetitions(found) {
        1 => String::new(),
        times => format!("; means of {times}, with intervals of 95 %"),
    };
    let what = match phase {
        Phase::Write | Phase::Read => "bytes a second".to_owned(),
        Phase::Stat | Phase::Delete => "files a second".to_owned(),
        Phase::Random => match found.iter().filter_map(|cell| cell.block_bytes).max() {
            Some(block) => format!("blocks of {} a second", size(block)),
            None => "blocks a second".to_owned(),
        },
    };
    if phase == Phase::Write {
        return what + &means;
    }
    let cold = found.iter().filter(|cell| cell.cold).count();
    match () {
        () if cold == found.len() => format!("{what}, cold{means}"),
        () if cold == 0 => format!("{what}, not cold{means}"),
        () => format!("{what}, {cold} of {} cold{means}", found.len()),
    }
}

type Figure = fn(&Cell) -> f64;

/// The mean of a cell's repetitions, and how far from it the true one may lie.
fn throughput(phase: Phase, cells: &[&Cell]) -> (f64, String) {
    let (of, text): (Figure, fn(f64) -> String) = match phase {
        Phase::Write | Phase::Read => (|cell| cell.bytes_per_second, rate),
        Phase::Stat | Phase::Delete => (|cell| cell.files_per_second, |files| show::count(files as u64)),
        Phase::Random => (|cell| cell.operations_per_second, |blocks| show::count(blocks as u64)),
    };
    let Some(found) = compare::mean(&cells.iter().map(|cell| of(cell)).collect::<Vec<_>>()) else {
        return (0.0, "-".into());
    };
    let doubt = if cells.iter().any(|cell| cell.is_short()) { "~" } else { "" };
    let off = found.high.filter(|_| found.mean > 0.0).map(|high| 100.0 * (high / found.mean - 1.0));
    (
        found.mean,
        format!("{doubt}{}", text(found.mean)) + &off.map(|percent| format!(" ±{percent:.0}%")).unwrap_or_default(),
    )
}

fn latencies(cells: &[&Cell]) -> String {
    let of = |name| {
        let found: Vec<f64> = cells.iter().filter_map(|cell| cell.latency_seconds.get(name).copied()).collect();
        compare::mean(&found).map_or_else(|| "-".into(), |found| time(found.mean))
    };
    format!("{}/{}", of("p50"), of("p99"))
}

/// Three characters or four, and a unit.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        below if below < 1e-3 => (seconds * 1e6, "us"),
        below if below < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// A size of a file, in powers of two where it is one of them.
pub fn size(bytes: u64) -> String {
    for (unit, scale) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{} {unit}", bytes / scale);
        }
    }
    show::bytes(bytes)
}

fn map(
    out: &mut String,
    title: &str,
    found: &[&Cell],
    (column, colour): (usize, bool),
    figure: impl Fn(&[&Cell]) -> (f64, String),
) {
    let distinct = |of: fn(&Cell) -> u64| {
        let mut values: Vec<u64> = found.iter().map(|cell| of(cell)).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let (sizes, threads) = (distinct(|cell| cell.file_bytes), distinct(|cell| cell.threads));
    let at = |bytes: u64, threads: u64| {
        let here = found.iter().filter(move |cell| cell.file_bytes == bytes && cell.threads == threads);
        here.copied().collect::<Vec<&Cell>>()
    };
    let all = sizes.iter().flat_map(|bytes| threads.iter().map(move |threads| (*bytes, *threads)));
    let most = all.map(|(bytes, threads)| figure(&at(bytes, threads)).0).fold(0.0, f64::max);
    let _ = writeln!(out, "\n  {title}");
    let _ = write!(out, "  {:>LABEL$}", "threads");
    for threads in &threads {
        let _ = write!(out, "{threads:>column$}");
    }
    out.push('\n');
    for bytes in sizes {
        let _ = write!(out, "  {:>LABEL$}", size(bytes));
        for threads in &threads {
            match &at(bytes, *threads)[..] {
                [] => {
                    let _ = write!(out, "{:>column$}", "-");
                }
                cells => {
                    let (value, text) = figure(cells);
                    out.push_str(&shade(&format!("{text:>column$}"), value, most, colour));
                }
            }
        }
        out.push('\n');
    }
}

/// The text on a ground that grows lighter by equal steps of the value.
fn shade(text: &str, value: f64, most: f64, colour: bool) -> String {
    if !colour || most <= 0.0 {
        return text.to_owned();
    }
    let step = ((value / most) * SHADES.len() as f64).ceil() as usize;
    let (ground, ink) = SHADES[step.clamp(1, SHADES.len()) - 1];
    format!("\x1b[48;5;{ground}m\x1b[38;5;{ink}m{text}\x1b[0m")
}

fn regimes(out: &mut String, found: &[Regimes]) {
    if found.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n  two regimes, from t(size) = latency + size / bandwidth at each number of threads");
    let _ = writeln!(
        out,
        "  {:>LABEL$}{:>8}{:>10}{:>14}{:>13}{:>13}{:>8}",
        "phase", "threads", "latency", "of a thread", "requests", "bandwidth", "r2"
    );
    for fit in found {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let _ = writeln!(
            out,
            "  {:>LABEL$}{:>8}{:>10}{:>14}{:>13}{:>13}{:>8}  {}",
            fit.phase,
            fit.threads,
            time(fit.latency_seconds),
            or_none(fit.thread_bytes_per_second.map(rate)),
            or_none(fit.files_per_second.map(|files| format!("{}/s", show::count(files as u64)))),
            or_none(fit.bytes_per_second.map(rate)),
            or_none(fit.r_squared.map(|share| format!("{share:.3}"))),
            verdict(fit),
        );
    }
}

fn verdict(fit: &Regimes) -> String {
    let bytes = |bytes: f64| show::bytes(bytes as u64);
    let interval = match (fit.knee_low_bytes, fit.knee_high_bytes) {
        (Some(low), Some(high)) => format!(" ({} to {})", bytes(low), bytes(high)),
        (Some(low), None) => format!(" ({} or more)", bytes(low)),
        (None, Some(high)) => format!(" ({} or less)", bytes(high)),
        (None, None) => String::new(),
    };
    match fit.knee_bytes {
        Some(at) => format!("knee at {}{interval}: requests limit below, bandwidth above", bytes(at)),
        None if fit.request_limited.is_empty() => "bandwidth limits all sizes here".into(),
        None => "requests limit all sizes here".into(),
    }
}

fn saturation(out: &mut String, found: &[Saturation]) {
    if found.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n  where more threads stop helping (95 % of the best)");
    for end in found {
        let then = match end {
            Saturation { reached: false, .. } => "and more may help".to_owned(),
            Saturation { last_bytes_per_second: last, best_bytes_per_second: best, .. } if *last < 0.9 * best => {
                format!("then it falls to {}", rate(*last))
            }
            _ => "then it stays".to_owned(),
        };
        let threads = if end.threads == 1 { "thread" } else { "threads" };
        let _ = writeln!(
            out,
            "  {:>LABEL$}{:>10}  {} {threads}: {}, {then}",
            end.phase,
            size(end.file_bytes),
            end.threads,
            rate(end.bytes_per_second),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_cells_are_shown_as_their_mean_with_an_interval() {
        let cell = |repetition: u64, rate: f64| -> Cell {
            serde_json::from_value(serde_json::json!({
                "repetition": repetition, "phase": "read", "file_bytes": 1 << 20, "threads": 4, "ranks": 1, "files": 8,
                "operations": 8, "bytes": 8 << 20, "verified_bytes": 0, "seconds": 1.0, "bytes_per_second": rate,
                "files_per_second": 8.0, "operations_per_second": 8.0, "cpu_seconds": 0.0, "cold": false,
                "first_done": {"seconds": 1.0, "bytes_per_second": rate, "files_per_second": 8.0, "operations_per_second": 8.0},
                "latency_seconds": {"p50": 0.01 * repetition as f64, "p99": 0.1}, "ended_by": "bytes",
                "histogram": {"nanoseconds": [], "counts": []}, "rank_seconds": [1.0],
            }))
            .expect("a cell")
        };
        // Of 100, 110 and 120 MB/s: 4.303 standard errors of 5.77 are 22.6 % of the mean.
        let shown = text(&[cell(1, 100e6), cell(2, 110e6), cell(3, 120e6)], &[], false);
        assert!(shown.contains("110 MB/s ±23%") && shown.contains("means of 3"), "{shown}");
        assert!(shown.contains("20ms/100ms"), "{shown}");
        let short = text(&[Cell { seconds: 0.05, ..cell(1, 100e6) }], &[], false);
        assert!(short.contains("~100 MB/s") && !short.contains("stop helping"), "{short}");
        let once = text(&[cell(1, 100e6)], &[], false);
        assert!(once.contains("100 MB/s") && !once.contains('±') && !once.contains("means"), "{once}");
    }

    #[test]
    fn figures_are_short_and_without_colour_there_is_none() {
        assert_eq!((time(0.000_012_34), time(0.001_2), time(0.25), time(12.0)).0, "12us");
        assert_eq!((time(0.001_2), time(0.25), time(12.0)), ("1.2ms".into(), "250ms".into(), "12s".into()));
        assert_eq!((size(256 << 10), size(1 << 30), size(1_000)), ("256 KiB".into(), "1 GiB".into(), "1.00 kB".into()));
        assert_eq!(shade("x", 1.0, 2.0, false), "x");
        assert!(shade("x", 2.0, 2.0, true).starts_with("\x1b[48;5;227m"));
        assert!(shade("x", 0.0, 2.0, true).starts_with("\x1b[48;5;236m"));
    }
}
