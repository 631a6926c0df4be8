//! The data socket of a node: programs that can mount nothing, or need not, are lent descriptors of complete files, and
//! get the bytes of others, a batch at a time.
//!
//! Layout:
//! - [`Desk`]: what is lent, and the data sets that are open for it.
//! - `set`: which data set a connection means, and whether it may.
//! - `line`: one connection. `lend`: one batch. `frame`: what is said, as bytes.
//!
//! Invariant: what is lent through a connection is counted until the next question on it, or its end; and nobody gets a
//! byte that the mode of the mount would not let them read.

mod frame;
mod lend;
mod line;
mod set;

use crate::Host;
use crate::control::{self, Bound};
use block::{Error, Result};
use client::messages;
pub(crate) use set::Shown;

use set::Opened;
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Connections of this user at a time: eight processes of each of a hundred jobs.
const CONNECTIONS_MAX: usize = 1024;

/// Those of others, who can keep only each other out.
const CONNECTIONS_OF_OTHERS_MAX: usize = 256;

/// Batches that look for files on the disk at a time, each on a thread.
const BATCHES_ON_DISK_MAX: usize = 32;

/// Loads of other users than the node's at a time: each looks at all names, and remembers those that it is to fetch.
const LOADS_OF_OTHERS_MAX: usize = 8;

/// Bytes of files lent as descriptors stay within one part in so many of the cache's capacity: a file that gives way
/// meanwhile takes its room until it is closed. What is beyond is copied.
const LENT_SHARE: u64 = 4;

/// Memory that is lent stays within one part in so many of the node's.
const LENT_MEMORY_SHARE: u64 = 16;

/// After the system refused to give us a connection.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Data sets by what was asked for; whoever opens one holds its lock.
type Places = HashMap<Vec<u8>, Arc<tokio::sync::Mutex<Weak<Opened>>>>;

/// What is lent, and the data sets that are open for it.
pub struct Desk {
    connections: Semaphore,
    others: Semaphore,
    disk: Arc<Semaphore>,
    loads_of_others: Semaphore,
    /// For long questions of the node's user. Those of others are short, and keep nobody waiting.
    room: frame::Room,
    /// By what was asked for, so that programs which ask the same share one.
    sets: Mutex<Places>,
    files_lent: AtomicU64,
    files_copied: AtomicU64,
    bytes_copied: AtomicU64,
    lent_files: Arc<AtomicU64>,
    lent_bytes: Arc<AtomicU64>,
    lent_memory: Arc<AtomicU64>,
}

impl Default for Desk {
    fn default() -> Desk {
        Desk {
            connections: Semaphore::new(CONNECTIONS_MAX),
            others: Semaphore::new(CONNECTIONS_OF_OTHERS_MAX),
            disk: Arc::new(Semaphore::new(BATCHES_ON_DISK_MAX)),
            loads_of_others: Semaphore::new(LOADS_OF_OTHERS_MAX),
            room: frame::Room::default(),
            sets: Mutex::default(),
            files_lent: AtomicU64::new(0),
            files_copied: AtomicU64::new(0),
            bytes_copied: AtomicU64::new(0),
            lent_files: Arc::default(),
            lent_bytes: Arc::default(),
            lent_memory: Arc::default(),
        }
    }
}

/// Counted for as long as it lives.
struct Counted(Arc<AtomicU64>, u64);

impl Counted {
    /// Nothing where the sum would be more than `most`.
    fn within(sum: &Arc<AtomicU64>, more: u64, most: u64) -> Option<Counted> {
        let fits = |now: u64| now.checked_add(more).filter(|sum| *sum <= most);
        sum.fetch_update(Relaxed, Relaxed, fits).ok().map(|_| Counted(sum.clone(), more))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}

impl Desk {
    fn room(&self, is_ours: bool) -> Option<&frame::Room> {
        is_ours.then_some(&self.room)
    }

    /// What it did and does, for people to look at.
    pub fn figures(&self) -> messages::Lending {
        let free = self.connections.available_permits() + self.others.available_permits();
        messages::Lending {
            connections: (CONNECTIONS_MAX + CONNECTIONS_OF_OTHERS_MAX - free) as u64,
            files_lent: self.files_lent.load(Relaxed),
            files_copied: self.files_copied.load(Relaxed),
            bytes_copied: self.bytes_copied.load(Relaxed),
            lent_files: self.lent_files.load(Relaxed),
            lent_bytes: self.lent_bytes.load(Relaxed),
            lent_memory: self.lent_memory.load(Relaxed),
        }
    }

    /// Data sets that are open without a mount.
    pub fn opened(&self) -> Vec<messages::Opened> {
        let places: Vec<_> = self.sets().values().cloned().collect();
        let open = places.iter().filter_map(|place| place.try_lock().ok()?.upgrade());
        open.map(|opened| opened.status()).collect()
    }

    fn sets(&self) -> std::sync::MutexGuard<'_, Places> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listen beside the control socket. Whoever gets at the socket may connect; what they may read is looked at then.
pub fn bind(control: &Path) -> Result<(UnixListener, Bound)> {
    let path = client::sockets::of_data(control);
    let bound = control::bind(&path)?;
    let opened = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666));
    opened.map_err(|error| Error::io("cannot open the data socket to others", path.display(), &error))?;
    Ok(bound)
}

/// Answer for as long as the runtime lives.
pub fn listen(host: &Arc<Host>, listener: UnixListener) {
    let host = host.clone();
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(admit(host.clone(), stream))),
                Err(error) => {
                    tracing::warn!("a program could not be heard: {error}");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                }
            }
        }
    });
}

/// Serve a connection, if there is room for one more of its user's.
async fn admit(host: Arc<Host>, mut stream: UnixStream) {
    let Ok(peer) = stream.peer_cred() else { return };
    let is_ours = set::is_ours(&peer);
    let desk = host.desk.clone();
    let room = if is_ours { &desk.connections } else { &desk.others };
    let Ok(_place) = room.try_acquire() else {
        let error = Error::unavailable("too many programs are connected to the node", "the data socket");
        let _ = frame::say(&mut stream, &line::refusal(&error.hint("let some end first")), &[]).await;
        return;
    };
    if let Err(error) = line::serve(&host, stream, (peer, is_ours)).await {
        tracing::debug!("a program was let go: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_counts_until_it_is_given_back_and_never_more_than_the_most() {
        let sum = Arc::new(AtomicU64::new(0));
        let first = Counted::within(&sum, 60, 100);
        assert!(first.is_some() && Counted::within(&sum, 41, 100).is_none());
        assert!(Counted::within(&sum, u64::MAX, u64::MAX).is_none(), "no sum is more than all");
        let second = Counted::within(&sum, 40, 100);
        assert!(second.is_some());
        drop(first);
        assert_eq!(sum.load(Relaxed), 40);
    }
}
