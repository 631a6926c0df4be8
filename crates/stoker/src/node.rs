//! `stoker node`: a node as a process of its own, which mounts ask to mount for them. The first mount of a cache folder
//! starts it.
//!
//! Invariant: what becomes of a command that asked is nothing to the mounts of others.

mod folder;
mod resume;

use crate::args;
use crate::ends::{End, Ends};
use crate::mount::from_here;
use crate::{WRONG_WORDS, cluster, keep, keeper, log, notify, place, runtime, show};
use block::{Error, Kind};
use client::messages::MountRequest;
use client::sockets;
use daemon::control::Bound;
use daemon::journal::Form;
use daemon::keeper::Named;
use daemon::{Host, Journal, Lease, Life, control, data};
use futures_util::future::OptionFuture;
use node::{Home, Node};
use peer::Leave;
use resume::GoingOn;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, Sleep};

/// How long a request to the store is repeated before its reader gets EIO, unless another is given.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long readers may go on once a node was asked to end. Kubernetes grants thirty seconds in all.
pub const GRACE: Duration = Duration::from_secs(7);

/// What closing the cache folder may take after that.
pub const LAST: Duration = Duration::from_secs(2);

// docs/semantics.md promises ten.
const _: () = assert!(GRACE.as_secs() + LAST.as_secs() < 10);

/// Before another try of what a mount that is to go on waits for.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The exit code of a node that found another on its cache folder.
const TAKEN: u8 = 75;

/// What whoever holds the mounts is told when they end with this node.
const STOPPING: &str = "STOPPING=1";

/// The exit code of what was interrupted.
pub const INTERRUPTED: u8 = 130;

