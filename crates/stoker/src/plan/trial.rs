//! `stoker plan try`: the commands that behave like an offer, scaled down to this machine, and those that the plan amounts to.
//!
//! It runs nothing. Invariant: demand and supply are divided by the same number, so that the share of time in which
//! accelerators are busy stays what it is.

use std::process::ExitCode;

use ::plan::demand::Demand;
use ::plan::plan::{Offer, Plan};
use anyhow::Result;
use block::Error;

use super::{asked::Asked, layers::Layers, today, wrong};

/// What a machine is taken to serve itself, MB/s.
const SCALED_MB: f64 = 200.0;
/// What a trial reads in an epoch.
const DATA_BYTES: f64 = 5e9;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The offer, by its rank or id
    #[arg(long, value_name = "RANK|ID", default_value = "1")]
    offer: String,
    /// Divide everything by this; else as much as 200 MB/s asks for
    #[arg(long, value_name = "N")]
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
    if args.scale.is_some_and(|scale| !(1.0..=1e9).contains(&scale)) {
        return Err(Error::invalid("this divides nothing", "--scale").hint("a number from 1 to 10^9").into());
    }
    let plan = Plan::of(&args.layers.catalog()?, demand, today()).map_err(wrong)?;
    let found = plan.offers.iter().find(|offer| offer.id == args.offer || offer.rank.to_string() == args.offer);
    let Some(offer) = found else {
        let error = Error::invalid("there is no such offer", format!("--offer {}", args.offer));
        return Err(error.hint("a rank or an id of `stoker plan`").into());
    };
    for line in lines(&plan.demand, offer, args.scale, &args.asked.job_flags()) {
        say!("{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whole accelerators, so that what is asked is divided exactly.
fn scaled_accelerators(demand: &Demand, scale: Option<f64>) -> u32 {
    let wanted = scale.unwrap_or(demand.mb() / SCALED_MB).max(1.0);
    ((f64::from(demand.accelerators) / wanted).round() as u32).max(1)
}

fn lines(demand: &Demand, offer: &Offer, scale: Option<f64>, job: &str) -> Vec<String> {
    let accelerators = scaled_accelerators(demand, scale);
    let scale = f64::from(demand.accelerators) / f64::from(accelerators);
    let step = f64::from(accelerators) * demand.samples_per_second;
    let mut lines = vec![
        format!(
            "# {}: AU {:.1} % ({:.1} % in the first epoch), everything divided by {scale}",
            offer.id, offer.au_percent, offer.au_cold_percent
        ),
        format!(
            "# {accelerators} of {} accelerators, {:.1} MB/s, {step:.2} samples/s",
            demand.accelerators,
            demand.mb() / scale
        ),
    ];
    let rate = |mb: f64| format!("{:.3}MB/s", mb / scale);
    let is_disk = matches!(offer.method, "attached-disks" | "on-demand-file-system");
    let files = (DATA_BYTES / (demand.dataset_bytes / demand.files)).clamp(1.0, demand.files).ceil();
    if let Some(workload) = job.split_whitespace().nth(1).filter(|_| job.starts_with("--workload")) {
        lines.push(format!("stoker bench data FOLDER/data --workload {workload} --files {files}"));
    }
    let bench = |target: &str| format!("stoker bench train {job} --accelerators {accelerators} --target {target}");
    if is_disk {
        lines.push(format!("{} --shape-disk {}", bench("FOLDER/data"), rate(offer.supply_mb_per_s)));
    } else {
        let latency = offer.first_byte_ms.map_or(String::new(), |ms| format!(" --latency {}us", (ms * 1e3).round()));
        let bandwidth = rate(offer.cold_supply_mb_per_s);
        lines.push(format!("stoker emulate FOLDER --listen 127.0.0.1:9000 --bandwidth {bandwidth}{latency}"));
        let reach = "--endpoint http://127.0.0.1:9000 --anonymous";
        if offer.method.starts_with("stoker") {
            let kept = offer.cache_ratio * 100.0;
            lines.push(format!("stoker mount s3://data TRIAL -d {reach}   # --cache-size of {kept:.0} % of the data"));
            lines.push(bench("TRIAL"));
        } else {
            lines.push(format!("{} {reach}", bench("s3://data")));
        }
    }
    lines.extend(simulated(demand, offer, job));
    lines.push(String::new());
    lines.extend(amounts_to(offer));
    lines
}

/// The same in simulated time and in full size, where the simulator knows such a way.
fn simulated(demand: &Demand, offer: &Offer, job: &str) -> Option<String> {
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
        "stoker bench simulate {job} --accelerators {count} --store {store:.1}MB/s{cache} --node {nodes}   # in full size, in simulated time"
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
        let lines = lines(&demand, offer, Some(32.0), "--workload cosmoflow-hpc --accelerator v100");
        let bandwidth = lines
            .iter()
            .find_map(|line| line.split("--bandwidth ").nth(1)?.split("MB/s").next()?.parse::<f64>().ok())
            .unwrap();
        assert!((bandwidth / (18.75 * 16.0) * 100.0 - offer.au_percent).abs() < 0.1, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("--accelerators 1 --target s3://data")));
    }
}
