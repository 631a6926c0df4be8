//! A workload: what a training job asks of its storage, whatever accelerator computes and wherever the files lie.
//!
//! Layout: [`accelerator`] is how long the steps of a job take, [`columns`] those of Parquet files, [`shipped`](mod@shipped) what travels with the program, [`import`] a
//! workload from DLIO's YAML.
//!
//! It knows no step time (that is the accelerator's) and no target. Invariant: what was parsed can be run; a word that
//! means nothing is refused with its place.

pub mod accelerator;
pub mod columns;
pub mod import;
mod shipped;

use block::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::columns::{Column, Columns};
use crate::shipped::WORKLOADS;

/// Names of the shipped workloads.
pub fn names() -> impl Iterator<Item = &'static str> {
    WORKLOADS.names()
}

/// A shipped workload.
pub fn shipped(name: &str) -> Result<Workload> {
    let (text, place) = WORKLOADS.text(name)?;
    Workload::parse(text, &place)
}

/// One file of `workloads/`, or one of a user's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    pub files: Files,
    pub read: Read,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

/// The files of the set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    pub format: Format,
    pub count: u64,
    #[serde(default = "one")]
    pub samples_per_file: u64,
    /// Mean size of a sample, as it is stored.
    pub sample_bytes: f64,
    /// Sizes are normal around the mean, without sign, as DLIO draws them.
    #[serde(default)]
    pub sample_bytes_stdev: f64,
    /// Bytes of a sample that are read where that is not all of it. Of Parquet files without `columns`, it says how many of the
    /// first columns are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_bytes_read: Option<f64>,
    /// Rows of a row group of Parquet files. Where nothing is said, 6,144, of large rows as many as 32 MiB hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_rows: Option<u64>,
    /// Columns of Parquet files, in their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Columns>,
}

/// How samples lie in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Format {
    /// One image a file, in class folders.
    Jpeg,
    /// One NumPy archive a file.
    Npz,
    /// One NumPy array a file, its head included in the size.
    Npy,
    /// Records with length and masked CRC32C.
    Tfrecord,
    /// Row groups of columns.
    Parquet,
    /// A WebDataset shard: members of a tar file.
    Tar,
    /// Bytes.
    #[default]
    Raw,
}

impl Format {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Npz => "npz",
            Format::Npy => "npy",
            Format::Tfrecord => "TFRecord",
            Format::Parquet => "Parquet",
            Format::Tar => "tar",
            Format::Raw => "raw",
        }
    }
}

/// However it is spelt.
impl TryFrom<String> for Format {
    type Error = String;

    fn try_from(text: String) -> Result<Format, String> {
        match text.to_ascii_lowercase().as_str() {
            "jpeg" | "jpg" => Ok(Format::Jpeg),
            "npz" => Ok(Format::Npz),
            "npy" => Ok(Format::Npy),
            "tfrecord" => Ok(Format::Tfrecord),
            "parquet" => Ok(Format::Parquet),
            "tar" | "webdataset" => Ok(Format::Tar),
            "raw" => Ok(Format::Raw),
            _ => Err(format!("there is no format `{text}`; it is JPEG, npz, npy, TFRecord, Parquet, tar or raw")),
        }
    }
}

/// How the set is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// Samples of one step of one accelerator, unless the accelerator says otherwise.
    pub batch: u64,
    /// Streams of one accelerator: each reads one sample after another.
    pub threads: u64,
    /// Batches of one accelerator that may be ready or on their way. With 0 nothing is read during a step, and all streams
    /// together read the batch that is wanted after it; else a batch is read by one of them.
    pub prefetch_batches: u64,
    pub order: Order,
    #[serde(default, skip_serializing_if = "Partition::is_fresh")]
    pub partition: Partition,
    /// Samples among which the next is chosen, where the order is [`Order::Shards`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_buffer: Option<u64>,
    pub epochs: u64,
    /// Steps of an epoch, if it ends before the set does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_max: Option<u64>,
    /// Between epochs caches are dropped, and this long nothing is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_seconds: Option<f64>,
    /// Utilisation that counts as enough.
    pub pass_au_percent: f64,
}

