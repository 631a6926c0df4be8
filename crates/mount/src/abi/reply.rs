//! Answers into bytes: small ones on the stack, folder listings in a buffer that is used again.
//!
//! Invariant: the first four bytes of what is written are its length.

use super::{TYPE_FILE, TYPE_FOLDER};

pub const HEADER_BYTES: usize = 16;

/// The largest answer of fixed size: ENTRY, 128 bytes, and the header; one word to spare.
const REPLY_BYTES_MAX: usize = 152;

/// An answer of fixed size, header first.
pub struct Reply {
    bytes: [u8; REPLY_BYTES_MAX],
    length: usize,
}

/// Attributes as the kernel wants them.
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    pub node: u64,
    pub size: u64,
    pub modified_ns: i64,
    pub mode: u32,
    pub links: u32,
    pub owner: u32,
    pub group: u32,
    pub block: u32,
}

/// How long the kernel may believe an answer, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    pub name_s: u64,
    pub attributes_s: u64,
}

/// Answer to INIT.
pub struct Accepted {
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u64,
    pub stack_depth: u32,
}

impl Reply {
    /// An answer of a header alone. `code`: 0, a negative errno, or the code of a notification.
    pub fn new(unique: u64, code: i32) -> Reply {
        let mut reply = Reply { bytes: [0; REPLY_BYTES_MAX], length: 0 };
        reply.u32(0);
        reply.u32(code.cast_unsigned());
        reply.u64(unique);
        reply
    }

    pub fn entry(unique: u64, attr: &Attr, validity: Validity) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.entry_fields(attr, validity);
        reply
    }

    /// "There is no such name, and don't ask again for so long": an entry without a node.
    pub fn no_entry(unique: u64, name_s: u64) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.u64(0);
        reply.u64(0);
        reply.u64(name_s);
        reply.zeros(128 - 24);
        reply
    }

    pub fn attributes(unique: u64, attr: &Attr, validity: Validity) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.u64(validity.attributes_s);
        reply.u64(0);
        reply.attr_fields(attr);
        reply
    }

    pub fn open(unique: u64, handle: u64, flags: u32, backing: u32) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.u64(handle);
        reply.u32(flags);
        reply.u32(backing);
        reply
    }

    /// `statfs`: nothing is free, because nothing can be written.
    pub fn space(unique: u64, bytes: u64, files: u64, block: u32) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.u64(bytes.div_ceil(u64::from(block)));
        reply.zeros(16);
        reply.u64(files);
        reply.u64(0);
        for word in [block, NAME_BYTES_MAX, block, 0] {
            reply.u32(word);
        }
        reply.zeros(24);
        reply
    }

    pub fn init(unique: u64, accepted: &Accepted) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.u32(super::MAJOR);
        reply.u32(accepted.minor);
        reply.u32(accepted.max_readahead);
        reply.u32(accepted.flags as u32);
        reply.u16(super::MAX_BACKGROUND);
        reply.u16(super::CONGESTION);
        reply.u32(super::MAX_WRITE);
        reply.u32(1); // granularity of times: 1 ns
        reply.u16(super::MAX_PAGES);
        reply.u16(0); // alignment of DAX maps: none
        reply.u32((accepted.flags >> 32) as u32);
        reply.u32(accepted.stack_depth);
        reply.zeros(24);
        reply
    }

    /// "Forget the attributes and all pages of this node"; for a folder also its listing.
    pub fn invalidate_node(node: u64) -> Reply {
        let mut reply = Reply::new(0, super::notify::INVAL_INODE);
        reply.u64(node);
        reply.u64(0);
        reply.u64(u64::MAX); // length -1: to the end
        reply
    }

    /// "Ask again whatever was not answered."
    pub fn resend() -> Reply {
        Reply::new(0, super::notify::RESEND)
    }

    /// "Forget this name"; the name and a zero follow.
    pub fn invalidate_name(parent: u64, name: &[u8]) -> Vec<u8> {
        let mut reply = Reply::new(0, super::notify::INVAL_ENTRY);
        reply.u64(parent);
        reply.u32(name.len() as u32);
        reply.u32(0);
        let mut bytes = reply.seal().to_vec();
        bytes.extend_from_slice(name);
        bytes.push(0);
        set_length(&mut bytes);
        bytes
    }

    /// The finished bytes.
    pub fn seal(&mut self) -> &[u8] {
        set_length(&mut self.bytes[..self.length]);
        &self.bytes[..self.length]
    }

    fn entry_fields(&mut self, attr: &Attr, validity: Validity) {
        self.u64(attr.node);
        self.u64(0); // generation: a node number is never used again
        self.u64(validity.name_s);
        self.u64(validity.attributes_s);
        self.u64(0);
        self.attr_fields(attr);
    }

    fn attr_fields(&mut self, attr: &Attr) {
        let seconds = attr.modified_ns.div_euclid(NS_PER_S).cast_unsigned();
        let ns = attr.modified_ns.rem_euclid(NS_PER_S) as u32;
        for word in [attr.node, attr.size, attr.size.div_ceil(512), seconds, seconds, seconds] {
            self.u64(word);
        }
        for word in [ns, ns, ns, attr.mode, attr.links, attr.owner, attr.group, 0, attr.block, 0] {
            self.u32(word);
        }
    }

    fn u16(&mut self, value: u16) {
        self.bytes[self.length..self.length + 2].copy_from_slice(&value.to_ne_bytes());
        self.length += 2;
    }

    fn u32(&mut self, value: u32) {
        self.bytes[self.length..self.length + 4].copy_from_slice(&value.to_ne_bytes());
        self.length += 4;
    }

    fn u64(&mut self, value: u64) {
        self.bytes[self.length..self.length + 8].copy_from_slice(&value.to_ne_bytes());
        self.length += 8;
    }

    fn zeros(&mut self, bytes: usize) {
        self.length += bytes;
    }
}

