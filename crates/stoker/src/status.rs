//! `stoker status`: what nodes do and hold.

use crate::{args, mount, place, print, show};
use client::messages::{Kept, Limits, Mount, MountPath, Status, Store, StoreState, Waits};
use client::{Client, Failure};
use daemon::journal::stamp;
use hyper::Method;
use std::io::IsTerminal;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;

/// Said where there is nothing to say.
pub const NOBODY: &str = "no node is running; `stoker mount URL DIR` starts one";

/// Clears a terminal from its upper left corner on.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(args: &args::Status) -> anyhow::Result<ExitCode> {
    let in_place = args.watch && std::io::stdout().is_terminal() && !args.json;
    loop {
        let Nodes { mut found, silent } = nodes(args.dir.as_deref())?;
        let mut out = String::new();
        for (_, status) in &mut found {
            let of_others = if args.json { 0 } else { leave_out_others(status, args.dir.as_deref()) };
            out += &match (args.json, args.watch && !in_place) {
                (true, _) => format!("{}\n", serde_json::to_string(status)?),
                (_, true) => line(status),
                _ => text(status, of_others),
            };
        }
        if found.is_empty() && silent.is_empty() && !args.json {
            out += &format!("{NOBODY}\n");
        }
        let out = show::plain(&if in_place { fitting(&out, rustix::stdio::stdout()) } else { out });
        silent.iter().for_each(|what| note!("{what}"));
        print::out(format_args!("{}{out}", if in_place { CLEAR } else { "" }))?;
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(args.interval);
    }
}

/// Leave in what is said of one mount; the count of the others.
fn leave_out_others(status: &mut Status, dir: Option<&Path>) -> usize {
    let all = status.mounts.len();
    let Some(path) = dir.and_then(|dir| std::fs::canonicalize(dir).ok()) else { return 0 };
    let around = status.mounts.iter().filter(|mount| path.starts_with(&mount.path) && !mount.detached);
    if let Some(meant) = around.max_by_key(|mount| mount.path.len()).map(|mount| mount.id) {
        status.mounts.retain(|mount| mount.id == meant);
    }
    all - status.mounts.len()
}

/// As many lines as a terminal has: more would scroll it.
fn fitting(text: &str, terminal: impl std::os::fd::AsFd) -> String {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes into the structure that it is given, which lives until it returns.
    unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    cut(text, size.ws_row.into(), size.ws_col.into())
}

/// The lines that fit into so many rows, one of which stays free for the cursor. A terminal of no size is of any.
fn cut(text: &str, rows: usize, columns: usize) -> String {
    let taken = |line: &&str| line.chars().count().div_ceil(columns.max(1)).max(1);
    if rows < 2 || columns == 0 || text.lines().map(|line| taken(&line)).sum::<usize>() < rows {
        return text.to_owned();
    }
    let mut left = rows - 2;
    let fits = |line: &&str| {
        let fits = taken(line) <= left;
        left = left.saturating_sub(taken(line));
        fits
    };
    let shown = text.lines().take_while(fits).map(|line| format!("{line}\n")).collect::<String>();
    shown + "... more than this terminal has lines for\n"
}

/// Nodes that answer, and what is to be said of those that don't.
pub struct Nodes {
    pub found: Vec<(Client, Status)>,
    pub silent: Vec<String>,
}

/// The node that serves a path, or every node that this user may ask.
pub fn nodes(dir: Option<&Path>) -> anyhow::Result<Nodes> {
    if let Some(dir) = dir {
        let (client, mut status, path) = mount::node_of(dir)?;
        if Path::new(&status.cache) != path {
            let place = MountPath { path: path.to_string_lossy().into_owned(), ..MountPath::default() };
            status.kept = Some(client.ask(Method::POST, "/v1/kept", &place).map_err(show::refused)?);
        }
        return Ok(Nodes { found: vec![(client, status)], silent: Vec::new() });
    }
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (client, status) in place::survey()? {
        let why = match status {
            Ok(status) => {
                found.push((client, status));
                continue;
            }
            // A node that was killed leaves its socket.
            Err(Failure::Absent) => continue,
            Err(Failure::Silent) => "does not answer".into(),
            Err(Failure::Foreign(user)) => format!("was not asked: user {user} listens there"),
            Err(Failure::Refused(problem)) => format!("refuses: {}", show::plain(&problem.what)),
            Err(Failure::Broken(what)) => format!("does not answer as a node: {}", show::plain(&what)),
        };
        silent.push(format!("the node of user {} at {} {why}", client.user(), client.socket().display()));
    }
    Ok(Nodes { found, silent })
}

