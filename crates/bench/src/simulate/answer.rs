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

use super::bound::{Bound, bound, chance_percent};
use super::epoch;
use super::latency::Draws;
use super::order::Visit;
use super::totals::Totals;
use super::{Question, Rule};
use crate::sweep::latency::buckets;
use crate::train::{Against, OVER_PERCENT};

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
        share_of_bound_percent: match against(question, hit, 100.0 * au / limit) {
            Some(Against::Share(share)) => Some(share),
            _ => None,
        },
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
        ..Epoch::default()
    }
}

/// What an epoch reached of its bound, in percent. That is of the steady loop and of the means of sizes, hits and latencies:
/// by chance an epoch may be above, but only by so much. None where too few steps count.
fn against(question: &Question, hit: f64, share: f64) -> Option<Against> {
    (question.steps >= question.least()).then(|| match share {
        _ if share > OVER_PERCENT + chance_percent(question, hit) => Against::Over(share),
        _ if share > OVER_PERCENT => Against::Short(share),
        _ => Against::Share(share),
    })
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

    /// The share of hits in the epoch that it is judged by.
    fn worst_hit(&self) -> f64 {
        let epochs = self.runs.iter().flat_map(|run| run.iter().zip(&self.hits));
        let worst = epochs.min_by(|left, right| left.0.au_percent.total_cmp(&right.0.au_percent));
        worst.map_or_else(|| self.hit(), |(_, hit)| *hit)
    }

    pub fn hit(&self) -> f64 {
        mean(self.hits.iter().copied())
    }

    /// Each epoch beside its bound, where enough of its steps count.
    fn beside(&self) -> impl Iterator<Item = (&Epoch, Against)> {
        let epochs = self.runs.iter().flat_map(|run| run.iter().zip(&self.hits));
        epochs.filter_map(|(epoch, hit)| {
            Some((epoch, against(&self.question, *hit, 100.0 * epoch.au_percent / epoch.bound_percent?)?))
        })
    }

    /// Epochs that are above their bound by more than chance: either of the two is wrong.
    pub fn failed(&self) -> Vec<String> {
        let over = |(epoch, against): (&Epoch, Against)| match against {
            Against::Over(share) => Some(format!(
                "{} accelerators, repetition {}, epoch {} reached {share:.0} % of the bound of what was simulated: one of the \
                two is wrong, and this program with it",
                self.question.accelerators, epoch.repetition, epoch.epoch
            )),
            _ => None,
        };
        self.beside().filter_map(over).collect()
    }

    /// How many epochs are above their bound by no more than chance, which is no share of it.
    pub fn short(&self) -> usize {
        self.beside().filter(|(_, against)| matches!(against, Against::Short(_))).count()
    }

    pub fn summary(&self) -> Summary {
        let epochs = || self.runs.iter().flatten();
        let pass = self.question.workload.read.pass_au_percent;
        let of_epoch = |number: u64| self.of_runs(|epoch| epoch.epoch == number, |epoch| epoch.au_percent);
        let worst = (1..=self.question.epochs).filter_map(of_epoch).map(|mean| mean.mean).fold(f64::INFINITY, f64::min);
        Summary {
            cold_au_percent: self.of_runs(|epoch| epoch.cold, |epoch| epoch.au_percent),
            warm_au_percent: self.of_runs(|epoch| !epoch.cold, |epoch| epoch.au_percent),
            min_au_percent: epochs().map(|epoch| epoch.au_percent).fold(f64::INFINITY, f64::min),
            samples_per_second: self.samples_per_second(),
            pass_au_percent: pass,
            passed: worst >= pass,
            verdict: None,
            reason: None,
            limited_by: bound(&self.question, self.worst_hit()).limited_by.to_owned(),
        }
    }

    /// Points of a curve: one of the cold epochs and one of the warm, where there are both. `seconds` are simulated ones.
    pub fn points(&self) -> Vec<Point> {
        [true, false].into_iter().filter_map(|cold| self.point(cold)).collect()
    }

    /// Shares of hits of the epochs of each point.
    pub fn hits_by_point(&self) -> Vec<Vec<f64>> {
        let of = |cold| self.hits_of(cold);
        [true, false].into_iter().map(of).filter(|hits| !hits.is_empty()).collect()
    }

    fn hits_of(&self, cold: bool) -> Vec<f64> {
        let epochs = self.runs.first().into_iter().flatten().zip(&self.hits);
        epochs.filter(|(epoch, _)| epoch.cold == cold).map(|(_, hit)| *hit).collect()
    }

    fn point(&self, cold: bool) -> Option<Point> {
        let of = |figure: fn(&Epoch) -> f64| self.of_runs(|epoch| epoch.cold == cold, figure);
        let (au, hits) = (of(|epoch| epoch.au_percent)?, self.hits_of(cold));
        let bounds = hits.iter().map(|hit| 100.0 * bound(&self.question, *hit).au);
        let mut at = BTreeMap::from([
            ("cold".to_owned(), f64::from(u8::from(cold))),
            ("hit_percent".to_owned(), 100.0 * mean(hits.iter().copied())),
            ("nodes".to_owned(), self.question.node_count() as f64),
        ]);
        at.extend(au.low.map(|low| ("au_percent_low".to_owned(), low)));
        at.extend(au.high.map(|high| ("au_percent_high".to_owned(), high)));
        Some(Point {
            accelerators: self.question.accelerators,
            au_percent: au.mean,
            bound_percent: Some(mean(bounds)),
            bytes_per_second: of(|epoch| epoch.bytes_per_second)?.mean,
            seconds: of(|epoch| epoch.seconds)?.mean * hits.len() as f64,
            at,
            verified_percent: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{Cache, Nodes, Overhead, Store};

    fn question(accelerators: u64, steps: u64) -> Question {
        Question {
            workload: workload::shipped("unet3d").unwrap(),
            step_seconds: 0.323,
            accelerators,
            steps,
            epochs: 2,
            store: Store { bytes_per_second: Some(1e9), ..Store::default() },
            cache: Cache { rule: Rule::Rates(vec![0.0, 0.5]), ..Cache::default() },
            nodes: Nodes::default(),
            overhead: Overhead::default(),
        }
    }

    #[test]
    fn a_barrier_that_is_so_rare_that_none_counts_is_no_contradiction() {
        for (seconds, every) in [(0.05, 50), (0.1, 100)] {
            let (store, step_seconds) = (Store::default(), 0.0035);
            let overhead = crate::simulate::Overhead { seconds, every };
            let rare = Question { store, step_seconds, overhead, ..question(1, 100) };
            let answer = ask(&[rare], &[1], 1, &|_| ()).unwrap().remove(0);
            assert!(answer.failed().is_empty(), "{:?}", answer.failed());
        }
    }

    #[test]
    fn what_is_above_its_bound_by_more_than_chance_is_a_failed_check() {
        let with = |question: Question, au: f64| {
            let mut answer = ask(&[question], &[1], 1, &|_| ()).unwrap().remove(0);
            assert!(answer.failed().is_empty() && answer.short() == 0, "what is simulated keeps to its bound");
            let first = &mut answer.runs[0][0];
            first.au_percent = au * first.bound_percent.unwrap();
            (answer.failed().len(), answer.short())
        };
        let few = question(1, 100);
        // Sizes spread by half: over 644 of them their mean does by 2 %, and over a hundred times as many by a tenth of it.
        assert_eq!(with(few.clone(), 1.01), (0, 0));
        assert_eq!(with(few.clone(), 1.05), (0, 1));
        assert_eq!(with(few, 1.5), (1, 0));
        let many = question(20, 400);
        assert_eq!(with(many.clone(), 1.05), (1, 0));
        assert_eq!(with(Question { steps: 80, ..many }, 1.5), (0, 0), "too few steps count");
    }

    #[test]
    fn cold_and_warm_epochs_are_points_of_their_own_and_the_worst_decides() {
        let plenty = Store { bytes_per_second: Some(4.5e9), ..Store::default() };
        let found = ask(&[Question { store: plenty, ..question(2, 200) }], &[1, 2], 1, &|_| ()).unwrap().remove(0);
        let points = found.points();
        let of = |name: &str| points.iter().map(|point| point.at[name].round()).collect::<Vec<f64>>();
        assert_eq!((of("cold"), of("hit_percent")), (vec![1.0, 0.0], vec![0.0, 50.0]));
        let [cold, warm] = [points[0].au_percent, points[1].au_percent];
        assert!(cold < 85.0 && warm > 99.0 && (cold + warm) / 2.0 > 85.0, "{cold} {warm}");
        let summary = found.summary();
        assert!((summary.cold_au_percent.unwrap().mean - cold).abs() < 1e-9);
        assert!(!summary.passed && cold < summary.pass_au_percent, "the cold epoch is below the mark");
        assert_eq!(found.hits_by_point().iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    }
}
