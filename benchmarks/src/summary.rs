//! `summary.md`: tables and verdicts, from the record alone. Every target is judged by the same
//! lines, and what failed or was left out is named.

mod goals;
mod statistics;

use std::fmt::Write;

use crate::record::{Record, Sample};
use crate::workload::{Phase, Unit, Workload};
use statistics::{Spread, View};

pub const NATIVE: &str = "native";

/// What a cell is about, in the unit of its workload.
pub fn value(sample: &Sample) -> f64 {
    match sample.workload.unit() {
        Unit::PerSecond => sample.items as f64 / sample.seconds,
        Unit::MegabytesPerSecond => sample.bytes as f64 / 1e6 / sample.seconds,
        Unit::Seconds => sample.seconds / f64::from(sample.passes),
    }
}

/// A number with as many digits as it deserves.
pub fn figure(number: f64) -> String {
    match number {
        number if !number.is_finite() => "-".to_owned(),
        number if number < 1.0 => format!("{number:.3}"),
        number if number < 100.0 => format!("{number:.2}"),
        number => grouped(number.round() as u64),
    }
}

pub fn page(record: &Record) -> String {
    let view = View::new(record);
    let mut page = String::from("# Summary\n\n");
    introduction(&mut page, record);
    others(&mut page, &view);
    let title = "Goals (issues 2 and 3)";
    let _ = writeln!(page, "## {title}\n\n{}", goals::table(&view));
    section(&mut page, &view, &RESULTS, |view, cell| {
        // The value is of the same rounds as its ratio.
        let beside = view.against(cell, NATIVE, |own, _| value(own));
        let spread = beside.or_else(|| view.values(cell))?;
        let ratio = view.ratio(cell).map_or(String::new(), |ratio| format!(" ({:.2})", ratio.median));
        let Spread { median, least, most, .. } = spread;
        let of_rounds = view.of_rounds(&spread);
        Some(format!("{}{ratio} [{}-{}]{of_rounds}", figure(median), figure(least), figure(most)))
    });
    section(&mut page, &view, &CPU_RATIO, |view, cell| {
        view.cpu_ratio(cell).map(|ratio| format!("{:.2}{}", ratio.median, view.of_rounds(&ratio)))
    });
    section(&mut page, &view, &CPU_PER_GIGABYTE, |view, cell| {
        let part = |of: fn(&Sample) -> f64| view.median(cell, |sample| per_gigabyte(of(sample), sample));
        let daemon = part(|sample| sample.daemon_cpu_seconds)?;
        let reader = part(|sample| sample.reader_cpu_seconds)?;
        let server = part(|sample| sample.server_cpu_seconds)?;
        (reader.is_finite()).then(|| format!("{daemon:.2} + {reader:.2} ({server:.2})"))
    });
    section(&mut page, &view, &REQUESTS, |view, cell| (cell.target != NATIVE).then(|| view.requests(cell))?);
    section(&mut page, &view, &MEMORY, |view, cell| {
        let anonymous = view.most(cell, |sample| sample.daemon_anonymous_peak_bytes as f64)?;
        let resident = view.most(cell, |sample| sample.daemon_resident_peak_bytes as f64)?;
        (cell.target != NATIVE).then(|| format!("{:.0} ({:.0})", anonymous / 1e6, resident / 1e6))
    });
    section(&mut page, &view, &MOUNT, |view, cell| {
        let seconds = view.median(cell, |sample| sample.mount_seconds.unwrap_or(f64::NAN))?;
        seconds.is_finite().then(|| figure(seconds))
    });
    failures(&mut page, record);
    page
}

/// What stands above a table, and whether its entries are in the unit of the workload.
struct Heading {
    title: &'static str,
    meaning: &'static str,
    unit: bool,
}

const RESULTS: Heading = Heading {
    title: "Results",
    meaning: "median (of the per-round ratios to native; for seconds: times native) [least-most]; n where not all \
              rounds have both",
    unit: true,
};
const CPU_RATIO: Heading = Heading {
    title: "CPU ratio",
    meaning: "native's reader / (reader + daemon), each round by itself, median: 1.00 is as cheap \
              as native. What a daemon puts off until after the read counts.",
    unit: false,
};
const CPU_PER_GIGABYTE: Heading =
    Heading { title: "CPU seconds per GB", meaning: "daemon + reader (server), medians", unit: false };
const REQUESTS: Heading = Heading {
    title: "Requests to the store",
    meaning: "the most of any round; MB where the server counts bytes",
    unit: false,
};
const MEMORY: Heading = Heading {
    title: "Memory of the daemon",
    meaning: "peak anonymous MB, looked at every 50 ms (peak resident MB, mapped files included), \
              the most of any round",
    unit: false,
};
const MOUNT: Heading = Heading {
    title: "Seconds to mount",
    meaning: "from the start of the daemon until the kernel lists the mount, median",
    unit: false,
};

