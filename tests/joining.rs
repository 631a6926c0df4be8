//! Mounts that share a node, and commands that end in every way: who is served stays served, who is gone leaves
//! nothing, and nobody ends what is another's.

mod support;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::content::{Chance, compare, noise, same};
use support::{BUCKET, Bed, Daemon, LONG, eventually, finished, signal, text};

fn url(prefix: &str) -> String {
    format!("s3://{BUCKET}/{prefix}")
}

fn mounts(bed: &Bed) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    table.lines().filter(|line| line.contains(&*bed.path("").to_string_lossy())).count()
}

/// No process, no mount and no socket.
fn nothing_is_left(bed: &Bed) {
    eventually("the node has ended", || support::pids(&bed.path("run")).is_empty());
    assert_eq!(mounts(bed), 0);
    let left = support::content::files(&bed.path("run"));
    assert!(left.iter().all(|name| name.extension().is_none_or(|end| end != "sock")), "{left:?}");
}

/// A command that runs beside the test.
fn started(bed: &Bed, url: &str, at: &str, more: &[&str]) -> Child {
    let _ = fs::create_dir(bed.path(at));
    let log = File::create(bed.path(&format!("{at}.log"))).expect("a log");
    let mut command = bed.mounting(url, at, more);
    command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts")
}

#[test]
fn mounts_that_start_at_once_do_not_mind_those_that_fail_or_are_killed() {
    let Some(bed) = Bed::new() else { return };
    for number in 0..4u64 {
        bed.put(&format!("{number}/file"), &noise(1_000, number));
    }
    let mut chance = Chance::printed("kills");
    for round in 0..5 {
        let detached = ["--detach", "--patience", "1s", "--fill", "off"];
        let mut good = Vec::new();
        let mut others = Vec::new();
        // In another order each time: who comes first starts the node.
        for number in (0..8).map(|number| (number + round * 3) % 8) {
            let at = format!("m{number}");
            let mount = |url: &str| started(&bed, url, &at, &detached);
            match number {
                0..4 => good.push((number, mount(&url(&number.to_string())))),
                4 => others.push(mount("s3://no-such-bucket")),
                5 => others.push(mount(&url("nothing-here"))),
                // Nobody listens there.
                6 => {
                    let _ = fs::create_dir(bed.path(&at));
                    let mut command = bed.stoker(["mount", &url("0")]);
                    command.arg(bed.path(&at)).arg("--cache").arg(bed.path("cache")).args(detached);
                    command.args(["--endpoint", "http://127.0.0.1:9", "--region", "us-east-1", "--anonymous"]);
                    others.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
                }
                _ => {
                    let mut killed = mount(&url("0"));
                    std::thread::sleep(Duration::from_millis(chance.below(120)));
                    killed.kill().and_then(|()| killed.wait()).expect("it is killed");
                }
            }
        }
        let ends = |child: &mut Child| {
            eventually("it ends", || support::has_ended(child.id()));
            child.wait().expect("it can be asked")
        };
        for other in &mut others {
            assert!(!ends(other).success(), "it can't be mounted");
        }
        for (number, child) in &mut good {
            let said = fs::read_to_string(bed.path(&format!("m{number}.log"))).unwrap_or_default();
            assert!(ends(child).success(), "mount {number}: {said}");
            let read = fs::read(bed.path(&format!("m{number}/file"))).expect("a read");
            same(&read, &noise(1_000, *number), number);
        }
        for number in 0..8 {
            let _ = finished(bed.stoker(["umount"]).arg(bed.path(&format!("m{number}"))));
        }
        nothing_is_left(&bed);
    }
}

#[test]
fn a_command_that_is_killed_takes_its_mount_along_and_no_other() {
    let Some(bed) = Bed::new() else { return };
    bed.put("one/file", &noise(10_000, 1));
    bed.put("two/file", &noise(20_000, 2));
    let mut first = bed.mount_at(&url("one"), "one", &[]);
    let mut second = bed.mount_at(&url("two"), "two", &[]);
    signal(first.pid(), "KILL");
    assert!(first.waited(LONG).is_some());
    eventually("its mount is gone", || mounts(&bed) == 1);
    compare(&bed.path("two"), &bed.path("data/two"));
    signal(second.pid(), "KILL");
    assert!(second.waited(LONG).is_some());
    nothing_is_left(&bed);
}

