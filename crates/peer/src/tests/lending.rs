//! Members without any room, whose readers read the same few objects again and again: all that they have is what others have just
//! read. The real memory tier is above, the network is slow by chance, and the clock moves only when nobody has anything to do.

use super::weather::{Chance, Weather};
use super::*;
use cache::memory::Memory;
use cache::{Budget, Flight};
use tokio::time::Instant;

/// Longer than any read takes that waits for nobody who waits for it: a circle ends after 5 s.
const READ_WITHIN: Duration = Duration::from_secs(3);

const OBJECTS: u64 = 16;
const MEMBERS: usize = 4;

/// What a member gives to others.
struct Lender {
    inner: Flight,
    memory: Memory,
}

/// The store, 20 ms away, from which a block comes every 1.3 ms: 200 MB/s. Counts what leaves it.
#[derive(Clone)]
struct Store {
    has: Arc<Fixed>,
    sent: Arc<AtomicU64>,
    /// When the last block that is asked for has come.
    line: Arc<Mutex<Instant>>,
}

impl Store {
    fn of(fixed: Fixed) -> Store {
        Store { has: Arc::new(fixed), sent: Arc::default(), line: Arc::new(Mutex::new(Instant::now())) }
    }
}

impl Source for Store {
    fn fetch(&self, run: Run) -> Blocks {
        let store = self.clone();
        let paced = self.has.fetch(run).map(move |block| {
            store.sent.fetch_add(1, Relaxed);
            let mut line = store.line.lock().expect("nobody panicked");
            *line = (*line).max(Instant::now()) + Duration::from_micros(1_300);
            let at = *line + Duration::from_millis(20);
            async move {
                tokio::time::sleep_until(at).await;
                block
            }
        });
        // A few of a run are on their way at once.
        paced.buffered(64).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<block::Checksum>> {
        self.has.checksum(object, via)
    }
}

impl Giver for Lender {
    fn course(&self, manner: Manner) -> block::Course {
        block::Course::wanted(|| Instant::now().into_std(), manner.is_urgent, None)
    }

    fn fetch(&self, run: Run) -> Option<Blocks> {
        Some(self.inner.fetch(run))
    }

    fn shared(&self, run: Run) -> Option<Blocks> {
        Some(self.inner.lingering().fetch(run))
    }

    fn open(&self, _run: &Run) -> Option<Arc<dyn Opened>> {
        None
    }

    fn given_bytes(&self) -> u64 {
        64 << 20
    }

    fn held(&self, _run: Run) -> Option<Blocks> {
        None
    }

    fn lent(&self, run: Run, ticket: u64) -> Option<Blocks> {
        Some(self.memory.lend(run, ticket))
    }

    fn checksum(&self, object: &Arc<Object>) -> Option<Waiting<Option<block::Checksum>>> {
        Some(self.inner.checksum(object, Door::NONE))
    }

    fn bring(&self, _address: Address, _manner: Manner) -> Option<Waiting<Brought>> {
        None
    }

    fn used(&self, _uses: Vec<Count>) {}

    fn room(&self, _address: &Address, _asker: For) -> Room {
        Room::Full
    }

    fn stale_bytes(&self) -> u64 {
        0
    }

    fn room_bytes(&self) -> (u64, u64) {
        (0, 0)
    }

    fn names(&self, _set: u128) -> Names {
        Names::default()
    }

    fn piece(&self, _set: u128, _id: u128, _offset: u64) -> futures_util::future::BoxFuture<'static, bytes::Bytes> {
        Box::pin(std::future::ready(bytes::Bytes::new()))
    }

    fn news(&self, _set: u128) {}
}

/// Members of a cluster that keep nothing.
struct Readers {
    memories: Vec<Memory>,
    servers: Vec<(tokio::task::JoinHandle<()>, watch::Sender<Arc<Roster>>)>,
}

