//! The cache folder of a node, taken by its lock.
//!
//! Invariants: what is in it was put there by this user (or by those that were let in on purpose): the folder is
//! nobody else's, nobody else can write into it, and no link in it leads elsewhere. It was empty, or is a cache already:
//! what lies in a cache folder may be deleted, so nobody's data is taken for one.

use crate::manifest::SNAPSHOT_MARK;
use block::{Error, Kind, Result};
use cache::disk::Hold;
use cache::disk::medium::is_gone;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Folders within folders that are looked at: `blocks/objects`, and those that divide the objects.
const DEPTH: u32 = 3;

/// The first bytes of `lock`, by which a cache folder is known again.
const MARK: &[u8] = b"STOKERCF\x01\0\0\0";

/// The first bytes of the index log: caches of earlier versions have no mark.
const LOG_MARK: &[u8] = b"STOKERLG";

/// What file systems put into the root of a disk.
const OF_THE_DISK: &str = "lost+found";

/// A cache folder that is this process's alone for as long as the value lives.
pub struct Home {
    path: PathBuf,
    group: bool,
    lock: Mutex<File>,
    stands_in: Option<String>,
}

impl Home {
    /// Take a cache folder, which is made for its owner alone if it isn't there. [`block::Kind::Unavailable`] if
    /// another node has it. `group`: a group of this user may write into it too, and root may own it.
    pub fn take(path: &Path, group: bool) -> Result<Home> {
        Ok(Home { path: path.to_owned(), group, lock: lock(path, group)?.into(), stands_in: None })
    }

    /// Take a cache folder that a process had which is gone, by the lock that it left. Where that isn't the folder's any
    /// more, as if nothing was left.
    pub fn go_on(path: &Path, group: bool, left: File) -> Result<Home> {
        let (found, ours) = (std::fs::symlink_metadata(path.join("lock")), left.metadata());
        let is_same =
            found.and_then(|found| Ok((found.dev(), found.ino()) == ours.map(|ours| (ours.dev(), ours.ino()))?));
        if !is_same.unwrap_or(false) {
            drop(left);
            return Home::take(path, group);
        }
        is_fit(path, group)?;
        // It is locked already, unless who had it let go of it.
        left.try_lock().map_err(|_| is_taken(path))?;
        Ok(Home { path: path.to_owned(), group, lock: left.into(), stands_in: None })
    }

    /// Whether no node can work here now: the disk gives errors alone, or takes nothing any more.
    pub fn is_lost(&self) -> bool {
        // A file without a name. Where there are none, nothing is known.
        let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let made = rustix::fs::open(&self.path, flags, mode);
        made.is_err_and(|errno| errno == Errno::ROFS || is_gone(&errno.into()))
    }

    /// This folder, for a node that can't have its own, and why.
    pub fn standing_in(self, why: String) -> Home {
        Home { stands_in: Some(why), ..self }
    }

    /// Why it stands in for the folder that was meant, if it does.
    pub fn stands_in(&self) -> Option<&str> {
        self.stands_in.as_deref()
    }

    /// Its lock, which is held for as long as somebody has it.
    pub fn lock(&self) -> std::io::Result<File> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).try_clone()
    }

    /// Refuse a folder that [`Home::take`] would refuse, whoever has it at the moment. Nothing is made; none is fine.
    pub fn look(path: &Path, group: bool) -> Result<()> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            _ => is_fit(path, group),
        }
    }

    /// Look whether the folder is still this process's: somebody may have removed it, or the lock in it. Then it is taken
    /// again, unless another node was faster. Where nobody can look, it is as it was.
    pub fn hold(&self) -> Result<Hold> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let found = std::fs::symlink_metadata(self.path.join("lock"));
        match (found, held.metadata()) {
            (Ok(found), Ok(ours)) if (found.dev(), found.ino()) != (ours.dev(), ours.ino()) => {}
            (Err(error), _) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            (Ok(_), Ok(_)) => return Ok(Hold::Same),
            _ => return Ok(Hold::Unknown),
        }
        *held = lock(&self.path, self.group)?;
        Ok(Hold::Anew)
    }

    /// Whether a group may write into it.
    pub fn is_of_group(&self) -> bool {
        self.group
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What failed with a folder.
fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::io("cannot use the cache folder", path.display(), error).hint("choose another folder with --cache")
}

