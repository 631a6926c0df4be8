//! A listing on its way to a snapshot: every name in about 46 bytes and its path, sorted when all are there.
//!
//! Knows no folders and writes no file. Memory for a name: 38 bytes fixed, the path, a version that doesn't
//! pack, 8 bytes for its place, 4 more while sorting. Invariant: after [`Listing::arrange`] the paths are
//! in ascending order and different, and no path is both a file and the beginning of another.

use super::names::{self, Odd, SEPARATOR};
use super::version::{self, Packed};
use std::cmp::Reverse;

/// Records are kept in pieces of this size, so that growing never copies what is there.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes of a key or a version. Object stores allow 1,024 in a key, Linux 4,095 in a path; the limit keeps a
/// record within a piece.
pub const TEXT_BYTES_MAX: usize = 1 << 16;

/// Bytes of a record before its texts.
const FIXED: usize = 38;

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
    pub fn push(&mut self, record: &Record<'_>) {
        self.order.push(self.pieces.push(record));
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
    pub fn arrange(&mut self) {
        self.sort();
        let pieces = &self.pieces;
        self.order.dedup_by(|later, first| pieces.path(*later) == pieces.path(*first));
        if self.rename() {
            self.sort();
        }
    }

    fn sort(&mut self) {
        let pieces = &self.pieces;
        self.order.sort_by(|&left, &right| {
            let paths = pieces.path(left).cmp(pieces.path(right));
            paths.then_with(|| Reverse(pieces.modified_ns(left)).cmp(&Reverse(pieces.modified_ns(right))))
        });
    }

    /// A file that is also a folder comes right before what the folder holds.
    fn rename(&mut self) -> bool {
        let both = |number: &usize| {
            let (path, next) = (self.path(*number), self.path(*number + 1));
            next.len() > path.len() && next[path.len()] == SEPARATOR && next.starts_with(path)
        };
        let files = |number: &usize| self.path(*number).last() != Some(&SEPARATOR);
        let found: Vec<usize> = (0..self.len().saturating_sub(1)).filter(files).filter(both).collect();
        for &number in &found {
            self.order[number] = self.pieces.rename(self.order[number]);
        }
        !found.is_empty()
    }
}

/// The bytes of records. A place is the number of a piece and the offset within it.
#[derive(Default)]
struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    fn push(&mut self, record: &Record<'_>) -> u64 {
        let (packed, text) = match record.version {
            Version::Packed(packed) => (packed, [].as_slice()),
            Version::Text(text) => (Packed::text(0, length(text)), text),
        };
        let key = record.key.unwrap_or_default();
        let bytes = FIXED + record.path.len() + text.len() + record.key.map_or(0, |key| 4 + key.len());
        if self.0.last().is_none_or(|piece| piece.capacity() - piece.len() < bytes) {
            self.0.push(Vec::with_capacity(PIECE_BYTES.max(bytes)));
        }
        let number = self.0.len() - 1;
        let piece = &mut self.0[number];
        let offset = piece.len();
        let odd = record.odd.map_or(0, |odd| odd as u8 + 1);
        piece.extend_from_slice(&length(record.path).to_le_bytes()[..2]);
        piece.extend_from_slice(&[odd | u8::from(record.key.is_some()) << 7, packed.form]);
        piece.extend_from_slice(&packed.extra.to_le_bytes());
        piece.extend_from_slice(&record.size.to_le_bytes());
        piece.extend_from_slice(&record.modified_ns.to_le_bytes());
        piece.extend_from_slice(&packed.bytes);
        piece.extend_from_slice(record.path);
        piece.extend_from_slice(text);
        if record.key.is_some() {
            piece.extend_from_slice(&length(key).to_le_bytes());
            piece.extend_from_slice(key);
        }
        ((number as u64) << 32) | offset as u64
    }

    fn from(&self, place: u64) -> &[u8] {
        &self.0[(place >> 32) as usize][(place & u64::from(u32::MAX)) as usize..]
    }

    fn path(&self, place: u64) -> &[u8] {
        let bytes = self.from(place);
        &bytes[FIXED..FIXED + usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))]
    }

    fn modified_ns(&self, place: u64) -> i64 {
        number(&self.from(place)[14..22]).cast_signed()
    }

    fn record(&self, place: u64) -> Record<'_> {
        let bytes = self.from(place);
        let path = self.path(place);
        let mut rest = &bytes[FIXED + path.len()..];
        let packed_bytes = bytes[22..FIXED].try_into().expect("sixteen bytes");
        let packed = Packed { form: bytes[3], extra: u16::from_le_bytes([bytes[4], bytes[5]]), bytes: packed_bytes };
        let version = match packed.place() {
            Some((_, length)) if packed.form == version::TEXT => {
                let (text, tail) = rest.split_at(length as usize);
                rest = tail;
                Version::Text(text)
            }
            _ => Version::Packed(packed),
        };
        let key = (bytes[2] >> 7 == 1).then(|| {
            let length = u32::from_le_bytes(rest[..4].try_into().expect("four bytes"));
            &rest[4..4 + length as usize]
        });
        let odd = usize::from(bytes[2] & 0x7f).checked_sub(1).map(|kind| Odd::ALL[kind]);
        Record { path, size: number(&bytes[6..14]), modified_ns: self.modified_ns(place), version, odd, key }
    }

    /// The same record under the name of a file beside its folder.
    fn rename(&mut self, place: u64) -> u64 {
        let record = self.record(place);
        let start = record.path.iter().rposition(|&byte| byte == SEPARATOR).map_or(0, |at| at + 1);
        let stored = record.key.and_then(|key| String::from_utf8(key.to_vec()).ok());
        let key = stored.or_else(|| names::key(record.path.split(|&byte| byte == SEPARATOR))).unwrap_or_default();
        let (name, keyed) = names::beside_folder(&record.path[start..], &key);
        let path = [&record.path[..start], &name].concat();
        let text = match record.version {
            Version::Text(text) => text.to_vec(),
            Version::Packed(_) => Vec::new(),
        };
        let version = match record.version {
            Version::Packed(packed) => Version::Packed(packed),
            Version::Text(_) => Version::Text(&text),
        };
        let (size, modified_ns, key) = (record.size, record.modified_ns, keyed.then_some(key.as_bytes()));
        self.push(&Record { path: &path, size, modified_ns, version, odd: Some(Odd::Both), key })
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("the builder limits texts")
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
