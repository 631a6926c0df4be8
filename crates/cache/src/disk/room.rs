//! How much may lie on the disk. Pure: numbers in, verdict out.

/// Limits of the disk tier.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that the cache may hold.
    pub bytes: u64,
    /// Files that the cache may hold.
    pub files: u64,
    /// Bytes that stay free on the file system for everybody else.
    pub free_bytes_min: u64,
    /// Inodes that stay free on the file system for everybody else.
    pub free_files_min: u64,
}

/// What is used, by the cache and by everybody. An inode count of zero in all (btrfs) means "no limit".
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Promised to segments, written or not.
    pub bytes: u64,
    /// Of these, what is written.
    pub written: u64,
    pub files: u64,
    pub free_bytes: u64,
    pub free_files: Option<u64>,
}

impl Used {
    /// The same once so many bytes and files, which the cache does not count any more, are free.
    pub fn without(self, (bytes, files): (u64, u64)) -> Used {
        let free_files = self.free_files.map(|free| free.saturating_add(files));
        Used { free_bytes: self.free_bytes.saturating_add(bytes), free_files, ..self }
    }
}

/// Bytes and files that must give way before `bytes` more in `files` more files may be kept; (0, 0) if they fit.
pub fn shortage(limits: &Limits, used: &Used, bytes: u64, files: u64) -> (u64, u64) {
    let over_size = (used.bytes + bytes).saturating_sub(limits.bytes);
    let over_free = (limits.free_bytes_min + bytes).saturating_sub(used.free_bytes);
    let over_count = (used.files + files).saturating_sub(limits.files);
    let over_inodes = used.free_files.map_or(0, |free| (limits.free_files_min + files).saturating_sub(free));
    (over_size.max(over_free), over_count.max(over_inodes))
}

/// With less than this, all that the cache holds counted in, it keeps nothing of use.
const OF_USE: u64 = 1_000_000;

/// Whether others have left no room for anything, whatever gives way. Who was told so is told otherwise once there is some
/// more, so that nobody hears of each file that comes and goes.
pub fn is_useless(limits: &Limits, used: &Used, was_told: bool) -> bool {
    let least = limits.free_bytes_min.saturating_add(if was_told { 2 * OF_USE } else { OF_USE });
    used.free_bytes.saturating_add(used.written) < least
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bytes: 1_000, files: 10, free_bytes_min: 100, free_files_min: 5 };

    #[test]
    fn a_disk_that_others_filled_is_told_of_once_and_once_it_has_room_again() {
        let mut told = Vec::new();
        let mut was = false;
        for (free, written) in
            [(9_000_000, 0), (100, 0), (200, 0), (1_500_000, 0), (2_000_100, 0), (1_500_000, 0), (0, 5_000_000)]
        {
            let used = Used { free_bytes: free, written, ..Used::default() };
            let is = is_useless(&LIMITS, &used, was);
            told.extend((is != was).then_some((free, is)));
            was = is;
        }
        assert_eq!(told, [(100, true), (2_000_100, false)]);
    }

    #[test]
    fn each_limit_binds_by_itself() {
        let used = Used { bytes: 500, written: 0, files: 5, free_bytes: 10_000, free_files: Some(100) };
        assert_eq!(shortage(&LIMITS, &used, 500, 1), (0, 0));
        assert_eq!(shortage(&LIMITS, &used, 501, 1), (1, 0));
        assert_eq!(shortage(&LIMITS, &Used { files: 10, ..used }, 1, 1), (0, 1));
        assert_eq!(shortage(&LIMITS, &Used { free_bytes: 120, ..used }, 30, 1), (10, 0));
        assert_eq!(shortage(&LIMITS, &Used { free_files: Some(5), ..used }, 1, 1), (0, 1));
        assert_eq!(shortage(&LIMITS, &Used { free_files: None, ..used }, 1, 1), (0, 0));
    }
}
