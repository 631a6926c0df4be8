//! Google's and Azure's stores against servers of other makes, over loopback: fake-gcs-server, built by `go install`, and
//! Azurite, installed by npm, into `target/tools` when they are not there. Without Go or npm these tests skip, and say so.

use super::*;
use crate::contract::{Fixture, find, listed, pattern};
use crate::{PART_BYTES_MIN, Part, Sink, Store};
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

const FAKE_GCS: &str = "github.com/fsouza/fake-gcs-server@v1.56.1";
const AZURITE: &str = "azurite@3.35.0";

/// The key that Azurite has for its account.
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A server's program, installed if need be.
fn program(name: &str, install: impl FnOnce(&Path) -> Command) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    std::fs::create_dir_all(&tools).expect("a folder for tools");
    let tools = tools.canonicalize().expect("a path");
    let program = tools.join(name);
    if !program.exists() {
        let mut install = install(&tools);
        if !install.status().is_ok_and(|status| status.success()) {
            let name = name.rsplit('/').next().unwrap_or(name);
            eprintln!("SKIPPED: {name} can't be installed here ({install:?})");
            return None;
        }
    }
    Some(program)
}

fn fake_gcs() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let install = |tools: &Path| {
        let mut go = Command::new("go");
        go.args(["install", FAKE_GCS]).env("GOBIN", tools).env("CGO_ENABLED", "0");
        go
    };
    PROGRAM.get_or_init(|| program("fake-gcs-server", install)).clone()
}

fn azurite() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let install = |tools: &Path| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(tools).arg(AZURITE);
        npm
    };
    PROGRAM.get_or_init(|| program("node_modules/.bin/azurite-blob", install)).clone()
}

/// A server that ends with its test.
struct Served {
    child: Child,
    address: String,
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
    _folder: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn start(
        command: &mut Command,
        address: &str,
        both: (Arc<dyn Store>, Arc<dyn Sink>),
        folder: tempfile::TempDir,
    ) -> Served {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let served = Served { child, address: address.into(), store: both.0, sink: both.1, _folder: folder };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        served
    }

    async fn google() -> Option<Served> {
        let program = fake_gcs()?;
        let folder = tempfile::tempdir().expect("a folder");
        let (address, port) = free();
        let mut command = Command::new(program);
        command.args(["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", &port]);
        command.args(["-public-host", &address]);
        let google = Google::open("bucket", &anonymous(&format!("http://{address}"))).expect("a bucket");
        let served = Served::start(&mut command, &address, (Arc::new(google.clone()), Arc::new(google)), folder);
        let made = post(&address, "POST", "/storage/v1/b?project=p", "{\"name\": \"bucket\"}").await;
        assert!(made.contains("200 OK"), "{made}");
        Some(served)
    }

    async fn azure() -> Option<Served> {
        let program = azurite()?;
        let folder = tempfile::tempdir().expect("a folder");
        let (address, port) = free();
        let mut command = Command::new(program);
        command.args(["--silent", "--inMemoryPersistence", "--disableTelemetry", "--blobHost", "127.0.0.1"]);
        command.args(["--blobPort", &port]).current_dir(folder.path());
        let azure = Azure::open("container", None, &keyed(&address, KEY)).expect("a container");
        let served = Served::start(&mut command, &address, (Arc::new(azure.clone()), Arc::new(azure.clone())), folder);
        azure.make().await.expect("a container");
        Some(served)
    }
}

