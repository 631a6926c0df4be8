//! A node: one cache folder, one memory budget, and the tiers laid over each other.
//!
//! Invariant: one node per cache folder. Whoever comes second joins the first, which it finds by its lock.

use crate::cluster::{Giving, Membership};
use crate::handover;
use crate::home::{Home, needs_room};
use crate::shared::Sets;
use crate::snapshots;
use crate::stack::Stack;
use crate::view::{Resumed, View};
use block::{Cause, Error, Result};
use cache::disk::{self, Limits, Used};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use store::{Chance, Counts, Entrance, OriginSettings, Origins};
use tokio::sync::Semaphore;

/// The folder of snapshots in that of the cache.
pub(crate) const SNAPSHOTS: &str = "manifests";

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of the cache, as it was meant: another may stand in for it ([`Home::standing_in`]).
    pub cache: PathBuf,
    /// Limits of the disk tier.
    pub limits: Limits,
    /// Anonymous memory that the daemon may use, all in all.
    pub memory_bytes: u64,
    /// Where chance begins, of another node somewhere else: the jitter of retries, the names of cache files.
    pub seed: u64,
    /// How long a request to a store is repeated before its reader gets an error.
    pub patience: std::time::Duration,
}

/// One read of a connection may take one part in so many of the memory limit, so that the buffers of a hundred
/// connections take a fifth of it; and these bytes at least and at most.
const READ_BUFFER_SHARE: u64 = 512;
const READ_BUFFER: (u64, u64) = (64 << 10, 512 << 10);

impl Settings {
    /// Bytes that one read of a connection may take.
    pub fn read_buffer(&self) -> usize {
        (self.memory_bytes / READ_BUFFER_SHARE).clamp(READ_BUFFER.0, READ_BUFFER.1) as usize
    }

    /// Turns of reads of one disk that take memory of their own.
    pub fn disk_reads(&self) -> Arc<Semaphore> {
        let reads = self.memory_bytes / DISK_READS_SHARE / DISK_READ_BYTES;
        Arc::new(Semaphore::new(reads.clamp(DISK_READS.0, DISK_READS.1) as usize))
    }
}

/// Blocks may take one part in so many of the memory limit, after what is fixed: a block on its way holds up to half
/// its size again in the buffer of its connection, and the allocator keeps some.
const BLOCKS_SHARE: u64 = 2;

/// What a node uses before the first block: the program's own data, threads, connections at rest.
const FIXED_BYTES: u64 = 32 << 20;

/// Reads that take memory of their own, of the cache's files and of each view's local folder, may take one part each in
/// so many of the memory limit, each read as much as the kernel asks for at most. Two go on in any case; and however
/// much memory there is, the cache's disk keeps no more than a quarter of the threads that may block if it hangs. Of local
/// folders, their own file systems have turns (`store::Folder::turn`).
const DISK_READS_SHARE: u64 = 32;
const DISK_READ_BYTES: u64 = 1 << 20;
const DISK_READS: (u64, u64) = (2, 16);

/// A running node.
pub struct Node {
    pub(crate) origins: Arc<Origins>,
    pub(crate) stack: Stack,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Turns of such reads of the cache's files.
    pub(crate) disk_reads: Arc<Semaphore>,
    settings: Settings,
    cluster: Option<Membership>,
    pub(crate) sets: Arc<Sets>,
    views: Mutex<Vec<Weak<View>>>,
    pub(crate) resumed: Resumed,
    home: Arc<Home>,
}

/// What a node did and holds, for people to look at.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Times and bytes that each tier answered.
    pub memory: (u64, u64),
    pub disk: (u64, u64),
    pub origin: (u64, u64),
    /// Distinct bytes that came from stores since the node began, and those that could not be kept.
    pub unique_bytes: u64,
    pub unkept_bytes: u64,
    /// Requests that may be in flight to all stores together.
    pub requests_limit: u64,
    /// Seconds that readers waited, by cause.
    pub waits: Vec<(Cause, f64)>,
    /// What was asked of each store.
    pub stores: Vec<(Arc<str>, Counts)>,
    /// Bytes of blocks in memory, and their budget.
    pub blocks: (u64, u64),
    /// Bytes of the index in memory, which are taken off that budget.
    pub index_bytes: u64,
    /// Bytes of mapped names of all data sets: not anonymous, so no part of the limit.
    pub names_bytes: u64,
    pub memory_limit: u64,
    pub used: Used,
    pub limits: Limits,
}

impl Node {
    /// Start a node on a cache folder. [`block::Kind::Unavailable`] if another node has it.
    pub fn start(settings: Settings, boot: [u8; 16], runtime: tokio::runtime::Handle) -> Result<Arc<Node>> {
        let home = Home::take(&settings.cache, false)?;
        Node::start_in(home, settings, boot, runtime, None)
    }

