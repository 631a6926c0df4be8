//! S3 against a real server of another make: versitygw, over loopback. It is built by `go install` into
//! `target/tools` when it is not there; without Go these tests skip, and say so.

use super::*;
use crate::contract::{Fixture, find, listed, pattern};
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;
use tempfile::TempDir;

const KEY: &str = "testkey";
const SECRET: &str = "a-secret-that-is-never-shown";
const MAKE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// A server with one empty bucket.
struct Gateway {
    child: Child,
    directory: TempDir,
    endpoint: String,
    s3: S3,
}

impl Gateway {
    fn start() -> Option<Gateway> {
        let program = program()?;
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("bucket")).expect("a bucket");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(program);
        command.args(["--port", &address, "--keep-alive", "--quiet", "posix"]).arg(directory.path());
        command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("versitygw starts");
        let endpoint = format!("http://{address}");
        let s3 = open(&endpoint, "bucket", KEY, SECRET);
        let gateway = Gateway { child, directory, endpoint, s3 };
        let began = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "versitygw does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fixture for Gateway {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.s3.clone())
    }

    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, bool> {
        // This server keeps objects as files, so what can't be a path can't be a key.
        let fits = key.split('/').all(|name| !matches!(name, "" | "." | ".."));
        Box::pin(async move { fits && self.s3.0.write(key, content).await })
    }
}

impl Bucket {
    /// Write an object. Writing is no part of a store yet, so only the tests do.
    async fn write(&self, key: &str, content: Bytes) -> bool {
        let route = self.route();
        let request = Request::builder().method(Method::PUT).uri(route.object(key));
        let sum = block::crc64::of(&content).to_be_bytes();
        let request = request.header("x-amz-checksum-crc64nvme", base64(&sum)).header("content-length", content.len());
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        self.signer.sign(&mut parts, &route.region, &key).await.expect("a signature");
        let answer = self.wire.send(Request::from_parts(parts, Full::new(content)), &self.counters, "test", &key).await;
        let answer = answer.expect("an answer");
        if !answer.status().is_success() {
            let refusal = answer::Refusal::read(answer, Duration::from_secs(5)).await;
            panic!("{}", refusal.error(&route, &self.name, &key));
        }
        true
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sextets = |three: &[u8]| {
        let bits = three.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        (0..4)
            .map(|at| if at > three.len() { '=' } else { LETTERS[(bits >> (18 - 6 * at) & 63) as usize] as char })
            .collect::<String>()
    };
    bytes.chunks(3).map(sextets).collect()
}

fn open(endpoint: &str, bucket: &str, id: &str, secret: &str) -> S3 {
    let credentials = Credentials::Keys { id: id.into(), secret: secret.into(), token: None };
    let short = Duration::from_secs(1);
    S3::open(
        bucket,
        Settings { endpoint: Some(endpoint.into()), credentials, list_budget: short, ..Settings::default() },
    )
    .expect("a bucket")
}

/// The server's program, built if need be.
fn program() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(build).clone()
}

fn build() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let program = tools.join("versitygw");
    if !program.exists() {
        std::fs::create_dir_all(&tools).expect("a folder for tools");
        let tools = tools.canonicalize().expect("a path");
        let built = Command::new("go").args(["install", MAKE]).env("GOBIN", tools).env("CGO_ENABLED", "0").status();
        if !built.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: versitygw can't be built here (go install {MAKE})");
            return None;
        }
    }
    Some(program)
}

crate::contract!(promises, Gateway::start());

async fn fail(s3: &S3, key: &str) -> Error {
    let object = Object { store: s3.identity().clone(), key: key.into(), version: "v".into(), size: 1 };
    s3.get(&Arc::new(object), 0..1).await.err().expect("a refusal")
}

#[tokio::test]
async fn a_refusal_says_what_to_do_and_shows_no_secret() {
    let Some(gateway) = Gateway::start() else { return };
    let other = open(&gateway.endpoint, "other-bucket", KEY, SECRET);
    let error = other.list("").try_collect::<Vec<_>>().await.expect_err("no bucket");
    assert_eq!(error.kind, Kind::Missing);
    assert!(error.to_string().contains("no bucket other-bucket"), "{error}");
    let stranger = open(&gateway.endpoint, "bucket", "stranger", SECRET);
    let error = fail(&stranger, "k").await;
    assert_eq!(error.kind, Kind::Denied);
    assert!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
    let liar = open(&gateway.endpoint, "bucket", KEY, "another-secret-of-mine");
    let error = fail(&liar, "k").await;
    assert_eq!(error.kind, Kind::Denied);
    assert!(error.to_string().contains("AWS_SECRET_ACCESS_KEY"), "{error}");
    assert!(!error.to_string().contains("another-secret"), "{error}");
    let shown = format!("{:?}", liar.0.settings);
    assert!(shown.contains("testkey") && !shown.contains("another-secret"), "{shown}");
}

