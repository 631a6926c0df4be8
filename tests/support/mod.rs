//! What the tests of the command stand on: a folder served as a bucket, and `stoker` as child processes that
//! are gone when the test is. Deliberately uses nothing of the product but the store that it is tested against.
//!
//! Invariant: whatever a test does, its mounts are detached and its children have ended when it is over.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod answers;
pub mod clouds;
pub mod confines;
pub mod content;
pub mod engines;
pub mod hadoop;
pub mod hung;
pub mod kerberos;
pub mod net;
pub mod sshd;
pub mod successor;
pub mod systemd;
pub mod web;

use emulate::{Counters, Faults, Keys, Limits, Operation, Server};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub const BUCKET: &str = "bucket";

/// Keys of a server that wants some.
pub const ACCESS: &str = "AKIATESTTESTTEST";
pub const SECRET: &str = "wJalrXUtnFEMIsecretK7MDENGbPxRfiCY";

/// Nothing here takes longer on a machine that works at all.
pub const LONG: Duration = Duration::from_secs(60);

/// Variables that tell a command who asks and where; those of a test are its own.
const OURS: [&str; 10] =
    ["AWS_", "AZURE_", "CLOUDSDK_", "GOOGLE_", "HADOOP_", "IDENTITY_", "KRB5", "STORAGE_", "STOKER_", "XDG_"];

/// A bucket with its server, and the folders of a user of its own.
pub struct Bed {
    scratch: TempDir,
    runtime: Runtime,
    server: Mutex<Option<Server>>,
    endpoint: String,
    keys: Option<(String, String)>,
}

impl Bed {
    /// `None`, and said so, on a machine where nothing can be mounted.
    pub fn new() -> Option<Bed> {
        Bed::with(None)
    }