pub fn run(args: &args::Node, verbose: u8) -> anyhow::Result<ExitCode> {
    let mut left = keeper::inherited();
    // Names, snapshots and blocks are this user's.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let flags = &args.node;
    let lock = left.remove(resume::LOCK).map(Into::into);
    let goes_on = left.keys().any(|name| name != keep::SOCKET);
    let cache = match place::cache(flags.cache.as_deref()) {
        Err(_) if goes_on => place::cache_named(flags.cache.as_deref()),
        cache => cache,
    }?;
    let socket = sockets::of_cache(&place::runtime()?, &cache);
    let taken = match goes_on {
        true => folder::have(&cache, flags.group_cache, lock, &socket.with_extension("cache"), flags.cache_size),
        false => folder::take(&cache, flags.group_cache, lock),
    };
    let home = match taken {
        Err(Error { kind: Kind::Unavailable { .. }, .. }) if args.for_mounts => return Ok(ExitCode::from(TAKEN)),
        home => home?,
    };
    let in_its_stead = home.stands_in().map(|_| home.path().to_owned());
    let settings = node::Settings {
        limits: folder::limits(&home, flags.cache_size)?,
        memory_bytes: place::memory(flags.memory)?,
        // In containers, the first process has the same number everywhere.
        seed: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64
            ^ u64::from(std::process::id()),
        patience: flags.patience.unwrap_or(PATIENCE),
        cache,
    };
    let path = match &flags.log {
        Some(path) => Some(place::absolute(path)?),
        None => args.for_mounts.then(|| socket.with_extension("log")),
    };
    // Whoever starts one for mounts reads what it says.
    let said = flags.log_format.as_deref();
    let form = if args.for_mounts { said.and_then(Form::parsed).unwrap_or_default() } else { show::speak(said) };
    let journal = Arc::new(Journal::open(path, log::level(verbose), place::now)?.written_as(form));
    log::to_journal(&journal, !args.for_mounts);
    folder::tell(&home, &settings.cache);
    raise_descriptors();
    let runtime = runtime()?;
    let life = if args.for_mounts { Life::Mounts } else { Life::Asked };
    let lease = flags.lease.as_deref().map(Lease::read).transpose()?.map(Arc::new);
    let sets = args.urls.iter().map(|url| set(args, url)).collect::<block::Result<Vec<_>>>()?;
    let terms = Terms { life, sets, lease: lease.clone(), left, goes_on, cluster: flags.cluster.clone() };
    let lock = home.lock()?;
    let done = runtime.block_on(serve(home, settings, journal, &socket, terms));
    // One that failed may be started again, and needs both.
    if let Some(lease) = lease.filter(|_| done.is_ok()) {
        lease.give_back();
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    if done.is_ok() {
        // The folder is free now, though somebody may hold its lock for us a moment longer.
        let _ = lock.unlock();
        in_its_stead.map(std::fs::remove_dir_all);
    }
    done
}

/// A data set that is to be there for other members.
fn set(args: &args::Node, url: &str) -> block::Result<MountRequest> {
    let reach = place::reach(&args.reach, url)?;
    Ok(MountRequest {
        url: from_here(url)?,
        endpoint: reach.endpoint,
        region: reach.region,
        profile: reach.profile,
        anonymous: reach.anonymous,
        fill: Some(args.fill.clone()),
        keys: place::keys(),
        variables: place::variables(url),
        ..MountRequest::default()
    })
}

/// How long a node goes on.
struct Terms {
    life: Life,
    /// Data sets that are to be there for other members.
    sets: Vec<MountRequest>,
    lease: Option<Arc<Lease>>,
    /// What a process before this one left to go on with, and whether that is a mount.
    left: Named,
    goes_on: bool,
    cluster: args::ClusterFlags,
}

/// Join the cluster, if there is one. Where mounts wait to be gone on with, whoever tells of its members may be away for so long, and
/// the process before this one may not have given its port back yet.
fn join(
    flags: &args::ClusterFlags,
    runtime: &tokio::runtime::Handle,
    patience: Option<Duration>,
) -> block::Result<Option<cluster::Joined>> {
    let began = Instant::now();
    loop {
        match cluster::join(flags, runtime) {
            Err(error) if patience.is_some_and(|patience| began.elapsed() < patience) => {
                tracing::warn!("its mounts wait for its cluster: {error}");
                std::thread::sleep(AGAIN_AFTER);
            }
            joined => return joined,
        }
    }
}

/// A node that is there for others.
struct Begun {
    host: Arc<Host>,
    leave: Option<Leave>,
    bound: Bound,
    /// The data socket.
    _lends: Bound,
    /// What it is to go on with.
    going_on: Option<GoingOn>,
}

/// A node that others of its cluster may ask from now on, and commands, also while a mount that it is to go on with waits for
/// something. They may connect before it is there.
async fn begin(
    home: Home,
    settings: node::Settings,
    journal: &Arc<Journal>,
    socket: &Path,
    terms: &mut Terms,
) -> anyhow::Result<Begun> {
    let (lock, left) = (home.lock()?, std::mem::take(&mut terms.left));
    // Who holds a mount that goes on waits for as long as it takes. Others start no node where one has this socket.
    let early = terms.goes_on.then(|| control::bind(socket)).transpose()?;
    let (cluster, runtime) = (terms.cluster.clone(), tokio::runtime::Handle::current());
    let patience = terms.goes_on.then_some(settings.patience);
    let joined = tokio::task::spawn_blocking(move || join(&cluster, &runtime, patience)).await??;
    let (listener, bound) = early.map_or_else(|| control::bind(socket), Ok)?;
    let (leave, membership, door) = match joined {
        Some(joined) => (Some(joined.leave), Some(joined.membership), Some(joined.listener)),
        None => (None, None, None),
    };
    let node = Node::start_in(home, settings, place::boot(), tokio::runtime::Handle::current(), membership)?;
    if let Some((listener, lines)) = door.zip(node.stack().lines()) {
        tokio::spawn(peer::serve(listener, node.giving(), lines.clone()));
    }
    let host = Host::new(node, journal.clone(), terms.life, terms.lease.clone());
    if terms.life == Life::Mounts {
        // What a panic says stands in the log too; whoever started us reads no more.
        journal.tell_begun(|file| {
            let _ = rustix::stdio::dup2_stderr(file);
        });
    }
    let going_on = resume::begin(&host, terms.life, &lock, left)?;
    let (lender, lends) = data::bind(socket)?;
    data::listen(&host, lender);
    // Heard from now on: who names a mount that is not there yet waits for that one alone.
    control::listen(&host, listener);
    tokio::spawn(host.clone().feel_the_pulse());
    Ok(Begun { host, leave, bound, _lends: lends, going_on })
}

/// Wait until somebody wants the node to end.
async fn told_to_end(signals: &mut Ends, journal: &Journal) {
    while signals.next().await == End::Hangup {
        reopen(journal);
    }
}

/// Unmount what a process was to go on with. Where there is a host, it may have ended some of it.
fn unmounted(mounts: &[::mount::Terms], unmount: impl Fn(&::mount::Terms) -> block::Result<()>) {
    mounts.iter().filter_map(|mounted| unmount(mounted).err()).for_each(|error| tracing::warn!("{error}"));
}

/// Told to end before there is a node, a process ends what it was to go on with.
fn end_left(mounts: &[::mount::Terms], keeper: Option<OwnedFd>) {
    unmounted(mounts, ::mount::Terms::unmount);
    notify::stopping();
    // No other one is to be started.
    let told = keeper.map(|socket| UnixDatagram::from(socket).send(STOPPING.as_bytes()));
    if let Some(Err(error)) = told {
        tracing::warn!("who holds the mounts does not hear that they end: {error}");
    }
}

fn reopen(journal: &Journal) {
    journal.reopen().unwrap_or_else(|error| tracing::warn!("the log goes on in its old file: {error}"));
}

/// Begin, and serve until the end; told to end before there is a node, a process ends what it was to go on with.
async fn serve(
    home: Home,
    settings: node::Settings,
    journal: Arc<Journal>,
    socket: &Path,
    mut terms: Terms,
) -> anyhow::Result<ExitCode> {
    let mut signals = Ends::new();
    let (left, keeper) = (daemon::settled(&terms.left), terms.left.get(keep::SOCKET).map(OwnedFd::try_clone));
    let begun = tokio::select! {
        begun = begin(home, settings, &journal, socket, &mut terms) => begun?,
        () = told_to_end(&mut signals, &journal) => {
            end_left(&left, keeper.and_then(Result::ok));
            return Ok(ExitCode::SUCCESS);
        }
    };
    until_the_end(begun, signals, &journal, &terms, &left).await
}

/// Serve until the end, which is the last mount's, that of the lease, or comes by a signal.
async fn until_the_end(
    Begun { host, leave, bound, _lends, going_on }: Begun,
    mut signals: Ends,
    journal: &Journal,
    terms: &Terms,
    left: &[::mount::Terms],
) -> anyhow::Result<ExitCode> {
    let leaving = host.clone();
    let leave_all = at_the_end("stoker-leave", move || leaving.end())?;
    let end_anyway = at_the_end("stoker-end", end_anyway)?;
    let (mut is_ending, mut is_there, mut is_ready, mut code) = (false, false, false, ExitCode::SUCCESS);
    let mut goes_on = false;
    let (going_on, ended) = (resume::done(going_on, &host, terms.life), host.ended());
    let (opening, late) = (open(&host, &terms.sets, terms.goes_on), tokio::time::sleep(Duration::MAX));
    let is_over = is_over(terms.lease.clone());
    tokio::pin!(going_on, opening, ended, late, is_over);
    let ends = || host.keeper().map(|keeper| keeper.tell(STOPPING));
    let end_soon = |late: Pin<&mut Sleep>| {
        ends();
        // Keys are read by now, and the end may be a sudden one.
        terms.lease.iter().for_each(|lease| lease.give_back());
        notify::stopping();
        late.reset(Instant::now() + GRACE);
        let _ = (leave_all.try_send(()), end_anyway.try_send(()));
    };
    loop {
        tokio::select! {
            // What could not be gone on with may be for another process yet.
            () = &mut ended, if is_there || is_ending => break,
            gone_on = &mut going_on, if !is_there => {
                (is_there, goes_on) = (true, gone_on.is_ok());
                // Which ends now, or is another's to try.
                gone_on.or_else(|error| if is_ending { Ok(()) } else { Err(error) })?;
            }
            opened = &mut opening, if is_there && !is_ready && !is_ending => {
                opened?;
                is_ready = true;
                tell_ready(&terms.sets);
            }
            () = &mut is_over, if !is_ending => {
                is_ending = true;
                end_soon(late.as_mut());
            }
            // What is read is still being kept, so that the next node has to look for strays.
            () = &mut late, if is_ending => break,
            end = signals.next() => match end {
                End::Hangup => reopen(journal),
                _ if is_ending => {
                    code = ExitCode::from(INTERRUPTED);
                    break;
                }
                _ => {
                    is_ending = true;
                    end_soon(late.as_mut());
                }
            },
        }
    }
    ends();
    unmounted(if goes_on { &[] } else { left }, ::mount::Terms::unmount_there);
    drop(bound);
    if terms.life == Life::Mounts {
        journal.remove_empty();
    }
    tokio::join!(OptionFuture::from(leave.map(Leave::leave)), host.tell_ended());
    host.let_go();
    Ok(code)
}

/// Have data sets for other members.
///
/// Where mounts go on, a store that is away ends nothing.
async fn open(host: &Arc<Host>, sets: &[MountRequest], goes_on: bool) -> block::Result<()> {
    if goes_on {
        tell_ready(sets);
    }
    for set in sets {
        while let Err(error) = host.serve(set).await {
            if !goes_on {
                return Err(error);
            }
            tracing::warn!("not there for other members yet: {error}");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        tracing::info!("ready for other members: {}", set.url);
    }
    Ok(())
}

fn tell_ready(sets: &[MountRequest]) {
    notify::ready(if sets.is_empty() { "ready for mounts" } else { "ready for other members" });
}

/// Wait for the end of a lease, if there is one.
async fn is_over(lease: Option<Arc<Lease>>) {
    match lease {
        Some(lease) => {
            lease.over(place::now).await;
            tracing::warn!("the lease of this node is over, and nobody renewed it: it unmounts and ends");
        }
        None => std::future::pending().await,
    }
}

/// A thread that does something once it is asked to. At the end there may be no more threads to be had, and those of the
/// runtime may all wait for a store.
fn at_the_end(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<SyncSender<()>> {
    let (sender, receiver) = sync_channel(1);
    let waiting = move || {
        if receiver.recv().is_ok() {
            work();
        }
    };
    std::thread::Builder::new().name(name.into()).spawn(waiting)?;
    Ok(sender)
}

/// Whatever waits for what, the process ends.
fn end_anyway() {
    std::thread::sleep(GRACE + LAST);
    std::process::exit(1);
}

/// Every complete file that is open is a descriptor: ask for as many as the system gives.
pub fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::info!("the number of open files stays at {:?}", limit.current);
    }
}

/// The program that runs, by a path at which the next version of it will lie.
pub fn program() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    // So the kernel names a file that was replaced.
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|path| path.exists()).unwrap_or(program))
}

