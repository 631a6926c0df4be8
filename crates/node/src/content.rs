//! Open files: complete on the local disk, on their way, lying in a local folder, or empty.
//!
//! Invariant: an open file is one version; what it gives is verified on the way, except where the kernel reads
//! the local file itself.

use crate::namespace::{Content, Reading};
use crate::stack::Stack;
use block::{Door, Error, Object, Result};
use bytes::Bytes;
use cache::disk::Whole;
use cache::readahead::Readahead;
use peer::Reading as Open;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A file without bytes.
pub struct Empty;

impl Content for Empty {
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read(&self, _offset: u64, _length: u32) -> Reading {
        Reading::Ready(Ok(Vec::new()))
    }
}

/// A complete file of the disk tier.
pub struct Kept {
    pub whole: Arc<Whole>,
    /// What to read if the file turns out to be damaged.
    pub otherwise: Arc<Streamed>,
    /// Turns of reads that take memory of their own.
    pub turns: Arc<Semaphore>,
}

/// An answer that lies in memory of its own, and the turn that it takes for as long as it does.
struct Answer(Bytes, #[allow(dead_code, reason = "it ends with the answer")] OwnedSemaphorePermit);

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Reads of a complete file up to this length are answered at once: from the page cache that takes less time
/// than handing them to another thread, and from a disk one of several threads waits a moment.
const AT_ONCE_BYTES: u32 = 256 << 10;

impl Kept {
    fn on_disk(&self, offset: u64, length: u32) -> Result<Bytes> {
        let _wait = self.otherwise.stack.wait_for_disk();
        self.whole.read(offset, length)
    }
}

impl Content for Kept {
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        self.whole.descriptor()
    }

    /// Only without passthrough.
    fn read(&self, offset: u64, length: u32) -> Reading {
        let length = u64::from(length).min(self.otherwise.object.size.saturating_sub(offset)) as u32;
        if length == 0 {
            return Reading::Ready(Ok(Vec::new()));
        }
        let whole = self.whole.clone();
        if length <= AT_ONCE_BYTES
            && let Ok(bytes) = self.on_disk(offset, length)
        {
            self.otherwise.stack.read_from_disk(bytes.len());
            return Reading::Ready(Ok(vec![bytes]));
        }
        let (otherwise, turns) = (self.otherwise.clone(), self.turns.clone());
        Reading::Waiting(Box::pin(async move {
            let (runtime, stack) = (otherwise.runtime.clone(), otherwise.stack.clone());
            let read = {
                let _wait = stack.wait_for_disk();
                let turn = turn_of(turns).await;
                waiting(&runtime, turn, move || whole.read(offset, length)).await
            };
            match read {
                Ok(bytes) => {
                    stack.read_from_disk(bytes.len());
                    Ok(vec![bytes])
                }
                Err(_) => otherwise.stack.read(&otherwise.object, offset, u64::from(length), otherwise.via).await,
            }
        }))
    }
}

/// A file that is not complete here: served block by block as it comes.
pub struct Streamed {
    pub object: Arc<Object>,
    pub stack: Stack,
    pub readahead: Mutex<Readahead>,
    pub via: Door,
    pub runtime: tokio::runtime::Handle,
    /// Other members are told that it is open, for as long as it is.
    #[allow(dead_code, reason = "it ends with the content")]
    pub open: Option<Open>,
}

impl Content for Streamed {
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read(&self, offset: u64, length: u32) -> Reading {
        let length = u64::from(length).min(self.object.size.saturating_sub(offset));
        if length == 0 {
            return Reading::Ready(Ok(Vec::new()));
        }
        let at_hand = self.stack.at_hand(&self.object, offset, length);
        self.stack.follow(&self.object, &self.readahead, offset, length, self.via);
        if let Some(pieces) = at_hand {
            return Reading::Ready(Ok(pieces));
        }
        let (stack, object, via) = (self.stack.clone(), self.object.clone(), self.via);
        Reading::Waiting(Box::pin(async move { stack.read(&object, offset, length, via).await }))
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        let ahead = self.readahead.get_mut().unwrap_or_else(PoisonError::into_inner).ahead();
        if !ahead.is_empty() {
            self.stack.abandon(&self.object, ahead);
        }
    }
}

/// A file of a local folder, read where it lies. Its version was compared when it was opened; without
/// passthrough it is compared again after each read.
pub struct Local {
    pub object: Arc<Object>,
    pub file: Arc<File>,
    pub folder: Arc<store::Folder>,
    pub runtime: tokio::runtime::Handle,
    pub turns: Arc<Semaphore>,
}

impl Content for Local {
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn lasts(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, length: u32) -> Reading {
        let length = u64::from(length).min(self.object.size.saturating_sub(offset));
        let (object, file, folder) = (self.object.clone(), self.file.clone(), self.folder.clone());
        let (runtime, turns) = (self.runtime.clone(), self.turns.clone());
        let work = move || -> Result<Bytes> {
            let mut bytes = vec![0; length as usize];
            let read = file.read_exact_at(&mut bytes, offset);
            read.map_err(|_| Error::changed("the file became shorter while it was read", &*object))?;
            folder.open(&object).map(|_| bytes.into())
        };
        let of_disk = self.folder.clone();
        Reading::Waiting(Box::pin(async move {
            let turn = turn_of(turns).await;
            // Its file system's turn last: nobody who waits for memory keeps others from it.
            let on_disk = of_disk.turn().await;
            let counted = move || {
                let _turn = on_disk;
                work()
            };
            waiting(&runtime, turn, counted).await.map(|bytes| vec![bytes])
        }))
    }
}

/// A turn of reads that take memory of their own.
async fn turn_of(turns: Arc<Semaphore>) -> OwnedSemaphorePermit {
    turns.acquire_owned().await.expect("it is never closed")
}

/// Read something that may wait for a disk, off the threads that must not, in a turn. That is over when what was read is let
/// go of; none is held while a store is asked.
async fn waiting(
    runtime: &tokio::runtime::Handle,
    turn: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<Bytes> + Send + 'static,
) -> Result<Bytes> {
    let counted = move || work().map(|bytes| Bytes::from_owner(Answer(bytes, turn)));
    let stopped = |_| Error::unavailable("the node is stopping", "a read");
    runtime.spawn_blocking(counted).await.map_err(stopped)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn who_waits_for_memory_keeps_nobody_from_the_disk() {
        let place = tempfile::tempdir().expect("a folder");
        std::fs::write(place.path().join("f"), "bytes").expect("a file");
        let folder = Arc::new(store::Folder::at(place.path(), store::FolderSettings::default()).expect("a store"));
        let object = Object { store: "".into(), key: "f".into(), version: "".into(), size: 5 };
        let (object, turns) = (Arc::new(object), Arc::new(Semaphore::new(0)));
        let file = Arc::new(File::open(place.path().join("f")).expect("the file"));
        let local = Local { object, file, folder: folder.clone(), runtime: tokio::runtime::Handle::current(), turns };
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let Reading::Waiting(mut read) = local.read(0, 5) else { panic!("it may wait for a disk") };
            assert!((&mut read).now_or_never().is_none(), "there is no memory");
            waiting.push(read);
        }
        assert!(folder.turn().now_or_never().is_some());
    }
}
