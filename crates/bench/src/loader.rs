//! The loop of a training job through a loader that others made: PyTorch, TensorFlow or DALI, in Python (`python/loaders`).
//!
//! It starts the program that it is given and reads what it says; it knows no Python. Invariant: a line that the program
//! can't have measured (out of order, not finite, of another length than the other accelerators') is refused, never
//! repaired.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block::{Error, Result};
use ranks::Ranks;
use report::{Epoch, Process};
use serde::{Deserialize, Serialize};
use targets::clock::{Moment, nanoseconds};
use workload::accelerator::Step;
use workload::{Format, Order, Partition, Workload};

use crate::sweep::latency::buckets;
use crate::train::{Steady, Track};

/// A line has some hundred bytes a step.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Last lines of what a program said that failed.
const COMPLAINT_LINES_MAX: usize = 5;

/// Which library loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    Torch,
    Tensorflow,
    Dali,
}

/// What a loader is to do, as the program in Python reads it.
#[derive(Clone, Debug, Serialize)]
pub struct Job {
    /// Nothing: samples without bytes, which tells what the loader itself costs.
    pub folder: Option<String>,
    pub format: Format,
    pub files: u64,
    pub samples_per_file: u64,
    pub sample_bytes: f64,
    pub batch: u64,
    pub workers: u64,
    pub prefetch_batches: u64,
    pub order: Order,
    pub partition: Partition,
    pub shuffle_buffer: Option<u64>,
    pub epochs: u64,
    pub steps_max: Option<u64>,
    pub pause_seconds: Option<f64>,
    pub step_seconds: f64,
    /// Of this process.
    pub accelerators: u64,
    /// The first of them among all.
    pub first_accelerator: u64,
    /// Accelerators of all processes; where they are more than this one has, each step ends at a barrier of all ranks.
    pub replicas: u64,
    pub seed: u64,
    pub decode: bool,
}

/// This process among those that run the same job.
#[derive(Clone, Copy)]
pub struct Among<'a> {
    pub ranks: &'a dyn Ranks,
    /// Name of this machine.
    pub node: &'a str,
}

/// What happens while it runs.
pub trait Watch {
    /// An epoch is about to begin, and no rank reads: caches may be dropped now. Whether it begins cold.
    fn begin(&mut self, epoch: u64) -> Result<bool>;

    /// Steps that were made of those of an epoch.
    fn made(&mut self, epoch: u64, step: u64, steps: u64);
}

impl Job {
    /// A workload on accelerators of this process alone.
    pub fn of(workload: &Workload, step: &Step, accelerators: u64, folder: Option<&str>, seed: u64) -> Job {
        let Workload { files, read, .. } = step.applied(workload.clone());
        Job {
            folder: folder.map(str::to_owned),
            format: files.format,
            files: files.count,
            samples_per_file: files.samples_per_file,
            sample_bytes: files.sample_bytes,
            batch: read.batch,
            // Workers of all loaders read ahead, whatever they are asked for.
            workers: if read.prefetch_batches == 0 { 0 } else { read.threads },
            prefetch_batches: read.prefetch_batches,
            order: read.order,
            partition: read.partition,
            shuffle_buffer: read.shuffle_buffer,
            epochs: read.epochs,
            steps_max: read.steps_max,
            pause_seconds: read.pause_seconds,
            step_seconds: step.step_seconds,
            accelerators,
            first_accelerator: 0,
            replicas: accelerators,
            seed,
            decode: false,
        }
    }
}

impl Job {
    /// Which steps count: by the rule of the native loop, from what the loader can read ahead.
    pub fn steady(&self) -> Steady {
        Steady::of(self.ahead(), self.samples_per_file as f64)
    }

    /// Batches of an accelerator that can be read before its first step.
    fn ahead(&self) -> u64 {
        let workers = self.workers.max(1);
        // Each worker of PyTorch is ahead by as many batches as the others.
        let window = self.prefetch_batches.div_ceil(workers) * workers;
        let is_buffered = self.order == Order::Shards;
        let buffer = self.shuffle_buffer.filter(|_| is_buffered).map_or(0, |held| held.div_ceil(self.batch));
        (window + buffer).max(1)
    }
}

