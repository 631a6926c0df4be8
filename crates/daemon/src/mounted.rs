//! A data set that is mounted, from when it is there until the kernel has ended it.
//!
//! Invariant: it is ended by itself and never by its path, at which something else may be mounted by now.

use crate::data::Shown;
use crate::holder::Holder;
use crate::host::Visit;
use crate::keeper::Keeper;
use crate::resume::Holding;
use block::Result;
use client::messages::{Mount, Order, Refreshed};
use mount::{Passthrough, Places, Session};
use node::View;
use node::kept::Kept;
use node::namespace::ROOT;
use rustix::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// The shortest time between two listings.
const TICK: Duration = Duration::from_secs(1);

/// When to look who else has a mount that was unmounted and goes on.
const LOOKED_FOR_AFTER: Duration = Duration::from_secs(2);

/// Within which the kernel ends a mount that nobody has in use, on a machine that is busy.
const ENDS_WITHIN: Duration = Duration::from_secs(8);

/// Others may have newer names and not have been able to say so.
const FOLLOW_EVERY: Duration = Duration::from_secs(10);

/// Times that another member is left to list before this one does.
const FOLLOWED_MAX: u32 = 2;

/// Somebody who looks all the time costs one part of a processor in so many.
const COUNT_REST: f64 = 20.0;

/// A data set that is mounted.
pub struct Mounted {
    /// Among all mounts that its node ever has.
    pub id: u64,
    /// As the mount point was called when it was mounted.
    pub path: PathBuf,
    pub view: Arc<View>,
    /// Whom its names are shown to.
    pub(crate) shown: Shown,
    session: Session,
    immutable: bool,
    detached: AtomicBool,
    held_elsewhere: AtomicBool,
    over: watch::Sender<bool>,
    /// Keeps the node alive until the mount has ended or was abandoned.
    visit: Mutex<Option<Visit>>,
    refreshing: tokio::sync::Mutex<()>,
    /// Held while the kernel is told of names.
    telling: tokio::sync::Mutex<()>,
    refresh_failed: Mutex<Option<String>>,
    counted: Mutex<Counted>,
    /// What of it outlives this process.
    held: Mutex<Holding>,
    /// Commands that end it by hanging up.
    holders: watch::Sender<bool>,
}

/// What of the data set was in the cache when that was counted last.
#[derive(Default)]
struct Counted {
    kept: Option<Kept>,
    /// When it may be counted again; never while it is.
    due_at: f64,
}

impl Mounted {
    pub(crate) fn new(
        id: u64,
        view: Arc<View>,
        session: Session,
        (immutable, shown): (bool, Shown),
        visit: Visit,
        held: Holding,
    ) -> Mounted {
        // One that goes on in this process may have been taken out of sight in another.
        let is_out = session.restarts() > 0 && !session.is_attached();
        let is_held = is_out && session.is_anywhere();
        Mounted {
            id,
            path: session.mount_point().to_owned(),
            view,
            shown,
            session,
            immutable,
            detached: AtomicBool::new(is_out && !is_held),
            held_elsewhere: AtomicBool::new(is_held),
            over: watch::channel(false).0,
            visit: Mutex::new(Some(visit)),
            refreshing: tokio::sync::Mutex::default(),
            telling: tokio::sync::Mutex::default(),
            refresh_failed: Mutex::default(),
            counted: Mutex::default(),
            held: Mutex::new(held),
            holders: watch::channel(false).0,
        }
    }

