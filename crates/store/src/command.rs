//! Programs that hand out credentials, run to their end or to a limit, as whoever asks for these would run them.
//!
//! Invariants: nothing that one left in its process group outlives it, and none holds a thread meanwhile. What one says stays here:
//! it is no part of an error, and what it complains of is written down for debugging alone.

use crate::s3::answer::brief;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Error, ErrorKind, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// How often it is looked whether a program has ended: little beside the time that one takes to start.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Bytes that are read of what a program said. A token takes a few thousand.
const SAID_MAX: u64 = 1 << 20;

/// Whatever terminal a process has; none, no such file.
const TERMINAL: &str = "/dev/tty";

/// How names of variables begin by which credentials are found, beside HOME. A program has those of whoever asks, and none of
/// this process.
const FINDS: [&str; 3] = ["AWS_", "AZURE_", "IDENTITY_"];

/// A program that hands out credentials.
pub struct Program<'a> {
    pub name: &'a str,
    pub arguments: &'a [String],
    /// Those of whoever asks; the others are this process's.
    pub variables: &'a BTreeMap<String, String>,
    pub limit: Duration,
}

/// Why a program gave nothing.
#[derive(Debug)]
pub enum Failed {
    NotRun(String, Error),
    Late(String, Duration),
    Refused(String, ExitStatus),
}

impl Program<'_> {
    /// What it says, if it ends well.
    pub async fn said(&self) -> Result<Vec<u8>, Failed> {
        let mut command = Command::new(self.name);
        let finds = |name: &OsString| {
            name == "HOME" || FINDS.iter().any(|begin| name.as_encoded_bytes().starts_with(begin.as_bytes()))
        };
        for name in std::env::vars_os().map(|(name, _)| name).filter(finds) {
            command.env_remove(name);
        }
        command.args(self.arguments).envs(self.variables.iter().filter(|(_, value)| !value.is_empty()));
        // At a terminal it stays in our process group, so that it can ask for a password there; elsewhere all that it starts ends
        // with it.
        if File::open(TERMINAL).is_err() {
            command.process_group(0);
        }
        let done = output(command, self.limit).await.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => Failed::Late(self.name.into(), self.limit),
            _ => Failed::NotRun(self.name.into(), error),
        })?;
        if done.status.success() {
            return Ok(done.stdout);
        }
        let complaint = brief(&String::from_utf8_lossy(&done.stderr));
        tracing::debug!(program = self.name, status = %done.status, complaint, "a program handed out no credentials");
        Err(Failed::Refused(self.name.into(), done.status))
    }
}

impl Failed {
    /// Whether another try may do without anybody doing anything.
    pub fn passes(&self) -> bool {
        matches!(self, Failed::Late(..))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::NotRun(name, error) => write!(out, "can't run {name}: {error}"),
            Failed::Late(name, limit) => write!(out, "{name} did not end within {limit:?}"),
            Failed::Refused(name, status) => write!(out, "{name} failed ({status}); run it to see why"),
        }
    }
}

impl std::error::Error for Failed {}

/// What a program says until it ends. It hears nothing. If that takes too long, or nobody waits any more, it is killed. What it left
/// in a process group of its own is killed in any case.
async fn output(mut command: Command, limit: Duration) -> io::Result<Output> {
    // Files, which hold any amount: nobody has to read along, nor to wait for what the program left running.
    let (said, complained) = (file()?, file()?);
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(complained.try_clone()?);
    let (mut running, began) = (Running(Some(command.spawn()?)), Instant::now());
    loop {
        if let Some(status) = running.ended()? {
            return Ok(Output { status, stdout: text(said)?, stderr: text(complained)? });
        }
        if began.elapsed() >= limit {
            return Err(Error::new(ErrorKind::TimedOut, format!("it did not end within {limit:?}")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

struct Running(Option<Child>);

impl Running {
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(child) = self.0.as_mut() else { return Ok(None) };
        // Its number is nobody else's until its end is taken note of.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(Pid::from_child(child)), ended)?.is_none() {
            return Ok(None);
        }
        kill_group(child);
        let status = child.try_wait()?;
        self.0 = None;
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        kill_group(&child);
        let _ = child.kill();
        // One that waits for a disk is gone later.
        let _ = std::thread::Builder::new().name("reap".into()).spawn(move || child.wait());
    }
}

fn kill_group(leader: &Child) {
    // There is none of this number unless the program leads it.
    let _ = kill_process_group(Pid::from_child(leader), Signal::KILL);
}

fn file() -> io::Result<File> {
    Ok(memfd_create("said", MemfdFlags::CLOEXEC)?.into())
}

fn text(mut file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(SAID_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command
    }

    #[tokio::test]
    async fn a_program_is_heard_to_its_end_and_no_longer() {
        let limit = Duration::from_secs(60);
        let said = output(shell("sleep 300 & echo yes; echo no >&2; exit 3"), limit).await.expect("it ends");
        assert_eq!((said.status.code(), &*said.stdout, &*said.stderr), (Some(3), &b"yes\n"[..], &b"no\n"[..]));
        assert!(output(Command::new("/absent/program"), limit).await.is_err());
    }

    #[tokio::test]
    async fn a_program_that_hangs_or_is_not_waited_for_is_gone_with_all_that_it_started() {
        let folder = tempfile::tempdir().expect("a folder");
        for limit in [Duration::ZERO, Duration::from_millis(300), Duration::from_secs(60)] {
            let path = folder.path().join(format!("{limit:?}"));
            let wait = if limit.is_zero() { "" } else { "; wait" };
            let script = format!("sleep 300 & echo $$ $! > {0}.new; mv {0}.new {0}{wait}", path.display());
            let limit = if limit.is_zero() { Duration::from_secs(60) } else { limit };
            let running = tokio::time::timeout(Duration::from_secs(1), output(shell(&script), limit)).await;
            let is_late = |ended: io::Result<_>| ended.is_err_and(|error| error.kind() == ErrorKind::TimedOut);
            assert!(running.is_err() || running.is_ok_and(is_late) != wait.is_empty());
            let started = std::fs::read_to_string(&path).expect("it began");
            for process in started.split_whitespace() {
                let stat = || std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                let began = Instant::now();
                // Whoever inherits a process that was killed may take his time to bury it.
                while !stat().is_empty() && !stat().contains(") Z ") {
                    assert!(began.elapsed() < Duration::from_secs(20), "{}", stat());
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        }
    }
}
