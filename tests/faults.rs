//! A store that fails in every way that it can: no wrong byte reaches a reader where the store gives a checksum,
//! no corrupt file is ever complete, versions are never mixed, and nobody waits for ever.

mod support;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::content::{compare, noise, same};
use support::hung::Hung;
use support::{Bed, LONG, drop_page_cache, finished, signal, text};

const MIB: usize = 1 << 20;
const STALE: i32 = 116;
const INPUT_OUTPUT: i32 = 5;

/// Faults that the small objects have to bear, as the issue wants it.
const FAULTS: u64 = 1_000;

const READERS: usize = 32;

/// Sum of all faults that fell so far.
fn fallen(bed: &Bed) -> u64 {
    let counters = bed.counters();
    emulate::Fault::all().map(|fault| counters.faults(fault)).sum()
}

/// Read every named file by many readers; each comes whole and right, or with an error that may be.
fn each_is_right(bed: &Bed, names: &[String], may_fail: &[i32]) -> usize {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match fs::read(bed.mounted(name)) {
                        Ok(read) => same(&read, &fs::read(bed.data(name)).expect("the original"), name),
                        Err(error) if may_fail.contains(&error.raw_os_error().unwrap_or(0)) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => panic!("{name}: {error}"),
                    }
                }
            });
        }
    });
    failed.into_inner()
}

#[test]
fn a_thousand_faults_let_no_wrong_byte_through() {
    let Some(bed) = Bed::new() else { return };
    let small: Vec<String> = (0..2_000).map(|number| format!("small/{number}")).collect();
    for (number, name) in small.iter().enumerate() {
        bed.put(name, &noise(1 + number * 7, number as u64));
    }
    let large: Vec<String> = (0..4).map(|number| format!("large/{number}")).collect();
    for (number, name) in large.iter().enumerate() {
        bed.put(name, &noise(18 * MIB + number * 70_001, 5_000 + number as u64));
    }
    let daemon = bed.mount(&["--fill", "off"]);
    bed.set_faults(
        "truncate=0.1,wrong-bytes=0.1,reset=0.07,slowdown=0.07,internal-error=0.07,ignore-if-match=0.1,seed=3",
    );
    each_is_right(&bed, &small, &[]);
    // A range of a large object has no checksum: wrong bytes of the right length are what nobody can detect.
    bed.set_faults("truncate=0.2,reset=0.1,slowdown=0.05,internal-error=0.1,ignore-if-match=0.1,seed=4");
    each_is_right(&bed, &large, &[]);
    let bearable = fallen(&bed);
    bed.set_faults("etag-change=0.3,seed=5");
    let changing: Vec<String> = (0..100).map(|number| format!("changing/{number}")).collect();
    for (number, name) in changing.iter().enumerate() {
        bed.put(name, &noise(10_000 + number, number as u64));
    }
    assert!(bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]).status.success());
    let stale = each_is_right(&bed, &changing, &[STALE]);
    assert!(stale > 0 && stale < changing.len(), "{stale} of {} went stale", changing.len());
    bed.set_faults("");
    eprintln!("{bearable} faults were borne, {} more made {stale} objects stale", fallen(&bed) - bearable);
    assert!(bearable >= FAULTS, "only {bearable} faults fell");
    assert!(bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]).status.success());
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
    let gets = bed.gets();
    let daemon = bed.mount(&["--fill", "off"]);
    compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.gets(), gets, "all of it was complete and right on the disk");
    daemon.end();
}

/// Whether a reader from start to end got a wrong byte, before an error or the end.
fn sees_a_wrong_byte(path: &Path, expected: &[u8]) -> bool {
    let mut file = File::open(path).expect("an open");
    let (mut part, mut at) = (vec![0; 128 << 10], 0);
    while let Ok(count @ 1..) = file.read(&mut part) {
        if part[..count] != expected[at..at + count] {
            return true;
        }
        at += count;
    }
    false
}

