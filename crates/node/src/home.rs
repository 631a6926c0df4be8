//! The cache folder of a node, taken by its lock.
//!
//! Invariant: what is in it was put there by this user (or by those that were let in on purpose): the folder is
//! nobody else's, nobody else can write into it, and no link in it leads elsewhere.

use block::{Error, Result};
use std::fs::{File, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Folders within folders that are looked at: `blocks/objects`, and those that divide the objects.
const DEPTH: u32 = 3;

/// A cache folder that is this process's alone for as long as the value lives.
pub struct Home {
    path: PathBuf,
    _lock: File,
}

impl Home {
    /// Take a cache folder, which is made for its owner alone if it isn't there. [`block::Kind::Unavailable`] if
    /// another node has it. `group`: a group of this user may write into it too, and root may own it.
    pub fn take(path: &Path, group: bool) -> Result<Home> {
        let doing = |error: std::io::Error| {
            Error::io("cannot use the cache folder", path.display(), &error).hint("choose another folder with --cache")
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(doing)?;
        let user = rustix::process::geteuid().as_raw();
        if let Some(why) = objection(&std::fs::symlink_metadata(path).map_err(doing)?, user, group) {
            return Err(refused(why, path));
        }
        look_into(path, user, group, DEPTH)?;
        let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let lock = options.open(path.join("lock")).map_err(doing)?;
        lock.try_lock().map_err(|_| {
            Error::unavailable("another node uses this cache folder", path.display())
                .hint("mount with the same --cache to join it, or choose another")
        })?;
        Ok(Home { path: path.to_owned(), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Look for what somebody else put there. Files of objects are opened by their folder without following links.
fn look_into(folder: &Path, user: u32, group: bool, depth: u32) -> Result<()> {
    let doing = |error: std::io::Error| Error::io("cannot look into the cache folder", folder.display(), &error);
    for entry in std::fs::read_dir(folder).map_err(doing)? {
        let entry = entry.map_err(doing)?;
        let kind = entry.file_type().map_err(doing)?;
        if kind.is_symlink() {
            return Err(refused("there is a link in the cache folder", &entry.path()));
        }
        if kind.is_dir() && depth > 1 {
            let path = entry.path();
            if let Some(why) = entry.metadata().ok().and_then(|found| objection(&found, user, group)) {
                return Err(refused(why, &path));
            }
            look_into(&path, user, group, depth - 1)?;
        }
    }
    Ok(())
}

/// Why a folder is not to be trusted, if it isn't.
fn objection(found: &Metadata, user: u32, group: bool) -> Option<&'static str> {
    let mode = found.mode();
    let is_ours = found.uid() == user || group && found.uid() == 0;
    match () {
        () if !found.is_dir() => Some("the cache folder is not a folder"),
        () if !is_ours => Some("the cache folder belongs to another user"),
        () if mode & 0o002 != 0 => Some("everybody can write into the cache folder"),
        () if mode & 0o020 != 0 && !group => Some("a group can write into the cache folder"),
        () => None,
    }
}

fn refused(why: &str, path: &Path) -> Error {
    let hint = "name a folder of your own below it, which is then made (--cache DIR/stoker); \
                --group-cache where a group is meant to write";
    Error::denied(why, path.display()).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Kind;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
        folder
    }

    #[test]
    fn a_folder_that_others_can_write_into_is_refused() {
        let denied = |folder: &tempfile::TempDir, group| {
            matches!(Home::take(folder.path(), group), Err(Error { kind: Kind::Denied, .. }))
        };
        assert!(denied(&folder(0o777), false) && denied(&folder(0o777), true));
        let of_group = folder(0o770);
        assert!(denied(&of_group, false) && !denied(&of_group, true));
        let own = folder(0o755);
        assert!(!denied(&own, false));
        std::fs::create_dir(own.path().join("blocks")).unwrap();
        symlink("/tmp", own.path().join("blocks/objects")).unwrap();
        assert!(denied(&own, false), "a link within it leads elsewhere");
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: only root can give a folder away");
        }
        let foreign = folder(0o755);
        std::os::unix::fs::chown(foreign.path(), Some(12_345), None).unwrap();
        assert!(matches!(Home::take(foreign.path(), false), Err(Error { kind: Kind::Denied, .. })));
    }

    #[test]
    fn a_folder_has_one_node() {
        let own = folder(0o700);
        let first = Home::take(own.path(), false).unwrap();
        assert!(matches!(Home::take(own.path(), false), Err(Error { kind: Kind::Unavailable { .. }, .. })));
        drop(first);
        assert!(Home::take(own.path(), false).is_ok());
    }
}
