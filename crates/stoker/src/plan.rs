//! `stoker plan`: what to rent for a training job, and what it costs.
//!
//! Layout: `asked` from flags to a demand, `typed` its numbers, `measured` runs that were measured, `layers` which catalogues,
//! `table` and `page` what people see, `document` the JSON, `simulated` a second opinion, `catalog` and `trial` the commands
//! below it. It decides nothing: `crates/plan` does. Invariant: what programs read and what people see are one plan.

mod asked;
mod catalog;
mod document;
mod layers;
mod measured;
mod page;
mod simulated;
mod table;
mod trial;
mod typed;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use ::plan::date::Date;
use ::plan::plan::{Plan, priced};
use ::plan::wrong::Wrong;
use anyhow::Result;
use block::Error;

use crate::place;

pub const EXAMPLES: &str = "\
Examples:
  stoker plan --workload cosmoflow-hpc --accelerator v100 --accelerators 32 --epochs 48
  stoker plan --workload resnet50 --accelerator a100 --accelerators 8..512 --dataset 10TB,100TB
  stoker plan --measured run.json --accelerators 64 --accelerator-price 1.90 --json plan.json
  stoker plan catalog check                       what is doubtful in the prices
  stoker plan try --workload unet3d --accelerator h100 --accelerators 16 --offer 2";

#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    below: Option<Below>,
    /// Show so many offers
    #[arg(long, value_name = "N", default_value = "10", value_parser = typed::top, allow_hyphen_values = true)]
    top: usize,
    /// Have the best offers simulated for so many accelerators as well: by default 180, 500 and 1,000
    #[arg(long, value_name = "N,N..", value_delimiter = ',', num_args = 0..=1, default_missing_value = "180,500,1000", value_parser = typed::accelerators)]
    simulate: Option<Vec<u32>>,
    /// Write the whole plan to this file (docs/planner.md)
    #[arg(long, value_name = "FILE.json")]
    json: Option<PathBuf>,
    /// Draw the plan, and the study of storage cost for its nodes, as a page that needs nothing but a browser
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    asked: asked::Asked,
    #[command(flatten)]
    layers: layers::Layers,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Below {
    /// What can be rented, with prices, limits, sources and dates
    #[command(subcommand)]
    Catalog(catalog::Command),
    /// Write the commands that behave like an offer, scaled down, and those that the plan amounts to
    Try(Box<trial::Args>),
}

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.below {
        Some(Below::Catalog(command)) => return catalog::run(command),
        Some(Below::Try(args)) => return trial::run(args),
        None => {}
    }
    let (json, html) = (args.json.as_deref(), args.report.as_deref());
    place::can_be_written(&[(json, place::JSON), (html, place::PAGE)], [])?;
    let catalog = args.layers.catalog()?;
    let demands = args.asked.demands()?;
    let begun = std::time::Instant::now();
    let plans: Vec<Plan> =
        demands.iter().map(|demand| Plan::of(&catalog, demand, today()).map_err(wrong)).collect::<Result<_>>()?;
    let ways: usize = plans.iter().map(|plan| plan.candidates).sum();
    let took =
        format!("{ways} ways were looked at, and their ranges drawn from, in {} ms", begun.elapsed().as_millis());
    let simulated =
        args.simulate.as_deref().map(|counts| simulated::rows(&catalog, &args.asked, counts)).transpose()?;
    let simulated = simulated.unwrap_or_default();
    // Files first: whoever reads the table may have enough of it.
    if let Some(path) = json {
        let text =
            serde_json::to_string_pretty(&document::of(&plans, &simulated)).expect("a plan has no keys but strings");
        crate::report::replace(path, &text)?;
    }
    if let Some(path) = html {
        crate::report::replace(path, &page::of(&catalog, &plans, &simulated))?;
    }
    match &plans[..] {
        [plan] => table::one(plan, args.top)?,
        several => table::sweep(several)?,
    }
    say!("  {took}")?;
    if !simulated.is_empty() {
        table::simulated(&simulated)?;
    }
    [json, html].into_iter().flatten().try_for_each(|path| say!("  {}", path.display()))?;
    if plans.iter().all(|plan| plan.offers.is_empty()) {
        note!("stoker: {}", unranked(&catalog, &plans[0]));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Why there is no answer, and what would give one.
fn unranked(catalog: &::plan::catalog::Catalog, plan: &Plan) -> String {
    let (of_nodes, of_services) = priced(catalog, &plan.demand);
    let place = plan.demand.region.as_ref().map_or(String::new(), |region| format!(" in {region}"));
    let lacking = lacking(plan);
    let most = lacking.map_or(String::new(), |reason| format!("; what is lacking: {reason}"));
    format!(
        "nothing can be ranked{place}\n  on:  prices of nodes with {} are known in {of_nodes}; of storage in {of_services}{most}\n  try: {}",
        plan.demand.accelerator,
        cure(lacking.unwrap_or_default())
    )
}

/// What is lacking of the ways that lack the least: one that is no missing price first, as that of another region says nothing.
fn lacking(plan: &Plan) -> Option<&str> {
    let ways = || plan.unranked.iter().map(|unranked| &unranked.reasons);
    let is_price = |reason: &str| reason.starts_with("no price") || reason.starts_with("no verified price");
    let mut counts = HashMap::<&String, usize>::new();
    ways().flatten().for_each(|reason| *counts.entry(reason).or_default() += 1);
    let rank = |(fewest, reason): &(usize, &String)| {
        let count = counts.get(reason).copied().unwrap_or(0);
        (std::cmp::Reverse(*fewest), !is_price(reason), count, std::cmp::Reverse(reason.len()))
    };
    let all = ways().flat_map(|reasons| reasons.iter().map(|reason| (reasons.len(), reason)));
    all.filter(|(_, reason)| !reason.contains(" has no node ")).max_by_key(rank).map(|(_, reason)| reason.as_str())
}

fn cure(reason: &str) -> &'static str {
    const FIGURE: &str =
        "the figure, from your provider or measured, in a file over the catalogue (--catalog, docs/planner.md)";
    let cures = [
        ("does not grant", "fewer of --needs"),
        ("the way from", "--data-way 30ms,10Gbit/s: what the way to the data adds and carries"),
        ("egress", "the price of a GiB to another region in a file over the catalogue (--catalog, docs/planner.md)"),
        (
            "no region has",
            "--accelerator-price where you know what a node costs, or a price list of a region with both (`stoker plan catalog import`)",
        ),
        (
            "price",
            "another --region, --accelerator-price where you know what a node costs, or a price list (`stoker plan catalog import`)",
        ),
        (
            "not verified",
            "--unverified, so that remembered figures decide; or the figure in a file over the catalogue (--catalog)",
        ),
        ("hold", "more accelerators, or smaller data"),
    ];
    cures.iter().find(|(word, _)| reason.contains(word)).map_or(FIGURE, |(_, cure)| cure)
}

