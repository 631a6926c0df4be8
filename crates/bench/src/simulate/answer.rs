//! Questions asked with several seeds, and what they come to, in the words of a report.
//!
//! It prints nothing. Invariant: the same questions and seeds give the same answers, however many threads work.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use block::Result;
use report::{Epoch, Mean, Point, Summary};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bound::{Bound, bound};
use super::epoch;
use super::latency::Draws;
use super::order::Visit;
use super::totals::Totals;
use super::{Question, Rule};
use crate::sweep::latency::buckets;
use crate::train::OVER_PERCENT;

/// Confidence of intervals.
const CONFIDENCE: f64 = 0.95;

/// Called with how many steps have passed.
pub type Done<'a> = &'a (dyn Fn(u64) + Sync);

/// One run: all epochs with one seed.
pub type Run = Vec<Epoch>;

/// What a question came to.
#[derive(Clone, Debug)]
pub struct Answer {
    pub question: Question,
    pub runs: Vec<Run>,
    /// Share of hits of each epoch, the mean over runs.
    pub hits: Vec<f64>,
}

/// Ask each question with each seed. `done` is called with how many steps have passed, over all accelerators.
pub fn ask(questions: &[Question], seeds: &[u64], threads: usize, done: Done) -> Result<Vec<Answer>> {
    questions.iter().try_for_each(Question::check)?;
    let jobs: Vec<(usize, usize)> =
        (0..questions.len()).flat_map(|question| (0..seeds.len()).map(move |seed| (question, seed))).collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some(&(question, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = run(&questions[question], seeds[seed], seed as u64 + 1, done);
                    results.lock().expect("nothing panics with the lock").insert((question, seed), run);
                }
            });
        }
    });
    let mut results = results.into_inner().expect("nothing panics with the lock");
    let mut answer = |index: usize, question: &Question| {
        let (runs, hits): (Vec<Run>, Vec<Vec<f64>>) =
            (0..seeds.len()).filter_map(|seed| results.remove(&(index, seed))).unzip();
        let hits = (0..question.epochs as usize).map(|epoch| mean(hits.iter().map(|run| run[epoch]))).collect();
        Answer { question: question.clone(), runs, hits }
    };
    Ok(questions.iter().enumerate().map(|(index, question)| answer(index, question)).collect())
}

/// All epochs with one seed, and the share of hits of each.
fn run(question: &Question, seed: u64, repetition: u64, done: Done) -> (Run, Vec<f64>) {
    let (mut visit, mut draws) = (Visit::new(question), Draws::of(seed, 0));
    let one = |epoch: u64| {
        visit.begin(epoch, &mut draws);
        let totals = epoch::Epoch::new(question, &mut visit, &mut draws, done).run();
        let hit = totals.hits as f64 / totals.samples as f64;
        (describe(question, &totals, hit, repetition, epoch), hit)
    };
    (0..question.epochs).map(one).unzip()
}

fn describe(question: &Question, totals: &Totals, hit: f64, repetition: u64, epoch: u64) -> Epoch {
    let (steps, seconds) = (question.steps, question.step_seconds);
    let (au, limit) = (totals.au(&question.counted(), steps, seconds), bound(question, hit).au);
    let overhead = question.overhead.seconds / question.overhead.every as f64;
    let whole = |bytes: f64| bytes.round() as u64;
    let cold = match &question.cache.rule {
        Rule::Ratio { .. } => epoch == 0,
        Rule::Rates(rates) => rates.is_empty() || (epoch == 0 && rates.len() > 1),
    };
    Epoch {
        repetition,
        epoch: epoch + 1,
        cold,
        seconds: totals.seconds,
        steps,
        steps_counted: question.counted().count() as u64,
        samples: totals.samples,
        au_percent: 100.0 * au,
        au_dlio_percent: 100.0 * totals.au_dlio(steps, seconds),
        ceiling_percent: 100.0 * seconds / (seconds + overhead),
        bound_percent: Some(100.0 * limit),
        // The bound is that of the steady loop and of the means of sizes and hits: what is above it is no share.
        share_of_bound_percent: Some(100.0 * au / limit)
            .filter(|share| steps >= question.least() && *share <= OVER_PERCENT),
        samples_per_second: totals.samples as f64 / totals.seconds,
        bytes_per_second: totals.bytes / totals.seconds,
        wait_seconds_by_cause: totals.wait_seconds(),
        bytes: BTreeMap::from([
            ("asked".to_owned(), whole(totals.bytes)),
            ("cached".to_owned(), whole(totals.bytes_cached)),
            ("network".to_owned(), whole(totals.bytes_network)),
        ]),
        step_seconds: totals.step_seconds(),
        step_histogram: buckets(totals.steps.iter().map(|took| Duration::from_secs_f64(took.max(0.0)))),
        processes: Vec::new(),
    }
}

