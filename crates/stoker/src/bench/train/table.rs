//! What was measured, for people: a table of epochs, bars against the bound, the waits in words.
//!
//! It computes nothing that isn't in the report. Invariant: every page says that it was measured.

use crate::chart::{Bar, Chart, Column, Mark, Style, Table, Tone};
use crate::{place, show};
use ::bench::train::Job;
use ::bench::train::checkpoint::Pass;
use report::{Epoch, Mean, Report, Verdict};
use std::fmt::Write;
use std::io::IsTerminal;
use workload::accelerator;

const WIDTH: usize = 110;

fn style() -> Style {
    Style { colour: place::colour(std::io::stdout().is_terminal()), unicode: place::unicode(), width: WIDTH }
}

/// What is shipped.
pub fn known() -> String {
    let mut text = String::from("workloads:\n");
    for name in workload::names() {
        let source = workload::shipped(name).map(|found| found.source).unwrap_or_default();
        let _ = writeln!(text, "  {name:18} {source}");
    }
    text.push_str("accelerators:\n");
    for name in accelerator::names() {
        let steps = accelerator::shipped(name).map(|found| found.steps.into_keys().collect::<Vec<_>>().join(", "));
        let _ = writeln!(text, "  {name:18} {}", steps.unwrap_or_default());
    }
    text
}

/// The result of a run or of a search.
pub fn text(report: &Report, job: &Job) -> String {
    let mut text = if report.points.is_empty() { epochs(report, job) } else { points(report, job) };
    if let Some(ceiling) = report.sections.get("ceiling") {
        let of = |name: &str| ceiling.get(name).and_then(serde_json::Value::as_f64);
        let memory = of("memory_percent").zip(of("memory_samples_per_second"));
        let memory = memory.map(|(percent, rate)| {
            let rate = show::count(rate.round() as u64);
            format!(", {percent:.1} % with verified bytes from memory ({rate} samples/s)")
        });
        let null = of("null_percent").unwrap_or_default();
        let _ = writeln!(text, "  ceiling of this machine: {null:.2} % without bytes{}", memory.unwrap_or_default());
    }
    text += &rules(report);
    for failed in report.failed() {
        let _ = writeln!(text, "  failed check: {failed}");
    }
    text + &notes(report)
}

/// The rules of MLPerf Storage, a line each.
fn rules(report: &Report) -> String {
    let Some(section) = report.sections.get("closed") else { return String::new() };
    let word = |rule: &serde_json::Value, name: &str| rule[name].as_str().unwrap_or_default().to_owned();
    let rules: Vec<_> = section["rules"].as_array().into_iter().flatten().collect();
    let count = |judgement: &str| rules.iter().filter(|rule| rule["judgement"] == judgement).count();
    let counts = ["broken", "kept", "not judgeable"].map(|name| format!("{} {name}", count(name))).join(", ");
    let mut text = format!("  closed division of {}, rule by rule: {counts}\n", word(section, "document"));
    for rule in rules {
        let [number, judgement, what, figures] =
            ["number", "judgement", "rule", "figures"].map(|name| word(rule, name));
        let _ = writeln!(text, "    {number:11} {judgement:13} {what}: {figures}");
    }
    text
}

fn subtitle(report: &Report, job: &Job) -> String {
    let kind = match (job.together, job.accelerators) {
        (true, 1) => "accelerator",
        (true, _) => "accelerators that step together",
        (false, 1) => "process",
        (false, _) => "processes, each by itself",
    };
    let accelerator = report.accelerator.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
    format!(
        "measured: {} {kind}, {accelerator}batch {}, step {:.4} s, {}, {} ahead, {}",
        job.accelerators,
        job.workload.read.batch,
        job.step_seconds,
        show::count_of(job.workload.read.threads, "stream"),
        show::count_of(job.workload.read.prefetch_batches, "batch"),
        report.target
    )
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.1}"))
}

