//! Who holds a mount: a command in the foreground, for as long as it is connected. While it can't be, because its node is gone or it
//! was stopped itself, its process stands for it.
//!
//! Invariant: a mount that somebody held ends with that process, whatever becomes of the node meanwhile.

use crate::{Host, Mounted};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

/// Who held a mount of a process that is gone asks the next one for it within this time, where its process is not known: in a container
/// it may have no number here.
const HELD_WITHIN: Duration = Duration::from_secs(20);

/// The process of a command, and no other that gets its number later.
pub(crate) struct Holder(OwnedFd);

impl Holder {
    /// Who is connected.
    pub fn at(stream: &UnixStream) -> Option<Holder> {
        let pid = stream.peer_cred().ok()?.pid().and_then(Pid::from_raw)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Holder)
    }

    /// What the process before this one had of it.
    pub fn left(process: OwnedFd) -> Holder {
        Holder(process)
    }

    /// Wait for its end.
    async fn ended(&self) {
        // SAFETY: the descriptor is ours, and open for as long as it is waited for.
        match unsafe { AsyncFd::register_with_interest(self.as_fd(), Interest::READABLE) } {
            Ok(process) => drop(process.readable().await),
            Err(_) => tokio::time::sleep(HELD_WITHIN).await,
        }
    }
}

impl AsFd for Holder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Who held a mount in another process holds it again soon after it can be heard, or when it goes on if it was stopped, or is gone as
/// well.
pub(crate) async fn end_unless_held(host: Arc<Host>, mounted: Arc<Mounted>, holder: Option<Holder>) {
    let _ = host.hears.subscribe().wait_for(|hears| *hears).await;
    drop(host);
    let gone = async {
        match &holder {
            Some(holder) => holder.ended().await,
            None => tokio::time::sleep(HELD_WITHIN).await,
        }
    };
    tokio::select! {
        () = mounted.held() => return,
        () = mounted.ended() => return,
        () = gone => {}
    }
    tracing::warn!("nobody holds the mount any more, so it ends: {}", mounted.path.display());
    give_up(mounted).await;
}

/// End a mount whose command is gone.
pub(crate) async fn give_up(mounted: Arc<Mounted>) {
    let leaving = mounted.clone();
    let left = tokio::task::spawn_blocking(move || {
        let left = leaving.leave();
        let is_abandoned = left.is_err() || leaving.is_left_in_use();
        if is_abandoned {
            leaving.abandon();
        }
        left.map(|_| is_abandoned)
    });
    match left.await {
        Ok(Err(error)) => tracing::error!("{error}"),
        // What is bound of it or in another mount namespace is served for as long as that is there.
        Ok(Ok(false)) => _ = mounted.ended_here().await,
        _ => {}
    }
}
