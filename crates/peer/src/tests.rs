//! Several members in one process, over the network in memory.

use super::*;
use block::contract::{Sample, objects};
use block::{Address, BLOCK, Blocks, Door, Error, Fixed, Kind, Object, Result, Run, SMALL, Source, Stripe, Waiting};
use futures_util::StreamExt;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

mod failure;
mod lending;
mod names;
mod returning;
mod serving;
mod simulation;
mod weather;

/// What a member has itself: the store, counted, and in what way it fails.
struct Inner {
    fixed: Arc<Fixed>,
    fetched: AtomicU64,
    mood: Mutex<Mood>,
    is_mine: AtomicBool,
    sums: AtomicU64,
    /// Objects that it keeps, and how many it has room for; none for any number.
    kept: Mutex<HashSet<block::ObjectId>>,
    room: Option<usize>,
    names: Mutex<Names>,
    /// Objects that its readers have in memory.
    memory: Mutex<HashSet<block::ObjectId>>,
    /// That of the last run that was asked for.
    course: Mutex<block::Course>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    /// Says nothing any more.
    Hung,
    Failing(Kind),
}

impl Inner {
    fn of(fixed: Arc<Fixed>, room: Option<usize>) -> Inner {
        let (fetched, sums, kept, names, memory, course) = Default::default();
        Inner { fixed, fetched, mood: Mood::Well.into(), is_mine: true.into(), sums, kept, room, names, memory, course }
    }

    fn blocks(&self, run: Run) -> Blocks {
        let mood = *self.mood.lock().expect("nobody panicked");
        let mut kept = self.kept.lock().expect("nobody panicked");
        if kept.contains(&run.object.id()) {
            return self.fixed.fetch(run);
        }
        if self.room.is_some_and(|room| kept.len() < room) {
            kept.insert(run.object.id());
        }
        self.fetched.fetch_add(run.blocks.len() as u64, Relaxed);
        let blocks = self.fixed.fetch(run.clone());
        match mood {
            Mood::Well => blocks,
            Mood::Hung => futures_util::stream::pending().boxed(),
            Mood::Failing(kind) => futures_util::stream::iter([Err(Error::new(kind, "no", &*run.object))]).boxed(),
        }
    }
}

/// What keeps nothing in memory is the same for whoever asks.
fn own(source: Arc<dyn Source>, room: impl Fn(&Address, For) -> Room + Send + Sync + 'static) -> Own {
    Own { inner: source.clone(), shared: source, room: Arc::new(room) }
}

impl Source for Inner {
    fn fetch(&self, run: Run) -> Blocks {
        self.blocks(run)
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<block::Checksum>> {
        self.fixed.checksum(object, via)
    }
}

impl Giver for Inner {
    fn course(&self, _manner: Manner) -> block::Course {
        let course = block::Course::begin(std::time::Instant::now, false);
        *self.course.lock().expect("nobody panicked") = course.clone();
        course
    }

    fn fetch(&self, run: Run) -> Option<Blocks> {
        self.is_mine.load(Relaxed).then(|| self.blocks(run))
    }

    fn shared(&self, run: Run) -> Option<Blocks> {
        Giver::fetch(self, run)
    }

    fn open(&self, _run: &Run) -> Option<Arc<dyn Opened>> {
        None
    }

    fn given_bytes(&self) -> u64 {
        64 << 20
    }

    fn held(&self, run: Run) -> Option<Blocks> {
        Some(self.blocks(run))
    }

    fn lent(&self, run: Run, _ticket: u64) -> Option<Blocks> {
        let has = self.memory.lock().expect("nobody panicked").contains(&run.object.id());
        let missing = Error::missing("not in memory", &*run.object);
        Some(if has { self.fixed.fetch(run) } else { futures_util::stream::iter([Err(missing)]).boxed() })
    }

