//! What `load` and `load --verify` promise on a cluster of whole nodes in one process: what they call there, or verified, is so.

mod support;

use block::{Checksum, Object, Result, Waiting};
use bytes::Bytes;
use futures_util::StreamExt;
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::{Body, Counters, Memory, Pages, Store};
use support::{Pool, bytes};

/// An object of stripes of several owners, the last of them short.
const LARGE: u64 = (272 << 20) + 7;

/// Room for all of it, in one file or, a quarter of it being less, in stripes.
const ROOM_WHOLE: u64 = 4 << 30;

const ROOM_CUT: u64 = 1 << 30;

/// Flip a bit of the first bytes that lie in a file of a cache, as a bad disk does. Members have large objects with holes.
fn rot(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let file = std::fs::File::options().read(true).write(true).open(path).expect("a cache file");
    for start in (0..file.metadata().expect("its length").len()).step_by(16 << 20) {
        // The last stripe may be of few bytes.
        let mut first = [0; 64];
        let read = file.read_at(&mut first, start).expect("bytes");
        if first != [0; 64] {
            let at = 9.min(read - 1);
            return file.write_all_at(&[first[at] ^ 4], start + at as u64).expect("damage");
        }
    }
    panic!("nothing lies in {}", path.display());
}

#[tokio::test(start_paused = true)]
async fn what_is_damaged_of_a_large_object_is_mended_by_one_verify() {
    let (store, content) = (Memory::new("set"), bytes(1, LARGE));
    store.put("large", content.clone());
    let pool = Pool::pair(Arc::new(store), ROOM_WHOLE).await;
    pool.load(0, false).await;
    for damaged in [1, 0] {
        pool.files(damaged).iter().for_each(|path| rot(path));
        let loaded = pool.load(0, true).await;
        assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (1, 0, 0), "{loaded:?}");
        assert!(loaded.bytes_present < LARGE, "what was damaged was fetched: {loaded:?}");
        assert_eq!(pool.load(1, false).await.bytes_present, LARGE, "all of it lies there");
    }
    assert!(pool.reads(0, "large", &content).await && pool.reads(1, "large", &content).await);
}

#[tokio::test(start_paused = true)]
async fn a_verify_reads_the_copies_of_its_own_node_again() {
    let (store, files) = (Memory::new("set"), 40);
    let name = |file: u64| format!("{file:02}");
    for file in 0..files {
        store.put(&name(file), bytes(file, 100_000));
    }
    let pool = Pool::pair(Arc::new(store), ROOM_WHOLE).await;
    for (number, file) in [0, 1].into_iter().flat_map(|number| (0..files).map(move |file| (number, file))) {
        assert!(pool.reads(number, &name(file), &bytes(file, 100_000)).await);
    }
    let kept = pool.files(1);
    assert_eq!(kept.len() as u64, files, "what it owns, and copies of the rest");
    kept.iter().for_each(|path| rot(path));
    let loaded = pool.load(1, true).await;
    assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (files, 0, 0), "{loaded:?}");
    let mut wrong = 0;
    for file in 0..files {
        wrong += u64::from(!pool.reads(1, &name(file), &bytes(file, 100_000)).await);
    }
    assert_eq!(wrong, 0, "of {files} files");
}

/// A store that flips a bit in some of its answers, and says what all bytes are together.
struct Lying {
    truth: Memory,
    content: Bytes,
    lies: AtomicU64,
    /// Whether it lies only of how an object begins: once each time that all of it is fetched.
    is_once: bool,
    /// Its checksums are of a kind that doesn't follow from those of parts.
    is_narrow: bool,
}

impl Lying {
    fn of(lies: u64, is_narrow: bool) -> Arc<Lying> {
        let lying =
            Lying { truth: Memory::new("set"), content: bytes(1, LARGE), lies: lies.into(), is_once: true, is_narrow };
        lying.truth.put("large", lying.content.clone());
        Arc::new(lying)
    }
}

impl Store for Lying {
    fn identity(&self) -> &Arc<str> {
        self.truth.identity()
    }

