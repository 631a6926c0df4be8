//! Members that come, go, die and are cut off, on wires that are slow, silent or break: drawn from a seed, on a clock that moves
//! only when nobody has anything to do. `STOKER_SIMULATE=FROM:COUNT` plays other seeds than the few of every test run.
//!
//! What holds at any time: no read is lost, late or wrong. What holds while nothing but slowness happens: no block leaves the
//! store twice.

use super::weather::{Chance, Weather};
use super::*;
use crate::Elders;
use block::Block;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// The longest that any read may take: a member falls silent, the one that its owner asks as well, and all that on slow wires.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Members that there ever are, and objects.
const SEATS: u64 = 5;
const OBJECTS: u64 = 24;

/// The store: it counts what leaves it.
struct Counted {
    fixed: Arc<Fixed>,
    fetched: Mutex<BTreeMap<(String, u32), u32>>,
    chance: Mutex<Chance>,
}

impl Source for Counted {
    fn fetch(&self, run: Run) -> Blocks {
        let mut fetched = self.fetched.lock().expect("nobody panicked");
        for index in run.blocks.clone() {
            *fetched.entry((run.object.key.to_string(), index)).or_default() += 1;
        }
        let pause = Duration::from_millis(5 + self.chance.lock().expect("nobody panicked").below(40));
        let blocks = self.fixed.fetch(run);
        async move {
            tokio::time::sleep(pause).await;
            blocks
        }
        .flatten_stream()
        .boxed()
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<block::Checksum>> {
        self.fixed.checksum(object, via)
    }
}

/// What a member keeps: each block that it once asked for. Who asks for one that is on its way waits for it.
#[derive(Clone)]
struct Keeper(Arc<Kept>);

/// A block, there or on its way.
type Coming = Shared<BoxFuture<'static, Result<Block>>>;

struct Kept {
    below: Arc<dyn Source>,
    blocks: Mutex<BTreeMap<(block::ObjectId, u32), Coming>>,
}

impl Keeper {
    fn over(below: Arc<dyn Source>) -> Keeper {
        Keeper(Arc::new(Kept { below, blocks: Mutex::default() }))
    }

    fn blocks(&self, run: Run) -> Blocks {
        let keeper = self.clone();
        futures_util::stream::iter(run.blocks.clone())
            .then(move |index| keeper.coming(run.part(index..index + 1)))
            .boxed()
    }

    fn coming(&self, run: Run) -> Coming {
        let key = (run.object.id(), run.blocks.start);
        let mut blocks = self.0.blocks.lock().expect("nobody panicked");
        if let Some(coming) = blocks.get(&key) {
            return coming.clone();
        }
        let keeper = self.clone();
        let coming = async move {
            let got = keeper.0.below.fetch(run).next().await.expect("a block or an error");
            if got.is_err() {
                keeper.0.blocks.lock().expect("nobody panicked").remove(&key);
            }
            got
        };
        let coming = coming.boxed().shared();
        blocks.insert(key, coming.clone());
        // It comes also if who asked first gives up.
        tokio::spawn(coming.clone());
        coming
    }

    fn has(&self, run: &Run) -> bool {
        let blocks = self.0.blocks.lock().expect("nobody panicked");
        let here = |index| blocks.get(&(run.object.id(), index)).is_some_and(|coming| coming.peek().is_some());
        run.blocks.clone().all(here)
    }
}

impl Source for Keeper {
    fn fetch(&self, run: Run) -> Blocks {
        self.blocks(run)
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<block::Checksum>> {
        self.0.below.checksum(object, via)
    }
}

impl Giver for Keeper {
    fn course(&self, _manner: Manner) -> block::Course {
        block::Course::default()
    }

    fn fetch(&self, run: Run) -> Option<Blocks> {
        Some(self.blocks(run))
    }

    fn shared(&self, run: Run) -> Option<Blocks> {
        Some(self.blocks(run))
    }

    fn open(&self, _run: &Run) -> Option<Arc<dyn Opened>> {
        None
    }

    fn given_bytes(&self) -> u64 {
        64 << 20
    }

    fn held(&self, run: Run) -> Option<Blocks> {
        let missing = Error::missing("not here", &*run.object);
        Some(if self.has(&run) { self.blocks(run) } else { futures_util::stream::iter([Err(missing)]).boxed() })
    }

    fn lent(&self, _run: Run, _ticket: u64) -> Option<Blocks> {
        None
    }

    fn checksum(&self, object: &Arc<Object>) -> Option<Waiting<Option<block::Checksum>>> {
        Some(self.0.below.checksum(object, Door::NONE))
    }

    fn bring(&self, _address: Address, _manner: Manner) -> Option<Waiting<Brought>> {
        None
    }

    fn used(&self, _uses: Vec<Count>) {}

    fn room(&self, _address: &Address, _asker: For) -> Room {
        Room::Free
    }

    fn stale_bytes(&self) -> u64 {
        0
    }

    fn room_bytes(&self) -> (u64, u64) {
        (u64::MAX, self.0.blocks.lock().expect("nobody panicked").len() as u64)
    }

