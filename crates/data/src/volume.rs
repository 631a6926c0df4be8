//! npz volumes: a zip file of two stored npy arrays, written plane by plane with little memory.
//!
//! `x` is a float32 scan of grain around zero, in which a ball is brighter by one; `y` is the uint8 mask of that
//! ball, so a network can learn it. Nothing is compressed, as `numpy.savez` does, and nothing repeats, so that no
//! storage can shrink it.
//! Invariant: a volume depends on the seed, its index and its size alone, and its size is known before it is made.

use std::ops::Range;

use block::{Result, crc64};
use crc_fast::{CrcAlgorithm, Digest};

use super::noise::{Chance, LANES, Noise};
use super::{Put, npy};

/// Sides are multiples of this, so that planes are whole turns of the noise.
const SIDE_STEP: u64 = 16;
/// Bytes of a voxel: four in `x`, one in `y`.
const VOXEL_BYTES: u64 = 5;

/// Streams of chance, apart from those of the pictures.
const CASE: u64 = 3 << 62;

pub struct Volume {
    depth: u64,
    side: u64,
    ball: Ball,
    /// Seed of the grain, from which each plane can be made alone.
    grain: u64,
}

impl Volume {
    /// The volume of nearly so many bytes: about a cube, a multiple of sixteen wide and high.
    pub fn of(seed: u64, index: u64, bytes: u64) -> Volume {
        let voxels = bytes / VOXEL_BYTES;
        let mut side = SIDE_STEP;
        while (side + SIDE_STEP / 2).pow(3) < voxels {
            side += SIDE_STEP;
        }
        let plane = side * side;
        let depth = ((voxels + plane / 2) / plane).max(1);
        let mut chance = Chance::of(seed, CASE | index);
        Volume { depth, side, ball: Ball::of(&mut chance, depth, side), grain: chance.draw() }
    }

    pub fn bytes(&self) -> u64 {
        let [x, y] = self.members();
        let central: usize = [&x, &y].iter().map(|member| central(member, 0, 0).len()).sum();
        x.bytes() + y.bytes() + (central + END_BYTES) as u64
    }

    /// Gives the file to `put` and returns its checksum.
    pub fn compose(&self, put: &mut Put<'_>) -> Result<u64> {
        let [x, y] = self.members();
        let x_sums = x.compose(0, self.depth, put, &|plane, bytes| self.paint_scan(plane, bytes))?;
        let y_sums = y.compose(x.bytes(), self.depth, put, &|plane, bytes| self.paint_mask(plane, bytes))?;
        let central_at = x.bytes() + y.bytes();
        let end = [central(&x, x_sums.crc32, 0), central(&y, y_sums.crc32, x.bytes())].concat();
        let end = [end.as_slice(), &ending(end.len(), central_at)].concat();
        put(central_at, &end)?;
        let members = crc64::combine(x_sums.crc64, y_sums.crc64, y.bytes());
        Ok(crc64::combine(members, crc64::of(&end), end.len() as u64))
    }

    fn members(&self) -> [Member; 2] {
        let voxels = self.depth * self.side * self.side;
        let shape = format!("(1, {}, {}, {})", self.depth, self.side, self.side);
        [Member::of("x.npy", "<f4", &shape, voxels * 4), Member::of("y.npy", "|u1", &shape, voxels)]
    }

    /// Grain from -1 to 1 everywhere, and one more inside the ball.
    fn paint_scan(&self, plane: u64, scan: &mut [u8]) {
        let mut noise = Noise::of(&mut Chance::of(self.grain, plane));
        for voxels in scan.chunks_exact_mut(LANES * 4) {
            for (voxel, bits) in voxels.chunks_exact_mut(4).zip(noise.draw()) {
                // An exponent of zero and random digits: evenly from one to two.
                let even = f32::from_bits(bits >> 9 | 0x3f80_0000);
                voxel.copy_from_slice(&(even * 2.0 - 3.0).to_le_bytes());
            }
        }
        let width = self.side as usize * 4;
        for (row, voxels) in scan.chunks_exact_mut(width).enumerate() {
            let inside = self.ball.inside(plane, row as u64);
            for voxel in voxels[inside.start * 4..inside.end * 4].chunks_exact_mut(4) {
                let grain = f32::from_le_bytes([voxel[0], voxel[1], voxel[2], voxel[3]]);
                voxel.copy_from_slice(&(grain + 1.0).to_le_bytes());
            }
        }
    }

    fn paint_mask(&self, plane: u64, mask: &mut [u8]) {
        mask.fill(0);
        for (row, voxels) in mask.chunks_exact_mut(self.side as usize).enumerate() {
            voxels[self.ball.inside(plane, row as u64)].fill(1);
        }
    }
}

/// What there is to find in a volume.
struct Ball {
    /// Depth, height and width of the middle.
    middle: [f32; 3],
    radius: f32,
    side: u64,
}

