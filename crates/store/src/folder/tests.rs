//! A folder on the disk of this machine, with what a file system has beyond a store.

use super::*;
use crate::contract::{self, Fixture, find, listed};
use block::Kind;
use futures_util::future::{BoxFuture, FutureExt};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::UNIX_EPOCH;
use tempfile::TempDir;

/// Nothing here takes longer on a machine that works at all.
const LONG: Duration = Duration::from_secs(60);

struct Scratch(TempDir, Folder);

impl Scratch {
    fn new() -> Scratch {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::at(directory.path(), Settings::default()).expect("a folder");
        Scratch(directory, folder)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.path().join(key)
    }

    fn write(&self, key: &str, content: &[u8]) {
        let path = self.path(key);
        fs::create_dir_all(path.parent().expect("below the root")).expect("folders");
        // As tools that care write: beside, then into place. It also makes the inode a new one.
        let beside = self.path(".beside");
        fs::write(&beside, content).expect("a file");
        fs::rename(beside, path).expect("a name");
    }

    async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = listed(&self.1, "").await.iter().map(|object| object.key.clone()).collect();
        keys.sort();
        keys
    }

    fn skipped(&self) -> u64 {
        self.1.counters().snapshot().skipped
    }
}

impl Fixture for Scratch {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.1.clone())
    }

    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, bool> {
        let fits = path_of(key).is_some();
        if fits {
            // One name for the file beside is enough: futures of one test run on one thread.
            self.write(key, &content);
        }
        Box::pin(std::future::ready(fits))
    }
}

crate::contract!(promises, Some(Scratch::new()));

#[tokio::test]
async fn a_file_that_changes_under_the_reader_is_an_error_not_a_mix() {
    let scratch = Scratch::new();
    scratch.write("k", &contract::pattern(3 * PIECE, 1));
    let object = find(&scratch.1, "k").await;
    let mut bytes = scratch.1.get(&object, 0..object.size).await.expect("a body").bytes;
    bytes.next().await.expect("a piece").expect("of the version asked for");
    let same_inode = fs::OpenOptions::new().write(true).open(scratch.path("k")).expect("the file");
    std::os::unix::fs::FileExt::write_all_at(&same_inode, b"new", 2 * PIECE).expect("written");
    drop(same_inode);
    let error = bytes.next().await.expect("an answer").expect_err("changed");
    assert_eq!(error.kind, Kind::Changed);
}

#[tokio::test]
async fn a_fresh_version_is_not_to_be_kept_and_an_old_one_is() {
    let scratch = Scratch::new();
    scratch.write("k", b"x");
    let fresh = find(&scratch.1, "k").await;
    assert!(!crate::is_settled(&fresh));
    let later = Settings { now: || SystemTime::now() + SETTLED_AFTER, ..Settings::default() };
    let later = Folder::at(scratch.0.path(), later).expect("a folder");
    let old = find(&later, "k").await;
    assert!(crate::is_settled(&old));
    for object in [fresh, old] {
        later.get(&object, 0..1).await.expect("both name the same bytes");
    }
    let before = Settings { now: || UNIX_EPOCH, ..Settings::default() };
    let before = Folder::at(scratch.0.path(), before).expect("a folder");
    assert!(!crate::is_settled(&*find(&before, "k").await), "a clock that runs behind keeps nothing");
}

#[tokio::test]
async fn links_are_followed_below_the_folder_and_never_out_of_it() {
    let scratch = Scratch::new();
    let outside = tempfile::tempdir().expect("a directory");
    fs::write(outside.path().join("secret"), b"secret").expect("a file");
    scratch.write("a/file", b"inside");
    symlink("a/file", scratch.path("to-file")).expect("a link");
    symlink("a", scratch.path("to-folder")).expect("a link");
    symlink("..", scratch.path("a/circle")).expect("a link");
    symlink("nowhere", scratch.path("to-nowhere")).expect("a link");
    symlink(outside.path().join("secret"), scratch.path("to-secret")).expect("a link");
    symlink(outside.path(), scratch.path("to-outside")).expect("a link");
    assert_eq!(scratch.keys().await, ["a/file", "to-file", "to-folder/file"]);
    assert!(scratch.skipped() >= 4);
    let inside = find(&scratch.1, "to-file").await;
    scratch.1.open(&inside).expect("a file below the folder");
    for key in ["to-secret", "to-outside/secret", "../secret", "/etc/hostname"] {
        let object = Object { key: key.into(), ..(*inside).clone() };
        let error = scratch.1.open(&object).expect_err(key);
        assert!(matches!(error.kind, Kind::Denied | Kind::Missing), "{key}: {error}");
    }
}

#[tokio::test]
async fn names_that_cannot_be_keys_are_counted_and_left_out() {
    let scratch = Scratch::new();
    scratch.write("good", b"x");
    fs::write(scratch.0.path().join(std::ffi::OsStr::from_bytes(b"bad\xff")), b"x").expect("a file");
    std::os::unix::net::UnixListener::bind(scratch.path("socket")).expect("a socket");
    assert_eq!(scratch.keys().await, ["good"]);
    assert_eq!(scratch.skipped(), 2);
}

#[tokio::test]
async fn a_link_that_fails_other_than_by_leading_nowhere_fails_the_listing() {
    let scratch = Scratch::new();
    scratch.write("good", b"x");
    symlink("nowhere", scratch.path("broken")).expect("a link");
    assert_eq!((scratch.keys().await, scratch.skipped()), (vec!["good".to_owned()], 1));
    symlink("n".repeat(300), scratch.path("link")).expect("a link");
    let pages: Vec<_> = scratch.1.list("").collect().await;
    let error = pages.into_iter().find_map(Result::err).expect("no whole listing");
    assert!(error.to_string().contains("can't be looked at") && error.on.ends_with("/link"), "{error}");
}

