//! Files and folders on their way to hosts: a tar stream that ends with what it is compared by.
//!
//! It holds regular files, folders and symbolic links with their permissions and times; owners are those of whoever
//! unpacks it. Anything else is refused before it is sent.
//! Invariant: a stream that was cut off anywhere lacks its sums, so that nothing of it is taken for whole.

use crate::failure::Wrong;
use crc_fast::{CrcAlgorithm, Digest as Crc};
use sha2::{Digest, Sha256};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Files and folders of one copy: their names are held in memory.
const ENTRIES_MAX: usize = 1_000_000;

/// The folder of the stream in which all lies, beside `list` (of its files, zeros between) and `sums`.
const TREE: &str = "files";

struct Entry {
    from: PathBuf,
    /// Below the folder where it goes.
    name: PathBuf,
    kind: Kind,
    mode: u32,
    modified_s: u64,
}

enum Kind {
    Folder,
    File(u64),
    Link(PathBuf),
}

/// What is to be sent, looked at once.
pub struct Bundle {
    entries: Vec<Entry>,
    pub files: u64,
    pub bytes: u64,
}

impl Bundle {
    /// These files and folders, each by its own name; one that is a link is what it leads to.
    pub fn of(paths: &[PathBuf]) -> Result<Bundle, Wrong> {
        let mut bundle = Bundle { entries: Vec::new(), files: 0, bytes: 0 };
        let mut names = std::collections::HashSet::new();
        for path in paths {
            let found = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
            let whole = path.canonicalize().map_err(|error| unreadable(path, &error))?;
            let name = path.file_name().or(whole.file_name()).map(PathBuf::from);
            let name = name.ok_or_else(|| {
                Wrong::new("this has no name that it could have there", path.display(), "name a folder in it")
            })?;
            if !names.insert(name.clone()) {
                return Err(Wrong::new("two of these have the same name", name.display(), "copy them to two folders"));
            }
            bundle.add(whole, name, &found)?;
        }
        Ok(bundle)
    }

    fn add(&mut self, from: PathBuf, name: PathBuf, found: &Metadata) -> Result<(), Wrong> {
        if self.entries.len() == ENTRIES_MAX {
            let hint = "copy parts of it, or one archive";
            return Err(Wrong::new(format!("there are more than {ENTRIES_MAX} files"), from.display(), hint));
        }
        let is_folder = found.is_dir();
        let kind = match () {
            () if is_folder => Kind::Folder,
            () if found.is_file() => Kind::File(found.len()),
            () if found.is_symlink() => Kind::Link(fs::read_link(&from).map_err(|error| unreadable(&from, &error))?),
            () => {
                return Err(Wrong::new(
                    "this is neither a file nor a folder nor a link",
                    from.display(),
                    "leave it out",
                ));
            }
        };
        if let Kind::File(size) = kind {
            self.files += 1;
            self.bytes += size;
        }
        // A folder has to let files in; nobody gets the rights of the owner by a copy.
        let mode = found.permissions().mode() & 0o777 | if is_folder { 0o700 } else { 0 };
        let modified_s = u64::try_from(found.mtime()).unwrap_or(0);
        self.entries.push(Entry { from: from.clone(), name: name.clone(), kind, mode, modified_s });
        if is_folder {
            let listed = fs::read_dir(&from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut below = listed.map_err(|error| unreadable(&from, &error))?;
            below.sort_by_key(fs::DirEntry::file_name);
            for entry in below {
                let path = entry.path();
                let found = fs::symlink_metadata(&path).map_err(|error| unreadable(&path, &error))?;
                self.add(path, name.join(entry.file_name()), &found)?;
            }
        }
        Ok(())
    }

    /// Write all of it; `moved` is told the bytes of files. An error of a file here is never a broken pipe.
    pub fn write(&self, out: &mut dyn Write, moved: &dyn Fn(u64)) -> io::Result<()> {
        let mut archive = Builder::new(out);
        let (mut list, mut sums) = (Vec::new(), Sums::default());
        let folder =
            Entry { from: PathBuf::new(), name: PathBuf::new(), kind: Kind::Folder, mode: 0o700, modified_s: 0 };
        archive.append_data(&mut folder.header(), TREE, io::empty())?;
        for entry in &self.entries {
            let (mut header, name) = (entry.header(), Path::new(TREE).join(&entry.name));
            match &entry.kind {
                Kind::Folder => archive.append_data(&mut header, &name, io::empty())?,
                Kind::Link(target) => archive.append_link(&mut header, &name, target)?,
                Kind::File(size) => {
                    let file = File::open(&entry.from).map_err(|error| here(&entry.from, &error.to_string()))?;
                    let mut body = Body { file, path: &entry.from, left: *size, sums: &mut sums, moved };
                    archive.append_data(&mut header, &name, &mut body)?;
                    list.extend(name.as_os_str().as_bytes());
                    list.push(0);
                }
            }
        }
        for (name, bytes) in [("list", list), ("sums", sums.text().into_bytes())] {
            let mut header = Header::new_gnu();
            header.set_mode(0o600);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, name, &*bytes)?;
        }
        archive.into_inner()?.flush()
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Wrong {
    Wrong::new(
        format!("this can't be read: {error}"),
        path.display(),
        "name files and folders of this machine that you may read",
    )
}

fn here(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("{}: {what}", path.display()))
}

impl Entry {
    fn header(&self) -> Header {
        let mut header = Header::new_gnu();
        let (kind, size) = match &self.kind {
            Kind::Folder => (EntryType::Directory, 0),
            Kind::Link(_) => (EntryType::Symlink, 0),
            Kind::File(size) => (EntryType::Regular, *size),
        };
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(self.mode);
        header.set_mtime(self.modified_s);
        header.set_uid(0);
        header.set_gid(0);
        header
    }
}

/// The content of a file, as long as it was when it was looked at.
struct Body<'a> {
    file: File,
    path: &'a Path,
    left: u64,
    sums: &'a mut Sums,
    moved: &'a dyn Fn(u64),
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.file.read(&mut buffer[..most]).map_err(|error| here(self.path, &error.to_string()))?;
        if count == 0 {
            return Err(here(self.path, "it became shorter while it was copied"));
        }
        self.sums.add(&buffer[..count]);
        self.left -= count as u64;
        (self.moved)(count as u64);
        Ok(count)
    }
}

