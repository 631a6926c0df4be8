//! `stoker bench sweep`: files of each size by each number of threads, as a table, as JSON, and as the two regimes.

mod progress;
mod table;

use super::end::End;
use super::launch;
use super::machine::{self, Machine};
use super::output::Output;
use super::typed;
use crate::args::Reach;
use crate::node::INTERRUPTED;
use crate::{ends, place, print, runtime, show};
use ::bench::cold::Cooler;
use ::bench::ground::{Ground, Site};
use ::bench::room;
use ::bench::sweep::{self, Cell, Ended, Live, Observer, Phase, Settings, Step, TELLING_SECONDS, regime};
use ::emulate::parse;
use block::Error;
use ranks::Ranks;
use report::{Environment, Kind, Report};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Written by one cell, unless --limit says otherwise: a file of 64 MiB for each of 128 threads.
const CELL_BYTES_MAX: u64 = 8 << 30;
/// How much of the free space a cell takes at most, unless --limit says otherwise.
const FREE_SHARE: u64 = 2;
/// What one call moves: what copying programs ask a file system for, and about what pays for a request to a store.
const FOLDER_BLOCK: u64 = 1 << 20;
const STORE_BLOCK: u64 = 8 << 20;
const RANDOM_BLOCK: u64 = 128 << 10;

/// Write, look up, read, read at random places and remove files. All of them lie in a folder of their own below the
/// target, which is removed at the end, also after Ctrl-C. `docs/sweep.md` says how figures are made.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A folder of any file system, or the URL of a store
    target: String,
    /// Sizes of files
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes,
          default_value = "256KiB,1MiB,4MiB,16MiB,64MiB")]
    sizes: Vec<u64>,
    /// Threads of each rank
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    threads: Vec<u64>,
    /// What to do between writing and removing
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "stat,read,random",
          ignore_case = true, value_parser = ["write", "stat", "read", "random", "delete"])]
    phases: Vec<String>,
    /// Size of one call, and after a comma that of one call of a random read; by default 1MiB (of a store 8MiB)
    /// and 128KiB
    #[arg(long, value_name = "SIZE[,SIZE]", value_delimiter = ',', value_parser = bytes)]
    block: Vec<u64>,
    /// End each phase after this time, and each cell after this many bytes, such as 10s,4GiB; by default 3s and 8GiB
    /// or half of the free space; 12800files writes so many in each cell
    #[arg(long, value_name = "TIME,SIZE,FILES", value_delimiter = ',')]
    limit: Vec<String>,
    /// Run all cells so many times, and give intervals
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repetitions: u64,
    /// Pass the page cache by; sizes and blocks are multiples of 4 KiB
    #[arg(long)]
    direct: bool,
    /// Let a write end before its file is on the disk
    #[arg(long)]
    no_fsync: bool,
    /// Compare every byte that is read with what was written
    #[arg(long)]
    verify: bool,
    /// Drop the caches of this machine before each phase and after the last, and prove it
    #[arg(long, help_heading = "Caches")]
    drop_caches: bool,
    /// The same as --drop-caches, and run this command to drop the target's own
    #[arg(long, value_name = "COMMAND", help_heading = "Caches")]
    drop_command: Option<String>,
    /// Each rank reads what the next one wrote
    #[arg(long)]
    rotate: bool,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    output: Output,
}

fn bytes(text: &str) -> block::Result<u64> {
    parse::size(text)
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.output.check()?;
    let (ranks, runtime) = (launch::ranks()?, runtime()?);
    let seed = machine::seed();
    let mut settings = settings(&args, seed)?;
    let site = site(&args, runtime.handle())?;
    let machine = Machine::look(&folder(&args).to_string_lossy(), None);
    settings.bytes_max = bytes_max(&args, &settings, &machine, &*ranks)?;
    settings.check(ranks.size())?;
    let mut report = report(&args, &settings, machine, ranks.size());
    args.output.save(&report)?;
    let (ground, seed) = Ground::meet(site, sweep::WORK, seed, &*ranks).map_err(super::named)?;
    (settings.seed, report.seed) = (seed, seed);
    let live = Arc::new(Live::default());
    let stops = live.clone();
    ends::stop_if_told(move || stops.stop.swap(true, Ordering::Relaxed))?;
    let book = Book { report: Mutex::new(report), output: &args.output, progress: progress::Progress::start() };
    let ended = std::thread::scope(|scope| {
        let _shown = book.progress.show(scope, &live);
        sweep::run(&settings, &ground, &*ranks, &live, &book)
    });
    let mut report = book.report.into_inner().expect("no thread panics while it holds the report");
    report.finished = matches!(ended, Ok(Ended::Finished));
    if let Err(error) = &ended {
        report.broke(error);
    }
    // A rank that leaves early would be taken for one that died.
    let ended = ended.and_then(|ended| ranks.barrier().map(|()| ended));
    if ranks.rank() != 0 {
        return Ok(code(ended?));
    }
    let cells = cells(&report);
    report.warnings.extend(short(&cells));
    if !cells.is_empty() {
        print::out(format_args!(
            "{}",
            table::text(&cells, &report.warnings, place::colour(std::io::stdout().is_terminal()))
        ))?;
    }
    if cells.is_empty() || ended.is_err() {
        report.warnings.iter().for_each(|warning| note!("warning: {warning}"));
    }
    args.output.finish(&report)?;
    Ok(code(ended?))
}

