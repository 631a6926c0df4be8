//! A node as a daemon: its mounts, and the socket by which it is asked for them. What leads into a node, such as the
//! command, stands on it.
//!
//! Layout:
//! - [`Host`]: a node and the mounts that it serves. [`Mounted`]: one of them.
//! - [`control`]: its socket. [`status`]: what it does and holds.
//! - [`data`]: the socket by which programs read without the kernel.
//! - [`keeper`]: who holds what outlives this process. `resume`: how the next one goes on with it. `holder`: the command in the
//!   foreground whose mount it is.
//! - `upkeep`: what is kept of a mount is read again, or let go of.
//! - `hint`: what a job says of the order in which it will read.
//! - [`journal`]: what happened. `pulse`: how it is doing at the moment.
//! - [`Lease`]: until when it may go on without anybody who looks after it.
//! - [`reach`]: from what was asked for to a store.
//! - `hostile`: terms as bytes that mean harm, for fuzzing.
//!
//! Invariant: it reads no environment and no arguments, and prints nothing.

pub mod control;
pub mod data;
mod hint;
mod holder;
mod host;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
pub mod journal;
pub mod keeper;
mod lease;
mod mounted;
mod pulse;
pub mod reach;
mod resume;
pub mod status;
mod upkeep;

pub use host::{ENDING, Host, Life};
pub use journal::Journal;
pub use keeper::Keeper;
pub use lease::Lease;
pub use mounted::Mounted;
pub use resume::settled;
