//! The XML that S3 answers with: pages of names, and refusals. Pure.
//!
//! Invariant: a page that can't be understood as a whole is an error, never a shorter page.

use super::answer;
use crate::{Listed, UNSETTLED};
use block::{Error, Result};
use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};
use reqsign_core::time::Timestamp;
use std::borrow::Cow;
use std::fmt::Display;

/// Seconds after a change from when on a further one changes the time, too.
pub const SETTLED_AFTER: i64 = 2;

/// One page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub listed: Vec<Listed>,
    /// What the delimiter folded together, in the order of the server.
    pub prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// What a refusal says.
#[derive(Debug, Default)]
pub struct Refusal {
    pub code: String,
    pub message: String,
    pub region: Option<String>,
}

/// What to try where a server answers with pages for people.
pub const NO_ENDPOINT: &str = "this is no S3 endpoint: is it the right port? Consoles and proxies have others";

/// Whether a body is a page for people, as a console or a proxy sends it.
pub fn is_for_people(body: &[u8]) -> bool {
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    let begins = |with: &[u8]| text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    begins(b"<!doctype html") || begins(b"<html")
}

/// A page out of the body of an answer that was given in this second, by the clock of the server.
pub fn parse(body: &[u8], given: Option<i64>, on: &(dyn Display + Sync)) -> Result<Page> {
    let wrong = |what: &str| Error::corrupt(format!("the store's listing {what}"), on);
    // No further try would make S3 of it.
    if is_for_people(body) {
        return Err(Error::invalid("the server answers with a web page and not with a listing", on).hint(NO_ENDPOINT));
    }
    let mut draft = Draft::default();
    walk(body, &mut |path, text| draft.take(path, text)).map_err(|_| wrong("is no XML"))?;
    if !draft.is_listing {
        return Err(wrong("is no listing"));
    }
    draft.page(given).ok_or_else(|| wrong("has an entry that can't be read"))
}

/// What a refusal says; nothing if it is no XML.
pub fn refusal(body: &[u8]) -> Refusal {
    let mut refusal = Refusal::default();
    let _ = walk(body, &mut |path, text| match (path, text) {
        ("Error/Code", Some(text)) => refusal.code = text.into(),
        ("Error/Message", Some(text)) => refusal.message = text.into(),
        ("Error/Region", Some(text)) => refusal.region = Some(text.into()),
        _ => {}
    });
    refusal
}

/// The name of an upload that was begun.
pub fn upload(body: &[u8]) -> Option<String> {
    let mut id = None;
    walk(body, &mut |path, text| {
        if let ("InitiateMultipartUploadResult/UploadId", Some(text)) = (path, text) {
            id = Some(text.to_owned());
        }
    })
    .ok()?;
    id.filter(|id| !id.is_empty())
}

/// Whether an answer says that an upload was joined. A failure may come with status 200, for the server had to say
/// something while it worked.
pub fn is_completed(body: &[u8]) -> bool {
    let mut is_completed = false;
    let is_whole = walk(body, &mut |path, _| is_completed |= path == "CompleteMultipartUploadResult").is_ok();
    is_whole && is_completed
}

/// A page in the making. Names are decoded at the end, for how they are encoded may come last.
#[derive(Default)]
struct Draft {
    is_listing: bool,
    is_encoded: bool,
    is_truncated: bool,
    next: Option<String>,
    prefixes: Vec<String>,
    entries: Vec<Entry>,
}

#[derive(Default)]
struct Entry {
    key: String,
    etag: String,
    size: String,
    modified: String,
}

