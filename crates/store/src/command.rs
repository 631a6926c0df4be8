//! Programs that hand out credentials, run to their end or to a limit.
//!
//! Invariant: none is left behind by whoever waited for it, and none holds a thread meanwhile.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Error, ErrorKind, Read, Seek};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// How often it is looked whether a program has ended: little beside the time that one takes to start.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Bytes that are read of what a program said. A token takes a few thousand.
const SAID_MAX: u64 = 1 << 20;

/// What a program says until it ends. It hears nothing. If that takes too long, or nobody waits any more, it is killed; with
/// all that it started, if it was given a process group of its own.
pub async fn output(mut command: Command, limit: Duration) -> io::Result<Output> {
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
    fn ended(&mut self) -> io::Result<Option<std::process::ExitStatus>> {
        let status = self.0.as_mut().map(Child::try_wait).transpose()?.flatten();
        if status.is_some() {
            self.0 = None;
        }
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        // There is none of this number unless the program leads it.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.kill();
        // One that waits for a disk is gone later.
        let _ = std::thread::Builder::new().name("reap".into()).spawn(move || child.wait());
    }
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
    use std::os::unix::process::CommandExt;

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
        for limit in [Duration::from_millis(300), Duration::from_secs(60)] {
            let path = folder.path().join(format!("{limit:?}"));
            let script = format!("sleep 300 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", path.display());
            let running = tokio::time::timeout(Duration::from_secs(1), output(shell(&script), limit)).await;
            let is_late = |ended: io::Result<_>| ended.is_err_and(|error| error.kind() == ErrorKind::TimedOut);
            assert!(running.is_err() || running.is_ok_and(is_late));
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
