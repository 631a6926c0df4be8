//! A simulation for people: a table of points or epochs, and bars.
//!
//! It computes no figures. Invariant: the first word is that they are simulated.

use std::io::IsTerminal;

use ::bench::simulate::Question;
use ::bench::simulate::bound::accelerators_at;
use indicatif::{ProgressBar, ProgressStyle};
use report::{Epoch, Mean, Point, Report};

use crate::chart::{Bar, Chart, Column, Mark, Style, Table, Tone};
use crate::{place, show};

/// Progress by steps of all accelerators, with an estimate.
pub fn bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = "simulating {bar:28} {percent:>3}%  {human_pos} of {human_len} steps  {eta} left";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

pub fn print(report: &Report, question: &Question) -> anyhow::Result<()> {
    let terminal = std::io::stdout().is_terminal();
    let style = Style { colour: place::colour(terminal), unicode: place::unicode(), width: 100 };
    say!("\n{}", chart(report, question).text(&style))?;
    for warning in &report.warnings {
        note!("  note: {warning}");
    }
    for failed in report.failed() {
        note!("  failed check: {failed}");
    }
    Ok(())
}

fn chart(report: &Report, question: &Question) -> Chart {
    let pass = question.workload.read.pass_au_percent;
    let accelerator = report.accelerator.as_deref().unwrap_or_default();
    let (table, bars) = match &report.summary {
        Some(_) => (epochs(report), epoch_bars(report)),
        None => (points(&report.points), point_bars(&report.points, pass)),
    };
    let shape = format!(
        "{} of {} steps of {} s with {}, {} and {} ahead; {}.",
        show::count_of(question.epochs, "epoch"),
        question.steps,
        question.step_seconds,
        show::count_of(question.workload.read.batch, "sample"),
        show::count_of(question.workload.read.threads, "reader"),
        show::count_of(question.workload.read.prefetch_batches, "batch"),
        show::count_of(report.settings["seeds"].as_array().map_or(0, Vec::len) as u64, "repetition"),
    );
    Chart {
        title: format!("Simulated: {} on {accelerator}, from {}", question.workload.name, question.store.name),
        subtitle: shape,
        table,
        unit: "AU %".to_owned(),
        bars,
        mark: (pass > 0.0).then(|| Mark { label: format!("enough: {pass} %"), value: pass }),
        note: note(report, question),
    }
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.1}"))
}

/// Whether a point is of cold epochs, in words; nothing where all are of one kind.
fn kind(points: &[Point], point: &Point) -> &'static str {
    let cold = |point: &Point| point.at.get("cold").is_some_and(|cold| *cold > 0.0);
    match cold(point) {
        _ if points.iter().all(|other| cold(other) == cold(point)) => "",
        true => " cold",
        false => " warm",
    }
}

fn points(points: &[Point]) -> Table {
    let right = ["accelerators", "AU %", "interval", "bound %", "hits %", "Gbit/s"].map(Column::right);
    let row = |point: &Point| {
        let at = |name: &str| point.at.get(name).copied();
        let interval = match (at("au_percent_low"), at("au_percent_high")) {
            (Some(low), Some(high)) => format!("{low:.1} to {high:.1}"),
            _ => String::new(),
        };
        vec![
            format!("{}{}", show::count(point.accelerators), kind(points, point)),
            percent(Some(point.au_percent)),
            interval,
            percent(point.bound_percent),
            percent(at("hit_percent")),
            format!("{:.1}", point.bytes_per_second * 8e-9),
        ]
    };
    Table { columns: right.into(), rows: points.iter().map(row).collect() }
}

fn epochs(report: &Report) -> Table {
    let right = ["epoch", "AU %", "DLIO's AU %", "bound %", "hits %", "samples/s", "Gbit/s"].map(Column::right);
    // Cold epochs are the first, and so is their point.
    let hits = report.sections["simulation"]["hit_share_by_point_and_epoch"].as_array();
    let hits: Vec<f64> = hits
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_array)
        .flatten()
        .filter_map(|hit| hit.as_f64())
        .collect();
    let count = report.epochs.iter().map(|epoch| epoch.epoch).max().unwrap_or(0);
    let row = |number: u64| {
        let of: Vec<&Epoch> = report.epochs.iter().filter(|epoch| epoch.epoch == number).collect();
        let mean = |figure: &dyn Fn(&Epoch) -> f64| of.iter().map(|epoch| figure(epoch)).sum::<f64>() / of.len() as f64;
        let cold = if of.iter().all(|epoch| epoch.cold) { " cold" } else { "" };
        vec![
            format!("{number}{cold}"),
            percent(Some(mean(&|epoch| epoch.au_percent))),
            percent(Some(mean(&|epoch| epoch.au_dlio_percent))),
            percent(Some(mean(&|epoch| epoch.bound_percent.unwrap_or(0.0)))),
            percent(hits.get(number as usize - 1).map(|share| 100.0 * share)),
            show::count(mean(&|epoch| epoch.samples_per_second) as u64),
            format!("{:.1}", mean(&|epoch| epoch.bytes_per_second) * 8e-9),
        ]
    };
    Table { columns: right.into(), rows: (1..=count).map(row).collect() }
}

