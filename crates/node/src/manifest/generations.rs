//! The current snapshot, and older ones for as long as the kernel holds lookups on nodes that only they know.
//!
//! Builds nothing and deletes no file: a snapshot that is let go is unmapped, and its disk space is free if its
//! file was unlinked or replaced meanwhile.
//!
//! A node is counted at its *home*: the oldest kept snapshot that isn't older than the node. Snapshots that hold
//! a node follow each other without a gap, beginning with the one that it was born in; so its home holds it if
//! any kept snapshot does. When a snapshot goes, its nodes' home is the next one, which then takes the count
//! over: usually 0, because a snapshot goes when nobody counts on it.
//!
//! Invariants: a node that the kernel holds a lookup on keeps its attributes and its object, until more than
//! [`RETAINED_MAX`] snapshots would have to be kept; folders are always listed as they are now.

use super::{Manifest, layout, stale};
use crate::namespace::{Attributes, ROOT, Stale};
use block::Object;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Older snapshots that are kept. Each may hold a file of about 80 MB for a million names. Beyond it the oldest
/// goes: what had vanished from the set by the next one is then unknown to `stat` (ESTALE); files that are open,
/// and nodes that any kept snapshot holds, don't notice.
pub const RETAINED_MAX: usize = 16;

/// Lookups on a snapshot of another process, whose number nobody knows: more than are ever given back.
const UNKNOWN_LOOKUPS: u64 = 1 << 40;

/// A data set through its refreshes.
pub struct Generations {
    /// Oldest first; the last is the current one. Never empty, generations ascend.
    kept: RwLock<Vec<Kept>>,
    holder: OnceLock<Holder>,
}

/// Has a snapshot held outside of this process, before any name is taken from it.
pub type Holder = Box<dyn Fn(&Manifest) -> Held + Send + Sync>;

/// Lets go of a snapshot that is held elsewhere when it is dropped.
pub type Held = Box<dyn Send + Sync>;

struct Kept {
    manifest: Arc<Manifest>,
    /// Lookups that the kernel holds on nodes whose home this is.
    lookups: AtomicU64,
    #[allow(dead_code, reason = "it ends with the snapshot")]
    held: Option<Held>,
}

impl Generations {
    pub fn new(manifest: Manifest) -> Generations {
        Generations { kept: RwLock::new(vec![Kept::of(manifest)]), holder: OnceLock::new() }
    }

    /// Go on with the snapshots of another process, oldest first. `None` if there are none, or not in that order.
    pub fn resumed(manifests: Vec<Manifest>) -> Option<Generations> {
        let ascend = manifests.is_sorted_by(|one, next| one.generation() < next.generation());
        let kept: Vec<_> = manifests
            .into_iter()
            .map(|manifest| Kept { lookups: AtomicU64::new(UNKNOWN_LOOKUPS), ..Kept::of(manifest) })
            .collect();
        (ascend && !kept.is_empty()).then(|| Generations { kept: RwLock::new(kept), holder: OnceLock::new() })
    }

    /// The snapshot of this number, if it is kept.
    pub fn of(&self, generation: u32) -> Option<Arc<Manifest>> {
        self.read().iter().map(|kept| &kept.manifest).find(|names| names.generation() == generation).cloned()
    }

    /// Have all snapshots held from now on, those that are kept already among them.
    pub fn hold_by(&self, holder: Holder) {
        let holder = self.holder.get_or_init(|| holder);
        let kept: Vec<_> = self.read().iter().map(|kept| kept.manifest.clone()).collect();
        for manifest in kept {
            // May take a moment: not under the lock.
            let held = holder(&manifest);
            let is_same = |kept: &&mut Kept| kept.manifest.generation() == manifest.generation();
            match self.write().iter_mut().find(is_same) {
                Some(kept) => kept.held = Some(held),
                None => drop(held),
            }
        }
    }

    /// What went stale since these names, as far as their snapshots are kept.
    pub fn stale_since(&self, generation: u32) -> Stale {
        let kept: Vec<_> = self.read().iter().map(|kept| kept.manifest.clone()).collect();
        let later = kept.windows(2).filter(|pair| pair[1].generation() > generation);
        later.flat_map(|pair| stale(&pair[0], &pair[1])).collect()
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<Manifest> {
        last(&self.read()).manifest.clone()
    }

    /// Make a snapshot the current one. It has to be built with the current one as its previous; another is
    /// refused, and false comes back.
    pub fn replace(&self, manifest: Manifest) -> bool {
        let held = self.holder.get().map(|holder| holder(&manifest));
        let mut kept = self.write();
        let follows = manifest.generation() > last(&kept).manifest.generation();
        if follows {
            kept.push(Kept { held, ..Kept::of(manifest) });
        }
        let gone = if follows { sweep(&mut kept) } else { Vec::new() };
        // Letting go may take a moment: not under the lock.
        drop(kept);
        drop(gone);
        follows
    }

    /// Bytes of the snapshots kept.
    pub fn bytes(&self) -> u64 {
        self.read().iter().map(|kept| kept.manifest.file_bytes()).sum()
    }

    /// Snapshots kept, with the current one.
    pub fn kept(&self) -> usize {
        self.read().len()
    }

    /// The child of this name in the folder as it is now, counting one lookup on it.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Option<Attributes> {
        let kept = self.read();
        let found = last(&kept).manifest.lookup(parent, name)?;
        count(&kept, found.node, 1);
        Some(found)
    }

