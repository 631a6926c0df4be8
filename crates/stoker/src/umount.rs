//! `stoker umount`: end a mount, whether its node lives or not.

use crate::args::Umount;
use crate::mount::node_of;
use crate::show;
use client::messages::Place;
use hyper::Method;
use std::process::ExitCode;

pub fn run(args: &Umount) -> anyhow::Result<ExitCode> {
    let path = std::path::absolute(&args.dir)?;
    // A lazy unmount, or one whose node is gone, is the kernel's business alone.
    if args.lazy || mount::is_stale(&path) {
        mount::unmount(&path, args.lazy || mount::is_stale(&path))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (client, _, path) = node_of(&args.dir)?;
    let place = Place { path: path.to_string_lossy().into_owned() };
    client.ask::<()>(Method::DELETE, "/v1/mounts", &place).map_err(show::refused)?;
    Ok(ExitCode::SUCCESS)
}
