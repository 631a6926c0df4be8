//! A node that takes names of another member, which says what a test has it say.

use super::{content, settings};
use crate::cluster::Membership;
use crate::fill::When;
use crate::home::Home;
use crate::manifest::{Builder, Manifest};
use crate::node::Node;
use crate::view::{DataSet, View};
use block::{Address, Blocks, Checksum, Course, Object, Run, Waiting};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use peer::{Brought, Count, For, Giver, Lines, Manner, Names, Opened, PIECE_BYTES, Room, Roster, Seat, Twin, serve};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::Listed;
use tokio::sync::watch;

/// The other member: the names that it says to have, and the bytes of their snapshot.
#[derive(Default)]
struct Other {
    says: Mutex<(Names, Vec<u8>)>,
    /// Pieces that it was asked for.
    pieces: AtomicUsize,
}

impl Other {
    fn say(&self, names: Names, snapshot: Vec<u8>) {
        self.pieces.store(0, Relaxed);
        *self.says.lock().expect("nobody panicked") = (names, snapshot);
    }
}

impl Giver for Other {
    fn fetch(&self, _run: Run) -> Option<Blocks> {
        None
    }

    fn open(&self, _run: &Run) -> Option<Arc<dyn Opened>> {
        None
    }

    fn given_bytes(&self) -> u64 {
        1 << 20
    }

    fn course(&self, _manner: Manner) -> Course {
        Course::default()
    }

    fn shared(&self, _run: Run) -> Option<Blocks> {
        None
    }

    fn held(&self, _run: Run) -> Option<Blocks> {
        None
    }

    fn lent(&self, _run: Run, _ticket: u64) -> Option<Blocks> {
        None
    }

    fn checksum(&self, _object: &Arc<Object>) -> Option<Waiting<Option<Checksum>>> {
        None
    }

    fn bring(&self, _address: Address, _manner: Manner) -> Option<Waiting<Brought>> {
        None
    }

    fn room(&self, _address: &Address, _asker: For) -> Room {
        Room::Full
    }

    fn used(&self, _uses: Vec<Count>) {}

    fn room_bytes(&self) -> (u64, u64) {
        (0, 0)
    }

    fn stale_bytes(&self) -> u64 {
        0
    }

    fn names(&self, _set: u128) -> Names {
        self.says.lock().expect("nobody panicked").0
    }

    /// What lies behind the end of the snapshot is zeros.
    fn piece(&self, _set: u128, _id: u128, offset: u64) -> BoxFuture<'static, Bytes> {
        self.pieces.fetch_add(1, Relaxed);
        let says = self.says.lock().expect("nobody panicked");
        let due = (says.0.bytes - offset).min(PIECE_BYTES as u64) as usize;
        let mut piece: Vec<u8> = says.1.iter().skip(offset as usize).take(due).copied().collect();
        piece.resize(due, 0);
        Box::pin(std::future::ready(piece.into()))
    }

    fn news(&self, _set: u128) {}
}

/// A node, and the other member. Both end when this is dropped.
struct Two {
    node: Arc<Node>,
    other: Arc<Other>,
    store: Arc<store::Memory>,
    folder: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
    _rosters: [watch::Sender<Arc<Roster>>; 2],
}

impl Drop for Two {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn two() -> Two {
    let (twin, folder, runtime) =
        (Twin::default(), tempfile::tempdir().expect("a folder"), tokio::runtime::Handle::current());
    let seats = ["n0", "n1"].map(|name| Seat::new(name, format!("{name}:1"), 1));
    let rosters = [0, 1].map(|n: usize| watch::channel(Arc::new(Roster::of(seats[n].id, seats.clone()))));
    let [(one, told), (another, roster)] = rosters;
    let (other, transport) = (Arc::new(Other::default()), Arc::new(twin.clone()));
    let lines = Lines::new(told, transport.clone(), Duration::from_secs(1), runtime.clone());
    let server = tokio::spawn(serve(Box::new(twin.listen("n0:1")), other.clone(), lines));
    let membership = Membership { members: "members".into(), roster, transport, is_encrypted: true };
    let settings = settings(&folder, 1 << 30);
    let home = Home::take(&settings.cache, false).expect("a folder of its own");
    let node = Node::start_in(home, settings, [7; 16], runtime, Some(membership)).expect("a node");
    let store = Arc::new(store::Memory::new("set"));
    store.put("a", content("a", 1000));
    Two { node, other, store, folder, server, _rosters: [one, another] }
}

impl Two {
    async fn view(&self) -> Arc<View> {
        let (url, store) = ("memory://set".to_string(), self.store.clone());
        let source = DataSet { url, store, prefix: String::new(), local: None, manifest: None, may_be_empty: false };
        View::open(self.node.clone(), source, When::Off, |_| ()).await.expect("a view")
    }

