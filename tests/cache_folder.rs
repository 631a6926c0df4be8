//! What a cache folder can be, and what a disk without room does to it.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::content::noise;
use support::{BUCKET, Bed, Daemon, eventually, finished, is_root, mounts, refused, refused_as_typed, text};

#[test]
fn a_full_disk_is_served_around_and_shown() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: only root can mount a small file system for the cache");
    }
    for number in 0..12u64 {
        bed.put(&format!("{number}"), &noise((1 << 20) + 70_000 * number as usize, number));
        bed.put(&format!("small/{number}"), &noise(100_000, 100 + number));
    }
    let cache = bed.path("cache");
    fs::create_dir(&cache).expect("a folder");
    let small = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"]).arg(&cache).status();
    assert!(small.expect("mount runs").success());
    let read_all = |daemon: Daemon| {
        support::content::compare(&bed.path("mnt"), &bed.path("data"));
        support::content::compare(&bed.path("mnt"), &bed.path("data"));
        let status = bed.status();
        assert!(status["store"]["unkept_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{status}");
        assert!(status["limits"]["disk_used"].as_u64().is_some_and(|used| used <= 4 << 20), "{status}");
        daemon.end();
    };
    // Once by its limits, and once surprised by somebody else who fills the file system.
    read_all(bed.mount(&["--fill", "off"]));
    let daemon = bed.mount(&["--fill", "off"]);
    let _ = fs::write(cache.join("of somebody else"), noise(4 << 20, 9));
    read_all(daemon);
    let load = finished(bed.stoker(["load"]).arg(bed.path("mnt")));
    assert_eq!(load.status.code(), Some(1), "nothing is mounted any more: {}", text(&load));
}

#[test]
fn a_cache_folder_that_can_not_be_used_is_refused() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    fs::write(bed.path("plain"), b"").expect("a file");
    let below = bed.path("plain/cache");
    let with = |cache: &Path| {
        let cache = cache.to_str().expect("a path");
        finished(&mut bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--cache", cache]))
    };
    refused(&with(&below), &["cache folder", "--cache"]);
    let open = bed.path("open");
    fs::create_dir(&open)
        .and_then(|()| fs::set_permissions(&open, fs::Permissions::from_mode(0o777)))
        .expect("a folder");
    refused(&with(&open), &["everybody can write", "open"]);
    assert_eq!(mounts(&bed), 0);
}

#[test]
fn a_cache_folder_and_a_mount_point_never_lie_in_each_other_and_nothing_is_made() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    std::os::unix::fs::symlink(bed.path("mnt"), bed.path("link")).expect("a link");
    for cache in ["mnt/cache", "mnt", "mnt/deep/cache", "link/cache", "."] {
        let cache = bed.path(cache).display().to_string();
        let done = finished(&mut bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--cache", &cache]));
        refused_as_typed(&done, &["--cache", "mount point"]);
    }
    let left = fs::read_dir(bed.path("mnt")).expect("a folder").count();
    assert_eq!((left, mounts(&bed), support::pids(&bed.path("run")).len()), (0, 0, 0));
}

#[test]
fn a_mount_without_room_for_its_names_is_refused_and_says_so() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: only root can mount a small file system for the cache");
    }
    (0..4).for_each(|number| bed.put(&format!("train/{number}"), &noise(10_000, number)));
    bed.put("other/file", &noise(10_000, 9));
    let cache = bed.path("cache");
    fs::create_dir(&cache).expect("a folder");
    let small = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"]).arg(&cache).status();
    assert!(small.expect("mount runs").success());
    let (own, fill) = (cache.join("own"), cache.join("of somebody else"));
    let own = own.to_str().expect("a path");
    let mounting = |prefix: &str| bed.mounting(&format!("s3://{BUCKET}/{prefix}"), "mnt", &["--cache", own]);
    let _ = fs::write(&fill, noise(2 << 20, 9));
    let says = ["No space left", "free some space", "--cache"];
    refused(&finished(&mut mounting("train")), &says);
    fs::remove_file(&fill).expect("it is there");
    Daemon::start(&mut mounting("train"), &bed.path("mnt"), &bed.path("mnt.log")).end();
    let _ = fs::write(&fill, noise(2 << 20, 9));
    // Its names are there, so nothing has to be written.
    let daemon = Daemon::start(&mut mounting("train"), &bed.path("mnt"), &bed.path("mnt.log"));
    support::content::compare(&bed.path("mnt"), &bed.path("data/train"));
    daemon.end();
    refused(&finished(&mut mounting("other")), &says);
}