fn code(ended: Ended) -> ExitCode {
    match ended {
        Ended::Finished => ExitCode::SUCCESS,
        Ended::Interrupted => {
            note!("stoker: interrupted; the files are removed, and what was measured is kept");
            ExitCode::from(INTERRUPTED)
        }
    }
}

/// What to work on.
fn site(args: &Args, runtime: &tokio::runtime::Handle) -> anyhow::Result<Site> {
    match is_store(args) {
        true if args.no_fsync => {
            let error = Error::invalid("a store keeps what it was given before it answers", &args.target);
            Err(error.hint("leave out --no-fsync: it is for folders").into())
        }
        true if args.direct => {
            let error = Error::invalid("direct I/O is for folders", &args.target);
            Err(error.hint("leave out --direct: nothing of a store passes through the page cache").into())
        }
        true => match End::open(&args.target, &args.reach, runtime, 0)? {
            End::Store(store) => Ok(Site::Store(Box::new(store))),
            End::Folder(_) => unreachable!("a URL of a store was asked for"),
        },
        false => {
            let found = rustix::fs::statvfs(folder(args));
            if found.is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)) {
                let error = Error::invalid("this file system is read-only, and a sweep writes files", &args.target);
                return Err(error.hint("name a folder that can be written").into());
            }
            Ok(Site::Folder { root: folder(args), direct: args.direct })
        }
    }
}

fn is_store(args: &Args) -> bool {
    args.target.split_once("://").is_some_and(|(scheme, _)| scheme != "file")
}

fn folder(args: &Args) -> PathBuf {
    PathBuf::from(args.target.strip_prefix("file://").unwrap_or(&args.target))
}

fn settings(args: &Args, seed: u64) -> anyhow::Result<Settings> {
    let once = |list: &[u64]| {
        let mut list = list.to_vec();
        list.sort_unstable();
        list.dedup();
        list
    };
    let (block, random_block) = match args.block[..] {
        [] => (if is_store(args) { STORE_BLOCK } else { FOLDER_BLOCK }, RANDOM_BLOCK),
        [block] => (block, block),
        [block, random] => (block, random),
        _ => {
            let error = Error::invalid("there are two kinds of reading, and so at most two blocks", "--block");
            return Err(error.hint("give one size, or two such as 1MiB,128KiB").into());
        }
    };
    let limits = limits(args)?;
    let is_cooled = args.drop_caches || args.drop_command.is_some();
    Ok(Settings {
        sizes: once(&args.sizes),
        threads: once(&args.threads),
        phases: Phase::ALL
            .into_iter()
            .filter(|phase| args.phases.iter().any(|name| name.eq_ignore_ascii_case(phase.name())))
            .collect(),
        block,
        random_block,
        repetitions: args.repetitions,
        bytes_max: limits.bytes.unwrap_or(CELL_BYTES_MAX),
        files: limits.files,
        time_max: limits.time,
        direct: args.direct,
        durable: !args.no_fsync,
        verify: args.verify,
        cooler: is_cooled.then(|| Cooler { command: args.drop_command.clone() }),
        rotate: args.rotate,
        seed,
    })
}

/// When a phase or a cell ends.
struct Limits {
    time: Option<Duration>,
    bytes: Option<u64>,
    files: Option<u64>,
}