    /// A snapshot as another member would write it on top of this one, listed then; and what it says of it.
    fn snapshot(&self, previous: &Manifest, prefix: &str, listed_ns: i64) -> (Names, Vec<u8>) {
        let path = self.folder.path().join("theirs");
        let built = write(&path, previous, prefix, listed_ns, Some(previous));
        let names = Names {
            id: built.id(),
            before: built.before(),
            fingerprint: built.fingerprint(),
            bytes: built.file_bytes(),
            listed_ns: built.listed_ns(),
            ..Names::default()
        };
        (names, std::fs::read(&path).expect("a snapshot"))
    }
}

/// Write a snapshot of the set of another one.
fn write(path: &Path, like: &Manifest, prefix: &str, listed_ns: i64, previous: Option<&Manifest>) -> Manifest {
    let mut builder = Builder::new(like.store().clone(), prefix).expect("a prefix");
    let listed = |name: &str| Listed { key: format!("{prefix}{name}"), version: "1".into(), size: 10, modified_ns: 7 };
    builder.add(&[listed("a"), listed("b")]).expect("keys");
    builder.build(path, listed_ns, previous).expect("a snapshot").manifest
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_nanos() as i64
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_said_to_be_of_the_future_keep_nobody_from_following_others() {
    let two = two();
    let view = two.view().await;
    let mine = view.manifest();
    two.other.say(Names { id: 5, before: 4, bytes: 1 << 20, listed_ns: i64::MAX, ..Names::default() }, Vec::new());
    assert!(view.follow().await.expect("nobody to follow").is_none());
    assert_eq!(view.manifest().id(), mine.id(), "nor does it list for them");
    let (names, snapshot) = two.snapshot(&mine, "", mine.listed_ns() + 1);
    two.other.say(names, snapshot);
    assert!(view.follow().await.expect("names to follow").is_some());
    assert_eq!((view.manifest().id(), view.manifest().totals().files), (names.id, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_a_node_look_for_an_object_that_no_store_can_have() {
    let two = two();
    let view = two.view().await;
    let (store, manner) = (view.manifest().store().clone(), Manner { is_wrong: true, ..Manner::default() });
    let bring = |size| {
        let object = Arc::new(Object { store: store.clone(), key: "k".into(), version: "v".into(), size });
        two.node.giving().bring(Address { object, index: 0 }, manner).expect("it reads that store")
    };
    assert_eq!(bring(5 << 40).await.expect("there is none of it"), Brought::Unkept);
    let error = bring(block::BLOCK * u64::from(u32::MAX)).await.expect_err("it is a lie");
    assert_eq!(error.kind, block::Kind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_in_answer_to_others_is_no_news_to_them() {
    let two = two();
    let view = two.view().await;
    let mine = view.manifest();
    let theirs = Names { id: 5, before: 4, bytes: 1 << 20, listed_ns: mine.listed_ns() + 1, ..Names::default() };
    two.other.say(theirs, Vec::new());
    two.store.put("b", content("b", 1000));
    assert!(view.follow().await.expect("a listing").is_some(), "it can't follow them");
    let listed = view.shared_names();
    assert_eq!((view.totals().files, listed.listed_ns), (2, theirs.listed_ns), "nor could they follow it");
    assert!(view.follow().await.expect("nothing new").is_none());
    assert_eq!(view.shared_names(), listed);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_listed_for_others_who_found_the_same() {
    let two = two();
    let view = two.view().await;
    let mine = view.shared_names();
    let theirs = Names { id: 5, before: 4, listed_ns: mine.listed_ns + 1, ..mine };
    two.other.say(theirs, Vec::new());
    assert!(view.follow().await.expect("nothing new").is_none());
    assert_eq!((view.shared_names(), view.listed_ns()), (mine, theirs.listed_ns));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_begins_anew_still_tells_on_which_names_its_own_were_built() {
    let two = two();
    let first = two.view().await;
    let before = first.manifest().short_id();
    first.refresh(|_| ()).await.expect("a listing");
    let told = first.shared_names();
    assert_eq!(told.before, before);
    first.close();
    drop(first);
    assert_eq!(two.view().await.shared_names(), told);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_listing_is_newer_than_one_by_a_clock_that_was_ahead_unless_nobody_believes_that() {
    let minute = Duration::from_mins(1).as_nanos() as i64;
    for (ahead, is_believed) in [(2 * minute, true), (60 * minute, false)] {
        let two = two();
        let first = two.view().await;
        let (path, mine) = (first.snapshot().to_owned(), first.manifest());
        first.close();
        drop(first);
        write(&path, &mine, "", now_ns() + ahead, None);
        let view = two.view().await;
        let listed_ns = view.manifest().listed_ns();
        assert!(listed_ns > now_ns() + minute, "it is pinned");
        two.store.put("b", content("b", 1000));
        let began_ns = now_ns();
        view.refresh(|_| ()).await.expect("a listing");
        let again_ns = view.manifest().listed_ns();
        if is_believed {
            assert_eq!(again_ns, listed_ns + 1);
        } else {
            assert!((began_ns..=now_ns()).contains(&again_ns));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_was_ahead_follows_others_again() {
    let two = two();
    let first = two.view().await;
    let (path, mine) = (first.snapshot().to_owned(), first.manifest());
    first.close();
    drop(first);
    write(&path, &mine, "", now_ns() + Duration::from_mins(60).as_nanos() as i64, None);
    let (names, snapshot) = two.snapshot(&mine, "", now_ns());
    two.other.say(names, snapshot);
    let view = two.view().await;
    assert_eq!(view.manifest().id(), names.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_another_set_or_another_length_are_found_out_by_their_first_piece() {
    let two = two();
    let view = two.view().await;
    let mine = view.manifest();
    let (names, snapshot) = two.snapshot(&mine, "", now_ns());
    let (elsewhere, another) = two.snapshot(&mine, "elsewhere/", now_ns());
    let long = 64 << 20;
    let lies = [
        (Names { bytes: long, ..names }, Vec::new()),
        (Names { bytes: long, ..names }, snapshot.clone()),
        (elsewhere, another),
        (Names { id: 7, ..names }, snapshot.clone()),
    ];
    for (number, (names, snapshot)) in lies.into_iter().enumerate() {
        two.other.say(names, snapshot);
        let error = view.follow().await.expect_err("a lie");
        assert_eq!((error.kind, two.other.pieces.load(Relaxed)), (block::Kind::Corrupt, 1), "lie {number}");
        assert_eq!(view.manifest().id(), mine.id());
    }
    two.other.say(names, snapshot);
    assert!(view.follow().await.expect("names to follow").is_some());
}
