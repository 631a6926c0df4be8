//! The bytes of a snapshot: header and entries, as `docs/format.md` draws them. Little-endian throughout.
//!
//! Doesn't read or write files. Invariant: decoding accepts any bytes without panic; a header that decodes
//! has its sections within the file, in order and without a gap, and whole rows in each.

use super::names::Odd;
use super::version::Packed;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of every snapshot.
pub const MAGIC: [u8; 8] = *b"STOKMANI";
/// Any change of the layout, of the rule of names or of packed versions raises it; others are not read.
const FORMAT: u32 = 1;
/// Bytes of the header before its two texts.
pub(super) const HEADER: usize = 256;
/// Bytes of an entry, of a row of [`INHERITED`] and of a row of [`OVERRIDES`].
pub const ENTRY: usize = 56;
pub const INHERITED_ROW: usize = 12;
pub const OVERRIDE_ROW: usize = 16;
/// Bits of a node number below its generation: entries of one snapshot. An inode number has 64.
const NODE_BITS: u32 = 40;
/// Snapshots that a data set may see: one a minute for thirty years.
pub const GENERATION_MAX: u32 = (1 << (64 - NODE_BITS)) - 1;

/// Sections, in the order of the file: entries, then their names and other texts, then nodes that were
/// born in an older snapshot (sorted by node), then keys that their path doesn't tell (sorted by entry).
pub const ENTRIES: usize = 0;
pub const TEXTS: usize = 1;
pub const INHERITED: usize = 2;
pub const OVERRIDES: usize = 3;
const ROWS: [usize; 4] = [ENTRY, 1, INHERITED_ROW, OVERRIDE_ROW];

const FOLDER: u8 = 1;
const KEYED: u8 = 2;

/// The node of an entry that is born in this generation.
pub fn node(generation: u32, index: u32) -> u64 {
    u64::from(generation) << NODE_BITS | (u64::from(index) + 1)
}

/// The generation that a node was born in; 0 for the top folder.
pub fn generation(node: u64) -> u32 {
    u32::try_from(node >> NODE_BITS).expect("24 bits are left")
}

/// The entry that a node was born as, in the snapshot of its generation.
pub fn index(node: u64) -> Option<u32> {
    u32::try_from((node & ((1 << NODE_BITS) - 1)).checked_sub(1)?).ok()
}

/// Both.
pub fn place(node: u64) -> Option<(u32, u32)> {
    Some((generation(node), index(node)?))
}

/// A range of the file and the XXH3 of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    pub offset: u64,
    pub bytes: u64,
    pub checksum: u64,
}

impl Section {
    /// Where it lies; empty where that is nowhere.
    pub fn range(&self) -> Range<usize> {
        let end = self.offset.checked_add(self.bytes);
        match (usize::try_from(self.offset), end.map(usize::try_from)) {
            (Ok(start), Some(Ok(end))) => start..end,
            _ => 0..0,
        }
    }
}

/// Sums over a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub files: u64,
    /// Folders, without the top one.
    pub folders: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Keys of no bytes that end in a slash: they make a folder and are no files.
    pub markers: u64,
    /// Keys that could not be a path as they are, by kind, in the order of [`Odd::ALL`].
    pub odd: [u64; Odd::ALL.len()],
}

/// What a snapshot says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub generation: u32,
    pub listed_ns: i64,
    pub fingerprint: u128,
    /// The snapshot that it was built on, by the lower half of its hash; 0 is none.
    pub before: u64,
    pub totals: Totals,
    pub sections: [Section; 4],
    pub store: String,
    pub prefix: String,
}

impl Header {
    /// Bytes of a header with these texts: where the first section starts.
    pub fn bytes(store: &str, prefix: &str) -> u64 {
        (HEADER + store.len() + prefix.len()) as u64
    }

