//! `stoker up`: a data set mounted on many hosts, whose nodes are one cache, for as long as a job needs it.
//!
//! Step by step on all hosts; a step that fails on one of them ends it, and what was begun is taken down. In its folder:
//! `handed` (what hosts get that nobody else may see), `load` (the set brought there ahead), `renew` (a longer lease), `speed` (what each host reads a second).
//! Invariant: when it fails, nothing of it is left on a host that still answers.

mod handed;
mod load;
mod renew;
mod speed;

use crate::args::Reach;
use crate::hosts::told::{self, Counts, Told};
use crate::hosts::{Conduct, Crew, typed};
use crate::{node, place, print, runtime, show};
use block::Error;
use fleet::pool::found::Found;
use fleet::pool::{PROFILE, Plan, Pool, Program, folder_there};
use fleet::{Failure, Host, Stop, crew};
use handed::Handed;
use indicatif::ProgressBar;
use load::Warmed;
use serde_json::json;
use speed::Speeds;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use store::Lent;

pub const EXAMPLES: &str = "\
A file of hosts is that of Open MPI, MPICH, Slurm or PBS, or has lines of our own (see `stoker hosts run --help`).

Examples:
  stoker up --hosts nodes --cache /nvme --lease 8h s3://imagenet/train /data/train
  stoker hosts run --hosts nodes -- python3 train.py /data/train
  stoker down --hosts nodes /data/train";

/// Port of members, unless another is given.
const PORT: u16 = 7865;

/// A shorter lease is over before anybody has begun; one that is renewed may be ended sooner.
const LEASE_MIN: Duration = Duration::from_mins(1);

/// A lease that is longer is none.
const LEASE_MAX: Duration = Duration::from_hours(365 * 24);

/// Clocks that are further apart are worth a word.
const SKEW_SAID_S: f64 = 2.0;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://namenode/path, or a folder that each host has
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
    /// How long the pool goes on without --renew: then each node unmounts and ends by itself
    #[arg(long, value_name = "TIME", value_parser = a_lease, default_value = "24h", allow_hyphen_values = true)]
    lease: Duration,
    /// Give a pool that is up another lease, and new keys
    #[arg(long)]
    renew: bool,
    /// Hand the nodes the credentials of this machine for the store; by default each host finds its own
    #[arg(long, conflicts_with = "anonymous")]
    send_credentials: bool,
    /// Bring the whole set into the caches before this ends
    #[arg(long)]
    load: bool,
    /// Mount as root there, by a `sudo` that asks nothing
    #[arg(long)]
    sudo: bool,
    // Last: what follows a group with a heading falls under it.
    #[command(flatten)]
    each: Each,
    #[command(flatten)]
    crew: Crew,
    #[command(flatten)]
    reach: Reach,
}

/// What `mount` takes, too.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Each node, as `mount` has it")]
struct Each {
    /// Anonymous memory that each node may use
    #[arg(long, value_name = "SIZE", value_parser = emulate::parse::size, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// When each node fetches the rest of its part in the background: auto, off or all
    #[arg(long, value_name = "WHEN", value_parser = ["auto", "off", "all"])]
    fill: Option<String>,
    /// How long a request to the store is repeated
    #[arg(long, value_name = "TIME", value_parser = crate::args::some_time, allow_hyphen_values = true)]
    patience: Option<Duration>,
    /// Keep the page cache of files that are never replaced
    #[arg(long)]
    immutable: bool,
}

pub fn binary(text: &str) -> Result<(String, PathBuf), Error> {
    let wrong = || Error::invalid("this names no program for an architecture", format!("`{text}`"));
    let pair = text.split_once('=').ok_or_else(|| wrong().hint("write it like aarch64=/opt/stoker-aarch64"))?;
    Ok((pair.0.to_owned(), pair.1.into()))
}

