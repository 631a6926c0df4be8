//! A network of its own for tests: a switch with a port for each host, all of it in network namespaces, so that hosts have addresses
//! of their own and a cable can be pulled.
//!
//! Invariant: when it is dropped its namespaces are gone, and with them all that was in them.

use std::process::{Command, Stdio};

pub struct Net {
    /// Begins the names of its namespaces.
    name: String,
    hosts: Vec<String>,
}

fn ip(words: &[&str]) -> bool {
    let done = Command::new("ip").args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|done| done.success())
}

impl Net {
    /// The switch, at which whoever calls sits too, and the hosts; `None`, and said so, where that can't be.
    pub fn new(names: &[&str]) -> Option<Net> {
        let name = format!("stoker{}", std::process::id());
        let net = Net { name, hosts: names.iter().map(|name| (*name).to_owned()).collect() };
        if net.make() {
            return Some(net);
        }
        eprintln!("SKIPPED: hosts can't have a network of their own here (root, iproute2)");
        None
    }

    fn make(&self) -> bool {
        let hub = self.hub();
        let mut words = vec![
            format!("netns add {hub}"),
            format!("-n {hub} link set lo up"),
            format!("-n {hub} link add switch type bridge"),
            format!("-n {hub} addr add {}/24 dev switch", self.here()),
            format!("-n {hub} link set switch up"),
        ];
        for (at, host) in self.hosts.iter().enumerate() {
            let own = self.of(host);
            words.extend([
                format!("netns add {own}"),
                format!("-n {own} link set lo up"),
                format!("-n {hub} link add port{at} type veth peer name cable netns {own}"),
                format!("-n {hub} link set port{at} master switch up"),
                format!("-n {own} addr add {}/24 dev cable", self.address(host)),
                format!("-n {own} link set cable up"),
            ]);
        }
        words.iter().all(|words| ip(&words.split(' ').collect::<Vec<_>>()))
    }

    /// The namespace of whoever calls.
    pub fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    /// The namespace of a host.
    pub fn of(&self, host: &str) -> String {
        format!("{}-{host}", self.name)
    }

    /// The address of whoever calls.
    pub fn here(&self) -> &'static str {
        "192.0.2.1"
    }

    /// Of the block for documentation, which is nobody's.
    pub fn address(&self, host: &str) -> String {
        format!("192.0.2.{}", self.at(host) + 10)
    }

    fn at(&self, host: &str) -> usize {
        self.hosts.iter().position(|known| known == host).expect("a host of this net")
    }

    /// Nobody reaches this host from now on, nor hears from it.
    pub fn pull_cable(&self, host: &str) {
        assert!(ip(&["-n", &self.hub(), "link", "set", &format!("port{}", self.at(host)), "down"]));
    }

    pub fn plug_in(&self, host: &str) {
        assert!(ip(&["-n", &self.hub(), "link", "set", &format!("port{}", self.at(host)), "up"]));
    }

    /// A program in a namespace.
    pub fn run(&self, space: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space]).arg(program);
        command
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for space in self.hosts.iter().map(|host| self.of(host)).chain([self.hub()]) {
            ip(&["netns", "del", &space]);
        }
    }
}
