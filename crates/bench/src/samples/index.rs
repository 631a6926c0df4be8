//! Where the records of packed files begin: lengths of TFRecord files and headers of tar files, read one by one.
//!
//! It reads no content and keeps nothing on the disk. Invariant: a length that its own checksum doesn't confirm is an
//! error, not an index.

use block::{Error, Result};
use crc_fast::{CrcAlgorithm, checksum};
use data::crew;
use targets::{Listed, Opened, Target};
use workload::{Files, Format};

use super::footer;
use super::spans::{Spans, even};

/// Length of a record and its checksum; the content; its checksum.
pub const HEAD: u64 = 12;
pub const TAIL: u64 = 4;

/// A tar file is made of blocks of this size.
const TAR: u64 = 512;

/// Constant of the TFRecord format that keeps a checksum of checksums from being trivial.
const MASK: u32 = 0xa282_ead8;

/// How samples lie in each file.
pub fn spans(target: &dyn Target, found: &[Listed], files: &Files, threads: usize) -> Result<Vec<Spans>> {
    let wanted = footer::Wanted::of(files);
    let scan: &(dyn Fn(&Listed, &mut dyn Opened) -> Result<Spans> + Sync) = match files.format {
        Format::Jpeg | Format::Npz | Format::Npy => return Ok(vec![Spans::Whole; found.len()]),
        Format::Raw => {
            return Ok(found.iter().map(|file| even(file.bytes, files.samples_per_file)).collect());
        }
        // A sample that is a whole file needs no rows: so a trace is replayed.
        Format::Parquet if files.samples_per_file == 1 && files.columns.is_empty() => {
            return Ok(vec![Spans::Whole; found.len()]);
        }
        Format::Parquet => &|file, opened| footer::groups(file, opened, &wanted).map(Spans::Groups),
        Format::Tfrecord => &records,
        Format::Tar => &members,
    };
    crew::share(threads, found.len() as u64, &|number| {
        let file = &found[number as usize];
        scan(file, &mut *target.open(file)?)
    })
}

/// CRC-32C, masked as TFRecord files have it.
pub fn masked(bytes: &[u8]) -> u32 {
    let plain = checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    plain.rotate_right(15).wrapping_add(MASK)
}

/// Length of the content of the record that begins with these bytes.
pub fn length(head: &[u8]) -> Option<u64> {
    let (number, sum) = (head.get(..8)?, head.get(8..12)?);
    let is_right = masked(number) == u32::from_le_bytes(sum.try_into().expect("four bytes"));
    is_right.then(|| u64::from_le_bytes(number.try_into().expect("eight bytes")))
}

fn records(file: &Listed, opened: &mut dyn Opened) -> Result<Spans> {
    let broken = |at: u64| {
        let what = format!("no record begins at byte {at}, though one should");
        Error::corrupt(what, &file.name).hint("this is no TFRecord file, or it is damaged or was cut; make it anew")
    };
    let mut size_at = |at: u64| -> Result<u64> {
        let mut head = [0; HEAD as usize];
        let count = opened.read_at(at, &mut head)?;
        let length = length(&head[..count]).ok_or_else(|| broken(at))?;
        Some(length.saturating_add(HEAD + TAIL)).filter(|size| *size <= file.bytes - at).ok_or_else(|| broken(at))
    };
    let first = size_at(0)?;
    let count = file.bytes / first;
    // Most sets have records of one size: three lengths at the right places show it without a scan.
    let is_even = file.bytes.is_multiple_of(first)
        && [count / 2, count - 1].iter().all(|place| size_at(place * first).is_ok_and(|size| size == first));
    if is_even {
        return Ok(if count == 1 { Spans::Whole } else { Spans::Even { count, bytes: first } });
    }
    let mut starts = vec![0];
    let mut at = first;
    while at < file.bytes {
        starts.push(at);
        at += size_at(at)?;
    }
    starts.push(at);
    Ok(Spans::Starts(starts))
}

