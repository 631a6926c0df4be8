//! Texts of our own with the keys that each generation of MLPerf Storage and DLIO has, and hostile ones.

use super::dlio;
use crate::{Format, Order, shipped};

/// MLPerf Storage v0.5: a name alone as model, checkpoints within the training.
const V0_5: &str = "
model: bert
framework: tensorflow
workflow: {generate_data: False, train: True, debug: False, checkpoint: True}
dataset:
  data_folder: data/words
  format: tfrecord
  num_files_train: 500
  num_samples_per_file: 313532
  record_length: 2500
  file_prefix: part
train:
  seed_change_epoch: False
  computation_time: 0.968
  total_training_steps: 1000
reader:
  data_loader: tensorflow
  read_threads: 1
  computation_threads: 1
  transfer_size: 262144
  batch_size: 48
  file_shuffle: seed
  sample_shuffle: seed
checkpoint:
  checkpoint_folder: checkpoints/words
  steps_between_checkpoints: 250
  model_size: 4034713312
";

/// MLPerf Storage v1.0.
const V1_0: &str = "
model: cosmoflow
framework: tensorflow
workflow:
 generate_data: False
 train: True
dataset:
 data_folder: data/universes
 num_files_train: 524288
 num_samples_per_file: 1
 record_length: 2828486
 record_length_stdev: 71311
 record_length_resize: 2097152
 format: tfrecord
reader:
 data_loader: tensorflow
 read_threads: 4
 batch_size: 1
 file_shuffle: seed
 sample_shuffle: seed
 shuffle_size: 2
train: {epochs: 5, computation_time: 0.00551}
checkpoint: {checkpoint_folder: c/, checkpoint_after_epoch: 5, epochs_between_checkpoints: 2, model_size: 1}
metric:
 au: 0.70
";

/// MLPerf Storage v2.0 and v3.0.
const V2_0: &str = "
# Written for this test from the keys that DLIO knows.
model:
  name: unet3d
  type: cnn
  model_size: 499153191
framework: pytorch
workflow:
  generate_data: False
  train: True
  checkpoint: False
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
checkpoint:
  checkpoint_folder: checkpoints/volumes
  checkpoint_after_epoch: 5
  epochs_between_checkpoints: 2
metric:
  au: 0.90
";

/// Keys of DLIO that MLPerf Storage doesn't use.
const DLIO: &str = "
model: {name: packed, model_size_bytes: 9, num_layers: -1, parallelism: {tensor: 4, pipeline: 8, zero_stage: 1, data: -1}}
framework: pytorch
workflow: {train: True, evaluation: False, profiling: False, generate_data: True}
dataset:
  {data_folder: d, format: mmap_indexed_binary, num_files_train: 1, num_files_eval: 1, num_samples_per_file: 1024,
   record_dims: [1024, 2], record_element_type: float32, num_subfolders_train: 2, num_subfolders_eval: 2,
   enable_chunking: False, chunk_size: 0, compression: none, compression_level: 4, keep_files: True, file_prefix: i,
   generation_buffer_size: 2, skip_listing: True, record_element_bytes: 4}
data_reader:
  {data_loader: pytorch, batch_size: 16, batch_size_eval: 1, read_threads: 2, prefetch_size: 5, sample_shuffle: random,
   file_shuffle: off, shuffle_size: 4, read_type: on_demand, file_access: multi, odirect: False, pin_memory: True,
   dont_use_mmap: True, multiprocessing_context: fork, preprocess_time: 0.0, computation_threads: 1}
train: {epochs: 3, seed: 1, total_training_steps: -1, computation_time: {mean: 2.5, stdev: 0.1, type: normal}}
evaluation: {eval_time: 0.5, eval_after_epoch: 1, epochs_between_evals: 1}
storage: {storage_type: s3, storage_root: b, storage_options: {endpoint_url: 'http://127.0.0.1', region: r}}
output: {folder: f, log_file: l, metric: {exclude_start_steps: 1}}
profiling: {profiler: iostat, iostat_devices: sda}
logging: {verbosity: INFO}
metric: {au: 0.5, exclude_end_steps: 2}
";

