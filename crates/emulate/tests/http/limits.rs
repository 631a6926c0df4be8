//! Limits as clients feel them. Times have wide margins: the machine may be busy.

use crate::client::{Scene, ask, noise};
use std::time::{Duration, Instant};
use stoker_emulate::{Limits, Operation, Throttle};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_share_the_bandwidth() {
    let limits = Limits { bandwidth: Some(10_000_000), ..Limits::default() };
    let scene = Scene::with(|settings| settings.limits = limits).await;
    scene.write("k", &noise(2_000_000));
    let address = scene.server.address();
    let started = Instant::now();
    let one = || {
        tokio::spawn(async move {
            ask(address, "GET", "/bucket/k", &[], b"").await.map(|answer| (answer.body.len(), Instant::now()))
        })
    };
    let mut ends = Vec::new();
    for task in [one(), one(), one()] {
        let (length, end) = task.await.unwrap().unwrap();
        assert_eq!(length, 2_000_000);
        ends.push((end - started).as_secs_f64());
    }
    let last = ends.iter().copied().fold(0.0, f64::max);
    assert!((0.58..10.0).contains(&last), "6 MB at 10 MB/s took {last} s");
    assert!(
        ends.iter().all(|end| *end > 0.5 * last),
        "all get their share, one after another they would not: {ends:?}"
    );
    let started = Instant::now();
    scene.put("/bucket/new", &noise(2_000_000)).await;
    assert!(started.elapsed() > Duration::from_millis(150), "uploads are paced too");
}

#[tokio::test]
async fn answers_take_their_time() {
    let limits = Limits { latency: "80ms".parse().unwrap(), ..Limits::default() };
    let scene = Scene::with(|settings| settings.limits = limits).await;
    for (method, path) in
        [("GET", "/bucket?list-type=2"), ("HEAD", "/bucket/none"), ("PUT", "/bucket/k"), ("GET", "/bucket/k")]
    {
        let started = Instant::now();
        scene.ask(method, path, &[]).await;
        assert!(started.elapsed() >= Duration::from_millis(79), "{method}: {:?}", started.elapsed());
    }
    scene.server.set_limits(&Limits { latency: "30s".parse().unwrap(), ..Limits::default() });
    scene.server.set_limits(&Limits::default());
    let started = Instant::now();
    scene.get("/bucket/k").await;
    assert!(started.elapsed() < Duration::from_secs(20), "none any more");
}

#[tokio::test]
async fn requests_that_come_too_fast_are_refused_or_wait() {
    let refuse =
        Limits { requests_per_second: Some(1), throttle: "503,retry-after=1s".parse().unwrap(), ..Limits::default() };
    let scene = Scene::with(|settings| settings.limits = refuse.clone()).await;
    scene.write("k", b"x");
    let mut refused = 0;
    for _ in 0..10 {
        let answer = scene.get("/bucket/k").await;
        if answer.status == 503 {
            assert_eq!((answer.code(), answer.header("retry-after")), ("SlowDown".into(), Some("1")));
            refused += 1;
        }
    }
    assert!(refused >= 5, "{refused}");
    assert_eq!(scene.server.counters().of(Operation::Get).throttled, refused);
    scene.server.set_limits(&Limits { requests_per_second: Some(20), throttle: Throttle::Queue, ..refuse });
    let started = Instant::now();
    for _ in 0..12 {
        assert_eq!(scene.get("/bucket/k").await.status, 200);
    }
    assert!(started.elapsed() > Duration::from_millis(400), "{:?}", started.elapsed());
}
