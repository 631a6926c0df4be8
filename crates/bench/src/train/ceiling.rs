//! What the loop itself reaches on this machine: the same accelerators and streams on a target that moves no bytes,
//! and on one that has them in memory, where each byte is copied and compared with a checksum.
//!
//! It never touches the target that is measured. Invariant: the loop is the one that measures, not another.

use std::sync::Arc;

use block::{Result, crc64};
use data::noise::{Chance, LANES, Noise};
use report::{Epoch, Report};
use targets::{Listed, Null, Opened, Target, Writable};
use workload::{Files, Format};

use super::{Bench, Checks, Chill, Job, STEPS_MIN, Set};

/// A ceiling is measured about so long.
const SECONDS: f64 = 2.0;
/// With fewer steps that count there is nothing to see, and more take long where steps do.
const STEPS: (u64, u64) = (3, 2000);

/// From memory as many samples are read as in [`SECONDS`], by the rate of a run of so many batches of each stream.
const FIRST_BATCHES: u64 = 2;
const FIRST_BYTES: f64 = 4e9;
const MEMORY_STEPS_MAX: u64 = 100_000;
/// An accelerator that takes no time: readers never wait for it.
const AT_ONCE: f64 = 1e-6;

/// Content of the files in memory, larger than a processor's nearest caches.
const CONTENT: usize = 8 << 20;

/// Measure both. Gives the utilisation without bytes, in percent; both go into the report.
pub fn measure(bench: &Bench, report: &mut Report) -> Result<f64> {
    let job = bench.job;
    let lead = job.steady(None).lead;
    let steps = ((SECONDS / job.step_seconds).ceil() as u64).clamp(lead + STEPS.0, lead + STEPS.1);
    let mut short = job.clone();
    short.workload.read.steps_max = Some(steps);
    (short.chill, short.decode) = (Chill::Never, false);
    let samples = steps * job.workload.read.batch * job.accelerators;
    let mut set = Set::imagined(&job.workload.files, samples, job.seed);
    set.together = bench.set.together;
    let null = Null::of(set.files.clone());
    // All ranks measure all of it; rank 0 alone learns what came out.
    let without = measured(bench, &short, &null, &set, &Checks::default(), "ceiling")?;
    let without = without.map_or(0.0, |epoch| epoch.au_percent);
    let mut section = serde_json::json!({ "null_percent": without, "steps": steps });
    if bench.set.real {
        let rate = from_memory(bench, &short)?;
        let demanded = (job.workload.read.batch * job.accelerators) as f64 / job.step_seconds;
        section["memory_samples_per_second"] = serde_json::json!(rate);
        let share = rate / demanded;
        let is_ahead = job.workload.read.prefetch_batches > 0;
        let percent = 100.0 * if is_ahead { share.min(1.0) } else { share / (1.0 + share) };
        section["memory_percent"] = serde_json::json!(percent);
    }
    report.sections.insert("ceiling".into(), section);
    Ok(without)
}

/// Samples per second that all readers bring and verify from memory, when no accelerator makes them wait: of a short run
/// that says how long the other has to be.
fn from_memory(bench: &Bench, job: &Job) -> Result<f64> {
    let mut job = Job { step_seconds: AT_ONCE, ..job.clone() };
    let each = job.workload.read.batch * job.accelerators;
    let mut rate = 0.0;
    let bytes = each as f64 * job.workload.bytes_per_sample();
    let mut steps = ((FIRST_BYTES / bytes) as u64).min(FIRST_BATCHES * job.workload.read.threads).max(STEPS_MIN);
    for _ in 0..2 {
        job.workload.read.steps_max = Some(steps);
        let (memory, set, checks) = memory(bench, steps * each);
        let epoch = measured(bench, &job, &memory, &set, &checks, "ceiling from memory")?;
        // Rank 0 alone knows, and all go on by what it says.
        rate = crate::told(bench.outside.ranks, &epoch.map_or(0.0, |epoch| epoch.samples_per_second))?;
        let wanted = (SECONDS * rate / each as f64).ceil() as u64;
        if wanted <= steps {
            break;
        }
        steps = wanted.min(MEMORY_STEPS_MAX);
    }
    Ok(rate)
}

fn measured(
    bench: &Bench,
    job: &Job,
    target: &dyn Target,
    set: &Set,
    checks: &Checks,
    what: &str,
) -> Result<Option<Epoch>> {
    let bench = Bench { job, target, set, checks, outside: bench.outside, probe: None };
    Ok(bench.epoch(0, false, what)?.map(|(epoch, _)| epoch))
}

/// Files of one size, one sample or row group each, all with the same content and its checksum.
fn memory(bench: &Bench, samples: u64) -> (Memory, Set, Checks) {
    let (files, seed) = (&bench.job.workload.files, bench.job.seed);
    let rows = bench.set.groups.map_or(1, |groups| bench.set.samples() / groups.groups).max(1);
    let bytes = (rows as f64 * files.bytes_read()).max(1.0) as u64;
    let samples = samples.div_ceil(rows);
    let shape = Files {
        format: Format::Raw,
        count: samples,
        samples_per_file: 1,
        sample_bytes: bytes as f64,
        ..Files::default()
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
