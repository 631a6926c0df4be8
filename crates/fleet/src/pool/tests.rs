//! The scripts of a pool on this machine, without a connection: what they make, and that they take all of it away.

use super::script::{PREPARE, SECRETS, TAKE_AWAY, TRUST};
use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// A home of its own with what scripts of one pool know.
struct Home {
    scratch: tempfile::TempDir,
    head: Vec<u8>,
    program: Vec<u8>,
    hash: String,
}

struct Quiet;

impl Sink for Quiet {
    fn line(&self, _: &Host, _: Stream, _: &[u8]) {}
    fn moved(&self, _: u64) {}
}

impl Home {
    fn new(has_disk: bool) -> Home {
        let scratch = tempfile::tempdir().expect("a folder");
        fs::create_dir(scratch.path().join("home")).expect("a folder");
        let plan = Plan {
            dir: scratch.path().join("deep/mount point"),
            cache: has_disk.then(|| scratch.path().join("disk/of it's own")),
            port: 7,
            is_plaintext: false,
            programs: Vec::new(),
        };
        let (hosts, ssh) = ([Host::named("a").expect("a host")], Ssh::default());
        let head = Pool { plan: &plan, hosts: &hosts, ssh: &ssh, sink: &Quiet }.head(&hosts[0]);
        let program = b"#!/bin/sh\nexit 1\n".to_vec();
        let hash = hex(&Sha256::digest(&program));
        Home { scratch, head, program, hash }
    }

    fn run(&self, script: &str, input: &[u8]) -> (bool, String) {
        self.told("yes", script, input)
    }

    /// When it is not the first time that secrets come.
    fn later(&self, script: &str, input: &[u8]) -> (bool, String) {
        self.told("", script, input)
    }

    fn told(&self, first: &str, script: &str, input: &[u8]) -> (bool, String) {
        let facts = format!("hash={} members='a\nb\n' lazy= only= first={first}\n", self.hash);
        let script = [&self.head, facts.as_bytes(), script.as_bytes()].concat();
        let mut command = Command::new("sh");
        command.arg("-c").arg(OsStr::from_bytes(&script)).env("HOME", self.scratch.path().join("home"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let _ = child.stdin.take().expect("piped").write_all(input);
        let done = child.wait_with_output().expect("it ends");
        (
            done.status.success(),
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr)),
        )
    }

    /// All that lies below the scratch folder.
    fn lying(&self) -> Vec<String> {
        fn below(folder: &Path, all: &mut Vec<String>) {
            for entry in fs::read_dir(folder).expect("a folder").flatten() {
                all.push(entry.path().display().to_string());
                if entry.file_type().expect("a type").is_dir() {
                    below(&entry.path(), all);
                }
            }
        }
        let mut all = Vec::new();
        below(self.scratch.path(), &mut all);
        all.sort();
        all
    }
}

#[test]
fn what_a_pool_makes_it_takes_away_and_nothing_else() {
    for has_disk in [false, true] {
        let home = Home::new(has_disk);
        let before = home.lying();
        assert_eq!(home.run(PREPARE, &home.program), (true, String::new()));
        let made = home.lying();
        assert!(
            made.iter().any(|path| path.ends_with("deep/mount point"))
                && made.iter().any(|path| path.ends_with("/stoker"))
        );
        assert_eq!(made.iter().any(|path| path.contains("it's own/stoker-pool-")), has_disk);
        let again = home.run(PREPARE, &home.program);
        assert!(!again.0 && again.1.contains("already"), "{again:?}");
        assert_eq!(home.lying(), made);
        let own = fs::read_to_string(made.iter().find(|path| path.ends_with("/own")).expect("a fact")).expect("a file");
        fs::create_dir_all(Path::new(own.trim()).join("cache/blocks")).expect("a cache");
        assert_eq!(home.run(TAKE_AWAY, b""), (true, "taken\n".into()));
        assert_eq!(home.lying(), before);
        assert_eq!(home.run(TAKE_AWAY, b""), (true, String::new()), "it may be repeated");
    }
}

#[test]
fn a_folder_without_the_mark_of_the_pool_stays() {
    let home = Home::new(true);
    assert!(home.run(PREPARE, &home.program).0);
    let own = home
        .lying()
        .into_iter()
        .find(|path| path.ends_with("/mark") && path.contains("own/stoker-pool"))
        .expect("a mark");
    fs::write(&own, "stoker pool of another\n").expect("a file");
    let (is_done, said) = home.run(TAKE_AWAY, b"");
    assert!(!is_done && said.contains("could not be removed") && Path::new(&own).exists(), "{said}");
    // What keeps it is gone: the same again goes on.
    fs::remove_dir_all(Path::new(&own).parent().expect("a folder")).expect("it is removed");
    assert_eq!(home.run(TAKE_AWAY, b""), (true, "taken\n".into()));
}