/// A state alone, as in MLPerf Storage v2.0 and v3.0.
fn state(name: &str, sizes: [u64; 6], parallel: [u64; 4]) -> String {
    let [layers, hidden, feed_forward, heads, keys, vocabulary] = sizes;
    let [tensor, pipeline, data, zero] = parallel;
    format!(
        "
model:
  name: {name}
  type: transformer
  num_layers: {layers}
  model_datatype: fp16
  optimizer_datatype: fp32
  parallelism: {{tensor: {tensor}, pipeline: {pipeline}, data: {data}, zero_stage: {zero}}}
  transformer:
    vocab_size: {vocabulary}
    hidden_size: {hidden}
    ffn_hidden_size: {feed_forward}
    num_attention_heads: {heads}
    num_kv_heads: {keys}
framework: pytorch
workflow: {{generate_data: False, train: False, checkpoint: True}}
checkpoint:
  checkpoint_folder: checkpoints/state
  time_between_checkpoints: 5
  num_checkpoints_write: 10
  num_checkpoints_read: 10
  fsync: True
"
    )
}

#[test]
fn the_keys_of_each_generation_give_the_shipped_workload() {
    for (text, name, step) in [(V0_5, "bert", 0.968), (V1_0, "cosmoflow", 0.00551), (V2_0, "unet3d", 0.323)] {
        let (mut found, of_file) = dlio(text, "x.yaml").unwrap();
        let right = shipped(name).unwrap();
        // A buffer means nothing where a file holds one sample; of v0.5, prefetch is DLIO's own.
        found.read.shuffle_buffer = found.read.shuffle_buffer.filter(|_| right.read.shuffle_buffer.is_some());
        assert_eq!((&found.name, &found.files, &found.read), (&right.name, &right.files, &right.read), "{name}");
        assert_eq!((of_file.unwrap().step_seconds, found.checkpoint), (step, None));
        assert_eq!(found.source.contains("are left out"), name == "bert", "{}", found.source);
    }
    let (found, step) = dlio(DLIO, "x.yaml").unwrap();
    assert_eq!((found.files.format, found.files.sample_bytes, found.read.order), (Format::Raw, 8192.0, Order::Random));
    assert_eq!((found.read.prefetch_batches, found.read.epochs, found.read.steps_max), (6, 3, None));
    assert!(step.unwrap().source.contains("its spread is left out"));
}

#[test]
fn a_state_has_the_size_that_dlio_writes() {
    for (name, sizes, parallel, parameters, zero_copies) in [
        ("checkpoint-llama3-8b", [32, 4096, 14336, 32, 8, 128_256], [1, 1, 8, 3], 8_030_261_248_u64, 0),
        ("checkpoint-llama3-70b", [80, 8192, 28672, 128, 8, 128_256], [8, 1, 8, 3], 69_882_617_856, 7),
        ("checkpoint-llama3-405b", [126, 16384, 53248, 128, 8, 128_256], [8, 32, 2, 1], 405_853_388_800, 7),
        ("checkpoint-llama3-1t", [128, 25872, 98304, 192, 32, 128_256], [8, 64, 2, 1], 1_183_035_102_480, 7),
    ] {
        let (mut found, step) = dlio(&state(name, sizes, parallel), "x.yaml").unwrap();
        let [layers, hidden, ..] = sizes;
        let processes: u64 = parallel[..3].iter().product();
        // Two bytes a parameter and three numbers of four; each process writes five rows of the optimizer beside, and
        // each tensor shard but the first has its own copy of what is not split: two norms a layer, and the last.
        let copied = zero_copies * (2 * layers + 1) * hidden;
        let right = 14 * parameters + 2 * copied + processes * 60 * hidden;
        let shape = found.checkpoint.clone().unwrap();
        assert!((shape.bytes - right as f64).abs() < 12.0 * processes as f64, "{name}: {} and {right}", shape.bytes);
        assert_eq!((step, shape.processes, shape.writes, shape.reads), (None, processes, 10, 10));
        let right = shipped(name).unwrap();
        found.source.clone_from(&right.source);
        assert_eq!(found, right);
    }
}

