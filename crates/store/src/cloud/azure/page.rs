//! Pages of a container's names.
//!
//! Invariant: a page that can't be understood as a whole is an error, never a shorter page.

use super::super::refusal::BOM;
use super::Container;
use crate::counters::InFlight;
use crate::s3::answer;
use crate::s3::endpoint::encode;
use crate::s3::listing::Question;
use crate::s3::page::{Page, walk};
use crate::{Counters, Listed};
use block::{Error, Result};
use bytes::Bytes;
use http::{HeaderMap, Method};

impl Container {
    pub(super) async fn page(&self, question: Question<'_>) -> Result<Page> {
        let on = self.site.name_of(question.prefix);
        Counters::add(&self.site.counters.lists, 1);
        let _asked = InFlight::begin(&self.site.counters);
        let url = format!("{}/{}?{}", self.site.base(), self.name, query(&question));
        let request = self.request(Method::GET, &url, HeaderMap::new(), Bytes::new(), &on)?;
        let body = self.site.page(&self.identity, request, &self.name, &on).await?;
        parse(&body, &on)
    }
}

/// A listing can't begin after a key in the version that is spoken: it begins anew, and what is known already is left
/// out by whoever asks.
fn query(question: &Question<'_>) -> String {
    let mut query = vec![("comp", "list"), ("prefix", question.prefix), ("restype", "container")];
    if question.is_folded {
        query.push(("delimiter", "/"));
    }
    query.extend(question.next.map(|next| ("marker", next)));
    encode(&query)
}

#[derive(Default)]
struct Draft {
    is_listing: bool,
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
    is_folder: bool,
}

/// A page of names out of the body of an answer.
pub fn parse(body: &[u8], on: &str) -> Result<Page> {
    let wrong = |what: &str| Error::corrupt(format!("the store's listing {what}"), on);
    let mut draft = Draft::default();
    let body = body.strip_prefix(BOM).unwrap_or(body);
    walk(body, &mut |path, text| draft.take(path, text)).map_err(|_| wrong("is no XML"))?;
    if !draft.is_listing {
        return Err(wrong("is no listing"));
    }
    // With a tree of real folders these are listed, too.
    let entries = draft.entries.into_iter().filter(|entry| !entry.is_folder);
    let listed = entries.map(Entry::listed).collect::<Option<_>>();
    let listed = listed.ok_or_else(|| wrong("has an entry that can't be read"))?;
    Ok(Page { listed, prefixes: draft.prefixes, next: draft.next.filter(|next| !next.is_empty()) })
}

impl Draft {
    fn take(&mut self, path: &str, text: Option<&str>) {
        let Some(within) = path.strip_prefix("EnumerationResults") else { return };
        match (within, text) {
            ("", None) => self.is_listing = true,
            ("/Blobs/Blob", None) => self.entries.push(Entry::default()),
            ("/NextMarker", Some(text)) => self.next = Some(text.into()),
            ("/Blobs/BlobPrefix/Name", Some(text)) => self.prefixes.push(text.into()),
            (_, Some(text)) => {
                let Some(entry) = self.entries.last_mut() else { return };
                match within {
                    "/Blobs/Blob/Name" => entry.key = text.into(),
                    "/Blobs/Blob/Properties/Etag" => entry.etag = text.into(),
                    "/Blobs/Blob/Properties/Content-Length" => entry.size = text.into(),
                    "/Blobs/Blob/Properties/Last-Modified" => entry.modified = text.into(),
                    "/Blobs/Blob/Properties/ResourceType" => entry.is_folder = text == "directory",
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

impl Entry {
    fn listed(self) -> Option<Listed> {
        let version = answer::version(&self.etag).to_owned();
        let modified_ns = answer::second(&self.modified)?.saturating_mul(1_000_000_000);
        let is_complete = !version.is_empty() && !self.key.is_empty();
        let size = self.size.parse().ok().filter(|_| is_complete)?;
        Some(Listed { key: self.key, version, size, modified_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(inside: &str) -> Result<Page> {
        let text = format!("\u{feff}<?xml version=\"1.0\"?><EnumerationResults>{inside}</EnumerationResults>");
        parse(text.as_bytes(), "o")
    }

    fn blob(name: &str, properties: &str) -> String {
        let fixed = "<Last-Modified>Thu, 01 Jan 1970 00:00:02 GMT</Last-Modified><Etag>0x8D1</Etag>";
        format!("<Blob>{name}<Properties>{fixed}{properties}</Properties></Blob>")
    }

    /// As an account with a hierarchical namespace answers with and without a delimiter: its folders have properties, and are
    /// listed among blobs.
    #[test]
    fn a_tree_of_real_folders_lists_its_files() {
        let file = blob("<Name>f/a</Name>", "<ResourceType>file</ResourceType><Content-Length>7</Content-Length>");
        let folder = "<Properties><Etag>0x8D2</Etag><ResourceType>directory</ResourceType>\
                      <Content-Length>0</Content-Length></Properties>";
        let folded = format!("<Blobs>{file}<BlobPrefix><Name>f/g/</Name>{folder}</BlobPrefix></Blobs>");
        let flat = format!("<Blobs>{file}<Blob><Name>f/g</Name>{folder}</Blob></Blobs>");
        let expected = Listed { key: "f/a".into(), version: "0x8D1".into(), size: 7, modified_ns: 2_000_000_000 };
        for (text, folders) in [(folded, vec!["f/g/".to_owned()]), (flat, vec![])] {
            let page = listing(&text).expect("a page");
            assert_eq!((page.listed, page.prefixes), (vec![expected.clone()], folders));
        }
    }

    #[test]
    fn a_page_holds_blobs_and_folders_but_no_directories() {
        let length = "<Content-Length>7</Content-Length>";
        let blobs = blob("<Name>a &amp; b</Name>", length)
            + &blob("<Name Encoded=\"true\">c%01d</Name>", length)
            + &blob("<Name>tree</Name>", &format!("{length}<ResourceType>directory</ResourceType>"));
        let folder = "<BlobPrefix><Name>f/</Name></BlobPrefix>";
        let page = listing(&format!("<Blobs>{blobs}{folder}</Blobs><NextMarker>m</NextMarker>")).expect("a page");
        let keys: Vec<_> = page.listed.iter().map(|listed| listed.key.as_str()).collect();
        assert_eq!(keys, ["a & b", "c\u{1}d"]);
        let expected = Listed { key: "a & b".into(), version: "0x8D1".into(), size: 7, modified_ns: 2_000_000_000 };
        assert_eq!((&page.listed[0], page.prefixes, page.next.as_deref()), (&expected, vec!["f/".into()], Some("m")));
        assert_eq!(listing("<Blobs /><NextMarker />").expect("nothing"), Page::default());
        let without = format!("<Blobs>{}</Blobs>", blob("<Name>a</Name>", ""));
        assert!(listing(&without).is_err() && parse(b"<html></html>", "o").is_err() && parse(b"{}", "o").is_err());
    }
}
