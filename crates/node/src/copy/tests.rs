//! Copies through power losses: whatever the disk was not asked to keep is garbage afterwards.

use super::*;
use crate::tests::content;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const FILES: [(&str, u64); 5] =
    [("a/empty", 0), ("a/small", 5_000), ("a/b/large", 3 << 20), ("c/small", 70_000), ("d", 17 << 20)];

fn source() -> DataSet {
    let store = Arc::new(store::Memory::new("copied"));
    for (key, size) in FILES {
        store.put(key, content(key, size));
    }
    DataSet {
        url: "memory://copied".into(),
        store,
        prefix: String::new(),
        local: None,
        manifest: None,
        may_be_empty: false,
    }
}

/// A disk that stops after some calls, and remembers which files were synced.
struct Forgetful {
    calls: AtomicUsize,
    until: usize,
    synced: Mutex<HashMap<u64, u64>>,
    unsynced_names: AtomicUsize,
}

impl Forgetful {
    fn stops_after(until: usize) -> Arc<Forgetful> {
        let (calls, synced, unsynced_names) = Default::default();
        Arc::new(Forgetful { calls, until, synced, unsynced_names })
    }

    fn call(&self) -> std::io::Result<()> {
        let is_over = self.calls.fetch_add(1, Relaxed) >= self.until;
        if is_over { Err(std::io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Whether all bytes of a file were synced since they were written.
    fn holds(&self, file: &std::fs::Metadata) -> bool {
        self.synced.lock().expect("files").get(&file.ino()) == Some(&file.len())
    }

    /// The power goes: of each file that was not synced, the bytes are others, but size and time are there.
    fn lose(&self, folder: &Path) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let found = path.metadata().expect("it is there");
            if found.is_dir() {
                self.lose(&path);
            } else if !self.holds(&found) {
                std::fs::write(&path, vec![0xee; found.len() as usize]).expect("room");
                let file = File::options().write(true).open(&path).expect("it is there");
                file.set_modified(found.modified().expect("its time")).expect("its time");
            }
        }
    }
}

impl Disk for Forgetful {
    fn sync(&self, file: &File) -> std::io::Result<()> {
        self.call()?;
        let found = file.metadata()?;
        self.synced.lock().expect("files").insert(found.ino(), found.len());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.call()?;
        self.unsynced_names.fetch_add(1, Relaxed);
        std::fs::rename(from, to)
    }

    fn sync_names(&self, _: &File) -> std::io::Result<()> {
        self.call()?;
        self.unsynced_names.store(0, Relaxed);
        Ok(())
    }
}

fn assert_right(folder: &Path) {
    for (key, size) in FILES {
        assert!(std::fs::read(folder.join(key)).expect("a file") == content(key, size), "{key}");
    }
}

async fn copied(disk: Arc<dyn Disk>, folder: &Path, source: &DataSet) -> (Result<()>, crate::load::Progress) {
    let tally = Arc::default();
    let done = copy_to(disk, source, folder, &Wanted::default(), false, &tally).await;
    (done, tally.progress())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_lost_its_power_at_any_moment_is_resumed_right() {
    let source = source();
    for until in 0..=2 * FILES.len() + 1 {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let disk = Forgetful::stops_after(until);
        let (done, progress) = copied(disk.clone(), folder.path(), &source).await;
        assert_eq!(done.is_ok() && progress.files_failed == 0, until > 2 * FILES.len(), "{progress:?}");
        disk.lose(folder.path());
        let (done, progress) = copied(Arc::new(Real), folder.path(), &source).await;
        done.expect("it goes on");
        assert_eq!((progress.files_failed, progress.files_done), (0, FILES.len() as u64));
        assert_right(folder.path());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_over_only_when_its_names_are_on_the_disk() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let disk = Forgetful::stops_after(usize::MAX);
    let (done, progress) = copied(disk.clone(), folder.path(), &source()).await;
    done.expect("a copy");
    assert_eq!(disk.unsynced_names.load(Relaxed), 0);
    assert_eq!((progress.files_done, progress.bytes_present), (5, 0));
    disk.lose(folder.path());
    assert_right(folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_holes_is_not_believed_by_its_size_and_time() {
    let (folder, source) = (tempfile::tempdir().expect("a scratch folder"), source());
    copied(Arc::new(Real), folder.path(), &source).await.0.expect("a copy");
    let (_, again) = copied(Arc::new(Real), folder.path(), &source).await;
    let all: u64 = FILES.iter().map(|(_, size)| size).sum();
    assert_eq!((again.files_present, again.bytes_present), (5, all), "what is whole is not fetched again");
    for key in ["a/b/large", "d"] {
        let path = folder.path().join(key);
        let found = path.metadata().expect("a file");
        let file = File::options().write(true).open(&path).expect("it is ours");
        file.set_len(1 << 20).and_then(|()| file.set_len(found.len())).expect("a hole");
        file.set_modified(found.modified().expect("its time")).expect("its time");
    }
    let (_, mended) = copied(Arc::new(Real), folder.path(), &source).await;
    assert_eq!((mended.files_present, mended.bytes_present), (3, 75_000));
    assert_right(folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_copies_into_one_folder_are_not_made_at_once() {
    let (folder, source) = (tempfile::tempdir().expect("a scratch folder"), source());
    let top = File::open(folder.path()).expect("a folder");
    top.try_lock().expect("nobody copies");
    let refused = copied(Arc::new(Real), folder.path(), &source).await.0.expect_err("another one copies");
    assert!(refused.what.contains("another copy"), "{refused}");
    drop(top);
    copied(Arc::new(Real), folder.path(), &source).await.0.expect("a copy");
    assert_right(folder.path());
}
