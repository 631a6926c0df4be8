//! Each fault as a client meets it.

use crate::client::{Scene, noise};
use std::io::ErrorKind;
use std::time::Duration;
use stoker_emulate::{Fault, Faults, Operation};

async fn faulty(faults: &str) -> Scene {
    let scene = Scene::new().await;
    scene.write("k", &noise(600_000));
    scene.server.set_faults(faults.parse().expect("faults"));
    scene
}

#[tokio::test]
async fn a_body_is_cut() {
    let scene = faulty("truncate@2").await;
    for round in 0..6 {
        let answer = scene.get("/bucket/k").await;
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("600000")));
        assert_eq!(answer.is_complete(), round % 2 == 0, "{round}");
        assert!(noise(600_000).starts_with(&answer.body));
    }
    scene.write("small", b"0123456789");
    scene.server.set_faults("truncate".parse().unwrap());
    let small = scene.get("/bucket/small").await;
    assert!(small.status == 200 && !small.is_complete(), "headers arrive even if the body is short");
    assert_eq!(scene.server.counters().faults(Fault::Truncate), 4);
}

#[tokio::test]
async fn one_byte_is_wrong() {
    let scene = faulty("wrong-bytes").await;
    for range in [&[][..], &[("range", "bytes=1000-1999")]] {
        let answer = scene.ask("GET", "/bucket/k", range).await;
        let right = &noise(600_000)[if range.is_empty() { 0..600_000 } else { 1000..2000 }];
        assert!(answer.is_complete());
        assert_eq!(answer.body.iter().zip(right).filter(|(got, right)| got != right).count(), 1);
    }
}

#[tokio::test]
async fn an_answer_is_shorter_than_asked_for() {
    let scene = faulty("short-body").await;
    let answer = scene.ask("GET", "/bucket/k", &[("range", "bytes=0-299999")]).await;
    assert_eq!((answer.status, answer.header("content-range")), (206, Some("bytes 0-299999/600000")));
    assert!(answer.is_complete() && answer.body.len() < 300_000);
}

#[tokio::test]
async fn a_connection_is_reset() {
    let scene = faulty("reset#2").await;
    assert_eq!(scene.ask("HEAD", "/bucket/k", &[]).await.status, 200);
    let error = scene.try_ask("HEAD", "/bucket/k", &[], b"").await.expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(scene.ask("HEAD", "/bucket/k", &[]).await.status, 200);
}

#[tokio::test]
async fn silence_lasts_until_the_client_gives_up() {
    let scene = faulty("hang").await;
    let silent = tokio::time::timeout(Duration::from_millis(300), scene.get("/bucket/k")).await;
    assert!(silent.is_err());
    scene.server.set_faults(Faults::default());
    assert_eq!(scene.get("/bucket/k").await.status, 200, "others are not held up");
}

#[tokio::test]
async fn the_service_says_that_it_is_busy_or_broken() {
    let scene = faulty("slowdown#1,internal-error#1").await;
    let busy = scene.get("/bucket/k").await;
    assert_eq!((busy.status, busy.code()), (503, "SlowDown".into()));
    let broken = scene.get("/bucket/k").await;
    assert_eq!((broken.status, broken.code()), (500, "InternalError".into()));
    let counters = scene.server.counters();
    assert_eq!(counters.of(Operation::Get).statuses, [(500, 1), (503, 1)]);
}

#[tokio::test]
async fn a_version_changes_between_two_reads() {
    let scene = faulty("etag-change#2").await;
    let first = scene.ask("GET", "/bucket/k", &[("range", "bytes=0-9")]).await.etag();
    let conditional = [("range", "bytes=10-19"), ("if-match", &*first)];
    assert_eq!(scene.ask("GET", "/bucket/k", &conditional).await.status, 412);
    let second = scene.ask("HEAD", "/bucket/k", &[]).await.etag();
    assert_ne!(second, first);
    assert_eq!(scene.ask("GET", "/bucket/k", &[("if-match", &second)]).await.status, 200, "the change lasts");
    assert_eq!(scene.get("/bucket?list-type=2").await.elements("ETag"), [second]);
}

#[tokio::test]
async fn a_condition_is_not_looked_at() {
    let scene = faulty("etag-change#2,ignore-if-match").await;
    let first = scene.get("/bucket/k").await.etag();
    let second = scene.ask("GET", "/bucket/k", &[("if-match", &first)]).await;
    assert_eq!(second.status, 200);
    assert_ne!(second.etag(), first, "but the answer says whose bytes it carries");
}

#[tokio::test]
async fn a_seed_makes_the_same_faults_again() {
    let outcome = async |faults: &str| {
        let scene = faulty(faults).await;
        let mut statuses = Vec::new();
        for _ in 0..60 {
            statuses.push(scene.ask("HEAD", "/bucket/k", &[]).await.status);
        }
        statuses
    };
    let first = outcome("slowdown=0.3,seed=7").await;
    assert_eq!(first, outcome("slowdown=0.3,seed=7").await);
    assert_ne!(first, outcome("slowdown=0.3,seed=8").await);
    assert!((8..=28).contains(&first.iter().filter(|status| **status == 503).count()));
}
