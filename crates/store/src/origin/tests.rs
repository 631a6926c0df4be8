//! An origin over a store that fails by chance: one seed decides everything, time stands still meanwhile.

use super::*;
use crate::contract::pattern;
use crate::{Body, Memory, Pages};
use block::{BLOCK, Block, SMALL};
use bytes::Bytes;
use futures_util::TryStreamExt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[path = "tests/line.rs"]
mod line;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Refuse,
    Throttle,
    Hang,
    Truncate,
    Lengthen,
    Break,
    Stall,
    Spoil,
}

const FAULTS: [Fault; 8] = [
    Fault::Refuse,
    Fault::Throttle,
    Fault::Hang,
    Fault::Truncate,
    Fault::Lengthen,
    Fault::Break,
    Fault::Stall,
    Fault::Spoil,
];

/// A store in memory behind a bad line.
struct Faulty {
    memory: Arc<Memory>,
    chance: Chance,
    /// Of a hundred requests, how many fail.
    share: u64,
    /// Faults to choose from.
    faults: Vec<Fault>,
    asked: AtomicU32,
    failed: AtomicU32,
    /// Answers with a wrong byte in them.
    spoiled: AtomicU32,
}

impl Faulty {
    fn new(memory: Arc<Memory>, seed: u64, share: u64, faults: &[Fault]) -> Arc<Faulty> {
        let (asked, failed, spoiled) = Default::default();
        Arc::new(Faulty { memory, chance: Chance::new(seed), share, faults: faults.into(), asked, failed, spoiled })
    }

    fn draw(&self) -> Fault {
        if self.chance.next() % 100 >= self.share {
            return Fault::None;
        }
        self.failed.fetch_add(1, Relaxed);
        self.faults[(self.chance.next() % self.faults.len() as u64) as usize]
    }
}

impl Store for Faulty {
    fn identity(&self) -> &Arc<str> {
        self.memory.identity()
    }

    fn list(&self, prefix: &str) -> Pages {
        self.memory.list(prefix)
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        self.asked.fetch_add(1, Relaxed);
        let (fault, at) = (self.draw(), self.chance.next());
        self.spoiled.fetch_add(u32::from(fault == Fault::Spoil), Relaxed);
        let answer = self.memory.get(object, range);
        let object = object.clone();
        Box::pin(async move {
            match fault {
                Fault::Refuse => return Err(Error::unavailable("answered 500", &*object)),
                Fault::Throttle => {
                    let retry_after = Some(Duration::from_secs(1));
                    return Err(
                        Error::new(Kind::Unavailable { retry_after }, "answered 503 SlowDown", &*object).throttled()
                    );
                }
                Fault::Hang => std::future::pending().await,
                _ => {}
            }
            let body = answer.await?;
            let pieces: Vec<Bytes> = body.bytes.try_collect().await?;
            let bytes = stream::iter(spoil(pieces, fault, at).into_iter().map(Ok));
            let end: BoxedBytes = match fault {
                Fault::Break => stream::iter([Err(Error::unavailable("connection reset", &*object))]).boxed(),
                Fault::Stall => stream::pending().boxed(),
                _ => stream::empty().boxed(),
            };
            Ok(Body { checksum: body.checksum, bytes: bytes.chain(end).boxed() })
        })
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        self.memory.checksum(object)
    }

    fn counters(&self) -> &Arc<Counters> {
        self.memory.counters()
    }
}

type BoxedBytes = stream::BoxStream<'static, Result<Bytes>>;

/// The pieces with this fault in them, at a place of chance.
fn spoil(pieces: Vec<Bytes>, fault: Fault, at: u64) -> Vec<Bytes> {
    let mut all = pieces.concat();
    let at = (at % all.len() as u64) as usize;
    match fault {
        Fault::Truncate | Fault::Break | Fault::Stall => all.truncate(at),
        Fault::Lengthen => all.push(0),
        Fault::Spoil => all[at] ^= 1,
        _ => return pieces,
    }
    let all = Bytes::from(all);
    (0..all.len()).step_by(100_000).map(|start| all.slice(start..(start + 100_000).min(all.len()))).collect()
}

