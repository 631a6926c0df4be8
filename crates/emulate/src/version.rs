//! What tells two contents of a file apart without reading it.
//!
//! Invariant: the etag is a function of size, modification time, inode and count of pretended changes.

use rustix::fs::Stat;
use std::time::{Duration, SystemTime};

/// One version of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    pub size: u64,
    /// Nanoseconds since 1970; files older than that count as of 1970.
    pub modified: u64,
    pub inode: u64,
    /// How often the fault `etag-change` has pretended a change.
    pub changes: u32,
}

impl Version {
    #[allow(clippy::unnecessary_cast, reason = "the types of these fields differ between platforms")]
    pub fn of(stat: &Stat) -> Version {
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        let modified = seconds.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as u64);
        Version { size: stat.st_size as u64, modified, inode: stat.st_ino as u64, changes: 0 }
    }

    /// Without quotes. Two dashes, so that nobody takes it for an MD5 or for that of a multipart upload.
    pub fn etag(&self) -> String {
        let Version { size, modified, inode, changes } = *self;
        if changes == 0 {
            format!("{modified:x}-{size:x}-{inode:x}")
        } else {
            format!("{modified:x}-{size:x}-{inode:x}-{changes}")
        }
    }

    pub fn modified_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.modified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_tells_versions_apart_and_is_no_md5() {
        let version = Version { size: 5, modified: 1_700_000_000_123_456_789, inode: 77, changes: 0 };
        assert_eq!(version.etag(), "17979cfe3d85cd15-5-4d");
        for other in [
            Version { size: 6, ..version },
            Version { modified: 1, ..version },
            Version { inode: 1, ..version },
            Version { changes: 1, ..version },
        ] {
            assert_ne!(other.etag(), version.etag());
        }
    }
}
