//! Names, attributes and listings: all from the namespace, at once.
//!
//! Invariant: each node that the kernel gets to know counts one lookup, and one that it did not get to
//! know after all counts none.

use super::{Asked, Scratch, Service};
use crate::abi::reply::{NAME_BYTES_MAX, Validity};
use crate::abi::{Listing, Reply, open};
use crate::device::Gone;
use crate::habit::{FIRST_NAMES, Manner};
use node::namespace::{Attributes, Names};
use rustix::io::Errno;
use std::sync::Arc;

/// A name means one node, and a node one version, until a refresh says otherwise to the kernel itself.
/// A year, because the kernel counts in ticks that must not run over.
const FOR_EVER: Validity = Validity { name_s: 365 * 86_400, attributes_s: 365 * 86_400 };

/// An unknown name may appear at a refresh, which tells the kernel so; the second only bounds what it costs if
/// that message is lost, and spares us the storms of programs that probe for files (imports, configuration).
const MISSING_S: u64 = 1;

/// The dots come before the children: positions of the namespace start after them.
const DOTS: u64 = 2;

/// For `..` in a listing: the kernel's own word for "ask by name".
const UNKNOWN_NODE: u64 = 0xffff_ffff;

impl Service {
    pub(super) fn lookup(&self, asked: Asked<'_>, name: &[u8]) -> Result<(), Gone> {
        if name.len() > NAME_BYTES_MAX as usize {
            return asked.device.fail(asked.unique, Errno::NAMETOOLONG);
        }
        let Some(found) = self.namespace.lookup(asked.node, name) else {
            return asked.device.send(&mut Reply::no_entry(asked.unique, MISSING_S));
        };
        self.habits.looked_up(found.node);
        if let Some(file) = self.inodes.ahead(found.node) {
            self.ahead.looked_up(&file);
        }
        let sent = asked.device.send(&mut Reply::entry(asked.unique, &self.attr(&found), FOR_EVER));
        if sent.is_err() {
            self.namespace.remember(found.node, -1);
        }
        sent
    }

    pub(super) fn attributes(&self, asked: Asked<'_>) -> Result<(), Gone> {
        match self.namespace.attributes(asked.node) {
            Some(found) => asked.device.send(&mut Reply::attributes(asked.unique, &self.attr(&found), FOR_EVER)),
            None => asked.device.fail(asked.unique, Errno::STALE),
        }
    }

    pub(super) fn open_folder(&self, asked: Asked<'_>) -> Result<(), Gone> {
        let now = self.namespace.names();
        // Between a refresh and the moment when the kernel was notified of it, its pages are of other names than ours.
        let in_step = now.as_ref().is_none_or(|names| names.generation() == self.ledger.told());
        // Pages of a folder in which nothing changed may be of names from long ago: with these its reader has to go on, and without them
        // begin anew.
        let listed =
            self.folders.listed(asked.node).filter(|listed| now.as_ref().is_none_or(|now| now.generation() != *listed));
        let kept = listed.and_then(|listed| self.namespace.names_of(listed));
        let keeps = if listed.is_none() || kept.is_some() { open::KEEP_CACHE } else { 0 };
        let generation = now.as_ref().map_or(0, |now| now.generation());
        let (handle, is_kept) = self.folders.open(asked.node, kept.or(now), generation, in_step);
        let flags = if is_kept { open::CACHE_DIR | keeps } else { 0 };
        let sent = asked.device.send(&mut Reply::open(asked.unique, handle, flags, 0));
        if sent.is_err() {
            self.folders.release(handle);
        }
        sent
    }

    /// The names as they are now, as far as they have a number.
    pub fn generation(&self) -> u32 {
        self.namespace.names().map_or(0, |names| names.generation())
    }