/// Members with one name before the first dot are one sample, as WebDataset has it.
fn members(file: &Listed, opened: &mut dyn Opened) -> Result<Spans> {
    let broken = |at: u64| {
        Error::corrupt(format!("no member begins at byte {at}, though one should"), &file.name)
            .hint("this is no tar file, or it is damaged or was cut; make it anew")
    };
    let (mut starts, mut at, mut stem) = (Vec::new(), 0, None);
    // What describes the next member (long names, attributes) begins with it.
    let mut prelude = None;
    loop {
        let mut head = [0; TAR as usize];
        let count = opened.read_at(at, &mut head)?;
        if count == 0 || head.iter().all(|byte| *byte == 0) {
            break;
        }
        let size = octal(&head[124..136]).filter(|_| count == head.len()).ok_or_else(|| broken(at))?;
        let start = prelude.take().unwrap_or(at);
        if matches!(head[156], b'x' | b'g' | b'L') {
            prelude = Some(start);
        } else if matches!(head[156], b'0' | 0) {
            let name = String::from_utf8_lossy(&head[..100]).trim_end_matches('\0').to_owned();
            let path = name.rfind('/').map_or(0, |slash| slash + 1);
            let own = name[..name[path..].find('.').map_or(name.len(), |dot| path + dot)].to_owned();
            if stem.as_ref() != Some(&own) {
                starts.push(start);
            }
            stem = Some(own);
        }
        at += TAR + size.div_ceil(TAR) * TAR;
        if at > file.bytes.next_multiple_of(TAR) {
            return Err(broken(at));
        }
    }
    if starts.is_empty() {
        return Err(Error::missing("the tar file has no member", &file.name).hint("take it out of the set"));
    }
    starts.push(at.min(file.bytes));
    Ok(Spans::Starts(starts))
}

fn octal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text.trim_matches(|letter| letter == '\0' || letter == ' '), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Opened for Bytes {
        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    fn packed(sizes: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for size in sizes {
            let (number, content) = ((*size as u64).to_le_bytes(), vec![7; *size]);
            bytes.extend(number.iter().copied().chain(masked(&number).to_le_bytes()));
            bytes.extend(content.iter().copied().chain(masked(&content).to_le_bytes()));
        }
        bytes
    }

    fn scanned(bytes: Vec<u8>, scan: fn(&Listed, &mut dyn Opened) -> Result<Spans>) -> Result<Spans> {
        scan(&Listed { name: "a".into(), bytes: bytes.len() as u64 }, &mut Bytes(bytes))
    }

    #[test]
    fn records_are_found_by_their_lengths() {
        let spans = scanned(packed(&[5, 100, 0]), records).unwrap();
        assert_eq!(spans, Spans::Starts(vec![0, 21, 137, 153]));
        assert_eq!(scanned(packed(&[50; 9]), records).unwrap(), Spans::Even { count: 9, bytes: 66 });
        assert_eq!(scanned(packed(&[50]), records).unwrap(), Spans::Whole);
    }

    #[test]
    fn a_damaged_or_cut_file_is_no_index() {
        let mut damaged = packed(&[5, 100, 3]);
        damaged[22] ^= 1;
        assert!(scanned(damaged, records).unwrap_err().what.contains("byte 21"));
        let mut cut = packed(&[5, 100, 3]);
        cut.truncate(80);
        assert!(scanned(cut, records).is_err());
        assert!(scanned(vec![1; 700], members).is_err());
    }

    #[test]
    fn the_checksum_is_that_of_the_format() {
        // tf.io writes these for an empty record: length 0, its masked CRC, the masked CRC of nothing.
        assert_eq!(masked(&0_u64.to_le_bytes()).to_le_bytes(), [0x29, 0x03, 0x98, 0x07]);
        assert_eq!(masked(&[]), MASK);
    }

    #[test]
    fn members_of_one_stem_are_one_sample() {
        let mut bytes = Vec::new();
        for (name, size) in [("a/1.jpg", 700_usize), ("a/1.cls", 1), ("a/2.jpg", 512), ("a/2.cls", 1)] {
            let mut head = [0; TAR as usize];
            head[..name.len()].copy_from_slice(name.as_bytes());
            head[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
            head[156] = b'0';
            bytes.extend(head);
            bytes.extend(std::iter::repeat_n(9, size.next_multiple_of(TAR as usize)));
        }
        bytes.extend([0; 1024]);
        assert_eq!(scanned(bytes, members).unwrap(), Spans::Starts(vec![0, 2560, 4608]));
    }
}