    /// What `stat` tells of a node that is in the set now or was looked up before.
    pub fn attributes(&self, node: u64) -> Option<Attributes> {
        self.find_in(node, |manifest| manifest.attributes(node))
    }

    /// Children of a folder as it is now; see [`Manifest::list`]. Nothing is held meanwhile, so `each` may count.
    pub fn list(&self, folder: u64, from: u64, each: &mut dyn FnMut(u64, &[u8], Attributes) -> bool) -> bool {
        self.current().list(folder, from, each)
    }

    /// The object whose bytes a file holds.
    pub fn object(&self, node: u64) -> Option<Arc<Object>> {
        self.find_in(node, |manifest| manifest.object(node))
    }

    /// The nodes of an object: in the set as it is now, and as the kernel may still know it from before.
    pub fn nodes_of(&self, object: &Object) -> Vec<u64> {
        let mut nodes: Vec<u64> = self.read().iter().filter_map(|kept| kept.manifest.node_of(object)).collect();
        nodes.dedup();
        nodes
    }

    /// The path of a node; for one that is gone, its last.
    pub fn path(&self, node: u64) -> Option<Vec<u8>> {
        self.find_in(node, |manifest| manifest.path(node))
    }

    /// Count (positive) or give back (negative) lookups on a node. Giving back more than was counted is taken as all.
    pub fn remember(&self, node: u64, lookups: i64) {
        let idle = {
            let kept = self.read();
            count(&kept, node, lookups) && kept.len() > 1
        };
        if idle {
            let gone = sweep(&mut self.write());
            drop(gone);
        }
    }

    /// Ask the current snapshot, then the node's home.
    fn find_in<T>(&self, node: u64, ask: impl Fn(&Manifest) -> Option<T>) -> Option<T> {
        let kept = self.read();
        ask(&last(&kept).manifest).or_else(|| ask(&kept.get(home(&kept, node))?.manifest))
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Kept>> {
        // Nothing panics between the steps of a change, so a poisoned list is still sound.
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Kept>> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn of(manifest: Manifest) -> Kept {
        Kept { manifest: Arc::new(manifest), lookups: AtomicU64::new(0), held: None }
    }
}

fn last(kept: &[Kept]) -> &Kept {
    kept.last().expect("there is always a current snapshot")
}

/// The place of a node's home; past the end for a node that can't be.
fn home(kept: &[Kept], node: u64) -> usize {
    let born = layout::generation(node);
    kept.partition_point(|kept| kept.manifest.generation() < born)
}

/// Change the count of a node's home; true if nobody counts on that home any more. The top folder is in every
/// snapshot and never counted.
fn count(kept: &[Kept], node: u64, lookups: i64) -> bool {
    let Some(home) = kept.get(home(kept, node)).filter(|_| node != ROOT) else {
        return false;
    };
    // Only the lock orders anything; the count itself is a number.
    if lookups >= 0 {
        home.lookups.fetch_add(lookups.unsigned_abs(), Ordering::Relaxed);
        return false;
    }
    let less = |count: u64| Some(count.saturating_sub(lookups.unsigned_abs()));
    let before = home.lookups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or_else(|count| count);
    before <= lookups.unsigned_abs()
}

/// Let go what nobody counts on, and the oldest beyond the limit; its count goes to the next.
fn sweep(kept: &mut Vec<Kept>) -> Vec<Kept> {
    let current = last(kept).manifest.generation();
    // A listing may go on with it, also in the next process; or with later names, if its beginning was kept from another listing.
    let listed = kept.iter().find(|kept| Arc::strong_count(&kept.manifest) > 1);
    let needed = listed.map_or(current, |kept| kept.manifest.generation());
    let is_idle = |kept: &mut Kept| kept.manifest.generation() < needed && *kept.lookups.get_mut() == 0;
    let mut gone: Vec<Kept> = kept.extract_if(.., is_idle).collect();
    let beyond = kept.len().saturating_sub(RETAINED_MAX + 1);
    let oldest = gone.len();
    gone.extend(kept.drain(..beyond));
    let moved: u64 = gone[oldest..].iter_mut().map(|gone| *gone.lookups.get_mut()).sum();
    if let Some(oldest) = kept.first_mut() {
        *oldest.lookups.get_mut() += moved;
    }
    gone
}