impl Loader {
    /// How to get the library.
    fn cure(self) -> &'static str {
        match self {
            Loader::Torch => "`pip install torch` or `apt install python3-torch`; PYTHON names another python3",
            Loader::Tensorflow => "`pip install tensorflow-cpu`; PYTHON names another python3",
            Loader::Dali => "`pip install nvidia-dali-cuda120` (it runs without a GPU); PYTHON names another python3",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Loader::Torch => "torch",
            Loader::Tensorflow => "tensorflow",
            Loader::Dali => "dali",
        }
    }
}

/// Run the program; it ends with this call, however that ends. At rank 0 the epochs are those of all ranks, elsewhere of
/// this one.
pub fn run(loader: Loader, job: &Job, mut program: Command, among: Among, watch: &mut dyn Watch) -> Result<Vec<Epoch>> {
    let name = program.get_program().to_string_lossy().into_owned();
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program
        .spawn()
        .map_err(|error| Error::io("cannot start Python", &name, &error).hint("install python3, or set PYTHON"))?;
    let complaints = listen(child.stderr.take().expect("it was piped"));
    let mut session = Session {
        loader,
        job,
        among,
        orders: child.stdin.take().expect("it was piped"),
        epochs: Vec::new(),
        parts: Vec::new(),
        cold: false,
    };
    let lines = BufReader::new(child.stdout.take().expect("it was piped"));
    let done = session.converse(lines, watch);
    let Session { orders, epochs, .. } = session;
    drop(orders);
    let status = end(&mut child, done.is_ok());
    // Why it failed is known; whoever it left behind may hold its standard error open for ever.
    done?;
    let complaints = complaints.join().unwrap_or_default();
    if epochs.len() as u64 == job.epochs && status.as_deref() == Ok("exit status: 0") {
        return Ok(epochs);
    }
    let status = status.unwrap_or_else(|error| error);
    let what = format!("the {} loader ended before its work did ({status}): {complaints}", loader.name());
    Err(Error::unavailable(what, name).hint("run it with fewer workers; if memory was short, dmesg tells"))
}

/// What the program says on standard error, its last lines.
fn listen(said: ChildStderr) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut last = VecDeque::new();
        for line in BufReader::new(said).lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
            if last.len() == COMPLAINT_LINES_MAX {
                last.pop_front();
            }
            last.push_back(line);
        }
        Vec::from(last).join("; ")
    })
}

/// The program ends by itself when its work is done, and also when its standard input does.
fn end(child: &mut Child, done: bool) -> Result<String, String> {
    if !done {
        // It notices by itself that nobody listens; one that doesn't is not waited for.
        let _ = child.kill();
    }
    child.wait().map(|status| status.to_string()).map_err(|error| error.to_string())
}

/// What the program says, a line each.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Ready {
        ready: u64,
    },
    /// All accelerators of this process have ended a step, and wait for those of the others.
    Meet {
        #[serde(rename = "meet")]
        _meet: bool,
    },
    Progress {
        progress: Progress,
    },
    Missing {
        missing: String,
    },
    Refusal {
        refusal: Refusal,
    },
    Part(Part),
}

#[derive(Deserialize)]
struct Progress {
    epoch: u64,
    step: u64,
    steps: u64,
}

#[derive(Deserialize)]
struct Refusal {
    what: String,
    on: String,
    r#try: String,
}

/// What a rank tells of an epoch.
#[derive(Serialize, Deserialize)]
struct Share {
    node: String,
    cold: bool,
    parts: Vec<Part>,
}

/// An epoch of one accelerator.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    epoch: u64,
    accelerator: u64,
    seconds: f64,
    samples: u64,
    bytes: u64,
    steps: Vec<Lap>,
}

/// A step in seconds: when it began, since the epoch did; what it waited for its batch, computed, and waited for the
/// others; of the wait for the batch what fell to reading and to decoding; and when its batch was whole, since the epoch
/// began.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Lap(f64, f64, f64, f64, f64, f64, f64);

impl Lap {
    fn end(&self) -> f64 {
        self.0 + self.1 + self.2 + self.3
    }
}

struct Session<'a> {
    loader: Loader,
    job: &'a Job,
    among: Among<'a>,
    orders: ChildStdin,
    epochs: Vec<Epoch>,
    /// Of the epoch that runs.
    parts: Vec<Part>,
    cold: bool,
}