/// A node in one line.
fn line(status: &Status) -> String {
    use show::bytes;
    let (rates, limits) = (&status.rates, &status.limits);
    let silent = status.stores.iter().filter(|store| !store.answering).count();
    format!(
        "{} node {}: {}; store {}/s in {:.0} requests/s; served {}/s in {:.0} opens/s; memory {}, disk {}{}\n",
        stamp(place::now()),
        status.pid,
        show::count_of(status.mounts.len() as u64, "mount"),
        bytes(rates.store_bytes_per_second as u64),
        rates.store_requests_per_second,
        bytes(rates.served_bytes_per_second as u64),
        rates.opens_per_second,
        bytes(limits.memory_used),
        bytes(limits.disk_used),
        if silent > 0 { "; A STORE DOES NOT ANSWER" } else { "" }
    )
}

/// A node in two dozen lines, without so many mounts of which nothing is to be said.
fn text(status: &Status, of_others: usize) -> String {
    use show::{bytes, count, count_of, line};
    let (tiers, store) = (&status.tiers, &status.store);
    let mut out = format!("node {} on {}, for {}\n", status.pid, line(&status.cache), show::age(status.uptime_seconds));
    for listing in &status.listing {
        let (url, path, since) = (line(&listing.url), line(&listing.path), (place::now() - listing.since).max(0.0));
        let names = count_of(listing.names, "name");
        out += &format!("  {path}  {url}\n    listing it since {since:.0} s: {names} so far\n");
    }
    status.mounts.iter().for_each(|mount| out += &mounted(mount));
    if of_others > 0 {
        let others = count_of(of_others as u64, "other mount");
        out += &format!("  {others} on this node too; what follows is of the whole node\n");
    }
    let hits = [("memory", &tiers.memory), ("disk", &tiers.disk), ("origin", &tiers.origin)];
    let all: u64 = hits.iter().map(|(_, tier)| tier.hits).sum();
    for (name, tier) in hits {
        let share = tier.hits as f64 * 100.0 / all.max(1) as f64;
        out += &format!("  {name:<7} {share:>5.1} % of {}, {}\n", count_of(all, "answer"), bytes(tier.bytes));
    }
    out += &format!(
        "  asked   {} ({} GET, {} HEAD, {} LIST), {}",
        count_of(store.requests, "request"),
        count(store.gets),
        count(store.heads),
        count(store.lists),
        bytes(store.bytes)
    );
    out += &format!(
        " for {} unique; {} throttled, {} repeated, {} given up\n",
        bytes(store.unique_bytes),
        count(store.throttled),
        count(store.retries),
        count(store.errors)
    );
    out += &sent(store);
    out += &waits(&status.waits);
    out += &now(status);
    out += &limits(&status.limits);
    out += &errors(status);
    out += &status.kept.as_ref().map_or_else(String::new, kept);
    out
}

