//! HDFS by command: mounts of Hadoop's own servers, some of which fail.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::content::{compare, noise, same};
use support::hadoop::{BLOCK, Hadoop, OWNER};
use support::kerberos::{Realm, SERVER};
use support::{Bed, Daemon, finished, refused, refused_as_typed, text};

const MIB: usize = 1 << 20;

/// Files of each kind, and how many GETs each costs at most: an empty one none, a small one one, and a reader of a large
/// one is fetched ahead for in ever longer runs.
const FILES: [(&str, usize, u64); 8] = [
    ("empty", 0, 0),
    ("one", 1, 1),
    ("odd", 4097, 1),
    ("folder/image", 110_000, 1),
    ("folder/mib", MIB, 1),
    ("folder/block", BLOCK, 5),
    ("folder/deep/block-and-one", BLOCK + 1, 6),
    ("large", 300 * MIB, 50),
];

/// `stoker` as somebody whom the cluster knows.
fn asking(mut command: Command) -> Command {
    command.env("HADOOP_USER_NAME", OWNER);
    command
}

fn mount(bed: &Bed, hadoop: &Hadoop, at: &str, more: &[&str]) -> Daemon {
    let _ = fs::create_dir(bed.path(at));
    let cache = bed.path(&format!("cache-{at}"));
    let words = [&["--fill", "off", "--cache", cache.to_str().expect("a path")], more].concat();
    let mut command = asking(bed.mounting(&hadoop.url("set"), at, &words));
    command.env("HADOOP_CONF_DIR", hadoop.configuration());
    Daemon::start(&mut command, &bed.path(at), &bed.path(&format!("{at}.log")))
}

/// Put a file, and what it holds beside it to compare with.
fn put(bed: &Bed, hadoop: &Hadoop, name: &str, content: &[u8]) {
    hadoop.put(&format!("set/{name}"), content);
    bed.put(name, content);
}

/// What a node asked of its store: GETs, questions for one file, and for the names of a folder.
fn asked(status: &serde_json::Value) -> [u64; 3] {
    ["gets", "heads", "lists"].map(|kind| status["store"][kind].as_u64().expect("a count"))
}

#[test]
fn a_mount_of_hdfs_equals_what_was_put_also_when_a_data_node_dies_or_hangs() {
    let Some(bed) = Bed::new() else { return };
    let Some(mut hadoop) = Hadoop::start(1, 2) else { return };
    FILES.iter().zip(1..).for_each(|((name, size, _), seed)| put(&bed, &hadoop, name, &noise(*size, seed)));
    let daemon = mount(&bed, &hadoop, "first", &[]);
    let [gets, heads, lists] = asked(&bed.status());
    assert_eq!((gets, heads, lists), (0, 0, 3), "a question a folder");
    for (name, size, due) in FILES {
        let before = asked(&bed.status());
        let content = fs::read(bed.path("first").join(name)).expect("it is read");
        same(&content, &fs::read(bed.data(name)).expect("the original"), &name);
        let after = asked(&bed.status());
        let (gets, heads) = (after[0] - before[0], after[1] - before[1]);
        assert!(gets <= due && (gets == due || size > MIB), "{name}: {gets} GETs");
        assert!(heads <= 2 * gets && (size > MIB || heads == gets), "{name}: {gets} GETs, {heads} questions");
    }
    let after = asked(&bed.status());
    compare(&bed.path("first"), &bed.path("data"));
    assert_eq!(asked(&bed.status()), after, "a second time");
    daemon.end();

    // Each block lies on both: one that is dead, one that hangs.
    hadoop.stop_data_node(0);
    let daemon = mount(&bed, &hadoop, "second", &[]);
    compare(&bed.path("second"), &bed.path("data"));
    assert!(daemon.said().contains("HDFS: Failed to connect to DataNode"), "it is said: {}", daemon.said());
    daemon.end();
    hadoop.start_data_node(0);
    hadoop.wait_for(2);
    hadoop.signal_data_node(1, "STOP");
    let daemon = mount(&bed, &hadoop, "third", &[]);
    let began = std::time::Instant::now();
    compare(&bed.path("third"), &bed.path("data"));
    assert!(began.elapsed() < Duration::from_secs(120), "each read waited for one that hangs: {:?}", began.elapsed());
    daemon.end();
    hadoop.signal_data_node(1, "CONT");

    let checked = finished(&mut asking(bed.stoker(["check", &hadoop.url("set"), "--quick"])));
    assert!(text(&checked).contains("8 files") && text(&checked).contains("user owner"), "{}", text(&checked));
    let copy = bed.path("copy");
    let words = ["load", &hadoop.url("set/folder"), "--to", copy.to_str().expect("a path")];
    let done = finished(&mut asking(bed.stoker(words)));
    assert!(done.status.success(), "{}", text(&done));
    compare(&copy, &bed.data("folder"));
}

