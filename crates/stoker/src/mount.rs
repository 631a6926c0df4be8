//! `stoker mount`: ask the node of a cache folder to mount, and start one if there is none.
//!
//! Invariant: the mount lives no longer than this command, unless it is detached; that holds however the command ends,
//! because the node sees it hang up.

mod found;

pub use found::{ask_found, ask_of, node_of, node_within, typed};

use crate::args::Mount;
use crate::ends::{End, Ends};
use crate::node::{self, GRACE, INTERRUPTED, LAST};
use crate::{check, keep, log, notify, place, print, runtime, show};
use block::{Error, Kind};
use client::messages::{HoldRequest, MountPath, MountRequest, Mounting};
use client::{Client, Failure, sockets};
use daemon::{ENDING, reach};
use futures_util::future::OptionFuture;
use hyper::Method;
use indicatif::ProgressBar;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Another process may be starting or ending the node of this cache folder just now: pauses that double, eleven seconds
/// in all. Each try starts a process, which ends at once where there is a node.
const TRIES_TO_JOIN: u32 = 30;
const JOIN_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));

// A node that was asked to end is waited for, whoever has files open; the first four pauses are short.
const _: () = assert!(JOIN_PAUSE.1.as_millis() * (TRIES_TO_JOIN as u128 - 4) > (GRACE.as_millis() + LAST.as_millis()));

/// How long a process that goes on with the mounts of one that is gone may take to listen, which it does before it waits for anything.
const GOES_ON_WITHIN: Duration = Duration::from_secs(15);

// Whoever holds the mounts may wait for a program that is being put in its place, and the start of a process takes seconds on a machine
// that is busy.
const _: () = assert!(GOES_ON_WITHIN.as_secs() >= 2 * keep::THERE_WITHIN.as_secs() + 5);

/// Lines of the node that we may be behind.
const LINES_MAX: usize = 64;

/// A listing that is older was not made by this mount.
const LISTING_OLD_SECONDS: f64 = 60.0;

/// Says on standard output that it is mounted.
const READY: &str = "mounted";

pub fn run(args: &Mount, verbose: u8) -> anyhow::Result<ExitCode> {
    show::speak(args.node.log_format.as_deref());
    // What is wrong on the face of it is said before a node is started.
    if args.dir.to_string_lossy().contains("://") {
        let error = Error::invalid("the URL goes first, and the folder behind it", args.dir.display());
        return Err(error.hint(format!("stoker mount {} {}", args.dir.display(), args.url)).into());
    }
    let location = args.url.parse::<store::Location>()?;
    if matches!(location, store::Location::Web { .. }) && args.set.manifest.is_none() {
        let error = Error::invalid("a web server does not tell the names of its files", &args.url);
        return Err(error.hint(named_or_bucket(&location)).into());
    }
    place::memory(args.node.memory)?;
    let (request, runtime) = (request(args, verbose)?, runtime()?);
    runtime.block_on(store::check(&location, &reach::reach(&request)))?;
    let cache = place::cache_named(args.node.cache.as_deref())?;
    place::are_apart(&cache, &args.dir)?;
    let cache = place::cache(Some(&cache))?;
    // Who says how large it is to be knows the disk.
    if let Some(found) = check::disk::useless(&cache).filter(|_| args.node.cache_size.is_none()) {
        let cure = found.cure.unwrap_or_default();
        tracing::warn!("the cache in {}: {}; {cure}", cache.display(), found.said);
    }
    let socket = sockets::of_cache(&place::runtime()?, &cache);
    let done = runtime.block_on(async {
        let mut ends = Ends::new();
        let mut pause = Duration::ZERO;
        for _ in 0..TRIES_TO_JOIN {
            if let Some(done) = ask(&socket, &request, &mut ends).await? {
                return Ok(done);
            }
            let (flags, cache) = (args.node.clone(), cache.clone());
            let starting = async {
                tokio::time::sleep(pause).await;
                tokio::task::spawn_blocking(move || node::start(&flags, &cache, verbose)).await
            };
            tokio::select! {
                started = starting => started??,
                _ = ends.next() => return Ok(ExitCode::from(INTERRUPTED)),
            }
            pause = (2 * pause).clamp(JOIN_PAUSE.0, JOIN_PAUSE.1);
        }
        let error = Error::unavailable("another node has this cache folder and does not answer", cache.display());
        Err(error.hint("end that process, or choose another --cache").into())
    });
    // A thread may wait for a node that does not answer.
    runtime.shutdown_background();
    done
}