#[test]
fn bytes_that_were_found_wrong_are_not_served_again() {
    for more in [&[][..], &["--immutable"]] {
        let Some(bed) = Bed::new() else { return };
        for number in 0..16 {
            bed.put(&number.to_string(), &noise([2 * MIB, 3 * MIB, 16 * MIB, 20 * MIB][number % 4], number as u64));
        }
        let daemon = bed.mount(&[&["--fill", "off"], more].concat());
        let mut wrong = 0;
        for number in 0..16 {
            bed.set_faults(&format!("wrong-bytes#{}", 1 + number % 3));
            let (name, before) = (number.to_string(), daemon.said().matches("differ from").count());
            let expected = fs::read(bed.data(&name)).expect("the original");
            // The first reader may get the wrong byte: blocks are handed out before the whole can be compared.
            if sees_a_wrong_byte(&bed.mounted(&name), &expected) {
                wrong += 1;
                let _ = fs::read(bed.mounted(&name));
                support::eventually("it is noticed", || daemon.said().matches("differ from").count() > before);
            }
            bed.set_faults("");
            // The kernel hears a little later that its pages are wrong.
            let is_right = || fs::read(bed.mounted(&name)).is_ok_and(|read| read == expected);
            support::eventually("the right bytes", is_right);
        }
        eprintln!("{wrong} of 16 first readers got a wrong byte of a large object {more:?}");
        daemon.end();
    }
}

#[test]
fn a_large_file_of_wrong_bytes_is_never_complete() {
    let Some(bed) = Bed::new() else { return };
    let names: Vec<String> = (0..6).map(|number| format!("{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        bed.put(name, &noise([3, 20, 33][number % 3] * MIB + number, number as u64));
    }
    let daemon = bed.mount(&["--fill", "off"]);
    bed.set_faults("wrong-bytes@3");
    let spoiled = finished(bed.stoker(["load"]).arg(bed.path("mnt")));
    assert!(matches!(spoiled.status.code(), Some(0 | 4)), "{}", text(&spoiled));
    assert!(bed.counters().faults(emulate::Fault::WrongBytes) > 0);
    bed.set_faults("");
    let again = finished(bed.stoker(["load"]).arg(bed.path("mnt")));
    assert_eq!(again.status.code(), Some(0), "the same load again: {}\n{}", text(&again), daemon.said());
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
    let daemon = bed.mount(&["--fill", "off"]);
    drop_page_cache();
    compare(&bed.path("mnt"), &bed.path("data"));
    daemon.end();
}

/// Read an open file step by step while its object is replaced: what comes is of one version, or ESTALE.
fn reads_one_version(path: &Path, old: &[u8], replace: impl Fn()) -> Option<i32> {
    let mut file = File::open(path).expect("an open");
    let mut part = vec![0; 128 << 10];
    let (mut at, mut replaced) = (0, false);
    while at < old.len() {
        match file.read(&mut part) {
            Ok(count) => {
                assert!(count > 0, "it ended at {at}");
                same(&part[..count], &old[at..at + count], &format!("{} from {at}, opened before", path.display()));
                at += count;
            }
            Err(error) => return error.raw_os_error(),
        }
        if !replaced && at >= MIB {
            replace();
            replaced = true;
        }
    }
    file.seek(SeekFrom::Start(0)).expect("a seek");
    None
}

#[test]
fn an_object_replaced_under_an_open_file_is_never_a_mix() {
    for ignored in ["", "ignore-if-match"] {
        let Some(bed) = Bed::new() else { return };
        let (old, new) = (noise(40 * MIB, 1), noise(40 * MIB, 2));
        bed.put("object", &old);
        bed.put("small", &old[..5_000]);
        bed.put("cached", &old[..MIB * 2]);
        bed.set_bandwidth(100_000_000);
        bed.set_faults(ignored);
        let daemon = bed.mount(&["--fill", "off"]);
        same(&fs::read(bed.mounted("cached")).expect("a read"), &old[..MIB * 2], &"the cached one");
        let held = File::open(bed.mounted("cached")).expect("an open");
        let ended = reads_one_version(&bed.mounted("object"), &old, || {
            bed.put("object", &new);
            bed.put("small", &new[..5_000]);
            bed.put("cached", &new[..MIB * 2]);
        });
        assert_eq!(
            ended,
            Some(STALE),
            "40 MB at 100 MB/s can't be there before they are replaced; ignored: `{ignored}`"
        );
        assert_eq!(fs::read(bed.mounted("small")).expect_err("a version that is gone").raw_os_error(), Some(STALE));
        let mut part = vec![0; 100_000];
        held.read_exact_at(&mut part, 5_000).expect("what is complete stays readable");
        same(&part, &old[5_000..105_000], &"a complete file, opened before");
        assert!(daemon.said().contains("has another version by now"), "{}", daemon.said());
        bed.set_limits(&emulate::Limits::default());
        assert!(bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]).status.success());
        compare(&bed.path("mnt"), &bed.path("data"));
        held.read_exact_at(&mut part, MIB as u64).expect("also after a refresh");
        same(&part, &old[MIB..MIB + 100_000], &"a complete file, opened before the refresh");
        drop(held);
        daemon.end();
    }
}

