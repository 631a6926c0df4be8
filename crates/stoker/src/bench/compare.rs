//! `stoker bench compare`: reports over each other, or one as a page. The arithmetic is `report::compare`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::report::compare::{Better, Comparison, Entry, Ratio, Row, compare};
use ::report::{Mean, Report};

use crate::chart::{Chart, Column, Style, Table};
use crate::{place, print, report, show};

/// Cells of a line; more reports than fit run over it.
const WIDTH: usize = 120;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Files that --save wrote; the others are compared with the first, and one alone is shown as it is
    #[arg(required = true, value_name = "REPORT.json")]
    reports: Vec<PathBuf>,
    /// Write means, intervals, ratios and warnings as JSON
    #[arg(long, value_name = "FILE.json")]
    save: Option<PathBuf>,
    /// Write a page with charts, complete in one file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write every epoch, cell, point and second as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (save, report, csv) = (args.save.as_deref(), args.report.as_deref(), args.csv.as_deref());
    let outputs = [(save, place::JSON), (report, place::PAGE), (csv, place::TABLE)];
    place::can_be_written(&outputs, args.reports.iter().map(PathBuf::as_path))?;
    let reports =
        args.reports.iter().map(|path| Report::open(path).map_err(super::named)).collect::<block::Result<Vec<_>>>()?;
    let names = names(&args.reports);
    let comparison = compare(&reports);
    let terminal = std::io::stdout().is_terminal();
    let style = Style { colour: place::colour(terminal), unicode: place::unicode(), width: WIDTH };
    print::out(format_args!("{}", chart(&comparison, &reports, &names).text(&style)))?;
    for warning in &comparison.warnings {
        note!("warning: {warning}");
    }
    if let Some(path) = &args.save {
        let document = serde_json::json!({"schema": 1, "reports": names, "comparison": comparison});
        report::replace(path, &format!("{document:#}\n"))?;
    }
    if let Some(path) = &args.report {
        match &reports[..] {
            [_] => report::write(&reports, path)?,
            _ => report::write_named(&reports, &names, path)?,
        }
        if !report::has_charts() {
            note!("note: {}", report::PLAIN);
        }
    }
    if let Some(path) = &args.csv {
        match &reports[..] {
            [_] => report::csv(&reports, path)?,
            _ => report::csv_named(&reports, &names, path)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Names of files without ending, with as many folders before them as tell them apart.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let parts = |path: &Path| -> Vec<String> {
        let path = path.with_extension("");
        path.components().rev().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
    };
    let parts: Vec<Vec<String>> = paths.iter().map(|path| parts(path)).collect();
    let longest = parts.iter().map(Vec::len).max().unwrap_or(1);
    let named = |depth: usize| -> Vec<String> {
        let name =
            |parts: &Vec<String>| parts[..depth.min(parts.len())].iter().rev().cloned().collect::<Vec<_>>().join("/");
        parts.iter().map(name).collect()
    };
    let is_clear = |names: &Vec<String>| (1..names.len()).all(|index| !names[..index].contains(&names[index]));
    // The same file twice is numbered.
    let numbered = || named(1).iter().enumerate().map(|(index, name)| format!("{name} ({})", index + 1)).collect();
    (1..=longest).map(named).find(is_clear).unwrap_or_else(numbered)
}

fn chart(comparison: &Comparison, reports: &[Report], names: &[String]) -> Chart {
    let title = match names {
        [only] => only.clone(),
        [first, ..] => format!("{} reports against {first}", names.len()),
        [] => String::new(),
    };
    let each = reports.iter().zip(names).map(|(report, name)| {
        let what = [report.job(), report.accelerator.clone()].into_iter().flatten();
        let what: String = what.map(|what| format!("{what} ")).collect();
        format!("{name}: {} {} {what}on {}", report.kind.name(), report.command, report.target)
    });
    let mut columns = vec![Column::left("measure")];
    columns.extend(names.iter().map(Column::right));
    let repeated =
        comparison.rows.iter().flat_map(|row| row.entries.iter().flatten()).any(|entry| entry.mean.low.is_some());
    let note = if repeated {
        "± and brackets are intervals of 95 %. A star: the interval of the ratio leaves out 1."
    } else {
        "Nothing was repeated, so that no interval can be given."
    };
    Chart {
        title,
        subtitle: each.collect::<Vec<_>>().join("; "),
        table: Table { columns, rows: comparison.rows.iter().map(cells).collect() },
        note: if comparison.rows.is_empty() { "There is nothing to compare.".into() } else { note.into() },
        ..Chart::default()
    }
}

fn cells(row: &Row) -> Vec<String> {
    let better = if row.better == Better::Less { " (less is better)" } else { "" };
    let entries =
        row.entries.iter().map(|entry| entry.as_ref().map_or("-".to_owned(), |entry| entry_text(entry, row.unit)));
    std::iter::once(format!("{}{better}", row.measure)).chain(entries).collect()
}

/// `201 ± 3 samples/s  x1.98 [1.90, 2.06]*`
fn entry_text(entry: &Entry, unit: &str) -> String {
    let ratio = entry.ratio.as_ref().map(|ratio| format!("  {}", times(ratio)));
    format!("{}{}", with_interval(&entry.mean, unit), ratio.unwrap_or_default())
}

fn times(ratio: &Ratio) -> String {
    let interval = ratio.low.zip(ratio.high).map(|(low, high)| format!(" [{low:.2}, {high:.2}]"));
    let star = if ratio.is_clear() == Some(true) { "*" } else { "" };
    format!("x{:.2}{}{star}", ratio.ratio, interval.unwrap_or_default())
}

fn with_interval(mean: &Mean, unit: &str) -> String {
    let half = mean.high.map(|high| high - mean.mean);
    if unit == "B/s" {
        let rate = |rate: f64| format!("{}/s", show::bytes(rate.max(0.0) as u64));
        let half = half.map(|half| format!(" ± {}", rate(half)));
        return rate(mean.mean) + &half.unwrap_or_default();
    }
    let half = half.map(|half| format!(" ± {}", figure(half)));
    format!("{}{} {unit}", figure(mean.mean), half.unwrap_or_default())
}

/// Three figures that count, or all before the point.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_long_as_it_takes_to_tell_them_apart() {
        let of = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["a/x.json", "b/y.json"]), ["x", "y"]);
        assert_eq!(of(&["runs/a/x.json", "runs/b/x.json"]), ["a/x", "b/x"]);
        assert_eq!(of(&["x.json", "x.json"]), ["x (1)", "x (2)"]);
    }

    #[test]
    fn an_entry_is_shown_with_its_interval_and_a_clear_difference_with_a_star() {
        let mean = Mean { mean: 200.0, low: Some(197.0), high: Some(203.0), count: 3 };
        let ratio = Ratio { ratio: 1.98, low: Some(1.9), high: Some(2.06) };
        let entry = Entry { mean, ratio: Some(ratio) };
        assert_eq!(entry_text(&entry, "samples/s"), "200 ± 3.00 samples/s  x1.98 [1.90, 2.06]*");
        let rate = Mean { mean: 2e8, low: Some(1.97e8), high: Some(2.03e8), count: 3 };
        assert_eq!(with_interval(&rate, "B/s"), "200 MB/s ± 3.00 MB/s");
        let single = Mean { mean: 2.5e9, low: None, high: None, count: 1 };
        let entry = Entry { mean: single, ratio: Some(Ratio { ratio: 0.5, low: None, high: None }) };
        assert_eq!(entry_text(&entry, "B/s"), "2.50 GB/s  x0.50");
    }
}
