//! What the command says when something is wrong: what failed, on what, what to try; its exit code; and that no
//! secret is ever among it.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::content::noise;
use support::{BUCKET, Bed, Daemon, eventually, finished, is_root, text};

const ACCESS: &str = "AKIATESTTESTTEST";
const SECRET: &str = "wJalrXUtnFEMIsecretK7MDENGbPxRfiCY";

/// A command that failed as it should: exit code 1, and a message of three parts that holds these words.
fn refused(done: &Output, words: &[&str]) {
    refused_with(1, done, words);
}

/// The same of what can't be meant: exit code 2.
fn refused_as_typed(done: &Output, words: &[&str]) {
    refused_with(2, done, words);
}

fn refused_with(code: i32, done: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{said}");
    assert!(said.starts_with("stoker: ") || said.contains("\nstoker: "), "{said}");
    for part in ["\n  on:  ", "\n  try: "].iter().chain(words) {
        assert!(said.contains(part), "`{part}` is missing:\n{said}");
    }
    assert!(!said.contains("panicked") && !said.contains(SECRET), "{said}");
}

fn mounts(bed: &Bed) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    table.lines().filter(|line| line.contains(&*bed.path("mnt").to_string_lossy())).count()
}

#[test]
fn wrong_credentials_are_named_and_never_shown() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", &noise(1_000, 1));
    let mount = |change: &dyn for<'a> Fn(&'a mut Command) -> &'a mut Command| {
        let mut command = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["-vv"]);
        change(&mut command);
        finished(&mut command)
    };
    let wrong_secret = mount(&|command| command.env("AWS_SECRET_ACCESS_KEY", "another secret than that"));
    refused(&wrong_secret, &["signature", "AWS_SECRET_ACCESS_KEY"]);
    assert!(!text(&wrong_secret).contains("another secret than that"));
    let unknown = mount(&|command| command.env("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN"));
    refused(&unknown, &["403", "access key", "AWS_ACCESS_KEY_ID"]);
    let nobody = mount(&|command| command.arg("--anonymous"));
    refused(&nobody, &["s3:ListBucket"]);
    let none = mount(&|command| command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY"));
    refused(&none, &["credentials"]);
    assert_eq!(mounts(&bed), 0);
}

#[test]
fn a_secret_is_in_no_log_no_status_and_no_file() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", &noise(1_000, 1));
    let daemon = bed.mount(&["-vv"]);
    assert_eq!(fs::read(bed.mounted("file")).expect("a read"), noise(1_000, 1));
    let _ = bed.run(["-vv", "refresh"].map(String::from).into_iter().chain([bed.path("mnt").display().to_string()]));
    bed.set_faults("internal-error,seed=1");
    let _ = fs::read(bed.mounted("no such name"));
    let outputs = [bed.run(["status"]), bed.run(["status", "--json"]), bed.run(["-vv", "status"])];
    let said = daemon.said();
    bed.set_faults("");
    daemon.end();
    for text in outputs.iter().map(text).chain([said]) {
        assert!(!text.contains(SECRET) && !text.contains("wJalrXUt"), "{text}");
    }
    for folder in ["cache", "run", "home"] {
        for file in support::content::files(&bed.path(folder)) {
            let bytes = fs::read(bed.path(folder).join(&file)).unwrap_or_default();
            assert!(
                !bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()),
                "{} holds the secret",
                file.display()
            );
        }
    }
}

#[test]
fn an_endpoint_is_taken_from_the_environment_the_one_of_s3_first() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    let nobody = "http://127.0.0.1:9";
    let variables = [
        vec![("AWS_ENDPOINT_URL", bed.endpoint())],
        vec![("AWS_ENDPOINT_URL_S3", bed.endpoint()), ("AWS_ENDPOINT_URL", nobody)],
    ];
    for variables in variables {
        let mut mounting = bed.stoker(["mount", "s3://bucket", "--anonymous", "--region", "us-east-1", "--detach"]);
        mounting.arg(bed.path("mnt")).arg("--cache").arg(bed.path("cache")).envs(variables);
        let mounted = finished(&mut mounting);
        assert!(mounted.status.success(), "{}", text(&mounted));
        assert_eq!(fs::read(bed.mounted("file")).expect("a read"), noise(1_000, 1));
        assert!(finished(bed.stoker(["umount"]).arg(bed.path("mnt"))).status.success());
    }
    let mut flag = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--detach"]);
    assert!(finished(flag.env("AWS_ENDPOINT_URL_S3", nobody)).status.success(), "what is typed goes first");
    assert!(finished(bed.stoker(["umount"]).arg(bed.path("mnt"))).status.success());
}

