//! A client of the control socket, blocking or not: one request a connection.

use crate::messages::Problem;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;
use tokio::sync::mpsc::Sender;

/// Speaks with one node.
pub struct Client {
    socket: PathBuf,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens there.
    Absent,
    /// The node refused, and says why.
    Refused(Problem),
    /// The connection broke, or what came was not understood.
    Broken(String),
}

impl Client {
    pub fn new(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into() }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ask, and read the whole answer.
    pub fn ask<Answer: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        message: &impl Serialize,
    ) -> Result<Answer, Failure> {
        let mut last = None;
        self.lines(method, path, message, &mut |answer| last = Some(answer))?;
        last.ok_or_else(|| Failure::Broken("the node answered nothing".into()))
    }

    /// Ask, and hear each line of the answer as it comes.
    pub fn lines<Answer: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        message: &impl Serialize,
        each: &mut dyn FnMut(Answer),
    ) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
        let each = |answer| {
            each(answer);
            std::future::ready(())
        };
        runtime.block_on(self.exchange(request(method, path, message)?, each))
    }

    /// The same within a runtime. Dropped, it hangs up.
    pub async fn tell<Answer: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        message: &impl Serialize,
        told: Sender<Answer>,
    ) -> Result<(), Failure> {
        let each = |answer| {
            let told = told.clone();
            // Who asked may have heard enough.
            async move { drop(told.send(answer).await) }
        };
        self.exchange(request(method, path, message)?, each).await
    }

    async fn exchange<Answer: DeserializeOwned, Heard: Future<Output = ()>>(
        &self,
        request: Request<Full<Bytes>>,
        mut each: impl FnMut(Answer) -> Heard,
    ) -> Result<(), Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|_| Failure::Absent)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let driver = tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let mut body = answer.into_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            text.extend_from_slice(frame.map_err(broken)?.data_ref().map_or(&[], |data| data));
            if status == StatusCode::OK {
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    each(serde_json::from_slice(&text[..end]).map_err(broken)?).await;
                    text.drain(..=end);
                }
            }
        }
        driver.abort();
        if status != StatusCode::OK {
            let problem = serde_json::from_slice(&text);
            return Err(
                problem.map_or_else(|_| Failure::Broken(format!("the node answered {status}")), Failure::Refused)
            );
        }
        if !text.is_empty() {
            each(serde_json::from_slice(&text).map_err(broken)?).await;
        }
        Ok(())
    }
}

fn request(method: Method, path: &str, message: &impl Serialize) -> Result<Request<Full<Bytes>>, Failure> {
    let body = serde_json::to_vec(message).map_err(broken)?;
    let request = Request::builder().method(method).uri(path).header("host", "stoker");
    request.header("content-type", "application/json").body(Full::new(Bytes::from(body))).map_err(broken)
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Broken(error.to_string())
}