    /// Why it does not go on in another process when this one is gone, if so.
    pub(crate) fn ends_with_this_process(&self) -> Option<&'static str> {
        match self.session.can_go_on() {
            false => Some("this kernel does not ask again what was not answered (Linux 6.9 or later does)"),
            true => lock(&self.held).lacks_names().then_some("names of a mount could not be handed to who holds them"),
        }
    }

    /// It goes on in this process, and ends with it unless another goes on.
    pub(crate) fn settle(&self) {
        self.session.settle();
    }

    /// Somebody ends it by hanging up.
    pub(crate) fn is_held(&self, keeper: Option<&Arc<Keeper>>, holder: Option<&Holder>) {
        self.note_holder(keeper, holder);
        self.holders.send_replace(true);
    }

    /// Have the next process know who held it.
    pub(crate) fn note_holder(&self, keeper: Option<&Arc<Keeper>>, holder: Option<&Holder>) {
        if let (Some(keeper), Some(holder), true) = (keeper, holder, self.session.can_go_on()) {
            lock(&self.held).note_holder(keeper, self.id, holder.as_fd());
        }
    }

    /// Wait until somebody does.
    pub(crate) async fn held(&self) {
        let _ = self.holders.subscribe().wait_for(|held| *held).await;
    }

    /// Tell the kernel what went stale since these names, as another process may not have done.
    pub(crate) async fn tell_stale_since(self: &Arc<Mounted>, generation: u32) -> Result<()> {
        if generation == self.view.manifest().generation() {
            return Ok(());
        }
        let _one = self.refreshing.lock().await;
        let (mounted, stale) = (self.clone(), self.view.stale_since(generation));
        // Its listing has no lookups that would have kept the names from before.
        let _ = tokio::task::spawn_blocking(move || mounted.session.forget_listing(ROOT)).await;
        self.notify_kernel(stale).await.map(drop)
    }

    /// The kernel is told of no names for as long as this lives. A store that is being listed is not waited for.
    pub(crate) async fn stop_telling(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.telling.lock().await
    }

    /// End the mount at a place. In use, it says so, and stays.
    pub fn unmount(&self, at: &Path) -> Result<()> {
        if self.is_detached() { Ok(()) } else { self.session.unmount_from(at, false) }
    }

    /// End the mount wherever it is, and parts of it are. In use, which is the answer, it is taken out of sight, and served until the last of
    /// its files is closed.
    pub fn leave(&self) -> Result<bool> {
        let left = self.session.leave();
        Ok(left? && self.note_in_use(&self.path))
    }

    /// The same at one place.
    pub fn leave_place(&self, at: &Path) -> Result<bool> {
        if self.unmount(at).is_ok() || self.session.has_ended() {
            return Ok(false);
        }
        self.session.unmount_from(at, true)?;
        Ok(self.note_in_use(at))
    }

    /// It was, which is the answer.
    fn note_in_use(&self, at: &Path) -> bool {
        tracing::warn!("taken out of sight while it is in use: {}", at.display());
        self.detached.store(true, Relaxed);
        true
    }

    /// Wait until a mount that was unmounted has ended; whether it goes on for who knows how long, since it is bound elsewhere or another
    /// mount namespace holds a copy of it. Where all of it is bound, that is its place from now on.
    pub async fn ended_here(self: &Arc<Mounted>) -> bool {
        if tokio::time::timeout(LOOKED_FOR_AFTER, self.ended()).await.is_ok() {
            return false;
        }
        let mounted = self.clone();
        let seen = tokio::task::spawn_blocking(move || mounted.session.is_anywhere()).await.unwrap_or(false);
        if self.is_left_in_use() && !seen {
            // Its files are open.
            return false;
        }
        // Who may not look into other namespaces knows it by the time that it takes.
        let lasts = seen || tokio::time::timeout(ENDS_WITHIN, self.ended()).await.is_err();
        let is_held = lasts && !self.session.has_ended();
        if is_held {
            let where_else = "where it is bound or in another mount namespace";
            tracing::warn!("unmounted, and still held {where_else}: {}", self.path.display());
            self.held_elsewhere.store(true, Relaxed);
        }
        is_held
    }

    /// Whether it was taken out of sight. Where all of it is bound elsewhere, it is seen there.
    pub fn is_detached(&self) -> bool {
        (self.is_left_in_use() || self.held_elsewhere.load(Relaxed)) && !self.session.is_shown()
    }

    /// Whether it was taken away from a place while files were open.
    pub(crate) fn is_left_in_use(&self) -> bool {
        self.detached.load(Relaxed)
    }

    /// Whether somebody unmounted it, and the node is about to notice.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_detached() && !self.session.is_attached()
    }

    /// It no longer keeps the node alive, though somebody may have files open in it.
    pub fn abandon(&self) {
        lock(&self.visit).take();
    }

    /// Nothing of it need outlive this process any more.
    pub(crate) fn let_go(&self) {
        let held = std::mem::take(&mut *lock(&self.held));
        drop(held);
    }

    /// Wait until the mount has ended, however that came about.
    pub async fn ended(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// The same, on a thread.
    pub(crate) fn wait(&self) {
        self.session.wait();
    }

    /// The kernel has ended it.
    pub(crate) fn has_ended(&self) {
        self.abandon();
        self.over.send_replace(true);
    }

    /// List the data set again, and let the kernel forget what went stale.
    pub async fn refresh(self: &Arc<Mounted>) -> Result<Refreshed> {
        // The kernel is notified of one refresh before the next one begins, or it would believe the older names.
        let _one = self.refreshing.lock().await;
        let stale = self.view.refresh(|_| ()).await?;
        self.notify_kernel(stale).await
    }

    /// Take newer names that another member of the cluster has.
    pub async fn follow(self: &Arc<Mounted>) -> Result<()> {
        let _one = self.refreshing.lock().await;
        if let Some(stale) = self.view.follow().await? {
            self.notify_kernel(stale).await?;
        }
        Ok(())
    }

    async fn notify_kernel(self: &Arc<Mounted>, stale: node::namespace::Stale) -> Result<Refreshed> {
        let _telling = self.telling.lock().await;
        let (mounted, changed) = (self.clone(), stale.len() as u64);
        // The kernel may have millions to forget, and waits for requests in these folders.
        let notified = tokio::task::spawn_blocking(move || mounted.session.invalidate(&stale)).await;
        notified.map_err(|_| block::Error::unavailable("the node is stopping", self.path.display()))?;
        let totals = self.view.totals();
        self.session.tell_space(mount::Space { bytes: totals.bytes, files: totals.files });
        Ok(Refreshed { objects: totals.files, bytes: totals.bytes, changed })
    }

    /// Opens that the kernel was let through to the disk are hits of the disk, but for those that had to wait.
    pub(crate) fn add_hits(&self, (hits, bytes): (u64, u64)) -> (u64, u64) {
        let (counts, fetched) = (self.session.counts(), self.view.fetched());
        let (opens, sizes) =
            (counts.opens_through.saturating_sub(fetched.0), counts.bytes_through.saturating_sub(fetched.1));
        (hits + opens, bytes + sizes)
    }

    /// An object left the disk, or its bytes were wrong: the kernel lets go of its pages, and of its file when its
    /// readers do.
    pub(crate) fn dropped(&self, object: &block::Object) {
        self.view.nodes_of(object).into_iter().for_each(|node| self.session.forget_content(node));
    }

    /// The cache disk gives nothing any more.
    pub(crate) fn disk_lost(&self) {
        if !self.view.is_local() {
            self.session.forget_backings();
        }
    }

    /// Whether what is kept is to be counted now, which is for the caller to do.
    pub(crate) fn begins_count(&self, now: f64) -> bool {
        let mut counted = lock(&self.counted);
        let is_due = !self.view.is_local() && now >= counted.due_at;
        if is_due {
            counted.due_at = f64::INFINITY;
        }
        is_due
    }

    /// Count what is kept, and let [`COUNT_REST`] times what that took pass before the next time.
    pub(crate) fn count_kept(&self, began: f64, now: impl Fn() -> f64) {
        let kept = self.view.kept();
        let ended = now();
        let due_at = ended + (ended - began).max(0.0) * COUNT_REST;
        *lock(&self.counted) = Counted { kept: Some(kept), due_at };
    }

    /// The mount point as it is called by now.
    pub(crate) fn path_in<'a>(&'a self, places: &'a Places) -> &'a Path {
        self.session.mount_point_in(places)
    }

    /// What it did so far.
    pub(crate) fn counts(&self) -> mount::Counts {
        self.session.counts()
    }

    /// The mount, for people to look at.
    pub fn status(&self, places: &Places) -> Mount {
        let (totals, counts, kept) = (self.view.totals(), self.session.counts(), lock(&self.counted).kept);
        let detached = self.is_detached();
        let passthrough = match self.session.passthrough() {
            Passthrough::On => "on".into(),
            Passthrough::Off { reason } => format!("off: {reason}"),
        };
        Mount {
            id: self.id,
            detached,
            held_elsewhere: detached && self.held_elsewhere.load(Relaxed),
            url: self.view.url().into(),
            path: self.path_in(places).display().to_string(),
            passthrough,
            restarts: self.session.restarts(),
            objects: totals.files,
            bytes: totals.bytes,
            odd_names: totals.odd.iter().sum(),
            listed_at: self.view.manifest().listed_ns() / 1_000_000_000,
            manifest: self.view.given().map(|path| path.display().to_string()),
            snapshot: self.view.snapshot().display().to_string(),
            immutable: self.immutable,
            local: self.view.is_local(),
            opens_passed_through: counts.opens_through,
            opens_served: counts.opens_served,
            bytes_served: counts.bytes_served,
            interrupted: counts.interrupts,
            filling: self.view.fill().is_on(),
            filled_files: self.view.fill().files.load(Relaxed),
            filled_bytes: self.view.fill().bytes.load(Relaxed),
            orders: self.view.prefetch().progress().into_iter().map(order).collect(),
            kept_files: kept.map(|kept| kept.kept_files),
            kept_bytes: kept.map(|kept| kept.kept_bytes),
            refresh_failed: lock(&self.refresh_failed).clone(),
            refused: self.view.refused().map(str::to_owned),
        }
    }
}

