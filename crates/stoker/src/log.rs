//! From `tracing` to the journal of a node, or to standard error.

use crate::{place, show};
use client::messages::Record;
use daemon::Journal;
use std::fmt::Write as _;
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// The level for so many times `-v`.
pub fn level(verbose: u8) -> Level {
    match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    }
}

/// A command logs to standard error, so that standard output is what was asked for.
pub fn to_standard_error(verbose: u8) {
    let colour = place::colour(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let log = tracing_subscriber::fmt().with_max_level(level(verbose)).with_writer(std::io::stderr).with_ansi(colour);
    let log = log.log_internal_errors(false);
    log.with_target(verbose > 1).init();
    hear_libraries();
}

/// A node logs to its journal, as much as anybody wants at the moment; `echo`: to standard error too.
pub fn to_journal(journal: &Arc<Journal>, echo: bool) {
    let (filter, change) = reload::Layer::new(LevelFilter::WARN);
    let layer = Records { journal: journal.clone(), echo };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
    hear_libraries();
    journal.tell_wanted(move |level| drop(change.reload(LevelFilter::from_level(level))));
}

/// What libraries say by the other logging interface: only that of HDFS, and no more than its warnings, since it tells tokens to
/// whoever wants details.
struct Libraries;

impl log::Log for Libraries {
    fn enabled(&self, asked: &log::Metadata<'_>) -> bool {
        asked.level() <= log::Level::Warn && asked.target().starts_with("hdfs_native")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let said: String = record.args().to_string().chars().take(SAID_MAX).collect();
            tracing::warn!("HDFS: {said}");
        }
    }

    fn flush(&self) {}
}

/// Letters of what a library says: it describes each data node at length.
const SAID_MAX: usize = 400;

/// Have libraries heard from now on.
fn hear_libraries() {
    // Nobody else has set one; if somebody has, theirs is as good.
    if log::set_logger(&Libraries).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}

/// Hands each event to the journal.
struct Records {
    journal: Arc<Journal>,
    echo: bool,
}

impl<S: Subscriber> Layer<S> for Records {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let (level, text) = (*event.metadata().level(), line.text());
        if self.echo {
            let (at, level) = (self.journal.now(), level.as_str().to_ascii_lowercase());
            show::record(&Record { at, level, text: text.clone() });
        }
        self.journal.record(level, text);
    }
}

/// An event as text: its message, with its fields at the end of the first line.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn text(self) -> String {
        match self.message.split_once('\n') {
            Some((first, rest)) => format!("{first}{}\n{rest}", self.fields),
            None => self.message + &self.fields,
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_on_the_first_line_and_not_behind_the_advice() {
        let (message, fields) = ("it failed\n  try: again".to_owned(), " count=1".to_owned());
        assert_eq!(Line { message, fields }.text(), "it failed count=1\n  try: again");
    }
}