impl Azure {
    async fn make(&self) -> Result<()> {
        let container = &self.0;
        let url = format!("{}/{}?restype=container", container.site.base(), container.name);
        let headers = [(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"))].into_iter().collect();
        let request = container.request(http::Method::PUT, &url, headers, Bytes::new(), &"c").await?;
        container.site.send(request, &"c").await.map(drop)
    }
}

/// An address that nobody listens at, and its port.
fn free() -> (String, String) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    (format!("127.0.0.1:{port}"), port.to_string())
}

fn anonymous(endpoint: &str) -> Settings {
    let list_budget = Duration::from_secs(1);
    Settings { endpoint: Some(endpoint.into()), is_anonymous: true, list_budget, ..Settings::default() }
}

fn keyed(address: &str, key: &str) -> Settings {
    let variables = [("AZURE_STORAGE_KEY".to_owned(), key.to_owned())].into();
    let endpoint = format!("http://{address}/devstoreaccount1");
    Settings { is_anonymous: false, variables, ..anonymous(&endpoint) }
}

/// The answer to a request that is made by hand.
async fn post(address: &str, method: &str, path: &str, body: &str) -> String {
    let address = address.to_owned();
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let ask = move || {
        let mut line = TcpStream::connect(address)?;
        line.write_all(text.as_bytes())?;
        std::io::read_to_string(line)
    };
    tokio::task::spawn_blocking(ask).await.expect("it was asked").expect("an answer")
}

impl Fixture for Served {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, bool> {
        // A URL has no steps of dots, so that Azure's signatures have none; Azurite makes a slash of a backslash.
        let is_azure = self.store.identity().starts_with("az:");
        let fits = !is_azure || key.split('/').all(|step| !matches!(step, "." | "..")) && !key.contains('\\');
        Box::pin(async move {
            if fits {
                self.sink.put(key, content).await.unwrap_or_else(|error| panic!("{key:?}: {error}"));
            }
            fits
        })
    }
}

mod google_store {
    use super::*;
    crate::contract!(promises, Served::google().await);
}

mod azure_store {
    use super::*;
    crate::contract!(promises, Served::azure().await);
}

async fn content(store: &dyn Store, key: &str) -> Bytes {
    let object = find(store, key).await;
    let body = store.get(&object, 0..object.size).await.expect("a body");
    body.bytes.try_collect::<Vec<_>>().await.expect("bytes").concat().into()
}

async fn both() -> Vec<Served> {
    [Served::google().await, Served::azure().await].into_iter().flatten().collect()
}

#[tokio::test]
async fn a_small_object_of_google_or_azure_takes_one_request_and_a_part_of_a_large_one_another() {
    for served in both().await {
        let store = &served.store;
        served.sink.put("small", pattern(1000, 1)).await.expect("it is written");
        served.sink.put("large", pattern(3_000_000, 2)).await.expect("it is written");
        let (small, large) = (find(&**store, "small").await, find(&**store, "large").await);
        let before = store.counters().snapshot();
        store.get(&small, 0..1000).await.expect("a body").bytes.try_collect::<Vec<_>>().await.expect("bytes");
        store.get(&large, 0..1_000_000).await.expect("a body").bytes.try_collect::<Vec<_>>().await.expect("bytes");
        store.checksum(&large).await.expect("an answer");
        let after = store.counters().snapshot();
        assert_eq!((after.gets - before.gets, after.heads - before.heads), (2, 0), "{}", store.identity());
    }
}

#[tokio::test]
async fn what_is_written_to_google_or_azure_is_found_and_removed() {
    for served in both().await {
        served.sink.put("k", pattern(1000, 1)).await.expect("it is written");
        let (found, listed) = (served.sink.find("k").await.expect("it is there"), find(&*served.store, "k").await);
        assert_eq!((&found.version, found.size), (&listed.version, 1000));
        assert_eq!(content(&*served.store, "k").await, pattern(1000, 1));
        for _ in 0..2 {
            served.sink.delete("k").await.expect("it is gone");
        }
        assert_eq!(served.sink.find("k").await.expect_err("it is gone").kind, Kind::Missing);
    }
}

#[tokio::test]
async fn a_blob_is_joined_from_blocks_and_an_upload_to_google_is_refused() {
    for served in both().await {
        let upload = match served.sink.begin("parts").await {
            Ok(upload) => upload,
            Err(error) => {
                assert!(served.store.identity().starts_with("gs:") && error.hint.contains("S3 interface"), "{error}");
                continue;
            }
        };
        let content_of = pattern(PART_BYTES_MIN + 1000, 3);
        let (first, second) = content_of.split_at(PART_BYTES_MIN as usize);
        for (number, offset, bytes) in [(2, PART_BYTES_MIN, second), (1, 0, first)] {
            upload.part(Part { number, offset }, Bytes::copy_from_slice(bytes)).await.expect("a part");
        }
        upload.complete().await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(content(&*served.store, "parts").await, content_of);
    }
}

#[tokio::test]
async fn what_is_stored_compressed_is_read_as_it_is_stored() {
    let Some(served) = Served::google().await else { return };
    // Ten bytes of text, as gzip writes them.
    let packed = [31u8, 139, 8, 0, 0, 0, 0, 0, 0, 255, 75, 132, 3, 0, 248, 198, 187, 226, 10, 0, 0, 0];
    served.sink.put("packed", Bytes::copy_from_slice(&packed)).await.expect("it is written");
    let path = "/storage/v1/b/bucket/o/packed";
    let said = post(&served.address, "PATCH", path, "{\"contentEncoding\": \"gzip\"}").await;
    assert!(said.contains("200 OK"), "{said}");
    assert_eq!(content(&*served.store, "packed").await, packed[..]);
}

#[tokio::test]
async fn a_missing_bucket_and_a_wrong_key_are_told_apart() {
    if let Some(served) = Served::google().await {
        let other = Google::open("other", &anonymous(&format!("http://{}", served.address))).expect("a bucket");
        let error = other.list("").try_collect::<Vec<_>>().await.expect_err("no bucket");
        assert!(error.kind == Kind::Missing && error.what.contains("there is no bucket other"), "{error}");
    }
    let Some(served) = Served::azure().await else { return };
    let other = Azure::open("other", None, &keyed(&served.address, KEY)).expect("a container");
    let error = other.list("").try_collect::<Vec<_>>().await.expect_err("no container");
    assert!(error.kind == Kind::Missing && error.what.contains("there is no container other"), "{error}");
    let liar = Azure::open("container", None, &keyed(&served.address, "bm90IHRoZSBrZXk=")).expect("a container");
    let error = liar.list("").try_collect::<Vec<_>>().await.expect_err("not the key");
    assert!(error.kind == Kind::Denied && error.hint.contains("AZURE_STORAGE_"), "{error}");
    assert!(!format!("{error} {:?}", liar.0.site.settings).contains("bm90IHRo"), "{error}");
    let nobody = anonymous(&format!("http://{}/devstoreaccount1", served.address));
    let nobody = Azure::open("container", None, &nobody).expect("a container");
    let error = nobody.list("").try_collect::<Vec<_>>().await.expect_err("it is not public");
    assert!(matches!(error.kind, Kind::Denied | Kind::Missing), "{error}");
    assert_eq!(listed(&*served.store, "").await, Vec::new());
}

/// A server that gives each request one of these answers, in turn, and tells the requests.
fn scripted(answers: Vec<String>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let serving = std::thread::spawn(move || {
        let answer = |answer: String| {
            let (mut line, _) = listener.accept().expect("a client");
            let mut head = String::new();
            let mut reader = BufReader::new(line.try_clone().expect("a line"));
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).expect("a request") > 0 {}
            line.write_all(answer.as_bytes()).expect("it listens");
            head
        };
        answers.into_iter().map(answer).collect()
    });
    (address, serving)
}

