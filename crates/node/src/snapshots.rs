//! The folder of snapshots: which data sets' names are kept from one mount to the next.
//!
//! Each (store, prefix, principal) has a snapshot, and nobody says when a data set is not needed any more. So the
//! folder is bounded: those that were mounted longest ago go, and are listed again if they come back.
//!
//! Invariant: a snapshot in use keeps its name, however many there are.

use crate::manifest::is_draft;
use block::{Error, Result};
use cache::disk::medium::{Medium, System};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Snapshots that nobody uses now: as many data sets as a team works on in a season.
const UNUSED_MAX: usize = 32;

/// Bytes of snapshots that nobody uses now: names of some twenty million files.
const UNUSED_BYTES_MAX: u64 = 2 << 30;

/// A snapshot that lies in the folder.
struct Found {
    name: OsString,
    /// When it was last mounted or listed.
    used: SystemTime,
    bytes: u64,
}

/// What tells a data set from others: its store as objects call it, what its keys begin with, who listed it, and the
/// manifest that its names are from, by its hash, if they were not listed.
pub fn identity(store: &str, prefix: &str, who: &str, given: Option<u128>) -> u128 {
    let given = given.map(|hash| format!("{hash:032x}"));
    let words: Vec<&str> = [store, prefix, who].into_iter().chain(given.as_deref()).collect();
    xxhash_rust::xxh3::xxh3_128(words.join("\0").as_bytes())
}

/// The name of its snapshot in the folder.
pub fn name(store: &str, prefix: &str, who: &str, given: Option<u128>) -> String {
    format!("{:032x}", identity(store, prefix, who, given))
}

/// Make the folder in that of the cache, for its owner alone, unless it is there.
pub fn make(folder: &Path) -> Result<()> {
    System.make_folder(folder).map_err(|error| {
        let what = "cannot make a folder for the names of data sets";
        let hint = "see whether the cache folder is there, and remove what is no folder in this place, such as a link";
        Error::io(what, folder.display(), &error).hint(hint)
    })
}

/// Make the folder, and remove what a killed node left. Only for who holds the cache folder.
pub fn prepare(folder: &Path) -> Result<()> {
    make(folder)?;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_draft(&entry.file_name()) {
            remove(&entry.path());
        }
    }
    Ok(())
}

/// Note that a snapshot is used now, and that only its owner may read it: an earlier version left that open.
pub fn used(path: &Path) {
    use rustix::fs::{Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
    let Ok(file) = crate::manifest::open_file(path) else { return };
    let (omit, now) = (Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, Timespec { tv_sec: 0, tv_nsec: UTIME_NOW });
    let times = Timestamps { last_access: omit, last_modification: now };
    let done = rustix::fs::futimens(&file, &times).and_then(|()| rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR));
    if let Err(error) = done {
        tracing::warn!("{}", Error::io("cannot note that a snapshot is used", path.display(), &error.into()));
    }
}

/// Remove the snapshots beyond the limits; never one of these.
pub fn bound(folder: &Path, in_use: &HashSet<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| !is_draft(&entry.file_name()) && !in_use.contains(&entry.path()));
    let found = entries.filter_map(|entry| {
        let about = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(Found { name: entry.file_name(), used: about.modified().ok()?, bytes: about.len() })
    });
    for name in surplus(found.collect()) {
        remove(&folder.join(name));
    }
}

/// Which of the unused go: all from the first on that would break a limit, the last used being the first.
fn surplus(mut found: Vec<Found>) -> Vec<OsString> {
    found.sort_by(|left, right| right.used.cmp(&left.used).then_with(|| left.name.cmp(&right.name)));
    let mut bytes = 0u64;
    let stays = found.iter().take(UNUSED_MAX).take_while(|found| {
        bytes = bytes.saturating_add(found.bytes);
        bytes <= UNUSED_BYTES_MAX
    });
    let stays = stays.count();
    found.split_off(stays).into_iter().map(|found| found.name).collect()
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!("{}", Error::io("cannot remove an old snapshot", path.display(), &error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("a file").file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().expect("text")).collect();
        names.sort();
        names
    }

    /// A snapshot that was used so many seconds after the others.
    fn put(folder: &Path, name: &str, bytes: u64, second: u64) -> PathBuf {
        let path = folder.join(name);
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(bytes).expect("its length");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).expect("its time");
        path
    }

    #[test]
    fn snapshots_that_were_used_longest_ago_go_and_those_in_use_stay() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let held = put(folder.path(), "held", 1, 0);
        for number in 0..UNUSED_MAX as u64 + 5 {
            put(folder.path(), &format!("n{number:03}"), 1, 100 + number);
        }
        bound(folder.path(), &HashSet::from([held]));
        let expected: Vec<String> = (5..UNUSED_MAX + 5).map(|number| format!("n{number:03}")).collect();
        assert_eq!(names(folder.path()), [&["held".to_string()][..], &expected].concat());
        used(&put(folder.path(), "old", 1, 1));
        bound(folder.path(), &HashSet::new());
        assert!(names(folder.path()).contains(&"old".to_string()), "it is used again");
        assert_eq!(names(folder.path()).len(), UNUSED_MAX);
    }

    #[test]
    fn large_snapshots_leave_room_for_fewer() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        for number in 0..4 {
            put(folder.path(), &number.to_string(), UNUSED_BYTES_MAX / 2, 100 + number);
        }
        bound(folder.path(), &HashSet::new());
        assert_eq!(names(folder.path()), ["2", "3"]);
    }

    #[test]
    fn nothing_is_written_through_a_link_in_the_place_of_the_folder() {
        let cache = tempfile::tempdir().expect("a scratch folder");
        let (folder, elsewhere) = (cache.path().join("manifests"), tempfile::tempdir().expect("another"));
        std::os::unix::fs::symlink(elsewhere.path(), &folder).expect("a link");
        let error = prepare(&folder).expect_err("it leads out of the cache folder");
        assert!(error.to_string().contains("manifests") && error.hint.contains("link"), "{error}");
        std::fs::remove_file(&folder).expect("the link goes");
        prepare(&folder).expect("a folder");
        prepare(&folder).expect("it is there");
    }

    #[test]
    fn what_a_killed_node_left_is_removed_and_a_used_snapshot_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = put(folder.path(), "names", 1, 1);
        put(folder.path(), "names.17-3.new", 1, 1);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
        prepare(folder.path()).expect("a folder");
        used(&path);
        assert_eq!(names(folder.path()), ["names"]);
        assert_eq!(path.metadata().expect("the snapshot").permissions().mode() & 0o777, 0o600);
    }
}
