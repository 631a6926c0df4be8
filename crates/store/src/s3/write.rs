//! Writing: objects in one request or in parts, each body with its checksum, which the server compares.
//!
//! Invariant: an upload names exactly the parts that the server has confirmed; a server that says yes and means no
//! (a failure in the body of a 200) is not believed.

use super::answer;
use super::endpoint::Route;
use super::page;
use super::{Bucket, S3};
use crate::counters::InFlight;
use crate::sink::{Part, Sink, Upload};
use crate::{Counters, Listed};
use block::{Error, Result, Waiting, crc64};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// What the body is said to be. Servers that don't know it leave it out of account.
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-crc64nvme");
const CHECKSUM_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");

/// Bytes of an answer to a write that are read. Real ones have a few hundred.
const ANSWER_MAX: usize = 64 << 10;

impl Sink for S3 {
    fn put(&self, key: &str, content: Bytes) -> Waiting<()> {
        let (bucket, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            let answer = bucket.change(Method::PUT, &key, &[], checked(&checksum(&content)), content).await?;
            bucket.text(answer, &key).await.map(drop)
        })
    }

    fn begin(&self, key: &str) -> Waiting<Arc<dyn Upload>> {
        let (bucket, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            let mut headers = HeaderMap::new();
            headers.insert(CHECKSUM_ALGORITHM, HeaderValue::from_static("CRC64NVME"));
            headers.insert(CHECKSUM_TYPE, HeaderValue::from_static("FULL_OBJECT"));
            let answer = bucket.change(Method::POST, &key, &[("uploads", "")], headers, Bytes::new()).await?;
            let said = bucket.text(answer, &key).await?;
            let id = page::upload(&said)
                .ok_or_else(|| Error::corrupt("the store began an upload without naming it", bucket.name_of(&key)))?;
            let parts = Mutex::default();
            Ok(Arc::new(Parts(Arc::new(Begun { bucket, key, id, parts }))) as Arc<dyn Upload>)
        })
    }

    fn delete(&self, key: &str) -> Waiting<()> {
        let (bucket, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            let answer = bucket.change(Method::DELETE, &key, &[], HeaderMap::new(), Bytes::new()).await;
            match answer {
                Ok(answer) => bucket.text(answer, &key).await.map(drop),
                Err(error) if error.kind == block::Kind::Missing && !error.what.starts_with("there is no bucket") => {
                    Ok(())
                }
                Err(error) => Err(error),
            }
        })
    }

    fn find(&self, key: &str) -> Waiting<Listed> {
        let (bucket, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            let on = bucket.name_of(&key);
            let _in_flight = InFlight::begin(&bucket.counters);
            Counters::add(&bucket.counters.heads, 1);
            let url = |route: &Route| route.object(&key);
            let answer = bucket.exchange(Method::HEAD, &url, HeaderMap::new(), Bytes::new(), &on).await?;
            answer::listed(answer.headers(), &key)
                .ok_or_else(|| Error::corrupt("the answer does not say which version and size it is of", &on))
        })
    }
}

/// An upload that a server has begun.
struct Parts(Arc<Begun>);

struct Begun {
    bucket: Arc<Bucket>,
    key: String,
    id: String,
    /// By number: the parts that the server has.
    parts: Mutex<BTreeMap<u32, Taken>>,
}

/// A part that the server has.
struct Taken {
    /// What the server calls it.
    etag: String,
    /// Its checksum, by which it was compared on arrival and is named again when the parts are joined.
    checksum: String,
}

impl Upload for Parts {
    fn part(&self, place: Part, content: Bytes) -> Waiting<()> {
        let begun = self.0.clone();
        Box::pin(async move {
            let number = place.number.to_string();
            let query = [("partNumber", number.as_str()), ("uploadId", begun.id.as_str())];
            let checksum = checksum(&content);
            let headers = checked(&checksum);
            let answer = begun.bucket.change(Method::PUT, &begun.key, &query, headers, content).await?;
            let etag = answer.headers().get(http::header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
            begun.bucket.text(answer, &begun.key).await?;
            let etag = etag.ok_or_else(|| {
                Error::corrupt("the store took a part without naming it", begun.bucket.name_of(&begun.key))
            })?;
            begun.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(place.number, Taken { etag, checksum });
            Ok(())
        })
    }

    fn complete(&self) -> Waiting<()> {
        let begun = self.0.clone();
        Box::pin(async move {
            let list = begun.list();
            let query = [("uploadId", begun.id.as_str())];
            let answer = begun.bucket.change(Method::POST, &begun.key, &query, HeaderMap::new(), list.into()).await?;
            let said = begun.bucket.text(answer, &begun.key).await?;
            if page::is_completed(&said) {
                return Ok(());
            }
            let page::Refusal { code, message, .. } = page::refusal(&said);
            let what = format!("the store did not join the parts of an upload: {code}: {message}");
            Err(Error::unavailable(what, begun.bucket.name_of(&begun.key)))
        })
    }

    fn abort(&self) -> Waiting<()> {
        let begun = self.0.clone();
        Box::pin(async move {
            let query = [("uploadId", begun.id.as_str())];
            let answer =
                begun.bucket.change(Method::DELETE, &begun.key, &query, HeaderMap::new(), Bytes::new()).await?;
            begun.bucket.text(answer, &begun.key).await.map(drop)
        })
    }
}

impl Begun {
    /// The parts in their order, as the request that joins them lists them.
    fn list(&self) -> String {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        for (number, Taken { etag, checksum }) in &*parts {
            let etag = quick_xml::escape::escape(etag);
            let _ = write!(list, "<Part><ChecksumCRC64NVME>{checksum}</ChecksumCRC64NVME><ETag>{etag}</ETag>");
            let _ = write!(list, "<PartNumber>{number}</PartNumber></Part>");
        }
        list.push_str("</CompleteMultipartUpload>");
        list
    }
}

impl Bucket {
    fn name_of(&self, key: &str) -> String {
        format!("{}/{key}", self.identity)
    }

    /// One request that changes something.
    async fn change(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: HeaderMap,
        content: Bytes,
    ) -> Result<Response<Incoming>> {
        let _in_flight = InFlight::begin(&self.counters);
        Counters::add(&self.counters.writes, 1);
        let bytes = content.len() as u64;
        let url = |route: &Route| route.object_with(key, query);
        let answer = self.exchange(method, &url, headers, content, &self.name_of(key)).await?;
        Counters::add(&self.counters.bytes_written, bytes);
        Ok(answer)
    }

    /// The body of an answer to a write. Read to its end, so that the connection can be used again.
    async fn text(&self, answer: Response<Incoming>, key: &str) -> Result<Bytes> {
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect();
        let failed = |why: &dyn Display| Error::unavailable(format!("the answer broke off: {why}"), self.name_of(key));
        match tokio::time::timeout(self.settings.timeouts.first_byte, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(failed(&"it took too long")),
        }
    }
}

/// The checksum of a body, as headers and lists of parts have it.
fn checksum(content: &Bytes) -> String {
    answer::encode(crc64::of(content).to_be_bytes())
}

/// The header that lets the server check a body.
fn checked(checksum: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CHECKSUM, HeaderValue::from_str(checksum).expect("base64 is a header"));
    headers
}
