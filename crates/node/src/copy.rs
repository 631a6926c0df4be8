//! Copy a data set from a store to a folder of an attached disk, without a node.
//!
//! A file gets its name only when it is whole, equal to the store's checksum where there is one, and on the disk.
//! Its modification time is the object's. So a copy that goes on after any end, also of the machine, believes a file
//! of the right size and time; but not one with holes, which somebody else made.
//!
//! Invariant: a name below the folder is never that of a file which a power loss could take bytes from.

mod durable;
#[cfg(test)]
mod tests;

use crate::load::{Loading, chosen};
use crate::manifest::Manifest;
use crate::select::Wanted;
use crate::view::{DataSet, list_nameless};
use block::{Block, Checksum, Door, Error, Object, RUN_BLOCKS_MAX, Result, Run, Source as _, crc64};
use durable::{Disk, Real};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use store::Origin;
use tokio::sync::Semaphore;

/// Files that are copied at once. Most of them wait until they are on the disk, and a disk takes many for the price of
/// one: its journal is written once for all that wait.
const FILES_AT_ONCE: usize = 256;

/// Files that are fetched at once.
const FETCHES_AT_ONCE: usize = 32;

/// Runs of one large file that are fetched side by side.
const RUNS_AT_ONCE: usize = 4;

/// Copy what is wanted of a data set to a folder.
pub async fn copy(source: &DataSet, folder: &Path, wanted: &Wanted, verify: bool, tally: &Arc<Loading>) -> Result<()> {
    copy_to(Arc::new(Real), source, folder, wanted, verify, tally).await
}

async fn copy_to(
    disk: Arc<dyn Disk>,
    source: &DataSet,
    folder: &Path,
    wanted: &Wanted,
    verify: bool,
    tally: &Arc<Loading>,
) -> Result<()> {
    let doing = |error: std::io::Error| Error::io("cannot copy into the folder", folder.display(), &error);
    std::fs::create_dir_all(folder).map_err(doing)?;
    let top = File::open(folder).map_err(doing)?;
    // Two at once would write the same parts. Where a file system has no locks, nobody is kept out.
    if let Err(std::fs::TryLockError::WouldBlock) = top.try_lock() {
        return Err(Error::unavailable("another copy is writing into this folder", folder.display())
            .hint("wait for its end, or copy to another folder"));
    }
    let manifest = Arc::new(list_nameless(source, folder).await?);
    let files = chosen(&manifest, wanted)?;
    tally.expect(&files);
    let origin = Arc::new(Origin::new(source.store.clone(), Default::default()));
    let fetches = Semaphore::new(FETCHES_AT_ONCE);
    let job = Arc::new(Job { origin, manifest, folder: folder.to_owned(), verify, fetches, disk });
    let copies = stream::iter(files).map(|(node, size)| {
        let (job, tally) = (job.clone(), tally.clone());
        tokio::spawn(async move {
            match job.file(node).await {
                Ok(present) => tally.done(size, if present { size } else { 0 }),
                Err(error) => tally.failed(&job.path(node), &error),
            }
        })
    });
    copies.buffer_unordered(FILES_AT_ONCE).for_each(|_| std::future::ready(())).await;
    apart(move || job.disk.sync_names(&top).map_err(|error| Error::io("cannot sync the copy", "its folder", &error)))
        .await
}

struct Job {
    origin: Arc<Origin>,
    manifest: Arc<Manifest>,
    folder: PathBuf,
    verify: bool,
    fetches: Semaphore,
    disk: Arc<dyn Disk>,
}

/// What lies under a name before it is copied.
enum Before {
    /// A file of the right size and time, every byte of which was written.
    Whole,
    /// The same, but with holes, as files have that a lost machine or another program left unfinished.
    Holed,
    Other,
}

impl Job {
    fn path(&self, node: u64) -> String {
        String::from_utf8_lossy(&self.manifest.path(node).unwrap_or_default()).into_owned()
    }

