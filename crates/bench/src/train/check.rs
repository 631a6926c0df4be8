//! Whether what was read is what was written: checksums of the set's manifest, and those that a format carries.
//!
//! It reads nothing. Invariant: bytes count as verified only after a comparison that could have failed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use block::{Error, Result, crc64};
use crc_fast::{CrcAlgorithm, Digest};
use data::{MANIFEST, Manifest, Record, crew};
use targets::{Listed, Target};
use workload::Format;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;

use crate::samples::index::{HEAD, TAIL, length, masked};
use crate::samples::{Run, Set, belongs};

/// Known checksums of a set, CRC-64/NVME: of whole files by name, of what is read of row groups by the number of the
/// file. TFRecord files carry their own.
#[derive(Default)]
pub struct Checks {
    files: HashMap<Arc<str>, u64>,
    ranges: Vec<Vec<Record>>,
}

/// A file on its way.
pub struct Proof {
    digest: Digest,
    bytes: u64,
    wanted: u64,
}

impl Checks {
    /// What the manifest of a set knows; of row groups what is read of them, from the indexes of their files.
    pub fn of(manifest: &Manifest, target: &dyn Target, set: &Set, threads: usize) -> Result<Checks> {
        complete(manifest, &set.files, set.format, target.url())?;
        let files = manifest.files.iter().map(|file| (Arc::from(&*file.path), file.crc64));
        let mut checks = Checks::known(files);
        if set.groups.is_some() {
            checks.ranges = crew::share(threads, set.files.len() as u64, &|number| {
                let file = &set.files[number as usize];
                let Some(entry) = manifest.find(&file.name) else { return Ok(Vec::new()) };
                let rows = &set.numbers[number as usize];
                if rows.end - rows.start != entry.samples {
                    let rows = rows.end - rows.start;
                    return Err(contradicted(format!("{rows} rows, not {}", entry.samples), &file.name));
                }
                let records = manifest.records(target, entry)?;
                set.ranges(number as usize).map(|range| joined(&records, range, &file.name)).collect()
            })?;
        }
        Ok(checks)
    }

    /// Whole files of which a checksum is known by other means.
    pub fn known(files: impl IntoIterator<Item = (Arc<str>, u64)>) -> Checks {
        Checks { files: files.into_iter().collect(), ranges: Vec::new() }
    }

    fn sum(&self, set: &Set, run: &Run) -> Option<u64> {
        let file = &set.files[run.file];
        if run.range == (0..file.bytes) {
            return self.files.get(&file.name).copied();
        }
        let ranges = self.ranges.get(run.file)?;
        let found = &ranges[ranges.binary_search_by_key(&run.range.start, |record| record.offset).ok()?];
        (found.bytes == run.range.end - run.range.start).then_some(found.crc64)
    }

    /// Whether there is anything to compare these bytes with.
    pub fn knows(&self, set: &Set, run: &Run) -> bool {
        set.format == Format::Tfrecord || self.sum(set, run).is_some()
    }

    /// Compare the samples of a run. Gives the bytes that were compared.
    pub fn check(&self, set: &Set, run: &Run, bytes: &[u8]) -> Result<u64> {
        let name = &set.files[run.file].name;
        if let Some(wanted) = self.sum(set, run) {
            return compare(set, run, crc64::of(bytes), wanted).map(|()| bytes.len() as u64);
        }
        if set.format == Format::Tfrecord {
            return records(bytes).map(|()| bytes.len() as u64).map_err(|at| {
                let on = format!("{name}, byte {}", run.range.start + at);
                Error::corrupt("a record is not what its checksum says", on).hint(FAULT)
            });
        }
        Ok(0)
    }

    /// The same for a file that is too large to be held.
    pub fn begin(&self, set: &Set, run: &Run) -> Option<Proof> {
        let wanted = self.sum(set, run).filter(|_| set.real)?;
        Some(Proof { digest: Digest::new(CrcAlgorithm::Crc64Nvme), bytes: 0, wanted })
    }
}

/// Files that are named where many are wrong.
const NAMED: usize = 3;

