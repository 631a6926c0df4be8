//! From flags to what a job asks for.
//!
//! Invariant: each number of a demand comes from a flag, a workload with an accelerator, or a measurement; none is made up
//! where one of these is missing.

use std::path::{Path, PathBuf};

use ::emulate::parse;
use ::plan::catalog::{NEEDS, Need};
use ::plan::demand::{Checkpoint, Demand, Place};
use anyhow::Result;
use block::Error;
use workload::{Order, Workload, accelerator, import};

use super::layers::read;
use super::{measured, typed};

/// Points of a sweep.
const POINTS_MAX: usize = 512;
/// What clients read ahead of a file that is read from end to end.
const AHEAD_BYTES: f64 = 8e6;

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Demand")]
pub struct Asked {
    /// Shipped workload, a file of your own (.toml), or a workload of DLIO (.yaml)
    #[arg(long, value_name = "NAME|FILE")]
    workload: Option<String>,
    /// Accelerator, by which nodes are chosen and, without --target-rate, the speed is known: v100, a100, h100
    #[arg(long, value_name = "NAME")]
    accelerator: Option<String>,
    /// How many: 32; several are a sweep: 8,64 or 1..512 (each twice the one before)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    accelerators: Option<String>,
    /// Take the demand from a run that storage did not hold back, or hardly: a report of `stoker bench train`, or what
    /// `stoker observe --save` wrote of any program
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["workload", "target_rate"])]
    measured: Option<PathBuf>,
    /// What all accelerators together are to be fed with: 4200images/s
    #[arg(long, value_name = "RATE", value_parser = typed::rate, allow_hyphen_values = true)]
    target_rate: Option<f64>,
    /// Size of the data: 5.5TB; several are a sweep: 10TB,100TB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    dataset: Option<String>,
    /// Files that they lie in
    #[arg(long, value_name = "N", value_parser = typed::files, allow_hyphen_values = true)]
    files: Option<f64>,
    /// Passes over the data
    #[arg(long, value_name = "N", value_parser = typed::epochs, allow_hyphen_values = true)]
    epochs: Option<f64>,
    /// Hours of a month in which it trains, while data, file systems and volumes are held all month; else as long as it trains
    #[arg(long, value_name = "H", value_parser = typed::hours_per_month, allow_hyphen_values = true)]
    hours_per_month: Option<f64>,
    /// What an hour of one accelerator costs you, USD: it decides most
    #[arg(long, value_name = "USD", value_parser = typed::usd, allow_hyphen_values = true)]
    accelerator_price: Option<f64>,
    /// Region of nodes and storage; else where the catalogue has its prices
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Node, if not the cheapest with such accelerators
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// What programs need of files: posix, locking, shared-writes
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    needs: Vec<String>,
    /// The data are in this other region: their way is paid in each epoch, or once for a copy; --data-way says what it carries
    #[arg(long, value_name = "REGION")]
    data_region: Option<String>,
    /// The data are in this zone, and the nodes in others: their way is paid
    #[arg(long, value_name = "ZONE")]
    data_zone: Option<String>,
    /// What the way to the data adds to each answer, and what it carries: 30ms or 30ms,10Gbit/s
    #[arg(long, value_name = "TIME[,RATE]", allow_hyphen_values = true)]
    data_way: Option<String>,
    /// Jobs that share the accelerators and the data
    #[arg(long, value_name = "N", value_parser = typed::jobs, allow_hyphen_values = true)]
    jobs: Option<u32>,
    /// State that is written so often in the run: 500GBx20
    #[arg(long, value_name = "SIZExN", allow_hyphen_values = true)]
    checkpoint: Option<String>,
    /// How often a node is lost in an hour: 0.001; of spot nodes, as their provider tells
    #[arg(long, value_name = "N", value_parser = typed::losses, allow_hyphen_values = true)]
    losses_per_node_hour: Option<f64>,
    /// Time of a core that a sample takes, decoding included: 8ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    cpu_per_sample: Option<String>,
    /// Zones over which the nodes are spread
    #[arg(long, value_name = "N", value_parser = typed::zones, allow_hyphen_values = true)]
    zones: Option<u32>,
    /// Let figures decide that nobody verified
    #[arg(long)]
    unverified: bool,
}

/// The job before it is counted out: what a sample is, and how fast one accelerator takes them.
pub(super) struct Job {
    pub accelerator: String,
    /// Of one accelerator; None where only a target for all is known.
    pub samples_per_second: Option<f64>,
    pub sample_bytes: f64,
    pub dataset_bytes: f64,
    pub files: f64,
    pub epochs: f64,
    pub read_bytes: f64,
    pub streams: f64,
    pub accelerators: Option<u64>,
    /// The loop, where one is known.
    pub workload: Option<Workload>,
}

