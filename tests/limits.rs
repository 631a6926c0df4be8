//! What a machine and a store don't grant: little memory, a disk that somebody else fills, no inodes, few descriptors, a store
//! that hangs or refuses, a clock that jumps. Readers get the right bytes, or can go; nothing is measured by time.

mod support;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use support::confines::{Clock, Group, most_memory, small_cache, wrapped};
use support::content::{compare, files, noise, same};
use support::{ACCESS, BUCKET, Bed, Daemon, LONG, SECRET, eventually, finished, has_ended, signal, text};

const MIB: usize = 1 << 20;

fn mount_as(bed: &Bed, command: &mut Command) -> Daemon {
    Daemon::start(command, &bed.path("mnt"), &bed.path("mnt.log"))
}

fn number(status: &Value, of: &str, name: &str) -> u64 {
    status[of][name].as_u64().unwrap_or_else(|| panic!("no {of}.{name} in {status}"))
}

/// While readers are at it, somebody fills a disk to its end and frees it again, and again.
fn while_somebody_fills(disk: &Path, read: impl FnOnce()) {
    let (over, filled) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = disk.join("of somebody else");
            while !over.load(Ordering::Relaxed) {
                let full = fs::write(&file, vec![7; 256 * MIB]).is_err();
                filled.fetch_or(full, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(50));
                let _ = fs::remove_file(&file);
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
        over.store(true, Ordering::Relaxed);
        done.expect("the readers");
    });
    assert!(filled.into_inner(), "the disk was never full");
}

/// Streams, and the bytes of each: together more than the group's memory and than the disk.
const STREAMS: u64 = 64;
const STREAM_BYTES: usize = 5 * MIB + 12_345;

#[test]
fn sixty_four_streams_live_in_256_mib_while_somebody_fills_the_disk() {
    let Some(bed) = Bed::new() else { return };
    let Some(group) = Group::new("streams", 256 << 20) else { return };
    if !small_cache(&bed, 160, 2_000) {
        return;
    }
    (0..STREAMS).for_each(|stream| bed.put(&stream.to_string(), &noise(STREAM_BYTES, stream)));
    let mounting = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--fill", "off"]);
    let daemon = mount_as(&bed, &mut group.within(&mounting));
    assert_eq!(number(&bed.status(), "limits", "memory_bytes"), 64 << 20, "a quarter of the group's");
    let read_all = || {
        std::thread::scope(|scope| {
            for stream in 0..STREAMS {
                let path = bed.mounted(&stream.to_string());
                scope.spawn(move || {
                    for _ in 0..2 {
                        let read = fs::read(&path).unwrap_or_else(|error| panic!("{stream}: {error}"));
                        same(&read, &noise(STREAM_BYTES, stream), &stream);
                    }
                });
            }
        });
    };
    let most = most_memory(&daemon, || while_somebody_fills(&bed.path("cache"), read_all));
    assert_eq!(group.killed(), 0);
    assert!((8 << 20..=64 << 20).contains(&most), "{most}");
    assert!(number(&bed.status(), "store", "unkept_bytes") > 0, "{}", bed.status());
    // Once there is room again, it is used again.
    compare(&bed.path("mnt"), &bed.path("data"));
    eventually("much is kept", || number(&bed.status(), "limits", "disk_used") > 64 << 20);
    daemon.end();
}

#[test]
fn a_node_that_the_system_ends_for_its_memory_is_a_pause() {
    let Some(bed) = Bed::new() else { return };
    let Some(group) = Group::new("ended", 0) else { return };
    (0..64).for_each(|file| bed.put(&file.to_string(), &noise(MIB + file as usize, file)));
    let daemon = bed.mount(&["--fill", "off"]);
    let before = bed.status();
    if before["keeper"]["state"] != "on" {
        return eprintln!("SKIPPED: a mount does not outlive its node here: {}", before["keeper"]["state"]);
    }
    let mut open = fs::File::open(bed.mounted("7")).expect("it opens");
    let mut head = vec![0; MIB / 2];
    open.read_exact(&mut head).expect("its beginning");
    group.take(before["pid"].as_u64().expect("a number"));
    // What is not kept yet takes memory that the node can't have.
    compare(&bed.path("mnt"), &bed.path("data"));
    open.read_to_end(&mut head).expect("the rest of it");
    same(&head, &noise(MIB + 7, 7), &"7");
    assert_eq!(group.killed(), 1);
    let after = bed.status();
    assert!(after["pid"] != before["pid"] && after["mounts"][0]["restarts"] == 1, "{after}");
    daemon.end();
}

