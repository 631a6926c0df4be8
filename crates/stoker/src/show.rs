//! Figures, failures and progress for people.

use crate::{WRONG_WORDS, place, print};
use block::{Error, Kind};
use client::Failure;
use client::messages::{Loaded, Problem, Record};
use daemon::journal::Form;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

/// How this process says what happened; text unless it was told otherwise.
static FORM: OnceLock<Form> = OnceLock::new();

/// Say what happens in this form from now on.
pub fn speak(name: Option<&str>) -> Form {
    *FORM.get_or_init(|| name.and_then(Form::parsed).unwrap_or_default())
}

fn form() -> Form {
    FORM.get().copied().unwrap_or_default()
}

/// Something that happened in a node.
pub fn record(record: &Record) {
    match form() {
        Form::Text => note!("{:>5} {}", record.level.to_ascii_uppercase(), plain(&record.text)),
        json => note!("{}", json.line(record).trim_end()),
    }
}

/// Text of somebody else, without what would steer a terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { '\u{fffd}' } else { letter }).collect()
}

/// An error of somebody else with its parts, each in a line of its own that is indented by so much.
pub fn parts(text: &str, indent: usize) -> String {
    plain(text).lines().map(str::trim).collect::<Vec<_>>().join(&format!("\n{:indent$}", ""))
}

/// The same in one line.
pub fn line(text: &str) -> String {
    plain(text).replace('\n', "\u{fffd}")
}

/// Letters that are left of a name at least.
const NAME_MIN: usize = 12;

/// A row of names and figures that fits into so many columns, as far as its names can be shortened: in their middle, the
/// longest first.
pub fn fitting<const N: usize>(columns: usize, names: [&str; N], row: impl Fn([&str; N]) -> String) -> String {
    let mut lengths = names.map(|name| name.chars().count());
    let mut over = row(names).trim_end_matches('\n').chars().count().saturating_sub(columns);
    while let Some(longest) = lengths.iter_mut().max().filter(|longest| over > 0 && **longest > NAME_MIN) {
        (*longest, over) = (*longest - 1, over - 1);
    }
    let short: [String; N] = std::array::from_fn(|at| shortened(names[at], lengths[at]));
    row(short.each_ref().map(|name| &**name))
}

/// A name of at most so many letters: its middle is left out.
fn shortened(name: &str, most: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let (head, tail) = (most / 2, letters.len() - (most - most / 2 - 1));
    letters[..head].iter().chain(&['…']).chain(&letters[tail..]).collect()
}

/// Further lines of a text below its first.
pub fn indented(text: &str) -> String {
    text.replace('\n', "\n    ")
}

/// A time that has passed, as people read it: the largest unit that it has two of, in full.
pub fn age(seconds: f64) -> String {
    in_units(seconds, f64::floor)
}

/// A time that is left: rounded, so that 8 hours less a second are no 7.
pub fn left(seconds: f64) -> String {
    in_units(seconds.max(0.0), f64::round)
}

fn in_units(seconds: f64, whole: fn(f64) -> f64) -> String {
    let units = [(172_800.0, 86_400.0, "days"), (7_200.0, 3_600.0, "hours"), (120.0, 60.0, "minutes")];
    let unit = units.into_iter().find(|(from, _, _)| seconds >= *from);
    unit.map_or_else(|| format!("{seconds:.0} s"), |(_, unit, name)| format!("{:.0} {name}", whole(seconds / unit)))
}

/// Say what failed, on what, and what to try.
pub fn failure(error: &anyhow::Error) {
    let mut text = match error.downcast_ref::<Error>() {
        Some(error) => advised(error).to_string(),
        None => error.to_string(),
    };
    for cause in error.chain().skip(1) {
        text += &format!("\n  because: {cause}");
    }
    match form() {
        Form::Text => note!("stoker: {text}"),
        Form::Json => record(&Record { at: place::now(), level: "error".into(), text }),
    }
}

/// A failure that has only the advice of its kind says how this command follows it.
fn advised(error: &Error) -> Error {
    let how = match error.kind {
        _ if error.hint != error.kind.hint() => return error.clone(),
        Kind::Changed => "run `stoker refresh`, then open it again to read the new version",
        Kind::Invalid => "see --help",
        _ => return error.clone(),
    };
    error.clone().hint(how)
}