/// What to try where the names of a web server are not told: they are in a file, or it is a server of S3 that was meant.
fn named_or_bucket(location: &store::Location) -> String {
    let store::Location::Web { server, prefix } = location else { return String::new() };
    let bucket = prefix.trim_end_matches('/');
    let bucket = if bucket.is_empty() { "BUCKET" } else { bucket };
    let hint =
        "name them by --manifest FILE (`stoker manifest import` makes one of a list); if this is a server of S3, it is";
    let bucket = block::quoted(Path::new(&format!("s3://{bucket}")));
    format!("{hint} {bucket} --endpoint {server}")
}

/// A URL, or a folder as it is meant here: the node works in a folder of its own. No file system is asked, which may
/// hang.
pub fn from_here(url: &str) -> block::Result<String> {
    if url.contains("://") {
        Ok(url.into())
    } else {
        Ok(place::absolute(Path::new(url))?.to_string_lossy().into_owned())
    }
}

/// What this command asks of a node.
fn request(args: &Mount, verbose: u8) -> anyhow::Result<MountRequest> {
    let (path, reach) = (place::absolute(&args.dir)?, place::reach(&args.reach, &args.url)?);
    let path = path.to_str().ok_or_else(|| {
        let error = Error::invalid("the name of the mount point is not UTF-8", path.display());
        error.hint("choose another folder")
    })?;
    let log = args.node.log.as_deref().map(place::absolute).transpose()?;
    let manifest = args.set.manifest.as_deref().map(place::absolute).transpose()?;
    Ok(MountRequest {
        url: from_here(&args.url)?,
        path: path.to_owned(),
        endpoint: reach.endpoint,
        region: reach.region,
        profile: reach.profile,
        anonymous: reach.anonymous,
        immutable: args.set.immutable,
        fill: args.set.fill.clone(),
        refresh_seconds: args.set.refresh.map(|time| time.as_secs().max(1)),
        manifest: manifest.map(|path| path.to_string_lossy().into_owned()),
        hold: !args.detach,
        tell: Some(log::level(verbose).as_str().to_ascii_lowercase()),
        cache_bytes: args.node.cache_size,
        memory_bytes: args.node.memory,
        patience_ms: args.node.patience.map(|time| time.as_millis() as u64),
        log: log.map(|path| path.to_string_lossy().into_owned()),
        // What is meant for all that one starts is no wish about a node that is there.
        log_format: args
            .node
            .log_format
            .clone()
            .filter(|form| place::variable("STOKER_LOG_FORMAT").as_ref() != Some(form)),
        group_cache: args.node.group_cache,
        members: args.node.cluster.members_from_here()?,
        owner: args.shown.uid,
        group: args.shown.gid,
        file_mode: args.shown.file_mode(),
        folder_mode: args.shown.folder_mode(),
        keys: place::keys(),
        variables: place::variables(&args.url),
    })
}

