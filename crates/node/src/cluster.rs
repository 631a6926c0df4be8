//! This node as a member of a cluster: what it gives to others.
//!
//! Invariant: others are given what their principal may read, by the same principal here: an object's store names it.

use crate::stack::Stack;
use block::{Blocks, Course, PRINCIPAL, Run};
use peer::{Giver, Roster, Transport};
use std::sync::Arc;
use store::Origins;
use tokio::sync::watch;

/// What makes a node a member.
pub struct Membership {
    /// Where the members are told, as it was typed.
    pub members: String,
    pub roster: watch::Receiver<Arc<Roster>>,
    pub transport: Arc<dyn Transport>,
}

/// What objects call a store that this principal asks.
pub fn store_name(identity: &str, who: &str) -> Arc<str> {
    let principal = xxhash_rust::xxh3::xxh3_128(who.as_bytes());
    format!("{identity}{PRINCIPAL}{principal:032x}").into()
}

/// Gives others what this node owns.
pub struct Giving {
    pub stack: Stack,
    pub origins: Arc<Origins>,
}

impl Giver for Giving {
    fn fetch(&self, run: Run, is_urgent: bool) -> Option<Blocks> {
        let door = self.origins.door(&run.object.store)?;
        let course = Course::begin(cache::waits::clock, is_urgent);
        Some(self.stack.inner().fetch(Run { course, ..run.via(door) }))
    }

    fn held(&self, run: Run) -> Option<Blocks> {
        let door = self.origins.door(&run.object.store)?;
        Some(self.stack.held(run.via(door)))
    }
}
