//! `stoker bench train`: what was typed becomes a job and a target; what was measured becomes a table and a file.
//!
//! It measures nothing itself: `bench::train` does. Invariant: what an interrupted run measured is in the file that
//! `--save` names, marked as not finished.

mod python;
mod settings;
mod table;

use super::end::End;
use super::machine::{self, Machine};
use super::output::Output;
use super::{failed, launch, loader, named, typed};
use crate::args::Reach;
use crate::node::INTERRUPTED;
use crate::{ends, print, runtime, show};
use ::bench::ground::{Ground, Site};
use ::bench::loader::Loader;
use ::bench::samples::Set;
use ::bench::train::{self, Bench, Cause, Checks, Chill, Job, Outside, Progress, checkpoint, closed, most};
use anyhow::Result;
use block::Error;
use data::Manifest;
use indicatif::{ProgressBar, ProgressStyle};
use ranks::Ranks;
use report::{Environment, Kind, Report, Summary, Verdict};
use settings::Changes;
use std::cell::RefCell;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use targets::clock::Monotonic;
use targets::{Null, Shape, Shaped, Target};
use workload::Workload;
use workload::accelerator::{self, Accelerator};
use workload::import;

/// Every figure says whether it was measured, and stands beside what this machine reaches without storage and what a
/// probe of the target promises. Exit code 3: it ran, and the accelerators were not busy enough; 5: it ran, and has no
/// verdict, because it was too short or its figures contradict each other.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A shipped workload, a file of your own (.toml), or a workload of DLIO (.yaml); also as --import
    #[arg(long, value_name = "NAME|FILE", alias = "import", required_unless_present = "list")]
    workload: Option<String>,
    /// A shipped accelerator, or a file of your own
    #[arg(long, value_name = "NAME")]
    accelerator: Option<String>,
    /// How many of them; with --find-max, the most that are tried
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    accelerators: Option<u64>,
    /// A folder, the URL of a store, or `null:` for the loop without storage
    #[arg(long, value_name = "TARGET", required_unless_present = "list")]
    target: Option<String>,
    /// Change the job: epochs, steps, batch, threads, prefetch, order, partition, shuffle-buffer, step (such as 20ms), pause,
    /// repetitions, seed, pass, checkpoint-bytes, checkpoint-processes, caches (keep, first or each)
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    set: Vec<String>,
    /// Give the target the limits of a disk, such as 160MB/s,10000iops or 500MB/s,500iops,5ms
    #[arg(long, value_name = "LIMITS", value_parser = settings::shape)]
    shape_disk: Option<Shape>,
    /// Run this command wherever caches are emptied, to drop the target's own
    #[arg(long, value_name = "COMMAND", help_heading = "Caches")]
    drop_command: Option<String>,
    /// Find the most accelerators that are busy enough
    #[arg(long)]
    find_max: bool,
    /// Hold the run against each rule of MLPerf Storage v2.0
    #[arg(long)]
    closed: bool,
    /// Decode images, as a training job does
    #[arg(long)]
    decode: bool,
    /// So many processes that don't wait for each other, in place of accelerators that step together
    #[arg(long, value_name = "P", conflicts_with_all = ["accelerators", "find_max"], value_parser = clap::value_parser!(u64).range(1..=100_000))]
    processes: Option<u64>,
    /// Load through the data loader of a library in Python, as a training script does: torch, tensorflow or dali
    #[arg(long, value_name = "LIBRARY", value_parser = loader::named, conflicts_with_all = ["find_max", "shape_disk", "processes"])]
    loader: Option<Loader>,
    /// Name the workloads and accelerators that are shipped
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    output: Output,
}

/// Exit code where all went well but the utilisation.
const NOT_BUSY: u8 = 3;
/// Exit code of a run that doesn't tell whether they were busy.
pub(super) const INVALID: u8 = 5;

pub fn run(args: Args) -> Result<ExitCode> {
    if args.list {
        print::out(format_args!("{}", table::known()))?;
        return Ok(ExitCode::SUCCESS);
    }
    args.output.check()?;
    let ranks = launch::ranks()?;
    let done = measure(&args, &*ranks)?;
    // A rank that leaves early would be taken for one that died.
    ranks.barrier()?;
    Ok(done)
}

