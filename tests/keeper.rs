//! A mount outlives the process that serves it: killed, restarted or upgraded, what is open stays open, and whoever reads
//! waits a moment.

mod support;

use emulate::{Latency, Limits, Operation};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use support::content::{Chance, compare, in_time, noise, same};
use support::successor::{as_in, bed, next, pid};
use support::systemd::Systemd;
use support::{Bed, Daemon, LONG, eventually, has_ended, is_keeper, keeper_of, kill_for_good, mounts, signal};

const MIB: usize = 1 << 20;

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
    // Complete, and of what was never read through the mount; and being fetched.
    let loaded = bed.run(["load".as_ref(), bed.mounted("7/1").as_os_str()]);
    assert!(loaded.status.success(), "{}", support::text(&loaded));
    let whole = fs::read(bed.data("7/1")).expect("the original");
    let (complete, served) =
        (File::open(bed.mounted("7/1")).expect("it opens"), File::open(bed.mounted("7/0")).expect("it opens"));
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
            // While nobody starts another.
            signal(keeper, "STOP");
            signal(last, "KILL");
            eventually("it is dead", || has_ended(last));
            // The readers above may have read it through the mount.
            rustix::fs::fadvise(&complete, 0, None, rustix::fs::Advice::DontNeed).expect("pages are dropped");
            let read = in_time(&complete, kill * 6 * MIB, MIB);
            signal(keeper, "CONT");
            same(&read.expect("without any process"), &whole[kill * 6 * MIB..][..MIB], &"complete");
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
fn a_mount_goes_on_by_the_keys_that_it_was_made_with() {
    let Some(bed) = bed().and_then(|_| Bed::with(Some(("AKIDTEST", "a secret of this mount alone")))) else { return };
    bed.put("small", &noise(1000, 1));
    bed.put("large", &noise(5 * MIB, 2));
    // The node is started by a mount that has no keys, so that no environment gives them to the next one.
    bed.put("folder/file", &noise(10, 3));
    let mut without = bed.mounting(&bed.data("folder").display().to_string(), "other", &["--fill", "off"]);
    without.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    fs::create_dir(bed.path("other")).expect("a folder");
    let other = Daemon::start(&mut without, &bed.path("other"), &bed.path("other.log"));
    let daemon = bed.mount(&["--fill", "off"]);
    for _ in 0..2 {
        let node = pid(&bed);
        signal(node, "KILL");
        next(&bed, node);
    }
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
    other.end();
}

#[test]
fn a_load_and_a_refresh_go_on_where_another_process_goes_on() {
    let Some(bed) = bed() else { return };
    fill(&bed);
    bed.set_bandwidth(20 << 20);
    let _daemon = bed.mount(&["--fill", "off"]);
    let at = bed.path("mnt");
    for (word, kind) in [("load", Operation::Get), ("refresh", Operation::List)] {
        let (node, asked) = (pid(&bed), || bed.counters().of(kind).requests);
        let before = asked();
        if word == "refresh" {
            bed.put("new", &noise(1000, 99));
            // No listing is answered before the node is killed.
            let latency = Latency::Fixed(Duration::from_secs(2));
            bed.set_limits(&Limits { latency, ..Limits::default() });
        }
        let mut asking = bed.stoker([word]);
        let mut asking = asking.arg(&at).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        eventually("the store is asked", || asked() > before);
        assert!(asking.try_wait().expect("a child").is_none(), "{word} is done before its node is killed");
        signal(node, "KILL");
        next(&bed, node);
        let done = asking.wait_with_output().expect("it ends");
        assert!(done.status.success(), "{word}: {}", support::text(&done));
    }
    compare(&at, &bed.path("data"));
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
        let mut upgrade = Command::new(&other);
        as_in(&bed, upgrade.arg("restart").arg(bed.path("mnt")));
        let done = support::finished(&mut upgrade);
        assert!(done.status.success(), "{}", support::text(&done));
        let second = pid(&bed);
        assert_eq!((second != first, program(second)), (true, other.clone()));
        let back = support::finished(bed.stoker(["restart"]).arg(bed.path("mnt")));
        assert!(back.status.success(), "{}", support::text(&back));
        let third = pid(&bed);
        assert_ne!(program(third), other);
        // One that can't go on is not insisted on.
        fs::write(&other, "#!/bin/false\n").expect("another build");
        ask_to_restart(&bed, &other);
        assert_ne!(program(next(&bed, third)), other);
    });
    assert!(read > 0);
    assert_eq!(bed.status()["mounts"][0]["restarts"], 3);
}

