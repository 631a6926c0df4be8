//! `stoker down`: what `stoker up` made on hosts is taken away.

use crate::hosts::told::{self, Counts, Told};
use crate::hosts::{Conduct, Crew, typed};
use crate::show;
use fleet::pool::{Plan, Pool, folder_there};
use fleet::{Failure, Host, crew};
use serde_json::Map;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where it is mounted
    dir: PathBuf,
    /// Also while files in it are open
    #[arg(short, long)]
    lazy: bool,
    /// As root there, as it was brought up
    #[arg(long)]
    sudo: bool,
    // Last: what follows a group with a heading falls under it.
    #[command(flatten)]
    crew: Crew,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    folder_there(&args.dir).map_err(typed)?;
    let mut conduct = Conduct::new(&args.crew)?;
    conduct.ssh.as_root = args.sudo;
    let told = Told::new(args.crew.json, told::hosts("down", conduct.hosts.len()), Counts::Hosts, &conduct.stop);
    let plan = Plan {
        dir: args.dir.clone(),
        cache: None,
        port: 0,
        is_plaintext: true,
        token: String::new(),
        programs: Vec::new(),
    };
    let pool = Pool { plan: &plan, hosts: &conduct.hosts, ssh: &conduct.ssh, sink: &told };
    let unmounted = crew::each(&conduct.hosts, conduct.ssh.at_once, &conduct.stop, |host| {
        let lazily = "close the files in it, or let go of them: stoker down --lazy";
        pool.unmount(host, args.lazy, &conduct.stop).map_err(|failure| failure.advised("the mount is in use", lazily))
    });
    let unmounted: HashMap<String, _> = conduct.hosts.iter().map(Host::label).zip(unmounted).collect();
    // One that doesn't answer may never do so again.
    let is_held = |done: &Result<(), Failure>| done.as_ref().is_err_and(|failure| failure.name() != "unreachable");
    let is_held = unmounted.values().any(is_held);
    let taken = AtomicU64::new(0);
    let code = conduct.run(&told, |host| {
        unmounted[&host.label()].clone()?;
        if is_held {
            return Ok(Map::from_iter([("kept".to_owned(), true.into())]));
        }
        let was_there = pool.take_away(host, args.lazy, &conduct.stop)?;
        taken.fetch_add(u64::from(was_there), Ordering::Relaxed);
        Ok(Map::from_iter([("was_there".to_owned(), was_there.into())]))
    })?;
    if is_held {
        note!("unmounted where nobody holds it; the rest is kept on all hosts until it is unmounted on each");
    } else if !args.crew.json {
        let (taken, of) = (taken.into_inner(), conduct.hosts.len() as u64);
        match taken == 0 && code == ExitCode::SUCCESS {
            true => say!("there was no pool at {} on any of {}", args.dir.display(), show::count_of(of, "host"))?,
            false => say!("taken down on {}", show::count_of(taken, "host"))?,
        }
    }
    Ok(code)
}
