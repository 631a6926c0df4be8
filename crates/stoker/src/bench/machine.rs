//! This machine as a measurement sees it: what it is, what its kernel counts, and how its caches are emptied.
//!
//! It judges nothing. Invariant: caches of files count as emptied only where `bench::cold` has proved it; of a store this
//! machine keeps nothing, and what the store itself keeps is dropped by the user's command alone.

use crate::mount;
use ::bench::cold::Cooler;
use ::bench::room::Room;
use ::bench::samples::{Run, Set};
use ::bench::train::Cause;
use ::bench::train::counters::{Counters, Tiers, disk, read_bytes, received};
use block::{Error, Result};
use ranks::Ranks;
use report::Environment;
use std::collections::BTreeSet;
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

/// Files of a set that are asked what they lie on.
const LOOKED_AT: usize = 64;

/// Whether what the kernel counts for a process is what it asked of the storage: compressed files come as fewer bytes, and
/// ZFS counts those of its own memory too.
fn is_counted(kind: &str, options: &str) -> bool {
    let is_compressed = options.split(',').any(|option| option.starts_with("compress"));
    (LOCAL.contains(&kind) || COUNTED.contains(&kind)) && kind != "zfs" && !is_compressed
}

/// Whether a network interface hands on what others receive.
fn is_stacked(interface: &str) -> bool {
    let links = fs::read_dir(format!("/sys/class/net/{interface}")).into_iter().flatten().flatten();
    links.into_iter().any(|link| link.file_name().to_string_lossy().starts_with("lower_"))
}

pub struct Machine {
    pub node: String,
    pub environment: Environment,
    /// Seconds since 1970.
    pub started: f64,
    folder: Option<PathBuf>,
    /// Kinds and options of the file systems that the target's files lie on.
    systems: Vec<(String, String)>,
    /// Numbers of the device below the folder.
    device: Option<(u32, u32)>,
    cooler: Cooler,
}

