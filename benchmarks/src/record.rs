//! What a run leaves behind: `raw.json`, every sample of it, written anew after each cell.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::dataset::Scale;
use crate::server;
use crate::target::Target;
use crate::workload::{Phase, Workload};

/// A file of another format is refused, not guessed at.
const FORMAT: u32 = 1;
const RAW: &str = "raw.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub format: u32,
    pub settings: Settings,
    /// Versions of the targets, in the order of the tables; what is not there says so.
    pub targets: Vec<Subject>,
    pub samples: Vec<Sample>,
}

/// What must be the same for samples to belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub scale: Scale,
    pub server: server::Kind,
    pub server_extra: Vec<String>,
    pub workloads: Vec<Workload>,
    pub rounds: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    pub name: String,
    pub version: Option<String>,
    /// Why it was left out, where it was.
    pub absent: Option<String>,
}

/// One measured cell, or the reason why it could not be measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub round: u32,
    pub target: String,
    pub workload: Workload,
    pub phase: Phase,
    /// Seconds since the epoch, to tell interleaving and breaks.
    pub at: u64,
    /// Wall time of the reader, and what it went through.
    pub seconds: f64,
    pub passes: u32,
    pub items: u64,
    pub bytes: u64,
    pub touched_bytes: u64,
    pub errors: u64,
    pub wrong_tags: u64,
    pub first_error: Option<String>,
    pub reader_cpu_seconds: f64,
    /// Until the daemon came to rest, work put off included.
    pub daemon_cpu_seconds: f64,
    pub server_cpu_seconds: f64,
    /// All that ran on the machine in that time, the kernel's threads included.
    pub machine_cpu_seconds: f64,
    /// From the reader's end until the daemon came to rest.
    pub rest_seconds: f64,
    pub daemon_anonymous_peak_bytes: u64,
    pub daemon_resident_peak_bytes: u64,
    /// By kind, and `bytes` where the server counts them.
    pub requests: BTreeMap<String, u64>,
    /// Where this phase began with a mount: its time, and what it asked of the store.
    pub mount_seconds: Option<f64>,
    pub mount_requests: BTreeMap<String, u64>,
    /// Why there are no figures.
    pub failure: Option<String>,
}

impl Record {
    pub fn new(settings: Settings) -> Record {
        Record { format: FORMAT, settings, targets: Vec::new(), samples: Vec::new() }
    }

    /// With these subjects and those of earlier parts of the run, in the order of `known`.
    pub fn about(mut self, subjects: Vec<Subject>, known: &[Box<dyn Target>]) -> Record {
        let fresh = |old: &Subject| subjects.iter().all(|new| new.name != old.name);
        self.targets.retain(fresh);
        self.targets.extend(subjects);
        self.targets.sort_by_key(|one| known.iter().position(|target| target.name() == one.name));
        self
    }

    pub fn load(folder: &Path) -> Result<Record> {
        let path = folder.join(RAW);
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let record: Record = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a record of this program", path.display()))?;
        if record.format != FORMAT {
            bail!("{} has format {}, this program reads {FORMAT}", path.display(), record.format);
        }
        Ok(record)
    }

    pub fn exists(folder: &Path) -> bool {
        folder.join(RAW).exists()
    }

    /// Replaces the file as a whole: an interrupted run keeps the last complete one.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let path = folder.join(RAW);
        let fresh = folder.join("raw.json.new");
        let text = serde_json::to_vec_pretty(self)?;
        fs::write(&fresh, text).with_context(|| format!("writing {}", fresh.display()))?;
        fs::rename(&fresh, &path).with_context(|| format!("replacing {}", path.display()))
    }

    /// Whether a target's workload is measured in this round, all phases without failure.
    pub fn complete(&self, round: u32, target: &str, workload: Workload) -> bool {
        workload.phases().iter().all(|phase| {
            self.samples
                .iter()
                .any(|sample| sample.is(target, workload, *phase) && sample.round == round && sample.failure.is_none())
        })
    }

    /// Takes out what an interrupted or failed attempt left: phases belong to one life of a cache.
    pub fn forget(&mut self, round: u32, target: &str, workload: Workload) {
        self.samples.retain(|sample| sample.round != round || sample.target != target || sample.workload != workload);
    }
}

impl Sample {
    /// A cell without figures yet.
    pub fn blank(round: u32, target: &str, workload: Workload, phase: Phase) -> Sample {
        Sample {
            round,
            target: target.to_owned(),
            workload,
            phase,
            at: 0,
            seconds: 0.0,
            passes: 0,
            items: 0,
            bytes: 0,
            touched_bytes: 0,
            errors: 0,
            wrong_tags: 0,
            first_error: None,
            reader_cpu_seconds: 0.0,
            daemon_cpu_seconds: 0.0,
            server_cpu_seconds: 0.0,
            machine_cpu_seconds: 0.0,
            rest_seconds: 0.0,
            daemon_anonymous_peak_bytes: 0,
            daemon_resident_peak_bytes: 0,
            requests: BTreeMap::new(),
            mount_seconds: None,
            mount_requests: BTreeMap::new(),
            failure: None,
        }
    }

    pub fn is(&self, target: &str, workload: Workload, phase: Phase) -> bool {
        self.target == target && self.workload == workload && self.phase == phase
    }

    /// Measured, and every byte that was looked at was right.
    pub fn sound(&self) -> bool {
        self.failure.is_none() && self.errors == 0 && self.wrong_tags == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(phase: Phase) -> Sample {
        Sample::blank(1, "native", Workload::Find, phase)
    }

    #[test]
    fn a_workload_is_complete_when_all_of_its_phases_are() {
        let mut record = Record::new(Settings {
            scale: Scale::Quick,
            server: server::Kind::Versitygw,
            server_extra: vec![],
            workloads: vec![Workload::Find],
            rounds: 1,
        });
        let phases = Workload::Find.phases();
        record.samples.extend(phases[1..].iter().map(|phase| sample(*phase)));
        assert!(!record.complete(1, "native", Workload::Find));
        record.samples.push(sample(phases[0]));
        assert!(record.complete(1, "native", Workload::Find));
        assert!(!record.complete(2, "native", Workload::Find));
        record.samples[0].failure = Some("late".to_owned());
        assert!(!record.complete(1, "native", Workload::Find));
        record.forget(1, "native", Workload::Find);
        assert!(record.samples.is_empty());
    }
}
