//! How long a node and its mounts go on.

use crate::{place, show};
use client::messages::{Coming, Mount, Status};

/// A mount that is not gone on with yet.
pub fn coming(mount: &Coming, columns: usize) -> String {
    let since = (place::now() - mount.since).max(0.0);
    let waits_for = mount.waits_for.as_deref().map_or_else(|| "what it was mounted from".into(), show::line);
    super::place_of(columns, &mount.path, &mount.url) + &format!("    waits since {since:.0} s for {waits_for}\n")
}

/// Why nothing is asked of the store of a mount, if so.
pub fn refused(mount: &Mount) -> String {
    let why = mount.refused.as_deref().map(show::line);
    why.map_or_else(String::new, |why| format!("    only what is kept is read: {why}\n"))
}

/// Why its mounts end with it, if they do.
pub fn keeper(status: &Status) -> String {
    let why = status.keeper.state.strip_prefix("off: ").filter(|_| !status.mounts.is_empty());
    why.map_or_else(String::new, |why| format!("  these mounts end with this process: {}\n", show::line(why)))
}

/// Why it serves without the disk of its cache, if it does.
pub fn disk(status: &Status) -> String {
    let why = status.disk.strip_prefix("lost: ");
    why.map_or_else(String::new, |why| format!("  nothing of the cache folder can be had: {}\n", show::line(why)))
}

/// Until when the node goes on, where that isn't for ever.
pub fn lease(status: &Status) -> String {
    let Some(lease) = &status.lease else { return String::new() };
    let left = |end: f64| show::left(end - place::now());
    let credentials =
        lease.credentials_end_at.map_or_else(String::new, |end| format!("; its credentials in {}", left(end)));
    format!("  lease   ends in {}{credentials}\n", left(lease.ends_at))
}
