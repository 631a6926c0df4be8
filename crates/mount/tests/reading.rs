//! Content through a real kernel mount: every way in which a file can be served.

mod common;

use common::{Body, Mounted, Tree, eventually, failing, noise};
use node::namespace::ROOT;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stoker_mount::Passthrough;

/// Several reads of the largest size, and an odd end.
const LARGE: usize = 5_000_001;

/// Maps the file shared, and prints the sum of what it sees.
const MAP: &str = "import mmap, sys\n\
    with open(sys.argv[1], 'rb') as f:\n\
    \x20   with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m: print(len(m), sum(m[::4097]))";

fn mapped(content: &[u8]) -> String {
    format!("{} {}", content.len(), content.iter().step_by(4097).map(|&byte| u64::from(byte)).sum::<u64>())
}

#[test]
fn served_files_read_right_whole_in_part_and_mapped() {
    let tree = Tree::new();
    let content = noise(LARGE, 3);
    tree.file(ROOT, "ready", Body::Bytes(content.clone()));
    tree.file(ROOT, "later", Body::Later(content.clone()));
    tree.file(ROOT, "small", Body::Later(content.slice(..1000)));
    tree.file(ROOT, "empty", Body::Bytes(noise(0, 1)));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    for name in ["ready", "later"] {
        assert!(fs::read(mounted.path(name)).unwrap() == content, "{name}");
        let file = File::open(mounted.path(name)).unwrap();
        let mut part = vec![0; 300_000];
        file.read_exact_at(&mut part, 4_099).unwrap();
        assert!(part == content[4_099..304_099], "{name}");
        assert_eq!(file.read_at(&mut part, LARGE as u64).unwrap(), 0);
        assert_eq!(common::python(MAP, &mounted.path(name)), mapped(&content), "{name}");
    }
    assert_eq!(fs::read(mounted.path("small")).unwrap(), content[..1000]);
    assert_eq!(fs::read(mounted.path("empty")).unwrap(), b"");
    let counts = mounted.session.counts();
    assert_eq!((counts.opens_through, counts.errors), (0, 0));
    assert!(counts.bytes_served >= 2 * LARGE as u64);
}

#[test]
fn a_complete_file_passes_through_and_opens_again_without_asking() {
    let tree = Tree::new();
    let content = noise(LARGE, 4);
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let node = tree.file(ROOT, "complete", Body::Backed(mounted.local(&content), content.clone()));
    if !mounted.passes_through() {
        return;
    }
    for _ in 0..3 {
        assert!(fs::read(mounted.path("complete")).unwrap() == content);
        assert_eq!(common::python(MAP, &mounted.path("complete")), mapped(&content));
    }
    let counts = mounted.session.counts();
    assert_eq!((counts.opens_through, counts.opens_served, counts.reads), (6, 0, 0));
    assert_eq!(tree.opens.load(Ordering::Relaxed), 1, "the backing file was kept");
    mounted.session.forget_content(node);
    assert!(fs::read(mounted.path("complete")).unwrap() == content);
    assert_eq!(tree.opens.load(Ordering::Relaxed), 2, "and let go when its owner said so");
}

/// Prints the names of the files of a folder whose first page is in memory. Reading it, in whatever way, would bring it.
const RESIDENT: &str = "import ctypes, os, sys\n\
    libc = ctypes.CDLL(None)\n\
    libc.mmap.restype = ctypes.c_void_p\n\
    for entry in os.scandir(sys.argv[1]):\n\
    \x20   if not entry.is_file(): continue\n\
    \x20   file, found = os.open(entry.path, os.O_RDONLY), ctypes.c_ubyte(0)\n\
    \x20   at = ctypes.c_void_p(libc.mmap(None, 4096, 1, 1, file, ctypes.c_long(0)))\n\
    \x20   assert libc.mincore(at, ctypes.c_size_t(4096), ctypes.byref(found)) == 0\n\
    \x20   if found.value & 1: print(entry.name)\n\
    \x20   os.close(file)";