/// Refuse a set that is not what its manifest lists: of what is missing no byte would be compared, and nobody would know.
pub fn complete(manifest: &Manifest, files: &[Listed], format: Format, on: &str) -> Result<()> {
    let there: HashMap<&str, u64> = files.iter().map(|file| (&*file.name, file.bytes)).collect();
    // A copy of somebody's folder may list more than what is read of it.
    let listed = || manifest.files.iter().filter(|entry| entry.bytes > 0 && belongs(format, &entry.path));
    let wrong = listed().filter_map(|entry| match there.get(entry.path.as_str()) {
        Some(bytes) if *bytes == entry.bytes => None,
        Some(bytes) => Some(format!("{} ({bytes} bytes instead of {})", entry.path, entry.bytes)),
        None => Some(format!("{} (missing)", entry.path)),
    });
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let dots = if wrong.len() > NAMED { ", ..." } else { "" };
    let what = format!(
        "{} of {} files of the set are not as its manifest lists them: {}{dots}",
        wrong.len(),
        listed().count(),
        wrong[..wrong.len().min(NAMED)].join(", "),
    );
    Err(Error::invalid(what, on).hint(format!(
        "the same `stoker bench data` in its folder makes what is missing; where the set is meant to be so, remove {MANIFEST}"
    )))
}

/// Pixels of an image that are made room for whatever it says: of 24 megapixels, as cameras have. Each stream may decode one
/// at a time.
const DECODED_BYTES_MIN: u64 = 72 << 20;
/// Of larger ones, for each byte that is read: photographs have some ten, drawings on white some hundred.
const DECODED_PART_MAX: u64 = 200;

const FAULT: &str = "look for a fault in what was read through; else make the data set anew";

impl Proof {
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    pub fn finish(self, set: &Set, run: &Run) -> Result<u64> {
        compare(set, run, self.digest.finalize(), self.wanted).map(|()| self.bytes)
    }
}

fn compare(set: &Set, run: &Run, found: u64, wanted: u64) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let (file, Range { start, end }) = (&set.files[run.file], &run.range);
    let which = if run.range == (0..file.bytes) { "a file has".into() } else { format!("bytes {start} to {end} have") };
    let what = format!("{which} the checksum {found:016x} instead of {wanted:016x}");
    Err(Error::corrupt(what, &file.name).hint(FAULT))
}

/// The checksum of a range out of those of the records that it is made of.
fn joined(records: &[Record], range: &Range<u64>, name: &str) -> Result<Record> {
    let first = records.partition_point(|record| record.offset < range.start);
    let mut whole = Record { offset: range.start, bytes: 0, crc64: 0 };
    for record in &records[first..] {
        if whole.bytes >= range.end - range.start || record.offset != whole.offset + whole.bytes {
            break;
        }
        whole.crc64 = crc64::combine(whole.crc64, record.crc64, record.bytes);
        whole.bytes += record.bytes;
    }
    if whole.bytes == range.end - range.start {
        return Ok(whole);
    }
    Err(contradicted(format!("columns at bytes {} to {}, where they aren't", range.start, range.end), name))
}

/// A footer against the manifest, which was written with the file.
fn contradicted(what: String, name: &str) -> Error {
    Error::corrupt(format!("the footer of a Parquet file tells of {what}"), name).hint(FAULT)
}

/// Compare each record with its own checksums; where one is wrong, its place.
fn records(bytes: &[u8]) -> std::result::Result<(), u64> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let wrong = || at as u64;
        let size = length(rest).and_then(|size| usize::try_from(size).ok()).ok_or_else(wrong)?;
        let end = (HEAD as usize).checked_add(size).ok_or_else(wrong)?;
        let content = rest.get(HEAD as usize..end).ok_or_else(wrong)?;
        let sum = rest.get(end..end + TAIL as usize).ok_or_else(wrong)?;
        if masked(content).to_le_bytes() != sum {
            return Err(wrong());
        }
        at += end + TAIL as usize;
    }
    Ok(())
}

/// Whether samples of a format can be decoded here.
pub fn decodes(format: Format) -> Result<()> {
    match format {
        Format::Jpeg | Format::Tfrecord | Format::Tar => Ok(()),
        _ => Err(Error::invalid("there is nothing to decode", format!("{format:?} files"))
            .hint("arrays lie in them as they are; leave out --decode")),
    }
}

