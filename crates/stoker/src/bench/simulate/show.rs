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

fn points(points: &[Point]) -> Table {
    let right = ["accelerators", "AU %", "interval", "bound %", "hits %", "Gbit/s"].map(Column::right);
    let row = |point: &Point| {
        let at = |name: &str| point.at.get(name).copied();
        let interval = match (at("au_percent_low"), at("au_percent_high")) {
            (Some(low), Some(high)) => format!("{low:.1} to {high:.1}"),
            _ => String::new(),
        };
        vec![
            show::count(point.accelerators),
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
    let hits = &report.sections["simulation"]["hit_share_by_point_and_epoch"][0];
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
            percent(hits[number as usize - 1].as_f64().map(|share| 100.0 * share)),
            show::count(mean(&|epoch| epoch.samples_per_second) as u64),
            format!("{:.1}", mean(&|epoch| epoch.bytes_per_second) * 8e-9),
        ]
    };
    Table { columns: right.into(), rows: (1..=count).map(row).collect() }
}

fn point_bars(points: &[Point], pass: f64) -> Vec<Bar> {
    let bar = |point: &Point| Bar {
        label: show::count(point.accelerators),
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
    let pass = question.workload.read.pass_au_percent;
    let limit = report.summary.as_ref().map(|summary| format!("Limited by: {}. ", summary.limited_by));
    let hit = report.points.first().and_then(|point| point.at.get("hit_percent")).map_or(0.0, |hit| hit / 100.0);
    let reach =
        accelerators_at(question, hit, 1.0).zip(accelerators_at(question, hit, pass / 100.0)).map(|(knee, enough)| {
            format!("The store's bandwidth is full from {knee:.0} accelerators on and gives {pass} % to {enough:.0}. ")
        });
    format!(
        "{}{}Time did not pass and no byte was read: docs/simulation.md says what was simulated, and where it misfits.",
        limit.unwrap_or_default(),
        reach.unwrap_or_default()
    )
}
