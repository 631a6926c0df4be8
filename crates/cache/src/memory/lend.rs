//! What this node's readers have in memory, for another member of the cluster: what nobody keeps.
//!
//! Invariant: nobody waits here for long, for who is waited for may wait for the same.

use super::Memory;
use super::shelf::Place;
use block::{Blocks, Error, Run};
use futures_util::StreamExt;
use std::time::Duration;

/// How long somebody else waits for a block that is on its way here: as long as an owner sends others here for it.
const LENT_WITHIN: Duration = Duration::from_secs(5);

impl Memory {
    /// The blocks of a run as far as they are in memory or soon will be, for somebody else: they are not read by that. Ends with
    /// an error at the first one that isn't, or whose reader here asked after that one: as the owner counts, after this asker.
    pub fn lend(&self, run: Run, ticket: u64) -> Blocks {
        let (memory, urgent) = (self.clone(), run.course.clone());
        let blocks = futures_util::stream::iter(run.addresses()).then(move |address| {
            let place = memory.shelf().look(&(address.object.id(), address.index));
            let asker = urgent.clone();
            async move {
                let coming = match place {
                    Some(Place::Here(block)) => return Ok(block),
                    Some(Place::Coming(coming)) => coming,
                    None => return Err(Error::missing("the block is not in memory", &*address.object)),
                };
                let mut promise = coming.promise;
                let urging = async {
                    asker.urged().await;
                    coming.course.urge();
                    std::future::pending::<()>().await;
                };
                // Who waits for it may in turn be waited for: nobody waits for long.
                let came = async {
                    tokio::select! {
                        biased;
                        came = promise.wait_for(Option::is_some) => came.ok()?.clone(),
                        () = urging => None,
                        () = coming.course.counts_after(ticket) => None,
                        () = tokio::time::sleep(LENT_WITHIN) => None,
                    }
                };
                let came = came.await;
                came.unwrap_or_else(|| Err(Error::missing("the block is not in memory yet", &*address.object)))
            }
        });
        block::until_failed(blocks)
    }
}