#[test]
fn what_a_data_node_of_hdfs_has_lost_without_knowing_is_read_from_another_or_from_none() {
    let Some(bed) = Bed::new() else { return };
    let Some(hadoop) = Hadoop::start(1, 2) else { return };
    for (name, size) in [("small", 110_000), ("large", 3 * BLOCK)] {
        put(&bed, &hadoop, name, &noise(size, size as u64));
    }
    hadoop.damage(0);
    let daemon = mount(&bed, &hadoop, "other", &[]);
    compare(&bed.path("other"), &bed.path("data"));
    daemon.end();
    hadoop.damage(1);
    let daemon = mount(&bed, &hadoop, "none", &["--patience", "5s"]);
    for name in ["small", "large"] {
        let error = fs::read(bed.path("none").join(name)).expect_err("nobody has its bytes");
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    }
    daemon.end();
}

#[test]
fn a_file_of_hdfs_that_changes_is_read_as_it_was_or_not_at_all_and_a_name_node_may_restart() {
    let Some(bed) = Bed::new() else { return };
    let Some(mut hadoop) = Hadoop::start(1, 1) else { return };
    let (old, new) = (noise(40 * MIB, 1), noise(40 * MIB, 2));
    put(&bed, &hadoop, "changing", &old);
    put(&bed, &hadoop, "still", &noise(100_000, 3));
    put(&bed, &hadoop, "other", &noise(100_000, 4));
    let daemon = mount(&bed, &hadoop, "mnt", &["--patience", "5s"]);
    let at = |name: &str| bed.path("mnt").join(name);
    let file = File::open(at("changing")).expect("it is there");
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, 0).expect("it is read");
    same(&bytes, &old[..4096], &"the beginning");
    hadoop.put("set/changing", &new);
    match file.read_exact_at(&mut bytes, 39 << 20) {
        Ok(()) => same(&bytes, &old[39 * MIB..39 * MIB + 4096], &"what was fetched in time"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}"),
    }
    let refreshed = asking(bed.stoker(["refresh".as_ref(), bed.path("mnt").as_os_str()])).output().expect("it runs");
    assert!(refreshed.status.success(), "{}", text(&refreshed));
    same(&fs::read(at("changing")).expect("it is read"), &new, &"the new version");

    hadoop.stop_name_node(0);
    let error = fs::read(at("still")).expect_err("nobody says where it lies");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    assert!(daemon.said().contains("the name node"), "{}", daemon.said());
    same(&fs::read(at("changing")).expect("it is kept"), &new, &"what is kept");
    hadoop.start_name_node(0);
    hadoop.wait_for(1);
    same(&fs::read(at("still")).expect("it is read"), &noise(100_000, 3), &"a file that was refused");

    // One that hangs: whoever waits can be ended.
    hadoop.signal_name_node(0, "STOP");
    let mut reader =
        Command::new("cat").arg(at("other")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("cat");
    std::thread::sleep(Duration::from_millis(300));
    assert!(reader.try_wait().expect("it runs").is_none(), "it was read from a name node that hangs");
    support::signal(reader.id(), "TERM");
    support::eventually("it has ended", || support::has_ended(reader.id()));
    reader.wait().expect("it ends");
    hadoop.signal_name_node(0, "CONT");
    same(&fs::read(at("other")).expect("it is read"), &noise(100_000, 4), &"it goes on");
    daemon.end();
}

#[test]
fn of_two_name_nodes_of_hdfs_the_active_one_is_asked_and_a_lost_one_is_passed_over() {
    let Some(bed) = Bed::new() else { return };
    let Some(mut hadoop) = Hadoop::start(2, 1) else { return };
    for number in 0..4 {
        put(&bed, &hadoop, &format!("file{number}"), &noise(100_000, number));
    }
    // A name node that is silent is passed over after 8 s, long before the patience ends.
    let daemon = mount(&bed, &hadoop, "mnt", &["--patience", "20s"]);
    let read = |number: u64| {
        let name = format!("file{number}");
        same(&fs::read(bed.path("mnt").join(&name)).expect("it is read"), &noise(100_000, number), &name);
    };
    read(0);
    hadoop.stop_name_node(0);
    hadoop.activate_by_force(1);
    read(1);
    hadoop.start_name_node(0);
    read(2);
    let refreshed = asking(bed.stoker(["refresh".as_ref(), bed.path("mnt").as_os_str()])).output().expect("it runs");
    assert!(refreshed.status.success(), "{}", text(&refreshed));
    // Hangs instead of refusing.
    hadoop.signal_name_node(1, "STOP");
    hadoop.activate_by_force(0);
    read(3);
    hadoop.signal_name_node(1, "CONT");
    daemon.end();
}

