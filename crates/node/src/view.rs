//! One data set on a node: the names that were listed, and what reading them leads to.
//!
//! Invariant: nothing on the way of a read goes to the store for a name; only [`View::refresh`] lists.

mod given;
mod listing;
mod open;
mod principal;
mod set;
mod shared;

use crate::content::{self, Empty, Local, Streamed};
use crate::fill::{self, Fill};
use crate::kept::{self, Kept};
use crate::load::{self, Loading, Reach};
use crate::manifest::{Generations, Manifest, Totals};
use crate::namespace::{Attributes, Content, Names, Namespace, Opening, Stale, Use};
use crate::node::Node;
use crate::prefetch::{Declaration, Prefetch};
use crate::select::Wanted;
use crate::unsaid::{Opened, Unsaid};
use block::{Door, Error, Object, Result};
use cache::disk::{Standing, Whole};
use cache::tally::Count;
use peer::Reading as Open;

pub(crate) use listing::list_nameless;
use listing::{list, release, write};
pub use open::Identity;
pub(crate) use principal::Resumed;
pub use set::DataSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use store::{Entrance, Folder};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// Files of an earlier boot up to this size are read whole at their first open, which a local disk does in a tenth of a
/// second; larger ones are served by the daemon meanwhile.
const CHECKED_AT_OPEN_MAX: u64 = 64 << 20;

/// A data set on a node.
pub struct View {
    node: Arc<Node>,
    source: DataSet,
    /// What objects call the store.
    name: Arc<str>,
    /// What other members call the set, and whether they have newer names of it.
    set: u128,
    /// The principal that it was mounted by, and the store as that one asks it.
    who: Option<Arc<str>>,
    asked: Arc<principal::Principal>,
    /// The newest names of others that this node could not follow, and listed for, unless they are those that it has.
    seen_ns: AtomicI64,
    news: Notify,
    /// What it reads of the store goes through here, and ends with it.
    entrance: Entrance,
    names: Generations,
    snapshot: PathBuf,
    /// Held by whoever lists.
    refreshing: tokio::sync::Mutex<()>,
    fill: Arc<Fill>,
    prefetch: Arc<Prefetch>,
    unsaid: Arc<Unsaid>,
    /// Reads of its own disk, which may hang while that of the cache does not.
    local_reads: Arc<Semaphore>,
    /// Opens that had to wait for their file, which the kernel then read through all the same.
    fetched: Arc<Count>,
    /// Whether it was said that names were lost.
    damage_told: AtomicBool,
}

impl View {
    /// List the data set again. Names that went stale come back, for the way in to forget.
    pub async fn refresh(&self, progress: impl Fn(u64)) -> Result<Stale> {
        let stale = self.list_again(progress).await?;
        if let Some(lines) = self.node.stack.lines().cloned() {
            let set = self.set;
            tokio::spawn(async move { lines.tell_news(set).await });
        }
        Ok(stale)
    }

    async fn list_again(&self, progress: impl Fn(u64)) -> Result<Stale> {
        if let Some(manifest) = &self.source.manifest {
            let error = Error::invalid("the names are those of a manifest, and are not listed", manifest.display());
            return Err(error.hint("to see what the store has now, mount without --manifest, or with a newer one"));
        }
        let _one = self.refreshing.lock().await;
        self.list_alone(None, progress).await
    }

    /// The same by who holds the lock. `answers_ns`: when others listed whom this listing only answers.
    async fn list_alone(&self, answers_ns: Option<i64>, progress: impl Fn(u64)) -> Result<Stale> {
        let folder = self.node.snapshots();
        let listing = list(&self.source, &self.name, &folder, progress).await?.in_answer_to(answers_ns);
        let previous = self.names.current();
        let built = write(&self.node, listing, self.snapshot.clone(), Some(previous.clone())).await?;
        self.go_on_with(built.manifest, previous).await?;
        Ok(built.stale)
    }

