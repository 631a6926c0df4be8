//! `stoker status`: what nodes do and hold.

mod cluster;
mod lent;
mod life;
mod nodes;
mod order;
pub mod pool;

use crate::{args, place, print, show};
use client::messages::{Dead, DeadMount, Kept, Limits, Mount, Status, Store, StoreState, Waits};
use daemon::journal::stamp;
use nodes::each_node;
pub use nodes::{Nodes, nodes};
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Said where there is nothing to say.
pub const NOBODY: &str = "no node is running; `stoker mount URL DIR` starts one";

/// Places before those of all cache folders, and behind them.
const FIRST: &str = "";
const LAST: &str = "\u{10ffff}";

/// Clears a terminal from its upper left corner on.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(args: &args::Status) -> anyhow::Result<ExitCode> {
    if let Some(hosts) = &args.hosts {
        return pool::run(args, hosts);
    }
    let in_place = args.watch && std::io::stdout().is_terminal() && !args.json;
    loop {
        // On a terminal all of it at once, each node in the place that it had before; else each as it answers.
        let (mut frame, mut failed) = (Vec::new(), Ok(()));
        let mut out = |place: &str, text: &str| match in_place {
            true => {
                frame.push((place.to_owned(), text.to_owned()));
                Ok(())
            }
            false => print::out(format_args!("{}", show::plain(text))),
        };
        let (mut alive, mut is_nobody) = (Vec::new(), true);
        let silent = each_node(args.dir.as_deref(), &mut |client, mut status| {
            is_nobody = false;
            // What others' nodes claim hides none of ours.
            if client.user() == rustix::process::getuid().as_raw() {
                alive.extend(status.mounts.iter().map(|mount| PathBuf::from(&mount.path)));
            }
            failed = one(args, &mut status, in_place).and_then(|text| out(&status.cache, &text));
            if failed.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        failed?;
        let dead = if args.dir.is_none() { ::mount::dead(&alive) } else { Vec::new() };
        if is_nobody && silent.is_empty() && !args.json {
            out(LAST, &format!("{NOBODY}\n"))?;
        }
        if !dead.is_empty() {
            out(LAST, &of_dead(args, dead)?)?;
        }
        match in_place {
            // What is said beside it would be cleared with it.
            true => silent.iter().try_for_each(|what| out(FIRST, &format!("{what}\n")))?,
            false => silent.iter().for_each(|what| note!("{what}")),
        }
        if in_place {
            frame.sort_by(|(one, _), (other, _)| one.cmp(other));
            let frame: String = frame.into_iter().map(|(_, text)| text).collect();
            let (rows, columns) = size(rustix::stdio::stdout());
            print::out(format_args!("{CLEAR}{}", show::plain(&cut(&frame, rows, columns))))?;
        }
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(args.interval);
    }
}

/// A node as it was asked for.
fn one(args: &args::Status, status: &mut Status, in_place: bool) -> anyhow::Result<String> {
    let of_others = if args.json { 0 } else { leave_out_others(status, args.dir.as_deref()) };
    Ok(match (args.json, args.watch && !in_place) {
        (true, _) => format!("{}\n", serde_json::to_string(status)?),
        (_, true) => line(status),
        _ => text(status, of_others, columns()),
    })
}

/// Mounts that nodes left which were killed, and how they are taken away.
fn of_dead(args: &args::Status, dead: Vec<(PathBuf, String)>) -> anyhow::Result<String> {
    if args.json {
        let of = |(path, url): (PathBuf, String)| DeadMount { path: path.to_string_lossy().into_owned(), url };
        let dead = Dead { dead: dead.into_iter().map(of).collect() };
        return Ok(format!("{}\n", serde_json::to_string(&dead)?));
    }
    let mut out = "dead mounts, whose node ended without them\n".to_owned();
    for (path, url) in dead {
        let names = [&*show::line(&path.to_string_lossy()), &*show::line(&url)];
        out += &show::fitting(columns(), names, |[path, url]| format!("  {path}  {url}\n"));
        out += &format!("    to take it away: stoker umount {}\n", block::quoted(&path));
    }
    Ok(out)
}

/// Leave in what is said of one mount; the count of the others.
fn leave_out_others(status: &mut Status, dir: Option<&Path>) -> usize {
    let all = status.mounts.len();
    let Some(path) = dir.and_then(|dir| ::mount::named(dir).ok()) else { return 0 };
    let known = ::mount::known_as(&path);
    let is_around = |mount: &&Mount| !mount.detached && known.iter().any(|known| known.is_in(Path::new(&mount.path)));
    let around = status.mounts.iter().filter(is_around);
    if let Some(meant) = around.max_by_key(|mount| mount.path.len()).map(|mount| mount.id) {
        status.mounts.retain(|mount| mount.id == meant);
    }
    all - status.mounts.len()
}

/// Columns of a terminal that doesn't say how many it has.
const COLUMNS: usize = 80;

/// Columns that rows are to fit into: what is read by a program is left whole.
fn columns() -> usize {
    match size(rustix::stdio::stdout()) {
        _ if !std::io::stdout().is_terminal() => usize::MAX,
        (_, 0) => COLUMNS,
        (_, columns) => columns,
    }
}

/// Rows and columns of a terminal; none where that isn't known.
fn size(terminal: impl std::os::fd::AsFd) -> (usize, usize) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes into the structure that it is given, which lives until it returns.
    unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    (size.ws_row.into(), size.ws_col.into())
}