#[test]
fn a_mount_in_the_making_is_given_up_when_its_command_is_killed() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    bed.set_faults("hang");
    for more in [&["--detach"][..], &[]] {
        let before = bed.requests();
        let mut child = started(&bed, &url(""), "mnt", more);
        eventually("the store is asked", || bed.requests() > before);
        child.kill().and_then(|()| child.wait()).expect("it is killed");
        nothing_is_left(&bed);
    }
}

#[test]
fn a_mount_over_a_detached_one_is_another() {
    let Some(bed) = Bed::new() else { return };
    bed.put("one/file", &noise(5 << 20, 1));
    bed.put("two/file", &noise(1_000, 2));
    let mut first = bed.mount_at(&url("one"), "mnt", &["--fill", "off"]);
    let mut held = File::open(bed.mounted("file")).expect("an open");
    let lazily = finished(bed.stoker(["umount", "--lazy"]).arg(bed.path("mnt")));
    assert!(lazily.status.success(), "{}", text(&lazily));
    let mut second = bed.mount_at(&url("two"), "mnt", &["--fill", "off"]);
    bed.put("two/new", &noise(2_000, 3));
    let refreshed = finished(bed.stoker(["refresh"]).arg(bed.path("mnt")));
    assert!(text(&refreshed).contains("2 files"), "{}", text(&refreshed));
    compare(&bed.path("mnt"), &bed.path("data/two"));
    // What ends the first, asked for by its own command, leaves the second alone.
    signal(first.pid(), "TERM");
    signal(first.pid(), "TERM");
    assert!(first.waited(LONG).is_some());
    compare(&bed.path("mnt"), &bed.path("data/two"));
    let mut read = Vec::new();
    held.read_to_end(&mut read).expect("an open file is read to its end");
    same(&read, &noise(5 << 20, 1), &"the open file");
    drop(held);
    signal(second.pid(), "TERM");
    assert!(second.waited(LONG).expect("it ends").success(), "{}", second.said());
    nothing_is_left(&bed);
}

/// A reader in a process of its own, which may hang.
fn reader(path: &Path) -> Child {
    let mut cat = std::process::Command::new("cat");
    cat.arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("cat runs")
}

#[test]
fn a_signal_ends_a_mount_also_with_a_reader_on_a_store_that_hangs() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(3 << 20, 1));
    for words in [&["TERM"][..], &["INT"], &["HUP"], &["TERM", "TERM"]] {
        let mut daemon: Daemon = bed.mount(&["--fill", "off"]);
        let mut cat = hanging(&bed);
        let began = Instant::now();
        for word in words {
            // The next one is another only after this one was heard.
            signal(daemon.pid(), word);
            eventually("the mount is out of sight", || mounts(&bed) == 0);
        }
        let ended = daemon.waited(LONG).and_then(|ended| ended.code());
        assert_eq!(ended, Some(if words.len() == 1 { 0 } else { INTERRUPTED }), "{words:?}: {}", daemon.said());
        nothing_is_left(&bed);
        assert!(!looks_for_no_strays(&bed), "{words:?}");
        assert!(began.elapsed() < TEN_SECONDS_OR_SO, "{words:?} took {:?}", began.elapsed());
        let _ = cat.kill().and_then(|()| cat.wait());
        bed.set_faults("");
        let _ = fs::remove_dir_all(bed.path("cache"));
    }
}

/// Within ten seconds is what is promised; the machine may be busy.
const TEN_SECONDS_OR_SO: Duration = Duration::from_secs(20);

/// The exit code of what was asked to end a second time, and did not wait for its readers any longer.
const INTERRUPTED: i32 = 130;

/// A reader of the mounted file that waits for a store which hangs from now on.
fn hanging(bed: &Bed) -> Child {
    bed.set_faults("hang");
    let before = bed.gets();
    let cat = reader(&bed.mounted("file"));
    eventually("the reader waits", || bed.gets() > before);
    cat
}

/// Whether the next node believes that each file in the cache is in its index: not after an end amid reads.
fn looks_for_no_strays(bed: &Bed) -> bool {
    bed.path("cache/blocks/clean").exists()
}

#[test]
fn a_mount_waits_for_the_end_of_a_node_that_has_open_files() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(5 << 20, 1));
    let detached = ["--detach", "--fill", "off"];
    let mounted = finished(&mut bed.mounting(&url(""), "mnt", &detached));
    assert!(mounted.status.success(), "{}", text(&mounted));
    let _held = File::open(bed.mounted("file")).expect("an open");
    signal(bed.status()["pid"].as_u64().expect("a number") as u32, "TERM");
    eventually("the mount is out of sight", || mounts(&bed) == 0);
    let again = finished(&mut bed.mounting(&url(""), "mnt", &detached));
    assert!(again.status.success(), "{}", text(&again));
    compare(&bed.path("mnt"), &bed.path("data"));
    let unmounted = finished(bed.stoker(["umount"]).arg(bed.path("mnt")));
    assert!(unmounted.status.success(), "{}", text(&unmounted));
    nothing_is_left(&bed);
}

