//! Orders in which jobs said that they will read, for people.

use crate::show::{self, bytes, count, count_of};
use client::messages::Order;

/// An order that a job said, and how far its reader is.
pub fn text(order: &Order) -> String {
    let Order { name, source, opened, skipped, left, misses, ahead_files, ahead_bytes, resting } = order;
    let known = match source.as_str() {
        "peeked" => " (its sampler was looked at)",
        "formula" => " (from opens alone, as a sampler deals)",
        "repeat" => " (from opens alone, as the epoch before)",
        _ => "",
    };
    let ahead = format!("{} ahead, {} of it asked for", count_of(*ahead_files, "file"), bytes(*ahead_bytes));
    let state = if *resting { "NOT FOLLOWED: nothing is asked for by it".into() } else { ahead };
    let skipped = if *skipped > 0 { format!(", {} left out", count(*skipped)) } else { String::new() };
    let missed = if *misses > 0 { format!(", {} missed", count(*misses)) } else { String::new() };
    let (name, opened, left) = (show::line(name), count(*opened), count(*left));
    format!("    order `{name}`{known}: {opened} opened{skipped}{missed}, {left} to come; {state}\n")
}