#[test]
fn a_name_that_is_looked_up_again_has_its_file_read_ahead_and_a_walk_over_all_a_few() {
    let tree = Tree::new();
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    if !mounted.passes_through() {
        return;
    }
    let files: Vec<_> = (0..100).map(|n| (mounted.local(&noise(20_000, n)), noise(20_000, n))).collect();
    for (n, (file, content)) in files.iter().enumerate() {
        tree.file(ROOT, &n.to_string(), Body::Backed(file.clone(), content.clone()));
        assert!(fs::read(mounted.path(&n.to_string())).unwrap() == *content);
    }
    let evict = || {
        for (n, (file, _)) in files.iter().enumerate() {
            file.sync_all().unwrap();
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            mounted.session.invalidate(&vec![(ROOT, n.to_string().into_bytes())]);
        }
    };
    let stat = |n: usize| assert_eq!(fs::metadata(mounted.path(&n.to_string())).unwrap().len(), 20_000);
    let in_memory = || common::python(RESIDENT, mounted.local_folder()).lines().count();
    evict();
    if in_memory() > 0 {
        return eprintln!("SKIPPED: the scratch folder lies in memory");
    }
    stat(7);
    eventually("it is read", || in_memory() == 1);
    assert!(fs::read(mounted.path("7")).unwrap() == files[7].1);
    evict();
    (0..100).for_each(stat);
    eventually("the first of a walk are read", || in_memory() == 64);
    evict();
    (0..100).for_each(stat);
    assert_eq!(in_memory(), 0, "the walk before opened none of them");
    assert!(fs::read(mounted.path("99")).unwrap() == files[99].1);
    evict();
    stat(50);
    eventually("one was opened, so one is read", || in_memory() == 1);
}

#[test]
fn a_file_completed_while_open_passes_through_only_after_its_last_close() {
    let tree = Tree::new();
    let content = noise(LARGE, 5);
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let node = tree.file(ROOT, "file", Body::Later(content.clone()));
    let first = File::open(mounted.path("file")).unwrap();
    let mut part = vec![0; 10_000];
    first.read_exact_at(&mut part, 5).unwrap();
    tree.complete(node, Body::Backed(mounted.local(&content), content.clone()));
    // Once with a shared map on the first, which makes the kernel take the inode for a cached one.
    assert_eq!(common::python(MAP, &mounted.path("file")), mapped(&content));
    let second = File::open(mounted.path("file")).unwrap();
    second.read_exact_at(&mut part, 5).unwrap();
    assert!(part == content[5..10_005]);
    assert_eq!(mounted.session.counts().opens_through, 0);
    drop((first, second));
    if mounted.session.passthrough() == Passthrough::On {
        eventually("it passes through", || {
            assert!(fs::read(mounted.path("file")).unwrap() == content);
            mounted.session.counts().opens_through > 0
        });
    }
}

#[test]
fn without_passthrough_complete_files_are_served_and_the_reason_is_shown() {
    let tree = Tree::new();
    let content = noise(LARGE, 6);
    let Some(mounted) = Mounted::new(&tree, |options| options.passthrough = false) else { return };
    tree.file(ROOT, "complete", Body::Backed(mounted.local(&content), content.clone()));
    assert!(matches!(mounted.session.passthrough(), Passthrough::Off { .. }));
    assert!(fs::read(mounted.path("complete")).unwrap() == content);
    let reads = mounted.session.counts().reads;
    assert!(fs::read(mounted.path("complete")).unwrap() == content);
    assert_eq!(mounted.session.counts().reads, reads, "the second time it comes from the page cache");
}

