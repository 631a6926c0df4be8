//! Where bytes stay: on the local disk, in memory while in flight, and what to ask for ahead.
//!
//! Layout:
//! - [`budget`]: the memory of all that hold blocks.
//! - [`disk`]: the local disk tier; one sparse file per object version, one index log.
//! - [`distinct`]: how many distinct bytes came from the stores.
//! - [`flight`]: one fetch for a block, whoever asks.
//! - [`memory`]: blocks in flight or not kept, one fetch per block, one budget.
//! - [`readahead`]: how far ahead of a reader to ask. Pure.
//! - [`tally`]: what each tier served.
//! - [`waits`]: how long readers waited, and for what.

pub mod budget;
pub mod disk;
pub mod distinct;
pub mod flight;
pub mod memory;
pub mod readahead;
pub mod tally;
pub mod waits;

pub use budget::Budget;
pub use disk::Disk;
pub use flight::Flight;
pub use memory::Memory;
