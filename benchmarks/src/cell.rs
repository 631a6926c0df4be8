//! Measuring one cell: a reader over a mount, and what everyone else spent meanwhile.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::dataset::Scale;
use crate::interrupt;
use crate::mount::Mounted;
use crate::process;
use crate::read::Outcome;
use crate::record::Sample;
use crate::server::{Server, counted};
use crate::workload::Phase;

/// Written and deleted before a cell that needs fresh pages: the copy in a cache and what the kernel keeps of it.
const FRESHENED: usize = 2 << 30;
const PIECE: usize = 1 << 20;

/// Memory is looked at this often; a look costs some 0.1 ms.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// A daemon is at rest when it spent no more than one step of the kernel's count in this time ...
const REST_WINDOW: Duration = Duration::from_millis(150);
const REST_SECONDS: f64 = 0.0101;
/// ... and is given up on after this: a timer of its own must not stop the run.
const REST_LIMIT: Duration = Duration::from_secs(5);

/// What stays the same from cell to cell.
pub struct Bench {
    pub scale: Scale,
    pub logs: PathBuf,
    /// For one reader.
    pub limit: Duration,
}

impl Bench {
    /// Measures into `sample`, which says what to measure.
    pub fn measure(&self, mounted: &Mounted, server: &mut Server, sample: &mut Sample) -> Result<()> {
        let pids = mounted.pids();
        rest(&pids)?;
        if sample.phase != Phase::Kept && sample.workload.reads_files() {
            freshen_memory(&self.logs)?;
        }
        process::forget_peak(&pids);
        let requests = server.counters()?;
        let before = Spent::now(&pids, server);
        let (outcome, anonymous) = watched(&pids, || self.read(mounted.root(), sample, false));
        let outcome = outcome?;
        let ended = Instant::now();
        rest(&pids)?;
        let after = Spent::now(&pids, server);
        sample.rest_seconds = ended.elapsed().as_secs_f64();
        sample.seconds = outcome.seconds;
        sample.passes = outcome.passes;
        sample.items = outcome.items;
        sample.bytes = outcome.bytes;
        sample.touched_bytes = outcome.touched_bytes;
        sample.errors = outcome.errors;
        sample.wrong_tags = outcome.wrong_tags;
        sample.first_error = outcome.first_error;
        sample.reader_cpu_seconds = outcome.cpu_seconds;
        sample.daemon_cpu_seconds = after.daemon - before.daemon;
        sample.server_cpu_seconds = after.server - before.server;
        sample.machine_cpu_seconds = after.machine - before.machine;
        sample.daemon_anonymous_peak_bytes = anonymous;
        sample.daemon_resident_peak_bytes = process::memory(&pids).peak;
        sample.requests = counted(&requests, &server.counters()?);
        Ok(())
    }

    /// Reads the whole of the big file, unmeasured.
    pub fn fill(&self, mounted: &Mounted, sample: &Sample) -> Result<()> {
        self.read(mounted.root(), sample, true)?;
        rest(&mounted.pids())
    }

    fn read(&self, root: &Path, sample: &Sample, fill: bool) -> Result<Outcome> {
        let seed = u64::from(sample.round) << 8 | sample.phase as u64;
        // By this name the running program is found even when its file was built anew meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("read")
            .arg("--root")
            .arg(root)
            .args(["--workload", sample.workload.name(), "--phase", sample.phase.name()])
            .args(["--scale", self.scale.name(), "--seed", &seed.to_string()]);
        if fill {
            command.arg("--fill");
        }
        let output = self.logs.join("reader.json");
        let said = process::run(&mut command, &output, self.limit).context("the reader")?;
        serde_json::from_str(&said).context("understanding what the reader said")
    }
}

/// Takes free memory into the page cache once and gives it back. The host of a virtual machine takes idle memory away
/// within seconds, and whoever needs it next pays for its return: 1.2 CPU seconds per GB and more here, six times what
/// writing costs. Memory of a process would not do: it is taken from smaller blocks than pages of large files are.
fn freshen_memory(folder: &Path) -> Result<()> {
    let path = folder.join("fresh-memory");
    let mut file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let piece = vec![1; PIECE];
    let wrote = (0..FRESHENED / PIECE).try_for_each(|_| file.write_all(&piece));
    fs::remove_file(&path)?;
    wrote.with_context(|| format!("writing {}", path.display()))
}

/// CPU seconds until now.
struct Spent {
    daemon: f64,
    server: f64,
    machine: f64,
}

impl Spent {
    fn now(pids: &[u32], server: &Server) -> Spent {
        Spent { daemon: process::cpu_seconds(pids), server: server.cpu_seconds(), machine: machine_seconds() }
    }
}

/// Waits until these processes do nothing.
pub fn rest(pids: &[u32]) -> Result<()> {
    let start = Instant::now();
    let mut last = process::cpu_seconds(pids);
    while !pids.is_empty() && start.elapsed() < REST_LIMIT {
        interrupt::check()?;
        thread::sleep(REST_WINDOW);
        let now = process::cpu_seconds(pids);
        if now - last < REST_SECONDS {
            return Ok(());
        }
        last = now;
    }
    Ok(())
}

/// Does `work` while the anonymous memory of these processes is watched; gives its peak.
fn watched<T>(pids: &[u32], work: impl FnOnce() -> T) -> (T, u64) {
    let peak = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let look = || peak.fetch_max(process::memory(pids).anonymous, Ordering::Relaxed);
    let done = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                look();
                thread::park_timeout(SAMPLE_EVERY);
            }
            look();
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        done
    });
    (done, peak.into_inner())
}

/// All CPUs together, from /proc/stat: everything but idle and waiting for disks.
fn machine_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, waiting, interrupts, soft interrupts, stolen; guests are in user.
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index)).sum::<u64>();
    busy as f64 / rustix::param::clock_ticks_per_second() as f64
}
