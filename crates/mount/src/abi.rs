//! The kernel's FUSE protocol, as far as a read-only mount speaks it: numbers, flags and sizes of the
//! public ABI at level 7.45, down to 7.31. It decodes and encodes; it decides nothing and calls nothing.
//!
//! Layout:
//! - [`request`]: bytes from the device into a [`Request`]; bytes are never trusted.
//! - [`reply`]: answers into bytes.
//!
//! Invariant: every field is read and written by copying bytes, so alignment never matters.

pub mod reply;
pub mod request;

pub use reply::{Listing, Reply};
pub use request::{Init, Operation, Request};

pub const MAJOR: u32 = 7;
/// What we were written for; the kernel takes the lower of both levels.
pub const MINOR: u32 = 45;
/// Linux 5.4 (we ask for 5.6), the first with requests of 1 MiB, parallel folder reads and listings in the page cache.
pub const MINOR_MIN: u32 = 31;

/// The kernel refuses reads into less than 8 KiB. More only lets several forgets travel together: a
/// thousand of them fit here.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Nothing is written through a mount, so the smallest value that the kernel accepts.
pub const MAX_WRITE: u32 = 4096;

/// 256 pages: reads of up to 1 MiB; the kernel's default limit (fs.fuse.max_pages_limit).
pub const MAX_PAGES: u16 = 256;

/// Waiting reads ahead of all files. The kernel's default of 12 halves the throughput of a store that
/// answers in 5 ms, and lets RELEASE requests, which are counted here too, pile up.
pub const MAX_BACKGROUND: u16 = 128;

/// Three quarters, as in the kernel's own default: from here on readahead holds back.
pub const CONGESTION: u16 = MAX_BACKGROUND / 4 * 3;

/// In the number of a request that the kernel sends once more, after [`notify::RESEND`].
pub const UNIQUE_RESENT: u64 = 1 << 63;

/// INIT flags (both words as one).
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The second word of flags is there.
    pub const EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const PASSTHROUGH: u64 = 1 << 37;
    /// No file handles for NFS: a node that was forgotten can't be found again.
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    /// The kernel sends what was not answered again when it is asked to.
    pub const HAS_RESEND: u64 = 1 << 39;
}

/// Flags of an answer to OPEN.
pub mod open {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Keep the pages of a folder's listing.
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// Request codes.
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const SETXATTR: u32 = 21;
    pub const REMOVEXATTR: u32 = 24;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
}

/// Codes of messages that we send unasked.
pub mod notify {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const RESEND: i32 = 7;
}

/// File types of folder entries, as in `d_type`.
pub const TYPE_FOLDER: u32 = 4;
pub const TYPE_FILE: u32 = 8;

/// The bits of a mode that say what a node is.
pub const KIND_FOLDER: u32 = 0o040_000;
pub const KIND_FILE: u32 = 0o100_000;

#[cfg(test)]
mod tests;