impl Asked {
    /// One for each point of a sweep.
    pub fn demands(&self) -> Result<Vec<Demand>> {
        let job = self.job()?;
        let counts = match (&self.accelerators, job.accelerators) {
            (Some(typed), _) => counts(typed)?,
            (None, Some(count)) => vec![u32::try_from(count).unwrap_or(u32::MAX)],
            (None, None) => {
                return Err(Error::invalid("it is not said how many accelerators", "--accelerators")
                    .hint("--accelerators 32")
                    .into());
            }
        };
        let sizes = match &self.dataset {
            Some(typed) => typed.split(',').map(|each| size(each, typed)).collect::<Result<_>>()?,
            None => vec![job.dataset_bytes],
        };
        if counts.len().saturating_mul(sizes.len()) > POINTS_MAX {
            let what = format!("{} x {} points are too many", counts.len(), sizes.len());
            let hint = format!("at most {POINTS_MAX} together");
            return Err(Error::invalid(what, "--accelerators, --dataset").hint(hint).into());
        }
        let points = counts.iter().flat_map(|count| sizes.iter().map(move |size| (*count, *size)));
        points.map(|(count, size)| self.demand(&job, count, size)).collect()
    }

    /// The demand of one point of a sweep, and the loop that asks for it.
    pub fn simulated(&self) -> Result<(Demand, Option<Workload>)> {
        let demand = self.demands()?.into_iter().next();
        let demand = demand.ok_or_else(|| Error::invalid("nothing is asked for", "--accelerators"))?;
        Ok((demand, self.job()?.workload))
    }

    /// The workload as it was typed, and the accelerator where its list says how fast it is.
    pub fn named(&self) -> (Option<&str>, Option<&str>) {
        let is_listed = self.target_rate.is_none() && self.measured.is_none();
        (self.workload.as_deref(), self.accelerator.as_deref().filter(|_| is_listed))
    }

    #[cfg(test)]
    pub fn of(workload: &str, accelerator: &str, accelerators: u32, dataset: &str, node: &str) -> Asked {
        Asked {
            workload: Some(workload.into()),
            accelerator: Some(accelerator.into()),
            accelerators: Some(accelerators.to_string()),
            dataset: Some(dataset.into()),
            node: Some(node.into()),
            ..Asked::default()
        }
    }

    fn demand(&self, job: &Job, count: u32, dataset_bytes: f64) -> Result<Demand> {
        let rate = match (&self.target_rate, job.samples_per_second) {
            (Some(of_all), _) => of_all / f64::from(count.max(1)),
            (None, Some(rate)) => rate,
            (None, None) => {
                return Err(Error::invalid("it is not known how fast the accelerators are", &job.accelerator)
                    .hint("--target-rate 4200images/s, or an accelerator of `stoker bench train --list`")
                    .into());
            }
        };
        let files = self.files.unwrap_or((job.files * dataset_bytes / job.dataset_bytes).ceil());
        let mut demand = Demand::new(&job.accelerator, count, rate, job.sample_bytes, dataset_bytes / job.sample_bytes);
        demand.files = files;
        demand.epochs = self.epochs.unwrap_or(job.epochs);
        demand.read_bytes = job.read_bytes;
        demand.streams = job.streams;
        demand.hours_per_month = self.hours_per_month;
        demand.accelerator_usd_hour = self.accelerator_price;
        demand.region = self.region.clone();
        demand.node = self.node.clone();
        demand.data = self.place()?;
        demand.needs = self.needs.iter().map(|word| need(word)).collect::<Result<_>>()?;
        demand.jobs = self.jobs.unwrap_or(1);
        demand.checkpoint = self.checkpoint.as_deref().map(checkpoint).transpose()?;
        demand.losses_per_node_hour = self.losses_per_node_hour.unwrap_or(0.0);
        demand.zones = self.zones.unwrap_or(1);
        let cpu =
            self.cpu_per_sample.as_deref().map(|typed| of_flag("--cpu-per-sample", typed, parse::duration(typed)));
        let cpu = cpu.transpose()?;
        demand.cpu_seconds = cpu.map_or(0.0, |cpu| cpu.as_secs_f64());
        demand.unverified = self.unverified;
        Ok(demand)
    }

