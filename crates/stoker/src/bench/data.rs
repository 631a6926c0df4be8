//! `stoker bench data`: make a data set in a true format, copy it to a store or from one, check it.

use super::end::End;
use super::machine::Machine;
use super::named;
use super::output::Output;
use crate::args::Reach;
use crate::{ends, place, runtime, show};
use block::{Error, Kind, Result};
use data::{Manifest, Progress, Replica, Set, Shape, files_for, likeness};
use report::Report;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use store::{Counts, Location};
use targets::{Folder, Target};
use workload::{Format, Workload, import, shipped};

/// Files on their way to or from a store at a time; each takes some 40 MB of memory.
const FILES_IN_FLIGHT: usize = 8;

/// Files of a set at most: each is planned in memory before the first is made.
const FILES_MAX: u64 = 10_000_000;

/// Steps of each accelerator that MLPerf Storage asks data for, since version 1.0.
const STEPS: u64 = 500;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Folder of the set; it is made if there is none, and an interrupted run goes on where it stopped
    pub folder: PathBuf,
    /// With --replicate, the folder to multiply; else a set made before, in a folder or a store, to copy to FOLDER
    pub from: Option<String>,
    /// What to make: a shipped workload, the file of one (.toml), or a workload of DLIO (.yaml); also as --import
    #[arg(short, long, value_name = "NAME|FILE", alias = "import")]
    pub workload: Option<String>,
    /// Files of the set: a number, or a share of the workload's such as 1%; by default all
    #[arg(long, value_name = "N|SHARE%", requires = "workload")]
    pub files: Option<String>,
    /// As many files as MLPerf Storage asks for: 8, or 8x100 for 100 steps instead of 500
    #[arg(long, value_name = "N|NxSTEPS", requires = "workload", conflicts_with = "files")]
    pub accelerators: Option<String>,
    /// The same seed gives the same bytes on every machine
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Take number and sizes of files from this folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["files", "accelerators", "replicate"])]
    pub like: Option<PathBuf>,
    /// Copy the files of FROM so many times under new names
    #[arg(long, value_name = "N", requires = "from", conflicts_with_all = ["files", "accelerators"])]
    pub replicate: Option<u64>,
    /// Pack the copies into so many tar files, or TFRecord files if the workload has those
    #[arg(long, value_name = "M", requires = "replicate")]
    pub shards: Option<u64>,
    /// Copy the set to a store or a folder, and say what that took
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
    /// Read every byte of the set again, where it ends up, and compare
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub reach: Reach,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.output.check()?;
    let interrupted = Error::unavailable("making the data set was interrupted", args.folder.display());
    ends::exit_if_told(
        interrupted.hint("the same command again: making goes on where it stopped, a copy begins anew"),
    )?;
    let runtime = runtime()?;
    let threads = std::thread::available_parallelism().map_or(2, |count| count.get());
    let mut steps = Vec::new();
    let manifest = match &args.from {
        Some(from) if args.replicate.is_none() => {
            let source = End::open(from, &args.reach, runtime.handle(), args.seed).map_err(named)?;
            let manifest = Manifest::read(source.target())?
                .ok_or_else(|| Error::invalid("there is no data set made by `stoker bench data`", from))?;
            make_folder(&args.folder)?;
            steps.push(sync("copy", &manifest, &source, &End::Folder(Folder::at(&args.folder)?))?);
            manifest
        }
        _ => {
            let (manifest, step) = make(&args, threads)?;
            steps.push(step);
            manifest
        }
    };
    let mut end = End::Folder(Folder::at(&args.folder)?);
    if let Some(to) = &args.to {
        make_end(to)?;
        let target = End::open(to, &args.reach, runtime.handle(), args.seed)?;
        steps.push(sync("sync", &manifest, &end, &target)?);
        end = target;
    }
    let wrong = if args.verify { check(&manifest, &end, threads, &mut steps)? } else { 0 };
    let warnings = warnings(manifest.bytes());
    for step in &steps {
        say!("{}", line(step))?;
    }
    warnings.iter().for_each(|warning| note!("warning: {warning}"));
    args.output.finish(&document(&args, &manifest, &steps, warnings))?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was done, and how long each copy to or from a store took.
fn document(args: &Args, manifest: &Manifest, steps: &[serde_json::Value], warnings: Vec<String>) -> Report {
    let machine = Machine::look(&args.folder.to_string_lossy(), None);
    let copies = steps.iter().filter(|step| ["sync", "copy"].iter().any(|name| step["step"] == *name));
    let syncs = copies.map(|step| {
        let store = if step["step"] == "sync" { &step["target"] } else { &step["from"] };
        json!({"store": store, "seconds": step["seconds"], "bytes": step["bytes"], "requests": step["requests"]})
    });
    let set = json!({
        "folder": args.folder, "bytes": manifest.bytes(), "files": manifest.files.len(),
        "samples": manifest.files.iter().map(|file| file.samples).sum::<u64>(),
    });
    Report {
        finished: true,
        seed: args.seed,
        workload: args.workload.clone(),
        settings: set,
        sections: [("sync".into(), syncs.collect()), ("steps".into(), json!(steps))].into(),
        warnings,
        ..Report::begin(
            report::Kind::Measured,
            "data",
            &args.folder.to_string_lossy(),
            machine.environment,
            machine.started,
        )
    }
}

