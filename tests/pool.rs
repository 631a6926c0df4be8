//! Pools: `stoker up` and `stoker down` on hosts that are an `sshd` each on this machine, with mounts, homes and nodes of
//! their own, and a folder that is served as a bucket.

mod support;

use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
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
        Cluster::with(None)
    }

    /// The store wants these keys.
    fn with(keys: Option<(&str, &str)>) -> Option<Cluster> {
        let (bed, hosts) = (Bed::with(keys)?, Hosts::apart(&NAMES)?);
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
        let mut words = self.words("up", &["--port", &port]);
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

    /// What the node of each host says of itself.
    fn status(&self) -> Vec<serde_json::Value> {
        let said = self.on_all("$HOME/.cache/stoker-pools/bin/*/stoker status --json");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let of = |host: &str| said.lines().find_map(|line| line.strip_prefix(&format!("{host}: "))?.into());
        NAMES.map(|host| serde_json::from_str(of(host).expect("a node")).expect("JSON")).into()
    }

    /// Folders of this test's pool in which secrets lie: other tests have pools too.
    fn secrets(&self) -> Vec<String> {
        let dir = sum(self.dir.as_os_str().as_bytes(), "dir", &self.hosts.path("on"));
        let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let names = shared.map(|entry| entry.path().display().to_string());
        names.filter(|name| name.contains("stoker-pool-") && name.contains(&dir[..16])).collect()
    }

    /// Folders with what hosts were handed over: they are one machine here, so each host's is found by its name.
    fn handed(&self) -> Vec<PathBuf> {
        let places = NAMES.iter().flat_map(|host| {
            let pools = fs::read_dir(self.hosts.folder(host).join("home/.cache/stoker-pools"));
            pools.into_iter().flatten().flatten().map(|pool| pool.path().join("secrets"))
        });
        places.filter_map(|place| Some(PathBuf::from(fs::read_to_string(place).ok()?.trim()))).collect()
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
        left.extend(self.secrets());
        let table = self.on_all("cut -d ' ' -f 5 /proc/self/mountinfo | grep mnt/train");
        left.extend(String::from_utf8_lossy(&table.stdout).lines().map(str::to_owned));
        left
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for host in NAMES {
            // The sshd of a host has these variables only for what it runs.
            support::kill_all(&pids(&self.hosts.folder(host).join("run")));
        } // Of a test that failed.
        self.secrets().iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
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
    for more in [vec![], vec!["--cache", &disk, "--json", "--plaintext"]] {
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
        for value in cluster.status() {
            let members = value["cluster"]["members"].as_array().expect("members");
            assert_eq!((members.len(), value["mounts"].as_array().map(Vec::len)), (3, Some(1)), "{value}");
            assert_eq!(value["cluster"]["encrypted"], more.is_empty());
            assert!(value["lease"]["ends_at"].as_f64().is_some_and(|end| end > 1e9), "{value}");
        }
        // Only who speaks encrypted has keys, and nobody else may read them.
        for place in cluster.handed() {
            assert_eq!((mode(&place), mode(&place.join("lease"))), (0o700, 0o600));
            assert_eq!(place.join("node.key").exists(), more.is_empty());
            assert!(!more.is_empty() || mode(&place.join("node.key")) == 0o600);
            assert!(!place.join("ca.key").exists());
        }
        assert_eq!((cluster.handed().len(), cluster.secrets().len()), (3, 3));
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
    assert!(down.status.success() && text(&down).contains("on any of 3 hosts"), "{}", text(&down));
}

#[test]
fn a_pool_that_does_not_come_up_everywhere_comes_up_nowhere() {
    let Some(cluster) = Cluster::new() else { return };
    // A port that is taken, on the last host.
    let taken = TcpListener::bind(("127.0.0.4", cluster.port)).expect("the port");
    let up = cluster.up(&[]);
    assert_eq!(up.status.code(), Some(1), "{}", text(&up));
    for word in ["mounting on 3 hosts", "1 of 3 hosts failed", "1: cannot listen", "on 127.0.0.4:", "another --port"] {
        assert!(text(&up).contains(word), "{word}: {}", text(&up));
    }
    assert_eq!(cluster.left(), [""; 0]);
    let up = cluster.up(&["--json"]);
    let said: serde_json::Value = serde_json::from_slice(&up.stdout).expect("one object");
    assert!(said["stderr"].as_str().is_some_and(|text| text.contains("cannot listen")), "{said}");
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
    let has_key = |_: &str| cluster.handed().iter().any(|place| place.join("node.key").exists());
    let is_mounting = |host: &str| !cluster.nodes(host).is_empty();
    let is_mounted = |host: &str| {
        let tables = cluster.nodes(host).into_iter().map(|node| fs::read_to_string(format!("/proc/{node}/mountinfo")));
        tables.into_iter().flatten().any(|table| table.contains("mnt/train"))
    };
    let steps: [&dyn Fn(&str) -> bool; 4] = [&has_begun, &has_key, &is_mounting, &is_mounted];
    for (name, step) in [("KILL", 0), ("KILL", 1), ("KILL", 2), ("KILL", 3), ("INT", 1), ("INT", 3)] {
        let mut child = cluster.rising(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        eventually("it has begun", || steps[step]("b"));
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
        assert_eq!(cluster.left(), [""; 0], "{name} {step}");
    }
}

#[test]
fn a_node_that_nobody_renews_ends_by_itself_and_no_secret_or_mount_stays() {
    let Some(cluster) = Cluster::new() else { return };
    let up = cluster.up(&[]);
    assert!(up.status.success(), "{}", text(&up));
    let logs = NAMES.map(|host| {
        let pools = fs::read_dir(cluster.hosts.folder(host).join("home/.cache/stoker-pools")).expect("a folder");
        pools.flatten().map(|pool| pool.path().join("log")).find(|log| log.exists()).expect("a log")
    });
    // The last that they hear of anybody is that it ends soon.
    let renewed = cluster.up(&["--renew", "--lease", "3s"]);
    assert!(renewed.status.success(), "{}", text(&renewed));
    eventually("the nodes end", || NAMES.iter().all(|host| cluster.nodes(host).is_empty()));
    assert_eq!(cluster.secrets(), [""; 0]);
    let table = cluster.on_all("cut -d ' ' -f 5 /proc/self/mountinfo | grep mnt/train");
    assert!(table.stdout.is_empty(), "{}", text(&table));
    for log in logs {
        let said = fs::read_to_string(log).expect("a log");
        assert!(said.contains("the lease of this node is over"), "{said}");
    }
    let renewed = cluster.up(&["--renew"]);
    assert!(renewed.status.code() == Some(1) && text(&renewed).contains("has ended"), "{}", text(&renewed));
    let down = cluster.down(&[]);
    assert!(down.status.success() && text(&down).contains("taken down on 3 hosts"), "{}", text(&down));
    assert_eq!(cluster.left(), [""; 0]);
}

/// What stands in the arguments and the environment of all processes of this machine.
fn told_to_processes() -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").expect("it is there").flatten() {
        for name in ["cmdline", "environ"] {
            all.extend(fs::read(entry.path().join(name)).unwrap_or_default());
        }
    }
    all
}

fn holds(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

#[test]
fn credentials_and_keys_go_to_the_nodes_alone_and_nobody_sees_them_on_their_way() {
    const SECRET: &str = "a-secret-that-nobody-sees-0123456789";
    let Some(cluster) = Cluster::with(Some(("AKIAOFTHEPOOL", SECRET))) else { return };
    let file = cluster.hosts.path("credentials");
    let keys = format!("[train]\naws_access_key_id = AKIAOFTHEPOOL\naws_secret_access_key = {SECRET}\n");
    fs::write(&file, keys).expect("a file");
    let rising = |more: &[&str]| {
        let mut command = cluster.rising(more);
        command.env("AWS_SHARED_CREDENTIALS_FILE", &file).env("AWS_CONFIG_FILE", "/dev/null");
        command
    };
    let over = std::sync::atomic::AtomicBool::new(false);
    let seen = std::sync::Mutex::new(Vec::new());
    let up = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                seen.lock().expect("nobody fails with it").push(told_to_processes());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let up = finished(&mut rising(&["--profile", "train", "--send-credentials"]));
        over.store(true, std::sync::atomic::Ordering::SeqCst);
        up
    });
    assert!(up.status.success() && text(&up).contains("handed over credentials"), "{}", text(&up));
    let mut secrets = vec![SECRET.to_owned()];
    for place in cluster.handed() {
        assert_eq!(mode(&place.join("credentials")), 0o600);
        let key = fs::read_to_string(place.join("node.key")).expect("a key");
        secrets.push(key.lines().nth(1).expect("a line of the key").to_owned());
    }
    assert_eq!(secrets.len(), 4);
    let mut places = seen.into_inner().expect("nobody fails with it");
    assert!(places.len() > 3, "it was looked at while it went up");
    places.extend([told_to_processes(), text(&up).into_bytes()]);
    for host in NAMES {
        places.push(fs::read(cluster.hosts.path(&format!("{host}.log"))).expect("the log of sshd"));
        let pools = fs::read_dir(cluster.hosts.folder(host).join("home/.cache/stoker-pools")).expect("a folder");
        places.extend(pools.flatten().filter_map(|pool| fs::read(pool.path().join("log")).ok()));
    }
    for secret in &secrets {
        assert!(!places.iter().any(|place| holds(place, secret.as_bytes())));
    }
    // What was looked for would have been found: the name of the profile is no secret.
    assert!(places.iter().any(|place| holds(place, b"stoker-pool")));
    let renewed = finished(&mut rising(&["--profile", "train", "--send-credentials", "--renew"]));
    assert!(renewed.status.success(), "{}", text(&renewed));
    let down = cluster.down(&[]);
    assert!(down.status.success(), "{}", text(&down));
    assert_eq!(cluster.left(), [""; 0]);
}

