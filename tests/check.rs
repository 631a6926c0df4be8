//! `stoker check`: what is well is said in a line, what isn't comes with a cure, and nothing of it is left.

mod support;

use emulate::{Latency, Limits};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::content::noise;
use support::sshd::Hosts;
use support::{ACCESS, BUCKET, Bed, LONG, SECRET, finished, is_root, mounts_below, refused_as_typed, text};

/// `stoker check` of a bucket with this test's folder for the cache, as JSON, and how it ended.
fn check(bed: &Bed, url: &str, more: &[&str]) -> (Option<i32>, Value) {
    let mut command = bed.stoker(["check", "--json", url]);
    command.arg(bed.path("cache")).args(bed.reach()).args(more).env("TMPDIR", bed.path("run"));
    let done = finished(&mut command);
    assert!(mounts_below(&bed.path("run")) == 0 && fs::read_dir(bed.path("run")).expect("a folder").next().is_none());
    (done.status.code(), object(&done))
}

fn object(done: &Output) -> Value {
    let out = String::from_utf8_lossy(&done.stdout);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {}", text(done)))
}

/// The finding about something.
fn about<'a>(found: &'a Value, what: &str) -> &'a Value {
    let findings = found["findings"].as_array().expect("findings");
    findings.iter().find(|finding| finding["about"] == what).unwrap_or_else(|| panic!("nothing of {what}: {found}"))
}

/// It failed by this, and what is said of it has these words.
fn fails(code: Option<i32>, found: &Value, what: &str, words: &[&str]) {
    assert_eq!((code, &found["outcome"]), (Some(1), &"failed".into()), "{found}");
    let finding = about(found, what);
    assert_eq!(finding["outcome"], "failed", "{finding}");
    let said = finding.to_string();
    words.iter().for_each(|word| assert!(said.contains(word), "{word}: {said}"));
    assert!(finding["cure"].as_str().is_some_and(|cure| !cure.is_empty()), "{finding}");
}

/// A bucket with so many files of a megabyte.
fn filled(bed: &Bed, count: u64) {
    (0..count).for_each(|number| bed.put(&format!("train/{number}"), &noise(1_000_000, number)));
}

#[test]
fn a_store_a_disk_and_a_machine_that_are_well_have_a_line_each() {
    let Some(bed) = Bed::new() else { return };
    filled(&bed, 64);
    bed.set_limits(&Limits {
        bandwidth: Some(64_000_000),
        latency: Latency::Fixed(Duration::from_millis(20)),
        ..Limits::default()
    });
    let (code, found) = check(&bed, &format!("s3://{BUCKET}/train"), &[]);
    assert_eq!(code, Some(0), "{found}");
    for what in [
        "kernel",
        "fuse",
        "passthrough",
        "keeper",
        "io_uring",
        "open files",
        "memory",
        "cache",
        "room",
        "disk",
        "store",
        "clock",
        "credentials",
        "listing",
        "reading",
    ] {
        assert_ne!(about(&found, what)["outcome"], "failed", "{found}");
    }
    // What doesn't hang on the machine of the test.
    for what in ["disk", "store", "clock", "credentials", "listing", "reading"] {
        assert_eq!(about(&found, what)["outcome"], "ok", "{found}");
    }
    let reading = &about(&found, "reading")["figures"];
    let figure = |name: &str| reading[name].as_f64().unwrap_or_default();
    assert!((0.02..0.2).contains(&figure("first_byte_seconds")), "{reading}");
    assert!((10e6..80e6).contains(&figure("bytes_per_second")), "{reading}");
    assert!(figure("bytes_read") <= 64e6, "no byte is read twice: {reading}");
    let bounds = found["bounds"].as_array().expect("bounds");
    let unet3d = bounds.iter().find(|row| row["workload"] == "unet3d" && row["accelerators"] == 1).expect("a bound");
    assert!(unet3d["au_percent"].as_f64().is_some_and(|percent| (0.1..5.0).contains(&percent)), "{unet3d}");
    assert!(!bed.path("cache").exists(), "no folder is made");

    let (requests, gets) = (bed.requests(), bed.gets());
    let done =
        bed.run(["check", "--quick", "--anonymous", "--endpoint", bed.endpoint(), &format!("s3://{BUCKET}/train")]);
    let said = text(&done);
    assert!(done.status.success() && said.contains("nothing stands in the way of a mount"), "{said}");
    let first = |line: &str| ["ok ", "warning ", "  ", "nothing"].iter().any(|word| line.starts_with(word));
    assert!(said.lines().all(first), "{said}");
    assert!(!said.contains('\x1b'), "no colour where nobody looks: {said}");
    assert!(bed.gets() == gets && bed.requests() > requests, "nothing is read");
}