/// A folder that is copied to is made.
fn make_end(url: &str) -> Result<()> {
    match url.parse()? {
        Location::Folder(path) => make_folder(&path),
        Location::S3 { .. }
        | Location::Google { .. }
        | Location::Azure { .. }
        | Location::Hdfs { .. }
        | Location::Web { .. } => Ok(()),
    }
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Error::io("cannot make the folder", folder.display(), &error))
}

/// Makes what was asked for; a folder that is asked for nothing has to hold a finished set.
fn make(args: &Args, threads: usize) -> anyhow::Result<(Manifest, serde_json::Value)> {
    let workload = args.workload.as_deref().map(workload).transpose()?;
    if let Some(workload) = workload.as_ref().filter(|workload| workload.checkpoint.is_some()) {
        let error = Error::invalid("a checkpoint reads no data set: it writes what it reads", &workload.name);
        return Err(error.hint("run it on an empty folder: stoker bench train --workload NAME --target FOLDER").into());
    }
    let set = match (&args.replicate, &args.from, &args.like, &workload) {
        (Some(copies), Some(from), ..) => {
            let packed = workload.as_ref().map(|workload| workload.files.format);
            let format = if packed == Some(Format::Tfrecord) { Format::Tfrecord } else { Format::Tar };
            Set::replicated(
                Replica::of(Path::new(from), *copies, args.shards.map(|shards| (shards, format))).map_err(named)?,
            )
        }
        (_, _, Some(like), workload) => {
            let samples = workload.as_ref().map(|workload| &workload.files);
            Set::shaped(likeness::of(&Folder::at(like).map_err(named)?, samples)?, args.seed)
        }
        (_, _, None, Some(workload)) => Set::shaped(Shape::of(&workload.files, count(args, workload)?), args.seed),
        _ => return Ok((Manifest::open(&args.folder).map_err(ask_for_some)?, json!({"step": "found"}))),
    };
    set.fits(&args.folder)?;
    make_folder(&args.folder)?;
    if let Some(shape) = &set.shape {
        note!("making {shape} on average");
    }
    let bar = show::bar("make");
    let began = Instant::now();
    let is_resumed = args.folder.join(data::MANIFEST).exists();
    let progressed = AtomicU64::new(0);
    let manifest = data::generate(&set, &args.folder, threads, &|progress| {
        progressed.fetch_add(1, Relaxed);
        advance(&bar, progress);
    })?;
    bar.finish_and_clear();
    // A finished set tells once that it is whole; one that is made tells of each piece and each file.
    if progressed.into_inner() <= 1 {
        return Ok((manifest, json!({"step": "found"})));
    }
    let mut step = step("make", &manifest, began.elapsed().as_secs_f64(), &args.folder.display().to_string());
    if is_resumed {
        step["resumed"] = json!(true);
    }
    Ok((manifest, step))
}

fn ask_for_some(error: Error) -> Error {
    match error.kind {
        Kind::Missing => {
            Error::invalid(error.what, error.on).hint("say what to make: --workload, --like or --replicate")
        }
        _ => error,
    }
}

fn workload(name: &str) -> Result<Workload> {
    let path = Path::new(name);
    if !path.is_file() {
        return shipped(name);
    }
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("cannot read the workload", name, &error))?;
    if name.ends_with(".yaml") || name.ends_with(".yml") {
        return Ok(import::dlio(&text, name)?.0);
    }
    Workload::parse(&text, name)
}

/// Files to make of a workload.
fn count(args: &Args, workload: &Workload) -> Result<u64> {
    let count = asked(args, workload)?;
    if count <= FILES_MAX {
        return Ok(count);
    }
    Err(Error::invalid(format!("a set has at most {FILES_MAX} files"), format!("{count} files"))
        .hint("ask for fewer --files or --accelerators, or for a workload with more samples in a file"))
}

fn asked(args: &Args, workload: &Workload) -> Result<u64> {
    let files = &workload.files;
    if let Some(text) = &args.accelerators {
        let wrong =
            || Error::invalid("this is no number of accelerators", text).hint("write 8, or 8x100 for 100 steps");
        let (accelerators, steps) =
            text.split_once('x').map_or((text.as_str(), None), |(left, right)| (left, Some(right)));
        let accelerators: u64 = accelerators.parse().map_err(|_| wrong())?;
        let steps = steps.map_or(Ok(STEPS), str::parse).map_err(|_| wrong())?;
        if accelerators.max(1).checked_mul(steps).and_then(|all| all.checked_mul(workload.read.batch)).is_none() {
            return Err(wrong());
        }
        return Ok(files_for(files, workload.read.batch, accelerators, steps, memory_bytes()));
    }
    let Some(text) = &args.files else { return Ok(files.count) };
    let wrong = || Error::invalid("this is no number of files", text).hint("write 1000, or a share such as 0.5%");
    if let Some(share) = text.strip_suffix('%') {
        let share: f64 = share.trim().parse().map_err(|_| wrong())?;
        let files = (files.count as f64 * share / 100.0).ceil();
        return if share > 0.0 && files < u64::MAX as f64 { Ok(files as u64) } else { Err(wrong()) };
    }
    text.parse().ok().filter(|&files| files > 0).ok_or_else(wrong)
}

