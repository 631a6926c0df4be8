//! What `load` and `load --verify` promise on a cluster of whole nodes in one process: what they call there, or verified, is so.

use block::{Checksum, Object, Result, Stripe, Waiting};
use bytes::Bytes;
use futures_util::StreamExt;
use peer::{Roster, Seat, Twin};
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use stoker_node::fill::When;
use stoker_node::load::Progress;
use stoker_node::namespace::{Namespace, Opening, Reading};
use stoker_node::select::Wanted;
use stoker_node::{DataSet, Home, Membership, Node, Settings, View};
use store::{Body, Counters, Memory, Pages, Store};
use tempfile::TempDir;
use tokio::sync::watch;

/// An object of stripes of several owners, the last of them short.
const LARGE: u64 = (272 << 20) + 7;

/// Room for all of it, in one file or, a quarter of it being less, in stripes.
const ROOM_WHOLE: u64 = 4 << 30;

const ROOM_CUT: u64 = 1 << 30;

/// Memory of a node: what came and isn't on its disk stays there.
const MEMORY: u64 = 2 << 30;

/// Two nodes that are one cache.
struct Pair {
    nodes: Vec<Arc<Node>>,
    views: Vec<Arc<View>>,
    servers: Vec<tokio::task::JoinHandle<()>>,
    folders: Vec<TempDir>,
    rosters: Vec<watch::Sender<Arc<Roster>>>,
}

fn seats(weights: [u32; 2]) -> Vec<Seat> {
    (0..2).map(|n| Seat::new(format!("n{n}"), format!("n{n}:1"), weights[n])).collect()
}

impl Pair {
    async fn over(store: Arc<dyn Store>, room: u64) -> Pair {
        let (twin, runtime) = (Twin::default(), tokio::runtime::Handle::current());
        let seats = seats([1, 1]);
        let mut pair = Pair { nodes: vec![], views: vec![], servers: vec![], folders: vec![], rosters: vec![] };
        for seat in &seats {
            let (sender, roster) = watch::channel(Arc::new(Roster::of(seat.id, seats.clone())));
            pair.rosters.push(sender);
            let folder = tempfile::tempdir().expect("a folder");
            let limits = cache::disk::Limits { bytes: room, files: 1 << 20, free_bytes_min: 0, free_files_min: 0 };
            let settings = Settings {
                cache: folder.path().to_owned(),
                limits,
                memory_bytes: MEMORY,
                seed: 1,
                patience: Duration::from_secs(3600),
            };
            let membership =
                Membership { members: "twin".into(), roster, transport: Arc::new(twin.clone()), is_encrypted: false };
            let home = Home::take(folder.path(), false).expect("a home");
            let node = Node::start_in(home, settings, [7; 16], runtime.clone(), Some(membership)).expect("a node");
            let lines = node.stack().lines().expect("it is a member").clone();
            pair.servers.push(tokio::spawn(peer::serve(Box::new(twin.listen(&seat.address)), node.giving(), lines)));
            pair.nodes.push(node);
            pair.folders.push(folder);
        }
        for node in &pair.nodes {
            let source =
                DataSet { url: "memory://set".into(), store: store.clone(), prefix: String::new(), local: None };
            pair.views.push(View::open(node.clone(), source, When::Off, |_| ()).await.expect("a view"));
        }
        pair
    }

    /// Load all of the set on one of them.
    async fn load(&self, number: usize, verify: bool) -> Progress {
        let tally = Arc::default();
        self.views[number].load(&Wanted::default(), verify, &tally).await.expect("names that are known");
        let loaded = tally.progress();
        println!("loaded on {number}, verify {verify}: {loaded:?}");
        loaded
    }

    /// The files of the cache of one of them.
    fn files(&self, number: usize) -> Vec<PathBuf> {
        let below = |folder: &Path| std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
        let objects = self.folders[number].path().join("blocks/objects");
        below(&objects).flat_map(|near| below(&near).collect::<Vec<_>>()).collect()
    }

    /// Whether one of them reads these bytes.
    async fn reads(&self, number: usize, name: &str, expected: &[u8]) -> bool {
        let read = read(&self.views[number], name, expected).await;
        println!("{name} on {number}: {read:?}");
        read.unwrap_or(false)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.servers.iter().for_each(tokio::task::JoinHandle::abort);
        self.views.iter().for_each(|view| view.close());
    }
}

/// As a mount does: a complete file is read by the kernel.
async fn read(view: &View, name: &str, expected: &[u8]) -> Result<bool> {
    let node = view.manifest().find(name.as_bytes()).expect("a file");
    let content = match view.open(node) {
        Opening::Ready(content) => content?,
        Opening::Waiting(content) => content.await?,
    };
    if let Some(file) = content.backing() {
        let file = std::fs::File::from(file.try_clone_to_owned().expect("a descriptor"));
        let mut bytes = vec![0; expected.len()];
        return Ok(file.read_exact_at(&mut bytes, 0).is_ok() && bytes == expected);
    }
    let mut is_right = true;
    for (number, expected) in expected.chunks(1 << 20).enumerate() {
        let pieces = match content.read((number as u64) << 20, expected.len() as u32) {
            Reading::Ready(pieces) => pieces?,
            Reading::Waiting(pieces) => pieces.await?,
        };
        is_right &= pieces.concat() == expected;
    }
    Ok(is_right)
}

