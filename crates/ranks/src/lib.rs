//! The processes that run one benchmark together, each with its part of the accelerators.
//!
//! It doesn't start them and has no protocol of its own between them: launchers and MPI exist. Invariant: every rank
//! makes the same calls in the same order.

mod companion;
mod compile;
mod launcher;

use block::Result;

pub use companion::Companion;
pub use launcher::{Launched, Launcher, Means, join};

/// This process among the others.
pub trait Ranks: Send + Sync {
    fn rank(&self) -> u32;

    fn size(&self) -> u32;

    /// Returns when all ranks have come here.
    fn barrier(&self) -> Result<()>;

    /// What each rank gave, in their order: at rank 0 all of it, elsewhere nothing.
    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// What rank 0 gave, at every rank.
    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>>;
}

/// One process alone.
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![own.to_vec()])
    }

    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>> {
        Ok(own)
    }
}
