//! What a job says of the order in which it will read.

use serde::{Deserialize, Serialize};

/// `POST /v1/hint`: an order, in place of the one of that name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HintRequest {
    /// The mount point or a folder below it.
    pub path: String,
    /// One for each process that reads.
    #[serde(default)]
    pub name: String,
    /// There is no order of this name any more.
    #[serde(default)]
    pub forget: bool,
    /// Which files of the folder, by patterns; all if none.
    #[serde(default)]
    pub include: Vec<String>,
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Files one by one, as paths below the folder; else all that are chosen in the order of their names.
    #[serde(default)]
    pub list: Option<Vec<String>>,
    /// Of those files, these by their numbers, from 0.
    #[serde(default)]
    pub numbers: Option<Vec<u32>>,
    /// Of those files, what a sampler deals.
    #[serde(default)]
    pub sampler: Option<Sampler>,
    /// Who says so: `declared`, or `peeked` for what was seen of a job's sampler without its doing.
    #[serde(default)]
    pub source: Option<String>,
    /// It is forgotten when the process that says it has ended. By the data socket that is so in any case.
    #[serde(default)]
    pub while_it_runs: bool,
    /// What the numbers rely on.
    #[serde(default)]
    pub expected: Option<Expected>,
}

/// How whoever asks numbers the files: refused where the node numbers them in another way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Files in all.
    pub files: u64,
    /// Some of them.
    #[serde(default)]
    pub names: Vec<Numbered>,
}

/// A file by its number, and its path below the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered {
    pub number: u32,
    pub name: String,
}

/// PyTorch's `DistributedSampler`, from one epoch on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sampler {
    pub seed: u64,
    pub epoch: u64,
    /// Epochs from that one on.
    pub epochs: u64,
    pub rank: u64,
    /// Ranks in all.
    pub world: u64,
    #[serde(default = "yes")]
    pub shuffle: bool,
    #[serde(default)]
    pub drop_last: bool,
}

fn yes() -> bool {
    true
}

/// What was understood.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hinted {
    /// Files of the order, in its first epoch.
    pub files: u64,
    /// Whether there was one of that name before.
    pub replaced: bool,
}

/// An order, and how far its reader has come: a part of `stoker status --json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Order {
    pub name: String,
    /// How it is known: `declared` by the job, `peeked` at in its sampler, or from opens alone: by the `formula` of a sampler, or
    /// because an epoch `repeat`s the one before.
    #[serde(default)]
    pub source: String,
    /// Files opened as it said, files that its reader left out, and those that are still to come in what was dealt so far.
    pub opened: u64,
    pub skipped: u64,
    pub left: u64,
    /// Opens of files that no order names, while this one was followed.
    #[serde(default)]
    pub misses: u64,
    /// Files that were looked at ahead of the reader, and bytes of them that were asked for.
    pub ahead_files: u64,
    pub ahead_bytes: u64,
    /// Nobody follows it: nothing is asked for by it until somebody does.
    pub resting: bool,
}