    /// Copy one file; true if it was there already.
    async fn file(&self, node: u64) -> Result<bool> {
        use std::os::unix::ffi::OsStrExt;
        let known = self.manifest.object(node).zip(self.manifest.path(node)).zip(self.manifest.attributes(node));
        let ((object, path), attributes) =
            known.ok_or_else(|| Error::corrupt("the manifest lost a file", self.path(node)))?;
        let path = self.folder.join(std::ffi::OsStr::from_bytes(&path));
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(attributes.modified_ns.max(0) as u64);
        let turn = self.fetches.acquire().await.expect("it is never closed");
        let is_there = match before(&path, object.size, modified) {
            Before::Whole if self.verify => self.agrees(&object, &path).await? != Some(false),
            Before::Whole => true,
            // What the store says of it decides; if it says nothing, nothing speaks for the file.
            Before::Holed => self.agrees(&object, &path).await? == Some(true),
            Before::Other => false,
        };
        if is_there {
            return Ok(true);
        }
        // No key of the data set has the name of a part but by an attempt at it, and none is too long for one.
        let part = path.with_file_name(format!(".{}.stoker-part", object.id()));
        let doing = |error: std::io::Error| Error::io("cannot write the copy", part.display(), &error);
        std::fs::create_dir_all(path.parent().unwrap_or(&self.folder)).map_err(doing)?;
        let file = create(&part).map_err(doing)?;
        let written = async {
            file.set_len(object.size).map_err(doing)?;
            self.fill(&object, &file, &part).await?;
            file.set_modified(modified).map_err(doing)
        };
        let written = written.await;
        drop(turn);
        let (disk, from, to) = (self.disk.clone(), part.clone(), path);
        let done = match written {
            Ok(()) => {
                let name = move || {
                    let named = disk.sync(&file).and_then(|()| disk.rename(&from, &to));
                    named.map_err(|error| Error::io("cannot write the copy", from.display(), &error))
                };
                apart(name).await
            }
            Err(error) => Err(error),
        };
        if done.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        done.map(|()| false)
    }

    /// Fetch every block into the file, then compare the whole with the store's checksum. An object of one run
    /// was compared on the way.
    async fn fill(&self, object: &Arc<Object>, file: &File, part: &Path) -> Result<()> {
        let starts = (0..object.blocks()).step_by(RUN_BLOCKS_MAX as usize);
        let runs = starts.map(|start| Run::new(object.clone(), start..object.blocks().min(start + RUN_BLOCKS_MAX)));
        stream::iter(runs.map(Ok))
            .try_for_each_concurrent(RUNS_AT_ONCE, |run| async move {
                let mut blocks = self.origin.fetch(run);
                while let Some(block) = blocks.next().await {
                    write(file, &block?, part)?;
                }
                Ok(())
            })
            .await?;
        if object.blocks() > RUN_BLOCKS_MAX && self.agrees(object, part).await? == Some(false) {
            return Err(Error::corrupt(
                "the bytes that the store sent differ from its own checksum of the object",
                &**object,
            ));
        }
        Ok(())
    }

    /// Whether a file agrees with what the store says of the object; nothing comes back if it says nothing.
    async fn agrees(&self, object: &Arc<Object>, path: &Path) -> Result<Option<bool>> {
        let Some(checksum) = self.origin.checksum(object, Door::NONE).await? else { return Ok(None) };
        let (path, size) = (path.to_owned(), object.size);
        apart(move || digest(&path, size, checksum).map(Some)).await
    }
}

/// Work that waits for a disk, off the threads that must not.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let stopped = |error| Error::unavailable(format!("the copy is stopping: {error}"), "a file");
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

/// A new file. What an earlier copy left unfinished under its name is unlinked, never written over.
fn create(part: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => File::options().read(true).write(true).create_new(true).open(part),
    }
}

fn write(file: &File, block: &Block, part: &Path) -> Result<()> {
    let mut at = block.address.range().start;
    for piece in block.pieces() {
        file.write_all_at(piece, at).map_err(|error| Error::io("cannot write the copy", part.display(), &error))?;
        at += piece.len() as u64;
    }
    Ok(())
}

fn before(path: &Path, size: u64, modified: SystemTime) -> Before {
    let found = path.symlink_metadata().ok().filter(|found| found.is_file() && found.len() == size);
    if found.and_then(|found| found.modified().ok()) != Some(modified) {
        return Before::Other;
    }
    let Ok(file) = File::open(path) else { return Before::Other };
    match rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)) {
        Ok(hole) if hole < size => Before::Holed,
        // A file system that knows of no holes has none.
        _ => Before::Whole,
    }
}

/// Bytes read at a time while a file is compared.
const READ_BYTES: usize = 1 << 20;

fn digest(path: &Path, size: u64, checksum: Checksum) -> Result<bool> {
    let doing = |error: std::io::Error| Error::io("cannot read the copy", path.display(), &error);
    let file = File::open(path).map_err(doing)?;
    let (mut digest, mut buffer, mut at) = (checksum.digest(), vec![0; READ_BYTES], 0);
    while at < size {
        let got = file.read_at(&mut buffer, at).map_err(doing)?;
        if got == 0 {
            return Ok(false);
        }
        digest.update(&buffer[..got]);
        at += got as u64;
    }
    // An empty file has the checksum of nothing.
    Ok(digest.matches(checksum) || size == 0 && checksum.value() == crc64::of(b""))
}