    fn list(&self, prefix: &str) -> Pages {
        self.truth.list(prefix)
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        let is_true = self.is_once && range.start > 0;
        let body = self.truth.get(object, range);
        if is_true || self.lies.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            return body;
        }
        let lie = |(number, piece): (usize, Result<Bytes>)| match piece {
            Ok(piece) if number == 0 => Ok([&[piece[0] ^ 4][..], &piece[1..]].concat().into()),
            piece => piece,
        };
        Box::pin(async move {
            let Body { checksum, bytes } = body.await?;
            Ok(Body { checksum, bytes: bytes.enumerate().map(lie).boxed() })
        })
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        if !self.is_narrow {
            return self.truth.checksum(object);
        }
        let mut digest = Checksum::Crc32C(0).digest();
        digest.update(&self.content);
        Box::pin(std::future::ready(Ok(Some(Checksum::Crc32C(digest.value() as u32)))))
    }

    fn counters(&self) -> &Arc<Counters> {
        self.truth.counters()
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_compares_a_large_object_of_a_cluster_as_a_whole_and_has_it_fetched_anew() {
    for (room, is_narrow) in [(ROOM_CUT, false), (ROOM_WHOLE, false), (ROOM_CUT, true)] {
        let store = Lying::of(1, is_narrow);
        let pool = Pool::pair(store.clone(), room).await;
        // What doesn't follow from what members say is read again only if somebody wants that.
        let loaded = pool.load(0, is_narrow).await;
        assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (1, 0, 0), "{loaded:?}");
        for number in [0, 1] {
            assert!(pool.reads(number, "large", &store.content).await, "room {room}, is narrow: {is_narrow}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_readers_brought_wrong_is_found_by_a_verify_on_any_member_with_the_copies_of_it() {
    let store = Lying::of(1, false);
    let pool = Pool::pair(store.clone(), ROOM_CUT).await;
    for number in [0, 1] {
        assert!(!pool.reads(number, "large", &store.content).await, "nobody sees the whole");
    }
    let loaded = pool.load(0, true).await;
    assert_eq!((loaded.files_done, loaded.files_failed), (1, 0), "{loaded:?}");
    for number in [0, 1] {
        assert!(pool.reads(number, "large", &store.content).await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_store_gives_wrong_each_time_is_never_called_verified() {
    for verify in [false, true] {
        let pool = Pool::pair(Lying::of(u64::MAX, false), ROOM_CUT).await;
        let loaded = pool.load(0, verify).await;
        assert_eq!((loaded.files_done, loaded.files_failed), (0, 1), "{loaded:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_store_gives_wrong_is_fetched_three_times_and_no_fourth() {
    let mut once = 0;
    for (lies, is_done) in [(0, 1), (2, 1), (3, 0)] {
        let store = Lying::of(lies, false);
        let pool = Pool::pair(store.clone(), ROOM_CUT).await;
        let loaded = pool.load(0, false).await;
        assert_eq!((loaded.files_done, loaded.files_failed), (is_done, 1 - is_done), "{lies} lies: {loaded:?}");
        let gets = store.counters().snapshot().gets;
        if lies == 0 {
            once = gets;
        }
        assert_eq!(gets, once * (lies + 1).min(3), "{lies} lies");
        assert!(is_done == 0 || pool.reads(1, "large", &store.content).await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_lies_in_part_and_finds_no_room_is_not_left_wrong_by_a_verify() {
    let (files, size) = (9, 20 << 20);
    let (name, truth) = (|file: u64| file.to_string(), Memory::new("set"));
    (0..files).for_each(|file| drop(truth.put(&name(file), bytes(file, size))));
    let store = Arc::new(Lying { truth, content: Bytes::new(), lies: 0.into(), is_once: false, is_narrow: false });
    // Each has room for four of them, and for a stripe of a fifth.
    let pool = Pool::pair(store.clone(), 98 << 20).await;
    let wrong = async || {
        let mut wrong = 0;
        for (number, file) in [0, 1].into_iter().flat_map(|number| (0..files).map(move |file| (number, file))) {
            wrong += u64::from(!pool.reads(number, &name(file), &bytes(file, size)).await);
        }
        wrong
    };
    for _ in 0..2 {
        for number in [0, 1] {
            let loaded = pool.load(number, false).await;
            assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (8, 1, 0), "all say the same");
        }
        assert_eq!(wrong().await, 0);
    }
    for (view, file) in pool.views.iter().flat_map(|view| (0..files).map(move |file| (view, file))) {
        let object = view.manifest().find(name(file).as_bytes()).and_then(|node| view.manifest().object(node));
        view.node().stack().forget(&object.expect("a file"));
    }
    store.lies.store(1, Relaxed);
    assert!(wrong().await > 0, "nobody sees the whole");
    store.lies.store(0, Relaxed);
    for number in [0, 1] {
        let loaded = pool.load(number, true).await;
        assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (8, 1, 0), "{loaded:?}");
    }
    assert_eq!(wrong().await, 0, "of {files} files");
}
