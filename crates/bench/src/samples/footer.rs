//! Where the columns of a Parquet file lie, as its footer says it in Thrift's compact protocol.
//!
//! It reads no column and knows no type, encoding or compression: a column of a row group is a range of bytes.
//! Invariants: a footer is a stranger's, and reading it ends in time and memory of its length, whatever it says; a range
//! that is given lies in the file, in front of the footer.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Range;

use block::{Error, Result};
use targets::{Listed, Opened};
use workload::Files;

/// Rows that are read together, and where in the file what is wanted of them lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Numbers of its rows in the file.
    pub rows: Range<u64>,
    /// Columns that lie side by side are one range.
    pub ranges: Vec<Range<u64>>,
}

impl Group {
    /// Bytes of all that is wanted.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

const MAGIC: &[u8] = b"PAR1";
/// In its place where the footer is encrypted.
const MAGIC_ENCRYPTED: &[u8] = b"PARE";

/// The end of a file: the length of the footer, and the magic.
const TAIL: usize = 8;
/// The first read of a file takes so much of its end: most footers are in it, and a store is asked once.
const GUESS: u64 = 64 << 10;
/// A column of a row group takes some 50 bytes of it: room for two million.
const FOOTER_MAX: u64 = 128 << 20;
/// Rows take no bytes where all are alike, so that the length of a file bounds nothing.
const ROWS_MAX: u64 = 1 << 32;

/// Columns that are to be read.
pub enum Wanted {
    /// The leading ones whose bytes come nearest to a share of all.
    Share(f64),
    /// Those of these names, wherever they lie.
    Named(Vec<String>),
}

impl Wanted {
    pub fn of(files: &Files) -> Wanted {
        if files.columns.is_empty() {
            return Wanted::Share(files.share());
        }
        let read = files.named_columns().into_iter().filter(|column| column.is_read);
        Wanted::Named(read.map(|column| column.name).collect())
    }
}

/// The row groups of a file, with the columns that are wanted.
pub fn groups(file: &Listed, opened: &mut dyn Opened, wanted: &Wanted) -> Result<Vec<Group>> {
    let broken = |what: &str| {
        Error::corrupt(format!("this is no Parquet file that can be read: {what}"), &file.name)
            .hint("it is damaged or was cut: make it anew, or take it out of the set")
    };
    let mut end = vec![0; GUESS.min(file.bytes) as usize];
    let count = opened.read_at(file.bytes - end.len() as u64, &mut end)?;
    if count < end.len() || count < MAGIC.len() + TAIL {
        return Err(broken("it is too short"));
    }
    let (length, magic) = end[count - TAIL..].split_at(4);
    if magic != MAGIC {
        let is_encrypted = magic == MAGIC_ENCRYPTED;
        return Err(broken(if is_encrypted { "its footer is encrypted" } else { "its end is not that of one" }));
    }
    let length = u64::from(u32::from_le_bytes(length.try_into().expect("four bytes")));
    let limit = file.bytes - TAIL as u64;
    let start = limit.checked_sub(length).filter(|start| *start >= MAGIC.len() as u64 && length <= FOOTER_MAX);
    let start = start.ok_or_else(|| broken("its footer can't be so long"))?;
    let mut footer = end[..count - TAIL].to_vec();
    if length as usize <= footer.len() {
        footer.drain(..footer.len() - length as usize);
    } else {
        footer = vec![0; length as usize];
        if opened.read_at(start, &mut footer)? < footer.len() {
            return Err(broken("it ended within its footer"));
        }
    }
    let found = Thrift { rest: &footer }.footer().ok_or_else(|| broken("its footer makes no sense"))?;
    let first = found.first().map_or(&[][..], |group| &group.columns);
    let places = match wanted {
        Wanted::Share(share) => (0..leading(&found, first.len(), *share)).collect(),
        Wanted::Named(_) if found.is_empty() => Vec::new(),
        Wanted::Named(names) => named(first, names).map_err(|name| {
            Error::missing(format!("a Parquet file of the set has no column `{name}`"), &file.name)
                .hint("make the set with `stoker bench data --workload`, or name columns that its files have")
        })?,
    };
    chosen(&found, &places, &(MAGIC.len() as u64..start)).map_err(broken)
}

/// A row group as the footer has it.
#[derive(Default)]
struct RowGroup<'a> {
    rows: u64,
    columns: Vec<Column<'a>>,
}