/// The mean, with Student's interval where there are several.
pub fn interval(values: &[f64]) -> Mean {
    let count = values.len() as f64;
    let middle = mean(values.iter().copied());
    if values.len() < 2 {
        return Mean { mean: middle, low: None, high: None, count: values.len() as u64 };
    }
    let variance = values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / (count - 1.0);
    let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("at least one degree of freedom");
    let half = student.inverse_cdf(0.5 + CONFIDENCE / 2.0) * (variance / count).sqrt();
    Mean { mean: middle, low: Some(middle - half), high: Some(middle + half), count: values.len() as u64 }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

impl Answer {
    /// Of each run, the mean of a figure over the epochs that are meant; none where there are none.
    fn of_runs(&self, meant: impl Fn(&Epoch) -> bool, figure: impl Fn(&Epoch) -> f64) -> Option<Mean> {
        let values: Vec<f64> = self
            .runs
            .iter()
            .map(|run| run.iter().filter(|epoch| meant(epoch)).map(&figure).collect::<Vec<f64>>())
            .filter(|values| !values.is_empty())
            .map(|values| mean(values.into_iter()))
            .collect();
        (!values.is_empty()).then(|| interval(&values))
    }

    /// The mean over all epochs, as rounds of benchmarks publish it.
    pub fn au_percent(&self) -> Mean {
        self.of_runs(|_| true, |epoch| epoch.au_percent).unwrap_or_default()
    }

    pub fn samples_per_second(&self) -> Mean {
        self.of_runs(|_| true, |epoch| epoch.samples_per_second).unwrap_or_default()
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.of_runs(|_| true, |epoch| epoch.bytes_per_second).unwrap_or_default().mean
    }

    /// The closed bound at the mean share of hits.
    pub fn bound(&self) -> Bound {
        bound(&self.question, self.hit())
    }

    pub fn hit(&self) -> f64 {
        mean(self.hits.iter().copied())
    }

    pub fn summary(&self) -> Summary {
        let epochs = || self.runs.iter().flatten();
        let pass = self.question.workload.read.pass_au_percent;
        Summary {
            cold_au_percent: self.of_runs(|epoch| epoch.cold, |epoch| epoch.au_percent),
            warm_au_percent: self.of_runs(|epoch| !epoch.cold, |epoch| epoch.au_percent),
            min_au_percent: epochs().map(|epoch| epoch.au_percent).fold(f64::INFINITY, f64::min),
            samples_per_second: self.samples_per_second(),
            pass_au_percent: pass,
            passed: self.au_percent().mean >= pass,
            verdict: None,
            reason: None,
            limited_by: self.bound().limited_by.to_owned(),
        }
    }

    /// A point of a curve; `seconds` are simulated ones.
    pub fn point(&self) -> Point {
        let au = self.au_percent();
        let bounds = self.hits.iter().map(|hit| 100.0 * bound(&self.question, *hit).au);
        let mut at = BTreeMap::from([
            ("hit_percent".to_owned(), 100.0 * self.hit()),
            ("nodes".to_owned(), self.question.node_count() as f64),
        ]);
        at.extend(au.low.map(|low| ("au_percent_low".to_owned(), low)));
        at.extend(au.high.map(|high| ("au_percent_high".to_owned(), high)));
        Point {
            accelerators: self.question.accelerators,
            au_percent: au.mean,
            bound_percent: Some(mean(bounds)),
            bytes_per_second: self.bytes_per_second(),
            seconds: mean(self.runs.iter().map(|run| run.iter().map(|epoch| epoch.seconds).sum())),
            at,
        }
    }
}
