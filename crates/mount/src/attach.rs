//! Mounting and unmounting: by root with mount(2), by others through `fusermount3`. What happens on the
//! mount afterwards is the session's.
//!
//! Invariant: a mount point that something alive is mounted on is never covered, and a dead mount is
//! never left in the way.

mod found;
mod fusermount;
mod table;
mod unmount;

use crate::device::{DEVICE, Device};
use block::{Error, Result};
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use unmount::{unmount_at, unmount_found, unmount_in_use};

/// The device number of what a path leads to. Its daemon is not asked, which may not serve yet.
fn number_of(path: &Path) -> Option<Number> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some(Number { major: stat.stx_dev_major, minor: stat.stx_dev_minor })
}

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

/// Where a mount of ours is. Its device number is no other mount's for as long as it lives, detached or not; a path
/// may be anybody's by now.
pub struct MountPoint {
    path: PathBuf,
    /// Unknown where the kernel shows no numbers.
    number: Option<Number>,
}

impl MountPoint {
    /// Somewhere that is no mount.
    #[cfg(test)]
    pub fn nowhere() -> MountPoint {
        MountPoint { path: PathBuf::new(), number: Some(Number { major: u32::MAX, minor: u32::MAX }) }
    }

    /// Where another process mounted.
    pub fn of(path: PathBuf, number: Option<Number>) -> MountPoint {
        MountPoint { path, number }
    }

    pub fn number(&self) -> Option<Number> {
        self.number
    }

    /// The mount point, without links, as it was when it was mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same as it is called by now.
    pub fn path_in<'a>(&'a self, places: &'a Places) -> &'a Path {
        places.of(self.number, &self.path)
    }

    /// Whether it is mounted at the very path at which it was.
    pub fn is_there(&self) -> bool {
        self.now().flatten().is_some_and(|now| now.at == self.path)
    }

    pub fn is_attached(&self) -> bool {
        self.now().is_none_or(|now| now.is_some())
    }

    /// Whether the kernel's table shows it somewhere here.
    pub fn is_shown(&self) -> bool {
        self.now().flatten().is_some()
    }

    /// Whether some mount namespace has it, as far as this user may look.
    pub fn is_anywhere(&self) -> bool {
        self.number.is_some_and(table::is_anywhere)
    }

    /// Unmount this very mount, wherever it was moved; nothing, if it was detached already.
    pub fn unmount(&self, lazy: bool) -> Result<()> {
        match self.now() {
            None => unmount(&self.path, lazy),
            Some(None) => Ok(()),
            Some(Some(now)) => unmount_found(&now, lazy),
        }
    }

    /// Unmount it where it is to be, and nowhere else.
    pub fn unmount_from(&self, at: &Path, lazy: bool) -> Result<()> {
        match self.number.and_then(|number| found::of_number(number, at)) {
            None if at == self.path => unmount(at, lazy),
            Some(Some(now)) if now.at == at => unmount_found(&now, lazy),
            _ => Err(Error::missing("it is not mounted there any more", at.display()).hint("see `stoker status`")),
        }
    }

    /// Take it away from everywhere here, and what is bound of its folders: whether it was in use. What another mount covers stays, which is
    /// an error once all others are gone.
    pub fn leave(&self) -> Result<bool> {
        let Some(number) = self.number else { return unmount(&self.path, true).map(|()| true) };
        // As they were before the first one: with the last one it may end, and its number be another's.
        let Some(mut places) = found::everywhere(number) else { return self.leave_unlisted(number) };
        let mut was_in_use = false;
        loop {
            let (before, mut failed) = (places.len(), None);
            places.retain(|place| match unmount_in_use(place) {
                Ok(in_use) => {
                    was_in_use |= in_use;
                    false
                }
                Err(error) => {
                    failed.get_or_insert(error);
                    true
                }
            });
            match failed {
                None => return Ok(was_in_use),
                // One may have been covered by another of these.
                Some(_) if places.len() < before => {}
                Some(error) => return Err(error),
            }
        }
    }

    /// Where the system shows no table: whatever lies there by now is another's, unless it has this number.
    fn leave_unlisted(&self, number: Number) -> Result<bool> {
        if number_of(&self.path) != Some(number) {
            let error = Error::unavailable(
                "the table of mounts can't be read, and it is not on top there",
                self.path.display(),
            );
            return Err(error.hint("see that /proc is mounted"));
        }
        unmount_at(&self.path, false).map(|()| false).or_else(|_| unmount_at(&self.path, true).map(|()| true))
    }

    /// What the kernel's table says of it. `None` if it can't be read.
    fn now(&self) -> Option<Option<Found>> {
        found::of_number(self.number?, &self.path)
    }

    /// Raise the readahead of the mount, where we may. Lost with the mount.
    pub fn raise_read_ahead(&self) -> io::Result<()> {
        let Number { major, minor } = self.number.ok_or(io::ErrorKind::NotFound)?;
        std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD_KIB.to_string())
    }
}

