//! An accelerator: how long a step of each workload takes on it when no data is waited for.
//!
//! It knows no files and no target. Invariant: each time has a source; one that nobody measured says so.

use std::collections::BTreeMap;

use block::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::shipped::ACCELERATORS;
use crate::{Workload, place_of};

/// Names of the shipped accelerators.
pub fn names() -> impl Iterator<Item = &'static str> {
    ACCELERATORS.names()
}

/// A shipped accelerator.
pub fn shipped(name: &str) -> Result<Accelerator> {
    let (text, place) = ACCELERATORS.text(name)?;
    Accelerator::parse(text, &place)
}

/// How a shipped accelerator is spelt, whatever was typed; another name as it is.
pub fn spelt(name: &str) -> &str {
    names().find(|known| known.eq_ignore_ascii_case(name)).unwrap_or(name)
}

/// One file of `accelerators/`, or one of a user's own: a name, and a table for each workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accelerator {
    pub name: String,
    #[serde(flatten)]
    pub steps: BTreeMap<String, Step>,
}

/// A step of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub step_seconds: f64,
    /// Samples of a step, where this accelerator takes other batches than the workload says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Batches ahead, where the round of the benchmark that these figures are of had others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch_batches: Option<u64>,
    /// Whether the time was derived and not published as measured.
    #[serde(default)]
    pub derived: bool,
    pub source: String,
}

impl Accelerator {
    pub fn parse(text: &str, place: &str) -> Result<Accelerator> {
        let parsed: Accelerator = toml::from_str(text).map_err(|error| {
            let what = format!("this is no accelerator: {}", error.message());
            Error::invalid(what, place_of(text, place, error.span()))
                .hint("`stoker bench train --list` names those that are shipped; each is an example")
        })?;
        let wrong = parsed.steps.iter().find(|(_, step)| !(1e-6..=3600.0).contains(&step.step_seconds));
        if let Some((workload, step)) = wrong {
            let on = format!("{place}, [{workload}] step_seconds = {}", step.step_seconds);
            return Err(Error::invalid("a step takes from a microsecond to an hour", on));
        }
        Ok(parsed)
    }

    /// The step of a workload.
    pub fn step(&self, workload: &str) -> Result<&Step> {
        self.steps.get(workload).ok_or_else(|| {
            let known = self.steps.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::missing("no step time is known", format!("{workload} on {}", self.name))
                .hint(format!("it is known for {known}; or give the time: --set step=20ms"))
        })
    }
}

impl Step {
    /// The workload with what this accelerator does otherwise.
    pub fn applied(&self, mut workload: Workload) -> Workload {
        workload.read.batch = self.batch.unwrap_or(workload.read.batch);
        workload.read.prefetch_batches = self.prefetch_batches.unwrap_or(workload.read.prefetch_batches);
        workload
    }
}
