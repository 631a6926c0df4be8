//! `stoker bench simulate`: the loop of a training job in simulated time, for more accelerators than there are.
//!
//! It simulates nothing itself. Invariant: whatever is shown or saved is called simulated.

mod parse;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::machine::Machine;
use super::output::Output;
use super::train::INVALID;
use ::bench::simulate::{Answer, Cache, Nodes, Overhead, Question, Rule, Store, ask, fields};
use anyhow::Result;
use block::Error;
use report::{Kind, Report};
use workload::Workload;
use workload::{accelerator, import};

/// Steps of an epoch where nothing says how many: what the first round of MLPerf Storage asked for.
const STEPS: u64 = 100;

/// What is simulated, by which formulas, and where it misfits what was published: docs/simulation.md
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Shipped workload, a file of your own (.toml), or a workload of DLIO (.yaml); also as --import
    #[arg(long, value_name = "NAME|FILE", alias = "import")]
    workload: String,
    /// Shipped accelerator, a file of your own, or the time of a step; not needed where a DLIO file has it
    #[arg(long, value_name = "NAME|FILE|TIME")]
    accelerator: Option<String>,
    /// How many: 180; several draw a curve: 60,98,180 or 20..200 or 20..200:20
    #[arg(long, value_name = "N,N..")]
    accelerators: String,
    /// 300Gbit/s[,latency=20ms,p99=100ms,stream=70MB/s,rps=5500,request=8MB,slow=1%:2s], or a file with these fields
    #[arg(long, value_name = "FIGURES|FILE", required_unless_present = "calibrate")]
    store: Option<String>,
    /// Take the figures of the store from the probe in the report of a measured run
    #[arg(long, value_name = "REPORT.json", conflicts_with = "store")]
    calibrate: Option<PathBuf>,
    /// Share of the set that a cache holds: 0.5[,policy=never|lru|random,place=peers|local|apart,bandwidth=6GB/s,latency=1ms]
    #[arg(long, value_name = "SHARE", conflicts_with = "hit_rate")]
    cache_ratio: Option<String>,
    /// Share of reads that hit a cache; several are of one epoch each: 25%,100%[,place=..,bandwidth=..,latency=..]
    #[arg(long, value_name = "SHARES")]
    hit_rate: Option<String>,
    /// Accelerators of a node, and its network each way: 8[,25Gbit/s,stragglers=2%x3]
    #[arg(long, value_name = "K")]
    node: Option<String>,
    /// What a barrier and the program cost each step: 16ms[,every=50]
    #[arg(long, value_name = "TIME")]
    overhead: Option<String>,
    /// Epochs, and steps of each: 5 or 5x500; by default 100 steps, and one epoch where no cache fills
    #[arg(long, value_name = "N[xSTEPS]")]
    epochs: Option<String>,
    /// Seed, or one for each repetition
    #[arg(long, value_name = "N[..N]", default_value = "1..5")]
    seed: String,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: Args) -> Result<ExitCode> {
    args.output.check()?;
    let machine = Machine::look("", None);
    let (questions, seeds) = (questions(&args)?, parse::seeds(&args.seed)?);
    let steps = questions.iter().fold(0, |steps: u64, question| steps.saturating_add(question.steps_of_all()));
    let bar = show::bar(steps.saturating_mul(seeds.len() as u64));
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let answers = ask(&questions, &seeds, threads, &|steps| bar.inc(steps));
    bar.finish_and_clear();
    let report = report(&args, &answers?, &seeds, machine);
    show::print(&report, &questions[0])?;
    args.output.finish(&report)?;
    Ok(if report.invalid().is_some() { ExitCode::from(INVALID) } else { ExitCode::SUCCESS })
}

/// One question for each number of accelerators.
fn questions(args: &Args) -> Result<Vec<Question>> {
    let (workload, step_seconds) = factors(args)?;
    if workload.checkpoint.is_some() {
        let error = Error::invalid("writing and reading the state of a model is not simulated", &workload.name);
        return Err(error.hint("measure it: stoker bench train --workload NAME --target FOLDER").into());
    }
    let cache = match (&args.cache_ratio, &args.hit_rate) {
        (Some(ratio), _) => parse::cache(ratio, true)?,
        (None, Some(rate)) => parse::cache(rate, false)?,
        (None, None) => Cache::default(),
    };
    let (epochs, steps) = match &args.epochs {
        Some(typed) => parse::epochs(typed)?,
        None => match &cache.rule {
            Rule::Ratio { .. } => (workload.read.epochs.max(2), None),
            Rule::Rates(rates) if rates.len() > 1 => (workload.read.epochs.max(rates.len() as u64), None),
            Rule::Rates(_) => (1, None),
        },
    };
    let question = Question {
        steps: steps.unwrap_or_else(|| workload.read.steps_max.unwrap_or(STEPS).min(STEPS)),
        workload,
        step_seconds,
        accelerators: 1,
        epochs,
        store: store(args)?,
        cache,
        nodes: args.node.as_deref().map_or(Ok(Nodes::default()), parse::nodes)?,
        overhead: args.overhead.as_deref().map_or(Ok(Overhead::default()), parse::overhead)?,
    };
    let counts = parse::counts(&args.accelerators)?;
    Ok(counts.into_iter().map(|accelerators| Question { accelerators, ..question.clone() }).collect())
}

