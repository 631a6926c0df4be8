//! What whole nodes that are one cache, in one process, keep for each other: as members join, begin anew, weigh nothing, or read
//! by other credentials.

mod support;

use block::{Checksum, Error, Object, Stripe, Waiting};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use store::{Body, Counters, Memory, Pages, Store};
use support::{NO_DOUBT, Pool, bytes};

/// Bytes of a file, each of which is one request, and files of a set.
const BYTES: u64 = 100_000;
const FILES: u64 = 40;

/// Room for all that is ever put.
const PLENTY: u64 = 1 << 30;

fn name(file: u64) -> String {
    format!("{file:02}")
}

fn put(store: &Memory, files: Range<u64>) {
    files.for_each(|file| drop(store.put(&name(file), bytes(file, BYTES))));
}

/// A store of so many files.
fn set(files: u64) -> Arc<Memory> {
    let store = Arc::new(Memory::new("set"));
    put(&store, 0..files);
    store
}

/// Room for so many files, and no more.
fn room(files: u64) -> u64 {
    files * BYTES + BYTES / 2
}

fn gets(store: &Memory) -> u64 {
    store.counters().snapshot().gets
}

impl Pool {
    /// How many files one of them reads right.
    async fn reads_right(&self, number: usize, files: Range<u64>) -> u64 {
        let mut right = 0;
        for file in files {
            right += u64::from(self.reads(number, &name(file), &bytes(file, BYTES)).await);
        }
        right
    }
}

/// A store as one principal sees it, who may be refused all bytes.
struct Principal {
    truth: Arc<Memory>,
    who: &'static str,
    is_refused: bool,
}

impl Store for Principal {
    fn identity(&self) -> &Arc<str> {
        self.truth.identity()
    }

    fn who(&self) -> Waiting<String> {
        Box::pin(std::future::ready(Ok(self.who.into())))
    }

    fn list(&self, prefix: &str) -> Pages {
        self.truth.list(prefix)
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        match self.is_refused {
            true => Box::pin(std::future::ready(Err(Error::denied("no access", &**object)))),
            false => self.truth.get(object, range),
        }
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        self.truth.checksum(object)
    }

