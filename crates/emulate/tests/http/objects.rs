//! Reading and writing single objects.

use crate::client::{Scene, ask, noise};
use stoker_emulate::{Operation, Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// More than one buffer, and not a multiple of one.
const LARGE: usize = 1_300_001;

#[tokio::test]
async fn a_file_is_an_object() {
    let scene = Scene::new().await;
    for (key, bytes) in [("empty", vec![]), ("small", noise(1000)), ("dir/large", noise(LARGE))] {
        scene.write(key, &bytes);
        let get = scene.get(&format!("/bucket/{key}")).await;
        assert_eq!((get.status, &get.body), (200, &bytes), "{key}");
        let head = scene.ask("HEAD", &format!("/bucket/{key}"), &[]).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        for name in ["content-length", "etag", "last-modified", "accept-ranges", "content-type"] {
            assert!(get.header(name).is_some() && get.header(name) == head.header(name), "{key}: {name}");
        }
    }
    let missing = scene.get("/bucket/none").await;
    assert_eq!((missing.status, missing.code()), (404, "NoSuchKey".into()));
    assert_eq!(scene.get("/none/key").await.code(), "NoSuchBucket");
    assert_eq!(scene.get("/bucket/dir").await.code(), "NoSuchKey");
    assert_eq!(scene.ask("HEAD", "/bucket/none", &[]).await.status, 404);
}

#[tokio::test]
async fn ranges_are_those_of_http() {
    let scene = Scene::new().await;
    let bytes = noise(LARGE);
    scene.write("k", &bytes);
    let cases = [
        ("bytes=0-0", 0..1),
        ("bytes=5-9", 5..10),
        ("bytes=-7", LARGE - 7..LARGE),
        ("bytes=1000000-", 1_000_000..LARGE),
        ("bytes=3-99999999", 3..LARGE),
        ("bytes=-99999999", 0..LARGE),
    ];
    for (range, expected) in cases {
        let answer = scene.ask("GET", "/bucket/k", &[("range", range)]).await;
        assert_eq!((answer.status, &answer.body[..]), (206, &bytes[expected.clone()]), "{range}");
        let content_range = format!("bytes {}-{}/{LARGE}", expected.start, expected.end - 1);
        assert_eq!(answer.header("content-range"), Some(&content_range[..]));
    }
    for range in ["bytes=1300001-", "bytes=-0"] {
        let answer = scene.ask("GET", "/bucket/k", &[("range", range)]).await;
        assert_eq!((answer.status, answer.code()), (416, "InvalidRange".into()));
        assert_eq!(answer.header("content-range"), Some("bytes */1300001"));
    }
    scene.write("empty", b"");
    assert_eq!(scene.ask("GET", "/bucket/empty", &[("range", "bytes=0-9")]).await.status, 416);
    let head = scene.ask("HEAD", "/bucket/k", &[("range", "bytes=0-9")]).await;
    assert_eq!((head.header("content-range"), head.header("content-length")), (Some("bytes 0-9/1300001"), Some("10")));
}

#[tokio::test]
async fn conditions_are_kept() {
    let scene = Scene::new().await;
    scene.write("k", b"one");
    let first = scene.get("/bucket/k").await;
    let (etag, date) = (first.etag(), first.header("last-modified").expect("a date").to_string());
    assert!(etag.starts_with('"') && etag.matches('-').count() == 2, "{etag}");
    for method in ["GET", "HEAD"] {
        let status = async |name: &str, value: &str| scene.ask(method, "/bucket/k", &[(name, value)]).await.status;
        assert_eq!(status("if-match", &etag).await, 200);
        assert_eq!(status("if-match", "*").await, 200);
        assert_eq!(status("if-match", "\"other\"").await, 412);
        assert_eq!(status("if-none-match", &etag).await, 304);
        assert_eq!(status("if-none-match", "\"other\"").await, 200);
        assert_eq!(status("if-modified-since", &date).await, 304);
        assert_eq!(status("if-modified-since", "Thu, 01 Jan 2015 00:00:00 GMT").await, 200);
        assert_eq!(status("if-unmodified-since", &date).await, 200);
        assert_eq!(status("if-unmodified-since", "Thu, 01 Jan 2015 00:00:00 GMT").await, 412);
    }
    let unchanged = scene.ask("GET", "/bucket/k", &[("if-none-match", &etag)]).await;
    assert_eq!((unchanged.etag(), unchanged.body.len()), (etag.clone(), 0));
    scene.write("k", b"two, by somebody else");
    let changed = scene.ask("GET", "/bucket/k", &[("if-match", &etag), ("range", "bytes=0-1")]).await;
    assert_eq!((changed.status, changed.code()), (412, "PreconditionFailed".into()));
    assert_ne!(scene.get("/bucket/k").await.etag(), etag);
}

#[tokio::test]
async fn checksums_are_given_when_asked_for() {
    let scene = Scene::new().await;
    scene.write("small", b"123456789");
    scene.write("large", &noise(LARGE));
    let mode = ("x-amz-checksum-mode", "ENABLED");
    for method in ["GET", "HEAD", "GET"] {
        let small = scene.ask(method, "/bucket/small", &[mode]).await;
        assert_eq!(small.header("x-amz-checksum-crc64nvme"), Some("rosUhgp5mIg="), "{method}");
        assert_eq!(small.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    }
    let head = scene.ask("HEAD", "/bucket/large", &[mode]).await;
    let put = scene.put("/bucket/copy", &noise(LARGE)).await;
    assert_eq!(head.header("x-amz-checksum-crc64nvme"), put.header("x-amz-checksum-crc64nvme"));
    let get = scene.ask("GET", "/bucket/large", &[mode]).await;
    assert_eq!(
        (get.header("x-amz-checksum-crc64nvme"), get.body.len()),
        (head.header("x-amz-checksum-crc64nvme"), LARGE)
    );
    let part = scene.ask("GET", "/bucket/small", &[mode, ("range", "bytes=0-1")]).await;
    assert_eq!(part.header("x-amz-checksum-crc64nvme"), None, "a checksum of the whole says nothing about a part");
    assert_eq!(scene.get("/bucket/small").await.header("x-amz-checksum-crc64nvme"), None);
    scene.write("small", b"changed");
    assert_ne!(
        scene.ask("HEAD", "/bucket/small", &[mode]).await.header("x-amz-checksum-crc64nvme"),
        Some("rosUhgp5mIg=")
    );
}

#[tokio::test]
async fn an_object_is_written_at_once_or_not_at_all() {
    let scene = Scene::new().await;
    let put = scene.put("/bucket/a/b/c", &noise(LARGE)).await;
    assert_eq!(put.status, 200);
    let get = scene.get("/bucket/a/b/c").await;
    assert_eq!((get.body == noise(LARGE), get.etag()), (true, put.etag()));
    let lies = [
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-checksum-crc32c", "AAAAAA=="),
        ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
        ("x-amz-checksum-sha256", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    ];
    for lie in lies {
        let answer = scene.send("PUT", "/bucket/a/b/c", &[lie], "123456789").await;
        assert_eq!((answer.status, answer.code()), (400, "BadDigest".into()), "{lie:?}");
    }
    let truths = [
        ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
    ];
    assert_eq!(scene.get("/bucket/a/b/c").await.etag(), put.etag(), "what was refused changed nothing");
    assert_eq!(scene.send("PUT", "/bucket/true", &truths, "123456789").await.status, 200);
    // A body that breaks off.
    let mut stream = tokio::net::TcpStream::connect(scene.server.address()).await.unwrap();
    stream.write_all(b"PUT /bucket/broken HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf").await.unwrap();
    drop(stream);
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(scene.get("/bucket/broken").await.status, 404);
    assert_eq!(std::fs::read_dir(scene.bucket().join(".stoker/drafts")).unwrap().count(), 0, "nothing is left behind");
    assert_eq!(scene.put("/none/key", b"x").await.code(), "NoSuchBucket");
    assert_eq!(scene.put(&format!("/bucket/{}", "x".repeat(300)), b"x").await.code(), "KeyTooLongError");
}

#[tokio::test]
async fn writes_have_conditions_too() {
    let scene = Scene::new().await;
    let put = async |headers: &[(&str, &str)]| scene.send("PUT", "/bucket/k", headers, "x").await;
    assert_eq!(put(&[("if-match", "\"any\"")]).await.status, 404);
    let first = put(&[("if-none-match", "*")]).await;
    assert_eq!(first.status, 200);
    assert_eq!(put(&[("if-none-match", "*")]).await.status, 412);
    assert_eq!(put(&[("if-match", "\"other\"")]).await.status, 412);
    assert_eq!(put(&[("if-match", &first.etag())]).await.status, 200);
    assert_eq!(put(&[("if-match", &first.etag())]).await.status, 412, "a version is replaced once");
}

#[tokio::test]
async fn metadata_comes_back() {
    let scene = Scene::new().await;
    let metadata = [("x-amz-meta-mode", "33188"), ("content-type", "image/jpeg"), ("cache-control", "no-store")];
    scene.send("PUT", "/bucket/k", &metadata, "x").await;
    let holds = async |path: &str| {
        let head = scene.ask("HEAD", path, &[]).await;
        metadata.iter().all(|(name, value)| head.header(name) == Some(value))
    };
    assert!(holds("/bucket/k").await);
    let copied = scene.send("PUT", "/bucket/copy", &[("x-amz-copy-source", "/bucket/k")], "").await;
    assert_eq!(copied.status, 200, "{}", copied.text());
    assert!(holds("/bucket/copy").await);
    let replace =
        [("x-amz-copy-source", "bucket/k"), ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-mode", "1")];
    scene.send("PUT", "/bucket/k", &replace, "").await;
    let head = scene.ask("HEAD", "/bucket/k", &[]).await;
    assert_eq!((head.header("x-amz-meta-mode"), head.header("content-type")), (Some("1"), Some("binary/octet-stream")));
    let overridden = scene.get("/bucket/copy?response-content-type=text/plain").await;
    assert_eq!(overridden.header("content-type"), Some("text/plain"));
    assert_eq!(scene.send("PUT", "/bucket/c", &[("x-amz-copy-source", "bucket/none")], "").await.code(), "NoSuchKey");
    let other = [("x-amz-copy-source", "bucket/k"), ("x-amz-copy-source-if-match", "\"other\"")];
    assert_eq!(scene.send("PUT", "/bucket/c", &other, "").await.status, 412);
}

#[tokio::test]
async fn what_is_deleted_is_gone() {
    let scene = Scene::new().await;
    for key in ["a/1", "a/2", "b", "c"] {
        scene.put(&format!("/bucket/{key}"), b"x").await;
    }
    assert_eq!(scene.ask("DELETE", "/bucket/b", &[]).await.status, 204);
    assert_eq!(scene.ask("DELETE", "/bucket/b", &[]).await.status, 204, "again is no error");
    assert_eq!(scene.get("/bucket/b").await.status, 404);
    let list = "<Delete><Object><Key>a/1</Key></Object><Object><Key>a/2</Key></Object><Object><Key>none</Key></Object></Delete>";
    let answer = scene.send("POST", "/bucket?delete", &[], list).await;
    assert_eq!(answer.elements("Key"), ["a/1", "a/2", "none"]);
    assert!(!scene.bucket().join("a").exists());
    assert_eq!(scene.get("/bucket?list-type=2").await.elements("Key"), ["c"]);
}

#[tokio::test]
async fn buckets_are_folders() {
    let scene = Scene::new().await;
    assert_eq!(scene.ask("PUT", "/other-bucket", &[]).await.status, 200);
    assert_eq!(scene.ask("PUT", "/other-bucket", &[]).await.code(), "BucketAlreadyOwnedByYou");
    assert_eq!(scene.get("/").await.elements("Name"), ["bucket", "other-bucket"]);
    assert_eq!(scene.ask("HEAD", "/bucket", &[]).await.status, 200);
    assert_eq!(scene.ask("HEAD", "/none", &[]).await.status, 404);
    assert_eq!(scene.get("/bucket?location").await.status, 200);
    assert_eq!(scene.get("/bucket?versioning").await.status, 200);
    for path in ["/..", "/../..", "/.stoker/x", "/%2e%2e/secret"] {
        assert_eq!(scene.get(path).await.code(), "InvalidBucketName", "{path}");
    }
    let single =
        Server::start(Settings { bucket: Some("train".into()), ..Settings::of(scene.folder.path()) }).await.unwrap();
    scene.write("k", b"x");
    assert_eq!(ask(single.address(), "GET", "/train/bucket/k", &[], b"").await.unwrap().body, b"x");
}

#[tokio::test]
async fn connections_are_kept_and_the_counters_show_it_all() {
    let scene = Scene::new().await;
    scene.write("k", b"0123456789");
    let mut stream = tokio::net::TcpStream::connect(scene.server.address()).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET /bucket/k HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut space = [0; 4096];
        let mut seen = Vec::new();
        while !seen.ends_with(b"0123456789") {
            let length = stream.read(&mut space).await.unwrap();
            assert!(length > 0, "the connection was closed");
            seen.extend_from_slice(&space[..length]);
        }
    }
    scene.get("/bucket?list-type=2").await;
    scene.ask("HEAD", "/bucket/none", &[]).await;
    scene.put("/bucket/new", b"12345").await;
    let counters = scene.server.counters();
    assert_eq!((counters.of(Operation::Get).requests, counters.of(Operation::Get).bytes_out), (3, 30));
    assert_eq!(counters.of(Operation::Get).statuses, [(200, 3)]);
    assert_eq!(counters.of(Operation::List).requests, 1);
    assert_eq!(counters.of(Operation::Head).statuses, [(404, 1)]);
    assert_eq!(counters.of(Operation::Put).bytes_in, 5);
    let shown = scene.get("/-/counters").await;
    assert_eq!((shown.header("content-type"), shown.text()), (Some("application/json"), &counters.json()[..]));
    assert_eq!(scene.server.counters(), counters, "looking changes nothing");
}

#[tokio::test]
async fn a_server_starts_and_stops() {
    let scene = Scene::new().await;
    let address = scene.server.address();
    let taken = Server::start(Settings { listen: address, ..Settings::of(scene.folder.path()) }).await;
    assert!(taken.is_err_and(|error| error.hint.contains("free port")));
    let nowhere = Server::start(Settings::of("/no/such/folder")).await;
    assert!(nowhere.is_err_and(|error| error.hint.contains("folder that exists")));
    scene.server.stop().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    Server::start(Settings { listen: address, ..Settings::of(scene.folder.path()) })
        .await
        .expect("the port is free again");
}

#[tokio::test]
async fn each_request_is_logged() {
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = lines.clone();
    let log = stoker_emulate::Log(std::sync::Arc::new(move |line| kept.lock().unwrap().push(line.to_string())));
    let scene = Scene::with(|settings| settings.log = Some(log)).await;
    scene.get("/bucket/none?x=1").await;
    let lines = lines.lock().unwrap();
    assert!(lines.len() == 1 && lines[0].starts_with("GET /bucket/none?x=1 404 "), "{lines:?}");
}
