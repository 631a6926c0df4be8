//! `stoker hosts`: many machines at once, by ssh. One file a subcommand; `told` is what comes of it for people and programs.

mod copy;
mod gather;
mod reach;
mod run;
pub mod speed;
pub mod told;

use crate::args::some_time;
use crate::{ends, node};
use block::Error;
use fleet::{Failure, Host, Ssh, Stop, Wrong, crew, roster, ssh};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use told::Told;

const EXAMPLES: &str = "\
A file of hosts is that of Open MPI, MPICH, Slurm or PBS, or has lines of our own:
  HOST [user=U] [port=P] [address=WHERE_OTHERS_REACH_IT] [weight=N]    # node[01-04,07], [::1] too

Examples:
  stoker hosts run --hosts nodes -- nvidia-smi -L               a program and its arguments
  stoker hosts run --hosts nodes --timeout 10s 'df -h / | tail -1'      a line of sh
  stoker hosts copy --hosts nodes train.py conf/ /opt/job
  stoker hosts gather --hosts nodes /var/log/job logs           into logs/HOST/job";

#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Run a command on each host; each line of its output comes behind the name of its host
    #[command(after_help = EXAMPLES)]
    Run(run::Args),
    /// Copy files and folders to each host, compared by their checksum before they get their names
    #[command(after_help = EXAMPLES)]
    Copy(copy::Args),
    /// Fetch files and folders of each host into a folder of its name
    #[command(after_help = EXAMPLES)]
    Gather(gather::Args),
    /// Say which addresses can't be reached from here
    #[command(hide = true)]
    Reach(reach::Args),
    /// Measure a disk or a mount for a moment
    #[command(hide = true)]
    Speed(speed::Args),
}

/// Which hosts, and how they are reached: with the keys, the configuration and the known hosts of `ssh`.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Hosts")]
pub struct Crew {
    /// File of hosts; `-` is standard input
    #[arg(long, value_name = "FILE", env = "STOKER_HOSTS")]
    pub hosts: PathBuf,
    /// Only the first of them
    #[arg(long)]
    pub first: bool,
    /// How long one host may take; by default as long as it answers
    #[arg(long, value_name = "TIME", value_parser = some_time, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    /// Hosts at the same time
    #[arg(long, value_name = "N", default_value_t = ssh::AT_ONCE, value_parser = at_once)]
    pub at_once: usize,
    /// Another configuration of ssh than the user's, as `ssh -F` has it
    #[arg(long, value_name = "FILE", env = "STOKER_SSH_CONFIG")]
    pub ssh_config: Option<PathBuf>,
    /// Print the results as JSON: one object for each host, one a line
    #[arg(long)]
    pub json: bool,
}

fn at_once(text: &str) -> Result<usize, Error> {
    let wrong = || Error::invalid("this is no number of hosts at the same time", format!("`{text}`"));
    let number = text.parse().ok().filter(|number| (1..=ssh::AT_ONCE_MAX).contains(number));
    number.ok_or_else(|| wrong().hint(format!("give 1 to {}", ssh::AT_ONCE_MAX)))
}

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Copy(args) => copy::run(&args),
        Command::Gather(args) => gather::run(&args),
        Command::Reach(args) => reach::run(&args),
        Command::Speed(args) => speed::run(&args),
    }
}

/// What was written or typed and can't be meant.
pub fn typed(wrong: Wrong) -> Error {
    Error::invalid(wrong.what, wrong.on).hint(wrong.hint)
}

impl Crew {
    /// The hosts that are meant.
    pub fn hosts(&self) -> Result<Vec<Host>, Error> {
        let is_input = self.hosts == Path::new("-");
        let name = if is_input { "standard input".into() } else { self.hosts.display().to_string() };
        let from: io::Result<Box<dyn Read>> = match is_input {
            true => Ok(Box::new(io::stdin())),
            false => File::open(&self.hosts).map(|file| Box::new(file) as Box<dyn Read>),
        };
        let mut bytes = Vec::new();
        let read = from.and_then(|from| from.take(roster::FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
        read.map_err(|error| {
            Error::invalid(format!("the file of hosts can't be read: {error}"), &name)
                .hint("name a file with one host a line")
        })?;
        let mut hosts = roster::parse(&bytes, &name).map_err(typed)?;
        hosts.truncate(if self.first { 1 } else { hosts.len() });
        Ok(hosts)
    }

    pub fn ssh(&self) -> Ssh {
        Ssh { config: self.ssh_config.clone(), at_once: self.at_once, timeout: self.timeout, as_root: false }
    }
}

/// Hosts with what is done on them.
pub struct Conduct {
    pub hosts: Vec<Host>,
    pub ssh: Ssh,
    pub stop: Arc<Stop>,
}

impl Conduct {
    pub fn new(crew: &Crew) -> anyhow::Result<Conduct> {
        if let Some(config) = &crew.ssh_config {
            File::open(config).map_err(|error| {
                Error::invalid(format!("the configuration of ssh can't be read: {error}"), config.display())
                    .hint("name a file as `ssh -F` takes it")
            })?;
        }
        let (hosts, stop) = (crew.hosts()?, Arc::new(Stop::default()));
        let told = Arc::clone(&stop);
        ends::stop_if_told(move || told.stop())?;
        Ok(Conduct { hosts, ssh: crew.ssh(), stop })
    }

    /// Work on all of them, and say what came of it. The work gives figures of its host.
    pub fn run(
        &self,
        told: &Told,
        work: impl Fn(&Host) -> Result<Map<String, Value>, Failure> + Sync,
    ) -> anyhow::Result<ExitCode> {
        let done = crew::each(&self.hosts, self.ssh.at_once, &self.stop, |host| {
            let done = work(host);
            told.done(host, &done);
            done
        });
        told.over()?;
        let outcomes = self.hosts.iter().zip(&done);
        let failed: Vec<_> = outcomes.filter_map(|(host, done)| Some((host, done.as_ref().err()?))).collect();
        if failed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        told::table(&failed, self.hosts.len());
        let is_interrupted = self.stop.is_wanted() && failed.iter().any(|(_, failure)| **failure == Failure::Stopped);
        Ok(if is_interrupted { ExitCode::from(node::INTERRUPTED) } else { ExitCode::FAILURE })
    }
}