/// What `stoker restart` of this program asks.
fn ask_to_restart(bed: &Bed, program: &Path) {
    let files = support::content::files(&bed.path("run")).into_iter();
    let socket = files.into_iter().find(|name| name.extension().is_some_and(|end| end == "sock")).expect("it listens");
    let mut node = UnixStream::connect(bed.path("run").join(socket)).expect("it listens");
    let body = serde_json::json!({ "program": program }).to_string();
    let head = format!("POST /v1/restart HTTP/1.1\r\nhost: node\r\ncontent-length: {}\r\n\r\n", body.len());
    node.write_all((head + &body).as_bytes()).expect("it hears");
    let _ = std::io::copy(&mut node, &mut std::io::sink());
}

#[test]
fn who_holds_the_mounts_is_replaced_when_it_is_killed() {
    let Some(bed) = bed() else { return };
    fill(&bed);
    let daemon = bed.mount(&[]);
    let (node, open) = (pid(&bed), File::open(bed.mounted("7/1")).expect("it opens"));
    let keeper = keeper_of(node).expect("somebody holds the mount");
    let place = |pid: u32| fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it runs");
    let mut first = Command::new("sh");
    first.args(["-c", "echo -999 > /proc/self/oom_score_adj"]).stderr(Stdio::null());
    let may = first.status().expect("a shell").success();
    assert!(!may || place(keeper) == "-999\n", "it is the last that the system ends: {}", place(keeper));
    let usual = place(node);
    signal(keeper, "TERM");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(keeper_of(node), Some(keeper), "what ends a node in order ends nobody who holds its mounts");
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
    assert_eq!(place(second), usual);
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
    bed.put("served", &noise(9 * MIB, 6));
    bed.put("gone", &noise(1000, 2));
    let _daemon = bed.mount(&["--fill", "off"]);
    // Opened before it is complete, a file is served by the process to its end.
    let served = File::open(bed.mounted("served")).expect("it opens");
    let loaded = bed.run(["load".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(loaded.status.success(), "{}", support::text(&loaded));
    let old = File::open(bed.mounted("old")).expect("it opens");
    bed.put("old", &noise(3 * MIB, 3));
    bed.put("served", &noise(9 * MIB, 7));
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
    let mut read = vec![0; 9 * MIB];
    served.read_exact_at(&mut read, 0).expect("it is read on");
    same(&read, &noise(9 * MIB, 6), &"the version that was opened, served");
    compare(&bed.path("mnt"), &bed.path("data"));
    // And names follow each other over the restart.
    bed.put("newer", &noise(1000, 5));
    let refreshed = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(refreshed.status.success(), "{}", support::text(&refreshed));
    compare(&bed.path("mnt"), &bed.path("data"));
}

#[test]
fn a_process_killed_while_it_tells_of_names_keeps_nobody_waiting() {
    let Some(bed) = bed() else { return };
    for number in 0..2000 {
        bed.put(&format!("many/{number}"), &noise(number % 50, number as u64));
    }
    let _daemon = bed.mount(&["--fill", "off"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    // A name may be gone by now.
                    let entries = fs::read_dir(bed.mounted("many")).expect("a listing");
                    entries.for_each(|entry| drop(fs::metadata(entry.expect("a name").path())));
                }
            });
        }
        for kill in 0..2 {
            for number in (kill..2000).step_by(3) {
                bed.put(&format!("many/{number}"), &noise(100 + number, number as u64));
            }
            let node = pid(&bed);
            let before = bed.requests();
            let refresh = bed.stoker(["refresh"]).arg(bed.path("mnt")).stderr(Stdio::null()).spawn();
            eventually("it lists", || bed.requests() > before);
            std::thread::sleep(Duration::from_millis(50 + 60 * kill as u64));
            signal(node, "KILL");
            next(&bed, node);
            let _ = refresh.expect("it starts").wait();
        }
        stop.store(true, Relaxed);
    });
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
    let mut daemon = bed.mount(&[]);
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
    assert_eq!(daemon.waited(LONG).and_then(|status| status.code()), Some(1), "{}", daemon.said());
    assert_eq!(mounts(&bed), 0, "the command took its mount away");
}

#[test]
fn a_command_that_is_killed_while_its_node_is_gone_takes_its_mount_along() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let mut daemon: Daemon = bed.mount(&[]);
    let node = pid(&bed);
    // It notices nothing while both end.
    signal(node, "STOP");
    signal(daemon.pid(), "KILL");
    assert!(daemon.waited(LONG).is_some());
    signal(node, "KILL");
    // Perhaps before the next node is seen.
    eventually("its mount has ended", || mounts(&bed) == 0);
    eventually("no process is left", || bed.nodes().is_empty());
}

