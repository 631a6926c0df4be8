//! The files of a workload: format, number, samples in each and their sizes, drawn from a seed.
//!
//! It writes nothing. Invariant: names and sizes follow from the shape and the seed alone, by integer and plain IEEE
//! arithmetic, so that they are the same on every machine.

use block::{Error, Result};
use serde::{Deserialize, Serialize};
use workload::columns::{self, Columns};
use workload::{Files, Format};

use super::noise::Chance;
use super::{IMAGE_BYTES_MAX, IMAGE_BYTES_MIN, IMAGES, VOLUME_BYTES_MAX, VOLUME_BYTES_MIN, npy, tfrecord};

/// Streams of chance, apart from those of contents.
const SIZE: u64 = 5 << 60;

/// Files of one folder where there are more in all; a folder of a million is slow on many file systems.
const FOLDER_FILES: u64 = 1_000;
/// Up to so many files lie in one folder.
const FLAT_FILES_MAX: u64 = 10_000;

/// Classes of JPEG images, as ImageNet has them.
const CLASSES: u64 = 1_000;

/// What to make for a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub format: Format,
    pub count: u64,
    pub samples_per_file: u64,
    pub sizes: Sizes,
    /// Rows of a row group of Parquet files, where they are not what is usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_rows: Option<u64>,
    /// Columns of Parquet files, where they are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Columns>,
}

/// Bytes of a sample, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizes {
    /// Normal without sign, as DLIO draws them.
    Normal { mean_bytes: u64, stdev_bytes: u64 },
    /// Those of real files, in turn.
    Like(Vec<u64>),
}

impl Shape {
    /// The set that a workload describes, in so many files.
    pub fn of(files: &Files, count: u64) -> Shape {
        let sizes = Sizes::Normal {
            mean_bytes: files.sample_bytes.round() as u64,
            stdev_bytes: files.sample_bytes_stdev.round() as u64,
        };
        // Whichever are read, the same files are made.
        let columns = files.columns.iter().map(|run| Columns { read: None, ..run.clone() }).collect();
        Shape {
            group_rows: files.group_rows,
            columns,
            ..Shape::plain(files.format, count, files.samples_per_file, sizes)
        }
    }

    pub fn plain(format: Format, count: u64, samples_per_file: u64, sizes: Sizes) -> Shape {
        Shape { format, count, samples_per_file, sizes, group_rows: None, columns: Vec::new() }
    }

    pub fn mean_bytes(&self) -> u64 {
        match &self.sizes {
            Sizes::Normal { mean_bytes, .. } => *mean_bytes,
            Sizes::Like(sizes) => sizes.iter().sum::<u64>() / (sizes.len() as u64).max(1),
        }
    }

