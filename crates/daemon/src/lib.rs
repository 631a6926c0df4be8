//! A node as a daemon: its mounts, and the socket by which it is asked for them. What leads into a node, such as the
//! command, stands on it.
//!
//! Layout:
//! - [`Host`]: a node and the mounts that it serves.
//! - [`control`]: its socket.
//! - [`reach`]: from what was asked for to a store.
//!
//! Invariant: it reads no environment and no arguments, and prints nothing.

pub mod control;
mod host;
pub mod reach;

pub use host::{ENDING, Host, Mounted};
