//! A node and its mounts: who joins it, how it ends, what it tells of itself, and what a refresh changes.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::content::{Chance, compare, noise, same};
use support::{BUCKET, Bed, Daemon, LONG, drop_page_cache, eventually, finished, refused_as_typed, signal, text};

fn url(prefix: &str) -> String {
    format!("s3://{BUCKET}/{prefix}")
}

fn is_mounted(bed: &Bed, at: &str) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    table.contains(&format!(" {} ", bed.path(at).display()))
}

/// A bed with two data sets.
fn two_sets() -> Option<Bed> {
    let bed = Bed::new()?;
    bed.put("one/file", &noise(10_000, 1));
    bed.put("two/file", &noise(20_000, 2));
    Some(bed)
}

#[test]
fn mounts_of_one_cache_share_a_node_that_ends_with_the_last() {
    let Some(bed) = two_sets() else { return };
    let mut first = bed.mount_at(&url("one"), "one", &[]);
    let _ = fs::create_dir(bed.path("two"));
    let mut second = Daemon::spawn(&mut bed.mounting(&url("two"), "two", &[]), &bed.path("two"), &bed.path("two.log"));
    eventually("the second is mounted", || is_mounted(&bed, "two"));
    compare(&bed.path("one"), &bed.path("data/one"));
    compare(&bed.path("two"), &bed.path("data/two"));
    let status = bed.status();
    assert_eq!(status["mounts"].as_array().map(Vec::len), Some(2), "{status}");
    // The one that came first started the node, which goes on for the other.
    assert_eq!(status["pid"], first.node());
    signal(first.pid(), "TERM");
    assert!(first.waited(LONG).expect("it ends").success(), "{}", first.said());
    assert!(!is_mounted(&bed, "one"));
    same(&fs::read(bed.path("two/file")).expect("a read"), &noise(20_000, 2), &"the second mount");
    assert_eq!(bed.status()["mounts"].as_array().map(Vec::len), Some(1));
    signal(second.pid(), "INT");
    assert!(second.waited(LONG).expect("it ends").success(), "{}", second.said());
    assert_eq!(bed.nodes().len(), 0);
    assert!(!is_mounted(&bed, "two"));
}

#[test]
fn mounts_that_start_at_the_same_time_find_one_node() {
    let Some(bed) = Bed::new() else { return };
    for number in 0..6 {
        bed.put(&format!("{number}/file"), &noise(1_000, number));
    }
    for _ in 0..3 {
        let daemons: Vec<Daemon> = (0..6)
            .map(|number| {
                let at = format!("m{number}");
                let _ = fs::create_dir(bed.path(&at));
                let mut command = bed.mounting(&url(&number.to_string()), &at, &[]);
                Daemon::spawn(&mut command, &bed.path(&at), &bed.path(&format!("{at}.log")))
            })
            .collect();
        for number in 0..6u64 {
            let said = || daemons[number as usize].said();
            eventually(&format!("mount {number}: {}", said()), || is_mounted(&bed, &format!("m{number}")));
            same(&fs::read(bed.path(&format!("m{number}/file"))).expect("a read"), &noise(1_000, number), &number);
        }
        let status = bed.status();
        assert_eq!(status["mounts"].as_array().map(Vec::len), Some(6), "{status}");
        for number in 0..6 {
            let done = finished(bed.stoker(["umount"]).arg(bed.path(&format!("m{number}"))));
            assert!(done.status.success(), "{}", text(&done));
        }
        for mut daemon in daemons {
            assert!(daemon.waited(LONG).expect("it ends").success(), "{}", daemon.said());
        }
    }
}

#[test]
fn settings_that_differ_from_the_node_are_refused() {
    let Some(bed) = two_sets() else { return };
    let daemon = bed.mount_at(&url("one"), "mnt", &["--cache-size", "1GB", "--memory", "128MiB"]);
    let _ = fs::create_dir(bed.path("two"));
    for (flag, value, has) in
        [("--cache-size", "2GB", "1GB"), ("--memory", "256MiB", "128MiB"), ("--patience", "1s", "1m")]
    {
        let done = finished(&mut bed.mounting(&url("two"), "two", &[flag, value]));
        refused_as_typed(&done, &[&format!("{flag} {has}\n"), "another --cache"]);
    }
    let group = finished(&mut bed.mounting(&url("two"), "two", &["--group-cache"]));
    refused_as_typed(&group, &["without --group-cache"]);
    let joined = finished(&mut bed.mounting(&url("two"), "two", &["--cache-size", "1GB", "--detach"]));
    assert!(joined.status.success(), "the same settings agree: {}", text(&joined));
    compare(&bed.path("two"), &bed.path("data/two"));
    assert!(finished(bed.stoker(["umount"]).arg(bed.path("two"))).status.success());
    daemon.end();
}

