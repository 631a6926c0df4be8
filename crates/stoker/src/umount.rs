//! `stoker umount`: end a mount, whether its node lives or not.

use crate::mount::{ask_of, node_of, node_within, typed};
use crate::{place, show};
use block::Error;
use client::messages::{MountPath, Status};
use client::{Client, Failure, Surveyed};
use hyper::Method;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub const EXAMPLES: &str = "\
Examples:
  stoker umount /data/train           once its files are closed
  stoker umount --lazy /data/train    at once";
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The mount point
    pub dir: PathBuf,
    /// Detach at once, and let open files be read to their end
    #[arg(short, long)]
    pub lazy: bool,
}

/// How long nodes without mounts take at most to end their processes.
const NODE_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How long a node is looked for whose mount may be detached without it.
const LAZY_WITHIN: Duration = Duration::from_secs(2);

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = place::absolute(&args.dir)?;
    // A node that ends takes its socket away some time before its process has ended.
    let nodes = place::nodes().unwrap_or_default().into_iter();
    let nodes: Vec<_> = nodes.filter_map(|node| Some((Process::open(node.process()?)?, node))).collect();
    let was_there = mount::is_mounted(&path);
    // What a node left that is gone is the kernel's business alone.
    if mount::is_stale(&path) {
        match mount::dead_above(&path) {
            Some(dead) if dead != path => return Err(inside(&path, &dead)),
            _ => mount::unmount(&path, true)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    // A part that is left of a mount is no business of its node either.
    let part = typed(&args.dir)?;
    if mount::is_left_part(&part) {
        mount::unmount(&part, args.lazy)?;
        wait_for_those_that_end(nodes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let found = if args.lazy { node_within(&args.dir, LAZY_WITHIN) } else { node_of(&args.dir) };
    if let Some(of) = found.as_ref().ok().and_then(|(_, status, there)| bound_from(&args.dir, status, there)) {
        let (here, there) = (block::quoted(&path), block::quoted(&of));
        let ends = format!("stoker umount {there} ends the mount");
        let shown = of.display();
        let (what, hint) = match mount::is_mounted(&path) {
            true if of == path => (
                format!("this is a part of the mount {shown} that is bound over it"),
                format!("umount {here} takes it away, and then {ends}"),
            ),
            true => (
                format!("this is another place of the mount {shown}"),
                format!("umount {here} takes it away from here alone, and {ends}"),
            ),
            // Somebody else unmounted it meanwhile.
            false if was_there => return Ok(ExitCode::SUCCESS),
            false => (format!("this lies in another place of the mount {shown}"), ends),
        };
        return Err(Error::invalid(what, path.display()).hint(hint).into());
    }
    match found.map(|found| end(args, found)) {
        Ok(Ok(())) => {}
        // Its node refuses, and no other has to do with it.
        Ok(Err(error)) if mount::is_mounted(&path) => return Err(error),
        // A node that does not answer may still have readers.
        Err(_) if args.lazy && mount::is_mounted(&path) => mount::unmount(&path, true)?,
        Ok(Err(error)) | Err(error) if was_there => {
            wait_for_those_that_end(nodes)?;
            // Its node was ending, or somebody else unmounted it.
            if mount::is_mounted(&path) {
                return Err(error);
            }
        }
        Ok(Err(error)) | Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

/// The mount of which all or a folder was bound to a path that was typed, or to a folder above it.
fn bound_from(dir: &Path, status: &Status, there: &Path) -> Option<PathBuf> {
    let is_bound = typed(dir).is_ok_and(|typed| typed != there);
    let coming = status.coming.iter().map(|mount| &mount.path);
    let all = status.mounts.iter().map(|mount| &mount.path).chain(coming).filter(|at| there.starts_with(at));
    all.max_by_key(|at| at.len()).filter(|_| is_bound).map(PathBuf::from)
}

/// Of these nodes one may have lost its last mount.
fn wait_for_those_that_end(nodes: Vec<(Process, Client)>) -> anyhow::Result<()> {
    let (processes, clients): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
    let mut processes: HashMap<_, _> = clients.iter().map(|client| client.socket().to_owned()).zip(processes).collect();
    let mut ending = Vec::new();
    let each = &mut |(client, status): Surveyed| {
        let ends = match status {
            Ok(status) => status.ending,
            Err(failure) => matches!(failure, Failure::Absent | Failure::Broken(_)),
        };
        ending.extend(processes.remove(client.socket()).filter(|_| ends));
        ControlFlow::Continue(())
    };
    let surveyed = Client::survey(clients, rustix::process::geteuid().as_raw(), each).map_err(show::refused);
    // Now that all have answered: one that ends holds up the answer of no other.
    let began = Instant::now();
    ending.iter().for_each(|process| process.wait(NODE_ENDS_WITHIN.saturating_sub(began.elapsed())));
    surveyed
}

/// End the mount that this node serves.
fn end(args: &Args, (client, status, path): (Client, Status, PathBuf)) -> anyhow::Result<()> {
    // Of a path below it a load or a status is meant of that part, but never the end of all of it.
    let there = status.mounts.iter().filter(|mount| !mount.detached);
    let there = there.map(|mount| (&mount.path, &mount.url, mount.id, false));
    let coming = status.coming.iter().map(|mount| (&mount.path, &mount.url, mount.id, true));
    let around = there.chain(coming).filter(|(at, ..)| path.starts_with(at));
    let Some((at, url, id, comes)) = around.max_by_key(|(at, ..)| at.len()) else {
        let error = Error::missing("nothing is mounted there by this node", path.display());
        return Err(error.hint("see `stoker status`").into());
    };
    if Path::new(at) != path {
        return Err(inside(&path, Path::new(at)));
    }
    if comes && args.lazy {
        // The node would end it once it is there; that it has ended, it will find out.
        return Ok(mount::unmount(&path, true)?);
    }
    let before = mount::system_of(&path).and_then(mount::everywhere).unwrap_or_default();
    // By its path it might be another by now.
    let place =
        MountPath { path: at.clone(), id: Some(id), url: Some(url.clone()), lazy: args.lazy, everywhere: false };
    let node = Process::open(status.pid);
    let ask = |client: &Client| client.ask::<Option<bool>>(Method::DELETE, "/v1/mounts", &place);
    let done = match ask(&client) {
        // Another process may go on with it.
        Err(Failure::Gone | Failure::Absent | Failure::Broken(_)) if mount::is_mounted(&path) => {
            ask_of(&path, |client, _| ask(client))
        }
        done => done.map_err(show::refused),
    };
    // With its last mount the node ends, and the cache folder is free for the next one when its process has ended.
    wait_for_those_that_end(node.map(|node| (node, client)).into_iter().collect())?;
    match done {
        // The node had not noticed yet that somebody else unmounted it.
        Err(_) if !mount::is_below(&path) => Ok(()),
        done => {
            let is_held = done? == Some(true);
            let left: Vec<&mount::Found> = before.iter().filter(|place| place.now() != mount::Standing::Gone).collect();
            match left.iter().find(|place| !place.is_part).or(left.first()) {
                Some(place) => {
                    let part = if place.is_part { "a part of it is " } else { "" };
                    let hint = format!("stoker umount {}; until then its node serves it", block::quoted(&place.at));
                    tell_left(&path, &format!("{part}still mounted at {}", place.at.display()), &hint);
                }
                None if is_held => tell_left(
                    &path,
                    "still held in another mount namespace, such as that of a container",
                    "end what runs there; until then its node serves it, and `stoker status` shows it",
                ),
                None => {}
            }
            Ok(())
        }
    }
}

/// It is not mounted there any more, and its node serves it all the same.
fn tell_left(path: &Path, how: &str, hint: &str) {
    note!("unmounted here, and {how}");
    note!("  on:  {}", path.display());
    note!("  try: {hint}");
}

fn inside(path: &Path, mount_point: &Path) -> anyhow::Error {
    let what = format!("this lies inside the mount {}", mount_point.display());
    let hint = format!("to unmount it: stoker umount {}", block::quoted(mount_point));
    Error::invalid(what, path.display()).hint(hint).into()
}

/// A process, and no other that gets its number later.
struct Process(OwnedFd);

impl Process {
    fn open(pid: u32) -> Option<Process> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Process)
    }

    /// Wait for its end, though not for ever.
    fn wait(&self, limit: Duration) {
        let mut ended = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor that is open, and the structure lives until the call returns.
        unsafe { libc::poll(&mut ended, 1, limit.as_millis() as libc::c_int) };
    }
}
