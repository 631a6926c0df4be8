//! The tier of the cluster: what this node owns comes from its own tiers, what others own through them, and what this node
//! owns and has no room for from who keeps it in its stead.
//!
//! Invariant: each run that goes further down lies within one stripe.

use crate::{Lines, Owners, Room};
use block::{Address, Blocks, Checksum, Door, Object, Run, Source, Stripe, Waiting, stripe_end};
use futures_util::StreamExt;
use std::sync::Arc;

/// Which way each stripe goes.
#[derive(Clone)]
pub struct Peers(Arc<Parts>);

struct Parts {
    own: Arc<dyn Source>,
    others: Arc<dyn Source>,
    owners: Owners,
    lines: Lines,
    room: Box<dyn Fn(&Address) -> Room + Send + Sync>,
}

impl Peers {
    /// `own` is what this node has and fetches itself, `others` keeps copies of what `owners` give, and `room` tells whether
    /// this node has room for a block.
    pub fn over(
        own: Arc<dyn Source>,
        others: Arc<dyn Source>,
        (owners, lines): (Owners, Lines),
        room: impl Fn(&Address) -> Room + Send + Sync + 'static,
    ) -> Peers {
        Peers(Arc::new(Parts { own, others, owners, lines, room: Box::new(room) }))
    }

    /// A run within one stripe.
    fn stripe(&self, run: Run) -> Blocks {
        let (roster, parts) = (self.0.lines.roster(), &self.0);
        if run.is_own {
            return parts.own.fetch(run);
        }
        let address = Address { object: run.object.clone(), index: run.blocks.start };
        match roster.owner(&Stripe::of(&address)) {
            Some(owner) if owner != roster.me() => parts.others.fetch(run),
            Some(_) => match (parts.room)(&address) {
                Room::Here | Room::Free => parts.own.fetch(run),
                room => parts.owners.spilled(run, room == Room::Wanted),
            },
            None => parts.own.fetch(run),
        }
    }
}

impl Source for Peers {
    fn fetch(&self, run: Run) -> Blocks {
        let cut = stripe_end(run.blocks.start);
        if run.blocks.end <= cut {
            return self.stripe(run);
        }
        // No run is longer than a stripe.
        let parts = [run.part(run.blocks.start..cut), run.part(cut..run.blocks.end)];
        let peers = self.clone();
        let blocks = futures_util::stream::iter(parts).flat_map(move |part| peers.stripe(part));
        block::until_failed(blocks)
    }

    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>> {
        self.0.own.checksum(object, via)
    }

    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        self.0.own.holds(address, may_wait)
    }

    fn forget(&self, object: &Object) {
        self.0.own.forget(object);
        self.0.others.forget(object);
    }
}
