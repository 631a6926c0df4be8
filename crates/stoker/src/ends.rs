//! The signals that end a process, or are about its log.

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

async fn heard(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}

fn is_ignored(number: libc::c_int) -> bool {
    // SAFETY: an all-zero sigaction is a valid one, and the call only writes into it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}
