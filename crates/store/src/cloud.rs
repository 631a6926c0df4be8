//! Google Cloud Storage and Azure Blob Storage by their own interfaces: one request a call, checked against what was
//! asked, as with [`crate::S3`].
//!
//! Who we are is `object_store`'s to know: it finds credentials, has tokens renewed and signs for Azure. The requests
//! are our own, because its paths can't spell every key (`a//b`, `dir/`) and its errors hide what patience goes by:
//! the status, and when to come back.
//!
//! Layout: `google`, `azure`, `web` (any server of files), `source` (who we are), `messenger` (how tokens are asked for), `refusal` (what a no
//! means).
//!
//! Invariant: a body that leaves here is of the version and the range that were asked for, and no secret leaves here
//! except as a token, a signature or a query that the server is to see.

pub(crate) mod azure;
pub(crate) mod google;
mod messenger;
pub(crate) mod refusal;
mod source;
mod web;

pub use azure::Azure;
pub use azure::account::blob_host as azure_host;
pub use google::Google;
pub use web::{TOKEN as WEB_TOKEN, Web};

use crate::Body;
use crate::Counters;
use crate::counters::InFlight;
use crate::retry::Chance;
use crate::s3::endpoint::Server;
use crate::s3::listing::Manner;
use crate::s3::wire::{self, Timeouts, Wire};
use block::{Checksum, Error, Kind, Object, Result};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use refusal::{Refusal, Service};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How to reach and use a bucket or a container.
#[derive(Clone)]
pub struct Settings {
    /// Server; that of the service itself if none. Azure's may have the account as its path.
    pub endpoint: Option<String>,
    /// What the tools of the service find credentials by: the variables of whoever asks.
    pub variables: BTreeMap<String, String>,
    /// Ask as nobody, for what is public.
    pub is_anonymous: bool,
    /// A profile of AWS was named, which means nothing here.
    pub has_profile: bool,
    /// When to call a silence a failure.
    pub timeouts: Timeouts,
    /// Requests of one listing at a time.
    pub list_requests: usize,
    /// How long a page of a listing is asked for again before the listing fails.
    pub list_budget: Duration,
    /// Bytes that one read of a connection may take at most.
    pub read_buffer: usize,
    /// Where chance begins: jitter of retries, choice among the addresses of a name.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            endpoint: None,
            variables: BTreeMap::new(),
            is_anonymous: false,
            has_profile: false,
            timeouts: Timeouts::default(),
            list_requests: 16,
            list_budget: Duration::from_secs(60),
            read_buffer: 512 << 10,
            seed: 0,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values of variables are secrets.
        let names: Vec<_> = self.variables.keys().collect();
        out.debug_struct("Settings")
            .field("endpoint", &self.endpoint)
            .field("variables", &names)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// A variable that is set to something.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn refuse_profile(&self, on: &str) -> Result<()> {
        if !self.has_profile {
            return Ok(());
        }
        let error = Error::invalid("a profile is one of AWS, and this store is not", on);
        Err(error.hint("leave out --profile; credentials are found as the service's own tools find them"))
    }
}

/// Bytes of a page of a listing: Azure's hold five thousand names, with a kilobyte around each.
const PAGE_MAX: usize = 32 << 20;

/// Bytes of an answer that is no object and no listing.
const ANSWER_MAX: usize = 64 << 10;

/// Who asks.
trait Asker: Sync {
    /// A request with what it is let in by.
    fn authorize<'a>(
        &'a self,
        request: Request<Bytes>,
        on: &'a (dyn fmt::Display + Sync),
    ) -> BoxFuture<'a, Result<Request<Bytes>>>;

    /// Have what a server no longer takes asked for anew, unless that was done since. False if that leads nowhere.
    fn renew<'a>(&'a self, since: Instant, on: &'a (dyn fmt::Display + Sync)) -> BoxFuture<'a, bool>;
}

/// A server, and what was asked of it.
struct Site {
    identity: Arc<str>,
    reach: u64,
    service: Service,
    server: Server,
    wire: Wire,
    counters: Arc<Counters>,
    chance: Arc<Chance>,
    settings: Settings,
}

