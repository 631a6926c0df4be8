//! What a command can be confined to: the memory of a control group, a small disk, few descriptors, a clock of its own;
//! and the memory that it takes. Each confine is gone when the test is.

use super::{Bed, Daemon, eventually, finished, is_root, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A control group of version 1 or 2, removed at the end.
pub struct Group(PathBuf);

impl Group {
    /// One of so much memory; `None`, and said so, where none can be made. A name is given once in a process.
    pub fn new(name: &str, bytes: u64) -> Option<Group> {
        Group::of(name, [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")], bytes)
    }

    /// The same, of so many threads.
    pub fn of_threads(name: &str, most: u64) -> Option<Group> {
        Group::of(name, [("/sys/fs/cgroup/pids", "pids.max"), ("/sys/fs/cgroup", "pids.max")], most)
    }

    fn of(name: &str, tops: [(&str, &str); 2], most: u64) -> Option<Group> {
        let folder = format!("stoker-test-{}-{name}", std::process::id());
        let made = tops.into_iter().find_map(|(top, limit)| {
            let folder = Path::new(top).join(&folder);
            fs::create_dir(&folder).ok()?;
            let group = Group(folder);
            fs::write(group.0.join(limit), most.to_string()).is_ok().then_some(group)
        });
        if made.is_none() {
            eprintln!("SKIPPED: no such control group can be made here");
        }
        made
    }

    /// The same command, and all that it starts, within the group.
    pub fn within(&self, inner: &Command) -> Command {
        let join = format!("echo $$ > '{}' && exec \"$@\"", self.0.join("cgroup.procs").display());
        wrapped("sh", &["-c", &join, "sh"], inner)
    }

    /// A process that runs already moves into the group.
    pub fn take(&self, pid: u64) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it moves");
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub fn killed(&self) -> u64 {
        let told = ["memory.oom_control", "memory.events"].map(|name| fs::read_to_string(self.0.join(name)));
        let told: String = told.into_iter().flatten().collect();
        let line = told.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).expect("the kernel counts them")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        eventually("the group is empty and goes", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The most anonymous memory that a node is seen to have before, while and after somebody reads.
pub fn most_memory(daemon: &Daemon, read: impl FnOnce()) -> u64 {
    let (over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let looks = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) || looks < 2 {
                most.fetch_max(daemon.anonymous(), Ordering::Relaxed);
                looks += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            looks
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
        over.store(true, Ordering::Relaxed);
        done.expect("the readers");
        looking.join().expect("the node can be looked at")
    });
    let most = most.into_inner();
    eprintln!("{} MiB of anonymous memory at most, in {looks} looks", most >> 20);
    most
}

/// The same command, run by another.
pub fn wrapped(program: &str, words: &[&str], inner: &Command) -> Command {
    let mut outer = Command::new(program);
    outer.args(words).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Make an ext4 of so many MiB and inodes, and mount it as the cache folder of the bed, whose end unmounts it; whether it could.
pub fn small_cache(bed: &Bed, mebibytes: u64, inodes: u64) -> bool {
    let (image, cache) = (bed.path("cache.ext4"), bed.path("cache"));
    fs::File::create(&image).and_then(|file| file.set_len(mebibytes << 20)).expect("a file for the disk");
    fs::create_dir(&cache).expect("a folder");
    let mut make = Command::new("/sbin/mkfs.ext4");
    make.args(["-q", "-F", "-m", "0", "-O", "^has_journal", "-N"]).arg(inodes.to_string()).arg(&image);
    if !is_root() || !Path::new("/sbin/mkfs.ext4").exists() {
        eprintln!("SKIPPED: no small disk can be made here: that takes root and mkfs.ext4");
        return false;
    }
    let made = finished(&mut make);
    assert!(made.status.success(), "{}", text(&made));
    let mounted = finished(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&cache));
    if !mounted.status.success() {
        eprintln!("SKIPPED: no small disk can be made here: {}", text(&mounted));
        return false;
    }
    // Only its user may enter it.
    std::os::unix::fs::chown(&cache, Some(0), Some(0)).expect("root gives it to itself");
    fs::set_permissions(&cache, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("rights");
    true
}

/// A clock for a command and all that it starts, by libfaketime; the clock that only counts is left alone.
pub struct Clock(PathBuf);

impl Clock {
    /// Ahead of the true one by so many seconds, kept in a file of this path; `None`, and said so, without the library.
    pub fn new(file: PathBuf, seconds: i64) -> Option<Clock> {
        let clock = Clock(file);
        clock.set(seconds);
        if library().is_none() {
            eprintln!("SKIPPED: there is no libfaketime here");
        }
        library().map(|_| clock)
    }

    /// It jumps.
    pub fn set(&self, seconds: i64) {
        let beside = self.0.with_extension("new");
        fs::write(&beside, format!("{seconds:+}")).and_then(|()| fs::rename(&beside, &self.0)).expect("written");
    }

    /// The command goes by it.
    pub fn rule<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_PRELOAD", library().expect("it was found")).env("FAKETIME_TIMESTAMP_FILE", &self.0);
        // Both spellings of the same: of before 0.9.9, and since.
        command.envs([("FAKETIME_NO_CACHE", "1"), ("DONT_FAKE_MONOTONIC", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")])
    }
}

/// The one for programs of many threads, where distributions have it.
fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = folders.flat_map(|folder| [folder.join("faketime"), folder]);
    folders.map(|folder| folder.join("libfaketimeMT.so.1")).find(|path| path.is_file())
}
