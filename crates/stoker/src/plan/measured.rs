//! What was measured: the demand of a run, and what a service gave in one.
//!
//! Invariant: a run that does not tell what is asked of it is refused, and the refusal says which run would.

use std::path::Path;

use ::plan::wrong::plain;
use anyhow::Result;
use block::Error;
use report::{Epoch, Kind, Report};
use serde::Deserialize;
use trace::{Trace, derive};
use workload::Workload;

use super::asked::{Job, of_workload};
use super::layers::read;

/// Accelerators that compute for more of what the loop allows were not held back, or hardly.
const BUSY: f64 = 0.98;
/// Accelerators that computed for less of their time say what storage gave, not what they take; for more than all of it, nothing.
const AU_PERCENT: std::ops::RangeInclusive<f64> = 90.0..=102.0;
/// Of what was asked for, so much came over the network where a service was read.
const FROM_AFAR: f64 = 0.5;

/// The demand of a run: a report of a benchmark, or what was observed of any program.
pub fn demand(path: &Path, accelerator: Option<&str>) -> Result<Job> {
    let refused = |what: String| {
        Error::invalid(plain(what), format!("--measured {}", path.display()))
            .hint("a report of `stoker bench train` on local NVMe, or what `stoker observe --save` wrote")
    };
    let document: serde_json::Value =
        serde_json::from_str(&read(path)?).map_err(|error| refused(format!("this is no JSON: {error}")))?;
    if document["command"] != "observe" {
        let report = report(document, path)?;
        return benchmarked(&report, accelerator).map_err(|what| refused(what).into());
    }
    let name = accelerator.ok_or_else(|| refused("no accelerator was named".into()).hint("--accelerator h100"))?;
    let trace =
        Trace::deserialize(&document["trace"]).map_err(|error| refused(format!("there is no trace in it: {error}")))?;
    let derived = derive::of(&trace, "observed")?;
    let step = derived.accelerator.steps.values().next().map_or(0.0, |step| step.step_seconds);
    if step <= 0.0 {
        return Err(refused("nothing was computed between its reads".into()).into());
    }
    let rate = derived.workload.read.batch as f64 / step;
    Ok(of_workload(&derived.workload, name, Some(rate)))
}

fn report(document: serde_json::Value, path: &Path) -> Result<Report> {
    let refused =
        |error| Error::invalid(plain(format!("this is no report of `stoker bench`: {error}")), path.display());
    Ok(Report::deserialize(document).map_err(|error| refused(error).hint("name a file that --save wrote"))?)
}

/// What keeps the figures of a report from being used.
fn doubt(report: &Report) -> Option<String> {
    match () {
        () if report.kind == Kind::Simulated => Some("it was simulated, not measured".into()),
        () if report.command != "train" => Some(format!("it is of `stoker bench {}`", report.command)),
        () if !report.finished => Some("the run did not come to its end".into()),
        () => report.failed().first().map(|failed| format!("its figures contradict each other: {failed}")),
    }
}

/// Its loop, at its rate over the share of time in which accelerators were busy.
fn benchmarked(report: &Report, accelerator: Option<&str>) -> Result<Job, String> {
    if let Some(doubt) = doubt(report) {
        return Err(doubt);
    }
    let read = || report.epochs.iter().filter(|epoch| epoch.samples > 0);
    let warm: Vec<&Epoch> = read().filter(|epoch| !epoch.cold).collect();
    let epochs = if warm.is_empty() { read().collect() } else { warm };
    if epochs.is_empty() {
        return Err("no epoch was measured in it".into());
    }
    let mean = |of: fn(&Epoch) -> f64| epochs.iter().map(|epoch| of(epoch)).sum::<f64>() / epochs.len() as f64;
    let (samples, au) = (mean(|epoch| epoch.samples_per_second), mean(|epoch| epoch.au_percent));
    let count = report.accelerators.unwrap_or(0);
    if !(samples > 0.0 && au > 0.0) || count == 0 {
        return Err("it doesn't say how fast accelerators took samples".into());
    }
    if !AU_PERCENT.contains(&au) {
        let (least, most) = (AU_PERCENT.start(), AU_PERCENT.end());
        return Err(format!(
            "accelerators computed for {au:.1} % of their time, and what they would take is told from {least} to {most} %: measure on local NVMe"
        ));
    }
    let named = accelerator.or(report.accelerator.as_deref());
    let named = named.ok_or("no accelerator was named: --accelerator h100")?;
    if named.chars().any(char::is_control) {
        return Err(format!("`{named}` is no name of an accelerator"));
    }
    let workload = Workload::deserialize(&report.settings["workload"])
        .map_err(|error| format!("it doesn't hold the loop that was run: settings.workload: {error}"))?;
    let rate = samples / (au / 100.0) / count as f64;
    Ok(Job { accelerators: Some(count), ..of_workload(&workload, named, Some(rate)) })
}

