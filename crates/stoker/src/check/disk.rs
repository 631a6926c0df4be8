//! Whether a folder is fit for the cache: its file system, what is free on it, how fast it is.
//!
//! What it writes has no name, and is at most an eighth of what is free. Invariant: nothing is left, and no folder is
//! made: of one that isn't there, the nearest above it is looked at.

use super::finding::{Finding, Outcome};
use crate::hosts::speed;
use crate::{place, show};
use block::{Error, Result};
use fleet::pool::found::unfit_disk;
use node::Home;
use std::path::{Path, PathBuf};

/// File systems that are memory.
const OF_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// The upper folder of a container: it goes with it.
const OF_CONTAINER: &str = "overlay";

/// A file and a folder of the cache for each object: with fewer, small files fill a disk that looks empty.
const FILES_MIN: u64 = 100_000;

/// Of what is free, this part is written to measure how fast it is.
const PART_WRITTEN: u64 = 8;

/// With less free nothing is measured.
const MEASURED_MIN: u64 = 64 << 20;

/// A cache that may hold less holds nothing of use.
const HOLDS_MIN: u64 = 1_000_000;

/// Bytes a second that a disk gives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    pub write: f64,
    pub read: f64,
}

/// What is to be said of the folder, and how fast it is, if that was wanted and could be had.
pub fn look(asked: Option<&Path>, is_measured: bool) -> Result<(Vec<Finding>, Option<Speed>)> {
    let folder = place::absolute(&place::cache_named(asked)?)?;
    let (there, room) = match nearest(&folder).and_then(|there| Ok((room(&there)?, there))) {
        Ok((room, there)) => (there, room),
        Err(error) => return Ok((vec![Finding::of("cache", &error)], None)),
    };
    let will = if there == folder { "" } else { ", which will be made" };
    let mut found = vec![system(&folder, &there, will, room)];
    // What a mount would refuse of a folder that is there.
    let refused = std::fs::canonicalize(&folder).ok().and_then(|folder| Home::look(&folder, false).err());
    found.extend(refused.map(|error| Finding::of("folder", &error)));
    found.push(space(&folder, &there, room));
    let (speed, finding) = match is_measured && room.free_bytes >= MEASURED_MIN {
        true => measured(&folder, &there, room),
        false => (None, writable(&folder, &there)),
    };
    found.push(finding);
    Ok((found, speed))
}

/// What is to be said where a cache in this folder, which is there, would hold nothing of use.
pub fn useless(folder: &Path) -> Option<Finding> {
    let found = space(folder, folder, room(folder).ok()?);
    (found.outcome == Outcome::Failed).then_some(found)
}

