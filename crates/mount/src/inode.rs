//! Which way the opens of one file are served, and which backing files the kernel keeps registered.
//! Plain state under sharded locks; the calls to the kernel are made by whoever asked.
//!
//! The kernel's rule (6.9 and later): opens of one inode that are alive together either all pass through
//! to the same backing file or are all served by the daemon; anything else is EIO.
//!
//! Invariant: the way changes only while no open is alive. Every backing id that enters is handed out
//! for closing exactly once. What is open stands in the ledger before its open is answered.

use crate::device::BackingId;
use crate::ledger::{Entry, Ledger, Line, Retired, Sending};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Backing files kept registered after their last close: a later open then needs nothing but this table.
/// Each pins a file and an inode in the kernel, about 1.5 KiB.
pub const KEPT_MAX: usize = 32_768;

/// More than twice the threads that a session may have, so that they seldom meet.
const SHARDS: usize = 32;

/// The ways of all files that are open or kept.
pub struct Inodes {
    shards: Box<[Mutex<Shard>]>,
    ledger: Arc<Ledger>,
}

/// What an open starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Counted as open: answer with this backing file.
    Through(BackingId),
    /// Ask for the content, then [`Inodes::settle`].
    Ask(Asked),
}

/// What was known when the content was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Opens served by the daemon are alive, so registering a backing file would be in vain.
    pub served: bool,
    revocations: u32,
}

/// A backing file that was registered.
#[derive(Debug)]
pub struct Backing {
    pub id: BackingId,
    /// The same file, to be read ahead.
    pub ahead: Option<Arc<OwnedFd>>,
}

/// How an open ends, now counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    pub way: Way,
    pub close: Option<Retired>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Through(BackingId),
    /// By the daemon; `small_reads`: earlier opens were read in small steps.
    Served {
        small_reads: bool,
    },
}

impl Inodes {
    /// With what is open by the ledger.
    pub fn over(ledger: Arc<Ledger>, kept_max: usize) -> Inodes {
        let kept_max = (kept_max / SHARDS).max(1);
        let shard = || Mutex::new(Shard { kept_max, ..Shard::default() });
        let inodes = Inodes { shards: std::iter::repeat_with(shard).take(SHARDS).collect(), ledger };
        for Entry { line, node, backing, opens } in inodes.ledger.entries() {
            let inode = match backing {
                Some(id) => Inode::Through(Through { id, line, ahead: None, opens, touched: false, place: None }),
                None => Inode::Served { opens, small_reads: false, line: Some(line) },
            };
            inodes.shard(node).inodes.insert(node, inode);
        }
        inodes
    }

    /// The first step of an open by a request of this number, to be answered within what comes back. The hottest function of
    /// a warm mount.
    pub fn start(&self, node: u64, unique: u64) -> (Start, Option<Sending<'_>>) {
        let mut shard = self.shard(node);
        let revocations = shard.revocations;
        match shard.inodes.get_mut(&node) {
            Some(Inode::Through(through)) => {
                through.opens += 1;
                through.touched = true;
                self.ledger.set(through.line, through.opens);
                (Start::Through(through.id), Some(self.ledger.opening(unique, node)))
            }
            Some(Inode::Served { opens, .. }) => (Start::Ask(Asked { served: *opens > 0, revocations }), None),
            None => (Start::Ask(Asked { served: false, revocations }), None),
        }
    }

    /// The last step of an open whose content is there; `offer` is its backing file, if it has one. To be answered within what
    /// comes back.
    pub fn settle(&self, node: u64, unique: u64, asked: Asked, offer: Option<Backing>) -> (Settled, Sending<'_>) {
        let mut shard = self.shard(node);
        let settled = shard.settle(&self.ledger, node, asked, offer);
        // With the count, or the next process would take an open that is asked again for one more.
        (settled, self.ledger.opening(unique, node))
    }

    /// The backing file of a node whose name was looked up, if it may be read ahead.
    pub fn ahead(&self, node: u64) -> Option<Arc<OwnedFd>> {
        match self.shard(node).inodes.get(&node)? {
            Inode::Through(through) => through.ahead.clone(),
            Inode::Served { .. } => None,
        }
    }