    fn counters(&self) -> &Arc<Counters> {
        self.truth.counters()
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_of_two_principals_give_each_other_nothing() {
    for is_refused in [false, true] {
        let truth = set(FILES);
        let one = Principal { truth: truth.clone(), who: "a", is_refused: false };
        let other = Principal { truth: truth.clone(), who: "b", is_refused };
        let pool = Pool::of(&[1, 1], &[PLENTY; 2], vec![Arc::new(one), Arc::new(other)]).await;
        assert_eq!((pool.reads_right(0, 0..FILES).await, gets(&truth)), (FILES, FILES));
        let (right, asked) = if is_refused { (0, FILES) } else { (FILES, 2 * FILES) };
        assert_eq!((pool.reads_right(1, 0..FILES).await, gets(&truth)), (right, asked), "refused: {is_refused}");
        let loaded = pool.load(1, false).await;
        assert_eq!((loaded.files_done, loaded.files_failed), (right, FILES - right));
        assert_eq!((pool.served(0), pool.served(1)), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_of_one_principal_share_what_either_fetches() {
    let truth = set(FILES);
    let same = || Arc::new(Principal { truth: truth.clone(), who: "a", is_refused: false });
    let pool = Pool::of(&[1, 1], &[PLENTY; 2], vec![same(), same()]).await;
    for number in [0, 1] {
        assert_eq!((pool.reads_right(number, 0..FILES).await, gets(&truth)), (FILES, FILES));
    }
}

/// Where the next in line is full, another one keeps what there is no room for: only those who keep it know.
#[tokio::test(start_paused = true)]
async fn who_begins_anew_hears_what_others_keep_in_its_stead() {
    let store = set(FILES);
    let stores: Vec<Arc<dyn Store>> = (0..3).map(|_| store.clone() as Arc<dyn Store>).collect();
    let mut pool = Pool::of(&[1; 3], &[room(2), room(16), room(30)], stores).await;
    // Until each has heard how much room the others have.
    tokio::time::sleep(NO_DOUBT).await;
    let loaded = pool.load(0, false).await;
    assert_eq!((loaded.files_done, gets(&store)), (FILES, FILES));
    assert_eq!([0, 1, 2].map(|number| pool.files(number).len()).iter().sum::<usize>() as u64, FILES, "each lies once");
    pool.restart(0).await;
    tokio::time::sleep(2 * NO_DOUBT).await;
    for number in [0, 1, 2] {
        assert_eq!((pool.reads_right(number, 0..FILES).await, gets(&store)), (FILES, FILES), "read on {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_member_owns_gives_way_first_to_what_a_node_owns() {
    // The index of an earlier run doesn't tell what is another's.
    for is_begun_anew in [false, true] {
        let store = set(FILES);
        let stores: Vec<Arc<dyn Store>> = vec![store.clone(), store.clone()];
        // A little more than all files need, if none lies twice.
        let mut pool = Pool::of(&[1, 0], &[room(FILES), room(24)], stores).await;
        assert_eq!((pool.load(0, false).await.files_done, pool.files(0).len() as u64), (FILES, FILES), "it is full");
        pool.weigh(&[1, 1]);
        tokio::time::sleep(NO_DOUBT).await;
        let loaded = pool.load(1, false).await;
        assert_eq!((loaded.files_done, gets(&store)), (FILES, FILES), "its part came from who owned it before");
        if is_begun_anew {
            pool.restart(0).await;
        }
        put(&store, FILES..FILES + 20);
        for view in &pool.views {
            view.refresh(|_| ()).await.expect("a listing");
        }
        tokio::time::sleep(NO_DOUBT).await;
        let loaded = pool.load(0, false).await;
        assert_eq!((loaded.files_done, loaded.files_unkept), (FILES + 20, 0), "begun anew: {is_begun_anew}");
        for number in [0, 1] {
            assert_eq!((pool.reads_right(number, 0..FILES + 20).await, gets(&store)), (FILES + 20, FILES + 20));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_weighs_nothing_keeps_nothing_for_others_and_reads_all() {
    // Also in the stead of one that has no room.
    for (files, kept) in [(room(FILES), FILES), (room(10), 10)] {
        let store = set(FILES);
        let pool = Pool::of(&[1, 0], &[files, PLENTY], vec![store.clone(), store.clone()]).await;
        tokio::time::sleep(NO_DOUBT).await;
        let loaded = pool.load(1, false).await;
        assert_eq!((loaded.files_done, loaded.files_unkept), (kept, FILES - kept));
        assert_eq!([0, 1].map(|number| pool.files(number).len() as u64), [kept, 0]);
        for number in [0, 1, 0] {
            assert_eq!(pool.reads_right(number, 0..FILES).await, FILES);
        }
        assert!(kept < FILES || gets(&store) == FILES && pool.served(1) == 0);
        assert!(pool.served(0) >= kept);
    }
}

#[tokio::test(start_paused = true)]
async fn who_owns_more_from_now_on_hears_who_has_it() {
    let store = set(FILES);
    let pool = Pool::pair(store.clone(), PLENTY).await;
    assert_eq!((pool.load(0, false).await.files_done, gets(&store)), (FILES, FILES));
    pool.weigh(&[1, 9]);
    let lines = pool.nodes[1].stack().lines().expect("it is a member").clone();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(lines.placed() > 10, "{}", lines.placed());
    // Longer than it would be in doubt for any other reason.
    tokio::time::sleep(NO_DOUBT).await;
    assert_eq!((pool.reads_right(1, 0..FILES).await, gets(&store)), (FILES, FILES), "all of it lies there");
}

/// What a member took while an owner stood still holds no room for good once the owner has it, too.
#[tokio::test(start_paused = true)]
async fn what_an_owner_has_itself_nobody_keeps_in_its_stead() {
    let (store, size) = (Arc::new(Memory::new("set")), 100_000);
    (0..40).for_each(|file: u64| drop(store.put(&format!("{file:02}"), bytes(file, size))));
    let pool = Pool::pair(store.clone(), 4 << 30).await;
    let lines = pool.nodes.iter().map(|node| node.stack().lines().expect("it is a member").clone()).collect::<Vec<_>>();
    let (roster, names) = (lines[1].roster(), pool.views[0].manifest());
    let objects = (0..40)
        .map(|file| names.object(names.find(format!("{file:02}").as_bytes()).expect("a file")).expect("its object"));
    let first = |object: Arc<block::Object>| block::Address { object, index: 0 };
    let owned: Vec<_> =
        objects.map(first).filter(|address| roster.owner(&Stripe::of(address)) == Some(roster.me())).collect();
    assert!(owned.len() > 10);
    let spare = || pool.nodes[0].stack().spare_bytes();
    let before = spare();
    for node in &pool.nodes {
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
            assert!(pool.reads(number, &format!("{file:02}"), &bytes(file, size)).await);
        }
    }
    let rest = 40 - owned.len() as u64;
    assert_eq!(store.counters().snapshot().gets - asked, rest, "what is owned is there still");
}
