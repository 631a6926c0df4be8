//! What happened in a node: a file that is begun anew when it is long, the last warnings for `status`, and whoever
//! listens at the moment.
//!
//! It formats nothing but a line and decides nothing but how much is written; the records come from `tracing`, by a
//! layer of the program that hosts the node. Invariant: who writes waits for the file and for no listener.

use block::{Error, Result};
use client::messages::{Log, Record};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tracing::Level;

/// A file that is longer is kept under the name with `.1`, and begun anew: at most twice as much lies on the disk.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Warnings and errors that `status` shows.
const ERRORS_KEPT: usize = 8;

/// Records that a listener may be behind before it misses some.
const BEHIND_MAX: usize = 256;

/// How a record is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// For people: `2026-03-01 12:00:00  WARN what happened`.
    #[default]
    Text,
    /// For programs: an object in a line, with `time` (RFC 3339), `level` and `message`.
    Json,
}

impl Form {
    /// By its name.
    pub fn parsed(name: &str) -> Option<Form> {
        [Form::Text, Form::Json].into_iter().find(|form| form.name() == name)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Form::Text => "text",
            Form::Json => "json",
        }
    }

    /// A record as one line of a log; as text it has more if what happened takes several.
    pub fn line(self, record: &Record) -> String {
        match self {
            Form::Text => format!("{} {:>5} {}\n", stamp(record.at), record.level.to_ascii_uppercase(), record.text),
            Form::Json => {
                let time =
                    format!("{}.{:03}Z", stamp(record.at).replace(' ', "T"), (record.at.max(0.0).fract() * 1e3) as u64);
                format!("{}\n", serde_json::json!({ "time": time, "level": record.level, "message": record.text }))
            }
        }
    }
}

/// What happened in a node.
pub struct Journal {
    /// Seconds since 1970.
    clock: fn() -> f64,
    book: Mutex<Book>,
}

struct Book {
    path: Option<PathBuf>,
    file: Option<File>,
    bytes: u64,
    level: Level,
    form: Form,
    errors: VecDeque<Record>,
    listeners: Vec<(Level, mpsc::Sender<Record>)>,
    /// Told of the level from which on anybody wants records.
    wanted: Box<dyn Fn(Level) + Send>,
    /// Told of each file that is begun.
    begun: Box<dyn Fn(&File) + Send>,
}

impl Journal {
    /// Write what is at least as grave as `level` to a file, if one is named, as text.
    pub fn open(path: Option<PathBuf>, level: Level, clock: fn() -> f64) -> Result<Journal> {
        let (errors, listeners) = (VecDeque::new(), Vec::new());
        let (wanted, begun) = (Box::new(|_| ()), Box::new(|_: &File| ()));
        let mut book = Book { path, file: None, bytes: 0, level, form: Form::Text, errors, listeners, wanted, begun };
        book.open()?;
        Ok(Journal { clock, book: Mutex::new(book) })
    }

    /// The same, written otherwise.
    pub fn written_as(self, form: Form) -> Journal {
        self.book().form = form;
        self
    }

    /// Seconds since 1970.
    pub fn now(&self) -> f64 {
        (self.clock)()
    }

    /// Tell somebody from which level on records are wanted, now and whenever that changes.
    pub fn tell_wanted(&self, wanted: impl Fn(Level) + Send + 'static) {
        let mut book = self.book();
        book.wanted = Box::new(wanted);
        book.tell();
    }

    /// Tell somebody to which file is written, now and whenever that changes.
    pub fn tell_begun(&self, begun: impl Fn(&File) + Send + 'static) {
        let mut book = self.book();
        book.file.iter().for_each(&begun);
        book.begun = Box::new(begun);
    }

    /// Something happened.
    pub fn record(&self, level: Level, text: String) {
        let record = Record { at: self.now(), level: level.as_str().to_ascii_lowercase(), text };
        let mut book = self.book();
        if level <= book.level {
            book.write(&record);
        }
        if level <= Level::WARN {
            if book.errors.len() >= ERRORS_KEPT {
                book.errors.pop_front();
            }
            book.errors.push_back(record.clone());
        }
        let before = book.listeners.len();
        book.listeners.retain(|(wanted, listener)| {
            level > *wanted || !matches!(listener.try_send(record.clone()), Err(mpsc::error::TrySendError::Closed(_)))
        });
        if book.listeners.len() != before {
            book.tell();
        }
    }

    /// Listen to what happens from now on, until the receiver is dropped.
    pub fn listen(&self, level: Level) -> mpsc::Receiver<Record> {
        let (sender, receiver) = mpsc::channel(BEHIND_MAX);
        let mut book = self.book();
        book.listeners.retain(|(_, listener)| !listener.is_closed());
        book.listeners.push((level, sender));
        book.tell();
        receiver
    }

    /// Write from now on what is at least this grave.
    pub fn set_level(&self, level: &str) -> Result<()> {
        let level = parsed(level)?;
        let mut book = self.book();
        book.level = level;
        book.tell();
        Ok(())
    }

    /// The file may have been moved away: write to a new one.
    pub fn reopen(&self) -> Result<()> {
        self.book().open()
    }

