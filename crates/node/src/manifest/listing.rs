//! A listing on its way to a snapshot: every name in about 46 bytes and its path, sorted when all are there.
//!
//! Knows no folders. Memory for a name: 8 bytes for its place, 4 more while sorting; its bytes are `pieces`'s. Invariant: after [`Listing::arrange`] the paths are
//! in ascending order and different, and no path is both a file and the beginning of another.

use super::names::{Odd, SEPARATOR};
use super::pieces::Pieces;
use super::version::Packed;
use block::Result;
use std::cmp::Reverse;
use std::path::Path;

/// Bytes of a key or a version. Object stores allow 1,024 in a key, Linux 4,095 in a path; the limit keeps a
/// record within a piece.
pub const TEXT_BYTES_MAX: usize = 1 << 16;

/// One name of a listing.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// As [`names::place`] writes it: a separator at the end says folder marker.
    pub path: &'a [u8],
    pub size: u64,
    pub modified_ns: i64,
    pub version: Version<'a>,
    pub odd: Option<Odd>,
    /// The key below the prefix, where the path doesn't tell it.
    pub key: Option<&'a [u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Version<'a> {
    Packed(Packed),
    Text(&'a [u8]),
}

impl<'a> Version<'a> {
    pub fn of(text: &'a str) -> Version<'a> {
        Packed::pack(text).map_or(Version::Text(text.as_bytes()), Version::Packed)
    }
}

impl Record<'_> {
    pub fn marker(&self) -> bool {
        self.path.last() == Some(&SEPARATOR)
    }
}

#[derive(Default)]
pub struct Listing {
    pieces: Pieces,
    /// Places of the records.
    order: Vec<u64>,
}

impl Listing {
    /// Keep what doesn't fit into some memory in a file without a name, which takes room in this folder until this is dropped.
    pub fn spill_to(&mut self, folder: &Path) {
        self.pieces.spill_to(folder);
    }

    pub fn push(&mut self, record: &Record<'_>) -> Result<()> {
        self.order.push(self.pieces.push(record)?);
        Ok(())
    }

    /// Fail if some of it could not be read any more.
    pub fn check(&self) -> Result<()> {
        self.pieces.check()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn record(&self, number: usize) -> Record<'_> {
        self.pieces.record(self.order[number])
    }

    pub fn path(&self, number: usize) -> &[u8] {
        self.pieces.path(self.order[number])
    }

    /// Bring the records into the order of their paths, keep the newest of those that were listed twice, and rename files
    /// that stand where a folder is.
    pub fn arrange(&mut self) -> Result<()> {
        self.pieces.settle()?;
        self.sort();
        let pieces = &self.pieces;
        self.order.dedup_by(|later, first| pieces.path(*later) == pieces.path(*first));
        if self.rename()? {
            self.sort();
        }
        Ok(())
    }

    fn sort(&mut self) {
        let pieces = &self.pieces;
        self.order.sort_by(|&left, &right| {
            let paths = pieces.path(left).cmp(pieces.path(right));
            paths.then_with(|| Reverse(pieces.modified_ns(left)).cmp(&Reverse(pieces.modified_ns(right))))
        });
    }

    /// A file that is also a folder comes right before what the folder holds.
    fn rename(&mut self) -> Result<bool> {
        let both = |number: &usize| {
            let (path, next) = (self.path(*number), self.path(*number + 1));
            next.len() > path.len() && next[path.len()] == SEPARATOR && next.starts_with(path)
        };
        let files = |number: &usize| self.path(*number).last() != Some(&SEPARATOR);
        let found: Vec<usize> = (0..self.len().saturating_sub(1)).filter(files).filter(both).collect();
        for &number in &found {
            self.order[number] = self.pieces.rename(self.order[number])?;
        }
        Ok(!found.is_empty())
    }
}