#[test]
fn a_state_of_given_groups_and_one_without_layers_are_counted_as_dlio_does() {
    let of = |model: &str| {
        let text = format!(
            "model: {model}\nworkflow: {{train: False, checkpoint: True}}\ncheckpoint: {{num_checkpoints_write: 1}}"
        );
        let shape = dlio(&text, "x.yaml").unwrap().0.checkpoint.unwrap();
        (shape.bytes, shape.processes, shape.reads)
    };
    assert_eq!(of("{name: m, type: cnn, model_size_bytes: 5000}"), (5000.0, 1, 0));
    assert_eq!(of("plain"), (10_240.0, 1, 0), "DLIO's own");
    // Three of each group from each process, and each layer once, in two shards.
    let groups = "{type: transformer, num_layers: 3, optimization_groups: [100, 20], layer_parameters: [8, 4],
        parallelism: {tensor: 2, pipeline: 3, zero_stage: 1}}";
    assert_eq!(of(groups), (6.0 * 360.0 + 3.0 * 12.0, 6, 0));
}

#[test]
fn tables_of_hydra_and_names_of_other_values_are_understood() {
    let inner = "dataset: {format: npz, num_files_train: 9, num_samples_per_file: 1, record_length_bytes: 1e5}
  reader: {batch_size: '${workload.dataset.num_samples_per_file}', read_threads: '${dataset.num_files_train}'}
  storage: {storage_root: '${oc.env:BUCKET}'}";
    let text =
        format!("# @package _global_\ndefaults:\n  - _self_\nhydra: {{run: {{dir: x}}}}\nworkload:\n  {inner}\n");
    let (found, _) = dlio(&text, "folder/photos.yaml").unwrap();
    assert_eq!((found.name.as_str(), found.read.batch, found.read.threads), ("photos", 1, 9));
    let flat = dlio(&inner.replace("\n  ", "\n"), "folder/photos.yaml").unwrap().0;
    assert_eq!(found, flat);
}

#[test]
fn without_a_step_there_is_none_and_defaults_are_those_of_dlio() {
    let (found, step) =
        dlio("dataset: {format: jpeg, num_files_train: 9, record_length: 1e5}", "folder/photos.yaml").unwrap();
    assert!(step.is_none());
    assert_eq!((found.name.as_str(), found.read.order), ("photos", Order::Sequential));
    assert_eq!((found.read.batch, found.read.threads, found.read.prefetch_batches), (1, 1, 2));
    let one = dlio("dataset: {format: npy}", "x.yaml").unwrap().0;
    assert_eq!(one.files.format, Format::Npy);
    let none = dlio("dataset:\n  format: npz\nreader: {read_threads: 0}", "x.yaml").unwrap().0;
    assert_eq!((none.read.threads, none.read.prefetch_batches, none.files.count), (1, 0, 8));
}

