//! What is told of the members, to all who listen.
//!
//! Invariant: a trouble leaves the members as they were, is said once, and shown for as long as it lasts.

use crate::{Roster, Seat};
use block::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// How long whoever told is given to hear that this node leaves.
const LEAVE: Duration = Duration::from_secs(1);

/// The members, and what becomes of them.
pub struct Told {
    pub roster: watch::Receiver<Arc<Roster>>,
    pub leave: Leave,
}

/// Ends the telling; so does its drop.
pub struct Leave {
    pub(super) end: oneshot::Sender<()>,
    pub(super) ended: JoinHandle<()>,
}

impl Leave {
    /// Say that this node leaves, where that is heard.
    pub async fn leave(self) {
        drop(self.end);
        if tokio::time::timeout(LEAVE, self.ended).await.is_err() {
            tracing::warn!("this node leaves the cluster without having said so");
        }
    }
}

/// Tells.
pub(super) struct Teller {
    me: u128,
    roster: watch::Sender<Arc<Roster>>,
}

impl Teller {
    pub(super) fn of(me: u128, seats: Vec<Seat>) -> Teller {
        Teller { me, roster: watch::channel(Arc::new(Roster::of(me, seats))).0 }
    }

    pub(super) fn listener(&self) -> watch::Receiver<Arc<Roster>> {
        self.roster.subscribe()
    }

    /// Nobody listens any more.
    pub(super) async fn closed(&self) {
        self.roster.closed().await;
    }

    /// These are the members now.
    pub(super) fn tell(&self, seats: Vec<Seat>) {
        let (known, roster) = (self.known(), Arc::new(Roster::of(self.me, seats)));
        if known != roster {
            let again = if known.trouble().is_some() { ", as is told again" } else { "" };
            tracing::info!("the cluster has {} members now{again}", roster.seats().len());
            self.roster.send_replace(roster);
        }
    }

    /// Nothing new is known of them at the moment.
    pub(super) fn fail(&self, error: &Error) {
        let (known, text) = (self.known(), error.to_string());
        if known.trouble() != Some(text.as_str()) {
            tracing::warn!("the members stay as they were: {text}");
            self.roster.send_replace(Arc::new(known.kept(text)));
        }
    }

    fn known(&self) -> Arc<Roster> {
        self.roster.borrow().clone()
    }
}
