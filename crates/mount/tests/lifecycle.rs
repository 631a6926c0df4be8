//! Mounting, unmounting, and what is left by those who do neither.

mod common;

use block::Kind;
use common::{Body, Mounted, Tree, eventually, noise, scratch};
use node::namespace::ROOT;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use stoker_mount::{Options, Session};
use tokio::runtime::Runtime;

fn attach(mount_point: &Path, runtime: &Runtime) -> block::Result<Session> {
    let tree = Tree::new();
    tree.file(ROOT, "file", Body::Bytes(noise(10, 1)));
    stoker_mount::attach(&Options::new(mount_point, "memory:test"), tree, runtime.handle().clone())
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn refusal(mount_point: &Path) -> block::Error {
    attach(mount_point, &runtime()).err().expect("it must be refused")
}

#[test]
fn unmounting_ends_the_session_and_uncovers_the_folder() {
    let tree = Tree::new();
    tree.file(ROOT, "file", Body::Bytes(noise(10, 1)));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let open = fs::File::open(mounted.path("file")).unwrap();
    let refused = mounted.session.unmount(false).unwrap_err();
    assert!(refused.hint.contains("--lazy"), "{refused}");
    drop(open);
    let folder = mounted.path("");
    stoker_mount::unmount(&folder, false).unwrap();
    mounted.session.wait();
    assert!(mounted.session.has_ended());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    assert_eq!(stoker_mount::unmount(&folder, false).unwrap_err().kind, Kind::Invalid);
}

#[test]
fn a_lazy_unmount_serves_open_files_to_their_end() {
    let tree = Tree::new();
    tree.file(ROOT, "file", Body::Later(noise(2_000_000, 1)));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let mut open = fs::File::open(mounted.path("file")).unwrap();
    mounted.session.unmount(true).unwrap();
    assert!(!mounted.session.has_ended());
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut open, &mut content).unwrap();
    assert!(content == noise(2_000_000, 1));
    drop(open);
    mounted.session.wait();
}

#[test]
fn a_dropped_session_leaves_no_mount() {
    let Some(scratch) = scratch() else { return };
    let (folder, runtime) = (scratch.path().join("mnt"), runtime());
    let session = attach(&folder, &runtime).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    drop(session);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn mount_points_that_will_not_do_are_refused_with_advice() {
    let Some(scratch) = scratch() else { return };
    let missing = refusal(&scratch.path().join("missing"));
    assert_eq!(missing.kind, Kind::Missing);
    assert!(missing.hint.contains("mkdir"), "{missing}");
    fs::write(scratch.path().join("file"), b"").unwrap();
    let file = refusal(&scratch.path().join("file"));
    assert!(file.what.contains("not a folder"), "{file}");
    let runtime = runtime();
    let session = attach(&scratch.path().join("mnt"), &runtime).unwrap();
    let busy = refusal(session.mount_point());
    assert!(busy.what.contains("memory:test is already mounted"), "{busy}");
    assert!(fs::metadata(session.mount_point().join("file")).is_ok(), "the first goes on");
    fs::create_dir(scratch.path().join("full")).unwrap();
    fs::write(scratch.path().join("full/of"), b"something").unwrap();
    let full = refusal(&scratch.path().join("full"));
    assert!(full.what.contains("not empty"), "{full}");
}

/// A file system of another kind, gone with the test.
struct Other<'a>(&'a Path);

impl Other<'_> {
    fn at(folder: &Path) -> Option<Other<'_>> {
        let done = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(folder).status();
        let mounted = done.is_ok_and(|status| status.success());
        if !mounted {
            eprintln!("SKIPPED: nothing but FUSE can be mounted here");
        }
        mounted.then_some(Other(folder))
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn mounts_of_others_are_neither_covered_nor_unmounted() {
    let Some(scratch) = scratch() else { return };
    let folder = scratch.path().join("mnt");
    let Some(other) = Other::at(&folder) else { return };
    fs::write(folder.join("theirs"), b"x").unwrap();
    let busy = refusal(&folder);
    assert!(busy.what.contains("tmpfs is already mounted"), "{busy}");
    for lazy in [false, true] {
        let refused = stoker_mount::unmount(&folder, lazy).unwrap_err();
        assert!(refused.what.contains("not Stoker's"), "{refused}");
    }
    assert!(folder.join("theirs").exists());
    drop(other);
    assert!(!folder.join("theirs").exists());
}