/// Keeps others of this process from a mount point while one of them looks at it and mounts.
struct Turn(PathBuf);

impl Turn {
    fn at(path: &Path) -> Result<Turn> {
        match Turn::all().insert(path.to_owned()) {
            true => Ok(Turn(path.to_owned())),
            false => {
                Err(Error::invalid("another mount is being made there", path.display()).hint("choose another folder"))
            }
        }
    }

    fn all() -> MutexGuard<'static, BTreeSet<PathBuf>> {
        static TAKEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        Turn::all().remove(&self.0);
    }
}

/// Mount; the device that requests come from, and where it is mounted.
pub fn attach(wanted: &Wanted<'_>) -> Result<(Device, MountPoint)> {
    let path = prepare(wanted.mount_point)?;
    let _turn = Turn::at(&path)?;
    if let Some(there) = table::at(&path) {
        return Err(taken(&there, &path));
    }
    let device = if is_root() { by_root(wanted, &path)? } else { fusermount::attach(wanted, &path)? };
    let number = number_of(&path);
    Ok((device, MountPoint { path, number }))
}

/// How long a mount may take to say that it lives, which one that is dead denies at once: a daemon that was stopped, or a
/// network, never says anything.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);

/// Mounts that are asked at a time whether they live: each that says nothing keeps its thread.
const ASKED_MAX: usize = 64;

/// Whether a daemon that died left its mount here. Not so if nobody says.
pub fn is_stale(mount_point: &Path) -> bool {
    are_stale(vec![mount_point.to_owned()]) == [true]
}

/// The same of several, all asked at once. Each is asked on a thread of its own, which may never come back; until it
/// does, nobody asks the same one again.
fn are_stale(mount_points: Vec<PathBuf>) -> Vec<bool> {
    static ASKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let asked = || ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stale = vec![false; mount_points.len()];
    let (sender, answers) = mpsc::sync_channel(stale.len());
    for (number, mount_point) in mount_points.into_iter().enumerate() {
        if !asked().insert(mount_point.clone()) {
            continue;
        }
        let (sender, path) = (sender.clone(), mount_point.clone());
        let asking = move || {
            // The kernel remembers attributes of the mount longer than its daemon may have lived.
            let answer = rustix::fs::statx(CWD, &path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
            asked().remove(&path);
            let _ = sender.send((number, answer.err().is_some_and(is_of_the_dead)));
        };
        // Without a thread nobody says.
        if std::thread::Builder::new().name("stoker-alive".into()).spawn(asking).is_err() {
            asked().remove(&mount_point);
        }
    }
    drop(sender);
    // Until all have answered, or none has for so long.
    while let Ok((number, is_stale)) = answers.recv_timeout(ALIVE_WITHIN) {
        stale[number] = is_stale;
    }
    stale
}

/// Mounts of this user whose daemon died, but for those that are known to live: where, and of what. Root asks none of
/// others: a daemon of theirs that never answers would hold the process beyond its end.
pub fn dead(alive: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let dead = others(alive).filter(|(_, is_stale)| *is_stale);
    dead.map(|(mount, _)| (mount.at, mount.source)).collect()
}

/// Whether there are mounts of this user, but for those that are known to live, whose daemon did not die: another may be about to go on
/// with them.
pub fn are_awaited(alive: &[PathBuf]) -> bool {
    others(alive).any(|(_, is_stale)| !is_stale)
}

/// Mounts of this user, but for these, and whether their daemon died.
fn others(alive: &[PathBuf]) -> impl Iterator<Item = (table::Ours, bool)> {
    let user = rustix::process::getuid().as_raw();
    let (alive, found): (Vec<_>, Vec<_>) = table::ours().into_iter().partition(|mount| alive.contains(&mount.at));
    // What is bound elsewhere lives as well.
    let lives = |mount: &table::Ours| alive.iter().any(|one| one.number.is_some() && one.number == mount.number);
    let is_meant = |mount: &table::Ours| mount.user == Some(user) && !lives(mount);
    let found: Vec<_> = found.into_iter().filter(is_meant).take(ASKED_MAX).collect();
    let stale = are_stale(found.iter().map(|mount| mount.at.clone()).collect());
    found.into_iter().zip(stale)
}

/// Whether this is what a mount answers whose daemon died; what was asked while it died is aborted.
fn is_of_the_dead(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED)
}

/// The mount of ours at or above a path, if its daemon died. May wait for one that lives.
pub fn dead_above(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|above| is_ours(above)).filter(|above| is_stale(above)).map(Path::to_owned)
}

/// Whether a mount of ours is at a path, dead or alive.
pub fn is_mounted(path: &Path) -> bool {
    named(path).is_ok_and(|named| is_ours(&named))
}