/// Decode each JPEG of a run. One inside a record or a member of a tar file begins at its marker.
pub fn decode(set: &Set, run: &Run, bytes: &[u8]) -> Result<()> {
    const MARK: [u8; 3] = [0xff, 0xd8, 0xff];
    let file = &set.files[run.file];
    let starts: Vec<usize> = match set.format {
        Format::Jpeg => vec![0],
        _ => set
            .bounds(run)
            .into_iter()
            .filter_map(|(from, to)| {
                let at = bytes[from..to].windows(MARK.len()).position(|window| window == MARK);
                at.map(|at| from + at)
            })
            .collect(),
    };
    if starts.is_empty() {
        return Err(Error::invalid("there is no JPEG image to decode in a sample", &file.name)
            .hint("leave out --decode, or make the set of images"));
    }
    let wrong = |what: String| Error::corrupt(format!("an image can't be decoded: {what}"), &file.name).hint(FAULT);
    for start in starts {
        pixels(&bytes[start..]).map_err(wrong)?;
    }
    Ok(())
}

/// Decode an image, unless it says to be larger than its bytes can tell.
fn pixels(bytes: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let told = |error: DecodeErrors| format!("{error:?}");
    let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
    decoder.decode_headers().map_err(told)?;
    let size = decoder.output_buffer_size().ok_or("it has no size")? as u64;
    let most = DECODED_BYTES_MIN.max((bytes.len() as u64).saturating_mul(DECODED_PART_MAX));
    if size > most {
        return Err(format!("it says to have {size} bytes of pixels, and {} bytes tell of them", bytes.len()));
    }
    decoder.decode().map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_changed_is_found() {
        let mut bytes = Vec::new();
        for size in [5_u64, 300] {
            let content = vec![3; size as usize];
            bytes.extend(size.to_le_bytes());
            bytes.extend(masked(&size.to_le_bytes()).to_le_bytes());
            bytes.extend(&content);
            bytes.extend(masked(&content).to_le_bytes());
        }
        assert_eq!(records(&bytes), Ok(()));
        for (place, at) in [(0, 0), (9, 0), (14, 0), (18, 0), (21, 21), (200, 21), (336, 21)] {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert_eq!(records(&changed), Err(at), "byte {place}");
        }
        assert_eq!(records(&bytes[..100]), Err(21));
    }

    #[test]
    fn a_set_may_hold_more_than_what_is_read_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let images = data::ImageSpec { count: 3, classes: 1, mean_bytes: 8 << 10 };
        let made = data::Set { images, ..data::Set::default() };
        let mut made = data::generate(&made, folder.path(), 1, &|_| ()).unwrap();
        let there: Vec<Listed> =
            made.files.iter().map(|file| Listed { name: (&*file.path).into(), bytes: file.bytes }).collect();
        let like = made.files[0].clone();
        made.files.push(data::Entry { path: "labels.json".into(), ..like.clone() });
        made.files.push(data::Entry { path: "zero.jpg".into(), bytes: 0, ..like.clone() });
        assert!(complete(&made, &there, Format::Jpeg, "a set").is_ok());
        made.files.push(data::Entry { path: "zzz.jpg".into(), ..like });
        let error = complete(&made, &there, Format::Jpeg, "a set").unwrap_err();
        assert!(error.what.starts_with("1 of 4 files") && error.what.contains("zzz.jpg (missing)"), "{error}");
    }

    #[test]
    fn an_image_that_claims_to_be_huge_is_given_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let images = data::ImageSpec { count: 1, classes: 1, mean_bytes: 8 << 10 };
        let made = data::Set { images, ..data::Set::default() };
        let made = data::generate(&made, folder.path(), 1, &|_| ()).unwrap();
        let mut image = std::fs::read(folder.path().join(&made.files[0].path)).unwrap();
        assert!(pixels(&image).unwrap().len() > image.len());
        // The frame header: its marker, length and precision come before the sides.
        let frame = image.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        image[frame + 5..frame + 9].copy_from_slice(&[0x40, 0, 0x40, 0]);
        let error = pixels(&image).unwrap_err();
        assert!(error.contains("805306368 bytes"), "{error}");
    }
}
