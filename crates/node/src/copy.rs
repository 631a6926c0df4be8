//! Copy a data set from a store to a folder of an attached disk, without a node.
//!
//! A file has its name only when it is whole and, where the store gives a checksum, equal to it; its
//! modification time is the object's, by which an interrupted copy knows what it need not fetch again.

use crate::load::{Tally, chosen};
use crate::manifest::Manifest;
use crate::select::Wanted;
use crate::view::{Source, list_nameless};
use block::{Block, Checksum, Door, Error, Object, RUN_BLOCKS_MAX, Result, Run, Source as _, crc64};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use store::Origin;

/// Files that are copied side by side.
const FILES_AT_ONCE: usize = 32;

/// Runs of one large file that are fetched side by side.
const RUNS_AT_ONCE: usize = 4;

/// Copy what is wanted of a data set to a folder.
pub async fn copy(source: &Source, folder: &Path, wanted: &Wanted, verify: bool, tally: &Arc<Tally>) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io("cannot make the folder", folder.display(), &error))?;
    let manifest = Arc::new(list_nameless(source, folder).await?);
    let files = chosen(&manifest, wanted)?;
    tally.expect(&files);
    let origin = Arc::new(Origin::new(source.store.clone(), Default::default()));
    let job = Arc::new(Job { origin, manifest, folder: folder.to_owned(), verify });
    let copies = stream::iter(files).map(|(node, size)| {
        let (job, tally) = (job.clone(), tally.clone());
        tokio::spawn(async move {
            match job.file(node).await {
                Ok(present) => tally.done(size, present),
                Err(error) => tally.failed(&job.path(node), &error),
            }
        })
    });
    copies.buffer_unordered(FILES_AT_ONCE).for_each(|_| std::future::ready(())).await;
    Ok(())
}

struct Job {
    origin: Arc<Origin>,
    manifest: Arc<Manifest>,
    folder: PathBuf,
    verify: bool,
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
        if is_there(&path, object.size, modified) && (!self.verify || self.agrees(&object, &path).await?) {
            return Ok(true);
        }
        let name = path.file_name().unwrap_or_default().as_bytes();
        let part = path.with_file_name(std::ffi::OsStr::from_bytes(&[b".", name, b".stoker-part"].concat()));
        let doing = |error: std::io::Error| Error::io("cannot write the copy", part.display(), &error);
        let parent = path.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(parent).map_err(doing)?;
        let file = File::create(&part).map_err(doing)?;
        file.set_len(object.size).map_err(doing)?;
        let whole = self.fill(&object, &file, &part).await;
        let done = whole.and_then(|()| {
            file.set_modified(modified).map_err(doing)?;
            std::fs::rename(&part, &path).map_err(doing)
        });
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
        if object.blocks() > RUN_BLOCKS_MAX && !self.agrees(object, part).await? {
            return Err(Error::corrupt(
                "the bytes that the store sent differ from its own checksum of the object",
                &**object,
            ));
        }
        Ok(())
    }

    /// Whether a file agrees with what the store says of the object, if it says anything.
    async fn agrees(&self, object: &Arc<Object>, path: &Path) -> Result<bool> {
        let Some(told) = self.origin.checksum(object, Door::NONE).await? else { return Ok(true) };
        let (path, size) = (path.to_owned(), object.size);
        let work = move || digest(&path, size, told);
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| Error::corrupt(format!("a check was given up: {error}"), ""))?
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

fn is_there(path: &Path, size: u64, modified: SystemTime) -> bool {
    path.symlink_metadata().is_ok_and(|found| {
        found.is_file() && found.len() == size && found.modified().is_ok_and(|time| time == modified)
    })
}

/// Bytes read at a time while a file is compared.
const READ_BYTES: usize = 1 << 20;

fn digest(path: &Path, size: u64, told: Checksum) -> Result<bool> {
    let doing = |error: std::io::Error| Error::io("cannot read the copy", path.display(), &error);
    let file = File::open(path).map_err(doing)?;
    let (mut digest, mut buffer, mut at) = (told.digest(), vec![0; READ_BYTES], 0);
    while at < size {
        let got = file.read_at(&mut buffer, at).map_err(doing)?;
        if got == 0 {
            return Ok(false);
        }
        digest.update(&buffer[..got]);
        at += got as u64;
    }
    // An empty file has the checksum of nothing.
    Ok(digest.matches(told) || size == 0 && told.value() == crc64::of(b""))
}