/// Fields of a demand that are flags by the same name.
const FLAGS: [&str; 15] = [
    "accelerator",
    "accelerators",
    "accelerator-price",
    "checkpoint",
    "data-region",
    "data-zone",
    "dataset",
    "epochs",
    "files",
    "hours-per-month",
    "jobs",
    "losses-per-node-hour",
    "node",
    "region",
    "zones",
];

/// What can't be meant, as the command tells it.
fn wrong(wrong: Wrong) -> anyhow::Error {
    // A field of the demand is a flag, where a flag has its name.
    let is_flag = wrong.place == "the demand" && FLAGS.contains(&&*wrong.field);
    let on = if is_flag { format!("--{}", wrong.field) } else { wrong.on() };
    let error = Error::invalid(wrong.what.clone(), on);
    if wrong.hint.is_empty() { error.into() } else { error.hint(wrong.hint).into() }
}

/// The day, by UTC.
fn today() -> Date {
    let days = (place::now() / 86_400.0).floor() as i64;
    let (year, month, day) = civil(days);
    Date::parse(&format!("{year:04}-{month:02}-{day:02}")).expect("the clock is set to a year from 2000 to 2199")
}

/// Year, month and day of a number of days since 1970: years begin in March, so that the leap day is their last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(20_781), (2026, 11, 24));
    }
}