/// Read everything from a slow store, and do something to the cache folder once some of it has come.
fn read_while(bed: &Bed, does: impl FnOnce()) {
    bed.set_bandwidth(4_000_000);
    let before = bed.counters().bytes_out();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| support::content::compare(&bed.path("mnt"), &bed.path("data")));
        eventually("some of it came", || bed.counters().bytes_out() > before + 1_000_000);
        does();
        reader.join().expect("every byte is right");
    });
    bed.set_limits(&emulate::Limits::default());
}

/// Remove a folder into which a node may write meanwhile.
fn remove(folder: &Path) {
    eventually("it is removed", || fs::remove_dir_all(folder).is_ok() || !folder.exists());
}

#[test]
fn a_cache_folder_that_is_removed_while_files_come_is_taken_again_with_its_names() {
    let Some(bed) = Bed::new() else { return };
    (0..60).for_each(|number| bed.put(&format!("small/{number}"), &noise(40_000, number)));
    (0..3).for_each(|number| bed.put(&format!("large/{number}"), &noise(2 << 20, 100 + number)));
    let (cache, url) = (bed.path("cache"), format!("s3://{BUCKET}"));
    let daemon = bed.mount(&["--fill", "off"]);
    read_while(&bed, || remove(&cache));
    let refreshed = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(refreshed.status.success(), "{}", text(&refreshed));
    let loaded = bed.run(["load".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(loaded.status.success(), "all of it is kept: {}", text(&loaded));
    assert!(["lock", "blocks", "manifests"].iter().all(|name| cache.join(name).exists()));
    assert!(!daemon.said().contains("not Stoker's"), "{}", daemon.said());
    remove(&cache.join("manifests"));
    let refreshed = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(refreshed.status.success(), "{}", text(&refreshed));
    daemon.end();
    let gets = bed.gets();
    let daemon = Daemon::start(&mut bed.mounting(&url, "mnt", &["--fill", "off"]), &bed.path("mnt"), &bed.path("log"));
    support::content::compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.gets(), gets, "the cache was found again whole");
    daemon.end();
}

#[test]
fn files_that_are_removed_from_a_cache_folder_are_not_shown_as_kept() {
    let Some(bed) = Bed::new() else { return };
    (0..20).for_each(|number| bed.put(&format!("{number}"), &noise(40_000, number)));
    let daemon = bed.mount(&["--fill", "off"]);
    let kept = || bed.status()["mounts"][0]["kept_files"].as_u64();
    for _ in 0..2 {
        let loaded = bed.run(["load".as_ref(), bed.path("mnt").as_os_str()]);
        assert!(loaded.status.success(), "{}", text(&loaded));
        eventually("all of it is kept", || kept() == Some(20));
        support::content::compare(&bed.path("mnt"), &bed.path("data"));
        remove(&bed.path("cache/blocks/objects"));
        eventually("nothing is kept", || kept() == Some(0));
    }
    assert!(daemon.said().contains("were removed"), "{}", daemon.said());
    daemon.end();
}

#[test]
fn nothing_is_written_through_a_link_in_the_place_of_the_cache_folder() {
    let Some(bed) = Bed::new() else { return };
    (0..60).for_each(|number| bed.put(&format!("small/{number}"), &noise(40_000, number)));
    let (cache, foreign) = (bed.path("cache"), bed.path("foreign"));
    fs::create_dir(&foreign).expect("a folder");
    let daemon = bed.mount(&["--fill", "off"]);
    read_while(&bed, || {
        // The node may make the folder again before the link is there.
        eventually("a link takes its place", || {
            remove(&cache);
            std::os::unix::fs::symlink(&foreign, &cache).is_ok()
        });
    });
    support::content::compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(fs::read_dir(&foreign).expect("a folder").count(), 0, "nothing was made there");
    let refreshed = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(!refreshed.status.success() && fs::read_dir(&foreign).expect("a folder").count() == 0);
    daemon.end();
}

#[test]
fn a_cache_is_shown_and_emptied_while_no_node_has_it() {
    let Some(bed) = Bed::new() else { return };
    (0..8).for_each(|number| bed.put(&format!("{number}"), &noise(300_000, number)));
    let daemon = bed.mount(&["--fill", "off"]);
    support::content::compare(&bed.path("mnt"), &bed.path("data"));
    let cache = |verb: &str| finished(bed.stoker(["cache", verb, "--json"]).env("STOKER_CACHE", bed.path("cache")));
    let shown = || serde_json::from_slice::<serde_json::Value>(&cache("show").stdout).expect("JSON");
    let of_node = shown();
    assert_eq!((&of_node["objects"], &of_node["data_sets"]), (&8.into(), &1.into()), "{of_node}");
    assert!(of_node["bytes"].as_u64().is_some_and(|bytes| bytes >= 2_400_000), "{of_node}");
    assert_eq!(of_node["mounts"][0]["path"], bed.path("mnt").display().to_string());
    refused(&cache("clean"), &["another node uses this cache folder", "unmount"]);
    daemon.end();
    eventually("the node has ended", || shown()["node"].is_null());
    support::refused_as_typed(
        &finished(bed.stoker(["cache", "show"]).arg(bed.path("data"))),
        &["this is no cache folder"],
    );
    let lines = finished(bed.stoker(["cache", "show"]).arg(bed.path("cache")));
    assert!(text(&lines).contains("none has it"), "{}", text(&lines));
    let done = cache("clean");
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!((&shown()["objects"], &shown()["data_sets"]), (&0.into(), &0.into()));
    // What is no cache is left alone.
    refused(&finished(bed.stoker(["cache", "clean"]).arg(bed.path("data"))), &["not Stoker's"]);
    assert!(bed.data("0").exists());
    refused(&finished(bed.stoker(["cache", "clean"]).arg(bed.path("absent"))), &["there is no cache"]);
    // It fills again.
    let daemon = bed.mount(&["--fill", "off"]);
    support::content::compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn what_is_kept_can_be_read_again_and_let_go_of() {
    let Some(bed) = Bed::new() else { return };
    for number in 0..6 {
        bed.put(&format!("one/{number}"), &noise(300_000, number));
        bed.put(&format!("two/{number}"), &noise(3_000_000, 50 + number));
    }
    let daemon = bed.mount(&["--fill", "off"]);
    support::content::compare(&bed.path("mnt"), &bed.path("data"));
    let asked = |words: &[&str], at: &str| {
        let done = finished(bed.stoker(words).arg("--json").arg(bed.mounted(at)));
        let found: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
        (done.status.code(), found, text(&done))
    };
    let (code, found, said) = asked(&["cache", "verify"], "");
    assert_eq!((code, &found["files"], &found["damaged"]), (Some(0), &12.into(), &0.into()), "{said}");
    assert_eq!(found["bytes"], 6 * 3_300_000);

    // Files of the cache that somebody changed.
    for size in [300_000, 3_000_000] {
        let objects = support::content::files(&bed.path("cache/blocks/objects")).into_iter();
        let mut paths = objects.map(|name| bed.path("cache/blocks/objects").join(name));
        let is_it = |path: &std::path::PathBuf| fs::metadata(path).is_ok_and(|found| found.len() / 1000 == size / 1000);
        let changed = paths.find(is_it).expect("a file");
        fs::set_permissions(&changed, fs::Permissions::from_mode(0o600)).expect("ours");
        let mut content = fs::read(&changed).expect("a file");
        let written = fs::metadata(&changed).and_then(|found| found.modified()).expect("a time");
        content[size as usize / 2] ^= 1;
        fs::write(&changed, content).expect("written");
        // As a disk does it that forgets: only the bytes tell.
        let file = fs::File::options().write(true).open(&changed).expect("a file");
        file.set_modified(written).expect("ours");
    }
    let sent = bed.sent();
    let (code, found, said) = asked(&["cache", "verify"], "");
    assert_eq!((code, &found["damaged"]), (Some(1), &2.into()), "{said}");
    let names = found["names"].as_array().expect("names").iter().map(|name| name.as_str().expect("a name"));
    let folders: Vec<_> = names.filter_map(|name| name.split('/').next()).collect();
    assert_eq!(folders, ["one", "two"], "{said}");
    support::content::compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.sent() - sent, 3_300_000, "what was damaged is fetched again, and nothing else");
    let (code, found, said) = asked(&["cache", "verify"], "one");
    assert_eq!((code, &found["files"], &found["damaged"]), (Some(0), &6.into(), &0.into()), "{said}");

    let (open, sent) = (fs::File::open(bed.mounted("one/0")).expect("it opens"), bed.sent());
    let (code, found, said) = asked(&["evict"], "one");
    assert_eq!((code, &found["files"], &found["bytes"]), (Some(0), &6.into(), &1_800_000.into()), "{said}");
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut &open, &mut content).expect("it reads on");
    assert!(content == fs::read(bed.data("one/0")).expect("the original") && bed.sent() == sent);
    drop(open);
    let kept = finished(bed.stoker(["status", "--json"]).arg(bed.path("mnt")));
    let kept: serde_json::Value = serde_json::from_slice(&kept.stdout).expect("JSON");
    assert_eq!(kept["kept"]["kept_files"], 6, "{kept}");
    support::content::compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.sent() - sent, 1_800_000, "what was evicted is fetched again, and nothing else");
    let (code, found, _) = asked(&["evict"], "two/3");
    assert_eq!((code, &found["files"], &found["bytes"]), (Some(0), &1.into(), &3_000_000.into()));
    let (code, _, said) = asked(&["evict"], "absent");
    assert!(code == Some(1) && said.contains("no such file or folder"), "{said}");
    daemon.end();
    // Of a folder that is read where it lies nothing is kept.
    let local = bed.mount_at(&bed.path("data").display().to_string(), "local", &[]);
    for words in [&["evict"][..], &["cache", "verify"]] {
        let done = finished(bed.stoker(words).arg(bed.path("local")));
        assert!(!done.status.success() && text(&done).contains("none of it is kept"), "{}", text(&done));
    }
    local.end();
}

#[test]
fn what_gives_way_while_it_is_verified_is_not_called_damaged() {
    let Some(bed) = Bed::new() else { return };
    (0..800).for_each(|number| bed.put(&format!("{number}"), &noise(20_000 + number, number as u64)));
    let daemon = bed.mount(&["--fill", "off"]);
    let at = bed.path("mnt");
    for pause_ms in [10, 30, 60, 100] {
        let loaded = bed.run(["load".as_ref(), at.as_os_str()]);
        assert!(loaded.status.success(), "{}", text(&loaded));
        let mut verify = bed.stoker(["cache", "verify"]);
        let verify = verify.arg(&at).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(pause_ms));
        let evicted = bed.run(["evict".as_ref(), at.as_os_str()]);
        assert!(evicted.status.success(), "{}", text(&evicted));
        let verified = verify.wait_with_output().expect("it ends");
        assert!(verified.status.success(), "after {pause_ms} ms: {}", text(&verified));
    }
    daemon.end();
}