    fn checksum(&self, object: &Arc<Object>) -> Option<Waiting<Option<block::Checksum>>> {
        self.sums.fetch_add(1, Relaxed);
        Some(self.fixed.checksum(object, Door::NONE))
    }

    fn bring(&self, address: Address, _manner: Manner) -> Option<Waiting<Brought>> {
        let (object, blocks) = (address.object.clone(), Stripe::of(&address).blocks(&address.object));
        let (run, bytes) = (Run::new(object.clone(), blocks.start..blocks.end.min(blocks.start + 64)), object.size);
        let found = if self.kept.lock().expect("nobody panicked").contains(&object.id()) { bytes } else { 0 };
        let mut coming = self.is_mine.load(Relaxed).then(|| self.blocks(run))?;
        Some(Box::pin(async move {
            while let Some(block) = coming.next().await {
                block?;
            }
            Ok(Brought::There { found, sum: None })
        }))
    }

    fn used(&self, _uses: Vec<Count>) {}

    fn room(&self, address: &Address, _asker: For) -> Room {
        let kept = self.kept.lock().expect("nobody panicked");
        match self.room {
            _ if kept.contains(&address.object.id()) => Room::Here,
            Some(room) if kept.len() >= room => Room::Full,
            // Copies lie there: what others keep comes from them as long as they do.
            _ => Room::Yielded,
        }
    }

    fn names(&self, _set: u128) -> Names {
        *self.names.lock().expect("nobody panicked")
    }

    fn piece(&self, _set: u128, _id: u128, offset: u64) -> futures_util::future::BoxFuture<'static, bytes::Bytes> {
        let piece = bytes::Bytes::from(vec![offset as u8; if offset < 5 { 1 } else { 0 }]);
        Box::pin(std::future::ready(piece))
    }

    fn news(&self, set: u128) {
        self.names.lock().expect("nobody panicked").before = set as u64;
    }

    fn stale_bytes(&self) -> u64 {
        0
    }

    fn room_bytes(&self) -> (u64, u64) {
        let used = self.kept.lock().expect("nobody panicked").len();
        let free = self.room.map_or(u64::MAX, |room| (room - used.min(room)) as u64 * SMALL);
        (free, used as u64 * SMALL)
    }
}

/// How long a member is waited for that says only that it lives.
const PATIENCE: Duration = Duration::from_secs(90);

/// Members that all see each other.
struct Cluster {
    twin: Twin,
    inners: Vec<Arc<Inner>>,
    peers: Vec<Peers>,
    owners: Vec<Owners>,
    lines: Vec<Lines>,
    figures: Vec<Arc<Figures>>,
    rosters: Vec<watch::Sender<Arc<Roster>>>,
    servers: Vec<tokio::task::JoinHandle<()>>,
}

fn seats(count: usize) -> Vec<Seat> {
    (0..count).map(|n| Seat::new(format!("n{n}"), format!("n{n}:1"), 1)).collect()
}

impl Cluster {
    fn of(count: usize, fixed: Fixed) -> Cluster {
        Cluster::with_room(count, fixed, None)
    }

    /// Each has room for so many objects.
    fn with_room(count: usize, fixed: Fixed, room: Option<usize>) -> Cluster {
        Cluster::with_rooms(count, fixed, |_| room)
    }