#[test]
fn many_small_reads_move_a_file_to_the_page_cache_at_its_next_open() {
    let tree = Tree::new();
    let content = noise(LARGE, 7);
    tree.file(ROOT, "file", Body::Bytes(content.clone()));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let read_twice_in_steps = || {
        let file = File::open(mounted.path("file")).unwrap();
        let before = mounted.session.counts().reads;
        let mut part = [0; 4096];
        for index in (0..200).chain(0..200) {
            file.read_exact_at(&mut part, index * 4096).unwrap();
            assert!(part == content[index as usize * 4096..][..4096]);
        }
        mounted.session.counts().reads - before
    };
    assert_eq!(read_twice_in_steps(), 400, "past the page cache each read is a request");
    eventually("readahead takes over", || read_twice_in_steps() < 50);
}

#[test]
fn an_immutable_mount_never_opens_and_reads_each_page_once() {
    let tree = Tree::new();
    let content = noise(LARGE, 8);
    let Some(mounted) = Mounted::new(&tree, |options| options.immutable = true) else { return };
    tree.file(ROOT, "large", Body::Later(content.clone()));
    for index in 0..50 {
        tree.file(ROOT, &format!("{index}"), Body::Bytes(content.slice(index..index + 20_000)));
    }
    for round in 0..3 {
        for index in 0..50 {
            assert!(fs::read(mounted.path(&index.to_string())).unwrap() == content[index..index + 20_000]);
        }
        assert!(fs::read(mounted.path("large")).unwrap() == content);
        assert_eq!(common::python(MAP, &mounted.path("large")), mapped(&content));
        let counts = mounted.session.counts();
        assert_eq!(counts.opens_through + counts.opens_served, 0);
        assert!(counts.reads < 200, "{} reads after round {round}", counts.reads);
    }
    assert!(tree.opens.load(Ordering::Relaxed) < 70);
}

#[test]
fn errors_reach_the_reader_as_their_errno() {
    let tree = Tree::new();
    tree.file(ROOT, "changed", Body::Fails(block::Error::changed("it changed", "memory:test")));
    tree.file(ROOT, "denied", Body::Fails(block::Error::denied("no key", "memory:test")));
    tree.file(ROOT, "down", Body::FailsAtRead(failing("the store is down")));
    tree.file(ROOT, "panics", Body::Panics);
    tree.file(ROOT, "panics-later", Body::PanicsLater);
    tree.file(ROOT, "short", Body::Short(10));
    tree.file(ROOT, "short-and-large", Body::Short(LARGE as u64));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let errno = |name: &str| fs::read(mounted.path(name)).unwrap_err().raw_os_error();
    assert_eq!(errno("changed"), Some(116));
    assert_eq!(fs::read(mounted.path("denied")).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(errno("down"), Some(5));
    for name in ["panics", "panics-later", "short", "short-and-large"] {
        assert_eq!(errno(name), Some(5), "{name}");
    }
    assert!(mounted.session.counts().errors >= 3);
}

#[test]
fn a_runtime_that_ended_leaves_no_reader_hanging() {
    let tree = Tree::new();
    tree.file(ROOT, "hangs", Body::HangsAtRead(LARGE as u64));
    tree.file(ROOT, "later", Body::Later(noise(10, 1)));
    let Some(mut mounted) = Mounted::new(&tree, |_| ()) else { return };
    let path = mounted.path("hangs");
    let reader = std::thread::spawn(move || fs::read(path).unwrap_err().raw_os_error());
    eventually("the reader waits", || mounted.session.counts().reads > 0);
    mounted.stop_runtime();
    assert_eq!(reader.join().unwrap(), Some(5));
    assert_eq!(fs::read(mounted.path("later")).unwrap_err().raw_os_error(), Some(5));
}

#[test]
fn a_reader_that_waits_can_be_interrupted_and_killed() {
    let tree = Tree::new();
    tree.file(ROOT, "hangs-at-read", Body::HangsAtRead(LARGE as u64));
    tree.file(ROOT, "hangs-at-page", Body::HangsAtRead(1000));
    tree.file(ROOT, "hangs-at-open", Body::HangsAtOpen);
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    for name in ["hangs-at-read", "hangs-at-page", "hangs-at-open"] {
        for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
            // A page of a cached file is waited for by the kernel, which lets only a kill through.
            if name == "hangs-at-page" && signal == rustix::process::Signal::INT {
                continue;
            }
            let before = (mounted.session.counts().reads, tree.opens.load(Ordering::Relaxed));
            // A shell that starts the tests in the background has them, and so their children, ignore SIGINT.
            let mut command = Command::new("env");
            command.args(["--default-signal=INT", "cat"]).arg(mounted.path(name)).stderr(Stdio::null());
            let mut reader = command.spawn().unwrap();
            eventually("the reader waits", || {
                (mounted.session.counts().reads, tree.opens.load(Ordering::Relaxed)) != before
            });
            std::thread::sleep(Duration::from_millis(50));
            let start = Instant::now();
            rustix::process::kill_process(rustix::process::Pid::from_child(&reader), signal).unwrap();
            reader.wait().unwrap();
            assert!(start.elapsed() < Duration::from_secs(20), "{name} held its reader for {:?}", start.elapsed());
        }
    }
    assert!(mounted.session.counts().interrupts >= 4);
    mounted.session.unmount(false).unwrap();
    mounted.session.wait();
}

