//! A mount against the folder that it came from, byte for byte: random names and sizes, random operations of
//! several threads, faults of the store, remounts, a dropped page cache; and the memory limit under streams and jumps.

mod support;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::confines::most_memory;
use support::content::{self, Chance, compare, noise, same};
use support::{Bed, Daemon, drop_page_cache};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Threads that read at the same time.
const READERS: usize = 6;

/// Operations of each reader, in each phase.
const OPERATIONS: usize = 60;

/// What goes wrong with any file: nothing that a reader could not be saved from.
const FAULTS: &str = "truncate=0.05,reset=0.03,slowdown=0.02,internal-error=0.03";

#[derive(Clone, Debug)]
struct Model {
    files: Vec<(String, usize)>,
    seed: u64,
}

/// Names that other systems stumble over. Those that Stoker spells in another way are the manifest's own test.
fn name() -> impl Strategy<Value = String> {
    let odd = [
        "käse 100%",
        "%20",
        " leading and trailing ",
        "日本語",
        "🔥.jpg",
        "a+b=c&d?e#f",
        "quote'\"",
        "back\\slash",
        ".hidden",
        "-rf",
        "tab\there",
        "new\nline",
        "e\u{301}",
    ];
    prop_oneof![3 => "[a-z]{1,8}\\.(bin|jpg)", 2 => prop::sample::select(odd.to_vec()).prop_map(String::from), 1 => "[a-z]{200}"]
}

/// Sizes around the edges of checksums (64 KiB) and small objects (1 MiB), empty, and a few blocks.
fn size() -> impl Strategy<Value = usize> {
    let small = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB - 1, MIB];
    let large = [MIB + 1, MIB + 256 * KIB, MIB + 257 * KIB, 2 * MIB - 1, 2 * MIB, 3 * MIB + 65 * KIB];
    prop_oneof![3 => prop::sample::select([&small[..], &large].concat()), 4 => 1..300 * KIB]
}

fn model() -> impl Strategy<Value = Model> {
    let path = (prop::collection::vec(name(), 0..3), name()).prop_map(|(folders, name)| {
        folders.into_iter().map(|folder| format!("{folder}.d")).chain([name]).collect::<Vec<_>>().join("/")
    });
    let large = prop::collection::vec(5 * MIB..40 * MIB, 2..4);
    (prop::collection::vec((path, size()), 30..60), large, any::<u64>()).prop_map(|(mut files, large, seed)| {
        files.extend(large.into_iter().enumerate().map(|(number, size)| (format!("large/{number}"), size)));
        Model { files, seed }
    })
}

/// A mount and the folder that it has to equal.
#[derive(Clone)]
struct Pair {
    got: PathBuf,
    expected: PathBuf,
    names: Vec<PathBuf>,
}

impl Pair {
    fn new(got: PathBuf, expected: PathBuf) -> Pair {
        let names = content::files(&expected).into_iter().collect();
        Pair { got, expected, names }
    }

    /// Only the files that are checked whole before anybody sees them.
    fn small(&self) -> Pair {
        let is_small =
            |name: &&PathBuf| fs::metadata(self.expected.join(name)).is_ok_and(|found| found.len() <= MIB as u64);
        Pair { names: self.names.iter().filter(is_small).cloned().collect(), ..self.clone() }
    }

    /// Random operations of several threads.
    fn read(&self, seed: u64) {
        std::thread::scope(|scope| {
            for reader in 0..READERS as u64 {
                scope.spawn(move || {
                    let mut chance = Chance::new(seed ^ reader);
                    for _ in 0..OPERATIONS {
                        self.operation(&mut chance);
                    }
                });
            }
        });
    }

    fn operation(&self, chance: &mut Chance) {
        let name = &self.names[chance.below(self.names.len() as u64) as usize];
        let (got, expected) = (self.got.join(name), self.expected.join(name));
        match chance.below(8) {
            0 => same(&fs::read(&got).expect("a read"), &fs::read(&expected).expect("the original"), &name.display()),
            1 | 2 => pieces(&got, &expected, chance),
            3 => seeks(&got, &expected, chance),
            4 => mapped(&got, &expected, chance),
            5 => listed(got.parent().expect("a folder"), expected.parent().expect("a folder")),
            6 => stated(&got, &expected),
            _ => (0..20).for_each(|_| {
                let first = |path: &Path| {
                    let mut part = [0; 4096];
                    (File::open(path).expect("an open").read_at(&mut part, 0).expect("a read"), part)
                };
                assert_eq!(first(&got), first(&expected), "{}", name.display());
            }),
        }
    }
}