/// The lines that fit into so many rows, one of which stays free for the cursor: more would scroll it. A terminal of no
/// size is of any.
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
fn text(status: &Status, of_others: usize, columns: usize) -> String {
    use show::{bytes, count, count_of, fitting, line};
    let (tiers, store, age) = (&status.tiers, &status.store, show::age(status.uptime_seconds));
    let mut out =
        fitting(columns, [&line(&status.cache)], |[cache]| format!("node {} on {cache}, for {age}\n", status.pid));
    for set in &status.serving {
        out += &cluster::serving(set);
    }
    for listing in &status.listing {
        let since = (place::now() - listing.since).max(0.0);
        let names = count_of(listing.names, "name");
        out += &place_of(columns, &listing.path, &listing.url);
        out += &format!("    listing it since {since:.0} s: {names} so far\n");
    }
    status.coming.iter().for_each(|mount| out += &life::coming(mount, columns));
    status.mounts.iter().for_each(|mount| out += &mounted(mount, columns));
    if of_others > 0 {
        let others = count_of(of_others as u64, "other mount");
        out += &format!("  {others} on this node too; what follows is of the whole node\n");
    }
    out += &lent::text(status, columns);
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
    out += &now(status, columns);
    out += &status.cluster.as_ref().map(cluster::text).unwrap_or_default();
    out += &life::lease(status);
    out += &limits(&status.limits, status.store.unkept_bytes);
    out += &life::disk(status);
    out += &life::keeper(status);
    out += &errors(status, columns);
    out += &status.kept.as_ref().map_or_else(String::new, |all| kept(all, columns));
    out
}

/// What is mounted where.
fn place_of(columns: usize, path: &str, url: &str) -> String {
    show::fitting(columns, [&show::line(path), &show::line(url)], |[path, url]| format!("  {path}  {url}\n"))
}

