//! Google Cloud Storage by its JSON interface. A version is a generation, which names bytes once and for all.
//!
//! Layout: `adc` (who we are) and `machine` (whose machine this is), `page` (listings), `write`.
//!
//! Invariant: bytes come as they are stored; what is stored compressed stays so.

pub(crate) mod adc;
mod machine;
pub(crate) mod page;
mod write;

use super::refusal::Service;
use super::{Settings, Site, no_request};
use crate::counters::InFlight;
use crate::s3::answer::{check_range, decode, text};
use crate::s3::endpoint::{STRICT, Server, encode, named};
use crate::s3::listing::{self, Listing, Manner, Question};
use crate::s3::page::Page;
use crate::{Body, Counters, Pages, Store};
use block::{Checksum, Error, Object, Result, Waiting};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, header};
use hyper::body::Incoming;
use percent_encoding::utf8_percent_encode;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The service itself.
const SERVER: &str = "https://storage.googleapis.com";

/// How its names end.
const OWN: &str = ".googleapis.com";

/// Checksums that are remembered of objects whose parts were asked for: as many large objects as are fetched at once,
/// many times over.
const KNOWN_MAX: usize = 4096;

/// One bucket.
#[derive(Clone)]
pub struct Google(Arc<Bucket>);

struct Bucket {
    name: String,
    site: Site,
    identity: adc::Identity,
    /// What answers of parts said of the whole, so that no request is spent on it.
    known: Mutex<HashMap<Arc<Object>, Checksum>>,
}

impl Google {
    /// A bucket by name. Nothing is sent until something is asked.
    pub fn open(bucket: &str, settings: &Settings) -> Result<Google> {
        let is_fine = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'.' | b'_');
        if !(1..=222).contains(&bucket.len()) || !bucket.bytes().all(is_fine) {
            let error = Error::invalid("this can't be the name of a bucket", bucket);
            return Err(error.hint("write gs://bucket/prefix"));
        }
        let server = Server::parse(settings.endpoint.as_deref().unwrap_or(SERVER))?;
        // Some write the endpoint of a client library, which ends with the path of the interface.
        let path = server.path.strip_suffix("/storage/v1").unwrap_or(&server.path).to_owned();
        let server = Server { path, ..server };
        // Google's own names for itself, those of private networks among them, lead to the same buckets.
        let identity = match server.scheme == "https" && server.authority.ends_with(OWN) && server.path.is_empty() {
            true => format!("gs://{bucket}"),
            false => format!("gs://{bucket}@{}{}", named(server.scheme, &server.authority), server.path),
        };
        let site = Site::open(Service::Google, identity, server, settings)?;
        let identity = adc::Identity::new(settings, site.chance.clone());
        Ok(Google(Arc::new(Bucket { name: bucket.into(), site, identity, known: Mutex::default() })))
    }

    /// Where tokens come from, by name; none for nobody.
    pub async fn lender(&self) -> Result<Option<String>> {
        Ok(self.0.identity.source().await?.map(|found| found.source.name.clone()))
    }

    /// Refuse what can't be meant: a name, an endpoint, a file of credentials.
    pub async fn check(bucket: &str, settings: &Settings) -> Result<()> {
        settings.refuse_profile(&format!("gs://{bucket}"))?;
        Google::open(bucket, settings)?.0.identity.source().await.map(|_| ())
    }
}

impl Store for Google {
    fn identity(&self) -> &Arc<str> {
        &self.0.site.identity
    }

    fn reach(&self) -> u64 {
        self.0.site.reach
    }

    fn who(&self) -> Waiting<String> {
        let bucket = self.0.clone();
        Box::pin(async move { bucket.identity.who(&bucket.site.identity).await })
    }

    fn list(&self, prefix: &str) -> Pages {
        listing::pages(self.0.clone(), prefix.to_owned())
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        let (bucket, object) = (self.0.clone(), object.clone());
        Box::pin(async move { bucket.get(&object, range).await })
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        let (bucket, object) = (self.0.clone(), object.clone());
        Box::pin(async move { bucket.checksum(&object).await })
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.0.site.counters
    }
}

impl Listing for Bucket {
    fn page<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.page(question))
    }

    fn manner(&self) -> Manner<'_> {
        self.site.manner()
    }
}