#[test]
fn a_session_never_unmounts_what_was_mounted_where_it_had_been() {
    let Some(scratch) = scratch() else { return };
    let (folder, runtime) = (scratch.path().join("mnt"), runtime());
    let first = attach(&folder, &runtime).unwrap();
    let open = fs::File::open(folder.join("file")).unwrap();
    first.unmount(true).unwrap();
    assert!(!first.has_ended() && !first.is_attached(), "its file is open");
    let second = attach(&folder, &runtime).unwrap();
    for lazy in [false, true] {
        first.unmount(lazy).unwrap();
    }
    drop(first);
    assert!(second.is_attached());
    assert_eq!(fs::read(folder.join("file")).unwrap(), noise(10, 1));
    drop(open);
    // Covered by somebody else's, it is not reached by its path either.
    let other = Other::at(&folder);
    if other.is_some() {
        let refused = second.unmount(true).unwrap_err();
        assert!(refused.what.contains("covers it"), "{refused}");
    }
    drop(other);
    second.unmount(false).unwrap();
    second.wait();
}

#[test]
fn the_mount_is_shown_as_what_it_is() {
    let tree = Tree::new();
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = format!(" {} ", mounted.session.mount_point().display());
    let line = table.lines().find(|line| line.contains(&point)).unwrap();
    assert!(line.contains(" ro,nosuid,nodev"), "{line}");
    assert!(line.contains("- fuse.stoker memory:test,\\040with\\040a\\040comma"), "{line}");
    let numbers = line.split(' ').nth(2).unwrap();
    let ahead = fs::read_to_string(format!("/sys/class/bdi/{numbers}/read_ahead_kb")).unwrap();
    assert!(!rustix::process::geteuid().is_root() || ahead.trim() == "4096", "{ahead}");
}

/// Not a test: what the next one runs in a process of its own, in a folder of its own.
#[test]
#[ignore = "run by the test of stale mounts"]
fn daemon_that_dies() {
    let _session = attach(Path::new("mnt"), &runtime()).unwrap();
    std::process::abort();
}

/// Not a test: the same, but it dies while it is asked for the attributes of its mount.
#[test]
#[ignore = "run by the test of mounts that die while they are asked"]
fn daemon_that_dies_while_it_is_asked() {
    let tree = Tree::new();
    tree.dies.store(true, Ordering::Relaxed);
    let _session = stoker_mount::attach(&Options::new("mnt", "memory:test"), tree, runtime().handle().clone()).unwrap();
    fs::write("mounted", "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_mount_that_dies_while_it_is_asked_is_dead() {
    type Ask = fn(&Path);
    let asks: [(&str, Ask); 2] = [
        ("whether it is dead", |folder| assert!(stoker_mount::is_stale(folder))),
        ("to be unmounted", |folder| stoker_mount::unmount(folder, true).unwrap()),
    ];
    for (what, ask) in asks {
        let Some(scratch) = scratch() else { return };
        let folder = scratch.path().join("mnt");
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "daemon_that_dies_while_it_is_asked", "--ignored"])
            .current_dir(scratch.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("it is mounted", || scratch.path().join("mounted").exists());
        eprintln!("asked {what}");
        ask(&folder);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        let _ = stoker_mount::unmount(&folder, true);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing stale is left");
    }
}

#[test]
fn the_mount_of_a_dead_daemon_is_replaced() {
    let Some(scratch) = scratch() else { return };
    let this = std::env::current_exe().unwrap();
    let died = Command::new(this)
        .args(["--exact", "daemon_that_dies", "--ignored"])
        .current_dir(scratch.path())
        .output()
        .unwrap();
    assert!(!died.status.success());
    let folder = scratch.path().join("mnt");
    assert!(stoker_mount::is_stale(&folder), "{}", String::from_utf8_lossy(&died.stdout));
    let runtime = runtime();
    let session = attach(&folder, &runtime).unwrap();
    assert!(!stoker_mount::is_stale(&folder));
    assert_eq!(fs::read(session.mount_point().join("file")).unwrap(), noise(10, 1));
    session.unmount(false).unwrap();
    session.wait();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing stale is left beneath");
}
