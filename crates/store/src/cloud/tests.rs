//! Google's and Azure's stores against servers of other makes, over loopback ([`clouds`]), and against answers by hand.

use super::*;
use crate::contract::{Fixture, find, listed, pattern};
use crate::{PART_BYTES_MIN, Part, Sink, Store};
use clouds::{Cloud, KEY, NAME};
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;

#[path = "../../../../tests/support/clouds.rs"]
#[allow(dead_code, reason = "tests of the command use the rest")]
mod clouds;

/// A server with its bucket.
struct Served {
    cloud: Cloud,
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
}

impl Served {
    fn google() -> Option<Served> {
        let cloud = Cloud::google()?;
        let google = Google::open(NAME, &anonymous(&cloud.endpoint())).expect("a bucket");
        Some(Served { cloud, store: Arc::new(google.clone()), sink: Arc::new(google) })
    }

    fn azure() -> Option<Served> {
        let cloud = Cloud::azure()?;
        let azure = Azure::open(NAME, None, &keyed(&cloud.address, KEY)).expect("a container");
        Some(Served { cloud, store: Arc::new(azure.clone()), sink: Arc::new(azure) })
    }
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
    crate::contract!(promises, Served::google());
}

mod azure_store {
    use super::*;
    crate::contract!(promises, Served::azure());
}

async fn content(store: &dyn Store, key: &str) -> Bytes {
    let object = find(store, key).await;
    let body = store.get(&object, 0..object.size).await.expect("a body");
    body.bytes.try_collect::<Vec<_>>().await.expect("bytes").concat().into()
}

fn both() -> Vec<Served> {
    [Served::google(), Served::azure()].into_iter().flatten().collect()
}