#[test]
fn a_program_that_did_not_arrive_whole_gets_no_name() {
    let home = Home::new(false);
    let (is_done, said) = home.run(PREPARE, &home.program[..7]);
    assert!(!is_done && said.contains("not the one that was sent"), "{said}");
    assert!(!home.lying().iter().any(|path| path.ends_with("/stoker")));
    assert_eq!(home.run(TAKE_AWAY, b""), (true, "taken\n".into()));
    assert_eq!(home.lying().len(), 1, "{:?}", home.lying());
}

#[test]
fn secrets_lie_in_memory_for_their_user_alone_and_go_with_the_pool() {
    if !Path::new("/dev/shm").exists() {
        return;
    }
    let home = Home::new(false);
    assert!(home.run(PREPARE, &home.program).0);
    let script = [SECRETS, "take node.key 5\ntake ca.pem 3\nkeep\n"].concat();
    assert_eq!(home.run(&script, b"k\0y\nZpem"), (true, String::new()));
    let place = home.run("cat \"$pool/secrets\"", b"").1;
    let place = Path::new(place.trim());
    assert_eq!(fs::read(place.join("node.key")).expect("a file"), b"k\0y\nZ");
    assert_eq!(fs::read(place.join("ca.pem")).expect("a file"), b"pem");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(place), mode(&place.join("node.key"))), (0o700, 0o600));
    let again = home.run(&script, b"k\0y\nZpem");
    assert!(!again.0, "the first time there is nothing yet: {again:?}");
    assert_eq!(home.later(&[SECRETS, "take node.key 2\nkeep\n"].concat(), b"k2"), (true, String::new()));
    assert_eq!(
        (fs::read(place.join("node.key")).expect("a file"), mode(&place.join("node.key"))),
        (b"k2".to_vec(), 0o600)
    );
    assert_eq!(home.run(TAKE_AWAY, b""), (true, "taken\n".into()));
    assert!(!place.exists());
    assert!(home.run(PREPARE, &home.program).0);
    let short = home.run(&script, b"k");
    assert!(!short.0 && short.1.contains("did not arrive whole"), "{short:?}");
    assert!(!place.join("node.key").exists());
    assert!(home.run(TAKE_AWAY, b"").0 && !place.exists());
}

#[test]
fn of_the_authorities_that_a_host_trusts_the_last_stays_beside_the_new_one() {
    if !Path::new("/dev/shm").exists() {
        return;
    }
    let home = Home::new(false);
    assert!(home.run(PREPARE, &home.program).0);
    assert!(home.run(&[SECRETS, "take lease 1\nkeep\n"].concat(), b"7").0);
    let pem = |name: &str| format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n");
    let trust = |name: &str| {
        let one = pem(name);
        home.later(&[SECRETS, &format!("take {AUTHORITY} {}\n", one.len()), TRUST].concat(), one.as_bytes())
    };
    let place = home.run("cat \"$pool/secrets\"", b"").1;
    let file = Path::new(place.trim()).join(AUTHORITY);
    assert_eq!((trust("one"), file.exists()), ((true, String::new()), false), "this pool has no keys");
    assert!(home.run("echo node.key >\"$pool/handed\"", b"").0);
    fs::write(&file, pem("one")).expect("a file");
    for (new, all) in [("two", pem("one") + &pem("two")), ("three", pem("two") + &pem("three"))] {
        assert_eq!(trust(new), (true, "keys\n".into()));
        assert_eq!(fs::read_to_string(&file).expect("a file"), all);
    }
    assert!(home.run(TAKE_AWAY, b"").0 && !Path::new(place.trim()).exists());
    assert!(home.run(PREPARE, &home.program).0);
    let gone = trust("four");
    assert!(!gone.0 && gone.1.contains("has ended"), "{gone:?}");
    assert!(home.run(TAKE_AWAY, b"").0);
}

#[test]
fn members_are_told_as_others_reach_them() {
    let plan = Plan { dir: "/d".into(), cache: None, port: 7, is_plaintext: false, programs: Vec::new() };
    let text = b"a address=10.0.0.1 weight=2\nb port=22 address=::1\nc\n";
    let (hosts, ssh) = (crate::roster::parse(text, "hosts").expect("hosts"), Ssh::default());
    let pool = Pool { plan: &plan, hosts: &hosts, ssh: &ssh, sink: &Quiet };
    assert_eq!(pool.members(), "10.0.0.1:7 name=a weight=2\n[::1]:7 name=b_22 weight=1\nc:7 name=c weight=1\n");
    assert_eq!(pool.to_reach(&hosts[1]), ["c:7", "10.0.0.1:7"]);
    assert_eq!(pool.to_reach(&hosts[0]).len(), 2);
    assert_ne!(id(Path::new("/a"), &hosts[0]), id(Path::new("/b"), &hosts[0]));
}

#[test]
fn a_folder_of_hosts_is_a_whole_path() {
    for (path, is_sound) in [("/data/a b", true), ("data", false), ("/", false), ("/a/../b", false), ("/a\nb", false)] {
        assert_eq!(folder_there(Path::new(path)).is_ok(), is_sound, "{path}");
    }
}