#[test]
fn a_disk_without_inodes_is_served_around_and_used_again_later() {
    let Some(bed) = Bed::new() else { return };
    if !small_cache(&bed, 64, 400) {
        return;
    }
    (0..600).for_each(|number| bed.put(&format!("{}/{number}", number % 7), &noise(3_000 + number, number as u64)));
    bed.put("large", &noise(5 * MIB, 1_000));
    // Once by what the set itself takes, and once surprised by somebody else who takes all that are left.
    for more in ["a", "b"] {
        let daemon = bed.mount(&["--fill", "off"]);
        compare(&bed.path("mnt"), &bed.path("data"));
        compare(&bed.path("mnt"), &bed.path("data"));
        let status = bed.status();
        assert!(number(&status, "store", "unkept_bytes") > 0, "{status}");
        assert!(number(&status, "limits", "disk_used") > 0, "{status}");
        let others = bed.path(&format!("cache/others-{more}"));
        let made = fs::create_dir(&others).is_ok();
        let taken = (0..400).take_while(|name| made && fs::write(others.join(name.to_string()), b"").is_ok()).count();
        assert!(taken > 0, "nobody was surprised");
        (600..700).for_each(|number| bed.put(&format!("{more}/{number}"), &noise(3_000, number)));
        // A new listing may have no file to be written to; it is refused then, and said so, and what there was stays.
        let refreshed = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
        if !refreshed.status.success() {
            support::refused(&refreshed, &["No space left"]);
        }
        let _ = fs::remove_dir_all(&others);
        let refreshed = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
        assert!(refreshed.status.success(), "{}", text(&refreshed));
        compare(&bed.path("mnt"), &bed.path("data"));
        daemon.end();
    }
    let gets = bed.gets();
    let daemon = bed.mount(&["--fill", "off"]);
    compare(&bed.path("mnt"), &bed.path("data"));
    assert!(bed.gets() - gets < 600, "little was kept");
    daemon.end();
}

/// Ten processes open all files and hold them; once all are open, each reads pieces of those that it holds.
const HOLDS: &str = "
import hashlib, multiprocessing, os, random, resource, sys
root, processes = sys.argv[1], 10
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
names = sorted(os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
barrier, results = multiprocessing.Barrier(processes), multiprocessing.Queue()
def hold(number):
    held = [os.open(name, os.O_RDONLY) for name in names]
    whole = hashlib.sha256()
    random.Random(number).shuffle(held)
    barrier.wait(timeout=50)
    for file in held:
        size = os.fstat(file).st_size
        whole.update(os.pread(file, 4_000, 0) + os.pread(file, 100, size - 100))
    barrier.wait(timeout=50)
    results.put((number, len(held), whole.hexdigest()))
crew = [multiprocessing.Process(target=hold, args=(number,)) for number in range(processes)]
for one in crew: one.start()
found = sorted(results.get(timeout=50) for _ in crew)
for one in crew: one.join()
print(sum(held for _, held, _ in found), found)
";

#[test]
fn a_hundred_thousand_files_are_open_at_once_with_a_thousand_descriptors() {
    let Some(bed) = Bed::new() else { return };
    let granted = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if granted < 11_000 {
        return eprintln!("SKIPPED: a process may open only {granted} files here");
    }
    for number in 0..9_999_u64 {
        bed.put(&format!("{}/{number}", number % 10), &noise(2_000 + number as usize % 977, number));
    }
    bed.put("large", &noise(18 * MIB, 1));
    let holds = |folder: &str| {
        let done = finished(Command::new("python3").args(["-c", HOLDS]).arg(bed.path(folder)));
        assert!(done.status.success(), "{}", text(&done));
        text(&done)
    };
    let expected = holds("data");
    assert!(expected.starts_with("100000 "), "{expected}");
    for more in [["--fill", "off"].as_slice(), &["--immutable"]] {
        // Of the one before, a node may be ending.
        let cache = bed.path(&more.concat()).display().to_string();
        let mounting = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &[more, &["--cache", &cache]].concat());
        let daemon = mount_as(&bed, &mut wrapped("sh", &["-c", "ulimit -n 1024 && exec \"$@\"", "sh"], &mounting));
        for _ in 0..2 {
            assert_eq!(holds("mnt"), expected, "{more:?}\n{}", daemon.said());
        }
        compare(&bed.path("mnt"), &bed.path("data"));
        daemon.end();
    }
}

