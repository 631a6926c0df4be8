//! `stoker hosts run`: a command on each host.

use super::told::{self, Counts, Told};
use super::{Conduct, Crew, typed};
use fleet::run::Job;
use serde_json::Map;
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A program and its arguments, each of which stays one; a single word is a line of sh
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    // Last: what follows a group with a heading falls under it.
    #[command(flatten)]
    crew: Crew,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (job, conduct) = (Job::new(&args.command).map_err(typed)?, Conduct::new(&args.crew)?);
    let told = Told::new(args.crew.json, told::hosts("run", conduct.hosts.len()), Counts::Hosts, &conduct.stop);
    conduct.run(&told, |host| {
        job.run(&conduct.ssh, host, &told, &conduct.stop)?;
        Ok(Map::from_iter([("exit_code".to_owned(), 0.into())]))
    })
}