fn epochs(report: &Report, job: &Job) -> String {
    let names = [
        "AU %",
        "DLIO's AU %",
        "bound %",
        "share of bound %",
        "samples/s",
        "MB/s",
        "step p50 ms",
        "p99 ms",
        "max ms",
        "verified",
    ];
    let columns = std::iter::once(Column::left("epoch")).chain(names.map(Column::right)).collect();
    let invalid = report.invalid();
    let row = |epoch: &Epoch| {
        let percent = |value: f64| if invalid.is_some() { "-".into() } else { format!("{value:.2}") };
        let ms =
            |name: &str| epoch.step_seconds.get(name).map_or_else(|| "-".into(), |value| format!("{:.1}", 1e3 * value));
        let bytes = |name: &str| epoch.bytes.get(name).copied().unwrap_or(0);
        let heat = if epoch.cold { "cold" } else { "warm" };
        vec![
            format!("{}.{} {heat}", epoch.repetition, epoch.epoch),
            percent(epoch.au_percent),
            percent(epoch.au_dlio_percent),
            optional(epoch.bound_percent),
            optional(epoch.share_of_bound_percent),
            show::count(epoch.samples_per_second.round() as u64),
            format!("{:.1}", epoch.bytes_per_second / 1e6),
            ms("p50"),
            ms("p99"),
            ms("max"),
            if bytes("asked") == 0 || report.target == "null:" {
                "-".into()
            } else {
                format!("{:.0} %", 100.0 * bytes("verified") as f64 / bytes("asked") as f64)
            },
        ]
    };
    let shown = if invalid.is_none() { &report.epochs[..] } else { &[] };
    let bars = shown.iter().map(|epoch| Bar {
        label: format!("{}.{}", epoch.repetition, epoch.epoch),
        value: epoch.au_percent,
        text: format!("{:.1} %", epoch.au_percent),
        tone: if epoch.cold { Tone::Plain } else { Tone::Accent },
    });
    let pass = job.workload.read.pass_au_percent;
    let chart = Chart {
        title: format!("{}: accelerator utilisation{}", report.job().unwrap_or_default(), unread(report)),
        subtitle: subtitle(report, job),
        table: Table { columns, rows: report.epochs.iter().map(row).collect() },
        unit: "AU".into(),
        bars: bars.collect(),
        mark: Some(Mark { label: format!("{pass} % passes"), value: pass }),
        note: waits(report),
    };
    let text = format!("\n{}", chart.text(&style()));
    text + &verdict(report) + &processes(report) + &tiers(report)
}

/// What a title says of a target that has nothing to read.
fn unread(report: &Report) -> &'static str {
    let is_ceiling = report.target == "null:" && report.settings["shape_disk"].is_null();
    if is_ceiling { ", with nothing to read" } else { "" }
}

/// Whether accelerators were busy enough, in one line.
fn verdict(report: &Report) -> String {
    let Some(summary) = &report.summary else { return String::new() };
    if let Some(reason) = report.invalid() {
        return format!("\n  invalid, neither passed nor failed: {reason}\n");
    }
    if summary.verdict == Some(Verdict::Ceiling) {
        let least = summary.min_au_percent;
        return format!(
            "\n  neither passed nor failed, but the ceiling of this machine: {least:.2} % with nothing to read\n"
        );
    }
    let verdict = if summary.passed { "passed" } else { "not passed" };
    let cold = summary.cold_au_percent.map(|mean| format!(", cold {}", interval(&mean))).unwrap_or_default();
    let warm = summary.warm_au_percent.map(|mean| format!(", warm {}", interval(&mean))).unwrap_or_default();
    format!(
        "\n  {verdict}: least {:.2} % of {} %{cold}{warm}; limited by: {}\n",
        summary.min_au_percent, summary.pass_au_percent, summary.limited_by
    )
}

fn interval(mean: &Mean) -> String {
    match (mean.low, mean.high) {
        (Some(low), Some(high)) => format!("{:.2} % (95 %: {low:.2} to {high:.2}, {} runs)", mean.mean, mean.count),
        _ => format!("{:.2} %", mean.mean),
    }
}

