//! `stoker`: the command. Here is what was typed and what it leads to; the work is in the crates below.
//!
//! Layout: one file a subcommand; `args` (what was typed), `place` (folders and limits of this user), `log` (events),
//! `ends` (signals), `notify` (systemd), `show` (figures for people), `chart` (pictures for people), `report` (results
//! as files), `print` (where it all comes out), `words` (how flags and variables are read), `surroundings` (variables, put in
//! order).

#[macro_use]
mod print;

mod args;
mod authority;
mod bench;
mod cache;
mod chart;
mod check;
mod cluster;
mod config;
mod debug;
mod demo;
mod down;
mod emulate;
mod ends;
mod evict;
mod helper;
mod hint;
mod hosts;
mod keep;
mod keeper;
mod keys;
mod load;
mod log;
mod logs;
mod man;
mod manifest;
mod mount;
mod node;
mod notify;
mod observe;
mod place;
mod plan;
mod refresh;
mod report;
mod restart;
mod run;
mod show;
mod status;
mod surroundings;
mod umount;
mod up;
mod words;

use args::{Command, Typed};
use std::io::Write;
use std::process::ExitCode;
use words::Wrong;

/// The exit code for a command line that is wrong, as clap has it.
const WRONG_WORDS: u8 = 2;

fn main() -> ExitCode {
    bound_the_allocator();
    surroundings::settle();
    let mut words = std::env::args_os();
    // A process that this one starts is called by its file, whatever that is called.
    let is_inner = std::env::args_os().nth(1).is_some_and(|word| word == "node" || word == "keep");
    if helper::is_meant(words.next().as_deref()) && !is_inner {
        return helper::run(words, run);
    }
    let typed: Vec<_> = std::env::args_os().collect();
    let done = match words::parse(&typed) {
        Ok(typed) => run(typed),
        Err(Wrong::Words(error)) => explain(&error),
        Err(Wrong::Variable(error)) => Err(error.into()),
    };
    done.unwrap_or_else(|error| {
        if error.is::<print::Closed>() {
            return ExitCode::from(print::EXIT_CLOSED);
        }
        show::failure(&error);
        // What was typed can't be meant, whoever found out.
        let is_wrong = error.downcast_ref::<block::Error>().is_some_and(|error| error.kind == block::Kind::Invalid);
        if is_wrong { ExitCode::from(WRONG_WORDS) } else { ExitCode::FAILURE }
    })
}

/// Help that was asked for is a result; all else is about a command line that is wrong.
fn explain(error: &clap::Error) -> anyhow::Result<ExitCode> {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    if error.use_stderr() {
        return Ok(ExitCode::from(WRONG_WORDS));
    }
    printed.map(|()| ExitCode::SUCCESS).map_err(|error| print::failed(&error))
}

fn run(typed: Typed) -> anyhow::Result<ExitCode> {
    match typed.command {
        Command::Node(_) | Command::Keep(_) => ends::outlive_a_limit_of_files(),
        _ => log::to_standard_error(typed.verbose),
    }
    match typed.command {
        Command::Mount(args) => mount::run(&args, typed.verbose),
        Command::Node(args) => node::run(&args, typed.verbose),
        Command::Umount(args) => umount::run(&args),
        Command::Restart(args) => restart::run(&args),
        Command::Keep(args) => keep::run(&args),
        Command::Load(args) => load::run(args),
        Command::Hint(args) => hint::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Refresh(args) => refresh::run(&args),
        Command::Evict(args) => evict::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Cache(command) => cache::run(&command),
        Command::Manifest(command) => manifest::run(&command),
        Command::Config(args) => config::run(&args),
        Command::Debug(command) => debug::run(&command),
        Command::Log(args) => logs::run(&args),
        Command::Emulate(args) => {
            runtime().and_then(|runtime| runtime.block_on(emulate::run(args))).map(|()| ExitCode::SUCCESS)
        }
        Command::Demo(args) => demo::run(&args),
        Command::Bench(command) => bench::run(command),
        Command::Observe(args) => observe::run(args),
        Command::Plan(args) => plan::run(&args),
        Command::Hosts(command) => hosts::run(command),
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Completions { shell } => args::completions(shell),
        Command::Man => man::run(),
    }
}

/// Make the allocator give back what blocks no longer need, so that the memory limit is one. Left alone, glibc
/// keeps an arena for each of many threads and trims none: 214 MB where 134 are in use (measured, 4 cold streams);
/// mapping every buffer instead bounds it too, and costs a third more processor time.
fn bound_the_allocator() {
    const ARENAS: i32 = 2;
    const MAP_FROM_BYTES: i32 = 4 << 20;
    const TRIM_FROM_BYTES: i32 = 8 << 20;
    // SAFETY: called before any other thread exists; the options are those of mallopt(3), and one that an
    // allocator does not know is ignored.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAP_FROM_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_FROM_BYTES);
    }
}

/// Threads that a command or a node wants beside those of the runtime, before it has done anything.
const FURTHER_THREADS: usize = 4;

/// Refuse to begin where the system does not give so many threads: the runtime would wait for ever for those that it lacks.
fn threads_can_be_had(count: usize) -> anyhow::Result<()> {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let (before, gate) = (threads(), std::sync::Arc::new(std::sync::RwLock::new(())));
    let closed = gate.write();
    let waits = || {
        let gate = gate.clone();
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(gate.read()))
    };
    let had: std::io::Result<Vec<_>> = (0..count).map(|_| waits()).collect();
    drop(closed);
    let had = had.map_err(|error| {
        let what = format!("the system gives this process no {count} threads more: {error}");
        let error = block::Error::unavailable(what, "pids.max of its control group (TasksMax=), or `ulimit -u`");
        error.hint("raise that limit: a node with its mounts takes a hundred or two")
    })?;
    had.into_iter().for_each(|thread| drop(thread.join()));
    // A thread that was waited for may still be counted.
    (0..100).take_while(|_| threads() > before).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
    Ok(())
}

/// Threads that answer the network and keep blocks: writes to the page cache happen on them, so that there
/// are twice as many as processors.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(2, |count| count.get());
    let workers = (2 * processors).clamp(4, 32);
    threads_can_be_had(workers + FURTHER_THREADS)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).max_blocking_threads(64).thread_name("stoker").enable_all();
    Ok(builder.build()?)
}