fn a_lease(text: &str) -> Result<Duration, Error> {
    let time = crate::args::some_time(text)?;
    let wrong =
        || Error::invalid("this is no lease", format!("`{text}`")).hint("write it like 90m or 24h, at most 8760h");
    if (Duration::from_secs(1)..=LEASE_MAX).contains(&time) { Ok(time) } else { Err(wrong()) }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.lease < LEASE_MIN && !args.renew {
        let error = Error::invalid("this lease is over before a job has begun", format!("--lease {:?}", args.lease));
        return Err(error.hint("give at least 1m").into());
    }
    let plan = plan(args)?;
    let mut conduct = Conduct::new(&args.crew)?;
    conduct.ssh.as_root = args.sudo;
    if args.renew {
        return renew::run(args, &plan, &conduct);
    }
    let bar = show::spinner("");
    let told = Told::new(args.crew.json, bar.clone(), Counts::Hosts, &conduct.stop);
    let pool = Pool { plan: &plan, hosts: &conduct.hosts, ssh: &conduct.ssh, sink: &told };
    let rising = Rising { pool, conduct: &conduct, bar: &bar, is_told: !args.crew.json };
    let handed = Handed::new(args.lease, args.lent()?)?;
    match rising.all(args, &handed) {
        Ok(up) => {
            bar.finish_and_clear();
            up.report(args, &conduct.hosts, &handed)?;
            Ok(ExitCode::from(up.warmed.map_or(0, |warmed| warmed.code)))
        }
        Err(failed) => {
            bar.finish_and_clear();
            let said = failed.report(&told, args.crew.json, conduct.hosts.len());
            rising.take_down(&failed.begun, &conduct.hosts);
            said?;
            Ok(if conduct.stop.is_wanted() { ExitCode::from(node::INTERRUPTED) } else { ExitCode::FAILURE })
        }
    }
}

impl Args {
    /// What is to be handed on of this machine's credentials, if anything is.
    fn lent(&self) -> anyhow::Result<Option<Lent>> {
        if !self.send_credentials {
            return Ok(None);
        }
        if !matches!(self.url.parse()?, store::Location::S3 { .. }) {
            let error = Error::invalid("credentials of AWS alone can be handed on", &self.url);
            return Err(error.hint("leave out --send-credentials: each host finds its own").into());
        }
        let Reach { endpoint, region, profile, anonymous } = place::reach(&self.reach, &self.url)?;
        let settings = daemon::reach::settings(endpoint, region, profile, anonymous, place::keys(), Default::default());
        Ok(Some(runtime()?.block_on(store::lend(&settings.s3))?))
    }

