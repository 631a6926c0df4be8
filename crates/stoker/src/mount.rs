//! `stoker mount`: start a node with this mount, or join the node that has the cache folder.

use crate::args::Mount;
use crate::{place, runtime, show};
use block::{Error, Kind};
use client::messages::{MountRequest, Place, Status};
use client::{Client, Failure, sockets};
use daemon::{ENDING, Host, control};
use hyper::Method;
use node::Node;
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long a request to the store is repeated before its reader gets EIO, unless it is told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// Another process may be starting or ending the node of this cache folder just now.
const TRIES_TO_JOIN: u32 = 50;
const JOIN_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Says on standard output of a detached node that it is mounted.
const READY: &str = "mounted";

pub fn run(args: Mount) -> anyhow::Result<ExitCode> {
    let cache = place::cache(args.cache.as_deref())?;
    let socket = sockets::of_cache(&place::runtime()?, &cache);
    let request = request(&args)?;
    for _ in 0..TRIES_TO_JOIN {
        if let Some(done) = join(&socket, &request, args.detach)? {
            return Ok(done);
        }
        if args.detach {
            return detach(&cache, &socket);
        }
        match host(&args, &cache, &socket, &request) {
            Err(error) if error.downcast_ref::<Taken>().is_some() => std::thread::sleep(JOIN_AGAIN_AFTER),
            done => return done,
        }
    }
    let error = Error::unavailable("another node has this cache folder and does not answer", cache.display());
    Err(error.hint("end that process, or choose another --cache").into())
}

/// The lock of the cache folder is somebody else's.
#[derive(Debug)]
struct Taken;

impl std::fmt::Display for Taken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("another node has the cache folder")
    }
}

impl std::error::Error for Taken {}

/// What this command asks of a node.
fn request(args: &Mount) -> anyhow::Result<MountRequest> {
    let (path, reach) = (std::path::absolute(&args.dir)?, place::reach(&args.reach));
    Ok(MountRequest {
        url: args.url.clone(),
        path: path.to_string_lossy().into_owned(),
        endpoint: reach.endpoint,
        region: reach.region,
        profile: reach.profile,
        anonymous: reach.anonymous,
        immutable: args.immutable,
        fill: Some(args.fill.clone()),
        refresh_seconds: args.refresh.map(|time| time.as_secs().max(1)),
        cache_bytes: args.cache_size,
        memory_bytes: args.memory,
        patience_ms: args.patience.map(|time| time.as_millis() as u64),
        keys: place::keys(),
    })
}

/// Ask a running node to mount; stay until the mount ends. `None` if there is no node.
fn join(socket: &Path, request: &MountRequest, detach: bool) -> anyhow::Result<Option<ExitCode>> {
    let client = Client::new(socket);
    match client.ask::<Status>(Method::POST, "/v1/mounts", request) {
        Err(Failure::Absent) => return Ok(None),
        Err(Failure::Refused(problem)) if problem.what == ENDING => {
            std::thread::sleep(JOIN_AGAIN_AFTER);
            return Ok(None);
        }
        answer => answer.map_err(show::refused)?,
    };
    if detach {
        return Ok(Some(ExitCode::SUCCESS));
    }
    let place = Place { path: request.path.clone() };
    // A signal ends this command's mount, not the node.
    runtime()?.block_on(async {
        let (client, waited) = (Client::new(socket), place.clone());
        let wait = tokio::task::spawn_blocking(move || client.ask::<()>(Method::POST, "/v1/wait", &waited));
        tokio::select! {
            done = wait => done?.map_err(show::refused),
            () = asked_to_end() => {
                let client = Client::new(socket);
                tokio::task::spawn_blocking(move || client.ask::<()>(Method::DELETE, "/v1/mounts", &place)).await?.map_err(show::refused)
            }
        }
    })?;
    Ok(Some(ExitCode::SUCCESS))
}

