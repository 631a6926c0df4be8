//! Uploads in parts.

use crate::client::{Answer, Scene, noise};

const PART: usize = 5 << 20;

async fn start(scene: &Scene) -> String {
    let answer =
        scene.send("POST", "/bucket/dir/k?uploads", &[("x-amz-meta-mode", "7"), ("content-type", "a/b")], "").await;
    answer.elements("UploadId").pop().expect("an upload")
}

async fn part(scene: &Scene, id: &str, number: u32, body: &[u8]) -> Answer {
    scene.put(&format!("/bucket/dir/k?partNumber={number}&uploadId={id}"), body).await
}

async fn complete(scene: &Scene, id: &str, parts: &[(u32, &str)]) -> Answer {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    scene.send("POST", &format!("/bucket/dir/k?uploadId={id}"), &[], &body).await
}

#[tokio::test]
async fn parts_become_one_object() {
    let scene = Scene::new().await;
    let id = start(&scene).await;
    let (first, second) = (noise(PART), noise(1000));
    let two = part(&scene, &id, 2, &second).await.etag();
    let one = part(&scene, &id, 1, &first).await.etag();
    assert!(scene.get("/bucket?list-type=2").await.elements("Key").is_empty(), "parts are not objects");
    assert_eq!(scene.get("/bucket/dir/k").await.status, 404);
    let parts = scene.get(&format!("/bucket/dir/k?uploadId={id}")).await;
    assert_eq!(
        (parts.elements("PartNumber"), parts.elements("Size")),
        (vec!["1".to_string(), "2".into()], vec![PART.to_string(), "1000".into()])
    );
    let done = complete(&scene, &id, &[(1, &one), (2, &two)]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let get = scene.get("/bucket/dir/k").await;
    assert!(get.body == [first, second].concat());
    assert_eq!((get.header("x-amz-meta-mode"), get.header("content-type")), (Some("7"), Some("a/b")));
    assert_eq!(done.elements("ETag"), [get.etag()]);
    assert_eq!(complete(&scene, &id, &[(1, &one)]).await.code(), "NoSuchUpload");
    assert_eq!(std::fs::read_dir(scene.bucket().join(".stoker/uploads")).unwrap().count(), 0);
}

#[tokio::test]
async fn what_does_not_fit_together_is_refused() {
    let scene = Scene::new().await;
    let id = start(&scene).await;
    let one = part(&scene, &id, 1, b"small").await.etag();
    let two = part(&scene, &id, 2, b"small").await.etag();
    let code = async |parts: &[(u32, &str)]| complete(&scene, &id, parts).await.code();
    assert_eq!(code(&[(1, &one), (2, &two)]).await, "EntityTooSmall");
    assert_eq!(code(&[(2, &two), (1, &one)]).await, "InvalidPartOrder");
    assert_eq!(code(&[(1, &two)]).await, "InvalidPart");
    assert_eq!(code(&[(3, &one)]).await, "InvalidPart");
    assert_eq!(part(&scene, &id, 10_001, b"x").await.code(), "InvalidArgument");
    for id in ["none", "../drafts", "0-0-0"] {
        assert_eq!(part(&scene, id, 1, b"x").await.code(), "NoSuchUpload", "{id}");
    }
    let lie = scene
        .send("PUT", &format!("/bucket/dir/k?partNumber=1&uploadId={id}"), &[("x-amz-checksum-crc32", "AAAAAA==")], "x")
        .await;
    assert_eq!(lie.code(), "BadDigest");
    assert_eq!(scene.ask("DELETE", &format!("/bucket/dir/k?uploadId={id}"), &[]).await.status, 204);
    assert_eq!(part(&scene, &id, 1, b"x").await.code(), "NoSuchUpload");
}

#[tokio::test]
async fn a_part_may_be_copied() {
    let scene = Scene::new().await;
    scene.write("source", b"0123456789");
    let id = start(&scene).await;
    let headers = [("x-amz-copy-source", "bucket/source"), ("x-amz-copy-source-range", "bytes=2-5")];
    let copied = scene.send("PUT", &format!("/bucket/dir/k?partNumber=1&uploadId={id}"), &headers, "").await;
    let etag = copied.elements("ETag").pop().expect("an etag");
    assert_eq!(complete(&scene, &id, &[(1, &etag)]).await.status, 200);
    assert_eq!(scene.get("/bucket/dir/k").await.text(), "2345");
}
