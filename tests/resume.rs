//! A node that goes on with the mounts of another: what it does with those whose store is away, or that have ended
//! meanwhile, and what it hears before it is there.

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::content::{compare, noise, same};
use support::successor::{bed, next, pid};
use support::web::Served;
use support::{
    Bed, Daemon, LONG, children, eventually, finished, has_ended, keeper_of, kill_for_good, mounts, mounts_below,
    signal, text,
};

/// Longer than whoever holds a mount may take once a node can be asked.
const UNHEARD: Duration = Duration::from_secs(25);

/// After it two ends of a node count no more.
const FORGOTTEN: Duration = Duration::from_secs(31);

/// Two mounts of one node, of which the second is a folder of the network: a mount of another node, which can be stopped.
struct Away {
    bed: Bed,
    below: Daemon,
    bucket: Daemon,
    folder: Daemon,
}

impl Away {
    fn new() -> Option<Away> {
        let bed = Bed::new()?;
        (0..20).for_each(|number| bed.put(&format!("a/{number}"), &noise(50_000, number)));
        let below = bed.mount(&["--fill", "off"]);
        let cache = bed.path("second").display().to_string();
        let words = ["--fill", "off", "--cache", &cache];
        let bucket = bed.mount_at(&format!("s3://{}", support::BUCKET), "bucket", &words);
        let folder = bed.mount_at(&format!("file://{}", bed.path("mnt").display()), "folder", &words);
        let away = Away { bed, below, bucket, folder };
        if away.node()["keeper"]["state"] != "on" {
            eprintln!("SKIPPED: this kernel does not ask again what was not answered (Linux 6.9 or later does)");
            return None;
        }
        Some(away)
    }

    /// What the node of both says of itself, once one does.
    fn node(&self) -> Value {
        let of_both = |node: &Value| node["cache"].as_str().is_some_and(|cache| cache.ends_with("/second"));
        let found = || self.bed.nodes().into_iter().find(of_both);
        eventually("their node answers", || found().is_some());
        found().expect("it answered")
    }

    fn pid(&self) -> u32 {
        self.node()["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("it has a number")
    }
}

/// The node that a keeper started after this one, once it hears signals.
fn successor(keeper: u32, before: u32) -> u32 {
    let started = || children(keeper).into_iter().find(|child| *child != before);
    let hears = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & 1 << (libc::SIGTERM - 1) != 0)
    };
    eventually("another node is there", || started().is_some_and(hears));
    started().expect("it was there")
}

#[test]
fn a_mount_is_not_ended_as_nobodys_while_another_waits_for_its_store() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    signal(away.below.node(), "STOP");
    signal(first, "KILL");
    std::thread::sleep(UNHEARD);
    signal(away.below.node(), "CONT");
    let after = away.node();
    assert_ne!(after["pid"], u64::from(first));
    eventually("both are there", || away.node()["mounts"].as_array().map(Vec::len) == Some(2));
    compare(&away.bed.path("bucket"), &away.bed.path("data"));
    compare(&away.bed.path("folder"), &away.bed.path("data"));
    [away.bucket, away.folder, away.below].into_iter().for_each(Daemon::end);
}

#[test]
fn a_node_that_is_told_to_end_before_it_is_there_ends_what_it_was_to_go_on_with() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    let keeper = keeper_of(first).expect("somebody holds the mounts");
    signal(away.below.node(), "STOP");
    signal(first, "KILL");
    let next = successor(keeper, first);
    signal(next, "TERM");
    eventually("it has ended, and nobody is to start another", || has_ended(next) && has_ended(keeper));
    let left = |name: &str| mounts_below(&away.bed.path(name));
    assert_eq!((left("bucket"), left("folder"), left("mnt")), (0, 0, 1));
    signal(away.below.node(), "CONT");
    away.below.end();
}

