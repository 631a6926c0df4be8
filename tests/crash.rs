//! A daemon that is killed in the middle of its work, and a cache that was damaged while nobody looked: what is
//! read afterwards is right, and what was whole is not fetched again.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::content::{self, Chance, compare, noise, same};
use support::{BUCKET, Bed, LONG, eventually};

const MIB: usize = 1 << 20;

/// Times that the daemon is killed.
const KILLS: usize = 12;

/// The longest life of a daemon that is going to be killed. The whole set takes twice as long to fetch.
const LIFE_MS: u64 = 500;

fn fill(bed: &Bed, small: u64, large: u64, large_bytes: usize) {
    for number in 0..small {
        bed.put(&format!("small/{number}"), &noise(60_000 + number as usize * 1_000, number));
    }
    for number in 0..large {
        bed.put(&format!("large/{number}"), &noise(large_bytes + number as usize * 70_001, 1_000 + number));
    }
}

/// Read in a random order until an error comes, comparing whatever comes; the bytes that were compared.
fn read_until_it_dies(bed: &Bed, mut chance: Chance) -> u64 {
    let mut names: Vec<PathBuf> = content::files(&bed.path("data")).into_iter().collect();
    let mut read = 0;
    loop {
        chance.shuffle(&mut names);
        for name in &names {
            let expected = fs::read(bed.path("data").join(name)).expect("the original");
            let Ok(file) = fs::File::open(bed.path("mnt").join(name)) else { return read };
            let (mut at, mut part) = (0, vec![0; 300_000]);
            while at < expected.len() {
                let Ok(count) = file.read_at(&mut part, at as u64) else { return read };
                same(&part[..count], &expected[at..at + count], &format!("{} from {at}", name.display()));
                assert!(count > 0, "{} ended at {at}", name.display());
                (at, read) = (at + count, read + count as u64);
            }
        }
    }
}

#[test]
fn a_daemon_killed_again_and_again_never_leaves_a_wrong_byte() {
    let Some(bed) = Bed::new() else { return };
    fill(&bed, 60, 6, 8 * MIB);
    bed.put("kept/small", &noise(123_456, 1));
    bed.put("kept/large", &noise(5 * MIB + 1, 2));
    let mut chance = Chance::printed("kills");
    let daemon = bed.mount(&["--fill", "off"]);
    let loaded = bed.run(["load".as_ref(), bed.path("mnt/kept").as_os_str()]);
    assert!(loaded.status.success(), "{}", support::text(&loaded));
    daemon.kill_and_detach();
    bed.set_bandwidth(60_000_000);
    for _ in 0..KILLS {
        let daemon = bed.mount(&["--fill", "off"]);
        let read = AtomicU64::new(0);
        let life = Duration::from_millis(10 + chance.below(LIFE_MS));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let chance = Chance::new(chance.next());
                scope.spawn(|| read.fetch_add(read_until_it_dies(&bed, chance), Ordering::Relaxed));
            }
            std::thread::sleep(life);
            daemon.kill_and_detach();
        });
    }
    bed.set_limits(&emulate::Limits::default());
    let gets = bed.gets();
    let daemon = bed.mount(&["--fill", "off"]);
    compare(&bed.path("mnt/kept"), &bed.path("data/kept"));
    assert_eq!(bed.gets(), gets, "what was whole before the first kill was fetched again");
    compare(&bed.path("mnt"), &bed.path("data"));
    whole_files(&bed);
    let gets = bed.gets();
    daemon.kill_and_detach();
    let daemon = bed.mount(&["--fill", "off"]);
    compare(&bed.path("mnt"), &bed.path("data"));
    assert_eq!(bed.gets(), gets, "a complete file was fetched again");
    let objects = content::files(&bed.path("data")).len();
    eventually("strays are swept", || content::files(&bed.path("cache/blocks/objects")).len() == objects);
    daemon.end();
}

