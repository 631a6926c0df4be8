//! The control socket of a node: HTTP and JSON, for this user alone.
//!
//! Invariant: nothing secret leaves here, and nobody but the owner (or root) is heard.

use crate::hint;
use crate::holder::{Holder, give_up};
use crate::status::{kept, status};
use crate::{Host, Mounted, upkeep};
use block::{Error, Kind, Result};
use client::messages::{
    HoldRequest, Level, LoadRequest, Loaded, MountPath, MountRequest, Mounting, Problem, Record, Restart,
};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mount::Places;
use node::load::Loading;
use node::select::Wanted;
use serde::Serialize;
use std::convert::Infallible;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

/// A request: a list of half a million paths is the longest, and is held in memory.
const REQUEST_BYTES_MAX: usize = 32 << 20;

/// Lines that a caller may be behind.
const LINES_MAX: usize = 4;

/// After the system refused to give us a connection.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Files and folders of a folder that are listed with how much of each is kept.
const KEPT_ENTRIES_MAX: usize = 1_000;

/// Between two lines about a load.
const LOAD_TOLD_EVERY: Duration = Duration::from_millis(200);

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Who asks, if that is known.
type Asker = Arc<Option<Holder>>;

/// A socket that was bound. Its path is removed when this is dropped, unless another node has taken it meanwhile; the
/// listener must live until then, so that its inode is no other's.
pub struct Bound {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _turn = self.path.parent().and_then(client::sockets::turn);
        if inode(&self.path) == self.inode {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of what is at a path.
fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Take the place of the node that died: its lock is ours. Who connects from now on waits for an answer.
pub fn bind(socket: &Path) -> Result<(UnixListener, Bound)> {
    // Who finds the one that is there dead must not remove ours.
    let _turn = socket.parent().and_then(client::sockets::turn);
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)
        .map_err(|error| Error::io("cannot listen for commands", socket.display(), &error))?;
    Ok((listener, Bound { path: socket.to_owned(), inode: inode(socket) }))
}

/// Answer for as long as the runtime lives.
pub fn listen(host: &Arc<Host>, listener: UnixListener) {
    host.hears.send_replace(true);
    let host = host.clone();
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) if is_ours(&stream) => drop(tokio::spawn(serve(host.clone(), stream))),
                Ok(_) => {}
                // Out of descriptors, for example: later there are some again.
                Err(error) => {
                    tracing::warn!("a command could not be heard: {error}");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                }
            }
        }
    });
}

fn is_ours(stream: &UnixStream) -> bool {
    let user = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == user || peer.uid() == 0)
}

/// Answer one request. Who connects and asks nothing holds up nothing.
async fn serve(host: Arc<Host>, stream: UnixStream) {
    let (command, asker) = (OnceLock::new(), Arc::new(Holder::at(&stream)));
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid()?.try_into().ok());
    let answer = service_fn(|request| {
        command.get_or_init(|| Command::begin(host.commands.clone()));
        let (host, asker) = (host.clone(), (asker.clone(), peer));
        async move { Ok::<_, Infallible>(route(host, request, asker).await.unwrap_or_else(|error| refuse(&error))) }
    });
    let mut connection = hyper::server::conn::http1::Builder::new();
    if let Err(error) = connection.keep_alive(false).serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!("a command was given up: {error}");
    }
}

/// Counts a command until its answer is sent.
struct Command(watch::Sender<usize>);

