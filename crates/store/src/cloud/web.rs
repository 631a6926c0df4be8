//! A web server as a store: files whose names a manifest tells, got by ranges of HTTP.
//!
//! Web servers tell no names, so it can't be listed. A version is the ETag; where there is none, the time of change to the second, as
//! with S3. A weak ETag is compared and not asked for, since servers compare strong ones alone in a condition.
//!
//! Invariant: no redirect is followed, so that a token is sent to the server that was named and to no other.

use super::refusal::Service;
use super::{Asker, Settings, Site, no_request};
use crate::counters::InFlight;
use crate::fingerprint;
use crate::s3::answer::{self, check_range, check_version, text, time_of};
use crate::s3::endpoint::{STRICT_PATH, Server};
use crate::{Body, Counters, Greeting, Listed, Pages, Sink, Store, Upload};
use block::{Checksum, Error, Object, Result, Waiting};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use percent_encoding::utf8_percent_encode;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use tokio::time::Instant;

/// The variable of a token that is sent with each request.
pub const TOKEN: &str = "STOKER_BEARER_TOKEN";

/// How a weak ETag begins.
const WEAK: &str = "W/";

/// One server.
#[derive(Clone)]
pub struct Web(Arc<Inner>);

struct Inner {
    site: Site,
    token: Token,
}

/// Who asks: whoever has this token, or nobody.
struct Token(Option<HeaderValue>);

impl Asker for Token {
    fn authorize<'a>(
        &'a self,
        mut request: Request<Bytes>,
        _on: &'a (dyn Display + Sync),
    ) -> BoxFuture<'a, Result<Request<Bytes>>> {
        if let Some(token) = &self.0 {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        Box::pin(std::future::ready(Ok(request)))
    }

    fn renew<'a>(&'a self, _since: Instant, _on: &'a (dyn Display + Sync)) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }
}

impl Web {
    /// A server by its scheme, host and port. Nothing is sent until something is asked.
    pub fn open(server: &str, settings: &Settings) -> Result<Web> {
        let server = Server::parse(server)?;
        let identity = format!("{}://{}", server.scheme, server.authority);
        let token = settings.variable(TOKEN).filter(|_| !settings.is_anonymous).map(|token| {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let value = value.map_err(|_| {
                Error::invalid("the token makes no header", TOKEN).hint("it has letters, digits and -._~+/= alone")
            });
            value.map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let site = Site::open(Service::Web, identity, server, settings)?;
        Ok(Web(Arc::new(Inner { site, token: Token(token.transpose()?) })))
    }

    /// Ask the server for nothing but an answer: whatever it thinks of the question, that it answered is what counts.
    pub async fn greet(&self) -> Result<Greeting> {
        let (site, on) = (&self.0.site, &self.0.site.identity);
        let request = self.0.request(Method::HEAD, "", HeaderMap::new(), on)?.map(Full::new);
        let answer = site.wire.send(request, &site.counters, &site.server.authority, on).await?;
        Ok(Greeting {
            host: site.server.authority.clone(),
            is_secure: site.server.scheme == "https",
            clock: text(answer.headers(), header::DATE.as_str()).and_then(answer::second),
        })
    }

    /// Refuse what can't be meant.
    pub fn check(server: &str, settings: &Settings) -> Result<()> {
        settings.refuse_profile(server)?;
        match &settings.endpoint {
            Some(endpoint) => {
                let error = Error::invalid("a web server is where its URL says", endpoint);
                Err(error.hint("leave out --endpoint"))
            }
            None => Web::open(server, settings).map(|_| ()),
        }
    }
}

impl Store for Web {
    fn identity(&self) -> &Arc<str> {
        &self.0.site.identity
    }

    fn reach(&self) -> u64 {
        self.0.site.reach
    }

    fn who(&self) -> Waiting<String> {
        let token = self.0.token.0.as_ref();
        let who =
            token.map_or_else(String::new, |token| format!("bearer {}", fingerprint::of("bearer", token.as_bytes())));
        Box::pin(std::future::ready(Ok(who)))
    }

    fn list(&self, prefix: &str) -> Pages {
        let error = Error::invalid("a web server does not tell the names of its files", self.0.site.name_of(prefix));
        let error = error.hint(
            "mount it with --manifest FILE; `stoker manifest import LIST URL -o FILE` makes one of a list of paths",
        );
        stream::iter([Err(error)]).boxed()
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        let (inner, object) = (self.0.clone(), object.clone());
        Box::pin(async move { inner.get(&object, range).await })
    }

    fn checksum(&self, object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        let (inner, object) = (self.0.clone(), object.clone());
        Box::pin(async move {
            let answer = inner.head(&object.key, condition(&object)?, &*object).await?;
            check_version(answer.headers(), &object)?;
            match length(answer.headers()) {
                Some(size) if size != object.size => {
                    let what = format!("the file has {size} bytes where {} were listed", object.size);
                    Err(Error::changed(what, &*object))
                }
                _ => Ok(None),
            }
        })
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.0.site.counters
    }
}

impl Inner {
    fn request(
        &self,
        method: Method,
        key: &str,
        mut headers: HeaderMap,
        on: &(dyn Display + Sync),
    ) -> Result<Request<Bytes>> {
        let url = format!("{}/{}", self.site.base(), utf8_percent_encode(key, &STRICT_PATH));
        // What is compressed on its way has another length, and no ranges.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut request = Request::builder().method(method).uri(url).body(Bytes::new()).map_err(no_request(on))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn get(&self, object: &Object, range: Range<u64>) -> Result<Body> {
        let mut headers = condition(object)?;
        if range != (0..object.size) {
            headers.insert(header::RANGE, super::range(&range));
        }
        let asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.gets, 1);
        let request = self.request(Method::GET, &object.key, headers, object)?;
        let answer = self.site.send(&self.token, request, object).await?;
        check_version(answer.headers(), object)?;
        check_range(answer.status(), answer.headers(), object, &range)?;
        Ok(self.site.arriving(answer, None, asked, object))
    }

    async fn head(&self, key: &str, headers: HeaderMap, on: &(dyn Display + Sync)) -> Result<Response<Incoming>> {
        let _asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.heads, 1);
        self.site.send(&self.token, self.request(Method::HEAD, key, headers, on)?, on).await
    }