/// Random reads at positions.
fn pieces(got: &Path, expected: &Path, chance: &mut Chance) {
    let (file, original) = (File::open(got).expect("an open"), File::open(expected).expect("the original"));
    let size = original.metadata().expect("the original").len();
    for _ in 0..8 {
        let longest = [10, 5_000, 200_000, 3_000_000][chance.below(4) as usize];
        let (offset, length) = (chance.below(size + 100), 1 + chance.below(longest));
        let read = |file: &File| {
            let mut bytes = Vec::new();
            let mut part = vec![0; length as usize];
            while bytes.len() < length as usize {
                match file.read_at(&mut part[bytes.len()..], offset + bytes.len() as u64).expect("a read") {
                    0 => break,
                    count => bytes.extend_from_slice(&part[bytes.len()..][..count]),
                }
            }
            bytes
        };
        same(&read(&file), &read(&original), &format!("{} from {offset}", got.display()));
    }
}

/// Reads of an open file after seeks from its start, its end and where it is.
fn seeks(got: &Path, expected: &Path, chance: &mut Chance) {
    let (mut file, mut original) = (File::open(got).expect("an open"), File::open(expected).expect("the original"));
    let size = original.metadata().expect("the original").len();
    for _ in 0..8 {
        let to = match chance.below(3) {
            0 => SeekFrom::Start(chance.below(size + 10)),
            1 => SeekFrom::End(-(chance.below(size + 1) as i64)),
            _ => SeekFrom::Current(chance.below(1000) as i64),
        };
        assert_eq!(file.seek(to).expect("a seek"), original.seek(to).expect("a seek"));
        let (mut read, mut due) = (Vec::new(), Vec::new());
        file.by_ref().take(100_000).read_to_end(&mut read).expect("a read");
        original.by_ref().take(100_000).read_to_end(&mut due).expect("a read");
        same(&read, &due, &format!("{} after {to:?}", got.display()));
    }
}

/// A shared map, as numpy and safetensors make it.
fn mapped(got: &Path, expected: &Path, chance: &mut Chance) {
    let (file, original) = (File::open(got).expect("an open"), fs::read(expected).expect("the original"));
    if original.is_empty() {
        return;
    }
    // SAFETY: nobody changes files of this test while they are mapped.
    let map = unsafe { memmap2::MmapOptions::new().map(&file) }.expect("a map");
    drop(file);
    for _ in 0..16 {
        let from = chance.below(original.len() as u64) as usize;
        let until = (from + 50_000).min(original.len());
        same(&map[from..until], &original[from..until], &format!("map of {}", got.display()));
    }
    if chance.below(4) == 0 {
        same(&map, &original, &format!("map of {}", got.display()));
    }
}

fn listed(got: &Path, expected: &Path) {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("a listing").map(|entry| entry.expect("an entry"));
        entries.map(|entry| (entry.file_name(), entry.file_type().expect("a type").is_dir())).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(got), names(expected), "{}", got.display());
}

fn stated(got: &Path, expected: &Path) {
    let (found, due) = (fs::metadata(got).expect("a stat"), fs::metadata(expected).expect("the original"));
    let seconds = |time: &fs::Metadata| time.mtime();
    assert_eq!(
        (found.len(), found.mode() & 0o7777, seconds(&found)),
        (due.len(), 0o444, seconds(&due)),
        "{}",
        got.display()
    );
    assert!(fs::metadata(got.with_file_name("no such name")).is_err());
}

/// Make the files of a model; a name that another file has taken, or made a folder, is left out.
fn make(bed: &Bed, model: &Model) {
    for (number, (name, size)) in model.files.iter().enumerate() {
        let path = bed.data(name);
        let is_free = path.ancestors().skip(1).all(|above| !above.is_file()) && !path.exists();
        if is_free {
            bed.put(name, &noise(*size, model.seed ^ number as u64));
        }
    }
}