    fn job(&self) -> Result<Job> {
        if let Some(path) = &self.measured {
            return measured::demand(path, self.accelerator.as_deref());
        }
        let Some(typed) = &self.workload else {
            let error = Error::invalid("it is not said what the job is", "--workload or --measured");
            return Err(error.hint("--workload resnet50, or --measured with a report of `stoker bench train`").into());
        };
        let name = self.accelerator.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(Error::invalid("no accelerator was named", "--accelerator").hint("--accelerator h100").into());
        }
        let ends = |ending: &str| Path::new(typed).extension().is_some_and(|found| found == ending);
        let workload = match () {
            () if ends("yaml") || ends("yml") => import::dlio(&read(Path::new(typed))?, typed)?.0,
            () if ends("toml") => Workload::parse(&read(Path::new(typed))?, typed)?,
            () => workload::shipped(typed)?,
        };
        // With a target, only its name is wanted of the accelerator.
        let step = accelerator::shipped(name).and_then(|known| known.step(&workload.name).cloned());
        let (workload, rate) = match (step, &self.target_rate) {
            (Ok(step), _) => {
                let workload = step.applied(workload);
                let rate = workload.read.batch as f64 / step.step_seconds;
                (workload, Some(rate))
            }
            (Err(_), Some(_)) => (workload, None),
            (Err(error), None) => {
                let listed = accelerator::names().collect::<Vec<_>>().join(", ");
                let hint = format!(
                    "one of {listed} where its speed is listed for this workload; else --target-rate 4200images/s beside it"
                );
                return Err(error.hint(hint).into());
            }
        };
        Ok(of_workload(&workload, name, rate))
    }

    fn place(&self) -> Result<Place> {
        let (region, zone) = (self.data_region.clone(), self.data_zone.clone());
        let is_told = region.is_some() || zone.is_some();
        let mut place = Place { region, zone, ..Place::default() };
        if let Some(typed) = &self.data_way {
            let (time, rate) = typed.split_once(',').map_or((typed.as_str(), None), |(time, rate)| (time, Some(rate)));
            let time = of_flag("--data-way", typed, parse::duration(time.trim()))?;
            place.delay_ms = time.as_secs_f64() * 1e3;
            let rate = rate.map(|rate| of_flag("--data-way", typed, parse::bandwidth(rate.trim())));
            place.transit_mb = rate.transpose()?.map(|rate| rate as f64 / 1e6);
            if !is_told {
                let error = Error::invalid("this is the way to nowhere", format!("--data-way {typed}"));
                return Err(error.hint("--data-region or --data-zone beside it: where the data are").into());
            }
        }
        Ok(place)
    }
}

/// An error of a value says which flag it stands behind.
fn of_flag<T>(flag: &str, typed: &str, read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| Error::invalid(error.what, format!("{flag} `{typed}`")).hint(error.hint))
}

/// One size of the data.
fn size(each: &str, typed: &str) -> Result<f64> {
    let bytes = of_flag("--dataset", typed, parse::size(each.trim()))?;
    match bytes {
        0 => {
            Err(Error::invalid("there are no data", format!("--dataset `{typed}`")).hint("5.5TB, or 10TB,100TB").into())
        }
        bytes => Ok(bytes as f64),
    }
}

pub(super) fn of_workload(workload: &Workload, accelerator: &str, samples_per_second: Option<f64>) -> Job {
    let file_bytes = workload.files.sample_bytes * workload.files.samples_per_file as f64;
    let sample_bytes = workload.bytes_per_sample();
    let read_bytes = match workload.read.order {
        // Shards are read from end to end, ahead of whoever decodes.
        Order::Shards | Order::Sequential => file_bytes.min(AHEAD_BYTES.max(sample_bytes)),
        Order::Shuffled | Order::Random => sample_bytes,
    };
    Job {
        accelerator: accelerator.to_owned(),
        samples_per_second,
        sample_bytes,
        dataset_bytes: workload.bytes() * workload.files.share(),
        files: workload.files.count as f64,
        epochs: workload.read.epochs as f64,
        read_bytes,
        streams: workload.read.busy().max(1) as f64,
        accelerators: None,
        workload: Some(workload.clone()),
    }
}

/// `32`, `8,64`, `1..512`.
fn counts(typed: &str) -> Result<Vec<u32>> {
    let number = |text: &str| of_flag("--accelerators", typed, typed::accelerators(text));
    let Some((from, to)) = typed.split_once("..") else {
        return typed.split(',').map(|text| Ok(number(text)?)).collect();
    };
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        let error = Error::invalid("this range runs backwards", format!("--accelerators `{typed}`"));
        return Err(error.hint(format!("{to}..{from}")).into());
    }
    let doubled = std::iter::successors(Some(from), |count| count.checked_mul(2)).take_while(|count| *count < to);
    Ok(doubled.chain([to]).collect())
}

fn need(word: &str) -> Result<Need> {
    let known = NEEDS.iter().find(|(known, _)| *known == word).map(|(_, need)| *need);
    let error =
        || Error::invalid(format!("there is no need `{word}`"), "--needs").hint("posix, locking, shared-writes");
    Ok(known.ok_or_else(error)?)
}