#[test]
fn a_node_that_is_told_to_end_while_a_mount_waits_ends_those_that_were_made_meanwhile_and_lets_their_files_be_read() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    let keeper = keeper_of(first).expect("somebody holds the mounts");
    signal(away.below.node(), "STOP");
    signal(first, "KILL");
    eventually("another node is there", || away.pid() != first);
    eventually("one of both goes on", || away.node()["mounts"].as_array().map(Vec::len) == Some(1));
    let cache = away.bed.path("second").display().to_string();
    let meanwhile = away.bed.data("a").display().to_string();
    let made = away.bed.mount_at(&meanwhile, "meanwhile", &["--detach", "--cache", &cache]).waited(LONG);
    assert!(made.is_some_and(|status| status.success()));
    let (node, open) = (away.pid(), fs::File::open(away.bed.path("bucket/a/7")).expect("it opens"));
    signal(node, "TERM");
    eventually("none of its mounts is left", || {
        ["bucket", "folder", "meanwhile"].iter().all(|name| mounts_below(&away.bed.path(name)) == 0)
    });
    let mut read = vec![0; 50_000];
    std::os::unix::fs::FileExt::read_exact_at(&open, &mut read, 0).expect("it is read to its end");
    support::content::same(&read, &noise(50_000, 7), &"what was open");
    drop(open);
    eventually("it has ended, and nobody is to start another", || has_ended(node) && has_ended(keeper));
    signal(away.below.node(), "CONT");
    away.below.end();
}

#[test]
fn what_was_unmounted_while_there_was_no_node_keeps_no_other_mount_waiting() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    let keeper = keeper_of(first).expect("somebody holds the mounts");
    signal(keeper, "STOP");
    signal(first, "KILL");
    let done = finished(Command::new("umount").arg("-l").arg(away.bed.path("bucket")));
    assert!(done.status.success());
    signal(keeper, "CONT");
    eventually("another node is there", || away.pid() != first);
    eventually("it goes on", || away.node()["coming"].is_null());
    let after = away.node();
    let mounts = after["mounts"].as_array().expect("mounts");
    assert!(mounts.len() == 1 && mounts[0]["restarts"] == 1, "the first that came goes on: {after}");
    compare(&away.bed.path("folder"), &away.bed.path("data"));
    [away.folder, away.below].into_iter().for_each(Daemon::end);
}

#[test]
fn a_node_that_goes_on_opens_its_log_anew_as_any_other() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    signal(first, "KILL");
    eventually("another node is there", || away.pid() != first);
    let log = away.node()["log"]["path"].as_str().map(std::path::PathBuf::from).expect("it has a log");
    fs::rename(&log, log.with_extension("old")).expect("it is moved");
    signal(away.pid(), "HUP");
    eventually("there is a new one", || log.exists());
    [away.folder, away.bucket, away.below].into_iter().for_each(Daemon::end);
}

#[test]
fn a_node_that_ends_three_times_with_half_a_minute_between_them_is_started_each_time() {
    let Some(bed) = support::successor::bed() else { return };
    (0..5).for_each(|number| bed.put(&format!("{number}"), &noise(2 << 20, number)));
    let _daemon = bed.mount(&["--fill", "off"]);
    let mut node = support::successor::pid(&bed);
    for kill in 1..4 {
        if kill == 3 {
            std::thread::sleep(FORGOTTEN);
        }
        signal(node, "KILL");
        node = support::successor::next(&bed, node);
        compare(&bed.path("mnt"), &bed.path("data"));
        assert_eq!(bed.status()["mounts"][0]["restarts"], kill);
    }
}

#[test]
fn commands_on_the_other_mounts_are_answered_while_one_waits_for_its_store() {
    let Some(away) = Away::new() else { return };
    let first = away.pid();
    signal(away.below.node(), "STOP");
    signal(first, "KILL");
    eventually("another node is there", || away.pid() != first);
    let now = away.node();
    let of = |what: &str| {
        now[what].as_array().map_or_else(Vec::new, |all| all.iter().map(|of| of["path"].clone()).collect())
    };
    let at = |name: &str| vec![Value::from(away.bed.path(name).display().to_string())];
    assert_eq!((of("mounts"), of("coming")), (at("bucket"), at("folder")), "{now}");
    let waits = || away.node()["coming"][0]["waits_for"].as_str().is_some_and(|why| why.contains("did not answer"));
    eventually("it says what is waited for", waits);
    compare(&away.bed.path("bucket"), &away.bed.path("data"));
    let evicted = finished(away.bed.stoker(["evict"]).arg(away.bed.path("bucket")));
    assert!(evicted.status.success(), "{}", text(&evicted));
    away.bucket.end();
    // Who names the one that is to come waits for it.
    let mut asking = away.bed.stoker(["evict"]).arg(away.bed.path("folder")).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    assert!(asking.try_wait().expect("it can be waited for").is_none());
    signal(away.below.node(), "CONT");
    assert!(asking.wait().expect("it ends").success());
    compare(&away.bed.path("folder"), &away.bed.path("data"));
    [away.folder, away.below].into_iter().for_each(Daemon::end);
}