/// What a service gave through a client in a run, as a layer: the mean bandwidth of its epochs, with so many nodes.
pub fn supply(typed: &str) -> Result<String> {
    let refused = |what: &str| Error::invalid(plain(what.to_owned()), format!("--supply {typed}"));
    let needs = "a run of `stoker bench train` on the service, from machines beside it, that accelerators waited for: \
                 azure.blob.hot/blobfuse=run.json";
    let (of, path) = typed.split_once('=').ok_or_else(|| refused("this names no report").hint(needs))?;
    let (service, client) =
        of.split_once('/').ok_or_else(|| refused("this names no service and client").hint(needs))?;
    let is_id = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if !is_id(service) || !is_id(client) {
        return Err(refused("this is no service with a client").hint(needs).into());
    }
    let path = Path::new(path);
    let document = serde_json::from_str(&read(path)?);
    let report = report(document.map_err(|error| refused(&format!("this is no JSON: {error}")).hint(needs))?, path)?;
    let rates = served(&report).map_err(|what| refused(&what).hint(needs))?;
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let provider = service.split('.').next().unwrap_or(service);
    Ok(format!(
        "provider = \"{provider}\"\nversion = \"measured\"\ncurrency = \"USD\"\n[[source]]\nid = \"bench\"\ntitle = \"stoker bench train\"\nkind = \"measured\"\n[[service]]\nid = \"{service}\"\nlimits = [{{ of = \"bandwidth\", client = \"{client}\", unit = \"MB/s\", value = {mean:?}, low = {least:?}, high = {most:?}, clients = {}, source = \"bench\", confidence = \"high\" }}]\n",
        nodes(&report)
    ))
}

/// MB/s of each epoch in which the service was the limit; or why this run doesn't tell.
fn served(report: &Report) -> Result<Vec<f64>, String> {
    if let Some(doubt) = doubt(report) {
        return Err(doubt);
    }
    // What was kept from an epoch before says nothing of a service; who asks a store by requests keeps nothing.
    let is_store = report.target.parse().is_ok_and(|location| !matches!(location, store::Location::Folder(_)));
    let counts = |epoch: &&Epoch| epoch.bytes_per_second > 0.0 && (epoch.cold || is_store);
    let epochs: Vec<&Epoch> = report.epochs.iter().filter(counts).collect();
    if epochs.is_empty() {
        return Err("no epoch in it began with empty caches".into());
    }
    let sum = |name: &str| epochs.iter().filter_map(|epoch| epoch.bytes.get(name)).sum::<u64>() as f64;
    if sum("network") < FROM_AFAR * sum("asked") || sum("network") == 0.0 {
        return Err("what it read did not come over a network: it measured this machine".into());
    }
    let is_busy = |epoch: &&Epoch| epoch.au_percent >= BUSY * epoch.ceiling_percent.clamp(1.0, 100.0);
    if epochs.iter().all(is_busy) {
        return Err("accelerators did not wait in it: it says what they asked for, not what the service gives".into());
    }
    Ok(epochs.iter().map(|epoch| epoch.bytes_per_second / 1e6).collect())
}