/// Ask the node of a socket to mount; stay until the mount ends, unless it is detached. `None` if there is no node.
async fn ask(socket: &Path, request: &MountRequest, ends: &mut Ends) -> anyhow::Result<Option<ExitCode>> {
    let (sender, mut lines) = mpsc::channel(LINES_MAX);
    let client = Client::new(socket, rustix::process::geteuid().as_raw());
    let (asked, asks, answers) = (request.clone(), client.clone(), sender.clone());
    let mut asking =
        tokio::spawn(async move { asks.tell::<Mounting>(Method::POST, "/v1/mounts", &asked, answers).await });
    let (fell_silent, late) = (client.fell_silent(), tokio::time::sleep(Duration::MAX));
    tokio::pin!(fell_silent, late);
    let listing = show::spinner(&format!("listing {}", request.url));
    let mut held =
        Asked { client: &client, request, listing, place: None, gone_since: None, asked_to_end: false, ending: None };
    let mut has_heard = false;
    loop {
        tokio::select! {
            biased;
            Some(line) = lines.recv() => {
                if let Some(done) = held.hear(line) {
                    return done;
                }
            }
            Some(heard) = OptionFuture::from(held.ending.as_mut()), if held.ending.is_some() => {
                held.ending = None;
                has_heard = heard?.map_err(show::refused)?;
                if !has_heard && held.gone_since.is_none() {
                    held.tell_to_end();
                }
            }
            done = &mut asking => {
                let done = done?;
                let goes_on = held.may_go_on(&done);
                match &held.place {
                    // Told to end, it did, though it could not say so any more.
                    Some(place) if has_heard || held.asked_to_end && is_unknown(&done) => return Ok(Some(given_up(Some(place)))),
                    Some(place) if goes_on => {
                        asking = tokio::spawn(hold(client.clone(), request, place, sender.clone()));
                    }
                    place => return ended(done, place.as_ref()),
                }
            }
            // Once it is mounted, only the end of the node ends it.
            () = &mut fell_silent, if held.place.is_none() => return Err(show::refused(Failure::Silent)),
            () = &mut late, if held.asked_to_end => {
                return Ok(Some(given_up(held.place.as_ref().filter(|_| held.gone_since.is_some()))));
            }
            end = ends.next() => {
                // Asked twice, or before anything is mounted, we hang up, and the node gives the mount up.
                if held.place.is_none() || held.asked_to_end && end != End::Hangup {
                    return Ok(Some(ExitCode::from(INTERRUPTED)));
                }
                held.asked_to_end = true;
                notify::stopping();
                late.as_mut().reset(Instant::now() + GRACE);
                held.tell_to_end();
            }
        }
    }
}

/// A mount that was asked for.
struct Asked<'a> {
    client: &'a Client,
    request: &'a MountRequest,
    listing: ProgressBar,
    place: Option<MountPath>,
    /// Since when nobody has answered, unless somebody does.
    gone_since: Option<Instant>,
    asked_to_end: bool,
    /// Whether a node has heard that the mount is to end, and can end it.
    ending: Option<tokio::task::JoinHandle<Result<bool, Failure>>>,
}

impl Asked<'_> {
    /// What the node says; what comes of the command if it ends by that.
    fn hear(&mut self, line: Mounting) -> Option<anyhow::Result<Option<ExitCode>>> {
        let url = &self.request.url;
        if let Some(record) = &line.record {
            self.listing.suspend(|| show::record(record));
        }
        if let Some(names) = line.listed {
            self.listing.set_message(format!("listing {url}: {}", show::count_of(names, "name")));
        }
        if let Some(problem) = line.error {
            let is_ending = problem.what == ENDING;
            return Some(if is_ending { Ok(None) } else { Err(show::refused(Failure::Refused(problem))) });
        }
        if let Some(mounted) = line.mounted {
            self.gone_since = None;
            if self.place.is_none() {
                self.listing.finish_and_clear();
                tell_mounted(self.request, &mounted);
                let (path, id, url) = (mounted.path, Some(mounted.id), Some(mounted.url));
                self.place = Some(MountPath { path, id, url, lazy: true, everywhere: true });
            } else if self.asked_to_end && self.ending.is_none() {
                // The process that goes on has not heard it.
                self.tell_to_end();
            }
        }
        (line.over || self.place.is_some() && !self.request.hold).then_some(Ok(Some(ExitCode::SUCCESS)))
    }

    /// Whether another process may be about to go on with the mount of one that is gone.
    fn may_go_on(&mut self, done: &Result<(), Failure>) -> bool {
        let now = Instant::now();
        let since = match done {
            Err(Failure::Absent) => *self.gone_since.get_or_insert(now),
            // Somebody was there until now.
            Err(Failure::Gone | Failure::Broken(_)) => *self.gone_since.insert(now),
            _ => return false,
        };
        self.request.hold && since.elapsed() < GOES_ON_WITHIN
    }

    /// Have the node end the mount.
    fn tell_to_end(&mut self) {
        let Some(place) = self.place.clone() else { return };
        let client = self.client.clone();
        self.ending = Some(tokio::task::spawn_blocking(move || {
            let told = client.ask::<Option<bool>>(Method::DELETE, "/v1/mounts", &place);
            match told {
                Err(Failure::Refused(_)) if !is_unknown(&told) => Err(told.unwrap_err()),
                told => Ok(told.is_ok() || is_unknown(&told)),
            }
        }));
    }
}