/// A path from the top on without links, as far as no daemon of ours has to be asked: one that was stopped never answers,
/// and of one that died only errors come.
pub fn named(path: &Path) -> io::Result<PathBuf> {
    without_links(path, &is_ours)
}

/// What lies in one of ours, which has no links to folders, is taken as it was typed.
fn without_links(path: &Path, is_ours: &dyn Fn(&Path) -> bool) -> io::Result<PathBuf> {
    let (mut found, mut rest) = (PathBuf::new(), path.components());
    while let Some(name) = rest.next() {
        found.push(name);
        let leads_out = || rest.clone().any(|name| name == Component::ParentDir);
        if !is_ours(&found) {
            found = found.canonicalize()?;
        }
        if is_ours(&found) && !leads_out() {
            return Ok(found.join(rest).components().collect());
        }
    }
    Ok(found)
}

/// Whether the topmost mount on exactly this folder is ours.
fn is_ours(folder: &Path) -> bool {
    table::at(folder).is_some_and(|there| there.kind == format!("fuse.{SUBTYPE}"))
}

pub use found::{Found, Standing, everywhere, is_below};
pub use table::{Above, Known, Number, Places, above, is_left_part, known_as, system_of, user_at};
pub use unmount::{unmount, unmount_everywhere};

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Refuse a mount point before anything is listed for it, which may take minutes. Nothing is changed.
pub fn look(mount_point: &Path) -> Result<()> {
    if is_stale(mount_point) {
        return Ok(());
    }
    let target = free(mount_point)?;
    if !is_root() && rustix::fs::access(&target, rustix::fs::Access::WRITE_OK) == Err(Errno::ACCESS) {
        let error = Error::denied(
            "this user may not write into the mount point, without which it is not mounted on",
            target.display(),
        );
        return Err(error.hint("choose a folder of your own, or have root give you this one (chown)"));
    }
    Ok(())
}

/// The mount point without links, free to be mounted on; a dead mount is taken away.
fn prepare(mount_point: &Path) -> Result<PathBuf> {
    if is_stale(mount_point) {
        tracing::warn!("removing the mount that a dead daemon left at {}", mount_point.display());
        unmount(mount_point, true)?;
    }
    free(mount_point)
}

fn free(mount_point: &Path) -> Result<PathBuf> {
    let shown = mount_point.display();
    let target = resolve(mount_point).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::missing("the mount point does not exist", shown)
            .hint(format!("create it: mkdir -p {}", block::quoted(mount_point))),
        _ => Error::io("looking at the mount point", shown, &error),
    })?;
    if !target.is_dir() {
        return Err(Error::invalid("the mount point is not a folder", target.display()).hint("name an empty folder"));
    }
    if let Some(there) = table::at(&target) {
        return Err(taken(&there, &target));
    }
    // What can't be listed is refused by the mount itself, if at all.
    match std::fs::read_dir(&target).is_ok_and(|mut names| names.next().is_some()) {
        true => {
            Err(Error::invalid("the mount point is not empty, and a mount would hide what is in it", target.display())
                .hint("name an empty folder"))
        }
        false => Ok(target),
    }
}

/// Something is mounted where another wants to be.
fn taken(there: &table::There, target: &Path) -> Error {
    let error = Error::invalid(format!("{} is already mounted there", there.name()), target.display());
    match there.kind == format!("fuse.{SUBTYPE}") {
        true => {
            error.hint(format!("choose another folder, or unmount it first: stoker umount {}", block::quoted(target)))
        }
        // Somebody else's, and for all we know the root of the system.
        false => error.hint("choose another folder"),
    }
}

/// Without links. A dead mount can't be looked into, but the folder above it can.
fn resolve(mount_point: &Path) -> io::Result<PathBuf> {
    match (mount_point.canonicalize(), mount_point.parent(), mount_point.file_name()) {
        (Err(error), Some(parent), Some(name)) if Errno::from_io_error(&error).is_some_and(is_of_the_dead) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_mount_of_ours_is_named_without_asking_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().canonicalize().expect("its name");
        let ours = top.join("data/mnt");
        std::fs::create_dir_all(&ours).expect("a mount point");
        std::os::unix::fs::symlink("data", top.join("to-data")).expect("a link");
        std::os::unix::fs::symlink("data/mnt", top.join("to-mnt")).expect("a link");
        let named = |path: &str| without_links(&top.join(path), &|path| path == ours).ok();
        for (path, below) in [
            ("data/mnt", ""),
            ("to-mnt", ""),
            ("data/../to-data/mnt", ""),
            ("data/mnt/not/there", "not/there"),
            ("to-data/mnt/not/there", "not/there"),
            ("to-mnt/not/there", "not/there"),
        ] {
            assert_eq!(named(path), Some(ours.join(below).components().collect()), "{path}");
        }
        assert_eq!(named("data/mnt/../mnt/.."), Some(top.join("data")), "it leads out again");
        assert_eq!(named("data/other/not/there"), None);
    }
}
