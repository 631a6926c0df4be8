//! How much of a file or a folder is in the cache, and what became of it there.

use serde::{Deserialize, Serialize};

/// `POST /v1/kept` with a [`MountPath`](super::MountPath): how much of a file or a folder is in the cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    pub files: u64,
    pub bytes: u64,
    /// Files that are there to their last byte, and bytes also of others.
    pub kept_files: u64,
    pub kept_bytes: u64,
    /// What is directly in a folder, by name; the first thousand.
    pub entries: Vec<KeptEntry>,
}

/// A file or a folder within another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeptEntry {
    /// A folder's ends with a slash.
    pub name: String,
    pub files: u64,
    pub bytes: u64,
    pub kept_files: u64,
    pub kept_bytes: u64,
}

/// `POST /v1/verify` with a [`MountPath`](super::MountPath): what this node keeps of it was read again, and compared with the
/// checksums that it was kept with.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verified {
    pub files: u64,
    pub bytes: u64,
    /// Files that were damaged, which are kept no more; the first of them by name.
    pub damaged: u64,
    pub names: Vec<String>,
}

/// `POST /v1/evict` with a [`MountPath`](super::MountPath): what this node kept of it, and keeps no more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Evicted {
    pub files: u64,
    pub bytes: u64,
}
