//! `stoker debug bundle`: what somebody needs to know who is to find out what is wrong, in one file that can be handed on.
//!
//! In its folder: `secrets` (what must not be in it), `processes` and `logs` (what nodes left on this machine). Invariants: nothing
//! goes into the bundle but through [`Secrets::cleaned`] or [`Secrets::clean`]; nobody but this user may read it; a node, a store
//! or a disk that hangs keeps nothing else out of it.

mod logs;
mod processes;
mod secrets;

use crate::args::Reach;
use crate::ends::stop_if_told;
use crate::{check, config, place, show, status};
use anyhow::Context;
use block::Error;
use indicatif::ProgressBar;
use secrets::Secrets;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

pub const EXAMPLES: &str = "\
Examples:
  stoker debug bundle                             into stoker-debug-TIME.tar
  stoker debug bundle --url s3://imagenet/train   and how this store answers, without reading it

Texts are cleaned of what the environment of this command and of the nodes and the files of
profiles and keys hold as secret, of passwords in URLs, private keys and signatures. Names of files,
buckets and machines stay: look into it before you hand it on.";

/// How long logs, the configuration, and a look at the machine and a store may take each: nothing is measured.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

/// What every file of a machine that is taken has at most.
const TEXT_BYTES: u64 = 256 << 10;

/// Files of the kernel and the system that say what this machine is.
const TEXTS: [(&str, &str); 5] = [
    ("machine/os-release", "/etc/os-release"),
    ("machine/version", "/proc/version"),
    ("machine/limits", "/proc/self/limits"),
    ("machine/meminfo", "/proc/meminfo"),
    ("machine/cgroup", "/proc/self/cgroup"),
];

#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Gather versions, status, a check, the configuration, logs and where threads wait in a tar file, without secrets
    #[command(after_help = EXAMPLES)]
    Bundle(Args),
}

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where to, by default stoker-debug-TIME.tar; a file that is there is left alone
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// A store that is to be checked too
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let Command::Bundle(args) = command;
    args.url.as_ref().map(|url| url.parse::<store::Location>()).transpose()?;
    let path = args.file.clone().unwrap_or_else(|| {
        let now = daemon::journal::stamp(place::now());
        format!("stoker-debug-{}.tar", now.replace(['-', ':'], "").replace(' ', "T")).into()
    });
    let file = new(&path)?;
    let half = path.clone();
    stop_if_told(move || {
        check::fuse::stay_unmounted();
        drop(std::fs::remove_file(&half));
        true
    })?;
    let bar = show::spinner("gathering");
    let processes = processes::all();
    let written = Bundle::new(file, &processes).gather(args, &processes, &bar);
    bar.finish_and_clear();
    let (files, bytes) = written.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
    say!("{}: {}, {}", path.display(), show::count_of(files, "file"), show::bytes(bytes))?;
    say!("known secrets were removed; names of files, buckets and machines are in it: look before you hand it on")?;
    Ok(ExitCode::SUCCESS)
}

/// A file of this user's alone, which wasn't there.
fn new(path: &Path) -> Result<File, Error> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::invalid("there is something of this name already", path.display())
            .hint("name another file, or remove that one"),
        _ => Error::io("cannot make the file", path.display(), &error)
            .hint("name a file in a folder that you may write into"),
    })
}

struct Bundle {
    tar: tar::Builder<File>,
    secrets: Secrets,
    now: f64,
    files: u64,
    bytes: u64,
}

impl Bundle {
    fn new(file: File, processes: &[processes::Process]) -> Bundle {
        let environments = processes.iter().flat_map(|process| &process.environment);
        let secrets = Secrets::of_machine(environments);
        Bundle { tar: tar::Builder::new(file), secrets, now: place::now(), files: 0, bytes: 0 }
    }

