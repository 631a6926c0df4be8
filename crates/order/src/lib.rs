//! In which order jobs read their samples, as the frameworks that they are written in deal it. Pure arithmetic: seeds in,
//! numbers out.
//!
//! - [`Mersenne`]: the generator that PyTorch shuffles with.
//! - [`Sampler`]: its `DistributedSampler`.
//! - [`Trail`]: which of those it is, from the first opens of an epoch.

mod mersenne;
mod sampler;
mod trail;

pub use mersenne::Mersenne;
pub use sampler::Sampler;
pub use trail::{Finding, Trail, sums};