fn sync(name: &str, manifest: &Manifest, from: &End, to: &End) -> anyhow::Result<serde_json::Value> {
    let url = to.target().url().to_owned();
    let writable = to.target().writable().ok_or_else(|| Error::invalid("this can't be written", &url))?;
    let store = if matches!(to, End::Store(_)) { to } else { from };
    if let End::Folder(folder) = to {
        data::room(manifest, Path::new(folder.url()))?;
    }
    let before = store.counts();
    let bar = show::bar(name);
    let began = Instant::now();
    data::copy(manifest, from.target(), writable, FILES_IN_FLIGHT, &|progress| advance(&bar, progress))?;
    to.settle()?;
    let seconds = began.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let mut step = step(name, manifest, seconds, &url);
    step["from"] = json!(from.target().url());
    if let (Some(before), Some(after)) = (before, store.counts()) {
        let requests = |counts: &Counts| counts.gets + counts.heads + counts.lists + counts.writes;
        step["requests"] = json!(requests(&after) - requests(&before));
        step["throttled"] = json!(after.throttled - before.throttled);
        step["repeated"] = json!(after.retries - before.retries);
    }
    Ok(step)
}

fn check(manifest: &Manifest, end: &End, threads: usize, steps: &mut Vec<serde_json::Value>) -> anyhow::Result<usize> {
    /// Enough to see what is the matter.
    const SHOWN: usize = 10;
    let threads = if matches!(end, End::Store(_)) { FILES_IN_FLIGHT } else { threads };
    let bar = show::bar("verify");
    let began = Instant::now();
    let wrong = data::verify(manifest, end.target(), threads, &|progress| advance(&bar, progress))?;
    bar.finish_and_clear();
    for error in wrong.iter().take(SHOWN) {
        note!("stoker: {error}");
    }
    if wrong.len() > SHOWN {
        note!("stoker: and {} more files", show::count((wrong.len() - SHOWN) as u64));
    }
    let mut step = step("verify", manifest, began.elapsed().as_secs_f64(), end.target().url());
    step["wrong_files"] = json!(wrong.len());
    steps.push(step);
    Ok(wrong.len())
}

fn step(name: &str, manifest: &Manifest, seconds: f64, target: &str) -> serde_json::Value {
    let bytes = manifest.bytes();
    json!({
        "step": name, "target": target, "seconds": seconds, "bytes": bytes, "files": manifest.files.len(),
        "bytes_per_second": bytes as f64 / seconds,
    })
}

/// One line for people.
fn line(step: &serde_json::Value) -> String {
    let number = |name: &str| step[name].as_f64();
    let Some(seconds) = number("seconds") else { return "the set was there".into() };
    let (bytes, rate) = (number("bytes").unwrap_or(0.0), number("bytes_per_second").unwrap_or(0.0));
    let mut line = format!(
        "{:6} {} in {}, {seconds:.2} s, {:.2} GB/s, {}",
        step["step"].as_str().unwrap_or_default(),
        show::bytes(bytes as u64),
        show::count_of(step["files"].as_u64().unwrap_or(0), "file"),
        rate / 1e9,
        step["target"].as_str().unwrap_or_default(),
    );
    for (name, of) in
        [("requests", "requests"), ("throttled", "throttled"), ("repeated", "repeated"), ("wrong_files", "wrong files")]
    {
        if let Some(count) = step[name].as_u64() {
            line += &format!(", {} {of}", show::count(count));
        }
    }
    if step["resumed"] == true {
        line += "; some of it stood already, so that the rate says little";
    }
    line
}

fn advance(bar: &indicatif::ProgressBar, progress: Progress) {
    bar.set_length(progress.bytes_total);
    bar.set_position(progress.bytes);
}

fn warnings(bytes: u64) -> Vec<String> {
    let memory = memory_bytes();
    if memory == 0 || bytes > memory {
        return Vec::new();
    }
    vec![format!(
        "the set ({}) fits in this machine's memory ({}), so that epochs after the first may never reach the storage; \
         MLPerf Storage asks for five times the memory: {}",
        show::bytes(bytes),
        show::bytes(memory),
        show::bytes(5 * memory)
    )]
}

/// Memory of this machine; nought where the kernel doesn't say.
fn memory_bytes() -> u64 {
    place::memory_of_machine().unwrap_or(0)
}
