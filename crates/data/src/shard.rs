//! WebDataset shards: a tar file in which the members of a sample share the name before the first dot.
//!
//! A sample is `NNNNNNNNN.jpg` (`.bin` where its size makes no picture) and `NNNNNNNNN.cls`, its class in digits.
//! Invariant: a sample is one run of bytes, from its first header to the padding of its last member.

use block::{Error, Result};
use tar::{EntryType, Header};

use super::stream::Stream;

/// Headers and members are padded to multiples of this.
const BLOCK: u64 = 512;
/// A tar file ends with two empty blocks.
pub const END_BYTES: u64 = 2 * BLOCK;
/// Bytes of a sample beside those of its picture: two headers and the class, up to a block of padding apart.
pub const SAMPLE_BYTES: u64 = 3 * BLOCK;

/// Bytes of a member with its header and padding.
pub fn member(bytes: u64) -> u64 {
    BLOCK + bytes.next_multiple_of(BLOCK)
}

/// One member whose content `give` gives.
pub fn compose(
    stream: &mut Stream<'_, '_>,
    name: &str,
    bytes: u64,
    give: &mut dyn FnMut(&mut Stream<'_, '_>) -> Result<()>,
) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_path(name).map_err(|error| {
        let hint = "shorten the names: a tar header holds 255 letters, 100 of them after the last slash that fits";
        Error::invalid(format!("the name fits into no tar header: {error}"), name).hint(hint)
    })?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_cksum();
    stream.bytes(header.as_bytes())?;
    give(stream)?;
    let padding = bytes.next_multiple_of(BLOCK) - bytes;
    stream.bytes(&[0; BLOCK as usize][..padding as usize])
}

/// The class of a sample, as a member.
pub fn class(stream: &mut Stream<'_, '_>, sample: &str, class: u64) -> Result<()> {
    let digits = class.to_string();
    compose(stream, &format!("{sample}.cls"), digits.len() as u64, &mut |stream| stream.bytes(digits.as_bytes()))
}

pub fn end(stream: &mut Stream<'_, '_>) -> Result<()> {
    stream.bytes(&[0; END_BYTES as usize])
}
