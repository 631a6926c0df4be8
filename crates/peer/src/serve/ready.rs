//! Requests whose blocks lie in complete files that are open: they take no task, no memory and no queue but this one. The kernel
//! sends them; where it can't, as on an encrypted connection, they are read first.
//!
//! Invariant: readers who wait come first, a block each in turns; then what is due first. A request of which nobody knows when it is
//! due is when it got its last block, so that those have their turns too.

use super::Opened;
use crate::wire::{self, HEADER, Header, Manner, Word};
use block::{Address, Run};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

/// Requests that wait for their turns.
#[derive(Default)]
pub struct Ready {
    queue: Mutex<VecDeque<Waiting>>,
    came: Notify,
}

/// A request, and the blocks of it that were not sent yet.
pub struct Waiting {
    pub request: u32,
    pub run: Run,
    pub manner: Manner,
    /// When a reader will wait for it, or when it got its last block, if nobody knows.
    pub due: Instant,
    pub file: Arc<dyn Opened>,
    pub turn: OwnedSemaphorePermit,
}

/// A block that is sent next, from its file.
pub struct Part {
    pub file: Arc<dyn Opened>,
    pub at: u64,
    pub length: usize,
}

/// What comes next.
pub enum Next {
    Part(Part),
    /// The disk is to be waited for, and that is not done here.
    Away(Waiting),
}

impl Waiting {
    /// Of several, the one whose answer is the least.
    fn is_next(&self) -> (bool, Option<Instant>) {
        (!self.manner.is_urgent, (!self.manner.is_urgent).then_some(self.due))
    }
}

impl Ready {
    pub fn push(&self, waiting: Waiting) {
        self.queue().push_back(waiting);
        self.came.notify_one();
    }

    /// Ends when there may be one.
    pub async fn came(&self) {
        self.came.notified().await;
    }

    /// Whether a request is among them.
    pub fn has(&self, request: u32) -> bool {
        self.queue().iter().any(|waiting| waiting.request == request)
    }

    /// A reader waits for it by now: that matters where the disk is to be waited for.
    pub fn urge(&self, request: u32) {
        let mut queue = self.queue();
        let waiting = queue.iter_mut().find(|waiting| waiting.request == request);
        if let Some(waiting) = waiting {
            waiting.manner.is_urgent = true;
        }
    }

    pub fn cancel(&self, request: u32) {
        self.queue().retain(|waiting| waiting.request != request);
    }

    /// The next block, whose header and checksums, and the end of its answer if it is the last, are written into `head`
    /// and `tail`.
    pub fn next(&self, now: Instant, head: &mut Vec<u8>, tail: &mut Vec<u8>) -> Option<Next> {
        let mut queue = self.queue();
        let first = queue.iter().enumerate().min_by_key(|(_, waiting)| waiting.is_next())?.0;
        let mut waiting = queue.remove(first)?;
        let address = Address { object: waiting.run.object.clone(), index: waiting.run.blocks.start };
        if !waiting.file.is_at_hand(&address) {
            return Some(Next::Away(waiting));
        }
        let (length, sums) = (address.len(), waiting.file.sums(&address));
        let header = Header {
            word: Word::Block,
            length: (8 * sums.len() + length) as u32,
            request: waiting.request,
            block: address.index,
        };
        head.reserve(HEADER + 8 * sums.len());
        head.extend(header.encode());
        sums.iter().for_each(|sum| head.extend(sum.to_le_bytes()));
        let (file, at) = (waiting.file.clone(), waiting.file.place(&address));
        waiting.run.blocks.start += 1;
        if waiting.manner.due_ms.is_none() {
            waiting.due = now;
        }
        match waiting.run.blocks.is_empty() {
            true => tail.extend(wire::end(waiting.request)),
            false => queue.push_back(waiting),
        }
        Some(Next::Part(Part { file, at, length }))
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
