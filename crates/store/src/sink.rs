//! What can be written into a store, for whoever fills one: data sets of `bench`, checkpoints.
//!
//! As with [`crate::Store`] one call is one attempt; patience is laid over it. Nothing of the read path uses this.
//! Invariant: an object has its name only when all of its bytes are there and were checked on arrival where the store
//! can check; a write that failed leaves what was there before.

use crate::{Azure, Folder, Google, Hdfs, Listed, Location, S3, Settings, Store, Web};
use block::{Result, Waiting};
use bytes::Bytes;
use std::sync::Arc;

/// Least bytes of a part that is not the last, as S3 has it.
pub const PART_BYTES_MIN: u64 = 5 << 20;

/// Parts of one upload, as S3 has it.
pub const PARTS_MAX: u64 = 10_000;

/// A store that can be written.
pub trait Sink: Send + Sync {
    /// Write an object in one request, in place of whatever has its name.
    fn put(&self, key: &str, content: Bytes) -> Waiting<()>;

    /// Begin to write an object in parts.
    fn begin(&self, key: &str) -> Waiting<Arc<dyn Upload>>;

    /// Remove an object. One that is not there is no failure.
    fn delete(&self, key: &str) -> Waiting<()>;

    /// What lies under a key now, found by one request for its head.
    fn find(&self, key: &str) -> Waiting<Listed>;
}

/// An object that is being written in parts, which may come in any order and at the same time.
pub trait Upload: Send + Sync {
    /// Write one part; all but the last are of at least [`PART_BYTES_MIN`]. A part that failed may be written again.
    fn part(&self, place: Part, content: Bytes) -> Waiting<()>;

    /// Join the parts and give the object its name.
    fn complete(&self) -> Waiting<()>;

    /// Forget all parts.
    fn abort(&self) -> Waiting<()>;
}

/// Where a part belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 1 on, in the order of the object.
    pub number: u32,
    /// Of its first byte in the object.
    pub offset: u64,
}

/// The store at a location, to read from and to write into.
pub fn open_to_write(location: &Location, settings: &Settings) -> Result<(Arc<dyn Store>, Arc<dyn Sink>)> {
    Ok(match location {
        Location::S3 { bucket, .. } => {
            let s3 = S3::open(bucket, settings.s3.clone())?;
            (Arc::new(s3.clone()), Arc::new(s3))
        }
        Location::Google { bucket, .. } => {
            let google = Google::open(bucket, &settings.cloud)?;
            (Arc::new(google.clone()), Arc::new(google))
        }
        Location::Azure { container, host, .. } => {
            let azure = Azure::open(container, host.as_deref(), &settings.cloud)?;
            (Arc::new(azure.clone()), Arc::new(azure))
        }
        Location::Web { server, .. } => {
            let web = Web::open(server, &settings.cloud)?;
            (Arc::new(web.clone()), Arc::new(web))
        }
        Location::Hdfs { authority, .. } => {
            let hdfs = Hdfs::open(authority, &settings.hdfs)?;
            (Arc::new(hdfs.clone()), Arc::new(hdfs))
        }
        Location::Folder(path) => {
            let folder = Folder::at(path, settings.folder)?;
            (Arc::new(folder.clone()), Arc::new(folder))
        }
    })
}