impl Machine {
    /// `drop` is a command that drops the target's own caches.
    pub fn look(target: &str, drop: Option<&str>) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let folder = fs::canonicalize(target).ok().filter(|folder| folder.is_dir());
        let device = folder.as_deref().and_then(number);
        let memory = read("/proc/meminfo");
        let above = folder.as_deref().and_then(::mount::above);
        let processor = read("/proc/cpuinfo").lines().find_map(|line| {
            let (name, model) = line.split_once(':')?;
            (name.trim() == "model name").then(|| model.trim().to_owned())
        });
        let kilobytes =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Machine {
            node: read("/proc/sys/kernel/hostname"),
            environment: Environment {
                version: env!("CARGO_PKG_VERSION").into(),
                commit: option_env!("STOKER_COMMIT").map(str::to_owned),
                processor,
                kernel: read("/proc/sys/kernel/osrelease"),
                processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
                memory_bytes: kilobytes.unwrap_or(0_u64) * 1024,
                file_system: above.as_ref().map(|above| above.kind.clone()),
                mount_options: above.as_ref().map(|above| above.options.clone()),
                ranks: 1,
            },
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |passed| passed.as_secs_f64()),
            folder,
            systems: above.into_iter().map(|above| (above.kind, above.options)).collect(),
            device,
            cooler: Cooler { command: drop.map(str::to_owned) },
        }
    }

    /// Of a set below the folder, what its files lie on: another file system may be mounted between.
    pub fn settle(&mut self, files: &[Listed]) {
        let Some(folder) = self.folder.as_ref().filter(|_| !files.is_empty()) else { return };
        let some = files.iter().step_by(files.len().div_ceil(LOOKED_AT)).map(|file| folder.join(&*file.name));
        let some: Vec<PathBuf> = some.collect();
        let systems: BTreeSet<_> =
            some.iter().filter_map(|file| ::mount::above(file)).map(|above| (above.kind, above.options)).collect();
        self.systems = systems.into_iter().collect();
        let joined = |of: fn(&(String, String)) -> &String| {
            let names: BTreeSet<&str> = self.systems.iter().map(|system| of(system).as_str()).collect();
            (!names.is_empty()).then(|| Vec::from_iter(names).join(" and "))
        };
        (self.environment.file_system, self.environment.mount_options) =
            (joined(|system| &system.0), joined(|system| &system.1));
        let mut devices = some.iter().filter_map(|file| number(file));
        let first = devices.next();
        self.device = first.filter(|first| devices.all(|device| device == *first));
    }

    /// What bytes of the target are waited for.
    pub fn transfer(&self) -> Cause {
        let is_local = !self.systems.is_empty() && self.systems.iter().all(|(kind, _)| LOCAL.contains(&&**kind));
        if is_local { Cause::Disk } else { Cause::Store }
    }

    /// What the kernel counts now, and what was asked of a store if the target is one.
    pub fn counters(&self, store: Option<Counts>) -> Counters {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (network, loopback) = received(&read("/proc/net/dev"), &is_stacked);
        let disk = self.device.and_then(|(major, minor)| disk(&read("/proc/diskstats"), major, minor));
        let (throttled, errors) = store
            .map_or((0, 0), |store| (store.throttled, store.errors + store.retries.saturating_sub(store.throttled)));
        let is_counted =
            !self.systems.is_empty() && self.systems.iter().all(|(kind, options)| is_counted(kind, options));
        let given = if is_counted { read_bytes(&read("/proc/self/io")) } else { None };
        Counters { network, loopback, disk, given, throttled, errors }
    }

    /// Empty the caches of these files on the machines of all ranks, which call this together, and look for what stayed on
    /// this one. Whether they are proved to be cold here.
    pub fn empty(&self, ranks: &dyn Ranks, files: &[Listed]) -> Result<bool> {
        self.cooler.drop_on_all(ranks, &self.node)?;
        // A store is read over the network; this machine keeps nothing of it.
        let Some(folder) = &self.folder else { return Ok(true) };
        let paths: Vec<PathBuf> = files.iter().map(|file| folder.join(&*file.name)).collect();
        Ok(self.cooler.cool_dropped(folder, &paths, Vec::new())?.cold)
    }

    /// What a mount of Stoker's own counts of where its bytes came from.
    pub fn tiers(&self) -> Option<Tiers> {
        self.environment.file_system.as_ref().filter(|kind| *kind == "fuse.stoker")?;
        let (_, status, path) = mount::node_of(self.folder.as_ref()?).ok()?;
        let around = status.mounts.iter().filter(|mount| path.starts_with(&mount.path) && !mount.detached);
        let served = around.max_by_key(|mount| mount.path.len())?.bytes_served;
        Some(Tiers { store: status.tiers.origin.bytes, served })
    }

    /// What the file system of a folder has left, where it says so. Ranks of several machines that mount the same server name
    /// it alike; disks of their own they don't.
    pub fn room(&self) -> Option<Room> {
        let folder = self.folder.as_ref()?;
        let (found, mounted) = (rustix::fs::statvfs(folder).ok()?, ::mount::above(folder)?);
        let bytes = found.f_blocks.saturating_mul(found.f_frsize);
        let is_own = LOCAL.contains(&mounted.kind.as_str());
        let whose = if is_own { format!("{} {:?}", self.node, self.device) } else { mounted.source.clone() };
        (bytes > 0).then(|| Room {
            system: format!("{} {whose} {bytes}", mounted.kind),
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            folder: folder.display().to_string(),
        })
    }

    /// Make caches forget ranges of a set, on all ranks together. Gives those that were in memory.
    pub fn forget(&self, ranks: &dyn Ranks, set: &Set, runs: &[Run]) -> Result<Vec<Run>> {
        self.cooler.drop_on_all(ranks, &self.node)?;
        let Some(folder) = self.folder.as_ref().filter(|_| !runs.is_empty()) else { return Ok(Vec::new()) };
        let ranges: Vec<_> =
            runs.iter().map(|run| (folder.join(&*set.files[run.file].name), run.range.clone())).collect();
        let were = self.cooler.forget(folder, &ranges)?;
        Ok(runs.iter().zip(were).filter(|(_, was)| *was).map(|(run, _)| run.clone()).collect())
    }
}

