//! Content kept open by node, for mounts on which the kernel never opens: without it each read would
//! open the file again.
//!
//! Invariant: at most [`OPEN_MAX`] are held; the one unused longest gives way.

use node::namespace::Content;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files held open: each may hold a descriptor, of which a process commonly has 1024 or more, and a
/// reader that comes back to a file within so many others finds it.
const OPEN_MAX: usize = 512;

/// Several times the threads of a session; small enough shards that the oldest is found by looking at all.
const SHARDS: usize = 16;

/// Open content, by node.
#[derive(Default)]
pub struct Contents {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    open: HashMap<u64, Entry>,
    uses: u64,
}

struct Entry {
    content: Arc<dyn Content>,
    /// The shard's count of uses when it was used last.
    used: u64,
}

impl Contents {
    pub fn get(&self, node: u64) -> Option<Arc<dyn Content>> {
        let mut shard = self.shard(node);
        shard.uses += 1;
        let uses = shard.uses;
        let entry = shard.open.get_mut(&node)?;
        entry.used = uses;
        Some(entry.content.clone())
    }

    pub fn keep(&self, node: u64, content: Arc<dyn Content>) {
        let mut shard = self.shard(node);
        let oldest = shard.open.iter().min_by_key(|(_, entry)| entry.used).map(|(&node, _)| node);
        let evicted = match oldest {
            Some(oldest) if shard.open.len() >= OPEN_MAX / SHARDS => shard.open.remove(&oldest),
            _ => None,
        };
        let used = shard.uses;
        let replaced = shard.open.insert(node, Entry { content, used });
        // Closing may take time: not under the lock.
        drop(shard);
        drop((evicted, replaced));
    }

    pub fn forget(&self, node: u64) {
        let forgotten = self.shard(node).open.remove(&node);
        drop(forgotten);
    }

    fn shard(&self, node: u64) -> MutexGuard<'_, Shard> {
        self.shards[node as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::namespace::Reading;
    use rustix::fd::BorrowedFd;

    struct Nothing;

    impl Content for Nothing {
        fn backing(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn read(&self, _: u64, _: u32) -> Reading {
            Reading::Ready(Ok(Vec::new()))
        }
    }

    #[test]
    fn the_content_unused_longest_gives_way() {
        let contents = Contents::default();
        let same_shard = |index: usize| (index * SHARDS) as u64;
        for index in 0..OPEN_MAX / SHARDS {
            contents.keep(same_shard(index), Arc::new(Nothing));
            assert!(contents.get(same_shard(0)).is_some());
        }
        contents.keep(same_shard(1000), Arc::new(Nothing));
        assert!(contents.get(same_shard(0)).is_some());
        assert!(contents.get(same_shard(1)).is_none());
        contents.forget(same_shard(1000));
        assert!(contents.get(same_shard(1000)).is_none());
    }
}
