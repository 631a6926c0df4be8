//! How samples lie in one file: where each begins and ends, or which row group it is of.
//!
//! It reads nothing. Invariant: samples of a file follow each other without gaps, but for what columns leave out.

use std::ops::Range;

use targets::Listed;

use super::footer::Group;

/// How samples lie in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spans {
    /// The file is one sample.
    Whole,
    /// So many samples of one length, one after the other.
    Even { count: u64, bytes: u64 },
    /// Where each begins, and where the last ends.
    Starts(Vec<u64>),
    /// Rows that are read together, though not all of their bytes.
    Groups(Vec<Group>),
}

/// As many samples as it has, all of one length.
pub fn even(bytes: u64, count: u64) -> Spans {
    if count <= 1 || bytes < count { Spans::Whole } else { Spans::Even { count, bytes: bytes / count } }
}

impl Spans {
    pub fn count(&self) -> u64 {
        match self {
            Spans::Whole => 1,
            Spans::Even { count, .. } => *count,
            Spans::Starts(starts) => starts.len() as u64 - 1,
            Spans::Groups(groups) => groups.last().map_or(0, |group| group.rows.end),
        }
    }

    pub fn groups(&self) -> &[Group] {
        if let Spans::Groups(groups) = self { groups } else { &[] }
    }

    /// Bytes of the file that its samples are read from.
    pub fn wanted(&self, file: &Listed) -> u64 {
        match self {
            Spans::Groups(groups) => groups.iter().map(Group::bytes).sum(),
            _ => file.bytes,
        }
    }

    pub fn range(&self, file: &Listed, samples: Range<u64>) -> Range<u64> {
        match self {
            Spans::Whole | Spans::Groups(_) => 0..file.bytes,
            Spans::Even { bytes, .. } => samples.start * bytes..samples.end * bytes,
            Spans::Starts(starts) => starts[samples.start as usize]..starts[samples.end as usize],
        }
    }
}