    /// An open that passed through was closed, as was answered. The backing file to close, if it is not kept.
    pub fn release_through(&self, node: u64, closing: Sending<'_>) -> Option<Retired> {
        let mut shard = self.shard(node);
        drop(closing);
        let Some(Inode::Through(through)) = shard.inodes.get_mut(&node) else { return None };
        through.opens = through.opens.saturating_sub(1);
        self.ledger.set(through.line, through.opens);
        if through.opens == 0 && through.place.is_none() { shard.remove(&self.ledger, node) } else { None }
    }

    /// An open that the daemon served was closed, as was answered.
    pub fn release_served(&self, node: u64, small: bool, closing: Sending<'_>) {
        let mut shard = self.shard(node);
        drop(closing);
        let Some(Inode::Served { opens, small_reads, line }) = shard.inodes.get_mut(&node) else { return };
        *opens = opens.saturating_sub(1);
        *small_reads |= small;
        if let Some(open) = *line {
            self.ledger.set(open, *opens);
        }
        if *opens == 0 {
            line.take().into_iter().for_each(|closed| self.ledger.erase(closed));
            if !*small_reads {
                shard.inodes.remove(&node);
            }
        }
    }

    /// The kernel gave lookups on the node back. While opens are alive it still knows the node. A backing file that is
    /// kept stays if the node is still listed: the kernel forgets names whenever it wants memory, and asks for this one
    /// again in the next epoch.
    pub fn forget(&self, node: u64, listed: bool) -> Option<Retired> {
        let mut shard = self.shard(node);
        let over = match shard.inodes.get(&node)? {
            Inode::Through(through) => through.opens == 0 && !listed,
            Inode::Served { opens, .. } => *opens == 0,
        };
        if over { shard.remove(&self.ledger, node) } else { None }
    }

