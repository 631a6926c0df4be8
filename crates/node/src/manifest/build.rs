//! Builds a snapshot: takes a listing in any order, writes the file, opens it.
//!
//! Doesn't list and doesn't take the time: both are given. Invariants: the file has its name only when it is
//! whole and verified; every key that was added is in it exactly once, as a file or as a folder marker.
//!
//! Peak memory is that of the listing (see [`super::listing`]) and, after a refresh, 16 bytes for each inherited
//! node: 12 bytes a name, or 28, and 32 MiB where the listing may spill, some 80 bytes a name more where it may not. Texts and
//! entries go straight to the file. The stale names come when the listing is gone.

use super::draft::Draft;
use super::layout::{self, Body, ENTRIES, ENTRY, Header, INHERITED, OVERRIDES, Row, TEXTS, Totals};
use super::listing::{Listing, Record, TEXT_BYTES_MAX, Version};
use super::names::{self, SEPARATOR};
use super::version::Packed;
use super::{Manifest, OBJECT_BYTES_MAX, TOP, failed, refresh};
use crate::namespace::{ROOT, Stale};
use block::{Error, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use store::Listed;
use xxhash_rust::xxh3::Xxh3;

/// Bytes that a section collects before it writes them.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes of all texts: what an entry can address with five bytes.
const TEXTS_BYTES_MAX: u64 = 1 << 40;

/// A snapshot in the making.
pub struct Builder {
    store: Arc<str>,
    prefix: String,
    listing: Listing,
    path: Vec<u8>,
    /// The marker of the mounted folder itself was listed: it has no record.
    top_marker: bool,
}

/// A new snapshot, and the names whose answers differ from the previous one's.
pub struct Built {
    pub manifest: Manifest,
    pub stale: Stale,
}

impl Builder {
    /// For the keys of a store below a prefix, which is empty or ends with a slash.
    pub fn new(store: Arc<str>, prefix: &str) -> Result<Builder> {
        if !(prefix.is_empty() || prefix.ends_with('/')) || prefix.len().max(store.len()) >= TEXT_BYTES_MAX {
            return Err(Error::invalid("a prefix is empty or a folder, with a slash at its end", prefix));
        }
        Ok(Builder { store, prefix: prefix.into(), listing: Listing::default(), path: Vec::new(), top_marker: false })
    }

    /// Keep what doesn't fit into some memory in a file without a name, which takes room in this folder meanwhile.
    pub fn spill_to(mut self, folder: &Path) -> Builder {
        self.listing.spill_to(folder);
        self
    }

    /// Add a page of the listing.
    pub fn add(&mut self, page: &[Listed]) -> Result<()> {
        page.iter().try_for_each(|listed| self.push(listed))
    }

    /// Keys added so far.
    pub fn keys(&self) -> u64 {
        self.listing.len() as u64 + u64::from(self.top_marker)
    }

    /// Write the snapshot to `path`, in the place of what is there, and open it. `listed_ns` is the time at which the
    /// listing began. With the snapshot before it, nodes of what didn't change are inherited.
    pub fn build(self, path: &Path, listed_ns: i64, previous: Option<&Manifest>) -> Result<Built> {
        let draft = Draft::beside(path)?;
        let manifest = self.snapshot(&draft, path, listed_ns, previous)?;
        draft.name(path)?;
        let stale = previous.map(|previous| refresh::stale(previous, &manifest)).unwrap_or_default();
        Ok(Built { manifest, stale })
    }

    /// The same in a file without a name, which takes room in this folder until it is dropped.
    pub fn build_nameless(self, folder: &Path, listed_ns: i64) -> Result<Manifest> {
        self.snapshot(&Draft::nameless(folder)?, folder, listed_ns, None)
    }

    /// Write a snapshot into a draft, and read it back.
    fn snapshot(mut self, draft: &Draft, path: &Path, listed_ns: i64, previous: Option<&Manifest>) -> Result<Manifest> {
        self.listing.arrange()?;
        self.write(&draft.file, path, listed_ns, previous)?;
        self.listing.check()?;
        // Its memory is given back before the map takes some.
        drop(self);
        let manifest = Manifest::of(&draft.file, path)?;
        manifest.verify()?;
        Ok(manifest)
    }

    fn push(&mut self, listed: &Listed) -> Result<()> {
        let Some(key) = listed.key.strip_prefix(&self.prefix) else {
            let what = format!("the store listed a key that isn't below the prefix {:?}", self.prefix);
            return Err(Error::corrupt(what, &listed.key));
        };
        if listed.key.len().max(listed.version.len()) >= TEXT_BYTES_MAX || listed.size > OBJECT_BYTES_MAX {
            let what = format!("a key or version is over {TEXT_BYTES_MAX} bytes, or its object over 1 PiB");
            return Err(Error::invalid(what, &listed.key).hint("leave this object out of the mounted prefix"));
        }
        let placed = names::place(key, listed.size, &mut self.path);
        if self.path.is_empty() {
            self.top_marker = true;
            return Ok(());
        }
        self.listing.push(&Record {
            path: &self.path,
            size: listed.size,
            modified_ns: listed.modified_ns,
            version: Version::of(&listed.version),
            odd: placed.odd,
            key: placed.keyed.then_some(key.as_bytes()),
        })
    }

    fn write(&self, file: &File, path: &Path, listed_ns: i64, previous: Option<&Manifest>) -> Result<()> {
        let wrong = |error: std::io::Error| failed("writing the manifest", path, &error);
        let generation = previous.map_or(1, |previous| previous.generation().saturating_add(1));
        let (mut totals, fingerprint) = self.tally();
        let entries = totals.files.checked_add(totals.folders).filter(|&names| names < u64::from(u32::MAX));
        let Some(entries) = entries.filter(|_| generation <= layout::GENERATION_MAX) else {
            let what = "a data set has at most 4,294,967,294 names and 16,777,215 refreshes";
            let hint = "mount a longer prefix, or delete the snapshot to begin anew";
            return Err(Error::invalid(what, path.display()).hint(hint));
        };
        totals.markers += u64::from(self.top_marker);
        let start = Header::bytes(&self.store, &self.prefix);
        let texts = start + (entries + 1) * ENTRY as u64;
        let mut tree = Tree {
            listing: &self.listing,
            previous: previous.filter(|previous| previous.store == self.store && previous.prefix() == self.prefix),
            generation,
            entries: Section::at(file, start),
            texts: Section::at(file, texts),
            // Untouched room costs nothing; growing by doubling would take three times the memory.
            inherited: Vec::with_capacity(previous.map_or(0, |previous| previous.section(ENTRIES).len() / ENTRY)),
            overrides: Vec::new(),
            folders: VecDeque::new(),
            first: TOP + 1,
            next: TOP,
        };
        tree.grow().map_err(wrong)?;
        let sections = tree.finish(file).map_err(wrong)?;
        assert_eq!(texts, sections[ENTRIES].offset + sections[ENTRIES].bytes, "entries were miscounted");
        let (store, prefix) = (self.store.to_string(), self.prefix.clone());
        let before = previous.map_or(0, Manifest::short_id);
        let header = Header { generation, listed_ns, fingerprint, before, totals, sections, store, prefix };
        file.write_all_at(&header.encode(), 0).map_err(wrong)
    }

    /// Totals and fingerprint of the arranged listing.
    fn tally(&self) -> (Totals, u128) {
        let mut totals = Totals::default();
        let mut hash = Xxh3::new();
        let mut add = |text: &[u8]| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(self.store.as_bytes());
        add(self.prefix.as_bytes());
        let mut before: &[u8] = &[];
        for number in 0..self.listing.len() {
            let record = self.listing.record(number);
            add(record.path);
            match record.version {
                Version::Packed(packed) => add(packed.unpack().unwrap_or_default().as_bytes()),
                Version::Text(text) => add(text),
            }
            add(&record.size.to_le_bytes());
            totals.markers += u64::from(record.marker());
            totals.files += u64::from(!record.marker());
            totals.folders += new_folders(before, record.path);
            totals.bytes = totals.bytes.saturating_add(record.size);
            if let Some(odd) = record.odd {
                totals.odd[odd as usize] += 1;
            }
            before = record.path;
        }
        (totals, hash.digest128())
    }
}

/// Folders of a path that the path before it isn't in.
fn new_folders(before: &[u8], path: &[u8]) -> u64 {
    let same = before.iter().zip(path).take_while(|(left, right)| left == right).count();
    path[same..].iter().filter(|&&byte| byte == SEPARATOR).count() as u64
}

/// A folder whose children are still to be written.
struct Folder {
    index: u32,
    records: Range<usize>,
    /// Bytes of its path, with the separator at its end.
    path_bytes: usize,
    /// The same folder in the previous snapshot.
    before: Option<u32>,
}

/// A child of a folder, as the records tell it. A folder holds several.
struct Child<'a> {
    name: &'a [u8],
    folder: bool,
    records: Range<usize>,
}

