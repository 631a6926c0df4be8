//! A client of the control socket, blocking or not: one request a connection.
//!
//! Invariant: it sends nothing to anybody but the user whose node it asks, and never waits for a node that is dead.

use crate::messages::{Problem, Status};
use crate::sockets;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

/// How long a node may take for what it can say at once, connecting included.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long a node that is busy for us may say nothing before it is asked whether it still lives.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How often, and how long apart, a node that cuts off each request is asked before it is taken for one that lives.
const LAST_BREATHS: u32 = 20;
const LAST_BREATH: Duration = Duration::from_millis(100);

/// The longest message: the status of some thousand mounts.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Speaks with one node of one user.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    user: u32,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens there.
    Absent,
    /// Somebody else than the user whose node it should be listens there.
    Foreign(u32),
    /// It did not answer in time.
    Silent,
    /// The node refused, and says why.
    Refused(Problem),
    /// It ended before it had answered.
    Gone,
    /// The connection broke, or what came was not understood.
    Broken(String),
}

/// A node, and how it is, or why that is not known.
pub type Surveyed = (Client, Result<Status, Failure>);

impl Client {
    /// Of the node that this user runs at a socket. Whoever else listens there is asked nothing.
    pub fn new(socket: impl Into<PathBuf>, user: u32) -> Client {
        Client { socket: socket.into(), user }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whose node it is.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Ask all of these nodes at once how they are, and pass on each answer as it comes, until `each` has enough: one that
    /// says nothing holds up none of the others. The sockets that killed nodes of this user left are removed.
    pub fn survey(
        clients: Vec<Client>,
        user: u32,
        each: &mut dyn FnMut(Surveyed) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        runtime()?.block_on(async {
            let mut asked = JoinSet::new();
            for client in clients {
                asked.spawn(async move {
                    let status = client.status().await;
                    if matches!(status, Err(Failure::Absent)) && client.user == user {
                        sockets::remove_dead(&client.socket).await;
                    }
                    (client, status)
                });
            }
            while let Some(answered) = asked.join_next().await {
                if each(answered.map_err(broken)?).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// What the node does and holds.
    pub async fn status(&self) -> Result<Status, Failure> {
        let (mut last, asked) = (None, request(Method::GET, "/v1/status", &())?);
        let answered = self.exchange(asked, |status| {
            last = Some(status);
            std::future::ready(())
        });
        tokio::time::timeout(ANSWER_WITHIN, answered).await.unwrap_or(Err(Failure::Silent))?;
        last.ok_or_else(|| Failure::Broken("the node answered nothing".into()))
    }

    /// The process that listens, whether it answers or not; nothing is asked.
    pub fn process(&self) -> Option<u32> {
        let connected = runtime().ok()?.block_on(UnixStream::connect(&self.socket)).ok()?;
        let peer = connected.peer_cred().ok().filter(|peer| peer.uid() == self.user)?;
        peer.pid().and_then(|pid| pid.try_into().ok())
    }

    /// Wait until the node is found not to answer any more, while it is busy with something long.
    pub async fn fell_silent(&self) {
        loop {
            tokio::time::sleep(SILENCE_MAX).await;
            if let Err(Failure::Silent) = self.status().await {
                return;
            }
        }
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
        let each = |answer| {
            each(answer);
            std::future::ready(())
        };
        let asked = request(method, path, message)?;
        runtime()?.block_on(async {
            let done = tokio::select! {
                done = self.exchange(asked, each) => done,
                () = self.fell_silent() => Err(Failure::Silent),
            };
            let is_cut = matches!(done, Err(Failure::Broken(_)));
            if is_cut && self.is_gone().await { Err(Failure::Gone) } else { done }
        })
    }

    /// Whether the node that cut us off has ended. One that was killed may still listen for a moment, to nobody's use.
    async fn is_gone(&self) -> bool {
        for _ in 0..LAST_BREATHS {
            match self.status().await {
                Err(Failure::Absent) => return true,
                Err(Failure::Broken(_)) => tokio::time::sleep(LAST_BREATH).await,
                _ => return false,
            }
        }
        false
    }

    /// The same within a runtime, for as long as the node takes. Dropped, it hangs up.
    pub async fn tell<Answer: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        message: &impl Serialize,
        sender: Sender<Answer>,
    ) -> Result<(), Failure> {
        let each = |answer| {
            let sender = sender.clone();
            // Who asked may have heard enough.
            async move { drop(sender.send(answer).await) }
        };
        self.exchange(request(method, path, message)?, each).await
    }

    async fn exchange<Answer: DeserializeOwned, Heard: Future<Output = ()>>(
        &self,
        request: Request<Full<Bytes>>,
        mut each: impl FnMut(Answer) -> Heard,
    ) -> Result<(), Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|_| Failure::Absent)?;
        // The kernel remembers who listened. A folder or a socket can be swapped for a link after it was looked at.
        let peer = stream.peer_cred().map_err(broken)?.uid();
        if peer != self.user {
            return Err(Failure::Foreign(peer));
        }
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let driver = tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let mut body = answer.into_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            text.extend_from_slice(frame.map_err(broken)?.data_ref().map_or(&[], |data| data));
            if text.len() > MESSAGE_BYTES_MAX {
                return Err(Failure::Broken(format!("an answer of more than {MESSAGE_BYTES_MAX} bytes")));
            }
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

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)
}

fn request(method: Method, path: &str, message: &impl Serialize) -> Result<Request<Full<Bytes>>, Failure> {
    let body = serde_json::to_vec(message).map_err(broken)?;
    let request = Request::builder().method(method).uri(path).header("host", "stoker");
    request.header("content-type", "application/json").body(Full::new(Bytes::from(body))).map_err(broken)
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Broken(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    fn folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("stoker-client-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// A socket at which somebody answers each request with this, over and over.
    fn answers(name: &str, head: &'static str, again: &'static [u8]) -> PathBuf {
        let socket = folder().join(name);
        let listener = UnixListener::bind(&socket).expect("a socket");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let mut sent = stream.write_all(head.as_bytes());
                while sent.is_ok() {
                    sent = stream.write_all(again);
                }
            }
        });
        socket
    }

    fn surveyed(socket: PathBuf, user: u32) -> Result<Status, Failure> {
        let mut all = Vec::new();
        let mut keep = |answer| {
            all.push(answer);
            ControlFlow::Continue(())
        };
        Client::survey(vec![Client::new(&socket, user)], user, &mut keep).expect("a runtime");
        let _ = std::fs::remove_file(&socket);
        all.remove(0).1
    }

    fn me() -> u32 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").expect("a process").uid()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_says_nothing_is_passed_over_after_five_seconds() {
        let socket = folder().join("silent");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let began = tokio::time::Instant::now();
        assert_eq!(Client::new(&socket, me()).status().await.err(), Some(Failure::Silent));
        let _ = std::fs::remove_file(&socket);
        let took = began.elapsed();
        assert!((5.0..5.1).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[test]
    fn a_node_that_answers_is_passed_on_while_others_say_nothing() {
        let (silent, alive) =
            (folder().join("silent-beside"), answers("alive", "HTTP/1.1 400 no\r\ncontent-length: 2\r\n\r\n{}", b" "));
        let _listener = UnixListener::bind(&silent).expect("a socket");
        let clients = [&silent, &alive].map(|socket| Client::new(socket, me())).to_vec();
        let mut first = None;
        let done = Client::survey(clients, me(), &mut |(client, _)| {
            first = Some(client.socket().to_owned());
            ControlFlow::Break(())
        });
        for socket in [&silent, &alive] {
            let _ = std::fs::remove_file(socket);
        }
        assert_eq!((done, first), (Ok(()), Some(alive)));
    }

    #[test]
    fn a_node_that_ends_while_it_answers_is_gone_also_where_its_socket_outlives_its_connections() {
        let socket = folder().join("dying");
        let listener = UnixListener::bind(&socket).expect("a socket");
        std::thread::spawn(move || {
            let cut = listener.accept().map(|(mut stream, _)| stream.read(&mut [0; 4096]).map(|_| ()));
            assert!(cut.is_ok());
            std::thread::sleep(LAST_BREATH * 3);
        });
        let answer = Client::new(&socket, me()).ask::<Status>(Method::GET, "/v1/status", &());
        let _ = std::fs::remove_file(&socket);
        assert_eq!(answer.err(), Some(Failure::Gone));
    }

    #[test]
    fn an_answer_without_end_is_given_up_and_one_of_somebody_else_is_not_heard() {
        let (head, spaces) = ("HTTP/1.1 200 OK\r\n\r\n", &[b' '; 1 << 16]);
        let endless = surveyed(answers("endless", head, spaces), me());
        assert!(matches!(&endless, Err(Failure::Broken(what)) if what.contains("more than")), "{endless:?}");
        let foreign = surveyed(answers("foreign", head, spaces), me() + 1);
        assert!(matches!(foreign, Err(Failure::Foreign(user)) if user == me()), "{foreign:?}");
        assert!(matches!(surveyed(PathBuf::from("/no/such/socket"), me()), Err(Failure::Absent)));
    }
}
