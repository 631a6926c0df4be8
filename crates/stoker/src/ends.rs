//! The signals that end a process, or are about its log.

use crate::node::INTERRUPTED;
use crate::show;
use block::Error;
use std::future::pending;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What is listened for from now on.
pub struct Ends {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    hangup: Option<Signal>,
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Terminate,
    Interrupt,
    /// The terminal was closed.
    Hangup,
}

impl Ends {
    pub fn new() -> Ends {
        let heard = |kind| signal(kind).ok();
        Ends {
            terminate: heard(SignalKind::terminate()),
            interrupt: heard(SignalKind::interrupt()),
            // Who started us with nohup(1) wants it ignored.
            hangup: if is_ignored(libc::SIGHUP) { None } else { heard(SignalKind::hangup()) },
        }
    }

    /// The next one.
    pub async fn next(&mut self) -> End {
        tokio::select! {
            () = heard(&mut self.terminate) => End::Terminate,
            () = heard(&mut self.interrupt) => End::Interrupt,
            () = heard(&mut self.hangup) => End::Hangup,
        }
    }
}

/// Told to end, say why nothing came of it, and end at once. For a command that leaves nothing half done.
pub fn exit_if_told(why: Error) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // From now on; the thread may take a moment to start.
    let mut ends = runtime.block_on(async { Ends::new() });
    let listening = std::thread::Builder::new().spawn(move || {
        runtime.block_on(ends.next());
        show::failure(&why.into());
        std::process::exit(INTERRUPTED.into());
    });
    listening?;
    Ok(())
}

/// The first signal asks for an end in order; a second one ends the program where it is, for work that hangs. `stop` asks
/// for it, and says whether that was done before.
pub fn stop_if_told(stop: impl Fn() -> bool + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut ends = runtime.block_on(async { Ends::new() });
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            runtime.block_on(ends.next());
            if stop() {
                std::process::exit(INTERRUPTED.into());
            }
        }
    })?;
    Ok(())
}

async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}

/// Have a file that may not grow (`ulimit -f`) be an error of whoever writes, and not the end of the process.
pub fn outlive_a_limit_of_files() {
    // SAFETY: ignoring a signal runs nothing of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether whoever started this process wants it not to hear a signal.
pub fn is_ignored(number: libc::c_int) -> bool {
    // SAFETY: an all-zero sigaction is a valid one, and the call only writes into it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}