#[tokio::test]
async fn a_store_that_is_asked_too_much_is_asked_once_and_says_until_when() {
    for google in [true, false] {
        let busy = "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned();
        let (address, serving) = scripted(vec![busy]);
        let store: Arc<dyn Store> = match google {
            true => Arc::new(Google::open("b", &anonymous(&format!("http://{address}"))).expect("a bucket")),
            false => Arc::new(Azure::open("c", None, &keyed(&address, KEY)).expect("a container")),
        };
        let object = Object { store: store.identity().clone(), key: "k".into(), version: "1".into(), size: 9 };
        let error = store.get(&Arc::new(object), 0..4).await.err().expect("it is busy");
        assert_eq!(error.kind, Kind::Unavailable { retry_after: Some(Duration::from_secs(7)) });
        let counts = store.counters().snapshot();
        assert!(
            error.is_throttling() && counts.throttled == 1 && counts.gets == 1 && counts.in_flight == 0,
            "{counts:?}"
        );
        let asked = serving.join().expect("it was asked once").concat();
        assert!(asked.contains("range: bytes=0-3"), "{asked}");
        let condition = if google { "ifGenerationMatch=1" } else { "if-match: \"1\"" };
        assert!(asked.contains(condition), "{asked}");
        assert_eq!(asked.contains("authorization: SharedKey devstoreaccount1:"), !google, "{asked}");
    }
}

#[tokio::test]
async fn a_token_is_fetched_once_for_many_requests_and_its_account_is_told() {
    let json = |text: &str| {
        let length = text.len();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}")
    };
    let Some(rsa) = rsa() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key.json");
    let key = serde_json::json!({
        "type": "service_account", "private_key_id": "1", "client_email": "me@project", "private_key": rsa,
    });
    std::fs::write(&path, key.to_string()).expect("a file");
    let (address, serving) = scripted(vec![json("{}"), json("{}")]);
    let variables = [("GOOGLE_APPLICATION_CREDENTIALS".into(), path.to_str().expect("a path").to_owned())].into();
    let settings = Settings { is_anonymous: false, variables, ..anonymous(&format!("http://{address}")) };
    let google = Google::open("b", &settings).expect("a bucket");
    assert_eq!(google.who().await.expect("somebody"), "account me@project");
    for _ in 0..2 {
        assert_eq!(listed(&google, "").await, Vec::new());
    }
    let asked = serving.join().expect("it was asked twice");
    let token = |head: &str| head.lines().find(|line| line.starts_with("authorization: Bearer ")).map(str::to_owned);
    assert!(token(&asked[0]).is_some() && token(&asked[0]) == token(&asked[1]), "{asked:?}");
}

/// A key that is of nobody.
fn rsa() -> Option<String> {
    let made =
        Command::new("openssl").args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]).output();
    let made = made.ok().filter(|made| made.status.success()).and_then(|made| String::from_utf8(made.stdout).ok());
    if made.is_none() {
        eprintln!("SKIPPED: openssl, which makes a key, is not here");
    }
    made
}
