//! S3 against Stoker's own emulator: the contract once more, and the faults that only an emulator has.

use block::{BLOCK, Kind, Object, Run, Source};
use bytes::Bytes;
use emulate::{Fault, Faults, Server, When};
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;
use std::time::Duration;
use stoker_store as store;
use store::contract::{Place, find, pattern};
use store::{Credentials, Origin, OriginSettings, S3, S3Settings, Store, Timeouts};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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

    /// Write an object by hand, for writing is no part of a store yet.
    async fn write(&self, key: &str, content: &[u8]) -> bool {
        let mut line = TcpStream::connect(self.server.address()).await.expect("a connection");
        let path = utf8_percent_encode(key, NON_ALPHANUMERIC).to_string().replace("%2F", "/");
        let head = format!(
            "PUT /bucket/{path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.server.address(),
            content.len()
        );
        line.write_all(head.as_bytes()).await.expect("a request");
        line.write_all(content).await.expect("a body");
        let mut answer = String::new();
        line.read_to_string(&mut answer).await.expect("an answer");
        answer.starts_with("HTTP/1.1 200")
    }
}

impl Place for Served {
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
    let content = pattern(5 * BLOCK + 3, 1);
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
async fn wrong_bytes_of_the_right_length_are_noticed() {
    let served = Served::start().await;
    let content = pattern(100_000, 1);
    assert!(served.write("k", &content).await);
    let object = find(&served.s3, "k").await;
    let told = served.s3.checksum(&object).await.expect("an answer");
    served.server.set_faults(Faults::default().with(Fault::WrongBytes, When::Only(1)));
    let origin = Origin::new(Arc::new(served.s3.clone()), OriginSettings::default());
    assert!(told.is_some(), "the emulator gives checksums, as S3 does");
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
    assert!(served.write("k", &pattern(3 * BLOCK, 1)).await);
    let object = find(&served.s3, "k").await;
    served.server.set_faults(Faults::default().with(Fault::EtagChange, When::Only(2)));
    let origin = Origin::new(Arc::new(served.s3.clone()), OriginSettings::default());
    let half = |blocks| Run::new(object.clone(), blocks);
    origin.fetch(half(0..1)).try_collect::<Vec<_>>().await.expect("the version asked for");
    let error = origin.fetch(half(1..3)).try_collect::<Vec<_>>().await.err().expect("another version");
    assert_eq!(error.kind, Kind::Changed);
}
