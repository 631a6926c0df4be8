//! What tells of members, as real servers on free ports of this machine that are gone when the test is:
//! dnsmasq and etcd, as Debian has them.

use super::{eventually, finished, signal, text};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A port that nobody has at the moment.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port()
}

/// Where a server lies; `None`, and said so, where there is none.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: there is no {name} here");
    }
    found
}

/// A server, from its start to its end.
struct Process(Child);

impl Process {
    /// Started, and answering at a port.
    fn start(command: &mut Command, log: &Path, port: u16) -> Process {
        let log = fs::File::options().create(true).append(true).open(log).expect("a log");
        let err = log.try_clone().expect("a log");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(err).spawn().expect("the server starts");
        let process = Process(child);
        eventually("the server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server for DNS.
pub struct Dns {
    program: PathBuf,
    folder: PathBuf,
    pub port: u16,
    /// SRV records: the name of the service, target and port.
    services: Vec<(String, String, u16)>,
    process: Option<Process>,
}

impl Dns {
    /// `None`, and said so, where there is no dnsmasq.
    pub fn start(folder: &Path) -> Option<Dns> {
        let program = program("dnsmasq")?;
        fs::write(folder.join("dns"), "").expect("written");
        let mut dns =
            Dns { program, folder: folder.to_owned(), port: free_port(), services: Vec::new(), process: None };
        dns.restart();
        Some(dns)
    }

    fn restart(&mut self) {
        self.process = None;
        let port = self.port;
        let mut command = Command::new(&self.program);
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--bind-interfaces",
        ]);
        command.args(["--listen-address=127.0.0.1", "--user=root", "--pid-file=", "--local=/test/"]);
        command.arg(format!("--port={port}")).arg(format!("--addn-hosts={}", self.folder.join("dns").display()));
        let services = &self.services;
        command.args(services.iter().map(|(name, target, port)| format!("--srv-host={name},{target},{port}")));
        self.process = Some(Process::start(&mut command, &self.folder.join("dns.log"), port));
    }

    /// From now on a name has these addresses, and no other name has any.
    pub fn set_addresses(&self, name: &str, addresses: &[&str]) {
        let lines: String = addresses.iter().map(|address| format!("{address} {name}\n")).collect();
        fs::write(self.folder.join("dns"), lines).expect("written");
        signal(self.process.as_ref().expect("it runs").0.id(), "HUP");
    }

    /// From now on a service is to be had there.
    pub fn set_services(&mut self, name: &str, targets: &[(&str, u16)]) {
        self.services = targets.iter().map(|(target, port)| (name.into(), (*target).into(), *port)).collect();
        self.restart();
    }

    /// Take questions and answer none.
    pub fn fall_silent(&self, is_silent: bool) {
        let pid = self.process.as_ref().expect("it runs").0.id();
        signal(pid, if is_silent { "STOP" } else { "CONT" });
    }
}

/// How a client reaches an etcd that lets in only those it knows.
pub struct Secrets {
    /// Of the authority, of the server, of the client, each with the key behind it.
    pub files: PathBuf,
    pub password: String,
}

/// A server of etcd.
pub struct Etcd {
    program: PathBuf,
    folder: PathBuf,
    pub port: u16,
    peer_port: u16,
    secrets: Option<Secrets>,
    process: Option<Process>,
}

impl Etcd {
    /// `None`, and said so, where there is no etcd.
    pub fn start(folder: &Path, secrets: Option<Secrets>) -> Option<Etcd> {
        program("etcdctl")?;
        let (program, folder) = (program("etcd")?, folder.join("etcd"));
        fs::create_dir(&folder).expect("a folder");
        let mut etcd = Etcd { program, folder, port: free_port(), peer_port: free_port(), secrets, process: None };
        etcd.go_on();
        Some(etcd)
    }

    /// Start it where it stopped.
    pub fn go_on(&mut self) {
        let scheme = if self.secrets.is_some() { "https" } else { "http" };
        let (clients, peers) =
            (format!("{scheme}://127.0.0.1:{}", self.port), format!("http://127.0.0.1:{}", self.peer_port));
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(self.folder.join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        if let Some(Secrets { files, .. }) = &self.secrets {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(files.join("ca.pem"));
            command.arg("--cert-file").arg(files.join("server.pem")).arg("--key-file").arg(files.join("server.key"));
        }
        self.process = Some(Process::start(&mut command, &self.folder.join("log"), self.port));
        eventually("etcd has a leader", || self.try_control(&["get", "x"]).0);
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// It remembers nothing any more.
    pub fn forget(&self) {
        assert!(self.process.is_none(), "it has ended");
        fs::remove_dir_all(self.folder.join("data")).expect("removed");
    }

    /// By what its tools, and those of others, are let in.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(Secrets { files, password }) = &self.secrets else { return Vec::new() };
        let file = |name: &str| files.join(name).to_str().expect("a name").to_owned();
        vec![
            ("ETCDCTL_CACERT", file("ca.pem")),
            ("ETCDCTL_CERT", file("client.pem")),
            ("ETCDCTL_KEY", file("client.key")),
            ("ETCDCTL_USER", "root".into()),
            ("ETCDCTL_PASSWORD", password.clone()),
        ]
    }

    /// `etcdctl`; what it says.
    pub fn control(&self, words: &[&str]) -> String {
        let (done, said) = self.try_control(words);
        assert!(done, "{words:?}: {said}");
        said
    }

    fn try_control(&self, words: &[&str]) -> (bool, String) {
        let scheme = if self.secrets.is_some() { "https" } else { "http" };
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &format!("{scheme}://127.0.0.1:{}", self.port)]);
        // Until there are users, nobody is to say who they are.
        let is_open = !self.folder.join("has-users").exists();
        let environment = self.environment().into_iter();
        command.envs(environment.filter(|(name, _)| !(is_open && ["ETCDCTL_USER", "ETCDCTL_PASSWORD"].contains(name))));
        let done = finished(command.args(words));
        (done.status.success(), text(&done))
    }

    /// From now on only its user is let in.
    pub fn want_password(&self) {
        let password = self.secrets.as_ref().expect("secrets").password.clone();
        self.control(&["user", "add", &format!("root:{password}")]);
        self.control(&["user", "grant-role", "root", "root"]);
        self.control(&["auth", "enable"]);
        fs::write(self.folder.join("has-users"), "").expect("written");
    }
}
