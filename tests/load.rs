//! `stoker load`: what is chosen, what is fetched and what is not, how it ends, and that it goes on where it was
//! interrupted; into the cache of a mount, and to a folder of an attached disk.

mod support;

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::content::{compare, files, noise, same};
use support::{BUCKET, Bed, LONG, drop_page_cache, eventually, finished, refused_as_typed, signal, text};

const MIB: usize = 1 << 20;

/// A set with folders, kinds of files, and sizes on both sides of a block and of a run.
fn set() -> Option<Bed> {
    let bed = Bed::new()?;
    for number in 0..20 {
        bed.put(&format!("train/a/{number}.jpg"), &noise(40_000 + number as usize, number));
        bed.put(&format!("train/b/{number}.txt"), &noise(1_000, 100 + number));
        bed.put(&format!("val/{number}.jpg"), &noise(30_000, 200 + number));
    }
    bed.put("train/empty.jpg", b"");
    bed.put("large/one.npz", &noise(3 * MIB + 7, 300));
    bed.put("large/two.npz", &noise(18 * MIB + 7, 301));
    Some(bed)
}

fn size(bed: &Bed) -> u64 {
    files(&bed.path("data"))
        .iter()
        .map(|name| fs::metadata(bed.data(&name.to_string_lossy())).expect("an object").len())
        .sum()
}

fn load(bed: &Bed, at: &Path, more: &[&str]) -> Output {
    finished(bed.stoker(["load"]).arg(at).args(more))
}

fn loaded(bed: &Bed, at: &Path, more: &[&str]) -> Value {
    let done = load(bed, at, &[&["--json"], more].concat());
    assert!(done.status.success(), "{}", text(&done));
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&done)))
}

