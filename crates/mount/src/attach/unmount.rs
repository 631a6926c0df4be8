//! Unmounting: by root with umount(2), by others through `fusermount3`.
//!
//! Invariant: of what was found, only that is unmounted, whatever lies at its place by now.

use super::found::{Found, Standing};
use super::{MountPoint, SUBTYPE, fusermount, is_ours, is_root, resolve, table};
use block::{Error, Kind, Result};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::path::Path;
use std::time::Duration;

/// Unmount whatever mount of Stoker is at a path; `lazy`: take it out of sight at once, and let it end when the last
/// file is closed.
pub fn unmount(mount_point: &Path, lazy: bool) -> Result<()> {
    let target =
        resolve(mount_point).map_err(|error| Error::io("looking at the mount point", mount_point.display(), &error))?;
    match table::at(&target) {
        Some(there) if there.kind != format!("fuse.{SUBTYPE}") => {
            let what = format!("{} ({}) is mounted here, which is not Stoker's", there.source, there.kind);
            Err(Error::invalid(what, target.display())
                .hint("name a mount of Stoker: findmnt -t fuse.stoker shows them"))
        }
        None => Err(refused_unmount(Errno::INVAL, &target)),
        Some(_) => unmount_at(&target, lazy),
    }
}

/// Unmount whatever mount of Stoker is at a path, and that everywhere here, even while files are open.
pub fn unmount_everywhere(mount_point: &Path) -> Result<()> {
    match table::system_of(mount_point).filter(|_| is_ours(mount_point)) {
        None => unmount(mount_point, true),
        number => MountPoint::of(mount_point.to_owned(), number).leave().map(drop),
    }
}

/// One that is gone was taken away with another of which the system made it a copy.
pub(super) fn unmount_found(found: &Found, lazy: bool) -> Result<()> {
    match found.now() {
        Standing::OnTop => unmount_while(&found.at, lazy, &|| found.now() == Standing::OnTop),
        Standing::Gone => Ok(()),
        Standing::Covered => Err(covered(found)),
    }
}

/// The same also while files are open: whether there were any.
pub(super) fn unmount_in_use(found: &Found) -> Result<bool> {
    unmount_found(found, false).map(|()| false).or_else(|refused| match found.now() {
        Standing::OnTop => unmount_found(found, true).map(|()| true),
        Standing::Covered => Err(refused),
        Standing::Gone => Ok(false),
    })
}

fn covered(found: &Found) -> Error {
    let error = Error::new(Kind::Unavailable { retry_after: None }, "another mount covers it", found.at.display());
    let here = block::quoted(&found.at);
    error.hint(format!("unmount what lies over it first (findmnt shows it), then stoker umount {here}"))
}

pub(super) fn unmount_at(target: &Path, lazy: bool) -> Result<()> {
    unmount_while(target, lazy, &|| true)
}

/// For as long as it is what is meant.
fn unmount_while(target: &Path, lazy: bool, is_it: &dyn Fn() -> bool) -> Result<()> {
    if !is_root() {
        return fusermount::unmount(target, lazy);
    }
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let unmount = || rustix::mount::unmount(target, flags | UnmountFlags::NOFOLLOW);
    let mut done = unmount();
    // Whoever only looks whether it lives has it in use for a moment.
    for _ in 0..LOOKS_LAST {
        if done != Err(Errno::BUSY) {
            break;
        }
        std::thread::sleep(LOOK);
        if !is_it() {
            break;
        }
        done = unmount();
    }
    done.map_err(|errno| refused_unmount(errno, target))
}

/// How often a mount that is in use is tried again, and after which pause.
const LOOKS_LAST: u32 = 3;
const LOOK: Duration = Duration::from_millis(30);

pub(super) fn refused_unmount(errno: Errno, target: &Path) -> Error {
    match errno {
        Errno::BUSY => Error::new(Kind::Unavailable { retry_after: None }, "the mount is in use", target.display())
            .hint(format!(
                "close the files in it (fuser -vm shows who has them), or let go of it lazily: stoker umount --lazy {}",
                block::quoted(target)
            )),
        Errno::INVAL => Error::invalid("nothing is mounted here", target.display()).hint("see findmnt -t fuse.stoker"),
        errno => Error::io("unmounting", target.display(), &errno.into()),
    }
}
