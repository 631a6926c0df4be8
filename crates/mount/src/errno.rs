//! The one place where an error becomes an errno, and where the log says why for the reader's administrator:
//! an errno has no room for three parts.

use block::{Error, Kind};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the reader sees.
pub fn of(kind: Kind) -> Errno {
    match kind {
        Kind::Missing => Errno::NOENT,
        Kind::Changed => Errno::STALE,
        Kind::Denied => Errno::ACCESS,
        Kind::Invalid => Errno::INVAL,
        // ENOSPC makes no sense to a reader.
        Kind::Unavailable { .. } | Kind::Corrupt | Kind::Full => Errno::IO,
    }
}

/// Says what readers were refused, without flooding the log when a store is down.
pub struct Complaints {
    mount_point: PathBuf,
    count: AtomicU64,
}

impl Complaints {
    /// Of the readers of a mount.
    pub fn at(mount_point: &Path) -> Complaints {
        Complaints { mount_point: mount_point.to_owned(), count: AtomicU64::new(0) }
    }

    /// The errno for the reader; the message for the log.
    pub fn errno(&self, error: &Error) -> Errno {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let errno = of(error.kind);
        if worth_saying(count) {
            let error = self.advised(error);
            tracing::warn!(count, %errno, "a reader got an error: {error}");
        }
        errno
    }

    /// Names are those of the last listing, and here it is known of what.
    fn advised(&self, error: &Error) -> Error {
        match error.kind {
            Kind::Missing | Kind::Changed if error.hint == error.kind.hint() => {
                let mount_point = block::quoted(&self.mount_point);
                error.clone().hint(format!("stoker refresh {mount_point}, then open the file again"))
            }
            _ => error.clone(),
        }
    }
}

/// Errors logged in full before only every power of two is: enough to see a pattern.
const SAID_ALWAYS: u64 = 32;

fn worth_saying(count: u64) -> bool {
    count <= SAID_ALWAYS || count.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_errno() {
        assert_eq!(of(Kind::Missing), Errno::NOENT);
        assert_eq!(of(Kind::Changed), Errno::STALE);
        assert_eq!(of(Kind::Denied), Errno::ACCESS);
        assert_eq!(of(Kind::Unavailable { retry_after: None }), Errno::IO);
        assert_eq!(of(Kind::Corrupt), Errno::IO);
        assert_eq!(of(Kind::Full), Errno::IO);
        assert_eq!(of(Kind::Invalid), Errno::INVAL);
    }

    #[test]
    fn who_reads_an_old_version_is_told_what_to_refresh() {
        let complaints = Complaints::at(Path::new("/data"));
        let advised = |error: Error| complaints.advised(&error).hint;
        assert!(advised(Error::changed("the object has changed", "key")).contains("stoker refresh /data,"));
        assert_eq!(advised(Error::missing("it is not there", "key").hint("look elsewhere")), "look elsewhere");
    }

    #[test]
    fn a_flood_of_errors_is_said_ever_more_seldom() {
        assert_eq!((1..=1_000_000).filter(|&count| worth_saying(count)).count(), 32 + 14);
    }
}
