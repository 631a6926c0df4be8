//! Objects that are large beside the capacity, and room that is taken stripe by stripe.

use super::*;

const STRIPE: u64 = 16 * SMALL;

fn small_disk(store: &Arc<Store>, folder: &Path, bytes: u64) -> Disk {
    let limits = Limits { bytes, ..PLENTY };
    Disk::over(store.clone(), settings(folder, limits, 1), tokio::runtime::Handle::current()).expect("a disk tier")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_larger_than_the_cache_hits_its_share() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut store, bytes) = (Store::default(), content(3, 6 * STRIPE + 5));
    let object = store.below.add("large", bytes.clone());
    let store = Arc::new(store);
    for restart in 0..2 {
        let disk = small_disk(&store, folder.path(), 3 * STRIPE);
        for epoch in 0..2 {
            let before = store.blocks.load(Relaxed);
            assert!(read(&disk, &object).await.expect("bytes") == bytes);
            let asked = store.blocks.load(Relaxed) - before;
            let wanted = if (restart, epoch) == (0, 0) { 6 * 64 + 1 } else { 3 * 64 };
            // The last stripe is a single block, and finds room or not.
            assert!(asked.abs_diff(wanted) <= 1, "{asked} blocks in epoch {epoch} after {restart} restarts");
        }
        assert!(disk.usage().0.bytes <= 3 * STRIPE);
        assert!(
            matches!(disk.settled(&object, Door::default()).await, Standing::Absent),
            "the kernel can't read it as a file"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_cut_can_be_here_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut store, bytes) = (Store::default(), content(3, 2 * STRIPE + 5));
    let object = store.below.add("large", bytes.clone());
    let store = Arc::new(store);
    let disk = small_disk(&store, folder.path(), 3 * STRIPE);
    assert!(disk.has_room(&object));
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    assert!(matches!(disk.settled(&object, Door::default()).await, Standing::Cut));
    assert!(disk.is_complete(&object) && disk.verify(&object, Door::default()).await.expect("compared"));
    store.checksums.lock().expect("checksums").insert("large".into(), Checksum::Crc64Nvme(1));
    assert!(
        !disk.verify(&object, Door::default()).await.expect("compared"),
        "the store says that the whole is another"
    );
    assert!(!disk.is_complete(&object));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_cut_asks_for_the_room_that_its_missing_stripes_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let [half, one, other] =
        [("half", 4), ("one", 1), ("other", 1)].map(|(key, n)| store.below.add(key, content(n, n * STRIPE)));
    let disk = small_disk(&Arc::new(store), folder.path(), 5 * STRIPE);
    for stripe in Segment::stripes(&half).into_iter().take(2) {
        let _: Vec<_> = disk.fetch(Run::new(half.clone(), stripe.blocks)).collect().await;
    }
    read(&disk, &one).await.expect("bytes");
    assert_eq!(disk.usage().0.bytes, 3 * STRIPE);
    assert!(disk.has_room(&half), "two of its four stripes lie here, and there is room for two");
    read(&disk, &other).await.expect("bytes");
    assert!(!disk.has_room(&half), "there is room for one");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_large_object_a_member_takes_room_for_the_stripes_that_it_keeps() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut store, size) = (Store::default(), block::ONE_STRIPE_BYTES_MAX + STRIPE);
    let objects: Vec<_> = (0..6).map(|n| store.below.add(&format!("{n}"), vec![0; size as usize])).collect();
    let disk = small_disk(&Arc::new(store), folder.path(), 4 * size);
    disk.join();
    // Every third stripe, as one of three members owns them: of six objects as much as two.
    for object in &objects {
        for stripe in Segment::stripes(object).into_iter().step_by(3) {
            let first = block::Address { object: object.clone(), index: stripe.blocks.start };
            assert!(disk.has_room_for(&first) && disk.may_admit(&first));
            let _: Vec<_> =
                disk.fetch(Run::new(object.clone(), stripe.blocks.start..stripe.blocks.start + 1)).collect().await;
            assert!(disk.keeps(&first));
        }
    }
    assert_eq!(disk.usage().0.bytes, 6 * 6 * STRIPE);
}

#[tokio::test(start_paused = true)]
async fn a_look_at_the_head_of_a_file_takes_room_for_one_stripe() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..6).map(|n| store.below.add(&format!("{n}"), content(n, STRIPE + SMALL))).collect();
    let disk = small_disk(&Arc::new(store), folder.path(), 6 * STRIPE);
    for object in &objects {
        let _: Vec<_> = disk.fetch(Run::new(object.clone(), 0..1)).collect().await;
    }
    assert_eq!(disk.usage().0.bytes, 6 * STRIPE);
    for object in &objects[..1] {
        read(&disk, object).await.expect("bytes");
    }
    let began = tokio::time::Instant::now();
    assert!(
        matches!(disk.settled(&objects[0], Door::default()).await, Standing::Absent),
        "there is no room for its second stripe"
    );
    assert_eq!(began.elapsed(), std::time::Duration::ZERO, "nobody waits for what can't come");
    assert!(!disk.has_room(&objects[0]), "and who asks hears so");
    assert!(disk.usage().0.bytes <= 6 * STRIPE);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_come_again_are_counted_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..4).map(|n| store.below.add(&format!("{n}"), content(n, 3 * SMALL))).collect();
    let disk = small_disk(&Arc::new(store), folder.path(), 7 * SMALL);
    for epoch in 1..4 {
        for object in &objects {
            read(&disk, object).await.expect("bytes");
            disk.settled(object, Door::default()).await;
        }
        assert_eq!(disk.tally().unique.get().1, 12 * SMALL, "in epoch {epoch}");
        assert_eq!(disk.tally().below.get().1, (12 + 6 * (epoch - 1)) * SMALL);
        // It gives way to another, and comes a second time.
        disk.release(objects[..1].iter());
    }
}