impl Site {
    fn open(service: Service, identity: String, server: Server, settings: &Settings) -> Result<Site> {
        let chance = Arc::new(Chance::new(settings.seed));
        let is_secure = server.scheme == "https";
        let Settings { timeouts, read_buffer, variables, .. } = settings;
        let wire = Wire::open(is_secure, *timeouts, *read_buffer, chance.clone(), variables)?;
        let (reach, counters) = (reach(settings), Arc::default());
        let (identity, settings) = (identity.into(), settings.clone());
        Ok(Site { identity, reach, service, server, wire, counters, chance, settings })
    }

    /// Scheme, host and path of the server, without a slash at the end.
    fn base(&self) -> String {
        let Server { scheme, authority, path } = &self.server;
        format!("{scheme}://{authority}{path}")
    }

    fn manner(&self) -> Manner<'_> {
        let Settings { list_requests: requests, list_budget: budget, .. } = self.settings;
        let begins_anywhere = matches!(self.service, Service::Google);
        let Site { identity, counters, chance, .. } = self;
        Manner { identity, counters, chance, requests, budget, begins_anywhere }
    }

    fn name_of(&self, key: &str) -> String {
        format!("{}/{key}", self.identity)
    }

    /// One request and the head of its answer, if it says yes. Asked a second time only if credentials that ran out were
    /// the reason of the first no.
    async fn send(
        &self,
        who: &dyn Asker,
        request: Request<Bytes>,
        on: &(dyn fmt::Display + Sync),
    ) -> Result<Response<Incoming>> {
        let (host, began) = (&self.server.authority, Instant::now());
        let ask = async || {
            let request = who.authorize(request.clone(), on).await?;
            self.wire.send(request.map(Full::new), &self.counters, host, on).await
        };
        let answer = ask().await?;
        let answer = match answer.status() == StatusCode::UNAUTHORIZED && who.renew(began, on).await {
            true => ask().await?,
            false => answer,
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        let refusal = Refusal::read(answer, self.settings.timeouts.idle).await;
        let error = refusal.error(self.service, host, on);
        if matches!(error.kind, Kind::Unavailable { .. }) && refusal.is_throttling() {
            Counters::add(&self.counters.throttled, 1);
            return Err(error.throttled());
        }
        Err(error)
    }

    /// The body of a page of a listing. Where there is nothing of this name, the bucket itself is missing.
    async fn page(&self, who: &dyn Asker, request: Request<Bytes>, name: &str, on: &str) -> Result<Bytes> {
        let host = &self.server.authority;
        let answer = self.send(who, request, &on).await.map_err(|error| match error.kind {
            Kind::Missing => {
                let what = format!("there is no {} {name} on {host} ({})", self.service.bucket(), error.what);
                Error::missing(what, on).hint("check the name and the endpoint")
            }
            _ => error,
        })?;
        wire::page(answer, PAGE_MAX, self.settings.timeouts, &self.counters, on).await
    }

    /// The body of an answer as it arrives.
    fn arriving(
        &self,
        answer: Response<Incoming>,
        checksum: Option<Checksum>,
        asked: InFlight,
        object: &Object,
    ) -> Body {
        let arriving = wire::Arriving::new(answer.into_body(), self.settings.timeouts.idle, asked, object);
        Body { checksum, bytes: arriving.boxed() }
    }

    /// The body of an answer to a write, read to its end so that the connection can be used again.
    async fn text(&self, answer: Response<Incoming>, on: &str) -> Result<Bytes> {
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect();
        match tokio::time::timeout(self.settings.timeouts.first_byte, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(Error::unavailable(format!("the answer broke off: {error}"), on)),
            Err(_) => Err(Error::unavailable("the answer broke off: it took too long", on)),
        }
    }
}

/// A hash of what decides how a store is asked. It knows secrets, and so must not leave this process.
fn reach(settings: &Settings) -> u64 {
    let mut hash = std::hash::DefaultHasher::new();
    (&settings.endpoint, &settings.variables, settings.is_anonymous).hash(&mut hash);
    hash.finish()
}

/// The header that asks for a part.
fn range(range: &Range<u64>) -> HeaderValue {
    let asked = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
    HeaderValue::from_str(&asked).expect("digits")
}

/// An error of a request that can't be made.
fn no_request(on: &(dyn fmt::Display + Sync)) -> impl FnOnce(http::Error) -> Error + '_ {
    move |error| Error::invalid(format!("the name makes no URL: {error}"), on)
}

#[cfg(test)]
mod tests;
