//! Where bytes come from: object stores, folders, memory. One call is one attempt; [`Origin`] lays
//! patience and checks over it.
//!
//! Layout:
//! - [`Store`]: what Stoker asks of any store.
//! - [`Memory`]: a store in memory, for tests and demonstrations.
//! - [`Folder`]: files of a local or a network file system.
//! - [`S3`]: any server that speaks S3.
//! - [`Google`], [`Azure`]: Google Cloud Storage and Azure Blob Storage by their own interfaces.
//! - [`Web`]: files of a web server, by names that a manifest tells.
//! - [`Hdfs`]: a cluster of HDFS, by its name nodes and data nodes.
//! - [`Lost`]: a store that can't be had any more.
//! - [`Origin`]: blocks out of a store, with retries, a limit on requests and checks.
//! - [`Origins`]: each object out of its own store, by the credentials of the mount that asks.
//! - [`Sink`], [`open_to_write`]: the same stores, written into.
//! - [`Counters`]: what was asked of a store and what it took.
//! - [`Location`], [`open`]: from `s3://bucket/prefix` to a store.
//! - [`contract!`]: the suite that every store passes.
//!
//! Invariant: whoever reads an object gets the version that it asked for, or an error.

mod cloud;
mod command;
mod counters;
mod files;
mod fingerprint;
mod folder;
mod hdfs;
mod location;
mod lost;
mod memory;
mod origin;
mod origins;
mod renewed;
mod retry;
mod s3;
mod sink;

#[cfg(any(test, feature = "contract"))]
pub mod contract;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;

pub use cloud::{Azure, Google, Settings as CloudSettings, WEB_TOKEN, Web};
pub use counters::{Counters, Counts, FIRST_BYTE_BUCKETS, Failed};
pub use folder::{
    ANSWERS_WITHIN as FOLDER_ANSWERS_WITHIN, FileSystem, Folder, Settings as FolderSettings, silent as folder_is_silent,
};
pub use hdfs::{Hdfs, Settings as HdfsSettings};
pub use location::{Location, Settings, check, lender, open};
pub use lost::Lost;
pub use memory::Memory;
pub use origin::{Origin, Settings as OriginSettings};
pub use origins::{Entrance, Origins};
pub use retry::{Advice, Chance, advise};
pub use s3::endpoint::named_before;
pub use s3::{
    Configured, Credentials, Greeting, Lent, S3, Settings as S3Settings, Timeouts, Told, configured, lend,
    named_profile,
};
pub use sink::{PART_BYTES_MIN, PARTS_MAX, Part, Sink, Upload, open_to_write};

use block::{Checksum, Object, Result, Waiting};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use std::ops::Range;
use std::sync::Arc;

/// A thing in a store, as a listing tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    /// The store's own word for these bytes. One that begins with [`UNSETTLED`] may come to mean other
    /// bytes: they may be served, never kept.
    pub version: String,
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
}

/// First letter of a version that was taken so soon after a change that a further change may leave no trace.
pub const UNSETTLED: char = '~';

/// Whether bytes of this object may be kept under its version.
pub fn is_settled(object: &Object) -> bool {
    !object.version.starts_with(UNSETTLED)
}

/// A version without that mark, to be compared with others.
pub fn unmarked(version: &str) -> &str {
    version.strip_prefix(UNSETTLED).unwrap_or(version)
}

/// Pages of a listing, in no particular order between pages; each key once.
pub type Pages = BoxStream<'static, Result<Vec<Listed>>>;

/// The body of one answer.
pub struct Body {
    /// What the store says about all bytes of the object, if this answer says it.
    pub checksum: Option<Checksum>,
    /// The bytes of the range, as the network delivers them. The length is not checked here.
    pub bytes: BoxStream<'static, Result<Bytes>>,
}

/// What Stoker asks of any store. One call is one attempt: retries, limits and checks are laid over it.
/// (A listing is many requests; it tries each again by itself, for nobody could resume it from outside.)
pub trait Store: Send + Sync {
    /// Canonical identity, independent of the spelling of the endpoint: `s3://bucket`.
    fn identity(&self) -> &Arc<str>;

    /// A hash of how the store is asked: server and credentials. Two stores of one identity and one reach may stand
    /// in for each other.
    fn reach(&self) -> u64 {
        0
    }

    /// The principal that the store is asked by, without a secret: what others listed is not shown to it. An error if
    /// its credentials can't be had.
    fn who(&self) -> Waiting<String> {
        Box::pin(std::future::ready(Ok(String::new())))
    }

    /// Everything under a prefix (empty: all), listed in parallel where the store allows.
    fn list(&self, prefix: &str) -> Pages;

    /// Bytes of this very version; [`block::Kind::Changed`] if the store has another by now. The whole
    /// range is asked for without a range, so that the store's checksum comes along.
    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body>;

    /// What the store says about all bytes of this very version, if it says anything.
    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>>;

    /// What was asked of this store so far.
    fn counters(&self) -> &Arc<Counters>;
}

/// The object that a listing of this store names.
pub fn object(store: &dyn Store, listed: &Listed) -> Arc<Object> {
    let Listed { key, version, size, .. } = listed;
    Arc::new(Object { store: store.identity().clone(), key: key.clone(), version: version.clone(), size: *size })
}
