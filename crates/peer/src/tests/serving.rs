//! What one asker may take of a member: memory, connections; and what the kernel sends from files.

use super::*;
use crate::wire::{GREETING, Greeting, HEADER, Header, Wish, Word};
use cache::memory::Memory;
use cache::{Budget, Flight};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

mod sending;

/// What a member has for others: what its tiers fetch, what its readers have in memory, and complete files.
struct Shop {
    inner: Arc<dyn Source>,
    memory: Option<Memory>,
    given_bytes: u64,
    files: std::collections::HashMap<block::ObjectId, Arc<Kept>>,
    asked: AtomicU64,
    /// Pieces of names that were read.
    pieces: AtomicU64,
}

/// A complete file.
struct Kept {
    file: std::fs::File,
    sums: Vec<u64>,
    is_at_hand: AtomicBool,
}

impl Opened for Kept {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn place(&self, address: &Address) -> u64 {
        address.range().start
    }

    fn sums(&self, address: &Address) -> &[u64] {
        let from = (address.range().start / block::SUM) as usize;
        &self.sums[from..from + address.len().div_ceil(block::SUM as usize)]
    }

    fn is_at_hand(&self, _address: &Address) -> bool {
        self.is_at_hand.load(Relaxed)
    }
}

impl Giver for Shop {
    fn fetch(&self, run: Run) -> Option<Blocks> {
        self.asked.fetch_add(1, Relaxed);
        Some(self.inner.fetch(run))
    }

    fn shared(&self, run: Run) -> Option<Blocks> {
        self.fetch(run)
    }

    fn open(&self, run: &Run) -> Option<Arc<dyn Opened>> {
        let kept = self.files.get(&run.object.id())?.clone();
        Some(kept)
    }

    fn given_bytes(&self) -> u64 {
        self.given_bytes
    }

    fn course(&self, manner: Manner) -> block::Course {
        block::Course::wanted(|| Instant::now().into_std(), manner.is_urgent, None)
    }

    fn held(&self, run: Run) -> Option<Blocks> {
        Some(self.inner.fetch(run))
    }

    fn lent(&self, run: Run, ticket: u64) -> Option<Blocks> {
        Some(self.memory.as_ref()?.lend(run, ticket))
    }

    fn checksum(&self, _object: &Arc<Object>) -> Option<Waiting<Option<block::Checksum>>> {
        None
    }

    fn bring(&self, _address: Address, _manner: Manner) -> Option<Waiting<Brought>> {
        None
    }

    fn used(&self, _uses: Vec<Count>) {}

    fn room(&self, _address: &Address, _asker: For) -> Room {
        Room::Here
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
        self.pieces.fetch_add(1, Relaxed);
        Box::pin(std::future::ready(vec![7; PIECE_BYTES].into()))
    }

    fn news(&self, _set: u128) {}
}