#[tokio::test]
async fn a_small_object_of_google_or_azure_takes_one_request_and_a_part_of_a_large_one_another() {
    for served in both() {
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
    for served in both() {
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
    for served in both() {
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
    let Some(served) = Served::google() else { return };
    // Ten bytes of text, as gzip writes them.
    let packed = [31u8, 139, 8, 0, 0, 0, 0, 0, 0, 255, 75, 132, 3, 0, 248, 198, 187, 226, 10, 0, 0, 0];
    served.sink.put("packed", Bytes::copy_from_slice(&packed)).await.expect("it is written");
    let packing = "{\"contentEncoding\": \"gzip\"}".as_bytes();
    served.cloud.ask("PATCH", &format!("/storage/v1/b/{NAME}/o/packed"), &[], packing);
    assert_eq!(content(&*served.store, "packed").await, packed[..]);
}

#[tokio::test]
async fn a_missing_bucket_and_a_wrong_key_are_told_apart() {
    if let Some(served) = Served::google() {
        let other = Google::open("other", &anonymous(&format!("http://{}", served.cloud.address))).expect("a bucket");
        let error = other.list("").try_collect::<Vec<_>>().await.expect_err("no bucket");
        assert!(error.kind == Kind::Missing && error.what.contains("there is no bucket other"), "{error}");
    }
    let Some(served) = Served::azure() else { return };
    let other = Azure::open("other", None, &keyed(&served.cloud.address, KEY)).expect("a container");
    let error = other.list("").try_collect::<Vec<_>>().await.expect_err("no container");
    assert!(error.kind == Kind::Missing && error.what.contains("there is no container other"), "{error}");
    let liar = Azure::open(NAME, None, &keyed(&served.cloud.address, "bm90IHRoZSBrZXk=")).expect("a container");
    let error = liar.list("").try_collect::<Vec<_>>().await.expect_err("not the key");
    assert!(error.kind == Kind::Denied && error.hint.contains("AZURE_STORAGE_"), "{error}");
    assert!(!format!("{error} {:?}", liar.0.site.settings).contains("bm90IHRo"), "{error}");
    let nobody = anonymous(&format!("http://{}/devstoreaccount1", served.cloud.address));
    let nobody = Azure::open(NAME, None, &nobody).expect("a container");
    let error = nobody.list("").try_collect::<Vec<_>>().await.expect_err("it is not public");
    assert!(matches!(error.kind, Kind::Denied | Kind::Missing), "{error}");
    assert_eq!(listed(&*served.store, "").await, Vec::new());
}

/// A server that gives each request one of these answers, in turn, and tells the requests.
fn scripted(answers: Vec<String>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let (count, mut answers) = (answers.len(), answers.into_iter());
    answering(count, move |_| answers.next().expect("one for each"))
}

/// A server that answers so many requests, each by its head, and tells them.
fn answering(
    count: usize,
    mut answer: impl FnMut(&str) -> String + Send + 'static,
) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let serving = std::thread::spawn(move || {
        let one = |_| {
            let (mut line, _) = listener.accept().expect("a client");
            let mut head = String::new();
            let mut reader = BufReader::new(line.try_clone().expect("a line"));
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).expect("a request") > 0 {}
            line.write_all(answer(&head).as_bytes()).expect("it listens");
            head
        };
        (0..count).map(one).collect()
    });
    (address, serving)
}

/// A container of these keys, which tells so many of them at once, from the marker on that it is asked for: what a server of
/// Azure's interface does past 5,000. It tells the requests, of which it answers so many.
fn paged(keys: Vec<String>, most: usize, requests: usize) -> (String, std::thread::JoinHandle<Vec<String>>) {
    answering(requests, move |head| {
        let asked = head.split([' ', '?', '&']).find_map(|word| word.strip_prefix("marker="));
        let from =
            asked.map_or(0, |marker| marker.strip_prefix("after-").expect("as it was told").parse().expect("a number"));
        let to = keys.len().min(from + most);
        let mut body = String::from("<EnumerationResults><Blobs>");
        for key in &keys[from..to] {
            body += &format!(
                "<Blob><Name>{key}</Name><Properties><Last-Modified>Thu, 01 Jan 1970 00:00:02 GMT</Last-Modified>\
                 <Etag>0x8D1</Etag><Content-Length>7</Content-Length></Properties></Blob>"
            );
        }
        let next = if to < keys.len() { format!("after-{to}") } else { String::new() };
        body += &format!("</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>");
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    })
}

#[tokio::test]
async fn a_container_of_more_names_than_a_page_holds_is_listed_by_its_markers() {
    let keys: Vec<String> = (0..1300).map(|number| format!("set/{number:05}")).collect();
    for (most, pages) in [(5000, 1), (500, 3), (130, 10)] {
        let (address, serving) = paged(keys.clone(), most, pages);
        let azure = Azure::open("c", None, &keyed(&address, KEY)).expect("a container");
        let found: Vec<_> = azure.list("set/").try_collect::<Vec<_>>().await.expect("all pages").concat();
        assert!(found.iter().map(|listed| &listed.key).eq(&keys), "{} names by {most}", found.len());
        let asked = serving.join().expect("each page was asked for once");
        let marked = asked.iter().filter(|head| head.contains("marker=after-")).count();
        assert_eq!((azure.counters().snapshot().lists, marked), (pages as u64, pages - 1), "{asked:?}");
    }
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

/// Somebody whose credentials ran out, as often as is wanted.
struct Renews(std::sync::atomic::AtomicUsize);

impl Asker for Renews {
    fn authorize<'a>(
        &'a self,
        request: Request<Bytes>,
        _: &'a (dyn fmt::Display + Sync),
    ) -> BoxFuture<'a, Result<Request<Bytes>>> {
        Box::pin(std::future::ready(Ok(request)))
    }

    fn renew<'a>(&'a self, _: Instant, _: &'a (dyn fmt::Display + Sync)) -> BoxFuture<'a, bool> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Box::pin(std::future::ready(true))
    }
}

#[tokio::test]
async fn a_request_that_comes_with_what_ran_out_is_made_once_more() {
    let answer = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    for (answers, is_let_in, renewed) in
        [(vec!["401 No", "200 OK"], true, 1), (vec!["401 No", "401 No"], false, 1), (vec!["403 No"], false, 0)]
    {
        let (address, serving) = scripted(answers.iter().map(|status| answer(status)).collect());
        let settings = anonymous(&format!("http://{address}"));
        let server = Server::parse(settings.endpoint.as_deref().expect("set")).expect("an endpoint");
        let site = Site::open(Service::Google, "gs://b".into(), server, &settings).expect("a site");
        let who = Renews(Default::default());
        let request = Request::get(format!("{}/o", site.base())).body(Bytes::new()).expect("a request");
        let answer = site.send(&who, request, &"o").await;
        assert_eq!((answer.is_ok(), who.0.into_inner()), (is_let_in, renewed), "{answers:?}");
        assert!(answer.err().is_none_or(|error| error.kind == Kind::Denied), "{answers:?}");
        serving.join().expect("it was asked as often");
    }
}