#[test]
fn a_missing_bucket_or_prefix_and_a_dead_endpoint_are_told_apart() {
    let Some(bed) = Bed::new() else { return };
    bed.put("train/file", &noise(1_000, 1));
    refused(&finished(&mut bed.mounting("s3://no-such-bucket", "mnt", &[])), &["no-such-bucket", "check the name"]);
    refused(
        &finished(&mut bed.mounting(&format!("s3://{BUCKET}/trian"), "mnt", &[])),
        &["nothing under", "trian", "prefix"],
    );
    bed.stop_server();
    let unreachable = finished(&mut bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--patience", "2s"]));
    refused(&unreachable, &["can't connect", bed.endpoint().trim_start_matches("http://")]);
    assert_eq!(mounts(&bed), 0);
}

#[test]
fn what_is_no_url_is_refused_with_the_spelling_that_would_do() {
    let Some(bed) = Bed::new() else { return };
    for url in ["s3:/bucket", "gs://bucket/x", "https://host/x", "s3://"] {
        refused_as_typed(&finished(&mut bed.mounting(url, "mnt", &[])), &[url, "s3://"]);
    }
    refused(&finished(&mut bed.mounting("file:///no/such/folder", "mnt", &[])), &["/no/such/folder"]);
    let wrong = bed.run(["mount", "--cache-size", "many", "s3://bucket", "/mnt"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    assert_eq!(bed.run(["mount"]).status.code(), Some(2));
    for (flag, value, says) in [
        ("--cache-size", "0GB", "less than 1MB"),
        ("--cache-size", "1KB", "less than 1MB"),
        ("--cache-size", "-5GB", "not understood"),
        ("--cache-size", "999999PB", "exabyte"),
        ("--memory", "-5GB", "not understood"),
        ("--refresh", "0s", "at most once a second"),
        ("--patience", "60", "needs a unit"),
        ("--patience", "0s", "no time"),
    ] {
        let done = bed.run(["mount", flag, value, "s3://bucket", "/mnt"]);
        let said = text(&done);
        assert!(
            done.status.code() == Some(2) && [flag, value, says, "try:"].iter().all(|word| said.contains(word)),
            "{said}"
        );
    }
    let names = [
        (vec!["s3://bucket", "--endpoint", "minio:9000"], "minio:9000"),
        (vec!["s3://bucket", "--endpoint", "ftp://host"], "ftp://host"),
        (vec!["s3://no bucket!"], "no bucket!"),
        (vec!["ftp://host/folder"], "ftp://host/folder"),
        (vec!["s3://bucket", "--profile", "nonesuch"], "nonesuch"),
    ];
    for (words, shown) in names {
        let mount =
            bed.stoker(["mount"]).args(&words).arg(bed.path("mnt")).arg("--cache").arg(bed.path("never")).output();
        refused_as_typed(&mount.expect("stoker runs"), &[shown]);
        let copy = bed.stoker(["load"]).args(&words).arg("--to").arg(bed.path("copy")).output();
        refused_as_typed(&copy.expect("stoker runs"), &[shown]);
    }
    assert!(!bed.path("never").exists() && !bed.path("copy").exists(), "nothing was made");
    let bare = bed.run(["mount", "--cache-size", "10", "s3://bucket", "/mnt"]);
    assert!(bare.status.code() == Some(2) && text(&bare).contains("needs a unit"), "{}", text(&bare));
    refused_as_typed(
        &finished(&mut bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--memory", "1MiB"])),
        &["--memory", "64MiB"],
    );
}

#[test]
fn a_mount_point_that_will_not_do_is_refused() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    let url = format!("s3://{BUCKET}");
    refused(&finished(&mut bed.mounting(&url, "missing", &[])), &["does not exist", "mkdir -p"]);
    fs::write(bed.path("plain"), b"").expect("a file");
    refused(&finished(&mut bed.mounting(&url, "plain", &[])), &["not a folder"]);
    let daemon = bed.mount(&[]);
    refused(&finished(&mut bed.mounting(&url, "mnt", &[])), &["already mounted", "stoker umount"]);
    refused(
        &finished(&mut bed.mounting(&url, "mnt", &["--cache", bed.path("other").to_str().expect("a path")])),
        &["already mounted"],
    );
    assert_eq!(fs::read(bed.mounted("file")).expect("the first goes on"), noise(1_000, 1));
    daemon.end();
}

#[test]
fn without_the_device_it_says_how_to_get_it() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: only root can hide /dev/fuse");
    }
    bed.put("file", &noise(1_000, 1));
    let mounting = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &[]);
    let mut hidden = wrapped(
        "unshare",
        &["-m", "sh", "-c", "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$@\"", "sh"],
        &mounting,
    );
    let done = finished(&mut hidden);
    refused(&done, &["FUSE", "/dev/fuse", "modprobe fuse"]);
}