#[test]
fn a_store_that_is_slow_to_agree_is_told_of() {
    let Some(bed) = Bed::new() else { return };
    filled(&bed, 64);
    for (faults, what, word) in
        [("slowdown=0.2,seed=2", "throttling", "slow down"), ("reset=0.2,seed=2", "requests", "repeated")]
    {
        bed.set_faults(faults);
        let (code, found) = check(&bed, &format!("s3://{BUCKET}/train"), &[]);
        let finding = about(&found, what);
        assert_eq!((code, &finding["outcome"]), (Some(0), &"warning".into()), "{found}");
        assert!(finding["said"].as_str().is_some_and(|said| said.contains(word)), "{finding}");
        let others = found["findings"]
            .as_array()
            .expect("findings")
            .iter()
            .filter(|finding| ["throttling", "requests"].iter().any(|name| finding["about"] == *name));
        assert_eq!(others.count(), 1, "one of them says it: {found}");
    }
}

#[test]
fn without_a_store_only_this_machine_is_looked_at() {
    let Some(bed) = Bed::new() else { return };
    let done = finished(bed.stoker(["check", "--json"]).env("STOKER_CACHE", bed.path("cache")));
    let found = object(&done);
    assert_eq!(done.status.code(), Some(0), "{found}");
    assert!(about(&found, "disk")["figures"]["write_bytes_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    assert!(found["findings"].as_array().is_some_and(|all| all.iter().all(|finding| finding["about"] != "store")));
    refused_as_typed(&bed.run(["check", "s4://bucket"]), &["unknown"]);
}

#[test]
fn what_can_not_be_meant_is_a_setting_and_nobody_is_asked() {
    let Some(bed) = Bed::new() else { return };
    let (before, url) = (bed.requests(), format!("s3://{BUCKET}"));
    let mut command = bed.stoker(["check", "--json", "--quick", &url]);
    command.arg(bed.path("cache")).args(["--endpoint", bed.endpoint(), "--profile", "mistyped"]);
    let done = finished(&mut command);
    fails(done.status.code(), &object(&done), "settings", &["there is no profile mistyped"]);
    assert_eq!(bed.requests(), before);
}

#[test]
fn a_folder_is_checked_like_a_store() {
    let Some(bed) = Bed::new() else { return };
    filled(&bed, 40);
    let found = object(&finished(bed.stoker(["check", "--json"]).arg(bed.data("train")).arg(bed.path("cache"))));
    assert_eq!(about(&found, "listing")["figures"]["files"], 40);
    assert_eq!(about(&found, "reading")["outcome"], "ok", "{found}");
    let (code, found) = check(&bed, "/not/there", &[]);
    fails(code, &found, "store", &["/not/there"]);
}

#[test]
fn who_is_not_let_in_hears_why_and_no_secret_is_said() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", b"bytes");
    let url = format!("s3://{BUCKET}");
    let with = |access: &str, secret: &str| {
        let mut command = bed.stoker(["check", "--json", "--quick", &url]);
        command.arg(bed.path("cache")).args(bed.reach());
        let done = finished(command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret));
        assert!(!text(&done).contains(SECRET) && !text(&done).contains("another-secret"), "{}", text(&done));
        (done.status.code(), object(&done))
    };
    let (code, found) = with("AKIAUNKNOWN", "another-secret");
    fails(code, &found, "listing", &["does not know this access key", "AWS_ACCESS_KEY_ID"]);
    let (code, found) = with(ACCESS, "another-secret");
    fails(code, &found, "listing", &["does not accept the signature", "AWS_SECRET_ACCESS_KEY"]);
    assert_eq!(about(&found, "credentials")["said"], format!("key {ACCESS}"));
    let (code, found) = with(ACCESS, SECRET);
    assert_eq!(code, Some(0), "{found}");
    let mut nobody = bed.stoker(["check", "--json", "--quick", &url]);
    let done = finished(nobody.args(bed.reach()).env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY"));
    fails(done.status.code(), &object(&done), "credentials", &["no credentials", "AWS_PROFILE"]);
}

#[test]
fn a_bucket_that_is_not_there_and_a_server_that_does_not_answer_are_told_apart() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", b"bytes");
    let (code, found) = check(&bed, "s3://absent", &["--quick"]);
    fails(code, &found, "listing", &["bucket"]);
    let (code, found) = check(&bed, &format!("s3://{BUCKET}/nothing"), &["--quick"]);
    fails(code, &found, "listing", &["there is nothing", "prefix"]);
    bed.stop_server();
    let began = Instant::now();
    let (code, found) = check(&bed, &format!("s3://{BUCKET}"), &[]);
    fails(code, &found, "store", &["refused"]);
    assert!(began.elapsed() < LONG / 2);
}