/// A data set, and what was done with it.
fn mounted(mount: &Mount) -> String {
    use show::{bytes, count, count_of, line};
    let mut out = format!("  {}  {}\n    {}, ", line(&mount.path), line(&mount.url), count_of(mount.objects, "file"));
    out += &bytes(mount.bytes);
    out += &format!("; passthrough {}", mount.passthrough);
    for (is, word) in [(mount.local, "; read where it lies"), (mount.immutable, "; immutable")] {
        out += if is { word } else { "" };
    }
    if mount.odd_names > 0 {
        out += &format!("; {}", count_of(mount.odd_names, "odd name"));
    }
    out += &format!(
        "\n    opens: {} passed through, {} served",
        count(mount.opens_passed_through),
        count(mount.opens_served)
    );
    out += &format!(" ({} by the daemon)\n", bytes(mount.bytes_served));
    if let (Some(files), Some(bytes)) = (mount.kept_files, mount.kept_bytes) {
        out += &format!("    kept: {}\n", share((mount.objects, mount.bytes), (files, bytes)));
    }
    if mount.filling {
        let files = count_of(mount.filled_files, "file");
        out += &format!("    background fill: {files}, {}\n", bytes(mount.filled_bytes));
    }
    let age = (place::now() - mount.listed_at as f64).max(0.0);
    out += &format!("    listed {} ago", show::age(age));
    out += if mount.detached { "; detached, served until its files are closed\n" } else { "\n" };
    if let Some(failed) = &mount.refresh_failed {
        out += &format!("    the last refresh failed: {failed}\n");
    }
    out
}

/// How much of something is kept: files and bytes of it, and of these in the cache.
fn share((files, bytes): (u64, u64), (kept_files, kept_bytes): (u64, u64)) -> String {
    use show::count;
    // Not all of it before all of it is there.
    let share = (kept_bytes as f64 * 1000.0 / bytes.max(1) as f64).floor() / 10.0;
    let share = if kept_files == files { 100.0 } else { share };
    let share = format!("{share:.1} % of {}", show::bytes(bytes));
    if files == 1 { share } else { format!("{} of {} files, {share}", count(kept_files), count(files)) }
}

/// A file or a folder, and what is in it.
fn kept(all: &Kept) -> String {
    let mut out = format!("  kept    {}\n", share((all.files, all.bytes), (all.kept_files, all.kept_bytes)));
    for entry in &all.entries {
        let share = share((entry.files, entry.bytes), (entry.kept_files, entry.kept_bytes));
        out += &format!("    {:<32} {share}\n", entry.name);
    }
    let shown: u64 = all.entries.iter().map(|entry| entry.files).sum();
    if !all.entries.is_empty() && shown < all.files {
        out += &format!("    and {} in further names\n", show::count_of(all.files - shown, "file"));
    }
    out
}

/// What happens at the moment, and which stores answer.
fn now(status: &Status) -> String {
    use show::bytes;
    let rates = &status.rates;
    let mut out = format!(
        "  now     store {}/s in {:.0} requests/s, served {}/s in {:.0} opens/s\n",
        bytes(rates.store_bytes_per_second as u64),
        rates.store_requests_per_second,
        bytes(rates.served_bytes_per_second as u64),
        rates.opens_per_second
    );
    for StoreState { store, answering, silent_since, answered_at, failed_at, failure } in &status.stores {
        let state = match (answering, silent_since) {
            (true, _) if answered_at.is_none() && failed_at.is_none() => "was not asked yet".into(),
            (true, _) => "answers".into(),
            (false, Some(since)) => format!("DOES NOT ANSWER since {} UTC", stamp(*since)),
            (false, None) => "DOES NOT ANSWER".into(),
        };
        let last = answered_at.map_or_else(String::new, |at| format!(", last answer {} UTC", stamp(at)));
        out += &format!("  store   {store} {state}{last}\n");
        if let (Some(at), Some(failure)) = (failed_at, failure) {
            out += &format!("    last failure {} UTC: {}\n", stamp(*at), show::indented(failure));
        }
    }
    out
}

fn limits(limits: &Limits) -> String {
    use show::{bytes, count_of};
    format!(
        "  limits  memory {} of {} (index {}; besides, names {} mapped)\n  \
           disk    {} written, {} reserved, of {} in {}\n",
        bytes(limits.memory_used),
        bytes(limits.memory_bytes),
        bytes(limits.index_bytes),
        bytes(limits.names_bytes),
        bytes(limits.disk_written),
        bytes(limits.disk_used),
        bytes(limits.disk_bytes),
        count_of(limits.disk_files_used, "file")
    )
}

