//! The words of Stoker as types: what is read, where it lies, and what can go wrong.
//!
//! Layout:
//! - [`Object`]: one version of one thing in a store.
//! - [`Address`], [`Run`]: one block of an object, and up to [`RUN_BLOCKS_MAX`] that lie side by side.
//! - [`Block`]: bytes of an address that have been verified.
//! - [`Checksum`]: what a store says about the bytes of a whole object.
//! - [`Course`]: what a run on its way waits for, by [`Cause`].
//! - [`Door`]: through which mount a read came in.
//! - [`Stripe`]: aligned blocks that one [`Member`] of a cluster keeps.
//! - [`Source`]: whoever answers for blocks; every tier is one.
//! - `contract`: what every source promises, as a suite (feature `contract`).
//! - [`Error`]: what failed, on what, and what to try.
//!
//! Invariant: an address never changes meaning, so nothing is ever invalidated.

mod address;
mod block;
mod checksum;
#[cfg(feature = "contract")]
pub mod contract;
mod course;
mod door;
mod error;
mod source;
mod stripe;

pub use address::{Address, BLOCK, Object, ObjectId, PRINCIPAL, RUN_BLOCKS_MAX, Run, SMALL, blocks_of, bytes_of};
pub use block::{Block, Permit, Proof};
pub use checksum::{Checksum, Digest, SUM, crc64, sums};
pub use course::{Cause, Clock, Course, Spent, last_try};
pub use door::Door;
pub use error::{Error, Kind, Result, quoted};
pub use source::{Blocks, Fixed, Source, Waiting, until_failed};
pub use stripe::{Member, ONE_STRIPE_BYTES_MAX, STRIPE_BLOCKS, Stripe, stripe_end};