/// Of the contents of all files one behind the other: SHA-256, and the CRC of `cksum`, which every POSIX system has.
struct Sums {
    sha: Sha256,
    crc: Crc,
    bytes: u64,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums { sha: Sha256::new(), crc: Crc::new(CrcAlgorithm::Crc32Cksum), bytes: 0 }
    }
}

impl Sums {
    fn add(&mut self, bytes: &[u8]) {
        self.sha.update(bytes);
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Two lines, as `sha256sum` and `cksum` have them.
    fn text(mut self) -> String {
        let length = self.bytes.to_le_bytes();
        let digits = length.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.crc.update(&length[..digits]);
        let sha: String = self.sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{sha}\n{} {}\n", self.crc.finalize(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn sums_are_those_of_the_programs() {
        for bytes in [b"".to_vec(), b"stoker".to_vec(), vec![7; 70_000]] {
            let said = |program: &str| {
                let mut child =
                    Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is there");
                child.stdin.take().expect("piped").write_all(&bytes).expect("it reads");
                String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("text")
            };
            let mut sums = Sums::default();
            sums.add(&bytes);
            let sha = said("sha256sum").split(' ').next().expect("a sum").to_owned();
            assert_eq!(sums.text(), format!("{sha}\n{}", said("cksum")));
        }
    }

    #[test]
    fn what_is_no_file_is_refused_and_what_shrinks_is_found_out() {
        let scratch = tempfile::tempdir().expect("a folder");
        let path = scratch.path().join("file");
        fs::write(&path, b"four").expect("a file");
        let bundle = Bundle::of(std::slice::from_ref(&path)).expect("a bundle");
        assert_eq!((bundle.files, bundle.bytes), (1, 4));
        fs::write(&path, b"two").expect("a file");
        let error = bundle.write(&mut io::sink(), &|_| {}).expect_err("it shrank");
        assert!(error.to_string().contains("shorter"), "{error}");
        let twice = Bundle::of(&[path.clone(), path.clone()]).err().expect("refused");
        assert!(twice.what.contains("same name"));
        let socket = scratch.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(Bundle::of(&[scratch.path().to_owned()]).err().expect("refused").what.contains("neither"));
        assert!(Bundle::of(&[scratch.path().join("none")]).is_err());
    }
}
