//! A mount outlives the process that serves it: killed, restarted or upgraded, what is open stays open, and whoever reads
//! waits a moment.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use support::content::{Chance, compare, noise, same};
use support::{Bed, Daemon, LONG, eventually, has_ended, is_keeper, keeper_of, kill_for_good, mounts, signal};

const MIB: usize = 1 << 20;

/// `None`, and said so, where a mount can't outlive its process.
fn bed() -> Option<Bed> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux says which it is");
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(9)) {
        eprintln!("SKIPPED: this kernel does not ask again what was not answered (Linux 6.9 or later does)");
        return None;
    }
    Bed::new()
}

fn pid(bed: &Bed) -> u32 {
    bed.status()["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("it has a number")
}

/// The process that serves, once it is another than this one.
fn next(bed: &Bed, before: u32) -> u32 {
    let serves = || bed.nodes().first().and_then(|node| node["pid"].as_u64()).filter(|pid| *pid != u64::from(before));
    eventually("another process goes on", || serves().is_some());
    pid(bed)
}

/// Readers of all files in a random order for as long as something is done; how many files were read.
fn while_reading(bed: &Bed, count: u64, doing: impl FnOnce()) -> u64 {
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let names: Vec<_> = support::content::files(&bed.path("data")).into_iter().collect();
    std::thread::scope(|scope| {
        for reader in 0..count {
            let (stop, reads, mut names) = (&stop, &reads, names.clone());
            scope.spawn(move || {
                let mut chance = Chance::new(reader);
                while !stop.load(Relaxed) {
                    chance.shuffle(&mut names);
                    for name in names.iter().take(8) {
                        let (read, whole) =
                            (fs::read(bed.path("mnt").join(name)), fs::read(bed.path("data").join(name)));
                        same(&read.expect("a read"), &whole.expect("the original"), &name.display().to_string());
                        reads.fetch_add(1, Relaxed);
                    }
                    let listed = fs::read_dir(bed.path("mnt")).expect("a listing").count();
                    assert_eq!(listed, fs::read_dir(bed.path("data")).expect("the original").count());
                }
            });
        }
        doing();
        stop.store(true, Relaxed);
    });
    reads.load(Relaxed)
}

/// After the end of its mounts: no process, no mount, no socket.
fn nothing_is_left(bed: &Bed, processes: &[u32]) {
    eventually("all processes have ended", || processes.iter().all(|pid| has_ended(*pid)));
    assert_eq!(mounts(bed), 0);
    let left = support::content::files(&bed.path("run"));
    assert!(left.iter().all(|name| name.extension().is_none_or(|end| end != "sock")), "{left:?}");
}

fn fill(bed: &Bed) {
    for (number, bytes) in [0, 1, 4096, 100_000, MIB, MIB + 1, 5 * MIB, 17 * MIB + 3].into_iter().enumerate() {
        for copy in 0..3 {
            bed.put(&format!("{number}/{copy}"), &noise(bytes, number as u64 * 10 + copy));
        }
    }
}

#[test]
fn what_is_open_when_the_process_is_killed_is_read_on_and_what_is_asked_meanwhile_waits() {
    let Some(bed) = bed() else { return };
    fill(&bed);
    bed.set_bandwidth(40 << 20);
    let daemon = bed.mount(&["--fill", "off"]);
    let first = pid(&bed);
    let keeper = keeper_of(first).expect("somebody holds the mount");
    assert_eq!(bed.status()["keeper"], serde_json::json!({"state": "on", "pid": keeper}));
    // Complete, being fetched, and mapped.
    let whole = fs::read(bed.mounted("4/0")).expect("a read");
    let (complete, served) =
        (File::open(bed.mounted("4/0")).expect("it opens"), File::open(bed.mounted("7/0")).expect("it opens"));
    let original = fs::read(bed.data("7/0")).expect("the original");
    let mut part = vec![0; 100_000];
    let mut read_at = |file: &File, at: usize, expected: &[u8]| {
        file.read_exact_at(&mut part, at as u64).expect("it is read on");
        same(&part, &expected[at..at + 100_000], &format!("from {at}"));
    };
    read_at(&served, 0, &original);
    let mut last = first;
    let read = while_reading(&bed, 4, || {
        for kill in 1..3 {
            signal(last, "KILL");
            read_at(&complete, 0, &whole);
            read_at(&served, kill * 5 * MIB, &original);
            last = next(&bed, last);
        }
    });
    assert!(read > 0);
    read_at(&served, 17 * MIB - 100_000, &original);
    drop((complete, served));
    compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.status()["mounts"][0]["restarts"], 2);
    assert_eq!(keeper_of(last), Some(keeper), "the same process holds the mount all the time");
    // The command in the foreground holds it as before.
    daemon.end();
    nothing_is_left(&bed, &[first, last, keeper]);
}

#[test]
fn a_process_makes_way_for_another_program_and_back() {
    let Some(bed) = bed() else { return };
    fill(&bed);
    let _daemon = bed.mount(&[]);
    let (first, other) = (pid(&bed), bed.path("stoker-next"));
    fs::copy(env!("CARGO_BIN_EXE_stoker"), &other).expect("another build");
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
    let read = while_reading(&bed, 4, || {
        let mut upgrade = std::process::Command::new(&other);
        let like = bed.stoker(["restart"]);
        upgrade.arg("restart").arg(bed.path("mnt"));
        like.get_envs().filter_map(|(name, value)| Some((name, value?))).for_each(|(name, value)| {
            upgrade.env(name, value);
        });
        let done = support::finished(&mut upgrade);
        assert!(done.status.success(), "{}", support::text(&done));
        let second = pid(&bed);
        assert_eq!((second != first, program(second)), (true, other.clone()));
        let back = support::finished(bed.stoker(["restart"]).arg(bed.path("mnt")));
        assert!(back.status.success(), "{}", support::text(&back));
        assert_ne!(program(pid(&bed)), other);
    });
    assert!(read > 0);
    assert_eq!(bed.status()["mounts"][0]["restarts"], 2);
}