#[tokio::test]
async fn a_descriptor_is_of_the_version_asked_for_and_read_only() {
    let scratch = Scratch::new();
    scratch.write("k", b"content");
    let object = find(&scratch.1, "k").await;
    let file = scratch.1.open(&object).expect("the file");
    let flags = rustix::fs::fcntl_getfl(&file).expect("flags");
    assert_eq!(flags & OFlags::ACCMODE, OFlags::RDONLY);
    scratch.write("k", b"changed");
    assert_eq!(scratch.1.open(&object).expect_err("changed").kind, Kind::Changed);
}

#[test]
fn reads_that_hang_and_were_given_up_leave_threads_and_turns_to_others() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.max_blocking_threads(turns::ALL + 1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let scratch = Scratch::new();
        scratch.write("k", b"content");
        let object = find(&scratch.1, "k").await;
        let (hang, hung) = std::sync::mpsc::sync_channel::<()>(0);
        let hung = Arc::new(std::sync::Mutex::new(hung));
        // Two file systems, of which folders are opened again and again.
        for folder in 0..6 {
            let mut other = Folder::at(scratch.0.path(), Settings::default()).expect("a folder");
            Arc::get_mut(&mut other.0).expect("no other has it").device = folder % 2;
            for _ in 0..3 * turns::ONE_MAX {
                let hung = hung.clone();
                let hangs = other.0.read(move || Ok(hung.lock().is_ok_and(|hung| hung.recv().is_ok())));
                assert!(hangs.now_or_never().is_none(), "it hangs, and is given up");
            }
            let others = tokio::time::timeout(LONG, tokio::task::spawn_blocking(|| ()));
            assert!(others.await.is_ok(), "all threads of the runtime wait for folders");
            let healthy = tokio::time::timeout(LONG, scratch.1.get(&object, 0..7));
            assert!(healthy.await.expect("a turn").is_ok());
        }
        drop(hang);
    });
}

#[test]
fn a_read_that_waits_for_its_first_bytes_counts_as_in_flight() {
    // One thread reads, and is busy until it is told that it isn't.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let scratch = Scratch::new();
        scratch.write("k", b"content");
        let object = find(&scratch.1, "k").await;
        let in_flight = || scratch.1.counters().snapshot().in_flight;
        let (go, busy) = std::sync::mpsc::sync_channel::<()>(0);
        let busy = tokio::task::spawn_blocking(move || busy.recv());
        let mut waits = scratch.1.get(&object, 0..7);
        assert!((&mut waits).now_or_never().is_none() && in_flight() == 1);
        let mut given_up = scratch.1.get(&object, 0..7);
        assert!((&mut given_up).now_or_never().is_none() && in_flight() == 2);
        drop(given_up);
        assert_eq!(in_flight(), 1);
        drop(go);
        waits.await.expect("the file");
        assert_eq!(in_flight(), 0);
        assert!(busy.await.expect("it ends").is_err(), "nothing was sent");
    });
}

#[test]
fn a_listing_of_a_folder_that_hangs_is_given_up_and_none_begins_until_it_answers() {
    static ANSWERS: std::sync::Mutex<()> = std::sync::Mutex::new(());
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let now = || {
        ASKED.fetch_add(1, Relaxed);
        drop(ANSWERS.lock());
        SystemTime::now()
    };
    let scratch = Scratch::new();
    scratch.write("k", b"content");
    let hangs = Folder::at(scratch.0.path(), Settings { now, ..Settings::default() }).expect("a folder");
    let mut other = Folder::at(scratch.0.path(), hangs.0.settings).expect("a folder");
    Arc::get_mut(&mut other.0).expect("no other has it").device += 1;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let held = ANSWERS.lock();
    runtime.expect("a runtime").block_on(async {
        let mut pages = hangs.list("");
        while ASKED.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        for _ in 0..2 {
            let error = pages.next().await.expect("an answer").expect_err("it hangs");
            assert_eq!(error.kind, Kind::Unavailable { retry_after: None });
            let (said, path) = (error.to_string(), scratch.0.path().display().to_string());
            assert!(["did not answer within 10s", "`ls`", &*path].iter().all(|word| said.contains(word)), "{said}");
            assert!(pages.next().await.is_none());
            pages = hangs.list("");
        }
        assert_eq!(ASKED.load(Relaxed), 1, "the second listing took no further threads");
        let pages = other.list("");
        while ASKED.load(Relaxed) == 1 {
            std::thread::yield_now();
        }
        drop(pages);
        tokio::time::sleep(ANSWERS_WITHIN).await;
        assert!(other.list("").next().await.expect("an answer").is_err(), "the one that was dropped hangs");
        assert_eq!(ASKED.load(Relaxed), 2, "another file system was asked, and no longer once it was known to hang");
        tokio::time::resume();
        drop(held);
        while hangs.list("").next().await.is_none_or(|page| page.is_err()) {
            tokio::task::yield_now().await;
        }
    });
}

#[tokio::test]
async fn a_listing_may_be_dropped_half_way() {
    let scratch = Scratch::new();
    for folder in 0..40 {
        for file in 0..100 {
            scratch.write(&format!("{folder}/{file}"), b"");
        }
    }
    drop(scratch.1.list(""));
    assert_eq!(scratch.keys().await.len(), 4000);
}

#[test]
fn a_folder_that_is_not_there_says_so() {
    let error = Folder::at(Path::new("/nowhere/at/all"), Settings::default()).err().expect("no folder");
    assert_eq!(error.kind, Kind::Missing);
    assert!(error.to_string().contains("/nowhere/at/all"));
}
