//! The disk tier against a source that counts and can be made to lie.

mod giving_way;
mod keep;
mod member;
mod places;
mod room;
mod segments;
mod strays;
mod trust;

use super::medium::System;
use super::segment::Residency;
use super::*;
use block::{Address, BLOCK, Fixed, Kind, SMALL, crc64};
use futures_util::StreamExt;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A source that counts blocks and can be made to lie.
#[derive(Default)]
struct Store {
    below: Fixed,
    blocks: AtomicU64,
    sums: AtomicU64,
    checksums: Mutex<HashMap<String, Checksum>>,
}

impl Source for Store {
    fn fetch(&self, run: Run) -> Blocks {
        self.blocks.fetch_add(u64::from(run.blocks.end - run.blocks.start), Relaxed);
        self.below.fetch(run)
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.sums.fetch_add(1, Relaxed);
        match self.checksums.lock().expect("checksums").get(&object.key) {
            Some(checksum) => Box::pin(std::future::ready(Ok(Some(*checksum)))),
            None => self.below.checksum(object, via),
        }
    }
}

const PLENTY: Limits = Limits { bytes: 1 << 30, files: 1 << 20, free_bytes_min: 0, free_files_min: 0 };

fn content(seed: u64, length: u64) -> Vec<u8> {
    (0..length).map(|n| ((n * 131 + n / 251 + seed * 17) % 256) as u8).collect()
}

/// Objects of many shapes: small, at the edges of blocks, large.
fn set() -> (Store, Vec<block::contract::Sample>) {
    let mut store = Store::default();
    let small = [1, 65_535, 65_537, 100_000, BLOCK - 1, BLOCK, BLOCK + 1, SMALL - 1, SMALL];
    let large = [SMALL + 1, 3 * SMALL, SMALL + BLOCK, 20 * SMALL + 12_345];
    let objects = [&small[..], &large].concat().into_iter().enumerate().map(|(n, size)| {
        let bytes = content(n as u64, size);
        (store.below.add(&format!("folder{}/{n}", n % 2), bytes.clone()), bytes)
    });
    let objects = objects.collect();
    (store, objects)
}

fn settings(folder: &Path, limits: Limits, boot: u8) -> Settings {
    let (medium, clock, hold) = (Arc::new(System), crate::waits::clock, Arc::new(|| Ok(Hold::Same)));
    Settings { folder: folder.to_owned(), limits, boot: [boot; 16], keeps: |_| true, medium, clock, hold, first: 1 }
}

/// The one file of the cache that holds the object whole.
fn path(folder: &Path, object: &Object) -> PathBuf {
    let near = Residency { id: object.id(), number: 0 }.path(&folder.join("objects"), object);
    let names = std::fs::read_dir(near.parent().expect("a folder")).expect("it is there").flatten();
    let mut files = names.filter(|file| file.file_name().to_string_lossy().starts_with(&object.id().to_string()));
    let file = files.next().expect("a file").path();
    assert!(files.next().is_none(), "one file an object");
    file
}

fn disk(store: &Arc<Store>, folder: &Path, boot: u8) -> Disk {
    Disk::over(store.clone(), settings(folder, PLENTY, boot), tokio::runtime::Handle::current()).expect("a disk tier")
}

/// Read an object whole through a source, in runs of at most sixteen blocks.
async fn read(source: &dyn Source, object: &Arc<Object>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for start in (0..object.blocks()).step_by(16) {
        let mut blocks = source.fetch(Run::new(object.clone(), start..object.blocks().min(start + 16)));
        while let Some(block) = blocks.next().await {
            bytes.extend(block?.pieces().concat());
        }
    }
    Ok(bytes)
}