#[test]
fn a_configuration_that_hangs_keeps_no_other_mount_waiting_and_no_node_from_its_end() {
    let Some(bed) = bed() else { return };
    let (conf, manifest, folder) = (bed.path("core-site.xml"), bed.path("names.jsonl"), bed.path("folder"));
    fs::create_dir(&folder).and_then(|()| fs::write(folder.join("file"), noise(100_000, 1))).expect("a file");
    fs::write(&conf, "<configuration></configuration>").expect("a configuration");
    fs::write(&manifest, NAMES).expect("a manifest");
    let mut mounting = bed.mounting("hdfs://127.0.0.1:9/x", "other", &["--manifest", &manifest.display().to_string()]);
    mounting.env("HADOOP_CONF_DIR", bed.path("")).env("HADOOP_USER_NAME", "me").arg("--detach");
    fs::create_dir(bed.path("other")).expect("a folder");
    let mounted = finished(&mut mounting);
    assert!(mounted.status.success(), "{}", text(&mounted));
    assert!(bed.mount_at(&folder.display().to_string(), "mnt", &["--detach"]).waited(LONG).is_some());
    let first = pid(&bed);
    let keeper = keeper_of(first).expect("somebody holds the mounts");
    fs::remove_file(&conf).expect("it is there");
    assert!(finished(Command::new("mkfifo").arg(&conf)).status.success());
    signal(first, "KILL");
    compare(&bed.path("mnt"), &folder);
    eventually("another node is there", || pid(&bed) != first);
    let now = bed.status();
    assert_eq!(now["coming"][0]["url"], "hdfs://127.0.0.1:9/x", "{now}");
    let node = pid(&bed);
    signal(node, "TERM");
    eventually("it has ended, and nobody is to start another", || has_ended(node) && has_ended(keeper));
    assert_eq!(mounts(&bed), 0);
}

/// A manifest of one file of a cluster that isn't there.
const NAMES: &str = r#"{"stoker_manifest":1,"url":"hdfs://127.0.0.1:9/x","store":"hdfs://127.0.0.1:9","prefix":"x/","listed":"2026-11-25T13:00:00.5Z","objects":1,"bytes":5}
{"key":"x/f","size":5,"modified":"2026-01-01T00:00:00Z","version":"19c-5"}
"#;

#[test]
fn the_command_of_a_mount_that_is_gone_holds_none_of_the_next_node() {
    let Some(bed) = bed() else { return };
    let folders = ["one", "two"].map(|name| {
        fs::create_dir(bed.path(name)).and_then(|()| fs::write(bed.path(name).join("file"), name)).expect("a file");
        bed.path(name).display().to_string()
    });
    let mut held = bed.mount_at(&folders[0], "mnt", &[]);
    kill_for_good(pid(&bed));
    assert!(bed.mount_at(&folders[1], "other", &["--detach"]).waited(LONG).is_some());
    assert_eq!(held.waited(LONG).and_then(|status| status.code()), Some(1), "{}", held.said());
    assert!(held.said().contains("the node ended, and the mount with it"), "{}", held.said());
    compare(&bed.path("other"), Path::new(&folders[1]));
}

