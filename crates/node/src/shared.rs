//! Names that the members of a cluster share: what this node has of each data set, and how it gets what others have.
//!
//! Invariant: a snapshot of another member is used only if each byte of it agrees with the checksums in it, and it is of the
//! very set that was asked for.

use crate::manifest::{self, Draft, Manifest};
use crate::view::View;
use block::{Error, Result};
use peer::{Lines, Names, Soon};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of a snapshot that is taken from another member: names of some three hundred million files.
const SNAPSHOT_BYTES_MAX: u64 = 32 << 30;

/// The data sets of a node, as others ask for them.
#[derive(Default)]
pub struct Sets(Mutex<HashMap<u128, Set>>);

#[derive(Default)]
struct Set {
    opening: usize,
    /// How many of those list, or are about to, and how many keys they found in all.
    listing: usize,
    keys: u64,
    views: Vec<Weak<View>>,
}

/// A data set that is about to be opened; dropped, it is or failed.
pub struct Opening<'a> {
    sets: &'a Sets,
    set: u128,
    lists: AtomicBool,
}

impl Sets {
    /// From now on others are told that this node is about to have the names of a set.
    pub fn opening(&self, set: u128) -> Opening<'_> {
        self.sets().entry(set).or_default().opening += 1;
        Opening { sets: self, set, lists: AtomicBool::new(false) }
    }

    /// This node has the names of a set.
    pub fn add(&self, set: u128, view: &Arc<View>) {
        let mut sets = self.sets();
        let known = sets.entry(set).or_default();
        known.views.retain(|view| view.strong_count() > 0);
        known.views.push(Arc::downgrade(view));
    }

    /// Views of a set.
    pub fn views(&self, set: u128) -> Vec<Arc<View>> {
        let sets = self.sets();
        let views = sets.get(&set).map(|set| set.views.iter().filter_map(Weak::upgrade).collect());
        views.unwrap_or_default()
    }

    /// What others are told.
    pub fn names(&self, set: u128) -> Names {
        let soon = self.sets().get(&set).map(|set| match set {
            Set { listing: 1.., keys, .. } => (Soon::Lists, *keys),
            Set { opening: 1.., keys, .. } => (Soon::Asks, *keys),
            _ => (Soon::Not, 0),
        });
        let newest = self.views(set).into_iter().max_by_key(|view| view.manifest().listed_ns());
        let names = newest.map(|view| view.shared_names()).unwrap_or_default();
        let (soon, keys) = soon.unwrap_or_default();
        Names { soon, keys, ..names }
    }

    fn sets(&self) -> MutexGuard<'_, HashMap<u128, Set>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opening<'_> {
    /// Tell others that this node lists the set, or that it doesn't.
    pub fn lists(&self, lists: bool) {
        let mut sets = self.sets.sets();
        let Some(set) = sets.get_mut(&self.set) else { return };
        if self.lists.swap(lists, Relaxed) != lists {
            set.listing = if lists { set.listing + 1 } else { set.listing - 1 };
        }
    }

    /// So many more keys were found: others see that it gets further.
    pub fn found(&self, more: u64) {
        if let Some(set) = self.sets.sets().get_mut(&self.set) {
            set.keys = set.keys.saturating_add(more);
        }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.lists(false);
        let mut sets = self.sets.sets();
        let Some(set) = sets.get_mut(&self.set) else { return };
        set.opening -= 1;
        set.views.retain(|view| view.strong_count() > 0);
        if set.opening == 0 && set.views.is_empty() {
            sets.remove(&self.set);
        }
    }
}

/// Take the snapshot of another member into the place of this node's own. `is_right` is asked whether it is of the set that
/// is meant, by the store that was listed and the prefix: one that isn't, or is of another length, ends with its first piece.
pub async fn take(
    lines: &Lines,
    set: u128,
    (member, names): (u128, Names),
    path: &Path,
    is_right: impl Fn(&str, &str) -> bool,
) -> Result<Manifest> {
    if names.bytes > SNAPSHOT_BYTES_MAX {
        return Err(Error::invalid("the names of another member are longer than any data set's", path.display()));
    }
    let lies = || Error::corrupt("the names of another member are not those that it told of", path.display());
    let draft = Draft::beside(path)?;
    let mut at = 0;
    while at < names.bytes {
        let piece = lines.piece(member, set, names.id, at).await;
        let piece = piece.ok_or_else(|| Error::unavailable("a member stopped giving its names", path.display()))?;
        let due = (names.bytes - at).min(peer::PIECE_BYTES as u64);
        if piece.len() as u64 != due {
            return Err(Error::corrupt("a member gave a piece of its names of another length", path.display()));
        }
        if at == 0 {
            let head = manifest::head(&piece, names.bytes);
            head.filter(|(id, store, prefix)| *id == names.id && is_right(store, prefix)).ok_or_else(lies)?;
        }
        let written = draft.file.write_all_at(&piece, at);
        written.map_err(|error| Error::io("writing names of another member", path.display(), &error))?;
        at += piece.len() as u64;
    }
    let manifest = Manifest::of(&draft.file, path)?;
    manifest.verify()?;
    if manifest.id() != names.id || manifest.file_bytes() != names.bytes {
        return Err(lies());
    }
    draft.name(path)?;
    Ok(manifest)
}
