//! Many hosts at once: `stoker hosts` against an `sshd` for each of them on this machine.

mod support;

use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::content::noise;
use support::sshd::Hosts;
use support::{eventually, finished, has_ended, refused_as_typed, signal, text};

/// Run `stoker hosts` on a file of hosts.
fn on(hosts: &Hosts, list: &str, verb: &str, words: &[&str]) -> Output {
    let file = hosts.file(list);
    let mut command = hosts.stoker(&["hosts", verb, "--hosts"]);
    finished(command.arg(file).args(words))
}

/// The lines of standard output, sorted: hosts answer in any order.
fn lines(done: &Output) -> Vec<String> {
    let mut lines: Vec<_> = String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn objects(done: &Output) -> Vec<Value> {
    let mut objects: Vec<Value> =
        lines(done).iter().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    objects.sort_by_key(|object| object["host"].to_string());
    objects
}

#[test]
fn each_line_of_each_host_comes_behind_its_name() {
    let Some(hosts) = Hosts::new(&["a", "b", "c"]) else { return };
    let three = "a slots=4\nb:2\n# none\nc user=root\n".replace("root", &user());
    let done = on(&hosts, &three, "run", &["echo $STOKER_TEST_HOST; printf 'no end'; echo wrong >&2"]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(lines(&done), ["a: a", "a: no end", "b: b", "b: no end", "c: c", "c: no end"]);
    let mut said: Vec<_> = String::from_utf8_lossy(&done.stderr).lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, ["a: wrong", "b: wrong", "c: wrong"], "greetings of login shells are no answers");

    let bytes = on(&hosts, "a\n", "run", &[r"printf '\377\001\n'"]);
    assert_eq!(bytes.stdout, b"a: \xff\x01\n");
    let first = on(&hosts, &three, "run", &["--first", "echo $STOKER_TEST_HOST"]);
    assert_eq!(lines(&first), ["a: a"]);

    let mut piped =
        hosts.stoker(&["hosts", "run", "--json", "--at-once", "1", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    let mut child =
        piped.env("STOKER_HOSTS", "-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(b"a\nb\n").expect("it reads");
    let done = child.wait_with_output().expect("it ends");
    assert_eq!(done.status.code(), Some(1));
    let found = objects(&done);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["host"], "a");
    assert_eq!(
        (&found[1]["ok"], &found[1]["exit_code"], &found[1]["failure"]),
        (&false.into(), &3.into(), &"exit".into())
    );
    assert_eq!((&found[1]["stdout"], &found[1]["stderr"]), (&"out\n".into(), &"err\n".into()));
}

/// Who runs the tests.
fn user() -> String {
    String::from_utf8(Command::new("id").arg("-un").output().expect("id runs").stdout)
        .expect("a name")
        .trim()
        .to_owned()
}

#[test]
fn who_failed_is_named_with_the_reason_and_the_others_go_on() {
    let Some(hosts) = Hosts::new(&["a", "b", "c", "d"]) else { return };
    hosts.swap_key("b");
    hosts.forget_key("c");
    let command = "echo I am $STOKER_TEST_HOST; [ $STOKER_TEST_HOST = a ] || exit 255";
    let done = on(&hosts, "a\nb\nc\nd\ndown\n", "run", &[command]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert_eq!(lines(&done), ["a: I am a", "d: I am d"], "a host with a key that is not the known one is told nothing");
    assert!(said.contains("4 of 5 hosts failed"), "{said}");
    let reason = |host: &str| said.lines().find(|line| line.starts_with(&format!("  {host} "))).unwrap_or_default();
    for host in ["b", "c"] {
        assert!(reason(host).contains("ssh could not connect") && reason(host).contains("Host key"), "{said}");
    }
    assert!(reason("down").contains("ssh could not connect") && reason("down").contains("refused"), "{said}");
    assert!(reason("d").contains("exit code 255") && !reason("d").contains("ssh"), "{said}");
    assert!(said.contains("known_hosts"), "{said}");
}

#[test]
fn a_host_that_hangs_is_given_up_and_those_beside_it_are_done() {
    let Some(hosts) = Hosts::new(&["a", "b"]) else { return };
    let file = hosts.file("a\nb\n");
    let mut command = hosts.stoker(&["hosts", "run", "--timeout", "3s", "--hosts"]);
    let command = command.arg(&file).arg("echo up; [ $STOKER_TEST_HOST = a ] || sleep 100");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with("b: up") {
        line.clear();
        assert!(out.read_line(&mut line).expect("a line") > 0, "it ended");
    }
    let stopped = hosts.processes("b");
    assert!(stopped.len() > 1, "a connection has a process");
    stopped.iter().for_each(|process| signal(*process, "STOP"));
    let (began, done) = (Instant::now(), child.wait_with_output().expect("it ends"));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(began.elapsed() < Duration::from_secs(20) && done.status.code() == Some(1), "{said}");
    assert!(said.contains("1 of 2 hosts failed") && said.contains("not done after 3 s"), "{said}");
    // One that doesn't answer at all.
    let done = on(&hosts, "b\n", "run", &["--timeout", "1s", "true"]);
    assert!(text(&done).contains("not done after 1 s"), "{}", text(&done));
    stopped.iter().for_each(|process| signal(*process, "CONT"));
}

/// A command on host `a` that runs until it is ended, with the processes of it.
fn endless(hosts: &Hosts) -> (Child, Vec<u32>) {
    let file = hosts.file("a\n");
    let command =
        "trap '' INT; sleep 1000 & echo $! >child; echo $$ >shell; (trap '' TERM; sleep 1000) & echo $! >deaf; wait";
    let mut running = hosts.stoker(&["hosts", "run", "--hosts"]);
    let child =
        running.arg(file).arg(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let number = |name: &str| fs::read_to_string(hosts.folder("a").join(name)).ok()?.trim().parse::<u32>().ok();
    eventually("it runs", || ["child", "shell", "deaf"].iter().all(|name| number(name).is_some()));
    let pids = ["child", "shell", "deaf"].map(|name| number(name).expect("a number")).to_vec();
    (child, pids)
}

#[test]
fn an_interrupt_ends_what_runs_on_the_hosts_and_so_does_a_kill() {
    let Some(hosts) = Hosts::new(&["a"]) else { return };
    for (name, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let (child, pids) = endless(&hosts);
        assert!(pids.iter().all(|pid| !has_ended(*pid)));
        signal(child.id(), name);
        let done = child.wait_with_output().expect("it ends");
        assert_eq!(done.status.code(), code, "{}", text(&done));
        eventually("what ran there has ended", || pids.iter().all(|pid| has_ended(*pid)));
        for file in ["child", "shell", "deaf"] {
            fs::remove_file(hosts.folder("a").join(file)).expect("a file");
        }
    }
}

#[test]
fn no_name_and_no_argument_becomes_an_option_or_a_command() {
    let Some(hosts) = Hosts::new(&["a"]) else { return };
    let planted = hosts.path("planted");
    let touch = format!("touch {}", planted.display());
    for line in [
        format!("-oProxyCommand={touch}"),
        format!("$({touch})"),
        format!("a;{touch}"),
        format!("`{touch}`@a"),
        format!("a user=-oProxyCommand={touch}"),
        "a address=-x".to_owned(),
    ] {
        let done = on(&hosts, &format!("a\n{line}\n"), "run", &["true"]);
        refused_as_typed(&done, &["hosts:2", "write HOST [user=U]"]);
    }
    let hostile = [
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("'; {touch}; '"),
        format!("a b\n{touch}"),
        "\\'!".into(),
        "-n".into(),
    ];
    for word in &hostile {
        let done = on(&hosts, "a\n", "run", &["--", "printf", "%s|", word, "c  d"]);
        let expected = format!("{word}|c  d|").lines().map(|line| format!("a: {line}\n")).collect::<String>();
        assert_eq!(String::from_utf8_lossy(&done.stdout), expected, "{}", text(&done));
        let local = hosts.path("file");
        fs::write(&local, word).expect("a file");
        let done = on(&hosts, "a\n", "copy", &[&local.to_string_lossy(), &format!("./{word}")]);
        assert!(done.status.success(), "{}", text(&done));
        assert_eq!(fs::read(hosts.folder("a").join(word).join("file")).expect("it is there"), word.as_bytes());
    }
    assert!(!planted.exists());
}

/// A folder of odd names, with their contents.
fn odd(folder: &Path) -> Vec<(OsString, Vec<u8>)> {
    let names: [&[u8]; 9] =
        [b"plain", b"a b", b"-rf", b"new\nline", b"quote'\"$(x)`", b"\xff\xfe", b".hidden", b"..twice", b"back\\slash"];
    let mut all: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (OsString::from_vec(name.to_vec()), noise(1_000 * at, at as u64)))
        .collect();
    all.push((OsString::from("x".repeat(150) + "/" + &"y".repeat(200)), noise(10, 1)));
    all.push((OsString::from("deep/-er/file"), noise(20_000_000, 7)));
    for (name, content) in &all {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it has one"))
            .and_then(|()| fs::write(&path, content))
            .expect("a file");
    }
    fs::set_permissions(folder.join("plain"), fs::Permissions::from_mode(0o751)).expect("permissions");
    symlink("plain", folder.join("link"))
        .and_then(|()| fs::create_dir(folder.join("empty")))
        .expect("a link and a folder");
    all
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn copied_files_are_those_that_were_sent_whatever_their_names() {
    let Some(hosts) = Hosts::new(&["a", "b", "c"]) else { return };
    let (set, single) = (hosts.path("set"), hosts.path("single file"));
    let files = odd(&set);
    fs::write(&single, b"alone").expect("a file");
    let old = hosts.folder("b").join("to it/set");
    fs::create_dir_all(&old)
        .and_then(|()| fs::write(old.join("plain"), "old"))
        .and_then(|()| fs::write(old.join("other"), "stays"))
        .expect("files");
    let words = [&*set.to_string_lossy(), &*single.to_string_lossy(), "to it"].map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = on(&hosts, "a\nb\nc\n", "copy", &words);
    assert!(done.status.success(), "{}", text(&done));
    assert!(text(&done).contains("12 files, 20.0 MB copied to 3 hosts and compared"), "{}", text(&done));
    for host in ["a", "b", "c"] {
        let there = hosts.folder(host).join("to it");
        for (name, content) in &files {
            assert!(fs::read(there.join("set").join(name)).expect("it is there") == *content, "{name:?} on {host}");
        }
        assert_eq!((mode(&there.join("set/plain")), mode(&there.join("single file"))), (0o751, mode(&single)));
        assert_eq!(fs::read_link(there.join("set/link")).expect("a link"), Path::new("plain"));
        assert!(there.join("set/empty").is_dir());
        let mut left: Vec<_> =
            fs::read_dir(&there).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["set", "single file"], "nothing of the way there is left");
    }
    assert_eq!(fs::read(old.join("other")).expect("it stayed"), b"stays");
    // What can't be placed is an error of that host alone.
    fs::create_dir_all(hosts.folder("c").join("to it/single file 2")).expect("a folder");
    fs::write(hosts.path("single file 2"), "x").expect("a file");
    let done = on(&hosts, "a\nc\n", "copy", &["--json", &hosts.path("single file 2").to_string_lossy(), "to it"]);
    let found = objects(&done);
    assert_eq!((done.status.code(), &found[0]["ok"], &found[0]["bytes"]), (Some(1), &true.into(), &1.into()));
    assert!(found[1]["reason"].as_str().expect("a reason").contains("a folder has this name"), "{found:?}");
}

#[test]
fn a_copy_that_is_cut_off_leaves_nothing() {
    let Some(hosts) = Hosts::new(&["a"]) else { return };
    let big = hosts.path("big");
    fs::File::create(&big).and_then(|file| file.set_len(3 << 30)).expect("a file");
    let mut command = hosts.stoker(&["hosts", "copy", "--hosts"]);
    let mut child =
        command.arg(hosts.file("a\n")).arg(&big).arg("to").stderr(Stdio::piped()).spawn().expect("it starts");
    let staged = || {
        fs::read_dir(hosts.folder("a").join("to"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.path().join("files/big").exists())
    };
    eventually("it is on its way", staged);
    signal(child.id(), "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    eventually("nothing is left", || fs::read_dir(hosts.folder("a").join("to")).expect("a folder").next().is_none());
}

#[test]
fn gathered_files_lie_in_a_folder_of_each_host() {
    let Some(hosts) = Hosts::new(&["a", "b"]) else { return };
    let files = odd(&hosts.folder("a").join("logs"));
    fs::create_dir_all(hosts.folder("b").join("logs"))
        .and_then(|()| fs::write(hosts.folder("b").join("logs/one"), "b"))
        .expect("a file");
    for host in ["a", "b"] {
        fs::write(hosts.folder(host).join("-alone"), host).expect("a file");
    }
    let to = hosts.path("gathered");
    let gather = |words: &[&str]| on(&hosts, "a\nb\n", "gather", &[words, &[&to.to_string_lossy()]].concat());
    for _ in 0..2 {
        let done = gather(&["--", "logs", "./-alone"]);
        assert!(done.status.success(), "{}", text(&done));
        assert!(
            text(&done).contains("14 files, 20.0 MB gathered") && text(&done).contains("1 link or device"),
            "{}",
            text(&done)
        );
        for (name, content) in &files {
            assert!(fs::read(to.join("a/logs").join(name)).expect("it is there") == *content, "{name:?}");
        }
        assert_eq!(
            (mode(&to.join("a/logs/plain")), fs::read(to.join("b/-alone")).expect("a file")),
            (0o751, b"b".to_vec())
        );
    }
    let none = gather(&["none"]);
    assert!(none.status.code() == Some(1) && text(&none).contains("no such file"), "{}", text(&none));
    let much = gather(&["--most", "1MB", "logs"]);
    assert!(
        text(&much).contains("1 of 2 hosts failed") && text(&much).contains("more than 1000000 bytes"),
        "{}",
        text(&much)
    );
    let mut left: Vec<_> = fs::read_dir(&to).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["a", "b"]);
}

#[test]
fn a_host_that_lies_leads_nowhere() {
    let Some(mut hosts) = Hosts::new(&["a"]) else { return };
    // A `tar` of its own, which sends what nobody asked for.
    let (folder, out) = (hosts.folder("a"), hosts.path("outside"));
    let mut made = Command::new("python3");
    let made = made.arg("-c").arg(
        "import io, sys, tarfile\nt = tarfile.open(sys.argv[1], 'w')\n\
         for name in ['logs/x', '../outside/x']:\n  i = tarfile.TarInfo(name)\n  i.size = 1\n  t.addfile(i, io.BytesIO(b'x'))\nt.close()",
    );
    assert!(made.arg(folder.join("stream")).status().expect("python3 runs").success());
    fs::create_dir_all(folder.join("logs")).and_then(|()| fs::create_dir(&out)).expect("folders");
    let program = folder.join("tar");
    fs::write(&program, format!("#!/bin/sh\nexec cat {}/stream\n", folder.display())).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
    let (to, file) = (hosts.path("gathered"), hosts.file("a\n"));
    hosts.lie("a", &folder);
    let mut command = hosts.stoker(&["hosts", "gather", "--hosts"]);
    let done = finished(command.arg(file).arg("logs").arg(&to));
    assert!(done.status.code() == Some(1) && text(&done).contains("leads out of the folder"), "{}", text(&done));
    assert_eq!((fs::read_dir(&out).expect("a folder").count(), fs::read_dir(&to).expect("a folder").count()), (0, 0));
}

#[test]
fn what_was_typed_wrong_is_said_before_anything_is_done() {
    let Some(hosts) = Hosts::new(&["a"]) else { return };
    let none = finished(hosts.stoker(&["hosts", "run", "--hosts", "/nowhere", "true"]).stdin(Stdio::null()));
    refused_as_typed(&none, &["can't be read", "/nowhere"]);
    refused_as_typed(&on(&hosts, "# nobody\n", "run", &["true"]), &["no host is named"]);
    refused_as_typed(&on(&hosts, "a\n", "copy", &["/nowhere", "x"]), &["can't be read"]);
    refused_as_typed(&on(&hosts, "a\n", "gather", &["/", "x"]), &["no name"]);
    assert_eq!(on(&hosts, "a\n", "run", &[]).status.code(), Some(2));
    assert_eq!(on(&hosts, "a\n", "run", &["--at-once", "0", "true"]).status.code(), Some(2));
    let mut reader = hosts.stoker(&["hosts", "run", "--hosts"]);
    let mut child = reader.arg(hosts.file("a\n")).arg("yes").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut some = [0; 10];
    child.stdout.take().expect("piped").read_exact(&mut some).expect("it says something");
    assert_eq!(child.wait().expect("it ends").code(), Some(141), "whoever read it has gone");
}
