//! Who asks at the same time is answered by one fetch, however each of them reads, and however it ends.

use super::*;
use block::{BLOCK, Fixed, Kind, SMALL};
use futures_util::stream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use tokio::sync::Semaphore;

/// A source that counts what it is asked for, waits for leave before each block, and may fail.
struct Below {
    fixed: Fixed,
    leave: Arc<Semaphore>,
    blocks: Arc<AtomicUsize>,
    fetches: AtomicUsize,
    /// Streams that were read to their end.
    ended: Arc<AtomicUsize>,
    panics: AtomicBool,
    /// Whose credentials are refused.
    refused: Door,
    /// Found when all blocks have come.
    is_wrong: bool,
    /// Found when all but the last block have been given.
    fails_last: bool,
}

impl Below {
    fn open() -> Below {
        Below {
            fixed: Fixed::default(),
            leave: Arc::new(Semaphore::new(0)),
            blocks: Arc::default(),
            fetches: AtomicUsize::new(0),
            ended: Arc::default(),
            panics: AtomicBool::new(false),
            refused: Door::of(99),
            is_wrong: false,
            fails_last: false,
        }
    }
}

impl Source for Below {
    fn fetch(&self, run: Run) -> Blocks {
        self.fetches.fetch_add(1, Relaxed);
        let (leave, count, ended) = (self.leave.clone(), self.blocks.clone(), self.ended.clone());
        let (panics, is_wrong, object) = (self.panics.load(Relaxed), self.is_wrong, run.object.clone());
        let fails_last = self.fails_last;
        let (is_refused, refused) = (run.via == self.refused, run.object.clone());
        let blocks = self.fixed.fetch(run).then(move |got| {
            let (leave, count) = (leave.clone(), count.clone());
            let got = if is_refused { Err(Error::denied("wrong keys", &*refused)) } else { got };
            let is_last = got.as_ref().is_ok_and(|block| block.address.index + 1 == BLOCKS);
            let wrong = Error::corrupt("it differs from the checksum of the whole", &*refused);
            let got = if fails_last && is_last { Err(wrong) } else { got };
            async move {
                leave.acquire().await.expect("it is open").forget();
                assert!(!panics, "the tier below panics");
                count.fetch_add(1, Relaxed);
                got
            }
        });
        let end = stream::once(async move {
            ended.fetch_add(1, Relaxed);
            is_wrong.then(|| Err(Error::corrupt("the whole is wrong", &*object)))
        });
        blocks.chain(end.filter_map(std::future::ready)).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.fixed.checksum(object, via)
    }
}

const BLOCKS: u32 = 16;

fn set(mut below: Below) -> (Arc<Below>, Arc<Object>, Flight) {
    let content: Vec<u8> = (0..u64::from(BLOCKS) * BLOCK).map(|at| (at / BLOCK) as u8).collect();
    let object = below.fixed.add("object", content);
    let below = Arc::new(below);
    let flight = Flight::over(below.clone(), Budget::of(64 * SMALL), tokio::runtime::Handle::current());
    (below, object, flight)
}

fn whole(object: &Arc<Object>) -> Run {
    Run::new(object.clone(), 0..BLOCKS)
}