    fn with_rooms(count: usize, fixed: Fixed, room: impl Fn(usize) -> Option<usize>) -> Cluster {
        let (fixed, twin, seats) = (Arc::new(fixed), Twin::default(), seats(count));
        let mut cluster = Cluster {
            twin: twin.clone(),
            inners: Vec::new(),
            peers: Vec::new(),
            owners: Vec::new(),
            lines: Vec::new(),
            figures: Vec::new(),
            rosters: Vec::new(),
            servers: Vec::new(),
        };
        for seat in &seats {
            let inner = Arc::new(Inner::of(fixed.clone(), room(cluster.inners.len())));
            let (sender, roster) = watch::channel(Arc::new(Roster::of(seat.id, seats.clone())));
            let runtime = tokio::runtime::Handle::current();
            let lines = Lines::new(roster, Arc::new(twin.clone()), PATIENCE, runtime);
            let here = inner.clone();
            let own = own(inner.clone(), move |address, asker| here.room(address, asker));
            let owners = Owners::over(own, lines.clone());
            cluster.owners.push(owners.clone());
            let peers = Peers::over(Arc::new(owners.clone()), owners);
            cluster.peers.push(peers);
            cluster.figures.push(lines.figures().clone());
            cluster.lines.push(lines);
            cluster.inners.push(inner);
            cluster.rosters.push(sender);
            let number = cluster.servers.len();
            cluster.servers.push(cluster.serve(number));
        }
        cluster
    }

    fn serve(&self, number: usize) -> tokio::task::JoinHandle<()> {
        let (seat, inner) = (&seats(number + 1)[number], self.inners[number].clone());
        tokio::spawn(serve(Box::new(self.twin.listen(&seat.address)), inner, self.lines[number].clone()))
    }

    fn fetched(&self) -> u64 {
        self.inners.iter().map(|inner| inner.fetched.load(Relaxed)).sum()
    }

    /// The owner of the first stripe of an object.
    fn owner(&self, object: &Arc<Object>) -> usize {
        let stripe = Stripe::of(&Address { object: object.clone(), index: 0 });
        let owner = self.lines[0].roster().owner(&stripe).expect("somebody");
        seats(self.inners.len()).iter().position(|seat| seat.id == owner).expect("one of them")
    }

