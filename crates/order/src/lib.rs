//! In which order jobs read their samples, as the frameworks that they are written in deal it. Pure arithmetic: seeds in,
//! numbers out.
//!
//! - [`Mersenne`]: the generator that PyTorch shuffles with.
//! - [`Sampler`]: its `DistributedSampler`.

mod mersenne;
mod sampler;

pub use mersenne::Mersenne;
pub use sampler::Sampler;
