//! Measure any file system or store in the same way, whoever made it.
//!
//! Layout:
//! - [`data`]: true data sets to measure with: JPEG images and npz volumes, from a seed.
//!
//! It doesn't know Stoker's node, cache or mount, never prints, and takes its seeds from the caller.
//! Invariant: every target is treated alike; each byte that is read can be checked against what was made.

pub mod data;
