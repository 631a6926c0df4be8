//! Named columns of Parquet files, their widths, and which of them are read.
//!
//! Invariant: what was checked has distinct names, a width for each, and a column that is read.

use serde::{Deserialize, Serialize};

/// Rows of a row group where nothing is said and rows are small, as MLPerf Storage has them for DLRM.
const GROUP_ROWS: u64 = 6_144;
/// Bytes of a row group where nothing is said and rows are large.
const GROUP_BYTES: u64 = 32 << 20;
const COLUMNS_MAX: usize = 10_000;
/// A page says its length in 31 bits.
const PAGE_BYTES_MAX: u64 = (1 << 31) - 1;

/// Columns that lie side by side, named by counting on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Of one column its name; of several with the number of the first in braces, as in `feature_{000}`.
    pub name: String,
    /// Bytes of each in a row.
    pub bytes: Vec<u64>,
    /// Numbers of those that are read, as their names have them; of one column 0. All are, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<u64>>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub bytes: u64,
    pub is_read: bool,
}

impl Columns {
    /// What stands before the number, the number of the first, its digits, and what stands behind.
    fn counted(&self) -> Option<(&str, u64, usize, &str)> {
        let (before, rest) = self.name.split_once('{')?;
        let (digits, after) = rest.split_once('}')?;
        Some((before, digits.parse().ok()?, digits.len(), after))
    }

    fn each(&self) -> impl Iterator<Item = Column> + '_ {
        let counted = self.counted();
        self.bytes.iter().enumerate().map(move |(place, bytes)| {
            let (name, number) = match counted {
                Some((before, first, digits, after)) => {
                    let number = first + place as u64;
                    (format!("{before}{number:0digits$}{after}"), number)
                }
                None => (self.name.clone(), 0),
            };
            Column { name, bytes: *bytes, is_read: self.read.as_ref().is_none_or(|read| read.contains(&number)) }
        })
    }

    /// Columns as short as they can be said: those whose names count on are together.
    pub fn together(columns: &[Column]) -> Vec<Columns> {
        let mut found: Vec<Columns> = Vec::new();
        let mut rest = columns;
        while let Some(first) = rest.first() {
            let digits = first.name.len() - first.name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
            let (before, number) = first.name.split_at(first.name.len() - digits.min(9));
            let from: u64 = number.parse().unwrap_or(0);
            let follows = |place: usize| format!("{before}{:0width$}", from + place as u64, width = number.len());
            let is_next = |(place, column): &(usize, &Column)| !number.is_empty() && column.name == follows(*place);
            let count = rest.iter().enumerate().take_while(is_next).count().max(1);
            let (own, others) = rest.split_at(count);
            let (name, from) =
                if count == 1 { (first.name.clone(), 0) } else { (format!("{before}{{{number}}}"), from) };
            let read = (from..).zip(own).filter(|(_, column)| column.is_read).map(|(number, _)| number).collect();
            let read = if own.iter().all(|column| column.is_read) { None } else { Some(read) };
            found.push(Columns { name, bytes: own.iter().map(|column| column.bytes).collect(), read });
            rest = others;
        }
        found
    }
}

/// All of them, in their places.
pub fn all(runs: &[Columns]) -> Vec<Column> {
    runs.iter().flat_map(Columns::each).collect()
}

/// Rows of a row group, of a file of so many rows of so many bytes.
pub fn rows_of_group(said: Option<u64>, rows: u64, row_bytes: u64) -> u64 {
    said.unwrap_or_else(|| GROUP_ROWS.min(GROUP_BYTES / row_bytes.max(1))).clamp(1, rows.max(1))
}

