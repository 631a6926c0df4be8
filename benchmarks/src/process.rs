//! Child processes that never outlive this one, and what the kernel says of them.
//!
//! Everything here is addressed by process number; nothing is ever ended by name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::interrupt;

const POLL: Duration = Duration::from_millis(5);
/// A daemon that was asked to end gets this long before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Levels of descendants looked for; a mount program has at most a helper or two.
const DEPTH_MAX: usize = 4;

/// A program that runs beside the measurement: a server or the daemon of a mount.
pub struct Daemon {
    child: Child,
    name: String,
}

impl Daemon {
    /// Starts it with its output in `log`. It gets no signal of the terminal, so that it is
    /// unmounted before it ends.
    pub fn start(mut command: Command, log: &Path) -> Result<Daemon> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        ends_with_us(&mut command);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Daemon { child, name })
    }

    /// Its number and those of its descendants.
    pub fn pids(&self) -> Vec<u32> {
        descendants(self.child.id())
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it has ended by itself; false when it has not.
    pub fn wait(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < limit {
            if self.ended().is_some() {
                return true;
            }
            std::thread::sleep(POLL);
        }
        false
    }

    pub fn stop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if !self.wait(PATIENCE) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a command to its end and gives what it printed. Ended when it takes too long or when the
/// user interrupts. The output goes through a file: a full pipe can't block it.
pub fn run(command: &mut Command, output: &Path, limit: Duration) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let errors = output.with_extension("errors");
    ends_with_us(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(File::create(output).with_context(|| format!("creating {}", output.display()))?)
        .stderr(File::create(&errors)?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let late = start.elapsed() > limit;
        if late || interrupt::asked() {
            // Not waited for: a reader that hangs in a dead mount ends only with the mount.
            let _ = child.kill();
            interrupt::check()?;
            bail!("{name} took longer than {} s", limit.as_secs());
        }
        std::thread::sleep(POLL);
    };
    let said = fs::read_to_string(output).unwrap_or_default();
    if !status.success() {
        let complaint = fs::read_to_string(&errors).unwrap_or_default();
        bail!("{name}: {status}: {} {}", complaint.trim(), said.trim());
    }
    Ok(said)
}

/// Killed when this process ends without having ended it: asked politely, a file system may wait for
/// its readers for ever. The dead mount is detached by the next run.
fn ends_with_us(command: &mut Command) {
    // SAFETY: prctl is a plain system call and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// CPU seconds, user and system, of these processes and of their children that have ended.
pub fn cpu_seconds(pids: &[u32]) -> f64 {
    let ticks: u64 = pids.iter().filter_map(|pid| ticks_of(*pid)).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Memory of these processes together, from /proc/PID/status, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Anonymous pages now: what the memory budget of a daemon is about.
    pub anonymous: u64,
    /// Highest resident size since it was last reset, mapped files included.
    pub peak: u64,
}

pub fn memory(pids: &[u32]) -> Memory {
    let mut sum = Memory::default();
    for pid in pids {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        sum.anonymous += kilobytes(&text, "RssAnon:") << 10;
        sum.peak += kilobytes(&text, "VmHWM:") << 10;
    }
    sum
}

/// Starts the count of the highest resident size anew.
pub fn forget_peak(pids: &[u32]) {
    for pid in pids {
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }
}

fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && let Some(parent) = stat_field(pid, 4)
        {
            children.entry(parent as u32).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut level = vec![root];
    for _ in 0..DEPTH_MAX {
        level = level.iter().filter_map(|pid| children.get(pid)).flatten().copied().collect();
        found.extend(&level);
    }
    found
}

fn ticks_of(pid: u32) -> Option<u64> {
    // Own user and system time, then those of children that were waited for.
    (14..=17).map(|field| stat_field(pid, field)).sum()
}

/// A field of /proc/PID/stat, counted from one as in its manual page.
fn stat_field(pid: u32, field: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets and may hold blanks.
    let rest = &text[text.rfind(')')? + 2..];
    rest.split(' ').nth(field - 3)?.trim().parse().ok()
}

fn kilobytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_time_and_memory_are_found() {
        let own = [std::process::id()];
        assert!(memory(&own).anonymous > 0);
        assert!(memory(&own).peak >= memory(&own).anonymous);
        assert!(cpu_seconds(&own) >= 0.0);
        assert!(descendants(own[0]).contains(&own[0]));
    }

    #[test]
    fn a_command_that_takes_too_long_is_ended() {
        let output = std::env::temp_dir().join(format!("stoker-late-{}", std::process::id()));
        let start = Instant::now();
        let error = run(Command::new("sleep").arg("20"), &output, Duration::from_millis(50));
        assert!(error.unwrap_err().to_string().contains("took longer"));
        assert!(start.elapsed() < Duration::from_secs(10));
        let _ = fs::remove_file(&output);
        let _ = fs::remove_file(output.with_extension("errors"));
    }
}