/// Read a run on a task of its own; the first error, or how many blocks came right.
fn read(flight: &Flight, run: Run) -> tokio::task::JoinHandle<Result<u32>> {
    let mut blocks = flight.fetch(run);
    tokio::spawn(async move {
        let mut count = 0;
        while let Some(block) = blocks.next().await {
            let block = block?;
            assert!(block.pieces().concat().iter().all(|byte| u32::from(*byte) == block.address.index));
            count += 1;
        }
        Ok(count)
    })
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

fn on_their_way(flight: &Flight) -> usize {
    flight.parts.known().coming.len()
}

/// Counts, each time it is woken, the blocks that are on their way in a flight.
struct Watcher(Flight, Mutex<Vec<usize>>);

impl std::task::Wake for Watcher {
    fn wake(self: Arc<Self>) {
        self.1.lock().expect("nobody panicked").push(on_their_way(&self.0));
    }
}

#[tokio::test]
async fn with_the_first_failure_of_a_fetch_none_of_its_blocks_is_on_its_way() {
    let (below, object, flight) = set(Below::open());
    below.leave.add_permits(BLOCKS as usize);
    let watcher = Arc::new(Watcher(flight.clone(), Mutex::default()));
    let mut blocks = flight.fetch(whole(&object).via(below.refused).with_room());
    let waker = watcher.clone().into();
    assert!(blocks.poll_next_unpin(&mut std::task::Context::from_waker(&waker)).is_pending());
    assert_eq!(on_their_way(&flight), BLOCKS as usize);
    let woken = || watcher.1.lock().expect("nobody panicked").clone();
    until(|| !woken().is_empty()).await;
    assert_eq!(woken(), [0]);
}

#[tokio::test]
async fn a_flight_keeps_the_promises_of_a_source() {
    for has_room in [false, true] {
        block::contract::run(|fixed| {
            let (budget, runtime) = (Budget::of(64 * SMALL), tokio::runtime::Handle::current());
            let flight = Flight::over(Arc::new(fixed), budget, runtime);
            let source: Arc<dyn Source> = if has_room { Arc::new(WithRoom(flight)) } else { Arc::new(flight) };
            (source, ())
        })
        .await;
    }
}

/// An asker that has taken shares.
struct WithRoom(Flight);

impl Source for WithRoom {
    fn fetch(&self, run: Run) -> Blocks {
        self.0.fetch(run.with_room())
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}

#[tokio::test]
async fn two_sources_that_ask_at_once_share_one_fetch() {
    let (below, object, flight) = set(Below::open());
    let readers =
        [whole(&object).with_room(), whole(&object), Run::new(object.clone(), 3..9)].map(|run| read(&flight, run));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    below.leave.add_permits(100);
    let mut came = Vec::new();
    for reader in readers {
        came.push(reader.await.expect("a reader").expect("blocks"));
    }
    assert_eq!(came, [16, 16, 6]);
    assert_eq!((below.blocks.load(Relaxed), below.fetches.load(Relaxed)), (16, 1));
    assert_eq!((on_their_way(&flight), flight.parts.budget.usage().0), (0, 0), "nothing is held");
}

#[tokio::test]
async fn what_is_not_on_its_way_is_fetched_around_what_is() {
    let (below, object, flight) = set(Below::open());
    let middle = read(&flight, Run::new(object.clone(), 5..9));
    until(|| on_their_way(&flight) == 4).await;
    let all = read(&flight, whole(&object).with_room());
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    below.leave.add_permits(100);
    assert_eq!(middle.await.expect("a reader").expect("blocks"), 4);
    assert_eq!(all.await.expect("a reader").expect("blocks"), 16);
    assert_eq!((below.blocks.load(Relaxed), below.fetches.load(Relaxed)), (16, 3));
}

#[tokio::test]
async fn a_panic_below_fails_those_who_wait_and_the_next_one_asks_again() {
    let (below, object, flight) = set(Below::open());
    below.panics.store(true, Relaxed);
    let readers = [whole(&object), whole(&object).with_room()].map(|run| read(&flight, run));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    below.leave.add_permits(100);
    for reader in readers {
        let failed = reader.await.expect("the reader does not panic").expect_err("the fetch did");
        assert!(matches!(failed.kind, Kind::Unavailable { .. }), "{failed}");
    }
    assert_eq!((on_their_way(&flight), flight.parts.budget.usage().0), (0, 0));
    below.panics.store(false, Relaxed);
    assert_eq!(read(&flight, whole(&object)).await.expect("a reader").expect("blocks"), 16);
}

#[tokio::test]
async fn who_gives_up_stops_nobody_and_a_fetch_that_nobody_waits_for_goes_to_its_end() {
    let (below, object, flight) = set(Below::open());
    let (first, second) = (read(&flight, whole(&object)), read(&flight, whole(&object)));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    first.abort();
    below.leave.add_permits(BLOCKS as usize);
    assert_eq!(second.await.expect("a reader").expect("blocks"), 16);
    let third = read(&flight, whole(&object));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    third.abort();
    assert!(third.await.is_err_and(|error| error.is_cancelled()));
    below.leave.add_permits(BLOCKS as usize);
    until(|| below.ended.load(Relaxed) == 2).await;
    until(|| on_their_way(&flight) == 0).await;
    assert_eq!(flight.parts.budget.usage().0, 0);
}

#[tokio::test]
async fn a_reader_that_stops_halfway_stalls_nobody() {
    let (below, object, flight) = set(Below::open());
    below.leave.add_permits(100);
    let mut slow = flight.fetch(whole(&object));
    slow.next().await.expect("a block").expect("its bytes");
    assert_eq!(read(&flight, whole(&object).with_room()).await.expect("a reader").expect("blocks"), 16);
    assert_eq!(slow.map(|block| drop(block.expect("its bytes"))).count().await, 15);
}

#[tokio::test]
async fn those_who_bring_no_room_stop_nobody_who_brings_some_however_slowly_they_read() {
    let (below, object, flight) = set(Below::open());
    below.leave.add_permits(10_000);
    let (_, budget) = flight.parts.budget.usage();
    let slow: Vec<_> = (0..40)
        .map(|_| {
            let mut blocks = flight.fetch(whole(&object));
            tokio::spawn(async move {
                let first = blocks.next().await;
                std::future::pending::<()>().await;
                drop((first, blocks));
            })
        })
        .collect();
    until(|| below.ended.load(Relaxed) > 0).await;
    for _ in 0..999 {
        tokio::task::yield_now().await;
        assert!(flight.parts.budget.usage().0 <= budget);
    }
    assert!(flight.parts.budget.usage().0 > 0, "the first of them holds what it was given");
    assert_eq!(read(&flight, whole(&object).with_room()).await.expect("a reader").expect("blocks"), 16);
    slow.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(read(&flight, whole(&object)).await.expect("a reader").expect("blocks"), 16);
}

/// The store "hung:" is silent; what it holds on the disk is given.
struct Hung(Fixed, Arc<Object>);

impl Source for Hung {
    fn fetch(&self, run: Run) -> Blocks {
        let is_silent = *run.object.store == *"hung:" && run.object != self.1;
        let object = Arc::new(Object { store: "memory:".into(), ..(*run.object).clone() });
        if is_silent { stream::pending().boxed() } else { self.0.fetch(Run { object, ..run }) }
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }

    fn holds(&self, address: &Address, _may_wait: bool) -> bool {
        address.object == self.1
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_leaves_room_to_others_and_to_what_lies_on_the_disk() {
    let mut fixed = Fixed::default();
    let content: Vec<u8> = (0..u64::from(BLOCKS) * BLOCK).map(|at| (at / BLOCK) as u8).collect();
    let other = fixed.add("object", content);
    let hung = |key: &str| Arc::new(Object { store: "hung:".into(), key: key.into(), ..(*other).clone() });
    let held = hung("object");
    let budget = Budget::of(16 * SMALL);
    let flight = Flight::over(Arc::new(Hung(fixed, held.clone())), budget, tokio::runtime::Handle::current());
    let silent: Vec<_> = (0..40).map(|n| read(&flight, whole(&hung(&n.to_string())))).collect();
    for _ in 0..999 {
        tokio::task::yield_now().await;
    }
    assert!(flight.parts.budget.usage().0 >= 10 * SMALL, "alone it has most of it");
    for object in [&other, &held] {
        let got = tokio::time::timeout(Duration::from_secs(60), read(&flight, whole(object))).await;
        assert_eq!(got.expect("there is room").expect("a reader").expect("blocks"), BLOCKS);
    }
    silent.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_failure_reaches_all_who_wait_and_the_next_one_asks_again() {
    let (below, object, flight) = set(Below::open());
    below.leave.add_permits(1_000);
    let gone = Arc::new(Object { version: "another".into(), ..(*object).clone() });
    for turn in 1..3 {
        let readers = [whole(&gone), whole(&gone)].map(|run| read(&flight, run));
        for reader in readers {
            assert_eq!(reader.await.expect("a reader").expect_err("it is gone").kind, Kind::Missing);
        }
        assert_eq!((below.fetches.load(Relaxed), on_their_way(&flight)), (turn, 0));
    }
}

#[tokio::test]
async fn what_is_found_at_the_end_of_a_fetch_reaches_all_who_share_it() {
    let (below, object, flight) = set(Below { is_wrong: true, ..Below::open() });
    let readers = [whole(&object), whole(&object).with_room()].map(|run| read(&flight, run));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    below.leave.add_permits(100);
    for reader in readers {
        assert_eq!(reader.await.expect("a reader").expect_err("it is wrong").kind, Kind::Corrupt);
    }
}

#[tokio::test]
async fn a_block_is_on_its_way_until_the_tier_below_has_kept_it() {
    let (below, object, flight) = set(Below::open());
    below.leave.add_permits(3);
    let mut first = flight.fetch(whole(&object));
    for _ in 0..3 {
        first.next().await.expect("a block").expect("its bytes");
    }
    // The third was handed on, and the tier below keeps it when it is asked for the fourth.
    until(|| on_their_way(&flight) == 14).await;
    let second = read(&flight, Run::new(object.clone(), 2..3));
    until(|| second.is_finished()).await;
    assert_eq!(below.fetches.load(Relaxed), 1);
    below.leave.add_permits(100);
    assert_eq!(first.count().await, 13);
}

#[tokio::test]
async fn a_refusal_by_the_credentials_of_one_is_no_answer_to_another() {
    let (below, object, flight) = set(Below::open());
    let [first, second, third] = [99, 1, 2].map(|door| read(&flight, whole(&object).via(Door::of(door))));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    below.leave.add_permits(100);
    assert_eq!(first.await.expect("a reader").expect_err("wrong keys").kind, Kind::Denied);
    for reader in [second, third] {
        assert_eq!(reader.await.expect("a reader").expect("its own keys"), 16);
    }
    assert_eq!(below.fetches.load(Relaxed), 2);
}

#[tokio::test]
async fn a_fetch_is_urgent_once_a_reader_joins_it() {
    let (below, object, flight) = set(Below::open());
    let clock = || tokio::time::Instant::now().into_std();
    let [ahead, urgent] = [false, true].map(|is_urgent| block::Course::begin(clock, is_urgent));
    let first = read(&flight, Run { course: ahead.clone(), ..whole(&object) });
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    assert!(!ahead.is_urgent());
    let second = read(&flight, Run { course: urgent, ..whole(&object) });
    until(|| ahead.is_urgent()).await;
    below.leave.add_permits(BLOCKS as usize);
    for reader in [first, second] {
        assert_eq!(reader.await.expect("it ends").expect("blocks"), BLOCKS);
    }
    assert_eq!(below.fetches.load(Relaxed), 1);
}

#[tokio::test]
async fn a_fetch_that_was_joined_is_urgent_once_the_reader_of_who_joined_waits() {
    let (below, object, flight) = set(Below::open());
    let [first, second] = [(), ()].map(|()| Course::begin(std::time::Instant::now, false));
    let readers = [&first, &second].map(|course| read(&flight, Run { course: course.clone(), ..whole(&object) }));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    for _ in 0..99 {
        tokio::task::yield_now().await;
    }
    assert!(!first.is_urgent());
    second.urge();
    until(|| first.is_urgent()).await;
    below.leave.add_permits(BLOCKS as usize);
    for reader in readers {
        assert_eq!(reader.await.expect("a reader").expect("blocks"), BLOCKS);
    }
}

#[tokio::test]
async fn nobody_joins_what_is_on_its_way_of_an_object_that_was_found_wrong() {
    let (below, object, flight) = set(Below::open());
    let first = read(&flight, whole(&object));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    flight.forget(&object);
    let second = read(&flight, whole(&object));
    until(|| on_their_way(&flight) == BLOCKS as usize).await;
    // Those of the first that come now are not taken for those of the second.
    below.leave.add_permits(2 * BLOCKS as usize);
    for reader in [first, second] {
        assert_eq!(reader.await.expect("it ends").expect("blocks"), BLOCKS);
    }
    assert_eq!((below.fetches.load(Relaxed), on_their_way(&flight)), (2, 0));
}

#[tokio::test]
async fn what_lingers_is_joined_until_somebody_needs_the_room() {
    let (below, object, flight) = set(Below::open());
    below.leave.add_permits(1_000);
    let (lingering, budget) = (flight.lingering(), &flight.parts.budget);
    let asked = || (below.fetches.load(Relaxed), below.blocks.load(Relaxed));
    for run in [whole(&object), whole(&object).with_room()] {
        assert_eq!(read(&lingering, run).await.expect("a reader").expect("blocks"), 16);
        assert_eq!(
            (asked(), budget.usage().0),
            ((1, 16), 16 * BLOCK),
            "each of them holds one share, whoever reads it"
        );
    }
    let (_, all) = budget.usage();
    let share = budget.share((all - 14 * BLOCK) as usize).await;
    assert_eq!(budget.usage().0, all, "no more gives way than must");
    drop(share);
    // An eighth is left to those who wait.
    let share = budget.share((all - all / 8 - 16 * BLOCK) as usize).await;
    assert_eq!(read(&lingering, whole(&object)).await.expect("a reader").expect("blocks"), 16);
    assert_eq!(asked(), (2, 18), "those that came first, and none that was about to be joined");
    drop(share);
    assert_eq!(read(&flight, whole(&object)).await.expect("a reader").expect("blocks"), 16);
    assert_eq!(asked(), (3, 34), "who doesn't ask for that wants it from the tier below, which keeps it");
    until(|| budget.usage().0 == 0).await;
    assert_eq!(on_their_way(&flight), 0, "nor does it linger then");
}

#[tokio::test]
async fn who_holds_room_waits_for_none_of_what_others_have_for_those_who_hold_none() {
    let (below, object, flight) = set(Below::open());
    below.leave.add_permits(1_000);
    let (lingering, budget) = (flight.lingering(), &flight.parts.budget);
    let all = budget.share(budget.usage().1 as usize).await;
    let run = whole(&object).with_room();
    assert_eq!(read(&lingering, run).await.expect("a reader").expect("blocks"), 16);
    assert_eq!(below.fetches.load(Relaxed), 1, "in one piece");
    drop(all);
    assert_eq!(budget.usage().0, 0, "and nothing of it lingers");
}

#[tokio::test]
async fn nothing_lingers_of_what_failed_or_was_found_wrong() {
    for wrong in [Below { is_wrong: true, ..Below::open() }, Below { fails_last: true, ..Below::open() }] {
        let (below, object, flight) = set(wrong);
        below.leave.add_permits(1_000);
        let lingering = flight.lingering();
        let gone = Arc::new(Object { version: "another".into(), ..(*object).clone() });
        for run in [whole(&object), whole(&gone)] {
            read(&lingering, run).await.expect("a reader").expect_err("it is wrong, or not there");
            until(|| flight.parts.budget.usage().0 == 0).await;
            assert_eq!((on_their_way(&flight), flight.parts.known().came.len()), (0, 0));
        }
    }
}