#[test]
fn the_mount_of_a_killed_daemon_is_replaced_at_the_next_start() {
    let Some(bed) = Bed::new() else { return };
    bed.put("folder/file", &noise(100_000, 1));
    let first = bed.mount(&[]);
    // The kernel then knows the attributes of the mount point, and answers for a daemon that is gone.
    compare(&bed.path("mnt"), &bed.path("data"));
    first.kill();
    let second = bed.mount(&[]);
    assert!(second.said().contains("removing the mount that a dead daemon left"), "{}", second.said());
    compare(&bed.path("mnt"), &bed.path("data"));
    second.kill();
    let unmounted = bed.run(["umount".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(unmounted.status.success(), "{}", support::text(&unmounted));
    assert_eq!(fs::read_dir(bed.path("mnt")).expect("the folder below").count(), 0);
}

#[test]
fn the_socket_of_a_killed_daemon_is_removed_by_whoever_finds_it() {
    let Some(bed) = Bed::new() else { return };
    bed.put("folder/file", &noise(1_000, 1));
    let sockets = || {
        let names = fs::read_dir(bed.path("run/stoker")).expect("the folder of sockets").flatten();
        names.filter(|name| name.path().extension().is_some_and(|end| end == "sock")).count()
    };
    let other = bed.path("other").display().to_string();
    for words in [&["status"][..], &["status", "--json"], &["umount"], &["refresh"]] {
        let lives = bed.mount_at(&format!("s3://{BUCKET}"), "lives", &["--cache", &other]);
        bed.mount(&[]).kill_and_detach();
        assert_eq!(sockets(), 2);
        let mut command = bed.stoker(words);
        if words.len() == 1 && words[0] != "status" {
            command.arg(bed.path("mnt"));
        }
        let done = support::finished(&mut command);
        assert_eq!(sockets(), 1, "{words:?}: {}", support::text(&done));
        assert_eq!(bed.nodes().len(), 1);
        lives.end();
        assert_eq!(sockets(), 0);
    }
}

/// Wait until everything that was read is whole on the disk: the last block is kept after its reader has it.
fn whole_files(bed: &Bed) {
    let size: u64 = content::files(&bed.path("data"))
        .iter()
        .map(|name| fs::metadata(bed.path("data").join(name)).expect("a file").len())
        .sum();
    eventually("all is on the disk", || bed.status()["limits"]["disk_used"] == size);
    let loaded = bed.run(["load".as_ref(), bed.path("mnt").as_os_str()]);
    assert!(loaded.status.success(), "{}", support::text(&loaded));
}

/// A way to damage a cache folder.
type Damage = (&'static str, fn(&Path, &mut Chance));

/// What is done to the files of objects. They are read once after a boot, and always where the daemon serves.
const OF_FILES: [Damage; 7] = [
    ("nothing", |_, _| ()),
    ("a bit of each file flipped", |cache, chance| each_file(cache, |bytes| flip(bytes, chance))),
    ("each file cut", |cache, chance| {
        each_file(cache, |bytes| bytes.truncate(chance.below(bytes.len() as u64) as usize))
    }),
    ("each file longer", |cache, _| each_file(cache, |bytes| bytes.push(0))),
    ("each file garbage", |cache, chance| each_file(cache, |bytes| *bytes = noise(bytes.len(), chance.next()))),
    ("each file zeros", |cache, _| each_file(cache, |bytes| bytes.fill(0))),
    ("each file gone", |cache, _| objects(cache).iter().for_each(|path| fs::remove_file(path).expect("unlinked"))),
];

/// What is done to the index and the snapshot of names, which carry their own checksums.
const OF_INDEX: [Damage; 6] = [
    ("a bit of the index flipped", |cache, chance| change(&cache.join("blocks/index"), |bytes| flip(bytes, chance))),
    ("the index cut", |cache, chance| {
        change(&cache.join("blocks/index"), |bytes| bytes.truncate(12 + chance.below(bytes.len() as u64 - 12) as usize))
    }),
    ("the index garbage", |cache, chance| {
        change(&cache.join("blocks/index"), |bytes| {
            let garbage = noise(bytes.len() - 12, chance.next());
            bytes[12..].copy_from_slice(&garbage);
        })
    }),
    ("the index empty", |cache, _| change(&cache.join("blocks/index"), Vec::clear)),
    ("the index twice", |cache, _| change(&cache.join("blocks/index"), |bytes| bytes.extend_from_within(12..))),
    ("a bit of the snapshot flipped", |cache, chance| {
        let snapshots = content::files(&cache.join("manifests"));
        snapshots.iter().for_each(|name| change(&cache.join("manifests").join(name), |bytes| flip(bytes, chance)));
    }),
];

fn objects(cache: &Path) -> Vec<PathBuf> {
    let folder = cache.join("blocks/objects");
    content::files(&folder).into_iter().map(|name| folder.join(name)).collect()
}

fn each_file(cache: &Path, mut how: impl FnMut(&mut Vec<u8>)) {
    objects(cache).iter().for_each(|path| change(path, &mut how));
}

fn change(path: &Path, how: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("a file of the cache");
    how(&mut bytes);
    let mode = fs::metadata(path).expect("a file of the cache").permissions();
    fs::remove_file(path).and_then(|()| fs::write(path, &bytes)).expect("a damaged file");
    fs::set_permissions(path, mode).expect("a damaged file");
}

fn flip(bytes: &mut [u8], chance: &mut Chance) {
    let at = chance.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << chance.below(8);
}

/// Let the index say that it was written before the last boot.
fn forge_boot(cache: &Path) {
    change(&cache.join("blocks/index"), |bytes| {
        let mut at = 12;
        while at + 12 <= bytes.len() {
            let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
            let payload = &mut bytes[at + 12..at + 12 + length];
            if payload[0] == 1 {
                payload[1..].fill(0x77);
                let sum = block::crc64::of(payload);
                bytes[at + 4..at + 12].copy_from_slice(&sum.to_le_bytes());
            }
            at += 12 + length;
        }
        assert_eq!(at, bytes.len(), "the index ends with a whole record");
    });
}

/// A bed whose cache holds complete files and one that was being filled when the daemon was killed.
fn killed_while_filling() -> Option<Bed> {
    let bed = Bed::new()?;
    fill(&bed, 12, 2, 2 * MIB + 5);
    bed.put("same size/a", &noise(50_000, 77));
    bed.put("same size/b", &noise(50_000, 78));
    bed.put("part", &noise(9 * MIB, 99));
    let daemon = bed.mount(&["--fill", "off"]);
    let mut command = bed.stoker(["load", "--exclude", "part"]);
    let loaded = support::finished(command.arg(bed.path("mnt")));
    assert!(loaded.status.success(), "{}", support::text(&loaded));
    // Four mebibytes are left when the daemon is killed, which take two seconds.
    bed.set_bandwidth(2_000_000);
    let before = bed.counters().bytes_out();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(fs::read(bed.mounted("part"))));
        let began = Instant::now();
        while bed.counters().bytes_out() < before + 5 * MIB as u64 && began.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon.kill_and_detach();
    });
    bed.set_limits(&emulate::Limits::default());
    let copied = std::process::Command::new("cp").arg("-a").args([bed.path("cache"), bed.path("pristine")]).status();
    assert!(copied.expect("cp runs").success());
    Some(bed)
}