#[test]
fn a_second_signal_ends_a_node_at_once() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(3 << 20, 1));
    for (words, code) in [(&["TERM"][..], 0), (&["TERM", "TERM"], INTERRUPTED), (&["INT", "TERM"], INTERRUPTED)] {
        let mut serving = bed.stoker(["node", "--cache"]);
        let mut node = serving.arg(bed.path("cache")).stderr(Stdio::null()).spawn().expect("it starts");
        eventually("it answers", || bed.nodes().len() == 1);
        let mounted = finished(&mut bed.mounting(&url(""), "mnt", &["--detach", "--fill", "off"]));
        assert!(mounted.status.success(), "{}", text(&mounted));
        let mut cat = hanging(&bed);
        let began = Instant::now();
        for word in words {
            signal(node.id(), word);
            eventually("the mount is out of sight", || mounts(&bed) == 0);
        }
        eventually("it ends", || support::has_ended(node.id()));
        assert!(began.elapsed() < TEN_SECONDS_OR_SO, "{words:?} took {:?}", began.elapsed());
        assert_eq!(node.wait().expect("it has ended").code(), Some(code), "{words:?}");
        nothing_is_left(&bed);
        assert!(!looks_for_no_strays(&bed), "{words:?}");
        let _ = cat.kill().and_then(|()| cat.wait());
        bed.set_faults("");
        let _ = fs::remove_dir_all(bed.path("cache"));
    }
}

#[test]
fn a_node_of_its_own_stays_until_it_is_told() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(1_000, 1));
    let mut node = bed.stoker(["node", "--cache"]);
    let mut node = node.arg(bed.path("cache")).stderr(Stdio::null()).spawn().expect("it starts");
    eventually("it answers", || bed.nodes().len() == 1);
    for _ in 0..2 {
        let mut daemon = bed.mount(&[]);
        compare(&bed.path("mnt"), &bed.path("data"));
        signal(daemon.pid(), "TERM");
        assert!(daemon.waited(LONG).expect("it ends").success(), "{}", daemon.said());
        assert_eq!(bed.status()["pid"], node.id());
    }
    signal(node.id(), "TERM");
    assert!(node.wait().expect("it ends").success());
    nothing_is_left(&bed);
}

#[test]
fn a_node_whose_log_cannot_be_opened_anew_goes_on_in_the_old_one() {
    let Some(bed) = Bed::new() else { return };
    fs::create_dir(bed.path("logs")).expect("a folder");
    let mut node = bed.stoker(["node", "--cache"]);
    node.arg(bed.path("cache")).arg("--log").arg(bed.path("logs/log"));
    let mut node = node.stderr(Stdio::null()).spawn().expect("it starts");
    eventually("it answers", || bed.nodes().len() == 1);
    fs::rename(bed.path("logs"), bed.path("moved")).expect("moved");
    signal(node.id(), "HUP");
    let said = || fs::read_to_string(bed.path("moved/log")).unwrap_or_default();
    eventually("it says so", || said().contains("cannot write the log"));
    assert_eq!(bed.status()["pid"], node.id());
    fs::create_dir(bed.path("logs")).expect("a folder");
    signal(node.id(), "HUP");
    eventually("it is opened anew", || bed.path("logs/log").exists());
    signal(node.id(), "TERM");
    assert!(node.wait().expect("it ends").success());
}

/// Levels and messages of a log for programs, of which each line has to be whole.
fn records(path: &Path) -> Vec<(String, String)> {
    let record = |line: &str| {
        let found: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let [time, level, message] = ["time", "level", "message"]
            .map(|name| found[name].as_str().unwrap_or_else(|| panic!("it has no {name}: {line}")).to_owned());
        assert!(time.len() == "2026-03-01T12:00:00.000Z".len() && time.ends_with('Z'), "{line}");
        (level, message)
    };
    fs::read_to_string(path).expect("a log").lines().map(record).collect()
}

