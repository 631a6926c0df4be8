//! What a data set is made of: each file with its size and checksum, kept beside the files.
//!
//! It doesn't list folders: what isn't in the manifest isn't in the set.
//! Invariants: a manifest with files is written only after all of them; one without is a claim on the folder by an
//! unfinished run, so that nobody else's files are overwritten and other bytes of the same size never mistaken for ours.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use block::{Error, Kind, Result, crc64};
use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};
use targets::{Folder, Target};

use super::draft::{self, Draft};
use super::index::{self, Record};
use super::{IMAGES, Set, VOLUMES};

/// Name of the manifest in the folder of its set.
pub const MANIFEST: &str = ".stoker-data.json";

/// Raised whenever the same set would be made of other bytes.
const FORMAT: u32 = 1;

/// Of a manifest: ten million files, the most that a set has, of two hundred bytes each.
const MANIFEST_BYTES_MAX: u64 = 2 << 30;

/// Of the index of one file: sixty-seven million records.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// How much of a file is read at once while it is checked.
const CHECK_BYTES: usize = 1 << 20;

/// A finished set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    pub set: Set,
    /// In the order of their paths.
    pub files: Vec<Entry>,
}

/// One file of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Below the folder of the set.
    pub path: String,
    pub bytes: u64,
    /// CRC-64/NVME of all bytes. In hexadecimal in the file, since JSON numbers end at 53 bits.
    #[serde(with = "hexadecimal")]
    pub crc64: u64,
    /// Samples in the file.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub samples: u64,
    /// Records that have a checksum of their own, in the index of the file; none where the file is one record.
    #[serde(default, skip_serializing_if = "is_none")]
    pub records: u64,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Manifest {
    /// The manifest of the finished set in a folder.
    pub fn open(folder: &Path) -> Result<Manifest> {
        let advice = "make the data set first; an interrupted run goes on where it stopped";
        match read(folder)? {
            Some(manifest) if !manifest.files.is_empty() => Ok(manifest),
            Some(_) => Err(Error::missing("the data set is not finished", folder.display()).hint(advice)),
            None => Err(Error::missing("there is no data set", folder.display()).hint(advice)),
        }
    }

    /// The manifest of the set in any target; none if what lies there was not made here.
    pub fn read(target: &dyn Target) -> Result<Option<Manifest>> {
        let found = Manifest::peek(target)?;
        if found.as_ref().is_some_and(|manifest| manifest.files.is_empty()) {
            let error = Error::missing("the data set is not finished", target.url());
            return Err(error.hint("run the same `stoker bench data` again"));
        }
        Ok(found)
    }

    /// The same, also of a set that is not finished, which has no files yet.
    pub(super) fn peek(target: &dyn Target) -> Result<Option<Manifest>> {
        match whole(target, MANIFEST, MANIFEST_BYTES_MAX) {
            Ok(json) => parse(&json, format!("{}/{MANIFEST}", target.url())).map(Some),
            Err(error) if error.kind == Kind::Missing => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A claim on a target that this set is being copied to.
    pub(super) fn claim(&self) -> Manifest {
        Manifest { files: Vec::new(), ..self.clone() }
    }

    /// Whether both are of one set.
    pub(super) fn is_of(&self, other: &Manifest) -> bool {
        self.set == other.set
    }

    /// The records of a file of this set, each of which can be read and checked by itself ([`Record::check`]), in the
    /// order of the file and without a gap between them:
    /// - JPEG and npz: the whole file, as one record. So are TFRecord and raw files of one sample.
    /// - TFRecord: record n is sample n, with its length and checksums around it. Raw: the same without anything around.
    /// - tar: record n is sample n, from its first header to the padding of its last member.
    /// - Parquet: record `group * columns + column` is that column of that row group, with its page header.
    ///
    /// Costs one small read of the target (sixteen bytes a record) where the file is more than one record.
    pub fn records(&self, target: &dyn Target, entry: &Entry) -> Result<Vec<Record>> {
        if entry.records == 0 {
            return Ok(vec![Record { offset: 0, bytes: entry.bytes, crc64: entry.crc64 }]);
        }
        let records = index::decode(&self.index(target, entry)?, &entry.path, entry.bytes)?;
        if records.len() as u64 == entry.records {
            return Ok(records);
        }
        let what = format!("the index has {} records instead of {}", records.len(), entry.records);
        Err(Error::corrupt(what, index::name(&entry.path)).hint("make the data set again in the same folder"))
    }

    /// The index of a file, as it lies in a target.
    pub(super) fn index(&self, target: &dyn Target, entry: &Entry) -> Result<Vec<u8>> {
        whole(target, &index::name(&entry.path), INDEX_BYTES_MAX)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a manifest holds strings and numbers only")
    }

    /// The file of that path.
    pub fn find(&self, path: &str) -> Option<&Entry> {
        let place = self.files.binary_search_by(|entry| entry.path.as_str().cmp(path)).ok()?;
        Some(&self.files[place])
    }

    /// Bytes of all files together, which were added up when it was read.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|entry| entry.bytes).sum()
    }
}

impl Entry {
    /// Whether these are the bytes of the file, all of them.
    pub fn check(&self, bytes: &[u8]) -> Result<()> {
        self.compare(bytes.len() as u64, crc64::of(bytes))
    }

    /// The same for a file of any size, read piece by piece.
    pub fn check_file(&self, folder: &Path) -> Result<()> {
        let path = folder.join(&self.path);
        let failed = |error| Error::io("reading a file", path.display(), &error);
        let mut file = File::open(&path).map_err(failed)?;
        let mut buffer = vec![0; CHECK_BYTES];
        let (mut length, mut sum) = (0, Digest::new(CrcAlgorithm::Crc64Nvme));
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            if count == 0 {
                return self.compare(length, sum.finalize());
            }
            sum.update(&buffer[..count]);
            length += count as u64;
        }
    }

    pub(super) fn compare(&self, bytes: u64, crc64: u64) -> Result<()> {
        let what = if bytes != self.bytes {
            format!("the file has {bytes} bytes instead of {}", self.bytes)
        } else if crc64 != self.crc64 {
            format!("the file has the checksum {crc64:016x} instead of {:016x}", self.crc64)
        } else {
            return Ok(());
        };
        Err(Error::corrupt(what, &self.path)
            .hint("look for a fault in what was read through; else make the data set anew"))
    }
}