/// What is wrong with columns of rows of so many bytes, in row groups of so many rows.
pub fn wrong(runs: &[Columns], row_bytes: f64, group_rows: u64) -> Option<String> {
    if runs.iter().map(|run| run.bytes.len()).sum::<usize>() > COLUMNS_MAX {
        return Some(format!("there are at most {COLUMNS_MAX} columns"));
    }
    for run in runs {
        let is_plain = !run.name.contains(['{', '}']);
        let first = run.counted().map(|(before, first, _, after)| (first, before.len() + after.len()));
        if run.name.is_empty()
            || run.bytes.is_empty()
            || is_plain != (run.bytes.len() == 1)
            || is_plain == first.is_some()
        {
            return Some(format!(
                "`{}` names no {} columns: several count from a number in braces",
                run.name,
                run.bytes.len()
            ));
        }
        let first = first.map_or(0, |(first, _)| first);
        let Some(end) = first.checked_add(run.bytes.len() as u64) else {
            return Some(format!("`{}` counts too far", run.name));
        };
        if let Some(number) = run.read.iter().flatten().find(|number| !(first..end).contains(number)) {
            return Some(format!("`{}` has no column {number} that could be read", run.name));
        }
    }
    let columns = all(runs);
    let names: std::collections::HashSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    if names.len() < columns.len() {
        return Some("two columns have one name".into());
    }
    let fits = |bytes: u64| bytes > 0 && group_rows.checked_mul(bytes).is_some_and(|page| page <= PAGE_BYTES_MAX);
    if let Some(column) = columns.iter().find(|column| !fits(column.bytes)) {
        return Some(format!("column `{}` takes from 1 byte to 2 GiB of a row group", column.name));
    }
    let sum: f64 = columns.iter().map(|column| column.bytes as f64).sum();
    if sum != row_bytes {
        return Some(format!("columns of {sum} bytes make no samples of {row_bytes}"));
    }
    (!columns.iter().any(|column| column.is_read)).then(|| "no column is read".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, bytes: u64, is_read: bool) -> Column {
        Column { name: name.into(), bytes, is_read }
    }

    #[test]
    fn columns_are_said_shortly_and_come_back_as_they_were() {
        let columns = [
            column("label", 4, true),
            column("f_008", 2, false),
            column("f_009", 8, true),
            column("f_010", 1, false),
            column("f_012", 1, false),
            column("f_13", 1, true),
            column("7", 3, true),
            column("8", 3, true),
            column("99", 3, true),
            column("100", 3, true),
            column("é", 3, false),
            column("n12345678901234567890", 3, true),
        ];
        let short = Columns::together(&columns);
        let names: Vec<&str> = short.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["label", "f_{008}", "f_012", "f_13", "{7}", "{99}", "é", "n12345678901234567890"]);
        assert_eq!((short[1].read.as_deref(), short[2].read.as_deref()), (Some(&[9][..]), Some(&[][..])));
        assert_eq!(all(&short), columns);
        assert_eq!(wrong(&short, 35.0, 10), None);
    }

    #[test]
    fn columns_that_make_no_sense_are_refused() {
        let run = |name: &str, bytes: &[u64], read: Option<&[u64]>| Columns {
            name: name.into(),
            bytes: bytes.to_vec(),
            read: read.map(<[u64]>::to_vec),
        };
        for (runs, what) in [
            (vec![run("a", &[1, 1], None)], "count from a number"),
            (vec![run("a{0}", &[1], None)], "count from a number"),
            (vec![run("a{x}", &[1, 1], None)], "count from a number"),
            (vec![run("a}{0", &[1, 1], None)], "count from a number"),
            (vec![run("", &[2], None)], "names no"),
            (vec![run("a", &[], None)], "names no"),
            (vec![run("a{0}", &[1, 1], Some(&[2]))], "no column 2"),
            (vec![run("a{18446744073709551615}", &[1, 1], None)], "too far"),
            (vec![run("a", &[1], None), run("a", &[1], None)], "one name"),
            (vec![run("a{0}", &[1, 0], None)], "from 1 byte"),
            (vec![run("a", &[u64::MAX], None)], "from 1 byte"),
            (vec![run("a", &[3], None)], "make no samples"),
            (vec![run("a", &[2], Some(&[]))], "no column is read"),
            (vec![run("a{0}", &[1; 10_001], None)], "at most"),
        ] {
            let found = wrong(&runs, 2.0, 10).unwrap_or_default();
            assert!(found.contains(what), "{runs:?}: {found}");
        }
    }
}
