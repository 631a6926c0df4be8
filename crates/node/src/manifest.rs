//! The manifest: a data set listed once, pinned, and kept on local disk as an immutable snapshot that is
//! mapped into memory. Lookups, stat and readdir are answered from it by binary search.
//!
//! Doesn't list a store and doesn't decide when to refresh. A snapshot's file is written once under a name of its
//! own, verified and renamed into place; whoever owns the folder may unlink or replace it at any time, and an open
//! [`Manifest`] goes on (its disk space is freed when it is dropped). One that is cut short loses names, and tells.
//!
//! Layout:
//! - [`names`]: how keys become paths.
//! - [`Builder`]: takes a listing, writes a snapshot, inherits nodes from the one before.
//! - [`Manifest`]: one snapshot, opened; [`Walk`] goes over its files, [`Keys`] over its objects in the order of their keys.
//! - [`write`], [`Text`]: the same as text, for people and other programs.
//! - [`stale`]: what the kernel has to forget when one snapshot follows another.
//! - [`Generations`]: the current snapshot, and older ones for as long as somebody knows their nodes.
//!
//! Invariants: no bytes of a file, however damaged, make an access panic, loop or read out of bounds; what is
//! found damaged is answered as missing. A node is one (path, version, size, time) in all snapshots.

mod build;
mod draft;
mod generations;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod keys;
mod layout;
mod listing;
mod map;
pub mod names;
mod pieces;
mod refresh;
#[cfg(test)]
mod tests;
mod text;
mod version;
mod view;
mod walk;

pub use build::{Builder, Built};
pub(crate) use draft::Draft;
pub use draft::is_draft;
pub use generations::{Generations, Held, Holder, RETAINED_MAX};
pub use keys::Keys;
pub(crate) use layout::MAGIC as SNAPSHOT_MARK;
pub use layout::Totals;
pub(crate) use layout::{node as node_at, place as place_of};
pub use names::Odd;
pub use refresh::stale;
pub use text::{Head, TEXT_MARK, Text, parse_moment, write};
pub use walk::{File, Walk};

use block::{BLOCK, Error, Result};
use layout::{ENTRIES, ENTRY, Entry, Header, INHERITED, INHERITED_ROW, OVERRIDE_ROW, OVERRIDES, TEXTS};
use map::Map;
use std::cmp::Ordering;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the largest object that blocks can number.
const OBJECT_BYTES_MAX: u64 = BLOCK * u32::MAX as u64;

/// The entry of the top folder, in every snapshot.
const TOP: u32 = 0;

/// Open the file of a snapshot. A pipe in its place is not waited for: it reads as an empty file.
pub(crate) fn open_file(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path)
}

/// An open snapshot.
pub struct Manifest {
    map: Map,
    header: Header,
    store: Arc<str>,
    file: std::fs::File,
}

impl Manifest {
    /// Open a snapshot. Reads its header only, whatever the number of names; [`Manifest::verify`] reads all.
    pub fn open(path: &Path) -> Result<Manifest> {
        let file = open_file(path).map_err(|error| failed("opening the manifest", path, &error))?;
        Manifest::of(&file, path)
    }

    /// Open the snapshot that a file holds; the path is for messages.
    pub fn of(file: &std::fs::File, path: &Path) -> Result<Manifest> {
        let file = file.try_clone().map_err(|error| failed("opening the manifest", path, &error))?;
        let map = Map::of(&file).map_err(|error| failed("mapping the manifest", path, &error))?;
        let header = Header::decode(map.bytes()).map_err(|what| {
            Error::corrupt(format!("the manifest can't be read: {what}"), path.display())
                .hint("delete the file; the data set is then listed again")
        })?;
        let store = header.store.as_str().into();
        Ok(Manifest { map, header, store, file })
    }

    /// Its file, which others may have replaced at its path by now.
    pub fn file(&self) -> &std::fs::File {
        &self.file
    }

    /// Whether some of it could not be read any more since it was opened: names may be missing.
    pub fn is_damaged(&self) -> bool {
        self.map.is_damaged()
    }

    /// Check every byte against the checksums that were taken when it was written.
    pub fn verify(&self) -> Result<()> {
        for (number, section) in self.header.sections.iter().enumerate() {
            if xxh3_64(self.section(number)) != section.checksum {
                let what = format!("section {number} of the manifest doesn't match its checksum");
                let on = format!("{}/{}", self.header.store, self.header.prefix);
                return Err(Error::corrupt(what, on).hint("delete the snapshot; the data set is then listed again"));
            }
        }
        Ok(())
    }

    /// The identity of the store that was listed.
    pub fn store(&self) -> &Arc<str> {
        &self.store
    }

    /// What all keys begin with: empty, or ends with a slash.
    pub fn prefix(&self) -> &str {
        &self.header.prefix
    }

    /// When it was listed, nanoseconds since 1970.
    pub fn listed_ns(&self) -> i64 {
        self.header.listed_ns
    }

    /// Its place in the sequence of snapshots: 1 for the first.
    pub fn generation(&self) -> u32 {
        self.header.generation
    }

    pub fn totals(&self) -> &Totals {
        &self.header.totals
    }

    /// Hash of the store, the prefix, and all paths, versions and sizes. Equal on every node that lists the
    /// same, whenever it lists it.
    pub fn fingerprint(&self) -> u128 {
        self.header.fingerprint
    }

    /// Bytes of the snapshot's file.
    pub fn file_bytes(&self) -> u64 {
        self.map.bytes().len() as u64
    }