    /// About the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(self.samples_per_file).saturating_mul(self.mean_bytes())
    }

    /// Whether all samples have one size.
    pub fn is_even(&self) -> bool {
        matches!(self.sizes, Sizes::Normal { stdev_bytes: 0, .. })
    }

    /// Asked sizes of the samples of a file, in their order.
    pub fn sizes(&self, seed: u64, file: u64) -> impl Iterator<Item = u64> + '_ {
        let mut chance = Chance::of(seed, SIZE | file);
        let first = file * self.samples_per_file;
        let least = self.least_bytes();
        (0..self.samples_per_file).map(move |sample| {
            let drawn = match &self.sizes {
                Sizes::Normal { mean_bytes, stdev_bytes: 0 } => *mean_bytes,
                Sizes::Normal { mean_bytes, stdev_bytes } => normal(&mut chance, *mean_bytes, *stdev_bytes),
                Sizes::Like(sizes) => sizes[((first + sample) % sizes.len() as u64) as usize],
            };
            drawn.max(least).min(self.most_bytes())
        })
    }

    /// Name of a file below the folder of the set. The last part is unlike that of any other.
    pub fn path(&self, file: u64) -> String {
        let count = self.count;
        let folder = match self.format {
            Format::Jpeg => {
                let classes = CLASSES.min(count);
                let (class, place) = (file % classes + 1, file / classes + 1);
                return format!("{IMAGES}/n{class:08}/n{class:08}_{place:06}.JPEG");
            }
            _ if count > FLAT_FILES_MAX => format!("{IMAGES}/{:05}", file / FOLDER_FILES),
            _ => IMAGES.to_owned(),
        };
        match self.format {
            Format::Npz => format!("{folder}/case_{file:05}.npz"),
            Format::Npy => format!("{folder}/array_{file:05}.npy"),
            Format::Tfrecord => format!("{folder}/train-{file:05}-of-{count:05}.tfrecord"),
            Format::Parquet => format!("{folder}/part-{file:05}.parquet"),
            Format::Tar => format!("{folder}/shard-{file:06}.tar"),
            Format::Raw | Format::Jpeg => format!("{folder}/file_{file:08}.bin"),
        }
    }

    /// Whether the samples of a tar file are pictures; their size has to allow it.
    pub fn has_pictures(&self) -> bool {
        matches!(self.format, Format::Jpeg | Format::Tar)
            && (IMAGE_BYTES_MIN..=IMAGE_BYTES_MAX).contains(&self.mean_bytes())
    }

    fn least_bytes(&self) -> u64 {
        match self.format {
            Format::Jpeg => IMAGE_BYTES_MIN / 4,
            Format::Npz => VOLUME_BYTES_MIN,
            Format::Npy => npy::HEAD_BYTES + 1,
            Format::Tfrecord => tfrecord::RECORD_BYTES_MIN,
            Format::Parquet | Format::Tar | Format::Raw => 1,
        }
    }

    fn most_bytes(&self) -> u64 {
        match self.format {
            Format::Npz => VOLUME_BYTES_MAX,
            Format::Jpeg => 2 * IMAGE_BYTES_MAX,
            // An offset that fits a signed 64-bit number, whatever the count of samples.
            _ => 1 << 50,
        }
    }

    pub fn validate(&self) -> Result<()> {
        let wrong = |what: &str, hint: &str| Err(Error::invalid(what, format!("{self}")).hint(hint));
        if self.count == 0
            || self.samples_per_file == 0
            || matches!(&self.sizes, Sizes::Like(sizes) if sizes.is_empty())
        {
            return wrong("the data set would be empty", "ask for at least one file of one sample");
        }
        if matches!(self.format, Format::Jpeg | Format::Npz | Format::Npy) && self.samples_per_file > 1 {
            return wrong(
                "a file of this format holds one sample",
                "set samples_per_file = 1, or take tar or tfrecord",
            );
        }
        if self.format == Format::Jpeg && !self.has_pictures() {
            return wrong("images of that size can't be made", "ask for a mean from 4 KiB to 4 MiB, or for raw files");
        }
        if self.format == Format::Npz && self.mean_bytes() > VOLUME_BYTES_MAX {
            return wrong("volumes of that size can't be made", "a zip file ends at 4 GiB: ask for less, or raw files");
        }
        if self.format == Format::Parquet && !self.is_even() {
            return wrong("rows of these Parquet files have one size", "set sample_bytes_stdev = 0");
        }
        if !self.columns.is_empty() {
            let rows = columns::rows_of_group(self.group_rows, self.samples_per_file, self.mean_bytes());
            if let Some(what) = columns::wrong(&self.columns, self.mean_bytes() as f64, rows) {
                return wrong(&what, "make columns and sample_bytes of the workload agree");
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { format, count, samples_per_file, .. } = self;
        let [files, samples] = [*count, *samples_per_file].map(|count| if count == 1 { "" } else { "s" });
        let name = format.name();
        write!(out, "{count} {name} file{files} of {samples_per_file} sample{samples} of {} bytes", self.mean_bytes())
    }
}

/// A normal number as the sum of twelve even ones, whose variance is one: no logarithm, which each machine rounds in its
/// own way. Nothing lies further out than six deviations.
fn normal(chance: &mut Chance, mean: u64, stdev: u64) -> u64 {
    let sum: u64 = (0..12).map(|_| chance.draw() >> 32).sum();
    let deviation = sum as f64 / (1u64 << 32) as f64 - 6.0;
    (mean as f64 + stdev as f64 * deviation).abs() as u64
}

/// Files that MLPerf Storage asks for: five times the memory of the machines, and enough for so many steps of all
/// accelerators, whichever is more.
pub fn files_for(files: &Files, batch: u64, accelerators: u64, steps: u64, memory_bytes: u64) -> u64 {
    let file_bytes = files.sample_bytes * files.samples_per_file as f64;
    let by_memory = (5.0 * memory_bytes as f64 / file_bytes).ceil() as u64;
    let by_steps = (steps * batch * accelerators).div_ceil(files.samples_per_file);
    by_memory.max(by_steps).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_normal_without_sign() {
        let sizes = Sizes::Normal { mean_bytes: 1_000_000, stdev_bytes: 300_000 };
        let shape = Shape::plain(Format::Raw, 1, 20_000, sizes);
        let sizes: Vec<f64> = shape.sizes(7, 0).map(|size| size as f64).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() / 3e5 - 1.0).abs() < 0.02, "{variance}");
        let within = sizes.iter().filter(|size| (**size - 1e6).abs() < 3e5).count() as f64 / sizes.len() as f64;
        assert!((within - 0.6827).abs() < 0.015, "{within}");
        assert_ne!(shape.sizes(7, 0).next(), shape.sizes(8, 0).next());
    }

    #[test]
    fn the_size_rule_is_that_of_mlperf_storage() {
        let unet3d = workload::shipped("unet3d").unwrap().files;
        // 500 steps of 7 for 8 accelerators, one sample a file; 128 GB of memory ask for less.
        assert_eq!(files_for(&unet3d, 7, 8, 500, 128_000_000_000), 28_000);
        assert_eq!(files_for(&unet3d, 7, 1, 100, 128_000_000_000), 4_366);
    }
}