/// One model through every way of mounting it.
fn holds(model: &Model) {
    let Some(bed) = Bed::new() else { return };
    make(&bed, model);
    let pair = Pair::new(bed.path("mnt"), bed.path("data"));
    bed.set_faults(&format!("{FAULTS},seed={}", model.seed % 1000));
    // Nothing is to be fetched but what is read: wrong bytes of a large object can't be found in time.
    let daemon = bed.mount(&["--fill", "off"]);
    bed.set_faults(&format!("{FAULTS},wrong-bytes=0.1,seed={}", model.seed % 1000));
    pair.small().read(model.seed);
    bed.set_faults(&format!("{FAULTS},seed={}", model.seed % 1000));
    pair.read(model.seed + 1);
    compare(&pair.got, &pair.expected);
    drop_page_cache();
    pair.read(model.seed + 2);
    daemon.end();
    bed.set_faults("");

    let daemon = bed.mount(&[]);
    drop_page_cache();
    pair.read(model.seed + 3);
    compare(&pair.got, &pair.expected);
    daemon.end();
    let gets = bed.gets();

    let daemon = bed.mount(&["--immutable"]);
    drop_page_cache();
    pair.read(model.seed + 4);
    compare(&pair.got, &pair.expected);
    assert_eq!(bed.gets(), gets, "everything was in the cache");
    daemon.end();

    let daemon = bed.mount_at(&format!("file://{}", bed.path("data").display()), "mnt", &[]);
    pair.read(model.seed + 5);
    compare(&pair.got, &pair.expected);
    daemon.end();
}

