//! From the words of a command line, and the variables that stand for flags, to what is meant.
//!
//! The words are read by themselves first, so that what is wrong with them is told as it was typed; what is wrong after that is
//! a variable's.

use crate::args::Typed;
use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// A command line that is not understood.
pub enum Wrong {
    Words(clap::Error),
    /// A variable, what it is set to, and what it may be.
    Variable(block::Error),
}

/// What the words mean.
pub fn parse(words: &[OsString]) -> Result<Typed, Wrong> {
    let wrong = without_variables(Typed::command()).try_get_matches_from(words).err();
    let is_missing = |wrong: &clap::Error| wrong.kind() == ErrorKind::MissingRequiredArgument;
    // Help tells of the variables, too; and a variable may be what was missing.
    let missing = match wrong.filter(clap::Error::use_stderr) {
        Some(wrong) if !is_missing(&wrong) => return Err(Wrong::Words(wrong)),
        missing => missing,
    };
    let matches = Typed::command().try_get_matches_from(words).map_err(|error| match missing {
        Some(missing) if is_missing(&error) => Wrong::Words(missing),
        _ => by_variable(error),
    })?;
    Typed::from_arg_matches(&matches).map_err(Wrong::Words)
}

fn without_variables(command: Command) -> Command {
    let command = command.mut_args(|arg| arg.env(None::<&'static str>));
    command.mut_subcommands(without_variables)
}

/// The variable by which a command line is wrong that was right without any.
fn by_variable(error: clap::Error) -> Wrong {
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let flag = context(ContextKind::InvalidArg);
    // How a flag is shown is known of a command that is built.
    let mut command = Typed::command();
    command.build();
    let Some(name) = variable(&command, &flag).filter(|_| error.use_stderr()) else { return Wrong::Words(error) };
    let (value, valid) = (context(ContextKind::InvalidValue), context(ContextKind::ValidValue));
    let hint = match valid.as_str() {
        "" => format!("set {name} to what {flag} takes, or to nothing"),
        valid => format!("set {name} to one of: {valid}; or to nothing"),
    };
    Wrong::Variable(block::Error::invalid("the variable is not understood", format!("{name}={value}")).hint(hint))
}

/// The variable of a flag, as it is shown.
fn variable(command: &Command, flag: &str) -> Option<String> {
    let of = |arg: &Arg| Some(arg.get_env()?.to_string_lossy().into_owned()).filter(|_| arg.to_string() == flag);
    let below = || command.get_subcommands().find_map(|command| variable(command, flag));
    command.get_arguments().find_map(of).or_else(below)
}