/// Refuse a folder that others can write into, or that holds what is no cache.
fn is_fit(path: &Path, group: bool) -> Result<()> {
    let doing = |error: std::io::Error| unusable(path, &error);
    let user = rustix::process::geteuid().as_raw();
    let found = std::fs::symlink_metadata(path).map_err(doing)?;
    if !found.is_dir() {
        return Err(refused("the cache folder is not a folder", path));
    }
    if let Some(why) = objection(&found, user, group) {
        return Err(refused(why, path));
    }
    if holds_data(path).map_err(doing)? {
        let hint = "name an empty folder, or one below it, which is then made (--cache DIR/stoker)";
        return Err(Error::denied("the cache folder holds files that are not Stoker's", path.display()).hint(hint));
    }
    look_into(path, user, group, DEPTH)?;
    refuse_misplaced(path)
}

/// Make the folder if it isn't there, and take its lock.
fn lock(path: &Path, group: bool) -> Result<File> {
    let doing = |error: std::io::Error| unusable(path, &error);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(doing)?;
    is_fit(path, group)?;
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let lock = options.open(path.join("lock")).map_err(doing)?;
    lock.try_lock().map_err(|_| is_taken(path))?;
    if !begins(&path.join("lock"), MARK).map_err(doing)? {
        // On a full disk nothing is kept, and there is nothing to know again.
        // Otherwise it is on the disk before anything is made that a lost machine could leave without it.
        let _ = lock.write_all_at(MARK, 0).and_then(|()| lock.sync_all());
    }
    Ok(lock)
}

fn is_taken(path: &Path) -> Error {
    Error::unavailable("another node uses this cache folder", path.display())
        .hint("mount with the same --cache to join it, or choose another")
}

/// Whether there is anything in a folder that is no cache.
fn holds_data(path: &Path) -> std::io::Result<bool> {
    let is_cache = || -> std::io::Result<bool> {
        Ok(begins(&path.join("lock"), MARK)? || begins(&path.join("blocks/index"), LOG_MARK)?)
    };
    // Looked at again behind the names, because another node may begin at this moment.
    Ok(!is_cache()? && has_foreign(path)? && !is_cache()?)
}

/// Whether a folder has anything in it that a node does not make before it can mark its lock, on a full disk, say.
fn has_foreign(path: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name();
        let at = path.join(&name);
        let is_ours = match name.to_str() {
            Some(OF_THE_DISK) => true,
            Some("lock") => is_blank(&at)?,
            Some("blocks") => is_empty(&at.join("objects"))? && is_blank(&at.join("index"))?,
            Some("manifests") => has_only_snapshots(&at)?,
            _ => false,
        };
        if !is_ours {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether nothing was written into a file that can be looked at, or a lost machine left zeros. None is fine.
fn is_blank(path: &Path) -> std::io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        found => Ok(found?.len() == 0 || begins(path, &[0; MARK.len()])?),
    }
}

/// Whether there is nothing in a folder but snapshots of names, or none.
fn has_only_snapshots(path: &Path) -> std::io::Result<bool> {
    has_only(path, |entry| begins(entry, &SNAPSHOT_MARK))
}

/// Whether there is nothing in a folder, or none.
fn is_empty(path: &Path) -> std::io::Result<bool> {
    has_only(path, |_| Ok(false))
}

/// Whether there is nothing but such files in a folder, or none.
fn has_only(path: &Path, is_fine: impl Fn(&Path) -> std::io::Result<bool>) -> std::io::Result<bool> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        if !is_fine(&entry?.path())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether there is a file that begins with these bytes.
fn begins(path: &Path, mark: &[u8]) -> std::io::Result<bool> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut head = vec![0; mark.len()];
    let read = File::options().read(true).custom_flags(flags).open(path).and_then(|file| file.read_at(&mut head, 0));
    match read {
        Ok(length) => Ok(length == mark.len() && head == mark),
        // A folder, a link, a pipe, or nothing: no mark, whatever it is.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(false),
    }
}

