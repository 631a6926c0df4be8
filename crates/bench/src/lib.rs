//! Measure any file system or store in the same way, whoever made it.
//!
//! Layout:
//! - [`workload`], [`accelerator`], [`target`]: the three factors of a measurement, one file each.
//! - [`data`]: true data sets to measure with, from a seed.
//! - [`train`]: the loop of a training job, and how busy it keeps accelerators.
//! - [`simulate`]: the same loop in simulated time, for more accelerators than there are.
//! - [`sweep`]: files of each size by each number of threads.
//! - [`cold`]: making caches forget, and proof that they did.
//! - [`trace`]: what a program asks of a folder, as a workload.
//! - [`loader`]: the loop through a loader that others made.
//! - [`ranks`]: the processes that measure together.
//! - [`report`]: what was found, as JSON; [`csv`]: the same as a table for other programs.
//! - [`compare`]: reports against each other, with intervals.
//! - [`probe`], [`bound`]: what a target gives by itself, and what a training job could make of it.
//! - [`clock`]: the time that measurements are taken by.
//!
//! It doesn't know Stoker's node, cache or mount, never prints, and takes its seeds from the caller.
//! Invariant: every target is treated alike; each byte that is read can be checked against what was made.

pub mod accelerator;
pub mod bound;
pub mod clock;
pub mod cold;
pub mod compare;
pub mod csv;
pub mod data;
pub mod import;
pub mod loader;
pub mod probe;
pub mod ranks;
pub mod report;
mod shipped;
pub mod simulate;
pub mod sweep;
pub mod target;
pub mod trace;
pub mod train;
pub mod workload;
