//! `stoker up`: a data set mounted on many hosts, whose nodes are one cache, for as long as a job needs it.
//!
//! Step by step on all hosts; a step that fails on one of them ends it, and what was begun is taken down.
//! Invariant: when it fails, nothing of it is left on a host that still answers.

use crate::args::Reach;
use crate::hosts::told::{self, Counts, Told};
use crate::hosts::{Conduct, Crew, typed};
use crate::{node, place, show};
use block::Error;
use fleet::pool::found::Found;
use fleet::pool::{Plan, Pool, Program, folder_there};
use fleet::{Failure, Host, Stop, crew};
use indicatif::ProgressBar;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
A file of hosts is that of Open MPI, MPICH, Slurm or PBS, or has lines of our own (see `stoker hosts run --help`).

Examples:
  stoker up --hosts nodes --cache /nvme --plaintext s3://imagenet/train /data/train
  stoker hosts run --hosts nodes -- python3 train.py /data/train
  stoker down --hosts nodes /data/train";

/// Port of members, unless another is given.
const PORT: u16 = 7865;

/// Clocks that are further apart are worth a word.
const SKEW_SAID_S: f64 = 2.0;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    crew: Crew,
    /// s3://bucket/prefix, or a folder that each host has
    url: String,
    /// Where each host mounts it
    dir: PathBuf,
    /// Folder of a local disk of each host for its cache; by default below the home of the user there
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Bytes that the cache of each host may hold, such as 500GB
    #[arg(long, value_name = "SIZE", value_parser = crate::args::cache_size, allow_hyphen_values = true)]
    cache_size: Option<u64>,
    /// Port at which hosts reach each other
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The program for hosts of another architecture, as `uname -m` has it; may be given again
    #[arg(long, value_name = "ARCH=FILE", value_parser = binary)]
    binary: Vec<(String, PathBuf)>,
    /// Hosts speak unencrypted with each other, and with anybody who reaches the port
    #[arg(long)]
    plaintext: bool,
    /// Mount as root there, by a `sudo` that asks nothing
    #[arg(long)]
    sudo: bool,
    #[command(flatten)]
    reach: Reach,
}

fn binary(text: &str) -> Result<(String, PathBuf), Error> {
    let wrong = || Error::invalid("this names no program for an architecture", format!("`{text}`"));
    let pair = text.split_once('=').ok_or_else(|| wrong().hint("write it like aarch64=/opt/stoker-aarch64"))?;
    Ok((pair.0.to_owned(), pair.1.into()))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = plan(args)?;
    let mut conduct = Conduct::new(&args.crew)?;
    conduct.ssh.as_root = args.sudo;
    if conduct.hosts.len() > 1 && !args.plaintext {
        let error = Error::invalid("hosts have nothing yet to encrypt with what they tell each other", "stoker up");
        return Err(error.hint("on a network that only they are on, give --plaintext").into());
    }
    let bar = show::spinner("");
    let told = Told::new(args.crew.json, bar.clone(), Counts::Hosts, &conduct.stop);
    let pool = Pool { plan: &plan, hosts: &conduct.hosts, ssh: &conduct.ssh, sink: &told };
    let rising = Rising { pool, conduct: &conduct, bar: &bar };
    match rising.all(&words(args, conduct.hosts.len() > 1)) {
        Ok(up) => {
            bar.finish_and_clear();
            up.report(args, &conduct.hosts)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failed) => {
            bar.finish_and_clear();
            let said = failed.report(args.crew.json, conduct.hosts.len());
            rising.take_down(&failed.begun, &conduct.hosts);
            said?;
            Ok(if conduct.stop.is_wanted() { ExitCode::from(node::INTERRUPTED) } else { ExitCode::FAILURE })
        }
    }
}