async fn fetch(origin: &Origin, run: Run) -> Result<Vec<u8>> {
    let blocks: Vec<Block> = origin.fetch(run).try_collect().await?;
    Ok(blocks.iter().flat_map(|block| block.pieces().concat()).collect())
}

#[tokio::test(start_paused = true)]
async fn a_thousand_faults_bring_no_wrong_byte_and_no_early_error() {
    let memory = Arc::new(Memory::new("faults"));
    let sizes = [1, 100_000, SMALL, SMALL + 1, 3 * SMALL];
    let objects = sizes.map(|size| (memory.put(&format!("{size}"), pattern(size, size)), pattern(size, size)));
    let (mut failed, mut seed) = (0, 0);
    while failed < 1000 {
        seed += 1;
        let faulty = Faulty::new(memory.clone(), seed, 50, &FAULTS);
        let budget = Duration::from_secs(600);
        let origin = Origin::new(faulty.clone(), Settings { seed, budget, ..Settings::default() });
        for (object, content) in &objects {
            let spoiled = faulty.spoiled.load(Relaxed);
            match fetch(&origin, object.whole().expect("few blocks")).await {
                Ok(bytes) => assert!(bytes == *content, "seed {seed}, {object}"),
                // What is already out can't be taken back; the checksum still speaks before the end.
                Err(error) => {
                    assert_eq!(error.kind, Kind::Corrupt, "seed {seed}: {error}");
                    assert!(object.blocks() > 1, "seed {seed}: {error}");
                    assert!(faulty.spoiled.load(Relaxed) > spoiled, "seed {seed}, each byte was right: {error}");
                }
            }
        }
        failed += faulty.failed.load(Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn parts_of_an_object_are_taken_up_where_they_broke() {
    let memory = Arc::new(Memory::new("parts"));
    let content = pattern(5 * SMALL + 9, 1);
    let object = memory.put("k", content.clone());
    let breaks = [Fault::Break, Fault::Truncate, Fault::Stall, Fault::Throttle, Fault::Hang];
    for seed in 0..200 {
        let faulty = Faulty::new(memory.clone(), seed, 60, &breaks);
        let origin = Origin::new(faulty, Settings { seed, budget: Duration::from_secs(3600), ..Settings::default() });
        let bytes = fetch(&origin, Run::new(object.clone(), 2..object.blocks())).await.expect("all passes");
        assert!(bytes == content[2 * BLOCK as usize..], "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_comes_out_after_the_budget_and_says_so() {
    let memory = Arc::new(Memory::new("down"));
    let object = memory.put("k", "content");
    for fault in [Fault::Refuse, Fault::Throttle, Fault::Hang, Fault::Truncate, Fault::Stall, Fault::Spoil] {
        let faulty = Faulty::new(memory.clone(), 1, 100, &[fault]);
        let origin = Origin::new(faulty.clone(), Settings::default());
        let began = Instant::now();
        let error = fetch(&origin, object.whole().expect("one block")).await.expect_err("always");
        let took = began.elapsed().as_secs_f64();
        assert!((59.0..=60.1).contains(&took), "{fault:?}: {took} s");
        let tries = faulty.asked.load(Relaxed);
        assert!((2..60).contains(&tries), "{fault:?}: {tries} tries");
        assert!(error.what.starts_with(&format!("gave up after {tries} tries in ")), "{fault:?}: {error}");
        assert!(error.passes(), "{fault:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_sent_again_within_the_patience() {
    let memory = Arc::new(Memory::new("hangs at times"));
    let object = memory.put("k", "content");
    for seconds in [3, 20, 60] {
        let (mut mended, budget) = (0, Duration::from_secs(seconds));
        for seed in 0..50 {
            let faulty = Faulty::new(memory.clone(), seed, 40, &[Fault::Hang]);
            let origin = Origin::new(faulty.clone(), Settings { budget, ..Settings::default() });
            let got = fetch(&origin, object.whole().expect("one block")).await;
            let hung = faulty.failed.load(Relaxed);
            assert!(got.is_ok() || hung > 1, "{seconds} s, seed {seed}: {got:?} after {hung} that hung");
            mended += u32::from(got.is_ok() && hung > 0);
        }
        assert!(mended > 5, "{seconds} s: {mended}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_who_stand_in_line_at_a_store_that_answers_nobody_hear_so_within_the_patience() {
    let memory = Arc::new(Memory::new("hangs"));
    let object = memory.put("k", "content");
    for fault in [Fault::Hang, Fault::Stall, Fault::Refuse, Fault::Throttle] {
        let faulty = Faulty::new(memory.clone(), 1, 100, &[fault]);
        let settings = Settings { requests_first: 4, requests_max: 4, ..Settings::default() };
        let (origin, began) = (Origin::new(faulty.clone(), settings), Instant::now());
        let all = (0..64).map(|_| {
            let (origin, run) = (origin.clone(), object.whole().expect("one block"));
            async move { (fetch(&origin, run).await.expect_err("nothing comes"), began.elapsed().as_secs_f64()) }
        });
        for (error, took) in futures_util::future::join_all(all).await {
            assert!(took <= 60.1 && error.passes(), "{fault:?}: {took} s, {error}");
        }
        let asked = faulty.asked.load(Relaxed);
        assert!(fault != Fault::Hang || asked <= 3 * 4, "{asked} requests to a store that hangs");
    }
}

#[tokio::test(start_paused = true)]
async fn patience_that_a_reader_used_up_before_is_not_begun_again() {
    let memory = Arc::new(Memory::new("hangs"));
    let object = memory.put("k", "content");
    for (waited, heard_after) in [(0, 60.0), (20, 40.0), (59, 1.0), (100, 1.0)] {
        let origin = Origin::new(Faulty::new(memory.clone(), 1, 100, &[Fault::Hang]), Settings::default());
        let run = Run { waited: Duration::from_secs(waited), ..object.whole().expect("one block") };
        let began = Instant::now();
        fetch(&origin, run).await.expect_err("nothing comes");
        let took = began.elapsed().as_secs_f64();
        assert!((took - heard_after).abs() < 1.1, "after {took} s of patience beside {waited} used");
    }
    // A store that answers is given what was left for the last try.
    let origin = Origin::new(memory.clone(), Settings::default());
    let run = Run { waited: Duration::MAX, ..object.whole().expect("one block") };
    assert_eq!(fetch(&origin, run).await.expect("bytes").len(), 7);
}

#[tokio::test(start_paused = true)]
async fn what_will_not_pass_is_said_at_once() {
    let memory = Arc::new(Memory::new("gone"));
    let old = memory.put("k", "old");
    memory.put("k", "new");
    let faulty = Faulty::new(memory.clone(), 1, 0, &FAULTS);
    let origin = Origin::new(faulty.clone(), Settings::default());
    let error = fetch(&origin, old.whole().expect("one block")).await.expect_err("changed");
    assert_eq!((error.kind, faulty.asked.load(Relaxed)), (Kind::Changed, 1));
    memory.remove("k");
    let error = origin.checksum(&old, Door::NONE).await.expect_err("missing");
    assert_eq!(error.kind, Kind::Missing);
    assert_eq!(memory.counters().snapshot().errors, 0, "news, not failures");
}

#[tokio::test(start_paused = true)]
async fn throttling_halves_the_requests_and_a_dropped_stream_gives_its_leave_back() {
    let memory = Arc::new(Memory::new("slow"));
    let object = memory.put("k", pattern(SMALL, 1));
    let faulty = Faulty::new(memory.clone(), 1, 100, &[Fault::Throttle]);
    let origin = Origin::new(faulty, Settings { budget: Duration::from_secs(1), ..Settings::default() });
    fetch(&origin, object.whole().expect("one block")).await.expect_err("throttled");
    assert_eq!(origin.requests_limit(), Settings::default().requests_first / 2);
    let hanging = Faulty::new(memory.clone(), 1, 100, &[Fault::Hang]);
    let origin = Origin::new(hanging, Settings { requests_first: 1, requests_max: 1, ..Settings::default() });
    for _ in 0..3 {
        let mut blocks = origin.fetch(object.whole().expect("one block"));
        let waiting = tokio::time::timeout(Duration::from_secs(1), blocks.next());
        assert!(waiting.await.is_err());
    }
    assert_eq!(memory.counters().snapshot().waited_ns, 0, "nobody had to wait for a stream that was dropped");
}
