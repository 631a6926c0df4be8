//! A folder served as S3, with a service's limits and faults: what the demo and the tests run against,
//! and what a user runs to try a storage choice before renting it. Not a store to keep things in.
//!
//! Layout:
//! - [`Server`]: start, counters, stop; `gate` is what each request passes, `reply` what each answer passes.
//! - [`Limits`], [`Faults`]: what the service grants and how it fails; pure, with `chance` and `parse`.
//! - [`Counters`]: what was asked and answered.
//! - `service`, `read`, `write`, `upload`, `copy`, `list`: the operations of S3 over the folder.
//! - `folder`, `draft`, `names`, `listing`, `body`: the folder itself, which knows nothing of HTTP.
//! - `keys`: how keys that no folder can hold are spelled on disk.
//!
//! Invariant: nothing outside the folder is read or written, whatever a client asks for.

mod body;
mod chance;
mod checksums;
mod chunked;
mod clock;
mod copy;
mod counters;
mod draft;
mod faults;
mod folder;
mod gate;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;
mod keys;
mod limits;
mod list;
mod listing;
mod metadata;
mod names;
pub mod parse;
mod pool;
mod read;
mod reply;
mod server;
mod service;
mod timer;
mod upload;
mod version;
mod write;

pub use counters::{Count, Counters, OPERATIONS, Operation};
pub use faults::{Fault, Faults, When};
pub use limits::{Latency, Limits, Throttle};
pub use server::Server;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// What is served, and how well.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder whose first-level folders are the buckets.
    pub folder: PathBuf,
    /// If given, the folder itself is the one bucket, of this name.
    pub bucket: Option<String>,
    /// Where to listen; a port of 0 is any free one.
    pub listen: SocketAddr,
    /// If given, requests must be signed with these; otherwise any signature is accepted unread.
    pub keys: Option<Keys>,
    pub limits: Limits,
    pub faults: Faults,
    /// Of latencies, and of where a body is spoiled; faults have their own.
    pub seed: u64,
    /// Called for each request when its answer begins.
    pub log: Option<Log>,
}

impl Settings {
    /// A folder served to this machine, without limits and faults.
    pub fn of(folder: impl Into<PathBuf>) -> Settings {
        Settings {
            folder: folder.into(),
            bucket: None,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            keys: None,
            limits: Limits::default(),
            faults: Faults::default(),
            seed: 0,
            log: None,
        }
    }
}

/// Whoever watches requests, one line each: method, address, status, time until the first byte.
#[derive(Clone)]
pub struct Log(pub Arc<dyn Fn(fmt::Arguments<'_>) + Send + Sync>);

impl fmt::Debug for Log {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Log")
    }
}

/// Credentials that clients must have.
#[derive(Clone)]
pub struct Keys {
    pub access: String,
    pub secret: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Keys({})", self.access)
    }
}
