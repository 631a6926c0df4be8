//! Nodes that are told of each other by what tells of hosts already, each as the real server: DNS and etcd.

mod support;

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use support::content::{compare, noise};
use support::engines::{Dns, Etcd, Secrets, free_port};
use support::{BUCKET, Bed, Daemon, drop_page_cache, eventually, finished, refused, refused_as_typed, text};

/// Nodes on one bucket, each of which is told of the others by the same words.
struct Pool {
    bed: Bed,
    members: String,
    environment: Vec<(&'static str, String)>,
}

impl Pool {
    fn of(bed: Bed, members: String) -> Pool {
        Pool { bed, members, environment: Vec::new() }
    }

    /// Told by etcd.
    fn by(bed: Bed, etcd: &Etcd) -> Pool {
        let environment = etcd.environment();
        let scheme = if environment.is_empty() { "etcd" } else { "etcds" };
        Pool { bed, members: format!("{scheme}://127.0.0.1:{}/stoker/train", etcd.port), environment }
    }

    /// A node that writes itself into etcd.
    fn join(&self, name: &str, number: usize) -> Daemon {
        self.mount(number, &["--listen", &format!("127.0.0.1:{}", free_port()), "--name", name])
    }

    /// A mount that is not run yet, by a node that has this place among the members.
    fn mounting(&self, number: usize, words: &[&str]) -> std::process::Command {
        let (cache, at) = (self.bed.path(&format!("cache{number}")), format!("m{number}"));
        let _ = fs::create_dir(self.bed.path(&at));
        let mut all = vec!["--cache", cache.to_str().expect("a name"), "--plaintext", "--fill", "off"];
        all.extend(["--members", &self.members]);
        all.extend(words);
        let mut command = self.bed.mounting(&format!("s3://{BUCKET}"), &at, &all);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn mount(&self, number: usize, words: &[&str]) -> Daemon {
        let at = format!("m{number}");
        Daemon::start(&mut self.mounting(number, words), &self.at(number), &self.bed.path(&format!("{at}.log")))
    }

    fn at(&self, number: usize) -> PathBuf {
        self.bed.path(&format!("m{number}"))
    }

    fn read_all(&self, number: usize) {
        compare(&self.at(number), &self.bed.path("data"));
    }

    /// Bytes of objects that left the store so far, by its own count. The nodes, all of which live, say the same.
    fn sent(&self) -> u64 {
        let (nodes, sent) = (self.bed.nodes(), self.bed.sent());
        let said = |status: &Value| status["tiers"]["origin"]["bytes"].as_u64().expect("a number");
        assert_eq!(nodes.iter().map(said).sum::<u64>(), sent, "{nodes:?}");
        sent
    }

    /// Members as each node knows them, by name.
    fn known(&self) -> Vec<Vec<String>> {
        let names = |status: &Value| {
            let members = status["cluster"]["members"].as_array().cloned().unwrap_or_default();
            members.iter().map(|member| member["name"].as_str().expect("a name").into()).collect()
        };
        self.bed.nodes().iter().map(names).collect()
    }

    /// Wait until each of so many nodes knows of so many members.
    fn until_known(&self, nodes: usize, members: usize) {
        eventually(&format!("{nodes} nodes know of {members} members"), || {
            let known = self.known();
            known.len() == nodes && known.iter().all(|names| names.len() == members)
        });
    }

    /// What each node says is the matter with who tells of its members.
    fn troubles(&self) -> Vec<String> {
        let nodes = self.bed.nodes();
        nodes.iter().filter_map(|status| Some(status["cluster"]["members_trouble"].as_str()?.to_owned())).collect()
    }
}

/// A set of objects of many sizes; their bytes in all.
fn set(bed: &Bed) -> u64 {
    let sizes = [1, 1_000, 100_000, 1 << 20, 3_000_000, 20_000_000];
    for (number, size) in (0..24).zip(sizes.iter().cycle()) {
        bed.put(&format!("{number}"), &noise(*size, number as u64));
    }
    4 * sizes.iter().sum::<usize>() as u64
}

#[test]
fn nodes_whose_addresses_dns_has_are_one_cache_and_an_answer_that_fails_changes_nothing() {
    let Some(bed) = Bed::new() else { return };
    let Some(dns) = Dns::start(&bed.path("")) else { return };
    let total = set(&bed);
    let (port, all) = (free_port(), ["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let seats = all.map(|address| format!("{address}:{port}"));
    dns.set_addresses("pool.test", &all[..2]);
    let pool = Pool::of(bed, format!("dns://127.0.0.1:{}/pool.test:{port}", dns.port));
    // The third comes before its record.
    let _daemons: Vec<_> = (0..3).map(|number| pool.mount(number, &["--listen", &seats[number]])).collect();
    dns.set_addresses("pool.test", &[all[2], all[0], all[1]]);
    pool.until_known(3, 3);
    assert!(pool.known().iter().all(|names| *names == seats), "{:?}", pool.known());
    (0..3).for_each(|number| pool.read_all(number));
    assert_eq!(pool.sent(), total, "each byte left the store once: {:?}", pool.bed.nodes());
    // No such name; nobody answers; back.
    dns.set_addresses("another.test", &all);
    eventually("each node says so", || {
        pool.troubles().iter().filter(|text| text.contains("names no members")).count() == 3
    });
    dns.fall_silent(true);
    eventually("each node says so", || pool.troubles().iter().filter(|text| text.contains("looking up")).count() == 3);
    let said = text(&pool.bed.run(["status"]));
    assert!(said.contains("THE MEMBERS STAY AS THEY WERE"), "{said}");
    pool.until_known(3, 3);
    drop_page_cache();
    (0..3).for_each(|number| pool.read_all(number));
    dns.fall_silent(false);
    dns.set_addresses("pool.test", &all[..2]);
    pool.until_known(3, 2);
    assert!(pool.troubles().is_empty(), "{:?}", pool.troubles());
}

#[test]
fn nodes_that_are_services_in_dns_are_called_by_name_and_port() {
    let Some(bed) = Bed::new() else { return };
    let Some(mut dns) = Dns::start(&bed.path("")) else { return };
    let total = set(&bed);
    let ports = [free_port(), free_port()];
    let seats = ports.map(|port| format!("localhost:{port}"));
    dns.set_services("_stoker._tcp.pool.test", &ports.map(|port| ("LocalHost", port)));
    let pool = Pool::of(bed, format!("dns://127.0.0.1:{}/_stoker._tcp.pool.test", dns.port));
    let _daemons: Vec<_> = (0..2).map(|number| pool.mount(number, &["--listen", &seats[number]])).collect();
    pool.until_known(2, 2);
    (0..2).for_each(|number| pool.read_all(number));
    assert_eq!(pool.sent(), total);
    // Keys are made for those that DNS names.
    let made =
        pool.bed.run(["keys", "--members", &pool.members, "--out", pool.bed.path("keys").to_str().expect("a name")]);
    assert!(made.status.success(), "{}", text(&made));
    assert!(seats.iter().all(|seat| pool.bed.path("keys").join(seat).join("node.key").exists()));
    let wrong = finished(&mut pool.mounting(2, &["--listen", "127.0.0.1:80"]));
    assert!(!wrong.status.success() && text(&wrong).contains("SRV"), "{}", text(&wrong));
}

#[test]
fn nodes_that_etcd_tells_of_are_one_cache_and_read_on_while_it_is_gone() {
    let Some(bed) = Bed::new() else { return };
    let Some(mut etcd) = Etcd::start(&bed.path(""), None) else { return };
    let total = set(&bed);
    let pool = Pool::by(bed, &etcd);
    let _daemons: Vec<_> = (0..3).map(|number| pool.join(&format!("n{number}"), number)).collect();
    pool.until_known(3, 3);
    assert!(pool.known().iter().all(|names| *names == ["n0", "n1", "n2"]), "{:?}", pool.known());
    // It dies while one of them reads.
    pool.bed.set_bandwidth(30_000_000);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| pool.read_all(0));
        eventually("it reads", || pool.bed.sent() > total / 10);
        etcd.kill();
        reading.join().expect("no error");
    });
    (1..3).for_each(|number| pool.read_all(number));
    assert_eq!(pool.sent(), total, "each byte left the store once: {:?}", pool.bed.nodes());
    eventually("each node says so", || {
        pool.troubles().iter().filter(|text| text.contains("etcd can't be asked")).count() == 3
    });
    pool.until_known(3, 3);
    etcd.go_on();
    eventually("etcd is heard again", || pool.troubles().is_empty());
    pool.until_known(3, 3);
    // It comes back with nothing: all write themselves again before anybody believes it.
    etcd.kill();
    eventually("each node says so", || pool.troubles().len() == 3);
    etcd.forget();
    etcd.go_on();
    eventually("etcd is heard again", || {
        assert!(pool.known().iter().all(|names| names.len() == 3), "{:?}", pool.known());
        pool.troubles().is_empty()
    });
    pool.until_known(3, 3);
    (0..3)
        .for_each(|number| assert!(etcd.control(&["get", &format!("/stoker/train/n{number}")]).contains("127.0.0.1")));
}

#[test]
fn a_node_joins_and_leaves_at_once_and_when_it_was_killed_by_the_end_of_its_lease() {
    let Some(bed) = Bed::new() else { return };
    let Some(etcd) = Etcd::start(&bed.path(""), None) else { return };
    set(&bed);
    let pool = Pool::by(bed, &etcd);
    let keys = || etcd.control(&["get", "--prefix", "--keys-only", "/stoker/train/"]).split_whitespace().count();
    let _first = pool.join("n0", 0);
    let second = pool.join("n1", 1);
    let third = pool
        .mount(2, &["--interface", "lo", "--listen", &format!(":{}", free_port()), "--name", "n2", "--weight", "3"]);
    pool.until_known(3, 3);
    let status = pool.bed.nodes();
    assert!(status.iter().all(|status| status["cluster"]["members"][2]["weight"] == 3), "{status:?}");
    assert_eq!(keys(), 3);
    let namesake = pool.mounting(3, &["--listen", &format!("127.0.0.1:{}", free_port()), "--name", "n1"]).output();
    refused_as_typed(&namesake.expect("it runs"), &["calls itself by the name", "--name of its own"]);
    third.end();
    assert_eq!(keys(), 2, "it left when it ended");
    pool.until_known(2, 2);
    second.kill_and_detach();
    assert_eq!(keys(), 2, "nobody knows yet");
    pool.until_known(1, 1);
    assert_eq!(keys(), 1);
    // What is no member is passed over; what somebody took away comes back.
    etcd.control(&["put", "/stoker/train/n7", "not a member"]);
    etcd.control(&["put", "/stoker/train/n8", "{\"name\":\"n1\",\"address\":\"127.0.0.1:1\",\"weight\":1}"]);
    etcd.control(&["put", "/stoker/train/n9", "{\"name\":\"n9\",\"address\":\"127.0.0.1:1\",\"weight\":0}"]);
    eventually("it knows of n9", || pool.known() == [["n0", "n9"]]);
    etcd.control(&["del", "/stoker/train/n0"]);
    eventually("it is there again", || etcd.control(&["get", "/stoker/train/n0"]).contains("127.0.0.1"));
    etcd.control(&["put", "/stoker/train/n0", "{\"name\":\"n0\",\"address\":\"127.0.0.9:1\",\"weight\":1}"]);
    eventually("it says so", || pool.troubles().iter().any(|text| text.contains("calls itself by the name")));
    pool.read_all(0);
}

#[test]
fn an_etcd_that_wants_certificates_and_a_password_is_reached_by_what_its_own_tools_are_told() {
    let Some(bed) = Bed::new() else { return };
    let secrets = Secrets { files: certificates(&bed), password: "not-to-be-seen".into() };
    let Some(etcd) = Etcd::start(&bed.path(""), Some(secrets)) else { return };
    etcd.want_password();
    set(&bed);
    let mut pool = Pool::by(bed, &etcd);
    let daemons = [pool.join("n0", 0), pool.join("n1", 1)];
    pool.until_known(2, 2);
    pool.read_all(1);
    assert!(daemons.iter().all(|daemon| !daemon.said().contains("not-to-be-seen")));
    assert!(pool.bed.nodes().iter().all(|status| !status.to_string().contains("not-to-be-seen")));
    let out = pool.bed.path("keys");
    let mut keys = pool.bed.stoker(["keys", "--members", &pool.members, "--out", out.to_str().expect("a name")]);
    let made = finished(keys.envs(etcd.environment()));
    assert!(made.status.success() && out.join("n1").join("node.key").exists(), "{}", text(&made));
    // Without a password, and without a certificate.
    let listen = ["--listen", "127.0.0.1:1"];
    pool.environment.retain(|(name, _)| !["ETCDCTL_USER", "ETCDCTL_PASSWORD"].contains(name));
    refused(&finished(&mut pool.mounting(2, &listen)), &["etcd refused", "ETCDCTL_USER"]);
    pool.environment.clear();
    refused(&finished(&mut pool.mounting(2, &listen)), &["etcd can't be asked", "etcdctl endpoint health"]);
}

#[test]
fn what_can_t_be_meant_of_members_is_refused_with_what_to_write() {
    let Some(bed) = Bed::new() else { return };
    let members = format!("etcd://127.0.0.1:{}/stoker", free_port());
    let mut pool = Pool::of(bed, members);
    for (words, said) in [
        (&[][..], "where this node listens"),
        (&["--listen", "0.0.0.0:1"], "nobody reaches"),
        (&["--listen", "127.0.0.1:1", "--name", "a b"], "no member"),
        (&["--interface", "ib77"], "lo (127.0.0.1)"),
        (&["--listen", "127.0.0.1:1"], "etcd can't be asked"),
    ] {
        let done = finished(&mut pool.mounting(0, words));
        assert!(!done.status.success() && text(&done).contains(said), "{words:?}: {}", text(&done));
    }
    let hosts = pool.bed.path("hosts");
    fs::write(&hosts, "127.0.0.1:1\n").expect("written");
    pool.members = hosts.to_str().expect("a name").into();
    refused_as_typed(&finished(&mut pool.mounting(0, &["--weight", "3"])), &["weight=NUMBER"]);
    pool.members = "etcd://root:not-to-be-seen@127.0.0.1/stoker".into();
    let done = finished(&mut pool.mounting(0, &[]));
    refused_as_typed(&done, &["ETCDCTL_PASSWORD"]);
    assert!(!text(&done).contains("not-to-be-seen"));
}

/// Certificates of an authority, a server on this machine and a client.
fn certificates(bed: &Bed) -> PathBuf {
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, IsCa, Issuer, KeyPair};
    let folder = bed.path("certificates");
    fs::create_dir(&folder).expect("a folder");
    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("written");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    write("ca.pem", authority.self_signed(&key).expect("signed").pem());
    let issuer = Issuer::new(authority, key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).expect("names");
        // An etcd with users wants no common name in it.
        params.distinguished_name = DistinguishedName::new();
        write(&format!("{name}.pem"), params.signed_by(&key, &issuer).expect("signed").pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
    folder
}