    fn say_credentials(&self, handed: &Handed) -> anyhow::Result<()> {
        let Some(lent) = handed.credentials.as_ref().filter(|_| !self.crew.json) else { return Ok(()) };
        match lent.ends {
            None => say!("handed over credentials that don't say when they end"),
            Some(end) => {
                let left = show::left(end as f64 - place::now());
                say!("handed over credentials that end in {left}: --renew --send-credentials hands over others")
            }
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
    Ok(Plan {
        dir: args.dir.clone(),
        cache: args.cache.clone(),
        port: args.port,
        is_plaintext: args.plaintext,
        token: place::token(),
        programs: programs(&args.binary)?,
    })
}

/// This program, and those that were named for hosts of other architectures; one that was named goes before our own.
pub fn programs(named: &[(String, PathBuf)]) -> Result<Vec<Program>, Error> {
    let ours = (std::env::consts::ARCH.to_owned(), PathBuf::from("/proc/self/exe"));
    let programs = std::iter::once(&ours).chain(named).map(|(arch, path)| Program::new(arch, path));
    let mut programs = programs.collect::<Result<Vec<_>, _>>().map_err(typed)?;
    programs.reverse();
    Ok(programs)
}

/// What `stoker mount` is told on each host.
fn words(args: &Args) -> block::Result<Vec<OsString>> {
    let handed = args.send_credentials.then_some(PROFILE);
    let mut words = reach_words(&args.reach, &args.url, handed)?;
    let bytes = |size: Option<u64>| size.map(|bytes| format!("{bytes}B"));
    let patience = args.each.patience.map(|time| format!("{}ms", time.as_millis()));
    let named = [
        ("--cache-size", &bytes(args.cache_size)),
        ("--memory", &bytes(args.each.memory)),
        ("--fill", &args.each.fill),
        ("--patience", &patience),
    ];
    for (name, value) in named {
        words.extend(value.iter().flat_map(|value| [name.into(), value.into()]));
    }
    words.extend(args.each.immutable.then(|| OsString::from("--immutable")));
    words.extend(["--".into(), (&args.url).into(), (&args.dir).into()]);
    Ok(words)
}

/// How a host reaches a store. Credentials are those that it finds for itself, unless it was handed a profile; the server is
/// that of the environment here, which hosts don't have.
pub fn reach_words(typed: &Reach, url: &str, handed: Option<&str>) -> block::Result<Vec<OsString>> {
    let Reach { region, profile, .. } = typed;
    let is_store = !matches!(url.parse(), Ok(store::Location::Folder(_)));
    let Reach { endpoint, anonymous, .. } = place::reach(typed, url)?;
    let endpoint = endpoint.filter(|_| is_store);
    let profile = handed.or(profile.as_deref());
    let named = [("--endpoint", endpoint.as_deref()), ("--region", region.as_deref()), ("--profile", profile)];
    let mut words: Vec<OsString> = Vec::new();
    for (name, value) in named {
        words.extend(value.iter().flat_map(|value| [name.into(), value.into()]));
    }
    words.extend(anonymous.then(|| OsString::from("--anonymous")));
    Ok(words)
}

/// A pool on its way up.
struct Rising<'a> {
    pool: Pool<'a>,
    conduct: &'a Conduct,
    bar: &'a ProgressBar,
    /// Each step is a line for people.
    is_told: bool,
}

/// What could not be brought up, at which step, and where something may be left of it.
struct Failed<'a> {
    step: String,
    failures: Vec<(&'a Host, Failure)>,
    begun: Vec<bool>,
}

/// What was found on the way.
struct Risen {
    found: Vec<Found>,
    speeds: Vec<Speeds>,
    /// What was loaded, if that was asked for.
    warmed: Option<Warmed>,
    /// A file that has the same content on all hosts.
    read: Option<String>,
}

impl<'a> Rising<'a> {
    fn all(&'a self, args: &Args, handed: &Handed) -> Result<Risen, Failed<'a>> {
        let (pool, stop, count) = (&self.pool, &self.conduct.stop, self.conduct.hosts.len());
        let is_cluster = count > 1;
        let here = |why: String| Failure::Here(why);
        let words = words(args).map_err(|error| here(error.to_string()));
        let credentials = handed.credentials().map_err(|error| here(error.to_string()));
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
        let has_keys = is_cluster && !pool.plan.is_plaintext;
        self.step("handing keys to", &begun, |host| {
            let mut files = credentials.clone()?;
            files.push(handed.lease());
            if has_keys {
                files.push(handed.trust());
                files.extend(handed.keys(pool.plan, host).map_err(|error| here(error.to_string()))?);
            }
            pool.hand_over(host, &files, true, stop)
        })?;
        self.step("mounting on", &begun, |host| {
            let taken = "give another --port: this one is taken there, or another node has it";
            let words = words.as_ref().map_err(Clone::clone)?;
            pool.start(host, words, stop).map_err(|failure| failure.advised("cannot listen for other members", taken))
        })?;
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
        let failed = |step: &str, host, failure| Failed {
            step: step.into(),
            failures: vec![(host, failure)],
            begun: begun.clone(),
        };
        let file =
            pool.some_file(first, stop).map_err(|failure| failed("looking for a file of the set", first, failure))?;
        if let Some(file) = &file {
            let sums = self.step("reading a file on", &begun, |host| pool.sum(host, file, stop))?;
            let other = sums.iter().position(|sum| *sum != sums[0]);
            if let Some(other) = other {
                let why =
                    format!("{} has another content there than on {}", String::from_utf8_lossy(file), first.label());
                return Err(failed("reading a file", &self.conduct.hosts[other], here(why)));
            }
        }
        let speeds = speed::measure(self, &begun)?;
        let warmed = args.load.then(|| load::load(self, &begun)).transpose()?;
        Ok(Risen { found, speeds, warmed, read: file.map(|file| String::from_utf8_lossy(&file).into_owned()) })
    }

    /// Do something on all hosts.
    fn step<T: Send>(
        &'a self,
        what: &str,
        begun: &[bool],
        work: impl Fn(&Host) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failed<'a>> {
        let hosts = &self.conduct.hosts;
        let step = format!("{what} {}", show::count_of(hosts.len() as u64, "host"));
        self.tell(&step);
        let done = crew::each(hosts, self.conduct.ssh.at_once, &self.conduct.stop, work);
        let (mut all, mut failures) = (Vec::new(), Vec::new());
        for (host, done) in hosts.iter().zip(done) {
            match done {
                Ok(done) => all.push(done),
                Err(failure) => failures.push((host, failure)),
            }
        }
        if failures.is_empty() { Ok(all) } else { Err(Failed { step, failures, begun: begun.to_vec() }) }
    }

    fn tell(&self, step: &str) {
        self.bar.set_message(step.to_owned());
        if self.is_told {
            self.bar.suspend(|| note!("{step}"));
        }
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
    fn report(&self, told: &Told, is_json: bool, of: usize) -> anyhow::Result<()> {
        note!("stoker: it did not get past this: {}", self.step);
        told::table(&self.failures.iter().map(|(host, failure)| (*host, failure)).collect::<Vec<_>>(), of);
        self.failures.iter().filter(|_| is_json).for_each(|(host, failure)| told.done(host, &Err(failure.clone())));
        told.over()
    }
}

impl Risen {
    fn report(&self, args: &Args, hosts: &[Host], handed: &Handed) -> anyhow::Result<()> {
        let far = hosts.iter().zip(&self.found).filter(|(_, found)| found.skew_s > SKEW_SAID_S);
        far.for_each(|(host, found)| note!("the clock of {} is {:.0} s away from here", host.label(), found.skew_s));
        let names: Vec<String> = hosts.iter().map(Host::label).collect();
        speed::slow(&names, &self.speeds).iter().for_each(|line| note!("{line}"));
        if args.crew.json {
            for ((host, found), speeds) in hosts.iter().zip(&self.found).zip(&self.speeds) {
                let mut object = json!({
                    "host": host.label(), "ok": true, "url": args.url, "path": args.dir, "arch": found.arch,
                    "cache_free_bytes": found.free_bytes, "clock_skew_seconds": found.skew_s, "program_was_there": found.has_program, "lease_ends_at": handed.ends,
                    "credentials_end_at": handed.credentials.as_ref().and_then(|lent| lent.ends),
                });
                object.as_object_mut().into_iter().for_each(|object| object.extend(speed::figures(speeds)));
                say!("{object}")?;
            }
            return self.warmed.iter().try_for_each(|warmed| say!("{}", json!({ "loaded": warmed.said })));
        }
        let free: u64 = self.found.iter().map(|found| found.free_bytes).sum();
        let (count, dir) = (show::count_of(hosts.len() as u64, "host"), args.dir.display());
        say!("mounted {} at {dir} on {count}, with {} free for their caches", args.url, show::bytes(free))?;
        if let Some(file) = &self.read {
            say!("read on all of them with the same content: {}", show::line(file))?;
        }
        print::out(format_args!("{}", speed::table(&names, &self.speeds)))?;
        self.warmed.iter().try_for_each(|warmed| say!("{}", warmed.summary()))?;
        args.say_credentials(handed)?;
        let left = show::left(handed.ends as f64 - place::now());
        say!("it goes on for {left}, and longer with the same words and --renew")?;
        let sudo = if args.sudo { "--sudo " } else { "" };
        let (hosts, dir) = (block::quoted(&args.crew.hosts), block::quoted(&args.dir));
        say!("to take it down: stoker down {sudo}--hosts {hosts} {dir}")
    }
}