#[test]
fn a_loaded_set_needs_no_store_any_more() {
    let Some(bed) = set() else { return };
    let daemon = bed.mount(&["--fill", "off"]);
    let load = loaded(&bed, &bed.path("mnt"), &[]);
    assert_eq!(
        (&load["files"], &load["files_done"], &load["bytes_done"]),
        (&63.into(), &63.into(), &size(&bed).into()),
        "{load}"
    );
    assert_eq!(load["bytes_fetched"], size(&bed));
    assert!(
        load["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0) && load["gigabytes_per_second"].is_f64(),
        "{load}"
    );
    assert!(load["requests"].as_u64().is_some_and(|requests| requests >= 62), "{load}");
    let requests = bed.requests();
    let again = loaded(&bed, &bed.path("mnt"), &[]);
    assert_eq!(
        (&again["bytes_present"], &again["bytes_fetched"], &again["requests"]),
        (&size(&bed).into(), &0.into(), &0.into()),
        "{again}"
    );
    assert_eq!(bed.requests(), requests, "all was there");
    bed.stop_server();
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn only_what_is_chosen_is_loaded() {
    let Some(bed) = set() else { return };
    let daemon = bed.mount(&["--fill", "off"]);
    let count = |at: &str, more: &[&str]| loaded(&bed, &bed.path(at), more)["files"].as_u64().expect("a count");
    assert_eq!((count("mnt/train/a/3.jpg", &[]), bed.gets()), (1, 1), "a file below the mount");
    assert_eq!(count("mnt/train/a", &[]), 20, "a folder below the mount");
    assert_eq!(bed.gets(), 20);
    assert_eq!(count("mnt", &["--include", "**/*.jpg", "--exclude", "val/**"]), 21);
    assert_eq!(bed.gets(), 20, "those of train/a were there, and an empty file costs nothing");
    assert_eq!(count("mnt", &["--include", "train/b/1*", "--include", "val/1?.jpg"]), 21);
    let mut listed = bed.stoker(["load", "--stdin", "--json"]);
    let mut child =
        listed.arg(bed.path("mnt")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("its input").write_all(b"val/0.jpg\n./train/b/0.txt\nlarge/one.npz\n").expect("a list");
    let done = child.wait_with_output().expect("it ends");
    let load: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!((done.status.code(), &load["files_done"]), (Some(0), &3.into()), "{load}");
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let Some(bed) = set() else { return };
    let daemon = bed.mount(&["--fill", "off"]);
    let wrong = |done: Output, words: &[&str]| {
        let said = text(&done);
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(["\n  on:  ", "\n  try: "].iter().chain(words).all(|word| said.contains(word)), "{said}");
    };
    let pattern = load(&bed, &bed.path("mnt"), &["--include", "a[b"]);
    assert!(pattern.status.code() == Some(2) && text(&pattern).contains("not a pattern"), "{}", text(&pattern));
    wrong(load(&bed, &bed.path("mnt/no/such/folder"), &[]), &["no such file or folder", "stoker refresh"]);
    wrong(load(&bed, &bed.path("mnt"), &["--include", "*.none"]), &["no file is chosen", "*.none"]);
    let empty = load(&bed, &bed.path("mnt"), &["--stdin"]);
    assert!(empty.status.code() == Some(2) && text(&empty).contains("no file is named"), "{}", text(&empty));
    let reach = load(&bed, &bed.path("mnt"), &["--endpoint", "http://127.0.0.1:9"]);
    assert!(reach.status.code() == Some(2) && text(&reach).contains("--endpoint"), "{}", text(&reach));
    let mut listed = bed.stoker(["load", "--stdin"]);
    let mut child =
        listed.arg(bed.path("mnt")).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("its input").write_all(b"val/0.jpg\nval/none.jpg\n").expect("a list");
    wrong(child.wait_with_output().expect("it ends"), &["val/none.jpg", "1 of the listed names"]);
    daemon.end();
    let local = bed.mount_at(bed.path("data").to_str().expect("a path"), "mnt", &[]);
    refused_as_typed(&load(&bed, &bed.path("mnt"), &[]), &["read where it lies"]);
    local.end();
}

#[test]
fn large_files_are_loaded_by_large_requests_also_with_little_memory() {
    for (memory, bytes, requests) in [("64MiB", 12 * MIB, 3), ("64MiB", 32 * MIB, 5), ("512MiB", 32 * MIB, 5)] {
        let Some(bed) = Bed::new() else { return };
        let files = 8;
        (0..files).for_each(|number| bed.put(&format!("{number}"), &noise(bytes, number)));
        let daemon = bed.mount(&["--fill", "off", "--memory", memory]);
        let load = loaded(&bed, &bed.path("mnt"), &[]);
        assert_eq!(load["files_done"], files, "{load}");
        // Eight mebibytes each, but where the memory for it came in two parts.
        assert!(bed.gets() <= files * requests, "{} requests for {files} files of {bytes} bytes", bed.gets());
        compare(&bed.path("mnt"), &bed.path("data"));
        daemon.end();
    }
}

#[test]
fn patterns_that_choose_nothing_are_said_to() {
    let Some(bed) = set() else { return };
    let daemon = bed.mount(&["--fill", "off"]);
    let nothing = load(&bed, &bed.path("mnt"), &["--include", "**/*.nonesuch"]);
    let said = text(&nothing);
    assert!(
        nothing.status.code() == Some(1) && said.contains("--include **/*.nonesuch") && said.contains("try:"),
        "{said}"
    );
    daemon.end();
}

#[test]
fn what_does_not_fit_ends_with_3_and_what_fails_with_4() {
    let Some(bed) = set() else { return };
    let daemon = bed.mount(&["--fill", "off", "--cache-size", "2MB", "--patience", "1s"]);
    let done = load(&bed, &bed.path("mnt"), &[]);
    assert_eq!(done.status.code(), Some(3), "{}", text(&done));
    assert!(text(&done).contains("did not fit") && text(&done).contains("--cache-size"), "{}", text(&done));
    compare(&bed.path("mnt"), &bed.path("data"));
    assert!(bed.status()["limits"]["disk_used"].as_u64().is_some_and(|used| used <= 2_000_000));
    daemon.end();
    let daemon = bed.mount_at(
        &format!("s3://{BUCKET}"),
        "mnt",
        &["--fill", "off", "--patience", "1s", "--cache", bed.path("other").to_str().expect("a path")],
    );
    bed.put("val/3.jpg", &noise(30_000, 999));
    fs::remove_file(bed.data("val/4.jpg")).expect("it goes");
    let done = load(&bed, &bed.path("mnt"), &[]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(4), "{said}");
    assert!(["2 files failed", "val/3.jpg", "val/4.jpg", "try:"].iter().all(|word| said.contains(word)), "{said}");
    assert!(finished(bed.stoker(["refresh"]).arg(bed.path("mnt"))).status.success());
    assert_eq!(load(&bed, &bed.path("mnt"), &[]).status.code(), Some(0));
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

/// Start a command against a slow store, and kill it once some of the set has come.
fn cut_short(bed: &Bed, command: &mut Command, how: &str) -> Output {
    bed.set_bandwidth(8_000_000);
    let before = bed.counters().bytes_out();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let began = Instant::now();
    while bed.counters().bytes_out() < before + 6_000_000 && began.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.try_wait().expect("it can be asked").is_none(), "it is not done yet");
    signal(child.id(), how);
    let ended = child.wait_with_output().expect("it ends");
    bed.set_limits(&emulate::Limits::default());
    ended
}

#[test]
fn an_interrupted_load_goes_on_where_it_was() {
    let Some(bed) = set() else { return };
    let daemon = bed.mount(&["--fill", "off"]);
    let ended = cut_short(&bed, bed.stoker(["load"]).arg(bed.path("mnt")), "INT");
    let said = text(&ended);
    assert!(ended.status.code() == Some(130) && said.contains("interrupted") && said.contains("try:"), "{said}");
    daemon.kill_and_detach();
    let daemon = bed.mount(&["--fill", "off"]);
    let before = bed.counters().bytes_out();
    let load = loaded(&bed, &bed.path("mnt"), &[]);
    assert!(load["bytes_present"].as_u64().is_some_and(|present| present > 0), "{load}");
    assert!(bed.counters().bytes_out() - before < size(&bed) - 2_000_000, "what was there was not fetched again");
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn a_load_whose_node_is_killed_says_so() {
    let Some(bed) = set() else { return };
    let daemon = bed.mount(&["--fill", "off"]);
    bed.set_bandwidth(2_000_000);
    let mut load = bed.stoker(["load"]);
    let load = load.arg(bed.path("mnt")).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    eventually("it has begun", || bed.counters().bytes_out() > 500_000);
    daemon.kill_and_detach();
    let ended = load.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended).contains("the node ended") && text(&ended).contains("mount again"), "{}", text(&ended));
}

#[test]
fn a_damaged_cache_file_is_found_and_mended_by_verify() {
    let Some(bed) = set() else { return };
    let daemon = bed.mount(&["--fill", "off"]);
    assert_eq!(load(&bed, &bed.path("mnt"), &[]).status.code(), Some(0));
    compare(&bed.path("mnt"), &bed.path("data"));
    let objects = bed.path("cache/blocks/objects");
    let paths: Vec<_> = files(&objects).into_iter().map(|name| objects.join(name)).collect();
    let large = paths
        .iter()
        .find(|path| fs::metadata(path).is_ok_and(|found| found.len() == 3 * MIB as u64 + 7))
        .expect("the large one");
    let small =
        paths.iter().find(|path| fs::metadata(path).is_ok_and(|found| found.len() == 1_000)).expect("a small one");
    for path in [large, small] {
        let mut bytes = fs::read(path).expect("a cache file");
        bytes[700] ^= 4;
        // In place, as a bad disk does it.
        let done = Command::new("chmod").arg("600").arg(path).status().expect("chmod runs");
        assert!(done.success() && fs::write(path, bytes).is_ok());
    }
    let gets = bed.gets();
    let verified = load(&bed, &bed.path("mnt"), &["--verify"]);
    assert_eq!(verified.status.code(), Some(0));
    assert!(text(&verified).contains("; verified "), "{}", text(&verified));
    assert!(bed.gets() >= gets + 2, "both were fetched again");
    assert!(daemon.said().contains("dropped a cache file"), "{}", daemon.said());
    // Also with what the kernel had of the damaged files.
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn a_set_is_copied_to_a_folder_byte_for_byte_and_resumed() {
    let Some(bed) = set() else { return };
    bed.put("odd käse 100%/ leading", &noise(5_000, 400));
    let (url, to) = (format!("s3://{BUCKET}"), bed.path("copy"));
    let command = |more: &[&str]| {
        let mut command = bed.stoker(["load", &url, "--to"]);
        command.arg(&to).args(bed.reach()).args(more);
        command
    };
    cut_short(&bed, &mut command(&[]), "KILL");
    let before = bed.counters().bytes_out();
    let done = finished(&mut command(&[]));
    let said = text(&done);
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(["files", "GB/s", "requests", " s:"].iter().all(|word| said.contains(word)), "{said}");
    assert!(bed.counters().bytes_out() - before < size(&bed), "it went on where it was");
    eventually("the copy is the set", || files(&to) == files(&bed.path("data")));
    compare(&to, &bed.path("data"));
    let gets = bed.gets();
    let again = finished(&mut command(&["--json"]));
    let load: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!((&load["bytes_present"], &load["bytes_fetched"]), (&size(&bed).into(), &0.into()), "{load}");
    assert_eq!(bed.gets(), gets, "nothing was fetched again");
    // Damage that keeps size and time is found only by comparing checksums.
    let victim = to.join("val/7.jpg");
    let (mut bytes, time) =
        (fs::read(&victim).expect("a copy"), fs::metadata(&victim).and_then(|found| found.modified()).expect("a time"));
    bytes[0] ^= 1;
    fs::write(&victim, bytes)
        .and_then(|()| fs::File::options().write(true).open(&victim)?.set_modified(time))
        .expect("damage");
    assert_eq!(finished(&mut command(&["--verify"])).status.code(), Some(0));
    compare(&to, &bed.path("data"));
    let some = bed.path("some");
    let done = finished(bed.stoker(["load", &url, "--include", "val/**", "--to"]).arg(&some).args(bed.reach()));
    assert_eq!((done.status.code(), files(&some).len()), (Some(0), 20), "{}", text(&done));
    same(&fs::read(some.join("val/7.jpg")).expect("a copy"), &noise(30_000, 207), &"val/7.jpg");
}

#[test]
fn a_copy_under_faults_is_right_or_says_what_failed() {
    let Some(bed) = set() else { return };
    bed.set_faults("truncate=0.1,wrong-bytes=0.1,reset=0.05,internal-error=0.05,seed=11");
    let (url, to) = (format!("s3://{BUCKET}"), bed.path("copy"));
    let mut command = bed.stoker(["load", &url, "--to"]);
    let done = finished(command.arg(&to).args(bed.reach()));
    assert!(matches!(done.status.code(), Some(0 | 4)), "{}", text(&done));
    for name in files(&to) {
        same(
            &fs::read(to.join(&name)).expect("a copy"),
            &fs::read(bed.path("data").join(&name)).expect("the original"),
            &name.display(),
        );
    }
    says_what_failed(&bed, &to, &done);
    // What changed since it was listed can't be had at all.
    fs::remove_dir_all(&to).expect("the copy goes");
    bed.set_faults("etag-change=0.1,seed=12");
    let changed = finished(&mut command);
    assert_eq!(changed.status.code(), Some(4), "{}", text(&changed));
    says_what_failed(&bed, &to, &changed);
    bed.set_faults("");
    assert_eq!(finished(&mut command).status.code(), Some(0));
    compare(&to, &bed.path("data"));
}

/// Each file is there, or was said to have failed; as many as were counted.
fn says_what_failed(bed: &Bed, to: &Path, done: &Output) {
    let said = text(done);
    let missing: Vec<_> = files(&bed.path("data")).difference(&files(to)).cloned().collect();
    assert_eq!(done.status.code(), Some(if missing.is_empty() { 0 } else { 4 }), "{said}");
    if !missing.is_empty() {
        let count = format!("{} file{} failed:", missing.len(), if missing.len() == 1 { "" } else { "s" });
        assert!(said.contains(&count) && said.contains("  try: "), "`{count}` is missing: {said}");
    }
    for name in missing {
        assert!(said.contains(&*name.to_string_lossy()), "{} failed, and nobody says so: {said}", name.display());
    }
}
