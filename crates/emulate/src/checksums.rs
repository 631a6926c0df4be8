//! CRC-64/NVME of whole files, each worked out once for a version and kept.
//!
//! Invariant: a checksum is found only under the version that it was worked out from.

use crate::version::Version;
use std::collections::HashMap;
use std::sync::Mutex;

/// Checksums kept: some 16 MB. When full, all are dropped and worked out anew as they are asked for.
const KEPT_MAX: usize = 200_000;

/// Checksums by version. The path is not needed: inode, size and time name the content.
#[derive(Default)]
pub struct Checksums {
    kept: Mutex<HashMap<Version, u64>>,
}

impl Checksums {
    pub fn get(&self, version: Version) -> Option<u64> {
        self.kept.lock().expect("no panic while held").get(&Version { changes: 0, ..version }).copied()
    }

    pub fn keep(&self, version: Version, checksum: u64) {
        let mut kept = self.kept.lock().expect("no panic while held");
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(Version { changes: 0, ..version }, checksum);
    }
}

/// As S3 writes a CRC-64: the base64 of its eight bytes, the highest first.
pub fn base64(checksum: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // Sixty-four bits are ten letters of six bits and one of four, and one `=` of padding.
    let padded = u128::from(checksum) << 2;
    let letter = |index: u32| char::from(LETTERS[(padded >> (60 - 6 * index)) as usize & 63]);
    (0..11).map(letter).chain(['=']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_eight_bytes() {
        assert_eq!(base64(0), "AAAAAAAAAAA=");
        assert_eq!(base64(u64::MAX), "//////////8=");
        assert_eq!(base64(0x0001_0203_0405_0607), "AAECAwQFBgc=");
        // "123456789", as the AWS tools print it.
        assert_eq!(base64(0xae8b_1486_0a79_9888), "rosUhgp5mIg=");
    }
}