    /// The same; the server wants these keys, and the commands have them.
    pub fn with(keys: Option<(&str, &str)>) -> Option<Bed> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED: there is no /dev/fuse here, so nothing can be mounted");
            return None;
        }
        let scratch = tempfile::Builder::new().prefix("stoker-test-").tempdir().expect("a folder for the test");
        for name in ["data", "mnt", "run", "home"] {
            fs::create_dir(scratch.path().join(name)).expect("a folder for the test");
        }
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        let keys = keys.map(|(access, secret)| (access.to_owned(), secret.to_owned()));
        let mut settings = emulate::Settings::of(scratch.path().join("data"));
        settings.bucket = Some(BUCKET.into());
        settings.keys = keys.clone().map(|(access, secret)| Keys { access, secret });
        let server = runtime.block_on(Server::start(settings)).expect("the server starts");
        let endpoint = server.endpoint();
        Some(Bed { scratch, runtime, server: Mutex::new(Some(server)), endpoint, keys })
    }

    /// A path in the scratch folder of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A path in the bucket.
    pub fn data(&self, name: &str) -> PathBuf {
        self.path("data").join(name)
    }

    /// A path in the mount.
    pub fn mounted(&self, name: &str) -> PathBuf {
        self.path("mnt").join(name)
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Put an object into the bucket. It gets its name when it is whole, as with a real store.
    pub fn put(&self, name: &str, content: &[u8]) {
        let (path, beside) = (self.data(name), self.path("being-put"));
        fs::create_dir_all(path.parent().expect("objects lie in the bucket")).expect("a folder");
        fs::write(&beside, content).and_then(|()| fs::rename(&beside, &path)).expect("the object is put");
    }

    pub fn set_faults(&self, text: &str) {
        self.change(|server| server.set_faults(text.parse::<Faults>().expect("faults")));
    }

    pub fn set_limits(&self, limits: &Limits) {
        self.change(|server| server.set_limits(limits));
    }

    /// Bytes per second that the store gives.
    pub fn set_bandwidth(&self, bandwidth: u64) {
        self.set_limits(&Limits { bandwidth: Some(bandwidth), ..Limits::default() });
    }

    fn change(&self, change: impl FnOnce(&Server)) {
        change(self.server.lock().expect("the server").as_ref().expect("the server runs"));
    }

    pub fn counters(&self) -> Counters {
        self.server.lock().expect("the server").as_ref().expect("the server runs").counters()
    }

    /// Objects asked for so far.
    pub fn gets(&self) -> u64 {
        self.counters().of(Operation::Get).requests
    }

    /// Bytes of objects that left the store so far, as it counts them.
    pub fn sent(&self) -> u64 {
        self.counters().of(Operation::Get).bytes_out
    }

    /// Requests of all kinds so far.
    pub fn requests(&self) -> u64 {
        self.counters().requests()
    }

    /// The store is gone; connections are refused.
    pub fn stop_server(&self) {
        let server = self.server.lock().expect("the server").take().expect("the server runs");
        self.runtime.block_on(server.stop());
    }

    /// `stoker` with these words, as a user of this test alone.
    pub fn stoker<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if OURS.iter().any(|mine| text.starts_with(mine)) {
                command.env_remove(&name);
            }
        }
        command.env("STOKER_RUNTIME_DIR", self.path("run")).env("HOME", self.path("home")).env("NO_COLOR", "1");
        // Nobody hands out tokens there.
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("GCE_METADATA_HOST", "127.0.0.1:1");
        if let Some((access, secret)) = &self.keys {
            command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
        }
        command.args(words).stdin(Stdio::null());
        // SAFETY: signal is async-signal-safe, and nothing else happens between fork and exec.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, || {
                // Tests that were started by nohup(1) hand on that hangups are ignored.
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        command
    }

    /// Run `stoker` to its end.
    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        finished(&mut self.stoker(words))
    }

    /// The words that reach the store of this test.
    pub fn reach(&self) -> Vec<String> {
        let mut words = vec!["--endpoint".into(), self.endpoint.clone(), "--region".into(), "us-east-1".into()];
        if self.keys.is_none() {
            words.push("--anonymous".into());
        }
        words
    }

    /// `stoker mount` of a URL at a folder in the scratch folder, not run yet.
    pub fn mounting(&self, url: &str, at: &str, more: &[&str]) -> Command {
        let mut command = self.stoker(["mount", url]);
        command.arg(self.path(at));
        if url.starts_with("s3:") {
            command.args(self.reach());
        }
        if !more.contains(&"--cache") {
            command.arg("--cache").arg(self.path("cache"));
        }
        command.args(more);
        command
    }

    /// Mount the bucket at `mnt`.
    pub fn mount(&self, more: &[&str]) -> Daemon {
        self.mount_at(&format!("s3://{BUCKET}"), "mnt", more)
    }

    pub fn mount_at(&self, url: &str, at: &str, more: &[&str]) -> Daemon {
        let _ = fs::create_dir(self.path(at));
        Daemon::start(&mut self.mounting(url, at, more), &self.path(at), &self.path(&format!("{at}.log")))
    }

    /// `stoker status --json`: one value a node.
    pub fn nodes(&self) -> Vec<Value> {
        let status = self.run(["status", "--json"]);
        assert!(status.status.success(), "{}", text(&status));
        String::from_utf8_lossy(&status.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).expect("status is JSON"))
            // Root is shown the dead mounts of other tests too.
            .filter(|value: &Value| value.get("dead").is_none())
            .collect()
    }

    /// The status of the only node.
    pub fn status(&self) -> Value {
        let mut nodes = self.nodes();
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        nodes.remove(0)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Daemons that were started with --detach, and mounts that a failed test left.
        kill_all(&crate::support::pids(&self.path("run")));
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let ours = table
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|at| Path::new(at).starts_with(self.scratch.path()));
        for at in ours.collect::<Vec<_>>().into_iter().rev() {
            let _ = Command::new("umount").args(["-l", at]).stderr(Stdio::null()).status();
        }
    }
}

/// Processes of `stoker` whose runtime folder this is.
pub fn pids(runtime: &Path) -> Vec<u32> {
    let mark = [b"STOKER_RUNTIME_DIR=", runtime.as_os_str().as_encoded_bytes()].concat();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = numbers.filter(|pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    });
    ours.collect()
}

/// Whether a process has ended, waited for or not.
pub fn has_ended(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("State:")).is_none_or(|state| state.trim().starts_with('Z'))
}

/// The children of a process.
pub fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let of = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let found = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        found.and_then(|number| number.trim().parse::<u32>().ok()) == Some(parent)
    };
    numbers.filter(of).collect()
}

/// Whether a process is one that holds the mounts of a node.
pub fn is_keeper(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.split(|byte| *byte == 0).nth(1) == Some(b"keep"))
}

/// The process that holds the mounts of a node, which started it or was started by it.
pub fn keeper_of(node: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{node}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    children(node).into_iter().chain(parent).find(|pid| is_keeper(*pid))
}

/// kill -9 of a node, and before that of who holds its mounts, so that none goes on.
pub fn kill_for_good(node: u32) {
    signal(node, "STOP");
    if let Some(keeper) = keeper_of(node) {
        signal(keeper, "KILL");
        eventually("nobody holds its mounts", || has_ended(keeper));
    }
    signal(node, "KILL");
    eventually("the node has ended", || has_ended(node));
}

