//! Doors beside each other, over a bucket that knows who asks.

use super::*;
use crate::{Body, Counters, Memory, Pages};
use block::Kind;
use std::ops::Range;
use tokio::sync::Semaphore;

/// A bucket as somebody sees it: allowed or not, and answered once the gate lets it.
struct Seen {
    bucket: Arc<Memory>,
    who: u64,
    is_allowed: bool,
    gate: Semaphore,
}

impl Seen {
    fn by(bucket: &Arc<Memory>, who: u64, is_allowed: bool) -> Arc<Seen> {
        Arc::new(Seen { bucket: bucket.clone(), who, is_allowed, gate: Semaphore::new(1000) })
    }
}

impl Store for Seen {
    fn identity(&self) -> &Arc<str> {
        self.bucket.identity()
    }

    fn reach(&self) -> u64 {
        self.who
    }

    fn list(&self, prefix: &str) -> Pages {
        self.bucket.list(prefix)
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        match (self.is_allowed, self.gate.try_acquire()) {
            (false, _) => Box::pin(std::future::ready(Err(Error::denied("wrong keys", &**object)))),
            (true, Ok(_)) => self.bucket.get(object, range),
            (true, Err(_)) => Box::pin(std::future::pending()),
        }
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        self.bucket.checksum(object)
    }

    fn counters(&self) -> &Arc<Counters> {
        self.bucket.counters()
    }
}

fn enter(origins: &Arc<Origins>, store: &Arc<Seen>) -> Entrance {
    let store: Arc<dyn Store> = store.clone();
    origins.open(&store, store.identity(), OriginSettings::default())
}

async fn read(origins: &Origins, object: &Arc<Object>, via: Door) -> Result<usize> {
    let mut blocks = origins.fetch(object.whole().expect("a small object").via(via));
    let block = blocks.next().await.expect("an answer")?;
    assert!(blocks.next().await.is_none(), "one block, or one error");
    Ok(block.len())
}

fn bucket() -> (Arc<Memory>, Arc<Object>) {
    let bucket = Arc::new(Memory::new("shared"));
    let object = bucket.put("key", vec![7; 100]);
    (bucket, object)
}

#[tokio::test]
async fn a_door_that_fails_or_closes_leaves_those_beside_it_alone() {
    let ((bucket, object), origins) = (bucket(), Arc::new(Origins::default()));
    let healthy = enter(&origins, &Seen::by(&bucket, 1, true));
    let wrong = enter(&origins, &Seen::by(&bucket, 2, false));
    assert_eq!(read(&origins, &object, healthy.door()).await.expect("its own credentials"), 100);
    assert_eq!(read(&origins, &object, wrong.door()).await.expect_err("wrong keys").kind, Kind::Denied);
    let gone = wrong.door();
    drop(wrong);
    assert_eq!(read(&origins, &object, healthy.door()).await.expect("its own credentials"), 100);
    for closed in [gone, Door::NONE] {
        let error = read(&origins, &object, closed).await.expect_err("no door");
        assert!(error.kind == Kind::Denied && error.what.contains("ended"), "{error}");
        assert!(origins.checksum(&object, closed).await.is_err());
    }
    let again = enter(&origins, &Seen::by(&bucket, 2, true));
    assert_ne!(again.door(), gone, "a number is given out once");
    let elsewhere = Arc::new(Object { store: "s3://other".into(), ..(*object).clone() });
    assert!(read(&origins, &elsewhere, again.door()).await.is_err(), "a door leads to one store");
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_ends_with_its_door_and_no_sooner() {
    let ((bucket, object), origins) = (bucket(), Arc::new(Origins::default()));
    let hung = Seen::by(&bucket, 1, true);
    hung.gate.forget_permits(1000);
    let (first, second) = (enter(&origins, &hung), enter(&origins, &hung));
    let reading = tokio::spawn({
        let (origins, object, via) = (origins.clone(), object.clone(), first.door());
        async move { read(&origins, &object, via).await }
    });
    tokio::task::yield_now().await;
    second.close();
    tokio::task::yield_now().await;
    assert!(!reading.is_finished() && first.is_open() && !second.is_open());
    let closed = tokio::time::Instant::now();
    first.close();
    assert_eq!(reading.await.expect("a reader").expect_err("it has ended").kind, Kind::Denied);
    assert_eq!(closed.elapsed(), std::time::Duration::ZERO, "not after the patience");
}

#[tokio::test]
async fn doors_that_lead_to_one_store_in_one_way_share_it_and_count_once() {
    let ((bucket, object), origins) = (bucket(), Arc::new(Origins::default()));
    let [first, second] = [1, 1].map(|who| enter(&origins, &Seen::by(&bucket, who, true)));
    let one = origins.requests_limit();
    let other = enter(&origins, &Seen::by(&Arc::new(Memory::new("other")), 1, true));
    assert_eq!(origins.requests_limit(), 2 * one, "two stores");
    read(&origins, &object, first.door()).await.expect("bytes");
    read(&origins, &object, second.door()).await.expect("bytes");
    let doors = || origins.counts().iter().map(|(_, counts)| counts.doors).collect::<Vec<_>>();
    assert_eq!(doors().iter().sum::<u64>(), 3, "two of them to one store");
    drop(other);
    let gets = || origins.counts().iter().map(|(_, counts)| counts.gets).sum::<u64>();
    assert_eq!((gets(), origins.requests_limit()), (2, one));
    drop((first, second));
    assert_eq!((gets(), origins.requests_limit()), (2, 0), "what was asked stays counted");
    assert_eq!(doors(), [0, 0], "nobody uses either");
}