fn point_bars(points: &[Point], pass: f64) -> Vec<Bar> {
    let bar = |point: &Point| Bar {
        label: format!("{}{}", show::count(point.accelerators), kind(points, point)),
        value: point.au_percent,
        text: percent(Some(point.au_percent)),
        tone: if point.au_percent >= pass { Tone::Accent } else { Tone::Plain },
    };
    points.iter().map(bar).collect()
}

fn epoch_bars(report: &Report) -> Vec<Bar> {
    let Some(summary) = &report.summary else { return Vec::new() };
    let bar = |label: &str, mean: Option<Mean>, tone: Tone| {
        mean.map(|mean| Bar { label: label.to_owned(), value: mean.mean, text: interval(&mean), tone })
    };
    let both = [bar("cold", summary.cold_au_percent, Tone::Plain), bar("warm", summary.warm_au_percent, Tone::Accent)];
    both.into_iter().flatten().collect()
}

fn interval(mean: &Mean) -> String {
    match (mean.low, mean.high) {
        (Some(low), Some(high)) => format!("{:.1} ({low:.1} to {high:.1})", mean.mean),
        _ => format!("{:.1}", mean.mean),
    }
}

fn note(report: &Report, question: &Question) -> String {
    let limit = report.summary.as_ref().map(|summary| format!("Limited by: {}. ", summary.limited_by));
    let mut kinds: Vec<&str> = report.points.iter().map(|point| kind(&report.points, point)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let reach: String = kinds.into_iter().map(|kind| reach(report, question, kind)).collect();
    format!(
        "{}{reach}Time did not pass and no byte was read: docs/simulation.md says what was simulated, and where it misfits.",
        limit.unwrap_or_default(),
    )
}

/// How far the store reaches by its bandwidth alone, and of the points of a kind, as far as the table tells.
fn reach(report: &Report, question: &Question, wanted: &str) -> String {
    let points: Vec<&Point> = report.points.iter().filter(|point| kind(&report.points, point) == wanted).collect();
    let hit = points.first().and_then(|point| point.at.get("hit_percent")).map_or(0.0, |hit| hit / 100.0);
    let full = accelerators_at(question, hit, 1.0);
    let full = full.map(|full| format!("Accelerators that fill the store's bandwidth{wanted}: {full:.0}. "));
    let pass = question.workload.read.pass_au_percent;
    let mut sorted = points.clone();
    sorted.sort_by_key(|point| point.accelerators);
    let most = sorted.iter().take_while(|point| point.au_percent >= pass).last();
    let most = most.map_or("none".to_owned(), |point| show::count(point.accelerators));
    let most = (points.len() > 1).then(|| format!("Of these the most that reach {pass} %{wanted}: {most}. "));
    format!("{}{}", full.unwrap_or_default(), most.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::super::machine::Machine;
    use super::super::{Args, ask, questions, report};
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    /// What is shown of a question.
    fn shown(typed: &str) -> super::Chart {
        let args = Typed::try_parse_from(["x"].into_iter().chain(typed.split_whitespace())).unwrap().args;
        let questions = questions(&args).unwrap();
        let answers = ask(&questions, &[1], 2, &|_| ()).unwrap();
        super::chart(&report(&args, &answers, &[1], Machine::look("", None)), &questions[0])
    }

    #[test]
    fn how_many_reach_the_mark_is_what_the_table_says() {
        let job = "--workload unet3d --accelerator v100 --accelerators 40..110:10 --store 300Gbit/s";
        for (more, does_any) in [("", true), (",stream=90MB/s", false), (" --overhead 300ms", false)] {
            let chart = shown(&format!("{job}{more}"));
            let reaching = chart.table.rows.iter().take_while(|row| row[1].parse::<f64>().unwrap() >= 90.0);
            let last = reaching.last().map_or("none", |row| row[0].as_str());
            assert!(chart.note.contains(&format!("reach 90 %: {last}. ")), "{}", chart.note);
            assert_eq!(last != "none", does_any, "{more}: {last}");
        }
    }

    #[test]
    fn cold_and_warm_epochs_have_lines_of_their_own() {
        let job = "--workload unet3d --accelerator v100 --accelerators 100,180 --store 300Gbit/s --hit-rate 0%,100%";
        let chart = shown(&format!("{job} --epochs 3"));
        let labels: Vec<&str> = chart.table.rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(labels, ["100 cold", "100 warm", "180 cold", "180 warm"]);
        assert!(chart.note.contains("reach 90 % cold: none. ") && chart.note.contains("reach 90 % warm: 180. "));
    }
}
