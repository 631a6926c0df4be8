//! A file system on which others make room, or take it.

use super::trust::{Moody, moody, run};
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
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
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

#[tokio::test(start_paused = true)]
async fn a_folder_that_another_node_took_is_left_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (store, cache) = (Arc::new(store), folder.path().join("cache"));
    let answer = Arc::new(Mutex::new(Ok(Hold::Same)));
    let asked = answer.clone();
    let hold = Arc::new(move || asked.lock().expect("nobody panicked").clone());
    let settings = Settings { hold, ..settings(&cache, PLENTY, 1) };
    let first = Disk::over(store.clone(), settings, tokio::runtime::Handle::current()).expect("a disk tier");
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
    assert!(!first.has_room(&objects[0].0), "who asks looks");
    for (object, bytes) in &objects {
        assert!(matches!(first.find(object), Standing::Absent) && !first.is_complete(object));
        assert!(read(&first, object).await.expect("bytes") == *bytes);
        assert!(!first.is_complete(object), "nothing is kept");
    }
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
    first.has_room(&objects[0].0);
    *answer.lock().expect("nobody panicked") = Ok(Hold::Same);
    assert_eq!(first.usage().0.files, 0, "what others left is not known");
    for (object, bytes) in &objects {
        assert!(read(&first, object).await.expect("bytes") == *bytes);
        drop(complete(&first, object).await);
        assert!(std::fs::read(path(&cache, object)).expect("a file") == *bytes);
    }
}
