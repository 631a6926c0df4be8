//! Which mount is meant, also where it is not there yet.
//!
//! Invariant: a command waits for the mount that it names and for no other.

use super::Host;
use crate::mounted::Mounted;
use block::{Error, Result};
use client::messages::{Coming, MountPath};
use mount::Places;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long whoever looks at the node waits for its mounts to be there, which takes a tenth of a second as a rule.
const THERE_WITHIN: Duration = Duration::from_secs(2);

/// Shows that a mount is to be gone on with, until this is dropped.
pub(crate) struct Comes {
    host: Arc<Host>,
    id: u64,
}

impl Drop for Comes {
    fn drop(&mut self) {
        self.host.coming.send_modify(|coming| coming.retain(|other| other.id != self.id));
    }
}

impl Comes {
    /// What it waits for.
    pub fn waits_for(&self, error: &Error) {
        self.host.coming.send_modify(|coming| {
            let of_it = coming.iter_mut().find(|other| other.id == self.id);
            of_it.into_iter().for_each(|mount| mount.waits_for = Some(format!("{}: {}", error.on, error.what)));
        });
    }
}

impl Host {
    pub(crate) fn comes(self: &Arc<Host>, id: u64, url: &str, path: &Path) -> Comes {
        let (url, path) = (url.to_owned(), path.display().to_string());
        let mount = Coming { id, url, path, since: self.journal.now(), waits_for: None };
        self.coming.send_modify(|coming| coming.push(mount));
        Comes { host: self.clone(), id }
    }

    /// Mounts of the process before this one that are not there yet.
    pub fn coming(&self) -> Vec<Coming> {
        self.coming.borrow().clone()
    }

    /// Wait until they are, for a moment.
    pub(crate) async fn settles(&self) {
        let mut coming = self.coming.subscribe();
        let _ = tokio::time::timeout(THERE_WITHIN, coming.wait_for(Vec::is_empty)).await;
    }

    /// The mount that is meant: by its identity, or the one that a path lies in, and the rest of the path. One that this node is to
    /// go on with is waited for.
    pub async fn find(&self, place: &MountPath) -> Result<(Arc<Mounted>, PathBuf)> {
        let mut changed = self.coming.subscribe();
        loop {
            // Looked at first: by then it is among the mounts.
            let awaited = coming_at(&changed.borrow_and_update(), place);
            match self.find_now(place) {
                Ok(found) if awaited <= Some(depth(&place.path) - found.1.components().count()) => return Ok(found),
                Err(error) if awaited.is_none() => return Err(error),
                _ => {}
            }
            if changed.changed().await.is_err() {
                return self.find_now(place);
            }
        }
    }

    fn find_now(&self, place: &MountPath) -> Result<(Arc<Mounted>, PathBuf)> {
        let (mounts, path, places) = (self.mounts(), Path::new(&place.path), Places::now());
        let found = match place.id {
            Some(id) => {
                let is_it = |mounted: &&Arc<Mounted>| {
                    let is_set = place.url.as_ref().is_none_or(|url| url == mounted.view.url());
                    let is_there = mounted.path == path || mounted.path_in(&places) == path;
                    mounted.id == id && is_there && is_set
                };
                mounts.iter().find(is_it).map(|mounted| (mounted, PathBuf::new()))
            }
            // Of several at one path, those before the last were detached, perhaps by somebody else.
            None => {
                let seen = mounts.iter().rev().filter(|mounted| !mounted.is_detached());
                let below = |mounted: &Arc<Mounted>| Some(path.strip_prefix(mounted.path_in(&places)).ok()?.to_owned());
                let found = seen.filter_map(|mounted| Some((mounted, below(mounted)?)));
                found.min_by_key(|(_, rest)| rest.components().count())
            }
        };
        let (mounted, rest) = found.ok_or_else(|| {
            Error::missing("nothing is mounted there by this node", path.display()).hint("see `stoker status`")
        })?;
        Ok((mounted.clone(), rest))
    }
}

/// How deep the mount lies that comes and is meant, if there is one.
fn coming_at(coming: &[Coming], place: &MountPath) -> Option<usize> {
    match place.id {
        // No other one is meant.
        Some(id) => coming.iter().any(|mount| mount.id == id).then_some(usize::MAX),
        None => coming
            .iter()
            .filter(|mount| Path::new(&place.path).starts_with(&mount.path))
            .map(|mount| depth(&mount.path))
            .max(),
    }
}

fn depth(path: &str) -> usize {
    Path::new(path).components().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_for_the_mount_that_it_names_and_for_no_other() {
        let mount = |id, path: &str| Coming { id, path: path.into(), ..Coming::default() };
        let coming = [mount(7, "/data/a"), mount(8, "/data/a/below")];
        let of_path = |path: &str| coming_at(&coming, &MountPath { path: path.into(), ..MountPath::default() });
        assert_eq!((of_path("/data"), of_path("/data/ab"), of_path("/other")), (None, None, None));
        assert_eq!((of_path("/data/a/file"), of_path("/data/a/below/file")), (Some(3), Some(4)));
        let of_id =
            |id| coming_at(&coming, &MountPath { path: "/data/a".into(), id: Some(id), ..MountPath::default() });
        assert_eq!((of_id(7), of_id(9)), (Some(usize::MAX), None));
    }
}
