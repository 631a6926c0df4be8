//! Where bytes stay: on the local disk, in memory while in flight, and what to ask for ahead.
//!
//! Layout:
//! - [`disk`]: the local disk tier; one sparse file per object version, one index log.
//! - [`memory`]: blocks in flight or not kept, one fetch per block, one budget.
//! - [`readahead`]: how far ahead of a reader to ask. Pure.
//! - [`tally`]: what each tier served.
//! - [`waits`]: how long readers waited, and for what.

pub mod disk;
pub mod memory;
pub mod readahead;
pub mod tally;
pub mod waits;

pub use disk::Disk;
pub use memory::Memory;