    /// From here on these names count, which were built on the previous ones.
    async fn go_on_with(&self, manifest: Manifest, previous: Arc<Manifest>) -> Result<()> {
        let node = self.node.clone();
        let released = tokio::task::spawn_blocking(move || {
            release(&node, &previous, &manifest);
            manifest
        });
        let manifest = released.await.map_err(|_| Error::unavailable("the node is stopping", &*self.source.url))?;
        self.names.replace(manifest);
        self.damage_told.store(false, Relaxed);
        Ok(())
    }

    /// What each read of the data set goes by.
    pub fn door(&self) -> Door {
        self.entrance.door()
    }

    /// End whatever is fetched for this view. Called when its mount has ended, since work behind readers may still
    /// hold the view.
    pub fn close(&self) {
        self.fill.end();
        self.prefetch.end();
        self.unsaid.end();
        self.entrance.close();
    }

    /// Whether anything is still fetched for it.
    pub fn is_open(&self) -> bool {
        self.entrance.is_open()
    }

    pub fn url(&self) -> &str {
        &self.source.url
    }

    /// Opens that had to wait for their file, and the bytes of those files.
    pub fn fetched(&self) -> (u64, u64) {
        self.fetched.get()
    }

    /// Fetch ahead what is wanted; see [`load`].
    pub async fn load(&self, wanted: &Wanted, verify: bool, tally: &Arc<Loading>) -> Result<()> {
        if self.is_local() {
            return Err(Error::invalid(
                "the data set lies on a local file system and is read where it lies",
                self.url(),
            )
            .hint("nothing needs to be loaded"));
        }
        load::load(&self.reach(), wanted, verify, tally).await
    }

    /// A job says what it will read, and in which order, by a name of its own. How many files
    /// that are, and whether one of that name was said before.
    pub fn declare(self: &Arc<View>, name: &str, declaration: Declaration) -> Result<(u64, bool)> {
        if self.is_local() {
            let error = Error::invalid("the data set lies on a local file system", self.url());
            return Err(error.hint("nothing is fetched ahead: leave the order out"));
        }
        let declared = self.prefetch.declare(name, declaration, &self.reach())?;
        if self.prefetch.begins() {
            let view = Arc::downgrade(self);
            self.node.runtime.spawn(self.prefetch.clone().run(move || Some(view.upgrade()?.reach())));
        }
        Ok(declared)
    }

    /// What jobs said that they will read.
    pub fn prefetch(&self) -> &Prefetch {
        &self.prefetch
    }

    /// What is concluded of its readers.
    pub(crate) fn unsaid(&self) -> &Unsaid {
        &self.unsaid
    }

    /// What it takes to fetch the files of the data set as it is now.
    pub(crate) fn reach(&self) -> Reach {
        Reach { manifest: self.manifest(), stack: self.node.stack.clone(), via: self.door() }
    }

    /// How much of it lies in the cache. Takes about a microsecond a file.
    pub fn kept(&self) -> Kept {
        kept::of_all(&self.manifest(), &self.node.stack)
    }

    /// The same of a file or a folder, with what is directly in it, the first so many by name.
    pub fn kept_below(&self, path: &[u8], most: usize) -> Result<(Kept, Vec<kept::Entry>)> {
        kept::of_path(&self.manifest(), &self.node.stack, path, most)
    }

    /// Each file at or below a path of which anything is kept, until `each` says false.
    pub fn each_kept(&self, path: &[u8], each: impl FnMut(&[u8], &Arc<Object>, u64) -> bool) -> Result<()> {
        kept::each_below(&self.manifest(), &self.node.stack, path, each)
    }

    /// What the background fill did.
    pub fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The manifest that its names were taken from, if they were not listed.
    pub fn given(&self) -> Option<&std::path::Path> {
        self.source.manifest.as_deref()
    }

    /// Whether files are read where they lie instead of being kept.
    pub fn is_local(&self) -> bool {
        self.source.local.is_some()
    }

    /// The names as they are now.
    pub fn manifest(&self) -> Arc<Manifest> {
        self.names.current()
    }

    /// Bytes of the snapshots that are mapped: memory that the kernel gives to others where it runs short.
    pub fn names_bytes(&self) -> u64 {
        self.names.bytes()
    }

    /// Where its names lie; the file is never written again, and another takes its name when they are listed anew.
    pub fn snapshot(&self) -> &std::path::Path {
        &self.snapshot
    }

