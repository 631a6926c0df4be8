//! A file system on which others make room, take it, or keep it busy.

use super::trust::{Hook, Moody, moody, run};
use super::*;

#[tokio::test(start_paused = true)]
async fn a_disk_that_was_too_full_is_looked_at_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (store, medium) = (Arc::new(store), Moody::new());
    medium.free_bytes.store(500, Relaxed);
    let disk = moody(&store, folder.path(), 1, &medium, Limits { free_bytes_min: 1_000, ..PLENTY });
    for (object, bytes) in &objects {
        assert!(read(&disk, object).await.expect("bytes") == *bytes);
        assert!(!disk.is_complete(object));
    }
    medium.free_bytes.store(1 << 30, Relaxed);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    for (object, _) in &objects {
        read(&disk, object).await.expect("bytes");
        disk.settled(object, Door::default()).await;
        assert!(disk.is_complete(object), "there is room now");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_promised_is_not_given_to_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..4).map(|n| store.below.add(&format!("{n}"), content(n, 4 * SMALL))).collect();
    let (store, medium) = (Arc::new(store), Moody::new());
    medium.free_bytes.store(10 * SMALL, Relaxed);
    let disk = moody(&store, folder.path(), 1, &medium, PLENTY);
    for object in &objects {
        // One block of each is written; the file system would say that nine and more mebibytes are free.
        run(&disk, object, 0..1).await;
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
    }
    let kept = objects.iter().filter(|object| disk.holds(&Address { object: Arc::clone(object), index: 0 })).count();
    assert_eq!(kept, 2, "four mebibytes were promised to each");
    let used = disk.usage().0;
    assert_eq!((used.bytes, used.written), (8 * SMALL, 2 * BLOCK));
}

#[tokio::test(start_paused = true)]
async fn nothing_gives_way_for_what_is_on_its_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let small: Vec<_> = (0..400).map(|n| store.below.add(&format!("{n}"), content(n, 50_000))).collect();
    let bytes = content(7, 10_000_000);
    let large = store.below.add("large", bytes.clone());
    let medium = Moody::new();
    let disk = moody(&Arc::new(store), folder.path(), 1, &medium, PLENTY);
    for object in &small {
        read(&disk, object).await.expect("bytes");
    }
    disk.release(small.iter());
    // The disk is all but full, and takes its time.
    medium.free_bytes.store(1_000_000, Relaxed);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    let (opened, gate) = std::sync::mpsc::channel::<()>();
    let (gate, free) = (Mutex::new(gate), medium.clone());
    let unlink = move |path: &Path| {
        let _ = gate.lock().expect("nobody panicked").recv();
        let bytes = path.metadata().map_or(0, |file| file.len());
        free.free_bytes.fetch_add(bytes, Relaxed);
    };
    assert!(medium.before_remove.set(Box::new(unlink)).is_ok());
    for _ in 0..2 {
        assert!(read(&disk, &large).await.expect("bytes") == bytes);
    }
    let left = disk.usage().0.files;
    assert!((215..=220).contains(&left), "{left} of 400 are left: 9,000,000 bytes were missing");
    drop(opened);
    while !disk.is_complete(&large) {
        assert!(read(&disk, &large).await.expect("bytes") == bytes);
        disk.settled(&large, Door::default()).await;
    }
    assert_eq!(disk.usage().0.files, left + 1, "nobody else gave way");
}

/// A tier, and what it is answered when it asks whether its folder is still its own.
fn held_to_order(store: &Arc<Store>, folder: &Path) -> (Disk, Arc<Mutex<Result<Hold>>>) {
    let answer = Arc::new(Mutex::new(Ok(Hold::Same)));
    let asked = answer.clone();
    let hold = Arc::new(move || asked.lock().expect("nobody panicked").clone());
    let settings = Settings { hold, ..settings(folder, PLENTY, 1) };
    (Disk::over(store.clone(), settings, tokio::runtime::Handle::current()).expect("a disk tier"), answer)
}