/// What one rank writes in one cell: rank 0 decides for all, by the file system that has the least room for each of the ranks
/// on it.
fn bytes_max(args: &Args, settings: &Settings, machine: &Machine, ranks: &dyn Ranks) -> anyhow::Result<u64> {
    let asked = limits(args)?.bytes;
    let (part, most) = if settings.files.is_some() { (1, u64::MAX) } else { (FREE_SHARE, CELL_BYTES_MAX) };
    let found = room::share(ranks, machine.room().as_ref(), asked, part, most);
    Ok(found.map_err(|error| match error.kind {
        block::Kind::Full => {
            let hint = format!("{}, as --limit SIZE", error.hint);
            error.hint(hint)
        }
        _ => error,
    })?)
}

/// Each part of --limit is a time, a size or a number of files; without a time but with another there is none. Files that
/// were asked for are written, as far as there is room for them.
fn limits(args: &Args) -> anyhow::Result<Limits> {
    let (mut time, mut most, mut files) = (None, None, None);
    let count = |part: &str| part.trim().strip_suffix("files")?.trim().parse().ok().filter(|count| *count > 0);
    for part in &args.limit {
        match (parse::duration(part), parse::size(part), count(part)) {
            (_, _, Some(limit)) => files = Some(limit),
            (Ok(limit), ..) => time = Some(limit),
            (_, Ok(limit), _) => most = Some(limit),
            _ => {
                let error = Error::invalid("a limit was not understood", format!("--limit {part}"));
                return Err(error
                    .hint("give a time, a size or a number of files, such as 10s,4GiB or 12800files")
                    .into());
            }
        }
    }
    let default_time = args.limit.is_empty().then_some(Duration::from_secs(3));
    Ok(Limits { time: time.or(default_time), bytes: most, files })
}

fn report(args: &Args, settings: &Settings, machine: Machine, ranks: u32) -> Report {
    let limit = serde_json::json!({
        "bytes": settings.bytes_max,
        "files": settings.files,
        "seconds": settings.time_max.map(|limit| limit.as_secs_f64()),
    });
    let settings = serde_json::json!({
        "sizes": settings.sizes,
        "threads": settings.threads,
        "phases": settings.phases,
        "block": settings.block,
        "random_block": settings.random_block,
        "limit": limit,
        "direct": settings.direct,
        "durable": settings.durable,
        "repetitions": settings.repetitions,
        "verify": settings.verify,
        "drop_caches": settings.cooler.is_some(),
        // The command itself may hold a key.
        "drop_command": args.drop_command.as_ref().map(|_| typed::GIVEN),
        "rotate": settings.rotate,
    });
    let environment = Environment { ranks: u64::from(ranks), ..machine.environment };
    Report { settings, ..Report::begin(Kind::Measured, "sweep", &args.target, environment, machine.started) }
}

fn cells(report: &Report) -> Vec<Cell> {
    let read = |cell: &serde_json::Value| serde_json::from_value(cell.clone()).expect("a cell was written as one");
    report.cells.iter().map(read).collect()
}

/// Cells whose throughput is not to be trusted.
fn short(cells: &[Cell]) -> Option<String> {
    let count = cells.iter().filter(|cell| cell.is_short()).count();
    (count > 0).then(|| {
        format!(
            "{count} of {} cells, marked ~, lasted less than {TELLING_SECONDS} s and count for nothing: raise the size of --limit",
            cells.len()
        )
    })
}

/// What was measured so far, on the disk and on the terminal.
struct Book<'a> {
    report: Mutex<Report>,
    output: &'a Output,
    progress: progress::Progress,
}

impl Observer for Book<'_> {
    fn began(&self, step: &Step) {
        self.progress.began(step);
    }

    fn ended(&self, cell: Cell) -> block::Result<()> {
        let mut report = self.report.lock().expect("no thread panics while it holds the report");
        if let Some(because) = cell.cooled.as_ref().and_then(|cooled| cooled.because.as_ref()) {
            let warning = format!("not cold: {because}");
            if !report.warnings.contains(&warning) {
                report.warnings.push(warning);
            }
        }
        report.cells.push(serde_json::to_value(cell).expect("a cell has no keys but strings"));
        let summary = regime::Summary::of(&cells(&report));
        report.sections.insert("regimes".into(), serde_json::to_value(summary.regimes).expect("numbers and texts"));
        report
            .sections
            .insert("saturation".into(), serde_json::to_value(summary.saturation).expect("numbers and texts"));
        self.output.save(&report)
    }

    fn warn(&self, warning: String) {
        self.report.lock().expect("no thread panics while it holds the report").warnings.push(warning);
    }
}

/// A throughput as people read it.
fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", show::bytes(bytes_per_second as u64))
}