    /// A hash of it as it stands at the beginning of a file.
    pub fn id(&self, file: &[u8]) -> u128 {
        let head = Header::bytes(&self.store, &self.prefix) as usize;
        xxhash_rust::xxh3::xxh3_128(file.get(..head).unwrap_or_default())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::with_capacity(HEADER + self.store.len() + self.prefix.len());
        let end = self.sections[OVERRIDES].offset + self.sections[OVERRIDES].bytes;
        let mut put = |bytes: &[u8]| rest.extend_from_slice(bytes);
        put(&end.to_le_bytes());
        put(&self.generation.to_le_bytes());
        put(&text_length(&self.store).to_le_bytes());
        put(&text_length(&self.prefix).to_le_bytes());
        put(&self.listed_ns.to_le_bytes());
        put(&self.fingerprint.to_le_bytes());
        let Totals { files, folders, bytes, markers, odd } = self.totals;
        [files, folders, bytes, markers]
            .into_iter()
            .chain(odd)
            .chain([self.before])
            .for_each(|sum| put(&sum.to_le_bytes()));
        for Section { offset, bytes, checksum } in self.sections {
            [offset, bytes, checksum].into_iter().for_each(|number| put(&number.to_le_bytes()));
        }
        put(self.store.as_bytes());
        put(self.prefix.as_bytes());
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&u32::try_from(24 + rest.len()).expect("the texts have a limit").to_le_bytes());
        out.extend_from_slice(&xxh3_64(&rest).to_le_bytes());
        out.extend_from_slice(&rest);
        out
    }

    /// The header of a whole file, or what is wrong with it.
    pub fn decode(file: &[u8]) -> Result<Header, &'static str> {
        Header::decode_head(file, file.len() as u64)
    }

    /// The same of a file of so many bytes of which the first are here.
    pub fn decode_head(file: &[u8], file_bytes: u64) -> Result<Header, &'static str> {
        let fixed: &[u8; HEADER] = file.first_chunk().ok_or("it is shorter than its header")?;
        if fixed[..8] != MAGIC {
            return Err("it is no snapshot of a manifest");
        }
        if u32_at(fixed, 8) != FORMAT {
            return Err("it has the format of another version of Stoker");
        }
        let length = usize::try_from(u32_at(fixed, 12)).unwrap_or(usize::MAX);
        let bytes = file.get(..length).filter(|bytes| bytes.len() >= HEADER).ok_or("its header is cut off")?;
        if xxh3_64(&bytes[24..]) != u64_at(fixed, 16) {
            return Err("the checksum of its header is wrong");
        }
        if u64_at(fixed, 24) != file_bytes {
            return Err("its length is wrong");
        }
        let header = Header::parse(fixed, &bytes[HEADER..]).ok_or("its header contradicts itself")?;
        header.sound(length as u64, file_bytes).then_some(header).ok_or("its sections are out of place")
    }

    fn parse(fixed: &[u8; HEADER], texts: &[u8]) -> Option<Header> {
        let (store, prefix) = texts.split_at_checked(usize::from(u16_at(fixed, 36)))?;
        let section = |number: usize| {
            let at = 160 + number * 24;
            Section { offset: u64_at(fixed, at), bytes: u64_at(fixed, at + 8), checksum: u64_at(fixed, at + 16) }
        };
        Some(Header {
            generation: u32_at(fixed, 32),
            listed_ns: i64_at(fixed, 40),
            fingerprint: u128::from(u64_at(fixed, 48)) | u128::from(u64_at(fixed, 56)) << 64,
            before: u64_at(fixed, 152),
            totals: Totals {
                files: u64_at(fixed, 64),
                folders: u64_at(fixed, 72),
                bytes: u64_at(fixed, 80),
                markers: u64_at(fixed, 88),
                odd: std::array::from_fn(|kind| u64_at(fixed, 96 + kind * 8)),
            },
            sections: std::array::from_fn(section),
            store: str::from_utf8(store).ok()?.into(),
            prefix: str::from_utf8(prefix).ok().filter(|text| text.len() == usize::from(u16_at(fixed, 38)))?.into(),
        })
    }

    fn sound(&self, header_bytes: u64, file_bytes: u64) -> bool {
        let mut end = header_bytes;
        for (section, row) in self.sections.iter().zip(ROWS) {
            if section.offset != end || section.bytes % row as u64 != 0 {
                return false;
            }
            match end.checked_add(section.bytes) {
                Some(next) if next <= file_bytes => end = next,
                _ => return false,
            }
        }
        let entries = self.sections[ENTRIES].bytes / ENTRY as u64;
        let counted = self.totals.files.checked_add(self.totals.folders).and_then(|sum| sum.checked_add(1));
        end == file_bytes
            && counted == Some(entries)
            && u32::try_from(entries).is_ok()
            && (1..=GENERATION_MAX).contains(&self.generation)
    }
}

