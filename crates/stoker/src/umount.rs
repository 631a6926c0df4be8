//! `stoker umount`: end a mount, whether its node lives or not.

use crate::args::Umount;
use crate::mount::node_of;
use crate::show;
use client::messages::Place;
use hyper::Method;
use std::process::ExitCode;

pub fn run(args: &Umount) -> anyhow::Result<ExitCode> {
    let path = std::path::absolute(&args.dir)?;
    // What a node left that is gone is the kernel's business alone.
    if mount::is_stale(&path) {
        mount::unmount(&path, true)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (client, path) = match node_of(&args.dir) {
        Ok((client, _, path)) => (client, path),
        // A node that does not answer may still have readers.
        Err(_) if args.lazy && is_of_stoker(&path) => {
            mount::unmount(&path, true)?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error),
    };
    let place = Place { path: path.to_string_lossy().into_owned(), id: None, lazy: args.lazy };
    client.ask::<()>(Method::DELETE, "/v1/mounts", &place).map_err(show::refused)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a mount of Stoker is at a path, whoever serves it.
fn is_of_stoker(path: &std::path::Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let top = table.lines().rfind(|line| line.split(' ').nth(4).is_some_and(|at| std::path::Path::new(at) == path));
    top.is_some_and(|line| line.contains(" - fuse.stoker "))
}