impl Draft {
    fn take(&mut self, path: &str, text: Option<&str>) {
        let Some(within) = path.strip_prefix("ListBucketResult") else { return };
        match (within, text) {
            ("", None) => self.is_listing = true,
            ("/Contents", None) => self.entries.push(Entry::default()),
            ("/EncodingType", Some(text)) => self.is_encoded = text == "url",
            ("/IsTruncated", Some(text)) => self.is_truncated = text == "true",
            ("/NextContinuationToken", Some(text)) => self.next = Some(text.into()),
            ("/CommonPrefixes/Prefix", Some(text)) => self.prefixes.push(text.into()),
            (_, Some(text)) => {
                let Some(entry) = self.entries.last_mut() else { return };
                match within {
                    "/Contents/Key" => entry.key = text.into(),
                    "/Contents/ETag" => entry.etag = text.into(),
                    "/Contents/Size" => entry.size = text.into(),
                    "/Contents/LastModified" => entry.modified = text.into(),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn page(self, given: Option<i64>) -> Option<Page> {
        let decode = |name: &str| if self.is_encoded { decode(name) } else { Some(name.to_owned()) };
        let listed = self.entries.iter().map(|entry| entry.listed(&decode, given)).collect::<Option<Vec<_>>>()?;
        let prefixes = self.prefixes.iter().map(|prefix| decode(prefix)).collect::<Option<Vec<_>>>()?;
        let next = if self.is_truncated { Some(self.next?) } else { None };
        Some(Page { listed, prefixes, next })
    }
}

impl Entry {
    fn listed(&self, decode: &dyn Fn(&str) -> Option<String>, given: Option<i64>) -> Option<Listed> {
        let modified = self.modified.parse::<Timestamp>().ok()?;
        let modified_ns = answer::nanoseconds(modified);
        let version = match answer::version(&self.etag) {
            "" => by_time(modified.as_second(), given),
            etag => etag.to_owned(),
        };
        Some(Listed { key: decode(&self.key)?, version, size: self.size.parse().ok()?, modified_ns })
    }
}

/// A name out of its encoding: a plus is a space, as in forms, for AWS and its followers write it so.
/// The version of an object without an ETag. Changed once more within the second, it would have the same: what was
/// changed just before it was listed may not be kept.
fn by_time(modified: i64, given: Option<i64>) -> String {
    let version = answer::of_time(modified);
    match given {
        Some(given) if modified + SETTLED_AFTER <= given => version,
        _ => format!("{UNSETTLED}{version}"),
    }
}

fn decode(name: &str) -> Option<String> {
    let spaced: Cow<'_, str> = if name.contains('+') { name.replace('+', " ").into() } else { name.into() };
    percent_decode_str(&spaced).decode_utf8().ok().map(Cow::into_owned)
}

/// Call `take` at the start of each element (without text) and at its end (with its text). Its path is of
/// local names joined by slashes, for servers differ in their namespaces.
pub fn walk(body: &[u8], take: &mut dyn FnMut(&str, Option<&str>)) -> std::result::Result<(), String> {
    let body = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let mut reader = Reader::from_str(body);
    let (mut path, mut text, mut is_encoded) = (String::new(), String::new(), false);
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) => {
                push(&mut path, start.local_name().into_inner());
                text.clear();
                // So Azure writes names that XML can't hold.
                is_encoded = matches!(start.try_get_attribute("Encoded"), Ok(Some(set)) if set.value == "true");
                take(&path, None);
            }
            Event::Empty(empty) => {
                push(&mut path, empty.local_name().into_inner());
                take(&path, None);
                take(&path, Some(""));
                pop(&mut path);
            }
            Event::End(_) => {
                if std::mem::take(&mut is_encoded) {
                    text = percent_decode_str(&text).decode_utf8().map_err(|error| error.to_string())?.into_owned();
                }
                take(&path, Some(&text));
                text.clear();
                pop(&mut path);
            }
            Event::Text(piece) => text.push_str(&piece.into_inner()),
            Event::CData(piece) => text.push_str(&piece.into_inner()),
            Event::GeneralRef(name) => text.push_str(&meant(&name).ok_or("an unknown entity")?),
            Event::Eof if path.is_empty() => return Ok(()),
            Event::Eof => return Err("cut short".into()),
            _ => {}
        }
    }
}

fn push(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('/');
    }
    path.push_str(name);
}