fn measure(args: &Args, ranks: &dyn Ranks) -> Result<ExitCode> {
    let runtime = runtime()?;
    let asked = args.target.clone().unwrap_or_default();
    let (mut job, plain) = job(args)?;
    if args.loader.is_none() {
        machine::can_start(job.accelerators.div_ceil(u64::from(ranks.size())) * job.workload.read.threads)?;
    }
    // A checkpoint ends in order, so that nothing of it stays.
    if ranks.rank() == 0 && job.workload.checkpoint.is_none() {
        ends::exit_if_told(interrupted(args))?;
    }
    let mut machine = Machine::look(&asked, args.drop_command.as_deref());
    // Readers keep files open: as many as this user may.
    crate::node::raise_descriptors();
    job.transfer = machine.transfer();
    if job.workload.checkpoint.is_some() {
        return checkpoints(args, (&job, plain.as_ref()), &machine, ranks, runtime.handle());
    }
    if let Some(loader) = args.loader {
        let mut report = report(args, &job, &machine, ranks);
        let done = python::run(loader, args, &job, &machine, ranks, &mut report);
        let Some(set) = kept(done, args, ranks, &mut report)? else { return Ok(ExitCode::SUCCESS) };
        judge(args, &job, plain.as_ref(), set, &mut report);
        return tell(&report, &job, &args.output);
    }
    let bar = line();
    bar.set_message("listing the set");
    let end = if asked == "null:" { None } else { Some(reach(args, runtime.handle())?) };
    let (target, set, checks) = open(args, &job, end.as_ref())?;
    machine.settle(if set.real { &set.files } else { &[] });
    job.transfer = machine.transfer();
    let mut report = report(args, &job, &machine, ranks);
    say_early(args, &job, &set, ranks);
    let outside = Outside {
        clock: &Monotonic,
        ranks,
        node: &machine.node,
        counters: &|| machine.counters(end.as_ref().and_then(End::counts)),
        tiers: &|| machine.tiers(),
        chill: &|set| machine.empty(ranks, &set.files),
        forget: &|set, runs| machine.forget(ranks, set, runs),
        look: &|progress| bar.set_message(status(progress)),
    };
    let mut bench = Bench { job: &job, target: &*target, set: &set, checks: &checks, outside: &outside, probe: None };
    let mut save = |report: &Report| args.output.save(report);
    // An older result under this name would be taken for this one, if it ends before its first epoch.
    if ranks.rank() == 0 {
        save(&report)?;
    }
    let done = if args.find_max {
        search(args, &mut bench, &mut report, &mut save)
    } else {
        train::run(&mut bench, &mut report, &mut save)
    };
    bar.finish_and_clear();
    let done = done.map(|()| (set.bytes(), set.real)).map_err(Into::into);
    let Some(set) = kept(done, args, ranks, &mut report)? else { return Ok(ExitCode::SUCCESS) };
    judge(args, &job, plain.as_ref(), set, &mut report);
    tell(&report, &job, &args.output)
}

fn search(
    args: &Args,
    bench: &mut Bench,
    report: &mut Report,
    save: &mut dyn FnMut(&Report) -> block::Result<()>,
) -> block::Result<()> {
    let found = most::find(bench, args.accelerators, report, save)?;
    report.finished = true;
    report.sections.insert("find_max".into(), serde_json::json!({ "accelerators": found }));
    if bench.outside.ranks.rank() == 0 { save(report) } else { Ok(()) }
}

/// What a run gave, at rank 0. Where it failed, what was measured until then is kept with the reason.
fn kept<T>(done: Result<T>, args: &Args, ranks: &dyn Ranks, report: &mut Report) -> Result<Option<T>> {
    if ranks.rank() > 0 {
        return done.map(|_| None);
    }
    let has_begun =
        !report.epochs.is_empty() || !report.points.is_empty() || report.sections.contains_key("checkpoint");
    done.map(Some).map_err(|error| {
        let error = if has_begun { failed(error) } else { error };
        report.broke(&error);
        if let Err(unsaved) = args.output.finish(report) {
            note!("warning: what was measured is not kept: {unsaved}");
        }
        error
    })
}

/// Before the first epoch, say of a run that has no verdict what it takes; it is made all the same.
fn say_early(args: &Args, job: &Job, set: &Set, ranks: &dyn Ranks) {
    let Ok(steps) = job.steps(set) else { return };
    if let Some(reason) = job.steady(Some(set)).invalid(job, steps).filter(|_| !args.find_max && ranks.rank() == 0) {
        note!("warning: this run will have no verdict: {reason}");
    }
}

