//! Mounting and unmounting: by root with mount(2), by others through `fusermount3`. What happens on the
//! mount afterwards is the session's.
//!
//! Invariant: a mount point that something alive is mounted on is never covered, and a dead mount is
//! never left in the way.

mod fusermount;
mod table;

use crate::device::{DEVICE, Device};
use block::{Error, Kind, Result};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

/// What is to be mounted where.
pub struct Wanted<'a> {
    pub mount_point: &'a Path,
    pub url: &'a str,
    /// Let all users read; only root may ask for it unless /etc/fuse.conf says otherwise.
    pub allow_other: bool,
}

/// Shown by `mount` and `df -T` as `fuse.stoker`.
const SUBTYPE: &str = "stoker";

/// The longest readahead of page cache reads. Measured: 128 KiB gives 49 MB/s against a store that
/// answers in 5 ms, 4 MiB gives 986; 16 MiB gains a third more but floods the memory with what random
/// readers skip.
const READ_AHEAD_KIB: u32 = 4096;

/// Mount; the device that requests come from, and the mount point without links.
pub fn attach(wanted: &Wanted<'_>) -> Result<(Device, PathBuf)> {
    let target = prepare(wanted.mount_point)?;
    let device = if is_root() { by_root(wanted, &target)? } else { fusermount::attach(wanted, &target)? };
    Ok((device, target))
}

/// Unmount; `lazy`: take it out of sight at once, and let it end when the last file is closed.
pub fn unmount(mount_point: &Path, lazy: bool) -> Result<()> {
    let target =
        resolve(mount_point).map_err(|error| Error::io("looking at the mount point", mount_point.display(), &error))?;
    if !is_root() {
        return match table::fuse_at(&target) {
            Some(_) => fusermount::unmount(&target, lazy),
            None => Err(refused_unmount(Errno::INVAL, &target)),
        };
    }
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    rustix::mount::unmount(&target, flags | UnmountFlags::NOFOLLOW).map_err(|errno| refused_unmount(errno, &target))
}

/// Whether a daemon that died left its mount here.
pub fn is_stale(mount_point: &Path) -> bool {
    // The kernel remembers attributes of the mount longer than its daemon may have lived.
    let asked = rustix::fs::statx(CWD, mount_point, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    asked.err() == Some(Errno::NOTCONN)
}

/// Raise the readahead of the mount, where we may. Lost with the mount.
pub fn raise_read_ahead(target: &Path) -> io::Result<()> {
    // Without asking the daemon, which may not be serving yet.
    let stat = rustix::fs::statx(CWD, target, AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
    let knob = format!("/sys/class/bdi/{}:{}/read_ahead_kb", stat.stx_dev_major, stat.stx_dev_minor);
    std::fs::write(knob, READ_AHEAD_KIB.to_string())
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The mount point without links, free to be mounted on.
fn prepare(mount_point: &Path) -> Result<PathBuf> {
    let shown = mount_point.display();
    if is_stale(mount_point) {
        tracing::warn!("removing the mount that a dead daemon left at {shown}");
        unmount(mount_point, true)?;
    }
    let target = resolve(mount_point).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::missing("the mount point does not exist", shown)
            .hint(format!("create it: mkdir -p {}", mount_point.display())),
        _ => Error::io("looking at the mount point", shown, &error),
    })?;
    if !target.is_dir() {
        return Err(Error::invalid("the mount point is not a folder", target.display()).hint("name an empty folder"));
    }
    match table::fuse_at(&target) {
        Some(there) => Err(Error::invalid(format!("{} is already mounted there", there.source), target.display())
            .hint(format!("choose another folder, or unmount it first: stoker umount {}", target.display()))),
        None => Ok(target),
    }
}

/// Without links. A dead mount can't be looked into, but the folder above it can.
fn resolve(mount_point: &Path) -> io::Result<PathBuf> {
    match (mount_point.canonicalize(), mount_point.parent(), mount_point.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        (resolved, _, _) => resolved,
    }
}

fn by_root(wanted: &Wanted<'_>, target: &Path) -> Result<Device> {
    let device = Device::open().map_err(refused_device)?;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let other = if wanted.allow_other { ",allow_other" } else { "" };
    let fd = device.as_fd().as_raw_fd();
    let options = format!("fd={fd},rootmode=40000,user_id={user},group_id={group},default_permissions{other}");
    let options = CString::new(options).expect("numbers and fixed words hold no zero");
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(wanted.url, target, format!("fuse.{SUBTYPE}"), flags, options.as_c_str())
        .map_err(|errno| refused_mount(errno, target))?;
    Ok(device)
}

fn refused_device(errno: Errno) -> Error {
    let error = Error::io("opening the FUSE device", DEVICE, &errno.into());
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            error.hint("load the module (modprobe fuse); in a container, pass --device /dev/fuse --cap-add SYS_ADMIN")
        }
        Errno::PERM | Errno::ACCESS => {
            error.hint("in a container, allow the device: --device /dev/fuse, or run it privileged")
        }
        _ => error,
    }
}

fn refused_mount(errno: Errno, target: &Path) -> Error {
    let error = Error::io("mounting", target.display(), &errno.into());
    match errno {
        Errno::PERM | Errno::ACCESS => {
            error.hint("in a container, add the capability: --cap-add SYS_ADMIN, or run it privileged")
        }
        Errno::NODEV => error.hint("this kernel has no FUSE: modprobe fuse"),
        Errno::BUSY => error.hint("something else holds this folder; choose another"),
        _ => error,
    }
}

fn refused_unmount(errno: Errno, target: &Path) -> Error {
    match errno {
        Errno::BUSY => Error::new(Kind::Unavailable { retry_after: None }, "the mount is in use", target.display())
            .hint("close the files in it (fuser -vm shows who has them), or let go of it lazily: stoker umount --lazy"),
        Errno::INVAL => Error::invalid("nothing is mounted here", target.display()).hint("see findmnt -t fuse.stoker"),
        errno => Error::io("unmounting", target.display(), &errno.into()),
    }
}
