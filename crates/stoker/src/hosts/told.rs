//! What hosts say, and what came of it: lines behind the name of their host, or one object a host.
//!
//! Invariants: a line is written in one go, so that those of several hosts don't mix; what a host says steers no terminal;
//! piped, it is passed on as it was, whatever its encoding.

use crate::{place, print, show};
use fleet::{Failure, Host, Sink, Stop, Stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of each output of a host that are kept for its object.
const KEPT_MAX: usize = 1 << 20;

/// What a bar counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    Hosts,
    Bytes,
}

pub struct Told {
    is_json: bool,
    bar: ProgressBar,
    counts: Counts,
    /// For each host its two outputs, until it is done.
    kept: Mutex<HashMap<String, [Vec<u8>; 2]>>,
    /// Why nothing more can be printed.
    failed: Mutex<Option<anyhow::Error>>,
    stop: Arc<Stop>,
}

fn locked<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bar that counts hosts.
pub fn hosts(what: &str, count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count as u64);
    let style = ProgressStyle::with_template("{prefix} {bar:28} {pos} of {len} hosts  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what.to_owned());
    bar
}

impl Told {
    pub fn new(is_json: bool, bar: ProgressBar, counts: Counts, stop: &Arc<Stop>) -> Told {
        Told { is_json, bar, counts, kept: Mutex::default(), failed: Mutex::default(), stop: Arc::clone(stop) }
    }

    /// A host is done.
    pub fn done(&self, host: &Host, done: &Result<Map<String, Value>, Failure>) {
        if self.counts == Counts::Hosts {
            self.bar.inc(1);
        }
        if !self.is_json {
            return;
        }
        let mut object = json!({ "host": host.label(), "ok": done.is_ok() });
        match done {
            Ok(figures) => object.as_object_mut().into_iter().for_each(|object| object.extend(figures.clone())),
            Err(failure) => {
                object["failure"] = failure.name().into();
                object["reason"] = failure.to_string().into();
                if let Failure::Exit(code, _) = failure {
                    object["exit_code"] = (*code).into();
                }
            }
        }
        let [out, err] = locked(&self.kept).remove(&host.label()).unwrap_or_default();
        for (name, bytes) in [("stdout", out), ("stderr", err)] {
            object[name] = String::from_utf8_lossy(&bytes).into();
        }
        self.print(format!("{object}\n").as_bytes());
    }

    /// Nothing more comes; whether all of it could be printed.
    pub fn over(&self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        locked(&self.failed).take().map_or(Ok(()), Err)
    }

    fn print(&self, line: &[u8]) {
        let printed = self.bar.suspend(|| print::line_out(line));
        if let Err(error) = printed {
            // Nobody reads what hosts do.
            locked(&self.failed).get_or_insert(error);
            self.stop.stop();
        }
    }
}

impl Sink for Told {
    fn line(&self, host: &Host, stream: Stream, line: &[u8]) {
        if self.is_json {
            let mut kept = locked(&self.kept);
            let kept = &mut kept.entry(host.label()).or_default()[usize::from(stream == Stream::Err)];
            if kept.len() + line.len() < KEPT_MAX {
                kept.extend(line);
                kept.push(b'\n');
            }
            return;
        }
        let is_terminal =
            if stream == Stream::Out { std::io::stdout().is_terminal() } else { std::io::stderr().is_terminal() };
        let line = labelled(&host.label(), line, is_terminal, place::colour(is_terminal));
        match stream {
            Stream::Out => self.print(&line),
            Stream::Err => self.bar.suspend(|| print::line_err(&line)),
        }
    }

    fn moved(&self, bytes: u64) {
        if self.counts == Counts::Bytes {
            self.bar.inc(bytes);
        }
    }
}

/// A line behind the name of its host.
fn labelled(label: &str, line: &[u8], is_terminal: bool, has_colour: bool) -> Vec<u8> {
    let label = if has_colour { format!("\u{1b}[36m{label}:\u{1b}[0m ") } else { format!("{label}: ") };
    let line = match is_terminal {
        true => plain(&String::from_utf8_lossy(line)).into_bytes(),
        false => line.to_vec(),
    };
    [label.as_bytes(), &line, b"\n"].concat()
}

/// Without what would steer a terminal, but for tabs.
fn plain(line: &str) -> String {
    let line = line.strip_suffix('\r').unwrap_or(line);
    line.split('\t').map(show::plain).collect::<Vec<_>>().join("\t")
}

/// Who failed and why, in lines, with what to try.
pub fn table(failed: &[(&Host, &Failure)], of: usize) {
    let labels: Vec<String> = failed.iter().map(|(host, _)| host.label()).collect();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).min(40);
    let verb = if of == 1 { "the host failed".to_owned() } else { format!("{} of {of} hosts failed", failed.len()) };
    note!("stoker: {verb}");
    for (label, (_, failure)) in labels.iter().zip(failed) {
        note!("  {label:width$}  {}", show::line(&failure.to_string()));
    }
    let mut hints: Vec<&str> = failed.iter().filter_map(|(_, failure)| failure.hint()).collect();
    hints.sort_unstable();
    hints.dedup();
    hints.iter().for_each(|hint| note!("  try: {hint}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_host_steers_no_terminal_and_is_passed_on_as_it_was() {
        assert_eq!(labelled("a", b"x\ty\x1b[2J\xff", false, false), b"a: x\ty\x1b[2J\xff\n");
        assert_eq!(labelled("a", b"x\ty\x1b[2J\xff\r", true, false), "a: x\ty\u{fffd}[2J\u{fffd}\n".as_bytes());
        assert_eq!(labelled("a", b"x", true, true), b"\x1b[36ma:\x1b[0m x\n");
    }
}