    async fn find(&self, key: &str) -> Result<Listed> {
        let on = self.site.name_of(key);
        let answer = self.head(key, HeaderMap::new(), &on).await?;
        let found = answer::listed(answer.headers(), key).ok_or_else(|| {
            let error = Error::invalid("the server tells no size, or neither ETag nor Last-Modified", &on);
            error.hint(
                "Stoker reads files whose bytes a version names: serve them as files, not as pages made on request",
            )
        })?;
        Counters::add(&self.site.counters.weak, u64::from(time_of(&found.version).is_some()));
        Ok(found)
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    text(headers, "content-length")?.parse().ok()
}

/// Headers that ask for this version or nothing, where that can be asked.
fn condition(object: &Object) -> Result<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(4);
    if time_of(&object.version).is_none() && !object.version.starts_with(WEAK) {
        let version = HeaderValue::from_str(&format!("\"{}\"", object.version));
        headers.insert(header::IF_MATCH, version.map_err(|_| Error::invalid("the version makes no header", object))?);
    }
    Ok(headers)
}

/// A web server takes no files; heads of them are asked for all the same.
impl Sink for Web {
    fn put(&self, key: &str, _content: Bytes) -> Waiting<()> {
        self.refused(key)
    }

    fn begin(&self, key: &str) -> Waiting<Arc<dyn Upload>> {
        self.refused(key)
    }

    fn delete(&self, key: &str) -> Waiting<()> {
        self.refused(key)
    }

    fn find(&self, key: &str) -> Waiting<Listed> {
        let (inner, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move { inner.find(&key).await })
    }
}

impl Web {
    fn refused<T: Send + 'static>(&self, key: &str) -> Waiting<T> {
        let error = Error::invalid("nothing is written to a web server", self.0.site.name_of(key));
        Box::pin(std::future::ready(Err(error.hint("name a bucket or a folder"))))
    }
}

#[cfg(test)]
mod tests;
