//! Until when a node may go on that nobody looks after: a file tells, which whoever looks after it writes again.
//!
//! The file lies in a folder with what the node was handed over, such as its keys. It says `ends` and seconds since 1970;
//! so does the file beside it that tells when credentials end.
//! Invariant: with the node goes that folder, if it has the mark of a pool; no other is ever removed.

use block::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Between two looks at the file, for who writes an earlier end into it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How the file that marks the folder of a pool begins.
const MARK: &str = "stoker pool ";

/// The file that tells when the credentials end that were handed over.
const CREDENTIALS: &str = "credentials.end";

/// A file is longer than this only if it is another.
const BYTES_MAX: u64 = 4096;

/// What the file tells, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    pub ends: f64,
    /// When the credentials end with which the store is asked.
    pub credentials_end: Option<f64>,
}

pub struct Lease {
    path: PathBuf,
    known: Mutex<f64>,
}

impl Lease {
    pub fn read(path: &Path) -> Result<Lease> {
        let ends = end_in(path).map_err(|what| {
            Error::invalid(format!("this file tells of no lease: {what}"), path.display()).hint("`stoker up` writes it")
        })?;
        Ok(Lease { path: path.to_owned(), known: Mutex::new(ends) })
    }

    /// As the files have it now. A lease that can't be read goes on as it was.
    pub fn terms(&self) -> Terms {
        let mut ends = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *ends = end_in(&self.path).unwrap_or(*ends);
        Terms { ends: *ends, credentials_end: end_in(&self.path.with_file_name(CREDENTIALS)).ok() }
    }

    /// Wait for its end; `now` tells seconds since 1970.
    pub async fn over(&self, now: impl Fn() -> f64) {
        loop {
            let left = self.terms().ends - now();
            if left <= 0.0 {
                return;
            }
            tokio::time::sleep(Duration::from_secs_f64(left.min(LOOK_EVERY.as_secs_f64()))).await;
        }
    }

    /// Remove what was handed over. Nothing may read it from here on.
    pub fn give_back(&self) {
        let Some(folder) = self.path.parent() else { return };
        let mark = read(&folder.join("mark"));
        if !mark.is_ok_and(|mark| mark.starts_with(MARK)) {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(folder) {
            tracing::warn!("what this node was handed over stays in {}: {error}", folder.display());
        }
    }
}

fn end_in(path: &Path) -> std::result::Result<f64, String> {
    let text = read(path).map_err(|error| error.to_string())?;
    end(&text).ok_or_else(|| "it has no line `ends SECONDS`".into())
}

/// What a file says. Who may make something of this name puts nothing in its place that is waited for, or that is another's.
fn read(path: &Path) -> std::io::Result<String> {
    use rustix::fs::{Mode, OFlags};
    use std::io::{Error, ErrorKind, Read};
    use std::os::unix::fs::MetadataExt;
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, how, Mode::empty())?);
    let status = file.metadata()?;
    if !status.is_file() || status.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::new(ErrorKind::PermissionDenied, "it is no ordinary file of this user"));
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn end(text: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix("ends "))?;
    value.trim().parse::<f64>().ok().filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_file_that_is_no_lease_is_none() {
        assert_eq!((end("ends 7\n"), end("new 1\nends 7.5")), (Some(7.0), Some(7.5)));
        for text in ["", "ends", "ends x", "ends inf", "ends NaN", "end 7"] {
            assert_eq!(end(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_file_of_this_user_is_neither_followed_nor_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, chown, mknodat};
        let scratch = tempfile::tempdir().expect("a folder");
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| scratch.path().join(name));
        std::fs::write(&file, "ends 7\n").expect("a file");
        assert!(Lease::read(&file).is_ok());
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(Lease::read(&link).is_err() && Lease::read(scratch.path()).is_err());
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        assert!(Lease::read(&pipe).is_err());
        // Only root can give one away.
        if chown(&file, Some(rustix::fs::Uid::from_raw(7)), None).is_ok() {
            assert!(Lease::read(&file).is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_when_its_file_says_so_and_goes_on_when_it_is_renewed() {
        let scratch = tempfile::tempdir().expect("a folder");
        let path = scratch.path().join("lease");
        assert!(Lease::read(&path).is_err());
        std::fs::write(&path, "ends 1010\n").expect("a file");
        let lease = Lease::read(&path).expect("a lease");
        let began = tokio::time::Instant::now();
        let looks = AtomicU64::new(0);
        let now = || {
            // Renewed at the last moment; then the file is gone, which changes nothing.
            match looks.fetch_add(1, Ordering::Relaxed) {
                1 => std::fs::write(&path, "ends 1020\n").expect("a file"),
                3 => std::fs::remove_file(&path).expect("it is there"),
                _ => {}
            }
            1000.0 + began.elapsed().as_secs_f64()
        };
        lease.over(now).await;
        assert_eq!(began.elapsed().as_secs(), 20);
        assert_eq!(lease.terms(), Terms { ends: 1020.0, credentials_end: None });
        std::fs::write(path.with_file_name(CREDENTIALS), "ends 7\n").expect("a file");
        assert_eq!(lease.terms().credentials_end, Some(7.0));
    }

    #[test]
    fn only_the_folder_of_a_pool_goes_with_its_lease() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("pool");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("lease"), "ends 1\n").expect("a file");
        let lease = Lease::read(&folder.join("lease")).expect("a lease");
        lease.give_back();
        assert!(folder.exists());
        std::fs::write(folder.join("mark"), "stoker pool 7\n").expect("a file");
        lease.give_back();
        assert!(!folder.exists());
    }
}