#[test]
fn whoever_cant_be_let_in_by_hdfs_is_told_why() {
    let Some(bed) = Bed::new() else { return };
    let at = bed.path("mnt");
    let mount = |url: &str, words: &[&str], variables: &[(&str, &str)]| {
        let mut command = bed.stoker(["mount", url]);
        command.arg(&at).arg("--cache").arg(bed.path("cache")).args(words).envs(variables.iter().copied());
        finished(&mut command)
    };
    refused(&mount("hdfs://127.0.0.1:1/x", &[], &[]), &["name node 127.0.0.1:1", "port"]);
    refused_as_typed(&mount("hdfs:///x", &[], &[]), &["no name node is named", "HADOOP_CONF_DIR"]);
    refused_as_typed(&mount("hdfs://nn/x", &["--endpoint", "http://nn"], &[]), &["--endpoint means nothing"]);
    refused_as_typed(&mount("hdfs://nn/x", &[], &[("HADOOP_CONF_DIR", "/absent")]), &["core-site.xml", "/absent"]);
    let conf = bed.path("conf");
    fs::create_dir(&conf).expect("a folder");
    let kerberos = "<configuration><property><name>hadoop.security.authentication</name><value>kerberos</value></property>\
                    </configuration>";
    fs::write(conf.join("core-site.xml"), kerberos).expect("written");
    let conf = conf.to_str().expect("a path");
    let absent = [("HADOOP_CONF_DIR", conf), ("KRB5CCNAME", "FILE:/absent")];
    refused(&mount("hdfs://nn/x", &[], &absent), &["ticket of Kerberos can't be read", "kinit"]);
}

#[test]
fn a_cluster_of_hdfs_with_kerberos_is_read_by_tickets_and_by_a_keytab_and_by_nobody_else() {
    let Some(bed) = Bed::new() else { return };
    let Some(realm) = Realm::start(&["nana", "stranger"]) else { return };
    let configuration = realm.configuration();
    let tickets = realm.tickets("server", SERVER);
    let Some(hadoop) = Hadoop::secure(SERVER, &realm.keytab("server"), &tickets, &configuration) else { return };
    let content = noise(9 * MIB, 1);
    bed.put("file", &content);
    let shell = |words: &[&str]| hadoop.finished(0, "fs.FsShell", words);
    shell(&["-mkdir", "-p", "/set"]);
    shell(&["-put", bed.data("file").to_str().expect("a path"), "/set/file"]);
    shell(&["-chown", "-R", "nana", "/set"]);
    shell(&["-chmod", "-R", "700", "/set"]);
    let asked_by = |mut command: Command, variable: &str, value: &str| {
        command.env("HADOOP_CONF_DIR", hadoop.configuration()).env("KRB5_CONFIG", &configuration).env(variable, value);
        command
    };
    let keytab = realm.keytab("nana").to_str().expect("a path").to_owned();
    for (at, variable, value) in
        [("one", "KRB5CCNAME", realm.tickets("nana", "nana")), ("two", "KRB5_CLIENT_KTNAME", keytab)]
    {
        fs::create_dir(bed.path(at)).expect("a folder");
        let cache = bed.path(&format!("cache-{at}"));
        let command = bed.mounting(&hadoop.url("set"), at, &["--cache", cache.to_str().expect("a path")]);
        let mut command = asked_by(command, variable, &value);
        let daemon = Daemon::start(&mut command, &bed.path(at), &bed.path("log"));
        same(&fs::read(bed.path(at).join("file")).expect("it is read"), &content, &variable);
        daemon.end();
        let checked = finished(&mut asked_by(bed.stoker(["check", &hadoop.url("set"), "--quick"]), variable, &value));
        assert!(text(&checked).contains("nana@TEST"), "{}", text(&checked));
    }
    let stranger = bed.stoker(["mount", &hadoop.url("set")]);
    let mut stranger = asked_by(stranger, "KRB5CCNAME", &realm.tickets("stranger", "stranger"));
    stranger.arg(bed.path("mnt")).arg("--cache").arg(bed.path("cache"));
    refused(&finished(&mut stranger), &["Permission denied: user=stranger"]);
}
