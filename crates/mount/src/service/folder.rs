//! Names, attributes and listings: all from the namespace, at once.
//!
//! Invariant: each node that the kernel gets to know counts one lookup, and one that it did not get to
//! know after all counts none.

use super::{Asked, Scratch, Service};
use crate::abi::reply::{NAME_BYTES_MAX, Validity};
use crate::abi::{Listing, Reply};
use crate::device::Gone;
use rustix::io::Errno;

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
        let Some(found) = self.namespace.lookup(asked.node, name) else {
            return asked.device.send(&mut Reply::no_entry(asked.unique, MISSING_S));
        };
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

    /// One buffer full of a folder's children from a position on.
    pub(super) fn list(
        &self,
        asked: Asked<'_>,
        offset: u64,
        size: u32,
        plus: bool,
        scratch: &mut Scratch,
    ) -> Result<(), Gone> {
        let Scratch { listing, nodes } = scratch;
        nodes.clear();
        let mut listing = Listing::new(listing, asked.unique, size);
        if !dots(&mut listing, asked.node, offset, plus) {
            return asked.device.write(listing.seal()).map_err(|_| Gone);
        }
        let is_folder = self.namespace.list(asked.node, offset.saturating_sub(DOTS), &mut |next, name, child| {
            if !presentable(name) {
                return true;
            }
            let next = next.saturating_add(DOTS);
            if !plus {
                return listing.name(next, name, child.node, child.folder);
            }
            let fits = listing.entry(next, name, &self.attr(&child), FOR_EVER);
            if fits {
                nodes.push(child.node);
            }
            fits
        });
        if !is_folder {
            return asked.device.fail(asked.unique, Errno::NOTDIR);
        }
        // Before the answer: the kernel may give them back the moment it has them.
        nodes.iter().for_each(|&node| self.namespace.remember(node, 1));
        let sent = asked.device.write(listing.seal()).map_err(|_| Gone);
        if sent.is_err() {
            nodes.iter().for_each(|&node| self.namespace.remember(node, -1));
        }
        sent
    }
}

/// `.` and `..`, as far as they are still to come. False if the buffer is full.
fn dots(listing: &mut Listing<'_>, node: u64, offset: u64, plus: bool) -> bool {
    let mut dot = |next: u64, name: &[u8], node: u64| {
        offset >= next || if plus { listing.dot(next, name, node) } else { listing.name(next, name, node, true) }
    };
    dot(1, b".", node) && dot(DOTS, b"..", UNKNOWN_NODE)
}

/// One such name would make the kernel refuse the whole listing. They can be read by no path anyway.
fn presentable(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX as usize && !name.contains(&b'/')
}
