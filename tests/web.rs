//! Files of web servers by command: nginx, which serves ranges, and Python's own server, which doesn't.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;
use support::content::{noise, same};
use support::web::Served;
use support::{Bed, Daemon, finished, keeper_of, refused, refused_as_typed, text};

/// What is served: small files, and one of several blocks.
const FILES: [(&str, usize); 4] = [("a b/small", 1_000), ("a b/c/mib", 1 << 20), ("large", 5_000_000), ("empty", 0)];

fn fill(bed: &Bed) {
    for (number, (name, bytes)) in FILES.into_iter().enumerate() {
        let path = bed.path("served").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, noise(bytes, number as u64)).expect("a file");
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(3_600);
        fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(long_ago)).expect("its time");
    }
}

/// A manifest of these paths, made by asking the server for each.
fn import(bed: &Bed, url: &str, paths: &[&str]) -> String {
    let (list, out) = (bed.path("list"), bed.path("web.jsonl").display().to_string());
    fs::write(&list, paths.join("\n")).expect("a list");
    let done = finished(bed.stoker(["manifest", "import"]).arg(&list).args([url, "-o", &out]));
    assert!(done.status.success(), "{}", text(&done));
    out
}

fn mount(bed: &Bed, url: &str, manifest: &str, cache: &str) -> Daemon {
    let mut command =
        bed.mounting(url, "mnt", &["--manifest", manifest, "--cache", bed.path(cache).to_str().expect("a path")]);
    Daemon::start(&mut command, &bed.path("mnt"), &bed.path("mnt.log"))
}

#[test]
fn a_server_of_files_is_read_by_ranges_and_a_file_that_changes_is_not_mixed() {
    let Some(bed) = Bed::new() else { return };
    fill(&bed);
    let Some(served) = Served::nginx(&bed.path("served"), &bed.path("run")) else { return };
    let manifest = import(&bed, &served.url(""), &FILES.map(|(name, _)| name));
    let verified = finished(&mut bed.stoker(["manifest", "verify", &manifest]));
    assert!(verified.status.success(), "each is asked for, as nothing lists them: {}", text(&verified));
    let daemon = mount(&bed, &served.url(""), &manifest, "cache");
    support::content::compare(&bed.path("mnt"), &bed.path("served"));
    let store = &bed.status()["store"];
    // The large one is asked about once more when it is whole.
    assert_eq!((&store["lists"], &store["heads"]), (&0.into(), &1.into()), "{store}");
    daemon.end();
    // Below a folder with a space in its name, and with nothing kept.
    fs::write(bed.path("served/large"), noise(5_000_000, 99)).expect("another file of the same length");
    fs::write(bed.path("served/a b/small"), noise(1_000, 98)).expect("another file of the same length");
    let daemon = mount(&bed, &served.url(""), &manifest, "cache2");
    for (name, at) in [("large", 4_000_000), ("a b/small", 0)] {
        let read = fs::File::open(bed.mounted(name)).and_then(|file| file.read_exact_at(&mut [0; 100], at));
        assert_eq!(read.expect_err("it has changed").raw_os_error(), Some(libc::ESTALE), "{name}");
    }
    same(&fs::read(bed.mounted("a b/c/mib")).expect("it is as it was"), &noise(1 << 20, 1), &"a file beside them");
    daemon.end();
    let below = mount(&bed, &served.url("a%20b"), &manifest, "cache3");
    same(&fs::read(bed.mounted("c/mib")).expect("it is there"), &noise(1 << 20, 1), &"below a folder");
    below.end();
}

