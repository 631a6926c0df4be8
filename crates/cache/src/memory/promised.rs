//! Blocks on their way: however their fetch ends, each promise is kept or broken.

use super::{APART_BELOW, Memory, lanes};
use crate::budget::Share;
use block::{Block, Error, Kind, Object, Proof, Result, Run};
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::watch;

/// Blocks that were promised and did not come yet. However their fetch ends, each promise is kept or broken: a block that
/// stayed announced would never be asked for again.
pub struct Promised {
    pub memory: Memory,
    pub object: Arc<Object>,
    /// In the order of the object.
    pub promises: VecDeque<Promise>,
    pub declared: Option<Declared>,
}

pub struct Promise {
    pub index: u32,
    pub sender: watch::Sender<Option<Result<Block>>>,
    pub share: Share,
    pub stamp: u64,
    pub lane: lanes::Place,
}

/// Counts a request for what somebody declared, until it ends.
pub struct Declared(Arc<AtomicUsize>);

impl Declared {
    pub fn of(count: &Arc<AtomicUsize>) -> Declared {
        count.fetch_add(1, Relaxed);
        Declared(count.clone())
    }
}

impl Drop for Declared {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Promised {
    /// Fetch a run to its end, telling the waiters of each block as it comes.
    pub async fn flight(mut self, run: Run) {
        let is_short = run.blocks.len() < APART_BELOW;
        let mut blocks = self.memory.0.below.fetch(run.with_room());
        let mut arrived = false;
        while !self.promises.is_empty() {
            let too_few = || Err(Error::corrupt("a source ended too early", &*self.object));
            match blocks.next().await.unwrap_or_else(too_few) {
                Ok(block) => self.keep(block, is_short),
                Err(error) => {
                    if arrived && error.kind == Kind::Corrupt {
                        self.memory.forget(&self.object);
                    }
                    return self.fail(&error);
                }
            }
            arrived = true;
        }
        // Drained to its end, so that the tiers below can finish what they keep. They may find the whole wrong.
        while let Some(end) = blocks.next().await {
            if let Err(error) = end {
                tracing::warn!("forgetting an object, to fetch it again: {error}");
                self.memory.forget(&self.object);
            }
        }
    }

    /// The next block came.
    fn keep(&mut self, block: Block, is_short: bool) {
        let Some(Promise { index, sender, share, stamp, lane }) = self.promises.pop_front() else { return };
        // What came from the disk is no sign of life of a store, whichever was asked. What another member gave is one: it is
        // who was asked in the store's stead.
        lane.came(block.proof() != Proof::Local);
        drop(lane);
        let block = block.holding(Arc::new(share));
        let memory = &self.memory.0;
        memory.tally.below.add(1, block.len() as u64);
        // A small file that lies on the disk is read there from now on.
        let elsewhere = block.is_kept() && self.object.blocks() == 1;
        let keep = !elsewhere && !memory.budget.is_short();
        // What comes from a file lies in memory of its own already.
        let block = if keep && is_short && !block.is_kept() { block.apart() } else { block };
        let mut shelf = self.memory.shelf();
        let keep = keep && !memory.budget.is_short();
        shelf.arrive((self.object.id(), index), stamp, keep.then(|| block.clone()));
        drop(shelf);
        sender.send_replace(Some(Ok(block)));
    }

    /// None of the others will come.
    fn fail(&mut self, error: &Error) {
        for Promise { index, sender, share, stamp, .. } in self.promises.drain(..) {
            drop(share);
            self.memory.shelf().arrive((self.object.id(), index), stamp, None);
            sender.send_replace(Some(Err(error.clone())));
        }
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        if !self.promises.is_empty() {
            self.fail(&Error::unavailable("a fetch was given up", &*self.object));
        }
    }
}
