//! Many machines at once, by the system's `ssh`: which they are, a command on each of them, files to them and from them.
//!
//! Layout: `host` (one machine), `roster` (from host files to hosts), `quote` (words for a remote shell), `ssh` (how
//! `ssh` is called), `session` (one connection), `lines` (what it says), `crew` (many hosts at once, and their end),
//! `failure` (why a host failed), `run` (a command), `bundle` and `copy` (files to hosts), `gather` and `receive` (files from
//! hosts), `pool` (nodes on hosts, for as long as a job needs them).
//!
//! It knows nothing of what a node does, reads no environment, prints nothing, and speaks no protocol of its own: keys,
//! configuration and known hosts are those of `ssh`.
//! Invariant: nothing that a file or a user names can become an option of `ssh` or a word of a shell.

pub mod bundle;
pub mod copy;
pub mod crew;
pub mod failure;
pub mod gather;
pub mod host;
mod lines;
pub mod pool;
pub mod quote;
mod receive;
pub mod roster;
pub mod run;
pub mod session;
pub mod ssh;

pub use crew::Stop;
pub use failure::{Failure, Wrong};
pub use host::Host;
pub use ssh::Ssh;

/// Which of its two outputs a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Whoever is told what happens. Called from several threads.
pub trait Sink: Sync {
    /// A host said a line, given without its end; the last one may have had none.
    fn line(&self, host: &Host, stream: Stream, line: &[u8]);

    /// So many bytes of files went over a connection.
    fn moved(&self, bytes: u64);
}