    /// Names have gone: the backing files that were kept for nodes which no listing will give again.
    pub fn unlisted(&self, listed: impl Fn(u64) -> bool) -> Vec<Retired> {
        let mut gone = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = |node: &u64| matches!(shard.inodes.get(node), Some(Inode::Through(Through { opens: 0, .. })));
            let nodes: Vec<u64> = shard.kept.iter().copied().filter(|node| !listed(*node) && idle(node)).collect();
            gone.extend(nodes.into_iter().filter_map(|node| shard.remove(&self.ledger, node)));
        }
        gone
    }

    /// The owner deletes the backing file: keep it no longer than opens are alive.
    pub fn revoke(&self, node: u64) -> Option<Retired> {
        let mut shard = self.shard(node);
        shard.revocations = shard.revocations.wrapping_add(1);
        match shard.inodes.get(&node)? {
            Inode::Through(through) if through.opens == 0 => shard.remove(&self.ledger, node),
            Inode::Through(_) => {
                shard.unkeep(node);
                None
            }
            Inode::Served { .. } => None,
        }
    }

    /// No backing file gives its bytes any more: what [`Inodes::revoke`] does, of all.
    pub fn revoke_all(&self) -> Vec<Retired> {
        let mut closed = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.revocations = shard.revocations.wrapping_add(1);
            let nodes: Vec<u64> = shard.kept.clone();
            for node in nodes {
                match shard.inodes.get(&node) {
                    Some(Inode::Through(Through { opens: 0, .. })) => closed.extend(shard.remove(&self.ledger, node)),
                    _ => shard.unkeep(node),
                }
            }
        }
        closed
    }

    fn shard(&self, node: u64) -> MutexGuard<'_, Shard> {
        // A panic elsewhere leaves counts that are at worst too high, which is safe.
        self.shards[node as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Shard {
    inodes: HashMap<u64, Inode, BuildHasherDefault<Spread>>,
    /// Nodes whose backing files are kept, walked by `hand`: those not opened since its last visit give way.
    kept: Vec<u64>,
    hand: usize,
    kept_max: usize,
    /// Counts [`Inodes::revoke`], so that content asked for before is not kept after.
    revocations: u32,
}

enum Inode {
    Through(Through),
    Served {
        opens: u32,
        small_reads: bool,
        /// While it is open.
        line: Option<Line>,
    },
}

struct Through {
    id: BackingId,
    line: Line,
    ahead: Option<Arc<OwnedFd>>,
    opens: u32,
    /// Opened since the hand came by.
    touched: bool,
    /// Index in `kept`; without one the backing file goes with the last close.
    place: Option<usize>,
}

impl Shard {
    fn settle(&mut self, ledger: &Ledger, node: u64, asked: Asked, offer: Option<Backing>) -> Settled {
        let unused = |offer: Option<Backing>| offer.map(|backing| Retired { id: backing.id, line: None });
        match (self.inodes.get_mut(&node), offer) {
            (Some(Inode::Through(through)), offer) => {
                // Another open was faster: its backing file serves both.
                through.opens += 1;
                ledger.set(through.line, through.opens);
                Settled { way: Way::Through(through.id), close: unused(offer) }
            }
            (Some(Inode::Served { opens, small_reads, line }), offer) if *opens > 0 || offer.is_none() => {
                *opens += 1;
                match line {
                    Some(line) => ledger.set(*line, *opens),
                    None => *line = Some(ledger.enter(node, None)),
                }
                Settled { way: Way::Served { small_reads: *small_reads }, close: unused(offer) }
            }
            (_, Some(backing)) => {
                let way = Way::Through(backing.id);
                Settled { way, close: self.adopt(ledger, node, backing, asked.revocations == self.revocations) }
            }
            (_, None) => {
                let line = Some(ledger.enter(node, None));
                self.inodes.insert(node, Inode::Served { opens: 1, small_reads: false, line });
                Settled { way: Way::Served { small_reads: false }, close: None }
            }
        }
    }

    /// Take a backing file in; the one that gives way for it, if any.
    fn adopt(&mut self, ledger: &Ledger, node: u64, backing: Backing, keep: bool) -> Option<Retired> {
        let Backing { id, ahead } = backing;
        let evicted = if keep && self.kept.len() >= self.kept_max { self.evict(ledger) } else { None };
        let room = keep && self.kept.len() < self.kept_max;
        let place = room.then_some(self.kept.len());
        if room {
            self.kept.push(node);
        }
        let line = ledger.enter(node, Some(id));
        self.inodes.insert(node, Inode::Through(Through { id, line, ahead, opens: 1, touched: false, place }));
        evicted
    }

    /// Second chance: go round until a file that is closed and was not opened since the last round.
    fn evict(&mut self, ledger: &Ledger) -> Option<Retired> {
        for _ in 0..self.kept.len() * 2 {
            if self.hand >= self.kept.len() {
                self.hand = 0;
            }
            let node = self.kept[self.hand];
            match self.inodes.get_mut(&node) {
                Some(Inode::Through(through)) if through.opens > 0 || through.touched => {
                    through.touched = false;
                    self.hand += 1;
                }
                _ => return self.remove(ledger, node),
            }
        }
        None
    }

    fn remove(&mut self, ledger: &Ledger, node: u64) -> Option<Retired> {
        self.unkeep(node);
        match self.inodes.remove(&node)? {
            Inode::Through(Through { id, line, .. }) => {
                ledger.retire(line);
                Some(Retired { id, line: Some(line) })
            }
            Inode::Served { line, .. } => {
                line.into_iter().for_each(|closed| ledger.erase(closed));
                None
            }
        }
    }

    fn unkeep(&mut self, node: u64) {
        let Some(Inode::Through(through)) = self.inodes.get_mut(&node) else { return };
        let Some(place) = through.place.take() else { return };
        self.kept.swap_remove(place);
        if let Some(moved) = self.kept.get(place)
            && let Some(Inode::Through(moved)) = self.inodes.get_mut(moved)
        {
            moved.place = Some(place);
        }
    }
}

/// Node numbers are dense and not chosen by strangers: one multiplication spreads them well enough.
#[derive(Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 / golden ratio, odd; rotated, because the table looks at both ends of the word.
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
