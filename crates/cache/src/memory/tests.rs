//! The memory tier against a source that answers when it is allowed to.

use super::*;
use block::{Blocks, Fixed, Kind};
use block::{SMALL, STRIPE_BLOCKS};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Where nothing depends on who asks.
const DOOR: Door = Door::NONE;

#[path = "tests/budget.rs"]
mod budget;
#[path = "tests/hung.rs"]
mod hung;

/// A source that counts its requests and answers when it is allowed to.
struct Slow {
    below: Fixed,
    requests: AtomicU64,
    runs: Mutex<Vec<std::ops::Range<u32>>>,
    gate: Arc<Semaphore>,
}

impl Source for Slow {
    fn fetch(&self, run: Run) -> Blocks {
        self.requests.fetch_add(1, Relaxed);
        self.runs.lock().expect("runs").push(run.blocks.clone());
        let (gate, blocks) = (self.gate.clone(), self.below.fetch(run));
        let opened = async move { gate.acquire().await.expect("open").forget() };
        futures_util::stream::once(opened).flat_map(move |()| futures_util::stream::empty()).chain(blocks).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.below.checksum(object, via)
    }
}

/// So many objects, each of so many mebibytes: one is small, a block by itself.
fn set(count: usize, mebibytes: u64) -> (Slow, Vec<Arc<Object>>) {
    let mut below = Fixed::default();
    let objects = (0..count).map(|n| below.add(&format!("{n}"), vec![n as u8; (mebibytes * SMALL) as usize])).collect();
    (Slow { below, requests: AtomicU64::new(0), runs: Mutex::default(), gate: Arc::new(Semaphore::new(0)) }, objects)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_of_a_block_share_one_fetch() {
    let (slow, objects) = set(1, 1);
    let slow = Arc::new(slow);
    let memory = Memory::over(slow.clone(), Budget::of(8 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let readers: Vec<_> = (0..50)
        .map(|n| {
            let (memory, object) = (memory.clone(), objects[0].clone());
            tokio::spawn(
                async move { memory.read(&object, n * 1_000, 500, DOOR).await.map(|pieces| pieces.concat().len()) },
            )
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    slow.gate.add_permits(1);
    for reader in readers {
        assert_eq!(reader.await.expect("a reader").expect("bytes"), 500);
    }
    assert_eq!(slow.requests.load(Relaxed), 1);
}

/// A source that refuses those who come through one door, when it is allowed to answer.
struct Refusing(Slow, Door);

impl Source for Refusing {
    fn fetch(&self, run: Run) -> Blocks {
        let (is_refused, object) = (run.via == self.1, run.object.clone());
        let answer = move |got| if is_refused { Err(Error::denied("wrong keys", &*object)) } else { got };
        self.0.fetch(run).map(answer).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}

#[tokio::test]
async fn a_refusal_of_one_door_is_not_handed_to_a_waiter_of_another() {
    let (slow, objects) = set(1, 1);
    let [wrong, good] = [1, 2].map(Door::of);
    let below = Arc::new(Refusing(slow, wrong));
    let memory = Memory::over(below.clone(), Budget::of(8 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let read = |via| {
        let (memory, object) = (memory.clone(), objects[0].clone());
        tokio::spawn(async move { memory.read(&object, 0, 10, via).await.map(|pieces| pieces.concat().len()) })
    };
    let first = read(wrong);
    while below.0.requests.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let waiters = [good, good].map(read);
    for _ in 0..9 {
        tokio::task::yield_now().await;
    }
    assert_eq!(below.0.requests.load(Relaxed), 1, "they wait for what is under way");
    below.0.gate.add_permits(100);
    assert_eq!(first.await.expect("a reader").expect_err("wrong keys").kind, Kind::Denied);
    for waiter in waiters {
        assert_eq!(waiter.await.expect("a reader").expect("its own credentials"), 10);
    }
    assert_eq!(below.0.requests.load(Relaxed), 2, "those of one door share the second fetch");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_fetch_fails_its_waiters_and_the_next_reader_asks_again() {
    let (slow, _) = set(0, 1);
    slow.gate.add_permits(100);
    let slow = Arc::new(slow);
    let memory = Memory::over(slow.clone(), Budget::of(8 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let object = Arc::new(Object { store: "memory:".into(), key: "gone".into(), version: "1".into(), size: 10 });
    for _ in 0..2 {
        assert!(memory.read(&object, 0, 10, DOOR).await.is_err_and(|error| error.kind == block::Kind::Missing));
    }
    assert_eq!(slow.requests.load(Relaxed), 2);
    assert_eq!(memory.usage().0, 0, "nothing is held after failures");
}

/// A source that panics after its first block, once.
struct Panicking(Fixed, AtomicU64);

impl Source for Panicking {
    fn fetch(&self, run: Run) -> Blocks {
        let is_first = self.1.fetch_add(1, Relaxed) == 0;
        let blocks = self.0.fetch(run).enumerate();
        blocks.inspect(move |(n, _)| assert!(!is_first || *n == 0, "on purpose")).map(|(_, got)| got).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}

#[tokio::test]
async fn who_waits_for_a_fetch_that_panics_asks_again_unless_it_began_it() {
    for is_mine in [true, false] {
        let mut fixed = Fixed::default();
        let object = fixed.add("k", vec![1; 4 * SMALL as usize]);
        let below = Arc::new(Panicking(fixed, AtomicU64::new(0)));
        let memory = Memory::over(below, Budget::of(8 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
        if !is_mine {
            memory.ahead(&object, 0..object.blocks(), DOOR);
        }
        let got = memory.read(&object, block::BLOCK - 5, 10, DOOR).await.map(|pieces| pieces.concat().len());
        match got {
            Ok(length) => assert_eq!((length, is_mine), (10, false)),
            Err(error) => assert!(is_mine && error.passes() && error.what.contains("given up"), "{error}"),
        }
        let whole = memory.read(&object, 0, object.size, DOOR).await.map(|pieces| pieces.concat().len());
        assert_eq!(whole.expect("it is asked for again"), 4 * SMALL as usize);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_gives_up_does_not_stop_the_others() {
    let (slow, objects) = set(1, 1);
    let slow = Arc::new(slow);
    let memory = Memory::over(slow.clone(), Budget::of(8 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let first = tokio::spawn({
        let (memory, object) = (memory.clone(), objects[0].clone());
        async move { memory.read(&object, 0, 10, DOOR).await.map(drop) }
    });
    while slow.requests.load(Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.abort();
    assert!(first.await.is_err_and(|ended| ended.is_cancelled()), "it waits for its block");
    let mut second = Box::pin(memory.read(&objects[0], 5, 10, DOOR));
    assert!(tokio::time::timeout(Duration::ZERO, &mut second).await.is_err(), "it waits too");
    slow.gate.add_permits(1);
    assert_eq!(second.await.expect("bytes").concat().len(), 10);
    assert_eq!(slow.requests.load(Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_read_to_its_end_leaves_before_one_that_is_wanted() {
    let (slow, objects) = set(6, 1);
    slow.gate.add_permits(100);
    let slow = Arc::new(slow);
    let memory = Memory::over(slow.clone(), Budget::of(4 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    memory.read(&objects[0], 0, 10, DOOR).await.expect("bytes");
    for object in &objects[1..5] {
        memory.read(object, 0, SMALL, DOOR).await.expect("bytes");
    }
    assert!(memory.at_hand(&objects[0], 10, 10).is_some(), "it was read in part only");
    assert!(memory.at_hand(&objects[1], 0, 10).is_none(), "it was read to its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_the_promises_of_a_source() {
    let runtime = tokio::runtime::Handle::current();
    block::contract::run(|fixed| {
        let memory: Arc<dyn Source> =
            Arc::new(Memory::over(Arc::new(fixed), Budget::of(20 * SMALL), Duration::MAX, runtime.clone()));
        (memory, ())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_lies_in_one_stripe_wherever_it_is_asked_from() {
    let (slow, objects) = set(1, 50);
    slow.gate.add_permits(1_000);
    let slow = Arc::new(slow);
    let memory = Memory::over(slow.clone(), Budget::of(128 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    for (start, end) in [(40, 140), (0, 200), (63, 65)] {
        memory.ahead(&objects[0], start..end, DOOR);
        memory
            .read(&objects[0], u64::from(start) * block::BLOCK, u64::from(end - start) * block::BLOCK, DOOR)
            .await
            .expect("bytes");
    }
    let runs = slow.runs.lock().expect("runs").clone();
    assert_eq!(runs.iter().map(|run| run.end - run.start).sum::<u32>(), 200, "{runs:?}");
    assert!(runs.iter().all(|run| run.start / STRIPE_BLOCKS == (run.end - 1) / STRIPE_BLOCKS), "{runs:?}");
}

#[tokio::test]
async fn what_was_on_its_way_when_its_object_was_found_wrong_does_not_stay() {
    let (slow, objects) = set(1, 2);
    let slow = Arc::new(slow);
    let memory = Memory::over(slow.clone(), Budget::of(8 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let object = &objects[0];
    let reader = tokio::spawn({
        let (memory, object) = (memory.clone(), object.clone());
        async move { memory.read(&object, 0, 10, DOOR).await.map(|pieces| pieces.concat().len()) }
    });
    while slow.requests.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    memory.forget(object);
    let late = tokio::spawn({
        let (memory, object) = (memory.clone(), object.clone());
        async move { memory.read(&object, 0, 10, DOOR).await.map(|pieces| pieces.concat().len()) }
    });
    while slow.requests.load(Relaxed) == 1 {
        tokio::task::yield_now().await;
    }
    // The first fetch ends before the second.
    slow.gate.add_permits(1);
    assert_eq!(reader.await.expect("a reader").expect("bytes"), 10, "who waits gets it");
    assert!(memory.at_hand(object, 0, 10).is_none(), "nobody after them");
    slow.gate.add_permits(100);
    assert_eq!(late.await.expect("a reader").expect("bytes"), 10, "who came then asked anew");
    assert!(memory.at_hand(object, 0, 10).is_some());
}

/// A source that never answers, and shows what it was asked with.
#[derive(Default)]
struct Silent(Mutex<Vec<Run>>);

impl Source for Silent {
    fn fetch(&self, run: Run) -> Blocks {
        self.0.lock().expect("nobody panicked").push(run);
        futures_util::stream::pending().boxed()
    }

    fn checksum(&self, _object: &Arc<Object>, _via: Door) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

#[tokio::test]
async fn what_was_asked_for_ahead_is_urgent_once_a_reader_waits_for_it() {
    let below = Arc::new(Silent::default());
    let memory = Memory::over(below.clone(), Budget::of(64 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let object = set(1, 8).1.remove(0);
    memory.ahead(&object, 0..32, DOOR);
    tokio::task::yield_now().await;
    let course = below.0.lock().expect("nobody panicked")[0].course.clone();
    assert!(!course.is_urgent());
    let reader = memory.clone();
    let reader = tokio::spawn(async move { reader.read(&object, SMALL, 10, DOOR).await });
    tokio::task::yield_now().await;
    assert!(course.is_urgent());
    assert_eq!(below.0.lock().expect("nobody panicked").len(), 1);
    reader.abort();
}

#[tokio::test]
async fn what_was_declared_is_asked_for_a_bounded_number_at_a_time_and_a_reader_passes_it() {
    let (soon, later) = DECLARED_AT_ONCE;
    let (below, objects) = set(2 * soon, 1);
    let (gate, below) = (below.gate.clone(), Arc::new(below));
    let memory = Memory::over(below.clone(), Budget::of(999 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let (now, hour) = (clock(), Duration::from_secs(3600));
    let ask = |due| objects.iter().filter(|object| memory.ahead_until(object, 0..1, DOOR, due) == 1).count();
    assert_eq!((ask(now + hour), ask(now)), (later, soon), "the others are told to come again");
    let last = objects.last().expect("some").clone();
    let (reader, object) = (memory.clone(), last.clone());
    let reading = tokio::spawn(async move { reader.read(&object, 0, 10, DOOR).await });
    while below.requests.load(Relaxed) as usize <= soon {
        tokio::task::yield_now().await;
    }
    gate.add_permits(999);
    assert_eq!(reading.await.expect("a reader").expect("bytes").concat().len(), 10);
    while memory.0.declared.load(Relaxed) > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(now), 2 * soon);
}

#[tokio::test]
async fn nobody_waits_for_who_asked_after_him_for_what_nobody_keeps() {
    let (below, objects) = set(1, 1);
    let (gate, object) = (below.gate.clone(), objects[0].clone());
    let memory =
        Memory::over(Arc::new(below), Budget::of(64 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let run = || Run::new(object.clone(), 0..1);
    let lent = |ticket| {
        let mut blocks = memory.lend(run(), ticket);
        tokio::spawn(async move { blocks.next().await.expect("a block or an error") })
    };
    assert!(lent(1).await.expect("it ends").is_err(), "nobody asked for it here");
    memory.ahead(&object, 0..1, DOOR);
    let asked = memory.shelf().look(&(object.id(), 0));
    let Some(Place::Coming(asked)) = asked else { panic!("it is on its way") };
    asked.course.counts_as(5);
    assert!(lent(4).await.expect("it ends").is_err(), "it asked again since");
    let (before, after) = (lent(5), lent(6));
    tokio::task::yield_now().await;
    asked.course.counts_as(6);
    assert!(before.await.expect("it ends").is_err(), "it asks again while it is waited for");
    gate.add_permits(1);
    assert!(after.await.expect("it ends").is_ok());
}
