//! The bytes of records of a listing: in pieces, of which all but the last some lie in a file where there is one. So memory is bounded,
//! however many names there are; the file's pages are the kernel's, who takes them back where memory is short.
//!
//! Invariant: what was written is read only once all of it was, and no page that is lost goes unnoticed.

use super::Draft;
use super::failed;
use super::listing::{Record, Version};
use super::map::Map;
use super::names::{self, Odd, SEPARATOR};
use super::version::{self, Packed};
use block::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Records are kept in pieces of this size, so that growing never copies what is there.
const PIECE_BYTES: usize = 1 << 20;

/// Pieces in memory: names of some three hundred thousand files. Sets of fewer never touch the file.
const HELD_MAX: usize = 32;

/// Bytes of a record before its texts.
const FIXED: usize = 38;

/// The bytes of records. A place is the number of a piece and the offset within it.
#[derive(Default)]
pub struct Pieces {
    /// Those in memory, behind those in the file.
    held: Vec<Vec<u8>>,
    folder: Option<PathBuf>,
    spilled: Option<Spilled>,
}

/// Pieces in a file without a name.
struct Spilled {
    draft: Draft,
    /// Where each begins.
    starts: Vec<u64>,
    bytes: u64,
    /// Once all were written that ever will be.
    map: Option<Map>,
}

impl Pieces {
    pub fn spill_to(&mut self, folder: &Path) {
        self.folder = Some(folder.to_owned());
    }

    /// Write what is in memory to the file, unless that is mapped already.
    fn spill(&mut self) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let spilled = match &mut self.spilled {
            Some(Spilled { map: Some(_), .. }) => return Ok(()),
            Some(spilled) => spilled,
            None => self.spilled.insert(Spilled {
                draft: Draft::nameless(folder)?,
                starts: Vec::new(),
                bytes: 0,
                map: None,
            }),
        };
        for piece in self.held.drain(..) {
            let written = spilled.draft.file.write_all_at(&piece, spilled.bytes);
            written.map_err(|error| failed("writing names that are being listed", folder, &error))?;
            spilled.starts.push(spilled.bytes);
            spilled.bytes += piece.len() as u64;
        }
        Ok(())
    }

    /// All is there: from here on it can be read.
    pub fn settle(&mut self) -> Result<()> {
        if self.spilled.as_ref().is_some_and(|spilled| spilled.map.is_none()) {
            self.spill()?;
        }
        if let (Some(spilled), Some(folder)) = (&mut self.spilled, &self.folder)
            && spilled.map.is_none()
        {
            let map = Map::of(&spilled.draft.file);
            spilled.map = Some(map.map_err(|error| failed("mapping names that were listed", folder, &error))?);
        }
        Ok(())
    }

    pub fn check(&self) -> Result<()> {
        let map = self.spilled.as_ref().and_then(|spilled| spilled.map.as_ref());
        match map.is_some_and(Map::is_damaged) {
            true => {
                let on = self.folder.as_deref().unwrap_or(Path::new("")).display().to_string();
                Err(Error::corrupt("names that were listed can't be read any more", on)
                    .hint("see whether the disk is sound, and try again"))
            }
            false => Ok(()),
        }
    }

    pub fn push(&mut self, record: &Record<'_>) -> Result<u64> {
        let (packed, text) = match record.version {
            Version::Packed(packed) => (packed, [].as_slice()),
            Version::Text(text) => (Packed::text(0, length(text)), text),
        };
        let key = record.key.unwrap_or_default();
        let bytes = FIXED + record.path.len() + text.len() + record.key.map_or(0, |key| 4 + key.len());
        if self.held.last().is_none_or(|piece| piece.capacity() - piece.len() < bytes) {
            if self.held.len() >= HELD_MAX {
                self.spill()?;
            }
            self.held.push(Vec::with_capacity(PIECE_BYTES.max(bytes)));
        }
        let number = self.spilled.as_ref().map_or(0, |spilled| spilled.starts.len()) + self.held.len() - 1;
        let piece = self.held.last_mut().expect("it was just seen to");
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
        Ok(((number as u64) << 32) | offset as u64)
    }

    fn from(&self, place: u64) -> &[u8] {
        let (number, offset) = ((place >> 32) as usize, (place & u64::from(u32::MAX)) as usize);
        let Some(spilled) = &self.spilled else { return &self.held[number][offset..] };
        match (spilled.starts.get(number), &spilled.map) {
            (Some(start), Some(map)) => &map.bytes()[*start as usize + offset..],
            (Some(_), None) => unreachable!("what was spilled is read only once it is settled"),
            (None, _) => &self.held[number - spilled.starts.len()][offset..],
        }
    }

    pub fn path(&self, place: u64) -> &[u8] {
        let bytes = self.from(place);
        &bytes[FIXED..FIXED + usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))]
    }

    pub fn modified_ns(&self, place: u64) -> i64 {
        number(&self.from(place)[14..22]).cast_signed()
    }

    pub fn record(&self, place: u64) -> Record<'_> {
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
    pub fn rename(&mut self, place: u64) -> Result<u64> {
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