    /// Say, once, that names are missing because their file was damaged under us.
    fn notice_damage(&self) {
        if self.names.current().is_damaged() && !self.damage_told.swap(true, Relaxed) {
            let what = "the snapshot of names was cut short or could not be read any more: names are missing";
            let error = Error::corrupt(what, self.snapshot.display()).hint("run `stoker refresh` on the mount point");
            tracing::error!("{error}");
        }
    }

    pub fn totals(&self) -> Totals {
        *self.names.current().totals()
    }

    /// The nodes under which an object is known here.
    pub fn nodes_of(&self, object: &Object) -> Vec<u64> {
        self.names.nodes_of(object)
    }

    /// Open an object that the names led to.
    fn open_object(&self, node: u64, object: Arc<Object>, thread: u32) -> Opening {
        if object.size == 0 {
            return Opening::Ready(Ok(Arc::new(Empty)));
        }
        if let Some(folder) = &self.source.local {
            let opened = folder.open(&object);
            return Opening::Ready(opened.map(|file| self.local(object, file, folder)));
        }
        self.node.stack.opened(&object, self.totals().bytes);
        self.note(node, thread, true);
        let standing = self.node.stack.find(&object);
        if matches!(standing, Standing::Absent)
            && let Some(folder) = self.fill.opened(&self.names.path(node).unwrap_or_default())
        {
            self.node.runtime.spawn(fill::run(self.reach(), self.fill.clone(), folder));
        }
        self.open_as_it_stands(object, standing)
    }

    /// A thread opened a file, and asked here or not: to whoever tells from it what is opened next.
    fn note(&self, node: u64, thread: u32, is_asked: bool) {
        let is_named = self.prefetch.opened(node, thread);
        self.unsaid.opened(Opened { node, thread, is_named, is_asked }, Instant::now());
    }

    /// Go on with a file that was opened a moment ago by the same reader: that is no open to anybody who counts them.
    pub fn go_on(&self, node: u64) -> Opening {
        match self.names.object(node) {
            Some(object) if object.size > 0 && !self.is_local() => {
                let standing = self.node.stack.find(&object);
                self.open_as_it_stands(object, standing)
            }
            _ => self.open(node),
        }
    }

    fn open_as_it_stands(&self, object: Arc<Object>, standing: Standing) -> Opening {
        match standing {
            Standing::Complete(whole) => {
                // What was asked for ahead of it is read from the disk.
                if self.prefetch.is_on() {
                    self.node.stack.abandon(&whole.object, 0..whole.object.blocks());
                }
                Opening::Ready(Ok(streamed_as_kept(&self.node, whole, self.door())))
            }
            Standing::Absent | Standing::Cut if object.blocks() > 1 => Opening::Ready(Ok(self.streamed(object))),
            Standing::Absent | Standing::Cut => Opening::Waiting(Box::pin(self.fetch(object))),
            Standing::Unchecked(whole) if object.size > CHECKED_AT_OPEN_MAX => {
                self.check_behind(&whole);
                Opening::Ready(Ok(self.streamed(object)))
            }
            Standing::Unchecked(_) => Opening::Waiting(Box::pin(self.check(object))),
        }
    }

    /// Fetch a small object whole, so that the kernel can read its file.
    fn fetch(&self, object: Arc<Object>) -> impl Future<Output = Result<Arc<dyn Content>>> + use<> {
        let (node, door, streamed) = (self.node.clone(), self.door(), self.streamed(object.clone()));
        let (fill, fetched) = (self.fill.clone(), self.fetched.clone());
        async move {
            let began = Instant::now();
            let block = node.stack.small(&object, door).await?;
            fill.waited(began.elapsed().as_secs_f64());
            if block.is_kept()
                && let Standing::Complete(whole) = node.stack.find(&object)
            {
                fetched.add(1, object.size);
                return Ok(streamed_as_kept(&node, whole, door));
            }
            Ok(streamed as Arc<dyn Content>)
        }
    }

