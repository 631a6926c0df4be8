//! `stoker check`: whether this machine, a store and the disk of a cache are fit for a mount, and how fast they are.
//!
//! One line for each thing that is looked at, with a cure where it isn't well. In its folder: `finding` (such a line),
//! `reach` (the store), `rate` (how fast it is, and for which jobs that is enough), `disk` (of the cache), `fuse` (the kernel),
//! `limits`, `hosts` (the same on many).
//! Invariants: nothing of it is left on the machine or in the store, and no secret is in what it says.

pub mod disk;
pub mod finding;
pub mod fuse;
mod hosts;
mod limits;
mod rate;
mod reach;

use crate::args::Reach;
use crate::ends::stop_if_told;
use crate::{place, print, runtime, show, up};
use block::Error;
use finding::{Finding, Outcome, worst};
use indicatif::ProgressBar;
use rate::Row;
use reach::Way;
use serde::{Deserialize, Serialize};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
Examples:
  stoker check                                   this machine, and the default folder of the cache
  stoker check s3://imagenet/train               and a store: who we are to it, how fast it is
  stoker check s3://imagenet/train /nvme/cache   and another folder for the cache
  stoker check s3://imagenet/train --quick --json | jq .outcome
  stoker check s3://imagenet/train /nvme --hosts nodes      on each host, before `stoker up`

It exits with 0 if nothing failed (warnings are no failures), with 1 if something did. It reads at
most 2 GiB of the store and writes at most 256 MiB to the disk, which it removes.";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://namenode/path, file:///folder, or a folder; without it no store is asked
    pub url: Option<String>,
    /// Folder of the cache, as --cache of `stoker mount`
    #[arg(value_name = "CACHE", env = "STOKER_CACHE")]
    pub cache: Option<PathBuf>,
    /// Measure nothing: no bytes are read from the store, and none are written to the disk
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object; with --hosts one for each host, one a line
    #[arg(long)]
    pub json: bool,
    /// On each host of this file, by ssh, as `stoker up` takes it
    #[arg(long, value_name = "FILE", requires = "url")]
    pub hosts: Option<PathBuf>,
    /// Another configuration of ssh than the user's, as `ssh -F` has it
    #[arg(long, value_name = "FILE", env = "STOKER_SSH_CONFIG")]
    pub ssh_config: Option<PathBuf>,
    /// As root there, by a `sudo` that asks nothing
    #[arg(long, requires = "hosts")]
    pub sudo: bool,
    /// The program for hosts of another architecture, as `uname -m` has it; may be given again
    #[arg(long, value_name = "ARCH=FILE", value_parser = up::binary, requires = "hosts")]
    pub binary: Vec<(String, PathBuf)>,
    #[command(flatten)]
    pub reach: Reach,
}

/// All that was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub outcome: Outcome,
    pub findings: Vec<Finding>,
    /// How busy first epochs keep accelerators at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Row>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(hosts) = &args.hosts {
        return hosts::run(args, hosts);
    }
    stop_if_told(|| {
        fuse::stay_unmounted();
        true
    })?;
    let bar = show::spinner("");
    let is_coloured = place::colour(std::io::stdout().is_terminal());
    let mut printed = Ok(());
    let found = look(args, &bar, &mut |findings| {
        if !args.json && printed.is_ok() {
            let text: String = findings.iter().map(|finding| finding.text("", is_coloured)).collect();
            printed = bar.suspend(|| print::out(format_args!("{text}")));
        }
    });
    bar.finish_and_clear();
    let found = found?;
    printed?;
    match args.json {
        true => say!("{}", serde_json::to_string(&found)?)?,
        false => print::out(format_args!("{}", conclusion(&found)))?,
    }
    Ok(code(found.outcome))
}

/// What follows from all lines.
fn conclusion(found: &Found) -> String {
    let mut out = String::new();
    if !found.bounds.is_empty() {
        out += &rate::table(&found.bounds);
    }
    let count = |outcome| found.findings.iter().filter(|finding| finding.outcome == outcome).count() as u64;
    let (failed, warnings) = (count(Outcome::Failed), count(Outcome::Warning));
    out + &match (failed, warnings) {
        (0, 0) => "nothing stands in the way of a mount\n".to_owned(),
        (0, _) => format!("nothing stands in the way of a mount; {}\n", show::count_of(warnings, "warning")),
        _ => format!("{failed} failed, {}\n", show::count_of(warnings, "warning")),
    }
}

fn code(outcome: Outcome) -> ExitCode {
    if outcome == Outcome::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Look at everything; `tell` hears the findings as they come.
pub fn look(args: &Args, bar: &ProgressBar, tell: &mut dyn FnMut(&[Finding])) -> anyhow::Result<Found> {
    let runtime = runtime()?;
    let mut all: Vec<Finding> = Vec::new();
    let mut bounds = Vec::new();
    // What is wrong on the face of it is said before anything is tried.
    if let (Some(url), Some(cache)) = (&args.url, &args.cache)
        && cache.to_string_lossy().contains("://")
    {
        let error = Error::invalid("the URL goes first, and the folder of the cache behind it", cache.display());
        return Err(error.hint(format!("stoker check {} {url}", cache.display())).into());
    }
    args.url.as_ref().map(|url| url.parse::<store::Location>()).transpose()?;
    crate::node::raise_descriptors();
    let mut add = |findings: Vec<Finding>| {
        tell(&findings);
        all.extend(findings);
    };
    bar.set_message("mounting an empty folder");
    add(fuse::look(runtime.handle()));
    add(limits::look());
    bar.set_message("measuring the disk of the cache");
    let (findings, disk) = disk::look(args.cache.as_deref(), !args.quick)?;
    add(findings);
    if let Some(url) = &args.url {
        bar.set_message(format!("asking {}", show::line(url)));
        let mut findings = Vec::new();
        let reached = Way { url, typed: &args.reach, runtime: runtime.handle() }.look(&mut findings)?;
        add(findings);
        if let Some(reached) = reached.filter(|_| !args.quick) {
            bar.set_message(format!("reading from {}, some ten seconds", show::line(url)));
            let mut findings = Vec::new();
            bounds = rate::measure(&reached, disk, &mut findings);
            add(findings);
        }
    }
    // A request that hangs is not waited for.
    runtime.shutdown_background();
    Ok(Found { outcome: worst(&all), findings: all, bounds })
}
