//! Names to bytes: manifests, preload, and the tiers stacked into one node.
//!
//! Layout:
//! - [`namespace`]: what a way in (FUSE, HTTP) asks of a mounted data set.

pub mod namespace;
