//! The life of a mount: started, waited for, ended, and put away on every path.
//!
//! This process never touches a file below a mount point: a daemon that hangs would take it along.
//! It looks at the kernel's list of mounts instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::UnmountFlags;

use crate::interrupt;
use crate::process::{self, Daemon};
use crate::server;
use crate::target::{Paths, Target};

/// A listing of 10,000 names by a slow client lies well below it.
const START_LIMIT: Duration = Duration::from_secs(60);
const UNMOUNT_LIMIT: Duration = Duration::from_secs(10);
/// A file system may be called busy for a moment after its last file was closed.
const UNMOUNT_TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// How long a daemon may take to end once its mount is gone.
const END_LIMIT: Duration = Duration::from_secs(30);

pub struct Mounted {
    root: PathBuf,
    /// None for a local folder.
    daemon: Option<(Daemon, Ending)>,
    /// From the start of the daemon until the kernel lists the mount.
    pub seconds: f64,
}

struct Ending {
    mountpoint: PathBuf,
    command: Command,
    said: PathBuf,
}

impl Mounted {
    pub fn start(target: &dyn Target, place: &Paths) -> Result<Mounted> {
        let Some(mut command) = target.daemon(place) else {
            return Ok(Mounted { root: place.data.clone(), daemon: None, seconds: 0.0 });
        };
        server::local(&mut command);
        for folder in [&place.mountpoint, &place.cache] {
            fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        let log = place.logs.join(format!("{}.log", target.name()));
        let start = Instant::now();
        let mut ending = Ending {
            mountpoint: place.mountpoint.clone(),
            command: target.unmount(place),
            said: place.logs.join("unmount.out"),
        };
        server::local(&mut ending.command);
        let daemon = Daemon::start(command, &log)?;
        let mut mounted = Mounted { root: place.mountpoint.clone(), daemon: Some((daemon, ending)), seconds: 0.0 };
        mounted.wait_ready(&log, start)?;
        mounted.seconds = start.elapsed().as_secs_f64();
        Ok(mounted)
    }

    /// The folder to read below.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn pids(&self) -> Vec<u32> {
        self.daemon.as_ref().map(|(daemon, _)| daemon.pids()).unwrap_or_default()
    }

    /// Unmounts and waits for the daemon to end by itself, as a user would have it.
    pub fn end(mut self) -> Result<()> {
        let Some((mut daemon, mut ending)) = self.daemon.take() else { return Ok(()) };
        let unmounted = ending.unmount();
        if unmounted.is_err() {
            ending.detach();
        }
        let ended = daemon.wait(END_LIMIT);
        daemon.stop();
        unmounted?;
        if !ended {
            bail!("{} did not end after its unmount and was killed", daemon.name());
        }
        Ok(())
    }

    fn wait_ready(&mut self, log: &Path, start: Instant) -> Result<()> {
        let (daemon, ending) = self.daemon.as_mut().expect("only a daemon is waited for");
        while !listed(&ending.mountpoint) {
            interrupt::check()?;
            if let Some(status) = daemon.ended() {
                let said = fs::read_to_string(log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(3).collect();
                bail!("{} ended before it mounted ({status}): {}", daemon.name(), last.join(" / "));
            }
            if start.elapsed() > START_LIMIT {
                bail!("{} does not mount, see {}", daemon.name(), log.display());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Mounted {
    /// After an error: the mount is taken out of sight first, so that nothing waits for it.
    fn drop(&mut self) {
        if let Some((mut daemon, ending)) = self.daemon.take() {
            ending.detach();
            daemon.stop();
        }
    }
}

impl Ending {
    fn unmount(&mut self) -> Result<()> {
        for attempt in 1.. {
            match process::run(&mut self.command, &self.said, UNMOUNT_LIMIT) {
                Ok(_) => break,
                Err(_) if !listed(&self.mountpoint) => break,
                Err(error) if attempt == UNMOUNT_TRIES => return Err(error),
                Err(error) => {
                    if interrupt::asked() {
                        return Err(error);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
        Ok(())
    }

    fn detach(&self) {
        if listed(&self.mountpoint) {
            let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
        }
    }
}

/// Puts away what an earlier run left below `folder`, which is ours alone.
pub fn detach_all_below(folder: &Path) -> Result<()> {
    for mountpoint in mountpoints()?.into_iter().rev() {
        if mountpoint.starts_with(folder) {
            rustix::mount::unmount(&mountpoint, UnmountFlags::DETACH)
                .with_context(|| format!("detaching {}", mountpoint.display()))?;
        }
    }
    Ok(())
}

fn listed(mountpoint: &Path) -> bool {
    mountpoints().is_ok_and(|all| all.iter().any(|one| one == mountpoint))
}

fn mountpoints() -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("reading the list of mounts")?;
    Ok(text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect())
}
