//! A node and the mounts that it serves, from the first to the last.
//!
//! Invariant: a mount that can't be made, or that is given up, changes nothing for the others.

mod agree;
mod find;
mod restart;

pub(crate) use find::Comes;

use crate::data::{Desk, Shown};
use crate::journal::Journal;
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::mounted::{Mounted, follow_others, follow_unmounted, refresh_often};
use crate::pulse::{self, Asked, Pulse, Totals};
use crate::reach::{as_asked, reach, source_in_time};
use crate::resume::{self, Holding};
use block::{Error, Result};
use client::messages::{Coming, MountRequest, Rates, StoreState};
use mount::{Options, Session};
use node::fill::When;
use node::namespace::Namespace;
use node::{DataSet, Figures, Node, View};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long a node that ends waits for its last answers to be read.
const LAST_ANSWERS: Duration = Duration::from_millis(1500);

/// How long a node that was started for a mount waits for it: the command that started it may have been killed.
const NOBODY: Duration = Duration::from_secs(5);

/// Between two looks at how the node is doing.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long whoever looks at the node waits for what is kept to be counted.
const COUNTED_WITHIN: Duration = Duration::from_secs(1);

/// A node with its mounts.
pub struct Host {
    node: Arc<Node>,
    journal: Arc<Journal>,
    life: Life,
    /// Until when it may go on, unless that is for ever.
    lease: Option<Arc<Lease>>,
    began: f64,
    pulse: Mutex<Pulse>,
    mounts: Mutex<Vec<Arc<Mounted>>>,
    /// Mounts of the process before this one that are not there yet.
    coming: watch::Sender<Vec<Coming>>,
    /// Data sets that are there for other members alone.
    served: Mutex<Vec<Arc<View>>>,
    listings: Mutex<Vec<Arc<Listing>>>,
    /// The last that was given.
    ids: AtomicU64,
    /// Who holds what outlives this process.
    keeper: OnceLock<Arc<Keeper>>,
    restart: Notify,
    visitors: watch::Sender<Visitors>,
    /// What programs read without the kernel.
    pub(crate) desk: Arc<Desk>,
    /// Requests that are being answered.
    pub(crate) commands: watch::Sender<usize>,
    /// Whether requests are heard by now.
    pub(crate) hears: watch::Sender<bool>,
}

/// Who uses the node.
#[derive(Clone, Copy, Default)]
struct Visitors {
    /// Mounts so far, and those that live or are being made.
    ever: u64,
    alive: usize,
    /// No more are let in.
    closing: bool,
    /// The cache folder is as the next node wants to find it.
    closed: bool,
}

/// How long a node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Until its last mount has ended.
    Mounts,
    /// Until it is asked to end.
    Asked,
}

/// What a node says that takes no mounts any more.
pub const ENDING: &str = "the node of this cache folder is ending";

/// Counts a mount for as long as it keeps the node alive.
pub(crate) struct Visit(Arc<Host>);

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.visitors.send_modify(|visitors| visitors.alive -= 1);
    }
}

/// A data set that is being listed for a mount.
pub struct Listing {
    pub url: String,
    pub path: String,
    pub since: f64,
    /// That came so far.
    pub names: AtomicU64,
}

/// Shows a listing for as long as it lives.
struct Listed<'a>(Arc<Listing>, &'a Mutex<Vec<Arc<Listing>>>);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

impl Host {
    pub fn new(node: Arc<Node>, journal: Arc<Journal>, life: Life, lease: Option<Arc<Lease>>) -> Arc<Host> {
        let host = Arc::new(Host {
            node,
            life,
            lease,
            pulse: Mutex::default(),
            began: journal.now(),
            ids: AtomicU64::new(before_first(journal.now())),
            journal,
            mounts: Mutex::default(),
            coming: watch::channel(Vec::new()).0,
            served: Mutex::default(),
            listings: Mutex::default(),
            keeper: OnceLock::new(),
            restart: Notify::new(),
            desk: Arc::default(),
            visitors: watch::channel(Visitors::default()).0,
            commands: watch::channel(0).0,
            hears: watch::channel(false).0,
        });
        let weak = Arc::downgrade(&host);
        host.node.tell_dropped(move |object| {
            let mounts = weak.upgrade().map(|host| host.mounts().clone()).unwrap_or_default();
            mounts.iter().for_each(|mounted| mounted.dropped(object));
        });
        host
    }

