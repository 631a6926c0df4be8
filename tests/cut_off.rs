//! A host of a pool that nobody reaches any more: hosts are an `sshd` each, in a network of their own, and a cable is pulled.

mod support;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use support::content::noise;
use support::sshd::Hosts;
use support::{eventually, finished, has_ended, pids, text};

const NAMES: [&str; 3] = ["a", "b", "c"];
const STORE: &str = "192.0.2.1:9000";

struct Cluster {
    hosts: Hosts,
    store: Child,
}

impl Cluster {
    fn new() -> Option<Cluster> {
        let hosts = Hosts::wired(&NAMES)?;
        let folder = hosts.path("bucket/train");
        fs::create_dir_all(&folder).expect("a folder");
        (0..6).for_each(|name| fs::write(folder.join(format!("{name}")), noise(300_000, name)).expect("a file"));
        let mut words = vec!["emulate", "--listen", STORE, "--bucket", "bucket"];
        let folder = hosts.path("bucket").display().to_string();
        words.push(&folder);
        let log = fs::File::create(hosts.path("store.log")).expect("a log");
        let store = hosts.stoker(&words).stdout(log).stderr(Stdio::null()).spawn().expect("it starts");
        let listens = || fs::read_to_string(hosts.path("store.log")).is_ok_and(|said| said.contains(STORE));
        eventually("the store listens", listens);
        Some(Cluster { hosts, store })
    }

    /// `stoker` of the pool.
    fn pool(&self, verb: &str, more: &[&str]) -> Output {
        let lines =
            NAMES.map(|name| format!("{name} address={}\n", self.hosts.net.as_ref().expect("wired").address(name)));
        let (file, dir) = (self.hosts.file(&lines.concat()).display().to_string(), self.dir());
        let endpoint = format!("http://{STORE}");
        let mut words = [&[verb, "--hosts", &file], more].concat();
        if verb == "up" {
            words.extend(["--region", "us-east-1", "--anonymous", "--endpoint", &endpoint, "s3://bucket/train"]);
        }
        words.push(&dir);
        finished(&mut self.hosts.stoker(&words))
    }

    fn dir(&self) -> String {
        self.hosts.path("mnt").display().to_string()
    }

    fn nodes(&self, host: &str) -> Vec<u32> {
        let is_node = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(b"node") && !has_ended(*pid)
        };
        pids(&self.hosts.folder(host).join("run")).into_iter().filter(is_node).collect()
    }

    /// Whether a host has it mounted: its `sshd` sees what the host sees.
    fn is_mounted(&self, host: &str) -> bool {
        let table = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        self.hosts.processes(host).iter().any(|pid| table(pid).contains(&self.dir()))
    }

    /// Folders of secrets of this pool: hosts have one machine's memory here, and their names in those.
    fn secrets(&self) -> Vec<String> {
        let pools =
            NAMES.iter().flat_map(|host| fs::read_dir(self.hosts.folder(host).join("home/.cache/stoker-pools")));
        let places = pools.flatten().flatten().filter_map(|pool| fs::read_to_string(pool.path().join("secrets")).ok());
        places.map(|place| place.trim().to_owned()).filter(|place| fs::exists(place).unwrap_or(true)).collect()
    }

    /// Read all of the set on a host, without a connection to it.
    fn reads(&self, host: &str) -> bool {
        let Some(node) = self.nodes(host).first().map(u32::to_string) else { return false };
        let line = format!("cat '{}'/* | sha256sum", self.dir());
        let done = Command::new("nsenter").args(["--mount", "--target", &node, "sh", "-c", &line]).output();
        let all: Vec<u8> = (0..6).flat_map(|name| noise(300_000, name)).collect();
        let expected = self.hosts.path("all");
        fs::write(&expected, all).expect("a file");
        let expected = Command::new("sha256sum").arg(&expected).output().expect("it runs").stdout;
        done.is_ok_and(|done| done.status.success() && done.stdout[..64] == expected[..64])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        NAMES.iter().for_each(|host| support::kill_all(&pids(&self.hosts.folder(host).join("run"))));
        let _ = self.store.kill().and_then(|()| self.store.wait());
    }
}

#[test]
fn a_host_that_is_cut_off_goes_on_until_its_lease_ends_and_then_nothing_of_it_stays_but_its_cache() {
    let Some(cluster) = Cluster::new() else { return };
    let up = cluster.pool("up", &["--load"]);
    assert!(up.status.success(), "{}", text(&up));
    assert!(NAMES.iter().all(|host| cluster.reads(host)), "they all serve it");
    // A short lease for all, then the cable: nobody can end what runs on c, nor renew it.
    let renewed = cluster.pool("up", &["--renew", "--lease", "40s"]);
    assert!(renewed.status.success(), "{}", text(&renewed));
    cluster.hosts.net.as_ref().expect("wired").pull_cable("c");
    let renewed = cluster.pool("up", &["--renew", "--lease", "10h", "--timeout", "8s"]);
    assert_eq!(renewed.status.code(), Some(1), "{}", text(&renewed));
    assert!(text(&renewed).contains("1 of 3 hosts failed"), "{}", text(&renewed));
    assert!(cluster.reads("a") && cluster.reads("b"), "the others serve it, with new keys");
    eventually("the node of c ends", || cluster.nodes("c").is_empty());
    eventually("c has unmounted", || !cluster.is_mounted("c"));
    let left = cluster.secrets();
    assert!(left.len() == 2 && !left.iter().any(|place| place.ends_with("-c")), "{left:?}");
    assert!(cluster.reads("a") && cluster.reads("b"));
    let status = cluster.pool("status", &[]);
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.status.code() == Some(1) && said.lines().any(|line| line.starts_with("c ")), "{said}");
    assert!(said.lines().any(|line| line.starts_with("a ") && line.contains("10 hours")), "{said}");
    // Once it is reached again, what is left there is taken away as well.
    cluster.hosts.net.as_ref().expect("wired").plug_in("c");
    let down = cluster.pool("down", &[]);
    assert!(down.status.success() && text(&down).contains("taken down on 3 hosts"), "{}", text(&down));
    assert_eq!(cluster.secrets(), [""; 0]);
    for host in NAMES {
        let home = fs::read_dir(cluster.hosts.folder(host).join("home")).expect("a folder");
        assert_eq!((home.count(), cluster.nodes(host).len(), cluster.is_mounted(host)), (0, 0, false), "{host}");
    }
}