    /// All of it; how many files and bytes that is. What may hang comes last.
    fn gather(
        mut self,
        args: &Args,
        processes: &[processes::Process],
        bar: &ProgressBar,
    ) -> anyhow::Result<(u64, u64)> {
        self.value("versions.json", versions(self.now))?;
        for (name, path) in TEXTS {
            self.text(name, &beginning(Path::new(path)).unwrap_or_default())?;
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let ours = mounts.lines().filter(|line| line.contains(" fuse")).map(|line| format!("{line}\n"));
        self.text("machine/mounts", &ours.collect::<String>())?;
        for process in processes {
            self.text(&format!("processes/{}.txt", process.pid), &process.text)?;
        }
        bar.set_message("asking nodes");
        let asked = status::nodes(None);
        let nodes = match asked {
            Ok(nodes) => {
                let all: Vec<_> = nodes.found.iter().map(|(_, status)| status).collect();
                self.value("status.json", json!({ "nodes": all, "silent": nodes.silent }))?;
                nodes.found
            }
            Err(error) => {
                self.text("status.txt", &format!("{error}\n"))?;
                Vec::new()
            }
        };
        let ends = move || Ok(logs::all(&nodes).iter().map(|log| (log.name.clone(), log.end())).collect::<Vec<_>>());
        match in_time("the logs", ends) {
            Ok(all) => all.iter().try_for_each(|(name, end)| self.text(&format!("logs/{name}"), end))?,
            Err(error) => self.text("logs.txt", &format!("{error}\n"))?,
        }
        let typed = config::Args::of(&args.reach);
        match in_time("the configuration", move || config::values(&typed)) {
            Ok(values) => self.value("config.json", json!({ "values": values }))?,
            Err(error) => self.text("config.txt", &format!("{error}\n"))?,
        }
        bar.set_message("looking at this machine");
        let checked = checked(args);
        match in_time("the check", move || check::look(&checked, &ProgressBar::hidden(), &mut |_| ())) {
            Ok(found) => self.value("check.json", serde_json::to_value(found)?)?,
            Err(error) => self.text("check.txt", &format!("{error}\n"))?,
        }
        self.tar.into_inner().and_then(|mut file| file.flush()).context("writing the bundle")?;
        Ok((self.files, self.bytes))
    }

    fn value(&mut self, name: &str, mut value: Value) -> anyhow::Result<()> {
        self.secrets.clean(&mut value);
        let text = format!("{}\n", serde_json::to_string_pretty(&value)?);
        self.add(name, &text)
    }

    fn text(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let clean = self.secrets.cleaned(text);
        self.add(name, &clean)
    }

    /// What is clean.
    fn add(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.now as u64);
        let path = format!("stoker-debug/{name}");
        self.tar.append_data(&mut header, path, text.as_bytes()).context("writing the bundle")?;
        self.files += 1;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

fn versions(now: f64) -> Value {
    json!({
        "stoker": env!("CARGO_PKG_VERSION"),
        "program_crc64": std::fs::read("/proc/self/exe").ok().map(|program| format!("{:016x}", block::crc64::of(&program))),
        "commit": option_env!("STOKER_COMMIT"),
        "arch": std::env::consts::ARCH,
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "user": rustix::process::geteuid().as_raw(),
        "at": daemon::journal::stamp(now),
    })
}

/// What is found out on a thread of its own: a disk that hangs can't be waited for.
fn in_time<T: Send + 'static>(
    what: &str,
    look: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let (sender, found) = mpsc::sync_channel(1);
    let look = move || drop(sender.send(look()));
    std::thread::Builder::new().name("look".into()).spawn(look)?;
    let late = || anyhow::anyhow!("{what} was not had within {} s", FOUND_WITHIN.as_secs());
    found.recv_timeout(FOUND_WITHIN).unwrap_or_else(|_| Err(late()))
}

/// A look at the machine and at a store that moves no bytes.
fn checked(args: &Args) -> check::Args {
    check::Args {
        url: args.url.clone(),
        cache: place::variable("STOKER_CACHE").filter(|set| !set.is_empty()).map(PathBuf::from),
        quick: true,
        json: true,
        hosts: None,
        ssh_config: None,
        sudo: false,
        binary: Vec::new(),
        reach: args.reach.clone(),
    }
}

fn beginning(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    regular(path)?.take(TEXT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What is a file, and nothing that would be waited for in its place.
fn regular(path: &Path) -> std::io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::Error::other("it is no file")) }
}
