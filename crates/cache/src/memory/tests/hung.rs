//! Stores that hang: what they leave to others, and when their readers hear so.

use super::budget::{Making, made};
use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// A store that is silent, with the patience of an origin: a run fails once its reader was patient for long enough. What
/// lies on the disk is given at once.
struct Hung {
    below: Making,
    /// The store that hangs, and until when.
    store: &'static str,
    until: Instant,
    /// Keys of objects on the disk.
    held: &'static str,
}

impl Hung {
    fn holds(&self, object: &Object) -> bool {
        self.held.contains(&*object.key)
    }
}

impl Source for Hung {
    fn fetch(&self, run: Run) -> Blocks {
        let answers =
            *run.object.store != *self.store || Source::holds(self, &run.addresses().next().expect("one"), true);
        if answers || lanes::now() >= self.until {
            return self.below.fetch(run);
        }
        let left = PATIENCE - run.waited.min(PATIENCE - Duration::from_secs(1));
        let (until, object, blocks) = (self.until, run.object.clone(), self.below.fetch(run));
        let silent = async move {
            if lanes::now() + left < until {
                tokio::time::sleep(left).await;
                return futures_util::stream::iter([Err(Error::unavailable("silent", &*object))]).boxed();
            }
            tokio::time::sleep_until(until).await;
            blocks
        };
        futures_util::stream::once(silent).flatten().boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.below.checksum(object, via)
    }

    /// Somebody always has the index of the disk, so it takes a wait.
    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        may_wait && Hung::holds(self, &address.object)
    }
}

/// Memory over a store "hung:" that answers nobody for so long.
fn over(seconds: u64, held: &'static str) -> Memory {
    let until = lanes::now() + Duration::from_secs(seconds);
    let hung = Hung { below: Making(Arc::default()), store: "hung:", until, held };
    Memory::over(Arc::new(hung), Budget::of(16 * SMALL), PATIENCE, tokio::runtime::Handle::current())
}

fn hung(key: &str, mebibytes: u64) -> Arc<Object> {
    Arc::new(Object { store: "hung:".into(), key: key.into(), version: "1".into(), size: mebibytes * SMALL })
}