/// The workload as the accelerator takes it, and the time of a step.
fn factors(args: &Args) -> Result<(Workload, f64)> {
    let typed = &args.workload;
    let ends =
        |ending: &[&str]| Path::new(typed).extension().is_some_and(|found| ending.iter().any(|end| found == *end));
    let (workload, own) = match () {
        () if ends(&["yaml", "yml"]) => import::dlio(&read(Path::new(typed))?, typed)?,
        () if ends(&["toml"]) => (Workload::parse(&read(Path::new(typed))?, typed)?, None),
        () => (workload::shipped(typed)?, None),
    };
    let step = match (&args.accelerator, own) {
        (None, Some(step)) => step,
        (None, None) => {
            let error = Error::invalid("no accelerator was named", format!("--workload {typed}"));
            return Err(error
                .hint("name one, such as --accelerator h100, or the time of a step, such as 300ms")
                .into());
        }
        (Some(name), _) => match ::emulate::parse::duration(name) {
            Ok(time) if !time.is_zero() => return Ok((workload, time.as_secs_f64())),
            _ if name.ends_with(".toml") => {
                accelerator::Accelerator::parse(&read(Path::new(name))?, name)?.step(&workload.name)?.clone()
            }
            _ => accelerator::shipped(name)?.step(&workload.name)?.clone(),
        },
    };
    Ok((step.applied(workload), step.step_seconds))
}

fn store(args: &Args) -> Result<Store> {
    if let Some(path) = &args.calibrate {
        return Ok(Store::probed(&Report::open(path).map_err(super::named)?, &path.display().to_string())?);
    }
    let typed = args.store.as_deref().unwrap_or_default();
    let fields = match typed.ends_with(".toml") {
        true => fields(&read(Path::new(typed))?, typed)?,
        false => parse::fields(typed),
    };
    Ok(parse::store(typed, &fields)?)
}

fn read(path: &Path) -> Result<String> {
    let failed = |error| super::named(Error::io("cannot read the file", path.display(), &error));
    Ok(std::fs::read_to_string(path).map_err(failed)?)
}

fn report(args: &Args, answers: &[Answer], seeds: &[u64], machine: Machine) -> Report {
    let question = &answers[0].question;
    let alone = (answers.len() == 1).then(|| &answers[0]);
    let accelerator = args.accelerator.as_deref().map_or("its own step", accelerator::spelt).to_owned();
    let hits: Vec<Vec<f64>> = answers.iter().flat_map(Answer::hits_by_point).collect();
    let mut report = Report {
        finished: true,
        settings: serde_json::json!({ "question": question, "seeds": seeds, "accelerators": args.accelerators }),
        seed: seeds[0],
        workload: Some(question.workload.name.clone()),
        accelerator: Some(accelerator),
        accelerators: alone.map(|answer| answer.question.accelerators),
        epochs: alone.map(|answer| answer.runs.concat()).unwrap_or_default(),
        summary: alone.map(Answer::summary),
        points: answers.iter().flat_map(Answer::points).collect(),
        sections: [("simulation".to_owned(), serde_json::json!({ "hit_share_by_point_and_epoch": hits }))].into(),
        warnings: warnings(args, question, answers),
        ..Report::begin(Kind::Simulated, "simulate", &question.store.name, machine.environment, machine.started)
    };
    answers.iter().flat_map(Answer::failed).for_each(|sentence| report.fail(sentence));
    report
}

