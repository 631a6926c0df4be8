//! What lies in `contrib/systemd`: systemd understands it, and a node works with no more rights than it grants.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::content::noise;
use support::{BUCKET, Bed, eventually, finished, is_root, signal, text};

fn unit(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd").join(name);
    fs::read_to_string(path).expect("a unit")
}

#[test]
fn systemd_understands_the_units() {
    if Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED: there is no systemd-analyze here (apt install systemd)");
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let place = |name: &str, as_name: &str| {
        let text = unit(name).replace("/usr/local/bin/stoker", env!("CARGO_BIN_EXE_stoker"));
        let path = scratch.path().join(as_name);
        fs::write(&path, text).expect("a unit");
        path
    };
    let node = place("stoker-node.service", "stoker-node.service");
    let mount = place("stoker-mount@.service", "stoker-mount@train.service");
    let verified = |path: &Path| {
        finished(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).stdin(Stdio::null()))
    };
    for path in [&node, &mount] {
        let done = verified(path);
        assert!(done.status.success() && text(&done).is_empty(), "{}: {}", path.display(), text(&done));
    }
    let wrong = place("stoker-node.service", "wrong.service");
    let words = fs::read_to_string(&wrong).expect("a unit").replace("Type=notify", "Type=nothing");
    fs::write(&wrong, words).expect("a unit");
    let done = verified(&wrong);
    assert!(!done.status.success() || !text(&done).is_empty(), "what is wrong is found");
}

#[test]
fn a_node_needs_no_more_rights_than_its_unit_grants() {
    if !is_root() {
        eprintln!("SKIPPED: only root can give rights away");
        return;
    }
    let Some(bed) = Bed::new() else { return };
    let content = noise(3_000_000, 7);
    bed.put("deep/file", &content);
    let words = unit("stoker-node.service");
    let granted = words.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("rights");
    assert!(words.contains("\nNoNewPrivileges=yes\n"));
    let granted: String =
        granted.split(' ').map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase())).collect();
    let cache = bed.path("cache").display().to_string();
    let node = bed.stoker(["node", "--cache", &cache]);
    let mut bare = Command::new("setpriv");
    bare.arg("--no-new-privs")
        .arg(format!("--bounding-set=-all{granted}"))
        .arg(node.get_program())
        .args(node.get_args());
    for (name, value) in node.get_envs() {
        match value {
            Some(value) => bare.env(name, value),
            None => bare.env_remove(name),
        };
    }
    let mut child = bare.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("setpriv runs");
    eventually("the node answers", || !bed.nodes().is_empty());
    let _ = fs::create_dir(bed.path("mnt"));
    let mounted = finished(&mut bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--detach"]));
    assert!(mounted.status.success(), "{}", text(&mounted));
    for _ in 0..2 {
        assert!(fs::read(bed.mounted("deep/file")).expect("it can be read") == content);
    }
    let status = bed.status();
    let rights = fs::read_to_string(format!("/proc/{}/status", status["pid"])).expect("a process");
    let bounds = rights.lines().find_map(|line| line.strip_prefix("CapBnd:")).expect("a set").trim();
    assert_eq!(u64::from_str_radix(bounds, 16).expect("a set").count_ones() as usize, granted.matches(',').count());
    // With all rights passthrough may be off as well, on an old kernel; then for another reason.
    let passthrough = status["mounts"][0]["passthrough"].as_str().unwrap_or_default().to_owned();
    assert!(!passthrough.contains("permitted") && !passthrough.contains("privilege"), "{passthrough}");
    let unmounted = finished(&mut bed.stoker(["umount".into(), bed.path("mnt")]));
    assert!(unmounted.status.success(), "{}", text(&unmounted));
    signal(child.id(), "TERM");
    assert!(child.wait().expect("it ends").success());
}