impl Ball {
    /// Between an eighth and a quarter of the volume wide, wholly inside it.
    fn of(chance: &mut Chance, depth: u64, side: u64) -> Ball {
        let radius = chance.between(0.125, 0.25) * depth.min(side) as f32;
        let middle = [depth, side, side].map(|extent| chance.between(radius, extent as f32 - radius));
        Ball { middle, radius, side }
    }

    /// The voxels of a row that lie in the ball.
    fn inside(&self, plane: u64, row: u64) -> Range<usize> {
        let [z, y, x] = self.middle;
        let (above, beside) = (plane as f32 - z, row as f32 - y);
        let left = self.radius * self.radius - above * above - beside * beside;
        if left <= 0.0 {
            return 0..0;
        }
        let half = left.sqrt();
        let start = (x - half).ceil().max(0.0) as usize;
        let end = ((x + half).floor() + 1.0).clamp(0.0, self.side as f32) as usize;
        start.min(end)..end
    }
}

/// One array in the zip file.
struct Member {
    name: &'static str,
    /// The head of the npy format, version 1.
    head: Vec<u8>,
    /// Bytes of the array, without any head.
    array: u64,
}

struct Sums {
    /// Of the member as the zip format counts it: npy head and array.
    crc32: u64,
    /// Of everything that the member adds to the file.
    crc64: u64,
}

impl Member {
    fn of(name: &'static str, kind: &str, shape: &str, array: u64) -> Member {
        let head = npy::head(kind, shape);
        Member { name, head, array }
    }

    /// Bytes in the file, before the central directory.
    fn bytes(&self) -> u64 {
        (local(self, 0).len() + self.head.len()) as u64 + self.array
    }

    /// Writes the member at an offset, plane by plane. Its zip header holds the checksum of all of it, so comes last.
    fn compose(&self, offset: u64, depth: u64, put: &mut Put<'_>, paint: &dyn Fn(u64, &mut [u8])) -> Result<Sums> {
        let start = local(self, 0).len() as u64;
        put(offset + start, &self.head)?;
        let mut crc32 = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
        let mut crc64 = Digest::new(CrcAlgorithm::Crc64Nvme);
        crc32.update(&self.head);
        crc64.update(&self.head);
        let mut at = offset + start + self.head.len() as u64;
        let mut bytes = vec![0; usize::try_from(self.array / depth).expect("a plane fits in memory")];
        for plane in 0..depth {
            paint(plane, &mut bytes);
            put(at, &bytes)?;
            at += bytes.len() as u64;
            crc32.update(&bytes);
            crc64.update(&bytes);
        }
        let crc32 = crc32.finalize();
        let header = local(self, crc32);
        put(offset, &header)?;
        let crc64 = crc64::combine(crc64::of(&header), crc64.finalize(), self.bytes() - start);
        Ok(Sums { crc32, crc64 })
    }
}

/// Length of the record that ends a zip file.
const END_BYTES: usize = 22;
/// Version of the zip format that a reader needs: 2.0.
const ZIP_VERSION: u16 = 20;
/// The first of January 1980, the oldest day that the format knows.
const ZIP_DAY: u16 = 1 << 5 | 1;

/// The fields that the headers of a member share: version to length of the extra field.
fn fields(member: &Member, crc32: u64) -> Vec<u8> {
    let narrow = |value: u64| u32::try_from(value).expect("volumes stay below 4 GiB");
    let size = narrow(member.head.len() as u64 + member.array);
    let mut out = Vec::new();
    for value in [ZIP_VERSION, 0, 0, 0, ZIP_DAY] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    for value in [narrow(crc32), size, size] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    for value in [member.name.len() as u16, 0] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    out
}

fn local(member: &Member, crc32: u64) -> Vec<u8> {
    [b"PK\x03\x04".as_slice(), &fields(member, crc32), member.name.as_bytes()].concat()
}

fn central(member: &Member, crc32: u64, offset: u64) -> Vec<u8> {
    let offset = u32::try_from(offset).expect("volumes stay below 4 GiB");
    let made_by = ZIP_VERSION.to_le_bytes();
    // No comment, first disk, no attributes.
    let plain = [0; 10];
    let offset = offset.to_le_bytes();
    [b"PK\x01\x02".as_slice(), &made_by, &fields(member, crc32), &plain, &offset, member.name.as_bytes()].concat()
}

fn ending(central: usize, central_at: u64) -> [u8; END_BYTES] {
    let mut out = [0; END_BYTES];
    out[..4].copy_from_slice(b"PK\x05\x06");
    out[8..10].copy_from_slice(&2u16.to_le_bytes());
    out[10..12].copy_from_slice(&2u16.to_le_bytes());
    out[12..16].copy_from_slice(&(central as u32).to_le_bytes());
    let at = u32::try_from(central_at).expect("volumes stay below 4 GiB");
    out[16..20].copy_from_slice(&at.to_le_bytes());
    out
}
