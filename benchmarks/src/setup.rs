//! `setup.md`: the machine, the tools and the commands of a run, as far as they can be asked for.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::campaign::Campaign;
use crate::dataset::Scale;
use crate::server::spelled;
use crate::target::first_line;

pub struct Facts<'a> {
    pub work: &'a Path,
    pub server_root: &'a Path,
    pub server_version: Option<String>,
}

/// Markdown. `arguments` is how this program was called.
pub fn describe(campaign: &Campaign, facts: &Facts, arguments: &[String]) -> String {
    let mut page = String::from("# Set-up\n\n");
    let record = &campaign.record;
    line(&mut page, "begun", asked("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
    line(&mut page, "called as", format!("`{}`", arguments.join(" ")));
    line(&mut page, "kernel", asked("uname", &["-sr"]));
    line(&mut page, "processors", processors());
    line(&mut page, "memory", first_of("/proc/meminfo", "MemTotal:"));
    line(&mut page, "load at the start", first_of("/proc/loadavg", ""));
    line(&mut page, "data and caches on", file_system(facts.work));
    line(&mut page, "the server's data on", file_system(facts.server_root));
    line(&mut page, "distribution", first_of("/etc/os-release", "PRETTY_NAME="));
    line(&mut page, "source", asked("git", &["log", "-1", "--format=%h %s"]));
    line(&mut page, "compiler", asked("rustc", &["--version"]));
    let version = facts.server_version.as_deref().unwrap_or("unknown version");
    line(&mut page, "server", format!("{version}: `{}`", campaign.server.command));
    line(&mut page, "data", set(record.settings.scale));
    line(&mut page, "rounds", record.settings.rounds.to_string());
    page.push_str("\n## Targets\n\n| target | version | daemon |\n|---|---|---|\n");
    for subject in &record.targets {
        let found = campaign.targets.iter().find(|(target, _)| target.name() == subject.name);
        let daemon = found.and_then(|(target, place)| target.daemon(place));
        let command = match (&subject.absent, daemon) {
            (Some(why), _) => format!("left out: {}", why.replace('\n', " ")),
            (None, Some(command)) => format!("`{}`", spelled(&command)),
            (None, None) => "none: the files are read where they lie".to_owned(),
        };
        let version = subject.version.as_deref().unwrap_or("not installed");
        let _ = writeln!(page, "| {} | {version} | {command} |", subject.name);
    }
    page.push_str(METHOD);
    page
}

const METHOD: &str = "
## Method

Rounds are outermost; within a round each workload goes over all targets, whose order turns by one
from round to round. For each: the cache is wiped, the kernel's caches are dropped (`sync`, then 3
to `drop_caches`), the daemon is started (cold); read again (kept); caches dropped (dropped); daemon
ended and started over its old cache, caches dropped (restart). Before each but the kept ones a
file of 2 GiB is written and deleted, for every target: the host of a virtual machine takes idle memory
away, and its return would be booked to whoever comes first. The server keeps its data in memory
and shares the processors. What each figure means: `benchmarks/README.md`.
";

fn line(page: &mut String, name: &str, value: String) {
    let _ = writeln!(page, "- {name}: {}", value.trim());
}

fn set(scale: Scale) -> String {
    let members = scale.members();
    let small: u64 = scale.small().iter().map(|member| member.size).sum();
    format!(
        "{} files, {:.2} GB in all: {} small ones ({:.0} MB), {} of {:.0} MB, one of {:.0} MB",
        members.len(),
        scale.bytes() as f64 / 1e9,
        scale.small().len(),
        small as f64 / 1e6,
        scale.large().len(),
        scale.large()[0].size as f64 / 1e6,
        scale.big().size as f64 / 1e6,
    )
}

fn asked(program: &str, arguments: &[&str]) -> String {
    first_line(Command::new(program).args(arguments)).unwrap_or_else(|| "unknown".to_owned())
}

fn first_of(path: &str, start: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(start));
    found.map_or_else(|| "unknown".to_owned(), |rest| rest.trim().trim_matches('"').to_owned())
}

fn processors() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown model", |rest| rest.trim_start_matches([' ', '\t', ':']));
    format!("{count} of {model}")
}

fn file_system(folder: &Path) -> String {
    let folder = folder.to_string_lossy();
    let text = asked_last("df", &["--output=fstype,size,avail", "-h", &folder]);
    format!("{folder} ({text})")
}

fn asked_last(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let words = text.lines().last().unwrap_or("unknown").split_whitespace();
    words.collect::<Vec<_>>().join(", ")
}
