//! A workload from the file that another benchmark describes it by: DLIO's YAML.
//!
//! It takes what decides which bytes are read when, and passes over what doesn't: folders, checkpoints, metrics, seeds.
//! Invariant: what comes out can be run; a format that isn't made here is refused, never replaced by another.

use block::{Error, Result};
use serde::Deserialize;

use crate::accelerator::Step;
use crate::{Files, Format, Order, Partition, Read, Workload};

/// Batches ahead of each reader where DLIO is given none: PyTorch's own.
const BATCHES_OF_READER: u64 = 2;
/// Samples in DLIO's shuffle buffer where nothing else is said.
const SHUFFLE_BUFFER: u64 = 1024;
/// Utilisation that counts as enough where the file says nothing; that of most workloads of MLPerf Storage.
const PASS_AU: f64 = 0.9;

/// DLIO's file, as far as it is understood. Defaults are DLIO's.
#[derive(Deserialize)]
struct Dlio {
    #[serde(default)]
    model: Option<Model>,
    dataset: Dataset,
    #[serde(default)]
    reader: Reader,
    #[serde(default)]
    train: Train,
    #[serde(default)]
    metric: Metric,
}

/// A name alone in older files.
#[derive(Deserialize)]
#[serde(untagged)]
enum Model {
    Name(String),
    Parts { name: Option<String> },
}

#[derive(Deserialize)]
struct Dataset {
    format: String,
    num_files_train: u64,
    #[serde(default = "one")]
    num_samples_per_file: u64,
    #[serde(alias = "record_length_bytes")]
    record_length: f64,
    #[serde(default, alias = "record_length_bytes_stdev")]
    record_length_stdev: f64,
}

#[derive(Deserialize)]
#[serde(default)]
struct Reader {
    batch_size: u64,
    read_threads: u64,
    prefetch_size: u64,
    file_shuffle: String,
    sample_shuffle: String,
    shuffle_size: u64,
}

