//! A node that goes on with the mounts of another: what it does with those whose store is away, or that have ended
//! meanwhile, and what it hears before it is there.

mod support;

use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;
use support::content::{compare, noise};
use support::{Bed, Daemon, children, eventually, finished, has_ended, keeper_of, mounts_below, signal};

/// Longer than whoever holds a mount may take once a node can be asked.
const UNHEARD: Duration = Duration::from_secs(25);

/// After it two ends of a node count no more.
const FORGOTTEN: Duration = Duration::from_secs(31);

/// Two mounts of one node, of which the second is a folder of the network: a mount of another node, which can be stopped.
struct Away {
    bed: Bed,
    below: Daemon,
    bucket: Daemon,
    folder: Daemon,
}

impl Away {
    fn new() -> Option<Away> {
        let bed = Bed::new()?;
        (0..20).for_each(|number| bed.put(&format!("a/{number}"), &noise(50_000, number)));
        let below = bed.mount(&["--fill", "off"]);
        let cache = bed.path("second").display().to_string();
        let words = ["--fill", "off", "--cache", &cache];
        let bucket = bed.mount_at(&format!("s3://{}", support::BUCKET), "bucket", &words);
        let folder = bed.mount_at(&format!("file://{}", bed.path("mnt").display()), "folder", &words);
        let away = Away { bed, below, bucket, folder };
        if away.node()["keeper"]["state"] != "on" {
            eprintln!("SKIPPED: this kernel does not ask again what was not answered (Linux 6.9 or later does)");
            return None;
        }
        Some(away)
    }

    /// What the node of both says of itself, once one does.
    fn node(&self) -> Value {
        let of_both = |node: &Value| node["cache"].as_str().is_some_and(|cache| cache.ends_with("/second"));
        let found = || self.bed.nodes().into_iter().find(of_both);
        eventually("their node answers", || found().is_some());
        found().expect("it answered")
    }

    fn pid(&self) -> u32 {
        self.node()["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("it has a number")
    }
}

/// The node that a keeper started after this one, once it hears signals.
fn successor(keeper: u32, before: u32) -> u32 {
    let started = || children(keeper).into_iter().find(|child| *child != before);
    let hears = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & 1 << (libc::SIGTERM - 1) != 0)
    };
    eventually("another node is there", || started().is_some_and(hears));
    started().expect("it was there")
}

#[test]
fn a_mount_is_not_ended_as_nobodys_while_another_waits_for_its_store() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    signal(away.below.node(), "STOP");
    signal(first, "KILL");
    std::thread::sleep(UNHEARD);
    signal(away.below.node(), "CONT");
    let after = away.node();
    assert_ne!(after["pid"], u64::from(first));
    assert_eq!(after["mounts"].as_array().map(Vec::len), Some(2), "{after}");
    compare(&away.bed.path("bucket"), &away.bed.path("data"));
    compare(&away.bed.path("folder"), &away.bed.path("data"));
    [away.bucket, away.folder, away.below].into_iter().for_each(Daemon::end);
}

#[test]
fn a_node_that_is_told_to_end_before_it_is_there_ends_what_it_was_to_go_on_with() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    let keeper = keeper_of(first).expect("somebody holds the mounts");
    signal(away.below.node(), "STOP");
    signal(first, "KILL");
    let next = successor(keeper, first);
    signal(next, "TERM");
    eventually("it has ended, and nobody is to start another", || has_ended(next) && has_ended(keeper));
    let left = |name: &str| mounts_below(&away.bed.path(name));
    assert_eq!((left("bucket"), left("folder"), left("mnt")), (0, 0, 1));
    signal(away.below.node(), "CONT");
    away.below.end();
}

#[test]
fn what_was_unmounted_while_there_was_no_node_keeps_no_other_mount_waiting() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    let keeper = keeper_of(first).expect("somebody holds the mounts");
    signal(keeper, "STOP");
    signal(first, "KILL");
    let done = finished(Command::new("umount").arg("-l").arg(away.bed.path("bucket")));
    assert!(done.status.success());
    signal(keeper, "CONT");
    eventually("another node is there", || away.pid() != first);
    let after = away.node();
    let mounts = after["mounts"].as_array().expect("mounts");
    assert!(mounts.len() == 1 && mounts[0]["restarts"] == 1, "the first that came goes on: {after}");
    compare(&away.bed.path("folder"), &away.bed.path("data"));
    [away.folder, away.below].into_iter().for_each(Daemon::end);
}

#[test]
fn a_node_that_goes_on_opens_its_log_anew_as_any_other() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    signal(first, "KILL");
    eventually("another node is there", || away.pid() != first);
    let log = away.node()["log"]["path"].as_str().map(std::path::PathBuf::from).expect("it has a log");
    fs::rename(&log, log.with_extension("old")).expect("it is moved");
    signal(away.pid(), "HUP");
    eventually("there is a new one", || log.exists());
    [away.folder, away.bucket, away.below].into_iter().for_each(Daemon::end);
}

#[test]
fn a_node_that_ends_three_times_with_half_a_minute_between_them_is_started_each_time() {
    let Some(bed) = support::successor::bed() else { return };
    (0..5).for_each(|number| bed.put(&format!("{number}"), &noise(2 << 20, number)));
    let _daemon = bed.mount(&["--fill", "off"]);
    let mut node = support::successor::pid(&bed);
    for kill in 1..4 {
        if kill == 3 {
            std::thread::sleep(FORGOTTEN);
        }
        signal(node, "KILL");
        node = support::successor::next(&bed, node);
        compare(&bed.path("mnt"), &bed.path("data"));
        assert_eq!(bed.status()["mounts"][0]["restarts"], kill);
    }
}