/// kill -9 of all of these, none of which does anything about it meanwhile.
pub fn kill_all(pids: &[u32]) {
    pids.iter().for_each(|pid| signal(*pid, "STOP"));
    pids.iter().for_each(|pid| signal(*pid, "KILL"));
}

/// A `stoker mount` in the foreground.
pub struct Daemon {
    child: Child,
    at: PathBuf,
    log: PathBuf,
    /// Where nodes of this user write their logs.
    run: PathBuf,
}

impl Daemon {
    /// Start the command, and return once it says that it is mounted.
    pub fn start(command: &mut Command, at: &Path, log: &Path) -> Daemon {
        let mut daemon = Daemon::spawn(command, at, log);
        let out = daemon.child.stdout.take().expect("its output is piped");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(LONG).unwrap_or_default();
        assert!(line.starts_with("mounted "), "it did not mount: {line:?}\n{}", daemon.said());
        daemon
    }

    /// Start the command, and wait for nothing.
    pub fn spawn(command: &mut Command, at: &Path, log: &Path) -> Daemon {
        let err = fs::File::options().create(true).append(true).open(log).expect("a log");
        let child = command.stdout(Stdio::piped()).stderr(err).spawn().expect("stoker starts");
        let named = command.get_envs().find(|(name, _)| *name == "STOKER_RUNTIME_DIR").and_then(|(_, value)| value);
        let run = named.map_or_else(PathBuf::new, |run| Path::new(run).join("stoker"));
        Daemon { child, at: at.to_owned(), log: log.to_owned(), run }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The node that it started; itself if it joined one.
    pub fn node(&self) -> u32 {
        children(self.pid()).first().copied().unwrap_or_else(|| self.pid())
    }

    /// All that it said on standard error, those before it with the same log, and what its node wrote.
    pub fn said(&self) -> String {
        let logs = fs::read_dir(&self.run).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
        let all = [self.log.clone()].into_iter().chain(logs);
        all.map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
    }

    /// kill -9 of its node and of who holds its mount, while they can't do anything about it. Its mount stays, dead.
    pub fn kill(mut self) {
        let node = self.node();
        signal(self.pid(), "STOP");
        kill_for_good(node);
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// kill -9, and detach the dead mount.
    pub fn kill_and_detach(self) {
        let at = self.at.clone();
        self.kill();
        let _ = Command::new("umount").arg("-l").arg(at).stderr(Stdio::null()).status();
    }

    /// Ask it to end, and see that it does so in good order.
    pub fn end(mut self) {
        signal(self.pid(), "TERM");
        assert!(self.waited(LONG).expect("it ends in time").success(), "{}", self.said());
    }

    /// Wait for its end.
    pub fn waited(&mut self, limit: Duration) -> Option<std::process::ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Anonymous memory of the node that it started, in bytes.
    pub fn anonymous(&self) -> u64 {
        let nodes = children(self.pid());
        let [node] = nodes[..] else { panic!("not one node: {nodes:?}") };
        let status = fs::read_to_string(format!("/proc/{node}/status")).expect("the node lives");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
            signal(self.pid(), "TERM");
            if self.waited(Duration::from_secs(5)).is_none() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
        if std::thread::panicking() {
            eprintln!("the daemon at {} said:\n{}", self.at.display(), self.said());
        }
    }
}

/// Run a command to its end, but not for ever.
pub fn finished(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(LONG) {
        Ok(output) => output.expect("its output can be read"),
        Err(_) => {
            signal(pid, "KILL");
            panic!("{command:?} did not end within {LONG:?}");
        }
    }
}

/// What a command said, all of it.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A command that failed as it should: exit code 1, and a message of three parts that holds these words.
pub fn refused(done: &Output, words: &[&str]) {
    refused_with(1, done, words);
}

/// The same of what can't be meant: exit code 2.
pub fn refused_as_typed(done: &Output, words: &[&str]) {
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

pub fn mounts(bed: &Bed) -> usize {
    mounts_below(&bed.path("mnt"))
}

/// Mounts in a folder or below it.
pub fn mounts_below(folder: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    table.lines().filter(|line| line.contains(&*folder.to_string_lossy())).count()
}

pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null()).status();
}

/// Wait until something holds; the kernel tells a daemon of much a little after the fact.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Forget what the page cache holds; only root may.
pub fn drop_page_cache() {
    if is_root() {
        rustix::fs::sync();
        let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    } else {
        eprintln!("SKIPPED: only root may drop the page cache; the reads go on with it");
    }
}
