//! `stoker observe`: run a command on a view of a folder, and say what it asked of it.
//!
//! The view and the stage are of the crate `observe`; `summary` is for people.
//! Invariant: however the command or this program ends, the view ends with it: as soon as the command sees it, it is
//! mounted nowhere else.

pub mod summary;

use crate::{place, print, runtime, show};
use ::observe::stage::{self, Cover};
use ::observe::{Mirror, Recorder};
use block::{Error, Result};
use mount::{Options, Session};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use trace::derive;
use trace::records::{self, Records};
use trace::{Group, Trace};
use workload::Format;

/// A thread that looks a name up waits for the folder, which may be slow: as many as a data loader has workers.
const THREADS: usize = 32;

/// Files of a packed format of which the records are counted.
const FILES_LOOKED_INTO: usize = 3;

/// Run a command on a read-only view of FOLDER that lies at FOLDER's own path, for this command alone, and record what
/// it reads: nothing in the command has to change. Needs FUSE, and root or user namespaces. Whatever writes below
/// FOLDER gets the error "read-only file system". The exit code is the command's; what was seen goes to standard error.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The folder with the data
    pub folder: PathBuf,
    /// The command and its words
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Write all that was seen to this file
    #[arg(long, value_name = "FILE.json")]
    pub save: Option<PathBuf>,
    /// Write a workload that asks for the same, for `stoker bench train --workload`
    #[arg(long, value_name = "FILE.toml")]
    pub workload: Option<PathBuf>,
    /// Write the time between batches as the step of an accelerator, for `stoker bench train --accelerator`
    #[arg(long, value_name = "FILE.toml")]
    pub accelerator: Option<PathBuf>,
    /// Show the view at this empty folder and not over FOLDER; {} in the command's words stands for it
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (folder, opened) = open(&args)?;
    let outputs = [(&args.save, place::JSON), (&args.workload, place::TOML), (&args.accelerator, place::TOML)];
    place::can_be_written(&outputs.map(|(path, begins)| (path.as_deref(), begins)), [])?;
    let runtime = runtime()?;
    let (recorder, sweeping) = Recorder::start();
    let mirror = Arc::new(Mirror::new(opened, recorder.clone(), runtime.handle().clone()));
    let began = Instant::now();
    let ended = runtime.block_on(observe(&args, &folder, mirror));
    let run_seconds = began.elapsed().as_secs_f64();
    recorder.end();
    let trace = sweeping.join().map_err(|_| Error::invalid("adding up what was seen failed", folder.display()))?;
    let status = ended?;
    runtime.shutdown_background();
    let trace = Trace { run_seconds: Some(run_seconds), ..with_records(trace, &folder) };
    let said = tell(&args, &folder, &trace);
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    match said {
        // The command's own failure says more than ours.
        Err(error) if code != 0 => show::failure(&error.into()),
        said => said?,
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// The folder without links, and a descriptor of it from before anything lies over it.
fn open(args: &Args) -> Result<(PathBuf, OwnedFd)> {
    let shown = args.folder.display();
    let folder = args.folder.canonicalize().map_err(|error| {
        Error::io("cannot observe the folder", shown, &error).hint("name the folder that the command reads from")
    })?;
    if !folder.is_dir() {
        let error = Error::invalid("only a folder can be observed", folder.display());
        return Err(error.hint("name the folder that the file is in"));
    }
    if folder == Path::new("/") && args.at.is_none() {
        return Err(Error::invalid("nothing can be laid over the root of all", "/").hint("name a folder below it"));
    }
    if let Some(at) = args.at.as_ref().and_then(|at| at.canonicalize().ok()).filter(|at| at.starts_with(&folder)) {
        return Err(Error::invalid("the view can't lie within what it shows", at.display())
            .hint("give --at a folder elsewhere, or leave it out"));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&folder, flags, Mode::empty())
        .map_err(|errno| Error::io("cannot open the folder", folder.display(), &errno.into()))?;
    Ok((folder, opened))
}

/// Run the command on the view, to its end.
async fn observe(args: &Args, folder: &Path, mirror: Arc<Mirror>) -> anyhow::Result<ExitStatus> {
    // From here on a signal ends nothing by itself.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let scratch = args.at.is_none().then(scratch).transpose()?;
    let view = args.at.as_deref().or(scratch.as_deref()).expect("one of the two is there");
    let mounted = attach(view, folder, mirror);
    let started = mounted.and_then(|session| {
        let cover = scratch.is_some().then(|| Cover { view: view.to_owned(), folder: folder.to_owned() });
        let place = if scratch.is_some() { folder } else { session.mount_point() };
        let started = stage::start(&args.command, cover.as_ref(), place);
        // The command has it now, and nobody else needs to.
        if scratch.is_some() {
            session.unmount(true)?;
        }
        Ok((session, started?))
    });
    if let Some(scratch) = &scratch {
        let _ = std::fs::remove_dir(scratch);
    }
    let (session, child) = started?;
    let status = wait(child, &mut terminate, &mut interrupt).await;
    if scratch.is_none() {
        session.unmount(true)?;
    }
    Ok(status?)
}

/// A folder of our own to mount the view at, for the moment until the command has it.
fn scratch() -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("stoker-observe-{}", std::process::id()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|error| {
        Error::io("cannot make a folder for the view", path.display(), &error).hint("set TMPDIR, or give --at DIR")
    })?;
    Ok(path)
}

