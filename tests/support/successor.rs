//! The process that goes on with the mounts of another.
//!
//! Invariant: where there can't be one, the test says so and is left out.

use super::{Bed, eventually};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// `None`, and said so, where a mount can't outlive its process.
pub fn bed() -> Option<Bed> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux says which it is");
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(9)) {
        eprintln!("SKIPPED: this kernel does not ask again what was not answered (Linux 6.9 or later does)");
        return None;
    }
    Bed::new()
}

pub fn pid(bed: &Bed) -> u32 {
    bed.status()["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("it has a number")
}

/// The process that serves, once it is another than this one and goes on with everything.
pub fn next(bed: &Bed, before: u32) -> u32 {
    let is_there = |node: &&Value| node["coming"].is_null();
    let serves = || bed.nodes().first().filter(is_there)?["pid"].as_u64().filter(|pid| *pid != u64::from(before));
    eventually("another process goes on", || serves().is_some());
    pid(bed)
}

/// Give a command the environment that commands have in a bed.
pub fn as_in(bed: &Bed, command: &mut Command) {
    for (name, value) in bed.stoker([""]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}
