//! What to rent for a training job, and what it costs: from a demand and a catalogue to a ranked, explained answer.
//!
//! Layout: [`wrong`] what can't be meant, [`figure`] a number that remembers where it comes from, [`date`], [`catalog`]
//! what can be rented.
//!
//! It reads no clock, no file and no network, and uses nothing else of ours. Invariant: what is missing is never zero, and
//! what nobody verified never decides.

pub mod catalog;
pub mod date;
pub mod figure;
pub mod wrong;
