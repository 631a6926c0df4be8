//! Answers as servers give them, right and wrong.

use super::super::Settings;
use super::*;
use http::{HeaderName, HeaderValue};

fn object(size: u64) -> Object {
    Object { store: "s3://b".into(), key: "k".into(), version: "v1".into(), size }
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let parse = |text: &str| text.parse::<HeaderName>().expect("a name");
    list.iter().map(|(name, value)| (parse(name), HeaderValue::from_str(value).expect("a value"))).collect()
}

fn kind(status: u16, list: &[(&str, &str)], range: Range<u64>) -> Option<Kind> {
    let status = StatusCode::from_u16(status).expect("a status");
    check_head(status, &headers(list), &object(100), &range).err().map(|error| error.kind)
}

const TAG: (&str, &str) = ("etag", "\"v1\"");

#[test]
fn an_answer_passes_only_if_it_fits_the_question() {
    let part = |range| [TAG, ("content-range", range)];
    assert_eq!(kind(200, &[TAG, ("content-length", "100")], 0..100), None);
    assert_eq!(kind(206, &part("bytes 10-19/100"), 10..20), None);
    assert_eq!(kind(200, &[TAG, ("content-length", "99")], 0..100), Some(Kind::Corrupt), "a short answer");
    assert_eq!(kind(206, &part("bytes 10-19/101"), 10..20), Some(Kind::Changed));
    assert_eq!(kind(200, &[("etag", "\"v2\"")], 0..100), Some(Kind::Changed), "If-Match was ignored");
    for none in [&[][..], &[("etag", "")], &[("etag", "\"\"")]] {
        assert_eq!(kind(200, none, 0..100), Some(Kind::Invalid), "no version, and none at the next try");
    }
    assert_eq!(kind(206, &part("bytes 0-99/100"), 0..100), Some(Kind::Corrupt), "a part of what was asked whole");
    for wrong in ["bytes 11-19/100", "bytes 10-20/100", "bytes 10-19/*", ""] {
        assert_eq!(kind(206, &part(wrong), 10..20), Some(Kind::Corrupt), "{wrong}");
    }
    assert_eq!(kind(200, &[TAG, ("content-length", "100")], 10..20), Some(Kind::Invalid), "ranges are not served");
}

#[test]
fn without_an_etag_the_time_and_the_size_are_compared() {
    let of = |version: &str| Object { version: version.into(), ..object(100) };
    let refused = |list: &[(&str, &str)], version: &str| {
        check_version(&headers(list), &of(version)).err().map(|error| error.kind)
    };
    let same = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let version = of_time(784_111_777);
    assert_eq!(refused(&[same], &version), None);
    assert_eq!(refused(&[same], &format!("{UNSETTLED}{version}")), None);
    assert_eq!(refused(&[("last-modified", "Sun, 06 Nov 1994 08:49:38 GMT")], &version), Some(Kind::Changed));
    assert_eq!(refused(&[TAG], &version), Some(Kind::Invalid), "no time");
    assert_eq!(kind(206, &[same, ("content-range", "bytes 10-19/101")], 10..20), Some(Kind::Invalid));
}

#[test]
fn a_page_of_a_proxy_is_shown_in_its_own_words() {
    let page = b"<html><head><title>400 Bad</title></head>\n<body>The plain HTTP request was sent to HTTPS port</body>";
    assert_eq!(plain(page), "400 Bad The plain HTTP request was sent to HTTPS port");
    assert_eq!(
        plain(b"Client sent an HTTP request to an HTTPS server.\n"),
        "Client sent an HTTP request to an HTTPS server."
    );
    assert!(brief(&"word ".repeat(1000)).len() <= MESSAGE_MAX);
}

