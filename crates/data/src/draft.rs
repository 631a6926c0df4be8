//! A file in the making: written aside, then renamed to its name in one step.
//!
//! It doesn't sync to the disk; see `data`.
//! Invariant: a name below the folder never shows a file that isn't whole.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use block::{Error, Kind, Result, crc64};

/// Where files lie until they are whole. On the same file system as their names, or rename would fail.
const DRAFTS: &str = ".stoker-drafts";

/// Kept free beside the set: folders, inodes and whatever else the machine writes meanwhile.
const SPARE_BYTES: u64 = 16 << 20;

pub struct Draft {
    file: File,
    aside: PathBuf,
    path: PathBuf,
}

impl Draft {
    /// Begins the file that will be called `name` below `folder`.
    pub fn begin(folder: &Path, name: &str) -> Result<Draft> {
        let path = folder.join(name);
        // Names of one set differ, and by more than a checksum of 64 bits would overlook.
        let aside = folder.join(DRAFTS).join(format!("{:016x}", crc64::of(name.as_bytes())));
        let file = File::create(&aside).map_err(|error| failed("creating a file", &aside, &error))?;
        Ok(Draft { file, aside, path })
    }

    pub fn put(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| failed("writing a file", &self.path, &error))
    }

    /// Takes over the blocks of another file instead of being written, where the file system can.
    pub fn share(&self, other: &Path) -> bool {
        File::open(other).is_ok_and(|other| rustix::fs::ioctl_ficlone(&self.file, other).is_ok())
    }

    /// Gives the file its name; it has to have so many bytes by now.
    pub fn finish(self, bytes: u64) -> Result<()> {
        let found = self.file.metadata().map_err(|error| failed("asking a file for its size", &self.path, &error))?;
        if found.len() != bytes {
            let what = format!("the file came to {} bytes instead of {bytes}", found.len());
            return Err(Error::corrupt(what, self.path.display()).hint("run it again; if it lasts, check the disk"));
        }
        fs::rename(&self.aside, &self.path).map_err(|error| failed("naming a file", &self.path, &error))
    }
}

impl Drop for Draft {
    /// What was renamed is no longer there, and what is still there is of no use. The folder of drafts goes at the end.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.aside);
    }
}

/// Makes place for drafts; what an interrupted run left there is dropped.
pub fn clear(folder: &Path) -> Result<()> {
    remove(folder)?;
    let drafts = folder.join(DRAFTS);
    fs::create_dir(&drafts).map_err(|error| failed("creating a folder", &drafts, &error))
}

/// Removes the place for drafts.
pub fn remove(folder: &Path) -> Result<()> {
    let drafts = folder.join(DRAFTS);
    match fs::remove_dir_all(&drafts) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing a folder", &drafts, &error)),
        _ => Ok(()),
    }
}

/// Fails when the disk can't take so many bytes: better now than after an hour of writing.
pub fn room(folder: &Path, bytes: u64) -> Result<()> {
    let disk = rustix::fs::statvfs(folder).map_err(|error| failed("asking for free space", folder, &error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let needed = bytes.saturating_add(SPARE_BYTES);
    if bytes == 0 || needed <= free {
        return Ok(());
    }
    let what = format!(
        "the disk is too full for the data set: it needs {} MB, {} MB are free",
        needed / 1_000_000,
        free / 1_000_000
    );
    Err(Error::full(what, folder.display()).hint("free some space, choose another folder or ask for fewer files"))
}

/// Fails at once where not even an empty disk would take so many bytes in so many files. The folder may be yet to make.
pub fn fits(folder: &Path, bytes: u64, files: u64) -> Result<()> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let Some(disk) = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok()) else { return Ok(()) };
    let whole = disk.f_blocks.saturating_mul(disk.f_frsize);
    // Some file systems count no files.
    let is_counted = disk.f_files > 0;
    if (bytes <= whole || whole == 0) && (files <= disk.f_files || !is_counted) {
        return Ok(());
    }
    let most = if is_counted { format!(" in {} files", disk.f_files) } else { String::new() };
    let what = format!(
        "the disk is too small for the data set: of {} MB in {files} files it holds {} MB{most}",
        bytes / 1_000_000,
        whole / 1_000_000
    );
    Err(Error::full(what, folder.display()).hint("choose another folder or ask for fewer files"))
}

/// An error of the file system with advice for whoever makes data.
pub fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    let error = Error::io(doing, path.display(), error);
    let hint = match error.kind {
        Kind::Full => "free some space or ask for fewer files, then run it again: finished files are kept",
        Kind::Denied => "choose a folder that you may write to",
        Kind::Missing => "leave the folder alone while its data are made, then run it again: finished files are kept",
        _ => "check the disk, then run it again: finished files are kept",
    };
    error.hint(hint)
}