#[tokio::test]
async fn nobody_is_let_in_without_credentials() {
    let Some(gateway) = Gateway::start() else { return };
    let settings = Settings {
        endpoint: Some(gateway.endpoint.clone()),
        credentials: Credentials::Anonymous,
        ..Settings::default()
    };
    let error = fail(&S3::open("bucket", settings).expect("a bucket"), "k").await;
    assert_eq!(error.kind, Kind::Denied, "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let s3 = open("http://127.0.0.1:9", "bucket", KEY, SECRET);
    let error = fail(&s3, "k").await;
    assert!(matches!(error.kind, Kind::Unavailable { .. }));
    assert!(error.to_string().contains("can't connect to 127.0.0.1:9"), "{error}");
    assert!(error.hint.contains("endpoint"), "{error}");
}

/// The error of a listing of a server that answers whatever it hears with these bytes.
async fn listing_fails(scheme: &str, answer: &'static [u8]) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("{scheme}://{}", listener.local_addr().expect("an address"));
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let _ = std::io::Read::read(&mut socket, &mut [0; 4096]);
        std::io::Write::write_all(&mut socket, answer).expect("it listens");
    });
    let credentials = Credentials::Keys { id: KEY.into(), secret: SECRET.into(), token: None };
    let s3 = S3::open("bucket", Settings { endpoint: Some(endpoint), credentials, ..Settings::default() });
    let failed = s3.expect("a bucket").list("").try_collect::<Vec<_>>().await.expect_err("no listing");
    serving.join().expect("it was asked once");
    failed
}

#[tokio::test]
async fn a_head_that_is_refused_without_a_word_is_asked_once_more_with_fresh_credentials() {
    const NO: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";
    const YES: &str = "HTTP/1.1 200 OK\r\netag: \"v\"\r\nx-amz-checksum-crc32: AAAAAQ==\r\nconnection: close\r\n\r\n";
    for (token, age, answers) in [(true, 60, &[NO, YES][..]), (true, 1, &[NO]), (false, 60, &[NO])] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let serving = std::thread::spawn(move || {
            for answer in answers {
                let (mut socket, _) = listener.accept().expect("a client");
                let _ = std::io::Read::read(&mut socket, &mut [0; 4096]);
                std::io::Write::write_all(&mut socket, answer.as_bytes()).expect("it listens");
            }
        });
        let token = token.then(|| "token".into());
        let credentials = Credentials::Keys { id: KEY.into(), secret: SECRET.into(), token };
        let s3 = S3::open("bucket", Settings { endpoint: Some(endpoint), credentials, ..Settings::default() });
        let s3 = s3.expect("a bucket");
        s3.who().await.expect("somebody");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(age)).await;
        tokio::time::resume();
        let object = Object { store: s3.identity().clone(), key: "k".into(), version: "v".into(), size: 1 };
        let answer = s3.checksum(&Arc::new(object)).await;
        match answers.len() {
            2 => assert_eq!(answer.expect("the second says yes"), Some(Checksum::Crc32(1))),
            _ => assert_eq!(answer.expect_err("a refusal").kind, Kind::Invalid),
        }
        serving.join().expect("it was asked as often");
    }
}

#[tokio::test]
async fn a_listing_of_nobody_fails_at_once_and_says_why() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port");
    for (endpoint, reason) in [(format!("http://{free}"), "refused"), ("http://nobody.invalid".into(), "dns error")] {
        let credentials = Credentials::Keys { id: KEY.into(), secret: SECRET.into(), token: None };
        let settings = Settings { endpoint: Some(endpoint), credentials, ..Settings::default() };
        let s3 = S3::open("bucket", settings).expect("a bucket");
        let error = s3.list("").try_collect::<Vec<_>>().await.expect_err("nobody is there");
        assert!(error.is_unreachable() && error.what.to_lowercase().contains(reason), "{error}");
        assert_eq!(s3.counters().snapshot().retries, 0, "{reason}");
    }
    let plain = listing_fails("https", b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    assert!(plain.is_unreachable() && plain.what.contains("does not speak TLS"), "{plain}");
    assert!(plain.hint.contains("http://"), "{plain}");
    let secure = listing_fails("http", &[21, 3, 1, 0, 2, 2, 70]).await;
    assert!(secure.is_unreachable() && secure.what.contains("does not speak plain HTTP"), "{secure}");
    assert!(secure.hint.contains("https://"), "{secure}");
}