/// The right to make a set in a folder, held until it is made or given up.
pub struct Claim {
    folder: PathBuf,
    set: Set,
    found: Option<Manifest>,
    /// Closing it gives the lock back.
    _lock: File,
}

impl Claim {
    /// Claims the folder, unless somebody else's files are in it. Nothing is written yet.
    pub fn stake(folder: &Path, set: &Set) -> Result<Claim> {
        if !folder.is_dir() {
            let hint = format!("create it: mkdir -p {}", folder.display());
            return Err(Error::missing("there is no such folder to make data in", folder.display()).hint(hint));
        }
        let lock = lock(folder)?;
        let found = read(folder)?;
        match &found {
            Some(manifest) if manifest.format != FORMAT || manifest.set != *set => {
                let error = Error::invalid("another data set is in the folder", folder.display());
                Err(error.hint("choose another folder, or remove this one"))
            }
            None if [IMAGES, VOLUMES].iter().any(|name| folder.join(name).exists()) => {
                let what = format!("there is a folder `{IMAGES}` or `{VOLUMES}` that no run of this command made");
                Err(Error::invalid(what, folder.display()).hint("choose an empty folder"))
            }
            _ => Ok(Claim { folder: folder.to_path_buf(), set: set.clone(), found, _lock: lock }),
        }
    }

    /// The manifest, where all of its files stand in their full size.
    pub fn finished(&self) -> Option<Manifest> {
        let stands = |entry: &Entry| {
            fs::symlink_metadata(self.folder.join(&entry.path))
                .is_ok_and(|found| found.is_file() && found.len() == entry.bytes)
        };
        self.found.clone().filter(|manifest| !manifest.files.is_empty() && manifest.files.iter().all(stands))
    }

    /// Leaves word of the claim and makes place for drafts.
    pub fn begin(&self) -> Result<()> {
        draft::clear(&self.folder)?;
        self.write(Vec::new()).map(drop)
    }

