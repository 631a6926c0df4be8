//! What the loop itself reaches on this machine: the same accelerators and streams on a target that moves no bytes,
//! and on one that has them in memory, where each byte is copied and compared with a checksum.
//!
//! It never touches the target that is measured. Invariant: the loop is the one that measures, not another.

use std::sync::Arc;

use block::{Result, crc64};
use data::noise::{Chance, LANES, Noise};
use report::Report;
use targets::{Listed, Null, Opened, Target, Writable};
use workload::{Files, Format};

use super::{Bench, Checks, Chill, Job, Set, warn};

/// A ceiling is measured about so long.
const SECONDS: f64 = 2.0;
/// In fewer steps there is nothing to see, and more take long where steps do.
const STEPS: (u64, u64) = (3, 2000);

/// Bytes that the ceiling from memory moves at most; beyond it takes too long for a figure beside another.
const MOVED_MAX: f64 = 8e9;

/// Content of the files in memory, larger than a processor's nearest caches.
const CONTENT: usize = 8 << 20;

/// Measure both. Gives the utilisation without bytes, in percent; both go into the report.
pub fn measure(bench: &Bench, report: &mut Report) -> Result<f64> {
    let job = bench.job;
    let steps = ((SECONDS / job.step_seconds).ceil() as u64).clamp(STEPS.0, STEPS.1);
    let mut short = job.clone();
    short.workload.read.steps_max = Some(steps);
    (short.chill, short.decode) = (Chill::Never, false);
    let samples = steps * job.workload.read.batch * job.accelerators;
    let mut set = Set::imagined(&job.workload.files, samples, job.seed);
    set.together = bench.set.together;
    let null = Null::of(set.files.clone());
    // All ranks measure all of it; rank 0 alone learns what came out.
    let without = reached(bench, &short, &null, &set, &Checks::default(), "ceiling")?.unwrap_or_default();
    let mut section = serde_json::json!({ "null_percent": without, "steps": steps });
    let moved = samples as f64 * job.workload.bytes_per_sample();
    if bench.set.real && moved <= MOVED_MAX {
        let (memory, set, checks) = memory(bench, samples);
        let with = reached(bench, &short, &memory, &set, &checks, "ceiling from memory")?;
        section["memory_percent"] = serde_json::json!(with);
    } else if bench.set.real {
        warn(report, "the ceiling from memory was left out: it would move more than 8 GB");
    }
    report.sections.insert("ceiling".into(), section);
    Ok(without)
}

fn reached(
    bench: &Bench,
    job: &Job,
    target: &dyn Target,
    set: &Set,
    checks: &Checks,
    what: &str,
) -> Result<Option<f64>> {
    let bench = Bench { job, target, set, checks, outside: bench.outside, probe: None };
    Ok(bench.epoch(0, false, what)?.map(|(epoch, _)| epoch.au_percent))
}

/// Files of one size, one sample or row group each, all with the same content and its checksum.
fn memory(bench: &Bench, samples: u64) -> (Memory, Set, Checks) {
    let (files, seed) = (&bench.job.workload.files, bench.job.seed);
    let rows = bench.set.groups.map_or(1, |groups| bench.set.samples() / groups.groups).max(1);
    let bytes = (rows as f64 * files.sample_bytes_read.unwrap_or(files.sample_bytes)).max(1.0) as u64;
    let samples = samples.div_ceil(rows);
    let shape = Files {
        format: Format::Raw,
        count: samples,
        samples_per_file: 1,
        sample_bytes: bytes as f64,
        sample_bytes_stdev: 0.0,
        sample_bytes_read: None,
    };
    let mut set = Set::imagined(&shape, samples, seed);
    if bench.set.groups.is_some() {
        set = set.in_groups(rows, &shape);
    }
    set.real = true;
    let mut noise = Noise::of(&mut Chance::of(seed, 0));
    let words = (0..CONTENT / (4 * LANES)).flat_map(|_| noise.draw());
    let content: Arc<[u8]> = words.flat_map(u32::to_le_bytes).collect();
    let whole: Vec<u8> = content.iter().copied().cycle().take(bytes as usize).collect();
    let sum = crc64::of(&whole);
    let checks = Checks::known(set.files.iter().map(|file| (file.name.clone(), sum)));
    (Memory { files: set.files.clone(), content }, set, checks)
}

struct Memory {
    files: Vec<Listed>,
    content: Arc<[u8]>,
}

impl Target for Memory {
    fn url(&self) -> &str {
        "memory:"
    }

    fn list(&self) -> Result<Vec<Listed>> {
        Ok(self.files.clone())
    }

    fn stat(&self, name: &str) -> Result<Listed> {
        let bytes = self.files.first().map_or(0, |file| file.bytes);
        Ok(Listed { name: name.into(), bytes })
    }

    fn open(&self, file: &Listed) -> Result<Box<dyn Opened>> {
        Ok(Box::new(Content { bytes: file.bytes, content: self.content.clone() }))
    }

    fn writable(&self) -> Option<&dyn Writable> {
        None
    }
}

struct Content {
    bytes: u64,
    content: Arc<[u8]>,
}

impl Opened for Content {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let count = self.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut at = 0;
        while at < count {
            let place = ((offset + at as u64) % self.content.len() as u64) as usize;
            let length = (self.content.len() - place).min(count - at);
            buffer[at..at + length].copy_from_slice(&self.content[place..place + length]);
            at += length;
        }
        Ok(count)
    }
}
