//! The tier of the cluster: what this node owns comes from its own tiers, what others own through them, and what this node
//! owns and has no room for from who keeps it in its stead. Who stands in for an owner that is away is one.
//!
//! Invariant: each run that goes further down lies within one stripe.

use crate::{For, Owners, Room};
use block::{Address, Blocks, Checksum, Door, Object, Run, Source, Stripe, Waiting, stripe_end};
use futures_util::StreamExt;
use std::sync::Arc;

/// Which way each stripe goes.
#[derive(Clone)]
pub struct Peers(Arc<Parts>);

struct Parts {
    others: Arc<dyn Source>,
    owners: Owners,
}

impl Peers {
    /// `others` keeps copies of what `owners` give.
    pub fn over(others: Arc<dyn Source>, owners: Owners) -> Peers {
        Peers(Arc::new(Parts { others, owners }))
    }

    fn own(&self) -> &Arc<dyn Source> {
        &self.0.owners.own().inner
    }

    /// A run within one stripe.
    fn stripe(&self, run: Run) -> Blocks {
        let (owners, own) = (&self.0.owners, self.own());
        let roster = owners.lines().roster();
        if run.is_own {
            return own.fetch(run);
        }
        let address = Address { object: run.object.clone(), index: run.blocks.start };
        match owners.lines().first(&Stripe::of(&address)) {
            Some(first) if first != roster.me() => self.0.others.fetch(run),
            Some(_) => match (owners.own().room)(&address, For::Reader) {
                room if room.takes(|| owners.lines().is_kept(&address, None)) => {
                    owners.lines().stands_in(&Stripe::of(&address));
                    own.fetch(run)
                }
                room => owners.spilled(run, room == Room::Wanted),
            },
            None => own.fetch(run),
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
        self.own().checksum(object, via)
    }

    fn holds(&self, address: &Address, may_wait: bool) -> bool {
        self.own().holds(address, may_wait)
    }

    fn forget(&self, object: &Object) {
        self.own().forget(object);
        self.0.others.forget(object);
    }
}