    /// Writes the manifest: from here on the set counts as finished.
    pub fn complete(self, mut files: Vec<Entry>) -> Result<Manifest> {
        files.sort_unstable_by(|left, right| left.path.cmp(&right.path));
        let manifest = self.write(files)?;
        draft::remove(&self.folder)?;
        Ok(manifest)
    }

    fn write(&self, files: Vec<Entry>) -> Result<Manifest> {
        let manifest = Manifest { format: FORMAT, set: self.set.clone(), files };
        let json = manifest.encode();
        let draft = Draft::begin(&self.folder, MANIFEST)?;
        draft.put(0, &json)?;
        draft.finish(json.len() as u64)?;
        Ok(manifest)
    }
}

/// Two runs in one folder would pull the drafts from under each other.
fn lock(folder: &Path) -> Result<File> {
    let file = File::open(folder).map_err(|error| draft::failed("opening a folder", folder, &error))?;
    // A file system that can't lock folders is no reason not to write to it.
    if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
        let error = Error::unavailable("another run is making data in the folder", folder.display());
        return Err(error.hint("wait until it ends, or choose another folder"));
    }
    Ok(file)
}

fn read(folder: &Path) -> Result<Option<Manifest>> {
    if let Err(error) = fs::metadata(folder)
        && error.kind() == ErrorKind::NotFound
    {
        return Ok(None);
    }
    Manifest::peek(&Folder::at(folder)?)
}

/// A manifest may come from anywhere: nothing of it is used before all of it was looked at.
fn parse(json: &[u8], on: impl std::fmt::Display) -> Result<Manifest> {
    let checked = serde_json::from_slice::<Manifest>(json).map_err(|error| error.to_string());
    let checked = checked.and_then(|manifest| manifest.fault().map_or(Ok(manifest), Err));
    checked.map_err(|what| {
        let error = Error::invalid(format!("the manifest of the data set can't be read: {what}"), on);
        error.hint("it was made by another version or damaged: remove the folder and make the data set anew")
    })
}

impl Manifest {
    /// What is wrong with it.
    fn fault(&self) -> Option<String> {
        if self.format != FORMAT {
            return Some(format!("it has the format {} instead of {FORMAT}", self.format));
        }
        let is_hidden = |entry: &&Entry| entry.path.split('/').any(|part| part.starts_with('.'));
        let leads_out = |entry: &&Entry| targets::beneath(&entry.path).is_err() || is_hidden(entry);
        if let Some(entry) = self.files.iter().find(leads_out) {
            return Some(format!("{:?} is no name of a file of a set", entry.path));
        }
        if let Some(pair) = self.files.windows(2).find(|pair| pair[0].path >= pair[1].path) {
            return Some(format!("its files are not in order at {:?}", pair[1].path));
        }
        let sum = |of: fn(&Entry) -> u64| self.files.iter().try_fold(0_u64, |sum, entry| sum.checked_add(of(entry)));
        let sums = [sum(|entry| entry.bytes), sum(|entry| entry.samples), sum(|entry| entry.records)];
        sums.contains(&None).then(|| "its files are larger than any can be".to_owned())
    }
}

/// All bytes of a small file.
fn whole(target: &dyn Target, name: &str, bytes_max: u64) -> Result<Vec<u8>> {
    let listed = target.stat(name)?;
    let wrong = |what: String| {
        Error::invalid(what, format!("{}/{name}", target.url()))
            .hint("it is none of ours, or damaged: look at it, and make the data set anew")
    };
    if listed.bytes > bytes_max {
        return Err(wrong(format!("the file has {} bytes, and at most {bytes_max} are read", listed.bytes)));
    }
    let length = usize::try_from(listed.bytes).expect("a file that fits in memory");
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|error| wrong(error.to_string()))?;
    bytes.resize(length, 0);
    let count = target.open(&listed)?.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Sixteen hexadecimal digits.
mod hexadecimal {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub fn serialize<S: Serializer>(value: &u64, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{value:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let digits = String::deserialize(from)?;
        u64::from_str_radix(&digits, 16).map_err(D::Error::custom)
    }
}
