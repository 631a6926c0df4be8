//! The answer of a host that may be hostile, as files: a stream of tar that is read entry by entry.
//!
//! It takes regular files, folders and hard links among them, in an empty folder that nobody else writes to. Symbolic links
//! and devices are left out and counted.
//! Invariants: nothing is made outside of that folder, nothing twice, and nothing through a link; names, entries and bytes
//! have limits; nobody gets more than permissions.

use crate::Failure;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Archive, Entry, EntryType, PaxExtensions};

/// Files and folders of one host.
const ENTRIES_MAX: u64 = 1_000_000;

/// Bytes of a name, or of what stands in for one; Linux takes 4,096.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// What a host may send.
pub struct Limits<'a> {
    pub bytes: u64,
    /// What was asked for.
    pub names: &'a [OsString],
}

/// What came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub files: u64,
    pub bytes: u64,
    /// Symbolic links and devices.
    pub left_out: u64,
}

/// Read a stream to its end into an empty folder.
pub fn receive(
    from: &mut dyn Read,
    into: &Path,
    limits: &Limits<'_>,
    moved: &dyn Fn(u64),
) -> Result<Received, Failure> {
    let mut archive = Archive::new(from);
    // One archive behind the other.
    archive.set_ignore_zeros(true);
    let entries = archive.entries().map_err(broken)?.raw(true);
    let (mut received, mut entries_left, mut name) = (Received::default(), ENTRIES_MAX, None);
    for entry in entries {
        let mut entry = entry.map_err(broken)?;
        entries_left = entries_left.checked_sub(1).ok_or_else(|| hostile("more files than anybody gathers"))?;
        match entry.header().entry_type() {
            EntryType::GNULongName => {
                name = Some(words(&mut entry)?.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
            }
            EntryType::XHeader => name = pax_name(&words(&mut entry)?).or(name),
            EntryType::GNULongLink | EntryType::XGlobalHeader => drop(words(&mut entry)?),
            kind => {
                let long = name.take();
                let name = long.unwrap_or_else(|| entry.path_bytes().into_owned());
                let place = Place { into, name: checked(&name, limits.names)? };
                received.bytes += entry.header().entry_size().map_err(broken)?;
                if received.bytes > limits.bytes {
                    return Err(hostile(&format!("more than {} bytes", limits.bytes)));
                }
                place.make(kind, &mut entry, moved, &mut received)?;
            }
        }
    }
    Ok(received)
}

fn hostile(what: &str) -> Failure {
    Failure::Hostile(what.into())
}

/// An archive that is damaged, or ends too early.
fn broken(error: io::Error) -> Failure {
    Failure::Lost(error.to_string())
}

/// What stands in for a name.
fn words(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, Failure> {
    let mut words = Vec::new();
    entry.take(NAME_BYTES_MAX + 1).read_to_end(&mut words).map_err(broken)?;
    if words.len() as u64 > NAME_BYTES_MAX { Err(hostile("a name without end")) } else { Ok(words) }
}

fn pax_name(words: &[u8]) -> Option<Vec<u8>> {
    let records = PaxExtensions::new(words).flatten();
    records.filter(|record| record.key_bytes() == b"path").map(|record| record.value_bytes().to_vec()).last()
}

/// A name that leads down, from something that was asked for.
fn checked(name: &[u8], asked: &[OsString]) -> Result<PathBuf, Failure> {
    let (path, mut sound) = (Path::new(OsStr::from_bytes(name)), PathBuf::new());
    let refused = |what: &str| {
        hostile(&format!("a name {what}: {:?}", &path.to_string_lossy().chars().take(80).collect::<String>()))
    };
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => sound.push(part),
            _ => return Err(refused("that leads out of the folder")),
        }
    }
    let is_asked = sound.components().next().is_some_and(|first| asked.iter().any(|name| first.as_os_str() == name));
    if is_asked && !name.contains(&0) { Ok(sound) } else { Err(refused("that was not asked for")) }
}

/// Where an entry goes.
struct Place<'a> {
    into: &'a Path,
    name: PathBuf,
}

impl Place<'_> {
    fn make(
        &self,
        kind: EntryType,
        entry: &mut Entry<'_, impl Read>,
        moved: &dyn Fn(u64),
        received: &mut Received,
    ) -> Result<(), Failure> {
        let (path, failed) = (self.into.join(&self.name), |error: io::Error| self.failed(&error));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mode = entry.header().mode().map_err(broken)? & 0o777;
        match kind {
            EntryType::Directory => {
                match fs::create_dir(&path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                    done => done.map_err(failed)?,
                }
                fs::set_permissions(&path, Permissions::from_mode(mode | 0o700)).map_err(failed)
            }
            EntryType::Regular | EntryType::Continuous => {
                received.files += 1;
                let modified = entry.header().mtime().map_err(broken)?;
                self.write(&path, mode | 0o600, modified, entry, moved)
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let first = self.name.components().next().map(|first| first.as_os_str().to_owned());
                let target = checked(&target, first.as_slice())?;
                received.files += 1;
                // Among files that were made here: there are no links in this folder that it could go through.
                fs::hard_link(self.into.join(target), &path).map_err(failed)
            }
            EntryType::GNUSparse => Err(hostile("a file with holes, which was not asked for")),
            _ => {
                received.left_out += 1;
                Ok(())
            }
        }
    }

    fn write(
        &self,
        path: &Path,
        mode: u32,
        modified_s: u64,
        from: &mut impl Read,
        moved: &dyn Fn(u64),
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| self.failed(&error);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        let mut piece = vec![0; 256 << 10];
        loop {
            let count = from.read(&mut piece).map_err(broken)?;
            if count == 0 {
                break;
            }
            file.write_all(&piece[..count]).map_err(failed)?;
            moved(count as u64);
        }
        // A time past what a file system holds is nothing to fail for.
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(modified_s));
        let _ = modified.map(|modified| file.set_modified(modified));
        file.set_permissions(Permissions::from_mode(mode)).map_err(failed)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                hostile(&format!("two things of the same name: {:?}", self.name))
            }
            _ => Failure::Here(format!("{:?}: {error}", self.name)),
        }
    }
}

/// Give what lies in a folder its names in another: each file in one move; folders that are there take them in. A link in the
/// place of a folder is not followed.
pub fn place(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return fs::rename(from, to),
        Err(error) => return Err(error),
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(io::Error::other("something that is no folder has the name of one")),
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() { place(&from, &to)? } else { fs::rename(&from, &to)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