#[test]
fn a_mount_equals_its_folder_whatever_is_read_and_however_the_store_fails() {
    let config = Config { cases: 4, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let each = |model| {
        holds(&model);
        Ok(())
    };
    TestRunner::new(config).run(&model(), each).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn an_immutable_mount_without_a_cache_reads_right_under_faults() {
    let Some(bed) = Bed::new() else { return };
    let files = [("a/small", 100 * KIB), ("a/edge", MIB), ("large", 20 * MIB + 1), ("empty", 0)];
    make(&bed, &Model { files: files.map(|(name, size)| (name.to_owned(), size)).to_vec(), seed: 5 });
    let daemon = bed.mount(&["--immutable"]);
    bed.set_faults(FAULTS);
    let pair = Pair::new(bed.path("mnt"), bed.path("data"));
    pair.read(1);
    compare(&pair.got, &pair.expected);
    daemon.end();
}

#[test]
fn a_local_folder_is_read_where_it_lies() {
    let Some(bed) = Bed::new() else { return };
    bed.put("folder/a", &noise(3 * MIB + 5, 1));
    bed.put("b c%20", &noise(10, 2));
    bed.put("empty", b"");
    let daemon = bed.mount_at(bed.path("data").to_str().expect("a path"), "mnt", &[]);
    compare(&bed.path("mnt"), &bed.path("data"));
    let status = bed.status();
    assert_eq!(status["mounts"][0]["local"], true);
    assert_eq!((&status["limits"]["disk_used"], &status["store"]["bytes"]), (&0.into(), &0.into()), "{status}");
    assert!(content::files(&bed.path("cache/blocks/objects")).is_empty(), "no copy of what is local");
    let mount = &status["mounts"][0];
    if mount["passthrough"] == "on" {
        assert_eq!(
            (&mount["opens_passed_through"], &mount["opens_served"], &mount["bytes_served"]),
            (&2.into(), &1.into(), &0.into()),
            "all but the empty one: {mount}"
        );
    } else {
        eprintln!("SKIPPED: no passthrough here: {}", mount["passthrough"]);
    }
    daemon.end();
}

/// Cold large files that are read at the same time.
const STREAMS: u64 = 64;
const STREAM_BYTES: usize = 5 * MIB + 12_345;
const MEMORY: u64 = 64 << 20;

/// While somebody reads, the node stays within its memory; it is looked at before, meanwhile and afterwards.
fn stays_within_memory(bed: &Bed, daemon: &Daemon, read: impl FnOnce()) {
    let status = bed.status();
    assert_eq!((&status["pid"], &status["limits"]["memory_bytes"]), (&daemon.node().into(), &MEMORY.into()));
    let most = most_memory(daemon, read);
    let status = bed.status();
    let used = status["limits"]["memory_used"].as_u64().expect("a number");
    assert!(0 < used && used <= MEMORY, "{status}");
    assert!((MEMORY / 8..=MEMORY).contains(&most), "{} MiB of anonymous memory", most >> 20);
}

#[test]
fn the_memory_limit_holds_under_many_streams() {
    let Some(bed) = Bed::new() else { return };
    for stream in 0..STREAMS {
        bed.put(&format!("{stream}"), &noise(STREAM_BYTES, stream));
    }
    let daemon = bed.mount(&["--memory", "64MiB"]);
    stays_within_memory(&bed, &daemon, || {
        std::thread::scope(|scope| {
            for stream in 0..STREAMS {
                let bed = &bed;
                scope.spawn(move || stream_is_right(&bed.mounted(&stream.to_string()), stream));
            }
        });
    });
    daemon.end();
}

/// Files that are read at random, by so many readers, so often each.
const JUMPED: u64 = 12;
const JUMPED_BYTES: usize = 20 * MIB + 12_345;
const JUMPERS: u64 = 16;
const JUMPS: usize = 400;

#[test]
fn the_memory_limit_holds_under_random_reads_while_the_rest_is_filled() {
    let Some(bed) = Bed::new() else { return };
    for file in 0..JUMPED {
        bed.put(&format!("{file}"), &noise(JUMPED_BYTES, file));
    }
    let daemon = bed.mount(&["--memory", "64MiB", "--fill", "all"]);
    stays_within_memory(&bed, &daemon, || {
        std::thread::scope(|scope| {
            for jumper in 0..JUMPERS {
                let bed = &bed;
                scope.spawn(move || {
                    let mut chance = Chance::new(jumper);
                    for _ in 0..JUMPS {
                        let name = chance.below(JUMPED).to_string();
                        let (got, expected) = (File::open(bed.mounted(&name)), File::open(bed.data(&name)));
                        let at = chance.below(JUMPED_BYTES as u64 - 100_000);
                        let read = |file: std::io::Result<File>| {
                            let mut part = vec![0; 100_000];
                            file.and_then(|file| file.read_exact_at(&mut part, at)).expect("a read");
                            part
                        };
                        same(&read(got), &read(expected), &format!("{name} from {at}"));
                    }
                });
            }
        });
    });
    daemon.end();
}

fn stream_is_right(path: &Path, seed: u64) {
    let expected = noise(STREAM_BYTES, seed);
    let mut file = File::open(path).expect("an open");
    let (mut at, mut part) = (0, vec![0; 256 * KIB]);
    loop {
        let count = file.read(&mut part).expect("a read");
        if count == 0 {
            break;
        }
        same(&part[..count], &expected[at..at + count], &format!("{} from {at}", path.display()));
        at += count;
    }
    assert_eq!(at, STREAM_BYTES);
}

#[test]
fn files_of_a_network_folder_are_kept_as_objects_are_and_a_change_is_never_mixed() {
    let Some(bed) = Bed::new() else { return };
    let put = |name: &str, bytes: usize, seed: u64, hours: u64| {
        bed.put(name, &noise(bytes, seed));
        let then = std::time::SystemTime::now() - Duration::from_secs(hours * 3_600);
        File::options().write(true).open(bed.data(name)).and_then(|file| file.set_modified(then)).expect("its time");
    };
    let files = [("a/small", 1_000), ("a/mib", MIB), ("large", 5 * MIB + 1), ("a/later", 3 * MIB)];
    (0..).zip(files).for_each(|(seed, (name, bytes))| put(name, bytes, seed, 9));
    let below = bed.mount(&["--fill", "off"]);
    // A mount is a file system of FUSE, and these are of the network as far as anybody knows.
    let (url, cache) = (format!("file://{}", bed.path("mnt").display()), bed.path("cache above"));
    let above = bed.mount_at(&url, "above", &["--fill", "off", "--cache", cache.to_str().expect("a path")]);
    let status = || {
        let above = |node: &Value| node["cache"].as_str().is_some_and(|cache| cache.ends_with("above"));
        bed.nodes().into_iter().find(above).expect("the node above")
    };
    for (name, _) in &files[..3] {
        same(&fs::read(bed.path("above").join(name)).expect("a read"), &fs::read(bed.data(name)).expect("it"), name);
    }
    let all = files[..3].iter().map(|(_, bytes)| *bytes as u64).sum::<u64>();
    let (first, used) = (status(), |status: &Value| status["limits"]["disk_used"].as_u64().expect("bytes"));
    assert!(used(&first) >= all, "what was read is kept: {first}");
    // One that is kept, and one that was never read, become others of the same size.
    put("a/small", 1_000, 100, 5);
    put("a/later", 3 * MIB, 101, 5);
    let refresh = |at: &str| assert!(bed.run(["refresh".as_ref(), bed.path(at).as_os_str()]).status.success());
    refresh("mnt");
    same(&fs::read(bed.path("above/a/small")).expect("it is kept"), &noise(1_000, 0), &"as it was listed");
    assert_eq!(status()["store"]["gets"], first["store"]["gets"], "nothing was asked for what is kept");
    let stale = fs::read(bed.path("above/a/later")).expect_err("what was listed is no more");
    assert_eq!(stale.raw_os_error(), Some(libc::ESTALE), "{stale}");
    refresh("above");
    compare(&bed.path("above"), &bed.path("data"));
    above.end();
    below.end();
}