#[test]
fn who_holds_the_mounts_is_replaced_when_it_is_killed() {
    let Some(bed) = bed() else { return };
    fill(&bed);
    let daemon = bed.mount(&[]);
    let (node, open) = (pid(&bed), File::open(bed.mounted("7/1")).expect("it opens"));
    let keeper = keeper_of(node).expect("somebody holds the mount");
    signal(keeper, "TERM");
    signal(keeper, "KILL");
    let holds = || bed.status()["keeper"]["pid"].as_u64().is_some_and(|pid| pid != u64::from(keeper));
    eventually("another one holds it", holds);
    assert_eq!(
        (pid(&bed), bed.status()["mounts"][0]["restarts"].as_u64()),
        (node, Some(0)),
        "the node was not touched"
    );
    signal(node, "KILL");
    let second = next(&bed, node);
    let (mut read, original) = (vec![0; 17 * MIB + 3], fs::read(bed.data("7/1")).expect("the original"));
    open.read_exact_at(&mut read, 0).expect("it is read on");
    same(&read, &original, &"open across both");
    drop(open);
    let keeper = keeper_of(second).expect("somebody holds the mount");
    daemon.end();
    nothing_is_left(&bed, &[node, second, keeper]);
}

#[test]
fn a_version_that_was_opened_before_a_refresh_is_read_on_by_the_next_process_and_names_are_those_of_now() {
    let Some(bed) = bed() else { return };
    bed.put("old", &noise(3 * MIB, 1));
    bed.put("gone", &noise(1000, 2));
    let _daemon = bed.mount(&[]);
    let loaded = bed.run(["load".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(loaded.status.success(), "{}", support::text(&loaded));
    let old = File::open(bed.mounted("old")).expect("it opens");
    bed.put("old", &noise(3 * MIB, 3));
    bed.put("new", &noise(1000, 4));
    fs::remove_file(bed.data("gone")).expect("it was put");
    let refreshed = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(refreshed.status.success(), "{}", support::text(&refreshed));
    let node = pid(&bed);
    signal(node, "KILL");
    next(&bed, node);
    let mut read = vec![0; 3 * MIB];
    old.read_exact_at(&mut read, 0).expect("it is read on");
    same(&read, &noise(3 * MIB, 1), &"the version that was opened");
    compare(&bed.path("mnt"), &bed.path("data"));
    // And names follow each other over the restart.
    bed.put("newer", &noise(1000, 5));
    let refreshed = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(refreshed.status.success(), "{}", support::text(&refreshed));
    compare(&bed.path("mnt"), &bed.path("data"));
}

#[test]
fn a_store_that_does_not_answer_keeps_no_process_from_going_on() {
    let Some(bed) = bed() else { return };
    fill(&bed);
    let _daemon = bed.mount(&[]);
    compare(&bed.path("mnt"), &bed.path("data"));
    let node = pid(&bed);
    bed.stop_server();
    signal(node, "KILL");
    next(&bed, node);
    compare(&bed.path("mnt"), &bed.path("data"));
}

#[test]
fn a_process_that_ends_again_and_again_is_not_started_for_ever() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let daemon = bed.mount(&[]);
    let mut node = pid(&bed);
    let keeper = keeper_of(node).expect("somebody holds the mount");
    for kill in 0..3 {
        signal(node, "KILL");
        if kill < 2 {
            node = next(&bed, node);
        }
    }
    eventually("nobody holds the mount any more", || has_ended(keeper));
    let dead = fs::metadata(bed.mounted("file")).expect_err("it is dead");
    assert_eq!(dead.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()), "{dead}");
    assert!(daemon.said().contains("its mounts end with it"), "{}", daemon.said());
    eventually("the command says so", || daemon.said().contains("the node ended, and the mount with it"));
    assert!(bed.run(["umount".as_ref(), bed.path("mnt").as_os_str()]).status.success() || mounts(&bed) == 0);
}

#[test]
fn a_command_that_is_killed_while_its_node_is_gone_takes_its_mount_along() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let mut daemon: Daemon = bed.mount(&[]);
    let node = pid(&bed);
    signal(daemon.pid(), "KILL");
    signal(node, "KILL");
    assert!(daemon.waited(LONG).is_some());
    eventually("its mount has ended", || mounts(&bed) == 0);
    eventually("no process is left", || bed.nodes().is_empty());
}

#[test]
fn a_node_that_is_gone_for_good_leaves_nothing_that_starts_it_again() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let daemon = bed.mount(&[]);
    let node = pid(&bed);
    let keeper = keeper_of(node).expect("somebody holds the mount");
    assert!(is_keeper(keeper) && !is_keeper(node));
    kill_for_good(node);
    assert!(fs::metadata(bed.mounted("file")).is_err(), "nobody serves it");
    daemon.kill_and_detach();
    assert!(!Path::new(&format!("/proc/{keeper}")).exists() || has_ended(keeper));
}