/// `500GBx20`
fn checkpoint(typed: &str) -> Result<Checkpoint> {
    let wrong = || {
        Error::invalid("this is no checkpoint", format!("--checkpoint {typed}"))
            .hint("500GBx20: its size, and how often it is written")
    };
    let (size, writes) = typed.rsplit_once('x').ok_or_else(wrong)?;
    let writes = writes.parse::<u32>().map_err(|_| wrong())?;
    let bytes = of_flag("--checkpoint", typed, parse::size(size))?;
    if bytes == 0 || writes == 0 {
        let error = Error::invalid("nothing is ever written", format!("--checkpoint {typed}"));
        return Err(error.hint("500GBx20; where none is written, leave it out").into());
    }
    Ok(Checkpoint { bytes: bytes as f64, writes: f64::from(writes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked {
            workload: Some("cosmoflow-hpc".into()),
            accelerator: Some("v100".into()),
            accelerators: Some("32".into()),
            ..Asked::default()
        }
    }

    #[test]
    fn a_workload_with_an_accelerator_is_a_demand() {
        let demands = asked().demands().unwrap();
        let demand = &demands[0];
        assert_eq!((demands.len(), demand.accelerators, demand.files), (1, 32, 343_750.0));
        assert!((demand.mb() - 32.0 * 16.0 / 0.0533).abs() < 1e-6 && (demand.dataset_bytes - 5.5e12).abs() < 1.0);
    }

    #[test]
    fn a_target_rate_is_of_all_accelerators_and_sweeps_are_products() {
        let mut asked = asked();
        (asked.target_rate, asked.dataset) = (Some(4200.0), Some("10TB,100TB".into()));
        asked.accelerators = Some("8..64".into());
        let demands = asked.demands().unwrap();
        assert_eq!(
            demands.iter().map(|demand| demand.accelerators).collect::<Vec<_>>(),
            [8, 8, 16, 16, 32, 32, 64, 64]
        );
        assert!(demands.iter().all(|demand| (demand.mb() - 4200.0 * 16.0).abs() < 1e-6));
        assert!((demands[1].files / demands[0].files - 10.0).abs() < 1e-3);
    }

    #[test]
    fn a_sweep_is_bounded_and_an_error_names_its_flag() {
        let many = vec!["8"; 30].join(",");
        let sizes = vec!["10TB"; 20].join(",");
        let both = Asked { accelerators: Some(many), dataset: Some(sizes), ..asked() };
        assert!(format!("{}", both.demands().unwrap_err()).contains("--accelerators, --dataset"));
        for (flag, asked) in [
            ("--accelerators", Asked { accelerators: Some("8,,9".into()), ..asked() }),
            ("--dataset", Asked { dataset: Some("-5TB".into()), ..asked() }),
            ("--checkpoint", Asked { checkpoint: Some("fivex20".into()), ..asked() }),
            ("--checkpoint", Asked { checkpoint: Some("0GBx5".into()), ..asked() }),
            ("--checkpoint", Asked { checkpoint: Some("500GBx0".into()), ..asked() }),
            ("--data-way", Asked { data_way: Some("soon".into()), ..asked() }),
            ("--data-way", Asked { data_way: Some("30ms,10Gbit/s".into()), ..asked() }),
            ("--cpu-per-sample", Asked { cpu_per_sample: Some("-8ms".into()), ..asked() }),
        ] {
            let error = asked.demands().unwrap_err();
            let error = error.downcast_ref::<Error>().unwrap();
            assert!(error.on.contains(flag) && !error.hint.is_empty(), "{flag}: {error}");
        }
    }

    #[test]
    fn what_can_t_be_meant_is_refused() {
        for spoil in [
            |asked: &mut Asked| asked.accelerators = Some("none".into()),
            |asked: &mut Asked| asked.accelerators = Some("9..3".into()),
            |asked: &mut Asked| asked.accelerators = None,
            |asked: &mut Asked| asked.workload = None,
            |asked: &mut Asked| asked.accelerator = None,
            |asked: &mut Asked| asked.accelerator = Some("abacus".into()),
            |asked: &mut Asked| asked.dataset = Some("10TB,,5TB".into()),
            |asked: &mut Asked| asked.dataset = Some("10".into()),
            |asked: &mut Asked| asked.dataset = Some("0TB".into()),
            |asked: &mut Asked| asked.cpu_per_sample = Some("8".into()),
            |asked: &mut Asked| asked.data_way = Some("30ms,".into()),
            |asked: &mut Asked| asked.needs = vec!["love".into()],
            |asked: &mut Asked| asked.checkpoint = Some("500GB".into()),
        ] {
            let mut asked = asked();
            spoil(&mut asked);
            assert!(asked.demands().is_err(), "{asked:?}");
        }
    }
}