/// The order of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// As the files lie.
    Sequential,
    /// A permutation of all samples for each epoch, dealt to ranks as PyTorch's `DistributedSampler` does.
    Shuffled,
    /// Shards in an order of each epoch, read from end to end through a shuffle buffer (TFRecord, WebDataset).
    Shards,
    /// Records of packed files in any order, each found by an index and read by itself.
    Random,
}

/// Which samples an accelerator reads in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Partition {
    /// Dealt anew over all accelerators.
    #[default]
    Fresh,
    /// The same as in every other epoch, in the order of this one: of shards every N-th, of samples a run of the set as it
    /// lies.
    Fixed,
}

impl Partition {
    fn is_fresh(&self) -> bool {
        *self == Partition::Fresh
    }
}

/// Writing and reading back the state of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Bytes of the whole state, over all processes.
    pub bytes: f64,
    pub processes: u64,
    pub writes: u64,
    pub reads: u64,
    pub pause_seconds: f64,
}

fn one() -> u64 {
    1
}

impl Files {
    /// The part of a sample that is read, up to 1.
    pub fn share(&self) -> f64 {
        (self.bytes_read() / self.sample_bytes).min(1.0)
    }

    /// Bytes of a sample that are read.
    pub fn bytes_read(&self) -> f64 {
        if self.columns.is_empty() {
            return self.sample_bytes_read.unwrap_or(self.sample_bytes);
        }
        self.named_columns().iter().filter(|column| column.is_read).map(|column| column.bytes as f64).sum()
    }

    /// Columns in their places, where they are named.
    pub fn named_columns(&self) -> Vec<Column> {
        columns::all(&self.columns)
    }

    /// Bytes in a row of each range that is read of a row group: columns that lie side by side are one.
    pub fn ranges_of_row(&self) -> Vec<u64> {
        if self.columns.is_empty() {
            return vec![self.bytes_read().ceil() as u64];
        }
        let named = self.named_columns();
        let runs = named.chunk_by(|left, right| left.is_read == right.is_read).filter(|run| run[0].is_read);
        runs.map(|run| run.iter().map(|column| column.bytes).sum()).collect()
    }

    fn wrong_columns(&self) -> Option<String> {
        if self.group_rows == Some(0) {
            return Some("a row group has a row".into());
        }
        if self.columns.is_empty() {
            return None;
        }
        if self.format != Format::Parquet || self.sample_bytes_stdev != 0.0 || self.sample_bytes_read.is_some() {
            return Some(
                "only Parquet files have columns, whose rows have one size, and each says whether it is read".into(),
            );
        }
        columns::wrong(&self.columns, self.sample_bytes, self.rows_of_group())
    }

    pub fn rows_of_group(&self) -> u64 {
        columns::rows_of_group(self.group_rows, self.samples_per_file, self.sample_bytes as u64)
    }
}

impl Read {
    /// Streams of an accelerator that can be busy at once.
    pub fn busy(&self) -> u64 {
        if self.prefetch_batches == 0 { self.threads.min(self.batch) } else { self.threads.min(self.prefetch_batches) }
    }
}

/// Numbers of a job: products of two of them, and of one with a rank's accelerators, stay numbers.
const NUMBER_MAX: u64 = 1_000_000_000;
/// Samples of a set: their number, and that of a few times as many, stays a number of 64 bits.
const SAMPLES_MAX: u64 = 1_000_000_000_000_000;

impl Workload {
    /// A workload from the text of its file; `place` names it in errors.
    pub fn parse(text: &str, place: &str) -> Result<Workload> {
        let parsed: Workload = toml::from_str(text).map_err(|error| {
            Error::invalid(format!("this is no workload: {}", error.message()), place_of(text, place, error.span()))
                .hint("`stoker bench train --list` names those that are shipped; each is an example")
        })?;
        parsed.check(place)?;
        Ok(parsed)
    }