#[test]
fn a_log_for_programs_is_an_object_in_each_line() {
    let Some(bed) = Bed::new() else { return };
    fs::create_dir(bed.path("other")).expect("a folder");
    for (words, form) in [(&["--log-format", "json"][..], "text"), (&[], "json")] {
        ["kept", "gone"].iter().for_each(|name| bed.put(name, &noise(1_000, 1)));
        let cache = bed.path(&format!("cache{}", words.len())).display().to_string();
        let mounting = |at: &str, more: &[&str]| {
            let mut command = bed.mounting(&url(""), at, &[&["--fill", "off", "--cache", &cache], more].concat());
            command.env("STOKER_LOG_FORMAT", form);
            command
        };
        let printed = bed.path(&format!("printed{}", words.len()));
        let daemon = Daemon::start(&mut mounting("mnt", words), &bed.path("mnt"), &printed);
        let log = bed.status()["log"].clone();
        assert_eq!(log["format"], "json", "{log}");
        let level = bed.run(["log", "--level", "debug"]);
        assert!(level.status.success(), "{}", text(&level));
        bed.set_faults("internal-error#1");
        same(&fs::read(bed.mounted("kept")).expect("a read"), &noise(1_000, 1), &"kept");
        fs::remove_file(bed.data("gone")).expect("it was there");
        fs::read(bed.mounted("gone")).expect_err("it is gone");
        let log = Path::new(log["path"].as_str().expect("a log"));
        let has = |path: &Path, level: &str, word: &str| {
            records(path).iter().any(|(of, message)| of == level && message.contains(word))
        };
        eventually("what is written is whole", || has(log, "debug", "trying again") && has(log, "warn", "\n  try: "));
        eventually("what is printed is whole", || has(&printed, "warn", "\n  try: "));
        // The variable is a wish about what one starts, the flag about what is there, too.
        let joined = finished(&mut mounting("other", &["--detach"]));
        assert!(joined.status.success(), "{}", text(&joined));
        assert!(finished(bed.stoker(["umount"]).arg(bed.path("other"))).status.success());
        let differs = finished(mounting("other", &["--log-format", "text"]).env_remove("STOKER_LOG_FORMAT"));
        support::refused_as_typed(&differs, &["--log-format json", "another --cache"]);
        daemon.end();
        records(&printed);
        nothing_is_left(&bed);
    }
}

#[test]
fn systemd_hears_when_a_mount_and_a_node_are_ready_and_when_they_end() {
    let Some(bed) = Bed::new() else { return };
    bed.put("one/file", &noise(1_000, 1));
    let heard = UnixDatagram::bind(bed.path("notify")).expect("a socket");
    heard.set_read_timeout(Some(LONG)).expect("a limit");
    let next = || {
        let mut said = [0; 1024];
        let length = heard.recv(&mut said).expect("something is sent");
        String::from_utf8_lossy(&said[..length]).into_owned()
    };
    let _ = fs::create_dir(bed.path("mnt"));
    let mounting = || {
        let mut mounting = bed.mounting(&url("one"), "mnt", &[]);
        mounting.env("NOTIFY_SOCKET", bed.path("notify"));
        mounting
    };
    let mut mount = Daemon::start(&mut mounting(), &bed.path("mnt"), &bed.path("mnt.log"));
    let said = next();
    assert!(said.starts_with("READY=1\n") && said.contains("/mnt"), "{said}");
    signal(mount.pid(), "TERM");
    assert!(next().starts_with("STOPPING=1"));
    assert!(mount.waited(LONG).expect("it ends").success(), "{}", mount.said());
    let mut serving = bed.stoker(["node", "--cache"]);
    let mut node = serving.arg(bed.path("cache")).env("NOTIFY_SOCKET", bed.path("notify")).spawn().expect("it starts");
    assert!(next().starts_with("READY=1\n"));
    signal(node.id(), "TERM");
    assert!(next().starts_with("STOPPING=1"));
    assert!(node.wait().expect("it ends").success());
}

/// A user of this test alone, as a number, with a folder of its own; what it leaves outside is removed at the end.
struct User(u32);

impl User {
    fn new(bed: &Bed, uid: u32) -> User {
        let theirs = bed.path("theirs");
        fs::create_dir(&theirs).and_then(|()| chown(&theirs, Some(uid), Some(uid))).expect("a folder");
        fs::set_permissions(bed.path(""), fs::Permissions::from_mode(0o755)).expect("others may enter");
        User(uid)
    }

    /// Where its nodes listen.
    fn folder(&self) -> PathBuf {
        format!("/tmp/stoker-{}", self.0).into()
    }

