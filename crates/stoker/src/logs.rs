//! `stoker log`: where nodes write what happens, what went wrong last, and how much is written.

use crate::{args, show, status};
use client::messages::{Level, Log};
use daemon::journal::stamp;
use hyper::Method;
use std::process::ExitCode;

pub fn run(args: &args::Log) -> anyhow::Result<ExitCode> {
    let found = status::nodes(args.dir.as_deref())?;
    if found.is_empty() {
        println!("{}", status::NOBODY);
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
        println!("node {} on {}: {} and graver go to {path}", status.pid, status.cache, log.level);
        for record in &status.errors {
            println!(
                "  {} {:>5} {}",
                stamp(record.at),
                record.level.to_ascii_uppercase(),
                show::indented(&record.text)
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