impl Command {
    fn begin(commands: watch::Sender<usize>) -> Command {
        commands.send_modify(|count| *count += 1);
        Command(commands)
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// `peer` is the process that asks.
async fn route(host: Arc<Host>, request: Request<Incoming>, (asker, peer): (Asker, Option<u32>)) -> Result<Answer> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match (&method, &*path) {
        (&Method::GET, "/v1/status") => {
            host.settles().await;
            host.look_at_kept().await;
            Ok(say(&status(&host)))
        }
        (&Method::POST, "/v1/kept") => {
            let (mounted, rest) = host.find(&message(request).await?).await?;
            let look = move || mounted.view.kept_below(rest.as_os_str().as_encoded_bytes(), KEPT_ENTRIES_MAX);
            let (all, entries) = tokio::task::spawn_blocking(look).await.map_err(|error| gave_up(&error))??;
            Ok(say(&kept(all, entries)))
        }
        (&Method::POST, "/v1/verify") => Ok(say(&upkeep::verify(&host, &message(request).await?).await?)),
        (&Method::POST, "/v1/evict") => Ok(say(&upkeep::evict(&host, &message(request).await?).await?)),
        (&Method::POST, "/v1/mounts") => mounting(&host, message(request).await?, asker),
        (&Method::POST, "/v1/holds") => holding(&host, message(request).await?, asker).await,
        (&Method::POST, "/v1/restart") => {
            Ok(say(&host.restart(message::<Restart>(request).await?.program.as_deref())?))
        }
        (&Method::DELETE, "/v1/mounts") => {
            let place: MountPath = message(request).await?;
            let (mounted, _) = host.find(&place).await?;
            let leaving = mounted.clone();
            // The kernel may have to wait for its readers. Who has files open in what is out of sight is not waited for.
            let left = move || {
                let was_seen = !leaving.is_detached();
                let at = Path::new(&place.path);
                let in_use = match (place.everywhere, place.lazy) {
                    (true, _) => leaving.leave(),
                    (false, true) => leaving.leave_place(at),
                    (false, false) => leaving.unmount(at).map(|()| false),
                }?;
                Ok::<_, Error>(was_seen && !in_use)
            };
            let is_waited_for = tokio::task::spawn_blocking(left).await.map_err(|error| gave_up(&error))??;
            let is_held = is_waited_for && mounted.ended_here().await;
            if is_waited_for && !is_held {
                host.left().await;
            }
            Ok(say(&is_held.then_some(true)))
        }
        (&Method::POST, "/v1/refresh") => {
            let (mounted, _) = host.find(&message(request).await?).await?;
            Ok(say(&mounted.refresh().await?))
        }
        (&Method::PUT, "/v1/log") => {
            host.journal().set_level(&message::<Level>(request).await?.level)?;
            Ok(say(&host.journal().log()))
        }
        (&Method::POST, "/v1/load") => load(&host, message(request).await?).await,
        (&Method::POST, "/v1/hint") => Ok(say(&hint::hint(&host, message(request).await?, peer).await?)),
        _ => Err(Error::missing(format!("there is no {method} {path}"), "the control socket")),
    }
}

fn gave_up(error: &tokio::task::JoinError) -> Error {
    Error::unavailable(format!("the command was given up: {error}"), "the control socket")
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

pub(crate) fn problem(error: &Error) -> Problem {
    let kind = error.kind.name().to_owned();
    Problem { kind, what: error.what.clone(), on: error.on.clone(), hint: error.hint.clone() }
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

/// An answer that goes on: lines for as long as somebody listens.
fn lines(receiver: Receiver<Bytes>) -> Answer {
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|line| (Ok::<_, Infallible>(Frame::data(line)), receiver))
    });
    Response::new(BodyExt::boxed(StreamBody::new(frames)))
}

