//! Data sets in true formats, made from a seed by all cores: JPEG images in class folders, npz volumes, npy arrays, TFRecord,
//! Parquet and WebDataset shards, raw files; or a user's own files, many times over.
//!
//! Layout: `shape`, `likeness` and `replica` say what to make, `plan` file by file, `crew` does it; `picture`, `volume`, `npy`,
//! `tfrecord`, `parquet` and `shard` are the formats, over `stream` and `noise`; `draft` is a file in the making,
//! `manifest` and `index` are what was made, down to each record; `sync` copies and checks a set.
//!
//! It doesn't copy any public set, and doesn't print: progress goes to a callback. It guards against a killed
//! process, not against lost power: whatever that tears, the checksums of the manifest find.
//! Invariants: bytes depend on (seed, index) alone; a file has its final name only when it is whole; nothing that
//! was not made here is ever overwritten.

pub mod crew;
mod draft;
mod index;
pub mod likeness;
mod manifest;
pub mod noise;
mod npy;
mod parquet;
mod picture;
mod plan;
mod replica;
mod shape;
mod shard;
mod stream;
mod sync;
mod tfrecord;
mod volume;

#[cfg(test)]
mod tests;

use std::path::Path;

use block::{Error, Result};
use serde::{Deserialize, Serialize};

use manifest::Claim;
use plan::{Meter, Plan};

pub use index::{INDEXES, Record};
pub use manifest::{Entry, MANIFEST, Manifest};
pub use replica::Replica;
pub use shape::{Shape, Sizes, files_for};
pub use sync::{copy, room, verify};

/// Folder of the images, one folder a class in it, as `torchvision.datasets.ImageFolder` expects.
pub const IMAGES: &str = "train";
/// Folder of the volumes.
pub const VOLUMES: &str = "volumes";

/// Below this the headers weigh more than the picture.
const IMAGE_BYTES_MIN: u64 = 4 << 10;
/// Sixteen pictures of this size are kept in memory to draw from.
const IMAGE_BYTES_MAX: u64 = 4 << 20;
const VOLUME_BYTES_MIN: u64 = 8 << 10;
/// A plain zip file ends at 4 GiB; this leaves room for its headers and the rounding to whole planes.
const VOLUME_BYTES_MAX: u64 = 4_000_000_000;

/// What to make. The same set gives the same bytes on every machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    #[serde(default)]
    pub images: ImageSpec,
    #[serde(default)]
    pub volumes: VolumeSpec,
    pub seed: u64,
    /// The files of a workload, instead of the above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// A user's own files, instead of the above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<Replica>,
}

/// JPEG images: `train/n00000001/n00000001_000001.JPEG`, sizes spread evenly from 75 to 125 % of the mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSpec {
    pub count: u64,
    /// Class folders; images are dealt to them in turn.
    pub classes: u64,
    pub mean_bytes: u64,
}

/// Volumes in the manner of KiTS19: `volumes/case_00000.npz` with `x` (float32) and `y` (uint8), stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    pub count: u64,
    /// Bytes of one file, met to the nearest whole plane of voxels.
    pub bytes: u64,
}

/// How far it is. Files that were there already count as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub bytes: u64,
    pub bytes_total: u64,
    pub files: u64,
    pub files_total: u64,
}

/// Makes the set in an existing folder, which it shares with nothing else named `train` or `volumes`. Goes on where an
/// interrupted run stopped; a finished set is recognised by names and sizes, and not read.
pub fn generate(set: &Set, folder: &Path, threads: usize, progress: &(dyn Fn(Progress) + Sync)) -> Result<Manifest> {
    set.validate()?;
    let claim = Claim::stake(folder, set)?;
    if let Some(manifest) = claim.finished() {
        let bytes = manifest.bytes();
        let files = manifest.files.len() as u64;
        progress(Progress { bytes, bytes_total: bytes, files, files_total: files });
        return Ok(manifest);
    }
    let plan = Plan::of(set, threads)?;
    let items = crew::share(threads, plan.files(), &|number| Ok(plan.item(number)))?;
    draft::room(folder, items.iter().filter(|item| !item.stands(folder)).map(plan::Item::room).sum())?;
    claim.begin()?;
    plan.folders(folder, &items)?;
    let meter = Meter::over(items.iter().map(|item| item.bytes).sum(), items.len() as u64, progress);
    let files = crew::share(threads, plan.files(), &|number| {
        plan.make(&items[usize::try_from(number).expect("an index of a list in memory")], folder, &meter)
    })?;
    claim.complete(files)
}

impl Set {
    /// The files of a workload.
    pub fn shaped(shape: Shape, seed: u64) -> Set {
        Set { shape: Some(shape), seed, ..Set::default() }
    }

    /// A user's own files.
    pub fn replicated(replica: Replica) -> Set {
        Set { replica: Some(replica), ..Set::default() }
    }

    /// Refuse a set that its disk could never hold, before its files are planned: of 10^8 that takes minutes.
    pub fn fits(&self, folder: &Path) -> Result<()> {
        self.shape.as_ref().map_or(Ok(()), |shape| draft::fits(folder, shape.bytes(), shape.count))
    }

    fn validate(&self) -> Result<()> {
        let Set { images, volumes, shape, replica, .. } = self;
        if let Some(shape) = shape {
            return shape.validate();
        }
        if replica.is_some() {
            return Ok(());
        }
        let within = |bytes, min, max| (min..=max).contains(&bytes);
        if images.count == 0 && volumes.count == 0 {
            return Err(
                Error::invalid("the data set would be empty", "0 images, 0 volumes").hint("ask for some of either")
            );
        }
        if images.count > 0 && (images.classes == 0 || images.classes > images.count) {
            let on = format!("{} images in {} classes", images.count, images.classes);
            return Err(
                Error::invalid("each class needs an image", on).hint("ask for 1 class up to one for each image")
            );
        }
        if images.count > 0 && !within(images.mean_bytes, IMAGE_BYTES_MIN, IMAGE_BYTES_MAX) {
            let on = format!("{} bytes an image", images.mean_bytes);
            return Err(
                Error::invalid("images of that size can't be made", on).hint("ask for a mean from 4 KiB to 4 MiB")
            );
        }
        if volumes.count > 0 && !within(volumes.bytes, VOLUME_BYTES_MIN, VOLUME_BYTES_MAX) {
            let on = format!("{} bytes a volume", volumes.bytes);
            return Err(Error::invalid("volumes of that size can't be made", on).hint("ask for 8 KiB to 4 GB each"));
        }
        Ok(())
    }
}

/// Where the bytes of a file go: each call gives an offset and what belongs there, in any order.
type Put<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;
