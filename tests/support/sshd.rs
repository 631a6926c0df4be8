//! Hosts for tests: an `sshd` each on this machine, with a key, a port and a folder of its own, where its commands run.
//!
//! Invariant: when it is dropped, also by a panic, its `sshd`s have ended and all that they ran.

use super::net::Net;
use super::{children, eventually, signal};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub struct Hosts {
    /// Each has mounts, a home and nodes of its own.
    is_apart: bool,
    /// And addresses of its own.
    pub net: Option<Net>,
    scratch: TempDir,
    daemons: Vec<Child>,
    names: Vec<String>,
    ports: Vec<u16>,
}

/// Where `sshd` is, which wants to be called by its whole path.
fn program() -> Option<PathBuf> {
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"].map(PathBuf::from);
    places.into_iter().find(|path| path.exists())
}

fn key(path: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    assert!(made.expect("ssh-keygen runs").success());
}

impl Hosts {
    /// Hosts of these names; `None`, and said so, where there is no `sshd`.
    pub fn new(names: &[&str]) -> Option<Hosts> {
        Hosts::of(names, false, None)
    }

    /// The same, each with mounts, a home and nodes of its own, as machines have. `None`, and said so, where that can't be.
    pub fn apart(names: &[&str]) -> Option<Hosts> {
        Hosts::can_be_apart().then(|| Hosts::of(names, true, None))?
    }

    /// The same, in a network of their own, where `stoker` runs too.
    pub fn wired(names: &[&str]) -> Option<Hosts> {
        let net = Hosts::can_be_apart().then(|| Net::new(names))??;
        Hosts::of(names, true, Some(net))
    }

