//! What etcd is asked, as JSON over HTTP: the gateway that each server of it has open where its clients knock.
//!
//! Servers are asked in turn until one answers; the one that did is asked first the next time.
//!
//! Invariant: no answer is waited for longer than [`ANSWER_MAX`] or read past [`ANSWER_BYTES_MAX`], and neither a password nor
//! a token gets into an error.

use block::{Error, Kind, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a server may take to answer. All of them are tried well within a lease.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// All members with the longest names, as etcd writes them.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Of a line that tells of a change, so much is looked at.
const LINE_BYTES_MAX: usize = 4096;

/// Of what a server says of a failure.
const REASON_BYTES_MAX: usize = 300;

/// What etcd calls a request that has no token, or one that is over.
const UNAUTHENTICATED: u32 = 16;

/// By what etcd is reached and believes us, as its own tools have it.
#[derive(Default)]
pub(super) struct Access {
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<(String, String)>,
}

impl Access {
    /// By the variables of `etcdctl`.
    pub(super) fn of(environment: &dyn Fn(&str) -> Option<String>) -> Result<Access> {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let path = |name: &str| match set(name).map(PathBuf::from) {
            Some(path) if path.is_relative() => {
                let error =
                    Error::invalid("nodes have no folder that this begins in", format!("{name}={}", path.display()));
                Err(error.hint("give the whole path, from / on"))
            }
            path => Ok(path),
        };
        let (certificate, key) = (path("ETCDCTL_CERT")?, path("ETCDCTL_KEY")?);
        if certificate.is_some() != key.is_some() {
            let error =
                Error::invalid("a certificate needs its key, and a key its certificate", "ETCDCTL_CERT, ETCDCTL_KEY");
            return Err(error.hint("set both, or neither"));
        }
        let user = match (set("ETCDCTL_USER"), set("ETCDCTL_PASSWORD")) {
            (None, _) => None,
            (Some(name), Some(password)) => Some((name, password)),
            (Some(both), None) => match both.split_once(':') {
                Some((name, password)) => Some((name.to_owned(), password.to_owned())),
                None => {
                    let error = Error::invalid("this user of etcd has no password", "ETCDCTL_USER");
                    return Err(error.hint("set ETCDCTL_PASSWORD"));
                }
            },
        };
        Ok(Access { authority: path("ETCDCTL_CACERT")?, certificate, key, user })
    }

    /// How TLS is spoken.
    fn tls(&self) -> Result<ClientConfig> {
        let unfit = |error: &dyn std::fmt::Display| {
            let error =
                Error::invalid(format!("TLS with etcd can't be set up: {error}"), "ETCDCTL_CACERT, ETCDCTL_CERT");
            error.hint("name files of certificates and keys in PEM format that this user may read")
        };
        let mut roots = RootCertStore::empty();
        match &self.authority {
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
            Some(path) => {
                for one in chain(path)? {
                    roots.add(one).map_err(|error| unfit(&error))?;
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| unfit(&error))?.with_root_certificates(roots);
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else {
            return Ok(config.with_no_client_auth());
        };
        // What of it can't be read is nobody's business.
        let key = PrivateKeyDer::from_pem_file(key).map_err(|_| unfit(&"ETCDCTL_KEY holds no key"))?;
        config.with_client_auth_cert(chain(certificate)?, key).map_err(|error| unfit(&error))
    }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        read => {
            let why = read.err().map_or_else(|| "there are none in it".into(), |error| error.to_string());
            let error = Error::invalid(format!("the certificates can't be read: {why}"), path.display());
            Err(error.hint("name a file of certificates in PEM format"))
        }
    }
}

/// The servers of an etcd.
pub(super) struct Gateway {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// With their scheme and port.
    servers: Vec<String>,
    first: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
}

/// What etcd says of a request that it refuses.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    message: String,
    code: u32,
}

impl Gateway {
    /// `servers`: `host:port` of each.
    pub(super) fn new(servers: &[String], is_secure: bool, access: Access) -> Result<Gateway> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(ANSWER_MAX));
        connector.set_nodelay(true);
        let tls = if is_secure { &access } else { &Access::default() };
        let secure = HttpsConnectorBuilder::new().with_tls_config(tls.tls()?);
        let connector = match is_secure {
            true => secure.https_only().enable_http1().wrap_connector(connector),
            false => secure.https_or_http().enable_http1().wrap_connector(connector),
        };
        let http = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        let scheme = if is_secure { "https" } else { "http" };
        let servers = servers.iter().map(|server| format!("{scheme}://{server}")).collect();
        let (first, token) = Default::default();
        Ok(Gateway { http, servers, first, user: access.user, token })
    }

    /// Ask, and read the whole answer.
    pub(super) async fn ask<T: DeserializeOwned>(&self, path: &str, words: &Value) -> Result<T> {
        let read = async |answer: Response<Incoming>, server: &str| {
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| broken(server, &*error))?.to_bytes();
            serde_json::from_slice(&body).map_err(|error| broken(server, &error))
        };
        self.of_any(path, words, read).await
    }

    /// Ask for what goes on, change by change.
    pub(super) async fn listen(&self, path: &str, words: &Value) -> Result<Bell> {
        let read = async |answer: Response<Incoming>, server: &str| {
            Ok(Bell { body: answer.into_body(), server: server.into(), line: Vec::new() })
        };
        self.of_any(path, words, read).await
    }

    /// The answer of the first server that gives one.
    async fn of_any<T>(
        &self,
        path: &str,
        words: &Value,
        read: impl AsyncFn(Response<Incoming>, &str) -> Result<T>,
    ) -> Result<T> {
        let mut last = None;
        let first = self.first.load(Relaxed);
        for number in (0..self.servers.len()).map(|number| (first + number) % self.servers.len()) {
            let server = &self.servers[number];
            let asking = async { read(self.authorized(server, path, words).await?, server).await };
            let answer = tokio::time::timeout(ANSWER_MAX, asking).await;
            match answer.unwrap_or_else(|_| Err(broken(server, &"it did not answer in time"))) {
                Err(error) if matches!(error.kind, Kind::Unavailable { .. }) => last = Some(error),
                answer => {
                    self.first.store(number, Relaxed);
                    return answer;
                }
            }
        }
        Err(last.unwrap_or_else(|| broken("etcd", &"it has no servers")))
    }

    /// By the token of the user, if there is a user; a new one where it is over.
    async fn authorized(&self, server: &str, path: &str, words: &Value) -> Result<Response<Incoming>> {
        let Some((name, password)) = &self.user else { return self.post(server, path, words, None).await };
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(token) = known {
            match self.post(server, path, words, Some(&token)).await {
                Err(error) if error.kind == Kind::Denied => {}
                answer => return answer,
            }
        }
        #[derive(Deserialize)]
        struct Token {
            token: String,
        }
        let words_of_user = json!({ "name": name, "password": password });
        let answer = self.post(server, "auth/authenticate", &words_of_user, None).await?;
        let body = Limited::new(answer.into_body(), LINE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| broken(server, &*error))?.to_bytes();
        let Token { token } = serde_json::from_slice(&body).map_err(|_| broken(server, &"it gave no token"))?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        self.post(server, path, words, Some(&token)).await
    }

    async fn post(&self, server: &str, path: &str, words: &Value, token: Option<&str>) -> Result<Response<Incoming>> {
        let mut request = Request::post(format!("{server}/v3/{path}")).header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request =
            request.body(words.to_string().into()).map_err(|_| broken(server, &"it gave a token of odd letters"))?;
        let answer = self.http.request(request).await.map_err(|error| broken(server, &chained(&error)))?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => Err(refused(server, status, answer.into_body()).await),
        }
    }
}

