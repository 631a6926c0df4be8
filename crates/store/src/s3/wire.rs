//! HTTP/1.1 to a store: connections kept open, silences bounded, bodies delivered as they arrive.
//!
//! There is no limit on the time of a whole request: a large body on a slow link is no failure, a silence
//! is. HTTP/1 only: with HTTP/2 many requests would share one connection, which is slower at many gigabits.
//!
//! Invariant: no wait without an end.

use super::answer::brief;
use super::credentials::Variables;
use super::trust;
use crate::Counters;
use crate::counters::InFlight;
use crate::retry::Chance;
use block::{Error, Kind, Object, Result};
use bytes::Bytes;
use futures_util::Stream;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::fmt::{Display, Write};
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};

/// Idle connections kept to one host: as many as requests are ever in flight, so that none is opened twice.
const IDLE_CONNECTIONS: usize = 256;

/// How long an idle connection is kept. Most servers close after a minute or later.
const IDLE_CONNECTION: Duration = Duration::from_secs(50);

/// How often the kernel asks whether a silent peer still lives.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Bytes a second at which the body of a request is sent at least; slower is called a failure.
const SLOWEST: u64 = 128 << 10;

/// When to call a silence a failure.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Until a connection stands. Five seconds cover two lost packets of the handshake.
    pub connect: Duration,
    /// From a request to its answer. S3 answers in 0.2 s, but a cold or busy server may take seconds.
    pub first_byte: Duration,
    /// Between two pieces of a body.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { connect: Duration::from_secs(5), first_byte: Duration::from_secs(20), idle: Duration::from_secs(15) }
    }
}

/// How the library that connects begins the words about a name that has no address.
const NO_SUCH_NAME: &str = "dns error";

type Connector = HttpsConnector<HttpConnector<Spread>>;

/// A client and its connections.
pub struct Wire {
    client: Client<Connector, Full<Bytes>>,
    timeouts: Timeouts,
}

impl Wire {
    /// A client; one that is to be secure reads the certificates of the system.
    /// `read_buffer`: see [`super::Settings`]. `variables`: those by which it is known whose certificates are trusted.
    pub fn open(
        is_secure: bool,
        timeouts: Timeouts,
        read_buffer: usize,
        chance: Arc<Chance>,
        variables: &Variables,
    ) -> Result<Wire> {
        let mut connector =
            HttpConnector::new_with_resolver(Spread { turns: Arc::new(Semaphore::new(LOOKUPS)), chance });
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_connect_timeout(Some(timeouts.connect));
        let secure = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(trust::config(is_secure, variables)?);
        let connector = secure.https_or_http().enable_http1().wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(read_buffer)
            .build(connector);
        Ok(Wire { client, timeouts })
    }

    /// The head of an answer, whatever its status.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
        counters: &Counters,
        host: &str,
        on: &(dyn Display + Sync),
    ) -> Result<Response<Incoming>> {
        let began = Instant::now();
        let bytes = request.body().size_hint().exact().unwrap_or_default();
        let limit = self.timeouts.connect + self.timeouts.first_byte + Duration::from_secs(bytes / SLOWEST);
        let Ok(answer) = tokio::time::timeout(limit, self.client.request(request)).await else {
            let what = format!("{host} did not answer within {} s", limit.as_secs_f64());
            return Err(Error::unavailable(what, on));
        };
        let answer = answer.map_err(|error| failed(&error, host, on))?;
        counters.answered_after(began.elapsed());
        Ok(answer)
    }
}

fn failed(error: &ClientError, host: &str, on: &(dyn Display + Sync)) -> Error {
    let causes = causes(error);
    if is_distrust(error) {
        return Error::denied(format!("{host} can't be trusted: {causes}"), on)
            .hint("check the endpoint's name, or name its certificate by AWS_CA_BUNDLE or SSL_CERT_FILE");
    }
    if finds(error, |error: &rustls::Error| matches!(error, rustls::Error::InvalidMessage(_))) {
        return Error::unavailable(format!("{host} does not speak TLS: {causes}"), on)
            .hint("write the endpoint as http://, or name the port that speaks TLS")
            .unreachable();
    }
    if finds(error, |error: &hyper::Error| error.is_parse()) {
        return Error::unavailable(format!("{host} does not speak plain HTTP: {causes}"), on)
            .hint("write the endpoint as https://, or name the port that speaks HTTP")
            .unreachable();
    }
    if error.is_connect() {
        let what = format!("can't connect to {host}: {causes}");
        let error_of_host =
            Error::unavailable(what, on).hint("check that the endpoint is right and that the server runs");
        let is_refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
        let is_nobody = finds(error, is_refused) || causes.contains(NO_SUCH_NAME);
        return if is_nobody { error_of_host.unreachable() } else { error_of_host };
    }
    Error::unavailable(format!("the request to {host} broke off: {causes}"), on)
}

/// Whether the certificate of the server was refused, which no further try will mend.
fn is_distrust(error: &(dyn std::error::Error + 'static)) -> bool {
    finds(error, |error: &rustls::Error| matches!(error, rustls::Error::InvalidCertificate(_)))
}

/// Whether an error, or one that led to it, is such a one.
pub fn finds<E: std::error::Error + 'static>(
    error: &(dyn std::error::Error + 'static),
    is: impl Fn(&E) -> bool,
) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref().is_some_and(&is) {
            return true;
        }
        // The source of an error of input and output is that of the error in it, which would be passed over.
        next = match error.downcast_ref().and_then(std::io::Error::get_ref) {
            Some(within) => Some(within),
            None => error.source(),
        };
    }
    false
}

