//! TFRecord: records with masked CRC-32C, each a `tf.train.Example` with the features `image` (bytes) and `label` (int64).
//!
//! It compresses nothing. Invariant: a record has the asked size wherever the format has one of that size, else the next
//! smaller one that it has.

use block::Result;
use crc_fast::{CrcAlgorithm, checksum};

use super::noise::{Chance, Noise};
use super::stream::Stream;

/// Length, its checksum, and the checksum of the content.
pub const FRAME_BYTES: u64 = 8 + 4 + 4;

/// The smallest record that is made: an image of a few bytes.
pub const RECORD_BYTES_MIN: u64 = 64;

/// Constant of the format, which keeps a checksum of checksums from being trivial.
const MASK: u32 = 0xa282_ead8;

/// Labels are from 0 to below this, so that each takes one byte.
const LABELS: u64 = 100;

/// Kinds of a protobuf field.
const LENGTH: u8 = 2;

/// Size of the record that is made where so many bytes are asked.
pub fn size(asked: u64) -> u64 {
    framed(image(asked))
}

/// Bytes of a record that holds an image of so many bytes.
pub fn framed(image: u64) -> u64 {
    FRAME_BYTES + head_bytes(image) + image
}

/// The largest image whose record has no more than so many bytes.
pub fn image(asked: u64) -> u64 {
    let example = asked.max(RECORD_BYTES_MIN) - FRAME_BYTES;
    let mut image = example - head_bytes(example);
    while image + 1 + head_bytes(image + 1) <= example {
        image += 1;
    }
    image
}

/// What surrounds images of one size. Most files have records of one size, so that it is made once.
pub struct Frame {
    pub image: u64,
    /// Length and its checksum, and the example up to the image.
    start: Vec<u8>,
}

impl Frame {
    pub fn around(image: u64) -> Frame {
        let head = head(image);
        let length = (head.len() as u64 + image).to_le_bytes();
        let sum = masked(checksum(CrcAlgorithm::Crc32Iscsi, &length) as u32).to_le_bytes();
        Frame { image, start: [&length, &sum[..], &head].concat() }
    }

    /// One record whose image `give` gives.
    pub fn compose(
        &mut self,
        stream: &mut Stream<'_, '_>,
        label: u8,
        give: &mut dyn FnMut(&mut Stream<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let at = self.start.len() - usize::try_from(head_bytes(self.image)).expect("a few bytes");
        let (length, head) = self.start.split_at_mut(at);
        let features = 1 + usize::try_from(varint_bytes(features_bytes(self.image))).expect("a few bytes");
        head[features + LABEL_AT] = label;
        stream.begin_record();
        stream.bytes(length)?;
        stream.begin_payload();
        stream.bytes(head)?;
        give(stream)?;
        let sum = stream.end_payload();
        stream.bytes(&masked(sum).to_le_bytes())?;
        stream.end_record();
        Ok(())
    }
}

/// One record of noise, by the frame of the last one if it fits.
pub fn compose(
    stream: &mut Stream<'_, '_>,
    asked: u64,
    frame: &mut Option<(u64, Frame)>,
    chance: &mut Chance,
    noise: &mut Noise,
) -> Result<()> {
    let (_, frame) = match frame {
        Some(last) if last.0 == asked => last,
        other => other.insert((asked, Frame::around(image(asked)))),
    };
    let image = frame.image;
    frame.compose(stream, chance.below(LABELS) as u8, &mut |stream| stream.noise(noise, image))
}

fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK)
}

/// The label's entry in the map of features: key, then a value whose last byte is the label.
const LABEL: [u8; 16] =
    [0x0a, 14, 0x0a, 5, b'l', b'a', b'b', b'e', b'l', 0x12, 5, 3 << 3 | LENGTH, 3, 1 << 3 | LENGTH, 1, 0];
const LABEL_AT: usize = LABEL.len() - 1;

/// Key of the image's entry.
const IMAGE: [u8; 7] = [0x0a, 5, b'i', b'm', b'a', b'g', b'e'];

/// The example up to the image, which comes last. From the inside out:
/// `Example { features: Features { feature: map { key, value: Feature { bytes_list } } } }`.
fn head(image: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let nested = |out: &mut Vec<u8>, tag: u8, bytes: u64| {
        out.push(tag);
        varint(out, bytes);
    };
    nested(&mut out, 0x0a, features_bytes(image));
    out.extend_from_slice(&LABEL);
    nested(&mut out, 0x0a, entry_bytes(image));
    out.extend_from_slice(&IMAGE);
    nested(&mut out, 0x12, feature_bytes(image));
    nested(&mut out, 0x0a, list_bytes(image));
    nested(&mut out, 0x0a, image);
    out
}

/// Bytes of the messages around an image, each with all that is in it.
fn list_bytes(image: u64) -> u64 {
    1 + varint_bytes(image) + image
}

fn feature_bytes(image: u64) -> u64 {
    let list = list_bytes(image);
    1 + varint_bytes(list) + list
}

fn entry_bytes(image: u64) -> u64 {
    let feature = feature_bytes(image);
    IMAGE.len() as u64 + 1 + varint_bytes(feature) + feature
}

fn features_bytes(image: u64) -> u64 {
    let entry = entry_bytes(image);
    LABEL.len() as u64 + 1 + varint_bytes(entry) + entry
}

/// Bytes of an example beside its image.
fn head_bytes(image: u64) -> u64 {
    let features = features_bytes(image);
    1 + varint_bytes(features) + features - image
}

fn varint_bytes(value: u64) -> u64 {
    u64::from((64 - (value | 1).leading_zeros()).div_ceil(7))
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_asked_size_or_a_few_bytes_less() {
        let misses = (64..40_000).filter(|&asked| size(asked) != asked).count();
        assert!(misses < 30, "{misses}");
        assert!((64..40_000).all(|asked| (asked - 5..=asked).contains(&size(asked))));
        assert_eq!(size(1), size(RECORD_BYTES_MIN));
        assert!((0..40_000).all(|image| head(image).len() as u64 == head_bytes(image)));
    }
}
