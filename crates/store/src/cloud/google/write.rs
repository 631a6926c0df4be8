//! Writing into a bucket: objects in one request. Parts are not written by this interface.
//!
//! Invariant: a write that says yes has stored the bytes that were sent, by the checksum that the store tells.

use super::{Bucket, Google};
use crate::counters::InFlight;
use crate::s3::answer::decode;
use crate::s3::endpoint::encode;
use crate::{Counters, Listed, Sink, Upload};
use block::{Checksum, Error, Kind, Result, Waiting};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use std::sync::Arc;

impl Sink for Google {
    fn put(&self, key: &str, content: Bytes) -> Waiting<()> {
        let (bucket, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move { bucket.put(&key, content).await })
    }

    fn begin(&self, key: &str) -> Waiting<Arc<dyn Upload>> {
        let error = Error::invalid("an object of this size can't be written to gs:// yet", self.0.site.name_of(key));
        let hint = "write it by the bucket's S3 interface: s3://bucket with --endpoint https://storage.googleapis.com \
                    and an HMAC key";
        Box::pin(std::future::ready(Err(error.hint(hint))))
    }

    fn delete(&self, key: &str) -> Waiting<()> {
        let (bucket, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move { bucket.delete(&key).await })
    }

    fn find(&self, key: &str) -> Waiting<Listed> {
        let (bucket, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move { bucket.about(&key).await.map(|(listed, _)| listed) })
    }
}

impl Bucket {
    async fn put(&self, key: &str, content: Bytes) -> Result<()> {
        let on = self.site.name_of(key);
        let _asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.writes, 1);
        let query = [("uploadType", "media"), ("name", key), ("fields", "crc32c")];
        let url = format!("{}/upload/storage/v1/b/{}/o?{}", self.site.base(), self.name, encode(&query));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(header::CONTENT_LENGTH, content.len().into());
        let answer = self.ask(Method::POST, &url, headers, content.clone(), &on).await?;
        let said = self.site.text(answer, &on).await?;
        Counters::add(&self.site.counters.bytes_written, content.len() as u64);
        let said = serde_json::from_slice::<serde_json::Value>(&said).unwrap_or_default();
        let stored = said["crc32c"].as_str().and_then(decode::<4>).map(u32::from_be_bytes);
        match stored {
            Some(stored) if !is_of(&content, Checksum::Crc32C(stored)) => {
                Err(Error::unavailable("the store has stored other bytes than were sent", &on))
            }
            _ => Ok(()),
        }
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let on = self.site.name_of(key);
        let _asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.writes, 1);
        match self.ask(Method::DELETE, &self.object(key, &[]), HeaderMap::new(), Bytes::new(), &on).await {
            Ok(answer) => self.site.text(answer, &on).await.map(drop),
            Err(error) if error.kind == Kind::Missing => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn is_of(content: &[u8], checksum: Checksum) -> bool {
    let mut digest = checksum.digest();
    digest.update(content);
    digest.matches(checksum)
}
