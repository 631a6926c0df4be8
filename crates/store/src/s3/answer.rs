//! What a server said: whether it answers the question that was asked, and if it refuses, what that means.
//!
//! Invariant: an answer passes only if its length, range and version are those of the question; servers may
//! ignore `If-Match` and `Range`, so nothing is taken on trust.

use super::endpoint::Route;
use super::page;
use crate::{Listed, UNSETTLED};
use block::{Checksum, Error, Kind, Object, Result};
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use reqsign_core::time::Timestamp;
use std::borrow::Cow;
use std::fmt::Display;
use std::ops::Range;
use std::time::Duration;

/// Bytes of a refusal that are read. Real ones have a few hundred.
pub const REFUSAL_MAX: usize = 64 << 10;

/// Check the head of an answer against the question.
pub fn check(answer: &Response<Incoming>, object: &Object, range: &Range<u64>) -> Result<()> {
    check_head(answer.status(), answer.headers(), object, range)
}

fn check_head(status: StatusCode, headers: &HeaderMap, object: &Object, range: &Range<u64>) -> Result<()> {
    check_version(headers, object)?;
    check_range(status, headers, object, range)
}

/// Check that the answer is of the range that was asked for.
pub fn check_range(status: StatusCode, headers: &HeaderMap, object: &Object, range: &Range<u64>) -> Result<()> {
    let length: Option<u64> = text(headers, "content-length").and_then(|length| length.parse().ok());
    let due = range.end - range.start;
    if *range == (0..object.size) {
        return match (status, length) {
            (StatusCode::OK, Some(length)) if length != object.size => {
                // Of this very version: it is the answer that is short, not the object.
                Err(Error::corrupt(format!("the store sends {length} bytes where {due} were listed"), object))
            }
            (StatusCode::OK, _) => Ok(()),
            _ => Err(Error::corrupt(format!("the store answered {status} to a request without a range"), object)),
        };
    }
    if status != StatusCode::PARTIAL_CONTENT {
        let error = Error::invalid("the store sends the whole object where a part was asked", object);
        return Err(error.hint("this server or a proxy before it does not serve ranges, which Stoker needs"));
    }
    let sent = text(headers, "content-range").unwrap_or_default();
    let expected = format!("bytes {}-{}/{}", range.start, range.end - 1, object.size);
    if sent == expected && length.is_none_or(|length| length == due) {
        return Ok(());
    }
    match sent.rsplit_once('/').and_then(|(_, size)| size.parse::<u64>().ok()) {
        Some(size) if size != object.size => {
            Err(Error::changed(format!("the object has {size} bytes where {} were listed", object.size), object))
        }
        _ => Err(Error::corrupt(format!("the store sent \"{sent}\" where \"{expected}\" was asked"), object)),
    }
}

/// Check that the answer is about the version that was asked for.
pub fn check_version(headers: &HeaderMap, object: &Object) -> Result<()> {
    let sent = match time_of(&object.version) {
        Some(_) => text(headers, "last-modified").and_then(second).map(|second| Cow::from(of_time(second))),
        None => text(headers, "etag").map(|etag| Cow::from(version(etag))).filter(|etag| !etag.is_empty()),
    };
    match sent {
        Some(sent) if sent == object.version.trim_start_matches(UNSETTLED) => Ok(()),
        Some(_) => Err(Error::changed("the object has another version by now", object)),
        // No further try would bring it.
        None => Err(Error::invalid("the store does not say of which version its answer is", object)
            .hint("this server or a proxy before it leaves out ETag and Last-Modified, which Stoker needs")),
    }
}

/// What a version is named by that is known by its time alone, because the store gives no ETag. The size is part of
/// what an object is, so both are compared.
const TIME: &str = "time:";

/// The version of an object without an ETag, last changed in this second since 1970.
pub fn of_time(second: i64) -> String {
    format!("{TIME}{second}")
}