async fn complete(disk: &Disk, object: &Arc<Object>) -> Arc<Whole> {
    match disk.settled(object, Door::NONE).await {
        Standing::Complete(whole) => whole,
        _ => panic!("{object} is not complete"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_once_is_a_local_file_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let store = Arc::new(store);
    let total: u64 = objects.iter().map(|(object, _)| u64::from(object.blocks())).sum();
    for restart in 0..3 {
        let disk = disk(&store, folder.path(), 1);
        for (object, bytes) in &objects {
            assert_eq!(read(&disk, object).await.expect("bytes"), *bytes, "{object} after {restart} restarts");
            let whole = complete(&disk, object).await;
            assert_eq!(whole.read(0, object.size as u32).expect("verified"), *bytes);
            let file = whole.descriptor().expect("a real file").try_clone_to_owned().map(std::fs::File::from);
            assert_eq!(file.and_then(|file| file.metadata()).expect("its length").len(), object.size);
        }
        assert_eq!(store.blocks.load(Relaxed), total, "each block left the store once");
        assert_eq!(disk.usage().0.files, objects.len() as u64);
    }
    assert_eq!(store.sums.load(Relaxed), 1, "only the object of several runs needed a checksum of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_halfway_loses_nothing_that_it_had() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let store = Arc::new(store);
    let (object, bytes) = objects.last().expect("the large one");
    {
        let disk = disk(&store, folder.path(), 1);
        let mut blocks = disk.fetch(Run::new(object.clone(), 3..9));
        for _ in 0..4 {
            blocks.next().await.expect("a block").expect("bytes");
        }
    }
    // What a kill between writing a file and telling the log leaves behind.
    let stray = Residency { id: block::ObjectId(7), number: 1 }.path(&folder.path().join("objects"), object);
    std::fs::write(&stray, b"stray").expect("written");
    let disk = disk(&store, folder.path(), 1);
    let before = store.blocks.load(Relaxed);
    assert_eq!(read(&disk, object).await.expect("bytes"), *bytes);
    assert_eq!(store.blocks.load(Relaxed) - before, u64::from(object.blocks()) - 4);
    let swept = async {
        while stray.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, swept).await.expect("the stray file is swept");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_boot_every_file_is_read_once_before_it_is_trusted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let store = Arc::new(store);
    let (object, bytes) = &objects[3];
    let (damaged, damaged_bytes) = &objects[10];
    let files = {
        let disk = disk(&store, folder.path(), 1);
        for (object, _) in [&objects[3], &objects[10]] {
            read(&disk, object).await.expect("bytes");
            complete(&disk, object).await;
        }
        [object, damaged].map(|object| path(folder.path(), object))
    };
    flip(&files[1], 2_000_000);
    let disk = disk(&store, folder.path(), 2);
    assert!(matches!(disk.find(object), Standing::Unchecked(_)));
    assert!(disk.check(object).await.expect("checked").is_some());
    assert!(matches!(disk.find(object), Standing::Complete(_)));
    assert_eq!(read(&disk, object).await.expect("bytes"), *bytes);
    assert!(disk.check(damaged).await.expect("checked").is_none(), "the damage was found");
    assert!(matches!(disk.find(damaged), Standing::Absent));
    assert_eq!(read(&disk, damaged).await.expect("bytes"), *damaged_bytes);
    assert!(matches!(disk.settled(damaged, Door::NONE).await, Standing::Complete(_)));
    drop(disk);
    let disk = self::disk(&store, folder.path(), 2);
    for object in [object, damaged] {
        assert!(matches!(disk.find(object), Standing::Complete(_)), "it is not read again within a boot");
    }
}

/// Change one bit of a file, whatever its mode says.
fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::{FileExt, PermissionsExt};
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("mode");
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], at).expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_cache_file_is_never_served_by_the_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let store = Arc::new(store);
    let disk = disk(&store, folder.path(), 1);
    for (object, bytes) in &objects {
        read(&disk, object).await.expect("bytes");
        let whole = complete(&disk, object).await;
        flip(&path(folder.path(), object), object.size / 2);
        assert!(whole.read(0, object.size as u32).is_err_and(|error| error.kind == Kind::Corrupt));
        assert_eq!(read(&disk, object).await.expect("bytes"), *bytes, "fetched again");
        drop(whole);
        read(&disk, object).await.expect("bytes");
        drop(complete(&disk, object).await);
        let again = path(folder.path(), object);
        std::fs::File::options().write(true).open(again).and_then(|file| file.set_len(object.size - 1)).expect("cut");
        assert!(matches!(disk.find(object), Standing::Absent), "a wrong length is noticed at once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_differs_from_its_checksum_is_never_called_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (object, bytes) = objects.last().expect("the large one");
    store.checksums.lock().expect("checksums").insert(object.key.clone(), Checksum::Crc64Nvme(1));
    let store = Arc::new(store);
    let disk = disk(&store, folder.path(), 1);
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.push(read(&disk, object).await.map(|got| got == *bytes).map_err(|error| error.kind));
        assert!(matches!(disk.find(object), Standing::Absent));
    }
    assert_eq!(outcomes, vec![Err(Kind::Corrupt); 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_that_do_not_combine_are_compared_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (object, bytes) = objects.last().expect("the large one");
    let mut digest = Checksum::Crc32C(0).digest();
    digest.update(bytes);
    store.checksums.lock().expect("checksums").insert(object.key.clone(), Checksum::Crc32C(digest.value() as u32));
    let disk = disk(&Arc::new(store), folder.path(), 1);
    read(&disk, object).await.expect("bytes");
    assert_eq!(crc64::of(&complete(&disk, object).await.read(0, object.size as u32).expect("bytes")), crc64::of(bytes));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_cache_serves_without_keeping_and_never_evicts_what_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..20).map(|n| store.below.add(&format!("{n}"), content(n, 100_000))).collect();
    let store = Arc::new(store);
    let limits = Limits { bytes: 1_000_000, ..PLENTY };
    let disk = Disk::over(store.clone(), settings(folder.path(), limits, 1), tokio::runtime::Handle::current())
        .expect("a disk tier");
    for epoch in 0..4 {
        for object in objects.iter().rev().cycle().skip(epoch * 7).take(20) {
            disk.opened(object, 2_000_000);
            assert_eq!(read(&disk, object).await.expect("bytes").len(), 100_000);
        }
        let used = disk.usage().0.bytes;
        assert!(used <= 1_000_000, "{used} bytes in epoch {epoch}");
    }
    assert_eq!(store.blocks.load(Relaxed), 20 + 3 * 10, "half of the set hits in each later epoch");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_set_takes_the_place_of_one_that_nobody_reads_any_more_also_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..20).map(|n| store.below.add(&format!("{n}"), content(n, 100_000))).collect();
    let store = Arc::new(store);
    let limits = Limits { bytes: 1_000_000, ..PLENTY };
    let mut fetched = Vec::new();
    for pass in 0..12 {
        let disk = Disk::over(store.clone(), settings(folder.path(), limits, 1), tokio::runtime::Handle::current());
        let disk = disk.expect("a disk tier");
        let before = store.blocks.load(Relaxed);
        for object in if pass < 3 { &objects[..10] } else { &objects[10..] } {
            disk.opened(object, 1_000_000);
            assert_eq!(read(&disk, object).await.expect("bytes").len(), 100_000);
        }
        disk.close();
        fetched.push(store.blocks.load(Relaxed) - before);
    }
    assert_eq!(fetched[..6], [10, 0, 0, 10, 10, 10], "three uses are evidence");
    assert_eq!(fetched[9..], [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn released_objects_give_way_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..11).map(|n| store.below.add(&format!("{n}"), content(n, 100_000))).collect();
    let limits = Limits { bytes: 1_000_000, ..PLENTY };
    let disk = Disk::over(Arc::new(store), settings(folder.path(), limits, 1), tokio::runtime::Handle::current())
        .expect("a disk tier");
    for object in &objects[..10] {
        read(&disk, object).await.expect("bytes");
    }
    assert!(!disk.has_room(&objects[10]), "nothing may give way");
    disk.release([&objects[4]].into_iter());
    assert!(disk.has_room(&objects[10]));
    read(&disk, &objects[10]).await.expect("bytes");
    assert!(matches!(disk.find(&objects[10]), Standing::Complete(_)));
    assert!(matches!(disk.find(&objects[4]), Standing::Absent));
    assert!(objects[5..10].iter().all(|object| matches!(disk.find(object), Standing::Complete(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_folder_that_refuses_writes_does_not_stop_reading() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let disk = disk(&Arc::new(store), folder.path(), 1);
    // A file where a folder should be: every creation fails, also for root.
    std::fs::remove_dir_all(folder.path().join("objects")).expect("removed");
    std::fs::write(folder.path().join("objects"), b"").expect("written");
    for (object, bytes) in &objects {
        assert_eq!(read(&disk, object).await.expect("bytes"), *bytes);
        assert!(!disk.holds(&Address { object: object.clone(), index: 0 }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_log_tells_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..40).map(|n| store.below.add(&format!("{n}"), content(n, 2_000))).collect();
    let store = Arc::new(store);
    {
        let disk = disk(&store, folder.path(), 1);
        for object in &objects {
            read(&disk, object).await.expect("bytes");
        }
        let mut index = disk.index();
        for object in &objects[..20] {
            let Found::Complete(Held::Closed(closed)) = index.known(&Segment::whole(object)) else {
                panic!("complete")
            };
            index.drop_segment(closed.residency, object);
        }
        drop(index);
        disk.compact().expect("compacted");
    }
    let size = std::fs::metadata(folder.path().join("index")).expect("the log").len();
    assert!(size < 20 * 160 + 100, "{size} bytes");
    let disk = disk(&store, folder.path(), 1);
    assert!(objects[..20].iter().all(|object| matches!(disk.find(object), Standing::Absent)));
    assert!(objects[20..].iter().all(|object| matches!(disk.find(object), Standing::Complete(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_while_a_file_is_being_opened_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..2).map(|n| store.below.add(&format!("{n}"), content(n, 2_000))).collect();
    let disk = disk(&Arc::new(store), folder.path(), 1);
    let mut closed = Vec::new();
    for object in &objects {
        read(&disk, object).await.expect("bytes");
        let found = disk.index().known(&Segment::whole(object));
        let Found::Complete(Held::Closed(found)) = found else { panic!("complete, and closed") };
        closed.push(found);
    }
    let opened = closed[0].open().expect("it is there");
    disk.index().drop_segment(closed[0].residency, &objects[0]);
    assert!(disk.index().opened(&closed[0], opened).is_none(), "a file that has gone is not given out");
    assert!(closed[0].open().is_err());
    disk.compact().expect("compacted");
    let opened = closed[1].open().expect("the old log is there for it");
    assert!(disk.index().opened(&closed[1], opened).is_some(), "the log tells of it elsewhere now");
    let error = Error::corrupt("as if it were damaged", "");
    disk.index().not_opened(&closed[1], &error);
    assert!(matches!(disk.find(&objects[1]), Standing::Complete(_)), "only what was looked at may be called damaged");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_keeps_the_promises_of_a_source() {
    let runtime = tokio::runtime::Handle::current();
    for limits in [PLENTY, Limits { bytes: 2_000_000, ..PLENTY }] {
        block::contract::run(|fixed| {
            let folder = tempfile::tempdir().expect("a folder");
            let disk =
                Disk::over(Arc::new(fixed), settings(folder.path(), limits, 1), runtime.clone()).expect("a disk tier");
            let disk: Arc<dyn Source> = Arc::new(disk);
            (disk, folder)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_any_size_hit_their_share_with_four_readers() {
    for (count, size) in [(20, 100_000), (10, SMALL + 1), (6, (16 << 20) + 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = Store::default();
        let objects: Vec<_> = (0..count).map(|n| store.below.add(&format!("{n}"), content(n, size))).collect();
        let store = Arc::new(store);
        let limits = Limits { bytes: count / 2 * size, ..PLENTY };
        let disk = Disk::over(store.clone(), settings(folder.path(), limits, 1), tokio::runtime::Handle::current());
        let disk = disk.expect("a disk tier");
        let share = count / 2 * u64::from(objects[0].blocks());
        for epoch in 0..5 {
            let before = store.blocks.load(Relaxed);
            let order: Vec<_> = (0..count).map(|n| &objects[((n * 7 + epoch * 3) % count) as usize]).collect();
            for four in order.chunks(4) {
                let reads = four.iter().map(|object| {
                    disk.opened(object, count * size);
                    read(&disk, object)
                });
                let got = futures_util::future::join_all(reads).await;
                assert!(got.into_iter().all(|got| got.is_ok_and(|bytes| bytes.len() as u64 == size)));
            }
            let asked = store.blocks.load(Relaxed) - before;
            let wanted = if epoch == 0 { 2 * share } else { share };
            assert_eq!(asked, wanted, "blocks of files of {size} bytes in epoch {epoch}");
        }
    }
}
