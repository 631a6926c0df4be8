//! Where bytes come from: object stores, folders, memory.
//!
//! Layout:
//! - [`Store`]: what Stoker asks of any store.

use block::{Checksum, Object, Result, Waiting};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use std::ops::Range;
use std::sync::Arc;

/// A thing in a store, as a listing tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    pub version: String,
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
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
pub trait Store: Send + Sync {
    /// Canonical identity, independent of the spelling of the endpoint: `s3://bucket`.
    fn identity(&self) -> &Arc<str>;

    /// Everything under a prefix (empty: all), listed in parallel where the store allows.
    fn list(&self, prefix: &str) -> Pages;

    /// Bytes of this very version; [`block::Kind::Changed`] if the store has another by now.
    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body>;

    /// What the store says about all bytes of this very version, if it says anything.
    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>>;
}
