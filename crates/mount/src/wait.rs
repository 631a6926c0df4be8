//! Requests whose answer takes time, so that an interrupt can end them.
//!
//! Invariant: exactly one answer a request. Whoever takes a request out of the table owes it: the task
//! that got its content, or the interrupt that gave it up.

use crate::device::{Device, Gone};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// All requests that wait. The kernel bounds their number: one a thread that reads, and the readahead
/// that INIT allowed.
#[derive(Default)]
pub struct Waits {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    waiters: HashMap<u64, Waiter>,
    /// Interrupts that found nothing to end: most came too late, some before their request was entered.
    early: VecDeque<u64>,
}

/// Far more than the threads of a session, each of which may hold one request that is not entered yet.
/// Numbers are never used again, so one that stays here does no harm.
const EARLY_MAX: usize = 64;

struct Waiter {
    device: Arc<Device>,
    task: AbortHandle,
}

/// Held by the task of a waiting request; dropped without being claimed, it answers EIO.
pub struct Ticket {
    waits: Arc<Waits>,
    unique: u64,
}

/// The right, and the duty, to answer one request.
pub struct Owed {
    pub device: Arc<Device>,
    pub unique: u64,
}

impl Waits {
    /// Run what `task` makes of the ticket; it may be interrupted until it claims it.
    pub fn spawn<F>(self: &Arc<Waits>, runtime: &Handle, owed: Owed, task: impl FnOnce(Ticket) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Owed { device, unique } = owed;
        let future = task(Ticket { waits: self.clone(), unique });
        // Spawned under the lock: the task can't claim before it is in the table.
        let mut table = self.table();
        if let Some(place) = table.early.iter().position(|&early| early == unique) {
            table.early.remove(place);
            drop(table);
            let _: Result<(), Gone> = device.fail(unique, Errno::INTR);
            return;
        }
        let task = runtime.spawn(future).abort_handle();
        table.waiters.insert(unique, Waiter { device, task });
    }

    /// Give a request up: its answer is EINTR. False if it does not wait; should it be about to, it
    /// will not.
    pub fn interrupt(&self, unique: u64) -> bool {
        let mut table = self.table();
        let Some(waiter) = table.waiters.remove(&unique) else {
            if table.early.len() == EARLY_MAX {
                table.early.pop_front();
            }
            table.early.push_back(unique);
            return false;
        };
        drop(table);
        waiter.task.abort();
        let _: Result<(), Gone> = waiter.device.fail(unique, Errno::INTR);
        true
    }

    /// The mount is gone: stop all work for it.
    pub fn abort(&self) {
        let waiters = std::mem::take(&mut self.table().waiters);
        for waiter in waiters.into_values() {
            waiter.task.abort();
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// `None` if an interrupt was faster: then the request is answered already.
    pub fn claim(self) -> Option<Owed> {
        self.take()
    }

    fn take(&self) -> Option<Owed> {
        let waiter = self.waits.table().waiters.remove(&self.unique)?;
        Some(Owed { device: waiter.device, unique: self.unique })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A task that panicked, or a runtime that shuts down: the reader must not hang for ever.
        if let Some(owed) = self.take() {
            let _: Result<(), Gone> = owed.device.fail(owed.unique, Errno::IO);
        }
    }
}
