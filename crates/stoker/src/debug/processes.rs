//! What the kernel says of each process of this program: what it was told, what it may use, where its threads wait. A node that
//! hangs says nothing itself.
//!
//! It only reads, and of each process a bounded part. Invariant: what a process has in its environment is in no text.

use super::beginning;
use crate::bench::typed::told;
use std::path::Path;

/// Processes that are looked at.
const PROCESSES: usize = 256;

/// Threads of each.
const THREADS: usize = 128;

/// How the name of each begins, also of those that `stoker up` brought.
const NAME: &str = "stoker";

pub struct Process {
    pub pid: u32,
    /// For whoever looks for secrets.
    pub environment: Vec<(String, String)>,
    pub text: String,
}

/// All but this one, as far as this user may look at them.
pub fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let is_ours = |pid: &u32| *pid != std::process::id() && text(*pid, "comm").starts_with(NAME);
    numbers.into_iter().filter(is_ours).take(PROCESSES).map(look).collect()
}

fn text(pid: u32, file: &str) -> String {
    beginning(&Path::new("/proc").join(pid.to_string()).join(file)).unwrap_or_default()
}

fn look(pid: u32) -> Process {
    let words = text(pid, "cmdline");
    let mut said = format!("command: {}\n\n", told(words.trim_end_matches('\0').split('\0').map(str::to_owned)));
    for file in ["status", "limits", "cgroup", "io"] {
        said += &format!("{file}:\n{}\n", text(pid, file));
    }
    said += &threads(pid);
    Process { pid, environment: environment(&text(pid, "environ")), text: said }
}

/// What each thread does, and, for who may know, where it waits in the kernel.
fn threads(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut out = "threads:\n".to_owned();
    for task in tasks.take(THREADS) {
        let of = |file: &str| beginning(&task.path().join(file)).unwrap_or_default();
        let status = of("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default().trim().to_owned();
        let (number, name, waits) = (task.file_name(), of("comm"), of("wchan"));
        out += &format!("{} {} {state} {waits}\n", number.to_string_lossy(), name.trim());
        out += &of("stack").lines().map(|line| format!("    {line}\n")).collect::<String>();
    }
    out
}

fn environment(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_tells_its_threads_and_keeps_its_environment_apart() {
        let own = look(std::process::id());
        let threads = own.text.split("threads:\n").nth(1).expect("threads");
        assert!(threads.lines().next().is_some_and(|line| line.split(' ').count() >= 4), "{threads}");
        assert!(own.text.starts_with("command: [\"") && own.text.contains("Max open files"), "{}", own.text);
        let path = own.environment.iter().find(|(name, _)| name == "PATH").expect("a path");
        assert!(!own.text.contains(&path.1));
        assert_eq!(environment("A=b=c\0D\0"), [("A".to_owned(), "b=c".to_owned())]);
    }
}
