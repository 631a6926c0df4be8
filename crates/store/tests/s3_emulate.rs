//! S3 against Stoker's own emulator: the contract once more, and the faults that only an emulator has.

use block::{Kind, Object, Run, SMALL, Source};
use bytes::Bytes;
use emulate::{Fault, Faults, Limits, Server, Throttle, When};
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use stoker_store as store;
use store::contract::{Fixture, find, pattern};
use store::{
    Credentials, Folder, Memory, Origin, OriginSettings, PART_BYTES_MIN, S3, S3Settings, Sink, Store, Timeouts,
};
use tempfile::TempDir;

/// An emulator with one empty bucket.
struct Served {
    server: Server,
    _folder: TempDir,
    s3: S3,
}

impl Served {
    async fn start() -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = emulate::Settings { bucket: Some("bucket".into()), ..emulate::Settings::of(folder.path()) };
        let server = Server::start(settings).await.expect("a server");
        let brief = Duration::from_secs(1);
        let settings = S3Settings {
            endpoint: Some(server.endpoint()),
            credentials: Credentials::Anonymous,
            timeouts: Timeouts { connect: brief, first_byte: brief, idle: brief },
            ..S3Settings::default()
        };
        let s3 = S3::open("bucket", settings).expect("a bucket");
        Served { server, _folder: folder, s3 }
    }

    async fn write(&self, key: &str, content: &[u8]) -> bool {
        self.s3.put(key, Bytes::copy_from_slice(content)).await.is_ok()
    }
}

impl Fixture for Served {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.s3.clone())
    }

    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.write(key, &content).await })
    }
}

store::contract!(promises, Some(Served::start().await));

async fn fetch(origin: &Origin, object: &Arc<Object>) -> block::Result<Vec<u8>> {
    let mut got = Vec::new();
    for start in (0..object.blocks()).step_by(4) {
        let run = Run::new(object.clone(), start..(start + 4).min(object.blocks()));
        let blocks: Vec<_> = origin.fetch(run).try_collect().await?;
        blocks.iter().for_each(|block| got.extend(block.pieces().concat()));
    }
    Ok(got)
}

#[tokio::test]
async fn a_bad_line_costs_time_and_no_bytes() {
    let served = Served::start().await;
    let content = pattern(5 * SMALL + 3, 1);
    assert!(served.write("k", &content).await);
    let object = find(&served.s3, "k").await;
    let faults = [Fault::Truncate, Fault::ShortBody, Fault::Reset, Fault::SlowDown, Fault::InternalError];
    let faults = faults.into_iter().fold(Faults::default(), |faults, fault| faults.with(fault, When::Share(0.2)));
    for seed in 0..10 {
        let mut faults = faults.clone();
        faults.seed = seed;
        served.server.set_faults(faults);
        let origin = Origin::new(Arc::new(served.s3.clone()), OriginSettings { seed, ..OriginSettings::default() });
        assert!(fetch(&origin, &object).await.expect("all passes") == content, "seed {seed}");
    }
    let counts = served.s3.counters().snapshot();
    assert!(counts.retries > 0 && counts.throttled > 0 && counts.errors == 0, "{counts:?}");
}

#[tokio::test]
async fn a_server_that_hangs_is_asked_again() {
    let served = Served::start().await;
    assert!(served.write("k", b"content").await);
    let object = find(&served.s3, "k").await;
    served.server.set_faults(Faults::default().with(Fault::Hang, When::Only(1)));
    let origin = Origin::new(Arc::new(served.s3.clone()), OriginSettings::default());
    assert_eq!(fetch(&origin, &object).await.expect("the second try"), b"content");
}

#[tokio::test]
async fn a_refusal_tells_when_to_ask_again() {
    let served = Served::start().await;
    assert!(served.write("k", b"content").await);
    let object = find(&served.s3, "k").await;
    served.server.set_faults(Faults::default().with(Fault::SlowDown, When::Always));
    for retry_after in [Some(Duration::from_secs(3)), None] {
        served.server.set_limits(&Limits { throttle: Throttle::Refuse { retry_after }, ..Limits::default() });
        let error = served.s3.get(&object, 0..object.size).await.err().expect("a refusal");
        assert_eq!(error.kind, Kind::Unavailable { retry_after });
    }
}

#[tokio::test]
async fn wrong_bytes_of_the_right_length_are_noticed() {
    let served = Served::start().await;
    let content = pattern(100_000, 1);
    assert!(served.write("k", &content).await);
    let object = find(&served.s3, "k").await;
    let checksum = served.s3.checksum(&object).await.expect("an answer");
    served.server.set_faults(Faults::default().with(Fault::WrongBytes, When::Only(1)));
    let origin = Origin::new(Arc::new(served.s3.clone()), OriginSettings::default());
    assert!(checksum.is_some(), "the emulator gives checksums, as S3 does");
    assert!(fetch(&origin, &object).await.expect("the second try") == content);
    assert_eq!(served.s3.counters().snapshot().retries, 1);
}

#[tokio::test]
async fn a_server_that_ignores_the_version_is_seen_through() {
    let served = Served::start().await;
    assert!(served.write("k", b"old").await);
    let old = find(&served.s3, "k").await;
    assert!(served.write("k", b"new").await);
    served.server.set_faults(Faults::default().with(Fault::IgnoreIfMatch, When::Always));
    for range in [0..3, 0..1] {
        let answer = served.s3.get(&old, range).await;
        assert_eq!(answer.err().expect("a refusal").kind, Kind::Changed);
    }
}

