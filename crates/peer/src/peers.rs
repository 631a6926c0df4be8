//! The tier of the cluster: what this node owns comes from its own tiers, and what others own through them.
//!
//! Invariant: each run that goes further down lies within one stripe.

use crate::Roster;
use block::{Address, Blocks, Checksum, Door, Object, Run, Source, Stripe, Waiting, stripe_end};
use futures_util::StreamExt;
use std::sync::Arc;
use tokio::sync::watch;

/// Which way each stripe goes.
#[derive(Clone)]
pub struct Peers(Arc<Parts>);

struct Parts {
    own: Arc<dyn Source>,
    others: Arc<dyn Source>,
    roster: watch::Receiver<Arc<Roster>>,
}

impl Peers {
    /// `own` is what this node has and fetches itself, `others` asks those who own the rest.
    pub fn over(own: Arc<dyn Source>, others: Arc<dyn Source>, roster: watch::Receiver<Arc<Roster>>) -> Peers {
        Peers(Arc::new(Parts { own, others, roster }))
    }

    /// Who answers for a block.
    fn way(&self, object: &Arc<Object>, index: u32) -> &Arc<dyn Source> {
        let roster = self.0.roster.borrow();
        let owner = roster.owner(&Stripe::of(&Address { object: object.clone(), index }));
        if owner.is_none_or(|owner| owner == roster.me()) { &self.0.own } else { &self.0.others }
    }
}

impl Source for Peers {
    fn fetch(&self, run: Run) -> Blocks {
        let cut = stripe_end(run.blocks.start);
        if run.blocks.end <= cut {
            return self.way(&run.object, run.blocks.start).fetch(run);
        }
        // No run is longer than a stripe.
        let parts = [run.part(run.blocks.start..cut), run.part(cut..run.blocks.end)];
        let peers = self.clone();
        let each = move |part: Run| peers.way(&part.object, part.blocks.start).fetch(part);
        let blocks = futures_util::stream::iter(parts).flat_map(each);
        // Nothing after the first error.
        let until_failed = blocks.scan(false, |failed, got| {
            let is_over = std::mem::replace(failed, got.is_err());
            std::future::ready((!is_over).then_some(got))
        });
        until_failed.boxed()
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