/// A server that speaks TLS by a certificate that signed itself, and refuses everything; its endpoint.
fn by_its_own_word(certificate: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    fs::write(certificate, made.cert.pem()).expect("written");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let (chain, key) = (vec![made.cert.der().clone()], made.signing_key.serialize_der());
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key).into();
    let config = config.expect("TLS").with_no_client_auth().with_single_cert(chain, key).expect("a server");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("https://{}", listener.local_addr().expect("an address"));
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut connection = rustls::ServerConnection::new(config.clone()).expect("a connection");
            let mut tls = rustls::Stream::new(&mut connection, &mut stream);
            let _ = tls.read(&mut [0; 4096]);
            let _ = tls.write_all(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            connection.send_close_notify();
            let _ = connection.write_tls(&mut stream);
        }
    });
    endpoint
}

#[test]
fn a_certificate_that_signed_itself_is_told_from_one_that_is_named() {
    let Some(bed) = Bed::new() else { return };
    let named = bed.path("certificate.pem");
    let endpoint = by_its_own_word(&named);
    let with = |bundle: Option<&Path>, endpoint: &str| {
        let mut command =
            bed.stoker(["check", "--json", "--quick", "--anonymous", "s3://bucket", "--endpoint", endpoint]);
        command.envs(bundle.map(|bundle| ("AWS_CA_BUNDLE", bundle)));
        let done = finished(&mut command);
        (done.status.code(), object(&done))
    };
    let (code, found) = with(None, &endpoint);
    fails(code, &found, "store", &["can't be trusted", "AWS_CA_BUNDLE"]);
    let (_, found) = with(Some(&named), &endpoint);
    assert_eq!(about(&found, "store")["outcome"], "ok", "{found}");
    assert_eq!(about(&found, "store")["figures"]["encrypted"], true);
    let (code, found) = with(None, &bed.endpoint().replace("http://", "https://"));
    fails(code, &found, "store", &["does not speak TLS", "http://"]);
}

#[test]
fn a_check_that_is_interrupted_leaves_nothing_mounted() {
    let Some(bed) = Bed::new() else { return };
    fs::create_dir(bed.path("tmp")).expect("a folder");
    let mut were_mounted = 0;
    for pause_ms in [5, 10, 20, 30, 40, 60, 100, 200, 0, 0, 0, 0, 0, 0] {
        let mut command = bed.stoker(["check"]);
        command.env("TMPDIR", bed.path("tmp")).env("STOKER_CACHE", bed.path("cache")).stdout(Stdio::null());
        let mut check = command.spawn().expect("it starts");
        // Without a pause, at the moment that it has something mounted.
        while pause_ms == 0 && mounts_below(&bed.path("tmp")) == 0 && check.try_wait().expect("a child").is_none() {}
        std::thread::sleep(Duration::from_millis(pause_ms));
        were_mounted += mounts_below(&bed.path("tmp"));
        support::signal(check.id(), "INT");
        let ended = check.wait().expect("it ends");
        // Within the first moments a signal ends a process without its doing.
        assert!(ended.code() == Some(130) || ended.success() || ended.code().is_none() && pause_ms == 5, "{ended}");
        assert_eq!(mounts_below(&bed.path("tmp")), 0, "after {pause_ms} ms");
    }
    assert!(were_mounted > 0, "it never had anything mounted");
}

/// A server that answers everything with a refusal, by a clock of its own.
fn by_the_clock(date: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut question = [0; 4096];
            let _ = stream.read(&mut question);
            let body = "<Error><Code>RequestTimeTooSkewed</Code><Message>no</Message></Error>";
            let body = if question.starts_with(b"HEAD") { "" } else { body };
            let head = format!(
                "HTTP/1.1 403 Forbidden\r\nDate: {date}\r\nConnection: close\r\nContent-Length: {}",
                body.len()
            );
            let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
        }
    });
    endpoint
}

