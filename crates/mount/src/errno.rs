//! The one place where an error becomes an errno, and where the reader's administrator is told why:
//! an errno has no room for three parts.

use block::{Error, Kind};
use rustix::io::Errno;
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
#[derive(Default)]
pub struct Complaints {
    count: AtomicU64,
}

impl Complaints {
    /// The errno for the reader; the message for the log.
    pub fn errno(&self, error: &Error) -> Errno {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let errno = of(error.kind);
        if worth_saying(count) {
            tracing::warn!(count, %errno, "a reader got an error: {error}");
        }
        errno
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
    fn a_flood_of_errors_is_said_ever_more_seldom() {
        assert_eq!((1..=1_000_000).filter(|&count| worth_saying(count)).count(), 32 + 14);
    }
}