fn attach(view: &Path, folder: &Path, mirror: Arc<Mirror>) -> Result<Session> {
    let mut options = Options::new(view, folder.to_string_lossy());
    options.passthrough = false;
    options.threads = Some(THREADS);
    // Programs read in the steps that the folder itself tells.
    if let Ok(stat) = rustix::fs::stat(folder) {
        options.block_bytes = u32::try_from(stat.st_blksize).unwrap_or(options.block_bytes);
    }
    mount::attach(&options, mirror, tokio::runtime::Handle::current())
}

/// Wait for the command. What asks us to end asks it to end; asked twice, it has to.
async fn wait(
    mut child: Child,
    terminate: &mut tokio::signal::unix::Signal,
    interrupt: &mut tokio::signal::unix::Signal,
) -> std::io::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let mut waiting = tokio::task::spawn_blocking(move || child.wait());
    let mut asked = 0;
    loop {
        let signal = tokio::select! {
            ended = &mut waiting => return ended.map_err(std::io::Error::other)?,
            _ = terminate.recv() => Signal::TERM,
            _ = interrupt.recv() => Signal::INT,
        };
        asked += 1;
        // Who types ^C at a terminal interrupts the command as well as us.
        if signal == Signal::INT && asked == 1 && in_foreground() {
            continue;
        }
        let _ = rustix::process::kill_process(pid, if asked > 1 { Signal::KILL } else { signal });
    }
}

/// Whether signals of the terminal reach this process and its child.
fn in_foreground() -> bool {
    let group = rustix::process::getpgrp().as_raw_nonzero().get();
    // SAFETY: tcgetpgrp takes a number of a descriptor, whatever it is, and touches no memory.
    (0..3).any(|descriptor| unsafe { libc::tcgetpgrp(descriptor) } == group)
}

/// Count records where files hold them.
fn with_records(mut trace: Trace, folder: &Path) -> Trace {
    let is_packed = |group: &&Group| matches!(group.format, Format::Tfrecord | Format::Raw);
    if let Some(group) = trace.groups.first().filter(is_packed) {
        let found: Vec<Records> =
            group.examples.iter().take(FILES_LOOKED_INTO).filter_map(|path| look(&folder.join(path))).collect();
        if let Some(records) = records::mean(&found) {
            trace.know(records);
        }
    }
    trace
}

fn look(path: &Path) -> Option<Records> {
    let file = std::fs::File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    records::of_tfrecord(size, |at, head| file.read_exact_at(head, at).is_ok())
}

/// Say what was seen, and write what was asked for.
fn tell(args: &Args, folder: &Path, trace: &Trace) -> Result<()> {
    let name = folder.file_name().map_or_else(|| "observed".into(), |name| name.to_string_lossy().into_owned());
    let derived = derive::of(trace, &name);
    let terminal = std::io::stderr().is_terminal();
    let style = crate::chart::Style { colour: place::colour(terminal), unicode: place::unicode(), width: 100 };
    print::err(format_args!("\n{}", summary::text(trace, derived.as_ref().ok(), folder, &style)));
    if let Some(path) = &args.save {
        let document = summary::document(trace, folder, &args.command);
        save(path, &serde_json::to_vec_pretty(&document).expect("a trace has no keys but strings"))?;
    }
    if args.workload.is_none() && args.accelerator.is_none() {
        return Ok(());
    }
    let derived = derived?;
    if let Some(path) = &args.workload {
        save(path, derive::text(&derived.workload).as_bytes())?;
    }
    if let Some(path) = &args.accelerator {
        save(path, derive::text(&derived.accelerator).as_bytes())?;
    }
    Ok(())
}

/// Write a file in one step: whoever reads it sees it whole.
fn save(path: &Path, text: &[u8]) -> Result<()> {
    report::whole::write(path, text)?;
    note!("  written: {}", path.display());
    Ok(())
}
