//! Files that are whole or not there: a draft takes the name in one move.
//!
//! Invariant: nobody else's file is opened for writing or removed, whatever it is called; two that write the same name at once
//! have a draft each, and the last one stays.

use block::{Error, Result};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Names that are tried for a draft: others are left by programs that were killed and had the same number.
const NAMES: u32 = 100;

/// Write a file in one move.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    filled(path, |file| file.write_all(bytes).map_err(|error| failed(path, &error)))
}

/// The same of a file that is filled piece by piece.
pub fn filled(path: &Path, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let (draft, mut file) = begin(path).map_err(|error| failed(path, &error))?;
    let named = || fs::rename(&draft, path).map_err(|error| failed(path, &error));
    let written = fill(&mut file).and_then(|()| named());
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::io("cannot write the file", path.display(), error)
}

/// Whether one could be written there: of root, of /proc and of mounts, what permissions say is not what happens.
pub fn can_be_written(path: &Path) -> io::Result<()> {
    begin(path).and_then(|(draft, _)| fs::remove_file(draft))
}

/// A new file beside that path, hidden.
fn begin(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let mut last = ErrorKind::AlreadyExists.into();
    for number in 0..NAMES {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{number}.draft", std::process::id()));
        let draft = path.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&draft) {
            Ok(file) => return Ok((draft, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_its_name_in_one_move_and_nothing_beside_it_is_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["r.draft", "r.json.draft"] {
            fs::write(at(name), "mine").expect("a file");
        }
        std::os::unix::fs::symlink(at("r.draft"), at(&format!(".r.json.{}-0.draft", std::process::id())))
            .expect("a link");
        can_be_written(&at("r.json")).expect("it can");
        assert!(!at("r.json").exists());
        for text in ["{}", "{ }"] {
            write(&at("r.json"), text.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(at("r.json")).expect("the file"), text);
        }
        for name in ["r.draft", "r.json.draft"] {
            assert_eq!(fs::read_to_string(at(name)).expect("the file"), "mine");
        }
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 4, "no draft is left");
        assert!(can_be_written(Path::new("/proc/r.json")).is_err() && write(Path::new("/proc/r.json"), b"").is_err());
    }
}
