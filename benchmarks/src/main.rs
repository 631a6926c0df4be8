//! Side-by-side measurements of Stoker, its peers and the native file system. Never shipped.
//!
//! Layout: `dataset` says which bytes there are, `workload` what is read in which state; `server`
//! and `target` start what is measured, `mount` and `process` put it away again; `read` is the
//! reader, a process of its own, `ask` one that asks a member; `cell` measures one cell, `campaign` all of them; `record` keeps
//! every sample, `summary` turns them into tables. Only `progress` prints, and it measures
//! nothing.

mod ask;
mod bare;
mod campaign;
mod cell;
mod dataset;
mod interrupt;
mod mount;
mod process;
mod progress;
mod read;
mod record;
mod server;
mod setup;
mod summary;
mod target;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

use campaign::Campaign;
use cell::Bench;
use dataset::Scale;
use record::{Record, Settings, Subject};
use server::Server;
use target::{Paths, Target};
use workload::{WORKLOADS, Workload};

#[derive(Parser)]
#[command(about = "Measures Stoker side by side with its peers and the native file system")]
struct Line {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure, and write setup.md, raw.json and summary.md.
    Run(Run),
    /// Make summary.md from the raw.json of a folder, again.
    Summary { folder: PathBuf },
    /// Read one workload below a folder and print what it took, as JSON.
    Read(read::Order),
    /// Bring the large files here by the least that it takes, and print what it took, as JSON.
    Bare(bare::Order),
    /// Ask a member for what it keeps as fast as it gives, and print how much came, as JSON.
    Ask(ask::Order),
}

#[derive(Args)]
struct Run {
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Of native, stoker, stoker-immutable, s3fs, rclone, juicefs, mountpoint, geesefs.
    #[arg(long, value_delimiter = ',', default_value = "native,stoker,stoker-immutable,s3fs,rclone")]
    targets: Vec<String>,
    /// All of them unless given.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// Where the results go: runs/<date>-<machine>.
    #[arg(long)]
    out: PathBuf,
    /// Data, caches and mount points, several GB; a file system like that of real caches.
    #[arg(long, default_value = "/tmp/stoker-benchmarks")]
    work: PathBuf,
    /// The server's copy of the data; best in memory.
    #[arg(long, default_value = "/dev/shm/stoker-benchmarks")]
    server_data: PathBuf,
    #[arg(long, default_value = "emulate")]
    server: server::Kind,
    /// Added to the server's command line, for example --server-argument=--latency=20ms.
    #[arg(long, allow_hyphen_values = true)]
    server_argument: Vec<String>,
    #[arg(long, default_value = "full")]
    scale: Scale,
    /// The program to measure.
    #[arg(long, default_value = "target/release/stoker")]
    stoker: PathBuf,
    /// Go on with a run that was interrupted, in the same folder.
    #[arg(long)]
    resume: bool,
    /// Seconds that one reader may take.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

fn main() -> ExitCode {
    let result = match Line::parse().command {
        Verb::Run(run) => measure(&run),
        Verb::Summary { folder } => summarize(&folder),
        Verb::Ask(order) => ask::ask(&order).and_then(|came| progress::came(&came)),
        Verb::Bare(order) => bare::run(&order).and_then(|outcome| progress::outcome(&outcome)),
        Verb::Read(order) => read::read(&order).and_then(|outcome| progress::outcome(&outcome)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::failed(&error);
            ExitCode::FAILURE
        }
    }
}

fn measure(run: &Run) -> Result<()> {
    interrupt::catch();
    let stoker = std::path::absolute(&run.stoker)?;
    let record = begin(run)?;
    let logs = run.work.join("logs");
    for folder in [&run.work, &run.out, &logs] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    mount::detach_all_below(&fs::canonicalize(&run.work)?)?;
    let data = run.work.join("data").join(run.scale.name());
    let server_root = run.server_data.join(run.scale.name());
    for root in [&data, &server_root.join(server::BUCKET)] {
        progress::preparing(root);
        run.scale.generate(root)?;
    }
    let server = Server::start(&server::Plan {
        kind: run.server,
        stoker: stoker.clone(),
        root: server_root.clone(),
        logs: logs.clone(),
        extra: run.server_argument.clone(),
    })?;
    let facts =
        setup::Facts { work: &run.work, server_root: &server_root, server_version: run.server.version(&stoker) };
    let (targets, subjects) = choose(run, &stoker, &server, &data)?;
    let mut campaign = Campaign {
        bench: Bench { scale: run.scale, logs, limit: Duration::from_secs(run.limit) },
        server,
        targets,
        record: record.about(subjects, &target::all(&stoker)),
        out: run.out.clone(),
        observer: &mut progress::show,
    };
    let arguments: Vec<String> = std::env::args().collect();
    // A run that goes on may do so on a changed machine: each part has its own description.
    let path = run.out.join("setup.md");
    let before = fs::read_to_string(&path).map(|text| text + "\n").unwrap_or_default();
    fs::write(&path, before + &setup::describe(&campaign, &facts, &arguments))?;
    let result = campaign.run();
    drop(campaign);
    summarize(&run.out)?;
    result
}

/// A new record, or the one to go on with.
fn begin(run: &Run) -> Result<Record> {
    let settings = Settings {
        scale: run.scale,
        server: run.server,
        server_extra: run.server_argument.clone(),
        workloads: if run.workloads.is_empty() { WORKLOADS.to_vec() } else { run.workloads.clone() },
        rounds: run.rounds,
    };
    if !Record::exists(&run.out) {
        return Ok(Record::new(settings));
    }
    if !run.resume {
        bail!("{} holds a run; give --resume to go on with it or another --out", run.out.display());
    }
    let mut record = Record::load(&run.out)?;
    let same = |one: &Settings| (one.scale, one.server, one.server_extra.clone());
    if same(&record.settings) != same(&settings) {
        bail!("{} was measured with other settings: {:?}", run.out.display(), record.settings);
    }
    record.settings = settings;
    Ok(record)
}

type Chosen = Vec<(Box<dyn Target>, Paths)>;

/// Those that were asked for and are installed; all that were asked for are in the record.
fn choose(run: &Run, stoker: &Path, server: &Server, data: &Path) -> Result<(Chosen, Vec<Subject>)> {
    let known = target::all(stoker);
    if let Some(name) = run.targets.iter().find(|name| known.iter().all(|one| one.name() != *name)) {
        bail!("there is no target named {name}");
    }
    let mut chosen = Vec::new();
    let mut subjects = Vec::new();
    let work = fs::canonicalize(&run.work)?;
    for target in known.into_iter().filter(|one| run.targets.iter().any(|name| name == one.name())) {
        let version = target.version();
        let absent = version.is_none().then(|| "not installed".to_owned());
        if let Some(why) = &absent {
            progress::show(campaign::Event::Absent { target: target.name(), why });
        }
        subjects.push(Subject { name: target.name().to_owned(), version: version.clone(), absent });
        if version.is_some() {
            let place = Paths {
                endpoint: server.endpoint(),
                data: data.to_owned(),
                mountpoint: work.join("mounts").join(target.name()),
                cache: work.join("caches").join(target.name()),
                kept: work.join("kept").join(target.name()),
                logs: work.join("logs"),
            };
            chosen.push((target, place));
        }
    }
    Ok((chosen, subjects))
}

fn summarize(folder: &Path) -> Result<()> {
    let page = summary::page(&Record::load(folder)?);
    let path = folder.join("summary.md");
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    progress::written(&path);
    Ok(())
}