/// A data set, and what was done with it.
fn mounted(mount: &Mount, columns: usize) -> String {
    use show::{bytes, count, count_of};
    let mut out = place_of(columns, &mount.path, &mount.url);
    out += &format!("    {}, ", count_of(mount.objects, "file"));
    out += &bytes(mount.bytes);
    out += &format!("; passthrough {}", mount.passthrough);
    for (is, word) in [(mount.local, "; read where it lies"), (mount.immutable, "; immutable")] {
        out += if is { word } else { "" };
    }
    if mount.restarts > 0 {
        out += &format!("; restarted {}", count_of(mount.restarts.into(), "time"));
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
    out += &mount.orders.iter().map(order::text).collect::<String>();
    let age = (place::now() - mount.listed_at as f64).max(0.0);
    out += &format!("    listed {} ago", show::age(age));
    out += match (mount.detached, mount.held_elsewhere) {
        (_, true) => "; unmounted here, and held where a part of it is bound or in another mount namespace\n",
        (true, false) => "; detached, served until its files are closed\n",
        (false, false) => "\n",
    };
    if let Some(failed) = &mount.refresh_failed {
        out += &format!("    the last refresh failed: {failed}\n");
    }
    out += &life::refused(mount);
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

/// Names take so many columns where there is room, so that what is said of them stands in one.
const NAME_COLUMNS: usize = 32;

/// A file or a folder, and what is in it.
fn kept(all: &Kept, columns: usize) -> String {
    let mut out = format!("  kept    {}\n", share((all.files, all.bytes), (all.kept_files, all.kept_bytes)));
    for entry in &all.entries {
        let share = share((entry.files, entry.bytes), (entry.kept_files, entry.kept_bytes));
        let width = NAME_COLUMNS.min(columns.saturating_sub(5 + share.chars().count()));
        let row = |[name]: [&str; 1]| format!("    {name:<width$} {share}\n");
        out += &show::fitting(columns, [&show::line(&entry.name)], row);
    }
    let shown: u64 = all.entries.iter().map(|entry| entry.files).sum();
    if !all.entries.is_empty() && shown < all.files {
        out += &format!("    and {} in further names\n", show::count_of(all.files - shown, "file"));
    }
    out
}

/// What happens at the moment, and which stores answer.
fn now(status: &Status, columns: usize) -> String {
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
        out += &show::fitting(columns, [store], |[store]| format!("  store   {store} {state}{last}\n"));
        if let (Some(at), Some(failure)) = (failed_at, failure) {
            out += &format!("    last failure {} UTC: {}\n", stamp(*at), show::indented(failure));
        }
    }
    out
}

fn limits(limits: &Limits, unkept: u64) -> String {
    use show::{bytes, count_of};
    let unkept = if unkept > 0 { format!("; {} read found no room", bytes(unkept)) } else { String::new() };
    format!(
        "  limits  memory {} of {} (index {}; besides, names {} mapped)\n  \
           disk    {} written, {} reserved, of {} in {}{unkept}\n",
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
fn errors(status: &Status, columns: usize) -> String {
    let (log, level) =
        (if status.log.path.is_empty() { "standard error" } else { &status.log.path }, &status.log.level);
    let mut out = show::fitting(columns, [log], |[log]| format!("  log     {log} (what is at least {level})\n"));
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
        ("other members", waits.peer_seconds),
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
    use client::messages::KeptEntry;

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
        let shown = text(&Status { mounts: vec![mount], ..Status::default() }, 0, COLUMNS);
        assert!(!shown.contains("\n  log     forged"), "{shown}");
    }

    #[test]
    fn what_is_kept_fits_into_a_narrow_terminal() {
        let entry = |name: &str| KeptEntry { name: name.into(), files: 20, bytes: 1 << 30, ..KeptEntry::default() };
        let all = Kept { entries: vec![entry("short"), entry(&"long".repeat(12))], ..Kept::default() };
        for columns in [50, 80] {
            for line in kept(&all, columns).lines().skip(1) {
                assert!(line.chars().count() <= columns && line.ends_with("of 1.07 GB"), "{columns}: {line}");
            }
        }
    }

    #[test]
    fn a_store_that_nobody_asked_is_not_said_to_answer() {
        let store = StoreState { store: "s3".into(), answering: true, ..StoreState::default() };
        let shown = |store: &StoreState| text(&Status { stores: vec![store.clone()], ..Status::default() }, 0, COLUMNS);
        assert!(shown(&store).contains("was not asked yet"), "{}", shown(&store));
        let asked = StoreState { answered_at: Some(1.0), ..store };
        assert!(shown(&asked).contains("answers, last answer"), "{}", shown(&asked));
    }

    #[test]
    fn the_longest_wait_is_shown_first_and_what_does_not_count_is_left_out() {
        let waited = Waits { requests_seconds: 3.0, disk_seconds: 7.0, cpu_seconds: 0.01, ..Waits::default() };
        assert_eq!(waits(&waited), "  waits   readers waited 10.0 s: disk 70 %, store requests 30 %\n");
        assert_eq!(waits(&Waits::default()), "  waits   readers did not wait\n");
    }
}
