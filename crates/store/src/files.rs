//! Small files that somebody else writes: profiles, keys, tokens.
//!
//! Invariants: nobody waits for one without an end, and those that hang hold one thread, however often they are asked for. What is no
//! file, or a large one, is an error.

use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a file system may take. A home folder on a network is read in a tenth of a second.
const WITHIN: Duration = Duration::from_secs(5);

/// Bytes of such a file: the largest, all profiles of a large firm, takes some tens of thousands.
const BYTES_MAX: u64 = 1 << 20;

/// `/dev/null`, which says that there are none.
const NULL: u64 = 1 << 8 | 3;

/// Reads them off the threads that serve requests, one at a time.
#[derive(Clone, Debug)]
pub struct Files(Arc<Semaphore>);

impl Default for Files {
    fn default() -> Files {
        Files(Arc::new(Semaphore::new(1)))
    }
}

impl Files {
    pub async fn read(&self, path: impl Into<PathBuf>) -> Result<Vec<u8>> {
        let path = path.into();
        self.look(move || read(&path)).await
    }

    /// What a look at some of them finds.
    pub async fn look<T: Send + 'static>(&self, look: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let turns = self.0.clone();
        let looking = async {
            let turn = turns.acquire_owned().await.map_err(Error::other)?;
            let counted = move || {
                let _turn = turn;
                look()
            };
            tokio::task::spawn_blocking(counted).await.map_err(Error::other)?
        };
        let late = || Error::new(ErrorKind::TimedOut, format!("the file system did not answer within {WITHIN:?}"));
        tokio::time::timeout(WITHIN, looking).await.unwrap_or_else(|_| Err(late()))
    }
}

/// All of a file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    // A pipe that nobody writes is opened at once.
    let file: File =
        open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?.into();
    let found = file.metadata()?;
    if !(found.is_file() || found.file_type().is_char_device() && found.rdev() == NULL) {
        return Err(Error::other("this is no file"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(Error::other(format!("it has more than {BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

/// Whether there is something of this name. That it can't be known is an error.
pub fn exists(path: &Path) -> Result<bool> {
    match path.metadata() {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether this is said of what is not there.
pub fn is_absent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::sync::mpsc;

    #[test]
    fn a_pipe_a_device_a_folder_and_a_large_file_are_no_files_of_credentials() {
        let folder = tempfile::tempdir().expect("a folder");
        let [pipe, large, most] = ["pipe", "large", "most"].map(|name| folder.path().join(name));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        for (path, bytes) in [(&large, BYTES_MAX + 1), (&most, BYTES_MAX)] {
            File::create(path).and_then(|file| file.set_len(bytes)).expect("a file");
        }
        for path in [&*pipe, &*large, folder.path(), Path::new("/dev/zero")] {
            assert!(!is_absent(&read(path).expect_err("no file")), "{}", path.display());
        }
        assert_eq!(read(&most).expect("a file").len() as u64, BYTES_MAX);
        assert_eq!(read(Path::new("/dev/null")).expect("nothing"), b"");
        for absent in [folder.path().join("absent"), most.join("below")] {
            assert!(is_absent(&read(&absent).expect_err("it is not there")) && !exists(&absent).expect("it is known"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_hangs_is_given_up_and_holds_one_thread_however_often_it_is_asked_for() {
        let (files, looks) = (Files::default(), Arc::new(()));
        let (hang, hung) = mpsc::sync_channel::<()>(0);
        let hung = Arc::new(std::sync::Mutex::new(hung));
        for _ in 0..10 {
            let (hung, look) = (hung.clone(), looks.clone());
            let error = files.look(move || Ok((look, hung.lock().map(|hung| hung.recv().is_ok()).is_ok())).map(|_| ()));
            let (found, ()) = tokio::join!(error, tokio::time::advance(WITHIN));
            assert_eq!(found.expect_err("it hangs").kind(), ErrorKind::TimedOut);
        }
        assert_eq!(Arc::strong_count(&looks), 2, "one look goes on");
        drop(hang);
        assert!(files.look(|| Ok(true)).await.expect("the disk is back"));
    }
}
