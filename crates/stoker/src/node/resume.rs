//! A node goes on with what another left, and has somebody hold what is to outlive itself.
//!
//! Invariant: a mount that can't be gone on with is tried by [`keep::FAILURES_MAX`] processes before it is given up.

use crate::{keep, keeper, notify};
use block::Error;
use daemon::keeper::Named;
use daemon::{Host, Keeper, Life};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;

/// By this name the lock of the cache folder is held for the next process.
pub const LOCK: &str = "lock";

/// Held by systemd, which doesn't say how often it started a service, for each process that could not go on: `failed.1`.
const FAILED: &str = "failed";

/// The exit code of a node that another is to go on for: no success, so that systemd starts that one.
const MAKES_WAY: i32 = 75;

/// By which names a mount is held that could not be gone on with, and why.
type Failed = (Vec<String>, Error);

/// A node on its way to go on with all that was left.
pub struct GoingOn {
    keeper: Arc<Keeper>,
    resuming: Pin<Box<dyn Future<Output = Vec<Failed>> + Send>>,
    /// Processes that could not, as systemd has them counted.
    failures: usize,
}

/// Go on with what was left, and have somebody hold what is to outlive this process; `None` where nobody does.
pub fn begin(host: &Arc<Host>, life: Life, lock: &File, mut left: Named) -> anyhow::Result<Option<GoingOn>> {
    let keeper = Arc::new(Keeper::default());
    let begun = match (life, notify::store()) {
        (Life::Mounts, _) => keeper::begin(&keeper, left.remove(keep::SOCKET)),
        (Life::Asked, Some(socket)) => Ok(keeper.begin(socket?, None)?),
        (Life::Asked, None) => return Ok(None),
    };
    if let Err(error) = begun {
        // Its mounts live no longer than it does, as the status says.
        keeper.lost(format!("nobody could be had to hold them: {error}"));
    }
    host.keep_by(keeper.clone());
    // For as long as this process lives, and then for the next one.
    std::mem::forget(keeper.hold(LOCK.into(), lock.as_fd())?);
    let failures = left.extract_if(.., |name, _| name.starts_with(FAILED)).count();
    let makes_way = host.clone();
    tokio::spawn(async move {
        makes_way.makes_way().await;
        tracing::info!("another process goes on");
        // Without the end of anything: what is mounted stays.
        std::process::exit(MAKES_WAY);
    });
    Ok(Some(GoingOn { resuming: Box::pin(host.resume(left)), keeper, failures }))
}

/// Wait until it goes on with everything, or has given up what no process could go on with.
pub async fn done(going_on: Option<GoingOn>, host: &Arc<Host>, life: Life) -> anyhow::Result<()> {
    let Some(GoingOn { keeper, resuming, failures }) = going_on else { return Ok(()) };
    for (names, error) in resuming.await {
        if error.what == ::mount::ENDED {
            tracing::info!("{error}");
        } else if std::env::var_os(keep::FIRST_TRY).is_some() {
            // Another program may be able to, or this one when it tries again.
            return Err(error.into());
        } else if life == Life::Asked && failures + 1 < keep::FAILURES_MAX {
            let counted = rustix::fs::memfd_create(FAILED, MemfdFlags::CLOEXEC)?;
            std::mem::forget(keeper.hold(format!("{FAILED}.{}", failures + 1), counted.as_fd())?);
            return Err(error.into());
        } else {
            tracing::error!("a mount could not go on, and is dead: {error}");
        }
        names.iter().for_each(|name| keeper.remove(name));
    }
    (1..=failures).for_each(|failure| keeper.remove(&format!("{FAILED}.{failure}")));
    if life == Life::Mounts {
        let _ = keeper.tell("READY=1");
    }
    tracing::debug!("{} mounts are there", host.mounts().len());
    Ok(())
}
