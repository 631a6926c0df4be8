//! One connection: what is asked, one thing after the other.
//!
//! Invariant: one question is answered before the next is heard, so nothing is lent twice.

use super::frame::{hear, hung_up, say};
use super::lend::{Begun, Counter, Lent};
use super::set::{self, Reader};
use crate::{Host, control, hint};
use block::{Error, Result};
use client::messages::{Ask, Hello, Items, Listed, Loaded, Names, Problem, Select};
use node::load::Loading;
use node::process::Process;
use node::select::Wanted;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::net::unix::UCred;

/// What a connection says first, with its credentials; another user's has none that are heeded.
const HELLO_BYTES_MAX: usize = 1 << 20;

/// A question: an order of some millions of numbers is the longest.
const ASK_BYTES_MAX: usize = 32 << 20;

/// Whatever another user says, who asks for sixty-four names at a time: the longest ones, if they are not all of signs that are escaped.
const BYTES_OF_OTHERS_MAX: usize = 300 << 10;

/// Names in one frame of a listing.
const NAMES_AT_ONCE: usize = 4096;

/// Between two lines about a load.
const LOAD_TOLD_EVERY: Duration = Duration::from_millis(200);

/// Why something was not done, as a message of its own.
#[derive(Serialize)]
pub struct Refusal {
    error: Problem,
}

pub fn refusal(error: &Error) -> Refusal {
    Refusal { error: control::problem(error) }
}

type Heard<T> = std::io::Result<T>;

/// A connection that is served.
struct Line<'a> {
    host: &'a Arc<Host>,
    stream: UnixStream,
    reader: Reader,
    process: u32,
    is_ours: bool,
    begun: Begun,
}

/// Answer until the other side hangs up, or the data set ends. A peer comes with whether it is one of ours.
pub async fn serve(host: &Arc<Host>, mut stream: UnixStream, (peer, is_ours): (UCred, bool)) -> Heard<()> {
    let room = host.desk.room(is_ours);
    let most = if is_ours { HELLO_BYTES_MAX } else { BYTES_OF_OTHERS_MAX };
    let Some(hello) = hear(&mut stream, most, room).await? else { return Ok(()) };
    let said = serde_json::from_slice::<Hello>(&hello.bytes).map_err(|error| not_understood(&error));
    drop(hello);
    let found = async { set::find(host, said?, (&peer, is_ours)).await };
    let found = tokio::select! {
        found = found => found,
        () = hung_up(&stream) => return Ok(()),
        () = host.closes() => return Ok(()),
    };
    let reader = match found {
        Ok(reader) => reader,
        Err(error) => return say(&mut stream, &refusal(&error), &[]).await,
    };
    say(&mut stream, &reader.set.welcome(&reader.under), &[]).await?;
    let process = peer.pid().and_then(|pid| pid.try_into().ok()).unwrap_or_default();
    let mut line = Line { host, stream, reader, process, is_ours, begun: Begun::default() };
    line.talk().await
}

fn not_understood(error: &serde_json::Error) -> Error {
    Error::invalid(format!("what was asked is not understood: {error}"), "the data socket")
}