#[tokio::test]
async fn a_server_without_etags_is_read_by_time_and_size() {
    let Some(gateway) = Gateway::start() else { return };
    let path = gateway.directory.path().join("bucket/k");
    let write = |bytes: u64, second| {
        let file = std::fs::File::create(&path).expect("a file");
        std::io::Write::write_all(&mut &file, &pattern(bytes, 1)).expect("bytes");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(second)).expect("a time");
    };
    write(100, 1_000_000_000);
    let object = find(&gateway.s3, "k").await;
    let read = async || match gateway.s3.get(&object, 0..object.size).await {
        Ok(body) => body.bytes.try_collect::<Vec<_>>().await.map(|pieces| pieces.concat()),
        Err(error) => Err(error),
    };
    assert_eq!(read().await.expect("bytes"), pattern(100, 1));
    write(100, 1_000_000_007);
    assert_eq!(read().await.expect_err("it was changed").kind, Kind::Changed);
}

#[tokio::test]
async fn an_upload_in_parts_with_checksums_is_joined() {
    use crate::{Part, Sink};
    let Some(gateway) = Gateway::start() else { return };
    let content = pattern(crate::PART_BYTES_MIN + 1000, 3);
    let upload = gateway.s3.begin("parts").await.expect("an upload");
    let (first, second) = content.split_at(crate::PART_BYTES_MIN as usize);
    for (number, offset, bytes) in [(2, crate::PART_BYTES_MIN, second), (1, 0, first)] {
        upload.part(Part { number, offset }, Bytes::copy_from_slice(bytes)).await.expect("a part");
    }
    upload.complete().await.unwrap_or_else(|error| panic!("{error}"));
    let object = find(&gateway.s3, "parts").await;
    let body = gateway.s3.get(&object, 0..object.size).await.expect("a body");
    assert_eq!(body.bytes.try_collect::<Vec<_>>().await.expect("bytes").concat(), content);
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", silent.local_addr().expect("an address"));
    let brief = Duration::from_millis(50);
    let timeouts = Timeouts { connect: brief, first_byte: brief, idle: brief };
    let credentials = Credentials::Anonymous;
    let s3 = S3::open("bucket", Settings { endpoint: Some(endpoint), credentials, timeouts, ..Settings::default() });
    let error = fail(&s3.expect("a bucket"), "k").await;
    assert!(error.what.contains("did not answer within 0.1 s"), "{error}");
}

#[tokio::test]
async fn ten_thousand_keys_in_a_hundred_folders_take_few_requests() {
    let Some(gateway) = Gateway::start() else { return };
    let keys: Vec<String> =
        (0..100).flat_map(|folder| (0..100).map(move |file| format!("data/{folder:03}/{file:03}"))).collect();
    for key in &keys {
        // Straight into the server's folder: ten thousand requests would only test patience.
        let path = gateway.directory.path().join("bucket").join(key);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, b"x").expect("a file");
    }
    let before = gateway.s3.counters().snapshot().lists;
    let mut found: Vec<_> = listed(&gateway.s3, "").await.iter().map(|object| object.key.clone()).collect();
    found.sort();
    assert_eq!(found, keys);
    let asked = gateway.s3.counters().snapshot().lists - before;
    assert!((11..=101).contains(&asked), "{asked} requests");
}

#[tokio::test]
async fn connections_are_used_again() {
    let Some(gateway) = Gateway::start() else { return };
    gateway.put("k", pattern(100_000, 1)).await;
    let object = find(&gateway.s3, "k").await;
    for _ in 0..50 {
        let body = gateway.s3.get(&object, 0..object.size).await.expect("a body");
        body.bytes.try_collect::<Vec<_>>().await.expect("bytes");
    }
    let port = gateway.endpoint.rsplit(':').next().expect("a port").parse::<u16>().expect("a number");
    let own = connections_to(port);
    assert!(own <= 4, "{own} connections for requests one after another");
}

/// Connections of this machine to a port, open or closing.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let wanted = format!(":{port:04X}");
    table.lines().filter(|line| line.split_whitespace().nth(2).is_some_and(|remote| remote.ends_with(&wanted))).count()
}
