//! A server on its own tasks: accepts connections and hands each request to the gate.
//!
//! Invariant: when the server is stopped or dropped, its port is free and none of its tasks is left.

use crate::Settings;
use crate::checksums::Checksums;
use crate::clock::Clock;
use crate::counters::Counters;
use crate::faults::Faults;
use crate::folder::Folder;
use crate::gate::{Gate, Line, Parts};
use crate::limits::Limits;
use crate::pool::Pool;
use crate::service::{BucketNames, Service};
use block::{Error, Result};
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, getrlimit};
use s3s::auth::{S3Auth, SecretKey};
use s3s::service::S3ServiceBuilder;
use s3s::{S3Result, s3_error};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Connections at a time; the next waits to be accepted. There may be a file open on each, and some more.
const CONNECTIONS_MAX: u64 = 16_000;
const FILES_OF_OTHERS: u64 = 112;

/// Pause after a connection could not be accepted: mostly there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A folder being served.
pub struct Server {
    address: SocketAddr,
    gate: Arc<Gate>,
    accepting: JoinHandle<()>,
}

/// The one pair of keys; another is refused as AWS refuses it.
struct OneKey(crate::Keys);

#[async_trait::async_trait]
impl S3Auth for OneKey {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match access_key == self.0.access {
            true => Ok(SecretKey::from(self.0.secret.clone())),
            false => Err(s3_error!(InvalidAccessKeyId)),
        }
    }
}

impl Server {
    /// Serve a folder until stopped or dropped. Needs a tokio runtime with time and network.
    pub async fn start(settings: Settings) -> Result<Server> {
        let Settings { folder, bucket, listen, keys, limits, faults, seed, log } = settings;
        let folder = Arc::new(Folder::open(&folder, bucket)?);
        let listener = TcpListener::bind(listen).await.map_err(|error| cannot_listen(listen, &error))?;
        let address = listener.local_addr().map_err(|error| cannot_listen(listen, &error))?;
        let clock = Clock::start();
        let service = Service {
            folder: folder.clone(),
            checksums: Arc::new(Checksums::default()),
            pool: Arc::new(Pool::default()),
            clock,
        };
        let mut builder = S3ServiceBuilder::new(service);
        builder.set_validation(BucketNames);
        let anonymous = keys.is_none();
        if let Some(keys) = keys {
            builder.set_auth(OneKey(keys));
        }
        let parts = Parts { service: builder.build(), folder, clock, seed, anonymous, log };
        let gate = Arc::new(Gate::new(parts, &limits, faults));
        let accepting = tokio::spawn(accept(listener, gate.clone()));
        Ok(Server { address, gate, accepting })
    }

    /// As clients take it: `http://127.0.0.1:49152`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was asked and answered so far.
    pub fn counters(&self) -> Counters {
        self.gate.tally().counters()
    }

    /// From the next request on; the counts that faults go by begin anew.
    pub fn set_faults(&self, faults: Faults) {
        self.gate.set_faults(faults);
    }

    /// From the next request on; answers already begun keep their pace.
    pub fn set_limits(&self, limits: &Limits) {
        self.gate.set_limits(limits);
    }

    /// End all connections and free the port.
    pub async fn stop(mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The task owns the connections, which end with it.
        self.accepting.abort();
    }
}

fn cannot_listen(listen: SocketAddr, error: &std::io::Error) -> Error {
    Error::io("the address could not be listened on", listen, error).hint("name a free port, or 127.0.0.1:0 for any")
}

async fn accept(listener: TcpListener, gate: Arc<Gate>) {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = (files.saturating_sub(FILES_OF_OTHERS) / 2).clamp(1, CONNECTIONS_MAX) as usize;
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= most {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                connections.spawn(serve(stream, peer, gate.clone()));
            }
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, gate: Arc<Gate>) {
    let line = Arc::new(Line { reset: AtomicBool::new(false), local: peer.ip().to_canonical().is_loopback() });
    let wire = Wire { stream: TokioIo::new(stream), line: line.clone() };
    let service = service_fn(move |request| {
        let (gate, line) = (gate.clone(), line.clone());
        async move { gate.answer(request, &line).await }
    });
    if let Err(error) = http1::Builder::new().header_read_timeout(None).serve_connection(wire, service).await {
        tracing::debug!("a connection ended: {error}");
    }
}

/// The socket, which can be made to end with a reset.
struct Wire {
    stream: TokioIo<TcpStream>,
    line: Arc<Line>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.line.reset.load(Ordering::Acquire) {
            // Closing with a linger of zero sends RST instead of FIN.
            let _ = self.stream.inner().set_zero_linger();
        }
    }
}

impl hyper::rt::Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl hyper::rt::Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.line.reset.load(Ordering::Acquire) {
            // An orderly end would be sent before the reset.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }
}