#[tokio::test]
async fn a_machine_of_google_and_a_program_beside_azures_server_of_tokens_are_known_by_these() {
    let json = |text: &str| {
        let length = text.len();
        let head = format!("content-length: {length}\r\nmetadata-flavor: Google\r\nconnection: close");
        format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{text}")
    };
    let named = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let token = json(r#"{"access_token": "t1", "expires_in": 3599, "token_type": "Bearer"}"#);
    let (address, serving) = scripted(vec![token, json("me@project\n"), json("{}")]);
    let settings = Settings {
        is_anonymous: false,
        variables: named(&[("GCE_METADATA_HOST", &address)]),
        ..anonymous(&format!("http://{address}"))
    };
    let google = Google::open("b", &settings).expect("a bucket");
    assert_eq!(google.who().await.expect("somebody"), "account me@project");
    assert_eq!(listed(&google, "").await, Vec::new());
    let asked = serving.join().expect("it was asked thrice");
    assert!(asked[0].contains("/default/token") && asked[0].contains("metadata-flavor: Google"), "{asked:?}");
    assert!(asked[2].contains("authorization: Bearer t1"), "{asked:?}");
    // {"oid":"me"}
    let token = json(r#"{"access_token": "e30.eyJvaWQiOiJtZSJ9.x", "expires_on": "4070908800"}"#);
    let (address, serving) = scripted(vec![token]);
    let host = format!("http://{address}/msi");
    let variables =
        named(&[("AZURE_STORAGE_ACCOUNT", "acc"), ("IDENTITY_ENDPOINT", &host), ("IDENTITY_HEADER", "s3cret")]);
    let azure = Azure::open("c", None, &Settings { variables, ..Settings::default() }).expect("a container");
    assert_eq!(azure.who().await.expect("somebody"), "principal me");
    assert!(serving.join().expect("it was asked")[0].contains("x-identity-header: s3cret"));
}

#[tokio::test]
async fn another_server_where_googles_would_be_is_nobody() {
    let (address, serving) = scripted(vec!["HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".into()]);
    let variables = [("GCE_METADATA_HOST".into(), address)].into();
    let google = Google::open("b", &Settings { variables, ..Settings::default() }).expect("a bucket");
    let error = google.who().await.expect_err("nobody");
    assert!(error.kind == Kind::Denied && error.hint.contains("gcloud auth"), "{error}");
    serving.join().expect("it was asked");
}

#[tokio::test]
async fn a_token_that_is_said_to_be_good_for_ever_is_used() {
    let answer = |text: String| {
        let head = format!("content-length: {}\r\nmetadata-flavor: Google\r\nconnection: close", text.len());
        format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{text}")
    };
    let token = format!("{{\"access_token\": \"t\", \"expires_in\": {}}}", u64::MAX);
    let (address, serving) = scripted(vec![answer(token), answer("me@project".into())]);
    let variables = [("GCE_METADATA_HOST".into(), address)].into();
    let google = Google::open("b", &Settings { variables, ..Settings::default() }).expect("a bucket");
    assert_eq!(google.who().await.expect("somebody"), "account me@project");
    serving.join().expect("it was asked twice");
}

#[tokio::test]
async fn the_checksum_of_google_is_compared() {
    // The CRC-32C of these bytes, as it is published, and another.
    for (sum, fits) in [("4waSgw==", true), ("4waSgg==", false)] {
        let head = format!("x-goog-generation: 7\r\nx-goog-hash: crc32c={sum}\r\ncontent-length: 9");
        let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\nconnection: close\r\n\r\n123456789");
        let (address, _serving) = scripted(vec![answer; 100]);
        let google = Google::open("b", &anonymous(&format!("http://{address}"))).expect("a bucket");
        let object = Object { store: google.identity().clone(), key: "k".into(), version: "7".into(), size: 9 };
        let budget = Duration::from_secs(if fits { 60 } else { 2 });
        let origin = crate::Origin::new(Arc::new(google), crate::OriginSettings { budget, ..Default::default() });
        let read: Vec<_> = block::Source::fetch(&origin, block::Run::new(Arc::new(object), 0..1)).collect().await;
        match (fits, &read[..]) {
            (true, [Ok(block)]) => assert_eq!(block.pieces().concat(), b"123456789"),
            (false, [Err(error)]) => assert_eq!(error.kind, Kind::Corrupt, "{error}"),
            (_, read) => panic!("{fits}: {:?}", read.iter().map(|read| read.as_ref().err()).collect::<Vec<_>>()),
        }
    }
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
