//! Reports against the first of them: means, ratios of means and their intervals, from raw epochs and cells.
//!
//! It reads no file and prints nothing. Invariants: only what is of the same measure, phase and setting is compared; an
//! interval is given only where values were repeated, and [`Comparison::warnings`] says what makes the runs differ
//! besides their target.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::{Epoch, Mean, Point, Report};

#[cfg(test)]
mod tests;

/// Of a two-sided interval of 95 %.
const UPPER: f64 = 0.975;

/// Reports laid over each other. Each row has an entry a report, in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    pub rows: Vec<Row>,
    pub warnings: Vec<String>,
}

/// One measure of all reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `samples per second, warm`.
    pub measure: String,
    /// `samples/s`, `%`, `B/s`, `s`.
    pub unit: &'static str,
    pub better: Better,
    pub entries: Vec<Option<Entry>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    More,
    Less,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Entry {
    pub mean: Mean,
    /// Against the first report; the first has none, nor has what can't be divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
}

/// A ratio of two means, with its 95 % interval where both were repeated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

impl Ratio {
    /// Whether chance alone is an unlikely reason of the difference. `None` where it can't be said.
    pub fn is_clear(&self) -> Option<bool> {
        Some(self.low? > 1.0 || self.high? < 1.0)
    }
}

/// Compare each report with the first.
pub fn compare(reports: &[Report]) -> Comparison {
    let mut rows: Vec<Row> = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        for found in values(report) {
            let at = rows.iter().position(|row| row.measure == found.measure).unwrap_or_else(|| {
                rows.push(Row {
                    measure: found.measure,
                    unit: found.unit,
                    better: found.better,
                    entries: vec![None; reports.len()],
                });
                rows.len() - 1
            });
            rows[at].entries[index] = mean(&found.values).map(|mean| Entry { mean, ratio: None });
            let first = reports.first().map(values).unwrap_or_default();
            let first = first.into_iter().find(|first| first.measure == rows[at].measure).map(|first| first.values);
            if let (Some(entry), Some(first), true) = (&mut rows[at].entries[index], first, index > 0) {
                entry.ratio = ratio(&found.values, &first);
            }
        }
    }
    Comparison { rows, warnings: warnings(reports) }
}

/// The mean with the interval of Student's t, where that is finite. `None` of nothing, or of what isn't a number.
pub fn mean(values: &[f64]) -> Option<Mean> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let (mean, squared_error) = moments(values);
    if !mean.is_finite() {
        return None;
    }
    let half = squared_error.map(|squared| quantile(values.len() as f64 - 1.0) * squared.sqrt());
    let ends = half.map(|half| [mean - half, mean + half]).filter(|ends| ends.iter().all(|end| end.is_finite()));
    Some(Mean { mean, low: ends.map(|ends| ends[0]), high: ends.map(|ends| ends[1]), count: values.len() as u64 })
}

/// The ratio of two means. Its interval is Welch's t on the logarithm of the ratio (the delta method): variances may
/// differ, and a ratio and its inverse have inverse intervals.
pub fn ratio(values: &[f64], first: &[f64]) -> Option<Ratio> {
    let (value, base) = (mean(values)?.mean, mean(first)?.mean);
    if value <= 0.0 || base <= 0.0 {
        return None;
    }
    let ratio = Some(value / base).filter(|ratio| ratio.is_finite())?;
    let (Some(over), Some(under)) = (moments(values).1, moments(first).1) else {
        return Some(Ratio { ratio, low: None, high: None });
    };
    // Squared relative errors of the means: variances of their logarithms.
    let (over, under) = (over / (value * value), under / (base * base));
    let both = over + under;
    if both == 0.0 {
        return Some(Ratio { ratio, low: Some(ratio), high: Some(ratio) });
    }
    let freedom = |squared: f64, count: usize| squared * squared / (count as f64 - 1.0);
    let freedom = both * both / (freedom(over, values.len()) + freedom(under, first.len()));
    // Squares of what is very large or very small are no numbers any more.
    if !(freedom.is_finite() && freedom > 0.5) {
        return Some(Ratio { ratio, low: None, high: None });
    }
    let half = quantile(freedom) * both.sqrt();
    let ends = [ratio * (-half).exp(), ratio * half.exp()];
    let ends = Some(ends).filter(|ends| ends.iter().all(|end| end.is_finite()));
    Some(Ratio { ratio, low: ends.map(|ends| ends[0]), high: ends.map(|ends| ends[1]) })
}