/// A program that waits for the store in one way; SIGINT is for it what it is for a user's, also below a shell's `&`.
fn waiting(bed: &Bed, program: &[&str]) -> Child {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").args(program).current_dir(bed.path("mnt"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

/// The state of a process, as the kernel has it: S while it sleeps, D while no signal is heard.
fn state(pid: u32) -> char {
    let told = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    told.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
}

/// Whether a program waits in the kernel for our answer, not for its own libraries to load.
fn waits_for_us(pid: u32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
    ["fuse", "folio_wait", "filemap"].iter().any(|word| call.contains(word))
}

const MAPS: &str =
    "import mmap, os, sys; print(mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, prot=mmap.PROT_READ)[0])";
const READS: &str = "import os, sys; print(os.pread(os.open(sys.argv[1], os.O_RDONLY), 1 << 20, 1 << 20)[0])";

#[test]
fn nobody_who_waits_for_a_store_that_hangs_is_out_of_reach_of_a_signal() {
    let Some(bed) = Bed::new() else { return };
    if !support::is_root() {
        return eprintln!("SKIPPED: only root sees what a process waits for");
    }
    for number in 0..12 {
        bed.put(&format!("small/{number}"), &noise(10_000, number));
        bed.put(&format!("large/{number}"), &noise(18 * MIB, number));
    }
    let daemon = bed.mount(&["--fill", "off", "--patience", "10m"]);
    bed.set_faults("hang");
    // (how it waits, for what, what ends it): a page fault and a read behind those of others end with SIGKILL alone. Who
    // maps what somebody else waits for a page of is out of reach (docs/semantics.md), so there is one of these.
    let cases: [(&[&str], &str, &str); 8] = [
        (&["cat"], "small/0", "INT"),
        (&["cat"], "small/1", "KILL"),
        (&["cat"], "large/0", "INT"),
        (&["cat"], "large/1", "KILL"),
        (&["python3", "-c", READS], "large/2", "INT"),
        (&["python3", "-c", READS], "large/2", "KILL"),
        (&["python3", "-c", MAPS], "large/3", "KILL"),
        (&["python3", "-c", MAPS], "large/5", "KILL"),
    ];
    for (program, file, word) in cases {
        let count = if program.contains(&MAPS) { 1 } else { 3 };
        let mut children: Vec<Child> = (0..count).map(|_| waiting(&bed, &[program, &[file]].concat())).collect();
        for child in &children {
            eventually("it waits for us", || waits_for_us(child.id()) || has_ended(child.id()));
            assert!(!has_ended(child.id()), "{file} was read from a store that hangs");
        }
        // Names need no store.
        let listed = finished(Command::new("ls").arg("-lR").arg(bed.path("mnt")));
        assert!(listed.status.success() && text(&listed).contains("18874368"), "{}", text(&listed));
        children.iter().for_each(|child| signal(child.id(), word));
        for child in &mut children {
            let began = Instant::now();
            while child.try_wait().expect("it can be waited for").is_none() {
                let pid = child.id();
                assert!(began.elapsed() < LONG, "SIG{word} was not heard by {program:?} {file}: {}", state(pid));
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
    bed.set_faults("");
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

/// How a program ended, as a shell tells it.
fn told(ended: ExitStatus) -> Option<i32> {
    ended.code().or(ended.signal().map(|signal| 128 + signal))
}

/// Interrupt a command once it waits for a store that hangs, and then have the store answer again.
fn interrupt(bed: &Bed, word: &str) {
    bed.set_faults("hang");
    let mut command = wrapped("env", &["--default-signal=INT"], bed.stoker([word]).arg(bed.path("mnt")));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    eventually("the store is asked", || in_flight(bed) > 0);
    assert!(child.try_wait().expect("it runs").is_none(), "{word} did not wait for a store that hangs");
    signal(child.id(), "INT");
    eventually("it has ended", || has_ended(child.id()));
    assert_eq!(told(child.wait().expect("it has ended")), Some(130), "{word}");
    bed.set_faults("");
}

/// Requests that are at the store, as the node has them.
fn in_flight(bed: &Bed) -> u64 {
    number(&bed.status(), "store", "in_flight")
}

#[test]
fn a_refresh_that_is_interrupted_leaves_no_request_at_a_store_that_hangs() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(10_000, 1));
    let daemon = bed.mount(&["--fill", "off", "--patience", "10m"]);
    interrupt(&bed, "refresh");
    eventually("nobody waits for the store", || in_flight(&bed) == 0);
    bed.put("new", &noise(10_000, 2));
    let again = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(again.status.success(), "{}", text(&again));
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn a_load_that_is_interrupted_asks_for_no_more_than_it_had_asked_for() {
    const FILES: u64 = 400;
    let Some(bed) = Bed::new() else { return };
    (0..FILES).for_each(|number| bed.put(&number.to_string(), &noise(10_000, number)));
    let daemon = bed.mount(&["--fill", "off", "--patience", "9s"]);
    interrupt(&bed, "load");
    // What was asked for is asked for again, since it hung, and kept.
    eventually("nobody waits for the store", || in_flight(&bed) == 0);
    assert!(bed.sent() <= FILES / 2 * 10_000, "{} of {FILES} files were loaded", bed.sent() / 10_000);
    let again = bed.run(["load".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(bed.sent(), FILES * 10_000, "each file came once");
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

/// Readers of a store that grants little, each of which begins with another file.
const READERS: usize = 16;

#[test]
fn a_store_that_grants_ten_requests_a_second_gives_every_byte() {
    for throttle in [emulate::Throttle::Refuse { retry_after: None }, emulate::Throttle::Queue] {
        let Some(bed) = Bed::new() else { return };
        (0..60).for_each(|number| bed.put(&format!("small/{number}"), &noise(1_000 + number, number as u64)));
        (0..2).for_each(|number| bed.put(&format!("large/{number}"), &noise(17 * MIB + 5, number)));
        bed.set_limits(&emulate::Limits { requests_per_second: Some(10), throttle, ..emulate::Limits::default() });
        let is_refusing = throttle != emulate::Throttle::Queue;
        let daemon = bed.mount(&[]);
        let gets = || {
            let counters = bed.counters();
            let gets = counters.of(emulate::Operation::Get);
            (gets.requests - gets.throttled, gets.throttled)
        };
        let names: Vec<_> = files(&bed.path("data")).into_iter().collect();
        let burst = std::thread::scope(|scope| {
            for reader in 0..READERS {
                let (bed, names) = (&bed, &names);
                scope.spawn(move || {
                    for name in names.iter().cycle().skip(reader * names.len() / READERS).take(names.len()) {
                        let read = fs::read(bed.path("mnt").join(name));
                        let read = read.unwrap_or_else(|error| panic!("{}: {error}", name.display()));
                        same(&read, &fs::read(bed.path("data").join(name)).expect("the original"), &name.display());
                    }
                });
            }
            eventually("the first are answered", || !is_refusing || gets().0 >= READERS as u64);
            gets()
        });
        let all = gets();
        assert_eq!(number(&bed.status(), "store", "throttled") > 0, is_refusing, "{}", bed.status());
        if is_refusing {
            // A burst at the start is refused as a whole; from then on, not many more than are answered.
            let (answered, refused) = (all.0 - burst.0, all.1 - burst.1);
            eprintln!("{refused} were refused and {answered} answered after {burst:?}");
            assert!(refused <= 4 * answered, "{refused} were refused and {answered} answered after the first burst");
        }
        daemon.end();
    }
}

/// Hands out keys for an hour of its own clock, and takes down that it was asked.
fn vending(bed: &Bed) -> String {
    let program = format!(
        "import datetime, json\nopen({:?}, 'a').write('asked\\n')\n\
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)\n\
        print(json.dumps(dict(Version=1, AccessKeyId={ACCESS:?}, SecretAccessKey={SECRET:?}, Expiration=until.strftime('%Y-%m-%dT%H:%M:%SZ'))))\n",
        bed.path("asked").display().to_string()
    );
    let path = bed.path("vend.py");
    fs::write(&path, program).expect("a program");
    format!("[profile vended]\nregion = us-east-1\ncredential_process = python3 {}\n", path.display())
}

/// The bucket of the bed once more, served by a process that goes by this clock; killed at the end.
struct Store(Child, String);

impl Store {
    fn start(bed: &Bed, clock: &Clock) -> Store {
        let mut command = bed.stoker(["emulate", "--bucket", BUCKET]);
        command.arg(bed.path("data")).env("STOKER_EMULATE_ACCESS_KEY", ACCESS).env("STOKER_EMULATE_SECRET_KEY", SECRET);
        let mut child = clock.rule(&mut command).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("its output is piped");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        Store(child, line.trim().to_owned())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mount by keys that are handed out for an hour, by this clock.
fn mounting_by_clock(bed: &Bed, endpoint: &str) -> Command {
    fs::write(bed.path("config"), vending(bed)).expect("a configuration");
    let mut mounting = bed.stoker(["mount", "--fill", "off", "--refresh", "1s", "--endpoint", endpoint]);
    mounting.arg(format!("s3://{BUCKET}")).arg(bed.path("mnt")).arg("--cache").arg(bed.path("cache"));
    mounting.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    mounting.env("AWS_CONFIG_FILE", bed.path("config")).env("AWS_PROFILE", "vended");
    mounting
}

#[test]
fn a_clock_that_jumps_costs_new_keys_and_no_byte() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    let Some(clock) = Clock::new(bed.path("clock"), 0) else { return };
    (0..60).for_each(|number| bed.put(&number.to_string(), &noise(30_000, number)));
    bed.put("large", &noise(17 * MIB, 100));
    let store = Store::start(&bed, &clock);
    let asked = || fs::read_to_string(bed.path("asked")).unwrap_or_default().lines().count();
    let daemon = mount_as(&bed, clock.rule(&mut mounting_by_clock(&bed, &store.1)));
    let mut next = 0..60_u64;
    // Keys are good for an hour. They are asked for anew when they have run out, and before that.
    for (seconds, is_new) in
        [(0, false), (3_400, true), (3 * 3_600, true), (-86_400, false), (40 * 86_400, true), (0, false)]
    {
        let before = asked();
        clock.set(seconds);
        for number in next.by_ref().take(10) {
            let read = fs::read(bed.mounted(&number.to_string()));
            same(&read.unwrap_or_else(|error| panic!("{number}: {error}")), &noise(30_000, number), &number);
        }
        if is_new {
            eventually("keys that have run out, or nearly, are asked for anew", || asked() > before);
        }
        assert!(asked() < before + 10, "it asks for keys again and again: at {seconds} s");
        // A listing of this time is taken as well as any.
        let name = format!("new{seconds}");
        bed.put(&name, &noise(1_000, seconds.unsigned_abs()));
        eventually("the new file is seen", || bed.mounted(&name).exists());
        same(&fs::read(bed.mounted(&name)).expect("a read"), &fs::read(bed.data(&name)).expect("the original"), &name);
    }
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

#[test]
fn a_clock_that_is_wrong_is_named_and_what_is_kept_is_read_meanwhile() {
    const NO_ACCESS: i32 = 13;
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    let Some(clock) = Clock::new(bed.path("clock"), 0) else { return };
    ["kept", "late"].iter().for_each(|name| bed.put(name, &noise(30_000, 1)));
    let daemon = mount_as(&bed, clock.rule(&mut mounting_by_clock(&bed, bed.endpoint())));
    same(&fs::read(bed.mounted("kept")).expect("a read"), &noise(30_000, 1), &"kept");
    for seconds in [7_200, -7_200] {
        clock.set(seconds);
        assert_eq!(fs::read(bed.mounted("late")).expect_err("a refusal").raw_os_error(), Some(NO_ACCESS));
        same(&fs::read(bed.mounted("kept")).expect("a read"), &noise(30_000, 1), &"kept");
        let said = text(&bed.run(["status"]));
        assert!(said.contains("clock too far off") && said.contains("RequestTimeTooSkewed"), "{said}");
    }
    clock.set(0);
    same(&fs::read(bed.mounted("late")).expect("a read"), &noise(30_000, 1), &"late");
    daemon.end();
}

#[test]
fn a_limit_on_the_size_of_files_is_served_around() {
    let Some(bed) = Bed::new() else { return };
    bed.put("large", &noise(110 << 20, 1));
    bed.put("small", &noise(1_000, 2));
    let limit = format!("--fsize={}", 100 << 20);
    let mounting = bed.mounting(&format!("s3://{BUCKET}"), "mnt", &["--fill", "off"]);
    let daemon = mount_as(&bed, &mut wrapped("prlimit", &[&limit], &mounting));
    compare(&bed.path("mnt"), &bed.path("data"));
    compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.status()["mounts"][0]["restarts"], 0);
    daemon.end();
}