    fn can_be_apart() -> bool {
        let can_be = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
        if !can_be.is_ok_and(|done| done.success()) || !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED: hosts can't have mounts of their own here (root, unshare, /dev/fuse)");
            return false;
        }
        true
    }

    fn of(names: &[&str], is_apart: bool, net: Option<Net>) -> Option<Hosts> {
        let has_client = Command::new("ssh").arg("-V").stderr(Stdio::null()).status().is_ok();
        let Some(program) = program().filter(|_| has_client) else {
            eprintln!("SKIPPED: there is no sshd here (apt install openssh-server)");
            return None;
        };
        let scratch = tempfile::Builder::new().prefix("stoker-hosts-").tempdir().expect("a folder");
        // Where it gives its rights up, as root.
        let _ = fs::create_dir_all("/run/sshd");
        key(&scratch.path().join("user"));
        let mut hosts = Hosts { is_apart, net, scratch, daemons: Vec::new(), names: Vec::new(), ports: Vec::new() };
        names.iter().for_each(|name| hosts.start(&program, name));
        hosts.configure();
        Some(hosts)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The folder in which the commands of a host run.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.path("on").join(name)
    }

    fn start(&mut self, program: &Path, name: &str) {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        key(&self.path(&format!("{name}.host")));
        fs::create_dir_all(self.folder(name)).expect("a folder");
        let (key, user, folder) = (self.path(&format!("{name}.host")), self.path("user.pub"), self.folder(name));
        let own = match self.is_apart {
            true => format!(" HOME={0}/home STOKER_RUNTIME_DIR={0}/run", folder.display()),
            false => String::new(),
        };
        for name in ["home", "run"].iter().filter(|_| self.is_apart) {
            fs::create_dir_all(folder.join(name)).expect("a folder");
        }
        let settings = format!(
            "ListenAddress {}:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\nSetEnv STOKER_TEST_HOST={name}{own}\n\
             ForceCommand cd {} && echo a greeting && echo a greeting >&2 && exec sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
            self.address(name),
            key.display(),
            user.display(),
            folder.display()
        );
        let file = self.path(&format!("{name}.conf"));
        fs::write(&file, settings).expect("a file");
        let log = fs::File::create(self.path(&format!("{name}.log"))).expect("a log");
        let first = if self.is_apart { Path::new("unshare") } else { program };
        let mut daemon = match &self.net {
            Some(net) => net.run(&net.of(name), first),
            None => Command::new(first),
        };
        if self.is_apart {
            daemon.args(["--mount", "--propagation", "private", "--"]).arg(program);
        }
        let daemon = daemon.arg("-D").arg("-e").arg("-f").arg(file).stdin(Stdio::null()).stderr(log).spawn();
        self.daemons.push(daemon.expect("sshd starts"));
        self.names.push(name.to_owned());
        self.ports.push(port);
        let log = self.path(&format!("{name}.log"));
        let listens = || fs::read_to_string(&log).is_ok_and(|said| said.contains("Server listening"));
        eventually("sshd listens", listens);
    }

    /// Where its `sshd` listens.
    fn address(&self, name: &str) -> String {
        self.net.as_ref().map_or_else(|| "127.0.0.1".into(), |net| net.address(name))
    }

    /// What a user would have in ~/.ssh: their names, their keys, and one that is down.
    fn configure(&self) {
        let (mut config, mut known) = (String::new(), String::new());
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let ends = self.names.iter().map(String::as_str).zip(self.ports.iter().copied());
        for (name, port) in ends.chain([("down", free)]) {
            let address = if name == "down" { "127.0.0.1".into() } else { self.address(name) };
            config += &format!("Host {name}\n  HostName {address}\n  Port {port}\n  HostKeyAlias {name}\n");
            let key = fs::read_to_string(self.path(&format!("{name}.host.pub"))).unwrap_or_default();
            known += &format!("{name} {key}\n");
        }
        let (user, file) = (self.path("user"), self.path("known"));
        config += &format!(
            "Host *\n  IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n",
            user.display(),
            file.display()
        );
        fs::write(self.path("config"), config).and_then(|()| fs::write(file, known)).expect("files");
    }

    /// A host is known by the key of another.
    pub fn swap_key(&self, name: &str) {
        let known = fs::read_to_string(self.path("known")).expect("a file");
        key(&self.path("false"));
        let other = fs::read_to_string(self.path("false.pub")).expect("a key");
        let lines = known.lines().filter(|line| !line.starts_with(&format!("{name} ")));
        let known = lines.map(|line| format!("{line}\n")).collect::<String>() + &format!("{name} {other}");
        fs::write(self.path("known"), known).expect("a file");
    }

    /// The programs of a host are first looked for in this folder.
    pub fn lie(&mut self, name: &str, programs: &Path) {
        let file = self.path(&format!("{name}.conf"));
        let settings = fs::read_to_string(&file).expect("a file");
        let path = format!("SetEnv PATH={}:/usr/bin:/bin ", programs.display());
        fs::write(&file, settings.replace("SetEnv ", &path)).expect("a file");
        // It reads its configuration again.
        signal(self.daemons[self.at(name)].id(), "HUP");
        // Until then who connects is taken by the one that ends.
        let log = self.path(&format!("{name}.log"));
        let times = || fs::read_to_string(&log).map_or(0, |said| said.matches("Server listening").count());
        eventually("sshd listens again", || times() == 2);
    }

    fn at(&self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).expect("a host of this test")
    }

    /// Nobody knows the key of a host.
    pub fn forget_key(&self, name: &str) {
        let known = fs::read_to_string(self.path("known")).expect("a file");
        let lines = known.lines().filter(|line| !line.starts_with(&format!("{name} ")));
        fs::write(self.path("known"), lines.map(|line| format!("{line}\n")).collect::<String>()).expect("a file");
    }

    /// A file of hosts.
    pub fn file(&self, text: &str) -> PathBuf {
        let path = self.path("hosts");
        fs::write(&path, text).expect("a file");
        path
    }

    /// `stoker` with these words, which reaches the hosts of this test.
    pub fn stoker(&self, words: &[&str]) -> Command {
        let stoker = env!("CARGO_BIN_EXE_stoker");
        let mut command = self.net.as_ref().map_or_else(|| Command::new(stoker), |net| net.run(&net.hub(), stoker));
        command.args(words).env("STOKER_SSH_CONFIG", self.path("config")).env_remove("STOKER_HOSTS");
        command.env_remove("SSH_AUTH_SOCK").env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    /// The `sshd` of a host, and those of its connections.
    pub fn processes(&self, name: &str) -> Vec<u32> {
        below(self.daemons[self.at(name)].id())
    }
}

/// A process and all that it started.
fn below(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    children(pid).into_iter().for_each(|child| all.extend(below(child)));
    all
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in &self.names {
                eprintln!("{name}: {}", fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default());
            }
        }
        for daemon in &mut self.daemons {
            for process in below(daemon.id()) {
                signal(process, "KILL");
            }
            let _ = daemon.wait();
        }
    }
}
