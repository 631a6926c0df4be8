//! How `object_store` asks for tokens: over our own client, with the certificates and the patience of ours.
//!
//! Invariant: no wait without an end, and no answer without a limit.

use crate::Counters;
use crate::retry::Chance;
use crate::s3::wire::{Timeouts, Wire, causes};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Times for those who hand out tokens: they are near, or not there at all, as on a machine without an identity.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(1), first_byte: Duration::from_secs(5), idle: Duration::from_secs(5) };

/// Bytes of one read of a connection: answers are small.
const READ_BUFFER: usize = 16 << 10;

/// Bytes of an answer with a token: it takes a few thousand.
const ANSWER_MAX: usize = 1 << 20;

/// The header of requests to Azure's servers of tokens, and the one that holds the secret.
const METADATA: HeaderName = HeaderName::from_static("metadata");
const SECRET: HeaderName = HeaderName::from_static("x-identity-header");

/// Asks those who hand out tokens, over a client that is made at the first use.
#[derive(Clone)]
pub struct Messenger(Arc<Line>);

struct Line {
    wire: OnceLock<Wire>,
    counters: Counters,
    chance: Arc<Chance>,
    /// By which it is known whose certificates are trusted.
    variables: BTreeMap<String, String>,
    /// By which a program is known to the server that hands out tokens beside it.
    secret: Option<HeaderValue>,
}

impl Messenger {
    /// One for whoever has these variables. A secret among them is shown to the server of tokens beside it, as Azure's hosts of
    /// programs ask for.
    pub fn new(chance: Arc<Chance>, variables: &BTreeMap<String, String>) -> Messenger {
        let secret = variables.get("IDENTITY_HEADER").filter(|secret| !secret.is_empty());
        let secret = secret.and_then(|secret| HeaderValue::from_str(secret).ok()).map(|mut secret| {
            secret.set_sensitive(true);
            secret
        });
        let (wire, counters) = Default::default();
        Messenger(Arc::new(Line { wire, counters, chance, variables: variables.clone(), secret }))
    }

    /// One request and its answer, whatever its status, but for those that say: later.
    pub async fn ask(&self, mut request: http::Request<Bytes>) -> Result<http::Response<Bytes>, Failed> {
        let Line { wire: line, counters, chance, variables, secret } = &*self.0;
        let wire = match line.get() {
            Some(wire) => wire,
            None => {
                let wire = Wire::open(true, TIMEOUTS, READ_BUFFER, chance.clone(), variables);
                let wire = wire.map_err(|error| Failed(error.what))?;
                line.get_or_init(|| wire)
            }
        };
        let host = request.uri().host().unwrap_or_default().to_owned();
        if let Some(secret) = secret
            && request.headers().contains_key(METADATA)
        {
            request.headers_mut().insert(SECRET, secret.clone());
        }
        let answer = wire.send(request.map(Full::new), counters, &host, &host).await;
        let (head, body) = answer.map_err(|error| Failed(error.what))?.into_parts();
        let body = tokio::time::timeout(TIMEOUTS.idle, Limited::new(body, ANSWER_MAX).collect()).await;
        let body = body.map_err(|_| Failed(format!("{host} paused in its answer")))?;
        let body = body.map_err(|error| Failed(format!("{host} broke off: {}", causes(&*error))))?;
        // Said as a failure of the line, for so it is told that a further try may do.
        if head.status.is_server_error() || head.status == http::StatusCode::TOO_MANY_REQUESTS {
            return Err(Failed(format!("{host} answered {}", head.status)));
        }
        Ok(http::Response::from_parts(head, body.to_bytes()))
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub struct Failed(pub String);

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl fmt::Debug for Messenger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Messenger")
    }
}

#[async_trait]
impl HttpService for Messenger {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let answer = self.ask(http::Request::from_parts(head, body)).await;
        answer.map(|answer| answer.map(Into::into)).map_err(|failed| HttpError::new(HttpErrorKind::Interrupted, failed))
    }
}

impl HttpConnector for Messenger {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}
