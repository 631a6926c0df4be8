//! A set from one place to another, and the check of one that lies somewhere: both read every byte and compare it with
//! the manifest.
//!
//! It keeps no time: whoever asks does. Invariants: a manifest with files goes last, so that what has one is whole; nothing
//! is written where anything else lies.

use std::fs::symlink_metadata;
use std::path::Path;

use block::{Error, Kind, Result, crc64};
use crc_fast::{CrcAlgorithm, Digest};
use targets::{Created, Target, Writable};

use super::manifest::{Entry, MANIFEST, Manifest};
use super::plan::Meter;
use super::{Progress, crew, draft, index};

/// Bytes of one read: a request of this size carries its own latency well.
const PIECE: u64 = 8 << 20;

/// Copies a set, indexes and manifest included, with so many files on their way at a time. Only to where nothing lies but
/// the same set, whole or in part.
pub fn copy(
    manifest: &Manifest,
    from: &dyn Target,
    to: &dyn Writable,
    threads: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<()> {
    vacant(manifest, to)?;
    // Whoever comes next knows by it what lies there, also if this copy is cut short.
    write(to.create(MANIFEST, 0)?, &manifest.claim().encode())?;
    let meter = Meter::over(manifest.bytes(), manifest.files.len() as u64, progress);
    crew::share(threads, manifest.files.len() as u64, &|number| {
        let entry = &manifest.files[usize::try_from(number).expect("an index of a list in memory")];
        let mut created = to.create(&entry.path, entry.bytes)?;
        read(entry, from, &meter, &mut |bytes| created.write(bytes))?;
        created.finish(false)?;
        if entry.records > 0 {
            let name = index::name(&entry.path);
            write(to.create(&name, 0)?, &manifest.index(from, entry)?)?;
        }
        meter.finished();
        Ok(())
    })?;
    write(to.create(MANIFEST, 0)?, &manifest.encode())
}

/// Fails where something else lies than this set.
fn vacant(manifest: &Manifest, to: &dyn Target) -> Result<()> {
    let what = match Manifest::peek(to)? {
        Some(found) if found.is_of(manifest) => return Ok(()),
        Some(_) => "another data set lies there",
        None if to.is_empty()? => return Ok(()),
        None => "something else lies there",
    };
    Err(Error::invalid(what, to.url()).hint("copy the data set to an empty folder, or under a prefix of its own"))
}

/// Fails where a folder has no room for what of a set is not there yet.
pub fn room(manifest: &Manifest, folder: &Path) -> Result<()> {
    let stands = |entry: &&Entry| {
        symlink_metadata(folder.join(&entry.path)).is_ok_and(|found| found.is_file() && found.len() == entry.bytes)
    };
    draft::room(folder, manifest.files.iter().filter(|entry| !stands(entry)).map(|entry| entry.bytes).sum())
}

/// Reads every byte of a set and compares it; says which files are wrong or missing, up to a few.
pub fn verify(
    manifest: &Manifest,
    target: &dyn Target,
    threads: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Error>> {
    let meter = Meter::over(manifest.bytes(), manifest.files.len() as u64, progress);
    let found = crew::share(threads, manifest.files.len() as u64, &|number| {
        let entry = &manifest.files[usize::try_from(number).expect("an index of a list in memory")];
        let checked = read(entry, target, &meter, &mut |_| Ok(())).and_then(|()| match entry.records {
            0 => Ok(()),
            _ => manifest.records(target, entry).map(drop),
        });
        meter.finished();
        match checked {
            Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Missing | Kind::Changed) => Ok(Some(error)),
            other => other.map(|()| None),
        }
    })?;
    Ok(found.into_iter().flatten().collect())
}

fn write(mut created: Box<dyn Created>, bytes: &[u8]) -> Result<()> {
    created.write(bytes)?;
    created.finish(false)
}

/// Gives the bytes of a file, and compares them when all were given.
fn read(entry: &Entry, from: &dyn Target, meter: &Meter<'_>, give: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let listed = from.stat(&entry.path)?;
    if listed.bytes != entry.bytes {
        return entry.compare(listed.bytes, 0);
    }
    let mut opened = from.open(&listed)?;
    let mut buffer = vec![0; usize::try_from(PIECE.min(entry.bytes)).expect("a piece fits in memory")];
    let (mut at, mut sum) = (0, Digest::new(CrcAlgorithm::Crc64Nvme));
    while at < entry.bytes {
        let count = opened.read_at(at, &mut buffer)?;
        if count == 0 {
            return entry.compare(at, 0);
        }
        sum.update(&buffer[..count]);
        give(&buffer[..count])?;
        meter.passed(count);
        at += count as u64;
    }
    let sum = if entry.bytes == 0 { crc64::of(&[]) } else { sum.finalize() };
    entry.compare(at, sum)
}
