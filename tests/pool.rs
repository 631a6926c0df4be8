//! Pools: `stoker up` and `stoker down` on hosts that are an `sshd` each on this machine, with mounts, homes and nodes of
//! their own, and a folder that is served as a bucket.

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use support::content::noise;
use support::sshd::Hosts;
use support::{BUCKET, Bed, eventually, finished, has_ended, pids, refused_as_typed, signal, text};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three hosts, a bucket, and what tells one from the other.
struct Cluster {
    bed: Bed,
    hosts: Hosts,
    port: u16,
    file: PathBuf,
    dir: PathBuf,
}

impl Cluster {
    fn new() -> Option<Cluster> {
        let (bed, hosts) = (Bed::new()?, Hosts::apart(&NAMES)?);
        bed.put("train/first", &noise(300_000, 1));
        bed.put("train/deep/second", &noise(3_000_000, 2));
        // Each has an address of its own, as members of a cluster have.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let file = hosts.file("a address=127.0.0.2\nb address=127.0.0.3\nc address=127.0.0.4\n");
        let dir = hosts.path("mnt/train set");
        Some(Cluster { bed, hosts, port, file, dir })
    }

    fn words(&self, verb: &str, more: &[&str]) -> Vec<String> {
        let mut words = vec![verb.to_owned(), "--hosts".into(), self.file.display().to_string()];
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words
    }

