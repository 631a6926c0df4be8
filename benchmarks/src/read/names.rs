//! Reading names and attributes: `find` and `ls -lR` as they are, and stat from many threads.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::AtFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::files::Named;
use super::{Counts, Order, Outcome, Took, open_folder, together};
use crate::dataset::{mixed, shuffle};

pub fn stat(order: &Order) -> Result<Outcome> {
    let root = open_folder(&order.root)?;
    let passes = order.workload.passes(order.phase);
    let mut files = Named::all(order.scale.small());
    shuffle(&mut files, mixed(order.seed, 0));
    let next = AtomicUsize::new(0);
    let (tally, took) = together(order.workload.threads(), 0, |_, _| {
        let mut tally = Counts::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= files.len() * passes as usize {
                return tally;
            }
            let file = &files[index % files.len()];
            let (path, member) = (file.path.as_c_str(), &file.member);
            match rustix::fs::statat(&root, path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if found.st_size as u64 == member.size => tally.items += 1,
                Ok(found) => tally.error(&member.name, &format!("size {}", found.st_size)),
                Err(error) => tally.error(&member.name, &format!("stat: {error}")),
            }
        }
    });
    Ok(tally.outcome(took, passes))
}

pub fn find(order: &Order) -> Result<Outcome> {
    let expected = order.scale.small().len() as u64 + u64::from(order.scale.directories()) + 1;
    command(order, "find", &["small"], expected, |_| true)
}

pub fn list(order: &Order) -> Result<Outcome> {
    let expected = order.scale.small().len() as u64;
    command(order, "ls", &["-lR", "small"], expected, |line| line.starts_with('-'))
}

/// Runs a program below the root. What it prints is counted after the clock has stopped.
fn command(
    order: &Order,
    program: &str,
    arguments: &[&str],
    expected: u64,
    counts: impl Fn(&str) -> bool,
) -> Result<Outcome> {
    let passes = order.workload.passes(order.phase);
    let printed = std::env::temp_dir().join(format!("stoker-benchmarks-{}", std::process::id()));
    let mut tally = Counts::default();
    let mut sum = Took { wall: Duration::ZERO, cpu: Duration::ZERO };
    for _ in 0..passes {
        let output = File::create(&printed).context("a place for the output")?;
        let start = Instant::now();
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(&order.root)
            .env("LC_ALL", "C")
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        sum.cpu += ended(&child)?;
        sum.wall += start.elapsed();
        let status = child.wait()?;
        if !status.success() {
            tally.error(program, &status.to_string());
        }
        let lines = BufReader::new(File::open(&printed)?).lines().map_while(Result::ok);
        let found = lines.filter(|line| counts(line)).count() as u64;
        if found != expected {
            tally.error(program, &format!("{found} names instead of {expected}"));
        }
        tally.items += found;
    }
    fs::remove_file(&printed)?;
    Ok(tally.outcome(sum, passes))
}

/// Waits for the end and takes the CPU time while the process can still be looked at: the
/// scheduler's own count has nanoseconds, the usual one steps of ten milliseconds.
fn ended(child: &Child) -> Result<Duration> {
    let pid = Pid::from_child(child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let path = format!("/proc/{}/schedstat", child.id());
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Ok(Duration::from_nanos(nanoseconds.with_context(|| format!("{path} has no number"))?))
}
