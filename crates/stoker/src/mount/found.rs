//! Which node serves a path, for the commands that ask it.

use super::{GOES_ON_WITHIN, JOIN_PAUSE};
use crate::{place, show};
use block::{Error, Kind};
use client::messages::Status;
use client::{Client, Failure};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node is looked for that serves a mount of this user's which is there: as long as one that holds it waits for it.
const LOOKED_FOR_WITHIN: Duration = GOES_ON_WITHIN;

/// Processes that may end while they are asked for the same.
const TRIES_TO_BE_ANSWERED: u32 = 5;

/// Ask the node that serves a path for something that may be asked for again: where it ends meanwhile and another process goes on with
/// its mounts, that one is asked.
pub fn ask_of<T>(path: &Path, mut ask: impl FnMut(&Client, &Path) -> Result<T, Failure>) -> anyhow::Result<T> {
    ask_found(path, |(client, _, at)| ask(client, at))
}

/// The same with how the node is.
pub fn ask_found<T>(path: &Path, mut ask: impl FnMut(&mut Found) -> Result<T, Failure>) -> anyhow::Result<T> {
    let mut found = node_of(path)?;
    for _ in 0..TRIES_TO_BE_ANSWERED {
        match ask(&mut found) {
            Err(Failure::Gone | Failure::Absent | Failure::Broken(_)) => std::thread::sleep(JOIN_PAUSE.1),
            done => return done.map_err(show::refused),
        }
        let Ok(next) = node_of(path) else { break };
        found = next;
    }
    Err(show::refused(Failure::Gone))
}

/// A node, how it is, and a path as it knows it.
pub type Found = (Client, Status, PathBuf);

/// The node that serves a path, and the path as the node knows it: below a folder that was bound elsewhere it has another. A mount whose
/// node is gone may be about to be gone on with.
pub fn node_of(path: &Path) -> anyhow::Result<Found> {
    node_within(path, LOOKED_FOR_WITHIN)
}

/// The same, looked for as long as this.
pub fn node_within(path: &Path, limit: Duration) -> anyhow::Result<Found> {
    let path = typed(path)?;
    let began = std::time::Instant::now();
    loop {
        let (known, mut failed) = (mount::known_as(&path), None);
        for one in &known {
            match look_for(one) {
                Ok(found) => return Ok(found),
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        let Some(error) = failed else { return Err(nothing_at(&path, &[])) };
        if began.elapsed() > limit || !is_our_mount(&path) || mount::dead_above(&path).is_some() {
            return Err(error);
        }
        std::thread::sleep(JOIN_PAUSE.1);
    }
}

/// A path as the system's table of mounts has it.
pub fn typed(path: &Path) -> anyhow::Result<PathBuf> {
    let path = place::absolute(path)?;
    Ok(mount::named(&path).unwrap_or(path))
}

/// Whether the mount that a path lies in, if any, is one whose node would answer.
fn is_our_mount(path: &Path) -> bool {
    let user = rustix::process::geteuid();
    let at = path.ancestors().find(|above| mount::is_mounted(above));
    at.is_some_and(|at| user.is_root() || mount::user_at(at) == Some(user.as_raw()))
}

fn look_for(known: &mount::Known) -> anyhow::Result<Found> {
    let path = known.path.clone();
    let (mut silent, mut found) = (Vec::new(), None);
    place::survey(&mut |(client, status)| {
        match status {
            Ok(status) if serves(&client, &status, known) => found = Some((client, status)),
            Err(Failure::Silent) => silent.push(client.socket().display().to_string()),
            _ => {}
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some((client, status)) = found {
        return Ok((client, status, path));
    }
    if let Some(dead) = Some(&path).filter(|_| silent.is_empty()).and_then(|path| mount::dead_above(path)) {
        return Err(died(&dead));
    }
    Err(nothing_at(&path, &silent))
}

fn nothing_at(path: &Path, silent: &[String]) -> anyhow::Error {
    let part = path.ancestors().find(|above| mount::is_left_part(above));
    if let Some(part) = part.filter(|_| silent.is_empty()) {
        let error =
            Error::missing("a part of a mount is bound there, and the whole of it is not mounted here", part.display());
        return error.hint(format!("`stoker umount {}` takes it away, if nobody needs it", block::quoted(part))).into();
    }
    let what = match silent.is_empty() {
        true => "nothing is mounted there by a node of this user".into(),
        false => format!("nothing is mounted there by a node that answers; none came from {}", silent.join(", ")),
    };
    let error = Error::new(Kind::Missing, what, path.display());
    let hint = match rustix::process::geteuid().is_root() {
        true => "see `stoker status` for what is mounted",
        false => "see `stoker status` for what is mounted, and `sudo stoker status` for what other users mounted",
    };
    error.hint(hint).into()
}

/// A node that was killed leaves its mounts.
fn died(mount_point: &Path) -> anyhow::Error {
    let hint = format!("stoker umount {}; or mount again", block::quoted(mount_point));
    Error::unavailable("the node of this mount is dead", mount_point.display()).hint(hint).into()
}

/// Whether a node serves a path. What the node of another user says of itself is believed as far as the system says
/// the same: whose the mount is, and whose the cache folder.
fn serves(client: &Client, status: &Status, known: &mount::Known) -> bool {
    use std::os::unix::fs::MetadataExt;
    let path = &*known.path;
    let is_own = client.user() == rustix::process::geteuid().as_raw();
    if Path::new(&status.cache) == path {
        return is_own || std::fs::metadata(path).is_ok_and(|found| found.uid() == client.user());
    }
    let there = status.mounts.iter().filter(|mount| !mount.detached).map(|mount| &mount.path);
    let mut mounts = there.chain(status.coming.iter().map(|mount| &mount.path)).map(Path::new);
    mounts.any(|at| known.is_in(at) && (is_own || mount::user_at(at) == Some(client.user())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_of_another_user_claims_is_not_believed() {
        let mounts = vec![client::messages::Mount { path: "/proc".into(), ..Default::default() }];
        let status = Status { mounts, cache: "/".into(), ..Status::default() };
        let own = rustix::process::geteuid().as_raw();
        for path in ["/proc/self", "/"].map(PathBuf::from) {
            let known = mount::Known { path, of: None };
            assert!(serves(&Client::new("/socket", own), &status, &known));
            assert!(!serves(&Client::new("/socket", own + 1), &status, &known));
        }
        let lies_in = |of: &str| mount::Known { path: "/proc/self".into(), of: Some(of.into()) };
        let is_served = |of| serves(&Client::new("/socket", own), &status, &lies_in(of));
        assert_eq!((is_served("/proc"), is_served("/proc/self")), (true, false), "another mount lies over it");
    }
}
