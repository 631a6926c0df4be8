//! `stoker`: the command. Here is what was typed and what it leads to; the work is in the crates below.
//!
//! Layout: one file a subcommand; `args` (what was typed), `place` (folders of this user), `host` (a node and
//! its mounts), `control` (its socket), `show` (figures for people), `chart` (pictures for people).

mod args;
mod chart;
mod control;
mod demo;
mod emulate;
mod host;
mod load;
mod mount;
mod place;
mod refresh;
mod show;
mod status;
mod umount;

use args::{Command, Typed};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let typed = Typed::parse();
    show::start_log(typed.verbose);
    let done = match typed.command {
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(&args),
        Command::Load(args) => load::run(args),
        Command::Refresh(args) => refresh::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Emulate(args) => runtime().and_then(|runtime| runtime.block_on(emulate::run(args))).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo::run(&args),
        Command::Completions { shell } => Ok(args::completions(shell)),
        Command::Man => args::man().map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    done.unwrap_or_else(|error| {
        show::failure(&error);
        ExitCode::FAILURE
    })
}

/// Threads that answer the network and keep blocks: writes to the page cache happen on them, so that there
/// are twice as many as processors.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(2, |count| count.get());
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads((2 * processors).clamp(4, 32)).max_blocking_threads(64).thread_name("stoker").enable_all();
    Ok(builder.build()?)
}
