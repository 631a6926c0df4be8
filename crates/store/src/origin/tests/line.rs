//! An origin over a simulated line of fixed latency, bandwidth and request rate, whose time costs nothing: how many
//! requests it settles on, which are sent twice, and what those who wait are said to wait for.

use super::*;
use block::Spent;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

const SIZE: u64 = 100_000;

/// What a line grants.
#[derive(Clone, Copy)]
struct Grant {
    latency: Duration,
    /// Bytes per second of all bodies together.
    bandwidth: f64,
    /// Requests per second; the others are refused.
    rate: f64,
    /// One request in so many is answered late, and how late.
    late: (u32, Duration),
    /// Whether the head of an answer waits for the wire too, as the first byte behind a full queue does.
    holds_heads: bool,
}

const GENEROUS: Grant = Grant {
    latency: Duration::from_millis(20),
    bandwidth: 1e15,
    rate: 1e9,
    late: (u32::MAX, Duration::ZERO),
    holds_heads: false,
};

/// A store behind a line.
struct Line {
    memory: Arc<Memory>,
    grant: Grant,
    asked: AtomicU32,
    refused: AtomicU32,
    /// When the wire is free, and when the next request may come.
    free_at: Arc<Mutex<(Instant, Instant)>>,
}

impl Line {
    fn new(grant: Grant) -> Arc<Line> {
        let (memory, now) = (Arc::new(Memory::new("line")), Instant::now());
        let (asked, refused) = Default::default();
        Arc::new(Line { memory, grant, asked, refused, free_at: Arc::new(Mutex::new((now, now))) })
    }

    /// Whether the request comes too early for the rate; a tenth of a second's worth may come at once.
    fn is_refused(&self) -> bool {
        let mut at = self.free_at.lock().expect("no panic while held");
        let (now, each) = (Instant::now(), Duration::from_secs_f64(1.0 / self.grant.rate));
        let is_refused = at.1 > now + Duration::from_millis(100);
        if !is_refused {
            at.1 = at.1.max(now) + each;
        }
        is_refused
    }
}

/// When these bytes have come over the wire.
fn reserve(free_at: &Mutex<(Instant, Instant)>, bytes: usize, bandwidth: f64) -> Instant {
    let mut at = free_at.lock().expect("no panic while held");
    at.0 = at.0.max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / bandwidth);
    at.0
}

impl Store for Line {
    fn identity(&self) -> &Arc<str> {
        self.memory.identity()
    }

    fn list(&self, prefix: &str) -> Pages {
        self.memory.list(prefix)
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        let turn = self.asked.fetch_add(1, Relaxed);
        let (grant, free_at, is_refused) = (self.grant, self.free_at.clone(), self.is_refused());
        self.refused.fetch_add(u32::from(is_refused), Relaxed);
        let (answer, object) = (self.memory.get(object, range), object.clone());
        Box::pin(async move {
            let is_late = turn % grant.late.0 == grant.late.0 - 1;
            tokio::time::sleep(if is_late { grant.late.1 } else { grant.latency }).await;
            if is_refused {
                return Err(Error::unavailable("answered 503 SlowDown", &*object).throttled());
            }
            let body = answer.await?;
            if grant.holds_heads {
                tokio::time::sleep_until(reserve(&free_at, SIZE as usize, grant.bandwidth)).await;
                return Ok(body);
            }
            let bytes = body.bytes.then(move |piece| {
                let bytes = piece.as_ref().map_or(0, Bytes::len);
                let due = reserve(&free_at, bytes, grant.bandwidth);
                async move {
                    tokio::time::sleep_until(due).await;
                    piece
                }
            });
            Ok(Body { checksum: body.checksum, bytes: bytes.boxed() })
        })
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        self.memory.checksum(object)
    }

    fn counters(&self) -> &Arc<Counters> {
        self.memory.counters()
    }
}

/// What readers saw.
struct Seen {
    origin: Origin,
    line: Arc<Line>,
    /// Bytes per second in the second half of the time.
    rate: f64,
    slowest: Duration,
}

