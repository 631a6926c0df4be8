//! The other nodes: who they are, what they are asked, and what they are answered.
//!
//! Layout:
//! - [`Members`]: where the members are told. [`Roster`], [`Seat`]: who they are at a moment.
//! - [`Peers`]: the tier that leads to what this node owns and to [`Owners`], who ask other members.
//! - `bring`: has the owner bring a stripe, whose bytes don't travel.
//! - [`Lines`]: the way to each of them; `contact`, `link` and `breaker` are that to one, `placement` who keeps what an
//!   owner has no room for, `unkept` who has what nobody keeps.
//! - [`Elders`]: asks who was the owner before this node came.
//! - [`Names`]: who lists a data set.
//! - [`Use`]: what readers open of what others own, and how the owners hear of it.
//! - [`serve`], [`Giver`]: the other side.
//! - `wire`: what is said, as bytes. [`Transport`]: by what it travels; [`Tls`], encrypted.
//!
//! Deliberately no agreement between members: each acts by what it was told, and where two were told different things both
//! are answered.

mod breaker;
mod bring;
mod contact;
mod elders;
mod figures;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod lines;
mod link;
mod members;
mod names;
mod owners;
mod peers;
mod placement;
mod roster;
mod serve;
mod tls;
mod transport;
mod unkept;
mod uses;
mod wire;

pub use elders::Elders;
pub use figures::Figures;
pub use lines::Lines;
pub use members::{Claim, Leave, Members, PORT, Taken, Told};
pub use names::{Names, PIECE_BYTES, Soon};
pub use owners::{Own, Owners};
pub use peers::Peers;
pub use roster::{Roster, Seat};
pub use serve::{For, Giver, Opened, Room, serve};
pub use tls::{Tls, certified_name};
pub use transport::{Handshake, Listener, Tcp, Transport, Twin, Way, Wire, listener};
pub use uses::{Count, Reading, Use};
pub use wire::{Brought, Manner};

#[cfg(test)]
mod tests;
