//! Orders in which jobs said that they will read, for people.

use crate::show::{self, bytes, count, count_of};
use client::messages::Order;

/// An order that a job said, and how far its reader is.
pub fn text(order: &Order) -> String {
    let Order { name, opened, skipped, left, ahead_files, ahead_bytes, resting } = order;
    let ahead = format!("{} ahead, {} of it asked for", count_of(*ahead_files, "file"), bytes(*ahead_bytes));
    let state = if *resting { "NOT FOLLOWED: nothing is asked for by it".into() } else { ahead };
    let skipped = if *skipped > 0 { format!(", {} left out", count(*skipped)) } else { String::new() };
    format!("    order `{}`: {} opened{skipped}, {} to come; {state}\n", show::line(name), count(*opened), count(*left))
}