    /// A hash of what it says of itself, the checksums of all of it among that.
    pub fn id(&self) -> u128 {
        self.header.id(self.map.bytes())
    }

    /// The half of it by which a snapshot names the one that it was built on.
    pub fn short_id(&self) -> u64 {
        self.id() as u64
    }

    /// The snapshot that it was built on; 0 is none, or that an earlier version wrote it.
    pub fn before(&self) -> u64 {
        self.header.before
    }

    /// Bytes of its file from this place on.
    pub fn piece(&self, offset: u64, bytes_max: usize) -> Vec<u8> {
        let rest = usize::try_from(offset).ok().and_then(|start| self.map.bytes().get(start..));
        rest.map(|rest| rest[..rest.len().min(bytes_max)].to_vec()).unwrap_or_default()
    }

    fn section(&self, number: usize) -> &[u8] {
        self.map.bytes().get(self.header.sections[number].range()).unwrap_or_default()
    }

    fn entry(&self, index: u32) -> Option<Entry<'_>> {
        let start = usize::try_from(index).ok()?.checked_mul(ENTRY)?;
        self.section(ENTRIES).get(start..)?.first_chunk().map(Entry)
    }

    fn text(&self, range: Range<u64>) -> Option<&[u8]> {
        self.section(TEXTS).get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }

    fn name(&self, entry: Entry<'_>) -> Option<&[u8]> {
        self.text(entry.name())
    }

    /// The entries of a folder's children. They lie behind the folder, so every walk down ends.
    fn range(&self, folder: u32) -> Option<Range<u32>> {
        let entry = self.entry(folder).filter(|entry| entry.folder())?;
        let (first, children) = entry.children();
        let entries = self.section(ENTRIES).len() / ENTRY;
        let end = first.checked_add(children)?;
        (first > folder && end as usize <= entries).then_some(first..end)
    }

    /// A child within the range of a folder's children, if it says the same of itself.
    fn child(&self, folder: u32, index: u32) -> Option<(Entry<'_>, &[u8])> {
        let entry = self.entry(index).filter(|entry| entry.parent() == folder)?;
        Some((entry, self.name(entry)?))
    }

    /// Children of a folder from a position, in the order of their names; ends early where bytes are damaged.
    fn children(&self, folder: u32, from: u64) -> impl Iterator<Item = (u32, Entry<'_>, &[u8])> {
        let range = self.range(folder).unwrap_or_default();
        let skip = u32::try_from(from).unwrap_or(u32::MAX).min(range.end - range.start);
        (range.start + skip..range.end)
            .map_while(move |index| self.child(folder, index).map(|(entry, name)| (index, entry, name)))
    }

    /// The child of this name.
    fn named(&self, folder: u32, name: &[u8]) -> Option<(u32, Entry<'_>)> {
        let mut range = self.range(folder)?;
        while range.start < range.end {
            let middle = range.start + (range.end - range.start) / 2;
            let (entry, found) = self.child(folder, middle)?;
            match found.cmp(name) {
                Ordering::Less => range.start = middle + 1,
                Ordering::Equal => return Some((middle, entry)),
                Ordering::Greater => range.end = middle,
            }
        }
        None
    }

    /// The entry that is known under a node number in this snapshot.
    fn index(&self, node: u64) -> Option<u32> {
        let index = match layout::generation(node) {
            0 => TOP,
            born if born == self.header.generation => layout::index(node)?,
            _ => {
                let (rows, _) = self.section(INHERITED).as_chunks::<INHERITED_ROW>();
                let at = rows.binary_search_by_key(&node, |row| layout::u64_at(row, 0)).ok()?;
                layout::u32_at(&rows[at], 8)
            }
        };
        self.entry(index).filter(|entry| entry.node() == node).map(|_| index)
    }

    /// Names from the top folder down to an entry. `None` if damage makes the way up endless.
    fn names(&self, index: u32) -> Option<Vec<&[u8]>> {
        let mut names = Vec::new();
        let mut at = index;
        while at != TOP {
            let entry = self.entry(at)?;
            names.push(self.name(entry)?);
            // A parent lies before its children, and a path has at least two bytes a name.
            if entry.parent() >= at || names.len() > names::PATH_BYTES_MAX {
                return None;
            }
            at = entry.parent();
        }
        names.reverse();
        Some(names)
    }

    /// The key of a file, below the prefix.
    fn key(&self, index: u32, entry: Entry<'_>) -> Option<String> {
        if !entry.keyed() {
            return names::key(self.names(index)?);
        }
        let (rows, _) = self.section(OVERRIDES).as_chunks::<OVERRIDE_ROW>();
        let row = &rows[rows.binary_search_by_key(&index, |row| layout::u32_at(row, 0)).ok()?];
        let start = layout::u64_at(row, 8);
        let text = self.text(start..start.checked_add(u64::from(layout::u32_at(row, 4)))?)?;
        String::from_utf8(text.to_vec()).ok()
    }

    fn version(&self, entry: Entry<'_>) -> Option<String> {
        let packed = entry.version();
        let Some((offset, length)) = packed.place() else {
            return packed.unpack();
        };
        let text = self.text(offset..offset.checked_add(u64::from(length))?)?;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// What the first bytes of a snapshot of so many bytes say of it: its hash, as [`Manifest::id`] has it, the store that was listed
/// and the prefix. None if it is no snapshot of that length.
pub(crate) fn head(bytes: &[u8], file_bytes: u64) -> Option<(u128, String, String)> {
    let header = Header::decode_head(bytes, file_bytes).ok()?;
    Some((header.id(bytes), header.store, header.prefix))
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::io(doing, path.display(), error)
}