fn pop(path: &mut String) {
    path.truncate(path.rfind('/').unwrap_or(0));
}

/// The text that `&name;` stands for.
fn meant(name: &BytesRef<'_>) -> Option<String> {
    match name.resolve_char_ref().ok()? {
        Some(letter) => Some(letter.into()),
        None => resolve_predefined_entity(name).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(inside: &str) -> Result<Page> {
        let body =
            format!("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3\">{inside}</ListBucketResult>");
        parse(body.as_bytes(), Some(4), &"s3://b")
    }

    const TIMES: &str =
        "<LastModified>1970-01-01T00:00:02.500Z</LastModified><Size>7</Size><ETag>&quot;e-1&quot;</ETag>";

    #[test]
    fn names_are_decoded_exactly_and_only_if_they_are_encoded() {
        let contents = format!("<Contents><Key>a%2F%2Fb+c%2B%25%C3%A9</Key>{TIMES}</Contents>");
        let encoded = listing(&format!("{contents}<EncodingType>url</EncodingType>")).expect("a page");
        let expected =
            Listed { key: "a//b c+%\u{e9}".into(), version: "e-1".into(), size: 7, modified_ns: 2_500_000_000 };
        assert_eq!(encoded.listed, [expected]);
        let contents = format!("<Contents><Key>a+%2F&amp;&#x3c;</Key>{TIMES}</Contents>");
        assert_eq!(listing(&contents).expect("a page").listed[0].key, "a+%2F&<");
    }

    #[test]
    fn an_object_without_an_etag_is_known_by_its_time_and_kept_once_that_is_settled() {
        for (second, etag, expected) in [
            (2, "", "time:2"),
            (2, "<ETag>&quot;&quot;</ETag>", "time:2"),
            (3, "", "~time:3"),
            (3, "<ETag>&quot;e-1&quot;</ETag>", "e-1"),
        ] {
            let time = format!("<LastModified>1970-01-01T00:00:0{second}.500Z</LastModified>");
            let page =
                listing(&format!("<Contents><Key>a</Key><Size>7</Size>{time}{etag}</Contents>")).expect("a page");
            assert_eq!(page.listed[0].version, expected);
        }
    }

    #[test]
    fn a_page_tells_where_the_next_begins() {
        let page = listing(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>t/1=</NextContinuationToken>\
             <CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>",
        );
        let expected = Page { listed: Vec::new(), prefixes: vec!["a/".into(), "b/".into()], next: Some("t/1=".into()) };
        assert_eq!(page.expect("a page"), expected);
    }

    #[test]
    fn half_a_page_is_no_page() {
        assert!(listing("<IsTruncated>true</IsTruncated>").is_err(), "more is promised, but not where");
        assert!(listing("<Contents><Key>a</Key></Contents>").is_err(), "an entry without a size");
        assert!(parse(b"<ListBucketResult><Contents>", None, &"s3://b").is_err());
        for page in
            [&b"<html>proxy</html>"[..], b"\n<!DOCTYPE html>\n<html lang=en><meta>console", b"\xef\xbb\xbf<HTML>"]
        {
            let error = parse(page, None, &"s3://b").expect_err("a page for people");
            assert!(!error.passes() && error.hint.contains("is it the right port"), "{error}");
        }
        assert!(parse(b"", None, &"s3://b").is_err());
    }

    #[test]
    fn a_refusal_is_read_as_far_as_it_can_be() {
        let found = refusal(b"<Error><Code>NoSuchKey</Code><Message>gone &amp; lost</Message></Error>");
        assert_eq!((found.code.as_str(), found.message.as_str()), ("NoSuchKey", "gone & lost"));
        assert_eq!(refusal(b"upstream timed out").code, "");
    }
}
