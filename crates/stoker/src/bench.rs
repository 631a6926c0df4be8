//! `stoker bench`: measure whether storage keeps accelerators busy. One file a subcommand.

mod compare;
mod data;
pub mod end;
mod launch;
mod loader;
pub mod machine;
mod output;
mod ranks;
mod simulate;
mod sweep;
mod train;
pub mod typed;

use block::{Error, Kind};
use std::process::ExitCode;

#[derive(clap::Subcommand, Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one of it, for as long as the command runs")]
pub enum Command {
    /// Run the loop of a training job against a folder or a store, and report how busy accelerators are
    Train(Box<train::Args>),
    /// Make a data set in a true format
    Data(data::Args),
    /// Write, stat, read and remove files of each size by each number of threads
    Sweep(sweep::Args),
    /// The loop of a training job in simulated time, for more accelerators than there are
    Simulate(Box<simulate::Args>),
    /// Lay reports over each other
    Compare(compare::Args),
    /// Whether the ranks of mpirun, srun or torchrun find each other, and what a barrier costs
    Ranks(ranks::Args),
}

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Train(args) => train::run(*args),
        Command::Data(args) => data::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Simulate(args) => simulate::run(*args),
        Command::Compare(args) => compare::run(args),
        Command::Ranks(args) => ranks::run(&args),
    }
}

/// Before anything is measured, what was named and isn't there is a word that can't be meant (exit code 2), and no failure
/// of the run.
pub fn named(mut error: Error) -> Error {
    if error.kind == Kind::Missing {
        error.kind = Kind::Invalid;
    }
    error
}

/// The other way round: once something was measured, it is the run that failed (exit code 1), whatever was typed.
fn failed(error: anyhow::Error) -> anyhow::Error {
    error.downcast::<Error>().map_or_else(
        |other| other,
        |mut error| {
            if error.kind == Kind::Invalid {
                error.kind = Kind::Unavailable { retry_after: None };
            }
            error.into()
        },
    )
}
