//! What one process of a node hands to the next, where that takes root or time: backing files that the kernel knows, a store that
//! is away just then, and who holds all of it meanwhile.

mod support;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, pidfd_getfd, pidfd_open, setrlimit};
use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::confines::small_cache;
use support::content::{compare, noise, same};
use support::hung::Hung;
use support::successor::{as_in, bed, next, pid};
use support::{BUCKET, Bed, Daemon, eventually, finished, keeper_of, signal, text};

const MIB: usize = 1 << 20;

/// FUSE_DEV_IOC_BACKING_CLOSE.
const BACKING_CLOSE: Opcode = opcode::write::<u32>(229, 2);

/// Where the ledger says which number was the highest (docs/format.md), and further ones that may have been given since.
const HIGHEST_AT: u64 = 24;
const BEYOND: u32 = 200;

/// The descriptor of a process that leads to what is called so.
fn descriptor(pid: u32, called: &str) -> PathBuf {
    let mut all = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten().map(|entry| entry.path());
    let is_it = |link: &PathBuf| fs::read_link(link).is_ok_and(|to| to.to_string_lossy().contains(called));
    all.find(is_it).unwrap_or_else(|| panic!("no descriptor leads to {called}"))
}

/// The descriptor that another process has of the device.
fn device(node: u32) -> OwnedFd {
    let number = descriptor(node, "/dev/fuse").file_name().and_then(|name| name.to_str()?.parse().ok());
    let pid = i32::try_from(node).ok().and_then(Pid::from_raw).expect("a number");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
    pidfd_getfd(process, number.expect("a number"), PidfdGetfdFlags::empty()).expect("root may")
}

/// Backing files that the kernel has registered: those that it can be told to let go of, which it does. What is open goes on.
fn let_go(node: u32) -> usize {
    let (device, mut highest) = (device(node), [0; 4]);
    let ledger = File::open(descriptor(node, "stoker-opens")).expect("root may");
    ledger.read_exact_at(&mut highest, HIGHEST_AT).expect("it is long enough");
    let numbers = 1..=u32::from_ne_bytes(highest) + BEYOND;
    // SAFETY: the call reads one u32, the number to close, and writes nothing.
    numbers.filter(|number| unsafe { ioctl(&device, Setter::<BACKING_CLOSE, u32>::new(*number)) }.is_ok()).count()
}