/// One cell of all rounds.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    pub target: &'a str,
    pub workload: Workload,
    pub phase: Phase,
}

fn introduction(page: &mut String, record: &Record) {
    let rounds = record.samples.iter().map(|sample| sample.round).max().unwrap_or(0);
    let settings = &record.settings;
    let _ = writeln!(
        page,
        "{rounds} of {} rounds, scale {}, made from `raw.json` by `stoker-benchmarks summary`; how \
         it was measured is in `setup.md`. Differences under a fifth are noise on a shared machine; \
         CPU ratios and ratios within a round hold better than wall times.\n",
        settings.rounds,
        settings.scale.name()
    );
    for subject in &record.targets {
        if let Some(why) = &subject.absent {
            let _ = writeln!(page, "**{} was left out: {}**\n", subject.name, why.replace('\n', " "));
        }
    }
}

/// CPU seconds a second of others beyond which a cell is named.
const OTHERS_MAX: f64 = 0.3;

/// What else ran on the machine: all CPU time but that of the reader, the daemon and the server.
fn others(page: &mut String, view: &View) {
    let shares = view.of_others();
    let Some((most, sample)) = shares.first() else { return };
    let cell = |sample: &Sample| {
        format!("{} {} {} {}", sample.target, sample.workload.name(), sample.phase.name(), sample.round)
    };
    let busy = shares.iter().filter(|(share, _)| *share > OTHERS_MAX);
    let busy: Vec<_> = busy.map(|(share, sample)| format!("{} ({share:.2})", cell(sample))).collect();
    let named = if busy.is_empty() { "none".to_owned() } else { busy.join(", ") };
    let _ = writeln!(
        page,
        "CPU seconds a second of others (all but the reader, the daemon and the server; the kernel's threads are among \
         them): at most {most:.2}, in {} (target, workload, phase, round). More than {OTHERS_MAX} in {} of {} cells: \
         {named}.\n",
        cell(sample),
        busy.len(),
        shares.len()
    );
}

fn section(page: &mut String, view: &View, heading: &Heading, entry: impl Fn(&View, Cell) -> Option<String>) {
    let targets = view.targets();
    let unit = if heading.unit { "unit | " } else { "" };
    let _ = writeln!(page, "## {}\n\n{}\n", heading.title, heading.meaning);
    let _ = writeln!(page, "| workload | phase | {unit}{} |", targets.join(" | "));
    let _ = writeln!(page, "|{}", "---|".repeat(targets.len() + 2 + usize::from(heading.unit)));
    for (workload, phase) in view.rows() {
        let entries: Vec<Option<String>> =
            targets.iter().map(|target| entry(view, Cell { target, workload, phase })).collect();
        // A table about mounts has no line for phases that begin without one.
        if entries.iter().all(Option::is_none) {
            continue;
        }
        let entries = entries.into_iter().map(|entry| entry.unwrap_or_else(|| "-".to_owned()));
        let cells = entries.collect::<Vec<_>>().join(" | ");
        let unit = workload.unit().name();
        let unit = if heading.unit { format!("{unit} | ") } else { String::new() };
        let _ = writeln!(page, "| {} | {} | {unit}{cells} |", workload.name(), phase.name());
    }
    page.push('\n');
}

fn failures(page: &mut String, record: &Record) {
    page.push_str("## Errors, wrong bytes, cells without figures\n\n");
    let unsound: Vec<&Sample> = record.samples.iter().filter(|sample| !sample.sound()).collect();
    if unsound.is_empty() {
        page.push_str("None, in any cell. Every read was compared with its tags.\n");
    }
    for sample in unsound {
        let why = sample.failure.clone().unwrap_or_else(|| {
            let first = sample.first_error.as_deref().unwrap_or("-");
            format!("{} errors (first: {first}), {} wrong tags", sample.errors, sample.wrong_tags)
        });
        let (workload, phase) = (sample.workload.name(), sample.phase.name());
        let why = why.replace('\n', " ");
        let _ = writeln!(page, "- {} {workload} {phase}, round {}: {why}", sample.target, sample.round);
    }
}

pub fn per_gigabyte(seconds: f64, sample: &Sample) -> f64 {
    if sample.bytes == 0 { f64::NAN } else { seconds * 1e9 / sample.bytes as f64 }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn figures_are_short_and_grouped() {
        assert_eq!(figure(0.0345), "0.035");
        assert_eq!(figure(12.345), "12.35");
        assert_eq!(figure(52_235.4), "52,235");
        assert_eq!(figure(1_234_567.0), "1,234,567");
        assert_eq!(figure(f64::NAN), "-");
    }
}