/// A column of a row group.
#[derive(Default)]
struct Column<'a> {
    /// Of a nested one, what it is in.
    name: &'a [u8],
    is_elsewhere: bool,
    /// Of its first byte: a dictionary lies before the data.
    start: Option<u64>,
    bytes: u64,
}

impl Column<'_> {
    fn range(&self, within: &Range<u64>) -> Option<Range<u64>> {
        let start = self.start.filter(|start| *start >= within.start)?;
        Some(start..start.checked_add(self.bytes).filter(|end| *end <= within.end)?)
    }
}

/// What is wanted of each row group, or what is wrong.
fn chosen(
    found: &[RowGroup<'_>],
    places: &[usize],
    within: &Range<u64>,
) -> std::result::Result<Vec<Group>, &'static str> {
    let columns = found.first().map_or(0, |group| group.columns.len());
    if found.iter().any(|group| group.columns.len() != columns) {
        return Err("its row groups differ in their columns");
    }
    if found.iter().flat_map(|group| &group.columns).any(|column| column.is_elsewhere) {
        return Err("its columns lie in other files");
    }
    let (mut groups, mut next) = (Vec::with_capacity(found.len()), 0_u64);
    for group in found.iter().filter(|group| group.rows > 0) {
        let rows = next..next.checked_add(group.rows).filter(|end| *end <= ROWS_MAX).ok_or("it has too many rows")?;
        next = rows.end;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for column in places.iter().map(|place| &group.columns[*place]) {
            let range = column.range(within).ok_or("a column lies outside of the file")?;
            match ranges.last_mut() {
                _ if range.is_empty() => {}
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        if ranges.is_empty() {
            return Err("a row group has no bytes");
        }
        groups.push(Group { rows, ranges });
    }
    if groups.is_empty() { Err("it has no rows") } else { Ok(groups) }
}

/// Places of columns by their names, or a name that there isn't.
fn named<'n>(columns: &[Column<'_>], names: &'n [String]) -> std::result::Result<Vec<usize>, &'n str> {
    let wanted: HashSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let there: HashSet<&[u8]> = columns.iter().map(|column| column.name).collect();
    if let Some(missing) = names.iter().find(|name| !there.contains(name.as_bytes())) {
        return Err(missing);
    }
    Ok((0..columns.len()).filter(|place| wanted.contains(columns[*place].name)).collect())
}

/// How many columns from the first on come nearest to a share of the bytes of all.
fn leading(found: &[RowGroup<'_>], columns: usize, share: f64) -> usize {
    let mut sums = vec![0.0; columns];
    // Row groups that differ in their columns are refused later.
    for (place, column) in found.iter().flat_map(|group| group.columns.iter().take(columns).enumerate()) {
        sums[place] += column.bytes as f64;
    }
    let wanted = share * sums.iter().sum::<f64>();
    let (mut best, mut nearest, mut sum) = (0, f64::INFINITY, 0.0);
    for (place, bytes) in sums.iter().enumerate() {
        sum += bytes;
        if (sum - wanted).abs() < nearest || share >= 1.0 {
            (best, nearest) = (place + 1, (sum - wanted).abs());
        }
    }
    best
}

/// Types of Thrift's compact protocol.
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// What is skipped is nested so deep at most; of Parquet's own it is half of that.
const DEPTH_MAX: u8 = 16;

/// What is left of a footer. Every step takes at least a byte or ends; nothing means that it makes no sense.
struct Thrift<'a> {
    rest: &'a [u8],
}

/// What to do with a field of a struct, by its number and type; false leaves it to be skipped.
type Take<'t, 'a> = &'t mut dyn FnMut(&mut Thrift<'a>, i64, u8) -> Option<bool>;