/// What was typed, as what is to be on hosts.
fn plan(args: &Args) -> anyhow::Result<Plan> {
    args.url.parse::<store::Location>()?;
    if !args.url.contains("://") && !args.url.starts_with('/') {
        let error = Error::invalid("this folder would be another one on each host", &args.url);
        return Err(error.hint("give its whole path").into());
    }
    for folder in [Some(&args.dir), args.cache.as_ref()].into_iter().flatten() {
        folder_there(folder).map_err(typed)?;
    }
    if let Some(cache) = &args.cache {
        place::are_apart(cache, &args.dir)?;
    }
    let ours = (std::env::consts::ARCH.to_owned(), PathBuf::from("/proc/self/exe"));
    let programs = std::iter::once(&ours).chain(&args.binary).map(|(arch, path)| Program::new(arch, path));
    let mut programs = programs.collect::<Result<Vec<_>, _>>().map_err(typed)?;
    // One that was named goes before our own.
    programs.reverse();
    Ok(Plan { dir: args.dir.clone(), cache: args.cache.clone(), port: args.port, programs })
}

/// What `stoker mount` is told on each host. Credentials are those that the host finds for itself.
fn words(args: &Args, is_cluster: bool) -> Vec<OsString> {
    let Reach { endpoint, region, profile, anonymous } = &args.reach;
    let mut words: Vec<OsString> = Vec::new();
    let size = args.cache_size.map(|bytes| format!("{bytes}B"));
    for (name, value) in
        [("--endpoint", endpoint), ("--region", region), ("--profile", profile), ("--cache-size", &size)]
    {
        words.extend(value.iter().flat_map(|value| [name.into(), value.into()]));
    }
    for (name, is_wanted) in [("--anonymous", *anonymous), ("--plaintext", args.plaintext && is_cluster)] {
        words.extend(is_wanted.then(|| OsString::from(name)));
    }
    words.extend(["--".into(), (&args.url).into(), (&args.dir).into()]);
    words
}

/// A pool on its way up.
struct Rising<'a> {
    pool: Pool<'a>,
    conduct: &'a Conduct,
    bar: &'a ProgressBar,
}

/// What could not be brought up, and where something may be left of it.
struct Failed<'a> {
    failures: Vec<(&'a Host, Failure)>,
    begun: Vec<bool>,
}

/// What was found on the way.
struct Risen {
    found: Vec<Found>,
    /// A file that has the same content on all hosts.
    read: Option<String>,
}