/// Why there is no result, and what is left.
fn interrupted(args: &Args) -> Error {
    let target = args.target.as_deref().unwrap_or_default();
    let hint = match &args.output.save {
        Some(file) => {
            format!("epochs that had ended by then, if any, are in {}, marked as not finished", file.display())
        }
        None => "with --save FILE.json, what has ended by then is kept".to_owned(),
    };
    Error::unavailable("the measurement was interrupted", target).hint(hint)
}

/// The result, on the terminal and where it was asked for.
fn tell(report: &Report, job: &Job, output: &Output) -> Result<ExitCode> {
    print::out(format_args!("{}", table::text(report, job)))?;
    output.finish(report)?;
    if report.invalid().is_some() {
        return Ok(ExitCode::from(INVALID));
    }
    let found_none = report.sections.get("find_max").is_some_and(|found| found["accelerators"].is_null());
    let fails = |summary: &Summary| !summary.passed && summary.verdict != Some(Verdict::Ceiling);
    let is_passed = !found_none && !report.summary.as_ref().is_some_and(fails);
    Ok(if is_passed { ExitCode::SUCCESS } else { ExitCode::from(NOT_BUSY) })
}

/// A name of what is shipped, or a file.
fn text_of(name: &str) -> Result<Option<String>> {
    if !name.contains('/') && ![".toml", ".yaml", ".yml"].iter().any(|ending| name.ends_with(ending)) {
        return Ok(None);
    }
    let text = std::fs::read_to_string(name).map_err(|error| named(Error::io("cannot read the file", name, &error)))?;
    Ok(Some(text))
}

/// What is to be measured, and the workload as it is shipped.
fn job(args: &Args) -> Result<(Job, Option<Workload>)> {
    let name = args.workload.clone().unwrap_or_default();
    let own = text_of(&name)?;
    let is_shipped = own.is_none();
    let (mut workload, step) = match own {
        Some(text) if name.ends_with(".yaml") || name.ends_with(".yml") => import::dlio(&text, &name)?,
        Some(text) => (Workload::parse(&text, &name)?, None),
        None => (workload::shipped(&name)?, None),
    };
    let changes = Changes::parse(&args.set)?;
    let mut step_seconds = changes.step_seconds;
    if let (Some(step), None, None) = (&step, step_seconds, &args.accelerator) {
        workload = step.applied(workload);
        step_seconds = Some(step.step_seconds);
    }
    if let Some(name) = &args.accelerator {
        let accelerator = match text_of(name)? {
            Some(text) => Accelerator::parse(&text, name)?,
            None => accelerator::shipped(name)?,
        };
        if step_seconds.is_none() {
            let step = accelerator.step(&workload.name)?;
            workload = step.applied(workload);
            step_seconds = Some(step.step_seconds);
        }
    }
    let plain = is_shipped.then(|| workload.clone());
    let told = changes.told(&workload)?;
    changes.apply(&mut workload)?;
    workload.check("the job")?;
    if changes.chill == Some(Chill::Never) && args.drop_command.is_some() {
        let error = Error::invalid("a command drops caches that are to be kept", "--drop-command");
        return Err(error.hint("leave it out, or caches=keep").into());
    }
    let step_seconds = step_seconds.or(workload.checkpoint.as_ref().map(|_| 1.0)).ok_or_else(|| {
        Error::invalid("no accelerator was named", &workload.name)
            .hint("name one with --accelerator (--list names them), or give the time of a step: --set step=20ms")
    })?;
    if args.decode {
        train::decodes(workload.files.format)?;
    }
    let target = args.target.as_deref().unwrap_or_default();
    let job = Job {
        step_seconds,
        changes: told,
        accelerators: args.processes.or(args.accelerators.filter(|_| !args.find_max)).unwrap_or(1),
        repetitions: changes.repetitions.unwrap_or(1),
        seed: changes.seed.unwrap_or(123),
        decode: args.decode && target != "null:",
        together: args.processes.is_none(),
        transfer: Cause::Store,
        chill: if target == "null:" { Chill::Never } else { changes.chill.unwrap_or(Chill::First) },
        workload,
    };
    Ok((job, plain))
}