/// Mount in the background of the answer; a caller that hangs up before it is mounted has it given up, and one that
/// holds the mount ends it.
fn mounting(host: &Arc<Host>, request: MountRequest, asker: Asker) -> Result<Answer> {
    let level = request.tell.as_deref().map(crate::journal::parsed).transpose()?;
    let (sender, receiver) = channel::<Bytes>(LINES_MAX);
    let host = host.clone();
    tokio::spawn(async move {
        let mut records = level.map(|level| host.journal().listen(level));
        let holder = request.hold.then_some(asker);
        let (listed, mut listing) = watch::channel(0);
        let making = host.mount(request, move |names| {
            listed.send_replace(names);
        });
        tokio::pin!(making);
        let made = loop {
            tokio::select! {
                made = &mut making => break made,
                Ok(()) = listing.changed() => {
                    let listed = Some(*listing.borrow_and_update());
                    // Who is behind hears the next one.
                    let _ = sender.try_send(line(&Mounting { listed, ..Mounting::default() }));
                }
                record = next(&mut records) => tell(&sender, record).await,
                () = sender.closed() => return,
            }
        };
        let mounted = match made {
            Ok(mounted) => mounted,
            Err(error) => {
                let error = Some(problem(&error));
                let _ = sender.send(line(&Mounting { error, ..Mounting::default() })).await;
                return;
            }
        };
        follow_mount(&host, mounted, holder, &sender, &mut records).await;
    });
    Ok(lines(receiver))
}

/// Go on holding a mount that another process made.
async fn holding(host: &Arc<Host>, request: HoldRequest, asker: Asker) -> Result<Answer> {
    let level = request.tell.as_deref().map(crate::journal::parsed).transpose()?;
    let place = MountPath { path: request.path, id: Some(request.id), url: request.url, ..MountPath::default() };
    let (mounted, _) = host.find(&place).await?;
    let (host, (sender, receiver)) = (host.clone(), channel::<Bytes>(LINES_MAX));
    tokio::spawn(async move {
        let mut records = level.map(|level| host.journal().listen(level));
        follow_mount(&host, mounted, Some(asker), &sender, &mut records).await;
    });
    Ok(lines(receiver))
}

/// Say that it is mounted, and, if somebody holds it, what happens until it has ended.
async fn follow_mount(
    host: &Arc<Host>,
    mounted: Arc<Mounted>,
    holder: Option<Asker>,
    sender: &Sender<Bytes>,
    records: &mut Option<Receiver<Record>>,
) {
    let first = Mounting { mounted: Some(mounted.status(&Places::now())), ..Mounting::default() };
    let heard = sender.send(line(&first)).await.is_ok();
    match holder {
        None if heard => return,
        holder => mounted.is_held(host.keeper(), holder.as_ref().and_then(|asker| asker.as_ref().as_ref())),
    }
    loop {
        tokio::select! {
            () = mounted.ended() => break,
            record = next(records) => tell(sender, record).await,
            () = sender.closed() => return give_up(mounted).await,
        }
    }
    host.left().await;
    let _ = sender.send(line(&Mounting { over: true, ..Mounting::default() })).await;
}