    /// The same command, as this user would type it.
    fn types(&self, bed: &Bed, mut command: Command) -> Command {
        command.env_remove("STOKER_RUNTIME_DIR").env_remove("TMPDIR").env("HOME", bed.path("theirs"));
        command.uid(self.0).gid(self.0).current_dir("/");
        command
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ours = processes.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == self.0));
        ours.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).for_each(|pid| signal(pid, "KILL"));
        let _ = fs::remove_dir_all(self.folder());
    }
}

#[test]
fn root_asks_the_nodes_of_all_users_and_is_held_up_and_fooled_by_none() {
    let Some(bed) = Bed::new() else { return };
    if !support::is_root() {
        return eprintln!("SKIPPED: only root can be another user");
    }
    let user = User::new(&bed, 1_000_000 + std::process::id());
    let cache = bed.path("theirs/cache").display().to_string();
    let log = || File::options().create(true).append(true).open(bed.path("theirs.log")).expect("a log");
    let serve = |cache: &str| {
        let mut serving = user.types(&bed, bed.stoker(["node", "--cache", cache]));
        serving.stderr(log()).spawn().expect("it starts")
    };
    let as_root = |words: &[&str]| finished(bed.stoker(words).env_remove("STOKER_RUNTIME_DIR"));
    let status = || text(&as_root(&["status"]));
    let mut node = serve(&cache);
    eventually("root finds the node of another user", || status().contains(&cache));
    let own = finished(&mut user.types(&bed, bed.stoker(["status", &cache])));
    assert!(own.status.success() && text(&own).contains(&cache), "{}", text(&own));

    // A node that hangs, and a socket at which somebody else listens.
    let mut hung = serve(&bed.path("theirs/other").display().to_string());
    eventually("the second node answers", || status().contains("theirs/other"));
    signal(hung.id(), "STOP");
    let planted = user.folder().join("planted.sock");
    let _listener = UnixListener::bind(&planted).expect("a socket");
    chown(&planted, Some(user.0), Some(user.0)).expect("it is theirs");
    let said = status();
    assert!(said.contains(&cache), "{said}");
    let lines = |words: [&str; 2]| said.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
    let whose = format!("user {}", user.0);
    assert_eq!(lines([&whose, "does not answer"]), 1, "{said}");
    assert_eq!(lines([&whose, "user 0 listens there"]), 1, "{said}");
    let level = as_root(&["log", &cache, "--level", "info"]);
    assert!(level.status.success(), "{}", text(&level));
    signal(hung.id(), "KILL");
    let _ = hung.wait();

    // Folders into which others may put something, and links to folders, are no user's.
    let mode = |mode| fs::set_permissions(user.folder(), fs::Permissions::from_mode(mode)).expect("a mode");
    mode(0o777);
    assert!(!status().contains(&cache));
    mode(0o700);
    assert!(status().contains(&cache));
    let away = bed.path("theirs/away");
    let moved = Command::new("mv").arg(user.folder()).arg(&away).status();
    assert!(moved.expect("mv runs").success());
    symlink(&away, user.folder()).expect("a link");
    assert!(!status().contains(&cache));
    fs::remove_file(user.folder()).expect("the link goes");
    signal(node.id(), "TERM");
    assert!(node.wait().expect("it ends").success());
}

#[test]
fn an_unmount_says_that_another_mount_namespace_holds_a_copy_and_waits_for_no_end_of_it() {
    let Some(bed) = Bed::new() else { return };
    if !support::is_root() {
        return eprintln!("SKIPPED: only root can make a mount namespace");
    }
    bed.put("file", b"content");
    let mut daemon = bed.mount(&[]);
    // It keeps a copy of this mount, and of none that other tests have.
    let line =
        "while read -r _ at kind _; do [ $kind != fuse.stoker ] || [ $at = $0 ] || umount -l $at; done </proc/mounts
        echo; exec sleep 1000";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", line]).arg(bed.path("mnt"));
    let mut container = unshare.stdout(Stdio::piped()).spawn().expect("it starts");
    container.stdout.take().expect("piped").read_exact(&mut [0]).expect("it has begun");
    let done = finished(bed.stoker(["umount"]).arg(bed.path("mnt")));
    assert!(done.status.success() && text(&done).contains("another mount namespace"), "{}", text(&done));
    assert_eq!(support::mounts(&bed), 0);
    let status = bed.status();
    assert_eq!(status["mounts"][0]["held_elsewhere"], true, "{status}");
    container.kill().and_then(|()| container.wait()).expect("it ends");
    assert!(daemon.waited(LONG).expect("the node ends").success(), "{}", daemon.said());
}
