//! Data sets in true formats: JPEG images in class folders and npz volumes, made from a seed by all cores.
//!
//! It doesn't copy any public set, and doesn't print: progress goes to a callback. It guards against a killed
//! process, not against lost power: whatever that tears, the checksums of the manifest find.
//! Invariants: bytes depend on (seed, index) alone; a file has its final name only when it is whole; nothing that
//! was not made here is ever overwritten.

mod crew;
mod draft;
mod manifest;
pub(crate) mod noise;
mod picture;
mod volume;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{Error, Result};
use serde::{Deserialize, Serialize};

use draft::Draft;
use manifest::Claim;
use picture::Palette;
use volume::Volume;

pub use manifest::{Entry, MANIFEST, Manifest};

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    pub images: ImageSpec,
    pub volumes: VolumeSpec,
    pub seed: u64,
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
    draft::room(folder, items.iter().filter(|item| !item.stands(folder)).map(|item| item.bytes).sum())?;
    claim.begin()?;
    plan.folders(folder)?;
    let meter = Meter::over(&items, progress);
    let files = crew::share(threads, plan.files(), &|number| {
        plan.make(&items[usize::try_from(number).expect("an index of a list in memory")], folder, &meter)
    })?;
    claim.complete(files)
}

impl Set {
    fn validate(&self) -> Result<()> {
        let Set { images, volumes, .. } = self;
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

/// One file to be made.
struct Item {
    path: String,
    bytes: u64,
    content: Content,
}

enum Content {
    Picture { index: u64 },
    Volume(Volume),
}

impl Item {
    fn stands(&self, folder: &Path) -> bool {
        fs::symlink_metadata(folder.join(&self.path)).is_ok_and(|found| found.is_file() && found.len() == self.bytes)
    }
}

/// A set with all that its files are made from.
struct Plan<'a> {
    set: &'a Set,
    palette: Option<Palette>,
}

impl Plan<'_> {
    fn of(set: &Set, threads: usize) -> Result<Plan<'_>> {
        let wanted = set.images.count > 0;
        let palette = wanted.then(|| Palette::paint(set.seed, set.images.mean_bytes, threads)).transpose()?;
        Ok(Plan { set, palette })
    }

    fn files(&self) -> u64 {
        self.set.volumes.count + self.set.images.count
    }

    fn palette(&self) -> &Palette {
        self.palette.as_ref().expect("painted whenever there are images")
    }

    /// Volumes come first, so that the last files to be made are small and all threads end together.
    fn item(&self, number: u64) -> Item {
        let Set { images, volumes, seed } = self.set;
        if number < volumes.count {
            let volume = Volume::of(*seed, number, volumes.bytes);
            return Item {
                path: format!("{VOLUMES}/case_{number:05}.npz"),
                bytes: volume.bytes(),
                content: Content::Volume(volume),
            };
        }
        let index = number - volumes.count;
        let (class, place) = (index % images.classes + 1, index / images.classes + 1);
        let path = format!("{IMAGES}/n{class:08}/n{class:08}_{place:06}.JPEG");
        Item { path, bytes: self.palette().bytes(index), content: Content::Picture { index } }
    }

    fn folders(&self, folder: &Path) -> Result<()> {
        let classes = if self.set.images.count > 0 { self.set.images.classes } else { 0 };
        let classes = (1..=classes).map(|class| format!("{IMAGES}/n{class:08}"));
        let volumes = (self.set.volumes.count > 0).then(|| VOLUMES.to_string());
        for name in classes.chain(volumes) {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(|error| draft::failed("creating a folder", &path, &error))?;
        }
        Ok(())
    }

    /// Writes the file unless it stands already; then only its checksum is worked out.
    fn make(&self, item: &Item, folder: &Path, meter: &Meter<'_>) -> Result<Entry> {
        let crc64 = if item.stands(folder) {
            self.compose(item, &mut |_, bytes| {
                meter.passed(bytes.len());
                Ok(())
            })?
        } else {
            let draft = Draft::begin(folder, &item.path)?;
            let crc64 = self.compose(item, &mut |offset, bytes| {
                draft.put(offset, bytes)?;
                meter.passed(bytes.len());
                Ok(())
            })?;
            draft.finish()?;
            crc64
        };
        meter.finished();
        Ok(Entry { path: item.path.clone(), bytes: item.bytes, crc64 })
    }

    /// Gives the bytes of a file to `put` and returns their checksum.
    fn compose(&self, item: &Item, put: &mut Put<'_>) -> Result<u64> {
        match &item.content {
            Content::Picture { index } => self.palette().compose(*index, put),
            Content::Volume(volume) => volume.compose(put),
        }
    }
}

/// Counts what passes and tells the caller.
struct Meter<'a> {
    bytes: AtomicU64,
    bytes_total: u64,
    files: AtomicU64,
    files_total: u64,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl<'a> Meter<'a> {
    fn over(items: &[Item], progress: &'a (dyn Fn(Progress) + Sync)) -> Meter<'a> {
        let bytes_total = items.iter().map(|item| item.bytes).sum();
        let files_total = items.len() as u64;
        Meter { bytes: AtomicU64::new(0), bytes_total, files: AtomicU64::new(0), files_total, progress }
    }

    fn passed(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.tell();
    }

    fn finished(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        let (bytes, files) = (self.bytes.load(Ordering::Relaxed), self.files.load(Ordering::Relaxed));
        (self.progress)(Progress { bytes, bytes_total: self.bytes_total, files, files_total: self.files_total });
    }
}