/// Be the node: serve until the last mount ends. A signal unmounts what this command mounted.
fn host(args: &Mount, cache: &Path, socket: &Path, request: &MountRequest) -> anyhow::Result<ExitCode> {
    let settings = node::Settings {
        cache: cache.to_owned(),
        limits: place::limits(cache, args.cache_size)?,
        memory_bytes: place::memory(args.memory)?,
        seed: u64::from(std::process::id()),
        patience: args.patience.unwrap_or(PATIENCE),
    };
    raise_descriptors();
    let runtime = runtime()?;
    let done: anyhow::Result<ExitCode> = runtime.block_on(async {
        let node = Node::start(settings, place::boot(), tokio::runtime::Handle::current());
        // The socket is then somebody else's, and stays.
        let node = node.map_err(|error| if is_taken(&error) { anyhow::Error::new(Taken) } else { error.into() })?;
        let host = Host::new(node);
        control::listen(host.clone(), socket)?;
        let began = std::time::Instant::now();
        let mounted = tokio::select! {
            mounted = host.mount(request.clone(), |names| tracing::info!("listed {names} names")) => mounted?,
            () = asked_to_end() => return Ok(ExitCode::FAILURE),
        };
        tracing::info!("mounted {} at {} in {:?}", request.url, request.path, began.elapsed());
        println!("{READY} {} at {}", request.url, mounted.path.display());
        std::io::stdout().flush()?;
        loop {
            tokio::select! {
                () = host.ended() => return Ok(ExitCode::SUCCESS),
                () = asked_to_end() => unmount(&mounted)?,
            }
        }
    });
    let is_ours = !matches!(&done, Err(error) if error.is::<Taken>());
    if is_ours {
        let _ = std::fs::remove_file(socket);
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// End a mount on a signal. Busy, it is detached: its readers go on until they close.
fn unmount(mounted: &daemon::Mounted) -> anyhow::Result<()> {
    match mounted.unmount(false) {
        Err(error) => {
            tracing::warn!("detaching a mount that is in use: {error}");
            Ok(mounted.unmount(true)?)
        }
        Ok(()) => Ok(()),
    }
}

async fn asked_to_end() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Every complete file that is open is a descriptor: ask for as many as the system gives.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::info!("the number of open files stays at {:?}", limit.current);
    }
}

/// Start the same command in a session of its own, and return once it says that it is mounted.
fn detach(cache: &Path, socket: &Path) -> anyhow::Result<ExitCode> {
    let log = socket.with_extension("log");
    let out = std::fs::File::create(&log).map_err(|error| Error::io("cannot write the log", log.display(), &error))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1).filter_map(attached));
    command.env("STOKER_CACHE", cache).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(out);
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            rustix::process::setsid().map(|_| ()).map_err(Into::into)
        });
    }
    let mut child = command.spawn()?;
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().expect("its output is piped")).read_line(&mut line)?;
    if line.starts_with(READY) {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    let told = std::fs::read_to_string(&log).unwrap_or_default();
    if status.success() && told.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprint!("{told}");
    Ok(ExitCode::FAILURE)
}

/// A word of the command line without the wish to detach, which would start a process for ever: `-vd` is two.
fn attached(word: OsString) -> Option<OsString> {
    let text = word.to_str().unwrap_or_default();
    let is_cluster =
        text.len() > 1 && text.starts_with('-') && text[1..].bytes().all(|letter| matches!(letter, b'd' | b'v'));
    match text {
        "--detach" => None,
        _ if is_cluster => Some(text.replace('d', "")).filter(|rest| rest != "-").map(OsString::from),
        _ => Some(word),
    }
}

/// The socket of the node that serves a path, and the path as the node knows it.
pub fn node_of(path: &Path) -> anyhow::Result<(Client, Status, PathBuf)> {
    let path = std::path::absolute(path)?;
    // A mount whose daemon died cannot be resolved; the path is then taken as it was typed.
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    for socket in sockets::all(&place::runtime()?) {
        let client = Client::new(socket);
        if let Ok(status) = client.ask::<Status>(Method::GET, "/v1/status", &())
            && (Path::new(&status.cache) == path || status.mounts.iter().any(|mount| path.starts_with(&mount.path)))
        {
            return Ok((client, status, path));
        }
    }
    let error = Error::new(Kind::Missing, "nothing is mounted there by a node of this user", path.display());
    Err(error.hint("see `stoker status` for what is mounted").into())
}

/// Whether a failure means that somebody else has the node.
fn is_taken(error: &Error) -> bool {
    matches!(error.kind, Kind::Unavailable { .. })
}