/// Images per second of each process, and their sum, for each epoch.
fn processes(report: &Report) -> String {
    let mut text = String::new();
    for epoch in report.epochs.iter().filter(|epoch| !epoch.processes.is_empty()) {
        let rates = epoch.processes.iter().map(|process| process.samples_per_second);
        let (least, most) =
            rates.clone().fold((f64::INFINITY, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
        let _ = writeln!(
            text,
            "  epoch {}.{}: {} processes, {least:.1} to {most:.1} samples/s each, {:.1} together",
            epoch.repetition,
            epoch.epoch,
            epoch.processes.len(),
            rates.sum::<f64>()
        );
    }
    text
}

/// Where the bytes of each epoch came from, on each machine whose target tells.
fn tiers(report: &Report) -> String {
    let mut text = String::new();
    for epoch in &report.epochs {
        for node in &epoch.nodes {
            let by: Vec<String> =
                node.bytes_by_tier.iter().map(|(tier, bytes)| format!("{tier} {}", show::bytes(*bytes))).collect();
            let _ = writeln!(
                text,
                "  epoch {}.{}: hit rate {:.1} % on {}, of {} asked: {}",
                epoch.repetition,
                epoch.epoch,
                node.hit_percent,
                node.node,
                show::bytes(node.asked_bytes),
                by.join(", ")
            );
        }
        if let Some(all) = epoch.hit_percent.filter(|_| epoch.nodes.len() > 1) {
            let _ = writeln!(text, "  epoch {}.{}: hit rate {all:.1} % over all nodes", epoch.repetition, epoch.epoch);
        }
    }
    text
}

/// Where the time went, over all epochs.
fn waits(report: &Report) -> String {
    let mut sums = std::collections::BTreeMap::<&str, f64>::new();
    for (name, seconds) in report.epochs.iter().flat_map(|epoch| &epoch.wait_seconds_by_cause) {
        *sums.entry(name).or_default() += seconds;
    }
    let start = sums.remove("start").filter(|seconds| *seconds >= 0.0005);
    let start = start.map(|seconds| format!(" In steps that don't count: {seconds:.3} s.")).unwrap_or_default();
    let mut sums: Vec<(&str, f64)> = sums.into_iter().filter(|(_, seconds)| *seconds >= 0.0005).collect();
    sums.sort_by(|left, right| right.1.total_cmp(&left.1));
    if sums.is_empty() {
        return format!("Accelerators waited for nothing in the steps that count.{start}");
    }
    let words: Vec<String> = sums.iter().map(|(name, seconds)| format!("{name} {seconds:.3} s")).collect();
    format!("Accelerators waited: {}.{start}", words.join(", "))
}

fn points(report: &Report, job: &Job) -> String {
    let columns = ["accelerators", "AU %", "bound %", "MB/s", "verified", "took s"].map(Column::right).to_vec();
    let rows = report.points.iter().map(|point| {
        vec![
            point.accelerators.to_string(),
            format!("{:.2}", point.au_percent),
            optional(point.bound_percent),
            format!("{:.1}", point.bytes_per_second / 1e6),
            point.verified_percent.map_or_else(|| "-".into(), |percent| format!("{percent:.0} %")),
            format!("{:.1}", point.seconds),
        ]
    });
    let pass = job.workload.read.pass_au_percent;
    let found = report.accelerators.map_or_else(
        || format!("not even one accelerator reaches {pass} %"),
        |found| {
            let reach = if found == 1 { "reaches" } else { "reach" };
            let least = if report.points.iter().any(|point| point.accelerators > found) { "" } else { "at least " };
            format!("{least}{} {reach} {pass} %", show::count_of(found, "accelerator"))
        },
    );
    let took: f64 = report.points.iter().map(|point| point.seconds).sum();
    let chart = Chart {
        title: format!("{}: {found}{}", report.job().unwrap_or_default(), unread(report)),
        subtitle: format!("measured, each line a run: {}", report.target),
        table: Table { columns, rows: rows.collect() },
        note: format!("{} runs took {took:.1} s.", report.points.len()),
        ..Chart::default()
    };
    format!("\n{}", chart.text(&style()))
}

/// Writes and reads of a checkpoint.
pub fn checkpoint(passes: &[Pass], report: &Report) -> String {
    let names = ["slowest s", "MB/s", "median s", "mean MB/s"];
    let columns =
        std::iter::once(Column::left("what")).chain(names.map(Column::right)).chain([Column::left("")]).collect();
    let row = |pass: &Pass| {
        vec![
            format!("{} {}", pass.what, pass.number),
            format!("{:.3}", pass.seconds),
            format!("{:.1}", pass.slowest_bytes_per_second / 1e6),
            format!("{:.3}", pass.p50_seconds),
            format!("{:.1}", pass.mean_bytes_per_second / 1e6),
            pass.cold.map_or("", |cold| if cold { "cold" } else { "not cold: from memory, in part or whole" }).into(),
        ]
    };
    let size = passes.first().map_or(0, |pass| pass.bytes);
    let chart = Chart {
        title: format!("{}: checkpoint of {}", report.job().unwrap_or_default(), show::bytes(size)),
        subtitle: format!(
            "measured, until the slowest process was done; writes are durable; in the mean, had none waited for it: {}",
            report.target
        ),
        table: Table { columns, rows: passes.iter().map(row).collect() },
        ..Chart::default()
    };
    format!("\n{}{}{}", chart.text(&style()), rules(report), notes(report))
}

fn notes(report: &Report) -> String {
    let is_over = report.epochs.iter().any(|epoch| epoch.au_dlio_percent > 100.5) && report.invalid().is_none();
    let over = "DLIO's AU is above 100 %: it leaves out the first step, and not what was read ahead meanwhile";
    let notes = report.warnings.iter().map(String::as_str).chain(is_over.then_some(over));
    notes.map(|note| format!("  note: {note}\n")).collect()
}
