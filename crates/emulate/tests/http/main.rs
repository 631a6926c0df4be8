//! The server over real connections, each promise of the crate as a test.

mod client;
mod faults;
mod limits;
mod listing;
mod objects;
mod signing;
mod uploads;