#[test]
fn a_clock_that_is_off_is_named_before_signatures_fail_by_it() {
    let Some(bed) = Bed::new() else { return };
    let endpoint = by_the_clock("Tue, 01 Jan 2030 00:00:00 GMT");
    let mut command = bed.stoker(["check", "--json", "--quick", "s3://bucket", "--endpoint", &endpoint]);
    let done = finished(command.env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", SECRET));
    let found = object(&done);
    fails(done.status.code(), &found, "clock", &["behind", "15 minutes", "NTP"]);
    fails(done.status.code(), &found, "listing", &["clock"]);
    assert!(about(&found, "clock")["figures"]["skew_seconds"].as_f64().is_some_and(|skew| skew > 1e6), "{found}");
}

/// `stoker check` where a script of the shell has mounted something, which is gone with it.
fn among_mounts(bed: &Bed, script: &str, more: &[&str]) -> Option<(Option<i32>, Value)> {
    if !is_root() {
        eprintln!("SKIPPED: only root can mount what this needs");
        return None;
    }
    let mut check = bed.stoker(["check", "--json"]);
    check.args(more);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &format!("{script} && exec \"$@\""), "sh"]);
    command.arg(check.get_program()).args(check.get_args()).stdin(Stdio::null());
    command.envs(check.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = finished(&mut command);
    Some((done.status.code(), object(&done)))
}

#[test]
fn a_cache_that_can_not_be_written_or_has_no_room_is_no_cache() {
    let Some(bed) = Bed::new() else { return };
    fs::create_dir(bed.path("disk")).expect("a folder");
    fs::create_dir_all(bed.path("data")).and_then(|()| fs::write(bed.path("data/file"), b"bytes")).expect("a set");
    let (disk, data) = (bed.path("disk").display().to_string(), bed.path("data").display().to_string());
    let Some((code, found)) = among_mounts(&bed, &format!("mount -t tmpfs -o ro none {disk}"), &[&data, &disk]) else {
        return;
    };
    fails(code, &found, "cache", &["read-only", "--cache"]);
    fails(code, &found, "disk", &["can be written"]);
    let full =
        format!("mount -t tmpfs -o size=2m none {disk} && (head -c 4M /dev/zero >{disk}/full || true) 2>/dev/null");
    let (code, found) = among_mounts(&bed, &full, &[&data, &disk]).expect("root");
    fails(code, &found, "room", &["nothing of use", "larger disk"]);
    assert!(about(&found, "cache").to_string().contains("memory"), "{found}");
    let small = format!("mount -t tmpfs -o size=300m,mode=700 none {disk}");
    let (code, found) = among_mounts(&bed, &small, &[&data, &disk]).expect("root");
    assert_eq!((code, &about(&found, "room")["outcome"]), (Some(0), &"warning".into()), "{found}");
    let open = format!("mount -t tmpfs -o size=300m,mode=777 none {disk}");
    let (code, found) = among_mounts(&bed, &open, &[&data, &disk]).expect("root");
    fails(code, &found, "folder", &["everybody can write", "--cache"]);
}

#[test]
fn a_machine_without_fuse_is_told_what_it_lacks() {
    let Some(bed) = Bed::new() else { return };
    let bare = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3";
    let Some((code, found)) = among_mounts(&bed, bare, &[]) else { return };
    fails(code, &found, "fuse", &["/dev/fuse", "modprobe fuse"]);
}

#[test]
fn hosts_are_checked_each_by_itself_and_nothing_stays_there() {
    let Some(hosts) = Hosts::apart(&["a", "b"]) else { return };
    for number in 0..40 {
        let path = hosts.path(&format!("set/{number}"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, noise(500_000, number)).expect("a file");
    }
    let file = hosts.file("a\nb\ndown\n");
    let url = hosts.path("set").display().to_string();
    let done = finished(hosts.stoker(&["check", "--json", "--quick", &url]).arg("--hosts").arg(&file));
    let said = text(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    let of = |host: &str| {
        let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|object| object["host"] == host).unwrap_or_else(|| panic!("{host}: {said}"))
    };
    for host in ["a", "b"] {
        assert_ne!(of(host)["outcome"], "failed", "{said}");
        assert_eq!(about(&of(host), "listing")["figures"]["files"], 40);
        assert_eq!(
            fs::read_dir(hosts.folder(host).join("home/.cache")).map_or(0, Iterator::count),
            0,
            "nothing is left"
        );
    }
    assert_eq!(about(&of("down"), "host")["outcome"], "failed");
    let left = fs::read_dir("/tmp").expect("a folder").flatten();
    assert_eq!(left.filter(|entry| entry.file_name().to_string_lossy().starts_with("stoker-check-pool-")).count(), 0);
}
