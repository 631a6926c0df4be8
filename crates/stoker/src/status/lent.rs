//! What programs read without a mount.

use super::order;
use crate::{place, show};
use client::messages::{Lending, Opened, Status};

/// The data sets that they have open, and what they are lent; nothing where none ever did.
pub fn text(status: &Status, columns: usize) -> String {
    let sets: String = status.opened.iter().map(|set| opened(set, columns)).collect();
    sets + &lent(&status.lending)
}

fn opened(set: &Opened, columns: usize) -> String {
    use show::{bytes, count_of};
    let row = |[url]: [&str; 1]| format!("  {url}  without a mount\n");
    let mut out = show::fitting(columns, [&show::line(&set.url)], row);
    let (files, connections) = (count_of(set.objects, "file"), count_of(set.connections, "connection"));
    out += &format!("    {files}, {}; read by {connections}\n", bytes(set.bytes));
    out += &set.orders.iter().map(order::text).collect::<String>();
    out + &format!("    listed {} ago\n", show::age((place::now() - set.listed_at as f64).max(0.0)))
}

fn lent(lending: &Lending) -> String {
    use show::{bytes, count, count_of};
    let Lending { files_lent, files_copied, bytes_copied, lent_files, lent_bytes, lent_memory, .. } = lending;
    if files_lent + files_copied == 0 {
        return String::new();
    }
    let now =
        format!("{} ({}) and {} of memory now", count_of(*lent_files, "file"), bytes(*lent_bytes), bytes(*lent_memory));
    format!(
        "  lent    {now}; so far {} lent, {} copied ({})\n",
        count(*files_lent),
        count(*files_copied),
        bytes(*bytes_copied)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_open_without_a_mount_is_shown_with_what_is_lent_of_it() {
        let mut status = Status::default();
        assert_eq!(text(&status, usize::MAX), "");
        let listed_at = place::now() as i64 - 90;
        status.opened = vec![Opened {
            url: "s3://b/\u{1b}x".into(),
            objects: 2,
            bytes: 3000,
            listed_at,
            connections: 1,
            orders: Vec::new(),
        }];
        status.lending = Lending {
            files_lent: 1200,
            files_copied: 3,
            bytes_copied: 300,
            lent_files: 1,
            lent_bytes: 5,
            lent_memory: 7,
            connections: 1,
        };
        let shown = text(&status, usize::MAX);
        assert!(shown.starts_with("  s3://b/") && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.contains("    2 files, 3.00 kB; read by 1 connection\n    listed "), "{shown}");
        assert!(
            shown.ends_with("  lent    1 file (5 B) and 7 B of memory now; so far 1,200 lent, 3 copied (300 B)\n"),
            "{shown}"
        );
    }
}
