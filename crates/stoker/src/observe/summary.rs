//! What was seen, for people and as a document.
//!
//! It measures nothing and prints nothing. Invariant: what couldn't be judged is not shown as if it had been.

use crate::chart::{Bar, Chart, Column, Style, Table, Tone};
use crate::show::{bytes, count, count_of};
use std::ffi::OsString;
use std::path::Path;
use trace::derive::Derived;
use trace::{Bin, Group, Inside, Owner, Pace, Trace};
use workload::Order;

/// Bars of the picture.
const BARS: usize = 12;

/// Raised when a field changes its meaning.
const SCHEMA: u32 = 1;

/// The document of `--save`.
pub fn document(trace: &Trace, folder: &Path, command: &[OsString]) -> serde_json::Value {
    let command: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    serde_json::json!({
        "schema": SCHEMA,
        "kind": "measured",
        "command": "observe",
        "version": env!("CARGO_PKG_VERSION"),
        "target": folder.to_string_lossy(),
        "observed": command,
        "trace": trace,
    })
}

pub fn text(trace: &Trace, derived: Option<&Derived>, folder: &Path, style: &Style) -> String {
    let title = format!("What was asked of {}", folder.display());
    let Some(group) = trace.groups.first() else {
        let subtitle = format!("{}, and nothing was read.", count_of(trace.opens, "open"));
        return Chart { title, subtitle, ..Chart::default() }.text(style);
    };
    let coarse = trace.coarse(BARS);
    let bars = coarse.iter().map(|(from, seconds, slice)| {
        let rate = slice.bytes as f64 / seconds;
        let text = format!("{}/s", bytes(rate as u64));
        Bar { label: format!("from {from:.1} s"), value: rate, text, tone: Tone::Accent }
    });
    let chart = Chart {
        title,
        subtitle: sentence(trace, group),
        table: Table { columns: vec![Column::left("seen"), Column::left("")], rows: rows(trace, group, derived) },
        unit: "bytes/s".into(),
        bars: if coarse.len() > 1 { bars.collect() } else { Vec::new() },
        mark: None,
        note: notes(trace, derived),
    };
    chart.text(style)
}

fn sentence(trace: &Trace, group: &Group) -> String {
    let order = match group.order {
        Order::Sequential if group.files == 1 => "from end to end",
        Order::Sequential => "in the order in which they lie",
        Order::Shuffled => "in an order of each epoch",
        Order::Shards => "as shards in an order of each epoch",
        Order::Random => "here and there, record by record",
    };
    format!(
        "{} of {} read {order} by {}; {:.1} epochs in {:.1} s.",
        count_of(group.files, "file"),
        bytes(group.file_bytes_mean as u64),
        count_of(trace.streams, "reader"),
        group.epochs_mean,
        trace.seconds
    )
}

fn rows(trace: &Trace, group: &Group, derived: Option<&Derived>) -> Vec<Vec<String>> {
    let seconds = trace.seconds.max(1e-9);
    let rate = |number: u64| count((number as f64 / seconds).round() as u64);
    let percentile = |name: &str| 1e3 * trace.read_seconds.get(name).copied().unwrap_or(0.0);
    let ending = if group.ending.is_empty() { "no ending".into() } else { format!(".{}", group.ending) };
    let mut rows = vec![
        ("read", format!("{}, {}/s", bytes(trace.bytes), bytes((trace.bytes as f64 / seconds) as u64))),
        (
            "requests",
            format!("{}, {}/s; {}", count_of(trace.reads, "read"), rate(trace.reads), spread(&trace.request_sizes)),
        ),
        ("opens", format!("{}, {}/s", count(trace.opens), rate(trace.opens))),
        ("files", format!("{} ({ending}); {}", count(group.files), spread(&group.file_sizes))),
        ("within", format!("{} ({:.0} % of reads go on where one ended)", inside(group), group.sequential_percent)),
        ("whole", format!("{:.0} % of files were read to their end", group.whole_percent)),
        ("a read took", format!("{:.2} ms; 99 %: {:.2} ms", percentile("p50"), percentile("p99"))),
        ("processes", format!("{} asked, {} read at the same time", trace.process_count, trace.streams)),
    ];
    rows.extend(trace.pace.as_ref().map(|pace| ("pauses", pauses(pace))));
    rows.extend(derived.map(|derived| ("replayed as", job(derived))));
    if trace.groups.len() > 1 {
        let others = &trace.groups[1..];
        let files = others.iter().map(|group| group.files).sum();
        let read = others.iter().map(|group| group.bytes).sum();
        rows.push(("besides", format!("{}, {}", count_of(files, "other file"), bytes(read))));
    }
    rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect()
}

fn inside(group: &Group) -> &'static str {
    match group.inside {
        Inside::Sequential => "sequential",
        Inside::Random => "random",
    }
}

fn pauses(pace: &Pace) -> String {
    let whose = match pace.owner {
        Owner::All => "",
        Owner::Process => " of a process",
        Owner::Thread => " of a thread",
    };
    format!(
        "{} of {} after batches{whose} of {}; {} from batch to batch",
        count(pace.pauses),
        time(pace.pause_seconds),
        count(pace.batch.round() as u64),
        time(pace.batch_seconds())
    )
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", 1e3 * seconds) } else { format!("{seconds:.2} s") }
}

/// What a replay does.
fn job(derived: &Derived) -> String {
    let read = &derived.workload.read;
    let (batch, threads) = (count(read.batch), count_of(read.threads, "thread"));
    let manner = match read.prefetch_batches {
        0 => format!("{threads} that read a batch of {batch} together, none ahead"),
        ahead => format!("{threads}, batches of {batch}, up to {} ahead", count(ahead)),
    };
    let step = derived.accelerator.steps.values().next().map_or(0.0, |step| step.step_seconds);
    format!("{manner}; a step of {}", time(step))
}

/// The bins that hold most, in the order of sizes.
fn spread(bins: &[Bin]) -> String {
    const SHOWN: usize = 3;
    let all: u64 = bins.iter().map(|bin| bin.count).sum();
    let mut most: Vec<&Bin> = bins.iter().collect();
    most.sort_by_key(|bin| std::cmp::Reverse(bin.count));
    most.truncate(SHOWN);
    most.sort_by_key(|bin| bin.from);
    let shown = most.iter().map(|bin| {
        format!("{:.0} % {}-{}", 100.0 * bin.count as f64 / all.max(1) as f64, binary(bin.from), binary(bin.from * 2))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Powers of two as people write them.
fn binary(size: u64) -> String {
    const UNITS: [&str; 5] = ["", " KiB", " MiB", " GiB", " TiB"];
    let unit = (size.max(1).ilog2() / 10).min(4);
    format!("{}{}", size >> (10 * unit), UNITS[unit as usize])
}

fn notes(trace: &Trace, derived: Option<&Derived>) -> String {
    let mut notes: Vec<String> =
        derived.iter().flat_map(|derived| &derived.doubts).map(|doubt| format!("Derived: {doubt}.")).collect();
    if trace.lost > 0 {
        notes.push(format!("{} events came faster than they could be taken down and are missing.", count(trace.lost)));
    }
    if trace.beyond > 0 {
        notes.push(format!("{} events are counted in the sums alone: too many files at once.", count(trace.beyond)));
    }
    notes.join(" ")
}
