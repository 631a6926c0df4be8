//! Checksums that stores give for whole objects, and the one that Stoker keeps for itself.
//!
//! CRC-64/NVME is what S3 computes by default; it combines, so that the checksums of blocks give the
//! checksum of the object without a second pass.

use crc_fast::CrcAlgorithm;

/// What a store says about all bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    Crc64Nvme(u64),
    Crc32C(u32),
    Crc32(u32),
}

impl Checksum {
    /// An empty digest of this kind of checksum.
    pub fn digest(self) -> Digest {
        let algorithm = match self {
            Checksum::Crc64Nvme(_) => CrcAlgorithm::Crc64Nvme,
            Checksum::Crc32C(_) => CrcAlgorithm::Crc32Iscsi,
            Checksum::Crc32(_) => CrcAlgorithm::Crc32IsoHdlc,
        };
        Digest(crc_fast::Digest::new(algorithm))
    }

    /// The value, widened.
    pub fn value(self) -> u64 {
        match self {
            Checksum::Crc64Nvme(value) => value,
            Checksum::Crc32C(value) | Checksum::Crc32(value) => u64::from(value),
        }
    }
}

/// A checksum in the making.
pub struct Digest(crc_fast::Digest);

impl Digest {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of the bytes seen so far, widened.
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }

    /// Whether the bytes seen so far are the ones that the store described.
    pub fn matches(&self, told: Checksum) -> bool {
        self.value() == told.value()
    }
}

/// CRC-64/NVME, alone and combined.
pub mod crc64 {
    use crc_fast::CrcAlgorithm::Crc64Nvme;

    /// Checksum of some bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        crc_fast::checksum(Crc64Nvme, bytes)
    }

    /// Checksum of `left ++ right`, given the checksum of each and the length of the right one.
    pub fn combine(left: u64, right: u64, right_bytes: u64) -> u64 {
        crc_fast::checksum_combine(Crc64Nvme, left, right, right_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_halves_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..200_001u32).map(|n| (n * 31 % 251) as u8).collect();
        let (left, right) = bytes.split_at(65_536);
        let combined = crc64::combine(crc64::of(left), crc64::of(right), right.len() as u64);
        assert_eq!(combined, crc64::of(&bytes));
    }

    #[test]
    fn values_are_those_of_the_published_check_string() {
        // The check values of the CRC catalogue (reveng.sourceforge.io) for "123456789".
        assert_eq!(crc64::of(b"123456789"), 0xae8b_1486_0a79_9888);
        for (told, bytes) in [
            (Checksum::Crc64Nvme(0xae8b_1486_0a79_9888), b"123456789"),
            (Checksum::Crc32C(0xe306_9283), b"123456789"),
            (Checksum::Crc32(0xcbf4_3926), b"123456789"),
        ] {
            let mut digest = told.digest();
            digest.update(bytes);
            assert!(digest.matches(told), "{told:?}");
            digest.update(b"!");
            assert!(!digest.matches(told), "{told:?}");
        }
    }
}