impl Readers {
    /// So many, each with so much memory for its readers and for what it gives.
    fn of(members: usize, store: &Store, (seed, slow_ms): (u64, u64), (read, given): (u64, u64)) -> Readers {
        let (twin, runtime) = (Twin::default(), tokio::runtime::Handle::current());
        let weather = Weather::new(twin.clone(), seed);
        weather.slow(slow_ms);
        let (mut memories, mut servers) = (Vec::new(), Vec::new());
        for seat in seats(members) {
            let (sender, roster) = watch::channel(Arc::new(Roster::of(seat.id, seats(members))));
            let lines = Lines::new(roster, Arc::new(weather.at(seat.id)), PATIENCE, runtime.clone());
            let given = Budget::of(given);
            let inner = Flight::over(Arc::new(store.clone()), given, runtime.clone());
            let room = Arc::new(|_: &Address, _| Room::Full);
            let own = Own { inner: Arc::new(inner.clone()), shared: Arc::new(inner.lingering()), room };
            let owners = Owners::over(own, lines.clone());
            let peers = Peers::over(Arc::new(owners.clone()), owners);
            let memory = Memory::over(Arc::new(peers), Budget::of(read), Duration::MAX, runtime.clone());
            let lender = Arc::new(Lender { inner, memory: memory.clone() });
            servers.push((tokio::spawn(serve(Box::new(twin.listen(&seat.address)), lender, lines)), sender));
            memories.push(memory);
        }
        Readers { memories, servers }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.servers.iter().for_each(|(server, _)| server.abort());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

#[test]
fn nobody_waits_long_for_what_nobody_keeps_though_all_read_it_again_and_again() {
    for seed in 0..8 {
        let (asked, fetched, slowest) = runtime().block_on(play(seed));
        assert!(slowest < READ_WITHIN, "seed {seed}: a read took {slowest:?}");
        assert!(fetched * 2 < asked, "seed {seed}: {fetched} of {asked} blocks came from the store: nobody lent");
    }
}

/// Blocks that were read, and that left the store, and how long the slowest read took.
async fn play(seed: u64) -> (u64, u64, Duration) {
    let mut fixed = Fixed::default();
    let content = |number: u64| vec![number as u8; if number.is_multiple_of(2) { 900_000 } else { 2_000_000 }];
    let samples: Vec<Sample> =
        (0..OBJECTS).map(|number| (fixed.add(&format!("{number}"), content(number)), content(number))).collect();
    let store = Store::of(fixed);
    // Little room: what was read is soon pushed out by what is read next.
    let cluster = Readers::of(MEMBERS, &store, (seed, 3), (8 << 20, 64 << 20));
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..3 * MEMBERS {
        let (memory, samples) = (cluster.memories[reader % MEMBERS].clone(), samples.clone());
        let mut chance = Chance::new(seed * 1_000 + reader as u64);
        readers.spawn(async move {
            let (mut blocks, mut slowest) = (0, Duration::ZERO);
            for _ in 0..100 {
                let (object, content) = &samples[chance.below(OBJECTS) as usize];
                let began = Instant::now();
                let got = memory.read(object, 0, object.size, Door::NONE).await.expect("bytes").concat();
                assert!(got == *content, "{object}");
                (blocks, slowest) = (blocks + u64::from(object.blocks()), slowest.max(began.elapsed()));
                tokio::time::sleep(Duration::from_millis(chance.below(10))).await;
            }
            (blocks, slowest)
        });
    }
    let all = readers.join_all().await;
    let slowest = all.iter().map(|(_, slowest)| *slowest).max().expect("readers");
    (all.iter().map(|(blocks, _)| blocks).sum(), store.sent.load(Relaxed), slowest)
}

/// Each reads as fast as the next, and now and then one falls behind by more than it has memory.
#[test]
fn what_many_read_at_their_own_pace_leaves_the_store_once() {
    for seed in 0..3 {
        let (blocks, fetched) = runtime().block_on(play_together(seed));
        // Without a memory for all it is 1.4 to 2 times as many.
        assert!(fetched * 100 < blocks * 115, "seed {seed}: {fetched} blocks of {blocks} came from the store");
    }
}

async fn play_together(seed: u64) -> (u64, u64) {
    let mut fixed = Fixed::default();
    let object = fixed.add("one", vec![7; 400 << 20]);
    let store = Store::of(fixed);
    let cluster = Readers::of(8, &store, (seed, 1), (40 << 20, 22 << 20));
    let mut readers = tokio::task::JoinSet::new();
    for (reader, memory) in cluster.memories.iter().cloned().enumerate() {
        let (object, mut chance) = (object.clone(), Chance::new(seed * 1_000 + reader as u64));
        readers.spawn(async move {
            let past = Mutex::default();
            for at in (0..object.size).step_by(1 << 20) {
                memory.follow(&object, &past, at, 1 << 20, Door::NONE);
                memory.read(&object, at, 1 << 20, Door::NONE).await.expect("bytes");
                // For as long as the store sends 20 MB.
                let pause = if chance.below(100) == 0 { 100 } else { chance.below(3) };
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        });
    }
    readers.join_all().await;
    (u64::from(object.blocks()), store.sent.load(Relaxed))
}
