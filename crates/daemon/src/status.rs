//! What a node does and holds, as the messages of the control socket tell it. It measures nothing itself.

use crate::Host;
use block::Cause;
use client::messages::{
    Cluster, Keeper, Kept, KeptEntry, Lease, Limits, Listing, Member, Mount, Serving, Status, Store, Tier, Tiers, Waits,
};
use mount::Places;
use std::sync::atomic::Ordering::Relaxed;

/// What a node does and holds.
pub fn status(host: &Host) -> Status {
    let figures = host.node().figures();
    let places = Places::now();
    let mounts: Vec<Mount> = host.mounts().iter().map(|mounted| mounted.status(&places)).collect();
    let tier = |(hits, bytes)| Tier { hits, bytes };
    let disk = host.mounts().iter().fold(figures.disk, |disk, mounted| mounted.add_hits(disk));
    let (rates, stores) = host.felt(&figures);
    Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        cache: host.node().settings().cache.display().to_string(),
        disk: host.node().lost().map_or_else(|| "on".into(), |why| format!("lost: {why}")),
        tiers: Tiers { memory: tier(figures.memory), disk: tier(disk), origin: tier(figures.origin) },
        store: store_status(&figures),
        waits: waits(&figures),
        limits: Limits {
            memory_bytes: figures.memory_limit,
            memory_used: memory_used(),
            blocks_bytes: figures.blocks.1,
            blocks_used: figures.blocks.0,
            index_bytes: figures.index_bytes,
            names_bytes: figures.names_bytes,
            disk_bytes: figures.limits.bytes,
            disk_used: figures.used.bytes,
            disk_written: figures.used.written,
            disk_files: figures.limits.files,
            disk_files_used: figures.used.files,
            disk_free_min: figures.limits.free_bytes_min,
        },
        rates,
        stores,
        cluster: cluster(host.node()),
        lease: host
            .lease()
            .map(crate::Lease::terms)
            .map(|terms| Lease { ends_at: terms.ends, credentials_end_at: terms.credentials_end }),
        uptime_seconds: host.uptime(),
        log: host.journal().log(),
        errors: host.journal().errors(),
        mounts,
        coming: host.coming(),
        serving: host.served().iter().map(|view| serving(view)).collect(),
        opened: host.desk.opened(),
        lending: host.desk.figures(),
        listing: host.listings().iter().map(|listing| listed(listing)).collect(),
        kept: None,
        ending: host.is_ending(),
        keeper: keeper(
            host.mounts().iter().find_map(|mounted| mounted.ends_with_this_process()),
            host.keeper().map(|keeper| keeper.who()),
        ),
    }
}

/// Whether mounts outlive their process: if they can, and by whom.
fn keeper(cant: Option<&str>, who: Option<Result<Option<u32>, String>>) -> Keeper {
    let why_not = match who {
        _ if cant.is_some() => cant.unwrap_or_default().into(),
        Some(Ok(pid)) => return Keeper { state: "on".into(), pid },
        Some(Err(why)) => why,
        None => "this node runs in the foreground".into(),
    };
    Keeper { state: format!("off: {why_not}"), pid: None }
}

fn serving(view: &node::View) -> Serving {
    let (totals, fill) = (view.totals(), view.fill());
    Serving {
        url: view.url().into(),
        objects: totals.files,
        bytes: totals.bytes,
        listed_at: view.manifest().listed_ns() / 1_000_000_000,
        filling: fill.is_on(),
        filled_files: fill.files.load(Relaxed),
        filled_bytes: fill.bytes.load(Relaxed),
    }
}

fn listed(listing: &crate::host::Listing) -> Listing {
    let names = listing.names.load(Relaxed);
    Listing { url: listing.url.clone(), path: listing.path.clone(), since: listing.since, names }
}

/// What a path holds, as [`client::messages::Kept`].
pub fn kept(all: node::kept::Kept, entries: Vec<node::kept::Entry>) -> Kept {
    let entry = |entry: node::kept::Entry| {
        let node::kept::Kept { files, bytes, kept_files, kept_bytes } = entry.kept;
        let name = if entry.is_folder { format!("{}/", entry.name) } else { entry.name };
        KeptEntry { name, files, bytes, kept_files, kept_bytes }
    };
    let node::kept::Kept { files, bytes, kept_files, kept_bytes } = all;
    Kept { files, bytes, kept_files, kept_bytes, entries: entries.into_iter().map(entry).collect() }
}