#[test]
fn what_one_principal_mounted_is_not_read_by_another() {
    let Some(bed) = bed() else { return };
    (0..2).for_each(|number| bed.put(&number.to_string(), &noise(1000, number)));
    let keys = |id: &str| {
        let text = format!("[profile p]\naws_access_key_id={id}\naws_secret_access_key=of nobody\n");
        fs::create_dir_all(bed.path("home/.aws"))
            .and_then(|()| fs::write(bed.path("home/.aws/config"), text))
            .expect("keys");
    };
    keys("KEYOFONE");
    fs::create_dir(bed.path("other")).expect("a folder");
    for at in ["mnt", "other"] {
        let mut mounting =
            bed.stoker(["mount", "--detach", "--fill", "off", "--profile", "p", "--region", "us-east-1"]);
        mounting.args(["--endpoint", bed.endpoint(), "--cache"]).arg(bed.path("cache"));
        let mounted = finished(mounting.arg(format!("s3://{}", support::BUCKET)).arg(bed.path(at)));
        assert!(mounted.status.success(), "{}", text(&mounted));
    }
    fs::read(bed.mounted("0")).expect("it is read");
    keys("KEYOFTWO");
    let (first, asked) = (pid(&bed), bed.requests());
    signal(first, "KILL");
    let second = next(&bed, first);
    fs::read(bed.mounted("0")).expect("it is kept");
    let refused = fs::read(bed.mounted("1")).expect_err("it was not mounted by these keys");
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES), "{refused}");
    assert_eq!(bed.requests(), asked, "nothing was asked by them");
    let status = bed.status();
    for mount in status["mounts"].as_array().filter(|mounts| mounts.len() == 2).expect("both mounts") {
        let why = mount["refused"].as_str().unwrap_or_default();
        assert!(why.contains("KEYOFONE") && why.contains("KEYOFTWO"), "{mount}");
    }
    keys("KEYOFONE");
    let restarted = bed.run(["restart".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(restarted.status.success() && pid(&bed) != second, "{}", text(&restarted));
    compare(&bed.path("mnt"), &bed.path("data"));
}

#[test]
fn certificates_that_are_gone_cost_what_is_not_kept_of_the_mounts_that_go_by_them_and_nothing_of_others() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(300_000, 1));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let (named, away, pem, served) =
        (bed.path("named.pem"), bed.path("away.pem"), bed.path("tls.pem"), bed.path("served"));
    fs::write(&pem, made.cert.pem() + &made.signing_key.serialize_pem()).expect("a certificate");
    fs::write(&named, made.cert.pem()).and_then(|()| fs::create_dir(&served)).expect("a certificate");
    for name in ["kept", "other"] {
        fs::write(served.join(name), noise(50_000, name.len() as u64)).expect("a file");
    }
    let Some(server) = Served::nginx_over_tls(&served, &bed.path("run"), &pem) else { return };
    let (list, names) = (bed.path("list"), bed.path("names.jsonl").display().to_string());
    fs::write(&list, "kept\nother\n").expect("a list");
    for (variable, at) in [("SSL_CERT_FILE", "one"), ("AWS_CA_BUNDLE", "two")] {
        fs::create_dir(bed.path(at)).expect("a folder");
        let trusting = |mut command: Command| {
            let done = finished(command.env_remove("SSL_CERT_DIR").env(variable, &named));
            assert!(done.status.success(), "{}", text(&done));
        };
        let mut import = bed.stoker(["manifest", "import"]);
        import.arg(&list).args([&*server.url(""), "-o", &names]);
        trusting(import);
        trusting(bed.mounting(&server.url(""), at, &["--manifest", &names, "--fill", "off", "--detach"]));
        same(&fs::read(bed.path(at).join("kept")).expect("it is there"), &noise(50_000, 4), &at);
    }
    let other = bed.mount(&[]);
    fs::rename(&named, &away).expect("it is there");
    let first = pid(&bed);
    signal(first, "KILL");
    let second = next(&bed, first);
    compare(&bed.path("mnt"), &bed.path("data"));
    let mounts = || bed.status()["mounts"].as_array().cloned().unwrap_or_default();
    assert!(mounts().len() == 3 && mounts().iter().all(|mount| mount["restarts"] == 1), "{:?}", mounts());
    for (variable, at) in [("SSL_CERT_FILE", "one"), ("AWS_CA_BUNDLE", "two")] {
        same(&fs::read(bed.path(at).join("kept")).expect("it is kept"), &noise(50_000, 4), &at);
        let refused = fs::read(bed.path(at).join("other")).expect_err("nothing is kept of it");
        assert_eq!(refused.raw_os_error(), Some(libc::EACCES), "{refused}");
        let found = mounts().into_iter().find(|mount| mount["path"].as_str().is_some_and(|path| path.ends_with(at)));
        let why = found.and_then(|mount| mount["refused"].as_str().map(str::to_owned)).unwrap_or_default();
        assert!(why.contains(variable) && why.contains(&*named.to_string_lossy()), "{why}");
    }
    fs::rename(&away, &named).expect("it is there");
    let restarted = bed.run(["restart".as_ref(), bed.path("one").as_os_str()]);
    assert!(restarted.status.success() && pid(&bed) != second, "{}", text(&restarted));
    assert!(mounts().len() == 3 && mounts().iter().all(|mount| mount["refused"].is_null()), "{:?}", mounts());
    ["one", "two"].iter().for_each(|at| compare(&bed.path(at), &served));
    other.end();
}