    /// One buffer full of a folder's children from a position on.
    pub(super) fn list(&self, asked: Asked<'_>, part: Part, scratch: &mut Scratch) -> Result<(), Gone> {
        let names = self.names(asked.node, part);
        let generation = names.as_ref().map_or(0, |names| names.generation());
        if part.offset == 0 {
            self.folders.list(part.handle, asked.node, generation);
        }
        let Some(from) = self.folders.position(generation, part.offset) else {
            // The names that this listing began with are gone; going on in others would skip some, or repeat them.
            return asked.device.fail(asked.unique, Errno::STALE);
        };
        let Scratch { listing, nodes } = scratch;
        nodes.clear();
        let mut page = Page {
            listing: Listing::new(listing, asked.unique, part.size),
            nodes,
            service: self,
            thread: asked.thread,
            plus: part.plus,
            manner: if part.plus { self.habits.listing(asked.thread, from == 0) } else { Manner::Names },
            probing: part.plus && from == 0,
            room: usize::MAX,
        };
        if page.manner == Manner::Unknown && from == 0 {
            page.room = FIRST_NAMES;
        }
        let offset = |position: u64| self.folders.offset(generation, position);
        if !dots(&mut page.listing, asked.node, from, part.plus, offset) {
            return asked.device.write(page.listing.seal()).map_err(|_| Gone);
        }
        let mut each = |next: u64, name: &[u8], child: Attributes| page.take(offset(next + DOTS), name, &child);
        let from = from.saturating_sub(DOTS);
        let is_folder = match &names {
            Some(names) => names.list(asked.node, from, &mut each),
            None => self.namespace.list(asked.node, from, &mut each),
        };
        if !is_folder {
            return asked.device.fail(asked.unique, Errno::NOTDIR);
        }
        let Page { listing, nodes, .. } = page;
        // Before the answer: the kernel may give them back the moment it has them.
        nodes.iter().for_each(|&node| self.namespace.remember(node, 1));
        let sent = asked.device.write(listing.seal()).map_err(|_| Gone);
        if sent.is_err() {
            nodes.iter().for_each(|&node| self.namespace.remember(node, -1));
        }
        sent
    }

    /// The names that a listing goes on with, or those of now where it begins.
    fn names(&self, folder: u64, part: Part) -> Option<Arc<dyn Names>> {
        // Another process may have begun it.
        let before = || self.namespace.names_of(self.folders.generation(part.offset));
        let begun = match part.offset {
            0 => None,
            offset => self.folders.names(part.handle, offset).or_else(before),
        };
        let names = begun.or_else(|| self.namespace.names())?;
        if self.folders.position(names.generation(), part.offset).is_some() {
            self.folders.begin(part.handle, folder, names.clone());
        }
        Some(names)
    }
}

/// What the kernel asks of a listing.
#[derive(Clone, Copy)]
pub struct Part {
    pub handle: u64,
    pub offset: u64,
    pub size: u32,
    pub plus: bool,
}

/// One answer in the making.
struct Page<'a> {
    listing: Listing<'a>,
    /// Those that were listed with attributes, which the kernel takes for lookups.
    nodes: &'a mut Vec<u64>,
    service: &'a Service,
    thread: u32,
    plus: bool,
    manner: Manner,
    /// The first file is listed without attributes, to see whether it is looked up.
    probing: bool,
    /// Names that may still come.
    room: usize,
}

impl Page<'_> {
    /// One child; false if there is no room for it.
    fn take(&mut self, next: u64, name: &[u8], child: &Attributes) -> bool {
        if !presentable(name) {
            return true;
        }
        let Some(room) = self.room.checked_sub(1) else { return false };
        self.room = room;
        if !self.plus {
            return self.listing.name(next, name, child.node, child.folder);
        }
        let probe = self.probing && !child.folder;
        if probe || self.manner != Manner::Attributes {
            let fits = self.listing.bare(next, name, child.node, child.folder);
            if fits && probe {
                self.probing = false;
                self.service.habits.probe(self.thread, child.node);
            }
            return fits;
        }
        let fits = self.listing.entry(next, name, &self.service.attr(child), FOR_EVER);
        if fits {
            self.nodes.push(child.node);
        }
        fits
    }
}

/// `.` and `..`, as far as they are still to come. False if the buffer is full.
fn dots(listing: &mut Listing<'_>, node: u64, from: u64, plus: bool, offset: impl Fn(u64) -> u64) -> bool {
    let mut dot = |next: u64, name: &[u8], node: u64| {
        let position = offset(next);
        from >= next
            || if plus { listing.bare(position, name, node, true) } else { listing.name(position, name, node, true) }
    };
    dot(1, b".", node) && dot(DOTS, b"..", UNKNOWN_NODE)
}

/// One such name would make the kernel refuse the whole listing. They can be read by no path anyway.
fn presentable(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX as usize && !name.contains(&b'/')
}
