//! A node and the mounts that it serves. The node ends with its last mount.

use crate::reach::{reach, source};
use block::{Cause, Error, Result};
use client::messages::{Limits, Mount, MountRequest, Refreshed, Status, Store, Tier, Tiers, Waits};
use mount::{Options, Passthrough, Session};
use node::fill::When;
use node::namespace::Namespace;
use node::{Node, View};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The shortest time between two listings.
const TICK: Duration = Duration::from_secs(1);

/// How long a node that ends waits for its last answers to be read.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A node with its mounts.
pub struct Host {
    node: Arc<Node>,
    mounts: Mutex<Vec<Arc<Mounted>>>,
    /// Mounts so far and mounts alive or in the making: the node ends when there were some and there are none,
    /// and takes none from then on.
    alive: watch::Sender<(u64, usize)>,
    /// Commands that are being answered.
    pub commands: watch::Sender<usize>,
}

/// What a node says that takes no mounts any more.
pub const ENDING: &str = "the node of this cache folder is ending";

/// Counts a mount for as long as it lives.
struct Place(Arc<Host>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.alive.send_modify(|(_, alive)| *alive -= 1);
    }
}

/// A data set that is mounted.
pub struct Mounted {
    pub path: PathBuf,
    pub view: Arc<View>,
    session: Session,
    immutable: bool,
    over: watch::Sender<bool>,
    refresh_failed: Mutex<Option<String>>,
}

impl Host {
    pub fn new(node: Arc<Node>) -> Arc<Host> {
        let host = Arc::new(Host {
            node,
            mounts: Mutex::default(),
            alive: watch::channel((0, 0)).0,
            commands: watch::channel(0).0,
        });
        let weak = Arc::downgrade(&host);
        host.node.tell_dropped(move |object| {
            let mounts = weak.upgrade().map(|host| host.mounts().clone()).unwrap_or_default();
            mounts.iter().for_each(|mounted| mounted.dropped(object));
        });
        host
    }

    /// Mount a data set, listing it if it was never listed. `told` hears of names as they are listed.
    pub async fn mount(self: &Arc<Host>, request: MountRequest, told: impl Fn(u64)) -> Result<Arc<Mounted>> {
        self.agree(&request)?;
        let place = self.enter()?;
        let path = PathBuf::from(&request.path);
        let mut reach = reach(&request);
        reach.s3.list_budget = self.node.settings().patience;
        reach.s3.read_buffer = self.node.settings().read_buffer();
        let source = source(&request.url, &reach)?;
        let view = View::open(self.node.clone(), source, fill(&request)?, told).await?;
        let mut options = Options::new(&path, &request.url);
        options.immutable = request.immutable;
        let totals = view.totals();
        options.space = mount::Space { bytes: totals.bytes, files: totals.files };
        let namespace: Arc<dyn Namespace> = view.clone();
        let runtime = tokio::runtime::Handle::current();
        let session = tokio::task::spawn_blocking(move || mount::attach(&options, namespace, runtime)).await;
        let session =
            session.map_err(|error| Error::invalid(format!("the mount was given up: {error}"), path.display()))??;
        let (over, refresh_failed) = (watch::channel(false).0, Mutex::default());
        let path = session.mount_point().to_owned();
        let mounted = Arc::new(Mounted { path, view, session, immutable: request.immutable, over, refresh_failed });
        self.mounts().push(mounted.clone());
        self.watch(&mounted, place);
        if let Some(seconds) = request.refresh_seconds {
            tokio::spawn(refresh_often(mounted.clone(), Duration::from_secs(seconds.max(1))));
        }
        Ok(mounted)
    }

    /// A place among the mounts, unless the node is ending: who asks then starts another.
    fn enter(self: &Arc<Host>) -> Result<Place> {
        let entered = self.alive.send_if_modified(|(ever, alive)| {
            let open = *ever == 0 || *alive > 0;
            if open {
                (*ever, *alive) = (*ever + 1, *alive + 1);
            }
            open
        });
        match entered {
            true => Ok(Place(self.clone())),
            false => Err(Error::unavailable(ENDING, self.node.settings().cache.display())),
        }
    }

    /// Take a mount off the list once the kernel has ended it.
    fn watch(self: &Arc<Host>, mounted: &Arc<Mounted>, place: Place) {
        let (host, mounted) = (self.clone(), mounted.clone());
        std::thread::spawn(move || {
            mounted.session.wait();
            mounted.view.close();
            host.mounts().retain(|other| !Arc::ptr_eq(other, &mounted));
            mounted.over.send_replace(true);
            drop(place);
        });
    }