/// A node that is killed, with who holds its mounts kept from starting another; both.
fn without_a_node(bed: &Bed) -> (u32, u32) {
    let first = pid(bed);
    let keeper = keeper_of(first).expect("somebody holds the mounts");
    signal(keeper, "STOP");
    (first, keeper)
}

#[test]
fn a_restart_beside_an_unmount_calls_nothing_dead() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let data = bed.path("data").display().to_string();
    for at in ["mnt", "other"] {
        assert!(bed.mount_at(&data, at, &["--detach"]).waited(LONG).is_some_and(|status| status.success()));
    }
    let (first, keeper) = without_a_node(&bed);
    let restarting = bed.stoker(["restart"]).arg(bed.path("mnt")).spawn().expect("it starts");
    eventually("it makes way", || has_ended(first));
    let done = finished(Command::new("umount").arg("-l").arg(bed.path("other")));
    assert!(done.status.success(), "{}", text(&done));
    signal(keeper, "CONT");
    assert!(restarting.wait_with_output().expect("it ends").status.success());
    compare(&bed.path("mnt"), &bed.path("data"));
}

#[test]
fn a_status_that_meets_a_restart_waits_for_the_next_node() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let daemon = bed.mount(&[]);
    for of_all in [true, false] {
        let (first, keeper) = without_a_node(&bed);
        signal(first, "KILL");
        eventually("it is dead", || has_ended(first));
        let mut asking = bed.stoker(["status"]);
        let asking = if of_all { &mut asking } else { asking.arg(bed.path("mnt")) };
        let asking = asking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_secs(1));
        signal(keeper, "CONT");
        let done = asking.wait_with_output().expect("it ends");
        assert!(done.status.success() && text(&done).contains(&*bed.path("mnt").to_string_lossy()), "{}", text(&done));
        next(&bed, first);
    }
    daemon.end();
}

#[test]
fn a_status_whose_node_ends_in_the_middle_asks_the_next_one() {
    use std::io::{Read, Write};
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    // What a node says, from one.
    let (daemon, at) = (bed.mount(&[]), bed.path("mnt"));
    let said = bed.run(["status".as_ref(), "--json".as_ref(), at.as_os_str()]);
    let status = serde_json::from_slice::<Value>(&said.stdout).expect("it is JSON");
    let kept = status["kept"].clone();
    daemon.end();
    let node = UnixListener::bind(bed.path("run/stoker/node.sock")).expect("a socket");
    let answering = std::thread::spawn(move || {
        let mut is_first = true;
        for mut stream in node.incoming().flatten() {
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap_or(0);
            let is_of_kept = String::from_utf8_lossy(&asked[..length]).contains("/v1/kept");
            // It ends with the first of these.
            if is_of_kept && std::mem::take(&mut is_first) {
                continue;
            }
            let body = if is_of_kept { &kept } else { &status }.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).expect("it hears");
            if is_of_kept {
                return;
            }
        }
    });
    let done = bed.run(["status".as_ref(), at.as_os_str()]);
    assert!(done.status.success(), "{}", text(&done));
    answering.join().expect("it was asked again");
}