/// A member that serves over a network in memory. It ends when this is dropped.
struct Serving {
    twin: Twin,
    lines: Lines,
    task: tokio::task::JoinHandle<()>,
    _roster: watch::Sender<Arc<Roster>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn begin(shop: Arc<Shop>) -> Serving {
    let (twin, seat) = (Twin::default(), seats(1)[0].clone());
    let (roster, told) = watch::channel(Arc::new(Roster::of(seat.id, seats(4))));
    let lines = Lines::new(told, Arc::new(twin.clone()), PATIENCE, tokio::runtime::Handle::current());
    let task = tokio::spawn(serve(Box::new(twin.listen(&seat.address)), shop, lines.clone()));
    Serving { twin, lines, task, _roster: roster }
}

fn shop(inner: Arc<dyn Source>, memory: Option<Memory>, given_bytes: u64) -> Shop {
    Shop { inner, memory, given_bytes, files: Default::default(), asked: AtomicU64::new(0), pieces: AtomicU64::new(0) }
}

/// A connection of a member of this number, which has greeted.
async fn greet(serving: &Serving, number: usize) -> Wire {
    let (to, from) = (&seats(1)[0], seats(number + 1)[number].id);
    let mut wire = serving.twin.connect(to).await.expect("a connection");
    wire.write.write_all(&Greeting { from, to: to.id }.encode()).await.expect("said");
    let mut answer = [0; GREETING];
    wire.read.read_exact(&mut answer).await.expect("an answer");
    wire
}

async fn ask(wire: &mut Wire, request: u32, run: Run, manner: Manner) {
    let payload = Wish { run, manner }.encode().expect("short names");
    wire.write.write_all(&crate::wire::frame(Word::Fetch, request, payload).concat()).await.expect("said");
}

/// The next frame that is no beat.
async fn hear(wire: &mut Wire) -> (Header, Vec<u8>) {
    loop {
        let mut head = [0; HEADER];
        wire.read.read_exact(&mut head).await.expect("a frame");
        let header = Header::decode(&head, u32::MAX).expect("a frame");
        let mut payload = vec![0; header.length as usize];
        wire.read.read_exact(&mut payload).await.expect("all of it");
        if header.word != Word::Beat {
            return (header, payload);
        }
    }
}

/// Read a mebibyte a second of what comes, for as long as somebody is there.
async fn read_slowly(mut wire: Wire) {
    let mut some = vec![0; 64 << 10];
    while wire.read.read_exact(&mut some).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1000 / 16)).await;
    }
}

fn large(fixed: &mut Fixed, key: &str, blocks: u64) -> Arc<Object> {
    fixed.add(key, vec![7; (blocks * BLOCK) as usize])
}