#[derive(Deserialize)]
#[serde(default)]
struct Train {
    epochs: u64,
    computation_time: Option<Time>,
    /// Negative where there is no limit.
    total_training_steps: i64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Seconds(f64),
    Spread { mean: f64, stdev: Option<f64> },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metric {
    au: Option<f64>,
}

impl Default for Reader {
    fn default() -> Reader {
        let off = || "off".to_owned();
        Reader {
            batch_size: 1,
            read_threads: 1,
            prefetch_size: 2,
            file_shuffle: off(),
            sample_shuffle: off(),
            shuffle_size: SHUFFLE_BUFFER,
        }
    }
}

impl Default for Train {
    fn default() -> Train {
        Train { epochs: 1, computation_time: None, total_training_steps: -1 }
    }
}

fn one() -> u64 {
    1
}

/// A workload of DLIO, and its step where the file has one; `place` names the file in errors.
pub fn dlio(text: &str, place: &str) -> Result<(Workload, Option<Step>)> {
    let file: Dlio = serde_saphyr::from_str(text).map_err(|error| {
        let on = error.location().map_or_else(|| place.to_owned(), |at| format!("{place}:{}", at.line()));
        let what = error.without_snippet().to_string();
        Error::invalid(format!("this is no workload of DLIO: {what}"), on)
            .hint("name a file of DLIO's configs/workload, with the tables dataset, reader and train")
    })?;
    let step = step(&file, place);
    let workload = Workload {
        name: name(&file, place),
        source: format!("DLIO, {place}"),
        files: Files {
            format: format(&file.dataset.format, place)?,
            count: file.dataset.num_files_train,
            samples_per_file: file.dataset.num_samples_per_file,
            sample_bytes: file.dataset.record_length,
            sample_bytes_stdev: file.dataset.record_length_stdev,
            sample_bytes_read: None,
        },
        read: read(&file),
        checkpoint: None,
    };
    workload.check(place)?;
    Ok((workload, step))
}

fn name(file: &Dlio, place: &str) -> String {
    let given = match &file.model {
        Some(Model::Name(name)) => Some(name.clone()),
        Some(Model::Parts { name }) => name.clone(),
        None => None,
    };
    let stem = || std::path::Path::new(place).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    given.or_else(stem).unwrap_or_else(|| "dlio".to_owned())
}

fn format(name: &str, place: &str) -> Result<Format> {
    match name.to_ascii_lowercase().as_str() {
        "npz" | "npy" => Ok(Format::Npz),
        "tfrecord" => Ok(Format::Tfrecord),
        "jpeg" => Ok(Format::Jpeg),
        "parquet" => Ok(Format::Parquet),
        "indexed_binary" | "mmap_indexed_binary" => Ok(Format::Raw),
        _ => Err(Error::invalid("this format of DLIO is not made here", format!("{place}, dataset.format = {name}"))
            .hint("known are npz, npy, tfrecord, jpeg, parquet, indexed_binary and mmap_indexed_binary")),
    }
}

fn read(file: &Dlio) -> Read {
    let Dlio { dataset, reader, train, metric, .. } = file;
    let is_on = |word: &str| !matches!(word, "off" | "false" | "False");
    let (files, samples) = (is_on(&reader.file_shuffle), is_on(&reader.sample_shuffle));
    let is_indexed = dataset.format.ends_with("indexed_binary");
    let order = match (dataset.num_samples_per_file, files || samples) {
        (_, false) => Order::Sequential,
        (1, true) => Order::Shuffled,
        (_, true) if is_indexed => Order::Random,
        (_, true) => Order::Shards,
    };
    // Shared out among the readers, of which each has as many as the others.
    let of_reader = match reader.prefetch_size {
        0 => BATCHES_OF_READER,
        ahead => ahead.div_ceil(reader.read_threads.max(1)),
    };
    Read {
        batch: reader.batch_size,
        threads: reader.read_threads,
        prefetch_batches: of_reader * reader.read_threads,
        order,
        partition: Partition::Fresh,
        shuffle_buffer: (order == Order::Shards && samples).then_some(reader.shuffle_size),
        epochs: train.epochs,
        steps_max: u64::try_from(train.total_training_steps).ok().filter(|steps| *steps > 0),
        pause_seconds: None,
        pass_au_percent: 100.0 * metric.au.unwrap_or(PASS_AU),
    }
}

fn step(file: &Dlio, place: &str) -> Option<Step> {
    let (seconds, spread) = match file.train.computation_time.as_ref()? {
        Time::Seconds(seconds) => (*seconds, 0.0),
        Time::Spread { mean, stdev } => (*mean, stdev.unwrap_or(0.0)),
    };
    let said = if spread > 0.0 { "; its spread is left out" } else { "" };
    let source = format!("DLIO, {place}, train.computation_time{said}");
    let step = Step { step_seconds: seconds, batch: None, prefetch_batches: None, derived: false, source };
    (seconds > 0.0).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::dlio;
    use crate::{Format, Order, shipped};

    const VOLUMES: &str = "
# Written for this test from the keys that DLIO knows.
model:
  name: unet3d
  type: cnn
framework: pytorch
workflow:
  generate_data: False
  train: True
dataset:
  data_folder: data/volumes/
  format: npz
  num_files_train: 168
  num_samples_per_file: 1
  record_length_bytes: 146600628
  record_length_bytes_stdev: 68341808
  record_length_bytes_resize: 2097152
reader:
  data_loader: pytorch
  batch_size: 7
  read_threads: 4
  file_shuffle: seed
  sample_shuffle: seed
train:
  epochs: 5
  computation_time: 0.323
metric:
  au: 0.90
";

    #[test]
    fn a_file_with_the_figures_of_a_shipped_workload_gives_that_workload() {
        let (found, step) = dlio(VOLUMES, "configs/volumes.yaml").unwrap();
        let right = shipped("unet3d").unwrap();
        assert_eq!((&found.name, &found.files, &found.read), (&right.name, &right.files, &right.read));
        assert_eq!(step.unwrap().step_seconds, 0.323);
    }

    #[test]
    fn older_keys_steps_and_records_of_shards_are_understood() {
        let text = "
model: bert
dataset: {format: TFRecord, num_files_train: 500, num_samples_per_file: 313532, record_length: 2500}
reader: {batch_size: 48, read_threads: 3, prefetch_size: 0, sample_shuffle: seed, shuffle_size: 64}
train:
  total_training_steps: 1000
  computation_time: {mean: 0.968, stdev: 0.1, type: normal}
";
        let (found, step) = dlio(text, "bert.yaml").unwrap();
        assert_eq!(
            (found.name.as_str(), found.files.format, found.read.order),
            ("bert", Format::Tfrecord, Order::Shards)
        );
        assert_eq!((found.read.prefetch_batches, found.read.steps_max), (6, Some(1000)));
        assert_eq!((found.read.shuffle_buffer, found.read.epochs), (Some(64), 1));
        assert!(step.unwrap().source.contains("spread is left out"));
    }

    #[test]
    fn without_a_step_there_is_none_and_defaults_are_those_of_dlio() {
        let text = "dataset: {format: jpeg, num_files_train: 9, record_length: 1e5}";
        let (found, step) = dlio(text, "folder/photos.yaml").unwrap();
        assert!(step.is_none());
        assert_eq!((found.name.as_str(), found.read.order), ("photos", Order::Sequential));
        assert_eq!((found.read.batch, found.read.threads, found.read.prefetch_batches), (1, 1, 2));
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_its_place() {
        for (text, what, on) in [
            ("dataset: [", "no workload of DLIO", "x.yaml"),
            ("dataset:\n  format: npz\n  num_files_train: many\n  record_length: 1", "no workload of DLIO", "x.yaml:3"),
            ("reader: {batch_size: 1}", "dataset", "x.yaml"),
            ("dataset: {format: hdf5, num_files_train: 1, record_length: 10}", "not made here", "hdf5"),
            ("dataset: {format: npz, num_files_train: 0, record_length: 10}", "at least 1", "x.yaml"),
        ] {
            let error = dlio(text, "x.yaml").unwrap_err();
            assert!(error.what.contains(what) && error.on.contains(on), "{text}: {} {}", error.what, error.on);
            assert!(!error.hint.is_empty());
        }
    }
}