#[test]
fn what_cannot_be_run_is_refused_with_its_name_and_line() {
    let one = "dataset: {format: npz, num_files_train: 1, record_length: 10}\n";
    let with = |rest: &str| format!("{one}{rest}");
    for (text, what, on) in [
        ("dataset: [", "no workload of DLIO", "x.yaml"),
        ("", "is empty", "x.yaml"),
        ("7", "is no table", "x.yaml:1"),
        ("reader: {batch_size: 1}", "neither a dataset nor", "x.yaml:1"),
        (
            "dataset:\n  format: npz\n  num_files_train: many\n",
            "dataset.num_files_train` is no whole number",
            "x.yaml:3",
        ),
        ("dataset:\n\n  format: hdf5", "dataset.format` is hdf5", "x.yaml:3"),
        ("dataset: {format: synthetic}", "reads no file", "x.yaml:1"),
        ("dataset: {format: csv}", "not made here", "x.yaml:1"),
        ("dataset: {format: png}", "not made here", "x.yaml:1"),
        ("dataset: {format: npz, num_files_train: 0, record_length: 10}", "at least 1", "x.yaml"),
        ("dataset: {format: npz, num_files_train: -3}", "no whole number", "x.yaml:1"),
        ("dataset: {format: npz, compression: gzip}", "dataset.compression", "x.yaml:1"),
        (
            "dataset: {format: npz, num_files_train: 1e14, num_samples_per_file: 1e14}",
            "at most 10^15 samples",
            "x.yaml",
        ),
        ("dataset: {format: npz, record_length: .inf}", "is no number", "x.yaml:1"),
        ("dataset: {format: npz, record_length: 1e999}", "", "x.yaml:1"),
        ("dataset:\n  format: npz\n  colour: red", "the key `dataset.colour` is not known", "x.yaml:3"),
        (&with("colour: red"), "the key `colour` is not known", "x.yaml:2"),
        (
            &with("reader:\n  batch_size: 1\n  reader_classname: a.b"),
            "`reader.reader_classname` is not known",
            "x.yaml:4",
        ),
        (&with("reader: {read_type: memory}"), "reader.read_type", "x.yaml:2"),
        (&with("reader: {preprocess_time: 0.5}"), "reader.preprocess_time", "x.yaml:2"),
        (&with("reader: {file_shuffle: perhaps}"), "none of off, seed and random", "x.yaml:2"),
        (&with("reader: {batch_size: '${oc.env:BATCH}'}"), "put together from elsewhere", "x.yaml:2"),
        (&with("reader: {batch_size: ???}"), "has to be given", "x.yaml:2"),
        (&with("train: {computation_time: {type: uniform, min: 1, max: 2}}"), "has no mean", "x.yaml:2"),
        (&with("workflow: {evaluation: True}"), "workflow.evaluation", "x.yaml:2"),
        (&with("storage: {storage_options: {columns: [a]}}"), "chooses columns", "x.yaml:2"),
        (&with("defaults: [unet3d]"), "takes in another file", "x.yaml:2"),
        (&with("model: {name: a, parallelism: {tensor: 0}}"), "model.parallelism.tensor", "x.yaml:2"),
        (
            "workflow: {train: False, checkpoint: True}\ncheckpoint: {num_checkpoints_write: 0}",
            "written once",
            "x.yaml",
        ),
        ("workflow: {train: False, checkpoint: True}\ncheckpoint: {mode: subset}", "checkpoint.mode", "x.yaml:2"),
    ] {
        let error = dlio(text, "x.yaml").unwrap_err();
        assert!(error.what.contains(what) && error.on.starts_with(on), "{text}: {} {}", error.what, error.on);
        assert!(!error.hint.is_empty());
    }
}

/// The columns of DLIO as it writes them, of a shipped workload.
fn columns_of(name: &str) -> String {
    let types = [(1, "int8"), (2, "float16"), (4, "float32"), (8, "float64")];
    let column = |column: crate::columns::Column| {
        let kind = types.iter().find(|(bytes, _)| *bytes == column.bytes);
        let (kind, size) =
            kind.map_or(("float32", format!("\n        size: {}", column.bytes / 4)), |kind| (kind.1, String::new()));
        let read = if column.is_read { "true" } else { "false" };
        format!("      - name: {}\n        dtype: {kind}{size}\n        read: {read}\n", column.name)
    };
    shipped(name).unwrap().files.named_columns().into_iter().map(column).collect()
}