#[test]
fn the_demo_does_without_the_device() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return eprintln!("SKIPPED: only root can hide /dev/fuse");
    }
    let demo = bed.stoker(["demo", "--bandwidth", "1GB", "--latency", "0ms"]);
    let hide = "mount -t tmpfs none /dev && mknod -m 444 /dev/urandom c 1 9 && exec \"$@\"";
    let done = finished(&mut wrapped("unshare", &["-m", "sh", "-c", hide, "sh"], &demo));
    let said = text(&done);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("Without FUSE") && said.contains("Stoker, in process"), "{said}");
}

#[test]
fn the_memory_of_a_node_is_a_quarter_of_what_its_control_group_allows() {
    let Some(bed) = Bed::new() else { return };
    let allowed = 512_u64 << 20;
    let Some(group) = Group::new(allowed) else {
        return eprintln!("SKIPPED: no memory control group can be made here");
    };
    bed.put("file", &noise(1_000, 1));
    let url = format!("s3://{BUCKET}");
    let join = format!("echo $$ > '{}' && exec \"$@\"", group.0.join("cgroup.procs").display());
    let within = |more: &[&str]| wrapped("sh", &["-c", &join, "sh"], &bed.mounting(&url, "mnt", more));
    refused_as_typed(&finished(&mut within(&["--memory", "1GiB"])), &["control group allows", "--memory"]);
    let daemon = Daemon::start(&mut within(&[]), &bed.path("mnt"), &bed.path("mnt.log"));
    assert_eq!(bed.status()["limits"]["memory_bytes"], allowed / 4);
    daemon.end();
}

/// A memory control group of version 1 or 2, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> Option<Group> {
        let folder = format!("stoker-test-{}", std::process::id());
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")].into_iter().find_map(
            |(top, limit)| {
                let folder = Path::new(top).join(&folder);
                fs::create_dir(&folder).ok()?;
                let group = Group(folder);
                fs::write(group.0.join(limit), bytes.to_string()).is_ok().then_some(group)
            },
        )
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        eventually("the group is empty and goes", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The same command, run by another.
fn wrapped(program: &str, words: &[&str], inner: &Command) -> Command {
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
fn nothing_can_be_written() {
    let Some(bed) = Bed::new() else { return };
    bed.put("folder/file", &noise(1_000, 1));
    let daemon = bed.mount(&[]);
    let read_only = |what: &str, error: std::io::Error| assert_eq!(error.raw_os_error(), Some(30), "{what}: {error}");
    let (file, new) = (bed.mounted("folder/file"), bed.mounted("folder/new"));
    read_only("create", fs::write(&new, b"x").expect_err("EROFS"));
    read_only("open", fs::File::options().write(true).open(&file).expect_err("EROFS"));
    read_only("unlink", fs::remove_file(&file).expect_err("EROFS"));
    read_only("rename", fs::rename(&file, &new).expect_err("EROFS"));
    read_only("mkdir", fs::create_dir(&new).expect_err("EROFS"));
    read_only("rmdir", fs::remove_dir(bed.mounted("folder")).expect_err("EROFS"));
    read_only("chmod", fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).expect_err("EROFS"));
    read_only("link", fs::hard_link(&file, &new).expect_err("EROFS"));
    read_only("symlink", std::os::unix::fs::symlink("x", &new).expect_err("EROFS"));
    assert_eq!(fs::read(&file).expect("a read"), noise(1_000, 1));
    daemon.end();
}

#[test]
fn commands_about_nothing_say_so() {
    let Some(bed) = Bed::new() else { return };
    for command in ["umount", "refresh", "load", "status"] {
        let mut words = bed.stoker([command]);
        refused(&finished(words.arg(bed.path("mnt"))), &["nothing is mounted there", "stoker status"]);
    }
    let idle = bed.run(["status"]);
    assert!(idle.status.success() && text(&idle).contains("no node is running"), "{}", text(&idle));
    assert_eq!(bed.nodes().len(), 0);
    refused_as_typed(&bed.run(["load", "s3://bucket"]), &["--to FOLDER"]);
}
