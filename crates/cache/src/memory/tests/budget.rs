//! Memory against its budget: what is alive is counted by the bytes themselves, not by what memory says of them.

use super::*;

/// Bytes that are alive.
#[derive(Default)]
struct Alive(AtomicU64);

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
struct Making(Arc<Alive>);

impl Source for Making {
    fn fetch(&self, run: Run) -> Blocks {
        let alive = self.0.clone();
        let blocks = run.addresses().map(move |address| {
            let bytes = vec![address.object.key.as_bytes()[0]; address.len()];
            alive.0.fetch_add(bytes.len() as u64, Relaxed);
            Block::verified(address, vec![Bytes::from_owner(Counted(bytes, alive.clone()))])
        });
        futures_util::stream::iter(blocks).boxed()
    }

    fn checksum(&self, _object: &Arc<Object>, _via: Door) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

fn made(n: u8, size: u64) -> Arc<Object> {
    Arc::new(Object { store: "made:".into(), key: char::from(n).into(), version: "1".into(), size })
}

/// Streams side by side within a budget.
async fn stay_within(budget: u64) {
    let alive = Arc::new(Alive::default());
    let memory = Memory::over(Arc::new(Making(alive.clone())), Budget::of(budget), tokio::runtime::Handle::current());
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
            Block::verified(address, vec![piece])
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
    let memory = Memory::over(below, Budget::of(64 * SMALL), tokio::runtime::Handle::current());
    let object = made(b'x', 8 * SMALL);
    for at in (0..object.size).step_by(SMALL as usize) {
        let bytes = memory.read(&object, at, 1000, DOOR).await.expect("bytes").concat();
        assert_eq!(bytes, [7; 1000]);
        assert!(memory.at_hand(&object, at, 1000).is_some(), "it stays");
    }
    // A flight lets go of the last buffer once it has told its reader.
    let gone = async {
        while alive.0.load(Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("no buffer is held");
    assert!(memory.usage().0 > 0);
}