    /// Later mounts share the node; what they ask of it must be what it has.
    fn agree(&self, request: &MountRequest) -> Result<()> {
        let settings = self.node.settings();
        let patience_ms = settings.patience.as_millis() as u64;
        let has = [
            ("--cache-size", request.cache_bytes, settings.limits.bytes, ""),
            ("--memory", request.memory_bytes, settings.memory_bytes, ""),
            ("--patience", request.patience_ms, patience_ms, "ms"),
        ];
        for (flag, asked, has, unit) in has {
            if asked.is_some_and(|asked| asked != has) {
                let what = format!("the node of this cache folder runs with {flag} {has}{unit}");
                return Err(Error::invalid(what, settings.cache.display())
                    .hint(format!("leave {flag} out, or choose another --cache")));
            }
        }
        Ok(())
    }

    /// The mount at a path, or the one that a path lies in, and the rest of the path.
    pub fn find(&self, path: &Path) -> Result<(Arc<Mounted>, PathBuf)> {
        let mounts = self.mounts();
        let found = mounts.iter().filter_map(|mounted| Some((mounted, path.strip_prefix(&mounted.path).ok()?)));
        let found = found.min_by_key(|(_, rest)| rest.components().count());
        let (mounted, rest) = found.ok_or_else(|| {
            Error::missing("nothing is mounted there by this node", path.display()).hint("see `stoker status`")
        })?;
        Ok((mounted.clone(), rest.to_owned()))
    }

    /// Wait until the last mount has ended, and who asked for that has heard so.
    pub async fn ended(&self) {
        let _ = self.alive.subscribe().wait_for(|(ever, alive)| *ever > 0 && *alive == 0).await;
        self.node.close();
        let mut commands = self.commands.subscribe();
        let _ = tokio::time::timeout(LAST_ANSWERS, commands.wait_for(|count| *count == 0)).await;
    }

    pub fn mounts(&self) -> MutexGuard<'_, Vec<Arc<Mounted>>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests sent to all stores so far.
    pub fn requests(&self) -> u64 {
        self.node.figures().stores.iter().map(|(_, counts)| counts.gets + counts.heads + counts.lists).sum()
    }

    pub fn status(&self) -> Status {
        let figures = self.node.figures();
        let mounts: Vec<Mount> = self.mounts().iter().map(|mounted| mounted.status()).collect();
        let tier = |(hits, bytes)| Tier { hits, bytes };
        let disk = self.mounts().iter().fold(figures.disk, |disk, mounted| mounted.add_hits(disk));
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            cache: self.node.settings().cache.display().to_string(),
            tiers: Tiers { memory: tier(figures.memory), disk: tier(disk), origin: tier(figures.origin) },
            store: store_status(&figures),
            waits: waits(&figures),
            limits: Limits {
                memory_bytes: figures.memory_limit,
                memory_used: memory_used(),
                blocks_bytes: figures.blocks.1,
                blocks_used: figures.blocks.0,
                disk_bytes: figures.limits.bytes,
                disk_used: figures.used.bytes,
                disk_files: figures.limits.files,
                disk_files_used: figures.used.files,
                disk_free_min: figures.limits.free_bytes_min,
            },
            mounts,
        }
    }
}

fn waits(figures: &node::Figures) -> Waits {
    let on = |cause| figures.waits.iter().find(|(known, _)| *known == cause).map_or(0.0, |(_, seconds)| *seconds);
    Waits {
        bandwidth_seconds: on(Cause::Bandwidth),
        requests_seconds: on(Cause::Requests),
        throttling_seconds: on(Cause::Throttling),
        errors_seconds: on(Cause::Errors),
        disk_seconds: on(Cause::Disk),
        cpu_seconds: on(Cause::Cpu),
        unknown_seconds: on(Cause::Unknown),
    }
}