impl Line<'_> {
    async fn talk(&mut self) -> Heard<()> {
        let mut lent = Lent::default();
        loop {
            let most = if self.is_ours { ASK_BYTES_MAX } else { BYTES_OF_OTHERS_MAX };
            let host = self.host;
            let room = host.desk.room(self.is_ours);
            let ask = tokio::select! {
                ask = hear(&mut self.stream, most, room) => ask?,
                () = self.reader.set.ended() => return Ok(()),
                () = host.closes() => return Ok(()),
            };
            // Who asks again has taken what was lent.
            drop(std::mem::take(&mut lent));
            let Some(ask) = ask else { return Ok(()) };
            let said = serde_json::from_slice::<Ask>(&ask.bytes);
            drop(ask);
            match said {
                Ok(Ask::Done {}) => {}
                Ok(ask) => lent = self.answer(ask).await?,
                Err(error) => say(&mut self.stream, &refusal(&not_understood(&error)), &[]).await?,
            }
        }
    }

    async fn answer(&mut self, ask: Ask) -> Heard<Lent> {
        let done = match ask {
            Ask::Read(wanted) => {
                let (desk, view) = (self.host.desk.clone(), self.reader.set.view().clone());
                let counter = Counter { desk: &desk, view: &view, under: &self.reader.under, process: self.process };
                let read = tokio::select! {
                    read = counter.read(wanted, &mut self.begun) => read,
                    () = hung_up(&self.stream) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
                    () = self.host.closes() => return Err(std::io::ErrorKind::ConnectionAborted.into()),
                };
                match read {
                    Ok((items, lent)) => {
                        say(&mut self.stream, &Items { items }, &lent.descriptors()).await?;
                        return Ok(lent);
                    }
                    Err(error) => Err(error),
                }
            }
            Ask::Look { names } => {
                let (desk, view) = (&self.host.desk, self.reader.set.view());
                let looked = Counter { desk, view, under: &self.reader.under, process: self.process }.look(&names);
                match looked {
                    Ok(items) => Ok(say(&mut self.stream, &Items { items }, &[]).await?),
                    Err(error) => Err(error),
                }
            }
            Ask::List(listed) => self.list(&listed).await?,
            Ask::Load(select) => {
                let desk = self.host.desk.clone();
                let turn = async { if self.is_ours { None } else { desk.loads_of_others.acquire().await.ok() } };
                let turn = tokio::select! {
                    turn = turn => turn,
                    () = hung_up(&self.stream) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
                    () = self.host.closes() => return Err(std::io::ErrorKind::ConnectionAborted.into()),
                };
                self.load(select).await?;
                drop(turn);
                Ok(())
            }
            Ask::Hint(_) if !self.is_ours => Err(Error::denied("this is for the node's user", "the data socket")),
            Ask::Hint(request) => {
                let under = join(&self.reader.under, &request.path);
                let process = Process::of(self.process);
                match hint::declare(self.reader.set.view(), under, request, process).await {
                    Ok(hinted) => Ok(say(&mut self.stream, &hinted, &[]).await?),
                    Err(error) => Err(error),
                }
            }
            Ask::Refresh {} if !self.is_ours => Err(Error::denied("this is for the node's user", "the data socket")),
            Ask::Refresh {} => match self.reader.set.refresh().await {
                Ok(()) => {
                    let welcome = self.reader.set.welcome(&self.reader.under);
                    Ok(say(&mut self.stream, &welcome, &[]).await?)
                }
                Err(error) => Err(error),
            },
            Ask::Done {} => Ok(()),
        };
        if let Err(error) = done {
            say(&mut self.stream, &refusal(&error), &[]).await?;
        }
        Ok(Lent::default())
    }

    /// Say names, some at a time, until all are said. They are those of one moment.
    async fn list(&mut self, listed: &Listed) -> Heard<Result<()>> {
        let manifest = self.reader.set.view().manifest();
        let under = join(&self.reader.under, &listed.under);
        let found =
            manifest.find(under.as_bytes()).filter(|node| manifest.attributes(*node).is_some_and(|of| of.folder));
        let Some(folder) = found else {
            return Ok(Err(Error::missing("there is no such folder in the data set", &listed.under)));
        };
        let (mut position, mut walk) = (0, manifest.walk(folder));
        let skip = if under.is_empty() { 0 } else { under.trim_matches('/').len() + 1 };
        loop {
            let mut names = Vec::with_capacity(NAMES_AT_ONCE);
            if listed.deep {
                while names.len() < NAMES_AT_ONCE
                    && let Some(file) = walk.advance()
                {
                    let path = file.path.get(skip..).unwrap_or_default();
                    names.push((String::from_utf8_lossy(path).into_owned(), file.size));
                }
            } else {
                manifest.list(folder, position, &mut |next, name, of| {
                    let end = if of.folder { "/" } else { "" };
                    names.push((format!("{}{end}", String::from_utf8_lossy(name)), of.size));
                    position = next;
                    names.len() < NAMES_AT_ONCE
                });
            }
            let more = names.len() == NAMES_AT_ONCE;
            say(&mut self.stream, &Names { names, more }, &[]).await?;
            if !more {
                return Ok(Ok(()));
            }
        }
    }

    /// Fetch ahead, and say how far it is; who hangs up ends it.
    async fn load(&mut self, select: Select) -> Heard<()> {
        let Select { under, include, exclude, list, verify } = select;
        let wanted = Wanted { under: join(&self.reader.under, &under), include, exclude, list };
        let (view, tally) = (self.reader.set.view().clone(), Arc::new(Loading::default()));
        let loading = view.load(&wanted, verify, &tally);
        tokio::pin!(loading);
        loop {
            let done = tokio::select! {
                done = &mut loading => done,
                () = tokio::time::sleep(LOAD_TOLD_EVERY) => {
                    say(&mut self.stream, &control::loaded(&tally, 0), &[]).await?;
                    continue;
                }
                () = self.reader.set.ended() => Err(Error::unavailable("the mount ended in the middle of the load", view.url())),
                () = self.host.closes() => return Ok(()),
                () = hung_up(&self.stream) => return Ok(()),
            };
            let error = done.err().as_ref().map(control::problem);
            return say(&mut self.stream, &Loaded { over: true, error, ..control::loaded(&tally, 0) }, &[]).await;
        }
    }
}

/// A folder in a folder; either may be none.
fn join(one: &str, other: &str) -> String {
    let parts = [one, other].map(|part| part.trim_matches('/'));
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("/")
}