#[test]
fn workloads_of_v3_0_give_the_shipped_ones_column_by_column() {
    let parquet = |name: &str, head: &str, group: &str, reader: &str, time: &str| {
        let columns = columns_of(name);
        format!(
            "model: {{name: {name}}}\nframework: pytorch\nworkflow: {{generate_data: False, train: True, checkpoint: False}}
dataset:\n  data_folder: d/\n  format: parquet\n  compression: none\n  {head}\n  parquet:\n{group}    columns:\n{columns}
reader: {{data_loader: pytorch, file_shuffle: seed, {reader}}}\ntrain:\n  epochs: 1\n  computation_time: {time}\n"
        )
    };
    let dlrm = parquet(
        "dlrm",
        "num_files_train: 1024\n  num_samples_per_file: 4718592\n  record_length_bytes: 761",
        "    row_group_size: 6144\n    read_mode: row_group\n    use_s3dlio_gen: true\n",
        "batch_size: 16384, prefetch_size: 2, read_threads: 4",
        "0.000375\nmetric: {au: 0.70}",
    );
    let flux = parquet(
        "flux",
        "num_files_train: 4296\n  num_samples_per_file: 288\n  record_length: 2164832",
        "",
        "batch_size: 48, read_threads: 8",
        "1.35",
    );
    let retinanet = "model: {name: retinanet, type: cnn}
dataset: {format: jpeg, num_files_train: 1170301, num_samples_per_file: 1, record_length_bytes: 322957}
reader: {batch_size: 24, read_threads: 8, file_shuffle: seed, sample_shuffle: seed}
train: {epochs: 8, computation_time: 0.04755}\nmetric: {au: 0.85}";
    for (text, name, step) in [(&*dlrm, "dlrm", 0.000375), (&flux, "flux", 1.35), (retinanet, "retinanet", 0.04755)] {
        let (found, of_file) = dlio(text, "x.yaml").unwrap();
        let right = shipped(name).unwrap();
        assert_eq!((&found.name, &found.files, &found.read), (&right.name, &right.files, &right.read), "{name}");
        assert_eq!(of_file.unwrap().step_seconds, step);
    }
    let read = shipped("dlrm").unwrap();
    assert_eq!((read.bytes_per_sample(), read.files.named_columns().len()), (160.0, 200));
    // Without columns, DLIO makes a single one.
    let plain =
        dlio("dataset: {format: parquet, num_samples_per_file: 99, record_length_bytes: 1024}", "x.yaml").unwrap().0;
    assert_eq!((plain.files.columns.len(), plain.files.group_rows, plain.files.rows_of_group()), (1, Some(1024), 99));
    for (columns, what) in [
        ("[{name: a, dtype: string}]", "dataset.parquet.columns[0].dtype"),
        ("[{name: a, colour: 1}]", "columns[0].colour` is not known"),
        ("[{name: a}, {name: a}]", "one name"),
        ("[{name: 'a{1}'}]", "names no"),
        ("[{name: a, size: 18446744073709551615}]", "sample has from 1"),
        ("[{name: a, size: 0}]", "sample has from 1"),
        ("[{name: a, read: false}]", "no column is read"),
        ("[]", "sample has from 1"),
        ("[[]]", "no plain value"),
        ("7", "is no list"),
    ] {
        let error =
            dlio(&format!("dataset: {{format: parquet, parquet: {{columns: {columns}}}}}"), "x.yaml").unwrap_err();
        assert!(error.what.contains(what), "{columns}: {error}");
    }
}

/// Numbers of an own generator: the tests take no crate for it.
fn drawn(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn hostile_texts_end_in_an_error_or_in_what_can_be_run() {
    let bomb = (0..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
        let again = vec![format!("*a{level}"); 9].join(", ");
        format!("{text}a{}: &a{} [{again}]\n", level + 1, level + 1)
    });
    let cases = [
        bomb,
        "[".repeat(100_000),
        "a: ".repeat(5_000),
        "{a: ".repeat(400),
        "a: &a\n  b: *a".into(),
        "- ".repeat(9_999),
    ];
    for text in cases {
        assert!(dlio(&text, "x.yaml").is_err());
    }
    assert!(dlio(&"#".repeat(2 << 20), "x.yaml").is_err());
    let words = [
        "-1",
        "0",
        "1e308",
        "18446744073709551615",
        "99999999999999999999999",
        "null",
        "[1, 2]",
        "{a: b}",
        "true",
        "é",
        "0x7f",
    ];
    let huge = state("s", [9, 9, 9, 9, 9, 9], [9, 9, 9, 3]);
    let mut chance = 1;
    for (number, text) in [V0_5, V1_0, V2_0, DLIO, &huge].iter().cycle().take(4_000).enumerate() {
        let mut text: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = drawn(&mut chance) as usize % text.len();
        let word = words[drawn(&mut chance) as usize % words.len()];
        match number % 3 {
            0 => text[line] = text[line].split_once(": ").map_or_else(String::new, |(key, _)| format!("{key}: {word}")),
            1 => text[line] = text[line].chars().filter(|_| !drawn(&mut chance).is_multiple_of(9)).collect(),
            _ => text.swap(line, 0),
        }
        if let Ok((found, _)) = dlio(&text.join("\n"), "x.yaml") {
            found.check("x.yaml").unwrap();
            assert!(found.bytes().is_finite());
        }
    }
}