fn store_status(figures: &node::Figures) -> Store {
    let sum = |count: fn(&store::Counts) -> u64| figures.stores.iter().map(|(_, counts)| count(counts)).sum::<u64>();
    let (gets, heads, lists) = (sum(|counts| counts.gets), sum(|counts| counts.heads), sum(|counts| counts.lists));
    let answers: u64 = figures.stores.iter().flat_map(|(_, counts)| counts.first_byte).sum();
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    Store {
        requests: gets + heads + lists,
        gets,
        heads,
        lists,
        bytes: sum(|counts| counts.bytes),
        unique_bytes: figures.unique_bytes,
        unkept_bytes: figures.unkept_bytes,
        throttled: sum(|counts| counts.throttled),
        retries: sum(|counts| counts.retries),
        errors: sum(|counts| counts.errors),
        skipped_names: sum(|counts| counts.skipped),
        weak_versions: sum(|counts| counts.weak),
        in_flight: sum(|counts| counts.in_flight),
        seconds_waiting: seconds(sum(|counts| counts.waited_ns)),
        seconds_backing_off: seconds(sum(|counts| counts.backed_off_ns)),
        hedged: sum(|counts| counts.hedged),
        hedged_bytes: sum(|counts| counts.hedged_bytes),
        hedges_won: sum(|counts| counts.hedges_won),
        requests_limit: figures.requests_limit,
        first_byte_seconds_mean: seconds(sum(|counts| counts.first_byte_ns)) / answers.max(1) as f64,
    }
}

impl Mounted {
    /// End the mount. Busy, it says so, unless `lazy`.
    pub fn unmount(&self, lazy: bool) -> Result<()> {
        self.session.unmount(lazy)
    }

    /// Wait until the mount has ended, however that came about.
    pub async fn ended(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// List the data set again, and let the kernel forget what went stale.
    pub async fn refresh(&self) -> Result<Refreshed> {
        let stale = self.view.refresh(|_| ()).await?;
        self.session.invalidate(&stale);
        let totals = self.view.totals();
        self.session.tell_space(mount::Space { bytes: totals.bytes, files: totals.files });
        Ok(Refreshed { objects: totals.files, bytes: totals.bytes, changed: stale.len() as u64 })
    }

    /// Opens that the kernel was let through to the disk are hits of the disk, but for those that had to wait.
    fn add_hits(&self, (hits, bytes): (u64, u64)) -> (u64, u64) {
        let (counts, fetched) = (self.session.counts(), self.view.fetched());
        let (opens, sizes) =
            (counts.opens_through.saturating_sub(fetched.0), counts.bytes_through.saturating_sub(fetched.1));
        (hits + opens, bytes + sizes)
    }

    /// An object left the disk: the kernel lets go of its file when its readers do.
    fn dropped(&self, object: &block::Object) {
        if let Some(node) = self.view.node_of(object) {
            self.session.forget_backing(node);
        }
    }

    fn status(&self) -> Mount {
        let (totals, counts) = (self.view.totals(), self.session.counts());
        let passthrough = match self.session.passthrough() {
            Passthrough::On => "on".into(),
            Passthrough::Off { reason } => format!("off: {reason}"),
        };
        Mount {
            url: self.view.url().into(),
            path: self.path.display().to_string(),
            passthrough,
            objects: totals.files,
            bytes: totals.bytes,
            odd_names: totals.odd.iter().sum(),
            listed_at: self.view.manifest().listed_ns() / 1_000_000_000,
            immutable: self.immutable,
            local: self.view.is_local(),
            opens_passed_through: counts.opens_through,
            opens_served: counts.opens_served,
            bytes_served: counts.bytes_served,
            interrupted: counts.interrupts,
            filling: self.view.fill().is_on(),
            filled_files: self.view.fill().files.load(Relaxed),
            filled_bytes: self.view.fill().bytes.load(Relaxed),
            refresh_failed: self.refresh_failed.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// List again and again until the mount ends. A failure is shown in the status and tried again.
async fn refresh_often(mounted: Arc<Mounted>, every: Duration) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(every.max(TICK)) => {}
            () = mounted.ended() => return,
        }
        let failed = mounted.refresh().await.err().map(|error| {
            tracing::warn!("the data set could not be listed again: {error}");
            error.what
        });
        *mounted.refresh_failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }
}

/// When a request wants its data set filled.
fn fill(request: &MountRequest) -> Result<When> {
    match request.fill.as_deref() {
        None | Some("auto") => Ok(When::Auto),
        Some("off") => Ok(When::Off),
        Some("all") => Ok(When::All),
        Some(other) => Err(Error::invalid("there is no such way to fill", other).hint("give --fill auto, off or all")),
    }
}

/// Anonymous memory of this process, as the kernel counts it.
fn memory_used() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).map_or(0, |kib: u64| kib << 10)
}