pub(crate) fn order(progress: node::prefetch::Progress) -> Order {
    Order {
        name: progress.name,
        source: progress.source.name().into(),
        misses: progress.misses,
        opened: progress.opened,
        skipped: progress.skipped,
        left: progress.left,
        ahead_files: progress.ahead_files,
        ahead_bytes: progress.asked_bytes,
        resting: progress.rests,
    }
}

/// List again and again until the mount ends. A failure is shown in the status and tried again.
pub(crate) async fn refresh_often(mounted: Weak<Mounted>, every: Duration) {
    let (mut before_ns, mut followed) = (0, 0);
    loop {
        tokio::time::sleep(every.max(TICK)).await;
        let Some(mounted) = mounted.upgrade() else { return };
        // Of a cluster one member lists, and tells the others.
        let listed_ns = mounted.view.listed_ns();
        followed = if listed_ns == before_ns { followed + 1 } else { 0 };
        before_ns = listed_ns;
        let again = async {
            // Who is to list may never do so: it was mounted without --refresh.
            match followed < FOLLOWED_MAX && mounted.view.is_listed_by_another().await {
                true => mounted.follow().await,
                false => mounted.refresh().await.map(drop),
            }
        };
        let failed = tokio::select! {
            done = again => done.err(),
            () = mounted.ended() => return,
        };
        let failed = failed.map(|error| {
            tracing::warn!("the data set could not be listed again: {error}");
            error.what
        });
        *lock(&mounted.refresh_failed) = failed;
    }
}

/// In a cluster, take newer names whenever another member says that it has some, until the mount ends.
pub(crate) async fn follow_others(mounted: Weak<Mounted>) {
    loop {
        let Some(mounted) = mounted.upgrade() else { return };
        tokio::select! {
            () = mounted.view.news() => {}
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            () = mounted.ended() => return,
        }
        let followed = tokio::select! {
            followed = mounted.follow() => followed,
            () = mounted.ended() => return,
        };
        if let Err(error) = followed {
            tracing::warn!("newer names of another member could not be had: {error}");
        }
    }
}

/// The same of a data set that isn't mounted, until the node lets go of it.
pub(crate) async fn follow_unmounted(view: Weak<View>) {
    loop {
        let Some(view) = view.upgrade().filter(|view| view.is_open()) else { return };
        let _ = tokio::time::timeout(FOLLOW_EVERY, view.news()).await;
        if let Err(error) = view.follow().await {
            tracing::warn!("newer names of another member could not be had: {error}");
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
