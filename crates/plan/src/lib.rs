//! What to rent for a training job, and what it costs: from a demand and a catalogue to a ranked, explained answer.
//!
//! Layout: [`catalog`] what can be rented, [`demand`] what a job asks for, [`candidate`] ways to feed it, [`supply`] the
//! limits of a service, [`evidence`] what clients reach of them, [`nodes`] the machines that train, [`outcome`] time and
//! money of one candidate, [`money`] prices, [`calibration`] published cases, [`import`] price lists of providers, [`study`] the figures of
//! a study of storage cost, [`plan`] all candidates ranked and explained. Below: [`figure`] a number that
//! remembers where it comes from, [`luck`] where in its range it is taken, [`date`], [`wrong`] what can't be meant.
//!
//! It reads no clock, no file and no network, and uses nothing else of ours. Invariant: what is missing is never zero, and
//! what nobody verified never decides.

pub mod calibration;
pub mod candidate;
pub mod catalog;
pub mod date;
pub mod demand;
pub mod evidence;
pub mod figure;
pub mod import;
pub mod luck;
pub mod money;
pub mod nodes;
pub mod outcome;
pub mod plan;
pub mod study;
pub mod supply;
pub mod wrong;