/// Mount the pristine cache after a damage, and compare every byte; the number of objects fetched.
fn survives(bed: &Bed, damage: &Damage, boot: bool, chance: &mut Chance) -> (u64, String) {
    let _ = fs::remove_dir_all(bed.path("cache"));
    let copied = std::process::Command::new("cp").arg("-a").args([bed.path("pristine"), bed.path("cache")]).status();
    assert!(copied.expect("cp runs").success());
    if boot {
        forge_boot(&bed.path("cache"));
    }
    (damage.1)(&bed.path("cache"), chance);
    eprintln!("{}, {} boot", damage.0, if boot { "another" } else { "the same" });
    let _ = fs::remove_file(bed.path("mnt.log"));
    let gets = bed.gets();
    let daemon = bed.mount(&["--fill", "off"]);
    compare(&bed.path("mnt"), &bed.path("data"));
    let said = daemon.said();
    daemon.end();
    (bed.gets() - gets, said)
}

#[test]
fn damaged_files_of_an_earlier_boot_are_fetched_again_and_whole_ones_believed() {
    let Some(bed) = killed_while_filling() else { return };
    let mut chance = Chance::printed("damage");
    let objects = content::files(&bed.path("data")).len() as u64;
    for damage in &OF_FILES {
        let (gets, said) = survives(&bed, damage, true, &mut chance);
        match damage.0 {
            "nothing" => assert!(gets <= 2, "{gets} requests for the one object that was not whole"),
            _ => assert!(
                gets >= objects && said.contains("dropped a cache file"),
                "{}: {gets} requests\n{said}",
                damage.0
            ),
        }
    }
    let swapped: Damage = ("two files swapped", |cache, _| {
        let pair: Vec<PathBuf> = objects_of(cache, 50_000);
        let (one, other) = (fs::read(&pair[0]).expect("a file"), fs::read(&pair[1]).expect("a file"));
        change(&pair[0], |bytes| *bytes = other);
        change(&pair[1], |bytes| *bytes = one);
    });
    let (gets, _) = survives(&bed, &swapped, true, &mut chance);
    assert!(gets >= 2, "both were fetched again");
}