#[test]
fn a_pool_is_loaded_and_its_status_is_a_line_for_each_host() {
    let Some(cluster) = Cluster::new() else { return };
    let up = cluster.up(&["--load", "--memory", "96MB", "--fill", "off", "--patience", "50s"]);
    assert!(up.status.success() && text(&up).contains("loaded 2 files, 3.30 MB"), "{}", text(&up));
    assert!(cluster.status().iter().all(|value| value["limits"]["memory_bytes"] == 96_000_000));
    let status = |more: &[&str]| {
        let dir = cluster.dir.display().to_string();
        let words = cluster.words("status", &[more, &[&dir]].concat());
        finished(&mut cluster.hosts.stoker(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let shown = status(&[]);
    let (shown, said) = (shown.status.success(), String::from_utf8_lossy(&shown.stdout).into_owned());
    assert!(shown && said.lines().count() == 6 && said.ends_with("the set has 3.30 MB\n"), "{said}");
    for (line, name) in said.lines().zip(["host", "a", "b", "c", "all"]) {
        assert!(line.starts_with(name), "{said}");
        assert!(!NAMES.contains(&name) || line.contains("2/2") && line.contains("24 hours"), "{said}");
    }
    let json = String::from_utf8_lossy(&status(&["--json"]).stdout).into_owned();
    let values: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kept: u64 = values.iter().map(|value| value["status"]["limits"]["disk_written"].as_u64().unwrap_or(0)).sum();
    assert!(values.len() == 3 && kept >= 3_300_000, "{json}");
    // From the store each byte came once.
    let asked: u64 = values.iter().map(|value| value["status"]["store"]["bytes"].as_u64().unwrap_or(0)).sum();
    assert!((3_300_000..3_310_000).contains(&asked), "with one listing: {json}");
    cluster.nodes("b").into_iter().for_each(support::kill_for_good);
    let shown = status(&[]);
    assert_eq!(shown.status.code(), Some(1), "{}", text(&shown));
    let said = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        said.lines().any(|line| line.starts_with("b ") && line.contains("the node of this mount is dead")),
        "{said}"
    );
    refused_as_typed(
        &finished(&mut cluster.hosts.stoker(&["status", "--hosts", &cluster.file.display().to_string()])),
        &["mount point"],
    );
    let down = cluster.down(&["--lazy"]);
    assert!(down.status.success(), "{}", text(&down));
    assert_eq!(cluster.left(), [""; 0]);
}

#[test]
fn a_pool_that_is_renewed_goes_on_with_other_keys_and_no_member_is_passed_over() {
    let Some(cluster) = Cluster::new() else { return };
    let up = cluster.up(&["--lease", "10m"]);
    assert!(up.status.success(), "{}", text(&up));
    let ends = || cluster.status().iter().map(|value| value["lease"]["ends_at"].as_f64().expect("a time")).collect();
    let keys = || cluster.handed().iter().map(|place| fs::read(place.join("node.key")).expect("a key")).collect();
    let failed = || {
        let all = cluster
            .status()
            .into_iter()
            .map(|value| (value["cluster"]["broken"].clone(), value["cluster"]["around"].clone()));
        all.collect::<Vec<_>>()
    };
    let (ends_before, keys_before): (Vec<f64>, Vec<Vec<u8>>) = (ends(), keys());
    // Nodes that came up before the others may have found nobody.
    let failed_before = failed();
    for round in 0..2 {
        let renewed = cluster.up(&["--renew", "--lease", "2h"]);
        assert!(renewed.status.success() && text(&renewed).contains("renewed on 3 hosts"), "{}", text(&renewed));
        // Connections that stand are kept: what is new is asked for by way of new ones.
        cluster.nodes("a").iter().for_each(|node| assert!(!has_ended(*node)));
        assert_eq!(cluster.handed().len(), 3);
        for place in cluster.handed() {
            let trusted = fs::read_to_string(place.join("ca.pem")).expect("certificates");
            assert_eq!(trusted.matches("BEGIN CERTIFICATE").count(), 2, "round {round}: the last and the new one");
            assert_eq!(mode(&place.join("node.key")), 0o600);
        }
    }
    assert!(ends().iter().zip(&ends_before).all(|(now, before): (&f64, &f64)| now - before > 6000.0));
    assert!(keys().iter().zip(&keys_before).all(|(now, before): (&Vec<u8>, &Vec<u8>)| now != before));
    let read = cluster.on_all(&format!("cat '{}'/*/* '{0}/first' | sha256sum", cluster.dir.display()));
    assert!(read.status.success(), "{}", text(&read));
    assert_eq!(failed(), failed_before);
    let down = cluster.down(&[]);
    assert!(down.status.success(), "{}", text(&down));
    assert_eq!(cluster.left(), [""; 0]);
    let renewed = cluster.up(&["--renew"]);
    assert!(renewed.status.code() == Some(1) && text(&renewed).contains("there is no pool"), "{}", text(&renewed));
}

#[test]
fn a_node_that_was_killed_and_files_that_are_open_are_told_and_taken_down() {
    let Some(cluster) = Cluster::new() else { return };
    let up = cluster.up(&[]);
    assert!(up.status.success(), "{}", text(&up));
    cluster.nodes("a").into_iter().for_each(support::kill_for_good);
    let dir = cluster.dir.display();
    let line = format!("[ $STOKER_TEST_HOST != b ] || {{ exec <'{dir}/first'; echo open; sleep 100; }}");
    let mut words = cluster.words("run", &["--", &line]);
    words.insert(0, "hosts".into());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut open = cluster.hosts.stoker(&words).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(open.stdout.take().expect("piped")), &mut line)
        .expect("a line");
    assert_eq!(line, "b: open\n");
    let down = cluster.down(&[]);
    assert!(open.try_wait().expect("it can be asked").is_none(), "who reads goes on: {}", text(&down));
    assert!(down.status.code() == Some(1) && text(&down).contains("stoker down --lazy"), "{}", text(&down));
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
    let long = up(&["--lease", "9000h", "s3://bucket/train", &dir]);
    assert!(long.status.code() == Some(2) && text(&long).contains("this is no lease"), "{}", text(&long));
    refused_as_typed(&up(&["--lease", "59s", "s3://bucket/train", &dir]), &["at least 1m"]);
    refused_as_typed(&up(&["--ssh-config", "/nowhere", "s3://bucket/train", &dir]), &["ssh -F"]);
    refused_as_typed(&up(&["--plaintext", "s3://bucket/train", "relative"]), &["not an absolute path"]);
    refused_as_typed(&up(&["--plaintext", "folder", &dir]), &["whole path"]);
    refused_as_typed(
        &up(&["--plaintext", "--binary", "arm64=/nowhere", "s3://bucket/train", &dir]),
        &["can't be read"],
    );
    assert_eq!(cluster.left(), [""; 0]);
}
