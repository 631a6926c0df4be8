//! `stoker status`: what nodes do and hold.

use crate::args;
use crate::{mount, place, show};
use client::messages::{Status, Store, Waits};
use client::{Client, sockets};
use hyper::Method;
use std::process::ExitCode;

pub fn run(args: &args::Status) -> anyhow::Result<ExitCode> {
    let found = match &args.dir {
        Some(dir) => vec![mount::node_of(dir)?.1],
        None => nodes()?,
    };
    if args.json {
        for status in &found {
            println!("{}", serde_json::to_string(status)?);
        }
    } else if found.is_empty() {
        println!("no node is running; `stoker mount URL DIR` starts one");
    } else {
        found.iter().for_each(|status| print!("{}", text(status)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Every node of this user that answers.
fn nodes() -> anyhow::Result<Vec<Status>> {
    let sockets = sockets::all(&place::runtime()?);
    let ask = |socket| Client::new(socket).ask::<Status>(Method::GET, "/v1/status", &()).ok();
    Ok(sockets.into_iter().filter_map(ask).collect())
}

/// A node in a dozen lines.
fn text(status: &Status) -> String {
    use show::{bytes, count};
    let (tiers, store, limits) = (&status.tiers, &status.store, &status.limits);
    let mut out = format!("node {} on {}\n", status.pid, status.cache);
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
        if mount.filling {
            out +=
                &format!("    background fill: {} files, {}\n", count(mount.filled_files), bytes(mount.filled_bytes));
        }
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
        " for {} unique; {} throttled, {} repeated\n",
        bytes(store.unique_bytes),
        count(store.throttled),
        count(store.retries)
    );
    out += &sent(store);
    out += &waits(&status.waits);
    out += &format!(
        "  limits  memory {} of {}, disk {} of {} in {} files\n",
        bytes(limits.memory_used),
        bytes(limits.memory_bytes),
        bytes(limits.disk_used),
        bytes(limits.disk_bytes),
        count(limits.disk_files_used)
    );
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
