//! The control socket of a node: HTTP and JSON, for this user alone.
//!
//! Invariant: nothing secret leaves here, and nobody but the owner (or root) is heard.

use crate::Host;
use block::{Error, Kind, Result};
use client::messages::{LoadRequest, Loaded, MountRequest, Place, Problem};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use node::load::{self, Tally};
use node::select::Wanted;
use serde::Serialize;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// A request: a list of half a million paths is the longest, and is held in memory.
const REQUEST_BYTES_MAX: usize = 32 << 20;

/// Between two lines about a load.
const LOAD_TOLD_EVERY: Duration = Duration::from_millis(200);

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Listen for as long as the host lives. The socket of a node that died is taken over: its lock is ours.
pub fn listen(host: Arc<Host>, socket: &Path) -> Result<()> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)
        .map_err(|error| Error::io("cannot listen for commands", socket.display(), &error))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if is_ours(&stream) {
                tokio::spawn(serve(host.clone(), stream));
            }
        }
    });
    Ok(())
}

fn is_ours(stream: &UnixStream) -> bool {
    let user = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == user || peer.uid() == 0)
}

async fn serve(host: Arc<Host>, stream: UnixStream) {
    host.commands.send_modify(|count| *count += 1);
    let commands = host.commands.clone();
    let answer = service_fn(move |request| {
        let host = host.clone();
        async move { Ok::<_, Infallible>(route(host, request).await.unwrap_or_else(|error| refuse(&error))) }
    });
    if let Err(error) = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await
    {
        tracing::debug!("a command was given up: {error}");
    }
    commands.send_modify(|count| *count -= 1);
}

async fn route(host: Arc<Host>, request: Request<Incoming>) -> Result<Answer> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match (&method, &*path) {
        (&Method::GET, "/v1/status") => Ok(say(&host.status())),
        (&Method::POST, "/v1/mounts") => {
            let wanted: MountRequest = message(request).await?;
            host.mount(wanted, |_| ()).await?;
            Ok(say(&host.status()))
        }
        (&Method::DELETE, "/v1/mounts") => {
            let (mounted, _) = host.find(Path::new(&message::<Place>(request).await?.path))?;
            mounted.unmount(false)?;
            mounted.ended().await;
            Ok(say(&()))
        }
        (&Method::POST, "/v1/wait") => {
            let (mounted, _) = host.find(Path::new(&message::<Place>(request).await?.path))?;
            mounted.ended().await;
            Ok(say(&()))
        }
        (&Method::POST, "/v1/refresh") => {
            let (mounted, _) = host.find(Path::new(&message::<Place>(request).await?.path))?;
            Ok(say(&mounted.refresh().await?))
        }
        (&Method::POST, "/v1/load") => load(&host, message(request).await?),
        _ => Err(Error::missing(format!("there is no {method} {path}"), "the control socket")),
    }
}

async fn message<T: serde::de::DeserializeOwned>(request: Request<Incoming>) -> Result<T> {
    let body = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await;
    let bytes =
        body.map_err(|error| Error::invalid(format!("the request could not be read: {error}"), "the control socket"))?;
    serde_json::from_slice(&bytes.to_bytes())
        .map_err(|error| Error::invalid(format!("the request is not understood: {error}"), "the control socket"))
}

fn say(message: &impl Serialize) -> Answer {
    Response::new(Full::new(line(message)).boxed())
}

fn line(message: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(message).expect("messages are plain values");
    text.push(b'\n');
    text.into()
}

fn problem(error: &Error) -> Problem {
    Problem { what: error.what.clone(), on: error.on.clone(), hint: error.hint.clone() }
}

fn refuse(error: &Error) -> Answer {
    let mut answer = say(&problem(error));
    *answer.status_mut() = match error.kind {
        Kind::Missing => StatusCode::NOT_FOUND,
        Kind::Changed => StatusCode::CONFLICT,
        Kind::Denied => StatusCode::FORBIDDEN,
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Full => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Unavailable { .. } | Kind::Corrupt => StatusCode::SERVICE_UNAVAILABLE,
    };
    answer
}

/// Load in the background of the answer; a caller that hangs up ends it.
fn load(host: &Arc<Host>, request: LoadRequest) -> Result<Answer> {
    let (mounted, rest) = host.find(Path::new(&request.path))?;
    let under = rest.to_string_lossy().into_owned();
    let wanted = Wanted { under, include: request.include, exclude: request.exclude, list: request.list };
    let (host, tally, before) = (host.clone(), Arc::new(Tally::default()), host.requests());
    let (lines, told) = tokio::sync::mpsc::channel::<Bytes>(4);
    tokio::spawn(async move {
        let loading = load::load(&mounted.view, &wanted, request.verify, &tally);
        tokio::pin!(loading);
        let error = loop {
            tokio::select! {
                done = &mut loading => break done.err(),
                () = tokio::time::sleep(LOAD_TOLD_EVERY) => {
                    if lines.send(line(&loaded(&tally, host.requests() - before))).await.is_err() {
                        return;
                    }
                }
            }
        };
        let mut last = loaded(&tally, host.requests() - before);
        (last.over, last.error) = (true, error.as_ref().map(problem));
        let _ = lines.send(line(&last)).await;
    });
    let frames = futures_util::stream::unfold(told, |mut told| async move {
        told.recv().await.map(|line| (Ok::<_, Infallible>(Frame::data(line)), told))
    });
    Ok(Response::new(BodyExt::boxed(StreamBody::new(frames))))
}

/// A load's progress as a message.
pub fn loaded(tally: &Tally, requests: u64) -> Loaded {
    let progress = tally.progress();
    Loaded {
        files: progress.files,
        bytes: progress.bytes,
        files_done: progress.files_done,
        bytes_done: progress.bytes_done,
        files_present: progress.files_present,
        bytes_present: progress.bytes_present,
        files_unkept: progress.files_unkept,
        files_failed: progress.files_failed,
        failures: progress.failures,
        requests,
        over: false,
        error: None,
    }
}
