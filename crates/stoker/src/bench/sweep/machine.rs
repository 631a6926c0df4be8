//! The machine on which a sweep runs, for its report.

use ::bench::report::Environment;
use std::path::Path;

pub fn environment(folder: &Path, ranks: u64) -> Environment {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let memory = text("/proc/meminfo");
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> = total.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok());
    Environment {
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: text("/proc/sys/kernel/osrelease").trim().into(),
        processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
        memory_bytes: kib.unwrap_or(0) << 10,
        file_system: file_system(folder),
        ranks,
    }
}

/// The type of the longest mount point above the folder, from mountinfo (proc(5)).
fn file_system(folder: &Path) -> Option<String> {
    let folder = std::fs::canonicalize(folder).ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let found = mounts.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let point = place.split(' ').nth(4)?.replace("\\040", " ");
        folder.starts_with(&point).then(|| (point.len(), kind.split(' ').next().unwrap_or_default().to_owned()))
    });
    // Of mounts over each other the last is seen.
    found.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}
