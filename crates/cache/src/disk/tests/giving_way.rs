//! Who gives way: those that are not held, those over lower limits, and all of a folder that is gone.

use super::trust::{large, run};
use super::*;
use crate::disk::{Kind, Use};
use std::time::Duration;

fn within(store: &Arc<Store>, folder: &Path, limits: Limits) -> Disk {
    Disk::over(store.clone(), settings(folder, limits, 1), tokio::runtime::Handle::current()).expect("a disk tier")
}

/// So many objects of 100 kB.
fn small(count: u64) -> (Arc<Store>, Vec<Arc<Object>>) {
    let mut store = Store::default();
    let objects = (0..count).map(|n| store.below.add(&n.to_string(), content(n, 100_000))).collect();
    (Arc::new(store), objects)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_comes_down_to_lower_limits() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = small(12);
    let disk = within(&store, folder.path(), PLENTY);
    for object in &objects {
        read(&disk, object).await.expect("bytes");
    }
    drop(disk);
    let lower = [(Limits { bytes: 1_000_000, ..PLENTY }, 10), (Limits { files: 7, ..PLENTY }, 7), (PLENTY, 7)];
    for (limits, kept) in lower {
        let disk = within(&store, folder.path(), limits);
        disk.has_room(&objects[0]);
        let here = objects.iter().filter(|object| disk.is_complete(object)).count();
        assert_eq!((here, disk.usage().0.files), (kept, kept as u64), "as many as the limits allow, and no fewer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_holds_does_not_give_way_and_what_nobody_does_may() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = small(4);
    let disk = within(&store, folder.path(), Limits { bytes: 300_000, ..PLENTY });
    for object in &objects[..3] {
        read(&disk, object).await.expect("bytes");
    }
    // Its data set lists neither any more, and one is open.
    let held = complete(&disk, &objects[0]).await;
    drop(complete(&disk, &objects[1]).await);
    disk.release(objects[..2].iter());
    read(&disk, &objects[3]).await.expect("bytes");
    let here: Vec<_> = objects.iter().map(|object| disk.is_complete(object)).collect();
    assert_eq!(here, [true, false, true, true]);
    assert!(held.read(0, 10).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn others_have_the_index_now_and_then_while_many_uses_are_counted() {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let folder = tempfile::tempdir().expect("a folder");
    // Whoever takes the index looks at the clock.
    let clock = || {
        TAKEN.fetch_add(1, Relaxed);
        std::time::Instant::now()
    };
    let settings = Settings { clock, ..settings(folder.path(), PLENTY, 1) };
    let disk = Disk::over(Arc::new(Store::default()), settings, tokio::runtime::Handle::current());
    let disk = disk.expect("a disk tier");
    let used = |object: u128, size: u64| {
        let parts = std::iter::once(0..block::blocks_of(size).expect("blocks")).collect();
        Use { object: block::ObjectId(object), size, parts, set_bytes: 0, kind: Kind::Opened }
    };
    // Each of the large ones lies in 4,096 pieces.
    let many: Vec<Use> = (0..2500).map(|n| used(n, 1000)).collect();
    for (uses, times) in [(vec![used(1, 1000)], 1..10), (many, 3..10), (vec![used(1, 64 << 30); 10], 41..60)] {
        TAKEN.store(0, Relaxed);
        disk.used(&uses);
        assert!(times.contains(&TAKEN.load(Relaxed)), "{} times", TAKEN.load(Relaxed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_readers_hold_are_no_room_and_nobody_is_told_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = small(4);
    let disk = within(&store, folder.path(), Limits { bytes: 300_000, ..PLENTY });
    let (address, mut held) = (|n: usize| Address { object: objects[n].clone(), index: 0 }, Vec::new());
    for (n, object) in objects[..3].iter().enumerate() {
        assert!(disk.has_free_room_for(&address(n)), "{n} were read");
        read(&disk, object).await.expect("bytes");
        disk.gives_up(&address(n));
    }
    let free = [disk.has_free_room_for(&address(0)), disk.has_free_room_for(&address(3))];
    assert_eq!(free, [true, false], "what is here has its room; for another copies would give way");
    for (n, object) in objects[..3].iter().enumerate() {
        assert_eq!(disk.spare_bytes(), 300_000 - n as u64 * 100_000);
        let asked = [disk.has_room(&objects[3]), disk.has_room_for(&address(3)), disk.may_admit(&address(3))];
        assert_eq!(asked, [true; 3], "{n} are open");
        held.push(complete(&disk, object).await);
    }
    assert_eq!(disk.spare_bytes(), 0);
    let asked = [disk.has_room(&objects[3]), disk.has_room_for(&address(3)), disk.may_admit(&address(3))];
    assert_eq!(asked, [false; 3], "all are open");
    read(&disk, &objects[3]).await.expect("bytes");
    assert!(!disk.is_complete(&objects[3]), "nor would it be kept");
    drop(held);
    assert!(disk.has_room(&objects[3]));
    read(&disk, &objects[3]).await.expect("bytes");
    assert!(disk.is_complete(&objects[3]));
}

#[tokio::test(start_paused = true)]
async fn what_a_reader_on_another_member_has_open_does_not_give_way_as_long_as_that_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = small(3);
    let disk = within(&store, folder.path(), Limits { bytes: 100_000, ..PLENTY });
    read(&disk, &objects[0]).await.expect("bytes");
    disk.release([&objects[0]].into_iter());
    let (object, size) = (objects[0].id(), objects[0].size);
    for (after, kept) in [(0, false), (29, false), (31, true)] {
        disk.used(&[Use { object, size, parts: std::iter::once(0..1).collect(), set_bytes: 0, kind: Kind::Open }]);
        tokio::time::advance(Duration::from_secs(after)).await;
        read(&disk, &objects[1]).await.expect("bytes");
        assert_eq!(disk.is_complete(&objects[1]), kept, "after {after} s");
    }
    disk.used(&[Use { object, size, parts: std::iter::once(0..1).collect(), set_bytes: 0, kind: Kind::Open }]);
    disk.release([&objects[1]].into_iter());
    read(&disk, &objects[2]).await.expect("bytes");
    assert!(disk.is_complete(&objects[2]), "what is not here is not held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_file_gives_way_unless_somebody_reads_through_it() {
    for is_read in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut store, bytes) = (Store::default(), content(1, 3 * SMALL));
        let [half, other] = ["half", "other"].map(|key| store.below.add(key, bytes.clone()));
        // Each is a quarter of the capacity at most, and three fill it.
        let more: Vec<_> = (0..3).map(|n| store.below.add(&n.to_string(), bytes.clone())).collect();
        let disk = within(&Arc::new(store), folder.path(), Limits { bytes: 12 * SMALL, ..PLENTY });
        let mut reader = disk.fetch(Run::new(half.clone(), 0..8));
        assert!(reader.next().await.is_some_and(|got| got.is_ok()));
        for object in &more {
            read(&disk, object).await.expect("bytes");
        }
        let reader = is_read.then_some(reader);
        disk.release([&half].into_iter());
        read(&disk, &other).await.expect("bytes");
        assert_eq!(disk.is_complete(&other), !is_read);
        drop(reader);
    }
}

#[tokio::test(start_paused = true)]
async fn what_lay_in_a_folder_that_is_gone_counts_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(2);
    let disk = within(&store, folder.path(), PLENTY);
    run(&disk, &object, 0..8).await;
    assert!(disk.usage().0.bytes > 0);
    std::fs::remove_dir_all(folder.path().join("objects")).expect("removed");
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    disk.has_room(&object);
    assert_eq!((disk.usage().0.bytes, disk.usage().0.files), (0, 0));
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    assert!(disk.is_complete(&object), "the folder is there again");
}