fn waits(figures: &node::Figures) -> Waits {
    let on = |cause| figures.waits.iter().find(|(known, _)| *known == cause).map_or(0.0, |(_, seconds)| *seconds);
    Waits {
        bandwidth_seconds: on(Cause::Bandwidth),
        requests_seconds: on(Cause::Requests),
        throttling_seconds: on(Cause::Throttling),
        errors_seconds: on(Cause::Errors),
        peer_seconds: on(Cause::Peer),
        disk_seconds: on(Cause::Disk),
        cpu_seconds: on(Cause::Cpu),
        unknown_seconds: on(Cause::Unknown),
    }
}

fn store_status(figures: &node::Figures) -> Store {
    let sum = |count: fn(&store::Counts) -> u64| figures.stores.iter().map(|(_, counts)| count(counts)).sum::<u64>();
    let (gets, heads, lists) = (sum(|counts| counts.gets), sum(|counts| counts.heads), sum(|counts| counts.lists));
    let answers: u64 = figures.stores.iter().flat_map(|(_, counts)| counts.first_byte).sum();
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    Store {
        requests: gets + heads + lists,
        gets,
        heads,
        lists,
        bytes: sum(|counts| counts.bytes),
        unique_bytes: figures.unique_bytes,
        unkept_bytes: figures.unkept_bytes,
        throttled: sum(|counts| counts.throttled),
        retries: sum(|counts| counts.retries),
        errors: sum(|counts| counts.errors),
        skipped_names: sum(|counts| counts.skipped),
        weak_versions: sum(|counts| counts.weak),
        in_flight: sum(|counts| counts.in_flight),
        seconds_waiting: seconds(sum(|counts| counts.waited_ns)),
        seconds_backing_off: seconds(sum(|counts| counts.backed_off_ns)),
        hedged: sum(|counts| counts.hedged),
        hedged_bytes: sum(|counts| counts.hedged_bytes),
        hedges_won: sum(|counts| counts.hedges_won),
        requests_limit: figures.requests_limit,
        first_byte_seconds_mean: seconds(sum(|counts| counts.first_byte_ns)) / answers.max(1) as f64,
    }
}

/// The cluster that the node is a member of.
fn cluster(node: &node::Node) -> Option<Cluster> {
    let (membership, lines) = (node.cluster()?, node.stack().lines()?);
    let (roster, figures) = (lines.roster(), lines.figures());
    let member = |seat: &peer::Seat| Member {
        name: seat.name.clone(),
        address: seat.address.clone(),
        weight: seat.weight,
        me: seat.id == roster.me(),
        answering: lines.answers(seat.id),
        reason: lines.reason(seat.id),
    };
    Some(Cluster {
        members_from: membership.members.clone(),
        members_trouble: roster.trouble().map(Into::into),
        encrypted: membership.is_encrypted,
        members: roster.seats().into_iter().map(member).collect(),
        had_bytes: figures.had.get().1,
        served_bytes: figures.served.get().1,
        placed: lines.placed(),
        around: figures.around.load(Relaxed),
        not_mine: figures.not_mine.load(Relaxed),
        broken: figures.broken.load(Relaxed),
        damaged: figures.damaged.load(Relaxed),
    })
}

/// Anonymous memory of this process, as the kernel counts it.
fn memory_used() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).map_or(0, |kib: u64| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_is_on_only_while_somebody_holds_mounts_that_can_go_on() {
        for (pid, told) in [(Some(7), keeper(None, Some(Ok(Some(7))))), (None, keeper(None, Some(Ok(None))))] {
            assert_eq!((&*told.state, told.pid), ("on", pid));
        }
        for (told, why) in [
            (keeper(None, Some(Err("it is gone".into()))), "off: it is gone"),
            (keeper(None, None), "off: this node runs in the foreground"),
            (keeper(Some("its names are not held"), Some(Ok(Some(7)))), "off: its names are not held"),
        ] {
            assert!(told.state.starts_with(why) && told.pid.is_none(), "{told:?}");
        }
    }
}