#[test]
fn a_command_that_is_stopped_keeps_its_mount_until_its_process_ends() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let (held, mut killed) = (bed.mount(&[]), bed.mount_at(&bed.path("data").display().to_string(), "other", &[]));
    [&held, &killed].iter().for_each(|daemon| signal(daemon.pid(), "STOP"));
    let first = pid(&bed);
    signal(first, "KILL");
    let second = next(&bed, first);
    let restarted = bed.run(["restart".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(restarted.status.success(), "{}", support::text(&restarted));
    // Longer than a command whose process is not known is waited for.
    std::thread::sleep(Duration::from_secs(25));
    assert_ne!(pid(&bed), second);
    compare(&bed.path("mnt"), &bed.path("data"));
    compare(&bed.path("other"), &bed.path("data"));
    signal(killed.pid(), "KILL");
    assert!(killed.waited(LONG).is_some());
    eventually("its mount has ended", || support::mounts_below(&bed.path("other")) == 0);
    signal(held.pid(), "CONT");
    compare(&bed.path("mnt"), &bed.path("data"));
    held.end();
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

#[test]
fn systemd_holds_the_mounts_of_a_node_of_its_own() {
    let Some(bed) = bed() else { return };
    fill(&bed);
    let mut systemd = Systemd::new(&bed);
    let mut node = systemd.start(&bed);
    eventually("it answers", || bed.nodes().len() == 1);
    let mount = || bed.mount(&["--detach"]);
    assert!(mount().waited(LONG).is_some_and(|status| status.success()));
    assert_eq!(bed.status()["keeper"], serde_json::json!({"state": "on"}));
    let open = File::open(bed.mounted("7/2")).expect("it opens");
    let original = fs::read(bed.data("7/2")).expect("the original");
    for (restart, is_asked) in [(1, false), (2, true)] {
        systemd.hear();
        assert!(systemd.holds(".terms") && systemd.holds("lock"), "{:?}", systemd.held.keys());
        match is_asked {
            true => drop(bed.run(["restart".as_ref(), bed.path("mnt").as_os_str()])),
            false => signal(node.id(), "KILL"),
        }
        assert!(!node.wait().expect("it ends").success(), "it is to be started again");
        systemd.hear();
        node = systemd.start(&bed);
        let goes_on = || bed.nodes().first().is_some_and(|node| node["mounts"][0]["restarts"] == restart);
        eventually("another process goes on", goes_on);
        let mut read = vec![0; original.len()];
        open.read_exact_at(&mut read, 0).expect("it is read on");
        same(&read, &original, &"open across a restart");
    }
    drop(open);
    compare(&bed.path("mnt"), &bed.path("data"));
    signal(node.id(), "TERM");
    let ended = loop {
        // It takes few words at a time.
        systemd.hear();
        match node.try_wait().expect("it can be waited for") {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert!(ended.success());
    systemd.hear();
    // The lock goes with the unit, and so may names, which whoever looks at them last gives back.
    let is_left = |name: &String| name == "lock" || name.contains(".names.");
    assert!(systemd.held.keys().all(is_left), "{:?}", systemd.held.keys());
    assert_eq!(mounts(&bed), 0);
}

#[test]
fn under_systemd_too_a_mount_is_given_up_by_no_process_before_the_third() {
    let Some(bed) = bed() else { return };
    let folder = bed.path("folder");
    fs::create_dir(&folder).and_then(|()| fs::write(folder.join("file"), noise(1000, 1))).expect("a file");
    let mut systemd = Systemd::new(&bed);
    let mut node = systemd.start(&bed);
    eventually("it answers", || bed.nodes().len() == 1);
    bed.mount_at(&folder.display().to_string(), "mnt", &["--detach"]).waited(LONG).expect("it is mounted");
    signal(node.id(), "KILL");
    node.wait().expect("it ends");
    fs::rename(&folder, bed.path("away")).expect("it is ours");
    for failure in 1..3 {
        systemd.hear();
        node = systemd.start(&bed);
        assert!(!node.wait().expect("it ends").success(), "it is to be started again");
        systemd.hear();
        assert!(systemd.holds(".terms") && systemd.holds(&format!("failed.{failure}")), "{:?}", systemd.held.keys());
    }
    fs::rename(bed.path("away"), &folder).expect("it is back");
    node = systemd.start(&bed);
    eventually("it goes on", || bed.nodes().first().is_some_and(|node| node["mounts"][0]["restarts"] == 1));
    compare(&bed.path("mnt"), &folder);
    let systemd = std::cell::RefCell::new(systemd);
    eventually("what was counted is over", || {
        let mut systemd = systemd.borrow_mut();
        systemd.hear();
        !systemd.holds("failed.1") && !systemd.holds("failed.2")
    });
    // Told a second time it ends at once, also though a file is open, and nobody goes on.
    let _open = File::open(bed.mounted("file")).expect("it opens");
    signal(node.id(), "TERM");
    eventually("it is taken out of sight", || mounts(&bed) == 0);
    signal(node.id(), "TERM");
    assert_eq!(node.wait().expect("it ends").code(), Some(130));
    let mut systemd = systemd.into_inner();
    systemd.hear();
    assert!(!systemd.holds(".terms") && !systemd.holds(".device.0"), "{:?}", systemd.held.keys());
}