/// Writes entries level by level, so that the children of a folder lie together, behind it, in order.
struct Tree<'a> {
    listing: &'a Listing,
    previous: Option<&'a Manifest>,
    generation: u32,
    entries: Section<'a>,
    texts: Section<'a>,
    inherited: Vec<(u64, u32)>,
    overrides: Vec<(u32, u32, u64)>,
    folders: VecDeque<Folder>,
    /// Where the children of the next folder to be written will lie.
    first: u32,
    /// The next entry.
    next: u32,
}

impl Tree<'_> {
    fn grow(&mut self) -> std::io::Result<()> {
        let top = Child { name: &[], folder: true, records: 0..self.listing.len() };
        self.folder(TOP, 0, &top, ROOT, self.previous.map(|_| TOP))?;
        while let Some(folder) = self.folders.pop_front() {
            let listing = self.listing;
            for child in children(listing, folder.records.clone(), folder.path_bytes) {
                let before = self.before(&folder, child.name);
                let fresh = layout::node(self.generation, self.next);
                if child.folder {
                    let before = before.filter(|&(_, folder)| folder).map(|(index, _)| index);
                    let node = before.and_then(|index| Some(self.previous?.entry(index)?.node())).unwrap_or(fresh);
                    self.folder(folder.index, folder.path_bytes, &child, node, before)?;
                } else {
                    let record = listing.record(child.records.start);
                    let node = before.and_then(|(index, _)| self.unchanged(index, &record)).unwrap_or(fresh);
                    self.file(folder.index, &child, &record, node)?;
                }
            }
        }
        Ok(())
    }

    /// The entry of the same path in the previous snapshot, and whether it was a folder.
    fn before(&self, folder: &Folder, name: &[u8]) -> Option<(u32, bool)> {
        let (index, entry) = self.previous?.named(folder.before?, name)?;
        // Damage may show as a node that can't be: then nothing is inherited.
        let sound = self.previous?.index(entry.node()) == Some(index);
        sound.then_some((index, entry.folder()))
    }

    /// The node of a file that has the same size, version and time as before.
    fn unchanged(&self, before: u32, record: &Record<'_>) -> Option<u64> {
        let entry = self.previous?.entry(before)?;
        let version = match record.version {
            Version::Packed(packed) => entry.version() == packed,
            Version::Text(text) => {
                let (offset, length) = entry.version().place()?;
                self.previous?.text(offset..offset.checked_add(length.into())?)? == text
            }
        };
        let same = !entry.folder() && entry.size() == record.size && entry.modified_ns() == record.modified_ns;
        (same && version).then(|| entry.node())
    }

    fn folder(
        &mut self,
        parent: u32,
        path_bytes: usize,
        child: &Child<'_>,
        node: u64,
        before: Option<u32>,
    ) -> std::io::Result<()> {
        let index = self.next;
        let path_bytes = if index == TOP { 0 } else { path_bytes + child.name.len() + 1 };
        let records = child.records.clone();
        let (mut all, mut folders) = (0, 0);
        for child in children(self.listing, records.clone(), path_bytes) {
            all += 1;
            folders += u32::from(child.folder);
        }
        let body = Body::Folder { first: self.first, children: all, folders };
        self.first += all;
        self.entry(parent, child.name, node, body)?;
        self.folders.push_back(Folder { index, records, path_bytes, before });
        Ok(())
    }

    fn file(&mut self, parent: u32, child: &Child<'_>, record: &Record<'_>, node: u64) -> std::io::Result<()> {
        let version = match record.version {
            Version::Packed(packed) => packed,
            Version::Text(text) => {
                let place = self.texts.push(text)?;
                Packed::text(place.start, u32::try_from(text.len()).expect("texts have a limit"))
            }
        };
        if let Some(key) = record.key {
            let place = self.texts.push(key)?;
            self.overrides.push((self.next, u32::try_from(key.len()).expect("texts have a limit"), place.start));
        }
        let keyed = record.key.is_some();
        let body = Body::File { size: record.size, modified_ns: record.modified_ns, version, keyed };
        self.entry(parent, child.name, node, body)
    }

    fn entry(&mut self, parent: u32, name: &[u8], node: u64, body: Body) -> std::io::Result<()> {
        let name = self.texts.push(name)?;
        if name.end > TEXTS_BYTES_MAX {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.entries.push(&Row { node, parent, name, body }.encode())?;
        if node != ROOT && layout::generation(node) != self.generation {
            self.inherited.push((node, self.next));
        }
        self.next += 1;
        Ok(())
    }

    fn finish(mut self, file: &File) -> std::io::Result<[layout::Section; 4]> {
        let mut sections = [layout::Section::default(); 4];
        sections[ENTRIES] = self.entries.finish()?;
        sections[TEXTS] = self.texts.finish()?;
        self.inherited.sort_unstable();
        let mut inherited = Section::at(file, sections[TEXTS].offset + sections[TEXTS].bytes);
        for (node, index) in self.inherited {
            inherited.push(&node.to_le_bytes())?;
            inherited.push(&index.to_le_bytes())?;
        }
        sections[INHERITED] = inherited.finish()?;
        let mut overrides = Section::at(file, sections[INHERITED].offset + sections[INHERITED].bytes);
        for (index, length, start) in self.overrides {
            overrides.push(&index.to_le_bytes())?;
            overrides.push(&length.to_le_bytes())?;
            overrides.push(&start.to_le_bytes())?;
        }
        sections[OVERRIDES] = overrides.finish()?;
        Ok(sections)
    }
}

