//! A workload from the file that another benchmark describes it by: DLIO's YAML, as MLPerf Storage has it.
//!
//! Layout: [`tree`] is the text with its lines, [`keys`] what is of no account, [`state`] how large a model is. What
//! decides which bytes are read when is taken; what doesn't is on a list; all else is refused by its name.
//! Invariant: what comes out can be run; a format that isn't made here is refused, never replaced by another.

mod keys;
mod state;
#[cfg(test)]
mod tests;
mod tree;

use block::{Error, Result};

use crate::accelerator::Step;
use crate::columns::{Column, Columns};
use crate::{Checkpoint, Files, Format, Order, Partition, Read, Workload};
use state::Model;
use tree::{Table, Value};

/// Batches ahead of each reader where DLIO is given none: PyTorch's own.
const BATCHES_OF_READER: u64 = 2;
/// Samples in DLIO's shuffle buffer where nothing else is said.
const SHUFFLE_BUFFER: u64 = 1024;
/// Utilisation that counts as enough where the file says nothing; that of most workloads of MLPerf Storage.
const PASS_AU: f64 = 0.9;
/// Bytes of a record where the file says nothing.
const RECORD_BYTES: f64 = 65_536.0;
/// Rows of a row group where the file says nothing.
const GROUP_ROWS: u64 = 1024;
/// Files of a set where the file says nothing.
const FILES: u64 = 8;

/// A workload of DLIO, and its step where the file has one; `place` names the file in errors.
pub fn dlio(text: &str, place: &str) -> Result<(Workload, Option<Step>)> {
    let mut root = root(tree::parse(text, place)?)?;
    let model = Model::of(&mut root)?;
    let flow = Flow::of(&mut root)?;
    let stem = || std::path::Path::new(place).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = model.name.clone().or_else(stem).unwrap_or_else(|| "dlio".to_owned());
    let on = root.on();
    let (files, is_indexed) = root.take(&["dataset"])?.map(|table| files(table.table()?)).transpose()?.unzip();
    let (mut read, seconds) = read(&mut root, files.as_ref(), is_indexed == Some(true))?;
    let checkpoint = checkpoint(&mut root, &model, &flow)?;
    storage(&mut root)?;
    for (key, of_no_account) in keys::TABLES {
        root.table(&[*key])?.end(of_no_account)?;
    }
    root.end(keys::ROOT)?;
    let mut source = format!("DLIO, {place}");
    let (files, checkpoint) = match (files, checkpoint) {
        (Some(files), left) if flow.trains || left.is_none() => {
            source += if left.is_some() { "; the checkpoints of its training are left out" } else { "" };
            (files, None)
        }
        (_, Some(checkpoint)) => {
            (read.batch, read.prefetch_batches, read.order, read.pass_au_percent) = (1, 1, Order::Sequential, 0.0);
            (state_files(&checkpoint), Some(checkpoint))
        }
        _ => {
            let hint = "it takes the table dataset, or workflow.checkpoint: True with the tables model and checkpoint";
            return Err(Error::invalid("this workload has neither a dataset nor a checkpoint", on).hint(hint));
        }
    };
    let step = if checkpoint.is_some() { None } else { seconds.and_then(|seconds| seconds.step(&source)) };
    let workload = Workload { name, source, files, read, checkpoint };
    workload.check(place)?;
    Ok((workload, step))
}

/// The table that DLIO reads, whether or not Hydra's own is around it.
fn root(mut table: Table) -> Result<Table> {
    if let Some(value) = table.take(&["defaults"])? {
        for item in value.list()? {
            if item.is_table() || item.word()? != "_self_" {
                let hint =
                    "it reads one file: put what the other says into it, or name the file of the workload itself";
                return Err(item.wrong("takes in another file").hint(hint));
            }
        }
    }
    let Some(inner) = table.take(&["workload"])? else { return Ok(table) };
    let inner = inner.table()?;
    table.end(keys::ROOT)?;
    Ok(inner)
}