    /// Kill a member: its connections break and nobody takes another.
    fn kill(&mut self, number: usize) {
        self.servers[number].abort();
        self.twin.cut(&format!("n{number}:1"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.servers.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn read(source: &dyn Source, run: Run) -> Result<Vec<u8>> {
    let (mut blocks, mut bytes) = (source.fetch(run), Vec::new());
    while let Some(block) = blocks.next().await {
        bytes.extend(block?.pieces().concat());
    }
    Ok(bytes)
}

/// Read all of these through one member, and compare.
async fn read_all(peers: &Peers, samples: &[Sample]) {
    for (object, content) in samples {
        let mut start = 0;
        while start < object.blocks() {
            let end = object.blocks().min(start + block::RUN_BLOCKS_MAX);
            let run = Run::new(object.clone(), start..end);
            let range = run.range();
            let got = read(peers, run).await.expect("blocks");
            assert!(got == content[range.start as usize..range.end as usize], "{object} from {start}");
            start = end;
        }
    }
}

#[tokio::test]
async fn the_tier_of_members_keeps_the_promises_of_a_source() {
    block::contract::run(|fixed| {
        let cluster = Cluster::of(3, fixed);
        let source: Arc<dyn Source> = Arc::new(cluster.peers[1].clone());
        (source, cluster)
    })
    .await;
}

#[tokio::test]
async fn each_member_gets_the_same_bytes_and_only_owners_ask_the_store() {
    let (fixed, samples) = objects();
    let cluster = Cluster::of(4, fixed);
    for peers in &cluster.peers {
        read_all(peers, &samples).await;
    }
    let blocks: u64 = samples.iter().map(|(object, _)| u64::from(object.blocks())).sum();
    // The inner source keeps nothing here: each owner was asked once by each member.
    assert_eq!(cluster.fetched(), 4 * blocks);
    for (number, inner) in cluster.inners.iter().enumerate() {
        let owned: u64 = (samples.iter())
            .flat_map(|(object, _)| (0..object.blocks()).map(|index| Address { object: object.clone(), index }))
            .filter(|address| cluster.lines[0].roster().owner(&Stripe::of(address)) == Some(seats(4)[number].id))
            .count() as u64;
        assert_eq!(inner.fetched.load(Relaxed), 4 * owned, "member {number}");
        assert_eq!(cluster.figures[number].served.get().0, 3 * owned, "what it gave to the three others");
        assert_eq!(cluster.figures[number].had.get().0, blocks - owned);
        assert_eq!(cluster.figures[number].around.load(Relaxed), 0);
    }
}

/// A hundred objects of one block.
fn small(fixed: &mut Fixed) -> Vec<Sample> {
    let content = |n: usize| vec![n as u8; SMALL as usize - n];
    (0..100).map(|n| (fixed.add(&format!("small/{n}"), content(n)), content(n))).collect()
}

/// Have all of these brought as member `number` would; how many were, there before or not, and how many nobody keeps.
async fn bring_all(cluster: &Cluster, number: usize, samples: &[Sample]) -> (usize, usize, usize) {
    let mut all = (0, 0, 0);
    for (object, _) in samples {
        let address = Address { object: object.clone(), index: 0 };
        let inner = &cluster.inners[number];
        let brought = match cluster.owners[number]
            .bring(&address, false, inner.room(&address, For::Nobody) == Room::Full)
            .await
        {
            Some(brought) => brought.expect("a well store"),
            None => inner.bring(address, Manner::default()).expect("ours").await.expect("a well store"),
        };
        match brought {
            Brought::There { found: 0, .. } => all.0 += 1,
            Brought::There { .. } => all.1 += 1,
            Brought::Unkept => all.2 += 1,
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_is_brought_lies_with_its_owner_and_does_not_travel() {
    for (room, kept) in [(1_000, 100), (0, 0)] {
        let mut fixed = Fixed::default();
        let samples = small(&mut fixed);
        let mut cluster = Cluster::with_room(4, fixed, Some(room));
        // Until each has heard how much room the others have.
        tokio::time::sleep(Duration::from_secs(30)).await;
        let (mut came, mut unkept) = (0, 0);
        for _ in 0..3 {
            let (new, _, not) = bring_all(&cluster, 1, &samples).await;
            (came, unkept) = (came + new, not);
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        assert_eq!((came, unkept), (kept, 100 - kept), "room for {room} each");
        assert_eq!(cluster.fetched(), kept as u64);
        assert_eq!(bring_all(&cluster, 3, &samples).await, (0, kept, 100 - kept), "whoever asks");
        let served: u64 = cluster.figures.iter().map(|figures| figures.served.get().0).sum();
        assert_eq!(served, 0);
        // Without one of them the others keep what it would.
        cluster.kill(2);
        let lost = cluster.inners[2].kept.lock().expect("nobody panicked").len();
        let (new, there, _) = bring_all(&cluster, 0, &samples).await;
        if room == 1_000 {
            assert_eq!((new, there), (lost, 100 - lost));
        }
    }
}

#[tokio::test]
async fn what_a_member_may_not_bring_is_left_to_who_asks_and_what_a_store_refuses_is_said() {
    let mut fixed = Fixed::default();
    let samples = small(&mut fixed);
    let cluster = Cluster::of(2, fixed);
    let (object, _) = samples.iter().find(|(object, _)| cluster.owner(object) == 0).expect("about a half");
    let address = Address { object: object.clone(), index: 0 };
    *cluster.inners[0].mood.lock().expect("nobody panicked") = Mood::Failing(Kind::Missing);
    let failed = cluster.owners[1].bring(&address, false, false).await.expect("the owner's").expect_err("refused");
    assert_eq!((failed.kind, failed.on), (Kind::Missing, object.to_string()));
    cluster.inners[0].is_mine.store(false, Relaxed);
    assert!(cluster.owners[1].bring(&address, false, false).await.is_none());
}

#[tokio::test]
async fn what_the_store_doesn_t_give_an_owner_is_brought_by_who_asks_and_of_no_third_member() {
    let mut fixed = Fixed::default();
    let samples = small(&mut fixed);
    let cluster = Cluster::of(4, fixed);
    for inner in &cluster.inners {
        *inner.mood.lock().expect("nobody panicked") = Mood::Failing(Kind::Unavailable { retry_after: None });
    }
    let others: Vec<_> = samples.iter().filter(|(object, _)| cluster.owner(object) != 0).collect();
    for (object, _) in &others {
        let address = Address { object: object.clone(), index: 0 };
        assert!(cluster.owners[0].bring(&address, false, false).await.is_none(), "this one is to try");
    }
    assert_eq!(cluster.fetched(), others.len() as u64, "each was asked of the store once");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_keeps_leaves_the_store_once_for_all_who_read_it_at_once() {
    let mut fixed = Fixed::default();
    let samples = small(&mut fixed);
    let mut cluster = Cluster::with_room(4, fixed, Some(0));
    for (number, sample) in samples.iter().enumerate() {
        for reader in 0..4 {
            read_all(&cluster.peers[(number + reader) % 4], std::slice::from_ref(sample)).await;
            cluster.inners[(number + reader) % 4].memory.lock().expect("nobody panicked").insert(sample.0.id());
        }
    }
    assert_eq!(cluster.fetched(), 100);
    let served: Vec<u64> = cluster.figures.iter().map(|figures| figures.served.get().0).collect();
    assert_eq!(served.iter().sum::<u64>(), 300);
    assert!(served.iter().all(|blocks| *blocks == 75), "each gives as much as the others: {served:?}");
    // Those who asked last have let go of it, or are away.
    cluster.inners.iter().for_each(|inner| inner.memory.lock().expect("nobody panicked").clear());
    read_all(&cluster.peers[0], &samples).await;
    assert_eq!(cluster.fetched(), 200);
    cluster.kill(0);
    read_all(&cluster.peers[1], &samples).await;
    assert_eq!(cluster.fetched(), 300);
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_has_no_room_for_another_keeps_and_all_room_is_used() {
    // Room for just all of it; a little more than half; none at all.
    for (room, misses) in [(25, 0..=0), (15, 40..=40), (0, 100..=100)] {
        let mut fixed = Fixed::default();
        let samples = small(&mut fixed);
        let cluster = Cluster::with_room(4, fixed, Some(room));
        for epoch in 0..4 {
            let before = cluster.fetched();
            for (number, sample) in samples.iter().enumerate() {
                read_all(&cluster.peers[(number + epoch) % 4], std::slice::from_ref(sample)).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let fetched = cluster.fetched() - before;
            // What was told may be old when the last room is looked for: it is found an epoch later.
            let expected = match epoch {
                0 => 100..=100,
                1 => *misses.start()..=misses.end() + 3,
                _ => misses.clone(),
            };
            assert!(expected.contains(&fetched), "room for {room} each, epoch {epoch}: {fetched} from the store");
        }
        let kept: usize = cluster.inners.iter().map(|inner| inner.kept.lock().expect("nobody panicked").len()).sum();
        assert_eq!(kept, (4 * room).min(100));
        let around: u64 = cluster.figures.iter().map(|figures| figures.around.load(Relaxed)).sum();
        assert_eq!(around, 0);
    }
}

#[tokio::test]
async fn a_checksum_is_asked_of_the_owner() {
    let mut fixed = Fixed::default();
    let samples = small(&mut fixed);
    let cluster = Cluster::of(3, fixed);
    for (object, content) in &samples {
        let owner = cluster.owner(object);
        let next = cluster.inners[(owner + 1) % 3].clone();
        let owners = Owners::over(own(next, |_, _| Room::Free), cluster.lines[(owner + 1) % 3].clone());
        let before = cluster.inners[owner].sums.load(Relaxed);
        let sum = owners.checksum(object, Door::NONE).await.expect("an answer");
        assert_eq!(sum, Some(block::Checksum::Crc64Nvme(block::crc64::of(content))));
        assert_eq!(cluster.inners[owner].sums.load(Relaxed), before + 1);
    }
}
