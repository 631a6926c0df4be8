//! A snapshot's file before it has its name. Each is a file of its own, for its owner alone, so that two who list
//! the same data set at once, in one process or in two, never write into what the other one has mapped.
//!
//! Doesn't sync: a snapshot that a power loss took bytes from is found out by its checksums, and listed again.
//! Invariant: a file that has its name is never written; another takes its place.

use super::failed;
use block::{Error, Result};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the names of drafts end with.
const ENDING: &str = ".new";

/// Drafts of this process so far.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// A file in the making; removed unless it was named.
pub struct Draft {
    pub file: File,
    path: Option<PathBuf>,
}

impl Draft {
    /// A new file beside the one whose name it shall have.
    pub fn beside(path: &Path) -> Result<Draft> {
        let process = std::process::id();
        loop {
            let number = DRAFTS.fetch_add(1, Relaxed);
            let path = path.with_added_extension(format!("{process}-{number}{ENDING}"));
            match File::options().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok(Draft { file, path: Some(path) }),
                // Of a process that was killed and had the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("writing the manifest", &path, &error)),
            }
        }
    }

    /// A new file in a folder that loses its name at once: whatever becomes of us, nothing is left of it.
    pub fn nameless(folder: &Path) -> Result<Draft> {
        let mut draft = Draft::beside(&folder.join(".stoker-manifest"))?;
        draft.remove();
        Ok(draft)
    }

    /// Give it its name, which another file may have had until now.
    pub fn name(mut self, path: &Path) -> Result<()> {
        let draft =
            self.path.take().ok_or_else(|| Error::invalid("a draft without a name gets none", path.display()))?;
        std::fs::rename(&draft, path).map_err(|error| {
            let _ = std::fs::remove_file(&draft);
            failed("naming the manifest", path, &error)
        })
    }

    fn remove(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Whether a file is a draft, going by its name: in a folder that nobody writes to now, somebody killed left it.
pub fn is_draft(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().ends_with(ENDING.as_bytes())
}