    /// Mount a data set, listing it if it was never listed. `progress` gets the number of names listed so far. Who stops asking
    /// in the middle has it given up.
    pub async fn mount(self: &Arc<Host>, request: MountRequest, progress: impl Fn(u64)) -> Result<Arc<Mounted>> {
        // A node that is ending is nobody to agree with.
        self.agree(&request).map_err(|error| if self.is_ending() { self.ending() } else { error })?;
        let visit = self.enter()?;
        let path = PathBuf::from(&request.path);
        let given_up = |error| Error::unavailable(format!("the mount was given up: {error}"), &request.path);
        let at = path.clone();
        tokio::task::spawn_blocking(move || mount::look(&at)).await.map_err(given_up)??;
        let view = self.open(&request, progress).await?;
        let options = options(&request, &view);
        let namespace: Arc<dyn Namespace> = view.clone();
        let runtime = tokio::runtime::Handle::current();
        let session = tokio::task::spawn_blocking(move || mount::attach(&options, namespace, runtime)).await;
        let session = session.map_err(given_up)??;
        let id = self.ids.fetch_add(1, Ordering::Relaxed) + 1;
        self.take_in(id, request, view, session, visit, None)
    }

    /// Look after a mount from now on. `terms`: those that another process noted, if one did.
    pub(crate) fn take_in(
        self: &Arc<Host>,
        id: u64,
        request: MountRequest,
        view: Arc<View>,
        session: Session,
        visit: Visit,
        terms: Option<OwnedFd>,
    ) -> Result<Arc<Mounted>> {
        let shown = Shown::of(&options(&request, &view));
        let terms = terms.map_or_else(|| resume::terms(&request, &view, &session), Ok)?;
        self.ids.fetch_max(id, Ordering::Relaxed);
        let held = match self.keeper() {
            Some(keeper) if session.can_go_on() => resume::hold(keeper, id, terms, &view, &session)?,
            _ => Holding::default(),
        };
        let mounted = Arc::new(Mounted::new(id, view, session, (request.immutable, shown), visit, held));
        self.mounts().push(mounted.clone());
        if let Err(error) = self.watch(&mounted) {
            // Nobody would notice its end.
            let left = mounted.leave();
            self.is_over(&mounted);
            return left.and(Err(Error::io("watching the mount", mounted.path.display(), &error)));
        }
        if self.visitors.borrow().closing {
            // Whoever ended the mounts did not see this one.
            mounted.leave()?;
        }
        if self.node.cluster().is_some() {
            tokio::spawn(follow_others(Arc::downgrade(&mounted)));
        }
        if let Some(seconds) = request.refresh_seconds {
            tokio::spawn(refresh_often(Arc::downgrade(&mounted), Duration::from_secs(seconds.max(1))));
        }
        Ok(mounted)
    }

    /// Have a data set without a mount, for the other members of the cluster, until the node ends.
    pub async fn serve(self: &Arc<Host>, request: &MountRequest) -> Result<()> {
        let view = self.open(request, |_| ()).await?;
        if view.is_local() {
            let error = Error::invalid("this is a folder of a local disk, which other nodes don't have", &request.url);
            return Err(error.hint("name a bucket, or a folder of a network file system that all members have"));
        }
        tokio::spawn(follow_unmounted(Arc::downgrade(&view)));
        self.served().push(view);
        Ok(())
    }

    /// Data sets that are there for other members alone.
    pub fn served(&self) -> MutexGuard<'_, Vec<Arc<View>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Open a data set, listing it if it was never listed.
    pub(crate) async fn open(&self, request: &MountRequest, progress: impl Fn(u64)) -> Result<Arc<View>> {
        let source = self.source(request).await?;
        let listing = self.lists(request);
        let progress = |names| {
            listing.0.names.store(names, Ordering::Relaxed);
            progress(names);
        };
        View::open(self.node.clone(), source, fill(request)?, progress).await
    }

    /// The data set of a request.
    pub(crate) async fn source(&self, request: &MountRequest) -> Result<DataSet> {
        let mut reach = reach(request);
        reach.s3.list_budget = self.node.settings().patience;
        reach.s3.read_buffer = self.node.settings().read_buffer();
        Ok(as_asked(request, source_in_time(&request.url, &reach).await?))
    }