/// What went wrong last, and where all of it is written.
fn errors(status: &Status) -> String {
    let log = if status.log.path.is_empty() { "standard error" } else { &status.log.path };
    let mut out = format!("  log     {log} (what is at least {})\n", status.log.level);
    for record in &status.errors {
        out += &format!("    {} UTC {}\n", stamp(record.at), show::indented(&record.text));
    }
    out
}

/// How requests went out.
fn sent(store: &Store) -> String {
    use show::{bytes, count};
    let mut out = format!(
        "  sent    after {:.1} s for leave to ask (now {} at once), {:.1} s backing off; first byte after {:.1} ms",
        store.seconds_waiting,
        count(store.requests_limit),
        store.seconds_backing_off,
        store.first_byte_seconds_mean * 1e3
    );
    out += &format!(
        "; {} sent twice ({}, {} answered first)\n",
        count(store.hedged),
        bytes(store.hedged_bytes),
        count(store.hedges_won)
    );
    out
}

/// What readers waited for, the longest first.
fn waits(waits: &Waits) -> String {
    let mut all = [
        ("store bandwidth", waits.bandwidth_seconds),
        ("store requests", waits.requests_seconds),
        ("throttling", waits.throttling_seconds),
        ("errors", waits.errors_seconds),
        ("disk", waits.disk_seconds),
        ("CPU", waits.cpu_seconds),
        ("unknown", waits.unknown_seconds),
    ];
    all.sort_by(|left, right| right.1.total_cmp(&left.1));
    let total: f64 = all.iter().map(|(_, seconds)| seconds).sum();
    let parts = all.iter().filter(|(_, seconds)| *seconds >= total * 0.005 && *seconds > 0.0);
    let parts: Vec<String> =
        parts.map(|(cause, seconds)| format!("{cause} {:.0} %", seconds * 100.0 / total)).collect();
    match parts.is_empty() {
        true => "  waits   readers did not wait\n".into(),
        false => format!("  waits   readers waited {total:.1} s: {}\n", parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_shown_than_a_terminal_has_lines_for() {
        let text = "one\ntwo\nthree three\nfour\n";
        assert_eq!(cut(text, 24, 80), text);
        assert_eq!((cut(text, 5, 80), cut(text, 0, 0)), (text.into(), text.into()));
        let less = cut(text, 5, 6);
        assert_eq!(less, "one\ntwo\n... more than this terminal has lines for\n", "the third takes two rows");
    }

    #[test]
    fn a_mount_point_cannot_forge_a_line_of_the_status() {
        let mount = client::messages::Mount { path: "/mnt\n  log     forged".into(), ..Default::default() };
        let told = text(&Status { mounts: vec![mount], ..Status::default() }, 0);
        assert!(!told.contains("\n  log     forged"), "{told}");
    }

    #[test]
    fn a_store_that_nobody_asked_is_not_said_to_answer() {
        let store = StoreState { store: "s3".into(), answering: true, ..StoreState::default() };
        let told = |store: &StoreState| text(&Status { stores: vec![store.clone()], ..Status::default() }, 0);
        assert!(told(&store).contains("was not asked yet"), "{}", told(&store));
        let asked = StoreState { answered_at: Some(1.0), ..store };
        assert!(told(&asked).contains("answers, last answer"), "{}", told(&asked));
    }

    #[test]
    fn the_longest_wait_is_told_first_and_what_does_not_count_is_left_out() {
        let waited = Waits { requests_seconds: 3.0, disk_seconds: 7.0, cpu_seconds: 0.01, ..Waits::default() };
        assert_eq!(waits(&waited), "  waits   readers waited 10.0 s: disk 70 %, store requests 30 %\n");
        assert_eq!(waits(&Waits::default()), "  waits   readers did not wait\n");
    }
}
