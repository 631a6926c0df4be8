//! Which nodes answer, and how they are.
//!
//! Invariant: a process that is about to go on with the mounts of one that is gone is waited for.

use crate::{mount, place, show};
use client::messages::{MountPath, Status};
use client::{Client, Failure};
use hyper::Method;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process is waited for that may go on with the mounts of one that is gone, and between two looks for it.
const GOES_ON_WITHIN: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Nodes that answer, and what is to be said of those that don't.
pub struct Nodes {
    pub found: Vec<(Client, Status)>,
    pub silent: Vec<String>,
}

/// The node that serves a path, or every node that this user may ask.
pub fn nodes(dir: Option<&Path>) -> anyhow::Result<Nodes> {
    let mut found = Vec::new();
    let silent = each_node(dir, &mut |client, status| {
        found.push((client, status));
        ControlFlow::Continue(())
    })?;
    Ok(Nodes { found, silent })
}

/// The same, each as it answers; what is to be said of those that don't comes back.
pub fn each_node(
    dir: Option<&Path>,
    each: &mut dyn FnMut(Client, Status) -> ControlFlow<()>,
) -> anyhow::Result<Vec<String>> {
    if let Some(dir) = dir {
        let (client, status) = mount::ask_found(dir, |(client, status, path)| {
            let is_local = status.mounts.iter().any(|mount| mount.local && path.starts_with(&mount.path));
            let comes = status.coming.iter().any(|mount| path.starts_with(&mount.path));
            if Path::new(&status.cache) != path && !is_local && !comes {
                let place = MountPath { path: path.to_string_lossy().into_owned(), ..MountPath::default() };
                status.kept = Some(client.ask(Method::POST, "/v1/kept", &place)?);
            }
            Ok((client.clone(), std::mem::take(status)))
        })?;
        let _ = each(client, status);
        return Ok(Vec::new());
    }
    let (began, mut seen, mut alive, mut is_one_gone) = (Instant::now(), BTreeSet::new(), Vec::new(), false);
    loop {
        let (mut silent, mut is_cut_off, mut has_enough) = (Vec::new(), false, false);
        place::survey(&mut |(client, status)| {
            let failure = match status {
                Ok(_) if seen.contains(client.socket()) => return ControlFlow::Continue(()),
                Ok(status) => {
                    seen.insert(client.socket().to_owned());
                    let coming = status.coming.iter().map(|mount| &mount.path);
                    alive.extend(status.mounts.iter().map(|mount| &mount.path).chain(coming).map(PathBuf::from));
                    let next = each(client, status);
                    has_enough = next.is_break();
                    return next;
                }
                Err(failure) => failure,
            };
            is_one_gone |= matches!(failure, Failure::Absent | Failure::Gone);
            is_cut_off |= matches!(failure, Failure::Broken(_));
            let why = why_silent(failure);
            silent.extend(
                why.map(|why| format!("the node of user {} at {} {why}", client.user(), client.socket().display())),
            );
            ControlFlow::Continue(())
        })?;
        // It has just ended, and another may be about to go on with its mounts.
        let may_come = !has_enough && (is_cut_off || is_one_gone && ::mount::are_awaited(&alive));
        if !may_come || began.elapsed() > GOES_ON_WITHIN {
            return Ok(silent);
        }
        std::thread::sleep(AGAIN_AFTER);
    }
}

/// What is said of a node that does not answer; nothing of one that was killed, which leaves its socket.
fn why_silent(failure: Failure) -> Option<String> {
    match failure {
        Failure::Absent | Failure::Gone => None,
        Failure::Silent => Some("does not answer".into()),
        Failure::Foreign(user) => Some(format!("was not asked: user {user} listens there")),
        Failure::Refused(problem) => Some(format!("refuses: {}", show::plain(&problem.what))),
        Failure::Broken(what) => Some(format!("does not answer as a node: {}", show::plain(&what))),
    }
}