/// Whether the node that was asked knows of no such mount, which it has ended then.
fn is_unknown<T>(told: &Result<T, Failure>) -> bool {
    matches!(told, Err(Failure::Refused(problem)) if problem.kind == Kind::Missing.name())
}

/// Hold a mount whose node is gone, as another process may be about to go on with it.
fn hold(
    client: Client,
    request: &MountRequest,
    place: &MountPath,
    answers: mpsc::Sender<Mounting>,
) -> impl Future<Output = Result<(), Failure>> + use<> {
    let MountPath { path, id, url, .. } = place.clone();
    let hold = HoldRequest { path, id: id.unwrap_or_default(), url, tell: request.tell.clone() };
    async move {
        tokio::time::sleep(JOIN_PAUSE.0).await;
        client.tell(Method::POST, "/v1/holds", &hold, answers).await
    }
}

/// It is mounted, whether that can be said or not.
fn tell_mounted(request: &MountRequest, mounted: &client::messages::Mount) {
    match say!("{READY} {} at {}", request.url, mounted.path) {
        Err(error) if !error.is::<print::Closed>() => tracing::warn!("it is mounted, but {error}"),
        _ => {}
    }
    tell_age(mounted);
    notify::ready(&format!("{} at {}", request.url, mounted.path));
}

/// Names that were listed long before this mount may not be those of the store by now.
fn tell_age(mounted: &client::messages::Mount) {
    let age = place::now() - mounted.listed_at as f64;
    if age > LISTING_OLD_SECONDS && !mounted.local {
        let (age, path) = (show::age(age), block::quoted(Path::new(&mounted.path)));
        match &mounted.manifest {
            Some(manifest) => note!("the names are those of {manifest}, listed {age} ago"),
            None => note!("the names were listed {age} ago; `stoker refresh {path}` lists them again"),
        }
    }
}

/// The mount was to end and has not; `dead`: nobody is there to end it.
fn given_up(dead: Option<&MountPath>) -> ExitCode {
    match dead {
        Some(place) => take_away(Path::new(&place.path)),
        None => tracing::warn!("files in the mount are still open: it ends when they are closed, or with its node"),
    }
    ExitCode::SUCCESS
}

/// Unmount what nobody serves any more.
fn take_away(path: &Path) {
    if mount::is_stale(path) {
        let _ = mount::unmount_everywhere(path);
    }
}

/// The node said all that it had to say.
fn ended(done: Result<(), Failure>, place: Option<&MountPath>) -> anyhow::Result<Option<ExitCode>> {
    match (done, place) {
        // It ended before it heard us; another may be started.
        (Err(Failure::Absent | Failure::Broken(_)) | Ok(()), None) => Ok(None),
        (Err(refused), None) => Err(show::refused(refused)),
        (_, Some(place)) => {
            let path = Path::new(&place.path);
            take_away(path);
            let error = Error::unavailable("the node ended, and the mount with it", path.display());
            Err(error.hint("mount again; the log of the node says what happened (`stoker status` shows where)").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_told_from_a_url_without_looking_for_it() {
        for url in ["s3://bucket/train", "file:///data", "/not/there"] {
            assert_eq!(from_here(url).unwrap(), url);
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(from_here("not/there").unwrap(), here.join("not/there").display().to_string());
    }
}
