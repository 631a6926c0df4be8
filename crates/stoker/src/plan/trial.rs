//! `stoker plan try`: the commands that behave like an offer, scaled down to this machine, and those that the plan amounts to.
//!
//! It runs nothing. Invariant: demand and supply are divided by the same number, so that the share of time in which
//! accelerators are busy stays what it is.

use std::process::ExitCode;

use ::bench::train::{Cause, Chill, Job as Loop};
use ::plan::demand::Demand;
use ::plan::plan::{Offer, Plan};
use anyhow::Result;
use block::Error;
use workload::Workload;

use super::{asked::Asked, layers::Layers, today, wrong};

/// What a machine is taken to serve itself, MB/s.
const SCALED_MB: f64 = 200.0;
/// What a trial reads in an epoch, or more where the benchmark gives no verdict on so little.
const DATA_BYTES: f64 = 3e9;
/// The workload of a job that no name and no file of the user's has.
const JOB: &str = "FOLDER/job.toml";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The offer, by its rank or id
    #[arg(long, value_name = "RANK|ID", default_value = "1")]
    offer: String,
    /// Divide everything by this; else as much as 200 MB/s asks for
    #[arg(long, value_name = "N", value_parser = super::typed::scale, allow_hyphen_values = true)]
    scale: Option<f64>,
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    layers: Layers,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let demands = args.asked.demands()?;
    let [demand] = &demands[..] else {
        let error = Error::invalid("a trial is of one demand, and these are several", "--accelerators, --dataset");
        return Err(error.hint("one number, one size").into());
    };
    let plan = Plan::of(&args.layers.catalog()?, demand, today()).map_err(wrong)?;
    let found = plan.offers.iter().find(|offer| offer.id == args.offer || offer.rank.to_string() == args.offer);
    let Some(offer) = found else { return Err(not_offered(&plan, &args.offer).into()) };
    let Some(workload) = args.asked.simulated()?.1 else {
        let error = Error::invalid("what is tried is a workload, and none is known", "stoker plan try");
        return Err(error.hint("--workload, or --measured with a run of one").into());
    };
    let job = Job::of(args.asked.named(), &plan.demand, &workload);
    let trial = Trial::of(&plan.demand, offer, args.scale, &job, &workload);
    for line in trial.lines() {
        say!("{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Why there is no such offer: it can't be ranked, or is none.
fn not_offered(plan: &Plan, typed: &str) -> Error {
    let on = format!("--offer {typed}");
    match plan.unranked.iter().find(|unranked| unranked.id == typed) {
        Some(unranked) => {
            Error::invalid("this can't be ranked", on).hint(format!("because {}", unranked.reasons.join("; ")))
        }
        None if plan.offers.is_empty() => {
            Error::invalid("nothing can be ranked", on).hint("the same words without `try` say why")
        }
        None => {
            let hint = format!("a rank from 1 to {}, or an id, as `stoker plan` has them", plan.offers.len());
            Error::invalid("there is no such offer", on).hint(hint)
        }
    }
}

/// Whole accelerators, so that what is asked is divided exactly.
fn scaled_accelerators(demand: &Demand, scale: Option<f64>) -> u32 {
    let wanted = scale.unwrap_or(demand.mb() / SCALED_MB).max(1.0);
    ((f64::from(demand.accelerators) / wanted).round() as u32).max(1)
}

/// The job in the words of `stoker bench`, whoever told what it is: a list, a rate, or a run that was measured.
struct Job {
    /// A file that is made first, where no name and no file says what is read.
    file: Option<String>,
    workload: String,
    /// How fast an accelerator is: for `train`, and for `simulate`.
    train: String,
    simulate: String,
}

impl Job {
    fn of((typed, accelerator): (Option<&str>, Option<&str>), demand: &Demand, workload: &Workload) -> Job {
        let step = workload.read.batch as f64 / demand.samples_per_second * 1e6;
        let step = format!("{:.0}us", step.max(1.0));
        let (train, simulate) = match accelerator {
            Some(name) => (format!(" --accelerator {}", quoted(name)), format!("--accelerator {}", quoted(name))),
            None => (format!(" --set step={step}"), format!("--accelerator {step}")),
        };
        let text = || trace::derive::text(workload);
        let file = typed.is_none().then(|| format!("cat > {JOB} <<'END'\n{}END", text()));
        Job { file, workload: typed.map_or(JOB.to_owned(), quoted), train, simulate }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@%+=,".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// An offer, scaled down.
struct Trial<'a> {
    demand: &'a Demand,
    offer: &'a Offer,
    accelerators: u32,
    scale: f64,
    job: &'a Job,
    files: f64,
    file_bytes: f64,
    /// Steps of an epoch: these files have as many for each accelerator.
    steps: u64,
}

/// The loop that is tried, as the benchmark counts its steps.
fn looped(workload: &Workload, accelerators: u32, samples_per_second: f64) -> Loop {
    Loop {
        workload: workload.clone(),
        step_seconds: workload.read.batch as f64 / samples_per_second,
        changes: Vec::new(),
        accelerators: u64::from(accelerators),
        repetitions: 1,
        seed: 0,
        decode: false,
        together: true,
        transfer: Cause::Store,
        chill: Chill::Each,
    }
}

impl<'a> Trial<'a> {
    fn of(demand: &'a Demand, offer: &'a Offer, scale: Option<f64>, job: &'a Job, workload: &Workload) -> Trial<'a> {
        let accelerators = scaled_accelerators(demand, scale);
        let file_bytes = workload.files.sample_bytes * workload.files.samples_per_file as f64;
        let each = looped(workload, accelerators, demand.samples_per_second);
        let steady = each.steady(None);
        let step_bytes = (workload.read.batch * each.accelerators) as f64 * demand.sample_bytes;
        let steps = steady.least.max((DATA_BYTES.min(demand.dataset_bytes) / step_bytes) as u64);
        let (_, files) = steady.set_of(&each, steps);
        let scale = f64::from(demand.accelerators) / f64::from(accelerators);
        Trial { demand, offer, accelerators, scale, job, files: files as f64, file_bytes, steps }
    }

    fn rate(&self, mb: f64) -> String {
        format!("{:.3}MB/s", mb / self.scale)
    }

    /// The job on a target, in its first epoch and, where that differs, in a later one.
    fn bench(&self, target: &str, epochs: u32) -> String {
        let Trial { job: Job { workload, train, .. }, accelerators, steps, .. } = self;
        format!(
            "stoker bench train --workload {workload}{train} --accelerators {accelerators} --target {target} --set epochs={epochs},steps={steps}"
        )
    }

    fn lines(&self) -> Vec<String> {
        let Trial { demand, offer, accelerators, scale, .. } = self;
        let mut lines = vec![
            format!(
                "# {}: AU {:.1} % in the first epoch, {:.1} % in later ones; everything divided by {scale}",
                offer.id, offer.au_cold_percent, offer.au_warm_percent
            ),
            format!(
                "# {accelerators} of {} accelerators, {:.1} MB/s, {:.2} samples/s",
                demand.accelerators,
                demand.mb() / scale,
                f64::from(*accelerators) * demand.samples_per_second
            ),
        ];
        lines.push(format!(
            "# {:.1} GB in {} files, of which an epoch takes {} steps",
            self.files * self.file_bytes / 1e9,
            self.files,
            self.steps
        ));
        lines.push("mkdir -p FOLDER TRIAL".into());
        lines.extend(self.job.file.clone());
        lines.push(format!("stoker bench data FOLDER/data --workload {} --files {}", self.job.workload, self.files));
        lines.extend(self.reads());
        lines.extend(simulated(demand, offer, self.job));
        lines.push(String::new());
        lines.extend(copied(demand, offer));
        lines.extend(amounts_to(offer));
        lines
    }

    fn reads(&self) -> Vec<String> {
        let offer = self.offer;
        let shape = format!(" --shape-disk {}", self.rate(offer.supply_mb_per_s));
        if matches!(offer.method, "attached-disks" | "on-demand-file-system") {
            return vec![self.bench("FOLDER/data", 1) + &shape];
        }
        let first_byte =
            offer.first_byte_ms.map(|ms| ms + offer.way_ms).or((offer.way_ms > 0.0).then_some(offer.way_ms));
        let latency = first_byte.map_or(String::new(), |ms| format!(" --latency {}us", (ms * 1e3).round()));
        let bandwidth = self.rate(offer.cold_supply_mb_per_s);
        let store = format!(
            "stoker emulate FOLDER --listen 127.0.0.1:9000 --bandwidth {bandwidth}{latency}   # in a terminal of its own"
        );
        let reach = "--endpoint http://127.0.0.1:9000 --anonymous";
        if !offer.method.starts_with("stoker") {
            return vec![store, format!("{} {reach}", self.bench("s3://data", 1))];
        }
        let kept = (offer.cache_ratio < 1.0).then(|| {
            let bytes = offer.cache_ratio * self.files * self.file_bytes;
            format!(" --cache-size {:.0}MB", (bytes / 1e6).max(1.0))
        });
        let kept = kept.unwrap_or_default();
        let mount = format!("stoker mount s3://data TRIAL -d --cache FOLDER/cache{kept} {reach}");
        // What the benchmark probed before is not to be found in the first epoch.
        let anew = format!(" --drop-command 'stoker umount TRIAL && rm -r FOLDER/cache && {mount}'");
        // What its disks or networks can't carry later is taken off what is read.
        let is_short = offer.supply_mb_per_s < self.demand.mb();
        let bench = self.bench("TRIAL", 2) + if is_short { &shape } else { "" } + &anew;
        vec![store, mount, bench]
    }
}

/// The same in simulated time and in full size, where the simulator knows such a way.
fn simulated(demand: &Demand, offer: &Offer, job: &Job) -> Option<String> {
    let network = offer.node_network_mb_per_s?;
    let cache = match offer.method {
        "straight" => String::new(),
        // It knows no copies in room to spare: a ratio of 1 is its most.
        "stoker-own-disks" => format!(" --cache-ratio {:.3},place=peers", offer.cache_ratio),
        _ => return None,
    };
    let store = offer.cold_supply_mb_per_s;
    let count = demand.accelerators;
    let nodes = format!("{:.0},{network:.0}MB/s", offer.accelerators_per_node);
    Some(format!(
        "stoker bench simulate --workload {} {} --accelerators {count} --store {store:.1}MB/s{cache} --node {nodes}   # in full size, in simulated time",
        job.workload, job.simulate
    ))
}

/// What comes before, where an offer reads a copy of the data in another region.
fn copied(demand: &Demand, offer: &Offer) -> Option<String> {
    let from = demand.data.region().filter(|_| offer.is_replica)?;
    Some(format!(
        "# before, once: copy s3://BUCKET/PREFIX from {from} to a bucket of {} in {}, {:.1} hours; below, BUCKET is the copy",
        offer.service, offer.region, offer.ready_hours
    ))
}

/// What is run where the plan is followed.
fn amounts_to(offer: &Offer) -> Vec<String> {
    let from = format!("{} x {}", offer.nodes, offer.node);
    match offer.method {
        "stoker-own-disks" if offer.nodes > 1.0 => {
            vec![format!("# on {from}:"), "stoker up s3://BUCKET/PREFIX /data --hosts nodes".into()]
        }
        "stoker-own-disks" => vec![format!("# on {from}:"), "stoker mount s3://BUCKET/PREFIX /data -d".into()],
        "stoker-cache-nodes" => vec![
            format!("# on {from}, with {} nodes that only keep data:", offer.cache_nodes),
            "stoker node s3://BUCKET/PREFIX --members FILE     # on each of these".into(),
            "stoker mount s3://BUCKET/PREFIX /data -d --members FILE     # on each that trains".into(),
        ],
        "attached-disks" | "on-demand-file-system" => vec![
            format!("# on {from}, {:.1} TB provisioned:", offer.provisioned_tb()),
            "stoker load s3://BUCKET/PREFIX --to /data".into(),
        ],
        _ => vec![format!("# on {from}: {} through {}, {} of them", offer.service, offer.client, offer.units)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::plan::catalog::Catalog;
    use ::plan::catalog::shipped::SHIPPED;

    #[test]
    fn demand_and_supply_are_divided_by_the_same_number() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let demand = Demand::new("V100", 32, 18.75, 16e6, 318_750.0);
        let plan = Plan::of(&catalog, &demand, today()).unwrap();
        let offer = plan.offers.iter().find(|offer| offer.method == "straight" && offer.au_percent < 50.0).unwrap();
        let workload = workload::shipped("cosmoflow-hpc").unwrap();
        let job = Job::of((Some("cosmoflow-hpc"), Some("v100")), &demand, &workload);
        let lines = Trial::of(&demand, offer, Some(32.0), &job, &workload).lines();
        let bandwidth = lines
            .iter()
            .find_map(|line| line.split("--bandwidth ").nth(1)?.split("MB/s").next()?.parse::<f64>().ok())
            .unwrap();
        assert!((bandwidth / (18.75 * 16.0) * 100.0 - offer.au_percent).abs() < 0.1, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("--accelerators 1 --target s3://data")));
    }

    #[test]
    fn a_trial_has_the_steps_that_a_verdict_takes() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        for (name, accelerators, steps) in [("unet3d", 1, 176), ("resnet50", 5, 176), ("cosmoflow", 2, 530)] {
            let workload = workload::shipped(name).unwrap();
            let known = workload::accelerator::shipped("v100").unwrap();
            let step = known.step(name).unwrap_or_else(|_| panic!("{name} on v100"));
            let workload = step.applied(workload);
            let rate = workload.read.batch as f64 / step.step_seconds;
            let (bytes, count) = (workload.bytes_per_sample(), workload.files.count * workload.files.samples_per_file);
            let demand = Demand::new("V100", 8 * accelerators, rate, bytes, count as f64);
            let plan = Plan::of(&catalog, &demand, today()).unwrap();
            let job = Job::of((Some(name), Some("v100")), &demand, &workload);
            let trial = Trial::of(&demand, &plan.offers[0], Some(8.0), &job, &workload);
            assert_eq!((trial.accelerators, trial.steps), (accelerators, steps), "{name}");
            // As the benchmark counts them of the set that is made.
            let mut each = looped(&workload, accelerators, rate);
            let samples = trial.files as u64 * workload.files.samples_per_file;
            let set = ::bench::samples::Set::imagined(&workload.files, samples, 1);
            assert_eq!(set.files.len() as f64, trial.files);
            assert!(each.steps(&set).unwrap() >= trial.steps, "{name}: {} files", trial.files);
            each.workload.read.steps_max = Some(trial.steps);
            let (found, steady) = (each.steps(&set).unwrap(), each.steady(Some(&set)));
            assert!(found == trial.steps && steady.invalid(&each, found).is_none(), "{name}: {found}");
        }
    }

    #[test]
    fn a_trial_has_the_workload_and_the_speed_of_the_job_whoever_told_them() {
        let workload = workload::shipped("cosmoflow-hpc").unwrap();
        let demand = Demand::new("V100", 32, 18.75, 16e6, 318_750.0);
        let of = |named| Job::of(named, &demand, &workload);
        let listed = of((Some("cosmoflow-hpc"), Some("v100")));
        assert_eq!((listed.train.as_str(), listed.simulate.as_str()), (" --accelerator v100", "--accelerator v100"));
        // By a rate: a batch at 18.75 samples a second of each accelerator.
        let rate = of((Some("my job.toml"), None));
        let step = format!("{:.0}us", workload.read.batch as f64 / 18.75 * 1e6);
        assert_eq!((rate.workload.as_str(), rate.train), ("'my job.toml'", format!(" --set step={step}")));
        // By a run: what it read becomes a file, which is the same workload again.
        let measured = of((None, None));
        let text = measured.file.expect("a file is made");
        let text = text.strip_prefix("cat > FOLDER/job.toml <<'END'\n").unwrap().strip_suffix("END").unwrap();
        assert_eq!(Workload::parse(text, "job.toml").unwrap(), workload);
        assert_eq!((measured.workload.as_str(), measured.simulate), (JOB, format!("--accelerator {step}")));
    }
}
