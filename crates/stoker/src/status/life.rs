//! How long a node and its mounts go on.

use crate::{place, show};
use client::messages::Status;

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