/// The device that something lies on.
fn number(path: &Path) -> Option<(u32, u32)> {
    let found = fs::metadata(path).ok()?;
    Some((rustix::fs::major(found.dev()), rustix::fs::minor(found.dev())))
}

/// A seed of this run alone. Other programs read it as a number without loss: JSON is often read into 64-bit floats.
pub fn seed() -> u64 {
    const BITS: u32 = 53;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64);
    (now ^ u64::from(std::process::id()) << 32) % (1 << BITS)
}

/// Mappings of memory that a reader's thread takes: two stacks with a guard each, and its buffer.
const MAPPINGS_OF_THREAD: u64 = 5;

/// Refuse more readers than this machine has threads for: starting as many as it has takes minutes, and then fails.
pub fn can_start(readers: u64) -> Result<()> {
    let limit = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok();
    let mapped = limit("vm/max_map_count").map(|most: u64| most / MAPPINGS_OF_THREAD);
    let most = [limit("kernel/threads-max"), limit("kernel/pid_max"), mapped];
    let most = most.into_iter().flatten().min().unwrap_or(u64::MAX);
    if readers < most {
        return Ok(());
    }
    let what = format!("this machine runs at most {most} threads, and each reader is one");
    Err(Error::invalid(what, format!("{readers} readers"))
        .hint("ask for fewer --accelerators, fewer threads of each with --set threads=N, or more ranks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_a_folder_says_what_it_ran_on() {
        let scratch = tempfile::tempdir().unwrap();
        let found = Machine::look(&scratch.path().display().to_string(), None).environment;
        assert!(found.file_system.is_some() && found.mount_options.is_some(), "{found:?}");
        let has_model = fs::read_to_string("/proc/cpuinfo").unwrap().contains("model name");
        assert_eq!(found.processor.is_some_and(|name| !name.is_empty()), has_model);
        assert!(found.commit.is_none_or(|commit| commit.trim_end_matches('+').len() >= 7));
        assert_eq!(Machine::look("null:", None).environment.mount_options, None);
    }

    #[test]
    fn what_the_files_lie_on_counts_and_not_what_the_folder_does() {
        // The kernel's own file systems are mounted below the root of every Linux.
        let mut machine = Machine::look("/", None);
        let listed = |name: &str| Listed { name: name.into(), bytes: 1 };
        machine.settle(&[listed("proc/uptime"), listed("proc/version")]);
        assert_eq!(machine.environment.file_system.as_deref(), Some("proc"));
        assert_eq!((machine.transfer(), machine.device), (Cause::Store, number(Path::new("/proc/uptime"))));
        machine.settle(&[listed("proc/uptime"), listed("sys/kernel/uevent_seqnum")]);
        assert_eq!(machine.environment.file_system.as_deref(), Some("proc and sysfs"));
        assert_eq!(machine.device, None, "no disk of the two is that of the set");
    }

    #[test]
    fn the_command_drops_caches_of_a_store_before_what_is_read_of_it() {
        let scratch = tempfile::tempdir().unwrap();
        let dropped = scratch.path().join("dropped");
        let command = format!("echo >> '{}'", dropped.display());
        let machine = Machine::look("null:", Some(&command));
        let set = Set::imagined(&workload::shipped("unet3d").unwrap().files, 1, 1);
        let runs = [Run { file: 0, range: 0..1 }];
        assert_eq!(machine.forget(&ranks::Alone, &set, &runs).unwrap(), [], "nothing was in memory");
        assert_eq!(fs::read_to_string(&dropped).unwrap().lines().count(), 1);
    }

    #[test]
    fn more_readers_than_threads_are_refused() {
        assert!(can_start(1).is_ok());
        assert!(can_start(1 << 40).unwrap_err().hint.contains("fewer"));
    }
}