    fn rising(&self, more: &[&str]) -> std::process::Command {
        let port = self.port.to_string();
        let mut words = self.words("up", &["--plaintext", "--port", &port]);
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words.extend(self.bed.reach());
        words.extend([format!("s3://{BUCKET}/train"), self.dir.display().to_string()]);
        self.hosts.stoker(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn up(&self, more: &[&str]) -> Output {
        finished(&mut self.rising(more))
    }

    fn down(&self, more: &[&str]) -> Output {
        let dir = self.dir.display().to_string();
        let words = self.words("down", &[more, &[&dir]].concat());
        finished(&mut self.hosts.stoker(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    /// A line of sh on all hosts.
    fn on_all(&self, line: &str) -> Output {
        let mut words = self.words("run", &["--", line]);
        words.insert(0, "hosts".into());
        finished(&mut self.hosts.stoker(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    fn nodes(&self, host: &str) -> Vec<u32> {
        pids(&self.hosts.folder(host).join("run")).into_iter().filter(|pid| is_node(*pid)).collect()
    }

    /// What is left on hosts: files, processes, mounts.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for host in NAMES {
            below(&self.hosts.folder(host).join("home"), &mut left);
            below(&self.hosts.folder(host).join("run"), &mut left);
            left.extend(self.nodes(host).iter().map(|pid| format!("{host}: process {pid}")));
        }
        below(&self.hosts.path("disk"), &mut left);
        left.extend(self.dir.exists().then(|| self.dir.display().to_string()));
        let shared =
            fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path().display().to_string());
        left.extend(shared.filter(|path| path.contains("stoker-pool-")));
        let table = self.on_all("cut -d ' ' -f 5 /proc/self/mountinfo | grep mnt/train");
        left.extend(String::from_utf8_lossy(&table.stdout).lines().map(str::to_owned));
        left
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for host in NAMES {
            for process in pids(&self.hosts.folder(host).join("run")) {
                // The sshd of a host has these variables only for what it runs.
                signal(process, "KILL");
            }
        }
    }
}

fn is_node(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).nth(1) == Some(b"node") && !has_ended(pid)
}

fn below(folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        all.push(entry.path().display().to_string());
        below(&entry.path(), all);
    }
}

fn sum(content: &[u8], name: &str, scratch: &Path) -> String {
    let path = scratch.join(name);
    fs::write(&path, content).expect("a file");
    let done = std::process::Command::new("sha256sum").arg(path).output().expect("it runs");
    String::from_utf8_lossy(&done.stdout).split(' ').next().expect("a sum").to_owned()
}

#[test]
fn a_pool_serves_the_set_on_all_hosts_and_leaves_nothing() {
    let Some(cluster) = Cluster::new() else { return };
    let disk = cluster.hosts.path("disk").display().to_string();
    for more in [vec![], vec!["--cache", &disk, "--json"]] {
        let up = cluster.up(&more);
        assert!(up.status.success(), "{}", text(&up));
        if more.is_empty() {
            for word in ["on 3 hosts", "read on all of them", "stoker down --hosts", "/mnt/train set'"] {
                assert!(text(&up).contains(word), "`{word}`: {}", text(&up));
            }
        } else {
            let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&up.stdout)
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect();
            assert_eq!((lines.len(), &lines[2]["host"], &lines[2]["ok"]), (3, &"c".into(), &true.into()));
            let programs = cluster.on_all("ls $HOME/.cache/stoker-pools/bin | wc -l");
            assert_eq!(
                String::from_utf8_lossy(&programs.stdout).lines().filter(|line| line.ends_with(" 1")).count(),
                3
            );
        }
        let read = cluster.on_all(&format!("cat '{}/deep/second' | sha256sum", cluster.dir.display()));
        let expected = sum(&noise(3_000_000, 2), "sum", &cluster.hosts.path("on"));
        assert_eq!(String::from_utf8_lossy(&read.stdout).matches(&expected).count(), 3, "{}", text(&read));
        // They are one cache.
        let status = cluster.on_all("$HOME/.cache/stoker-pools/bin/*/stoker status --json");
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        for host in NAMES {
            let line = said.lines().find_map(|line| line.strip_prefix(&format!("{host}: "))).expect("a node");
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let members = value["cluster"]["members"].as_array().expect("members");
            assert_eq!((members.len(), value["mounts"].as_array().map(Vec::len)), (3, Some(1)), "{line}");
        }
        let again = cluster.up(&[]);
        assert!(
            again.status.code() == Some(1) && text(&again).contains("a pool has this mount point already"),
            "{}",
            text(&again)
        );
        assert_eq!(NAMES.map(|host| cluster.nodes(host).len()), [1, 1, 1], "who is refused takes nothing down");
        let down = cluster.down(&[]);
        assert!(down.status.success() && text(&down).contains("taken down on 3 hosts"), "{}", text(&down));
        assert_eq!(cluster.left(), [""; 0]);
    }
    let down = cluster.down(&[]);
    assert!(down.status.success() && text(&down).contains("taken down on 0 hosts"), "{}", text(&down));
}

#[test]
fn a_pool_that_does_not_come_up_everywhere_comes_up_nowhere() {
    let Some(cluster) = Cluster::new() else { return };
    // A port that is taken, on the last host.
    let taken = TcpListener::bind(("127.0.0.4", cluster.port)).expect("the port");
    let up = cluster.up(&[]);
    assert_eq!(up.status.code(), Some(1), "{}", text(&up));
    assert!(text(&up).contains("1 of 3 hosts failed") && text(&up).contains("cannot listen"), "{}", text(&up));
    assert_eq!(cluster.left(), [""; 0]);
    drop(taken);
    // A host that isn't there is found out before anything is begun.
    fs::write(&cluster.file, "a address=127.0.0.2\ndown\n").expect("a file");
    let up = cluster.up(&[]);
    assert!(text(&up).contains("ssh could not connect") && !text(&up).contains("taking down"), "{}", text(&up));
    assert_eq!(cluster.left(), [""; 0]);
    // A store that hangs.
    fs::write(&cluster.file, "a address=127.0.0.2\nb address=127.0.0.3\n").expect("a file");
    cluster.bed.set_faults("hang=1");
    let up = cluster.up(&["--timeout", "15s"]);
    assert!(up.status.code() == Some(1) && text(&up).contains("taking down"), "{}", text(&up));
    assert_eq!(cluster.left(), [""; 0]);
}

#[test]
fn what_a_crash_or_an_interrupt_in_the_middle_leaves_is_taken_down() {
    let Some(cluster) = Cluster::new() else { return };
    let has_begun = |host: &str| {
        let pools =
            fs::read_dir(cluster.hosts.folder(host).join("home/.cache/stoker-pools")).into_iter().flatten().flatten();
        pools
            .into_iter()
            .any(|entry| !entry.file_name().to_string_lossy().starts_with('.') && entry.file_name() != "bin")
    };
    let is_mounting = |host: &str| !cluster.nodes(host).is_empty();
    for (name, is_late) in [("KILL", false), ("KILL", true), ("INT", false), ("INT", true)] {
        let mut child = cluster.rising(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        eventually("it has begun", || if is_late { is_mounting("b") } else { has_begun("b") });
        signal(child.id(), name);
        if name == "INT" {
            let done = child.wait_with_output().expect("it ends");
            assert_eq!(done.status.code(), Some(130), "{}", text(&done));
        } else {
            child.wait().expect("it ends");
            // What it ran there has heard of it.
            std::thread::sleep(Duration::from_secs(1));
            let down = cluster.down(&["--lazy"]);
            assert!(down.status.success(), "{}", text(&down));
        }
        assert_eq!(cluster.left(), [""; 0], "{name} {is_late}");
    }
}

#[test]
fn a_node_that_was_killed_and_files_that_are_open_are_told_and_taken_down() {
    let Some(cluster) = Cluster::new() else { return };
    let up = cluster.up(&[]);
    assert!(up.status.success(), "{}", text(&up));
    cluster.nodes("a").iter().for_each(|node| signal(*node, "KILL"));
    let mut words = cluster.words(
        "run",
        &[
            "--",
            &format!(
                "[ $STOKER_TEST_HOST != b ] || {{ exec <'{}/first'; echo open; sleep 100; }}",
                cluster.dir.display()
            ),
        ],
    );
    words.insert(0, "hosts".into());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut open = cluster.hosts.stoker(&words).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(open.stdout.take().expect("piped")), &mut line)
        .expect("a line");
    assert_eq!(line, "b: open\n");
    let down = cluster.down(&[]);
    assert!(open.try_wait().expect("it can be asked").is_none(), "who reads goes on: {}", text(&down));
    assert!(down.status.code() == Some(1) && text(&down).contains("1 of 3 hosts failed"), "{}", text(&down));
    let down = cluster.down(&["--lazy"]);
    assert!(down.status.success() && text(&down).contains("taken down on 3 hosts"), "{}", text(&down));
    signal(open.id(), "INT");
    let _ = open.wait();
    assert_eq!(cluster.left(), [""; 0]);
}

#[test]
fn a_pool_that_cannot_be_meant_is_refused_before_a_host_is_asked() {
    let Some(cluster) = Cluster::new() else { return };
    let up = |words: &[&str]| {
        let words = cluster.words("up", words);
        finished(&mut cluster.hosts.stoker(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let dir = cluster.dir.display().to_string();
    refused_as_typed(&up(&["s3://bucket/train", &dir]), &["--plaintext"]);
    refused_as_typed(&up(&["--plaintext", "s3://bucket/train", "relative"]), &["whole path"]);
    refused_as_typed(&up(&["--plaintext", "folder", &dir]), &["whole path"]);
    refused_as_typed(
        &up(&["--plaintext", "--binary", "arm64=/nowhere", "s3://bucket/train", &dir]),
        &["can't be read"],
    );
    assert_eq!(cluster.left(), [""; 0]);
}