/// The second of a version that is known by its time alone.
pub fn time_of(version: &str) -> Option<i64> {
    version.trim_start_matches(UNSETTLED).strip_prefix(TIME)?.parse().ok()
}

/// The second in a header such as `Last-Modified`.
pub fn second(date: &str) -> Option<i64> {
    Timestamp::parse_rfc2822(date).ok().map(Timestamp::as_second)
}

/// Nanoseconds since 1970; a time that has none in 64 bits, after 2262 or before 1677, is the nearest that has.
pub fn nanoseconds(time: Timestamp) -> i64 {
    time.as_second().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanosecond().into())
}

/// The version in an ETag: the text between its quotes.
pub fn version(etag: &str) -> &str {
    let etag = etag.trim();
    etag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(etag)
}

/// The checksum of the whole object. One that was put together from those of its parts says nothing
/// about its bytes in a row.
pub fn checksum(headers: &HeaderMap) -> Option<Checksum> {
    if text(headers, "x-amz-checksum-type").is_some_and(|kind| !kind.eq_ignore_ascii_case("FULL_OBJECT")) {
        return None;
    }
    let long = |name| decode::<8>(text(headers, name)?).map(u64::from_be_bytes);
    let short = |name| decode::<4>(text(headers, name)?).map(u32::from_be_bytes);
    long("x-amz-checksum-crc64nvme")
        .map(Checksum::Crc64Nvme)
        .or_else(|| short("x-amz-checksum-crc32c").map(Checksum::Crc32C))
        .or_else(|| short("x-amz-checksum-crc32").map(Checksum::Crc32))
}

/// What the head of an object says about it. Without an ETag its version is its time, once that is settled.
pub fn listed(headers: &HeaderMap, key: &str) -> Option<Listed> {
    let modified = text(headers, "last-modified").and_then(second);
    let etag = text(headers, "etag").map(version).filter(|etag| !etag.is_empty());
    let version = match etag {
        Some(etag) => etag.to_owned(),
        None => {
            let modified = modified?;
            let given = text(headers, "date").and_then(second);
            let is_settled = given.is_some_and(|given| given - modified > page::SETTLED_AFTER);
            if is_settled { of_time(modified) } else { format!("{UNSETTLED}{}", of_time(modified)) }
        }
    };
    let modified_ns = modified.unwrap_or_default().saturating_mul(1_000_000_000);
    let size = text(headers, "content-length")?.parse().ok()?;
    Some(Listed { key: key.to_owned(), version, size, modified_ns })
}

/// Eight bytes as base64.
pub fn encode(bytes: [u8; 8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // Eleven digits of six bits hold 66: two zeros fill the last.
    let bits = u128::from(u64::from_be_bytes(bytes)) << 2;
    let digit = |place: u32| char::from(DIGITS[(bits >> (60 - 6 * place)) as usize & 63]);
    (0..11).map(digit).chain(['=']).collect()
}

/// Exactly `N` bytes out of base64. A checksum of parts, `…==-3`, has a number behind it and is none.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.trim_end_matches('=');
    if text.len() != N.div_ceil(3) * 4 || digits.len() != (N * 8).div_ceil(6) {
        return None;
    }
    let mut bits = 0u128;
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u128::from(value);
    }
    let bits = bits >> (digits.len() * 6 - N * 8);
    bits.to_be_bytes()[16 - N..].try_into().ok()
}

pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// How long a server asks to be left alone: seconds, or a date, which is compared with its own clock and not with ours.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let sent = text(headers, header::RETRY_AFTER.as_str())?.trim();
    let seconds = sent.parse().ok().or_else(|| {
        let (then, now) = (second(sent)?, text(headers, header::DATE.as_str()).and_then(second)?);
        Some(u64::try_from(then - now).unwrap_or(0))
    });
    seconds.map(Duration::from_secs)
}