#[test]
fn a_detached_mount_is_there_when_the_command_returns() {
    let Some(bed) = two_sets() else { return };
    for detach in ["--detach", "-d", "-vd"] {
        let done = finished(&mut bed.mounting(&url("one"), "mnt", &[detach]));
        assert!(done.status.success(), "{}", text(&done));
        compare(&bed.path("mnt"), &bed.path("data/one"));
        let unmounted = finished(bed.stoker(["umount"]).arg(bed.path("mnt")));
        assert!(unmounted.status.success(), "{}", text(&unmounted));
        eventually("the node ends", || support::pids(&bed.path("run")).is_empty());
    }
    let wrong = finished(&mut bed.mounting(&url("none"), "mnt", &["--detach"]));
    let said = text(&wrong);
    assert!(wrong.status.code() == Some(1) && said.contains("\n  try: ") && said.contains("none"), "{said}");
}

#[test]
fn a_cache_is_free_when_its_last_mount_was_unmounted() {
    let Some(bed) = two_sets() else { return };
    for round in 0..20 {
        let mounted = finished(&mut bed.mounting(&url("one"), "mnt", &["--detach"]));
        assert!(mounted.status.success(), "{round}: {}", text(&mounted));
        let unmounted = finished(bed.stoker(["umount"]).arg(bed.path("mnt")));
        assert!(unmounted.status.success(), "{round}: {}", text(&unmounted));
        assert!(is_free(&bed), "{round}: the node still has the cache");
        assert!(bed.path("cache/blocks/clean").exists(), "{round}: the next node looks for strays");
    }
}

/// Whether another node could take the cache folder.
fn is_free(bed: &Bed) -> bool {
    fs::File::open(bed.path("cache/lock")).expect("the lock of the cache").try_lock().is_ok()
}

#[test]
fn an_unmount_beside_another_returns_when_the_cache_is_free() {
    let Some(bed) = two_sets() else { return };
    let mut chance = Chance::printed("unmounts");
    for round in 0..30 {
        let mounted = finished(&mut bed.mounting(&url("one"), "mnt", &["--detach"]));
        assert!(mounted.status.success(), "{round}: {}", text(&mounted));
        let mut other = Command::new("fusermount3").arg("-u").arg(bed.path("mnt")).spawn().expect("it starts");
        std::thread::sleep(Duration::from_micros(chance.below(4_000)));
        let unmounted = finished(bed.stoker(["umount"]).arg(bed.path("mnt")));
        // Unless the other one was done before this one looked.
        let said = text(&unmounted);
        assert!(if unmounted.status.success() { is_free(&bed) } else { said.contains("mounted") }, "{round}: {said}");
        other.wait().expect("it ends");
        eventually("the node ends", || support::pids(&bed.path("run")).is_empty());
    }
}

/// Whether each thread of a process has heard that it is to stop.
fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).unwrap_or_default();
    threads.map(status).all(|status| status.contains("\nState:\tT"))
}