#[tokio::test]
async fn a_version_that_changes_under_the_reader_is_an_error() {
    let served = Served::start().await;
    assert!(served.write("k", &pattern(3 * SMALL, 1)).await);
    let object = find(&served.s3, "k").await;
    served.server.set_faults(Faults::default().with(Fault::EtagChange, When::Only(2)));
    let origin = Origin::new(Arc::new(served.s3.clone()), OriginSettings::default());
    let half = |blocks| Run::new(object.clone(), blocks);
    origin.fetch(half(0..1)).try_collect::<Vec<_>>().await.expect("the version asked for");
    let error = origin.fetch(half(1..3)).try_collect::<Vec<_>>().await.err().expect("another version");
    assert_eq!(error.kind, Kind::Changed);
}

async fn content(store: &dyn Store, key: &str) -> Vec<u8> {
    let object = find(store, key).await;
    let pieces: Vec<Bytes> =
        store.get(&object, 0..object.size).await.expect("an answer").bytes.try_collect().await.expect("a body");
    pieces.concat()
}

/// The promises of [`Sink`], of each store that has it.
async fn what_is_written_is_what_is_read(store: &dyn Store, sink: &dyn Sink) {
    sink.put("a/small", Bytes::from_static(b"one")).await.expect("a put");
    sink.put("a/small", Bytes::from_static(b"other")).await.expect("a put over it");
    assert_eq!(content(store, "a/small").await, b"other");
    let found = sink.find("a/small").await.expect("a head");
    let listed = find(store, "a/small").await;
    assert_eq!((found.size, &found.key), (5, &listed.key));
    assert_eq!(found.version.trim_start_matches('~'), listed.version.trim_start_matches('~'));

    let whole = pattern(2 * PART_BYTES_MIN + 17, 3);
    let upload = sink.begin("a/b/large").await.expect("an upload");
    let part = |number: u32| {
        let offset = u64::from(number - 1) * PART_BYTES_MIN;
        let end = (offset + PART_BYTES_MIN).min(whole.len() as u64);
        (store::Part { number, offset }, whole.slice(offset as usize..end as usize))
    };
    for number in [3, 1, 2, 1] {
        let (place, bytes) = part(number);
        upload.part(place, bytes).await.expect("a part");
    }
    assert_eq!(sink.find("a/b/large").await.expect_err("not yet").kind, Kind::Missing);
    upload.complete().await.expect("all parts");
    assert!(content(store, "a/b/large").await == whole);

    let given_up = sink.begin("a/never").await.expect("an upload");
    given_up.part(part(1).0, part(1).1).await.expect("a part");
    given_up.abort().await.expect("an end");
    drop(given_up);
    assert_eq!(sink.find("a/never").await.expect_err("given up").kind, Kind::Missing);

    sink.delete("a/small").await.expect("a removal");
    sink.delete("a/small").await.expect("nothing to remove is no failure");
    assert_eq!(sink.find("a/small").await.expect_err("gone").kind, Kind::Missing);
    let counts = store.counters().snapshot();
    assert!(counts.writes >= 8 && counts.bytes_written >= whole.len() as u64, "{counts:?}");
}

#[tokio::test]
async fn s3_gives_back_what_was_written() {
    let served = Served::start().await;
    what_is_written_is_what_is_read(&served.s3, &served.s3).await;
}

#[tokio::test]
async fn a_folder_gives_back_what_was_written() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = Folder::at(scratch.path(), Default::default()).expect("a store");
    what_is_written_is_what_is_read(&folder, &folder).await;
    let names = std::fs::read_dir(scratch.path().join("a")).expect("a folder").count();
    assert_eq!(names, 1, "no draft is left");
    for key in ["../out", "a/../../out", "/out", ""] {
        assert_eq!(folder.put(key, Bytes::new()).await.expect_err(key).kind, Kind::Invalid);
    }
    std::os::unix::fs::symlink("/", scratch.path().join("root")).expect("a link");
    assert!(folder.put("root/tmp/stoker-out", Bytes::new()).await.is_err(), "no link leads out");
}

#[tokio::test]
async fn memory_gives_back_what_was_written() {
    let memory = Arc::new(Memory::new("m"));
    what_is_written_is_what_is_read(&*memory, &memory).await;
}

#[tokio::test]
async fn a_write_that_fails_says_so_and_leaves_what_was_there() {
    let served = Served::start().await;
    assert!(served.write("k", b"old").await);
    for fault in [Fault::SlowDown, Fault::InternalError, Fault::Reset] {
        served.server.set_faults(Faults::default().with(fault, When::Always));
        let error = served.s3.put("k", Bytes::from_static(b"new")).await.expect_err("a fault");
        assert!(error.passes(), "{error}");
    }
    served.server.set_faults(Faults::default());
    assert_eq!(content(&served.s3, "k").await, b"old");
    assert!(served.s3.counters().snapshot().throttled > 0);
}

#[tokio::test]
async fn a_listing_of_a_store_that_hangs_is_given_up_within_its_budget() {
    let served = Served::start().await;
    assert!(served.write("k", b"content").await);
    served.server.set_faults(Faults::default().with(Fault::Hang, When::Always));
    let settings = S3Settings {
        endpoint: Some(served.server.endpoint()),
        credentials: Credentials::Anonymous,
        list_budget: Duration::from_millis(300),
        ..S3Settings::default()
    };
    let s3 = S3::open("bucket", settings).expect("a bucket");
    let error = s3.list("").try_collect::<Vec<_>>().await.expect_err("nothing comes");
    assert!(error.what.contains("within 0.3 s"), "{error}");
}