impl Bucket {
    async fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Result<Body> {
        let is_whole = range == (0..object.size);
        let mut headers = HeaderMap::with_capacity(4);
        if !is_whole {
            headers.insert(header::RANGE, super::range(&range));
        }
        let asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.gets, 1);
        let query = [("alt", "media"), ("ifGenerationMatch", object.version.as_str())];
        let url = self.object(&object.key, &query);
        let answer = self.ask(Method::GET, &url, headers, Bytes::new(), object).await?;
        check_version(answer.headers(), object)?;
        check_range(answer.status(), answer.headers(), object, &range)?;
        let checksum = checksum(answer.headers());
        if let Some(checksum) = checksum.filter(|_| !is_whole) {
            self.know(object, checksum);
        }
        Ok(self.site.arriving(answer, checksum.filter(|_| is_whole), asked, object))
    }

    async fn checksum(&self, object: &Arc<Object>) -> Result<Option<Checksum>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
        if known.is_some() {
            return Ok(known);
        }
        let (now, checksum) = self.about(&object.key).await?;
        if now.version != object.version {
            return Err(Error::changed("the object has another version by now", &**object));
        }
        Ok(checksum)
    }

    fn know(&self, object: &Arc<Object>, checksum: Checksum) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(object.clone(), checksum);
    }

    /// URL of an object: its whole key is one step of the path.
    fn object(&self, key: &str, query: &[(&str, &str)]) -> String {
        let key = utf8_percent_encode(key, &STRICT);
        format!("{}/storage/v1/b/{}/o/{key}?{}", self.site.base(), self.name, encode(query))
    }

    fn request(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        content: Bytes,
        on: &(dyn std::fmt::Display + Sync),
    ) -> Result<Request<Bytes>> {
        let mut request = Request::builder().method(method).uri(url).body(content).map_err(no_request(on))?;
        *request.headers_mut() = headers;
        // Otherwise what is stored compressed is sent unpacked, with another length.
        request.headers_mut().insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static("gzip"));
        Ok(request)
    }

    /// One request, and the head of its answer if it says yes.
    async fn ask(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        content: Bytes,
        on: &(dyn std::fmt::Display + Sync),
    ) -> Result<Response<Incoming>> {
        self.site.send(&self.identity, self.request(method, url, headers, content, on)?, on).await
    }
}

/// Check that the answer is about the version that was asked for; a server may pass over the condition.
fn check_version(headers: &HeaderMap, object: &Object) -> Result<()> {
    match text(headers, "x-goog-generation") {
        Some(generation) if generation == object.version => Ok(()),
        Some(_) => Err(Error::changed("the object has another version by now", object)),
        None => Err(Error::invalid("the store does not say of which version its answer is", object)
            .hint("this server or a proxy before it leaves out x-goog-generation, which Stoker needs")),
    }
}

/// What the store says of all bytes of the object, whichever of them it sends.
fn checksum(headers: &HeaderMap) -> Option<Checksum> {
    let said = headers.get_all("x-goog-hash").into_iter().filter_map(|value| value.to_str().ok());
    let sum = said.flat_map(|value| value.split(',')).find_map(|sum| sum.trim().strip_prefix("crc32c="))?;
    decode::<4>(sum).map(|bytes| Checksum::Crc32C(u32::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_step_of_the_path_and_an_identity_knows_other_servers() {
        let google = |endpoint: Option<&str>| {
            let settings = Settings { endpoint: endpoint.map(Into::into), ..Settings::default() };
            Google::open("b", &settings).expect("a bucket")
        };
        assert_eq!(&**google(None).identity(), "gs://b");
        for own in ["https://storage.googleapis.com:443/", "https://storage-vpc.p.googleapis.com/storage/v1"] {
            assert_eq!(&**google(Some(own)).identity(), "gs://b", "{own}");
        }
        let own = google(Some("http://127.0.0.1:4443/storage/v1/"));
        assert_eq!(&**own.identity(), "gs://b@127.0.0.1:4443");
        for (other, identity) in [
            ("https://127.0.0.1:4443", "gs://b@https://127.0.0.1:4443"),
            ("http://storage.googleapis.com", "gs://b@storage.googleapis.com"),
        ] {
            assert_eq!(&**google(Some(other)).identity(), identity, "what is not proved is not taken for what is");
        }
        let url = own.0.object("a//b/../ü ?", &[("alt", "media")]);
        assert_eq!(url, "http://127.0.0.1:4443/storage/v1/b/b/o/a%2F%2Fb%2F..%2F%C3%BC%20%3F?alt=media");
        assert!(Google::open("a/b", &Settings::default()).is_err());
    }

    #[test]
    fn the_checksum_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append("x-goog-hash", "md5=AAAA".parse().expect("a header"));
        assert_eq!(checksum(&headers), None);
        headers.append("x-goog-hash", "md5=AAAA, crc32c=4waSgw==".parse().expect("a header"));
        assert_eq!(checksum(&headers), Some(Checksum::Crc32C(0xe306_9283)));
    }
}