    fn names(&self, _set: u128) -> Names {
        Names::default()
    }

    fn piece(&self, _set: u128, _id: u128, _offset: u64) -> BoxFuture<'static, bytes::Bytes> {
        Box::pin(std::future::ready(bytes::Bytes::new()))
    }

    fn news(&self, _set: u128) {}
}

/// A member that runs, or did.
struct Member {
    seat: Seat,
    roster: watch::Sender<Arc<Roster>>,
    peers: Peers,
    server: tokio::task::JoinHandle<()>,
    lives: bool,
}

/// What a seed led to.
#[derive(Debug, PartialEq)]
struct Played {
    /// How often each block left the store.
    fetched: BTreeMap<(String, u32), u32>,
    /// Which reads ended when, in that order.
    reads: Vec<(Duration, String)>,
    /// Bytes that members had of each other.
    had: u64,
}

struct World {
    chance: Chance,
    twin: Twin,
    weather: Weather,
    store: Arc<Counted>,
    samples: Vec<Sample>,
    members: Vec<Member>,
    /// Who is a member, by what those who tell say.
    told: Vec<Seat>,
    reads: Vec<tokio::task::JoinHandle<()>>,
    ended: Arc<Mutex<Vec<(Duration, String)>>>,
    figures: Vec<Arc<Figures>>,
    began: Instant,
}

impl World {
    fn new(seed: u64) -> World {
        let (mut chance, mut fixed) = (Chance::new(seed), Fixed::default());
        let content =
            |number: u64, bytes: u64| (0..bytes).map(|at| (at / 251 + at + number) as u8).collect::<Vec<u8>>();
        let sizes: Vec<u64> =
            (0..OBJECTS).map(|_| [1, 5_000, SMALL, 2 * SMALL + 7, 900_000][chance.below(5) as usize]).collect();
        let samples = (0..).zip(sizes).map(|(number, bytes)| {
            (fixed.add(&format!("object/{number}"), content(number, bytes)), content(number, bytes))
        });
        let samples = samples.collect();
        let (fetched, rest) = (Mutex::default(), Mutex::new(chance.clone()));
        let store = Arc::new(Counted { fixed: Arc::new(fixed), fetched, chance: rest });
        let (twin, told) = (Twin::default(), seats(3));
        let weather = Weather::new(twin.clone(), seed);
        let (members, reads, ended, figures) = Default::default();
        let began = Instant::now();
        let mut world = World { chance, twin, weather, store, samples, members, told, reads, ended, figures, began };
        world.told.clone().into_iter().for_each(|seat| world.begin(seat));
        world
    }

    /// A member begins, with nothing.
    fn begin(&mut self, seat: Seat) {
        let (roster, told) = watch::channel(Arc::new(Roster::of(seat.id, self.told.clone())));
        let transport = Arc::new(self.weather.at(seat.id));
        let lines = Lines::new(told, transport, PATIENCE, tokio::runtime::Handle::current());
        self.figures.push(lines.figures().clone());
        let keeper = Keeper::over(Arc::new(Elders::over(self.store.clone(), lines.clone())));
        let owners = Owners::over(own(Arc::new(keeper.clone()), |_, _| Room::Free), lines.clone());
        let peers = Peers::over(Arc::new(owners.clone()), owners);
        let server = tokio::spawn(serve(Box::new(self.twin.listen(&seat.address)), Arc::new(keeper), lines));
        self.members.retain(|member| member.seat.id != seat.id);
        self.members.push(Member { seat, roster, peers, server, lives: true });
    }

    fn end(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.lives = false;
        member.server.abort();
        self.twin.cut(&member.seat.address);
        self.weather.break_wires(member.seat.id);
    }

    fn living(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|at| self.members[*at].lives).collect()
    }

    fn any_living(&mut self) -> usize {
        let living = self.living();
        living[self.chance.below(living.len() as u64) as usize]
    }

    /// Somebody reads some blocks of something, beside all else that happens.
    fn read(&mut self) {
        let at = self.any_living();
        let (object, content) = self.samples[self.chance.below(OBJECTS) as usize].clone();
        let start = self.chance.below(object.blocks().into()) as u32;
        let end = start + 1 + self.chance.below((object.blocks() - start).into()) as u32;
        let (peers, name) = (self.members[at].peers.clone(), self.members[at].seat.name.clone());
        let (ended, world_began) = (self.ended.clone(), self.began);
        self.reads.push(tokio::spawn(async move {
            let (run, began) = (Run::new(object.clone(), start..end), Instant::now());
            let range = run.range();
            let got = tokio::time::timeout(READ_WITHIN, read(&peers, run)).await;
            let got = got.unwrap_or_else(|_| panic!("{object} {start}..{end} by {name} since {began:?} is lost"));
            let got = got.unwrap_or_else(|error| panic!("{object} {start}..{end} by {name}: {error}"));
            assert!(
                got == content[range.start as usize..range.end as usize],
                "{object} {start}..{end} by {name} is wrong"
            );
            let what = format!("{object} {start}..{end} by {name}");
            ended.lock().expect("nobody panicked").push((world_began.elapsed(), what));
        }));
    }