/// Bytes of which each stripe and each file has others.
fn bytes(seed: u64, size: u64) -> Bytes {
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed << 32;
    let words = (0..size.div_ceil(8)).flat_map(|at| word(at).to_le_bytes());
    words.take(size as usize).collect::<Vec<u8>>().into()
}

/// Flip a bit of the first bytes that lie in a file of a cache, as a bad disk does. Members have large objects with holes.
fn rot(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let file = std::fs::File::options().read(true).write(true).open(path).expect("a cache file");
    let mut byte = [0];
    for start in (0..file.metadata().expect("its length").len()).step_by(16 << 20) {
        let mut first = [0; 64];
        file.read_exact_at(&mut first, start).expect("bytes");
        if first != [0; 64] {
            file.read_exact_at(&mut byte, start + 9).expect("a byte");
            return file.write_all_at(&[byte[0] ^ 4], start + 9).expect("damage");
        }
    }
    panic!("nothing lies in {}", path.display());
}

#[tokio::test(start_paused = true)]
async fn what_is_damaged_of_a_large_object_is_mended_by_one_verify() {
    let (store, content) = (Memory::new("set"), bytes(1, LARGE));
    store.put("large", content.clone());
    let pair = Pair::over(Arc::new(store), ROOM_WHOLE).await;
    pair.load(0, false).await;
    for damaged in [1, 0] {
        pair.files(damaged).iter().for_each(|path| rot(path));
        let loaded = pair.load(0, true).await;
        assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (1, 0, 0), "{loaded:?}");
        assert!(loaded.bytes_present < LARGE, "what was damaged was fetched: {loaded:?}");
        assert_eq!(pair.load(1, false).await.bytes_present, LARGE, "all of it lies there");
    }
    assert!(pair.reads(0, "large", &content).await && pair.reads(1, "large", &content).await);
}

#[tokio::test(start_paused = true)]
async fn a_verify_reads_the_copies_of_its_own_node_again() {
    let (store, files) = (Memory::new("set"), 40);
    let name = |file: u64| format!("{file:02}");
    for file in 0..files {
        store.put(&name(file), bytes(file, 100_000));
    }
    let pair = Pair::over(Arc::new(store), ROOM_WHOLE).await;
    for (number, file) in [0, 1].into_iter().flat_map(|number| (0..files).map(move |file| (number, file))) {
        assert!(pair.reads(number, &name(file), &bytes(file, 100_000)).await);
    }
    let kept = pair.files(1);
    assert_eq!(kept.len() as u64, files, "what it owns, and copies of the rest");
    kept.iter().for_each(|path| rot(path));
    let loaded = pair.load(1, true).await;
    assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (files, 0, 0), "{loaded:?}");
    let mut wrong = 0;
    for file in 0..files {
        wrong += u64::from(!pair.reads(1, &name(file), &bytes(file, 100_000)).await);
    }
    assert_eq!(wrong, 0, "of {files} files");
}

/// A store that flips a bit in some of its answers, and says what all bytes are together.
struct Lying {
    truth: Memory,
    content: Bytes,
    lies: AtomicU64,
    /// Its checksums are of a kind that doesn't follow from those of parts.
    is_narrow: bool,
}