/// Start a node in a session of its own, and return once it can be asked, or another that has the cache folder.
pub fn start(flags: &args::NodeFlags, cache: &Path, verbose: u8) -> anyhow::Result<()> {
    let mut command = Command::new(program()?);
    command.args(["node", "--for-mounts", "--cache"]).arg(cache);
    let path = flags.log.as_deref().map(place::absolute).transpose()?;
    let patience = flags.patience.map(|time| format!("{}ms", time.as_millis()));
    for (name, value) in [
        ("--cache-size", flags.cache_size.map(|bytes| format!("{bytes}B").into())),
        ("--memory", flags.memory.map(|bytes| format!("{bytes}B").into())),
        ("--patience", patience.map(Into::into)),
        ("--log", path.map(PathBuf::into_os_string)),
        ("--log-format", flags.log_format.clone().map(Into::into)),
        ("--lease", flags.lease.clone().map(PathBuf::into_os_string)),
        ("--members", flags.cluster.members_from_here()?.map(Into::into)),
        ("--listen", flags.cluster.listen.clone().map(Into::into)),
        ("--interface", flags.cluster.interface.clone().map(Into::into)),
        ("--name", flags.cluster.name.clone().map(Into::into)),
        ("--weight", flags.cluster.weight.map(|weight| weight.to_string().into())),
        ("--identity", flags.cluster.identity.as_deref().map(place::absolute).transpose()?.map(Into::into)),
    ] {
        let value: Option<OsString> = value;
        command.args(value.iter().flat_map(|value| [OsStr::new(name), value]));
    }
    if flags.group_cache {
        command.arg("--group-cache");
    }
    if flags.cluster.plaintext {
        command.arg("--plaintext");
    }
    command.args(std::iter::repeat_n("-v", verbose.into()));
    // A library looks for them in the environment of the node; each mount hands over its own.
    for name in ["HADOOP_PROXY_USER", "HADOOP_TOKEN_FILE_LOCATION"] {
        command.env_remove(name);
    }
    command.env_remove(notify::SOCKET).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // It must not hold a folder that somebody wants to unmount.
    command.current_dir("/");
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            rustix::process::setsid().map(|_| ()).map_err(Into::into)
        });
    }
    let mut child = command.spawn()?;
    let mut said = String::new();
    // It says nothing and closes this once it is there.
    let read = std::io::Read::read_to_string(child.stderr.as_mut().expect("it is piped"), &mut said);
    if read.is_ok() && said.is_empty() {
        // It is there, or ends because another is. Without a thread to wait for it, init does.
        let _ = std::thread::Builder::new().spawn(move || child.wait());
        return Ok(());
    }
    let (code, said) = (child.wait()?.code(), said.trim_start_matches("stoker: ").trim_end());
    match (code, parts(said)) {
        (Some(0), _) => Ok(()),
        (Some(code), Some(invalid)) if code == i32::from(WRONG_WORDS) => Err(invalid.into()),
        _ => anyhow::bail!("{said}"),
    }
}

/// A printed failure about what was typed, in its parts.
fn parts(said: &str) -> Option<Error> {
    let (what, rest) = said.split_once("\n  on:  ")?;
    let (on, hint) = rest.split_once("\n  try: ")?;
    Some(Error::invalid(what, on).hint(hint))
}