/// A failure that a node answered with.
pub fn refused(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Refused(problem) => of_node(&problem).into(),
        Failure::Absent => anyhow::anyhow!("no node answers\n  on:  its control socket\n  try: see `stoker status`"),
        Failure::Gone => anyhow::anyhow!(
            "the node ended before it had answered\n  on:  its control socket\n  try: mount again, then the same command: it \
             goes on where it stopped; the log of the node says why, unless it was killed"
        ),
        Failure::Silent => anyhow::anyhow!(
            "the node does not answer\n  on:  its control socket\n  try: the same again; `stoker umount --lazy` takes its \
             mounts away, and ending its process the rest"
        ),
        Failure::Foreign(user) => anyhow::anyhow!(
            "user {user} listens where another user's node should\n  on:  the control socket\n  try: end that process"
        ),
        Failure::Broken(what) => anyhow::anyhow!(
            "{what}\n  on:  the control socket\n  try: the same again; a node of another version may be running"
        ),
    }
}

/// What went wrong in a node, as if it had here.
pub fn of_node(Problem { kind, what, on, hint }: &Problem) -> Error {
    Error::new(Kind::named(kind), plain(what), plain(on)).hint(plain(hint))
}

/// One of a thing, or several: `count_of(1, "file")`.
pub fn count_of(number: u64, thing: &str) -> String {
    let many = if thing.ends_with("tch") { "es" } else { "s" };
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { many })
}

/// Bytes as people read them, in powers of ten like disks and networks.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// A count with separators.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group));
    groups.collect::<Vec<_>>().join(",")
}

/// A verdict as an exit code: 1 if it is no, 2 if there is none.
pub fn judged(done: anyhow::Result<bool>) -> anyhow::Result<ExitCode> {
    match done {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if error.is::<print::Closed>() => Err(error),
        Err(error) => {
            failure(&error);
            Ok(ExitCode::from(WRONG_WORDS))
        }
    }
}

/// Progress by bytes with an estimate; nothing where nobody looks.
pub fn bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = "{prefix} {bar:28} {percent:>3}%  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left  {msg}";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what.to_owned());
    bar
}

/// Something that takes an unknown time; nothing where nobody looks.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what.to_owned());
    let style = ProgressStyle::with_template("{spinner} {msg}  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Bring a bar up to date with a load.
pub fn advance(bar: &ProgressBar, loaded: &Loaded) {
    bar.set_length(loaded.bytes);
    bar.set_position(loaded.bytes_done);
    bar.set_message(format!("{} of {} files", count(loaded.files_done), count(loaded.files)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_advice_of_its_own_names_the_command_that_mends_it() {
        let stale = std::io::Error::from_raw_os_error(116);
        let error = Error::io("cannot read", "/mnt/file", &stale);
        assert!(
            advised(&error)
                .to_string()
                .ends_with("try: run `stoker refresh`, then open it again to read the new version")
        );
        assert_eq!(advised(&error.hint("ask the owner")).hint, "ask the owner");
    }

    #[test]
    fn a_row_that_is_too_long_loses_the_middle_of_its_longest_names_and_nothing_else() {
        let row = |names: [&str; 2]| format!("  {}  {}, 7 files\n", names[0], names[1]);
        let (short, long) = ("/mnt/a", "s3://bucket/a/folder/deep/below/others");
        assert_eq!(fitting(80, [short, long], row), row([short, long]));
        let fitted = fitting(40, [short, long], row);
        assert_eq!((fitted.chars().count() - 1, &*fitted), (40, "  /mnt/a  s3://bucke…low/others, 7 files\n"));
        let least = fitting(10, [short, long], row);
        assert_eq!(least, "  /mnt/a  s3://b…thers, 7 files\n", "a name is known again");
        assert_eq!(fitting(40, ["ä".repeat(20).as_str(), long], row).chars().count(), 41);
    }

    #[test]
    fn figures_are_short_and_right() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.00 kB");
        assert_eq!(bytes(999_600), "1.00 MB");
        assert_eq!(bytes(123_456_789), "123 MB");
        assert_eq!(bytes(12_345_678_901), "12.3 GB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!((count_of(1, "file"), count_of(2_000, "file")), ("1 file".into(), "2,000 files".into()));
        assert_eq!((count_of(1, "batch"), count_of(2, "batch")), ("1 batch".into(), "2 batches".into()));
        assert_eq!(count_of(2, "epoch"), "2 epochs");
        assert_eq!(
            [5.0, 119.0, 7_199.0, 7_200.0, 400_000.0].map(age),
            ["5 s", "119 s", "119 minutes", "2 hours", "4 days"]
        );
        assert_eq!([28_799.0, 7_200.0, 400_000.0, -1.0].map(left), ["8 hours", "2 hours", "5 days", "0 s"]);
        assert_eq!(parts("a\n  on:  b\x1b\n  try: c", 4), "a\n    on:  b\u{fffd}\n    try: c");
    }
}
