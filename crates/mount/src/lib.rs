//! The way in through the kernel: mounts a [`Namespace`] with FUSE, and passes reads of complete files
//! through to the local files that hold them. Only this crate knows FUSE.
//!
//! Layout:
//! - [`attach`] mounts; [`Session`] is a mount being served; [`unmount`] ends it. [`resume`] goes on with what another
//!   process served.
//! - `abi`: the kernel's messages. `device`: where they come from.
//! - `service`: what each request means. `inode`, `handle`, `content`, `wait`: what it remembers.
//! - `ledger`: what of that outlives the process; `hostile`: as bytes that mean harm, for fuzzing.
//! - `folder`: listings that have begun. `habit`: who wants attributes with them. `unmapped`: pages to forget.
//! - `ahead`: small files read before they are opened. `used`: opens that nobody was asked for. `turn`: how many threads listen to the kernel.
//! - `errno`: the one place where an error becomes a number.
//!
//! Invariant: no thread of a session ever waits for a store; what takes time runs on the runtime and can
//! be interrupted.

mod abi;
mod ahead;
mod attach;
mod content;
mod counter;
mod device;
mod errno;
mod folder;
mod habit;
mod handle;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod inode;
mod ledger;
mod service;
mod session;
mod turn;
mod unmapped;
mod used;
mod wait;

pub use attach::{
    Above, Found, Known, Number, Places, Standing, above, are_awaited, dead, dead_above, everywhere, is_below,
    is_left_part, is_mounted, is_stale, known_as, look, named, system_of, unmount, unmount_everywhere, user_at,
};
pub use counter::Counts;
pub use service::{Passthrough, Space};
pub use session::{ENDED, Left, Newest, Session, Terms, attach, resume};

use node::namespace::Namespace;
use std::path::PathBuf;

/// What a mount is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    pub mount_point: PathBuf,
    /// Shown by `mount` and `df` as what is mounted.
    pub url: String,
    /// Files are never opened at the daemon, which is cheapest for many small files that fit the page
    /// cache; there is no passthrough then.
    pub immutable: bool,
    /// Threads that answer the kernel; by default as many as the processors make useful.
    pub threads: Option<usize>,
    /// Let all users read, not only the one who mounts.
    pub allow_other: bool,
    /// Pass complete files through to their local files, where the kernel allows it.
    pub passthrough: bool,
    /// How many stacked file systems the cache may lie on: 1, or 2 if it lies on overlayfs. With 2 the
    /// mount can't be a layer of an overlayfs itself.
    pub stack_depth: u32,
    /// Told to programs as the size in which to read.
    pub block_bytes: u32,
    /// What `df` shows.
    pub space: Space,
    /// Whom everything belongs to; by default whoever mounts.
    pub owner: Option<u32>,
    pub group: Option<u32>,
    /// Permissions of files and of folders. The kernel goes by them.
    pub file_mode: u32,
    pub folder_mode: u32,
}

impl Options {
    /// The usual mount of `url`.
    pub fn new(mount_point: impl Into<PathBuf>, url: impl Into<String>) -> Options {
        Options {
            mount_point: mount_point.into(),
            url: url.into(),
            immutable: false,
            threads: None,
            allow_other: attach::is_root(),
            passthrough: true,
            stack_depth: 1,
            block_bytes: service::BLOCK_BYTES,
            space: Space::default(),
            owner: None,
            group: None,
            file_mode: 0o444,
            folder_mode: 0o555,
        }
    }
}
