//! The disk of a member of a cluster.

use super::*;

#[tokio::test]
async fn what_was_read_around_its_owner_is_a_copy_and_stays_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let disk = disk(&Arc::new(store), folder.path(), 1);
    let room = disk.spare_bytes();
    for (object, bytes) in objects.iter().filter(|(object, _)| object.blocks() > 1) {
        let first = Run { is_copy: true, ..Run::new(object.clone(), 0..1) };
        assert!(disk.fetch(first).next().await.expect("a block").is_ok());
        // The rest comes from who owns it.
        let others = disk.of_copies(disk.1.source.clone());
        assert!(read(&others, object).await.expect("bytes") == *bytes);
    }
    let taken = disk.usage().0.bytes;
    assert!(taken > 20 * SMALL && disk.spare_bytes() == room, "all of it gives way to what this node owns");
    for (object, _) in objects.iter().filter(|(object, _)| object.blocks() > 1) {
        read(&disk, object).await.expect("bytes");
    }
    assert_eq!(disk.spare_bytes(), room - taken, "this node owns it from now on");
}

#[tokio::test]
async fn who_asks_what_lies_here_takes_nothing_away_that_has_just_begun() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let object = store.below.add("some", content(1, 3 * SMALL));
    let store = Arc::new(store);
    let disk = disk(&store, folder.path(), 1);
    // Room was taken for it, and nothing came yet.
    let mut coming = disk.fetch(Run::new(object.clone(), 0..12));
    let held = disk.alone().fetch(Run::new(object.clone(), 0..12)).next().await;
    assert!(held.expect("an answer").is_err());
    while let Some(block) = coming.next().await {
        block.expect("a block");
    }
    disk.settled(&object, Door::default()).await;
    assert!(disk.is_complete(&object), "it was kept all the same");
}

#[tokio::test]
async fn what_has_begun_and_finds_no_more_room_keeps_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..5).map(|n| store.below.add(&format!("{n}"), content(n, 20 << 20))).collect();
    let store = Arc::new(store);
    // A stripe of each, and not all of any.
    let limits = Limits { bytes: 80 << 20, ..PLENTY };
    let disk =
        Disk::over(store, settings(folder.path(), limits, 1), tokio::runtime::Handle::current()).expect("a disk");
    for object in &objects {
        assert!(disk.fetch(Run::new(object.clone(), 0..1)).next().await.expect("a block").is_ok());
    }
    let at = |object: &Arc<Object>, index| Address { object: object.clone(), index };
    for object in &objects {
        assert!(disk.has_any(&at(object, 70)), "some of it is here");
        assert!(disk.keeps(&at(object, 1)) && !disk.keeps(&at(object, 70)), "there is no room for its second stripe");
    }
}

#[tokio::test]
async fn of_an_object_in_stripes_those_are_dropped_that_are_said_to_be_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let bytes = content(1, 40 << 20);
    let objects = ["wrong", "right"].map(|name| store.below.add(name, bytes.clone()));
    let disk = Disk::over(
        Arc::new(store),
        settings(folder.path(), Limits { bytes: 100 << 20, ..PLENTY }, 1),
        tokio::runtime::Handle::current(),
    )
    .expect("a disk");
    for object in &objects {
        read(&disk, object).await.expect("bytes");
        disk.settled(object, Door::default()).await;
    }
    let here = |object: &Arc<Object>| {
        let at = |index| Address { object: object.clone(), index };
        (0..object.blocks()).step_by(STRIPE_BLOCKS as usize).map(|index| disk.has_any(&at(index))).collect::<Vec<_>>()
    };
    // A part of a stripe takes all of it along.
    disk.drop_wrong(&objects[0], &(70..71));
    assert_eq!(here(&objects[0]), [true, false, true]);
    disk.drop_wrong(&objects[0], &(0..objects[0].blocks()));
    assert_eq!((here(&objects[0]), here(&objects[1])), (vec![false; 3], vec![true; 3]));
}