#[test]
fn an_unmount_of_what_ends_by_itself_meanwhile_is_done() {
    let Some(bed) = two_sets() else { return };
    fs::create_dir(bed.path("my data")).expect("a folder");
    symlink(bed.path("mnt"), bed.path("link")).expect("a link");
    symlink(bed.path(""), bed.path("way")).expect("a link");
    for (at, by) in [("mnt", "mnt"), ("my data", "my data"), ("mnt", "link"), ("my data", "way/my data")] {
        let mounted = finished(&mut bed.mounting(&url("one"), at, &["--detach"]));
        assert!(mounted.status.success(), "{by}: {}", text(&mounted));
        let node = bed.status()["pid"].as_u64().expect("a number") as u32;
        signal(node, "STOP");
        eventually("all of it stands still", || is_stopped(node));
        let start = || {
            let mut umount = bed.stoker(["umount"]);
            umount.arg(bed.path(by)).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        let all: Vec<_> = (0..6).map(|_| start()).collect();
        let waits = format!("{} ", libc::SYS_statx);
        for umount in &all {
            let threads = || fs::read_dir(format!("/proc/{}/task", umount.id())).into_iter().flatten().flatten();
            let call = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
            eventually("it waits for the node", || threads().map(call).any(|call| call.starts_with(&waits)));
        }
        signal(node, "TERM");
        signal(node, "CONT");
        for umount in all {
            let done = umount.wait_with_output().expect("it ends");
            // Who is heard before the signal may find the mount held by those who look at it.
            let said = text(&done);
            assert!(if done.status.success() { is_free(&bed) } else { said.contains("in use") }, "{by}: {said}");
        }
        eventually("the node ends", || support::pids(&bed.path("run")).is_empty());
    }
}

#[test]
fn a_node_that_was_stopped_holds_up_neither_the_status_nor_the_unmount_of_others() {
    let Some(bed) = two_sets() else { return };
    let other = bed.path("other").display().to_string();
    let stopped = bed.mount_at(&url("one"), "mnt", &["--fill", "off"]);
    let mut alive = bed.mount_at(&url("two"), "second", &["--fill", "off", "--cache", &other]);
    signal(stopped.node(), "STOP");
    eventually("all of it stands still", || is_stopped(stopped.node()));
    let mut status = bed.stoker(["status"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut first = String::new();
    BufReader::new(status.stdout.as_mut().expect("it is piped")).read_line(&mut first).expect("a line");
    assert!(first.starts_with(&format!("node {}", alive.node())), "{first}");
    assert!(status.try_wait().expect("it can be asked").is_none(), "it waits for the other one");
    let done = status.wait_with_output().expect("it ends");
    let said = text(&done);
    let dead = format!("umount {}", bed.path("mnt").display());
    assert!(done.status.success() && said.contains("does not answer") && !said.contains(&dead), "{said}");
    let below = bed.run(["umount".as_ref(), bed.path("mnt/not/there").as_os_str()]);
    assert!(text(&below).contains("by a node that answers"), "{}", text(&below));
    let unmounted = bed.run(["umount".as_ref(), bed.path("second").as_os_str()]);
    assert!(unmounted.status.success(), "{}", text(&unmounted));
    assert!(alive.waited(LONG).is_some_and(|status| status.success()));
    signal(stopped.node(), "CONT");
    stopped.end();
}

#[test]
fn a_mount_of_a_node_that_was_killed_is_shown_with_the_command_that_takes_it_away() {
    let Some(bed) = two_sets() else { return };
    let daemon = bed.mount_at(&url("one"), "mnt", &["--fill", "off"]);
    let alive = bed.mount_at(&url("two"), "second", &["--cache", &bed.path("other").display().to_string()]);
    let mount_point = bed.path("mnt").display().to_string();
    let (takes, said) = (format!("stoker umount {mount_point}\n"), || text(&bed.run(["status"])));
    assert!(!said().contains(&takes));
    daemon.kill();
    let said_of_dead = said();
    assert!(said_of_dead.contains("dead mounts") && said_of_dead.contains(&takes), "{said_of_dead}");
    let json = text(&bed.run(["status", "--json"]));
    let dead: serde_json::Value = serde_json::from_str(json.lines().last().expect("a line")).expect("JSON");
    let dead = dead["dead"].as_array().expect("mounts, perhaps also of others");
    assert!(dead.contains(&serde_json::json!({ "path": mount_point, "url": url("one") })), "{dead:?}");
    let unmounted = bed.run(["umount", &mount_point]);
    assert!(unmounted.status.success(), "{}", text(&unmounted));
    assert!(!said().contains(&takes));
    alive.end();
}

#[test]
fn a_store_that_fails_is_shown_with_its_own_words_and_the_time() {
    let Some(bed) = two_sets() else { return };
    let daemon = bed.mount_at(&url("one"), "mnt", &["--fill", "off", "--patience", "2s"]);
    bed.set_faults("slowdown");
    let file = bed.mounted("file");
    let reader = std::thread::spawn(move || fs::read(file));
    let store = || bed.status()["stores"][0].clone();
    eventually("the failure is shown", || store()["failure"].as_str().is_some_and(|what| what.contains("SlowDown")));
    eventually("it is seen not to answer", || store()["answering"] == false);
    let told = || bed.status()["errors"].to_string().contains("does not answer");
    eventually("the log says so", told);
    assert!(store()["failed_at"].as_f64().is_some_and(|at| at > 1e9), "{}", store());
    assert!(text(&bed.run(["status"])).contains("SlowDown"));
    reader.join().expect("it ends").expect_err("it is refused in the end");
    let counts = bed.status()["store"].clone();
    assert!(counts["errors"].as_u64() > Some(0) && counts["retries"].as_u64() > Some(0), "{counts}");
    bed.set_faults("");
    assert!(fs::read(bed.mounted("file")).is_ok());
    eventually("it answers again", || store()["answering"] == true && store()["failure"].is_string());
    daemon.end();
}

#[test]
fn what_a_reader_got_from_a_store_last_is_what_the_status_says() {
    let Some(bed) = Bed::new() else { return };
    for round in 0..4 {
        bed.put(&format!("good{round}/file"), &noise(1_000, round as u64));
        bed.put(&format!("bad{round}/file"), &noise(1_000, round as u64));
    }
    let daemon = bed.mount(&["--fill", "off", "--patience", "300ms"]);
    for round in 0..4 {
        let store = || bed.status()["stores"][0].clone();
        fs::read(bed.mounted(&format!("good{round}/file"))).expect("a read");
        assert_eq!(store()["answering"], true, "{round}: {}", store());
        bed.set_faults(["slowdown", "reset"][round % 2]);
        fs::read(bed.mounted(&format!("bad{round}/file"))).expect_err("it fails");
        let state = store();
        assert!(state["answering"] == false && state["failure"].is_string(), "{round}: {state}");
        bed.set_faults("");
    }
    daemon.end();
}

#[test]
fn a_busy_mount_is_unmounted_only_lazily() {
    let Some(bed) = Bed::new() else { return };
    bed.put("large", &noise(5 << 20, 1));
    let mut daemon = bed.mount(&[]);
    let mut held = fs::File::open(bed.mounted("large")).expect("an open");
    let busy = finished(bed.stoker(["umount"]).arg(bed.path("mnt")));
    let said = text(&busy);
    assert!(
        busy.status.code() == Some(1) && ["in use", "\n  on:  ", "--lazy"].iter().all(|part| said.contains(part)),
        "{said}"
    );
    assert!(is_mounted(&bed, "mnt"));
    let lazily = finished(bed.stoker(["umount", "--lazy"]).arg(bed.path("mnt")));
    assert!(lazily.status.success(), "{}", text(&lazily));
    assert!(!is_mounted(&bed, "mnt"));
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut held, &mut read).expect("an open file is read to its end");
    same(&read, &noise(5 << 20, 1), &"the open file");
    drop(held);
    assert!(daemon.waited(LONG).expect("the node ends").success(), "{}", daemon.said());
}

#[test]
fn any_end_leaves_no_mount_no_socket_and_no_process() {
    let Some(bed) = two_sets() else { return };
    for end in ["TERM", "INT", "umount", "umount(8)", "KILL", "KILL of the node"] {
        let mut daemon = bed.mount_at(&url("one"), "mnt", &[]);
        compare(&bed.path("mnt"), &bed.path("data/one"));
        let node = daemon.node();
        assert_ne!(node, daemon.pid());
        match end {
            "umount" => assert!(finished(bed.stoker(["umount"]).arg(bed.path("mnt"))).status.success()),
            "umount(8)" => {
                assert!(finished(std::process::Command::new("umount").arg(bed.path("mnt"))).status.success())
            }
            "KILL of the node" => support::kill_for_good(node),
            word => signal(daemon.pid(), word),
        }
        let ended = daemon.waited(LONG).expect("it ends");
        assert_eq!(ended.success(), !end.starts_with("KILL"), "{end}: {}", daemon.said());
        // What a command can't do any more its node does a little later, and the other way round.
        eventually("no mount is left", || !is_mounted(&bed, "mnt"));
        eventually("no process is left", || support::has_ended(node) && support::pids(&bed.path("run")).is_empty());
        let run = support::content::files(&bed.path("run"));
        let has_socket = run.iter().any(|name| name.extension().is_some_and(|end| end == "sock"));
        assert!(!has_socket || end == "KILL of the node", "{end}: {run:?}");
    }
}

#[test]
fn the_status_tells_what_was_answered_from_where() {
    let Some(bed) = Bed::new() else { return };
    for number in 0..20 {
        bed.put(&format!("small/{number}"), &noise(50_000, number));
    }
    bed.put("large", &noise(9 << 20, 99));
    let daemon = bed.mount(&["--cache-size", "1GB", "--memory", "128MiB", "--fill", "off"]);
    compare(&bed.path("mnt"), &bed.path("data"));
    eventually("all is on the disk", || bed.status()["limits"]["disk_used"] == 20 * 50_000 + (9 << 20));
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    let status = bed.status();
    let size = 20 * 50_000u64 + (9 << 20);
    let mount = &status["mounts"][0];
    assert_eq!(mount["url"], format!("s3://{BUCKET}"));
    assert_eq!(mount["path"], bed.path("mnt").display().to_string());
    assert_eq!((&mount["objects"], &mount["bytes"]), (&21.into(), &size.into()));
    assert!(mount["passthrough"].as_str().is_some_and(|way| way == "on" || way.starts_with("off: ")), "{mount}");
    let number = |part: &str, name: &str, field: &str| {
        status[part][name][field].as_u64().unwrap_or_else(|| panic!("{part}.{name}.{field}: {status}"))
    };
    for tier in ["memory", "disk", "origin"] {
        let _ = (number("tiers", tier, "hits"), number("tiers", tier, "bytes"));
    }
    assert_eq!(number("tiers", "origin", "bytes"), size);
    assert!(number("tiers", "disk", "hits") > 0);
    let (store, limits) = (&status["store"], &status["limits"]);
    assert_eq!(store["requests"], bed.requests());
    assert_eq!(
        (&store["bytes"], &store["unique_bytes"], &store["throttled"]),
        (&bed.counters().bytes_out().into(), &size.into(), &0.into())
    );
    assert_eq!(
        (&limits["memory_bytes"], &limits["disk_bytes"], &limits["disk_used"]),
        (&(128u64 << 20).into(), &1_000_000_000u64.into(), &size.into())
    );
    assert!(limits["memory_used"].as_u64().is_some_and(|used| used > 0 && used <= 128 << 20));
    assert_eq!((&mount["kept_files"], &mount["kept_bytes"]), (&21.into(), &size.into()));
    assert_eq!((&limits["disk_written"], limits["names_bytes"].as_u64() > Some(0)), (&size.into(), true), "{limits}");
    let plain = text(&bed.run(["status"]));
    assert!(["passthrough", "requests", "memory", "disk"].iter().all(|word| plain.contains(word)), "{plain}");
    assert_eq!(text(&finished(bed.stoker(["status"]).arg(bed.path("mnt")))).lines().next(), plain.lines().next());
    daemon.end();
}

#[test]
fn the_status_of_a_path_tells_what_is_kept_of_each_name_in_it() {
    let Some(bed) = Bed::new() else { return };
    for number in 0..4 {
        bed.put(&format!("a/{number}"), &noise(1_000, number));
        bed.put(&format!("b/c/{number}"), &noise(1_000, 10 + number));
    }
    bed.put("large", &noise(9 << 20, 99));
    let daemon = bed.mount(&["--fill", "off"]);
    let kept = |at: &str| -> serde_json::Value {
        let status = finished(bed.stoker(["status", "--json"]).arg(bed.mounted(at)));
        assert!(status.status.success(), "{}", text(&status));
        serde_json::from_slice::<serde_json::Value>(&status.stdout).expect("JSON")["kept"].clone()
    };
    let opens = || bed.status()["mounts"][0]["opens_served"].clone();
    let figures = |of: &serde_json::Value| {
        ["files", "bytes", "kept_files", "kept_bytes"].map(|name| of[name].as_u64().expect("a figure"))
    };
    assert_eq!(figures(&kept("")), [9, 8_000 + (9 << 20), 0, 0]);
    for name in ["a/1", "a/2", "b/c/0"] {
        let _ = fs::read(bed.mounted(name)).expect("a read");
    }
    let before = (bed.requests(), opens());
    let all = kept("");
    let names: Vec<_> = all["entries"].as_array().expect("a list").iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, ["a/", "b/", "large"]);
    assert_eq!(figures(&all["entries"][0]), [4, 4_000, 2, 2_000]);
    assert_eq!(figures(&all["entries"][1]), [4, 4_000, 1, 1_000]);
    assert_eq!(figures(&kept("b")["entries"][0]), [4, 4_000, 1, 1_000]);
    assert_eq!((figures(&kept("a/1")), figures(&kept("a/3"))), ([1, 1_000, 1, 1_000], [1, 1_000, 0, 0]));
    assert_eq!((bed.requests(), opens()), before, "a look asks nothing and opens nothing");
    let plain = text(&finished(bed.stoker(["status"]).arg(bed.mounted("a"))));
    assert!(plain.contains("2 of 4 files, 50.0 % of 4.00 kB"), "{plain}");
    daemon.end();
}

#[test]
fn a_small_file_costs_one_request_and_then_none() {
    let Some(bed) = Bed::new() else { return };
    const FILES: u64 = 300;
    for number in 0..FILES {
        bed.put(&format!("folder {}/{number}", number % 3), &noise(2_000 + number as usize, number));
    }
    let daemon = bed.mount(&["--fill", "off"]);
    let listing = bed.requests();
    compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!((bed.requests() - listing, bed.gets()), (FILES, FILES), "cold: one GET a file and nothing else");
    let after = bed.requests();
    compare(&bed.path("mnt"), &bed.path("data"));
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
    let daemon = bed.mount(&["--fill", "off"]);
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.requests(), after, "again, dropped, restarted: no request, not even a listing");
    daemon.end();
}

