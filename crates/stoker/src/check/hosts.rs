//! `stoker check --hosts`: the same on each host, by what `stoker up` finds out first and by this program, which is brought
//! there for as long as that takes.
//!
//! Invariant: what was brought is taken away again, also when it is interrupted.

use super::finding::{Finding, Outcome, worst};
use super::{Args, Found};
use crate::hosts::{Conduct, Crew, typed};
use crate::status::pool::Complaints;
use crate::{node, place, print, show, up};
use fleet::pool::{Plan, Pool, folder_there};
use fleet::{Failure, Host, Stop, crew, ssh};
use serde::Serialize;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a host may take for a step: it measures for some twenty seconds.
const STEP: Duration = Duration::from_mins(3);

/// What is said of one host.
#[derive(Serialize)]
struct OfHost {
    host: String,
    #[serde(flatten)]
    found: Found,
}

pub fn run(args: &Args, hosts: &Path) -> anyhow::Result<ExitCode> {
    let Some(url) = &args.url else { unreachable!("clap wants one with --hosts") };
    args.cache.as_deref().map(folder_there).transpose().map_err(typed)?;
    url.parse::<store::Location>()?;
    let crew = Crew {
        hosts: hosts.to_owned(),
        first: false,
        timeout: Some(STEP),
        at_once: ssh::AT_ONCE,
        ssh_config: args.ssh_config.clone(),
        json: args.json,
    };
    let mut conduct = Conduct::new(&crew)?;
    conduct.ssh.as_root = args.sudo;
    let token = place::token();
    let plan = Plan {
        dir: format!("/tmp/stoker-check-pool-{token}").into(),
        cache: args.cache.clone(),
        port: 0,
        is_plaintext: true,
        token,
        programs: up::programs(&args.binary)?,
    };
    let complaints = Complaints::default();
    let pool = Pool { plan: &plan, hosts: &conduct.hosts, ssh: &conduct.ssh, sink: &complaints };
    let bar = show::spinner(&format!("checking {}", show::count_of(conduct.hosts.len() as u64, "host")));
    let is_coloured = place::colour(std::io::stdout().is_terminal());
    let printed = Mutex::new(Ok(()));
    let words = words(args, url)?;
    let all = crew::each(&conduct.hosts, conduct.ssh.at_once, &conduct.stop, |host| {
        let found = of_host(&pool, host, &words, &conduct.stop, &complaints);
        let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.is_ok() {
            *printed = bar.suspend(|| tell(args, host, &found, is_coloured));
        }
        Ok(found.outcome)
    });
    bar.finish_and_clear();
    printed.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    if conduct.stop.is_wanted() {
        return Ok(ExitCode::from(node::INTERRUPTED));
    }
    Ok(super::code(all.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Failed)).max().unwrap_or_default()))
}

/// What the program is told there.
fn words(args: &Args, url: &str) -> block::Result<Vec<OsString>> {
    let mut words: Vec<OsString> = vec!["check".into(), "--json".into()];
    words.extend(args.quick.then(|| "--quick".into()));
    words.extend(up::reach_words(&args.reach, url, None)?);
    words.extend(["--".into(), url.into()]);
    words.extend(args.cache.iter().map(|cache| cache.clone().into_os_string()));
    Ok(words)
}

fn tell(args: &Args, host: &Host, found: &Found, is_coloured: bool) -> anyhow::Result<()> {
    if args.json {
        return say!("{}", serde_json::to_string(&OfHost { host: host.label(), found: found.clone() })?);
    }
    let before = format!("{}: ", host.label());
    let mut text: String = found.findings.iter().map(|finding| finding.text(&before, is_coloured)).collect();
    if !found.bounds.is_empty() {
        text += &super::rate::table(&found.bounds).lines().map(|line| format!("{before}{line}\n")).collect::<String>();
    }
    print::out(format_args!("{text}"))
}

/// All that can be found out on one host.
fn of_host(pool: &Pool<'_>, host: &Host, words: &[OsString], stop: &Stop, complaints: &Complaints) -> Found {
    let failed = |failure: Failure| {
        let why = complaints.take(host).filter(|_| matches!(failure, Failure::Exit(..)));
        let cure = "see that `stoker hosts run` reaches it, and what it says there";
        Finding::failed("host", why.unwrap_or_else(|| failure.to_string()), cure)
    };
    let ended = |findings: Vec<Finding>| Found { outcome: worst(&findings), findings, bounds: Vec::new() };
    let looked = pool.look(host, &place::now, stop);
    let (looked, program) = match &looked {
        Err(failure) => return ended(vec![failed(failure.clone())]),
        Ok(looked) => match looked.judge(pool.plan) {
            Ok(program) => (looked, program),
            Err(why) => {
                let (why, cure) = why.split_once(": ").map_or((&*why, ""), |(why, cure)| (why, cure));
                return ended(vec![Finding::failed("host", why, cure)]);
            }
        },
    };
    let said =
        format!("{} {}, its clock is within {:.0} s of ours", looked.system, looked.arch, looked.skew_s.max(2.0));
    let first = Finding::ok("host", said).with("skew_seconds", looked.skew_s);
    let brought = pool.prepare(host, program, looked.has_program, stop).and_then(|()| there(pool, host, words, stop));
    // Also when all was told to end.
    let taken = pool.take_away(host, true, &Stop::default());
    let mut findings = vec![first];
    let mut bounds = Vec::new();
    match brought {
        Ok(found) => {
            findings.extend(found.findings);
            bounds = found.bounds;
        }
        Err(failure) => findings.push(failed(failure)),
    }
    if let Err(failure) = taken {
        let cure = format!("stoker down --hosts FILE {}", block::quoted(&pool.plan.dir));
        findings.push(Finding::warning("host", format!("something may be left there: {failure}"), cure));
    }
    Found { outcome: worst(&findings), findings, bounds }
}

/// What the program says of the host that it runs on: with a code of its own where something failed.
fn there(pool: &Pool<'_>, host: &Host, words: &[OsString], stop: &Stop) -> Result<Found, Failure> {
    let said = Mutex::new(None);
    let hear = |line: &[u8]| {
        if let Ok(found) = serde_json::from_slice::<Found>(line) {
            *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        }
    };
    let done = pool.follow(host, words, &hear, stop);
    match (said.into_inner().unwrap_or_else(PoisonError::into_inner), done) {
        (Some(found), _) => Ok(found),
        (None, Err(failure)) => Err(failure),
        (None, Ok(())) => Err(Failure::Unfit("it does not say what it found".into())),
    }
}