/// `storage` says where the set lies, in the words of each library; of it, only this would change what is read.
fn storage(root: &mut Table) -> Result<()> {
    let mut table = root.table(&["storage"])?;
    let mut options = table.table(&["storage_options"])?;
    match options.take(&["columns"])? {
        None => Ok(()),
        Some(value) => {
            Err(value.wrong("chooses columns").hint("give each of dataset.parquet.columns a read: True or False"))
        }
    }
}

/// `workflow`: what a run does.
struct Flow {
    trains: bool,
    writes_state: bool,
}

impl Flow {
    fn of(root: &mut Table) -> Result<Flow> {
        let mut table = root.table(&["workflow"])?;
        let trains = table.take(&["train"])?.map_or(Ok(true), |value| value.is_true())?;
        let writes_state = table.is_on("checkpoint")?;
        table.only(
            "evaluation",
            &["false", "off", "no"],
            "set it to False: the files of an evaluation are not read here",
        )?;
        table.end(keys::WORKFLOW)?;
        Ok(Flow { trains, writes_state })
    }
}

/// `dataset`, and whether its records are found by an index.
fn files(mut table: Table) -> Result<(Files, bool)> {
    let (format, is_indexed) = match table.take(&["format"])? {
        Some(value) => (format(&value)?, value.word()?.ends_with("indexed_binary")),
        None => (Format::Tfrecord, false),
    };
    table.only("compression", &["none"], "set it to none: no compressed files are made here")?;
    let mut files = Files {
        format,
        count: table.whole(&["num_files_train"])?.unwrap_or(FILES),
        samples_per_file: table.whole(&["num_samples_per_file"])?.unwrap_or(1),
        sample_bytes: table.number(&["record_length_bytes", "record_length"])?.unwrap_or(RECORD_BYTES),
        sample_bytes_stdev: table.number(&["record_length_bytes_stdev", "record_length_stdev"])?.unwrap_or(0.0),
        ..Files::default()
    };
    let element = element(&mut table)?;
    if let Some(dimensions) = table.take(&["record_dims"])? {
        let lengths: Vec<f64> = dimensions.list()?.iter().map(Value::number).collect::<Result<_>>()?;
        if !lengths.is_empty() {
            files.sample_bytes = lengths.iter().product::<f64>() * element;
        }
    }
    let parquet = table.table(&["parquet"])?;
    if format == Format::Parquet {
        columns(parquet, &mut files)?;
    } else {
        parquet.end(keys::PARQUET_OF_OTHERS)?;
    }
    table.end(keys::DATASET)?;
    Ok((files, is_indexed))
}

fn format(value: &Value) -> Result<Format> {
    match value.word()?.to_ascii_lowercase().as_str() {
        "npz" => Ok(Format::Npz),
        "npy" => Ok(Format::Npy),
        "tfrecord" => Ok(Format::Tfrecord),
        "jpeg" => Ok(Format::Jpeg),
        "parquet" => Ok(Format::Parquet),
        "indexed_binary" | "mmap_indexed_binary" => Ok(Format::Raw),
        "synthetic" => Err(value
            .wrong("is synthetic: such a run reads no file")
            .hint("take another workload with --target null:, which is the loop without storage")),
        name => Err(value
            .wrong(&format!("is {name}, which is not made here"))
            .hint("known are npz, npy, tfrecord, jpeg, parquet, indexed_binary and mmap_indexed_binary")),
    }
}

/// Bytes of an element of a record that is given by its dimensions.
fn element(table: &mut Table) -> Result<f64> {
    let Some(value) = table.take(&["record_element_type"])? else { return Ok(1.0) };
    width(value.word()?).map_or_else(|| Err(value.wrong("is no type of numbers")), |width| Ok(width as f64))
}

/// Bytes of a number of NumPy.
fn width(name: &str) -> Option<u64> {
    match name {
        "int8" | "uint8" | "bool" => Some(1),
        "int16" | "uint16" | "float16" => Some(2),
        "int32" | "uint32" | "float32" => Some(4),
        "int64" | "uint64" | "float64" => Some(8),
        _ => None,
    }
}

