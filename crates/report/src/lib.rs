//! What a benchmark found, as one JSON document (`docs/report.md`), saved after each step.
//!
//! Layout: [`compare`]: reports against each other, with intervals. [`csv`]: the same as a table for other programs.
//!
//! It draws nothing and judges nothing. Invariants: a reader of a schema number understands every document of it; a
//! document on the disk is whole, and says whether the run came to its end.

pub mod compare;
pub mod csv;
pub mod whole;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use block::{Error, Result};
use serde::{Deserialize, Serialize};

/// Raised when a field changes its meaning; new fields don't raise it.
pub const SCHEMA: u32 = 1;

/// Whether time passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Measured,
    Simulated,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Measured => "measured",
            Kind::Simulated => "simulated",
        }
    }
}

/// The document. Sections that a command doesn't have are absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub kind: Kind,
    /// The subcommand: `train`, `sweep`, `simulate`.
    pub command: String,
    /// False in what an interrupted run left.
    pub finished: bool,
    /// Seconds since 1970.
    pub started: f64,
    pub environment: Environment,
    /// What was asked for, as it was understood.
    pub settings: serde_json::Value,
    pub target: String,
    pub seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Steps of `--find-max`, and points of a simulated curve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Point>,
    /// Cells of a sweep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<serde_json::Value>,
    /// Second by second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Second>,
    /// Sections that only one command writes, by name; `docs/report.md` describes each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sections: BTreeMap<String, serde_json::Value>,
    /// What a reader must know before trusting a figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The machine and the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub version: String,
    /// What it was built from; a `+` behind it: with changes that no commit has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    pub kernel: String,
    /// Model of the processors, as the kernel names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    pub processors: u64,
    pub memory_bytes: u64,
    /// Type of the file system of a folder: `ext4`, `fuse.s3fs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// Those that the folder is mounted with, of the mount and of its file system: `rw,noatime,stripe=4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<String>,
    pub ranks: u64,
}

/// One epoch of one repetition, over all accelerators.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Both count from 1.
    pub repetition: u64,
    pub epoch: u64,
    /// Whether caches were empty when it began, as far as it could be made sure.
    pub cold: bool,
    pub seconds: f64,
    pub steps: u64,
    /// Those that count: the others used up what was read ahead before the first.
    #[serde(default)]
    pub steps_counted: u64,
    pub samples: u64,
    /// Utilisation: nominal time of the steps that count over the time that they took.
    pub au_percent: f64,
    /// The same as DLIO computes it, from the measured time of each step.
    pub au_dlio_percent: f64,
    /// What the same loop reaches on this machine without storage.
    pub ceiling_percent: f64,
    /// What the target could give, from a probe of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of_bound_percent: Option<f64>,
    pub samples_per_second: f64,
    pub bytes_per_second: f64,
    /// `store`, `requests`, `cpu`, `disk`, `loader`, `barrier`, `unknown`: seconds that accelerators waited;
    /// `start`: in the steps that don't count, before those that do and behind them.
    pub wait_seconds_by_cause: BTreeMap<String, f64>,
    /// `asked`, `verified`, `network`, `disk`: bytes.
    pub bytes: BTreeMap<String, u64>,
    /// Time from one step to the next, in seconds, by percentile: `p50`, `p99`, `p99.9`, `max`.
    pub step_seconds: BTreeMap<String, f64>,
    /// Each of them as it was measured, nothing counted twice.
    #[serde(default, skip_serializing_if = "Buckets::is_empty")]
    pub step_histogram: Buckets,
    /// Of each rank or process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// Of each machine, where the target tells what came from where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// Of what was asked, what no store was asked for, over all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_percent: Option<f64>,
}

/// Where the bytes came from that one machine asked for in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub node: String,
    pub asked_bytes: u64,
    /// `store`, `disk`, `passthrough`.
    pub bytes_by_tier: BTreeMap<String, u64>,
    pub hit_percent: f64,
}

/// A histogram as two lists of one length: so many took up to so many nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets {
    pub nanoseconds: Vec<u64>,
    pub counts: Vec<u64>,
}

impl Buckets {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// The part of one process in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub node: String,
    pub rank: u64,
    pub epoch: u64,
    pub samples: u64,
    pub seconds: f64,
    pub samples_per_second: f64,
    /// Seconds that its accelerators waited, as of the epoch; empty where nobody counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wait_seconds_by_cause: BTreeMap<String, f64>,
    /// `asked`, `verified`, `storage`: bytes of a rank; empty where nobody counts them by process.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bytes: BTreeMap<String, u64>,
}

/// A mean over repetitions, with the 95 % interval of Student's t; no interval for one repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    pub mean: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    pub count: u64,
}