#[test]
fn many_readers_at_once_all_get_what_they_asked_for() {
    let tree = Tree::new();
    let content = noise(300_000, 9);
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let files = 60;
    for index in 0..files {
        let part = content.slice(index * 1000..index * 1000 + 200_000);
        let body = match index % 3 {
            0 => Body::Backed(mounted.local(&part), part),
            1 => Body::Later(part),
            _ => Body::Bytes(part),
        };
        tree.file(ROOT, &format!("{index}"), body);
    }
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let (mounted, content) = (&mounted, &content);
            scope.spawn(move || {
                for step in 0..300 {
                    let index = (step * 7 + reader * 13) % files;
                    let read = fs::read(mounted.path(&index.to_string())).unwrap();
                    assert!(read == content[index * 1000..index * 1000 + 200_000], "file {index}");
                    if step % 50 == reader {
                        assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), files);
                        mounted.session.invalidate(&vec![(ROOT, index.to_string().into_bytes())]);
                        mounted.session.forget_content(index as u64 + 2);
                    }
                }
            });
        }
    });
    assert_eq!(mounted.session.counts().errors, 0);
}

/// Maps the file shared, and prints its first byte whenever it is asked to.
const WATCH: &str = "import mmap, sys\n\
    with open(sys.argv[1], 'rb') as f:\n\
    \x20   with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:\n\
    \x20       for line in sys.stdin: print(m[0], flush=True)";

#[test]
fn pages_of_wrong_bytes_are_forgotten_also_under_a_map_and_without_opens() {
    use std::io::{BufRead, BufReader, Write};
    for immutable in [false, true] {
        let tree = Tree::new();
        let content = std::sync::Arc::new(std::sync::Mutex::new(bytes::Bytes::from(vec![1; 200_000])));
        let node = tree.file(ROOT, "file", Body::Changing(content.clone()));
        let change = |options: &mut stoker_mount::Options| {
            (options.passthrough, options.immutable) = (false, immutable);
        };
        let Some(mounted) = Mounted::new(&tree, change) else { return };
        let mut watcher = Command::new("python3");
        let watcher = watcher.arg("-c").arg(WATCH).arg(mounted.path("file"));
        let mut watcher = watcher.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut ask, answers) = (watcher.stdin.take().unwrap(), BufReader::new(watcher.stdout.take().unwrap()));
        let answers = std::cell::RefCell::new(answers.lines());
        let mut sees = || {
            writeln!(ask).unwrap();
            answers.borrow_mut().next().unwrap().unwrap()
        };
        assert_eq!(sees(), "1");
        *content.lock().unwrap() = bytes::Bytes::from(vec![2; 200_000]);
        assert_eq!(sees(), "1", "nobody has said that it was wrong");
        mounted.session.forget_content(node);
        let start = Instant::now();
        while sees() != "2" {
            assert!(start.elapsed() < Duration::from_secs(20), "the wrong page is still mapped");
        }
        drop(ask);
        watcher.wait().unwrap();
        assert!(fs::read(mounted.path("file")).unwrap() == *content.lock().unwrap());
    }
}