impl Lying {
    fn of(lies: u64, is_narrow: bool) -> Arc<Lying> {
        let lying = Lying { truth: Memory::new("set"), content: bytes(1, LARGE), lies: lies.into(), is_narrow };
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
        let body = self.truth.get(object, range);
        if self.lies.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
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
        let pair = Pair::over(store.clone(), room).await;
        // What doesn't follow from what members say is read again only if somebody wants that.
        let loaded = pair.load(0, is_narrow).await;
        assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (1, 0, 0), "{loaded:?}");
        for number in [0, 1] {
            assert!(pair.reads(number, "large", &store.content).await, "room {room}, is narrow: {is_narrow}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_readers_brought_wrong_is_found_by_a_verify_on_any_member_with_the_copies_of_it() {
    let store = Lying::of(1, false);
    let pair = Pair::over(store.clone(), ROOM_CUT).await;
    for number in [0, 1] {
        assert!(!pair.reads(number, "large", &store.content).await, "nobody sees the whole");
    }
    let loaded = pair.load(0, true).await;
    assert_eq!((loaded.files_done, loaded.files_failed), (1, 0), "{loaded:?}");
    for number in [0, 1] {
        assert!(pair.reads(number, "large", &store.content).await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_store_gives_wrong_each_time_is_never_called_verified() {
    for verify in [false, true] {
        let pair = Pair::over(Lying::of(u64::MAX, false), ROOM_CUT).await;
        let loaded = pair.load(0, verify).await;
        assert_eq!((loaded.files_done, loaded.files_failed), (0, 1), "{loaded:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_lies_in_part_and_finds_no_room_is_not_left_wrong_by_a_verify() {
    let (files, size) = (9, 20 << 20);
    let (name, truth) = (|file: u64| file.to_string(), Memory::new("set"));
    (0..files).for_each(|file| drop(truth.put(&name(file), bytes(file, size))));
    let store = Arc::new(Lying { truth, content: Bytes::new(), lies: 0.into(), is_narrow: false });
    // Each has room for four of them, and for a stripe of a fifth.
    let pair = Pair::over(store.clone(), 98 << 20).await;
    let wrong = async || {
        let mut wrong = 0;
        for (number, file) in [0, 1].into_iter().flat_map(|number| (0..files).map(move |file| (number, file))) {
            wrong += u64::from(!pair.reads(number, &name(file), &bytes(file, size)).await);
        }
        wrong
    };
    for _ in 0..2 {
        for number in [0, 1] {
            let loaded = pair.load(number, false).await;
            assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (8, 1, 0), "all say the same");
        }
        assert_eq!(wrong().await, 0);
    }
    for (view, file) in pair.views.iter().flat_map(|view| (0..files).map(move |file| (view, file))) {
        let object = view.manifest().find(name(file).as_bytes()).and_then(|node| view.manifest().object(node));
        view.node().stack().forget(&object.expect("a file"));
    }
    store.lies.store(1, Relaxed);
    assert!(wrong().await > 0, "nobody sees the whole");
    store.lies.store(0, Relaxed);
    for number in [0, 1] {
        let loaded = pair.load(number, true).await;
        assert_eq!((loaded.files_done, loaded.files_unkept, loaded.files_failed), (8, 1, 0), "{loaded:?}");
    }
    assert_eq!(wrong().await, 0, "of {files} files");
}

#[tokio::test(start_paused = true)]
async fn who_owns_more_from_now_on_hears_who_has_it() {
    let (store, files) = (Arc::new(Memory::new("set")), 40);
    let name = |file: u64| format!("{file:02}");
    (0..files).for_each(|file| drop(store.put(&name(file), bytes(file, 100_000))));
    let pair = Pair::over(store.clone(), ROOM_WHOLE).await;
    assert_eq!(pair.load(0, false).await.files_done, files);
    let asked = || store.counters().snapshot().gets;
    let (before, seats) = (asked(), seats([1, 9]));
    assert_eq!(before, files);
    for (number, roster) in pair.rosters.iter().enumerate() {
        roster.send_replace(Arc::new(Roster::of(seats[number].id, seats.clone())));
    }
    let lines = pair.nodes[1].stack().lines().expect("it is a member").clone();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(lines.placed() > 10, "{}", lines.placed());
    // Longer than it would be in doubt for any other reason.
    tokio::time::sleep(Duration::from_secs(60)).await;
    for file in 0..files {
        assert!(pair.reads(1, &name(file), &bytes(file, 100_000)).await);
    }
    assert_eq!(asked(), before, "all of it lies there");
}

/// What a member took while an owner stood still holds no room for good once the owner has it, too.
#[tokio::test(start_paused = true)]
async fn what_an_owner_has_itself_nobody_keeps_in_its_stead() {
    let (store, size) = (Arc::new(Memory::new("set")), 100_000);
    (0..40).for_each(|file: u64| drop(store.put(&format!("{file:02}"), bytes(file, size))));
    let pair = Pair::over(store.clone(), ROOM_WHOLE).await;
    let lines = pair.nodes.iter().map(|node| node.stack().lines().expect("it is a member").clone()).collect::<Vec<_>>();
    let (roster, names) = (lines[1].roster(), pair.views[0].manifest());
    let objects = (0..40)
        .map(|file| names.object(names.find(format!("{file:02}").as_bytes()).expect("a file")).expect("its object"));
    let first = |object: Arc<block::Object>| block::Address { object, index: 0 };
    let owned: Vec<_> =
        objects.map(first).filter(|address| roster.owner(&Stripe::of(address)) == Some(roster.me())).collect();
    assert!(owned.len() > 10);
    let spare = || pair.nodes[0].stack().spare_bytes();
    let before = spare();
    for node in &pair.nodes {
        for address in &owned {
            let brought = node.giving().bring(address.clone(), peer::Manner::default()).expect("the set is known");
            assert!(matches!(brought.await.expect("bytes"), peer::Brought::There { .. }));
        }
    }
    let kept = owned.len() as u64 * size;
    assert_eq!(before - spare(), kept, "it keeps them as its own");
    let stripes: Vec<_> = owned.iter().map(Stripe::of).collect();
    assert!(lines[0].tell_kept(roster.me(), &stripes).await);
    // As others, it is asked a moment later, on a thread of its own.
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((before - spare(), lines[1].placed()), (0, 0), "they are copies by now");
    let asked = store.counters().snapshot().gets;
    for number in [0, 1] {
        for file in 0..40 {
            assert!(pair.reads(number, &format!("{file:02}"), &bytes(file, size)).await);
        }
    }
    let rest = 40 - owned.len() as u64;
    assert_eq!(store.counters().snapshot().gets - asked, rest, "what is owned is there still");
}