/// Whether a reader of an object got bytes, and after how many seconds it got them or an error.
async fn read(memory: Memory, object: Arc<Object>) -> (bool, u64) {
    let began = lanes::now();
    let got = memory.read(&object, 4096, SMALL.min(object.size) / 2, DOOR).await;
    (got.is_ok(), began.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn all_readers_of_a_store_that_hangs_hear_so_within_their_patience_whenever_they_came() {
    let memory = over(1_000, "");
    let mut readers = tokio::task::JoinSet::new();
    for n in 0..100 {
        // Many more than memory has room for, of few objects and of many.
        let object = hung(&format!("{}", if n % 2 == 0 { n } else { 1_000 + n % 8 }), 8);
        memory.ahead(&object, 0..32, DOOR);
        readers.spawn(read(memory.clone(), object));
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    while let Some(reader) = readers.join_next().await {
        let (is_ok, seconds) = reader.expect("a reader");
        assert!(!is_ok && (59..=62).contains(&seconds), "after {seconds} s");
    }
    assert_eq!(memory.usage().0, 0);
}

#[tokio::test(start_paused = true)]
async fn readers_of_one_block_hear_so_together() {
    let memory = over(100_000, "");
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..200 {
        readers.spawn(read(memory.clone(), hung("same", 1)));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while let Some(reader) = readers.join_next().await {
        let (is_ok, seconds) = reader.expect("a reader");
        assert!(!is_ok && (59..=61).contains(&seconds), "after {seconds} s, and not one after the other");
    }
}

/// Blocks that were verified by this, whatever is asked for.
struct By(block::Proof);

impl Source for By {
    fn fetch(&self, run: Run) -> Blocks {
        let proof = self.0;
        let blocks: Vec<_> = run.addresses().map(|one| (vec![vec![1; one.len()].into()], one)).collect();
        let verified = blocks.into_iter().map(move |(pieces, address)| Block::verified(address, pieces, proof));
        futures_util::stream::iter(verified).boxed()
    }

    fn checksum(&self, _object: &Arc<Object>, _via: Door) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_from_the_store_or_from_another_member_is_a_sign_of_life_and_what_comes_from_the_disk_is_none() {
    use block::Proof::{Local, Peer, Store};
    for (proof, silent) in [(Store, 0), (Peer, 0), (Local, 50)] {
        let runtime = tokio::runtime::Handle::current();
        let memory = Memory::over(Arc::new(By(proof)), Budget::of(16 * SMALL), PATIENCE, runtime);
        let (since, object) = (lanes::now(), hung("a", 1));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert!(read(memory.clone(), object.clone()).await.0);
        let silence = memory.0.lanes.silence(Some(&(object.store.clone(), DOOR)), since).elapsed().as_secs();
        assert_eq!(silence, silent, "{proof:?}");
    }
}

/// A store that gives to some sooner than to others, whose first answer for the object "z" is an error and each for the
/// object "always", and that notes for how long its askers had waited.
struct Uneven(Making, Mutex<Vec<(String, u64)>>);

impl Source for Uneven {
    fn fetch(&self, run: Run) -> Blocks {
        let (object, waited) = (run.object.clone(), run.waited.as_secs());
        let mut asked = self.1.lock().expect("nobody panicked");
        let is_first = asked.iter().all(|(key, _)| *key != object.key);
        asked.push((object.key.clone(), waited));
        let (seconds, fails) = match (&*object.key, run.via == Door::of(2)) {
            ("z", _) => (59, is_first),
            ("always", _) => (59, true),
            (_, true) => (100, false),
            _ => (5, false),
        };
        let blocks = self.0.fetch(run);
        let answered = async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let error = futures_util::stream::iter([Err(Error::unavailable("busy", &*object))]);
            if fails { error.boxed() } else { blocks }
        };
        futures_util::stream::once(answered).flatten().boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}

/// Memory over it, in which a reader gets a block every five seconds.
fn uneven() -> (Arc<Uneven>, Memory, tokio::task::JoinHandle<()>) {
    let below = Arc::new(Uneven(Making(Arc::default()), Mutex::default()));
    let memory = Memory::over(below.clone(), Budget::of(16 * SMALL), PATIENCE, tokio::runtime::Handle::current());
    let steady = memory.clone();
    let steady = tokio::spawn(async move {
        for n in 0..200 {
            let object = Object { store: "made:".into(), key: format!("steady {n}"), version: "1".into(), size: SMALL };
            steady.read(&Arc::new(object), 0, 10, Door::of(1)).await.expect("it answers");
        }
    });
    (below, memory, steady)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_another_mount_is_not_silent() {
    let (_, memory, steady) = uneven();
    let readers = (0..20).map(|n| {
        let (memory, object) = (memory.clone(), made(b'A' + n, SMALL));
        async move { memory.read(&object, 0, 10, Door::of(2)).await.map(drop) }
    });
    for got in futures_util::future::join_all(readers).await {
        got.expect("it stood behind others");
    }
    steady.abort();
}

#[tokio::test(start_paused = true)]
async fn patience_is_not_used_up_while_others_are_answered() {
    let (below, memory, steady) = uneven();
    let (earlier, object) = (memory.clone(), made(b'z', SMALL));
    let first = object.clone();
    let earlier = tokio::spawn(async move { earlier.read(&first, 0, 10, Door::of(1)).await.is_ok() });
    tokio::time::sleep(Duration::from_secs(1)).await;
    memory.read(&object, 0, 10, Door::of(1)).await.expect("asked for again");
    assert!(!earlier.await.expect("a reader"), "its own patience was over");
    let asked = below.1.lock().expect("nobody panicked");
    let waited: Vec<_> = asked.iter().filter(|(key, _)| key == "z").map(|(_, waited)| *waited).collect();
    assert!(waited.len() == 2 && waited[1] <= 5, "{waited:?} seconds without an answer");
    steady.abort();
}

#[tokio::test(start_paused = true)]
async fn readers_of_what_always_fails_are_patient_at_most_twice_however_many_they_are() {
    let (below, memory, steady) = uneven();
    let object = Object { store: "made:".into(), key: "always".into(), version: "1".into(), size: SMALL };
    let object = Arc::new(object);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        readers.spawn(read(memory.clone(), object.clone()));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while let Some(reader) = readers.join_next().await {
        let (is_ok, seconds) = reader.expect("a reader");
        assert!(!is_ok && seconds <= 2 * PATIENCE.as_secs(), "after {seconds} s");
    }
    let asked = below.1.lock().expect("nobody panicked").iter().filter(|(key, _)| key == "always").count();
    assert_eq!(asked, 2, "once for who came first, once for all who came later");
    steady.abort();
}

#[tokio::test(start_paused = true)]
async fn who_joins_what_others_wait_for_has_a_patience_of_its_own() {
    let memory = over(62, "");
    let first = tokio::spawn(read(memory.clone(), hung("a", 8)));
    tokio::time::sleep(Duration::from_secs(58)).await;
    let second = tokio::spawn(read(memory.clone(), hung("a", 8)));
    assert_eq!(first.await.expect("a reader"), (false, 60));
    assert_eq!(second.await.expect("a reader"), (true, 4), "the store came back in time");
}

#[tokio::test(start_paused = true)]
async fn what_lies_on_the_disk_does_not_wait_for_a_store_that_hangs() {
    let memory = over(1_000, "k");
    let mut readers = tokio::task::JoinSet::new();
    for n in 0..64 {
        let object = hung(&n.to_string(), 8);
        memory.ahead(&object, 0..32, DOOR);
        readers.spawn(read(memory.clone(), object));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..3 {
        assert_eq!(read(memory.clone(), hung("k", 64)).await, (true, 0));
    }
    readers.abort_all();
}

#[tokio::test]
async fn blocks_of_a_whole_that_is_found_wrong_do_not_stay() {
    /// Gives the first blocks of each run, so many, and then says that what it gave is wrong.
    struct Wrong(Making, usize);

    impl Source for Wrong {
        fn fetch(&self, run: Run) -> Blocks {
            let error = Error::corrupt("the whole differs", &*run.object);
            self.0.fetch(run).take(self.1).chain(futures_util::stream::iter([Err(error)])).boxed()
        }

        fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
            self.0.checksum(object, via)
        }
    }

    // It is found at the end, after every block was handed on, or before the last one.
    for given in [8, 7] {
        let below = Arc::new(Wrong(Making(Arc::default()), given));
        let memory = Memory::over(below, Budget::of(16 * SMALL), PATIENCE, tokio::runtime::Handle::current());
        let (object, reported) = (made(b'a', 2 * SMALL), Arc::new(AtomicU64::new(0)));
        let counter = reported.clone();
        memory.tell_wrong(move |_| _ = counter.fetch_add(1, Relaxed));
        memory.ahead(&object, 0..8, DOOR);
        memory.read(&object, 0, 10, DOOR).await.expect("it was handed on before");
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
        assert_eq!(reported.load(Relaxed), 1);
        assert!(
            (0..8).all(|index| memory.at_hand(&object, index * block::BLOCK, 10).is_none()),
            "nobody else gets one"
        );
    }
}

/// Once the wrong whole is reported, the one before was let go of below, so that nobody gets it from there.
#[test]
fn an_object_that_is_wrong_is_forgotten_from_below() {
    struct Forgets(Making, Mutex<Vec<&'static str>>);

    impl Source for Forgets {
        fn fetch(&self, run: Run) -> Blocks {
            self.0.fetch(run)
        }

        fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
            self.0.checksum(object, via)
        }

        fn forget(&self, _object: &Object) {
            self.1.lock().expect("nobody panicked").push("below");
        }
    }

    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let below = Arc::new(Forgets(Making(Arc::default()), Mutex::default()));
    let memory = Memory::over(below.clone(), Budget::of(16 * SMALL), PATIENCE, runtime.handle().clone());
    let seen = below.clone();
    memory.tell_wrong(move |_| seen.1.lock().expect("nobody panicked").push("reported"));
    memory.forget(&made(b'a', SMALL));
    assert_eq!(*below.1.lock().expect("nobody panicked"), ["below", "reported"]);
}

#[tokio::test]
async fn a_store_that_hangs_leaves_memory_to_others() {
    struct HangsAt(&'static str, Making);

    impl Source for HangsAt {
        fn fetch(&self, run: Run) -> Blocks {
            if *run.object.store == *self.0 { futures_util::stream::pending().boxed() } else { self.1.fetch(run) }
        }

        fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
            self.1.checksum(object, via)
        }
    }

    let below = Arc::new(HangsAt("hung:", Making(Arc::default())));
    let memory = Memory::over(below, Budget::of(16 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let mut readers = tokio::task::JoinSet::new();
    for n in 0..64 {
        let object = Object { store: "hung:".into(), key: n.to_string(), version: "1".into(), size: 8 * SMALL };
        let (memory, object) = (memory.clone(), Arc::new(object));
        memory.ahead(&object, 0..32, DOOR);
        readers.spawn(async move { memory.read(&object, 0, SMALL, DOOR).await.map(drop) });
    }
    tokio::task::yield_now().await;
    for n in 0..20 {
        let object = made(b'a' + n, 8 * SMALL);
        let read = memory.read(&object, 0, SMALL, DOOR);
        let bytes = tokio::time::timeout(Duration::from_secs(20), read).await.expect("it is not waited for");
        assert!(bytes.expect("bytes").concat().iter().all(|byte| *byte == b'a' + n));
    }
    readers.abort_all();
}

/// Gives one block after the other, each after a while.
struct Slow(Making, Duration);

impl Source for Slow {
    fn fetch(&self, run: Run) -> Blocks {
        let pause = self.1;
        let slowly = self.0.fetch(run).then(move |block| async move {
            tokio::time::sleep(pause).await;
            block
        });
        slowly.boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_memory_that_a_store_holds_waits_for_its_patience_only_while_nothing_comes() {
    for (pause, failed) in [(Duration::from_secs(1_000), 64 - 9), (Duration::from_secs(50), 0)] {
        let below = Arc::new(Slow(Making(Arc::default()), pause));
        let memory = Memory::over(below, Budget::of(16 * SMALL), PATIENCE, tokio::runtime::Handle::current());
        let mut readers = tokio::task::JoinSet::new();
        for n in 0..64 {
            let (memory, object) = (memory.clone(), made(b' ' + n, 8 * SMALL));
            readers.spawn(async move {
                let began = lanes::now();
                (memory.read(&object, 4096, SMALL, DOOR).await.is_err(), began.elapsed())
            });
        }
        let mut errors = 0;
        while let Some(ended) = readers.join_next().await {
            let (is_error, after) = ended.expect("a reader");
            assert!(!is_error || after == PATIENCE, "{after:?}");
            errors += usize::from(is_error);
        }
        assert_eq!(errors, failed, "a block each {pause:?}");
    }
}