/// Machines that took part.
fn nodes(report: &Report) -> usize {
    let all = report.epochs.iter().flat_map(|epoch| &epoch.processes);
    let mut nodes: Vec<&str> = all.map(|process| process.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::Environment;

    /// A run of one accelerator on a service that holds it back.
    fn run() -> Report {
        let bytes = [("asked", 1_000_000_000), ("network", 1_010_000_000)];
        let epoch = Epoch {
            cold: true,
            samples: 100,
            samples_per_second: 20.0,
            bytes_per_second: 40e6,
            au_percent: 30.0,
            ceiling_percent: 100.0,
            bytes: bytes.map(|(name, bytes)| (name.to_owned(), bytes)).into(),
            ..Epoch::default()
        };
        Report {
            finished: true,
            epochs: vec![epoch],
            accelerator: Some("h100".into()),
            accelerators: Some(1),
            ..Report::begin(Kind::Measured, "train", "/mnt/blob", Environment::default(), 0.0)
        }
    }

    /// What makes a run one that tells nothing.
    type Spoil = fn(&mut Report);

    fn spoilt(spoil: Spoil) -> Report {
        let mut report = run();
        spoil(&mut report);
        report
    }

    #[test]
    fn only_a_run_that_a_service_held_back_says_what_it_gives() {
        assert_eq!(served(&run()).unwrap(), [40.0]);
        let untold: [(&str, Spoil); 8] = [
            ("simulated", |report| report.kind = Kind::Simulated),
            ("bench sweep", |report| report.command = "sweep".into()),
            ("end", |report| report.finished = false),
            ("contradict", |report| report.fail("more came than was asked for")),
            ("empty caches", |report| report.epochs.clear()),
            ("empty caches", |report| report.epochs[0].cold = false),
            ("network", |report| _ = report.epochs[0].bytes.remove("network")),
            ("did not wait", |report| report.epochs[0].au_percent = 99.0),
        ];
        for (said, spoil) in untold {
            let why = served(&spoilt(spoil)).unwrap_err();
            assert!(why.contains(said), "{said}: {why}");
        }
    }

    /// A run of ResNet-50 that kept two accelerators busy (runs/2026-11-22-bench).
    fn busy() -> Report {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/2026-11-22-bench/raw.json");
        let all: serde_json::Value = serde_json::from_str(&read(&path).unwrap()).unwrap();
        Report::deserialize(&all[5]).unwrap()
    }

    #[test]
    fn a_run_is_the_same_job_as_its_workload() {
        let job = benchmarked(&busy(), None).unwrap();
        let shipped = of_workload(&workload::shipped("resnet50").unwrap(), "v100", job.samples_per_second);
        assert_eq!((job.files, job.read_bytes, job.streams), (shipped.files, shipped.read_bytes, shipped.streams));
        assert_eq!((job.sample_bytes, job.dataset_bytes), (shipped.sample_bytes, shipped.dataset_bytes));
        assert_eq!((job.files, job.accelerators, job.accelerator.as_str()), (1024.0, Some(2), "v100"));
        // 64 images in 0.195 s, by the list of accelerators.
        let rate = job.samples_per_second.unwrap();
        assert!((rate / (64.0 / 0.195) - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn a_run_that_does_not_say_what_accelerators_take_is_refused() {
        let with = |spoil: Spoil| {
            let mut report = busy();
            spoil(&mut report);
            benchmarked(&report, None).map(|job| job.samples_per_second).unwrap_err()
        };
        let slow = with(|report| report.epochs.iter_mut().for_each(|epoch| epoch.au_percent = 31.0));
        assert!(slow.contains("31.0 %") && slow.contains("local NVMe"), "{slow}");
        let fast = with(|report| report.epochs.iter_mut().for_each(|epoch| epoch.au_percent = 103.0));
        assert!(fast.contains("103.0 %") && fast.contains("local NVMe"), "{fast}");
        assert!(with(|report| report.settings["workload"] = serde_json::Value::Null).contains("settings.workload"));
        assert!(with(|report| report.kind = Kind::Simulated).contains("simulated"));
        assert!(with(|report| report.accelerator = Some("\u{1b}[31mh100".into())).contains("no name"));
    }

    #[test]
    fn what_was_observed_of_any_program_is_a_demand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen.json");
        let seen = crate::observe::summary::document(&batches(), Path::new("/data"), &[]);
        std::fs::write(&path, seen.to_string()).unwrap();
        let job = demand(&path, Some("h100")).unwrap();
        // Batches of 8 files of 1 MB, one each 108 ms.
        let rate = job.samples_per_second.unwrap();
        assert!((job.sample_bytes - 1e6).abs() < 1.0 && (60.0..100.0).contains(&rate), "{} {rate}", job.sample_bytes);
        assert!(demand(&path, None).is_err_and(|error| error.to_string().contains("accelerator")));
        std::fs::write(&path, r#"{"command": "observe", "trace": {}}"#).unwrap();
        assert!(demand(&path, Some("h100")).is_err_and(|error| error.to_string().contains("no trace")));
        std::fs::write(&path, "not JSON").unwrap();
        assert!(demand(&path, Some("h100")).is_err_and(|error| error.to_string().contains("no JSON")));
    }

    /// 40 batches of 8 files of 1 MB, read one after the other in 1 ms each, with 100 ms after each batch.
    fn batches() -> Trace {
        let mut tracer = trace::Tracer::new();
        for file in 0..320_u64 {
            let begin_ns = (file / 8) * 108_000_000 + (file % 8) * 1_000_000;
            let (process, thread, end_ns) = (1, 1, begin_ns + 900_000);
            let path = format!("{file}.jpg").into_bytes().into();
            let event = |what| trace::Event { begin_ns, end_ns, process, thread, file, open: file, what };
            tracer.add(&event(trace::What::Open { path, size: 1_000_000, listed: 0 }));
            tracer.add(&event(trace::What::Read { offset: 0, length: 1_000_000 }));
            tracer.add(&event(trace::What::Close));
        }
        tracer.finish(0)
    }
}