impl<'a> Thrift<'a> {
    /// `FileMetaData`: of it, the row groups.
    fn footer(&mut self) -> Option<Vec<RowGroup<'a>>> {
        let mut groups = Vec::new();
        self.each(&mut |own, number, kind| {
            if (number, kind) == (4, LIST) {
                own.structs(&mut |own| own.group().map(|group| groups.push(group)))?;
            }
            Some((number, kind) == (4, LIST))
        })?;
        Some(groups)
    }

    /// `RowGroup`.
    fn group(&mut self) -> Option<RowGroup<'a>> {
        let mut group = RowGroup::default();
        self.each(&mut |own, number, kind| {
            match (number, kind) {
                (1, LIST) => own.structs(&mut |own| own.column().map(|column| group.columns.push(column)))?,
                (3, I32 | I64) => group.rows = own.count()?,
                _ => return Some(false),
            }
            Some(true)
        })?;
        Some(group)
    }

    /// `ColumnChunk`.
    fn column(&mut self) -> Option<Column<'a>> {
        let mut column = Column::default();
        self.each(&mut |own, number, kind| {
            match (number, kind) {
                (1, BINARY) => {
                    column.is_elsewhere = true;
                    own.skip(kind, 0)?;
                }
                (3, STRUCT) => own.place(&mut column)?,
                _ => return Some(false),
            }
            Some(true)
        })?;
        Some(column)
    }

    /// `ColumnMetaData`: of it, the name, the compressed size and the first pages.
    fn place(&mut self, column: &mut Column<'a>) -> Option<()> {
        self.each(&mut |own, number, kind| {
            match (number, kind) {
                (3, LIST) => column.name = own.outermost()?,
                (7, I32 | I64) => column.bytes = own.count()?,
                (9 | 11, I32 | I64) => {
                    let start = own.count()?;
                    // Some writers say 0 where there is no dictionary.
                    if start > 0 {
                        column.start = Some(column.start.map_or(start, |known| known.min(start)));
                    }
                }
                _ => return Some(false),
            }
            Some(true)
        })
    }

    /// The first of a path of names.
    fn outermost(&mut self) -> Option<&'a [u8]> {
        let (count, kind) = self.list()?;
        let mut first = None;
        for _ in 0..count {
            if kind != BINARY {
                self.skip_element(kind, 1)?;
                continue;
            }
            let (length, rest) = (self.varint()?, self.rest);
            self.bytes(length)?;
            first = first.or(rest.get(..length as usize));
        }
        Some(first.unwrap_or_default())
    }

    /// All fields of a struct.
    fn each(&mut self, take: Take<'_, 'a>) -> Option<()> {
        let mut number = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            let kind = head & 0x0f;
            number = if head >> 4 == 0 { self.number()? } else { number.checked_add(i64::from(head >> 4))? };
            if !take(self, number, kind)? {
                self.skip(kind, 0)?;
            }
        }
    }

    /// All elements of a list of structs.
    fn structs(&mut self, take: &mut dyn FnMut(&mut Thrift<'a>) -> Option<()>) -> Option<()> {
        let (count, kind) = self.list()?;
        (count == 0 || kind == STRUCT).then_some(())?;
        (0..count).try_for_each(|_| take(self))
    }

    /// Number and type of the elements of a list, each of which takes a byte at least.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        (count <= self.rest.len() as u64).then_some((count, head & 0x0f))
    }

    fn skip(&mut self, kind: u8, deep: u8) -> Option<()> {
        (deep < DEPTH_MAX).then_some(())?;
        match kind {
            // A field that is true or false has no more than its head.
            1 | 2 => Some(()),
            BYTE => self.byte().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.bytes(8),
            BINARY => self.varint().and_then(|length| self.bytes(length)),
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, deep + 1))
            }
            MAP => {
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4, deep + 1)?;
                    self.skip_element(kinds & 0x0f, deep + 1)
                })
            }
            STRUCT => self.each(&mut |own, _, kind| own.skip(kind, deep + 1).map(|()| true)),
            _ => None,
        }
    }

    fn skip_element(&mut self, kind: u8, deep: u8) -> Option<()> {
        if kind <= 2 { self.byte().map(drop) } else { self.skip(kind, deep) }
    }

    fn bytes(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// A number that is no less than nothing.
    fn count(&mut self) -> Option<u64> {
        u64::try_from(self.number()?).ok()
    }

    fn number(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}
