//! `stoker bench simulate`.

use std::process::ExitCode;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {}

pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
