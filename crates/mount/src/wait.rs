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
    node: u64,
    /// Missing for the moment between being entered and running.
    task: Option<AbortHandle>,
}

impl Waiter {
    fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Held by the task of a waiting request; dropped without being claimed, it answers EIO.
pub struct Ticket {
    waits: Arc<Waits>,
    unique: u64,
}

/// The right, and the duty, to answer one request; in a panic the answer is EIO.
pub struct Owed {
    pub device: Arc<Device>,
    pub unique: u64,
}

impl Waits {
    /// Run what `task` makes of the ticket; it may be interrupted until it claims it.
    pub fn spawn<F>(self: &Arc<Waits>, runtime: &Handle, node: u64, owed: Owed, task: impl FnOnce(Ticket) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (device, unique) = (owed.device.clone(), owed.unique);
        if !self.enter(device, node, unique) {
            let _: Result<(), Gone> = owed.device.fail(unique, Errno::INTR);
            return;
        }
        // Not under the lock: a runtime that shuts down drops the ticket at once, which takes the lock.
        let running = runtime.spawn(task(Ticket { waits: self.clone(), unique })).abort_handle();
        match self.table().waiters.get_mut(&unique) {
            Some(waiter) => waiter.task = Some(running),
            // Answered already. If that was an interrupt, nobody wants the content any more.
            None => running.abort(),
        }
    }

    /// False if the request was given up before it came here.
    fn enter(&self, device: Arc<Device>, node: u64, unique: u64) -> bool {
        let mut table = self.table();
        let early = table.early.iter().position(|&early| early == unique);
        match early {
            Some(place) => drop(table.early.remove(place)),
            None => drop(table.waiters.insert(unique, Waiter { device, node, task: None })),
        }
        early.is_none()
    }

    /// Give a request up: whoever does so owes it EINTR. `None` if it does not wait; should it be about
    /// to, it will not.
    pub fn interrupt(&self, unique: u64) -> Option<Owed> {
        let mut table = self.table();
        let Some(waiter) = table.waiters.remove(&unique) else {
            if table.early.len() == EARLY_MAX {
                table.early.pop_front();
            }
            table.early.push_back(unique);
            return None;
        };
        drop(table);
        waiter.abort();
        Some(Owed { device: waiter.device, unique })
    }

    /// Whether a request for this node waits.
    pub fn has_node(&self, node: u64) -> bool {
        self.table().waiters.values().any(|waiter| waiter.node == node)
    }

    /// The mount is gone: stop all work for it.
    pub fn abort(&self) {
        let waiters = std::mem::take(&mut self.table().waiters);
        waiters.values().for_each(Waiter::abort);
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

impl Drop for Owed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _: Result<(), Gone> = self.device.fail(self.unique, Errno::IO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn device() -> (Arc<Device>, PipeReader) {
        let (answers, device) = std::io::pipe().expect("two descriptors");
        (Arc::new(Device::from(rustix::fd::OwnedFd::from(device))), answers)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("two threads")
    }

    #[test]
    fn an_interrupt_that_comes_before_its_request_still_ends_it() {
        let (device, mut answers) = device();
        let (waits, runtime) = (Arc::new(Waits::default()), runtime());
        assert!(waits.interrupt(8).is_none());
        let task = |ticket: Ticket| async move { assert!(ticket.claim().is_none(), "it was given up") };
        waits.spawn(runtime.handle(), 2, Owed { device: device.clone(), unique: 8 }, task);
        drop((runtime, device));
        let mut answer = [0; 64];
        assert_eq!(answers.read(&mut answer).expect("an answer"), 16);
        assert_eq!(answer[4..8], (-4_i32).to_ne_bytes());
    }

    #[test]
    fn requests_and_interrupts_that_race_end_in_one_answer_each() {
        const REQUESTS: u64 = 2000;
        let (device, mut answers) = device();
        let (waits, runtime) = (Arc::new(Waits::default()), runtime());
        let counted = std::thread::spawn(move || {
            let mut answer = [0; 16];
            std::iter::from_fn(|| answers.read_exact(&mut answer).ok()).count()
        });
        let interrupted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for unique in 0..REQUESTS {
                    if let Some(owed) = waits.interrupt(unique) {
                        interrupted.fetch_add(1, Ordering::Relaxed);
                        assert!(owed.device.fail(unique, Errno::INTR).is_ok());
                    }
                }
            });
            for unique in 0..REQUESTS {
                waits.spawn(runtime.handle(), 2, Owed { device: device.clone(), unique }, |ticket| async move {
                    tokio::task::yield_now().await;
                    if let Some(owed) = ticket.claim() {
                        assert!(owed.device.fail(owed.unique, Errno::IO).is_ok());
                    }
                });
            }
        });
        // Stopping the runtime answers whatever is left.
        drop((runtime, waits, device));
        assert_eq!(counted.join().expect("no panic") as u64, REQUESTS);
    }
}
