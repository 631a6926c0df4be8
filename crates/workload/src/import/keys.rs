//! Keys of DLIO that don't decide which bytes a run reads or writes, or when: folders, seeds, names, what is done in memory,
//! measuring.
//!
//! Invariant: a key that is neither here nor taken by its name is refused.

/// At the root, with all that is below them. `storage` says where the set lies, in words of each library; `hydra` is the
/// program that starts DLIO.
pub const ROOT: &[&str] = &["framework", "logging", "hydra"];

pub const WORKFLOW: &[&str] = &["generate_data", "profiling", "debug"];

/// Names and folders; how the set is made; what images are resized to in memory; chunks of HDF5, which is refused.
pub const DATASET: &[&str] = &[
    "chunk_size",
    "compression_level",
    "data_folder",
    "data_gen_method",
    "enable_chunking",
    "eval_num_samples_per_file",
    "file_prefix",
    "generation_buffer_size",
    "keep_files",
    "listing_validation_interval",
    "num_files_eval",
    "num_subfolders_eval",
    "num_subfolders_train",
    "record_element_bytes",
    "record_length_bytes_resize",
    "record_length_resize",
    "skip_listing",
    "write_threads",
];

pub const PARQUET: &[&str] = &["generation_batch_size", "read_mode", "use_s3dlio_gen"];
/// Of sets in other formats.
pub const PARQUET_OF_OTHERS: &[&str] =
    &["columns", "generation_batch_size", "read_mode", "row_group_size", "use_s3dlio_gen"];

/// Processes and memory of the loader, and the size of its requests: here they are Stoker's own.
pub const READER: &[&str] = &[
    "batch_size_eval",
    "computation_threads",
    "data_loader_sampler",
    "dont_use_mmap",
    "multiprocessing_context",
    "pin_memory",
    "transfer_size",
    "transformed_record_dims",
    "transformed_record_element_type",
    "write_threads",
];

pub const TRAIN: &[&str] = &["seed", "seed_change_epoch"];

/// Where and how each process writes: here every write is made durable.
pub const CHECKPOINT: &[&str] = &["checkpoint_folder", "fsync", "ksm", "randomize_tensor", "rank_sync", "type"];

/// When a training writes its state: that is left out.
pub const CHECKPOINT_OF_TRAINING: &[&str] = &[
    "checkpoint_after_epoch",
    "checkpoint_mechanism_classname",
    "epochs_between_checkpoints",
    "layer_parameters",
    "model_size",
    "num_layers",
    "optimization_groups",
    "steps_between_checkpoints",
];

/// Tables of which nothing is taken.
pub const TABLES: &[(&str, &[&str])] = &[
    ("output", &["folder", "log_file", "metric"]),
    ("profiling", &["iostat_devices", "profiler"]),
    (
        "evaluation",
        &[
            "eval_after_epoch",
            "eval_time",
            "eval_time_stdev",
            "epochs_between_evals",
            "steps_between_evals",
            "total_eval_steps",
        ],
    ),
];