    /// Read a file of an earlier boot once before it is trusted; fetch it again if it is damaged.
    fn check(&self, object: Arc<Object>) -> impl Future<Output = Result<Arc<dyn Content>>> + use<> {
        let (node, door) = (self.node.clone(), self.door());
        let (fetch, streamed) = (self.fetch(object.clone()), self.streamed(object.clone()));
        async move {
            let checked = {
                let _wait = node.stack.wait_for_disk();
                // What the disk can't give now is asked of the store.
                node.stack.check(&object).await.unwrap_or_else(|error| {
                    tracing::warn!("a file of an earlier boot could not be checked: {error}");
                    None
                })
            };
            match checked {
                Some(whole) => Ok(streamed_as_kept(&node, whole, door)),
                None if object.blocks() == 1 => fetch.await,
                None => Ok(streamed as Arc<dyn Content>),
            }
        }
    }

    /// Check a large file of an earlier boot while it is served, each read compared: the next open passes through.
    fn check_behind(&self, whole: &Arc<Whole>) {
        if whole.is_being_checked() {
            return;
        }
        let (stack, object) = (self.node.stack.clone(), whole.object.clone());
        self.node.runtime.spawn(async move {
            if let Err(error) = stack.check(&object).await {
                tracing::warn!("a file of an earlier boot could not be checked: {error}");
            }
        });
    }

    fn streamed(&self, object: Arc<Object>) -> Arc<Streamed> {
        let open = self.node.stack.reads(&object);
        streamed(&self.node, object, self.door(), open)
    }

    fn local(&self, object: Arc<Object>, file: std::os::fd::OwnedFd, folder: &Arc<Folder>) -> Arc<dyn Content> {
        let (runtime, turns) = (self.node.runtime.clone(), self.local_reads.clone());
        Arc::new(Local { object, file: Arc::new(file.into()), folder: folder.clone(), runtime, turns })
    }
}

fn streamed(node: &Node, object: Arc<Object>, via: Door, open: Option<Open>) -> Arc<Streamed> {
    let (stack, runtime) = (node.stack.clone(), node.runtime.clone());
    Arc::new(Streamed { object, stack, readahead: Default::default(), via, runtime, open })
}

fn streamed_as_kept(node: &Node, whole: Arc<Whole>, via: Door) -> Arc<dyn Content> {
    // What others own is read from here, whether they keep it or not.
    let otherwise = streamed(node, whole.object.clone(), via, None);
    Arc::new(content::Kept { whole, otherwise, turns: node.disk_reads.clone() })
}

impl Drop for View {
    fn drop(&mut self) {
        self.fill.end();
        self.prefetch.end();
        self.unsaid.end();
    }
}

impl Namespace for View {
    fn lookup(&self, parent: u64, name: &[u8]) -> Option<Attributes> {
        let found = self.names.lookup(parent, name);
        if found.is_none() {
            self.notice_damage();
        }
        found
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        self.names.attributes(node)
    }

    fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        self.names.list(folder, from, each)
    }

    fn names(&self) -> Option<Arc<dyn Names>> {
        Some(self.names.current())
    }

    fn names_of(&self, generation: u32) -> Option<Arc<dyn Names>> {
        self.names.of(generation).map(|names| names as Arc<dyn Names>)
    }

    fn used(&self, uses: &[Use]) {
        if self.is_local() {
            return;
        }
        let set_bytes = self.totals().bytes;
        for (used, object) in uses.iter().filter_map(|used| Some((used, self.names.object(used.node)?))) {
            self.node.stack.opened(&object, set_bytes);
            if used.is_open {
                self.note(used.node, used.thread, false);
            }
            if self.prefetch.is_on() {
                self.node.stack.abandon(&object, 0..object.blocks());
            }
        }
    }

    fn remember(&self, node: u64, lookups: i64) {
        self.names.remember(node, lookups);
    }

    fn is_listed(&self, node: u64) -> bool {
        self.names.current().attributes(node).is_some()
    }

    fn open(&self, node: u64) -> Opening {
        self.open_by(node, 0)
    }

    fn open_by(&self, node: u64, thread: u32) -> Opening {
        match self.names.object(node) {
            Some(object) => self.open_object(node, object, thread),
            None => {
                Opening::Ready(Err(Error::changed("the file is not in the data set any more", format!("node {node}"))))
            }
        }
    }
}