/// `dataset.parquet`. Without columns, DLIO makes a single one.
fn columns(mut table: Table, files: &mut Files) -> Result<()> {
    files.group_rows = Some(table.whole(&["row_group_size"])?.unwrap_or(GROUP_ROWS));
    let mut found = vec![Column { name: "data".into(), bytes: files.sample_bytes.round() as u64, is_read: true }];
    if let Some(list) = table.take(&["columns"])? {
        found = list.list()?.into_iter().map(column).collect::<Result<_>>()?;
    }
    // As a float: a sum of hostile numbers passes 64 bits, and is refused for its size later.
    files.sample_bytes = found.iter().map(|column| column.bytes as f64).sum();
    files.columns = Columns::together(&found);
    table.end(keys::PARQUET)
}

fn column(value: Value) -> Result<Column> {
    if !value.is_table() {
        // A name alone, of one number.
        return Ok(Column { name: value.word()?.to_owned(), bytes: 4, is_read: true });
    }
    let mut table = value.table()?;
    let name = table.word(&["name"])?.unwrap_or_else(|| "data".to_owned());
    let element = match table.take(&["dtype"])? {
        None => 4,
        Some(kind) if kind.word()? == "list" => 4,
        Some(kind) => {
            let hint = "known are int8 to int64, uint8 to uint64, float16 to float64, bool and list";
            width(kind.word()?).ok_or_else(|| kind.wrong("is no type of a fixed width").hint(hint))?
        }
    };
    let bytes = element * table.whole(&["size"])?.unwrap_or(1).min(u64::MAX / 8);
    let is_read = table.take(&["read"])?.map_or(Ok(true), |value| value.is_true())?;
    table.end(&[])?;
    Ok(Column { name, bytes, is_read })
}

/// `reader`, `train` and `metric`: how the set is read, and how long a step takes.
fn read(root: &mut Table, files: Option<&Files>, is_indexed: bool) -> Result<(Read, Option<Time>)> {
    let mut table = root.table(&["data_reader", "reader"])?;
    let (by_file, by_sample) = (is_shuffled(&mut table, "file_shuffle")?, is_shuffled(&mut table, "sample_shuffle")?);
    let order = match (files.map_or(1, |files| files.samples_per_file), by_file || by_sample) {
        (_, false) => Order::Sequential,
        (1, true) => Order::Shuffled,
        (_, true) if is_indexed => Order::Random,
        (_, true) => Order::Shards,
    };
    let readers = table.whole(&["read_threads"])?.unwrap_or(1);
    // Shared out among the readers, of which each has as many as the others.
    let of_reader = match table.whole(&["prefetch_size"])?.unwrap_or(BATCHES_OF_READER) {
        0 => BATCHES_OF_READER,
        ahead => ahead.div_ceil(readers.max(1)),
    };
    let buffer = table.whole(&["shuffle_size"])?.unwrap_or(SHUFFLE_BUFFER);
    let batch = table.whole(&["batch_size"])?.unwrap_or(1);
    table.only("read_type", &["on_demand"], "set it to on_demand: nothing is read into memory beforehand here")?;
    table.only("file_access", &["multi"], "set it to multi: each reader opens files of its own here")?;
    table.only("odirect", &["false"], "set it to False; caches are emptied by --set caches=each")?;
    table.only("preprocess_time", &[], "set it to 0: readers only read here")?;
    table.only("preprocess_time_stdev", &[], "set it to 0: readers only read here")?;
    let loaders = ["pytorch", "tensorflow", "dali", "native_dali", "none"];
    table.only("data_loader", &loaders, "it reads as pytorch does, and as tensorflow and dali are set by this file")?;
    table.end(keys::READER)?;
    let mut train = root.table(&["train"])?;
    let epochs = train.whole(&["epochs"])?.unwrap_or(1);
    let steps_max = train.whole_or_none(&["total_training_steps"])?.filter(|steps| *steps > 0);
    let time = Time::of(&mut train)?;
    train.end(keys::TRAIN)?;
    let mut metric = root.table(&["metric"])?;
    let pass = metric.number(&["au"])?.unwrap_or(PASS_AU);
    metric.end(&["exclude_start_steps", "exclude_end_steps"])?;
    let read = Read {
        batch,
        threads: readers.max(1),
        // Without readers of its own, the job reads a batch when it wants it.
        prefetch_batches: of_reader.saturating_mul(readers),
        order,
        partition: Partition::Fresh,
        shuffle_buffer: (order == Order::Shards && by_sample).then_some(buffer),
        epochs,
        steps_max,
        pause_seconds: None,
        pass_au_percent: 100.0 * pass,
    };
    Ok((read, time))
}