/// A file or a folder as the snapshot holds it.
#[derive(Clone, Copy)]
pub struct Entry<'a>(pub &'a [u8; ENTRY]);

impl Entry<'_> {
    /// The node that it is known under: inherited, or born in this snapshot.
    pub fn node(self) -> u64 {
        u64_at(self.0, 0)
    }

    pub fn parent(self) -> u32 {
        u32_at(self.0, 8)
    }

    /// Where its name lies in the texts.
    pub fn name(self) -> Range<u64> {
        let start = u64::from(u32_at(self.0, 12)) | u64::from(self.0[16]) << 32;
        start..start + u64::from(self.0[17])
    }

    pub fn folder(self) -> bool {
        self.0[18] == FOLDER
    }

    /// Whether its key is kept beside it.
    pub fn keyed(self) -> bool {
        self.0[18] == KEYED
    }

    pub fn size(self) -> u64 {
        if self.folder() { 0 } else { u64_at(self.0, 24) }
    }

    pub fn modified_ns(self) -> i64 {
        i64_at(self.0, 32)
    }

    pub fn version(self) -> Packed {
        let bytes = *self.0.last_chunk().expect("an entry is longer than a version");
        Packed { form: self.0[19], extra: u16_at(self.0, 20), bytes }
    }

    /// First child and number of children of a folder; a file has none.
    pub fn children(self) -> (u32, u32) {
        if self.folder() { (u32_at(self.0, 24), u32_at(self.0, 28)) } else { (0, 0) }
    }

    /// Folders directly within a folder.
    pub fn folders(self) -> u32 {
        if self.folder() { u32_at(self.0, 32) } else { 0 }
    }
}

/// An entry to be written.
pub struct Row {
    pub node: u64,
    pub parent: u32,
    pub name: Range<u64>,
    pub body: Body,
}

pub enum Body {
    File { size: u64, modified_ns: i64, version: Packed, keyed: bool },
    Folder { first: u32, children: u32, folders: u32 },
}

impl Row {
    pub fn encode(&self) -> [u8; ENTRY] {
        let mut out = [0; ENTRY];
        out[..8].copy_from_slice(&self.node.to_le_bytes());
        out[8..12].copy_from_slice(&self.parent.to_le_bytes());
        out[12..17].copy_from_slice(&self.name.start.to_le_bytes()[..5]);
        out[17] = u8::try_from(self.name.end - self.name.start).expect("a name has at most 255 bytes");
        match &self.body {
            Body::File { size, modified_ns, version, keyed } => {
                out[18] = if *keyed { KEYED } else { 0 };
                out[19] = version.form;
                out[20..22].copy_from_slice(&version.extra.to_le_bytes());
                out[24..32].copy_from_slice(&size.to_le_bytes());
                out[32..40].copy_from_slice(&modified_ns.to_le_bytes());
                out[40..].copy_from_slice(&version.bytes);
            }
            Body::Folder { first, children, folders } => {
                (out[18], out[19]) = (FOLDER, Packed::NONE.form);
                out[24..28].copy_from_slice(&first.to_le_bytes());
                out[28..32].copy_from_slice(&children.to_le_bytes());
                out[32..36].copy_from_slice(&folders.to_le_bytes());
            }
        }
        out
    }
}

fn text_length(text: &str) -> u16 {
    u16::try_from(text.len()).expect("the builder limits both texts")
}

/// Numbers at a place that the caller knows to lie within the bytes.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    u64_at(bytes, at).cast_signed()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}