#[test]
fn after_restarts_the_kernel_knows_no_backing_file_but_those_of_what_is_open() {
    let Some(bed) = bed() else { return };
    let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    (0..).zip(&names).for_each(|(number, name)| bed.put(name, &noise(MIB, number)));
    let daemon = bed.mount(&["--fill", "off"]);
    let passthrough = bed.status()["mounts"][0]["passthrough"].clone();
    if passthrough != "on" {
        return eprintln!("SKIPPED: no passthrough here: {passthrough}");
    }
    let loaded = bed.run(["load".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(loaded.status.success(), "{}", text(&loaded));
    let open: Vec<File> = names[..3].iter().map(|name| File::open(bed.mounted(name)).expect("it opens")).collect();
    for _ in 0..2 {
        // Kept registered by whoever serves them.
        compare(&bed.path("mnt"), &bed.path("data"));
        let node = pid(&bed);
        signal(node, "KILL");
        next(&bed, node);
    }
    assert_eq!(let_go(pid(&bed)), open.len());
    for (number, file) in (0..).zip(&open) {
        let mut read = vec![0; MIB];
        file.read_exact_at(&mut read, 0).expect("it is read on");
        same(&read, &noise(MIB, number), &number);
    }
    drop(open);
    daemon.end();
}

#[test]
fn a_folder_that_hangs_when_another_process_goes_on_is_waited_for() {
    let Some(bed) = bed() else { return };
    let folder = bed.path("folder");
    fs::create_dir(&folder).and_then(|()| fs::write(folder.join("file"), noise(MIB, 1))).expect("a file");
    let daemon = bed.mount_at(&format!("file://{}", folder.display()), "mnt", &[]);
    let (node, open) = (pid(&bed), File::open(bed.mounted("file")).expect("it opens"));
    let Some(hung) = Hung::over(folder.clone()) else { return };
    signal(node, "KILL");
    eventually("it is waited for", || daemon.said().contains("a mount waits for its store"));
    hung.uncover();
    next(&bed, node);
    compare(&bed.path("mnt"), &folder);
    let mut read = vec![0; MIB];
    open.read_exact_at(&mut read, 0).expect("it is read on");
    same(&read, &noise(MIB, 1), &"what was open");
    assert_eq!(bed.status()["mounts"][0]["restarts"], 1, "no process gave up");
    drop(open);
    daemon.end();
}

/// Mount by another program, which has its folder to itself.
fn mount_by(bed: &Bed, program: &Path) -> Daemon {
    fs::copy(env!("CARGO_BIN_EXE_stoker"), program).expect("a program");
    let usual = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &[]);
    let mut mounting = Command::new(program);
    as_in(bed, mounting.args(usual.get_args()));
    Daemon::start(&mut mounting, &bed.path("mnt"), &bed.path("mnt.log"))
}

#[test]
fn while_nobody_can_be_had_to_hold_a_mount_the_status_says_so() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let program = bed.path("stoker-gone");
    let daemon = mount_by(&bed, &program);
    let keeper = keeper_of(pid(&bed)).expect("somebody holds the mount");
    let state = || bed.status()["keeper"].clone();
    assert_eq!(state(), serde_json::json!({"state": "on", "pid": keeper}));
    fs::remove_file(&program).expect("it is there");
    signal(keeper, "KILL");
    let is_off = || {
        let keeper = state();
        keeper["pid"].is_null() && keeper["state"].as_str().is_some_and(|state| state.starts_with("off: "))
    };
    eventually("it says so", is_off);
    fs::copy(env!("CARGO_BIN_EXE_stoker"), &program).expect("a program");
    eventually("somebody holds the mount again", || state()["state"] == "on" && state()["pid"] != keeper);
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn a_program_that_was_removed_costs_no_mount() {
    let Some(bed) = bed() else { return };
    bed.put("file", &noise(1000, 1));
    let program = bed.path("stoker-gone");
    let daemon = mount_by(&bed, &program);
    fs::remove_file(&program).expect("it is there");
    let node = pid(&bed);
    signal(node, "KILL");
    next(&bed, node);
    assert_eq!(bed.status()["mounts"][0]["restarts"], 1);
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

/// What becomes of a mount whose node is killed while its cache folder can't be had, with a file open that is kept.
fn goes_on_without_its_cache(bed: &Bed, spoil: impl FnOnce()) -> Daemon {
    (0..8).for_each(|number| bed.put(&number.to_string(), &noise(MIB, number)));
    let daemon = bed.mount(&["--fill", "off"]);
    let (node, open) = (pid(bed), File::open(bed.mounted("0")).expect("it opens"));
    let disk = || text_of(&bed.status()["disk"]);
    assert_eq!(disk(), "on");
    spoil();
    signal(node, "KILL");
    let second = next(bed, node);
    assert!(disk().starts_with("lost: "), "{}", disk());
    compare(&bed.path("mnt"), &bed.path("data"));
    // So does the one after it.
    bed.run(["restart".as_ref(), bed.path("mnt").as_os_str()]);
    assert_ne!(pid(bed), second);
    assert!(disk().starts_with("lost: "), "{}", disk());
    compare(&bed.path("mnt"), &bed.path("data"));
    let mut read = vec![0; MIB];
    open.read_exact_at(&mut read, 0).expect("it is read on");
    same(&read, &noise(MIB, 0), &"what was open");
    daemon
}

fn text_of(value: &serde_json::Value) -> String {
    value.as_str().expect("words").into()
}

#[test]
fn a_cache_folder_that_cannot_be_had_costs_no_mount_and_is_used_again_once_it_can() {
    let Some(bed) = bed() else { return };
    let may = |mode| fs::set_permissions(bed.path("cache"), fs::Permissions::from_mode(mode)).expect("it is ours");
    let daemon = goes_on_without_its_cache(&bed, || may(0o777));
    may(0o700);
    let gets = bed.gets();
    bed.run(["restart".as_ref(), bed.path("mnt").as_os_str()]);
    assert_eq!(text_of(&bed.status()["disk"]), "on");
    fs::read(bed.mounted("0")).expect("it is read");
    assert_eq!(bed.gets(), gets, "it was kept before");
    daemon.end();
}

#[test]
fn a_disk_that_found_itself_broken_costs_no_mount() {
    let Some(bed) = bed() else { return };
    if !small_cache(&bed, 64, 400) {
        return;
    }
    let cache = bed.path("cache");
    let again = finished(Command::new("mount").args(["-o", "remount,errors=remount-ro"]).arg(&cache));
    assert!(again.status.success(), "{}", text(&again));
    let device = finished(Command::new("findmnt").args(["-no", "SOURCE"]).arg(&cache));
    let device = Path::new(text(&device).trim()).file_name().expect("a device").to_owned();
    let fail = Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error");
    let daemon = goes_on_without_its_cache(&bed, || fs::write(fail, "1").expect("root may"));
    daemon.end();
}

/// Descriptors that are held, and further ones that the process may have: the standard ones, its own and a handful.
const HELD: usize = 200;
const FURTHER: usize = 16;

#[test]
fn who_holds_as_many_descriptors_as_the_system_grants_hands_on_each_by_its_name() {
    use std::fmt::Write;
    let scratch = tempfile::tempdir().expect("a folder");
    let (told, file) = (scratch.path().join("told"), |number: usize| scratch.path().join(format!("{number:03}")));
    let (ours, theirs) = UnixDatagram::pair().expect("two sockets");
    let mut node = Command::new("sleep").arg("1000").spawn().expect("it starts");
    // It says which file each descriptor leads to, in order, and by which names.
    let script = format!(
        "echo $LISTEN_FDNAMES > {0}.part; i=3; while [ $i -lt $((LISTEN_FDS + 3)) ]; do readlink /proc/$$/fd/$i; i=$((i + 1)); done \
         >> {0}.part; mv {0}.part {0}",
        told.display()
    );
    let mut keeping = Command::new(env!("CARGO_BIN_EXE_stoker"));
    keeping.args(["keep", "--node", &node.id().to_string(), "--", "/bin/sh", "-c", &script]);
    let limit = (HELD + FURTHER) as u64;
    // SAFETY: both calls are async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        keeping.pre_exec(move || {
            // Whoever runs the tests may have handed on some of its own.
            libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
            let both = Rlimit { current: Some(limit), maximum: Some(limit) };
            setrlimit(Resource::Nofile, both).map_err(Into::into)
        });
    }
    let mut keeper = keeping.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().expect("it starts");
    let say = |words: &str| ours.send(words.as_bytes()).map(drop).expect("it hears");
    let hold = |number: usize| {
        fs::write(file(number), "").expect("a file");
        let opened = File::open(file(number)).expect("a file");
        hand(&ours, &format!("FDSTORE=1\nFDNAME={number:03}"), opened.as_fd());
    };
    (0..HELD).for_each(hold);
    // Out of the order in which they came.
    for number in (0..HELD).step_by(3) {
        say(&format!("FDSTOREREMOVE=1\nFDNAME={number:03}"));
    }
    (0..HELD).step_by(3).rev().for_each(hold);
    node.kill().and_then(|()| node.wait()).expect("it ends");
    eventually("another is started", || told.exists());
    let told = fs::read_to_string(&told).expect("words");
    let mut lines = told.lines();
    let names: Vec<&str> = lines.next().expect("names").split(':').skip(1).collect();
    let mut expected = String::new();
    names.iter().for_each(|name| writeln!(expected, "{}", scratch.path().join(name).display()).expect("room"));
    let found: Vec<&str> = lines.skip(1).collect();
    assert_eq!((names.len(), found.join("\n") + "\n"), (HELD, expected));
    // The third that ends at once is the last.
    assert!(keeper.wait().expect("it ends").success());
}

/// Send a descriptor.
fn hand(socket: &UnixDatagram, words: &str, descriptor: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut ancillary, descriptors) = (SendAncillaryBuffer::new(&mut space), [descriptor]);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(words.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL).expect("it hears");
}
