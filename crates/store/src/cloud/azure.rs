//! Azure Blob Storage by its own interface. A version is an ETag.
//!
//! Layout: `account` (which, and where it is), `keys` and `cli` (who we are), `page` (listings), `write`.
//!
//! Invariant: a request is signed as it is sent, its headers and its query included.

pub mod account;
mod cli;
mod keys;
pub(crate) mod page;
mod write;

use super::refusal::Service;
use super::{Settings, Site, no_request};
use crate::counters::InFlight;
use crate::s3::answer::{check_range, check_version};
use crate::s3::endpoint::{STRICT_PATH, encode};
use crate::s3::listing::{self, Listing, Manner, Question};
use crate::s3::page::Page;
use crate::{Body, Counters, Pages, Store};
use account::Account;
use block::{Checksum, Error, Kind, Object, Result, Waiting};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use percent_encoding::utf8_percent_encode;
use std::ops::Range;
use std::sync::Arc;

/// The interface that is spoken. Emulators know this one; later ones add nothing that is of use here.
const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-ms-version"), HeaderValue::from_static("2021-12-02"));

/// One container.
#[derive(Clone)]
pub struct Azure(pub(super) Arc<Container>);

pub(super) struct Container {
    pub(super) name: String,
    pub(super) site: Site,
    identity: keys::Identity,
}

impl Azure {
    /// A container by name; `host` is that of its account, if the location names it. Nothing is sent until something
    /// is asked.
    pub fn open(container: &str, host: Option<&str>, settings: &Settings) -> Result<Azure> {
        let is_fine = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'$');
        if !(1..=63).contains(&container.len()) || !container.bytes().all(is_fine) {
            let error = Error::invalid("this can't be the name of a container", container);
            return Err(error.hint("write az://container/prefix"));
        }
        let account = Account::of(host, settings)?;
        let identity = account.identity(container);
        let site = Site::open(Service::Azure, identity, account.server.clone(), settings)?;
        let identity = keys::Identity::new(account, settings, site.chance.clone());
        Ok(Azure(Arc::new(Container { name: container.into(), site, identity })))
    }

    /// Where credentials come from, by name; none for nobody.
    pub async fn lender(&self) -> Result<Option<String>> {
        Ok(self.0.identity.source(&self.identity()).await?.map(|source| source.name.clone()))
    }

    /// Refuse what can't be meant: a name, an endpoint, a key.
    pub async fn check(container: &str, host: Option<&str>, settings: &Settings) -> Result<()> {
        let on = format!("az://{container}");
        settings.refuse_profile(&on)?;
        Azure::open(container, host, settings)?.0.identity.source(&on).await.map(|_| ())
    }
}

impl Store for Azure {
    fn identity(&self) -> &Arc<str> {
        &self.0.site.identity
    }

    fn reach(&self) -> u64 {
        self.0.site.reach
    }

    fn who(&self) -> Waiting<String> {
        let container = self.0.clone();
        Box::pin(async move { container.identity.who(&container.site.identity).await })
    }

    fn list(&self, prefix: &str) -> Pages {
        listing::pages(self.0.clone(), prefix.to_owned())
    }

    fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Waiting<Body> {
        let (container, object) = (self.0.clone(), object.clone());
        Box::pin(async move { container.get(&object, range).await })
    }

    /// Azure keeps an MD5 of what was written whole, which is none of ours; so nothing is asked.
    fn checksum(&self, _object: &Arc<Object>) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.0.site.counters
    }
}

impl Listing for Container {
    fn page<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.page(question))
    }

    fn manner(&self) -> Manner<'_> {
        self.site.manner()
    }
}

impl Container {
    async fn get(&self, object: &Arc<Object>, range: Range<u64>) -> Result<Body> {
        let mut headers = HeaderMap::with_capacity(8);
        let version = HeaderValue::from_str(&format!("\"{}\"", object.version));
        let version = version.map_err(|_| Error::invalid("the version makes no header", object))?;
        headers.insert(header::IF_MATCH, version);
        if range != (0..object.size) {
            headers.insert(header::RANGE, super::range(&range));
        }
        let asked = InFlight::begin(&self.site.counters);
        Counters::add(&self.site.counters.gets, 1);
        let answer = match self.ask(Method::GET, &self.blob(&object.key, &[]), headers, Bytes::new(), object).await {
            // Emulators say so of what is gone, too; which of both it is matters to who asks.
            Err(error) if error.kind == Kind::Changed => {
                return Err(self
                    .find(&object.key)
                    .await
                    .err()
                    .filter(|gone| gone.kind == Kind::Missing)
                    .unwrap_or(error));
            }
            answer => answer?,
        };
        check_version(answer.headers(), object)?;
        check_range(answer.status(), answer.headers(), object, &range)?;
        Ok(self.site.arriving(answer, None, asked, object))
    }

    /// URL of a blob.
    fn blob(&self, key: &str, query: &[(&str, &str)]) -> String {
        let key = utf8_percent_encode(key, &STRICT_PATH);
        let url = format!("{}/{}/{key}", self.site.base(), self.name);
        if query.is_empty() { url } else { format!("{url}?{}", encode(query)) }
    }

    pub(super) fn request(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        content: Bytes,
        on: &(dyn std::fmt::Display + Sync),
    ) -> Result<Request<Bytes>> {
        let mut request = Request::builder().method(method).uri(url).body(content).map_err(no_request(on))?;
        *request.headers_mut() = headers;
        let (name, version) = VERSION;
        request.headers_mut().insert(name, version);
        Ok(request)
    }

    /// One request, and the head of its answer if it says yes.
    pub(super) async fn ask(
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
