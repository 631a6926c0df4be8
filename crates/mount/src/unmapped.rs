//! Nodes whose pages the kernel is to forget, because what they were read from is gone or was wrong.
//!
//! The kernel forgets a page only once nobody reads it any more, and whoever tells it waits so long: also the end
//! of the mount would, and of the process. So a node is named while no read of it waits for its answer here, from a
//! thread of its own, and whoever says that its bytes were wrong goes on at once.
//!
//! Invariant: each node waits once, so there are never more than the data set has files; none is left at the end of
//! the mount.

use crate::abi::Reply;
use crate::device::Device;
use crate::wait::Waits;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;

/// When to look again whether a read has been answered: a small part of what it waits for.
const AGAIN: Duration = Duration::from_millis(20);

/// Nodes of one mount.
pub struct Unmapped {
    device: Arc<Device>,
    waits: Arc<Waits>,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    waiting: BTreeSet<u64>,
    /// Somebody tells the kernel.
    is_telling: bool,
    over: bool,
}

impl Unmapped {
    pub fn new(device: Arc<Device>, waits: Arc<Waits>) -> Arc<Unmapped> {
        Arc::new(Unmapped { device, waits, nodes: Mutex::default() })
    }

    /// Have the kernel forget the pages of a node, soon.
    pub fn add(self: &Arc<Unmapped>, node: u64, runtime: &Handle) {
        let mut nodes = self.nodes();
        if nodes.over {
            return;
        }
        nodes.waiting.insert(node);
        if !std::mem::replace(&mut nodes.is_telling, true) {
            runtime.spawn(self.clone().tell(runtime.clone()));
        }
    }

    /// The mount has ended, and its pages with it.
    pub fn end(&self) {
        let mut nodes = self.nodes();
        nodes.over = true;
        nodes.waiting.clear();
    }

    async fn tell(self: Arc<Unmapped>, runtime: Handle) {
        while let Some(nodes) = self.idle() {
            if nodes.is_empty() {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let device = self.device.clone();
            let work = move || {
                for node in nodes {
                    // Most are not known to the kernel at all, which is as good.
                    let _ = device.write(Reply::invalidate_node(node).seal());
                }
            };
            if runtime.spawn_blocking(work).await.is_err() {
                return;
            }
        }
    }

    /// Take those that nobody waits to read now. `None` if none is left at all.
    fn idle(&self) -> Option<Vec<u64>> {
        let mut nodes = self.nodes();
        let idle: Vec<u64> = nodes.waiting.iter().copied().filter(|&node| !self.waits.has_node(node)).collect();
        nodes.waiting.retain(|node| idle.binary_search(node).is_err());
        nodes.is_telling = !idle.is_empty() || !nodes.waiting.is_empty();
        nodes.is_telling.then_some(idle)
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
