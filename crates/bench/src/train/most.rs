//! The largest number of accelerators that a target keeps busy, each try an epoch of its own.
//!
//! Invariant: every try is in the report with what it cost, also where the search ends early.

use block::{Error, Result};
use report::{Point, Report};
use targets::clock::seconds;

use super::search::largest;
use super::{Bench, Chill, Job, ceiling, several};

/// A try takes about so long, in steps of which there are neither too few to mean something nor more than it takes.
const SECONDS: f64 = 5.0;
const STEPS: (f64, f64) = (20.0, 500.0);

/// Find it, up to `most` or as many as the set is large enough for. At rank 0 the report is handed out after each try.
pub fn find(
    bench: &mut Bench,
    most: Option<u64>,
    report: &mut Report,
    save: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<Option<u64>> {
    let mut job = bench.job.clone();
    let read = &mut job.workload.read;
    let steps = read.steps_max.unwrap_or((SECONDS / job.step_seconds).ceil().clamp(STEPS.0, STEPS.1) as u64);
    read.steps_max = Some(steps);
    let ranks = u64::from(bench.outside.ranks.size());
    let room = bench.set.samples() / (steps * read.batch * ranks);
    let room = if bench.set.real { room } else { room.max(most.unwrap_or(1) / ranks) };
    let limit = most.map_or(room, |most| room.min(most / ranks));
    if limit == 0 {
        let on = format!("{} samples", bench.set.samples());
        let wanted = steps * read.batch * ranks;
        return Err(Error::invalid(format!("the set is too small for a try of {steps} steps"), on).hint(format!(
            "{wanted} samples are the least; make a larger set, or ask for fewer steps: --set steps=N"
        )));
    }
    if bench.set.real {
        bench.probe()?;
        report.sections.insert("probe".into(), serde_json::to_value(bench.probe).expect("numbers"));
    }
    let guess = bench.bound(steps).map_or(1, |_| knee(bench, &job) / ranks).clamp(1, limit);
    let mut number = 0;
    let found = largest(guess, limit, &mut |each| {
        job.accelerators = each * ranks;
        number += 1;
        try_it(bench, &job, number, report, save)
    })?;
    let found = found.map(|each| each * ranks);
    if found == Some(limit * ranks) && most != found {
        super::warn(report, "the set is too small to try more accelerators: there may be more");
    }
    job.accelerators = found.unwrap_or(ranks);
    report.accelerators = found;
    let best = Bench { job: &job, outside: bench.outside, ..*bench };
    ceiling::measure(&best, report)?;
    Ok(found)
}

/// Where the target's bandwidth would be used up at the pass mark.
fn knee(bench: &Bench, job: &Job) -> u64 {
    let supply = bench.probe.map_or(0.0, |probe| probe.supply.bytes_per_second);
    let each = bench.job.demand(bench.set, 1).bytes_per_second() / bench.job.accelerators as f64;
    (supply / (each * job.workload.read.pass_au_percent / 100.0)).clamp(1.0, 1e6) as u64
}

/// One epoch with so many accelerators; whether they were busy enough, as rank 0 says.
fn try_it(
    bench: &Bench,
    job: &Job,
    number: u64,
    report: &mut Report,
    save: &mut dyn FnMut(&Report) -> Result<()>,
) -> Result<bool> {
    let begun = bench.outside.clock.now();
    let one = Bench { job, outside: bench.outside, ..*bench };
    let what = several(job.accelerators, "accelerator");
    let measured = one.epoch(number, job.chill != Chill::Never, &what)?;
    let mut passed = false;
    if let Some((epoch, _)) = measured {
        passed = epoch.au_percent >= job.workload.read.pass_au_percent;
        report.points.push(Point {
            accelerators: job.accelerators,
            au_percent: epoch.au_percent,
            bound_percent: epoch.bound_percent,
            bytes_per_second: epoch.bytes_per_second,
            seconds: seconds(bench.outside.clock.now() - begun),
            ..Point::default()
        });
        save(report)?;
    }
    Ok(bench.outside.ranks.broadcast(vec![u8::from(passed)])?.first() == Some(&1))
}