/// The folder itself, or the nearest one above it that exists.
fn nearest(folder: &Path) -> Result<PathBuf> {
    for above in folder.ancestors() {
        match std::fs::metadata(above) {
            Ok(found) if found.is_dir() => return Ok(above.to_owned()),
            Ok(_) => {
                let error = Error::invalid("a file lies where the cache folder would", above.display());
                return Err(error.hint("choose another folder with --cache"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("cannot look at the cache folder", above.display(), &error)),
        }
    }
    Err(Error::missing("there is no folder on the way to the cache", folder.display()))
}

/// What a file system has left.
#[derive(Clone, Copy)]
struct Room {
    bytes: u64,
    free_bytes: u64,
    /// Nothing where a file system counts none.
    free_files: Option<u64>,
    is_read_only: bool,
}

fn room(there: &Path) -> Result<Room> {
    let found = rustix::fs::statvfs(there)
        .map_err(|error| Error::io("cannot ask the file system of the cache", there.display(), &error.into()))?;
    Ok(Room {
        bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        free_files: (found.f_files > 0).then_some(found.f_favail),
        is_read_only: found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
    })
}

fn system(folder: &Path, there: &Path, will: &str, room: Room) -> Finding {
    let kind = ::mount::above(there).map_or_else(|| "an unknown file system".into(), |above| above.kind);
    let said = format!("{}{will}, on {kind}", folder.display());
    let shared = unfit_disk(&kind, u64::MAX);
    let found = match () {
        () if room.is_read_only => Finding::failed(
            "cache",
            format!("{said}, which is read-only"),
            "choose another folder with --cache, or STOKER_CACHE",
        ),
        () if OF_MEMORY.contains(&&*kind) => Finding::warning(
            "cache",
            format!("{said}: what it holds is memory, and gone with the machine"),
            "choose a folder of a disk with --cache, unless memory is what you have most of",
        ),
        () if kind == OF_CONTAINER => Finding::warning(
            "cache",
            format!("{said}: it goes with its container, and the kernel passes no reads through to it"),
            "mount a folder of the host into the container for --cache",
        ),
        () => match shared {
            Some(unfit) => Finding::warning("cache", format!("{said}: {}", unfit.what), unfit.cure),
            None => Finding::ok("cache", said),
        },
    };
    found.with("folder", folder.display().to_string()).with("file_system", kind)
}

fn space(folder: &Path, there: &Path, room: Room) -> Finding {
    let Room { bytes, free_bytes, .. } = room;
    match place::limits(there, None) {
        // What a folder above it holds is nothing of a cache.
        Ok(limits) if there == folder => held(limits.bytes, room),
        Ok(_) => held(free_bytes.saturating_sub(bytes / 10), room),
        Err(error) => Finding::of("room", &error),
    }
}

/// Whether what a cache may hold there is of use.
fn held(holds: u64, room: Room) -> Finding {
    let Room { bytes, free_bytes, free_files, .. } = room;
    let said = format!(
        "{} free of {}; the cache may hold {}",
        show::bytes(free_bytes),
        show::bytes(bytes),
        show::bytes(holds)
    );
    let few = free_files.filter(|files| *files < FILES_MIN);
    let small = unfit_disk("", free_bytes);
    let found = match (few, small) {
        _ if holds < HOLDS_MIN => Finding::failed(
            "room",
            format!("{said}: nothing of use"),
            "free some space there, or choose a folder of a larger disk with --cache",
        ),
        (_, Some(unfit)) => Finding::warning("room", said, unfit.cure),
        (Some(files), None) => Finding::warning(
            "room",
            format!("{said}, but only {} can be made there", show::count_of(files, "file")),
            "make a file system with more inodes (mkfs -N), or choose another folder with --cache",
        ),
        (None, None) => Finding::ok("room", said),
    };
    found
        .with("free_bytes", free_bytes)
        .with("file_system_bytes", bytes)
        .with("cache_bytes", holds)
        .with("free_files", free_files)
}

/// Whether something can be made there.
fn writable(folder: &Path, there: &Path) -> Finding {
    let done = speed::disk(there, 0);
    done.map_or_else(|error| unwritable(folder, &error), |_| Finding::ok("disk", "it can be written"))
}

fn unwritable(folder: &Path, error: &std::io::Error) -> Finding {
    let error = Error::io("nothing can be written there", folder.display(), error);
    Finding::of("disk", &error.hint("choose another folder with --cache, free some space, or see to its permissions"))
}

/// Bytes that may be written where so many are free.
fn written_most(free_bytes: u64) -> usize {
    usize::try_from(free_bytes / PART_WRITTEN).unwrap_or(usize::MAX)
}

fn measured(folder: &Path, there: &Path, room: Room) -> (Option<Speed>, Finding) {
    let done = match speed::disk(there, written_most(room.free_bytes)) {
        Ok(done) => done,
        Err(error) => return (None, unwritable(folder, &error)),
    };
    let speed = Speed { write: done.written.bytes_per_second(), read: done.read.bytes_per_second() };
    let rate = |rate: f64| format!("{}/s", show::bytes(rate as u64));
    let said = format!(
        "writes {}, reads {} (one stream, {})",
        rate(speed.write),
        rate(speed.read),
        show::bytes(done.written.bytes)
    );
    let found =
        Finding::ok("disk", said).with("write_bytes_per_second", speed.write).with("read_bytes_per_second", speed.read);
    (Some(speed), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_judged_by_bytes_and_by_files_and_an_eighth_of_what_is_free_is_written() {
        let room = |free_bytes, free_files| Room { bytes: 1 << 40, free_bytes, free_files, is_read_only: false };
        for (holds, room, outcome, word) in [
            (1 << 39, room(1 << 39, None), Outcome::Ok, "the cache may hold 550 GB"),
            (1 << 39, room(1 << 39, Some(FILES_MIN)), Outcome::Ok, "may hold"),
            (1 << 39, room(1 << 39, Some(FILES_MIN - 1)), Outcome::Warning, "only 99,999 files"),
            (HOLDS_MIN, room((1 << 30) - 1, None), Outcome::Warning, "the cache may hold 1.00 MB"),
            (HOLDS_MIN - 1, room(1 << 39, None), Outcome::Failed, "nothing of use"),
        ] {
            let found = held(holds, room);
            assert!(found.outcome == outcome && found.said.contains(word), "{found:?}");
            assert_eq!(found.cure.is_some(), outcome != Outcome::Ok, "{found:?}");
        }
        assert_eq!([written_most(MEASURED_MIN), written_most(7), written_most(1 << 33)], [8 << 20, 0, 1 << 30]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_looked_for_above_and_not_made() {
        let scratch = tempfile::tempdir().expect("a folder");
        let asked = scratch.path().join("deep/cache");
        let (found, speed) = look(Some(&asked), true).expect("findings");
        // How much room there is is this machine's business.
        let mut others = found.iter().filter(|finding| finding.about != "room");
        assert!(others.all(|finding| finding.outcome != Outcome::Failed), "{found:?}");
        assert!(found[0].said.contains("will be made") && speed.is_some_and(|speed| speed.write > 0.0), "{found:?}");
        assert_eq!(std::fs::read_dir(scratch.path()).expect("a folder").count(), 0);
        std::fs::write(scratch.path().join("file"), "").expect("written");
        let (found, _) = look(Some(&scratch.path().join("file/cache")), true).expect("findings");
        assert_eq!(found[0].outcome, Outcome::Failed, "{found:?}");
        // A mount would refuse a folder that holds what is no cache.
        let (found, _) = look(Some(scratch.path()), false).expect("findings");
        let folder = found.iter().find(|finding| finding.about == "folder").expect("a finding");
        assert!(folder.outcome == Outcome::Failed && folder.said.contains("not Stoker's"), "{folder:?}");
        assert_eq!(std::fs::read_dir(scratch.path()).expect("a folder").count(), 1, "nothing is made");
    }
}
