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
    memory: std::sync::OnceLock<Memory>,
}

/// The store, 20 ms away, which counts what leaves it.
struct Store(Arc<Fixed>, AtomicU64);

impl Source for Store {
    fn fetch(&self, run: Run) -> Blocks {
        self.1.fetch_add(run.blocks.len() as u64, Relaxed);
        let blocks = self.0.fetch(run);
        let late = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            blocks
        };
        futures_util::stream::once(late).flatten().boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<block::Checksum>> {
        self.0.checksum(object, via)
    }
}

impl Giver for Lender {
    fn course(&self, manner: Manner) -> block::Course {
        block::Course::wanted(|| Instant::now().into_std(), manner.is_urgent, None)
    }

    fn fetch(&self, run: Run) -> Option<Blocks> {
        Some(self.inner.fetch(run))
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
        Some(self.memory.get()?.lend(run, ticket))
    }

    fn checksum(&self, object: &Arc<Object>) -> Option<Waiting<Option<block::Checksum>>> {
        Some(self.inner.checksum(object, Door::NONE))
    }

    fn bring(&self, _address: Address, _verify: bool) -> Option<Waiting<Brought>> {
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

#[test]
fn nobody_waits_long_for_what_nobody_keeps_though_all_read_it_again_and_again() {
    for seed in 0..8 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let (asked, fetched, slowest) = runtime.block_on(play(seed));
        assert!(slowest < READ_WITHIN, "seed {seed}: a read took {slowest:?}");
        assert!(fetched * 2 < asked, "seed {seed}: {fetched} of {asked} blocks came from the store: nobody lent");
    }
}

/// Blocks that were read, and that left the store, and how long the slowest read took.
async fn play(seed: u64) -> (u64, u64, Duration) {
    let (mut fixed, mut servers, mut memories) = (Fixed::default(), Vec::new(), Vec::new());
    let content = |number: u64| vec![number as u8; if number.is_multiple_of(2) { 900_000 } else { 2_000_000 }];
    let samples: Vec<Sample> =
        (0..OBJECTS).map(|number| (fixed.add(&format!("{number}"), content(number)), content(number))).collect();
    let store = Arc::new(Store(Arc::new(fixed), AtomicU64::new(0)));
    let (twin, runtime) = (Twin::default(), tokio::runtime::Handle::current());
    let weather = Weather::new(twin.clone(), seed);
    weather.slow(3);
    for seat in seats(MEMBERS) {
        let (sender, roster) = watch::channel(Arc::new(Roster::of(seat.id, seats(MEMBERS))));
        let lines = Lines::new(roster, Arc::new(weather.at(seat.id)), PATIENCE, runtime.clone());
        let inner = Flight::over(store.clone(), Budget::of(64 << 20), runtime.clone());
        let own: Arc<dyn Source> = Arc::new(inner.clone());
        let owners = Owners::over(own.clone(), lines.clone());
        let peers = Peers::over(own, Arc::new(owners.clone()), (owners, lines.clone()), |_| Room::Full);
        // Little room: what was read is soon pushed out by what is read next.
        let memory = Memory::over(Arc::new(peers), Budget::of(8 << 20), Duration::MAX, runtime.clone());
        let lender = Arc::new(Lender { inner, memory: memory.clone().into() });
        servers.push((tokio::spawn(serve(Box::new(twin.listen(&seat.address)), lender, lines)), sender));
        memories.push(memory);
    }
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..3 * MEMBERS {
        let (memory, samples) = (memories[reader % MEMBERS].clone(), samples.clone());
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
    servers.iter().for_each(|(server, _)| server.abort());
    let slowest = all.iter().map(|(_, slowest)| *slowest).max().expect("readers");
    (all.iter().map(|(blocks, _)| blocks).sum(), store.1.load(Relaxed), slowest)
}