#[test]
fn a_refresh_shows_what_came_what_changed_and_what_went() {
    let Some(bed) = Bed::new() else { return };
    bed.put("stays", &noise(1_000, 1));
    bed.put("changes", &noise(1_000, 2));
    bed.put("goes", &noise(1_000, 3));
    bed.put("folder/goes", &noise(1_000, 4));
    let daemon = bed.mount(&["--fill", "off"]);
    compare(&bed.path("mnt"), &bed.path("data"));
    for name in ["comes", "new folder/comes"] {
        assert_eq!(fs::metadata(bed.mounted(name)).expect_err("not yet").kind(), ErrorKind::NotFound);
    }
    bed.put("comes", &noise(1_000, 5));
    bed.put("new folder/comes", &noise(1_000, 6));
    bed.put("changes", &noise(3_000, 7));
    fs::remove_file(bed.data("goes")).and_then(|()| fs::remove_dir_all(bed.data("folder"))).expect("they go");
    assert_eq!(fs::metadata(bed.mounted("comes")).expect_err("not before a refresh").kind(), ErrorKind::NotFound);
    let done = finished(bed.stoker(["refresh"]).arg(bed.path("mnt")));
    assert!(done.status.success() && text(&done).contains("4 files"), "{}", text(&done));
    // At once: the kernel was asked to forget, also the names that it knew not to be there.
    compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(fs::metadata(bed.mounted("changes")).expect("a stat").len(), 3_000);
    for name in ["goes", "folder", "folder/goes"] {
        assert_eq!(fs::metadata(bed.mounted(name)).expect_err("it went").kind(), ErrorKind::NotFound, "{name}");
    }
    daemon.end();
    let daemon = bed.mount(&["--fill", "off"]);
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn a_mount_can_refresh_itself_and_survives_a_failed_listing() {
    let Some(bed) = Bed::new() else { return };
    bed.put("stays", &noise(1_000, 1));
    let daemon = bed.mount(&["--refresh", "1s", "--patience", "1s", "--fill", "off"]);
    bed.put("comes", &noise(1_000, 2));
    eventually("the new name", || bed.mounted("comes").exists());
    compare(&bed.path("mnt"), &bed.path("data"));
    bed.set_faults("internal-error");
    eventually("the failure is shown", || bed.status()["mounts"][0]["refresh_failed"].is_string());
    compare(&bed.path("mnt"), &bed.path("data"));
    bed.set_faults("");
    bed.put("comes later", &noise(1_000, 3));
    eventually("the later name", || bed.mounted("comes later").exists());
    eventually("the failure is over", || bed.status()["mounts"][0]["refresh_failed"].is_null());
    daemon.end();
}