impl<'a> Rising<'a> {
    fn all(&'a self, words: &[OsString]) -> Result<Risen, Failed<'a>> {
        let (pool, stop, count) = (&self.pool, &self.conduct.stop, self.conduct.hosts.len());
        let is_cluster = count > 1;
        let here = |why: String| Failure::Here(why);
        let found = self.step("looking at", &vec![false; count], |host| {
            let found = pool.look(host, &place::now, stop)?;
            found.judge(pool.plan).map_err(Failure::Unfit)?;
            Ok(found)
        })?;
        let begun = vec![true; count];
        let at = |host: &Host| self.conduct.hosts.iter().position(|known| known == host).unwrap_or(0);
        self.step("bringing the program to", &begun, |host| {
            let found = &found[at(host)];
            let program = found.judge(pool.plan).map_err(Failure::Unfit)?;
            pool.prepare(host, program, found.has_program, stop)
        })?;
        // Here certificates are handed over, once members have some: `Pool::hand_over`.
        self.step("mounting on", &begun, |host| pool.start(host, words, is_cluster, stop))?;
        if is_cluster {
            self.step("asking who reaches whom of", &begun, |host| {
                let asked = ["hosts", "reach"].map(str::to_owned).into_iter().chain(pool.to_reach(host));
                let said = pool.call(host, &asked.collect::<Vec<_>>(), stop)?;
                match said.first() {
                    None => Ok(()),
                    Some(first) => {
                        let first = String::from_utf8_lossy(first).into_owned();
                        Err(Failure::Unfit(format!("it does not reach {} of the others: {first}", said.len())))
                    }
                }
            })?;
        }
        let first = &self.conduct.hosts[0];
        let file = pool
            .some_file(first, stop)
            .map_err(|failure| Failed { failures: vec![(first, failure)], begun: begun.clone() })?;
        if let Some(file) = &file {
            let sums = self.step("reading a file on", &begun, |host| pool.sum(host, file, stop))?;
            let other = sums.iter().position(|sum| *sum != sums[0]);
            if let Some(other) = other {
                let why =
                    format!("{} has another content there than on {}", String::from_utf8_lossy(file), first.label());
                return Err(Failed { failures: vec![(&self.conduct.hosts[other], here(why))], begun });
            }
        }
        Ok(Risen { found, read: file.map(|file| String::from_utf8_lossy(&file).into_owned()) })
    }

    /// Do something on all hosts.
    fn step<T: Send>(
        &'a self,
        what: &str,
        begun: &[bool],
        work: impl Fn(&Host) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failed<'a>> {
        let hosts = &self.conduct.hosts;
        self.bar.set_message(format!("{what} {}", show::count_of(hosts.len() as u64, "host")));
        let done = crew::each(hosts, self.conduct.ssh.at_once, &self.conduct.stop, work);
        let (mut all, mut failures) = (Vec::new(), Vec::new());
        for (host, done) in hosts.iter().zip(done) {
            match done {
                Ok(done) => all.push(done),
                Err(failure) => failures.push((host, failure)),
            }
        }
        if failures.is_empty() { Ok(all) } else { Err(Failed { failures, begun: begun.to_vec() }) }
    }

    /// Take down what was begun, also when all was told to end: the next signal ends this too.
    fn take_down(&self, begun: &[bool], hosts: &[Host]) {
        let hosts: Vec<Host> =
            hosts.iter().zip(begun).filter(|(_, begun)| **begun).map(|(host, _)| host.clone()).collect();
        if hosts.is_empty() {
            return;
        }
        note!("taking down what was begun on {}", show::count_of(hosts.len() as u64, "host"));
        let stop = Stop::default();
        let at_once = self.conduct.ssh.at_once;
        crew::each(&hosts, at_once, &stop, |host| self.pool.unmount(host, true, &stop));
        let done = crew::each(&hosts, at_once, &stop, |host| self.pool.take_away(host, true, &stop));
        let left: Vec<_> =
            hosts.iter().zip(&done).filter_map(|(host, done)| Some((host, done.as_ref().err()?))).collect();
        if !left.is_empty() {
            told::table(&left, hosts.len());
            note!("  try: `stoker down` once they answer: something may be left there");
        }
    }
}

impl Failed<'_> {
    fn report(&self, is_json: bool, of: usize) -> anyhow::Result<()> {
        told::table(&self.failures.iter().map(|(host, failure)| (*host, failure)).collect::<Vec<_>>(), of);
        for (host, failure) in self.failures.iter().filter(|_| is_json) {
            let (failure, reason) = (failure.name(), failure.to_string());
            say!("{}", json!({ "host": host.label(), "ok": false, "failure": failure, "reason": reason }))?;
        }
        Ok(())
    }
}

impl Risen {
    fn report(&self, args: &Args, hosts: &[Host]) -> anyhow::Result<()> {
        let far = hosts.iter().zip(&self.found).filter(|(_, found)| found.skew_s > SKEW_SAID_S);
        far.for_each(|(host, found)| note!("the clock of {} is {:.0} s away from here", host.label(), found.skew_s));
        if args.crew.json {
            for (host, found) in hosts.iter().zip(&self.found) {
                let object = json!({
                    "host": host.label(), "ok": true, "url": args.url, "path": args.dir, "arch": found.arch,
                    "cache_free_bytes": found.free_bytes, "clock_skew_seconds": found.skew_s, "program_was_there": found.has_program,
                });
                say!("{object}")?;
            }
            return Ok(());
        }
        let free: u64 = self.found.iter().map(|found| found.free_bytes).sum();
        let (count, dir) = (show::count_of(hosts.len() as u64, "host"), args.dir.display());
        say!("mounted {} at {dir} on {count}, with {} free for their caches", args.url, show::bytes(free))?;
        if let Some(file) = &self.read {
            say!("read on all of them with the same content: {}", show::line(file))?;
        }
        let sudo = if args.sudo { "--sudo " } else { "" };
        let (hosts, dir) = (block::quoted(&args.crew.hosts), block::quoted(&args.dir));
        say!("to take it down: stoker down {sudo}--hosts {hosts} {dir}")
    }
}
