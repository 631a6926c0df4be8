//! `stoker evict`: have the node of a mount let go of what it keeps of a file or a folder.

use crate::mount::ask_of;
use crate::show;
use client::messages::{Evicted, MountPath};
use hyper::Method;
use std::path::PathBuf;
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
Examples:
  stoker evict /data/train/old     make room; it is fetched again when somebody reads it
  stoker evict /data/train         all of a mount

It means the node of this machine alone: other members of a cluster keep what they have. A
background fill that is under way, or a job that said what it will read, may bring it again.";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A mount point, or a folder or a file below it
    path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let bar = show::spinner("evicting");
    let done = ask_of(&args.path, |client, path| {
        let place = MountPath { path: path.to_string_lossy().into_owned(), ..MountPath::default() };
        client.ask::<Evicted>(Method::POST, "/v1/evict", &place)
    });
    bar.finish_and_clear();
    let done = done?;
    match args.json {
        true => say!("{}", serde_json::to_string(&done)?)?,
        false => say!("{} with {} evicted here", show::count_of(done.files, "file"), show::bytes(done.bytes))?,
    }
    Ok(ExitCode::SUCCESS)
}