    /// Start a node on a cache folder that was taken before.
    pub fn start_in(
        home: Home,
        settings: Settings,
        boot: [u8; 16],
        runtime: tokio::runtime::Handle,
        cluster: Option<Membership>,
    ) -> Result<Arc<Node>> {
        let (home, origins) = (Arc::new(home), Arc::new(Origins::default()));
        let holding = home.clone();
        let on_disk = disk::Settings {
            folder: home.path().join("blocks"),
            limits: settings.limits,
            boot,
            keeps: store::is_settled,
            medium: Arc::new(disk::medium::System),
            clock: cache::waits::clock,
            hold: Arc::new(move || holding.hold()),
            first: Chance::new(settings.seed).next() as u32 >> 4,
        };
        let blocks_bytes = settings.memory_bytes.saturating_sub(FIXED_BYTES) / BLOCKS_SHARE;
        let around = (&runtime, cluster.as_ref());
        let stack =
            Stack::over(origins.clone(), on_disk, blocks_bytes, settings.patience, around).map_err(needs_room)?;
        let disk_reads = settings.disk_reads();
        let node = Node {
            origins,
            stack,
            runtime,
            disk_reads,
            settings,
            cluster,
            sets: Arc::default(),
            views: Mutex::default(),
            resumed: Resumed::default(),
            home,
        };
        snapshots::prepare(&node.snapshots()).map_err(needs_room)?;
        let node = Arc::new(node);
        handover::begin(&node);
        Ok(node)
    }

    /// Whether a group may write into its cache folder.
    pub fn is_of_group(&self) -> bool {
        self.home.is_of_group()
    }

    /// Why nothing that lies in its cache folder can be had, if it can't.
    pub fn lost(&self) -> Option<String> {
        let errors = || self.stack.is_disk_lost().then(|| "it gives errors alone".into());
        self.home.stands_in().map(str::to_owned).or_else(errors)
    }

    /// Make what somebody may have removed: the cache folder, and that of snapshots in it.
    pub(crate) fn hold(&self) -> Result<()> {
        if !self.stack.hold() {
            let hint = "the log of the node says why; mount again once its place is free, or with another --cache";
            return Err(
                Error::denied("the cache folder is not this node's any more", self.settings.cache.display()).hint(hint)
            );
        }
        snapshots::make(&self.snapshots())
    }

    /// The folder of snapshots of names.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.home.path().join(SNAPSHOTS)
    }

    /// Count a view among those that are open, until it is dropped.
    pub(crate) fn keep(&self, view: &Arc<View>) {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.retain(|view| view.strong_count() > 0);
        views.push(Arc::downgrade(view));
    }

    pub(crate) fn views(&self) -> Vec<Arc<View>> {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn snapshots_in_use(&self) -> HashSet<PathBuf> {
        self.views().iter().map(|view| view.snapshot().to_owned()).collect()
    }

    /// The tiers.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Use a store for as long as the entrance lives.
    pub(crate) fn enter(&self, store: &Arc<dyn store::Store>, name: &Arc<str>) -> Entrance {
        let Settings { seed, patience: budget, .. } = self.settings;
        self.origins.open(store, name, OriginSettings { seed, budget, ..Default::default() })
    }

    /// Take what the index has grown to off the budget of blocks. To be called now and then.
    pub fn make_room_for_index(&self) {
        self.stack.budget().leave(self.stack.index_bytes(), &self.runtime);
    }

    /// The cluster that this node is a member of.
    pub fn cluster(&self) -> Option<&Membership> {
        self.cluster.as_ref()
    }

    /// What other members are answered from.
    pub fn giving(&self) -> Arc<dyn peer::Giver> {
        let (stack, origins, sets) = (self.stack.clone(), self.origins.clone(), self.sets.clone());
        Arc::new(Giving { stack, origins, sets, dropping: Arc::default() })
    }

    pub fn figures(&self) -> Figures {
        let (used, limits) = self.stack.disk_usage();
        let (memory, disk) = self.stack.tallies();
        Figures {
            memory: memory.here.get(),
            disk: disk.here.get(),
            origin: disk.below.get(),
            unique_bytes: disk.unique.get().1,
            unkept_bytes: disk.unkept.get().1,
            waits: Cause::ALL.map(|cause| (cause, self.stack.waits().seconds(cause))).into(),
            stores: self.origins.counts(),
            requests_limit: self.origins.requests_limit(),
            blocks: self.stack.budget().usage(),
            index_bytes: self.stack.index_bytes(),
            names_bytes: self.views().iter().map(|view| view.names_bytes()).sum(),
            memory_limit: self.settings.memory_bytes,
            used,
            limits,
        }
    }

    /// Tell somebody of each object that leaves the disk, or of which wrong bytes may have been handed out: what was
    /// got before is to be let go. What is called must not call back into the node.
    pub fn tell_dropped(&self, dropped: impl Fn(&block::Object) + Clone + Send + Sync + 'static) {
        self.stack.tell_dropped(dropped);
    }

    /// Leave the cache folder as the next node wants to find it.
    pub fn close(&self) {
        self.stack.close();
    }
}