/// An error and what caused it, without repeating itself.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let line = error.to_string();
        if !text.contains(&line) {
            let _ = write!(text, "{}{line}", if text.is_empty() { "" } else { ": " });
        }
        next = error.source();
    }
    text
}

/// How libraries begin to repeat what they don't understand.
const REPEATS: [&str; 2] = ["invalid type: ", "invalid value: "];

/// The same of somebody who hands out secrets: on one line, and nothing of an answer that was not understood.
pub fn discreet(error: &dyn std::error::Error) -> String {
    let text = causes(error);
    let end = REPEATS.iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    brief(text[..end].trim_end_matches([' ', ':']))
}

/// A page of a listing, whole.
pub async fn page(
    answer: Response<Incoming>,
    max: usize,
    timeouts: Timeouts,
    counters: &Counters,
    on: &str,
) -> Result<Bytes> {
    let body = Limited::new(answer.into_body(), max).collect();
    let body = tokio::time::timeout(timeouts.first_byte + timeouts.idle, body).await;
    let body = body.map_err(|_| Error::unavailable("a page of the listing did not arrive in time", on))?;
    let body = body.map_err(|error| Error::unavailable(format!("a page of the listing broke off: {error}"), on))?;
    let body = body.to_bytes();
    Counters::add(&counters.bytes, body.len() as u64);
    Ok(body)
}

/// A body on its way. Dropping it closes the connection, unless the body was complete.
pub struct Arriving {
    body: Incoming,
    /// Armed only while nothing arrives: most pieces of a fast body cost no timer.
    silence: Option<Pin<Box<Sleep>>>,
    idle: Duration,
    in_flight: InFlight,
    on: String,
    is_over: bool,
}

impl Arriving {
    pub fn new(body: Incoming, idle: Duration, in_flight: InFlight, object: &Object) -> Arriving {
        Arriving { body, silence: None, idle, in_flight, on: object.to_string(), is_over: false }
    }

    /// What to answer while nothing arrives.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let idle = self.idle;
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        if silence.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.is_over = true;
        let what = format!("the body paused for {} s", idle.as_secs_f64());
        Poll::Ready(Some(Err(Error::unavailable(what, &self.on))))
    }
}

impl Stream for Arriving {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let this = &mut *self;
        while !this.is_over {
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Pending => return this.wait(context),
                Poll::Ready(Some(Ok(frame))) => {
                    this.silence = None;
                    // Trailers say nothing that is of use here.
                    let Ok(bytes) = frame.into_data() else { continue };
                    Counters::add(&this.in_flight.bytes, bytes.len() as u64);
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Poll::Ready(Some(Err(error))) => {
                    this.is_over = true;
                    let what = format!("the body broke off: {}", causes(&error));
                    return Poll::Ready(Some(Err(Error::new(Kind::Unavailable { retry_after: None }, what, &this.on))));
                }
                Poll::Ready(None) => this.is_over = true,
            }
        }
        Poll::Ready(None)
    }
}

/// Names of one store that are looked up at once. Each takes a thread of those that wait for disks, and a name server that is silent
/// holds it for ten seconds and more, whoever waits for it still.
const LOOKUPS: usize = 4;

/// Looks names up and begins with another address each time, so that many connections spread over the
/// many machines behind the name of a store.
#[derive(Clone)]
pub struct Spread {
    turns: Arc<Semaphore>,
    chance: Arc<Chance>,
}

impl tower_service::Service<Name> for Spread {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (turns, chance) = (self.turns.clone(), self.chance.next());
        Box::pin(async move {
            let turn = turns.acquire_owned().await.map_err(std::io::Error::other)?;
            let looking = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                (name.as_str(), 0).to_socket_addrs().map(Iterator::collect)
            });
            Ok(spread(looking.await.map_err(std::io::Error::other)??, chance).into_iter())
        })
    }
}

/// The addresses, those of the family that the system prefers still first, but turned by chance.
fn spread(addresses: Vec<SocketAddr>, chance: u64) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().copied() else { return addresses };
    let (mut preferred, others): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let turn = usize::try_from(chance % preferred.len() as u64).expect("less than a length");
    preferred.rotate_left(turn);
    preferred.extend(others);
    preferred
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_certificate_is_told_from_a_broken_line() {
        let wrapped = |error: rustls::Error| std::io::Error::other(std::io::Error::other(error));
        assert!(is_distrust(&wrapped(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))));
        assert!(!is_distrust(&wrapped(rustls::Error::HandshakeNotComplete)));
        assert!(!is_distrust(&std::io::Error::from_raw_os_error(111)));
    }

    #[test]
    fn what_a_library_repeats_of_an_answer_with_secrets_is_not_said() {
        let said = |text: &str| discreet(&std::io::Error::other(text.to_owned()));
        assert_eq!(
            said("failed to parse SSO token cache: invalid type: string \"SECRET\""),
            "failed to parse SSO token cache"
        );
        let wrong = serde_json::from_str::<u32>("\"SECRET\"").expect_err("no number");
        assert!(!discreet(&wrong).contains("SECRET"), "{wrong}");
        assert_eq!(said("one\nERROR forged\x1b[1m"), "one ERROR forged [1m");
    }

    #[test]
    fn addresses_are_turned_within_the_family_that_the_system_prefers() {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let all: Vec<_> = ["10.0.0.1:80", "[::1]:80", "10.0.0.2:80", "10.0.0.3:80"].map(parse).into();
        let turned = spread(all, 4);
        assert_eq!(turned, ["10.0.0.2:80", "10.0.0.3:80", "10.0.0.1:80", "[::1]:80"].map(parse));
        assert!(spread(Vec::new(), 4).is_empty());
    }
}
