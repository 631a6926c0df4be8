//! A run in a few figures: means over repetitions with their intervals, the cold epoch apart, what limits it.
//!
//! Invariant: an interval is given only where there is more than one repetition.

use report::{Epoch, Mean, Report, Summary, Verdict};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{ALWAYS, Job, Steady};
use crate::bound::Bound;

/// The target where nothing moves.
const NULL: &str = "null:";

/// A mean with the 95 % interval of Student's t.
pub fn mean(values: &[f64]) -> Mean {
    let count = values.len();
    let mean = values.iter().sum::<f64>() / count.max(1) as f64;
    let free = count as f64 - 1.0;
    let spread = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / free;
    let half = StudentsT::new(0.0, 1.0, free)
        .ok()
        .filter(|_| count > 1)
        .map(|student| student.inverse_cdf(0.975) * (spread / count as f64).sqrt());
    Mean { mean, low: half.map(|half| mean - half), high: half.map(|half| mean + half), count: count as u64 }
}

/// The figures of a report's epochs.
pub fn summary(report: &Report, job: &Job, bound: Option<&Bound>, steady: &Steady) -> Summary {
    let epochs = &report.epochs;
    // Epochs of one repetition depend on each other: each repetition counts once.
    let by_repetition = |wanted: fn(&Epoch) -> bool, of: fn(&Epoch) -> f64| -> Option<Mean> {
        let means: Vec<f64> = (1..=job.repetitions)
            .filter_map(|repetition| {
                let own: Vec<f64> =
                    epochs.iter().filter(|epoch| epoch.repetition == repetition && wanted(epoch)).map(of).collect();
                (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64)
            })
            .collect();
        (!means.is_empty()).then(|| mean(&means))
    };
    let min = epochs.iter().map(|epoch| epoch.au_percent).fold(f64::INFINITY, f64::min);
    let (verdict, reason) = match report.failed().first() {
        Some(failed) => (Verdict::Invalid, (*failed).to_owned()),
        None => steady.verdict(job, epochs),
    };
    let moved = report.target != NULL || !report.settings["shape_disk"].is_null();
    let (verdict, reason) = match verdict {
        Verdict::Invalid => (verdict, reason),
        _ if moved => (verdict, reason),
        _ => {
            (Verdict::Ceiling, "`null:` moves no byte: this is what the loop itself reaches on this machine".to_owned())
        }
    };
    let is_valid = verdict != Verdict::Invalid;
    Summary {
        cold_au_percent: by_repetition(|epoch| epoch.cold, |epoch| epoch.au_percent).filter(|_| is_valid),
        warm_au_percent: by_repetition(|epoch| !epoch.cold, |epoch| epoch.au_percent).filter(|_| is_valid),
        min_au_percent: if min.is_finite() { min } else { 0.0 },
        samples_per_second: by_repetition(|epoch| !epoch.cold, |epoch| epoch.samples_per_second)
            .or_else(|| by_repetition(|_| true, |epoch| epoch.samples_per_second))
            .unwrap_or_default(),
        pass_au_percent: job.workload.read.pass_au_percent,
        passed: verdict == Verdict::Passed,
        verdict: Some(verdict),
        reason: Some(reason),
        limited_by: if is_valid { limit(epochs, bound) } else { "unknown".into() },
    }
}

/// Nothing but the accelerators limits a loop that keeps them so busy.
const ENOUGH_PERCENT: f64 = 98.0;

/// What limits the worst epoch.
pub fn limit(epochs: &[Epoch], bound: Option<&Bound>) -> String {
    let worst = epochs.iter().min_by(|left, right| left.au_percent.total_cmp(&right.au_percent));
    let Some(worst) = worst else { return "unknown".into() };
    if worst.au_percent >= ENOUGH_PERCENT {
        return "accelerator".into();
    }
    if worst.au_percent >= worst.ceiling_percent - 1.0 {
        return "cpu".into();
    }
    // The probe got enough of the target for this job.
    let is_enough = bound.is_some_and(|bound| bound.limited_by == "accelerator" && bound.au_percent >= ENOUGH_PERCENT);
    // Near to the bound it is the bound that tells; far from it, what was waited for.
    let near = |bound: &&Bound| bound.limited_by != "accelerator" && worst.au_percent > 0.9 * bound.au_percent;
    if let Some(bound) = bound.filter(near) {
        return bound.limited_by.clone();
    }
    let waits = worst.wait_seconds_by_cause.iter().filter(|(name, _)| !ALWAYS.contains(&name.as_str()));
    let most = waits.max_by(|left, right| left.1.total_cmp(right.1));
    match most.map(|(name, _)| name.as_str()) {
        Some("store" | "disk") if is_enough => "unknown",
        Some("store" | "disk") => "store bandwidth",
        Some("requests") => "latency",
        Some("cpu") => "cpu",
        Some("loader") => "loader",
        _ => "unknown",
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_students_t() {
        let found = mean(&[90.0, 92.0, 94.0]);
        // 4.303 is the 97.5 % point of t with 2 degrees of freedom; the standard error is 2 / sqrt(3).
        assert!((found.mean - 92.0).abs() < 1e-9);
        assert!((found.high.unwrap() - 92.0 - 4.3027 * 2.0 / 3.0_f64.sqrt()).abs() < 1e-3, "{found:?}");
        assert!((found.low.unwrap() + found.high.unwrap() - 184.0).abs() < 1e-9);
        assert_eq!((mean(&[90.0]).low, mean(&[90.0]).count), (None, 1));
    }

    #[test]
    fn the_bound_tells_only_near_to_it() {
        let epoch = |au_percent, cause: &str| Epoch {
            au_percent,
            ceiling_percent: 99.9,
            wait_seconds_by_cause: [(cause.to_owned(), 5.0), ("barrier".to_owned(), 9.0)].into(),
            ..Epoch::default()
        };
        let bound = Bound { au_percent: 60.0, limited_by: "store requests".into(), by_rate: Vec::new() };
        assert_eq!(limit(&[epoch(58.0, "disk")], Some(&bound)), "store requests");
        assert_eq!(limit(&[epoch(30.0, "disk")], Some(&bound)), "store bandwidth");
        assert_eq!(limit(&[epoch(99.0, "disk")], None), "accelerator");
        let enough = Bound { au_percent: 100.0, limited_by: "accelerator".into(), by_rate: Vec::new() };
        assert_eq!(limit(&[epoch(60.0, "disk")], Some(&enough)), "unknown", "the probe got enough of the target");
        assert_eq!(limit(&[epoch(30.0, "cpu"), epoch(99.0, "disk")], None), "cpu");
    }
}