/// The result in a few figures: the cold epoch apart from the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_au_percent: Option<Mean>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_au_percent: Option<Mean>,
    pub min_au_percent: f64,
    /// Of the warm epochs where there are any, else of the cold ones.
    pub samples_per_second: Mean,
    pub pass_au_percent: f64,
    pub passed: bool,
    /// Absent of a run that did not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why it is that verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What limits it: `accelerator`, `store bandwidth`, `store requests`, `latency`, `cpu`, `network`, `loader`.
    pub limited_by: String,
}

/// Whether accelerators were busy enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Passed,
    Fails,
    /// The run doesn't tell.
    Invalid,
    /// Nothing was read: it is what the loop reaches on this machine by itself.
    Ceiling,
}

impl Summary {
    /// Why there is no verdict, where there is none. Of a whole report, [`Report::invalid`] tells.
    fn invalid(&self) -> Option<&str> {
        let reason = self.reason.as_deref().unwrap_or("the run was too short");
        (self.verdict == Some(Verdict::Invalid)).then_some(reason)
    }
}

/// Utilisation at a number of accelerators.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub accelerators: u64,
    pub au_percent: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_percent: Option<f64>,
    pub bytes_per_second: f64,
    /// Of the measurement, or of the simulation.
    pub seconds: f64,
    /// Of the bytes that were asked for, those that were compared with a checksum; absent where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_percent: Option<f64>,
    /// `hit_percent`, `nodes`, ... where they are what varies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at: BTreeMap<String, f64>,
}

/// What happened in one second of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Since the run began.
    pub second: f64,
    pub requests: u64,
    pub bytes: u64,
    pub throttled: u64,
    pub errors: u64,
    /// `utilisation_percent`, `read_iops`, `read_bytes_per_second`, ... of the disk below a folder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disk: BTreeMap<String, f64>,
}

impl Report {
    /// A document of a run that begins now, on this machine.
    pub fn begin(kind: Kind, command: &str, target: &str, environment: Environment, started: f64) -> Report {
        Report {
            schema: SCHEMA,
            kind,
            command: command.into(),
            finished: false,
            started,
            environment,
            settings: serde_json::Value::Null,
            target: target.into(),
            seed: 0,
            workload: None,
            accelerator: None,
            accelerators: None,
            epochs: Vec::new(),
            summary: None,
            points: Vec::new(),
            cells: Vec::new(),
            timeline: Vec::new(),
            sections: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// Note a check of the figures that failed: they contradict each other, and no verdict stands on them.
    pub fn fail(&mut self, what: impl Into<serde_json::Value>) {
        let failed = self.sections.entry("failed_checks".into()).or_insert_with(|| serde_json::json!([]));
        if let Some(failed) = failed.as_array_mut() {
            failed.push(what.into());
        }
    }

    /// Note the error that ended the run before its end.
    pub fn broke(&mut self, error: impl std::fmt::Display) {
        self.sections.insert("error".into(), error.to_string().into());
    }

    /// What ended the run before its end, where an error did.
    pub fn error(&self) -> Option<&str> {
        self.sections.get("error")?.as_str()
    }

    /// Checks that failed, a sentence each.
    pub fn failed(&self) -> Vec<&str> {
        let section = self.sections.get("failed_checks").and_then(serde_json::Value::as_array);
        section.into_iter().flatten().filter_map(serde_json::Value::as_str).collect()
    }

    /// The workload, and how the job was otherwise: `resnet50 (batch 40, step 0.5ms)`.
    pub fn job(&self) -> Option<String> {
        let changes = self.settings["changes"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
        let changes = changes.collect::<Vec<_>>().join(", ");
        let name = self.workload.clone()?;
        Some(if changes.is_empty() { name } else { format!("{name} ({changes})") })
    }

    /// Why no verdict stands on its figures, where none does: they contradict each other, or the run doesn't tell.
    pub fn invalid(&self) -> Option<&str> {
        self.failed().first().copied().or_else(|| self.summary.as_ref()?.invalid())
    }

    /// Write the document in one step: whoever reads it sees the last whole one.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).expect("a report has no keys but strings");
        whole::write(path, &text)
    }

    pub fn open(path: &Path) -> Result<Report> {
        if path.is_dir() {
            let what = "a report is a file, and this is a folder";
            return Err(Error::invalid(what, path.display()).hint("name a file that --save wrote"));
        }
        let text = fs::read(path).map_err(|error| Error::io("cannot read the report", path.display(), &error))?;
        let refused = |error: serde_json::Error| {
            Error::invalid(format!("this is no report of `stoker bench`: {error}"), path.display())
                .hint("name a file that --save wrote")
        };
        // The number comes first: a document of another schema may have other fields.
        let document: serde_json::Value = serde_json::from_slice(&text).map_err(refused)?;
        if let Some(schema) = document["schema"].as_u64().filter(|schema| *schema != u64::from(SCHEMA)) {
            let what = format!("this report has schema {schema}, and this program reads {SCHEMA}");
            return Err(Error::invalid(what, path.display()).hint("use the version of stoker that wrote it"));
        }
        serde_json::from_value(document).map_err(refused)
    }
}
