//! Who holds what outlives a node: the process `stoker keep`, which a node starts, and starts again when it is gone.
//!
//! Invariant: a node that was started to go on with mounts takes what was handed to it before it opens anything.

use crate::{keep, node};
use daemon::Keeper;
use daemon::keeper::Named;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How long a keeper that says nothing is waited for where a descriptor is handed to it.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// Before another one is started, where one can't be.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What was handed to this process by whoever held it for the one before. Call it once, and first.
pub fn inherited() -> Named {
    let count = std::env::var("LISTEN_FDS").ok().and_then(|count| count.parse::<i32>().ok()).unwrap_or(0);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    // systemd says for which process they are; `stoker keep`, which can't, that they are from it.
    let is_for_us = match std::env::var("LISTEN_PID") {
        Ok(pid) => pid == std::process::id().to_string(),
        Err(_) => names.split(':').next() == Some(keep::SOCKET),
    };
    let count = if is_for_us { count.max(0) as usize } else { 0 };
    let names = names.split(':').take(count);
    let of_number = |(number, name): (i32, &str)| {
        // SAFETY: whoever started us says that these are open. If not, that is all that is found out here.
        rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).ok()?;
        // SAFETY: these numbers were handed to this process, which has opened nothing yet that could be one of them.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC).ok()?;
        Some((name.to_owned(), descriptor))
    };
    (keep::FIRST..).zip(names).filter_map(of_number).collect()
}

/// Have somebody hold what is to outlive this process from now on: who did so for the one before, if that is still there,
/// else somebody new.
pub fn begin(keeper: &Arc<Keeper>, left: Option<OwnedFd>) -> anyhow::Result<()> {
    keeper.lost("nobody is there yet");
    let there = left.map(UnixDatagram::from).and_then(|socket| {
        let pid = rustix::net::sockopt::socket_peercred(&socket).ok()?.pid;
        take(keeper, (socket, pidfd_open(pid, PidfdFlags::empty()).ok()?, pid)).ok()
    });
    let keeper = keeper.clone();
    let mut first = Some(there.map_or_else(|| start(&keeper), Ok)?);
    let looking = move || {
        loop {
            match first.take().map_or_else(|| start(&keeper), Ok) {
                Ok(process) => {
                    wait(&process);
                    keeper.lost("who held them is gone");
                }
                Err(error) => {
                    keeper.lost(error.to_string());
                    std::thread::sleep(AGAIN_AFTER);
                    continue;
                }
            }
            tracing::warn!("who holds the mounts of this node is gone; another takes its place");
        }
    };
    std::thread::Builder::new().name("stoker-keeper".into()).spawn(looking)?;
    Ok(())
}

/// Start a process that holds.
fn start(keeper: &Keeper) -> anyhow::Result<OwnedFd> {
    let (ours, theirs) = UnixDatagram::pair()?;
    let program = node::program()?;
    let mut command = Command::new(&program);
    command.args(["keep", "--node", &std::process::id().to_string(), "--"]).arg(program);
    command.args(std::env::args_os().skip(1).collect::<Vec<OsString>>());
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).current_dir("/");
    for name in ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", keep::FIRST_TRY] {
        command.env_remove(name);
    }
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into)) };
    let mut child = command.spawn()?;
    let pid =
        i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| anyhow::anyhow!("it has no number"))?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    std::thread::Builder::new().name("stoker-reap".into()).spawn(move || child.wait())?;
    let other = process.try_clone()?;
    take(keeper, (ours, process, pid)).inspect_err(|_| {
        // With half of it, it would start nodes that can't go on.
        let _ = pidfd_send_signal(&other, Signal::KILL);
    })
}

fn take(keeper: &Keeper, (socket, process, pid): (UnixDatagram, OwnedFd, Pid)) -> anyhow::Result<OwnedFd> {
    socket.set_write_timeout(Some(HEARD_WITHIN))?;
    let number = u32::try_from(pid.as_raw_nonzero().get())?;
    keeper.begin(socket, Some((number, process.try_clone()?)))?;
    Ok(process)
}

/// Wait for the end of a process.
fn wait(process: &OwnedFd) {
    let mut ended = libc::pollfd { fd: process.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor that is open, and the structure lives until the call returns.
    while unsafe { libc::poll(&mut ended, 1, -1) } < 1 {}
}
