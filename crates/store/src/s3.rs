//! Any server that speaks S3: one signed request a call, checked against what was asked.
//!
//! The requests are our own, because what decides is in the answer: its status, `Retry-After`, `ETag`,
//! `Content-Range` and checksums. Nothing here retries (except pages of a listing) or limits.
//!
//! Layout: `endpoint` (where the bucket is), `greet` (who answers there), `wire` (HTTP), `trust` (TLS), `configured` (where it was said to be), `sign`, `credentials` and `lend` (who we are), `answer`
//! (what was said), `listing` and `page` (names), `write` (objects that are made here).
//!
//! Invariant: a body that leaves here is of the version and the range that were asked for, and no secret
//! leaves here except as a signature.

pub(crate) mod answer;
mod configured;
pub(crate) mod credentials;
pub(crate) mod endpoint;
mod greet;
mod lend;
pub(crate) mod listing;
pub(crate) mod page;
mod sign;
mod trust;
pub(crate) mod wire;
mod write;

pub use configured::{Configured, Told, configured, profile as named_profile};
pub use credentials::{Credentials, Variables};
pub use greet::Greeting;
pub use lend::{Lent, lend, lender};
pub use wire::Timeouts;

use crate::counters::InFlight;
use crate::retry::Chance;
use crate::{Body, Counters, Pages, Store};
use block::{Checksum, Error, Kind, Object, Result, Waiting};
use bytes::Bytes;
use endpoint::Route;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use listing::{Listing, Manner, Question};
use page::Page;
use reqsign_aws_v4::Credential;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Asks the server to send the checksum that it keeps.
const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

/// How to reach and use a bucket.
#[derive(Clone)]
pub struct Settings {
    /// Server, such as `http://minio:9000`. AWS if none.
    pub endpoint: Option<String>,
    /// Region to sign for. Found out if none.
    pub region: Option<String>,
    /// Who we are.
    pub credentials: Credentials,
    /// Variables by which AWS's tools find credentials, those of whoever asks; where there are none, this process's own.
    pub variables: Variables,
    /// `host/bucket` rather than `bucket.host`. By default for every endpoint but AWS.
    pub path_style: Option<bool>,
    /// When to call a silence a failure.
    pub timeouts: Timeouts,
    /// Requests of one listing at a time. Sixteen pages in flight list some 100,000 keys a second on S3.
    pub list_requests: usize,
    /// How long a page of a listing is asked for again before the listing fails.
    pub list_budget: Duration,
    /// Bytes that one read of a connection may take at most. Large bodies cost fewer system calls with more; each
    /// connection has such a buffer, and a block keeps those that it came in.
    pub read_buffer: usize,
    /// Where chance begins: jitter of retries, choice among the addresses of a name.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            endpoint: None,
            region: None,
            credentials: Credentials::Found { profile: None },
            variables: Variables::new(),
            path_style: None,
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
        let Settings { endpoint, region, credentials, variables, .. } = self;
        // The values of variables may be secrets.
        let names: Vec<_> = variables.keys().collect();
        let mut shown = out.debug_struct("Settings");
        shown.field("endpoint", endpoint).field("region", region).field("credentials", credentials);
        shown.field("variables", &names).finish_non_exhaustive()
    }
}

/// One bucket.
#[derive(Clone)]
pub struct S3(Arc<Bucket>);

struct Bucket {
    identity: Arc<str>,
    reach: u64,
    name: String,
    /// Replaced when the server tells that the bucket lives in another region.
    route: RwLock<Arc<Route>>,
    wire: wire::Wire,
    signer: sign::Signer,
    counters: Arc<Counters>,
    chance: Arc<Chance>,
    settings: Settings,
}

impl S3 {
    /// Refuse names that can't be meant.
    pub async fn check(bucket: &str, settings: &Settings) -> Result<()> {
        Route::of(bucket, settings)?;
        credentials::check(&settings.credentials, &settings.variables).await
    }

