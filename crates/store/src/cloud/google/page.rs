//! What the interface tells as JSON: pages of a bucket's names, and what is known of one object. Asked for with the few
//! fields that are needed, which makes an answer a tenth as long.
//!
//! Invariant: a page that can't be understood as a whole is an error, never a shorter page.

use super::Bucket;
use crate::counters::InFlight;
use crate::s3::answer::{decode, nanoseconds};
use crate::s3::endpoint::encode;
use crate::s3::listing::Question;
use crate::s3::page::Page;
use crate::{Counters, Listed};
use block::{Checksum, Error, Result};
use bytes::Bytes;
use http::{HeaderMap, Method};
use reqsign_core::time::Timestamp;
use serde::Deserialize;

const FIELDS: &str = "items(name,size,generation,updated),prefixes,nextPageToken";

/// Keys of a page: as many as the service gives at most.
const KEYS: &str = "1000";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    prefixes: Vec<String>,
    next_page_token: Option<String>,
}

/// Numbers of 64 bits are texts in this interface.
#[derive(Deserialize)]
struct Item {
    name: String,
    size: String,
    generation: String,
    updated: String,
    crc32c: Option<String>,
}

impl Bucket {
    pub(super) async fn page(&self, question: Question<'_>) -> Result<Page> {
        let on = self.site.name_of(question.prefix);
        Counters::add(&self.site.counters.lists, 1);
        let _asked = InFlight::begin(&self.site.counters);
        let url = format!("{}/storage/v1/b/{}/o?{}", self.site.base(), self.name, query(&question));
        let request = self.request(Method::GET, &url, HeaderMap::new(), Bytes::new(), &on)?;
        let body = self.site.page(&self.identity, request, &self.name, &on).await?;
        parse(&body, &on)
    }

    /// What is known of an object now, and its checksum.
    pub(super) async fn about(&self, key: &str) -> Result<(Listed, Option<Checksum>)> {
        let on = self.site.name_of(key);
        let _asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.heads, 1);
        let url = self.object(key, &[("fields", "name,size,generation,updated,crc32c")]);
        let answer = self.ask(Method::GET, &url, HeaderMap::new(), Bytes::new(), &on).await?;
        let said = self.site.text(answer, &on).await?;
        let item = serde_json::from_slice::<Item>(&said).ok();
        let checksum = item.as_ref().and_then(|item| item.crc32c.as_deref()).and_then(decode::<4>);
        let checksum = checksum.map(|bytes| Checksum::Crc32C(u32::from_be_bytes(bytes)));
        let listed = item.and_then(Item::listed);
        let listed = listed.ok_or_else(|| Error::corrupt("what the store says of an object can't be read", &on))?;
        Ok((listed, checksum))
    }
}

fn query(question: &Question<'_>) -> String {
    let mut query = vec![("fields", FIELDS), ("maxResults", KEYS), ("prefix", question.prefix)];
    if question.is_folded {
        query.push(("delimiter", "/"));
    }
    query.extend(question.after.map(|after| ("startOffset", after)));
    query.extend(question.next.map(|next| ("pageToken", next)));
    encode(&query)
}

/// A page of names out of the body of an answer.
pub fn parse(body: &[u8], on: &str) -> Result<Page> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| Error::corrupt(format!("the store's listing can't be read: {error}"), on))?;
    let listed = answer.items.into_iter().map(Item::listed).collect::<Option<_>>();
    let listed = listed.ok_or_else(|| Error::corrupt("the store's listing has an entry that can't be read", on))?;
    Ok(Page { listed, prefixes: answer.prefixes, next: answer.next_page_token.filter(|next| !next.is_empty()) })
}

impl Item {
    fn listed(self) -> Option<Listed> {
        let Item { name: key, size, generation: version, updated, .. } = self;
        let modified_ns = nanoseconds(updated.parse::<Timestamp>().ok()?);
        Some(Listed { key, version, size: size.parse().ok()?, modified_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_understood_as_a_whole_or_not_at_all() {
        let item = r#"{"name": "a/b", "size": "7", "generation": "12", "updated": "1970-01-01T00:00:02.500Z"}"#;
        let page = parse(format!(r#"{{"items": [{item}], "prefixes": ["c/"], "nextPageToken": "n"}}"#).as_bytes(), "o");
        let listed = Listed { key: "a/b".into(), version: "12".into(), size: 7, modified_ns: 2_500_000_000 };
        let expected = Page { listed: vec![listed], prefixes: vec!["c/".into()], next: Some("n".into()) };
        assert_eq!(page.expect("a page"), expected);
        assert_eq!(parse(b"{}", "o").expect("an empty bucket"), Page::default());
        for wrong in [item.replace("\"7\"", "\"x\""), item.replace("\"12\"", "12"), item.replace("a/b", "a\u{1}")] {
            assert!(parse(format!(r#"{{"items": [{wrong}]}}"#).as_bytes(), "o").is_err(), "{wrong}");
        }
        assert!(parse(b"<html>", "o").is_err());
    }

    #[test]
    fn a_page_is_asked_for_where_the_last_one_ended() {
        let question = Question { prefix: "a b/", is_folded: true, after: None, next: Some("n=") };
        assert!(query(&question).ends_with("&prefix=a%20b%2F&delimiter=%2F&pageToken=n%3D"));
        let rest = Question { prefix: "", is_folded: false, after: Some("x/"), next: None };
        assert!(query(&rest).ends_with("&prefix=&startOffset=x%2F"));
    }
}