/// The target with its set, and what is known of its checksums.
fn open(args: &Args, job: &Job, end: Option<&End>) -> Result<(Box<dyn Target>, Set, Checks)> {
    let files = &job.workload.files;
    let Some(end) = end else {
        let read = &job.workload.read;
        let all = files.count * files.samples_per_file;
        // As much as the steps need, or a verdict takes, whatever the workload's own size.
        let most = read.batch.saturating_mul(job.accelerators.max(args.accelerators.unwrap_or(1)));
        let least = job.steady(None).least.saturating_mul(most);
        let samples = read.steps_max.map_or(all.max(least), |steps| steps.max(2).saturating_mul(most));
        if samples / files.samples_per_file > IMAGINED_FILES_MAX {
            let hint = "take a smaller set of the same kind, or fewer steps: --set steps=100";
            return Err(Error::invalid(format!("so many files ({samples} samples) are not imagined"), "null:")
                .hint(hint)
                .into());
        }
        let mut set = Set::imagined(files, samples, job.seed);
        set.together = job.together(&set);
        return Ok((shaped(args, Box::new(Null::of(set.files.clone()))), set, Checks::default()));
    };
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get());
    let mut set = Set::of(end.target(), files, 2 * threads).map_err(named)?;
    if matches!(end, End::Store(_)) {
        set.piece = train::REQUEST;
    }
    set.together = job.together(&set);
    // A set that was not made here has no manifest; that alone is no failure.
    let manifest = Manifest::read(end.target()).map_err(named)?;
    let checks = manifest.map(|manifest| Checks::of(&manifest, end.target(), &set, 2 * threads));
    Ok((shaped(args, end.boxed()), set, checks.transpose()?.unwrap_or_default()))
}

/// Names of files that are kept for a loop without storage.
const IMAGINED_FILES_MAX: u64 = 20_000_000;

/// A folder or a store, as it is.
fn reach(args: &Args, runtime: &tokio::runtime::Handle) -> Result<End> {
    let text = args.target.as_deref().unwrap_or_default();
    Ok(End::open(text, &args.reach, runtime, 0)
        .map_err(|error| if error.kind == block::Kind::Missing { named(error.hint(FOLDER)) } else { error })?)
}

const FOLDER: &str = "name a folder that exists, the URL of a store, or `null:`";

fn shaped(args: &Args, target: Box<dyn Target>) -> Box<dyn Target> {
    match args.shape_disk {
        Some(shape) => Box::new(Shaped::over(target, shape, Arc::new(Monotonic))),
        None => target,
    }
}

fn report(args: &Args, job: &Job, machine: &Machine, ranks: &dyn Ranks) -> Report {
    let mut settings = serde_json::to_value(job).expect("a job is numbers and names");
    settings["arguments"] = typed::arguments();
    let environment = Environment { ranks: u64::from(ranks.size()), ..machine.environment.clone() };
    let target = args.target.as_deref().unwrap_or_default();
    let (mut sections, mut warnings) = (std::collections::BTreeMap::new(), Vec::new());
    if let Some(shape) = args.shape_disk {
        settings["shape_disk"] = serde_json::json!({
            "bytes_per_second": shape.bytes_per_second,
            "operations_per_second": shape.operations_per_second,
            "latency_seconds": shape.latency_seconds,
        });
        warnings.push("the target was slowed down by --shape-disk: the figures are of the disk that this makes, not of the target".to_owned());
        let limits = serde_json::json!({
            "read_iops": shape.operations_per_second, "read_bytes_per_second": shape.bytes_per_second,
        });
        sections.insert("limits".into(), limits);
    }
    Report {
        settings,
        seed: job.seed,
        workload: Some(job.workload.name.clone()),
        accelerator: args.accelerator.as_deref().map(|name| accelerator::spelt(name).to_owned()),
        accelerators: Some(job.accelerators),
        sections,
        warnings,
        ..Report::begin(Kind::Measured, "train", target, environment, machine.started)
    }
}