    /// A bucket by name. Nothing is sent until something is asked.
    pub fn open(bucket: &str, settings: Settings) -> Result<S3> {
        let route = Route::of(bucket, &settings)?;
        let identity = endpoint::identity(bucket, &route).into();
        let reach = reach(&settings);
        let chance = Arc::new(Chance::new(settings.seed));
        let Settings { timeouts, read_buffer, variables, .. } = &settings;
        let wire = wire::Wire::open(route.is_secure(), *timeouts, *read_buffer, chance.clone(), variables)?;
        let signer = sign::Signer::new(&settings, &route.region, chance.clone());
        let route = RwLock::new(Arc::new(route));
        let (name, counters) = (bucket.to_owned(), Arc::default());
        Ok(S3(Arc::new(Bucket { identity, reach, name, route, wire, signer, counters, chance, settings })))
    }
}

impl Store for S3 {
    fn identity(&self) -> &Arc<str> {
        &self.0.identity
    }

    fn reach(&self) -> u64 {
        self.0.reach
    }

    fn who(&self) -> Waiting<String> {
        let bucket = self.0.clone();
        Box::pin(async move { bucket.signer.who(&bucket.identity).await })
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
        &self.0.counters
    }
}

impl Listing for Bucket {
    fn page<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.page(question))
    }

    fn manner(&self) -> Manner<'_> {
        let Settings { list_requests: requests, list_budget: budget, .. } = self.settings;
        let Bucket { identity, counters, chance, .. } = self;
        Manner { identity, counters, chance, requests, budget, begins_anywhere: true }
    }
}

impl Bucket {
    async fn get(self: Arc<Self>, object: &Object, range: Range<u64>) -> Result<Body> {
        let is_whole = range == (0..object.size);
        let mut headers = of_version(object)?;
        if !is_whole {
            let asked = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
            headers.insert(header::RANGE, HeaderValue::from_str(&asked).expect("digits"));
        }
        let in_flight = InFlight::begin(&self.counters);
        Counters::add(&self.counters.gets, 1);
        let answer =
            self.exchange(Method::GET, &|route| route.object(&object.key), headers, Bytes::new(), object).await?;
        answer::check(&answer, object, &range)?;
        let checksum = if is_whole { answer::checksum(answer.headers()) } else { None };
        let arriving = wire::Arriving::new(answer.into_body(), self.settings.timeouts.idle, in_flight, object);
        Ok(Body { checksum, bytes: arriving.boxed() })
    }

