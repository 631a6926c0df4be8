//! A whole node over a store in memory: what a mount would ask of it, without a kernel.

use crate::fill::When;
use crate::load::{Loading, Progress};
use crate::namespace::{Namespace, Opening, Reading};
use crate::node::{Node, Settings};
use crate::select::Wanted;
use crate::view::{DataSet, View};
use block::{Run, SMALL};
use cache::disk::Limits;
use futures_util::StreamExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tempfile::TempDir;

mod members;

/// A node, the store that its data set lies in, and the folder of its cache.
pub struct Ground {
    pub store: Arc<store::Memory>,
    pub node: Arc<Node>,
    pub _folder: TempDir,
}

/// Bytes that differ everywhere, and from those of every other file.
pub fn content(key: &str, size: u64) -> Vec<u8> {
    let seed = xxhash_rust::xxh3::xxh3_64(key.as_bytes());
    let word = |at: u64| xxhash_rust::xxh3::xxh3_64_with_seed(&at.to_le_bytes(), seed).to_le_bytes();
    let mut bytes: Vec<u8> = (0..size.div_ceil(8)).flat_map(word).collect();
    bytes.truncate(size as usize);
    bytes
}

pub fn ground(limit_bytes: u64, files: &[(&str, u64)]) -> Ground {
    let store = Arc::new(store::Memory::new("set"));
    for (key, size) in files {
        store.put(key, content(key, *size));
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let node = start(&folder, limit_bytes, [7; 16]);
    Ground { store, node, _folder: folder }
}

fn settings(folder: &TempDir, limit_bytes: u64) -> Settings {
    Settings {
        cache: folder.path().to_owned(),
        limits: Limits { bytes: limit_bytes, files: 1 << 20, free_bytes_min: 0, free_files_min: 0 },
        memory_bytes: 256 << 20,
        seed: 1,
        patience: Duration::from_secs(1),
    }
}

pub fn start(folder: &TempDir, limit_bytes: u64, boot: [u8; 16]) -> Arc<Node> {
    Node::start(settings(folder, limit_bytes), boot, tokio::runtime::Handle::current()).expect("a node")
}

impl Ground {
    pub async fn view(&self, fill: When) -> Arc<View> {
        let url = "memory://set".to_string();
        let source = DataSet {
            url,
            store: self.store.clone(),
            prefix: String::new(),
            local: None,
            manifest: None,
            may_be_empty: false,
        };
        View::open(self.node.clone(), source, fill, |_| ()).await.expect("a view")
    }

    /// Bytes that came from the store.
    pub fn sent(&self) -> u64 {
        self.node.figures().origin.1
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_goes_on_counts_what_it_fetched_and_what_it_found() {
    let ground = ground(1 << 30, &[("half", 8 << 20), ("new", 3 << 20), ("small", 1000), ("there", SMALL)]);
    let view = ground.view(When::Off).await;
    let object = |name: &str| {
        let manifest = view.manifest();
        manifest.find(name.as_bytes()).and_then(|node| manifest.object(node)).expect("a file")
    };
    for (name, blocks) in [("half", 0..16), ("there", 0..1)] {
        let mut blocks = ground.node.stack.inner().fetch(Run::new(object(name), blocks).via(view.door()));
        while let Some(block) = blocks.next().await {
            block.expect("a block");
        }
    }
    let (before, tally) = (ground.sent(), Arc::new(Loading::default()));
    view.load(&Wanted::default(), false, &tally).await.expect("a load");
    let progress = tally.progress();
    assert_eq!((progress.files_done, progress.bytes_done), (4, (12 << 20) + 1000));
    assert_eq!((progress.files_present, progress.bytes_present), (1, (4 << 20) + SMALL));
    assert_eq!(ground.sent() - before, progress.bytes_done - progress.bytes_present);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_loads_at_once_each_counts_what_it_asked_for_and_finds_the_rest() {
    let ground = ground(1 << 30, &[("large", 8 << 20), ("other", 3 << 20), ("small", 1000)]);
    let view = ground.view(When::Off).await;
    let tallies = [Arc::new(Loading::default()), Arc::new(Loading::default())];
    let wanted = Wanted::default();
    let [first, second] = tallies.each_ref().map(|tally| view.load(&wanted, false, tally));
    let (first, second) = tokio::join!(first, second);
    first.and(second).expect("both end");
    let fetched = tallies.map(|tally| {
        let progress = tally.progress();
        assert_eq!((progress.files_done, progress.bytes_done), (3, (11 << 20) + 1000));
        progress.bytes_done - progress.bytes_present
    });
    assert_eq!(fetched.iter().sum::<u64>(), ground.sent(), "{fetched:?}");
    assert_eq!(ground.sent(), (11 << 20) + 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_into_a_disk_whose_files_are_all_open_says_what_was_not_kept_and_fetches_none_of_it() {
    let ground = ground(300_000, &[("a", 100_000), ("b", 100_000), ("c", 100_000)]);
    let view = ground.view(When::Off).await;
    let load = async || {
        let tally = Arc::new(Loading::default());
        view.load(&Wanted::default(), false, &tally).await.expect("a load");
        let Progress { files_done, files_unkept, files_failed, .. } = tally.progress();
        (files_done, files_unkept, files_failed)
    };
    assert_eq!(load().await, (3, 0, 0));
    let node = |name: &str| view.manifest().find(name.as_bytes()).expect("a name");
    let open = |name| match view.open(node(name)) {
        Opening::Ready(content) => content.expect("it is complete"),
        Opening::Waiting(_) => panic!("it is complete"),
    };
    let (held, sent) = (["a", "b", "c"].map(open), ground.sent());
    // The new listing names none of them any more, and readers read on.
    ["a", "b", "c"].iter().for_each(|key| ground.store.remove(key));
    ground.store.put("d", content("d", 100_000));
    view.refresh(|_| ()).await.expect("a listing");
    assert_eq!((load().await, ground.sent()), ((0, 1, 0), sent));
    drop(held);
    assert_eq!((load().await, ground.sent()), ((1, 0, 0), sent + 100_000));
}

/// Nothing here takes longer; without it a failure would be a hang.
const LONG: Duration = Duration::from_secs(60);

/// Wait until something is there.
async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let found = tokio::time::timeout(LONG, async {
        loop {
            match look() {
                Some(found) => return found,
                None => tokio::task::yield_now().await,
            }
        }
    });
    found.await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// The files of objects in a cache folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let below =
        |folder: &Path| std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    below(&folder.join("blocks/objects")).flat_map(|near| below(&near).collect::<Vec<_>>()).collect()
}

/// The largest file in a cache folder.
fn largest(folder: &Path) -> PathBuf {
    files(folder).into_iter().max_by_key(|path| path.metadata().expect("a file").len()).expect("a file")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_verifies_counts_all_that_it_fetches_anew() {
    let size = 48 << 20;
    let ground = ground(100 << 20, &[("striped", size)]);
    let view = ground.view(When::Off).await;
    let load = async |verify| {
        let tally = Arc::new(Loading::default());
        view.load(&Wanted::default(), verify, &tally).await.expect("a load");
        tally.progress()
    };
    load(false).await;
    let stripes = files(ground._folder.path());
    assert_eq!(stripes.len(), 3);
    for stripe in &stripes[1..] {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(stripe).expect("a file");
        file.write_all_at(b"rotten", 1000).expect("written");
    }
    let before = ground.sent();
    let verified = load(true).await;
    assert_eq!((verified.bytes_done, verified.bytes_present), (size, 16 << 20), "two of three stripes were damaged");
    assert_eq!(ground.sent() - before, 32 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_from_the_disk_take_a_part_of_the_memory_and_no_more() {
    let ground = ground(1 << 30, &[("file", 3 << 20)]);
    let view = ground.view(When::Off).await;
    view.load(&Wanted::default(), false, &Arc::new(Loading::default())).await.expect("a load");
    let node = view.manifest().find(b"file").expect("a name");
    let Opening::Ready(Ok(opened)) = view.open(node) else { panic!("it is complete") };
    let turns = &ground.node.disk_reads;
    let reads = || {
        let Reading::Waiting(read) = opened.read(0, 1 << 20) else { panic!("it is too long for that") };
        read
    };
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(reads().await.expect("bytes"));
    }
    assert_eq!(turns.available_permits(), 0, "eight of them take a part in thirty-two of 256 MiB");
    let one_more = tokio::spawn(reads());
    held.pop();
    assert!(one_more.await.expect("a read").expect("bytes")[0][..] == content("file", 3 << 20)[..1 << 20]);
}

/// A node whose cache holds one file, over 64 MiB, that was kept in an earlier boot.
async fn booted_again(size: u64, damage: impl FnOnce(&Path)) -> (Ground, Arc<View>) {
    let ground = ground(1 << 30, &[("large", size)]);
    let view = ground.view(When::Off).await;
    view.load(&Wanted::default(), false, &Arc::new(Loading::default())).await.expect("a load");
    let Ground { store, node, _folder: folder } = ground;
    view.close();
    drop((view, node));
    damage(&largest(folder.path()));
    let start = || Node::start(settings(&folder, 1 << 30), [8; 16], tokio::runtime::Handle::current()).ok();
    let node = until("the node of before lets go of its folder", start).await;
    let ground = Ground { store, node, _folder: folder };
    let view = ground.view(When::Off).await;
    (ground, view)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_of_an_earlier_boot_is_served_at_once_and_passes_through_once_it_was_checked() {
    let size = (64 << 20) + 5;
    let (ground, view) = booted_again(size, |_| ()).await;
    let node = view.manifest().find(b"large").expect("a name");
    let Opening::Ready(first) = view.open(node) else { panic!("the open waits for the whole file") };
    assert!(first.expect("content").backing().is_none(), "the kernel must not read what nobody compared");
    read(&view, "large", &content("large", size)).await;
    let passes = || match view.open(node) {
        Opening::Ready(content) => content.expect("content").backing().is_some().then_some(()),
        Opening::Waiting(_) => None,
    };
    until("it passes through", passes).await;
    assert_eq!(ground.sent(), 0, "nothing is fetched again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_that_rotted_in_an_earlier_boot_is_served_right_before_it_was_checked() {
    use std::os::unix::fs::{FileExt, PermissionsExt};
    let size = (64 << 20) + 5;
    let last = u64::from(READ_BYTES) / 2;
    let flip = |path: &Path| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("it is ours");
        let file = std::fs::File::options().read(true).write(true).open(path).expect("the cache file");
        let mut byte = [0];
        file.read_exact_at(&mut byte, size - last)
            .and_then(|()| file.write_all_at(&[byte[0] ^ 1], size - last))
            .expect("a flip");
    };
    let (ground, view) = booted_again(size, flip).await;
    let Opening::Ready(opened) = view.open(view.manifest().find(b"large").expect("a name")) else {
        panic!("the open waits for the whole file")
    };
    // Where the check comes last.
    let pieces = match opened.expect("content").read(size - last, READ_BYTES) {
        Reading::Ready(pieces) => pieces,
        Reading::Waiting(pieces) => pieces.await,
    };
    let expected = content("large", size);
    assert!(pieces.expect("bytes").concat() == expected[(size - last) as usize..], "a rotten byte was served");
    read(&view, "large", &expected).await;
    assert!(ground.sent() > 0, "what rotted came from the store");
}

/// Bytes that one read of the kernel asks for.
const READ_BYTES: u32 = 128 << 10;

/// Open a file, read it whole and compare it.
async fn read(view: &View, name: &str, expected: &[u8]) {
    let node = view.manifest().find(name.as_bytes()).expect("a file");
    let content = match view.open(node) {
        Opening::Ready(content) => content,
        Opening::Waiting(content) => content.await,
    };
    let (content, mut bytes) = (content.expect("an open file"), Vec::new());
    while bytes.len() < expected.len() {
        let pieces = match content.read(bytes.len() as u64, READ_BYTES) {
            Reading::Ready(pieces) => pieces,
            Reading::Waiting(pieces) => pieces.await,
        };
        bytes.extend(pieces.expect("bytes").concat());
    }
    assert!(bytes == expected, "{name}");
}

/// Each file opened once and read whole, in an order that is not that of the names, by several readers. What came
/// from the store, over the size of the set.
async fn cold_epoch(fill: When, size: u64, files: usize, room: f64, readers: usize) -> f64 {
    let names: Vec<String> = (0..files).map(|number| format!("train/{:02}/{number:04}", number % 7)).collect();
    let set: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), size)).collect();
    let bytes = size * files as u64;
    let ground = ground((bytes as f64 * room) as u64, &set);
    let view = ground.view(fill).await;
    let order = (0..files).map(|step| names[step * 7_919 % files].clone());
    let reads = order.map(|name| {
        let view = view.clone();
        tokio::spawn(async move { read(&view, &name, &content(&name, size)).await })
    });
    futures_util::stream::iter(reads)
        .buffer_unordered(readers)
        .for_each(|done| async { done.expect("a reader") })
        .await;
    ground.sent() as f64 / bytes as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_epoch_fetches_each_byte_once_whatever_is_filled() {
    for (size, files) in [(100_000, 60), (1_000_000, 24), (4_000_000, 11), (17_000_000, 5)] {
        for room in [0.5, 1.0] {
            for fill in [When::Off, When::Auto, When::All] {
                let share = cold_epoch(fill, size, files, room, 4).await;
                assert!((1.0..=1.005).contains(&share), "{share} with {files} of {size}, room {room}, {fill:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_takes_free_room_and_keeps_what_it_fetches() {
    const MIB: u64 = 1 << 20;
    let names: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
    let set: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 3 * MIB)).collect();
    let ground = ground(31 * MIB, &set);
    let view = ground.view(When::All).await;
    let kept = || view.fill().files.load(Relaxed);
    tokio::time::timeout(Duration::from_secs(60), async {
        while kept() < 10 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("ten files fit");
    for name in &names {
        read(&view, name, &content(name, 3 * MIB)).await;
    }
    assert_eq!((kept(), ground.sent()), (10, 60 * MIB));
    drop(view);
    // A task that has just ended may have it for a moment longer.
    let is_held = || ground.node.figures().names_bytes > 0;
    tokio::time::timeout(Duration::from_secs(60), async {
        while is_held() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("nothing holds on to a view that has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_grows_at_the_cost_of_blocks() {
    let names: Vec<String> = (0..3000).map(|n| format!("{n}")).collect();
    let files: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 10)).collect();
    let ground = ground(1 << 30, &files);
    let sum = |figures: &crate::Figures| figures.index_bytes.next_multiple_of(4 << 10) + figures.blocks.1;
    // Not at the start, which does not wait for the index to be read.
    ground.node.make_room_for_index();
    let before = ground.node.figures();
    let view = ground.view(When::Off).await;
    view.load(&Wanted::default(), false, &Arc::new(Loading::default())).await.expect("a load");
    ground.node.make_room_for_index();
    let after = ground.node.figures();
    assert!(after.index_bytes >= before.index_bytes + 3000 * 20, "{} and {}", before.index_bytes, after.index_bytes);
    assert_eq!(sum(&after), sum(&before), "blocks leave what the index takes");
}

/// The names of the files of a cache.
fn cache_files(folder: &Path) -> Vec<String> {
    let below = |folder: &Path| std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let files = below(&folder.join("blocks/objects")).flat_map(|near| below(&near).collect::<Vec<_>>());
    files.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_that_had_a_removed_folder_in_turn_share_no_file() {
    let first = ground(1 << 30, &[("a", 3 << 20), ("b", 1000)]);
    let folder = first._folder.path().join("cache");
    let node = |seed| {
        let settings = Settings { cache: folder.clone(), seed, ..settings(&first._folder, 1 << 30) };
        Node::start(settings, [7; 16], tokio::runtime::Handle::current())
    };
    let ground = |node| Ground { store: first.store.clone(), node, _folder: tempfile::tempdir().expect("a folder") };
    let (one, other);
    let load = async |ground: &Ground| {
        let view = ground.view(When::Off).await;
        view.load(&Wanted::default(), false, &Arc::new(Loading::default())).await.expect("a load");
        let object = view.manifest().find(b"a").and_then(|node| view.manifest().object(node));
        (view, object.expect("a file"))
    };
    one = ground(node(1).expect("a node"));
    let (_view, object) = load(&one).await;
    let before = cache_files(&folder);
    assert!(before.len() == 2 && one.node.stack.is_complete(&object));
    std::fs::remove_dir_all(&folder).expect("removed");
    other = ground(node(2).expect("nobody else has the new folder"));
    let _other = load(&other).await;
    let after = cache_files(&folder);
    assert!(after.len() == 2 && !before.iter().any(|file| after.contains(file)), "{before:?} and {after:?}");
    until("the first node sees it", || (!one.node.stack.is_complete(&object)).then_some(())).await;
    drop(load(&one).await);
    assert!(!one.node.stack.is_complete(&object), "it keeps nothing there");
    assert_eq!(cache_files(&folder), after, "nothing was touched");
    assert!(other.node.stack.is_complete(&object));
}
