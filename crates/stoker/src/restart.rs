//! `stoker restart`: another process goes on with the mounts of a node, by this program.

use crate::mount::node_of;
use crate::{node, show};
use block::Error;
use client::Failure;
use client::messages::{Mount, Restart, Status};
use hyper::Method;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub const EXAMPLES: &str = "\
Examples:
  stoker restart /data/train      files stay open; all mounts of the same node go on
After an upgrade, the node goes on by the new program.";

/// How long another process may take to be there.
const THERE_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The mount point, or the cache folder
    pub dir: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (client, before, path) = node_of(&args.dir)?;
    let program = node::program()?.to_str().map(str::to_owned);
    match client.ask::<()>(Method::POST, "/v1/restart", &Restart { program }) {
        // It may have ended before it had answered.
        Ok(()) | Err(Failure::Gone | Failure::Broken(_)) => {}
        Err(refused) => return Err(show::refused(refused)),
    }
    let began = Instant::now();
    while began.elapsed() < THERE_WITHIN {
        let now = client.ask::<Status>(Method::GET, "/v1/status", &()).ok().filter(|now| now.pid != before.pid);
        if let Some(now) = now.filter(|now| now.coming.is_empty() || began.elapsed() + LOOK_EVERY >= THERE_WITHIN) {
            return all_go_on(&before, &now).map(|()| ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let error = Error::unavailable("no other process is there yet", path.display());
    Err(error.hint(format!("see the log of the node: {}", before.log.path)).into())
}

/// Refuse to call it done if a mount is missing that nobody unmounted meanwhile.
fn all_go_on(before: &Status, now: &Status) -> anyhow::Result<()> {
    if let Some(mount) = now.coming.first() {
        let error = Error::unavailable("a mount waits for its store, as those who read in it do", &mount.path);
        return Err(error.hint("see `stoker status`, and the log of the node").into());
    }
    let is_missing = |mount: &&Mount| !now.mounts.iter().any(|other| other.id == mount.id);
    match before.mounts.iter().filter(is_missing).find(|mount| ::mount::is_stale(Path::new(&mount.path))) {
        None => Ok(()),
        Some(mount) => {
            let error = Error::unavailable("a mount did not go on, and is dead", &mount.path);
            let path = block::quoted(Path::new(&mount.path));
            Err(error
                .hint(format!("see the log of the node: {}; stoker umount {path}, then mount again", now.log.path))
                .into())
        }
    }
}