/// Look for what somebody else put there, or could. Files, and the many folders of objects, are out of their reach in a
/// folder that nobody else may enter, so only links are looked for among them, which may have come before. Files of
/// objects, of which there may be millions, are as safe as their folders.
fn look_into(folder: &Path, user: u32, group: bool, depth: u32) -> Result<()> {
    let doing = |error: std::io::Error| Error::io("cannot look into the cache folder", folder.display(), &error);
    let is_open = std::fs::symlink_metadata(folder).map_err(doing)?.mode() & MAY_ENTER != 0;
    for entry in std::fs::read_dir(folder).map_err(doing)? {
        let entry = entry.map_err(doing)?;
        if depth == DEPTH && entry.file_name() == OF_THE_DISK {
            continue;
        }
        let (kind, path) = (entry.file_type().map_err(doing)?, entry.path());
        if kind.is_symlink() {
            return Err(refused("there is a link in the cache folder", &path));
        }
        if is_open || kind.is_dir() && depth > 1 {
            let found = match entry.metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                found => found.map_err(doing)?,
            };
            if let Some(why) = objection(&found, user, group) {
                return Err(refused(why, &path));
            }
        }
        if kind.is_dir() && depth > 1 {
            look_into(&path, user, group, depth - 1)?;
        }
    }
    Ok(())
}

/// Refuse what a node can't work with where it makes a file or a folder.
fn refuse_misplaced(home: &Path) -> Result<()> {
    let files = ["lock", "blocks/index", "blocks/clean"].map(|name| (name, false));
    let folders = ["blocks", "blocks/objects", "manifests"].map(|name| (name, true));
    for (name, is_folder) in folders.into_iter().chain(files) {
        let path = home.join(name);
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        let (kind, shown) = (found.file_type(), block::quoted(&path));
        let (there, remove) = match () {
            () if kind.is_dir() && is_folder || kind.is_file() && !is_folder => continue,
            () if kind.is_dir() => ("a folder", format!("look what is in it, and remove it: rm -r {shown}")),
            () if kind.is_file() => ("a file", format!("remove it: rm {shown}")),
            () if kind.is_fifo() => ("a pipe", format!("remove it: rm {shown}")),
            () if kind.is_socket() => ("a socket", format!("remove it: rm {shown}")),
            () => ("a device", format!("remove it: rm {shown}")),
        };
        let wanted = if is_folder { "a folder" } else { "a file" };
        let what = format!("there is {there} where the cache has {wanted} of its own");
        return Err(Error::denied(what, path.display()).hint(format!("{remove} (a new one is made)")));
    }
    Ok(())
}

/// Permissions of others to enter a folder.
const MAY_ENTER: u32 = 0o011;

/// Why a file or folder is not to be trusted, if it isn't.
fn objection(found: &Metadata, user: u32, group: bool) -> Option<&'static str> {
    let mode = found.mode();
    let is_ours = found.uid() == user || group && found.uid() == 0;
    match () {
        () if !is_ours => Some("what is in the cache folder, or the folder itself, belongs to another user"),
        () if mode & 0o002 != 0 => Some("everybody can write into the cache folder"),
        () if mode & 0o020 != 0 && !group => Some("a group can write into the cache folder"),
        () => None,
    }
}

/// Blocks need not be kept; the index and the names must.
pub(crate) fn needs_room(error: Error) -> Error {
    let hint = "free some space, or choose another folder with --cache: blocks need not be kept there, but the index and \
                the names of the data set must be, some kilobytes and about 100 bytes a file";
    if error.kind == Kind::Full { error.hint(hint) } else { error }
}

fn refused(why: &str, path: &Path) -> Error {
    let hint = "name a folder of your own below it, which is then made (--cache DIR/stoker); \
                --group-cache where a group is meant to write";
    Error::denied(why, path.display()).hint(hint)
}

#[cfg(test)]
mod tests;
