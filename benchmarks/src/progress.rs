//! All that is printed: one line a cell, to standard error. Measures nothing.

use std::io::{Write, stderr, stdout};
use std::path::Path;

use anyhow::{Error, Result};

use crate::ask::Came;
use crate::campaign::Event;
use crate::read::Outcome;
use crate::record::Sample;
use crate::summary::figure;

pub fn show(event: Event) {
    let line = match event {
        Event::Turn { round, target, workload } => {
            format!("round {round}: {} on {target}", workload.name())
        }
        Event::Cell(sample) => cell(sample),
        Event::Absent { target, why } => format!("{target} is left out: {why}"),
    };
    say(&line);
}

pub fn preparing(root: &Path) {
    say(&format!("data in {}", root.display()));
}

pub fn written(path: &Path) {
    say(&format!("written: {}", path.display()));
}

/// To standard output: the caller reads it.
pub fn outcome(outcome: &Outcome) -> Result<()> {
    writeln!(stdout(), "{}", serde_json::to_string(outcome)?)?;
    Ok(())
}

pub fn came(came: &Came) -> Result<()> {
    writeln!(stdout(), "{}", serde_json::to_string(came)?)?;
    Ok(())
}

pub fn failed(error: &Error) {
    say(&format!("stoker-benchmarks: {error:#}"));
}

fn cell(sample: &Sample) -> String {
    let name = sample.phase.name();
    if let Some(why) = &sample.failure {
        return format!("  {name:8} FAILED: {why}");
    }
    let named = |(kind, count): (&String, &u64)| format!("{kind} {count}");
    let mount = sample.mount_requests.iter().map(named).map(|words| format!("mount {words}"));
    let requests: Vec<String> = mount.chain(sample.requests.iter().map(named)).collect();
    let wrong = match (&sample.first_error, sample.wrong_tags) {
        (Some(error), _) => format!("  {} ERRORS: {error}", sample.errors),
        (None, 0) => String::new(),
        (None, count) => format!("  {count} WRONG TAGS"),
    };
    format!(
        "  {name:8} {:>9} {:5} cpu: reader {:.2}, daemon {:.2}, server {:.2}  memory {} MB  {}{wrong}",
        figure(crate::summary::value(sample)),
        sample.workload.unit().name(),
        sample.reader_cpu_seconds,
        sample.daemon_cpu_seconds,
        sample.server_cpu_seconds,
        sample.daemon_anonymous_peak_bytes / 1_000_000,
        requests.join(", "),
    )
}

/// A closed terminal is no reason to end a run.
fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}
