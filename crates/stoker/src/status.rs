//! `stoker status`: what nodes do and hold.

use crate::{args, mount, place, show};
use client::messages::{Kept, Limits, Place, Status, Store, StoreState, Waits};
use client::{Client, Failure};
use daemon::journal::stamp;
use hyper::Method;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// Said where there is nothing to say.
pub const NOBODY: &str = "no node is running; `stoker mount URL DIR` starts one";

/// Clears a terminal from its upper left corner on.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(args: &args::Status) -> anyhow::Result<ExitCode> {
    let in_place = args.watch && std::io::stdout().is_terminal() && !args.json;
    loop {
        let Nodes { found, silent } = nodes(args.dir.as_deref())?;
        let mut out = String::new();
        for (_, status) in &found {
            out += &match (args.json, args.watch && !in_place) {
                (true, _) => format!("{}\n", serde_json::to_string(status)?),
                (_, true) => line(status),
                _ => text(status),
            };
        }
        if found.is_empty() && silent.is_empty() && !args.json {
            out += &format!("{NOBODY}\n");
        }
        let out = show::plain(&out);
        silent.iter().for_each(|what| eprintln!("{what}"));
        let mut standard = std::io::stdout().lock();
        let shown = write!(standard, "{}{out}", if in_place { CLEAR } else { "" }).and_then(|()| standard.flush());
        // Whoever looked has gone.
        if !args.watch || shown.is_err() {
            return Ok(ExitCode::SUCCESS);
        }
        drop(standard);
        std::thread::sleep(args.interval);
    }
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
            let place = Place { path: path.to_string_lossy().into_owned(), ..Place::default() };
            status.kept = Some(client.ask(Method::POST, "/v1/kept", &place).map_err(show::refused)?);
        }
        return Ok(Nodes { found: vec![(client, status)], silent: Vec::new() });
    }
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (client, status) in Client::survey(place::nodes()?).map_err(show::refused)? {
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
    use show::{bytes, count};
    let (rates, limits) = (&status.rates, &status.limits);
    let silent = status.stores.iter().filter(|store| !store.answering).count();
    format!(
        "{} node {}: {} mounts; store {}/s in {:.0} requests/s; served {}/s in {:.0} opens/s; memory {}, disk {}{}\n",
        stamp(place::now()),
        status.pid,
        count(status.mounts.len() as u64),
        bytes(rates.store_bytes_per_second as u64),
        rates.store_requests_per_second,
        bytes(rates.served_bytes_per_second as u64),
        rates.opens_per_second,
        bytes(limits.memory_used),
        bytes(limits.disk_used),
        if silent > 0 { "; A STORE DOES NOT ANSWER" } else { "" }
    )
}

/// A node in two dozen lines.
fn text(status: &Status) -> String {
    use show::{bytes, count};
    let (tiers, store) = (&status.tiers, &status.store);
    let mut out = format!("node {} on {}, for {}\n", status.pid, status.cache, show::age(status.uptime_seconds));
    for mount in &status.mounts {
        out += &format!("  {}  {}\n    {} files, {}", mount.path, mount.url, count(mount.objects), bytes(mount.bytes));
        out += &format!("; passthrough {}", mount.passthrough);
        for (is, word) in [(mount.local, "; read where it lies"), (mount.immutable, "; immutable")] {
            out += if is { word } else { "" };
        }
        if mount.odd_names > 0 {
            out += &format!("; {} odd names", count(mount.odd_names));
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
            out +=
                &format!("    background fill: {} files, {}\n", count(mount.filled_files), bytes(mount.filled_bytes));
        }
        let age = (place::now() - mount.listed_at as f64).max(0.0);
        out += &format!("    names as they were {} ago", show::age(age));
        out += if mount.detached { "; detached, served until its files are closed\n" } else { "\n" };
        if let Some(failed) = &mount.refresh_failed {
            out += &format!("    the last refresh failed: {failed}\n");
        }
    }
    let hits = [("memory", &tiers.memory), ("disk", &tiers.disk), ("origin", &tiers.origin)];
    let all: u64 = hits.iter().map(|(_, tier)| tier.hits).sum();
    for (name, tier) in hits {
        let share = tier.hits as f64 * 100.0 / all.max(1) as f64;
        out += &format!("  {name:<7} {share:>5.1} % of {} answers, {}\n", count(all), bytes(tier.bytes));
    }
    out += &format!(
        "  store   {} requests ({} GET, {} HEAD, {} LIST), {}",
        count(store.requests),
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
        out += &format!("    and {} files in further names\n", show::count(all.files - shown));
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
    use show::{bytes, count};
    format!(
        "  limits  memory {} of {} (index {}; besides, names {} mapped)\n  \
           disk    {} written, {} reserved, of {} in {} files\n",
        bytes(limits.memory_used),
        bytes(limits.memory_bytes),
        bytes(limits.index_bytes),
        bytes(limits.names_bytes),
        bytes(limits.disk_written),
        bytes(limits.disk_used),
        bytes(limits.disk_bytes),
        count(limits.disk_files_used)
    )
}

/// What went wrong last, and where all of it is written.
fn errors(status: &Status) -> String {
    let log = if status.log.path.is_empty() { "standard error" } else { &status.log.path };
    let mut out = format!("  log     {log} ({} and graver)\n", status.log.level);
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
    fn the_longest_wait_is_told_first_and_what_does_not_count_is_left_out() {
        let waited = Waits { requests_seconds: 3.0, disk_seconds: 7.0, cpu_seconds: 0.01, ..Waits::default() };
        assert_eq!(waits(&waited), "  waits   readers waited 10.0 s: disk 70 %, store requests 30 %\n");
        assert_eq!(waits(&Waits::default()), "  waits   readers did not wait\n");
    }
}
