//! Names to bytes: manifests, preload, and the tiers stacked into one node.
//!
//! Layout:
//! - [`namespace`]: what a way in (FUSE, HTTP) asks of a mounted data set.
//! - [`manifest`]: the names of a data set, listed once and pinned.
//! - [`Node`]: one cache folder, one memory budget, and the tiers laid over each other.
//! - [`Home`]: its cache folder, taken by a lock.
//! - [`Stack`]: the tiers laid over each other, and everything that is asked of them.
//! - [`Membership`]: a node as a member of a cluster, and what it gives to others.
//! - [`View`]: one data set on a node.
//! - [`load`]: fetch a data set before it is read.
//! - [`kept`]: how much of a data set lies in the cache.
//! - [`fill`]: fetch the rest of an epoch at spare bandwidth.
//! - [`prefetch`]: what jobs said that they will read, asked for in time; `declared`, how far they are.
//! - `unsaid`: orders that nobody said, from opens alone.
//! - `handover`: what happens to bytes when members change.
//! - [`copy`]: copy a data set to a folder, without a node.
//! - [`select`]: which files of a data set are meant.

mod cluster;
mod content;
pub mod copy;
mod declared;
pub mod fill;
mod handover;
mod home;
pub mod kept;
pub mod load;
pub mod manifest;
pub mod namespace;
mod node;
pub mod prefetch;
pub mod process;
pub mod select;
mod shared;
mod snapshots;
mod stack;
#[cfg(test)]
mod tests;
mod unsaid;
mod view;

pub use cluster::Membership;
pub use home::Home;
pub use node::{Figures, Node, Settings};
pub use stack::Stack;
pub use view::{DataSet, Identity, View};