    async fn page(&self, question: Question<'_>) -> Result<Page> {
        let on = format!("{}/{}", self.identity, question.prefix);
        Counters::add(&self.counters.lists, 1);
        let _in_flight = InFlight::begin(&self.counters);
        let url = |route: &Route| listing_url(route, &question);
        let answer = self.exchange(Method::GET, &url, HeaderMap::new(), Bytes::new(), &on).await?;
        let given = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok()).and_then(answer::second);
        let body = wire::page(answer, listing::PAGE_MAX, self.settings.timeouts, &self.counters, &on).await?;
        let page = page::parse(&body, given, &on)?;
        let weak = page.listed.iter().filter(|listed| answer::time_of(&listed.version).is_some()).count();
        Counters::add(&self.counters.weak, weak as u64);
        Ok(page)
    }

    async fn checksum(&self, object: &Object) -> Result<Option<Checksum>> {
        let _in_flight = InFlight::begin(&self.counters);
        Counters::add(&self.counters.heads, 1);
        let headers = of_version(object)?;
        let answer =
            self.exchange(Method::HEAD, &|route| route.object(&object.key), headers, Bytes::new(), object).await?;
        answer::check_version(answer.headers(), object)?;
        Ok(answer::checksum(answer.headers()))
    }

    /// One request and the head of its answer, if it says yes. Asked a second time only if the first
    /// answer said what was wrong with the question: the region, or credentials that were just replaced.
    async fn exchange(
        &self,
        method: Method,
        url: &(dyn Fn(&Route) -> String + Sync),
        headers: HeaderMap,
        content: Bytes,
        on: &(dyn std::fmt::Display + Sync),
    ) -> Result<Response<Incoming>> {
        let mut is_last = false;
        loop {
            let route = self.route();
            let (head, used) = self.signed(method.clone(), &url(&route), headers.clone(), &route, on).await?;
            let request = Request::from_parts(head, Full::new(content.clone()));
            let answer = self.wire.send(request, &self.counters, &route.authority, on).await?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            let refusal = answer::Refusal::read(answer, self.settings.timeouts.idle).await;
            let is_mute = method == Method::HEAD && refusal.is_mute();
            let is_expired = || used.is_some_and(|used| self.expired(&refusal, &used, is_mute));
            let is_known = !is_last && (self.moved(&route, &refusal) || is_expired());
            if !is_known {
                let error = refusal.error(&route, &self.name, on);
                let error = if method.is_safe() { error } else { answer::of_write(error) };
                if matches!(error.kind, Kind::Unavailable { .. }) && refusal.is_throttling() {
                    Counters::add(&self.counters.throttled, 1);
                    return Err(error.throttled());
                }
                return Err(error);
            }
            is_last = true;
        }
    }

    async fn signed(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        route: &Route,
        on: &(dyn std::fmt::Display + Sync),
    ) -> Result<(Parts, Option<Arc<Credential>>)> {
        let request = Request::builder().method(method).uri(url).body(());
        let request = request.map_err(|error| Error::invalid(format!("the name makes no URL: {error}"), on))?;
        let (mut parts, ()) = request.into_parts();
        parts.headers = headers;
        let used = self.signer.sign(&mut parts, &route.region, on).await?;
        Ok((parts, used))
    }

    fn route(&self) -> Arc<Route> {
        self.route.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the bucket turned out to live in another region, to which requests go from now on.
    fn moved(&self, route: &Route, refusal: &answer::Refusal) -> bool {
        let Some(region) = refusal.region(&route.region) else { return false };
        tracing::debug!(bucket = self.name, region, "the bucket lives in another region");
        let moved = route.in_region(&self.name, region);
        *self.route.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(moved);
        true
    }

    /// Whether the credentials of a request are good no longer, or may be, so that fresh ones may do.
    fn expired(&self, refusal: &answer::Refusal, used: &Arc<Credential>, is_mute: bool) -> bool {
        let is_told = refusal.is_of_credentials();
        (is_told || is_mute) && self.signer.forget(used, is_told)
    }
}

fn listing_url(route: &Route, question: &Question<'_>) -> String {
    let mut query = vec![("encoding-type", "url"), ("list-type", "2"), ("prefix", question.prefix)];
    if question.is_folded {
        query.push(("delimiter", "/"));
    }
    query.extend(question.after.map(|after| ("start-after", after)));
    query.extend(question.next.map(|next| ("continuation-token", next)));
    route.bucket(&query)
}

/// A hash of what decides how a bucket is asked. It knows the secret, and so must not leave this process.
fn reach(settings: &Settings) -> u64 {
    let mut hash = std::hash::DefaultHasher::new();
    (&settings.endpoint, &settings.region, &settings.credentials, &settings.variables, settings.path_style)
        .hash(&mut hash);
    hash.finish()
}

/// Headers that ask for this version or nothing, and for its checksum.
fn of_version(object: &Object) -> Result<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(8);
    if answer::time_of(&object.version).is_none() {
        let version = HeaderValue::from_str(&format!("\"{}\"", object.version));
        let version = version.map_err(|_| Error::invalid("the version makes no header", object))?;
        headers.insert(header::IF_MATCH, version);
    }
    headers.insert(CHECKSUM_MODE, HeaderValue::from_static("ENABLED"));
    Ok(headers)
}

#[cfg(test)]
#[path = "s3/tests.rs"]
mod tests;