/// Mean, and the squared standard error of it where there are two values at least.
fn moments(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| squares / (count - 1.0) / count))
}

/// Half of a two-sided interval of 95 %, in standard errors.
pub fn quantile(freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom).expect("values that differ have degrees of freedom above zero");
    student.inverse_cdf(UPPER)
}

/// The values of one measure in one report.
struct Values {
    measure: String,
    unit: &'static str,
    better: Better,
    values: Vec<f64>,
}

type OfEpoch = fn(&Epoch) -> f64;
type OfReport = fn(&Report) -> String;

/// Rows of epochs: by their place in a repetition, which was asked for. Whether one was cold is a result.
const EPOCHS: [(bool, &str); 2] = [(true, "first epoch"), (false, "later epochs")];

/// Settings that are told elsewhere, or follow from the target.
const PASSED_OVER: [&str; 12] = [
    "accelerators",
    "arguments",
    "changes",
    "folder",
    "question.accelerators",
    "question.store.name",
    "question.workload.name",
    "question.workload.source",
    "seed",
    "transfer",
    "workload.name",
    "workload.source",
];

fn values(report: &Report) -> Vec<Values> {
    let mut found = Vec::new();
    for (is_first, which) in EPOCHS {
        let of: [(&str, &'static str, OfEpoch); 3] = [
            ("samples per second", "samples/s", |epoch| epoch.samples_per_second),
            ("utilisation", "%", |epoch| epoch.au_percent),
            ("bytes per second", "B/s", |epoch| epoch.bytes_per_second),
        ];
        let is_valid = report.invalid().is_none();
        for (name, unit, value) in of.into_iter().filter(|(name, ..)| is_valid || *name != "utilisation") {
            let values = by_repetition(&report.epochs, is_first, value);
            if !values.is_empty() {
                found.push(Values { measure: format!("{name}, {which}"), unit, better: Better::More, values });
            }
        }
    }
    let points = report.points.iter().filter(|_| report.invalid().is_none());
    found.extend(grouped("%", Better::More, points.map(|point| (place(point, &report.points), point.au_percent))));
    let rates = report.cells.iter().filter_map(|cell| Some((cell_name(cell)?, cell["bytes_per_second"].as_f64()?)));
    found.extend(grouped("B/s", Better::More, rates.filter(|(_, rate)| *rate > 0.0)));
    // Phases that move no bytes are compared by files.
    let files = report.cells.iter().filter(|cell| cell["bytes_per_second"].as_f64().unwrap_or(0.0) <= 0.0);
    let files = files.filter_map(|cell| Some((cell_name(cell)?, cell["files_per_second"].as_f64()?)));
    found.extend(grouped("files/s", Better::More, files));
    let syncs = report.sections.get("sync").and_then(serde_json::Value::as_array).into_iter().flatten();
    let syncs =
        syncs.filter_map(|sync| Some((format!("sync of {}", sync["store"].as_str()?), sync["seconds"].as_f64()?)));
    found.extend(grouped("s", Better::Less, syncs));
    // Of `bench data`: what was made, copied and verified.
    let steps = report.sections.get("steps").and_then(serde_json::Value::as_array).into_iter().flatten();
    let steps = steps.filter_map(|step| Some((step["step"].as_str()?.to_owned(), step["bytes_per_second"].as_f64()?)));
    found.extend(grouped("B/s", Better::More, steps));
    found
}

/// A value for each repetition where there are several, since epochs of one run aren't independent; else one for each
/// epoch.
fn by_repetition(epochs: &[Epoch], is_first: bool, value: OfEpoch) -> Vec<f64> {
    let mut repetitions: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for epoch in epochs.iter().filter(|epoch| (epoch.epoch == 1) == is_first) {
        repetitions.entry(epoch.repetition).or_default().push(value(epoch));
    }
    if repetitions.len() == 1 {
        return repetitions.into_values().next().unwrap_or_default();
    }
    repetitions.into_values().map(|values| moments(&values).0).collect()
}

/// Values of the same name together, in the order of their first.
fn grouped(unit: &'static str, better: Better, named: impl Iterator<Item = (String, f64)>) -> Vec<Values> {
    let mut found: Vec<Values> = Vec::new();
    for (measure, value) in named {
        match found.iter_mut().find(|values| values.measure == measure) {
            Some(values) => values.values.push(value),
            None => found.push(Values { measure, unit, better, values: vec![value] }),
        }
    }
    found
}

/// `utilisation at 64 accelerators, warm`. What a point says beside that was found, or follows from settings of all points;
/// but where as many accelerators have several shares of hits in the same epochs, these are what was varied.
fn place(point: &Point, all: &[Point]) -> String {
    let hits = |point: &Point| point.at.get("hit_percent").map(|percent| percent.round());
    let is_cold = |point: &Point| point.at.get("cold").map(|cold| *cold > 0.0);
    let beside = || all.iter().filter(|other| other.accelerators == point.accelerators);
    let is_varied = beside().any(|other| is_cold(other) == is_cold(point) && hits(other) != hits(point));
    let has_both = beside().any(|other| is_cold(other) != is_cold(point));
    let epochs = is_cold(point).filter(|_| has_both).map(|cold| if cold { ", cold" } else { ", warm" });
    let hit = hits(point).filter(|_| is_varied).map(|hit| format!(", {hit} % hits"));
    let plural = if point.accelerators == 1 { "" } else { "s" };
    let (epochs, hit) = (epochs.unwrap_or_default(), hit.unwrap_or_default());
    format!("utilisation at {} accelerator{plural}{epochs}{hit}", point.accelerators)
}

/// `read, 1 MiB x 8 threads x 2 ranks`; `None` of a cell that says too little.
fn cell_name(cell: &serde_json::Value) -> Option<String> {
    let (phase, bytes, threads) = (cell["phase"].as_str()?, cell["file_bytes"].as_u64()?, cell["threads"].as_u64()?);
    let ranks = cell["ranks"].as_u64().filter(|ranks| *ranks > 1).map(|ranks| format!(" x {ranks} ranks"));
    Some(format!("{phase}, {} x {threads} threads{}", binary(bytes), ranks.unwrap_or_default()))
}

/// Sizes of files are powers of two, and named so.
fn binary(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or(format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// What is not the same in all reports, although the comparison takes it to be; and what each of them lacks.
fn warnings(reports: &[Report]) -> Vec<String> {
    let of: [(&str, OfReport); 14] = [
        ("command", |report| report.command.clone()),
        ("kind", |report| report.kind.name().to_owned()),
        ("workload", |report| report.workload.clone().unwrap_or_default()),
        ("accelerator", |report| report.accelerator.clone().unwrap_or_default()),
        ("number of accelerators", |report| report.accelerators.map(|count| count.to_string()).unwrap_or_default()),
        ("seed", |report| report.seed.to_string()),
        ("model of processor", |report| report.environment.processor.clone().unwrap_or_default()),
        ("number of processors", |report| report.environment.processors.to_string()),
        ("memory", |report| format!("{} GiB", report.environment.memory_bytes >> 30)),
        ("kernel", |report| report.environment.kernel.clone()),
        ("number of ranks", |report| report.environment.ranks.to_string()),
        ("version of stoker", |report| report.environment.version.clone()),
        ("commit of stoker", |report| report.environment.commit.clone().unwrap_or_default()),
        ("set of measures", |report| {
            values(report).iter().map(|values| values.measure.clone()).collect::<Vec<_>>().join("; ")
        }),
    ];
    let mut found = Vec::new();
    for (name, value) in of {
        let values: Vec<String> = reports.iter().map(value).collect();
        if values.iter().any(|value| *value != values[0]) {
            // Sets of measures are too long to be listed.
            let differs = if name.starts_with("set") { "some rows have gaps".to_owned() } else { said(&values) };
            found.push(format!("the {name} differs: {differs}"));
        }
    }
    found.extend(settings(reports));
    found.extend(coldness(reports));
    for (index, report) in reports.iter().enumerate() {
        if let Some(error) = report.error() {
            found.push(format!("report {} is of a run that failed: {error}", index + 1));
        } else if !report.finished {
            found.push(format!("report {} is of a run that was interrupted, and has no verdict", index + 1));
        }
        if let Some(reason) = report.invalid() {
            found.push(format!("report {} is of an invalid run, which did not pass: {reason}", index + 1));
        }
    }
    found.extend(own_warnings(reports));
    if reports.iter().any(|report| is_alone(&report.epochs)) {
        let what = "a report has one repetition: its intervals are of epochs, and say nothing of how runs differ";
        found.push(what.to_owned());
    }
    found
}

/// Settings of one command that differ: batch, threads, caches, blocks and whatever else was asked for.
fn settings(reports: &[Report]) -> Option<String> {
    if reports.iter().any(|report| report.command != reports[0].command) {
        return None;
    }
    let each: Vec<BTreeMap<String, String>> = reports.iter().map(|report| told(&report.settings)).collect();
    let names = each.iter().flat_map(BTreeMap::keys).filter(|name| !PASSED_OVER.contains(&name.as_str()));
    let names: BTreeSet<&String> = names.collect();
    let differing = names.into_iter().filter_map(|name| {
        let values: Vec<String> = each.iter().map(|one| one.get(name).cloned().unwrap_or_default()).collect();
        values.iter().any(|value| *value != values[0]).then(|| format!("{name} ({})", said(&values)))
    });
    let differing = differing.collect::<Vec<_>>().join("; ");
    (!differing.is_empty()).then(|| format!("settings differ: {differing}"))
}

/// Settings by dotted names.
fn told(settings: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let Value::Object(members) = settings else { return BTreeMap::new() };
    members
        .iter()
        .flat_map(|(name, value)| match value {
            Value::Object(_) => {
                told(value).into_iter().map(|(below, text)| (format!("{name}.{below}"), text)).collect()
            }
            value => vec![(name.clone(), text(value))],
        })
        .collect()
}

/// Rows in which one report found empty caches and another did not.
fn coldness(reports: &[Report]) -> Vec<String> {
    let mut rows: BTreeMap<String, Vec<BTreeSet<bool>>> = BTreeMap::new();
    for (index, report) in reports.iter().enumerate() {
        let epochs = report.epochs.iter().map(|epoch| {
            let (_, which) = EPOCHS[usize::from(epoch.epoch != 1)];
            (which.to_owned(), epoch.cold)
        });
        let cells = report.cells.iter().filter_map(|cell| Some((cell_name(cell)?, cell["cold"].as_bool()?)));
        for (name, is_cold) in epochs.chain(cells) {
            rows.entry(name).or_insert_with(|| vec![BTreeSet::new(); reports.len()])[index].insert(is_cold);
        }
    }
    let state = |found: &BTreeSet<bool>| match (found.contains(&true), found.contains(&false)) {
        (true, true) => "partly cold",
        (true, false) => "cold",
        _ => "not cold",
    };
    let differing = rows.iter().filter_map(|(name, found)| {
        let first = found.iter().find(|found| !found.is_empty())?;
        let differs = found.iter().any(|found| !found.is_empty() && found != first);
        let states = found.iter().map(|found| if found.is_empty() { "none" } else { state(found) });
        differs.then(|| format!("the coldness of \"{name}\" differs: {}", states.collect::<Vec<_>>().join(", ")))
    });
    differing.collect()
}

/// Warnings of the reports themselves, each once.
fn own_warnings(reports: &[Report]) -> Vec<String> {
    let mut found: Vec<(&str, Vec<String>)> = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        for warning in &report.warnings {
            match found.iter_mut().find(|(known, _)| known == warning) {
                Some((_, by)) => by.push((index + 1).to_string()),
                None => found.push((warning, vec![(index + 1).to_string()])),
            }
        }
    }
    let each = found.into_iter().map(|(warning, by)| match &by[..] {
        [only] => format!("report {only} says: {warning}"),
        several => format!("reports {} say: {warning}", several.join(", ")),
    });
    each.collect()
}

fn said(values: &[String]) -> String {
    let each = values.iter().map(|value| if value.is_empty() { "none" } else { value.as_str() });
    each.collect::<Vec<_>>().join(", ")
}

fn is_alone(epochs: &[Epoch]) -> bool {
    epochs.first().is_some_and(|first| epochs.iter().all(|epoch| epoch.repetition == first.repetition))
}