fn objects_of(cache: &Path, size: u64) -> Vec<PathBuf> {
    objects(cache).into_iter().filter(|path| fs::metadata(path).is_ok_and(|found| found.len() == size)).collect()
}

/// Positions of the blocks that a half-filled file has, each 256 KiB: where it has the bytes of the whole.
fn filled(part: &[u8], whole: &[u8]) -> Vec<usize> {
    let starts = (0..whole.len()).step_by(256 << 10);
    starts.filter(|start| part[*start..*start + (256 << 10)] == whole[*start..*start + (256 << 10)]).collect()
}

#[test]
fn what_the_daemon_serves_from_a_half_filled_file_is_checked() {
    let Some(bed) = killed_while_filling() else { return };
    let part = objects_of(&bed.path("pristine"), 9 * MIB as u64).remove(0);
    let (bytes, whole) = (fs::read(&part).expect("the file being filled"), noise(9 * MIB, 99));
    let filled = filled(&bytes, &whole);
    assert!((8..36).contains(&filled.len()), "{} blocks of 36 are there", filled.len());
    let missing = whole.len() as u64 - filled.len() as u64 * (256 << 10);
    // The damage is done to the file that was being filled alone; what comes from the store, and what is said.
    let after = |damage: &dyn Fn(&mut Vec<u8>)| {
        change(&part, |bytes| damage(bytes));
        let before = bed.counters().bytes_out();
        let (_, said) = survives(&bed, &OF_FILES[0], false, &mut Chance::new(1));
        change(&part, |now| now.clone_from(&bytes));
        (bed.counters().bytes_out() - before, said.contains("fetching a block again"))
    };
    assert_eq!(after(&|_| ()), (missing, false), "what was there is not fetched again");
    for at in [filled[0], filled[filled.len() / 2] + 100_000, filled[filled.len() - 1] + (256 << 10) - 1] {
        let (sent, noticed) = after(&|bytes| bytes[at] ^= 4);
        assert!(sent > missing && noticed, "a bit at {at}: {sent} bytes sent, of which {missing} were missing");
    }
    for damage in OF_FILES.iter().filter(|damage| !["nothing", "a bit of each file flipped"].contains(&damage.0)) {
        let (sent, _) = after(&|bytes| harm(bytes, damage));
        eprintln!("{}: {sent} of {missing} missing", damage.0);
        assert!(sent > missing, "{}: {sent} bytes sent, of which {missing} were missing", damage.0);
    }
}

/// Do to one file what is done to each of a cache.
fn harm(bytes: &mut Vec<u8>, damage: &Damage) {
    let aside = tempfile::tempdir().expect("a folder");
    let path = aside.path().join("blocks/objects/0/part");
    fs::create_dir_all(path.parent().expect("a folder")).and_then(|()| fs::write(&path, &bytes)).expect("a copy");
    (damage.1)(aside.path(), &mut Chance::new(bytes.len() as u64));
    *bytes = fs::read(&path).unwrap_or_default();
}

#[test]
fn a_damaged_index_costs_requests_and_never_a_wrong_byte() {
    let Some(bed) = killed_while_filling() else { return };
    let mut chance = Chance::printed("damage");
    for round in 0..3 {
        for damage in &OF_INDEX {
            survives(&bed, damage, round == 1, &mut chance);
        }
    }
}

#[test]
fn a_cache_of_an_unknown_format_is_discarded_with_a_warning() {
    let Some(bed) = killed_while_filling() else { return };
    let newer: Damage = ("a newer format", |cache, _| change(&cache.join("blocks/index"), |bytes| bytes[8] += 1));
    let objects = content::files(&bed.path("data")).len() as u64;
    let (gets, said) = survives(&bed, &newer, false, &mut Chance::new(1));
    assert!(gets >= objects, "{gets} requests");
    assert!(said.contains("another version of Stoker"), "{said}");
}