    /// A file in which nothing stands is of no use to anybody once the node has ended.
    pub fn remove_empty(&self) {
        let mut book = self.book();
        let is_empty = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0);
        if let Some(path) = book.path.clone().filter(is_empty) {
            book.file = None;
            let _ = std::fs::remove_file(path);
        }
    }

    /// Where it is written, and how much.
    pub fn log(&self) -> Log {
        let book = self.book();
        let path = book.path.as_deref().map_or_else(String::new, |path| path.display().to_string());
        Log { path, level: book.level.as_str().to_ascii_lowercase(), format: book.form.name().into() }
    }

    /// The last warnings and errors, oldest first.
    pub fn errors(&self) -> Vec<Record> {
        self.book().errors.iter().cloned().collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn open(&mut self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let doing = |error: std::io::Error| {
            Error::io("cannot write the log", path.display(), &error).hint("name a file that can be written with --log")
        };
        let file = File::options().create(true).append(true).open(path).map_err(doing)?;
        self.bytes = file.metadata().map_err(doing)?.len();
        (self.begun)(&file);
        self.file = Some(file);
        Ok(())
    }

    /// A log that can't be written must not end what it is about.
    fn write(&mut self, record: &Record) {
        if self.bytes > FILE_BYTES_MAX {
            self.turn();
        }
        let Some(file) = &mut self.file else { return };
        let line = self.form.line(record);
        if file.write_all(line.as_bytes()).is_ok() {
            self.bytes += line.len() as u64;
        }
    }

    fn turn(&mut self) {
        let Some(path) = &self.path else { return };
        let _ = std::fs::rename(path, older(path));
        if self.open().is_err() {
            self.bytes = 0;
        }
    }

    fn tell(&self) {
        let level = self.listeners.iter().map(|(level, _)| *level).chain([self.level, Level::WARN]).max();
        (self.wanted)(level.unwrap_or(Level::WARN));
    }
}

/// Where the log before this one lies.
fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// A level by its name.
pub fn parsed(level: &str) -> Result<Level> {
    level.parse().map_err(|_| Error::invalid("there is no such level", level).hint("give error, warn, info or debug"))
}

/// A moment as people read it, in UTC: `2026-03-01 12:00:00`.
pub fn stamp(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days of the civil calendar, counted from the first of March of the year 0 (Howard Hinnant).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn moments_are_told_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0.0, "1970-01-01 00:00:00"),
            (951_782_399.0, "2000-02-28 23:59:59"),
            (951_782_400.0, "2000-02-29 00:00:00"),
            (1_772_366_400.0, "2026-03-01 12:00:00"),
        ] {
            assert_eq!(stamp(seconds), text);
        }
    }

    #[test]
    fn what_is_grave_enough_is_written_and_the_last_errors_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let journal = Journal::open(Some(path.clone()), Level::WARN, || 60.0).unwrap();
        journal.record(Level::INFO, "quiet".into());
        journal.set_level("info").unwrap();
        journal.record(Level::INFO, "heard".into());
        (0..20).for_each(|number| journal.record(Level::ERROR, format!("error {number}")));
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.starts_with("1970-01-01 00:01:00  INFO heard\n"), "{written}");
        assert_eq!(journal.errors().len(), ERRORS_KEPT);
        assert_eq!(journal.errors().last().unwrap().text, "error 19");
        assert!(journal.set_level("loud").is_err());
    }

    #[test]
    fn a_record_for_programs_is_an_object_in_a_line() {
        let record = Record { at: 951_782_399.25, level: "warn".into(), text: "\"it\" failed\n  try: again".into() };
        let line = Form::Json.line(&record);
        assert_eq!(line.find('\n'), Some(line.len() - 1));
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected =
            serde_json::json!({ "time": "2000-02-28T23:59:59.250Z", "level": "warn", "message": record.text });
        assert_eq!(read, expected);
        assert_eq!(Form::parsed("json"), Some(Form::Json));
    }

    #[test]
    fn a_log_that_was_moved_away_is_begun_anew_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("log"), folder.path().join("moved"));
        let journal = Journal::open(Some(path.clone()), Level::WARN, || 0.0).unwrap();
        journal.record(Level::WARN, "first".into());
        std::fs::rename(&path, &moved).unwrap();
        journal.reopen().unwrap();
        journal.record(Level::WARN, "second".into());
        assert!(std::fs::read_to_string(&moved).unwrap().contains("first"));
        let second = std::fs::read_to_string(&path).unwrap();
        assert!(second.contains("second") && !second.contains("first"));
    }

    #[test]
    fn a_log_in_which_nothing_stands_is_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let journal = Journal::open(Some(path.clone()), Level::WARN, || 0.0).unwrap();
        journal.remove_empty();
        assert!(!path.exists());
        let journal = Journal::open(Some(path.clone()), Level::WARN, || 0.0).unwrap();
        journal.record(Level::WARN, "it happened".into());
        journal.remove_empty();
        assert!(std::fs::read_to_string(&path).unwrap().contains("it happened"));
    }

    #[test]
    fn a_log_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let journal = Journal::open(Some(path.clone()), Level::WARN, || 0.0).unwrap();
        let text = "x".repeat(1 << 20);
        (0..40).for_each(|_| journal.record(Level::WARN, text.clone()));
        let length = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert!(length(&path) <= FILE_BYTES_MAX + (2 << 20) && length(&older(&path)) <= FILE_BYTES_MAX + (2 << 20));
    }

    #[test]
    fn a_listener_hears_what_it_wants_and_lowers_the_level_while_it_listens() {
        let journal = Journal::open(None, Level::WARN, || 0.0).unwrap();
        let debug = Arc::new(AtomicBool::new(false));
        let seen = debug.clone();
        journal.tell_wanted(move |level| seen.store(level >= Level::DEBUG, Ordering::Relaxed));
        assert!(!debug.load(Ordering::Relaxed));
        let mut listener = journal.listen(Level::DEBUG);
        assert!(debug.load(Ordering::Relaxed));
        journal.record(Level::DEBUG, "heard".into());
        assert_eq!(listener.try_recv().unwrap().text, "heard");
        drop(listener);
        journal.record(Level::DEBUG, "nobody listens".into());
        assert!(!debug.load(Ordering::Relaxed));
    }
}