async fn next(records: &mut Option<Receiver<Record>>) -> Record {
    match records {
        Some(records) => match records.recv().await {
            Some(record) => record,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn tell(sender: &Sender<Bytes>, record: Record) {
    let _ = sender.send(line(&Mounting { record: Some(record), ..Mounting::default() })).await;
}

/// Load in the background of the answer; a caller that hangs up ends it, and so does the end of the mount.
async fn load(host: &Arc<Host>, request: LoadRequest) -> Result<Answer> {
    let (mounted, rest) = host.find(&MountPath { path: request.path, ..MountPath::default() }).await?;
    let under = rest.to_string_lossy().into_owned();
    let wanted = Wanted { under, include: request.include, exclude: request.exclude, list: request.list };
    let (host, tally, before) = (host.clone(), Arc::new(Loading::default()), host.requests());
    let (sender, receiver) = channel::<Bytes>(LINES_MAX);
    tokio::spawn(async move {
        let loading = mounted.view.load(&wanted, request.verify, &tally);
        let ended = async {
            mounted.ended().await;
            let error = Error::unavailable("the mount ended in the middle of the load", mounted.path.display());
            error.hint("mount again, then the same load: it goes on where it stopped")
        };
        follow(loading, ended, &sender, || loaded(&tally, host.requests() - before)).await;
    });
    Ok(lines(receiver))
}

/// Tell how far a load is until it is over, or its mount has ended, and then how it ended; give it up when nobody listens
/// any more.
async fn follow(
    loading: impl Future<Output = Result<()>>,
    ended: impl Future<Output = Error>,
    sender: &Sender<Bytes>,
    so_far: impl Fn() -> Loaded,
) {
    let telling = async {
        loop {
            tokio::time::sleep(LOAD_TOLD_EVERY).await;
            // Who is behind hears the next one: nobody who stops reading may stop the load, and others with it.
            let _ = sender.try_send(line(&so_far()));
        }
    };
    // The load lets go of what it holds before somebody who reads no longer is waited for.
    let error = tokio::select! {
        done = loading => done.err(),
        error = ended => Some(error),
        () = telling => return,
        () = sender.closed() => return,
    };
    let error = error.as_ref().map(problem);
    let _ = sender.send(line(&Loaded { over: true, error, ..so_far() })).await;
}

/// A load's progress as a message.
pub fn loaded(tally: &Loading, requests: u64) -> Loaded {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Journal, Life};
    use node::Node;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Nothing here takes longer on a machine that works at all.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_node_that_ends_removes_its_own_socket_and_not_that_of_another_at_the_same_path() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let (_first, of_first) = bind(&socket).unwrap();
        let (second, of_second) = bind(&socket).unwrap();
        drop(of_first);
        assert!(UnixStream::connect(&socket).await.is_ok(), "the second one's is there");
        drop((of_second, second));
        assert!(!socket.exists());
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_that_its_mount_ended_holds_nothing_while_nobody_reads_how_it_ended() {
        let (sender, receiver) = channel(LINES_MAX);
        let held = tokio::sync::Semaphore::new(1);
        let loading = async {
            let _permit = held.acquire().await;
            std::future::pending().await
        };
        let ended = async {
            tokio::time::sleep(2 * LINES_MAX as u32 * LOAD_TOLD_EVERY).await;
            Error::unavailable("the mount ended", "/mnt")
        };
        let following = follow(loading, ended, &sender, Loaded::default);
        tokio::pin!(following);
        let over = tokio::time::timeout(LONG, &mut following).await;
        assert!(over.is_err() && sender.capacity() == 0, "it waits for who reads nothing");
        assert_eq!(held.available_permits(), 1, "the load is let go of");
        drop(receiver);
        following.await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_at_which_nothing_is_asked_holds_no_node_that_ends() {
        let folder = tempfile::tempdir().unwrap();
        let settings = node::Settings {
            cache: folder.path().join("cache"),
            limits: cache::disk::Limits { bytes: 1 << 20, files: 100, free_bytes_min: 0, free_files_min: 0 },
            memory_bytes: 64 << 20,
            seed: 1,
            patience: Duration::from_secs(1),
        };
        let node = Node::start(settings, [1; 16], tokio::runtime::Handle::current()).unwrap();
        let journal = Arc::new(Journal::open(None, tracing::Level::INFO, || 0.0).unwrap());
        let host = Host::new(node, journal, Life::Asked, None);
        let socket = folder.path().join("socket");
        let (listener, _bound) = bind(&socket).unwrap();
        listen(&host, listener);
        let _silent = UnixStream::connect(&socket).await.unwrap();
        // As a client that keeps its connections asks: the answer has an end without the connection's.
        let mut kept = UnixStream::connect(&socket).await.unwrap();
        kept.write_all(b"GET /v1/status HTTP/1.1\r\nhost: stoker\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(LONG, kept.read_to_end(&mut answer)).await;
        assert!(read.expect("the connection ends with the answer").is_ok() && answer.ends_with(b"}\n"));
        let mut commands = host.commands.subscribe();
        let none = tokio::time::timeout(LONG, commands.wait_for(|count| *count == 0)).await;
        assert!(none.is_ok(), "one that asked nothing is no command");
    }
}
