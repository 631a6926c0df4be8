//! This machine as a measurement sees it: what it is, what its kernel counts, and how its caches are emptied.
//!
//! It judges nothing. Invariant: caches count as emptied only where `bench::cold` has proved it.

use ::bench::cold::Cooler;
use ::bench::samples::{Run, Set};
use ::bench::train::Cause;
use ::bench::train::counters::{Counters, disk, read_bytes, received};
use block::Result;
use report::Environment;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use store::Counts;
use targets::Listed;

/// File systems whose bytes lie on this machine's own disks or in its memory.
const LOCAL: [&str; 10] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "ramfs"];

/// Others of which the kernel counts too, for each process, what was read from their disks and servers.
const COUNTED: [&str; 6] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "vfat"];

pub struct Machine {
    pub node: String,
    pub environment: Environment,
    /// Seconds since 1970.
    pub started: f64,
    folder: Option<PathBuf>,
    /// Numbers of the device below the folder.
    device: Option<(u32, u32)>,
    cooler: Cooler,
}

impl Machine {
    /// `drop` is a command that drops the target's own caches.
    pub fn look(target: &str, drop: Option<&str>) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let folder = fs::canonicalize(target).ok().filter(|folder| folder.is_dir());
        let device = folder
            .as_ref()
            .and_then(|folder| fs::metadata(folder).ok())
            .map(|found| (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev())));
        let memory = read("/proc/meminfo");
        let kilobytes =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Machine {
            node: read("/proc/sys/kernel/hostname"),
            environment: Environment {
                version: env!("CARGO_PKG_VERSION").into(),
                kernel: read("/proc/sys/kernel/osrelease"),
                processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
                memory_bytes: kilobytes.unwrap_or(0_u64) * 1024,
                file_system: folder.as_deref().and_then(file_system),
                ranks: 1,
            },
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |passed| passed.as_secs_f64()),
            folder,
            device,
            cooler: Cooler { command: drop.map(str::to_owned) },
        }
    }

    /// What the kernel counts now, and what was asked of a store if the target is one.
    pub fn counters(&self, store: Option<Counts>) -> Counters {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (network, loopback) = received(&read("/proc/net/dev"));
        let disk = self.device.and_then(|(major, minor)| disk(&read("/proc/diskstats"), major, minor));
        let (throttled, errors) = store
            .map_or((0, 0), |store| (store.throttled, store.errors + store.retries.saturating_sub(store.throttled)));
        let system = self.environment.file_system.as_deref();
        let counted = system.is_some_and(|name| LOCAL.contains(&name) || COUNTED.contains(&name));
        let given = if counted { read_bytes(&read("/proc/self/io")) } else { None };
        Counters { network, loopback, disk, given, throttled, errors }
    }

    /// Empty the kernel's caches of these files, and look for what stayed. Whether they are proved to be cold.
    pub fn empty(&self, files: &[Listed]) -> Result<bool> {
        let Some(folder) = &self.folder else { return Ok(self.cooler.cool_store()?.cold) };
        let paths: Vec<PathBuf> = files.iter().map(|file| folder.join(&*file.name)).collect();
        Ok(self.cooler.cool_files(folder, &paths)?.cold)
    }

    /// Make caches forget ranges of a set. Gives those that were in memory.
    pub fn forget(&self, set: &Set, runs: &[Run]) -> Result<Vec<Run>> {
        let Some(folder) = self.folder.as_ref().filter(|_| !runs.is_empty()) else { return Ok(Vec::new()) };
        let ranges: Vec<_> =
            runs.iter().map(|run| (folder.join(&*set.files[run.file].name), run.range.clone())).collect();
        let were = self.cooler.forget(folder, &ranges)?;
        Ok(runs.iter().zip(were).filter(|(_, was)| *was).map(|(run, _)| run.clone()).collect())
    }
}

/// What bytes of a target are waited for.
pub fn transfer(target: &str) -> Cause {
    let local = fs::canonicalize(target).ok().and_then(|folder| file_system(&folder));
    if local.is_some_and(|name| LOCAL.contains(&name.as_str())) { Cause::Disk } else { Cause::Store }
}

/// The type of the file system that a folder lies on: that of the longest mount point above it.
fn file_system(folder: &Path) -> Option<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = text.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let point = front.split(' ').nth(4)?.replace("\\040", " ");
        folder.starts_with(&point).then(|| (point.len(), back.split(' ').next().unwrap_or_default().to_owned()))
    });
    // Of mounts over each other the last is what is seen.
    mounts.max_by_key(|(length, _)| *length).map(|(_, name)| name)
}

/// Readers keep files open: as many as this user may.
pub fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
