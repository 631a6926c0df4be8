//! Messages of the control socket of a node, and a client for it.
//!
//! Layout:
//! - [`messages`]: what is said, as JSON. Versioned: `/v1/...`.
//! - [`Client`]: says it, blocking.
//! - [`sockets`]: where nodes listen.
//!
//! Invariant: a field that scripts may rely on never changes its meaning within a version.

mod client;
pub mod messages;
pub mod sockets;

pub use client::{Client, Failure, Surveyed};