fn is_shuffled(table: &mut Table, key: &str) -> Result<bool> {
    let Some(value) = table.take(&[key])? else { return Ok(false) };
    match value.word()?.to_ascii_lowercase().as_str() {
        "off" | "false" => Ok(false),
        "seed" | "random" => Ok(true),
        _ => Err(value.wrong("is none of off, seed and random")),
    }
}

/// `train.computation_time`.
struct Time {
    seconds: f64,
    is_spread: bool,
}

impl Time {
    fn of(train: &mut Table) -> Result<Option<Time>> {
        let mut is_spread = train.number(&["computation_time_stdev"])?.is_some_and(|stdev| stdev > 0.0);
        let Some(value) = train.take(&["computation_time"])? else { return Ok(None) };
        if !value.is_table() {
            return Ok(Some(Time { seconds: value.number()?, is_spread }));
        }
        let mut table = value.table()?;
        let on = table.on();
        let normal = table.word(&["type"])?.is_none_or(|kind| kind == "normal");
        let mean = table.number(&["mean"])?.filter(|_| normal);
        let hint = "give the seconds of a step as a number, or a mean and a stdev of type normal";
        let seconds =
            mean.ok_or_else(|| Error::invalid("the time of a step has no mean that is known here", on).hint(hint))?;
        is_spread |= table.number(&["stdev"])?.is_some_and(|stdev| stdev > 0.0);
        table.end(&[])?;
        Ok(Some(Time { seconds, is_spread }))
    }

    fn step(self, source: &str) -> Option<Step> {
        let said = if self.is_spread { "; its spread is left out" } else { "" };
        let source = format!("{source}, train.computation_time{said}");
        let step = Step { step_seconds: self.seconds, batch: None, prefetch_batches: None, derived: false, source };
        (self.seconds > 0.0).then_some(step)
    }
}

/// `checkpoint`, where the workflow writes one.
fn checkpoint(root: &mut Table, model: &Model, flow: &Flow) -> Result<Option<Checkpoint>> {
    let mut table = root.table(&["checkpoint"])?;
    let of_training = table.whole_or_none(&["num_checkpoints_write"])?;
    let reads = table.whole_or_none(&["num_checkpoints_read"])?.unwrap_or(0);
    let pause_seconds = table.number(&["time_between_checkpoints"])?.unwrap_or(0.0).max(0.0);
    if flow.writes_state && !flow.trains {
        let hint = "leave it out: each process reads what it wrote, and all of them write";
        table.only("recovery_rank_shift", &["false"], hint)?;
        table.only("mode", &["default"], hint)?;
        table.end(keys::CHECKPOINT)?;
    } else {
        let known = [keys::CHECKPOINT, keys::CHECKPOINT_OF_TRAINING, &["recovery_rank_shift", "mode"]].concat();
        table.end(&known)?;
    }
    let writes = of_training.unwrap_or(1);
    let processes = model.processes();
    Ok(flow.writes_state.then_some(Checkpoint { bytes: model.state_bytes(), processes, writes, reads, pause_seconds }))
}

/// What stands for the data set where there is none: the files of the state.
fn state_files(checkpoint: &Checkpoint) -> Files {
    Files {
        format: Format::Raw,
        count: checkpoint.processes,
        samples_per_file: 1,
        sample_bytes: (checkpoint.bytes / checkpoint.processes as f64).ceil(),
        ..Files::default()
    }
}
