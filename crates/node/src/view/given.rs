//! Names from a manifest that somebody kept, in the place of a listing.
//!
//! Invariant: the names are those of the bytes whose hash names the snapshot, or there are none.

use super::DataSet;
use super::listing::{Listing, apart};
use crate::manifest::{self, Builder, Text};
use block::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a manifest that are read at once.
const READ_BYTES: usize = 256 << 10;

/// A hash of the manifest that a data set is to be mounted by, if it is.
pub async fn hash(source: &DataSet) -> Result<Option<u128>> {
    let Some(path) = source.manifest.clone() else { return Ok(None) };
    apart(move || {
        let mut hashing = Hashing::open(&path)?;
        std::io::copy(&mut hashing, &mut std::io::sink()).map_err(|error| unreadable(&path, &error))?;
        Ok(Some(hashing.hash.digest128()))
    })
    .await
}

/// The names of that manifest, in the place of a listing.
pub async fn take(source: &DataSet, name: &Arc<str>, folder: &Path, hash: u128) -> Result<Listing> {
    let path = source.manifest.clone().unwrap_or_default();
    let (name, prefix, folder) = (name.clone(), source.prefix.clone(), folder.to_owned());
    let (identity, url) = (source.store.identity().clone(), source.url.clone());
    apart(move || {
        let mut text =
            Text::open(BufReader::with_capacity(READ_BYTES, Hashing::open(&path)?), &path.to_string_lossy())?;
        if !prefix.starts_with(&text.head().prefix) {
            let what = format!("the manifest is of the keys below {:?} alone", text.head().prefix);
            let hint = format!("mount {}, or a folder below it", text.head().url);
            return Err(Error::invalid(what, path.display()).hint(hint));
        }
        if text.head().store != *identity {
            // Each read compares the version, so that another store can give an error and no other bytes.
            tracing::warn!("the manifest was made of {}, and is used for {identity}", text.head().store);
        }
        let (mut builder, began_ns) = (Builder::new(name, &prefix)?.spill_to(&folder), text.head().listed_ns);
        while let Some(listed) = text.advance()? {
            if listed.key.starts_with(&prefix) {
                builder.add(std::slice::from_ref(&listed))?;
            }
        }
        if text.into_inner().into_inner().hash.digest128() != hash {
            let error = Error::unavailable("the manifest changed while it was read", path.display());
            return Err(error.hint("mount again when it is written"));
        }
        if builder.keys() == 0 {
            let error = Error::missing("the manifest has no object under this URL", &url);
            return Err(error.hint(format!("see what is in {}", path.display())));
        }
        Ok(Listing::of(builder, began_ns))
    })
    .await
}

/// A file, and the hash of what was read of it.
struct Hashing {
    file: File,
    hash: Xxh3,
}

impl Hashing {
    fn open(path: &Path) -> Result<Hashing> {
        let file = manifest::open_file(path).map_err(|error| unreadable(path, &error))?;
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return Err(Error::invalid("the manifest is no file", path.display()).hint("name a file on a disk"));
        }
        Ok(Hashing { file, hash: Xxh3::new() })
    }
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let hint = "name a file that `stoker manifest export` or `stoker manifest import` wrote";
    Error::io("the manifest can't be read", path.display(), error).hint(hint)
}
