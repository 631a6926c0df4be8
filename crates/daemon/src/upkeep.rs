//! What is done, because somebody asked, to what this node keeps of a mount: it is read again, or let go of.
//!
//! Other members of a cluster are not asked. Invariants: nothing that is open is disturbed, for a file that is let go of is
//! unlinked; it ends with whoever asked for it, and with the mount.

use crate::Host;
use block::{Error, Result};
use client::messages::{Evicted, MountPath, Verified};
use node::View;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::runtime::Handle;

/// Damaged files that are named.
const NAMED: usize = 20;

/// Says that nobody waits any more, when it is dropped.
struct Wish(Arc<AtomicBool>);

impl Drop for Wish {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Read what is kept of a file or a folder again, and drop what is damaged.
pub async fn verify(host: &Arc<Host>, place: &MountPath) -> Result<Verified> {
    let runtime = Handle::current();
    each(host, place, move |view, path, is_over| {
        let (mut done, mut failed) = (Verified::default(), Ok(()));
        let stack = view.node().stack().clone();
        view.each_kept(path, |path, object, held| {
            match runtime.block_on(stack.compare(object, &(0..object.blocks()))) {
                Ok(true) => {}
                Ok(false) => {
                    done.damaged += 1;
                    if done.names.len() < NAMED {
                        done.names.push(String::from_utf8_lossy(path).into_owned());
                    }
                }
                Err(error) => failed = Err(error),
            }
            (done.files, done.bytes) = (done.files + 1, done.bytes + held);
            failed.is_ok() && !is_over()
        })?;
        failed.map(|()| done)
    })
    .await
}

/// Let go of what is kept of a file or a folder: room, and no word on whether it is right.
pub async fn evict(host: &Arc<Host>, place: &MountPath) -> Result<Evicted> {
    each(host, place, |view, path, is_over| {
        let mut done = Evicted::default();
        let stack = view.node().stack().clone();
        view.each_kept(path, |_, object, held| {
            stack.evict(object);
            (done.files, done.bytes) = (done.files + 1, done.bytes + held);
            !is_over()
        })?;
        Ok(done)
    })
    .await
}

/// Work on a file or a folder of a mount, on a thread that may wait for a disk.
async fn each<T: Send + 'static>(
    host: &Arc<Host>,
    place: &MountPath,
    work: impl FnOnce(&Arc<View>, &[u8], &dyn Fn() -> bool) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (mounted, rest) = host.find(place).await?;
    if mounted.view.is_local() {
        let error = Error::invalid("the data set lies on a local file system, and none of it is kept", &place.path);
        return Err(error.hint("name a path in the mount of a store: `stoker status` shows what is mounted"));
    }
    let over = Arc::new(AtomicBool::new(false));
    let _wish = Wish(over.clone());
    let view = mounted.view.clone();
    let working = tokio::task::spawn_blocking(move || work(&view, rest.as_os_str().as_bytes(), &|| over.load(Relaxed)));
    tokio::select! {
        done = working => done.map_err(|error| Error::unavailable(format!("the command was given up: {error}"), &place.path))?,
        () = mounted.ended() => Err(Error::unavailable("the mount ended in the middle of it", &place.path)),
    }
}
