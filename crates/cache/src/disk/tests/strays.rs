//! Files without a record, and files that leave while others use the index.

use super::trust::{Moody, moody};
use super::*;
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Longer than a read of a small file takes, where nothing keeps it from going on.
const A_WHILE: Duration = Duration::from_millis(300);

async fn swept(disk: &Disk) {
    while !disk.index().is_swept {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_is_made_under_the_name_of_a_stray_is_not_swept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (object, bytes) = &objects[3];
    // What a log that lost its tail knows nothing of: the residency is given once more.
    let stray = Residency { id: object.id(), number: 1 }.path(&folder.path().join("objects"), object);
    swept(&disk(&Arc::default(), folder.path(), 1)).await;
    std::fs::create_dir_all(stray.parent().expect("a folder")).expect("made");
    std::fs::write(&stray, b"stray").expect("written");
    let medium = Moody::new();
    let (found, sweeper_found) = sync_channel::<()>(1);
    let (read_it, was_read) = sync_channel::<()>(1);
    let was_read = Mutex::new(was_read);
    let place = stray.clone();
    let hook = move |path: &Path| {
        // The sweep has seen the stray and stops here; the reader goes on, if it can.
        if path == place && std::thread::current().name() == Some("stoker-index") {
            let _ = found.send(());
            let _ = was_read.lock().expect("one sweeps").recv_timeout(A_WHILE);
        }
    };
    assert!(medium.before_remove.set(Box::new(hook)).is_ok());
    let disk = moody(&Arc::new(store), folder.path(), 1, &medium, PLENTY);
    tokio::task::block_in_place(|| sweeper_found.recv()).expect("the stray is found");
    assert_eq!(read(&disk, object).await.expect("bytes"), *bytes);
    let _ = read_it.send(());
    swept(&disk).await;
    let file = std::fs::read(&stray).expect("the file of the object is there");
    assert!(file == *bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leaves_is_unlinked_while_others_use_the_index() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..3).map(|n| store.below.add(&format!("{n}"), content(n, 100_000))).collect();
    let (medium, known) = (Moody::new(), Arc::new(OnceLock::<Disk>::new()));
    let (unlinked, locked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (seen, counts) = (known.clone(), (unlinked.clone(), locked.clone()));
    let hook = move |_: &Path| {
        if let Some(disk) = seen.get() {
            counts.0.fetch_add(1, Relaxed);
            counts.1.fetch_add(u64::from(disk.0.index.try_lock().is_err()), Relaxed);
        }
    };
    assert!(medium.before_remove.set(Box::new(hook)).is_ok());
    let limits = Limits { bytes: 200_000, ..PLENTY };
    let disk = moody(&Arc::new(store), folder.path(), 1, &medium, limits);
    swept(&disk).await;
    for object in &objects[..2] {
        read(&disk, object).await.expect("bytes");
    }
    assert!(known.set(disk.clone()).is_ok());
    // One gives way to a newcomer, the other one is damaged.
    disk.release(objects[..1].iter());
    read(&disk, &objects[2]).await.expect("bytes");
    flip(&path(folder.path(), &objects[1]), 5);
    read(&disk, &objects[1]).await.expect("bytes");
    assert_eq!((unlinked.load(Relaxed), locked.load(Relaxed)), (2, 0));
    assert!(disk.is_complete(&objects[2]) && !path_is_there(folder.path(), &objects[0]));
}

fn path_is_there(folder: &Path, object: &Object) -> bool {
    let near = Residency { id: object.id(), number: 0 }.path(&folder.join("objects"), object);
    let mut names = std::fs::read_dir(near.parent().expect("a folder")).expect("it is there").flatten();
    names.any(|file| file.file_name().to_string_lossy().starts_with(&object.id().to_string()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_among_the_folders_of_a_cache_is_unlinked_and_not_followed() {
    let (folder, others) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
    let precious = others.path().join("precious");
    std::fs::write(&precious, b"somebody else's").expect("written");
    std::fs::create_dir_all(folder.path().join("objects")).expect("made");
    let link = folder.path().join("objects/zz");
    std::os::unix::fs::symlink(others.path(), &link).expect("a link");
    swept(&disk(&Arc::default(), folder.path(), 1)).await;
    assert!(precious.exists() && link.symlink_metadata().is_err());
}