/// Rings at each change that is heard of.
pub(super) struct Bell {
    body: Incoming,
    server: String,
    /// What was heard of the line that is being told.
    line: Vec<u8>,
}

impl Bell {
    /// Something changed, or listening has begun. An error is the end.
    pub(super) async fn rung(&mut self) -> Result<()> {
        loop {
            let frame = match self.body.frame().await {
                Some(frame) => frame.map_err(|error| broken(&self.server, &error))?,
                None => return Err(broken(&self.server, &"it tells of no more changes")),
            };
            let Ok(data) = frame.into_data() else { continue };
            for byte in data {
                if byte == b'\n' {
                    let line = String::from_utf8_lossy(&self.line);
                    if line.starts_with("{\"error\"") || line.contains("\"canceled\":true") {
                        return Err(broken(&self.server, &"it tells of no more changes"));
                    }
                    self.line.clear();
                } else if self.line.len() < LINE_BYTES_MAX {
                    self.line.push(byte);
                }
            }
            return Ok(());
        }
    }
}

/// No answer that means anything.
fn broken(server: &str, why: &(impl std::fmt::Display + ?Sized)) -> Error {
    let error = Error::unavailable(format!("etcd can't be asked: {why}"), server);
    error.hint("see whether it is reached from here: etcdctl endpoint health")
}

/// The innermost cause says most.
fn chained(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    format!("{error}: {innermost}")
}

async fn refused(server: &str, status: StatusCode, body: Incoming) -> Error {
    let read = Limited::new(body, LINE_BYTES_MAX).collect().await.map(http_body_util::Collected::to_bytes);
    let read = read.unwrap_or_default();
    // What is refused before it gets to etcd proper is refused in plain words.
    let plain = || Refusal { message: String::from_utf8_lossy(&read).into_owned(), code: 0 };
    let Refusal { message, code } = serde_json::from_slice(&read).unwrap_or_else(|_| plain());
    let message: String = message.chars().filter(|letter| !letter.is_control()).take(REASON_BYTES_MAX).collect();
    let what = format!("etcd refused: {}", if message.is_empty() { status.as_str() } else { &message });
    let hint = match message.contains("CommonName") {
        true => {
            "an etcd with users takes a certificate here only if its common name is empty: set ETCDCTL_CERT to such a one"
        }
        false => "set ETCDCTL_USER and ETCDCTL_PASSWORD to a user who may read and write there",
    };
    match status {
        // Also what says that a lease is gone.
        StatusCode::NOT_FOUND => Error::missing(what, server),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::denied(what, server).hint(hint),
        _ if code == UNAUTHENTICATED || message.contains("user name is empty") => {
            Error::denied(what, server).hint(hint)
        }
        status if status.is_client_error() => Error::invalid(what, server).hint(hint),
        _ => Error::unavailable(what, server),
    }
}