impl Session<'_> {
    fn converse(&mut self, mut lines: impl BufRead, watch: &mut dyn Watch) -> Result<()> {
        let job = serde_json::to_string(self.job).expect("a job has no keys but strings");
        self.order(&job);
        loop {
            let mut line = String::new();
            let length = lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
            match length.map_err(|error| self.nonsense(&format!("it can't be heard: {error}")))? {
                0 => return Ok(()),
                _ => self.line(&line, watch)?,
            }
        }
    }

    /// Where the program has ended, reading its last words tells why.
    fn order(&mut self, text: &str) {
        let _ = writeln!(self.orders, "{text}").and_then(|()| self.orders.flush());
    }

    fn nonsense(&self, what: &str) -> Error {
        let what = format!("the loader says what can't be: {what}");
        Error::corrupt(what, format!("--loader {}", self.loader.name())).hint("nothing else may print on its output")
    }

    fn line(&mut self, line: &str, watch: &mut dyn Watch) -> Result<()> {
        let heard: Line = serde_json::from_str(line)
            .map_err(|_| self.nonsense(&line.trim_end().chars().take(200).collect::<String>()))?;
        match heard {
            Line::Ready { ready } if ready == self.epochs.len() as u64 + 1 && ready <= self.job.epochs => {
                // Nobody reads while others still empty caches.
                self.among.ranks.barrier()?;
                self.cold = watch.begin(ready)?;
                self.among.ranks.barrier()?;
                self.order("");
                Ok(())
            }
            Line::Meet { .. } if self.job.replicas > self.job.accelerators => {
                self.among.ranks.barrier()?;
                self.order("");
                Ok(())
            }
            Line::Meet { .. } => Err(self.nonsense("it waits for other ranks, and there are none")),
            Line::Ready { ready } => Err(self.nonsense(&format!("epoch {ready} after {}", self.epochs.len()))),
            Line::Progress { progress: Progress { epoch, step, steps } } => {
                watch.made(epoch, step, steps);
                Ok(())
            }
            Line::Missing { missing } => {
                let on = format!("--loader {}", self.loader.name());
                Err(Error::missing(format!("this Python lacks the library: {missing}"), on).hint(self.loader.cure()))
            }
            Line::Refusal { refusal } => Err(Error::invalid(refusal.what, refusal.on).hint(refusal.r#try)),
            Line::Part(part) => self.part(part),
        }
    }

    fn part(&mut self, part: Part) -> Result<()> {
        let numbers = part.steps.iter().flat_map(|lap| [lap.0, lap.1, lap.2, lap.3, lap.4, lap.5, lap.6]);
        let sound = numbers.chain([part.seconds]).all(|number| (0.0..1e9).contains(&number));
        let steps = self.parts.first().map_or(part.steps.len(), |first| first.steps.len());
        let fits = part.epoch == self.epochs.len() as u64 + 1
            && part.accelerator < self.job.accelerators
            && self.parts.iter().all(|other| other.accelerator != part.accelerator)
            && part.steps.len() == steps
            && steps >= 2
            && part.samples == self.job.batch.saturating_mul(steps as u64);
        if !sound || !fits {
            let Part { epoch, accelerator, samples, .. } = part;
            let what =
                format!("epoch {epoch} of accelerator {accelerator}: {} steps, {samples} samples", part.steps.len());
            return Err(self.nonsense(&what));
        }
        self.parts.push(part);
        if self.parts.len() as u64 == self.job.accelerators {
            let epoch = self.gathered()?;
            self.epochs.push(epoch);
        }
        Ok(())
    }

    /// The epoch that has ended: at rank 0 of all ranks.
    fn gathered(&mut self) -> Result<Epoch> {
        let Among { ranks, node } = self.among;
        let own = Share { node: node.to_owned(), cold: self.cold, parts: std::mem::take(&mut self.parts) };
        let shares = crate::gathered(ranks, &own)?;
        Ok(joined(if ranks.rank() == 0 { &shares } else { std::slice::from_ref(&own) }, self.job))
    }
}

/// Utilisation of one accelerator in percent: as the native loop has it, and as DLIO has it, without the first step alone.
fn utilisation(laps: &[Lap], job: &Job) -> (f64, f64) {
    let (first, last) = (laps[0], laps[laps.len() - 1]);
    let steady = job.steady();
    let ends: Vec<(Moment, Moment)> = laps.iter().map(|lap| (nanoseconds(lap.end()), nanoseconds(lap.end()))).collect();
    let ready = laps.iter().enumerate().map(|(number, lap)| {
        let next = laps[number + 1..].iter().take(steady.lead as usize);
        next.filter(|next| next.6 <= lap.end()).count() as u64
    });
    let counted = steady.counted(laps.len() as u64);
    let track = Track {
        begun: 0,
        ends: &ends,
        ready: &ready.collect::<Vec<_>>(),
        lanes: 1,
        step: nanoseconds(job.step_seconds),
        counted: counted.start as usize..counted.end as usize,
    };
    // DLIO leaves the load and the computing of the first step out, and not what it waited for the others.
    let computed: f64 = laps[1..].iter().map(|lap| lap.2).sum();
    let took = (last.end() - first.1 - first.2).max(f64::MIN_POSITIVE);
    (track.utilisation(), 100.0 * computed / took)
}

/// The epoch of all accelerators.
fn joined(shares: &[Share], job: &Job) -> Epoch {
    let parts: Vec<&Part> = shares.iter().flat_map(|share| &share.parts).collect();
    let steps = parts[0].steps.len();
    let counted = job.steady().counted(steps as u64);
    let counted = counted.start as usize..counted.end as usize;
    let count = parts.len() as f64;
    let seconds = parts.iter().map(|part| part.seconds).fold(0.0, f64::max);
    let (samples, bytes) = (parts.iter().map(|part| part.samples).sum(), parts.iter().map(|part| part.bytes).sum());
    let each = parts.iter().map(|part| utilisation(&part.steps, job));
    let (nominal, dlio) = each.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let mut waits = BTreeMap::new();
    let mut between: Vec<f64> = Vec::new();
    for part in &parts {
        for lap in part.steps[..counted.start].iter().chain(&part.steps[counted.end..]) {
            *waits.entry("start".to_owned()).or_insert(0.0) += lap.1 + lap.3;
        }
        for lap in &part.steps[counted.clone()] {
            let known = (lap.4 + lap.5).min(lap.1);
            for (cause, seconds) in [
                ("store", lap.4.min(known)),
                ("cpu", known - lap.4.min(known)),
                ("loader", lap.1 - known),
                ("barrier", lap.3),
            ] {
                *waits.entry(cause.to_owned()).or_insert(0.0) += seconds;
            }
        }
        between.extend(part.steps[counted.start - 1..counted.end].windows(2).map(|pair| pair[1].0 - pair[0].0));
    }
    between.sort_by(f64::total_cmp);
    let at = |share: f64| between[((between.len() - 1) as f64 * share).ceil() as usize];
    let percentiles = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
    Epoch {
        repetition: 1,
        epoch: parts[0].epoch,
        cold: shares.iter().all(|share| share.cold),
        seconds,
        steps: steps as u64,
        steps_counted: counted.len() as u64,
        samples,
        au_percent: nominal / count,
        au_dlio_percent: dlio / count,
        samples_per_second: samples as f64 / seconds.max(f64::MIN_POSITIVE),
        bytes_per_second: bytes as f64 / seconds.max(f64::MIN_POSITIVE),
        wait_seconds_by_cause: waits,
        bytes: BTreeMap::from([("asked".to_owned(), bytes)]),
        step_seconds: percentiles.map(|(name, share)| (name.to_owned(), at(share))).into(),
        step_histogram: buckets(between.iter().map(|took| Duration::from_secs_f64(took.max(0.0)))),
        processes: if shares.len() > 1 { shares.iter().zip(0..).map(process).collect() } else { Vec::new() },
        ..Epoch::default()
    }
}

/// What one rank did.
fn process((share, rank): (&Share, u64)) -> Process {
    let seconds = share.parts.iter().map(|part| part.seconds).fold(0.0, f64::max);
    let samples = share.parts.iter().map(|part| part.samples).sum();
    Process {
        node: share.node.clone(),
        rank,
        epoch: share.parts[0].epoch,
        samples,
        seconds,
        samples_per_second: samples as f64 / seconds.max(f64::MIN_POSITIVE),
        ..Process::default()
    }
}

#[cfg(test)]
mod tests;
