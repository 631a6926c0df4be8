//! `stoker debug bundle`: what somebody needs to know who is to find out what is wrong, in one file that can be handed on.
//!
//! In its folder: `secrets` (what must not be in it). Invariants: nothing goes into the bundle but through
//! [`Secrets::cleaned`] or [`Secrets::clean`]; nobody but this user may read it.

mod secrets;

use crate::args::Reach;
use crate::{check, config, place, show, status};
use anyhow::Context;
use block::Error;
use secrets::Secrets;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
Examples:
  stoker debug bundle                                  into stoker-debug.tar
  stoker debug bundle --url s3://imagenet/train        and how this store answers, without reading from it

Texts are cleaned of what the environment and the files of profiles hold as secret, of passwords in URLs and of signatures.
Names of files, buckets and machines stay: look into it before you hand it on.";

/// Of the end of each log.
const LOG_BYTES: u64 = 2 << 20;

/// Logs that are taken at most.
const LOGS: usize = 16;

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
    /// Gather versions, status, a check, the configuration and the logs in a tar file, without secrets
    #[command(after_help = EXAMPLES)]
    Bundle(Args),
}

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where to; a file that is there is left alone
    #[arg(value_name = "FILE", default_value = "stoker-debug.tar")]
    file: PathBuf,
    /// A store that is to be checked too
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

pub fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let Command::Bundle(args) = command;
    args.url.as_ref().map(|url| url.parse::<store::Location>()).transpose()?;
    let file = new(&args.file)?;
    let bar = show::spinner("gathering");
    let written = Bundle::new(file).and_then(|bundle| bundle.gather(args, &bar));
    bar.finish_and_clear();
    let (files, bytes) = written.inspect_err(|_| drop(std::fs::remove_file(&args.file)))?;
    say!("{}: {}, {}", args.file.display(), show::count_of(files, "file"), show::bytes(bytes))?;
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
    fn new(file: File) -> anyhow::Result<Bundle> {
        let secrets = Secrets::of_machine();
        Ok(Bundle { tar: tar::Builder::new(file), secrets, now: place::now(), files: 0, bytes: 0 })
    }

    /// All of it; how many files and bytes that is.
    fn gather(mut self, args: &Args, bar: &indicatif::ProgressBar) -> anyhow::Result<(u64, u64)> {
        self.value("versions.json", versions(self.now))?;
        let values = config::values(&config::Args::of(&args.reach))?;
        self.value("config.json", json!({ "values": values }))?;
        bar.set_message("asking nodes");
        let asked = status::nodes(None);
        match &asked {
            Ok(nodes) => {
                let all: Vec<_> = nodes.found.iter().map(|(_, status)| status).collect();
                self.value("status.json", json!({ "nodes": all, "silent": nodes.silent }))?;
            }
            Err(error) => self.text("status.txt", &format!("{error}\n"))?,
        }
        let logs: Vec<(u32, String)> =
            asked.into_iter().flat_map(|nodes| nodes.found).map(|(_, status)| (status.pid, status.log.path)).collect();
        for (pid, log) in logs.into_iter().filter(|(_, log)| !log.is_empty()).take(LOGS) {
            let said = end(Path::new(&log)).unwrap_or_else(|error| format!("{log} can't be read: {error}\n"));
            self.text(&format!("logs/node-{pid}.log"), &said)?;
            for name in ["limits", "status"] {
                let said = beginning(Path::new(&format!("/proc/{pid}/{name}"))).unwrap_or_default();
                self.text(&format!("logs/node-{pid}.{name}"), &said)?;
            }
        }
        for (name, path) in TEXTS {
            self.text(name, &beginning(Path::new(path)).unwrap_or_default())?;
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let ours = mounts.lines().filter(|line| line.contains(" fuse")).map(|line| format!("{line}\n"));
        self.text("machine/mounts", &ours.collect::<String>())?;
        match check::look(&checked(args), bar, &mut |_| ()) {
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
        "commit": option_env!("STOKER_COMMIT"),
        "arch": std::env::consts::ARCH,
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "user": rustix::process::geteuid().as_raw(),
        "at": daemon::journal::stamp(now),
    })
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

/// The end of a log, from the beginning of a line on. Whatever takes the place of a log and is no file is not waited for.
fn end(path: &Path) -> std::io::Result<String> {
    let mut file = regular(path)?;
    let from = file.metadata()?.len().saturating_sub(LOG_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // Half a line may hold half a secret, which nobody would know again.
    let whole = if from == 0 { 0 } else { text.find('\n').map_or(text.len(), |at| at + 1) };
    Ok(text[whole..].to_owned())
}

fn beginning(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    regular(path)?.take(TEXT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn regular(path: &Path) -> std::io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::Error::other("it is no file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_end_is_taken_by_whole_lines() {
        let scratch = tempfile::tempdir().expect("a folder");
        let path = scratch.path().join("log");
        let lines: String =
            (0..100_000).map(|number| format!("{number:05} of a line of the log of a node\n")).collect();
        std::fs::write(&path, &lines).expect("written");
        let said = end(&path).expect("the end");
        assert!(said.len() as u64 <= LOG_BYTES && said.ends_with("99999 of a line of the log of a node\n"));
        assert!(said.lines().all(|line| line.len() == 38), "{}", said.lines().next().unwrap_or_default());
        assert!(end(scratch.path()).is_err());
    }
}
