//! The largest number of accelerators that a target keeps busy, each try an epoch of its own. The tries around the answer
//! are repeated until two of them agree: one slow moment of a disk shifts no answer by itself.
//!
//! Invariant: every try is in the report with what it cost, also where the search ends early.

use std::collections::BTreeMap;

use block::{Error, Result};
use report::{Epoch, Point, Report};
use targets::clock::seconds;

use super::search::{Tries, largest, settled};
use super::{Bench, Chill, Job, UNVERIFIED, ceiling, several, warn};

/// A try takes about so long, in steps of which there are neither too few for a verdict nor more than it takes.
const SECONDS: f64 = 5.0;
const STEPS_MAX: f64 = 500.0;

/// Find it, up to `most` or as many as the set is large enough for. At rank 0 the report is handed out after each try.
pub fn find(
    bench: &mut Bench,
    most: Option<u64>,
    report: &mut Report,
    save: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Option<u64>> {
    let mut job = bench.job.clone();
    let steady = job.steady(Some(bench.set));
    let read = &mut job.workload.read;
    let least = steady.least;
    let steps = read.steps_max.unwrap_or(least.max((SECONDS / job.step_seconds).ceil().min(STEPS_MAX) as u64));
    if steps < least {
        let what = format!("a try of {steps} steps has no verdict");
        let hint = format!("give {least} at least, since {} batches are read ahead", steady.lead);
        return Err(Error::invalid(what, format!("--set steps={steps}")).hint(hint));
    }
    read.steps_max = Some(steps);
    let batch = read.batch;
    let ranks = u64::from(bench.outside.ranks.size());
    let room = bench.set.samples() / (steps * batch * ranks);
    let room = if bench.set.real { room } else { room.max(most.unwrap_or(1) / ranks) };
    let limit = most.map_or(room, |most| room.min(most / ranks));
    // Whole files that are dealt may leave some accelerator with fewer steps than the rest.
    let is_enough = |each: &u64| {
        let many = Job { accelerators: each * ranks, ..job.clone() };
        many.steps(bench.set).is_ok_and(|found| found >= steps)
    };
    let limit = (1..=limit).rev().find(is_enough).unwrap_or(0);
    if limit == 0 {
        let on = format!("{} samples", bench.set.samples());
        let wanted = steps * batch * ranks;
        let files = (wanted as f64 * bench.set.files.len() as f64 / bench.set.samples() as f64).ceil();
        let fewer =
            if steps > least { format!(", or ask for fewer steps: --set steps={least}") } else { String::new() };
        return Err(Error::invalid(format!("the set is too small for a try of {steps} steps"), on)
            .hint(format!("{wanted} samples or {files} files are enough for one: make a larger set{fewer}")));
    }
    // How many the first try has is for the probe to say. What the most would read first, fewer read too.
    let largest_try = Job { accelerators: limit * ranks, ..job.clone() };
    bench.probed(&largest_try.reads(bench.set, 1), report)?;
    let guess = bench.bound().map_or(1, |_| knee(bench, &job) / ranks).clamp(1, limit);
    let mut number = 0;
    let mut tries = BTreeMap::<u64, Tries>::new();
    let pass = job.workload.read.pass_au_percent;
    let mut one = |each: u64| {
        job.accelerators = each * ranks;
        number += 1;
        let passed = try_it(bench, &job, number, report, save)? >= pass;
        let all = tries.entry(each).or_default();
        all.add(passed);
        Ok((passed, all.clone()))
    };
    let found = largest(guess, limit, &mut |each| Ok(one(each)?.0))?;
    let found = settled(found.unwrap_or(0), limit, &mut |each| Ok(one(each)?.1))?;
    let found = found.map(|each| each * ranks);
    if found == Some(limit * ranks) && most != found {
        super::warn(report, "the set is too small to try more accelerators: there may be more");
    }
    if bench.set.real && report.points.iter().all(|point| point.verified_percent == Some(0.0)) {
        warn(report, UNVERIFIED);
    }
    job.accelerators = found.unwrap_or(ranks);
    report.accelerators = found;
    let best = Bench { job: &job, outside: bench.outside, ..*bench };
    ceiling::measure(&best, report)?;
    Ok(found)
}

/// How much of what was asked for was compared with checksums; nothing of a set that is imagined.
fn verified(bench: &Bench, epoch: &Epoch) -> Option<f64> {
    let of = |name: &str| epoch.bytes.get(name).copied().unwrap_or(0) as f64;
    (bench.set.real && of("asked") > 0.0).then(|| 100.0 * of("verified") / of("asked"))
}

/// Where the target's bandwidth would be used up at the pass mark.
fn knee(bench: &Bench, job: &Job) -> u64 {
    let supply = bench.trusted().map_or(0.0, |probe| probe.supply.bytes_per_second);
    let each = bench.job.demand(bench.set).bytes_per_second() / bench.job.accelerators as f64;
    (supply / (each * job.workload.read.pass_au_percent / 100.0)).clamp(1.0, 1e6) as u64
}

/// One epoch with so many accelerators; their utilisation in percent, as rank 0 says.
fn try_it(
    bench: &Bench,
    job: &Job,
    number: u64,
    report: &mut Report,
    save: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<f64> {
    let begun = bench.outside.clock.now();
    let one = Bench { job, outside: bench.outside, ..*bench };
    let what = several(job.accelerators, "accelerator");
    if let Some(reason) = job.steady(Some(bench.set)).invalid(job, job.steps(bench.set)?) {
        let hint = "shards of one length leave no accelerator with fewer steps than others: make the set anew";
        return Err(Error::invalid(format!("this number can't be tried: {reason}"), what).hint(hint));
    }
    let measured = one.epoch(number, job.chill != Chill::Never, &what)?;
    let mut reached = 0.0;
    if let Some((mut epoch, _)) = measured {
        if !epoch.cold && bench.set.real {
            let why = if job.chill == Chill::Never { "caches were kept" } else { "caches could not be emptied" };
            warn(report, format!("{why}: a number that was found may be of caches, not of storage"));
        }
        one.held(&mut epoch, &what, report);
        reached = epoch.au_percent;
        report.points.push(Point {
            accelerators: job.accelerators,
            au_percent: epoch.au_percent,
            bound_percent: epoch.bound_percent,
            bytes_per_second: epoch.bytes_per_second,
            seconds: seconds(bench.outside.clock.now() - begun),
            verified_percent: verified(bench, &epoch),
            ..Point::default()
        });
        save(report)?;
    }
    crate::told(bench.outside.ranks, &reached)
}
