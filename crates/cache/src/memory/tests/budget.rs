//! Memory against its budget: what is alive is counted by the bytes themselves, not by what memory says of them.

use super::*;

/// Bytes that are alive.
#[derive(Default)]
pub struct Alive(AtomicU64);

/// Bytes that count themselves.
struct Counted(Vec<u8>, Arc<Alive>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.0.fetch_sub(self.0.len() as u64, Relaxed);
    }
}

/// A source that makes each block anew: the first byte of its object's key, over and over.
pub struct Making(pub Arc<Alive>);

impl Source for Making {
    fn fetch(&self, run: Run) -> Blocks {
        let alive = self.0.clone();
        let blocks = run.addresses().map(move |address| {
            let bytes = vec![address.object.key.as_bytes()[0]; address.len()];
            alive.0.fetch_add(bytes.len() as u64, Relaxed);
            Block::verified(address, vec![Bytes::from_owner(Counted(bytes, alive.clone()))], block::Proof::Store)
        });
        futures_util::stream::iter(blocks).boxed()
    }

    fn checksum(&self, _object: &Arc<Object>, _via: Door) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

pub fn made(n: u8, size: u64) -> Arc<Object> {
    Arc::new(Object { store: "made:".into(), key: char::from(n).into(), version: "1".into(), size })
}

/// Streams side by side within a budget.
async fn stay_within(budget: u64) {
    let alive = Arc::new(Alive::default());
    let memory = Memory::over(
        Arc::new(Making(alive.clone())),
        Budget::of(budget),
        Duration::MAX,
        tokio::runtime::Handle::current(),
    );
    let readers: Vec<_> = (32..96)
        .map(|n| {
            let (memory, alive, object) = (memory.clone(), alive.clone(), made(n, 6 * SMALL));
            tokio::spawn(async move {
                let readahead = Mutex::new(Readahead::default());
                for at in (0..object.size).step_by(128 << 10) {
                    memory.follow(&object, &readahead, at, 128 << 10, DOOR);
                    let bytes = memory.read(&object, at, 128 << 10, DOOR).await.expect("bytes").concat();
                    assert!(bytes.len() == 128 << 10 && bytes.iter().all(|byte| *byte == n));
                    let alive = alive.0.load(Relaxed);
                    assert!(alive <= budget, "{alive} of {budget}");
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.expect("a reader");
    }
    let (held, limit) = memory.usage();
    assert_eq!(limit, budget);
    assert!(alive.0.load(Relaxed) <= held, "what is alive is counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_streams_stay_within_the_budget() {
    stay_within(8 * SMALL).await;
}

/// Gives the first three blocks of a run, and then nothing until it is let.
struct Hanging(Making, Arc<tokio::sync::Semaphore>);

impl Source for Hanging {
    fn fetch(&self, run: Run) -> Blocks {
        let (blocks, gate) = (self.0.fetch(run), self.1.clone());
        let gated = blocks.enumerate().then(move |(n, block)| {
            let gate = gate.clone();
            async move {
                if n >= 3 {
                    let _ = gate.acquire().await;
                }
                block
            }
        });
        gated.boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_who_wait_for_the_end_of_a_read_hold_what_is_counted() {
    let (alive, gate) = (Arc::new(Alive::default()), Arc::new(tokio::sync::Semaphore::new(0)));
    let below = Arc::new(Hanging(Making(alive.clone()), gate.clone()));
    let budget = 16 * SMALL;
    let memory = Memory::over(below, Budget::of(budget), Duration::MAX, tokio::runtime::Handle::current());
    let readers: Vec<_> = (0..90)
        .map(|n| {
            let (memory, object) = (memory.clone(), made(b' ' + n, 2 * SMALL));
            tokio::spawn(async move { memory.read(&object, 4096, SMALL, DOOR).await })
        })
        .collect();
    let began = std::time::Instant::now();
    let mut most = 0;
    while most <= budget / 2 || began.elapsed() < Duration::from_millis(200) {
        most = alive.0.load(Relaxed).max(most);
        assert!(most <= budget, "{most} of {budget} while all wait");
        assert!(began.elapsed() < Duration::from_secs(60), "readers begin");
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    for (n, reader) in readers.into_iter().enumerate() {
        let read = async { reader.await.expect("a reader").expect("bytes").concat() };
        let bytes = tokio::time::timeout(Duration::from_secs(60), read).await.expect("nobody waits for ever");
        assert!(bytes.len() == SMALL as usize && bytes.iter().all(|byte| *byte == b' ' + n as u8));
    }
}

/// A source whose blocks are cut out of larger buffers, as a connection delivers them.
struct Received(Arc<Alive>);

impl Source for Received {
    fn fetch(&self, run: Run) -> Blocks {
        let alive = self.0.clone();
        let blocks = run.addresses().map(move |address| {
            let buffer = vec![7; 2 * address.len()];
            alive.0.fetch_add(buffer.len() as u64, Relaxed);
            let buffer = Bytes::from_owner(Counted(buffer, alive.clone()));
            let piece = buffer.slice(100..100 + address.len());
            Block::verified(address, vec![piece], block::Proof::Store)
        });
        futures_util::stream::iter(blocks).boxed()
    }

    fn checksum(&self, _object: &Arc<Object>, _via: Door) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_that_stay_do_not_keep_the_buffers_that_they_came_in() {
    let alive = Arc::new(Alive::default());
    let below = Arc::new(Received(alive.clone()));
    let memory = Memory::over(below, Budget::of(64 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let object = made(b'x', 8 * SMALL);
    for at in (0..object.size).step_by(SMALL as usize) {
        let bytes = memory.read(&object, at, 1000, DOOR).await.expect("bytes").concat();
        assert_eq!(bytes, [7; 1000]);
        assert!(memory.at_hand(&object, at, 1000).is_some(), "it stays");
    }
    // A flight lets go of the last buffer once it has answered its reader.
    let gone = async {
        while alive.0.load(Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("no buffer is held");
    assert!(memory.usage().0 > 0);
}

/// How often streams side by side ask for the blocks of their objects, of which nothing is kept elsewhere.
async fn asked_by_streams(streams: u8, budget: u64, step: u64) -> f64 {
    let (alive, size) = (Arc::new(Alive::default()), 24 * SMALL);
    let asked = Arc::new(Asked(Making(alive), AtomicU64::new(0)));
    let memory = Memory::over(asked.clone(), Budget::of(budget), Duration::MAX, tokio::runtime::Handle::current());
    let readers: Vec<_> = (0..streams)
        .map(|n| {
            let memory = memory.clone();
            tokio::spawn(async move {
                for turn in 0..4 {
                    let (object, readahead) = (made(32 + 4 * n + turn, size), Mutex::new(Readahead::default()));
                    for at in (0..size).step_by(step as usize) {
                        let is_at_hand = memory.at_hand(&object, at, step).is_some();
                        memory.follow(&object, &readahead, at, step, DOOR);
                        if !is_at_hand {
                            memory.read(&object, at, step, DOOR).await.expect("bytes");
                        }
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await.expect("a reader");
    }
    asked.1.load(Relaxed) as f64 / (u64::from(streams) * 4 * size) as f64
}

/// Counts the bytes that are asked for, and answers after others had their turn.
struct Asked(Making, AtomicU64);

impl Source for Asked {
    fn fetch(&self, run: Run) -> Blocks {
        self.1.fetch_add(run.bytes(), Relaxed);
        self.0
            .fetch(run)
            .then(|block| async {
                tokio::task::yield_now().await;
                block
            })
            .boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.checksum(object, via)
    }
}

#[tokio::test]
async fn streams_ask_for_each_block_once() {
    for (streams, mebibytes, most) in
        [(1, 8, 1.0), (4, 32, 1.005), (8, 32, 1.005), (16, 64, 1.005), (16, 256, 1.0), (4, 8, 1.05), (16, 16, 1.05)]
    {
        for step in [128 << 10, SMALL] {
            let asked = asked_by_streams(streams, mebibytes * SMALL, step).await;
            assert!((1.0..=most).contains(&asked), "{streams} streams, {mebibytes} MiB, reads of {step}: {asked}");
        }
    }
}

#[tokio::test]
async fn what_was_asked_for_ahead_of_a_reader_who_left_goes_before_what_others_will_read() {
    let asked = Arc::new(Asked(Making(Arc::new(Alive::default())), AtomicU64::new(0)));
    let memory = Memory::over(asked.clone(), Budget::of(16 * SMALL), Duration::MAX, tokio::runtime::Handle::current());
    let ahead = |object: &Arc<Object>| memory.ahead(object, 0..16, DOOR);
    let [stays, left] = [made(b'a', 4 * SMALL), made(b'b', 4 * SMALL)];
    assert_eq!((ahead(&stays), ahead(&left)), (16, 16));
    for object in [&stays, &left] {
        memory.read(object, 4 * SMALL - 1, 1, DOOR).await.expect("they are here");
    }
    memory.abandon(&left, 0..16);
    for n in 0..10 {
        memory.read(&made(b'c' + n, SMALL), 0, 10, DOOR).await.expect("bytes");
    }
    assert!(memory.at_hand(&left, 0, 10).is_none(), "nobody will read it");
    assert!(memory.at_hand(&stays, 0, 3 * SMALL).is_some(), "it is still to be read");
}
