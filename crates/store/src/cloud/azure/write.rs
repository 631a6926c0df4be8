//! Writing into a container: blobs in one request, or in blocks that are joined.
//!
//! Invariant: a list of blocks names exactly those that the server has confirmed.

use super::{Azure, Container};
use crate::counters::InFlight;
use crate::s3::answer;
use crate::{Counters, Listed, Part, Sink, Upload};
use block::{Error, Kind, Result, Waiting};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

const KIND: HeaderName = HeaderName::from_static("x-ms-blob-type");

impl Sink for Azure {
    fn put(&self, key: &str, content: Bytes) -> Waiting<()> {
        let (container, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            let mut headers = HeaderMap::new();
            headers.insert(KIND, HeaderValue::from_static("BlockBlob"));
            container.change(Method::PUT, &key, &[], headers, content).await
        })
    }

    fn begin(&self, key: &str) -> Waiting<Arc<dyn Upload>> {
        let begun = Begun { container: self.0.clone(), key: key.to_owned(), blocks: Mutex::default() };
        Box::pin(std::future::ready(Ok(Arc::new(Blocks(Arc::new(begun))) as Arc<dyn Upload>)))
    }

    fn delete(&self, key: &str) -> Waiting<()> {
        let (container, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            match container.change(Method::DELETE, &key, &[], HeaderMap::new(), Bytes::new()).await {
                Err(error) if error.kind == Kind::Missing => Ok(()),
                done => done,
            }
        })
    }

    fn find(&self, key: &str) -> Waiting<Listed> {
        let (container, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move { container.find(&key).await })
    }
}

/// A blob that is being written. Azure knows nothing of it but its blocks, which it forgets after a week.
struct Blocks(Arc<Begun>);

struct Begun {
    container: Arc<Container>,
    key: String,
    /// By number: the names of the blocks that the server has.
    blocks: Mutex<BTreeMap<u32, String>>,
}

impl Upload for Blocks {
    fn part(&self, place: Part, content: Bytes) -> Waiting<()> {
        let begun = self.0.clone();
        Box::pin(async move {
            // All names of a blob's blocks have one length.
            let name = answer::encode(u64::from(place.number).to_be_bytes());
            let query = [("blockid", name.as_str()), ("comp", "block")];
            begun.container.change(Method::PUT, &begun.key, &query, HeaderMap::new(), content).await?;
            begun.blocks.lock().unwrap_or_else(PoisonError::into_inner).insert(place.number, name);
            Ok(())
        })
    }

    fn complete(&self) -> Waiting<()> {
        let begun = self.0.clone();
        Box::pin(async move {
            let mut list = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
            for name in begun.blocks.lock().unwrap_or_else(PoisonError::into_inner).values() {
                let _ = write!(list, "<Latest>{name}</Latest>");
            }
            list.push_str("</BlockList>");
            let query = [("comp", "blocklist")];
            begun.container.change(Method::PUT, &begun.key, &query, HeaderMap::new(), list.into()).await
        })
    }

    fn abort(&self) -> Waiting<()> {
        self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Container {
    /// One request that changes something.
    async fn change(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        mut headers: HeaderMap,
        content: Bytes,
    ) -> Result<()> {
        let on = self.site.name_of(key);
        let _asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.writes, 1);
        let bytes = content.len() as u64;
        // It is signed, too.
        if method == Method::PUT {
            headers.insert(header::CONTENT_LENGTH, bytes.into());
        }
        let answer = self.ask(method, &self.blob(key, query), headers, content, &on).await?;
        Counters::add(&self.site.counters.bytes_written, bytes);
        self.site.text(answer, &on).await.map(drop)
    }

    pub(super) async fn find(&self, key: &str) -> Result<Listed> {
        let on = self.site.name_of(key);
        let _asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.heads, 1);
        let answer = self.ask(Method::HEAD, &self.blob(key, &[]), HeaderMap::new(), Bytes::new(), &on).await?;
        answer::listed(answer.headers(), key)
            .ok_or_else(|| Error::corrupt("the answer does not say which version and size it is of", &on))
    }
}