    /// Whether it can be run at all.
    pub fn check(&self, place: &str) -> Result<()> {
        let Workload { files, read, checkpoint, .. } = self;
        let wrong = |what: &str| Err(Error::invalid(what, format!("{place} ({})", self.name)));
        if !(1.0..=1e15).contains(&files.sample_bytes) || !(0.0..=1e15).contains(&files.sample_bytes_stdev) {
            return wrong("a sample has from 1 to 10^15 bytes");
        }
        if [files.count, files.samples_per_file, read.batch, read.threads, read.epochs].contains(&0) {
            return wrong("files, samples, batch, threads and epochs are at least 1");
        }
        if files.count.checked_mul(files.samples_per_file).is_none_or(|samples| samples > SAMPLES_MAX) {
            return wrong("a set has at most 10^15 samples");
        }
        if let Some(what) = files.wrong_columns() {
            return wrong(&what);
        }
        let most = [read.batch, read.threads, read.prefetch_batches, read.epochs, read.shuffle_buffer.unwrap_or(0)];
        if most.into_iter().any(|number| number > NUMBER_MAX) || read.steps_max.is_some_and(|steps| steps > NUMBER_MAX)
        {
            return wrong("batch, threads, prefetched batches, shuffle buffer, epochs and steps are at most 10^9");
        }
        if !(0.0..=100.0).contains(&read.pass_au_percent) {
            return wrong("the utilisation that counts as enough is from 0 to 100 percent");
        }
        if let Some(Checkpoint { bytes, processes, writes, reads, pause_seconds }) = checkpoint {
            if !(1.0..=1e18).contains(bytes) || !(1..=NUMBER_MAX).contains(processes) {
                return wrong("a checkpoint has from 1 to 10^18 bytes, and from 1 to 10^9 processes");
            }
            if !(1..=NUMBER_MAX).contains(writes) || *reads > NUMBER_MAX || !(0.0..=1e9).contains(pause_seconds) {
                return wrong(
                    "a checkpoint is written once at least; writes, reads and seconds between are at most 10^9",
                );
            }
        }
        Ok(())
    }

    /// Bytes that one sample asks of the storage, on average.
    pub fn bytes_per_sample(&self) -> f64 {
        self.files.bytes_read()
    }

    /// Bytes of the whole set.
    pub fn bytes(&self) -> f64 {
        self.files.sample_bytes * (self.files.count * self.files.samples_per_file) as f64
    }
}

/// `file:line`, as editors read it.
pub fn place_of(text: &str, place: &str, span: Option<std::ops::Range<usize>>) -> String {
    span.map_or_else(
        || place.to_owned(),
        |span| format!("{place}:{}", text[..span.start.min(text.len())].matches('\n').count() + 1),
    )
}

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        for name in ["workload", "dlio"] {
            corpus::each_is_borne(name, |bytes| {
                let Ok(text) = std::str::from_utf8(bytes) else { return };
                let _ = (Workload::parse(text, "file"), accelerator::Accelerator::parse(text, "file"));
                let _ = import::dlio(text, "file");
            });
        }
    }

    #[test]
    fn names_are_understood_as_people_write_them() {
        let text = toml::to_string(&shipped("UNet3D").unwrap()).unwrap();
        for (typed, format) in [("NPZ", Format::Npz), ("TFRecord", Format::Tfrecord), ("JPEG", Format::Jpeg)] {
            let file = text.replace("\"npz\"", &format!("\"{typed}\""));
            assert_eq!(Workload::parse(&file, "x.toml").unwrap().files.format, format, "{typed}");
        }
        let error = Workload::parse(&text.replace("\"npz\"", "\"hdf5\""), "x.toml").unwrap_err();
        assert!(error.what.contains("hdf5") && error.what.contains("TFRecord"), "{error}");
        assert_eq!((accelerator::shipped("H100").unwrap().name.as_str(), accelerator::spelt("H100")), ("h100", "h100"));
    }
}
