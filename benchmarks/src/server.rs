//! The S3 server that all targets read from, with its data in memory (tmpfs).

mod emulate;
mod versitygw;

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::dataset::wipe;
use crate::interrupt;
use crate::process::{self, Daemon};

pub const ACCESS_KEY: &str = "benchmark";
pub const SECRET_KEY: &str = "benchmark-secret";
pub const REGION: &str = "us-east-1";
pub const BUCKET: &str = "training";
/// For a target that can't serve a bucket as it is and needs one of its own. Empty at the start of a run.
pub const OWN_BUCKET: &str = "training-copy";

const START_LIMIT: Duration = Duration::from_secs(20);

/// Requests by kind (GET, HEAD, LIST, ...) and `bytes`, since the server's start.
pub type Counters = BTreeMap<String, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `stoker emulate`: counts requests and bytes itself; takes limits and faults.
    Emulate,
    /// versitygw over a plain folder: no one here wrote it. Its log counts requests, not bytes.
    Versitygw,
}

/// What a server is started from.
pub struct Plan {
    pub kind: Kind,
    /// The program `stoker`, for `Kind::Emulate`.
    pub stoker: PathBuf,
    /// Its folders are the buckets.
    pub root: PathBuf,
    pub logs: PathBuf,
    /// Added to the command line, for example `--latency=20ms`.
    pub extra: Vec<String>,
}

pub struct Server {
    daemon: Daemon,
    kind: Kind,
    address: String,
    access_log: versitygw::AccessLog,
    pub command: String,
}

impl Server {
    pub fn start(plan: &Plan) -> Result<Server> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let log = plan.logs.join("server-access.log");
        wipe(&plan.root.join(OWN_BUCKET))?;
        let mut command = match plan.kind {
            Kind::Emulate => emulate::command(&plan.stoker, &plan.root, &address),
            Kind::Versitygw => versitygw::command(&plan.root, &address, &log)?,
        };
        command.args(&plan.extra);
        local(&mut command);
        let line = spelled(&command);
        let daemon = Daemon::start(command, &plan.logs.join("server.log"))
            .context("the server; build it with `make build` or choose another with --server")?;
        let access_log = versitygw::AccessLog::new(log);
        let mut server = Server { daemon, kind: plan.kind, address, access_log, command: line };
        server.wait_ready(&plan.logs)?;
        Ok(server)
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn cpu_seconds(&self) -> f64 {
        process::cpu_seconds(&self.daemon.pids())
    }

    pub fn counters(&mut self) -> Result<Counters> {
        match self.kind {
            Kind::Emulate => emulate::counters(&self.address),
            Kind::Versitygw => self.access_log.counters(),
        }
    }

    fn wait_ready(&mut self, logs: &Path) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(&self.address).is_err() {
            interrupt::check()?;
            let log = logs.join("server.log");
            if let Some(status) = self.daemon.ended() {
                bail!("the server {} ended ({status}), see {}", self.command, log.display());
            }
            if start.elapsed() > START_LIMIT {
                bail!("the server {} does not listen, see {}", self.command, log.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Kind {
    pub fn version(self, stoker: &Path) -> Option<String> {
        match self {
            Kind::Emulate => crate::target::first_line(Command::new(stoker).arg("--version")),
            Kind::Versitygw => versitygw::version(),
        }
    }
}

/// Credentials for the clients, and no proxy or certificate bundle of the machine's own: all of
/// this stays on the loopback interface.
pub fn local(command: &mut Command) {
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"] {
        command.env_remove(name);
    }
    for name in ["AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"] {
        command.env_remove(name);
    }
    command
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("AWS_REGION", REGION)
        .env("AWS_DEFAULT_REGION", REGION)
        .env("AWS_EC2_METADATA_DISABLED", "true");
}

/// A command as one would type it, for the record.
pub fn spelled(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The difference of two counts, without what did not change.
pub fn counted(before: &Counters, after: &Counters) -> Counters {
    let delta =
        |(name, value): (&String, &u64)| (name.clone(), value - before.get(name).copied().unwrap_or(0).min(*value));
    after.iter().map(delta).filter(|(_, value)| *value > 0).collect()
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