/// Write and read the state of a model.
fn checkpoints(
    args: &Args,
    (job, plain): (&Job, Option<&Workload>),
    machine: &Machine,
    ranks: &dyn Ranks,
    runtime: &tokio::runtime::Handle,
) -> Result<ExitCode> {
    let shape = job.workload.checkpoint.as_ref().expect("asked for only where there is one");
    machine::can_start(shape.processes.div_ceil(u64::from(ranks.size())))?;
    let end = reach(args, runtime)?;
    let target = shaped(args, end.boxed());
    let Some(writable) = target.writable() else {
        return Err(Error::invalid("a checkpoint needs a target that can be written", target.url()).into());
    };
    let bar = line();
    let mut report = report(args, job, machine, ranks);
    // An older result under this name would be taken for this one, if it ends before its first pass.
    if ranks.rank() == 0 {
        args.output.save(&report)?;
    }
    let (stop, warned) = (Arc::new(AtomicBool::new(false)), RefCell::new(Vec::new()));
    let stops = stop.clone();
    ends::stop_if_told(move || stops.swap(true, Ordering::Relaxed))?;
    let (ground, _) = Ground::meet(site(&end), checkpoint::WORK, machine::seed(), ranks)?;
    let course = checkpoint::Course {
        target: writable,
        clock: &Monotonic,
        ranks,
        ground: &ground,
        stop: &stop,
        seed: job.seed,
        room: machine.room(),
        // What writes to a store keeps nothing of it.
        chill: &|files| Ok(job.chill != Chill::Never && machine.empty(ranks, files)? || !target.is_cached()),
        look: &|what| bar.set_message(what.to_owned()),
        warn: &|warning| warned.borrow_mut().push(warning),
    };
    let mut passes = Vec::new();
    let ended = checkpoint::run(&course, shape, &mut |pass| {
        if pass.cold == Some(false) {
            let what = "what was read of the checkpoint was not cold: memory may have given it, in part or whole";
            train::warn(&mut report, what);
        }
        passes.push(pass);
        report.sections.insert("checkpoint".into(), serde_json::to_value(&passes).expect("numbers and names"));
        args.output.save(&report)
    });
    bar.finish_and_clear();
    for warning in warned.into_inner() {
        note!("warning: {warning}");
        report.warnings.push(warning);
    }
    let Some(ended) = kept(ended.map_err(Into::into), args, ranks, &mut report)? else { return Ok(ExitCode::SUCCESS) };
    if ended == checkpoint::Ended::Interrupted {
        args.output.save(&report)?;
        show::failure(&interrupted(args).into());
        return Ok(ExitCode::from(INTERRUPTED));
    }
    report.finished = true;
    if args.closed {
        let is_shaped = args.shape_disk.is_some();
        let written = closed::state::Written { report: &report, shipped: plain, shape, passes: &passes, is_shaped };
        let rules = closed::state::judge(&written);
        report.sections.insert("closed".into(), serde_json::json!({ "document": closed::DOCUMENT, "rules": rules }));
    }
    print::out(format_args!("{}", table::checkpoint(&passes, &report)))?;
    args.output.finish(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// Where a folder of its own is made.
fn site(end: &End) -> Site {
    match end {
        End::Folder(folder) => Site::Folder { root: folder.url().into(), direct: false },
        End::Store(store) => Site::Store(Box::new(store.clone())),
    }
}

/// Hold a run on so many bytes, of files or imagined, against the rules, where that is asked.
fn judge(args: &Args, job: &Job, plain: Option<&Workload>, (set_bytes, is_real): (u64, bool), report: &mut Report) {
    if !args.closed {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |passed| passed.as_secs_f64());
    let around = closed::Circumstances {
        report,
        shipped: plain,
        set_bytes,
        is_real,
        is_shaped: args.shape_disk.is_some(),
        seconds: now - report.started,
    };
    let rules = closed::judge(job, &around);
    report.sections.insert("closed".into(), serde_json::json!({ "document": closed::DOCUMENT, "rules": rules }));
}

/// A line that moves, where somebody looks.
fn line() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}

fn status(progress: &Progress) -> String {
    if progress.steps_total == 0 {
        return progress.what.clone();
    }
    let share = progress.steps as f64 / progress.steps_total as f64;
    let left =
        if share > 0.0 { format!("{:.0}s left", progress.seconds / share - progress.seconds) } else { String::new() };
    let rate = progress.bytes as f64 / progress.seconds.max(1e-9);
    format!("{}: {:>3.0} %  {}/s  {left}", progress.what, 100.0 * share, show::bytes(rate as u64))
}