#[test]
fn a_token_goes_to_the_server_that_was_named_and_no_redirect_is_followed() {
    let Some(bed) = Bed::new() else { return };
    fill(&bed);
    let Some(served) = Served::nginx(&bed.path("served"), &bed.path("run")) else { return };
    let ask = |list: &str, token: Option<&str>| {
        fs::write(bed.path("list"), list).expect("a list");
        let mut command = bed.stoker(["-vv", "manifest", "import"]);
        command.arg(bed.path("list")).arg(served.url("")).envs(token.map(|token| ("STOKER_BEARER_TOKEN", token)));
        finished(&mut command)
    };
    refused(&ask("kept/large", None), &["401", "STOKER_BEARER_TOKEN"]);
    let done = ask("kept/large", Some("s3cr3t-t0ken"));
    assert!(done.status.success() && !text(&done).contains("s3cr3t"), "{}", text(&done));
    refused_as_typed(&ask("away/large", Some("s3cr3t-t0ken")), &["302", "redirects are not followed"]);
    refused(&ask("absent", None), &["404", "absent"]);
    let listed = finished(bed.stoker(["manifest", "export"]).arg(served.url("")));
    refused_as_typed(&listed, &["does not tell the names", "--manifest"]);
    refused_as_typed(
        &finished(&mut bed.mounting(&served.url(""), "mnt", &[])),
        &["does not tell the names", "--manifest"],
    );
}

#[test]
fn a_token_is_in_no_status_argument_or_log_and_no_manifest_sends_it() {
    const TOKEN: &str = "s3cr3t-t0ken";
    let Some(bed) = Bed::new() else { return };
    fill(&bed);
    let Some(served) = Served::nginx(&bed.path("served"), &bed.path("run")) else { return };
    let (list, out) = (bed.path("list"), bed.path("web.jsonl").display().to_string());
    fs::write(&list, "kept/large").expect("a list");
    let with_token = |command: &mut Command| finished(command.env("STOKER_BEARER_TOKEN", TOKEN));
    let done = with_token(bed.stoker(["manifest", "import"]).arg(&list).args([&served.url(""), "-o", &out]));
    assert!(done.status.success(), "{}", text(&done));
    let verify = |url: &[String]| with_token(bed.stoker(["manifest", "verify", &out]).args(url));
    refused_as_typed(&verify(&[]), &["only the manifest names", "type the URL"]);
    assert!(verify(&[served.url("")]).status.success());
    let mut command = bed.mounting(&served.url(""), "mnt", &["--manifest", &out, "-vv"]);
    let daemon = Daemon::start(command.env("STOKER_BEARER_TOKEN", TOKEN), &bed.path("mnt"), &bed.path("mnt.log"));
    same(&fs::read(bed.mounted("kept/large")).expect("it is read"), &noise(5_000_000, 2), &"by a token");
    let status = bed.status();
    let arguments = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).expect("a process");
    let log = fs::read(status["log"]["path"].as_str().expect("a log")).expect("a log");
    let node = u32::try_from(status["pid"].as_u64().expect("a number")).expect("a number");
    let keeper = keeper_of(node).map(arguments).unwrap_or_default();
    for said in [status.to_string().into_bytes(), arguments(node), keeper, log, daemon.said().into_bytes()] {
        assert!(!String::from_utf8_lossy(&said).contains("s3cr3t"), "{}", String::from_utf8_lossy(&said));
    }
    daemon.end();
}

#[test]
fn a_server_without_ranges_serves_small_files_and_says_why_large_ones_fail() {
    let Some(bed) = Bed::new() else { return };
    fill(&bed);
    let served = Served::python(&bed.path("served"));
    let manifest = import(&bed, &served.url(""), &FILES.map(|(name, _)| name));
    assert!(fs::read_to_string(&manifest).expect("a manifest").contains("\"version\":\"time:"), "it gives no ETag");
    let daemon = mount(&bed, &served.url(""), &manifest, "cache");
    for (number, (name, bytes)) in FILES.into_iter().enumerate().filter(|(_, (name, _))| *name != "large") {
        same(&fs::read(bed.mounted(name)).expect(name), &noise(bytes, number as u64), &name);
    }
    let part = fs::File::open(bed.mounted("large")).and_then(|file| file.read_exact_at(&mut [0; 10], 4_500_000));
    assert!(part.is_err(), "a part can't be had");
    let said = finished(bed.stoker(["log"]).arg(bed.path("mnt")));
    assert!(text(&said).contains("does not serve ranges"), "{}", text(&said));
    fs::write(bed.path("served/a b/small"), noise(1_001, 97)).expect("another file");
    daemon.end();
    let daemon = mount(&bed, &served.url(""), &manifest, "cache2");
    assert_eq!(fs::read(bed.mounted("a b/small")).expect_err("it has changed").raw_os_error(), Some(libc::ESTALE));
    daemon.end();
}