/// Children of the folder that these records lie in, in order; its own marker is none.
fn children(listing: &Listing, records: Range<usize>, path_bytes: usize) -> impl Iterator<Item = Child<'_>> {
    let mut at = records.start;
    std::iter::from_fn(move || {
        let mut rest = &listing.path(Some(at).filter(|&at| at < records.end)?)[path_bytes..];
        if rest.is_empty() {
            at += 1;
            rest = &listing.path(Some(at).filter(|&at| at < records.end)?)[path_bytes..];
        }
        let length = rest.iter().position(|&byte| byte == SEPARATOR);
        let start = at;
        at = match length {
            Some(length) => end_of(listing, at..records.end, path_bytes, &rest[..=length]),
            None => at + 1,
        };
        let name = &rest[..length.unwrap_or(rest.len())];
        Some(Child { name, folder: length.is_some(), records: start..at })
    })
}

/// The end of the records whose path goes on like this: doubled steps, then halves, because most folders
/// are small.
fn end_of(listing: &Listing, records: Range<usize>, path_bytes: usize, beginning: &[u8]) -> usize {
    let within = |number: usize| listing.path(number)[path_bytes..].starts_with(beginning);
    let (mut low, mut step) = (records.start, 1);
    while low + step < records.end && within(low + step) {
        low += step;
        step *= 2;
    }
    let mut high = (low + step).min(records.end);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if within(middle) { low = middle } else { high = middle }
    }
    high
}

/// A range of the file, written front to back.
struct Section<'f> {
    file: &'f File,
    start: u64,
    bytes: u64,
    buffer: Vec<u8>,
    hash: Xxh3,
}

impl<'f> Section<'f> {
    fn at(file: &'f File, start: u64) -> Section<'f> {
        Section { file, start, bytes: 0, buffer: Vec::with_capacity(WRITE_BYTES), hash: Xxh3::new() }
    }

    /// Append bytes; they lie at this place of the section.
    fn push(&mut self, bytes: &[u8]) -> std::io::Result<Range<u64>> {
        if self.buffer.len() + bytes.len() > WRITE_BYTES {
            self.flush()?;
        }
        let start = self.bytes;
        self.buffer.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        Ok(start..self.bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let at = self.start + self.bytes - self.buffer.len() as u64;
        self.file.write_all_at(&self.buffer, at)?;
        self.hash.update(&self.buffer);
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> std::io::Result<layout::Section> {
        self.flush()?;
        Ok(layout::Section { offset: self.start, bytes: self.bytes, checksum: self.hash.digest() })
    }
}