/// What a reader must know before trusting a figure.
fn warnings(args: &Args, question: &Question, answers: &[Answer]) -> Vec<String> {
    let mut warnings = Vec::new();
    let read = &question.workload.read;
    if question.steps < question.least() {
        warnings.push(format!(
            "{} steps are few beside {} batches ahead, which flatter the steps that take them; ask for more with --epochs {}x{}",
            question.steps, read.prefetch_batches, question.epochs, question.least()
        ));
    }
    let short: usize = answers.iter().map(Answer::short).sum();
    if short > 0 {
        warnings.push(format!(
            "{} above the bound of mean sizes, hits and latencies, as chance lets few samples be: no share of it; more \
            steps tell, with --epochs {}x{}",
            if short == 1 { "1 epoch is".to_owned() } else { format!("{short} epochs are") },
            question.epochs,
            4 * question.steps,
        ));
    }
    if args.calibrate.is_some() {
        let what = "the store was probed from the machines of that run: more of them may get more, or less";
        warnings.push(what.to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::bench::bound::Supply;
    use ::bench::probe::Probe;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    fn asked(typed: &str) -> Result<Vec<Question>> {
        questions(&Typed::try_parse_from(["x"].into_iter().chain(typed.split_whitespace()))?.args)
    }

    #[test]
    fn a_curve_asks_one_question_for_each_number_and_takes_the_accelerators_batch() {
        let found = asked("--workload unet3d --accelerator v100 --accelerators 60,180 --store 300Gbit/s").unwrap();
        let counts: Vec<u64> = found.iter().map(|question| question.accelerators).collect();
        assert_eq!((counts, found[0].workload.read.batch, found[0].step_seconds), (vec![60, 180], 4, 1.3604));
        assert_eq!((found[0].epochs, found[0].steps), (1, 100));
    }

    #[test]
    fn what_can_not_be_simulated_is_refused() {
        for (typed, said) in [
            ("--workload unet3d --accelerator v100 --accelerators 128,8..2", "2..8"),
            ("--workload checkpoint-llama3-8b --accelerator 1s --accelerators 8", "bench train"),
        ] {
            let error = asked(&format!("{typed} --store 300Gbit/s")).unwrap_err();
            let error = error.downcast_ref::<Error>().unwrap();
            assert!(error.hint.contains(said), "{typed}: {error}");
        }
    }

    #[test]
    fn a_file_of_dlio_brings_its_step_and_a_file_of_figures_its_store() {
        let folder = tempfile::tempdir().unwrap();
        let (file, figures) = (folder.path().join("photos.yaml"), folder.path().join("store.toml"));
        let text = "dataset: {format: jpeg, num_files_train: 9, record_length: 1e5}\ntrain: {computation_time: 0.25}";
        std::fs::write(&file, text).unwrap();
        std::fs::write(&figures, "name = \"ours\"\nbandwidth = \"8Gbit/s\"\nlatency = \"20ms\"\nrps = 5500\n").unwrap();
        let typed = format!("--import {} --accelerators 8 --store {}", file.display(), figures.display());
        let found = asked(&typed).unwrap().remove(0);
        assert_eq!((found.workload.name.as_str(), found.step_seconds), ("photos", 0.25));
        assert_eq!((found.store.name.as_str(), found.store.bytes_per_second), ("ours", Some(1e9)));
        assert_eq!((found.store.latency.median, found.store.requests_per_second), (0.02, Some(5500.0)));
    }

    #[test]
    fn the_probe_of_a_measured_run_is_a_store() {
        let question = asked("--workload bert --accelerator v100 --accelerators 8 --store 1GB/s").unwrap().remove(0);
        let answers = ask(&[question], &[1], 1, &|_| ()).unwrap();
        let typed = "--workload bert --accelerator 1s --accelerators 8 --store 1GB/s".split_whitespace();
        let args = Typed::try_parse_from(["x"].into_iter().chain(typed)).unwrap().args;
        let mut measured = report(&args, &answers, &[1], Machine::look("", None));
        assert_eq!(measured.kind, Kind::Simulated);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        measured.save(&path).unwrap();
        let typed = format!("--workload bert --accelerator 1s --accelerators 8 --calibrate {}", path.display());
        assert!(asked(&typed).unwrap_err().to_string().contains("no probe"));
        let probe = Probe {
            supply: Supply { bytes_per_second: 2e9, latency_seconds: 0.01, ..Supply::default() },
            latency_p99_seconds: 0.02,
            ..Probe::default()
        };
        measured.sections.insert("probe".to_owned(), serde_json::to_value(probe).unwrap());
        measured.save(&path).unwrap();
        let store = asked(&typed).unwrap().remove(0).store;
        assert_eq!((store.bytes_per_second, store.latency.median, store.latency.p99), (Some(2e9), 0.01, 0.02));
    }
}
