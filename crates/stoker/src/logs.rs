//! `stoker log`: where nodes write what happens, what went wrong last, and how much is written.

use crate::{show, status};
use client::messages::{Level, Log};
use daemon::journal::stamp;
use hyper::Method;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A mount point or a cache folder; by default every node of this user
    dir: Option<PathBuf>,
    /// Write from now on what is at least this serious: error, warn, info or debug
    #[arg(long, value_parser = ["error", "warn", "info", "debug"])]
    level: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let status::Nodes { found, silent } = status::nodes(args.dir.as_deref())?;
    silent.iter().for_each(|what| note!("{what}"));
    if found.is_empty() && silent.is_empty() {
        say!("{}", status::NOBODY)?;
    }
    for (client, status) in found {
        let log = match &args.level {
            Some(level) => {
                let level = Level { level: level.clone() };
                client.ask::<Log>(Method::PUT, "/v1/log", &level).map_err(show::refused)?
            }
            None => status.log,
        };
        let path = if log.path.is_empty() { "standard error" } else { &log.path };
        let head = format!("node {} on {}: what is at least {} goes to {path}", status.pid, status.cache, log.level);
        say!("{}", show::plain(&head))?;
        for record in &status.errors {
            say!(
                "  {} {:>5} {}",
                stamp(record.at),
                show::plain(&record.level).to_ascii_uppercase(),
                show::indented(&show::plain(&record.text))
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