/// A refusal.
pub struct Refusal {
    status: StatusCode,
    /// S3's word for it, if it gave one: `NoSuchKey`.
    code: String,
    message: String,
    region: Option<String>,
    retry_after: Option<Duration>,
    /// It is a page for people: no server of S3 says no like that.
    is_for_people: bool,
}

impl Refusal {
    /// Read what was said; a body that can't be read is no further loss.
    pub async fn read(answer: Response<Incoming>, idle: Duration) -> Refusal {
        let (head, body) = answer.into_parts();
        let body = tokio::time::timeout(idle, Limited::new(body, REFUSAL_MAX).collect()).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        let refusal = page::refusal(&body);
        Refusal {
            status: head.status,
            region: text(&head.headers, "x-amz-bucket-region")
                .or(refusal.region.as_deref())
                .or_else(|| expected(&refusal.message))
                .map(str::to_owned),
            is_for_people: page::is_for_people(&body),
            retry_after: retry_after(&head.headers),
            message: if refusal.code.is_empty() { plain(&body) } else { brief(&refusal.message) },
            code: refusal.code,
        }
    }

    /// The region that the bucket lives in, if it is not this one.
    pub fn region(&self, asked: &str) -> Option<&str> {
        let may_move = self.status.is_redirection() || matches!(self.status.as_u16(), 400 | 403);
        self.region.as_deref().filter(|region| may_move && *region != asked)
    }

    /// Whether it is about the credentials: they ran out, or others have taken their place.
    pub fn is_of_credentials(&self) -> bool {
        OF_CREDENTIALS.contains(&self.code.as_str())
    }

    /// Whether it may be about the credentials and doesn't say so, as the answer to a HEAD never does.
    pub fn is_mute(&self) -> bool {
        self.code.is_empty() && matches!(self.status.as_u16(), 400 | 403)
    }

    /// Whether the server says that it is asked too much, rather than that it is ill.
    pub fn is_throttling(&self) -> bool {
        matches!(self.status.as_u16(), 429 | 503)
    }

    /// What it means for the caller.
    pub fn error(&self, route: &Route, bucket: &str, on: &(dyn Display + Sync)) -> Error {
        let host = &route.authority;
        let status = self.status.as_u16();
        let error = match (status, self.code.as_str()) {
            (_, "NoSuchBucket") => {
                Error::missing(format!("there is no bucket {bucket} on {host} ({})", self.said()), on)
                    .hint("check the name and the endpoint")
            }
            (_, "InvalidBucketName") => {
                Error::invalid(format!("{host} says that {bucket} can't be the name of a bucket ({})", self.said()), on)
                    .hint("check the name of the bucket")
            }
            (_, code) if is_denial(status, code) => return self.denied(host, on),
            (404 | 410, _) if self.is_for_people => {
                Error::missing(format!("{host} answers with a web page ({})", self.said()), on).hint(page::NO_ENDPOINT)
            }
            (404 | 410, _) => Error::missing(format!("there is no such object ({})", self.said()), on),
            (412 | 416, _) => Error::changed(format!("the object has another version by now ({})", self.said()), on),
            (301 | 307 | 308, _) => Error::invalid(format!("{host} sends this bucket elsewhere ({})", self.said()), on)
                .hint(self.own_region(route)),
            (_, "AuthorizationHeaderMalformed") => {
                Error::invalid(format!("{host} takes requests of another region ({})", self.said()), on)
                    .hint(self.own_region(route))
            }
            // Those above 504 are of proxies: out of bandwidth, and the origin down, unreachable or too slow.
            (408 | 429 | 500 | 502..=504 | 509 | 520..=530 | 598 | 599, _)
            | (_, "SlowDown" | "RequestTimeout" | "InternalError") => {
                let kind = Kind::Unavailable { retry_after: self.retry_after };
                Error::new(kind, format!("{host} answered {}", self.said()), on)
            }
            _ => Error::invalid(format!("{host} refused the request: {}", self.said()), on)
                .hint(if self.is_for_people { page::NO_ENDPOINT } else { "check the endpoint and its log" }),
        };
        tracing::debug!(status, code = self.code, message = self.message, "refused");
        error
    }