#[test]
fn the_kernel_is_asked_to_forget_no_page_that_somebody_waits_for() {
    let tree = Tree::new();
    let node = tree.file(ROOT, "file", Body::HangsAtRead(1000));
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    let mut reader = Command::new("cat").arg(mounted.path("file")).stderr(Stdio::null()).spawn().unwrap();
    eventually("the reader waits", || mounted.session.counts().reads > 0);
    // The kernel would not come back before the page is there, and neither would an unmount.
    mounted.session.forget_content(node);
    std::thread::sleep(Duration::from_millis(50));
    reader.kill().unwrap();
    reader.wait().unwrap();
    mounted.session.unmount(false).unwrap();
    mounted.session.wait();
}

#[test]
fn opens_through_kept_backing_files_are_told_afterwards_and_at_the_end() {
    let tree = Tree::new();
    let content = noise(LARGE, 4);
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    if !mounted.passes_through() {
        return;
    }
    let node = tree.file(ROOT, "complete", Body::Backed(mounted.local(&content), content.clone()));
    let reported = || tree.used.lock().unwrap().iter().map(|used| used.node).collect::<Vec<_>>();
    drop(File::open(mounted.path("complete")).unwrap());
    assert_eq!(tree.opens.load(Ordering::Relaxed), 1);
    eventually("the second open is reported", || {
        if reported().is_empty() {
            drop(File::open(mounted.path("complete")).unwrap());
        }
        !reported().is_empty()
    });
    assert_eq!((reported()[0], tree.opens.load(Ordering::Relaxed)), (node, 1));
    eventually("what is left is reported", || mounted.session.counts().opens_through > 1);
    let before = reported().len();
    drop(File::open(mounted.path("complete")).unwrap());
    mounted.session.unmount(true).unwrap();
    mounted.session.wait();
    assert!(reported().len() > before, "the last one is reported at the end at the latest");
    assert!(reported().iter().all(|&reported| reported == node));
}

#[test]
fn opens_through_are_told_in_their_order_with_their_thread_and_before_the_next_open_that_asks() {
    let tree = Tree::new();
    let content = noise(LARGE, 4);
    let Some(mounted) = Mounted::new(&tree, |_| ()) else { return };
    if !mounted.passes_through() {
        return;
    }
    let names: Vec<String> = (0..40).map(|number| format!("kept {number}")).collect();
    let body = || Body::Backed(mounted.local(&content), content.clone());
    let kept: Vec<u64> = names.iter().map(|name| tree.file(ROOT, name, body())).collect();
    let other = tree.file(ROOT, "other", Body::Bytes(noise(10, 1)));
    let open = |name: &str| drop(File::open(mounted.path(name)).unwrap());
    names.iter().for_each(|name| open(name));
    names.iter().rev().for_each(|name| open(name));
    open("other");
    let told = tree.used.lock().unwrap().clone();
    assert_eq!(told.iter().map(|used| used.node).collect::<Vec<_>>(), kept.iter().rev().copied().collect::<Vec<_>>());
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    assert!(told.iter().all(|used| used.is_open && used.thread == thread), "{told:?}");
    assert_eq!(tree.asked.lock().unwrap().last(), Some(&(names.len(), other)));
}

#[test]
fn reads_of_an_immutable_mount_are_told_as_uses() {
    let tree = Tree::new();
    let node = tree.file(ROOT, "file", Body::Bytes(noise(LARGE, 3)));
    let Some(mounted) = Mounted::new(&tree, |options| options.immutable = true) else { return };
    assert!(fs::read(mounted.path("file")).unwrap() == noise(LARGE, 3));
    eventually("it is reported that it was read on", || {
        tree.used.lock().unwrap().iter().any(|used| used.node == node && !used.is_open)
    });
}
