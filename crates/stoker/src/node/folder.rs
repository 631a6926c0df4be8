//! The cache folder of a node, and what stands in for it.
//!
//! Invariant: mounts that wait for this process go on, also where their cache folder can't be had.

use crate::place;
use block::{Error, Kind, Result};
use cache::disk::Limits;
use node::Home;
use std::fs::File;
use std::path::Path;

/// Nothing is kept.
const NOTHING: Limits = Limits { bytes: 0, files: 0, free_bytes_min: 0, free_files_min: 0 };

/// Take a cache folder, by the lock that a process before this one left, if it did.
pub fn take(path: &Path, group: bool, left: Option<File>) -> Result<Home> {
    match left {
        Some(lock) => Home::go_on(path, group, lock),
        None => Home::take(path, group),
    }
}

/// The same for a process that mounts wait for; where the folder can't be had, or its disk is another by now that has no room for
/// what was asked, an empty one beside the sockets. Where another node has it, which has its socket too, that is an error.
pub fn have(path: &Path, group: bool, left: Option<File>, beside: &Path, asked: Option<u64>) -> Result<Home> {
    let again = left.as_ref().and_then(|left| left.try_clone().ok());
    let why = match take(path, group, left) {
        Ok(home) if !home.is_lost() => match limits(&home, asked) {
            Ok(_) => {
                // It may have stood in before.
                let _ = std::fs::remove_dir_all(beside);
                return Ok(home);
            }
            Err(error) => error.what,
        },
        Err(error @ Error { kind: Kind::Unavailable { .. }, .. }) => return Err(error),
        Ok(_) => "its disk gives errors alone, or became read-only".into(),
        Err(error) => error.what,
    };
    Ok(take(beside, false, again)?.standing_in(format!("{why}; nothing is kept until a restart finds it whole")))
}

/// Say so, where this folder stands in for one.
pub fn tell(home: &Home, meant: &Path) {
    if let Some(why) = home.stands_in() {
        tracing::error!("nothing that lies in {} can be had: {why}", meant.display());
    }
}

/// What may be kept.
pub fn limits(home: &Home, asked: Option<u64>) -> Result<Limits> {
    home.stands_in().map_or_else(|| place::limits(home.path(), asked), |_| Ok(NOTHING))
}