#[tokio::test(start_paused = true)]
async fn an_asker_who_takes_his_time_leaves_memory_to_others() {
    let mut fixed = Fixed::default();
    let (much, little) = (large(&mut fixed, "much", 256), large(&mut fixed, "little", 8));
    let budget = Budget::of(8 << 20);
    let inner = Flight::over(Arc::new(fixed), budget, tokio::runtime::Handle::current());
    let serving = begin(Arc::new(shop(Arc::new(inner), None, 8 << 20)));
    // Over several connections, as members do.
    for _ in 0..2 {
        let mut slow = greet(&serving, 1).await;
        for part in 0..4 {
            ask(&mut slow, part, Run::new(much.clone(), 64 * part..64 * part + 64), Manner::default()).await;
        }
        tokio::spawn(read_slowly(slow));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut other = greet(&serving, 2).await;
    ask(&mut other, 0, Run::new(little, 0..8), Manner::default()).await;
    for _ in 0..8 {
        let heard = timeout(Duration::from_secs(3), hear(&mut other)).await.expect("half of the memory is left to it");
        assert_eq!(heard.0.word, Word::Block);
    }
}

#[tokio::test(start_paused = true)]
async fn an_asker_who_is_alone_has_as_many_runs_under_way_as_there_is_room_for() {
    let mut fixed = Fixed::default();
    let much = large(&mut fixed, "much", 128);
    let runtime = tokio::runtime::Handle::current();
    let inner = Flight::over(Arc::new(fixed), Budget::of(64 << 20), runtime);
    // A half of it is for one asker, and three quarters of that for what comes of one store.
    let shop = Arc::new(shop(Arc::new(inner), None, 96 << 20));
    let serving = begin(shop.clone());
    let mut asker = greet(&serving, 1).await;
    ask(&mut asker, 0, Run::new(much.clone(), 0..64), Manner::default()).await;
    ask(&mut asker, 1, Run::new(much, 64..128), Manner::default()).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(shop.asked.load(Relaxed), 2, "each at once, and as one");
}

/// The store "hung:" is silent.
struct Hung(Fixed);

impl Source for Hung {
    fn fetch(&self, run: Run) -> Blocks {
        if *run.object.store == *"hung:" { futures_util::stream::pending().boxed() } else { self.0.fetch(run) }
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<block::Checksum>> {
        self.0.checksum(object, via)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_leaves_an_asker_memory_for_others() {
    let mut fixed = Fixed::default();
    let other = large(&mut fixed, "other", 16);
    let hung = |key: String| Arc::new(Object { store: "hung:".into(), key, ..(*other).clone() });
    let serving = begin(Arc::new(shop(Arc::new(Hung(fixed)), None, 16 << 20)));
    let mut asker = greet(&serving, 1).await;
    for request in 0..40 {
        ask(&mut asker, request, Run::new(hung(request.to_string()), 0..16), Manner::default()).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    ask(&mut asker, 100, Run::new(other, 0..16), Manner::default()).await;
    for word in std::iter::repeat_n(Word::Block, 16).chain([Word::Done]) {
        let heard = timeout(Duration::from_secs(60), hear(&mut asker)).await.expect("there is room for it");
        assert_eq!((heard.0.request, heard.0.word), (100, word));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_lent_to_an_asker_who_takes_his_time_leaves_memory_to_readers() {
    let mut fixed = Fixed::default();
    let (lent, read) = (large(&mut fixed, "lent", 96), large(&mut fixed, "read", 80));
    let (store, runtime): (Arc<dyn Source>, _) = (Arc::new(fixed), tokio::runtime::Handle::current());
    let memory = Memory::over(store.clone(), Budget::of(32 << 20), Duration::MAX, runtime);
    memory.read(&lent, 0, lent.size, Door::NONE).await.expect("bytes");
    let serving = begin(Arc::new(shop(store, Some(memory.clone()), 4 << 20)));
    let mut slow = greet(&serving, 1).await;
    for block in 0..96 {
        let manner = Manner { lent: Some(1), ..Manner::default() };
        ask(&mut slow, block, Run::new(lent.clone(), block..block + 1), manner).await;
    }
    tokio::spawn(read_slowly(slow));
    tokio::time::sleep(Duration::from_millis(500)).await;
    // A reader that holds on to what it gets.
    let mut blocks = Vec::new();
    let reading = async {
        for index in 0..80 {
            let address = Address { object: read.clone(), index };
            blocks.push(memory.block(&address, BLOCK as usize, Door::NONE).await.expect("a block"));
        }
    };
    timeout(Duration::from_secs(1), reading).await.expect("no reader waits for somebody else's network");
}

#[tokio::test(start_paused = true)]
async fn what_can_t_be_lent_at_once_is_lent_when_there_is_room() {
    let mut fixed = Fixed::default();
    let lent = large(&mut fixed, "lent", 60);
    let (store, runtime): (Arc<dyn Source>, _) = (Arc::new(fixed), tokio::runtime::Handle::current());
    let memory = Memory::over(store.clone(), Budget::of(32 << 20), Duration::MAX, runtime);
    memory.read(&lent, 0, lent.size, Door::NONE).await.expect("bytes");
    let serving = begin(Arc::new(shop(store, Some(memory), 2 << 20)));
    let mut asker = greet(&serving, 1).await;
    for request in 0..4 {
        let manner = Manner { lent: Some(1), ..Manner::default() };
        ask(&mut asker, request, Run::new(lent.clone(), 15 * request..15 * request + 15), manner).await;
    }
    let (mut blocks, mut ends) = (0, 0);
    while ends < 4 {
        match hear(&mut asker).await.0.word {
            Word::Block => blocks += 1,
            Word::Done => ends += 1,
            word => panic!("{word:?}"),
        }
    }
    assert_eq!(blocks, 60);
}

/// Whether a connection was closed, or is within a moment.
async fn is_closed(wire: &mut Wire) -> bool {
    timeout(Duration::from_millis(100), wire.read.read(&mut [0; 1])).await.is_ok_and(|read| read.is_ok_and(|n| n == 0))
}

async fn is_answered(wire: &mut Wire) -> bool {
    wire.write.write_all(&crate::wire::frame(Word::State, 9, Vec::new()).concat()).await.expect("said");
    timeout(Duration::from_millis(100), hear(wire)).await.is_ok_and(|heard| heard.0.word == Word::Told)
}

#[tokio::test(start_paused = true)]
async fn a_member_has_a_few_connections_and_a_new_one_takes_the_place_of_the_oldest() {
    let serving = begin(Arc::new(shop(Arc::new(Fixed::default()), None, 1 << 20)));
    let mut other = greet(&serving, 2).await;
    let mut all = Vec::new();
    for _ in 0..9 {
        all.push(greet(&serving, 1).await);
    }
    assert!(is_closed(&mut all[0]).await, "nobody hears of it any more, perhaps");
    for wire in all[1..].iter_mut().chain([&mut other]) {
        assert!(is_answered(wire).await);
    }
    let mut unknown = Vec::new();
    for number in 4..69 {
        unknown.push(greet(&serving, number).await);
    }
    assert!(is_closed(&mut unknown[0]).await, "all whom nobody knows are one");
    assert!(is_answered(&mut unknown[1]).await && is_answered(&mut other).await);
}

#[tokio::test(start_paused = true)]
async fn whoever_says_nothing_takes_no_place_of_a_member() {
    let serving = begin(Arc::new(shop(Arc::new(Fixed::default()), None, 1 << 20)));
    let mut strangers = Vec::new();
    for _ in 0..300 {
        strangers.push(serving.twin.connect(&seats(1)[0]).await.expect("a connection"));
    }
    let mut member = greet(&serving, 1).await;
    assert!(is_answered(&mut member).await);
    // Long before all of them have to have spoken.
    assert!(is_closed(&mut strangers[0]).await && is_closed(&mut strangers[40]).await);
    assert!(!is_closed(&mut strangers[299]).await);
}

/// A member with complete files, over TCP or over memory, and another one that asks it.
struct Files {
    samples: Vec<Sample>,
    shop: Arc<Shop>,
    owners: Owners,
    lines: Lines,
    served: Lines,
    task: tokio::task::JoinHandle<()>,
    _rosters: [watch::Sender<Arc<Roster>>; 2],
}

/// `spoil` changes a file of which the sums are known.
async fn files(is_tcp: bool, spoil: impl Fn(&std::fs::File)) -> Files {
    let (fixed, samples) = objects();
    let inner: Arc<dyn Source> = Arc::new(fixed);
    let mut shop = shop(inner, None, 64 << 20);
    for (object, content) in &samples {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(content, 0).expect("written");
        spoil(&file);
        let sums = block::sums(&[bytes::Bytes::copy_from_slice(content)]);
        shop.files.insert(object.id(), Arc::new(Kept { file, sums, is_at_hand: true.into() }));
    }
    let shop = Arc::new(shop);
    let (twin, runtime) = (Twin::default(), tokio::runtime::Handle::current());
    let (listener, address): (Box<dyn Listener>, String) = match is_tcp {
        false => (Box::new(twin.listen("n0:1")), "n0:1".into()),
        true => {
            let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = socket.local_addr().expect("it is bound").to_string();
            (Box::new(socket), address)
        }
    };
    // Who asks owns nothing.
    let seats = [Seat::new("n0", address, 1), Seat::new("n1", "n1:1", 0)];
    let lines = [0, 1].map(|number: usize| {
        let (sender, told) = watch::channel(Arc::new(Roster::of(seats[number].id, seats.clone())));
        let transport: Arc<dyn Transport> = if is_tcp { Arc::new(Tcp) } else { Arc::new(twin.clone()) };
        (sender, Lines::new(told, transport, PATIENCE, runtime.clone()))
    });
    let [(one, served), (other, lines)] = lines;
    let task = tokio::spawn(serve(listener, shop.clone(), served.clone()));
    let owners = Owners::over(own(Arc::new(Fixed::default()), |_, _| Room::Free), lines.clone());
    Files { samples, shop, owners, lines, served, task, _rosters: [one, other] }
}

impl Files {
    async fn read_all(&self) {
        for (object, content) in &self.samples {
            let starts = (0..object.blocks()).step_by(64);
            for start in starts {
                let run = Run::new(object.clone(), start..object.blocks().min(start + 64));
                let range = run.range();
                let got = read(&self.owners, run).await.expect("blocks");
                assert!(got == content[range.start as usize..range.end as usize], "{object} from {start}");
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn what_lies_in_complete_files_is_given_from_there() {
    for is_tcp in [false, true] {
        let files = files(is_tcp, |_| ()).await;
        files.read_all().await;
        let blocks: u64 = files.samples.iter().map(|(object, _)| u64::from(object.blocks())).sum();
        assert_eq!(files.shop.asked.load(Relaxed), 0, "its tiers weren't asked");
        assert_eq!(files.served.figures().served.get().0, blocks);
        files.shop.files.values().for_each(|kept| kept.is_at_hand.store(false, Relaxed));
        files.read_all().await;
        assert!(files.shop.asked.load(Relaxed) > 0, "they wait for the disk");
        assert_eq!(files.lines.figures().damaged.load(Relaxed), 0);
    }
}

#[tokio::test]
async fn a_file_that_is_damaged_is_found_by_who_gets_it_and_compared_by_who_has_it() {
    let flip = |file: &std::fs::File| file.write_all_at(&[0x55, 0xaa], 0).expect("written");
    let cut = |file: &std::fs::File| file.set_len(file.metadata().expect("a file").len() / 2).expect("cut");
    for is_tcp in [false, true] {
        for spoil in [&flip as &dyn Fn(&std::fs::File), &cut] {
            let files = files(is_tcp, spoil).await;
            files.read_all().await;
            let damaged = files.lines.figures().damaged.load(Relaxed);
            assert!(damaged > 0 && files.shop.asked.load(Relaxed) >= damaged, "its tiers give what is right");
            assert_eq!(files.lines.figures().around.load(Relaxed), 0, "nobody else is asked");
            assert_eq!(files.lines.figures().broken.load(Relaxed), 0, "the connection lives");
        }
    }
}

#[tokio::test]
async fn requests_for_files_have_their_turns_block_by_block() {
    let mut fixed = Fixed::default();
    let much = large(&mut fixed, "much", 64);
    let mut shop = shop(Arc::new(fixed), None, 1 << 20);
    let file = tempfile::tempfile().expect("a file");
    let content = vec![7; much.size as usize];
    file.write_all_at(&content, 0).expect("written");
    let sums = block::sums(&[content.into()]);
    shop.files.insert(much.id(), Arc::new(Kept { file, sums, is_at_hand: true.into() }));
    let serving = begin(Arc::new(shop));
    let mut asker = greet(&serving, 1).await;
    ask(&mut asker, 1, Run::new(much.clone(), 0..32), Manner::default()).await;
    ask(&mut asker, 2, Run::new(much.clone(), 32..64), Manner::default()).await;
    ask(&mut asker, 3, Run::new(much.clone(), 0..1), Manner::default()).await;
    let (order, place) = ended(&mut asker, [1, 2, 3]).await;
    assert!(place[2] < place[0] && place[2] < 20, "the short one waits for none of the long ones: {order:?}");
    assert!(serving.lines.figures().served.get().0 == 65);

    // Of the same that are due, what is due first; and before it who waits.
    let due = |due_ms| Manner { due_ms: Some(due_ms), ..Manner::default() };
    for (request, manner) in [(4, due(60_000)), (5, due(1)), (6, due(90_000))] {
        ask(&mut asker, request, Run::new(much.clone(), 0..64), manner).await;
    }
    asker.write.write_all(&wire::frame(Word::Urge, 6, Vec::new()).concat()).await.expect("heard");
    let (order, place) = ended(&mut asker, [4, 5, 6]).await;
    assert!(place[2] < place[0] && place[1] < place[0], "{order:?}");
}

/// Who was answered at each frame until all of these were, and where each ended.
async fn ended<const N: usize>(asker: &mut Wire, requests: [u32; N]) -> (Vec<u32>, [usize; N]) {
    let (mut order, mut ends) = (Vec::new(), 0);
    while ends < N {
        let (header, _) = hear(asker).await;
        order.push(header.request);
        ends += usize::from(header.word == Word::Done);
    }
    let place = |request| order.iter().rposition(|one| *one == request).expect("it is answered");
    let places = requests.map(place);
    (order, places)
}