    /// Show that a data set is being listed, until the answer is dropped.
    fn lists(&self, request: &MountRequest) -> Listed<'_> {
        let (url, path) = (request.url.clone(), request.path.clone());
        let listing = Arc::new(Listing { url, path, since: self.journal.now(), names: AtomicU64::new(0) });
        self.listings.lock().unwrap_or_else(PoisonError::into_inner).push(listing.clone());
        Listed(listing, &self.listings)
    }

    /// Data sets that are being listed at the moment.
    pub fn listings(&self) -> Vec<Arc<Listing>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A place among the mounts, unless the node is ending: who asks then starts another.
    pub(crate) fn enter(self: &Arc<Host>) -> Result<Visit> {
        let entered = self.visitors.send_if_modified(|visitors| {
            let open = !visitors.closing;
            if open {
                (visitors.ever, visitors.alive) = (visitors.ever + 1, visitors.alive + 1);
            }
            open
        });
        match entered {
            true => Ok(Visit(self.clone())),
            false => Err(self.ending()),
        }
    }

    /// Ends when the node does.
    pub(crate) async fn closes(&self) {
        let _ = self.visitors.subscribe().wait_for(|visitors| visitors.closing).await;
    }

    fn ending(&self) -> Error {
        Error::unavailable(ENDING, self.node.settings().cache.display())
    }

    /// Take a mount off the list once the kernel has ended it.
    fn watch(self: &Arc<Host>, mounted: &Arc<Mounted>) -> std::io::Result<()> {
        let (host, mounted) = (self.clone(), mounted.clone());
        let watching = std::thread::Builder::new().name("stoker-watch".into()).spawn(move || {
            mounted.wait();
            host.is_over(&mounted);
        });
        watching.map(drop)
    }

    /// A mount has ended. Who looks at the node sees the mount, or that the node ends if it was the last.
    fn is_over(&self, mounted: &Arc<Mounted>) {
        mounted.view.close();
        // Before the node may end: what nobody needs is not to be handed to another one.
        mounted.let_go();
        let mut mounts = self.mounts();
        mounts.retain(|other| !Arc::ptr_eq(other, mounted));
        mounted.has_ended();
        drop(mounts);
    }

    /// Wait until the node has no more to do, and leave the cache folder as the next one wants to find it.
    pub async fn ended(&self) {
        let mut visitors = self.visitors.subscribe();
        let for_mounts = self.life == Life::Mounts;
        loop {
            let mut commands = self.commands.subscribe();
            let is_new = visitors.borrow().ever == 0;
            let nobody = async {
                tokio::time::sleep(NOBODY).await;
                let _ = commands.wait_for(|count| *count == 0).await;
            };
            tokio::select! {
                _ = visitors.wait_for(|now| now.alive == 0 && (now.closing || for_mounts && now.ever > 0)) => {}
                () = nobody, if for_mounts && is_new => {}
            }
            // Unless somebody came in at this moment.
            let shut = self.visitors.send_if_modified(|now| {
                now.closing |= now.alive == 0;
                now.alive == 0
            });
            if shut {
                break;
            }
        }
        // In a mount that was abandoned somebody may still read, and have it kept; then the next node looks for strays.
        if self.mounts().is_empty() {
            self.node.close();
        }
    }

    /// Whether the node was asked to end, or ends because nothing is mounted any more.
    pub(crate) fn is_ending(&self) -> bool {
        let mounts = self.mounts().clone();
        let now = *self.visitors.borrow();
        let is_left = self.life == Life::Mounts && now.ever > 0 && now.alive <= mounts.len();
        now.closing || is_left && mounts.iter().all(|mounted| mounted.is_over())
    }

    /// Tell whoever waits for it that the node has left its cache folder, and wait until they have heard so.
    pub async fn tell_ended(&self) {
        self.visitors.send_modify(|visitors| visitors.closed = true);
        let mut commands = self.commands.subscribe();
        let _ = tokio::time::timeout(LAST_ANSWERS, commands.wait_for(|count| *count == 0)).await;
    }

    /// Wait until the node has left its cache folder, unless it stays for others.
    pub(crate) async fn left(&self) {
        let stays = |now: &Visitors| now.alive > 0 || self.life == Life::Asked && !now.closing;
        let _ = self.visitors.subscribe().wait_for(|now| now.closed || stays(now)).await;
    }

    /// End: no mounts any more, and those that are there go, in use or not.
    pub fn end(&self) {
        self.visitors.send_modify(|visitors| visitors.closing = true);
        self.served().drain(..).for_each(|view| view.close());
        // Whoever leaves a mount may wait for its threads.
        let mounts = self.mounts().clone();
        for mounted in mounts {
            if let Err(error) = mounted.leave() {
                tracing::error!("{error}");
            }
        }
    }

    /// The last that a node does. Mounts that have not ended, since files are open or others have copies of them, end with it.
    pub fn let_go(&self) {
        for mounted in self.mounts().iter() {
            tracing::warn!("ending though it is in use, its readers get errors: {}", mounted.path.display());
            mounted.let_go();
        }
    }

    /// Count what is kept of each data set, where that is due; not for long, as who asks gets the count before.
    pub(crate) async fn look_at_kept(&self) {
        let now = self.journal.now();
        let due: Vec<_> = self.mounts().iter().filter(|mounted| mounted.begins_count(now)).cloned().collect();
        let counts = due.into_iter().map(|mounted| {
            let journal = self.journal.clone();
            tokio::task::spawn_blocking(move || mounted.count_kept(now, || journal.now()))
        });
        let counted = futures_util::future::join_all(counts.collect::<Vec<_>>());
        let _ = tokio::time::timeout(COUNTED_WITHIN, counted).await;
    }

    pub fn mounts(&self) -> MutexGuard<'_, Vec<Arc<Mounted>>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_deref()
    }

    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Look at the node once a second, for as long as it lives.
    pub async fn feel_the_pulse(self: Arc<Host>) {
        loop {
            self.look();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn look(&self) {
        self.node.make_room_for_index();
        let (figures, now) = (self.node.figures(), self.journal.now());
        let mut totals = Totals { at: now, ..Totals::default() };
        let mut pulse = self.pulse();
        look_at_stores(&mut pulse, &figures, now);
        for (_, counts) in &figures.stores {
            totals.store_bytes += counts.bytes;
            totals.store_requests += counts.gets + counts.heads + counts.lists;
        }
        let is_disk_lost = self.node.stack().is_disk_lost();
        for mounted in self.mounts().iter() {
            is_disk_lost.then(|| mounted.disk_lost());
            let counts = mounted.counts();
            totals.served_bytes += counts.bytes_served;
            totals.opens += counts.opens_through + counts.opens_served;
        }
        pulse.look(totals);
        pulse.turned(now).iter().for_each(pulse::tell);
    }

    /// How the node is doing: its rates as of the last look, its stores as of now.
    pub(crate) fn felt(&self, figures: &Figures) -> (Rates, Vec<StoreState>) {
        let (mut pulse, now) = (self.pulse().clone(), self.journal.now());
        look_at_stores(&mut pulse, figures, now);
        (pulse.rates(), pulse.stores(now))
    }

    fn pulse(&self) -> MutexGuard<'_, Pulse> {
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the node started.
    pub fn uptime(&self) -> f64 {
        (self.journal.now() - self.began).max(0.0)
    }

    /// Requests sent to all stores so far.
    pub fn requests(&self) -> u64 {
        self.node.figures().stores.iter().map(|(_, counts)| counts.gets + counts.heads + counts.lists).sum()
    }
}

fn look_at_stores(pulse: &mut Pulse, figures: &Figures, now: f64) {
    for (store, counts) in &figures.stores {
        let failed = counts.failed.as_ref();
        let asked = Asked {
            answers: counts.first_byte.iter().sum(),
            failures: counts.retries + counts.errors,
            given_up: counts.errors,
            answers_since: failed.map_or(0, |failed| failed.answers_since),
            in_flight: counts.in_flight,
            is_unused: counts.doors == 0,
        };
        let failed = failed.map(|failed| (now - failed.when.elapsed().as_secs_f64(), failed.what.clone()));
        pulse.look_at(store, now, asked, failed);
    }
}

/// How a request wants its mount.
pub(crate) fn options(request: &MountRequest, view: &View) -> Options {
    let mut options = Options::new(&request.path, &request.url);
    options.immutable = request.immutable;
    (options.owner, options.group) = (request.owner, request.group);
    options.file_mode = request.file_mode.unwrap_or(options.file_mode);
    options.folder_mode = request.folder_mode.unwrap_or(options.folder_mode);
    let totals = view.totals();
    options.space = mount::Space { bytes: totals.bytes, files: totals.files };
    options
}

/// When a request wants its data set filled.
pub(crate) fn fill(request: &MountRequest) -> Result<When> {
    match request.fill.as_deref() {
        None | Some("auto") => Ok(When::Auto),
        Some("off") => Ok(When::Off),
        Some("all") => Ok(When::All),
        Some(other) => Err(Error::invalid("there is no such way to fill", other).hint("give --fill auto, off or all")),
    }
}

/// Numbers of mounts begin behind this one: the microseconds of 1970, so that none comes again in the next node, and all are whole
/// numbers in JSON.
fn before_first(now: f64) -> u64 {
    (now * 1e6) as u64
}