/// So many readers of small objects for so long.
async fn read(grant: Grant, readers: usize, seconds: u64) -> Seen {
    read_within(Duration::from_secs(600), grant, readers, seconds).await
}

/// The same with so much patience.
async fn read_within(budget: Duration, grant: Grant, readers: usize, seconds: u64) -> Seen {
    let line = Line::new(grant);
    let object = line.memory.put("k", vec![7; SIZE as usize]);
    let origin = Origin::new(line.clone(), Settings { budget, ..Settings::default() });
    let (began, late, slowest) = (Instant::now(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let all: Vec<_> = (0..readers)
        .map(|_| {
            let (origin, object, late, slowest) = (origin.clone(), object.clone(), late.clone(), slowest.clone());
            tokio::spawn(async move {
                while began.elapsed().as_secs() < seconds {
                    let asked = Instant::now();
                    fetch(&origin, object.whole().expect("one block")).await.expect("bytes");
                    slowest.fetch_max(asked.elapsed().as_micros() as u64, Relaxed);
                    let is_second_half = began.elapsed().as_secs_f64() > seconds as f64 / 2.0;
                    late.fetch_add(if is_second_half { SIZE } else { 0 }, Relaxed);
                }
            })
        })
        .collect();
    for reader in all {
        reader.await.expect("a reader");
    }
    let rate = late.load(Relaxed) as f64 / (began.elapsed().as_secs_f64() - seconds as f64 / 2.0);
    Seen { origin, line, rate, slowest: Duration::from_micros(slowest.load(Relaxed)) }
}

#[tokio::test(start_paused = true)]
async fn a_line_of_fixed_bandwidth_gets_the_requests_that_fill_it() {
    for bandwidth in [50e6, 200e6] {
        let seen = read(Grant { bandwidth, ..GENEROUS }, 200, 12).await;
        let fills = (0.02 + SIZE as f64 / bandwidth) * bandwidth / SIZE as f64;
        let limit = f64::from(seen.origin.requests_limit());
        assert!((fills..=fills * 1.75).contains(&limit), "{limit} requests where {fills} fill the line");
        assert!(seen.rate > bandwidth * 0.95, "{} bytes a second of {bandwidth}", seen.rate);
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_of_mere_latency_gets_as_many_requests_as_readers_ask_for() {
    let seen = read(GENEROUS, 200, 3).await;
    assert!(seen.origin.requests_limit() >= 200, "{}", seen.origin.requests_limit());
    assert!(seen.rate > 0.95 * 200.0 * SIZE as f64 / 0.02, "{}", seen.rate);
    let few = read(GENEROUS, 8, 10).await;
    assert_eq!(few.origin.requests_limit(), Settings::default().requests_first, "eight readers are never held up");
    assert!(few.rate > 0.99 * 8.0 * SIZE as f64 / 0.02, "{}", few.rate);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_more_than_so_many_requests_a_second_is_asked_for_about_as_many() {
    let seen = read(Grant { rate: 500.0, ..GENEROUS }, 64, 60).await;
    let (asked, refused) = (seen.line.asked.load(Relaxed), seen.line.refused.load(Relaxed));
    let rate = seen.rate / SIZE as f64;
    assert!((350.0..=505.0).contains(&rate), "{rate} a second");
    assert!(refused > 0 && refused < asked / 4, "{refused} of {asked} were refused");
    assert_eq!(seen.line.counters().snapshot().hedged, 0, "no second request to a store that refuses");
}

#[tokio::test(start_paused = true)]
async fn who_stands_in_line_behind_others_is_served_however_short_the_patience() {
    for rate in [5.0, 50.0] {
        let seen = read_within(Duration::from_secs(5), Grant { rate, ..GENEROUS }, 64, 60).await;
        let (rate_seen, refused) = (seen.rate / SIZE as f64, seen.line.refused.load(Relaxed));
        assert!(rate_seen > 0.6 * rate, "{rate_seen} a second of {rate}");
        assert!(refused < 3 * seen.line.asked.load(Relaxed) / 4, "{refused} were refused");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_asked_for_again_within_the_budget() {
    let rarely_late = Grant { late: (600, Duration::from_secs(2)), ..GENEROUS };
    let seen = read(rarely_late, 8, 100).await;
    let (counts, line) = (seen.line.counters().snapshot(), &seen.line);
    let (asked, hedged) = (u64::from(line.asked.load(Relaxed)), counts.hedged);
    assert!(hedged > asked / 600 * 9 / 10, "{hedged} of {asked} requests were second ones");
    assert!(counts.hedged_bytes * 400 <= asked * SIZE && counts.hedged_bytes == hedged * SIZE, "{counts:?}");
    assert!(counts.hedges_won >= hedged * 9 / 10, "{counts:?}");
    let often_late = Grant { late: (50, Duration::from_secs(2)), ..GENEROUS };
    let counts = read(often_late, 8, 100).await.line.counters().snapshot();
    assert!(counts.hedged_bytes * 400 <= counts.gets * SIZE, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_again_where_bandwidth_binds() {
    let seen = read(Grant { bandwidth: 10e6, late: (50, Duration::from_secs(2)), ..GENEROUS }, 32, 100).await;
    assert_eq!(seen.line.counters().snapshot().hedged, 0);
    assert!(seen.slowest >= Duration::from_secs(2), "some were late");
}

#[tokio::test(start_paused = true)]
async fn first_bytes_that_come_later_the_more_are_in_flight_are_owed_to_bandwidth() {
    let grant = Grant { bandwidth: 10e6, latency: Duration::from_millis(1), holds_heads: true, ..GENEROUS };
    let line = Line::new(grant);
    let object = line.memory.put("k", vec![7; SIZE as usize]);
    let origin = Origin::new(line.clone(), Settings::default());
    let clock = || Instant::now().into_std();
    let run = || Run { course: block::Course::begin(clock, true), ..object.whole().expect("one block") };
    for _ in 0..100 {
        fetch(&origin, run()).await.expect("bytes");
    }
    let mut spent = Spent::default();
    for _ in 0..100 {
        let runs: Vec<Run> = (0..16).map(|_| run()).collect();
        let all = runs.iter().map(|run| fetch(&origin, run.clone()));
        futures_util::future::join_all(all).await.into_iter().for_each(|bytes| drop(bytes.expect("bytes")));
        spent = runs[15].course.until(clock());
    }
    assert!(spent.on(Cause::Bandwidth) > spent.on(Cause::Requests) * 3, "{spent:?}");
    assert_eq!(line.counters().snapshot().hedged, 0, "late, but for a reason");
}

/// What the only reader of one object was said to wait for.
async fn waited(grant: Grant, faults: &[Fault]) -> Spent {
    let line = Line::new(grant);
    let object = line.memory.put("k", vec![7; SIZE as usize]);
    let faulty: Arc<dyn Store> = match faults {
        [] => line,
        _ => Faulty::new(line.memory.clone(), 5, 60, faults),
    };
    let clock = || Instant::now().into_std();
    let origin = Origin::new(faulty, Settings::default());
    let run = Run { course: block::Course::begin(clock, true), ..object.whole().expect("one block") };
    let course = run.course.clone();
    fetch(&origin, run).await.expect("bytes");
    course.until(clock())
}

#[tokio::test(start_paused = true)]
async fn what_a_request_waits_for_is_reported_as_it_is() {
    let spent = waited(GENEROUS, &[]).await;
    assert_eq!((spent.on(Cause::Requests), spent.total()), (Duration::from_millis(20), Duration::from_millis(20)));
    let spent = waited(Grant { bandwidth: 1e6, ..GENEROUS }, &[]).await;
    assert!((99..=101).contains(&spent.on(Cause::Bandwidth).as_millis()), "{spent:?}");
    assert_eq!(spent.on(Cause::Requests), Duration::from_millis(20));
    for (fault, cause) in [(Fault::Throttle, Cause::Throttling), (Fault::Refuse, Cause::Errors)] {
        let spent = waited(GENEROUS, &[fault]).await;
        assert!(spent.on(cause) > Duration::ZERO && spent.on(cause) == spent.total(), "{spent:?}");
    }
}
