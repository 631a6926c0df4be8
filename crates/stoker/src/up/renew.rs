//! `stoker up --renew`: the hosts of a pool may go on for another while.
//!
//! Each gets keys of a new authority. All trust it before one of them shows what it certified, so that members know each
//! other at each moment, also those that were left out this time, until their lease ends.

use super::Args;
use super::handed::Handed;
use crate::hosts::Conduct;
use crate::hosts::told::{self, Counts, Told};
use crate::{place, show};
use fleet::pool::{Plan, Pool};
use fleet::{Failure, Host, crew};
use serde_json::Map;
use std::collections::HashMap;
use std::process::ExitCode;

pub fn run(args: &Args, plan: &Plan, conduct: &Conduct) -> anyhow::Result<ExitCode> {
    let told = Told::new(args.crew.json, told::hosts("renew", conduct.hosts.len()), Counts::Hosts, &conduct.stop);
    let pool = Pool { plan, hosts: &conduct.hosts, ssh: &conduct.ssh, sink: &told };
    let (handed, stop) = (Handed::new(args.lease, args.lent()?)?, &conduct.stop);
    let credentials = handed.credentials()?;
    let trusted =
        crew::each(&conduct.hosts, conduct.ssh.at_once, stop, |host| pool.trust(host, handed.authority(), stop));
    let trusted: HashMap<String, _> = conduct.hosts.iter().map(Host::label).zip(trusted).collect();
    let code = conduct.run(&told, |host| {
        let (holds, mut files) = (trusted[&host.label()].clone()?, credentials.clone());
        if !files.is_empty() && !holds.credentials {
            return Err(Failure::Unfit(
                "its node has credentials of its own: it was not begun with --send-credentials".into(),
            ));
        }
        if holds.keys {
            files.extend(handed.keys(plan, host).map_err(|error| Failure::Here(error.to_string()))?);
        }
        files.push(handed.lease());
        pool.hand_over(host, &files, false, stop)?;
        Ok(Map::from_iter([("lease_ends_at".to_owned(), handed.ends.into())]))
    })?;
    if code == ExitCode::SUCCESS && !args.crew.json {
        let (count, left) = (show::count_of(conduct.hosts.len() as u64, "host"), handed.ends as f64 - place::now());
        say!("renewed on {count}, for {}", show::left(left))?;
        args.say_credentials(&handed)?;
    }
    Ok(code)
}
