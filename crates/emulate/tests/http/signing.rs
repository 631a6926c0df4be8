//! Signatures: checked where the server has keys, ignored where it has none.

use crate::client::Scene;
use s3s::crypto::{Checksum, Sha256};
use stoker_emulate::Keys;

/// Now, as signatures state it: a server refuses what was signed a quarter of an hour ago.
fn now() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let (days, time) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days since 1 March of the year 0, by cycles of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!(
        "{:04}{month:02}{of_month:02}T{:02}{:02}{:02}Z",
        year + era * 400 + carry,
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::checksum(bytes).as_ref().to_vec()
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut block = [0u8; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8, rest: &[u8]| sha256(&[block.map(|byte| byte ^ with).as_slice(), rest].concat());
    pad(0x5c, &pad(0x36, text.as_bytes()))
}

/// Signature version 4 of a request without query and body.
fn authorization(secret: &str, path: &str, host: &str, date: &str) -> String {
    let day = &date[..8];
    let canonical = format!(
        "GET\n{path}\n\nhost:{host}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:{date}\n\nhost;x-amz-content-sha256;x-amz-date\nUNSIGNED-PAYLOAD"
    );
    let scope = format!("{day}/us-east-1/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&sha256(canonical.as_bytes())));
    let key = ["us-east-1", "s3", "aws4_request"]
        .iter()
        .fold(hmac(format!("AWS4{secret}").as_bytes(), day), |key, part| hmac(&key, part));
    format!(
        "AWS4-HMAC-SHA256 Credential=ACCESS/{scope}, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={}",
        hex(&hmac(&key, &text))
    )
}

#[tokio::test]
async fn a_server_with_keys_wants_them() {
    let keys = Keys { access: "ACCESS".into(), secret: "secret".into() };
    assert!(!format!("{keys:?}").contains("secret"));
    let scene = Scene::with(|settings| settings.keys = Some(keys)).await;
    scene.write("k", b"x");
    let unsigned = scene.get("/bucket/k").await;
    assert_eq!((unsigned.status, unsigned.code()), (403, "AccessDenied".into()));
    for (secret, status) in [("secret", 200), ("wrong", 403)] {
        let host = scene.server.address().to_string();
        let date = now();
        let signed = authorization(secret, "/bucket/k", &host, &date);
        let headers = [
            ("host", &*host),
            ("x-amz-date", &*date),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("authorization", &signed),
        ];
        let answer = scene.ask("GET", "/bucket/k", &headers).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

#[tokio::test]
async fn a_server_without_keys_takes_any_signature() {
    let scene = Scene::new().await;
    scene.write("k", b"x");
    assert_eq!(scene.ask("GET", "/bucket/k", &[("authorization", "AWS4-HMAC-SHA256 nonsense")]).await.status, 200);
    assert_eq!(scene.get("/bucket/k?X-Amz-Signature=abc&X-Amz-Expires=1").await.status, 200);
    let headers = [
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-decoded-content-length", "9"),
        ("content-encoding", "aws-chunked"),
        ("x-amz-trailer", "x-amz-checksum-crc32c"),
    ];
    let put = async |checksum: &str| {
        let body = format!("4\r\n1234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-crc32c:{checksum}\r\n\r\n");
        scene.send("PUT", "/bucket/pieces", &headers, &body).await
    };
    assert_eq!(put("AAAAAA==").await.code(), "BadDigest");
    assert_eq!(put("4waSgw==").await.status, 200);
    let get = scene.get("/bucket/pieces").await;
    assert_eq!((get.text(), get.header("content-encoding")), ("123456789", None));
}