/// A reader in a process of its own: exit code 0, or the errno.
fn reader(path: &Path) -> Child {
    let program = "import sys\ntry: open(sys.argv[1], 'rb').read()\nexcept OSError as error: sys.exit(error.errno)";
    Command::new("python3").arg("-c").arg(program).arg(path).stderr(Stdio::null()).spawn().expect("python3 runs")
}

fn ends_within(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// What the tests of patience allow, and what they grant on top of it.
const PATIENCE: &str = "2s";
const PATIENCE_AND_MORE: Duration = Duration::from_secs(20);

#[test]
fn a_store_that_is_gone_or_hangs_gives_eio_within_the_budget_and_says_so() {
    for hangs in [false, true] {
        let Some(bed) = Bed::new() else { return };
        bed.put("small", &noise(10_000, 1));
        bed.put("large", &noise(3 * MIB, 2));
        bed.put("cached", &noise(2 * MIB, 3));
        let daemon = bed.mount(&["--patience", PATIENCE, "--fill", "off"]);
        same(&fs::read(bed.mounted("cached")).expect("a read"), &noise(2 * MIB, 3), &"the cached one");
        support::eventually("it is complete", || bed.status()["limits"]["disk_used"] == 2 * MIB);
        if hangs {
            bed.set_faults("hang")
        } else {
            bed.stop_server()
        }
        let began = Instant::now();
        let mut readers = ["small", "large"].map(|name| reader(&bed.mounted(name)));
        for reader in &mut readers {
            let ended = ends_within(reader, PATIENCE_AND_MORE).expect("it ends within the budget");
            assert_eq!(ended.code(), Some(INPUT_OUTPUT));
        }
        assert!(began.elapsed() >= Duration::from_secs(1), "it was asked again first");
        let said = daemon.said();
        let why = if hangs { "silent" } else { "can't connect" };
        assert!([why, "a reader got an error", "on:", "try:"].iter().all(|part| said.contains(part)), "{said}");
        same(&fs::read(bed.mounted("cached")).expect("a read"), &noise(2 * MIB, 3), &"what is kept needs no store");
        daemon.end();
    }
}

#[test]
fn a_reader_blocked_on_a_hanging_store_can_be_interrupted() {
    let Some(bed) = Bed::new() else { return };
    bed.put("small", &noise(10_000, 1));
    bed.put("large", &noise(3 * MIB, 2));
    let daemon = bed.mount(&["--fill", "off"]);
    bed.set_faults("hang");
    for word in ["INT", "KILL", "TERM"] {
        for name in ["small", "large"] {
            let before = bed.gets();
            // A shell that starts the tests in the background has them, and so their children, ignore SIGINT.
            let mut command = Command::new("env");
            command.args(["--default-signal=INT", "cat"]).arg(bed.mounted(name)).stdout(Stdio::null());
            let mut reader = command.spawn().expect("cat runs");
            // The second reader of a block waits for the request of the first.
            support::eventually("the reader is asleep in the kernel", || bed.gets() > before || word != "INT");
            std::thread::sleep(Duration::from_millis(300));
            assert!(reader.try_wait().expect("it runs").is_none(), "{name} was read from a store that hangs");
            signal(reader.id(), word);
            assert!(ends_within(&mut reader, Duration::from_secs(20)).is_some(), "SIG{word} was not heard");
        }
    }
    bed.set_faults("");
    daemon.end();
}

#[test]
fn one_request_that_hangs_costs_time_and_not_the_file() {
    let Some(bed) = Bed::new() else { return };
    bed.put("object", &noise(500_000, 1));
    let daemon = bed.mount(&["--fill", "off"]);
    bed.set_faults("hang#1");
    let began = Instant::now();
    same(&fs::read(bed.mounted("object")).expect("a read"), &noise(500_000, 1), &"the object");
    assert!(began.elapsed() < LONG, "the hanging request was given up in time");
    assert_eq!(bed.counters().faults(emulate::Fault::Hang), 1);
    daemon.end();
}

#[test]
fn a_short_answer_of_the_right_version_is_asked_for_again() {
    let Some(bed) = Bed::new() else { return };
    let names: Vec<String> = (0..40).map(|number| format!("{number}")).collect();
    (0..).zip(&names).for_each(|(number, name)| bed.put(name, &noise(10_000, number)));
    bed.put("large", &noise(20 * MIB, 1_000));
    let daemon = bed.mount(&["--fill", "off"]);
    // The kernel opens once more after ESTALE, which hides one such answer in a row, but not two.
    bed.set_faults("short-body=0.5,seed=1");
    each_is_right(&bed, &["large".into()], &[]);
    let short = || bed.counters().faults(emulate::Fault::ShortBody);
    let of_large = short();
    each_is_right(&bed, &names, &[]);
    assert!(of_large > 0 && short() > of_large, "{of_large} and {} answers were short", short());
    daemon.end();
}

#[test]
fn throttling_is_counted_and_costs_no_file() {
    let Some(bed) = Bed::new() else { return };
    let names: Vec<String> = (0..60).map(|number| format!("{number}")).collect();
    (0..).zip(&names).for_each(|(number, name)| bed.put(name, &noise(1_000, number)));
    let daemon = bed.mount(&["--fill", "off"]);
    let throttle = emulate::Throttle::Refuse { retry_after: None };
    bed.set_limits(&emulate::Limits { requests_per_second: Some(40), throttle, ..emulate::Limits::default() });
    each_is_right(&bed, &names, &[]);
    let status = bed.status();
    let refused = bed.counters().of(emulate::Operation::Get).throttled;
    assert!(refused > 0, "the limit was meant to bind");
    assert_eq!(status["store"]["throttled"], refused, "{status}");
    daemon.end();
}

#[test]
fn a_folder_that_hangs_keeps_nobody_from_the_node() {
    let Some(bed) = Bed::new() else { return };
    bed.put("file", &noise(3 * MIB, 1));
    let mount = bed.mount(&[]);
    fs::create_dir(bed.path("hung")).expect("a folder");
    let Some(hung) = Hung::over(bed.path("hung")) else { return };
    let url = format!("file://{}", hung.0.display());
    // As many as a node has threads that serve others.
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get()).saturating_mul(2).clamp(4, 32);
    std::thread::scope(|scope| {
        let mounting = |number| {
            let at = format!("mnt{number}");
            fs::create_dir(bed.path(&at)).expect("a folder");
            let mut mounting = bed.mounting(&url, &at, &[]);
            scope.spawn(move || finished(&mut mounting))
        };
        let mounting: Vec<_> = (0..threads).map(mounting).collect();
        assert_eq!(bed.nodes().len(), 1, "it answers");
        for done in mounting {
            support::refused(&done.join().expect("it ends"), &["did not answer", "hung"]);
        }
    });
    compare(&bed.path("mnt"), &bed.path("data"));
    hung.uncover();
    fs::write(hung.0.join("file"), b"of another file system").expect("a file");
    fs::create_dir(bed.path("after")).expect("a folder");
    let after = finished(&mut bed.mounting(&url, "after", &["--detach"]));
    assert!(after.status.success(), "{}", support::text(&after));
    assert_eq!(fs::read(bed.path("after/file")).expect("it is read"), b"of another file system");
    let unmounted = bed.run(["umount".as_ref(), bed.path("after").as_os_str()]);
    assert!(unmounted.status.success(), "{}", support::text(&unmounted));
    drop(hung);
    mount.end();
}