const NS_PER_S: i64 = 1_000_000_000;

/// The longest name, as on every file system that a program may have been written for. Longer ones of a store are
/// shown in pieces.
pub const NAME_BYTES_MAX: u32 = 255;

/// A folder listing in the making: entries until the kernel's buffer is full.
pub struct Listing<'a> {
    bytes: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> Listing<'a> {
    /// Into `bytes`, for a kernel's buffer of `size`.
    pub fn new(bytes: &'a mut Vec<u8>, unique: u64, size: u32) -> Listing<'a> {
        bytes.clear();
        bytes.extend_from_slice(Reply::new(unique, 0).seal());
        Listing { bytes, end: HEADER_BYTES + size as usize }
    }

    /// False if it does not fit any more.
    pub fn name(&mut self, next: u64, name: &[u8], node: u64, folder: bool) -> bool {
        let fits = self.fits(0, name);
        if fits {
            self.dirent(next, name, node, folder);
        }
        fits
    }

    /// With attributes: the kernel takes this as a lookup. False if it does not fit any more.
    pub fn entry(&mut self, next: u64, name: &[u8], attr: &Attr, validity: Validity) -> bool {
        let fits = self.fits(ENTRY_BYTES, name);
        if fits {
            let mut entry = Reply::entry(0, attr, validity);
            self.bytes.extend_from_slice(&entry.seal()[HEADER_BYTES..]);
            self.dirent(next, name, attr.node, attr.mode & super::KIND_FOLDER != 0);
        }
        fits
    }

    /// With attributes left out: no lookup.
    pub fn bare(&mut self, next: u64, name: &[u8], node: u64, folder: bool) -> bool {
        let fits = self.fits(ENTRY_BYTES, name);
        if fits {
            self.bytes.resize(self.bytes.len() + ENTRY_BYTES, 0);
            self.dirent(next, name, node, folder);
        }
        fits
    }

    pub fn seal(self) -> &'a [u8] {
        set_length(self.bytes);
        self.bytes
    }

    fn fits(&self, before: usize, name: &[u8]) -> bool {
        self.bytes.len() + before + (DIRENT_BYTES + name.len()).next_multiple_of(8) <= self.end
    }

    fn dirent(&mut self, next: u64, name: &[u8], node: u64, folder: bool) {
        let kind = if folder { TYPE_FOLDER } else { TYPE_FILE };
        self.bytes.extend_from_slice(&node.to_ne_bytes());
        self.bytes.extend_from_slice(&next.to_ne_bytes());
        self.bytes.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(name);
        let padded = (DIRENT_BYTES + name.len()).next_multiple_of(8) - DIRENT_BYTES - name.len();
        self.bytes.resize(self.bytes.len() + padded, 0);
    }
}

const ENTRY_BYTES: usize = 128;
const DIRENT_BYTES: usize = 24;

fn set_length(bytes: &mut [u8]) {
    let length = (bytes.len() as u32).to_ne_bytes();
    bytes[..4].copy_from_slice(&length);
}
