//! Checksums that stores give for whole objects, and the one that Stoker keeps for itself.
//!
//! CRC-64/NVME is what S3 computes by default; it combines, so that the checksums of blocks give the
//! checksum of the object without a second pass.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;

/// Bytes under one checksum of our own. A reader of 4 KiB pays for 64 KiB of checksum at most, about 5 microseconds.
pub const SUM: u64 = 64 << 10;

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
    pub fn matches(&self, expected: Checksum) -> bool {
        self.value() == expected.value()
    }
}

/// Checksums of a block that starts at a multiple of [`SUM`], one for each 64 KiB.
pub fn sums(pieces: &[Bytes]) -> Vec<u64> {
    let mut out = Vec::with_capacity((crate::SMALL / SUM) as usize);
    let mut digest = Checksum::Crc64Nvme(0).digest();
    let mut room = SUM as usize;
    let mut fed = false;
    for piece in pieces {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(room));
            digest.update(now);
            (rest, room, fed) = (later, room - now.len(), true);
            if room == 0 {
                out.push(digest.value());
                (digest, room, fed) = (Checksum::Crc64Nvme(0).digest(), SUM as usize, false);
            }
        }
    }
    if fed {
        out.push(digest.value());
    }
    out
}

/// CRC-64/NVME, alone and combined.
pub mod crc64 {
    use crc_fast::CrcAlgorithm::Crc64Nvme;

    /// The generator of CRC-64/NVME (NVM Command Set specification 1.0, 5.2.1.3.4), its bits reflected.
    const GENERATOR: u64 = 0x9a6c_9329_ac4b_c9b5;

    /// The polynomial 1, reflected: the highest bit is the coefficient of x^0.
    const ONE: u64 = 1 << 63;

    /// Checksum of some bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        crc_fast::checksum(Crc64Nvme, bytes)
    }

    /// Checksum of `left ++ right`, given the checksum of each and the length of the right one.
    pub fn combine(left: u64, right: u64, right_bytes: u64) -> u64 {
        Append::bytes(right_bytes).combine(left, right)
    }

    /// What appending some number of bytes does to a checksum. Made once for a length that comes often: a
    /// general combination takes a hundred times as long as applying it.
    #[derive(Clone, Copy, Debug)]
    pub struct Append(u64);

    impl Append {
        /// Appending this many bytes: x^(8 x bytes) modulo the generator, by squaring.
        pub const fn bytes(bytes: u64) -> Append {
            let (mut power, mut square, mut left) = (ONE, ONE >> 8, bytes);
            while left > 0 {
                if left & 1 == 1 {
                    power = multiply(power, square);
                }
                square = multiply(square, square);
                left >>= 1;
            }
            Append(power)
        }

        /// Checksum of `left ++ right`, given the checksum of each.
        pub fn combine(self, left: u64, right: u64) -> u64 {
            multiply(self.0, left) ^ right
        }
    }

    /// Product of two reflected polynomials modulo the generator.
    const fn multiply(left: u64, mut right: u64) -> u64 {
        let (mut product, mut bit) = (0, ONE);
        while bit != 0 {
            if left & bit != 0 {
                product ^= right;
            }
            right = if right & 1 == 1 { right >> 1 ^ GENERATOR } else { right >> 1 };
            bit >>= 1;
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_halves_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..200_001u32).map(|n| (n * 31 % 251) as u8).collect();
        let (left, right) = bytes.split_at(65_536);
        for (left, right) in [(left, right), (right, left), (&bytes[..0], right), (left, &bytes[..0])] {
            let combined = crc64::Append::bytes(right.len() as u64).combine(crc64::of(left), crc64::of(right));
            assert_eq!(combined, crc64::of(&[left, right].concat()));
        }
    }

    #[test]
    fn values_are_those_of_the_published_check_string() {
        // The check values of the CRC catalogue (reveng.sourceforge.io) for "123456789".
        assert_eq!(crc64::of(b"123456789"), 0xae8b_1486_0a79_9888);
        for (expected, bytes) in [
            (Checksum::Crc64Nvme(0xae8b_1486_0a79_9888), b"123456789"),
            (Checksum::Crc32C(0xe306_9283), b"123456789"),
            (Checksum::Crc32(0xcbf4_3926), b"123456789"),
        ] {
            let mut digest = expected.digest();
            digest.update(bytes);
            assert!(digest.matches(expected), "{expected:?}");
            digest.update(b"!");
            assert!(!digest.matches(expected), "{expected:?}");
        }
    }
}