    async fn reads_end(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            if let Err(failed) = read.await {
                std::panic::resume_unwind(failed.into_panic());
            }
        }
    }

    /// Each member hears at a moment of its own who is one now.
    fn tell(&mut self) {
        for member in &self.members {
            let (told, pause) = (self.told.clone(), Duration::from_millis(self.chance.below(3_000)));
            let (roster, id) = (member.roster.clone(), member.seat.id);
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                roster.send_replace(Arc::new(Roster::of(id, told)));
            });
        }
    }

    /// Something happens to the members.
    fn happen(&mut self) {
        let living = self.living();
        match self.chance.below(8) {
            0 if living.len() > 1 => {
                let at = self.any_living();
                self.end(at);
            }
            1 => {
                if let Some(dead) = self.members.iter().find(|member| !member.lives) {
                    self.begin(dead.seat.clone());
                }
            }
            2 => {
                let known = seats(SEATS as usize);
                let new = known.into_iter().find(|seat| self.told.iter().all(|told| told.id != seat.id));
                if let Some(seat) = new {
                    self.told.push(seat.clone());
                    self.begin(seat);
                    self.tell();
                }
            }
            3 if self.told.len() > 2 => {
                let gone = self.told.remove(self.chance.below(self.told.len() as u64) as usize);
                let at = self.members.iter().position(|member| member.seat.id == gone.id).expect("it began");
                if self.members[at].lives && living.len() > 1 {
                    self.end(at);
                }
                self.members.retain(|member| member.lives || self.told.iter().any(|told| told.id == member.seat.id));
                self.tell();
            }
            4 | 5 => {
                let (one, other) = (self.any_living(), self.any_living());
                let (one, other) = (self.members[one].seat.id, self.members[other].seat.id);
                // Of a member that is cut off for long nobody hears that it is.
                let most = if self.chance.below(4) == 0 { 60_000 } else { 4_000 };
                let (weather, pause) = (self.weather.clone(), Duration::from_millis(self.chance.below(most)));
                weather.silence(one, other, true);
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    weather.silence(one, other, false);
                });
            }
            6 => {
                let at = self.any_living();
                self.weather.break_wires(self.members[at].seat.id);
            }
            _ => self.weather.slow(self.chance.below(200)),
        }
    }

    fn fetched(&self) -> BTreeMap<(String, u32), u32> {
        self.store.fetched.lock().expect("nobody panicked").clone()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.members.iter().for_each(|member| member.server.abort());
    }
}

fn play(seed: u64, is_calm: bool) -> Played {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async move {
        let mut world = World::new(seed);
        for _ in 0..200 {
            for _ in 0..world.chance.below(5) {
                world.read();
            }
            if is_calm {
                // Slower than this, who is silent counts as dead.
                let delay = world.chance.below(30);
                world.weather.slow(delay);
            } else if world.chance.below(6) == 0 {
                world.happen();
            }
            tokio::time::sleep(Duration::from_millis(world.chance.below(400))).await;
        }
        world.reads_end().await;
        let panicked = world.members.iter().find(|member| member.lives && member.server.is_finished());
        assert!(panicked.is_none(), "a server of seed {seed} has ended");
        let had = world.figures.iter().map(|figures| figures.had.get().1).sum();
        let reads = std::mem::take(&mut *world.ended.lock().expect("nobody panicked"));
        Played { fetched: world.fetched(), reads, had }
    })
}

/// The seeds to play: some in every run of the tests, others when they are asked for.
fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("STOKER_SIMULATE").ok();
    let asked = asked.as_deref().and_then(|asked| asked.split_once(':'));
    let asked =
        asked.map(|(from, count)| (from.parse::<u64>().expect("a seed"), count.parse::<u64>().expect("a count")));
    let (from, count) = asked.unwrap_or((0, 40));
    from..from + count
}

fn each_seed(is_calm: bool, judge: impl Fn(u64, Played)) {
    for seed in seeds() {
        let played = std::panic::catch_unwind(|| play(seed, is_calm));
        let played = played.unwrap_or_else(|_| panic!("seed {seed}: STOKER_SIMULATE={seed}:1 plays it again"));
        assert!(played.had > 1_000_000, "seed {seed}: members had {} bytes of each other", played.had);
        judge(seed, played);
    }
}

#[test]
fn whatever_happens_to_members_no_read_is_lost_late_or_wrong() {
    each_seed(false, |seed, played| assert!(played.reads.len() > 100, "seed {seed} read {}", played.reads.len()));
}

#[test]
fn while_nobody_dies_no_block_leaves_the_store_twice() {
    each_seed(true, |seed, played| {
        let twice = played.fetched.iter().find(|(_, count)| **count > 1);
        assert!(twice.is_none(), "seed {seed}: {twice:?}");
    });
}

#[test]
fn a_seed_plays_the_same_again() {
    for seed in seeds().step_by(8) {
        for is_calm in [false, true] {
            assert!(play(seed, is_calm) == play(seed, is_calm), "seed {seed}");
        }
    }
}
