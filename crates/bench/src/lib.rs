//! Measure any file system or store in the same way, whoever made it.
//!
//! Layout:
//! - [`train`]: the loop of a training job, and how busy it keeps accelerators.
//! - [`samples`]: where the samples of a target lie.
//! - [`simulate`]: the same loop in simulated time, for more accelerators than there are.
//! - [`sweep`]: files of each size by each number of threads.
//! - [`cold`]: making caches forget, and proof that they did.
//! - [`ground`], [`room`]: a folder of its own for what writes, and whether there is space for it.
//! - [`loader`]: the loop through a loader that others made.
//! - [`probe`], [`bound`]: what a target gives by itself, and what a training job could make of it.
//!
//! What it measures with are crates of their own: `workload`, `targets`, `data`, `report`, `ranks`.
//!
//! It doesn't know Stoker's node, cache or mount, never prints, and takes its seeds from the caller.
//! Invariant: every target is treated alike; each byte that is read can be checked against what was made.

pub mod bound;
pub mod cold;
pub mod ground;
pub mod loader;
#[cfg(test)]
mod pair;
pub mod probe;
pub mod room;
pub mod samples;
pub mod simulate;
pub mod sweep;
pub mod train;

use block::{Error, Result};
use ranks::Ranks;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What rank 0 found, at every rank.
fn told<T: Serialize + DeserializeOwned>(ranks: &dyn Ranks, own: &T) -> Result<T> {
    understood(&ranks.broadcast(written(own))?)
}

/// What each rank found, in their order: at rank 0 all of it, elsewhere nothing.
fn gathered<T: Serialize + DeserializeOwned>(ranks: &dyn Ranks, own: &T) -> Result<Vec<T>> {
    ranks.gather(&written(own))?.iter().map(|sent| understood(sent)).collect()
}

fn written(own: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(own).expect("what ranks tell each other has no keys but strings")
}

fn understood<T: DeserializeOwned>(sent: &[u8]) -> Result<T> {
    serde_json::from_slice(sent).map_err(|error| {
        Error::invalid(format!("a rank said what another doesn't understand: {error}"), "the ranks")
            .hint("start the same version of stoker everywhere")
    })
}
