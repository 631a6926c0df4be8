//! The scripts of a pool on this machine, without a connection: what they make, and that they take all of it away.

use super::script::{BRING, PREPARE, SECRETS, TAKE_AWAY, TRUST};
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
        let head = head(scratch.path(), "deep/mount point", has_disk, "");
        let program = b"#!/bin/sh\nexit 1\n".to_vec();
        let hash = hex(&Sha256::digest(&program));
        Home { scratch, head, program, hash }
    }

    fn run(&self, script: &str, input: &[u8]) -> (bool, String) {
        self.told(&self.head, "first=yes", script, input)
    }

    /// When it is not the first time that secrets come, and a node runs.
    fn later(&self, script: &str, input: &[u8]) -> (bool, String) {
        self.told(&self.head, "first=\nnodes() { echo 1; }", script, input)
    }

    /// The same from another `up` or for another place.
    fn other(&self, place: &str, token: &str, script: &str, input: &[u8]) -> (bool, String) {
        self.told(&head(self.scratch.path(), place, false, token), "first=yes", script, input)
    }

    /// All of a pool's first step.
    fn up(&self) {
        assert_eq!(self.run(PREPARE, b""), (true, "bring\n".into()));
        assert_eq!(self.run(BRING, &self.program), (true, String::new()));
    }

    fn told(&self, head: &[u8], how: &str, script: &str, input: &[u8]) -> (bool, String) {
        let facts = format!("hash={} members='a\nb\n' lazy= only= {how}\n", self.hash);
        let script = [head, facts.as_bytes(), script.as_bytes()].concat();
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

/// What scripts of a pool know that lies here.
fn head(scratch: &Path, place: &str, has_disk: bool, token: &str) -> Vec<u8> {
    let plan = Plan {
        dir: scratch.join(place),
        cache: has_disk.then(|| scratch.join("disk/of it's own")),
        port: 7,
        is_plaintext: false,
        token: token.into(),
        programs: Vec::new(),
    };
    let (hosts, ssh) = ([Host::named("a").expect("a host")], Ssh::default());
    Pool { plan: &plan, hosts: &hosts, ssh: &ssh, sink: &Quiet }.head(&hosts[0])
}

#[test]
fn who_comes_second_to_a_place_takes_nothing_away_from_who_came_first() {
    let home = Home::new(false);
    let (first, second) =
        (|script, input| home.other("place", "one", script, input), |script| home.other("place", "two", script, b""));
    assert!(first(PREPARE, b"").0);
    let refused = second(PREPARE);
    assert!(!refused.0 && refused.1.contains("already"), "{refused:?}");
    let before = home.lying();
    assert_eq!(second(TAKE_AWAY), (true, String::new()));
    assert_eq!(home.lying(), before);
    assert_eq!(first(BRING, &home.program), (true, String::new()));
    assert_eq!(
        home.other("place", "", TAKE_AWAY, b""),
        (true, "taken\n".into()),
        "`down` takes away whatever is there"
    );
}

/// Two `down` at once, of which one takes so long that somebody has brought up another pool meanwhile.
#[test]
fn what_came_up_since_stays_when_another_has_taken_away_what_was_there() {
    let home = Home::new(true);
    let known = |token| head(home.scratch.path(), "deep/mount point", true, token);
    let facts = format!("hash={} members=a lazy= only= first=yes\n", home.hash);
    assert!(home.told(&known("one"), "first=yes", PREPARE, b"").0);
    let meanwhile =
        |head: Vec<u8>, script: &str| [b"(", &head[..], facts.as_bytes(), script.as_bytes(), b")\n"].concat();
    let steps = [meanwhile(known(""), TAKE_AWAY), meanwhile(known("two"), PREPARE)].concat();
    let path = home.scratch.path().join("home/meanwhile");
    fs::write(&path, steps).expect("a script");
    let slow = "nodes() { [ ! -e ~/meanwhile ] || { mv ~/meanwhile ~/now; sh ~/now >~/said; }; }";
    let (is_done, said) = home.told(&known(""), &format!("first=yes\n{slow}"), TAKE_AWAY, b"");
    assert_eq!(fs::read_to_string(home.scratch.path().join("home/said")).expect("both ran"), "taken\nbring\n");
    assert_eq!((is_done, &*said), (true, "taken\n"));
    let facts = ["token", "mark", "own", "place", "hash"];
    let pools = home.scratch.path().join("home/.cache/stoker-pools");
    let has = |fact: &str| fs::read_dir(&pools).expect("pools").flatten().any(|pool| pool.path().join(fact).exists());
    assert!(facts.into_iter().all(has), "{:?}", home.lying());
    assert!(home.scratch.path().join("disk/of it's own").read_dir().expect("a folder").count() == 1, "its cache too");
    assert!(home.scratch.path().join("deep/mount point").is_dir());
}

#[test]
fn pools_on_one_host_share_a_program_and_the_last_takes_all_away() {
    let home = Home::new(false);
    let before = home.lying();
    home.up();
    // One that was seen to be there may go before a second pool writes down that it needs it.
    assert_eq!(home.run(TAKE_AWAY, b""), (true, "taken\n".into()));
    assert_eq!(home.other("second", "", PREPARE, b""), (true, "bring\n".into()));
    assert!(home.other("second", "", BRING, &home.program).0);
    assert_eq!(home.run(PREPARE, b""), (true, String::new()), "the other has brought it");
    assert_eq!(home.other("second", "", TAKE_AWAY, b""), (true, "taken\n".into()));
    assert!(home.lying().iter().any(|path| path.ends_with("/stoker")));
    assert_eq!(home.run(TAKE_AWAY, b""), (true, "taken\n".into()));
    assert_eq!(home.lying(), before, "also what the first had made and the second used");
}

#[test]
fn what_a_pool_makes_it_takes_away_and_nothing_else() {
    for has_disk in [false, true] {
        let home = Home::new(has_disk);
        let before = home.lying();
        home.up();
        let made = home.lying();
        assert!(
            made.iter().any(|path| path.ends_with("deep/mount point"))
                && made.iter().any(|path| path.ends_with("/stoker"))
        );
        assert_eq!(made.iter().any(|path| path.contains("it's own/stoker-pool-")), has_disk);
        let again = home.run(PREPARE, b"");
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
    home.up();
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
    assert!(home.run(PREPARE, b"").0);
    let (is_done, said) = home.run(BRING, &home.program[..7]);
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
    home.up();
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
    home.up();
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
    home.up();
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
    home.up();
    let gone = home.told(&home.head, "first=", SECRETS, b"");
    assert!(!gone.0 && gone.1.contains("has ended"), "{gone:?}");
    assert!(home.run(TAKE_AWAY, b"").0);
}

#[test]
fn members_are_told_as_others_reach_them() {
    let plan = Plan {
        dir: "/d".into(),
        cache: None,
        port: 7,
        is_plaintext: false,
        token: String::new(),
        programs: Vec::new(),
    };
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