#[test]
fn only_a_checksum_of_all_bytes_counts() {
    let of = |list: &[(&str, &str)]| checksum(&headers(list));
    // The check values of the CRC catalogue for "123456789".
    let long = ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=");
    assert_eq!(of(&[long]), Some(Checksum::Crc64Nvme(0xae8b_1486_0a79_9888)));
    assert_eq!(of(&[long, ("x-amz-checksum-type", "FULL_OBJECT")]), Some(Checksum::Crc64Nvme(0xae8b_1486_0a79_9888)));
    assert_eq!(of(&[("x-amz-checksum-crc32c", "4waSgw==")]), Some(Checksum::Crc32C(0xe306_9283)));
    assert_eq!(of(&[("x-amz-checksum-crc32", "y/Q5Jg==")]), Some(Checksum::Crc32(0xcbf4_3926)));
    assert_eq!(of(&[("x-amz-checksum-crc32c", "4waSgw=="), ("x-amz-checksum-type", "COMPOSITE")]), None);
    assert_eq!(of(&[("x-amz-checksum-crc32c", "4waSgw==-3")]), None, "of parts, as older servers say it");
    assert_eq!(of(&[("x-amz-checksum-crc32c", "not base64")]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn a_server_names_the_time_of_the_next_try_as_seconds_or_as_a_date_of_its_own_clock() {
    let of = |list: &[(&str, &str)]| retry_after(&headers(list)).map(|time| time.as_secs());
    let now = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(of(&[("retry-after", "120"), now]), Some(120));
    assert_eq!(of(&[("retry-after", "Sun, 06 Nov 1994 08:50:00 GMT"), now]), Some(23));
    assert_eq!(of(&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT"), now]), Some(0), "it has passed");
    assert_eq!(of(&[("retry-after", "Sun, 06 Nov 1994 08:50:00 GMT")]), None, "a date and no clock");
    for nothing in ["-1", "1.5", "soon", ""] {
        assert_eq!(of(&[("retry-after", nothing), now]), None, "{nothing}");
    }
    assert_eq!(of(&[now]), None);
}

fn refusal(status: u16, code: &str) -> Refusal {
    let status = StatusCode::from_u16(status).expect("a status");
    let retry_after = Some(Duration::from_secs(3));
    Refusal {
        status,
        code: code.into(),
        message: "its own words".into(),
        region: Some("eu-west-1".into()),
        retry_after,
        is_for_people: false,
    }
}

#[test]
fn a_refusal_means_what_s3_means_by_it() {
    let route = Route::of("b", &Settings::default()).expect("a route");
    let busy = Kind::Unavailable { retry_after: Some(Duration::from_secs(3)) };
    for (status, code, expected) in [
        (404, "NoSuchKey", Kind::Missing),
        (404, "", Kind::Missing),
        (404, "NoSuchBucket", Kind::Missing),
        (412, "PreconditionFailed", Kind::Changed),
        (416, "InvalidRange", Kind::Changed),
        (403, "AccessDenied", Kind::Denied),
        (403, "", Kind::Denied),
        (403, "SignatureDoesNotMatch", Kind::Denied),
        (400, "ExpiredToken", Kind::Denied),
        (403, "InvalidObjectState", Kind::Denied),
        (503, "SlowDown", busy),
        (429, "", busy),
        (500, "InternalError", busy),
        (400, "RequestTimeout", busy),
        (509, "", busy),
        (520, "", busy),
        (524, "", busy),
        (530, "", busy),
        (501, "NotImplemented", Kind::Invalid),
        (301, "PermanentRedirect", Kind::Invalid),
        (400, "InvalidArgument", Kind::Invalid),
    ] {
        let error = refusal(status, code).error(&route, "b", &"s3://b/k");
        assert_eq!(error.kind, expected, "{status} {code}");
        assert!(!error.hint.is_empty() && error.on == "s3://b/k", "{status} {code}: {error}");
        assert!(error.what.contains(code) && error.what.contains("its own words"), "{status} {code}: {error}");
    }
}

#[test]
fn a_bucket_that_lives_elsewhere_is_looked_for_there_once() {
    assert_eq!(refusal(301, "PermanentRedirect").region("us-east-1"), Some("eu-west-1"));
    assert_eq!(refusal(400, "AuthorizationHeaderMalformed").region("us-east-1"), Some("eu-west-1"));
    assert_eq!(refusal(301, "PermanentRedirect").region("eu-west-1"), None);
    assert_eq!(refusal(404, "NoSuchKey").region("us-east-1"), None);
}

#[test]
fn a_bucket_that_lives_elsewhere_is_told_with_its_region() {
    let message = "The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-central-1'";
    assert_eq!(expected(message), Some("eu-central-1"));
    assert_eq!(expected("expecting 'a b'").or(expected("expecting 'x")), None);
    let own = Route::of("b", &Settings::default()).expect("a route");
    let given = Settings { endpoint: Some("http://h".into()), ..Settings::default() };
    let given = Route::of("b", &given).expect("a route");
    for (status, code, route, words) in [
        (400, "AuthorizationHeaderMalformed", &own, "--region eu-west-1"),
        (301, "PermanentRedirect", &own, "--region eu-west-1"),
        (301, "", &given, "that region's endpoint, or none"),
    ] {
        let error = refusal(status, code).error(route, "b", &"s3://b");
        assert!(error.hint.contains(words) && error.hint.contains("eu-west-1"), "{error}");
    }
}

#[test]
fn a_page_for_people_is_no_answer_of_s3() {
    let route = Route::of("b", &Settings::default()).expect("a route");
    for status in [404, 400] {
        let error = Refusal { is_for_people: true, ..refusal(status, "") }.error(&route, "b", &"s3://b");
        assert!(!error.passes() && error.hint.contains("is it the right port"), "{error}");
    }
    let busy = Refusal { is_for_people: true, ..refusal(503, "") }.error(&route, "b", &"s3://b");
    assert!(busy.passes(), "a proxy whose server is down: {busy}");
}

#[test]
fn who_reads_is_not_told_to_write() {
    let route = Route::of("b", &Settings::default()).expect("a route");
    let error = refusal(403, "AccessDenied").error(&route, "b", &"s3://b");
    assert!(!error.hint.contains("PutObject"), "{error}");
    assert!(of_write(error).hint.contains("s3:PutObject"));
}