#[tokio::test(start_paused = true)]
async fn a_folder_of_files_that_was_removed_or_replaced_is_noticed_by_whoever_asks_what_is_here() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let disk = disk(&Arc::new(store), folder.path(), 1);
    let (files, aside) = (folder.path().join("objects"), folder.path().join("aside"));
    let remove = || std::fs::remove_dir_all(&files);
    let replace = || std::fs::rename(&files, &aside).and_then(|()| std::fs::create_dir(&files));
    for take in [&remove as &dyn Fn() -> std::io::Result<()>, &replace] {
        for (object, bytes) in &objects {
            assert!(read(&disk, object).await.expect("bytes") == *bytes);
            drop(complete(&disk, object).await);
            assert!(std::fs::read(path(folder.path(), object)).expect("a file") == *bytes);
        }
        take().expect("it is taken away");
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        assert_eq!(disk.held_bytes(&objects[0].0), 0);
        assert_eq!((disk.usage().0.files, disk.usage().0.bytes), (0, 0));
        assert!(files.is_dir(), "it is made again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_another_node_took_is_left_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (store, cache) = (Arc::new(store), folder.path().join("cache"));
    let (first, answer) = held_to_order(&store, &cache);
    for (object, _) in &objects {
        read(&first, object).await.expect("bytes");
        drop(complete(&first, object).await);
    }
    // The other one numbers its files alike, and has one block of each large object.
    std::fs::remove_dir_all(&cache).expect("removed");
    let other = disk(&store, &cache, 1);
    for (object, _) in &objects {
        run(&other, object, 0..1).await;
    }
    *answer.lock().expect("nobody panicked") = Err(Error::unavailable("another node has it", "cache"));
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    for (object, bytes) in &objects {
        assert!(matches!(first.find(object), Standing::Absent) && !first.is_complete(object));
        assert!(read(&first, object).await.expect("bytes") == *bytes);
        assert!(!first.is_complete(object), "nothing is kept");
    }
    // A moment in which nobody can look says nothing new.
    *answer.lock().expect("nobody panicked") = Ok(Hold::Unknown);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert!(!first.hold() && !first.is_complete(&objects[0].0), "it is lost still");
    let before = store.blocks.load(Relaxed);
    for (object, bytes) in &objects {
        assert!(read(&other, object).await.expect("bytes") == *bytes);
        drop(complete(&other, object).await);
    }
    let all: u64 = objects.iter().map(|(object, _)| u64::from(object.blocks()) - 1).sum();
    assert_eq!(store.blocks.load(Relaxed) - before, all, "nothing of it was touched");
    drop(other);
    *answer.lock().expect("nobody panicked") = Ok(Hold::Anew);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert!(!first.is_complete(&objects[0].0), "whoever asks for anything sees it");
    *answer.lock().expect("nobody panicked") = Ok(Hold::Same);
    assert_eq!(first.usage().0.files, 0, "what others left is not known");
    for (object, bytes) in &objects {
        assert!(read(&first, object).await.expect("bytes") == *bytes);
        drop(complete(&first, object).await);
        assert!(std::fs::read(path(&cache, object)).expect("a file") == *bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_not_written_where_another_node_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (store, cache) = (Arc::new(store), folder.path().join("cache"));
    let (disk, answer) = held_to_order(&store, &cache);
    let (small, large) = (&objects[0].0, &objects[10].0);
    let coming = disk.index().admit(&Segment::whole(small), small.size, Class::Owned).expect("room");
    // More than are held open, so that it is opened again by its name.
    for (object, _) in &objects[10..] {
        run(&disk, object, 0..1).await;
    }
    let Found::Filling(filling) = disk.index().known(&Segment::whole(large)) else { panic!("it has begun") };
    std::fs::remove_dir_all(&cache).expect("removed");
    let theirs = [(coming, small), (filling.residency, large)];
    let theirs = theirs.map(|(residency, object)| residency.path(&cache.join("objects"), object));
    for file in &theirs {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, vec![0; large.size as usize]).expect("written");
    }
    *answer.lock().expect("nobody panicked") = Err(Error::unavailable("another node has it", "cache"));
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    assert!(!disk.index().is_filling(&filling), "it is lost");

    let block = async |object: &Arc<Object>, index| {
        let mut blocks = store.fetch(Run::new(object.clone(), index..index + 1));
        blocks.next().await.expect("a block").expect("bytes")
    };
    assert!(!disk.keep(&filling, &block(large, 1).await, &block::Course::default()));
    let first = block(small, 0).await;
    assert!(!disk.keep_small(&Segment::whole(small), coming, &first, block::sums(first.pieces())));
    disk.save_uses();
    disk.compact().expect("nothing is done");
    for file in theirs {
        assert!(std::fs::read(file).expect("it is there") == vec![0; large.size as usize]);
    }
    let names = std::fs::read_dir(&cache).expect("a folder").flatten().map(|entry| entry.file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["objects"], "nothing was made");
}

#[tokio::test(start_paused = true)]
async fn a_cache_whose_lock_could_not_be_had_for_a_while_goes_on_with_what_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let store = Arc::new(store);
    let (disk, answer) = held_to_order(&store, folder.path());
    for (object, _) in &objects[1..] {
        read(&disk, object).await.expect("bytes");
        drop(complete(&disk, object).await);
    }
    let object = &objects[0].0;
    let coming = disk.index().admit(&Segment::whole(object), object.size, Class::Owned).expect("room");
    for has_written in [false, true] {
        *answer.lock().expect("nobody panicked") = Err(Error::unavailable("nobody can tell", "lock"));
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        assert!(!disk.is_complete(&objects[1].0), "nothing is here");
        disk.index().drop_segment(coming, object);
        if has_written {
            let index = std::fs::File::options().append(true).open(folder.path().join("index"));
            std::io::Write::write_all(&mut index.expect("the log"), b"word").expect("written");
        }
        *answer.lock().expect("nobody panicked") = Ok(Hold::Same);
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let kept = objects[1..].iter().filter(|(object, _)| disk.is_complete(object)).count();
        assert_eq!(kept, if has_written { 0 } else { objects.len() - 1 });
        let is_unchecked = matches!(disk.find(&objects[1].0), Standing::Unchecked(_));
        assert_eq!(is_unchecked, !has_written, "what was found wrong meanwhile could not be dropped");
        assert_eq!(disk.index().unwritten(), 0, "what was given up meanwhile takes no room");
    }
    for (object, bytes) in &objects {
        assert!(read(&disk, object).await.expect("bytes") == *bytes);
        drop(complete(&disk, object).await);
        assert!(std::fs::read(path(folder.path(), object)).expect("a file") == *bytes);
    }
}

#[test]
fn a_read_finds_a_thread_while_many_files_are_checked() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(64).enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..80).map(|n| store.below.add(&format!("{n}"), content(n, 2 * SMALL))).collect();
    let (store, medium) = (Arc::new(store), Moody::new());
    let of_earlier = &objects[1..];
    runtime.block_on(async {
        let disk = moody(&store, folder.path(), 1, &medium, PLENTY);
        for object in of_earlier {
            read(&disk, object).await.expect("bytes");
            drop(complete(&disk, object).await);
        }
        disk.close();
    });
    let (opened, gate) = std::sync::mpsc::channel::<()>();
    let (gate, half) = (Mutex::new(gate), objects[0].id().to_string());
    let hook: Hook = Box::new(move |path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.to_string_lossy().contains("objects") && !name.starts_with(&half) {
            let _ = gate.lock().map(|gate| gate.recv());
        }
    });
    assert!(medium.before_read.set(Arc::new(hook)).is_ok());
    runtime.block_on(async {
        let disk = moody(&store, folder.path(), 2, &medium, PLENTY);
        run(&disk, &objects[0], 0..1).await;
        let mut checks = tokio::task::JoinSet::new();
        for object in of_earlier {
            let (disk, object) = (disk.clone(), object.clone());
            checks.spawn(async move { disk.check(&object).await.map(|whole| whole.is_some()) });
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let before = store.blocks.load(Relaxed);
        let read = tokio::time::timeout(std::time::Duration::from_secs(20), run(&disk, &objects[0], 0..1));
        assert!(read.await.is_ok(), "all threads check files");
        assert_eq!(store.blocks.load(Relaxed), before, "it is on the disk");
        drop(opened);
        while let Some(checked) = checks.join_next().await {
            assert!(checked.expect("a check").expect("read"), "nothing was damaged");
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_removed_costs_the_cache_only_if_another_node_wrote() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (store, others) = (Arc::new(store), folder.path().join("objects/abcd"));
    let (disk, answer) = held_to_order(&store, folder.path());
    for has_written in [false, true] {
        for (object, _) in &objects {
            read(&disk, object).await.expect("bytes");
            drop(complete(&disk, object).await);
        }
        if has_written {
            let index = std::fs::File::options().append(true).open(folder.path().join("index"));
            std::io::Write::write_all(&mut index.expect("the log"), b"word").expect("written");
            std::fs::create_dir_all(&others)
                .and_then(|()| std::fs::write(others.join("file"), b"theirs"))
                .expect("a file");
        }
        *answer.lock().expect("nobody panicked") = Ok(Hold::Anew);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        let kept = objects.iter().filter(|(object, _)| disk.is_complete(object)).count();
        assert!(disk.hold() && disk.index().is_held(), "it is this node's, or is again");
        *answer.lock().expect("nobody panicked") = Ok(Hold::Same);
        assert_eq!(kept, if has_written { 0 } else { objects.len() });
    }
    // What others left goes, on a thread of its own.
    let began = std::time::Instant::now();
    while others.exists() && began.elapsed().as_secs() < 20 {
        std::thread::yield_now();
    }
    assert!(!others.exists());
    for (object, bytes) in &objects {
        assert!(read(&disk, object).await.expect("bytes") == *bytes);
        drop(complete(&disk, object).await);
        assert!(std::fs::read(path(folder.path(), object)).expect("a file") == *bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_gives_errors_alone_is_served_around_until_it_gives_what_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let medium = Moody::new();
    let disk = moody(&Arc::new(store), folder.path(), 1, &medium, PLENTY);
    for is_gone in [false, true, false] {
        medium.open.store(is_gone, Relaxed);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert_eq!(disk.is_lost(), is_gone);
        for (object, bytes) in &objects {
            assert!(read(&disk, object).await.expect("bytes") == *bytes);
            assert_eq!(disk.is_complete(object), !is_gone);
        }
    }
}

/// Objects are admitted one after the other within a moment, while others fill the disk: how many are, at most.
async fn admitted_unseen(objects: u64, size: u64) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut store, medium) = (Store::default(), Moody::new());
    let objects: Vec<_> = (0..objects).map(|n| store.below.add(&n.to_string(), content(n, size))).collect();
    let disk = moody(&Arc::new(store), folder.path(), 1, &medium, Limits { free_bytes_min: 1_000, ..PLENTY });
    assert!(disk.has_room(&objects[0]));
    medium.free_bytes.store(0, Relaxed);
    for object in &objects {
        run(&disk, object, 0..1).await;
    }
    let kept = objects.iter().filter(|object| disk.held_bytes(object) > 0).count();
    assert!(disk.has_room(&objects[0]), "it is here");
    let last = objects.last().expect("some");
    assert!(!disk.has_room(last));
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    medium.free_bytes.store(1 << 40, Relaxed);
    assert!(disk.has_room(last), "who asks whether there is room looks too");
    kept
}

#[tokio::test(start_paused = true)]
async fn others_who_fill_the_disk_are_noticed_after_so_many_files_or_bytes() {
    assert!((60..=64).contains(&admitted_unseen(200, 10).await), "by their number");
    assert!((7..=8).contains(&admitted_unseen(20, 8 * SMALL).await), "by their bytes");
}