    /// What to try where a bucket lives elsewhere.
    fn own_region(&self, route: &Route) -> String {
        match &self.region {
            Some(region) if route.is_given() && self.status.is_redirection() => {
                format!("name the bucket's own region, --region {region}, and that region's endpoint, or none")
            }
            Some(region) => format!("name the bucket's own region: --region {region}"),
            None => "set the bucket's own region or endpoint".into(),
        }
    }

    fn denied(&self, host: &str, on: &(dyn Display + Sync)) -> Error {
        let (what, hint) = match self.code.as_str() {
            "InvalidAccessKeyId" | "XAdminUserNotFound" => {
                ("does not know this access key", "check AWS_PROFILE or AWS_ACCESS_KEY_ID, and the endpoint")
            }
            "SignatureDoesNotMatch" => {
                ("does not accept the signature", "check AWS_SECRET_ACCESS_KEY, and the endpoint's host name")
            }
            "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
                ("says that the credentials ran out", "renew them: aws sso login, or new keys")
            }
            "InvalidToken" => ("does not accept the session token", "check AWS_SESSION_TOKEN"),
            "RequestTimeTooSkewed" => ("finds our clock too far off", "set this machine's clock (timedatectl)"),
            "InvalidObjectState" => ("keeps the object in an archive", "restore it first, or leave it out"),
            _ => ("refuses access", MAY_READ),
        };
        Error::denied(format!("{host} {what} ({})", self.said()), on).hint(hint)
    }

    /// The server's own words, on one line. They hold no secret, which the server never had.
    fn said(&self) -> String {
        let status = match self.code.as_str() {
            "" => self.status.to_string(),
            code => format!("{} {code}", self.status.as_u16()),
        };
        if self.message.is_empty() { status } else { format!("{status}: {}", self.message) }
    }
}

/// What to try where access is refused to who reads, and to who writes.
const MAY_READ: &str =
    "check that these credentials may list the bucket and get its objects (s3:ListBucket, s3:GetObject)";
const MAY_WRITE: &str = "check that these credentials may list the bucket, get its objects and put them (s3:ListBucket, \
                         s3:GetObject, s3:PutObject)";

/// A refusal of a request that was to write.
pub fn of_write(error: Error) -> Error {
    if error.hint == MAY_READ { error.hint(MAY_WRITE) } else { error }
}

/// The region in AWS's words for a wrong one: "the region 'us-east-1' is wrong; expecting 'eu-central-1'".
fn expected(message: &str) -> Option<&str> {
    let (region, _) = message.split_once("expecting '")?.1.split_once('\'')?;
    let is_fine = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    Some(region).filter(|region| !region.is_empty() && region.bytes().all(is_fine))
}

/// Letters of a server's message that are shown.
const MESSAGE_MAX: usize = 200;

/// A message on one line, not longer than people read.
pub fn brief(message: &str) -> String {
    let words = message.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    line.chars().take(MESSAGE_MAX).collect()
}

/// The text of a body that is not S3's, such as a proxy's page, without its tags.
pub fn plain(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let outside = text.split('<').map(|piece| piece.split_once('>').map_or(piece, |(_, outside)| outside));
    brief(&outside.collect::<Vec<_>>().join(" "))
}

/// Codes that are about the credentials, whatever their status: AWS says `ExpiredToken` with 400, versitygw does
/// not know a user with 404.
const OF_CREDENTIALS: [&str; 7] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "XAdminUserNotFound",
];

/// Whether it is about who asks.
fn is_denial(status: u16, code: &str) -> bool {
    matches!(status, 401 | 403) || code == "AccessDenied" || OF_CREDENTIALS.contains(&code)
}

#[cfg(test)]
#[path = "answer/tests.rs"]
mod tests;
