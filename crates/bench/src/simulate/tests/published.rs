//! The simulation beside what was published: the table of `docs/simulation.md` is made of these points and compared.
//!
//! Invariants: the verdict of a row follows from its figures, never from who wrote it; a row of which any figure was chosen
//! so that the row comes out is fitted; no bandwidth of a store is taken from a utilisation.

use crate::simulate::latency::Latency;
use crate::simulate::{Answer, Cache, Nodes, Overhead, Question, Rule, Store, ask};
use workload::accelerator;

mod juicefs;
mod others;
mod rescale;

/// What was published, and how near is near enough.
#[derive(Clone, Copy)]
pub enum Published {
    /// Percent. Within [`POINTS`], and within half of what is lost, so that nothing near 100 % fits by itself.
    Utilisation(f64),
    /// Percent: more than this.
    Above(f64),
    /// Anything that is counted or has a rate, to so many decimals: within [`SHARE`].
    Figure(f64, usize),
    /// The same where only a floor is told.
    AtLeast(f64),
}
use Published::{Above, AtLeast, Figure, Utilisation};

/// Repetitions of one experiment on shared machines differ by so much, and charts can't be read closer.
const POINTS: f64 = 2.0;
const SHARE: f64 = 0.1;

/// A point, tried in one way. Tries of one point follow each other.
pub struct Row {
    pub point: &'static str,
    pub source: &'static str,
    pub published: Published,
    /// What the simulation was given, and where that is from.
    pub given: &'static str,
    /// Whether any of that was chosen by looking at this point.
    pub is_fitted: bool,
    pub simulated: f64,
    /// What the simulated figure is made of, where it is of several.
    pub parts: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Reproduced,
    Fitted,
    Misfit,
}

impl Row {
    fn verdict(&self) -> Verdict {
        let near = |right: f64, tolerance: f64| (self.simulated - right).abs() <= tolerance;
        let fits = match self.published {
            Utilisation(right) => near(right, POINTS.min((100.0 - right) / 2.0)),
            Above(least) | AtLeast(least) => self.simulated > least,
            Figure(right, _) => near(right, SHARE * right),
        };
        match (fits, self.is_fitted) {
            (false, _) => Verdict::Misfit,
            (true, true) => Verdict::Fitted,
            (true, false) => Verdict::Reproduced,
        }
    }

    /// As a line of the document.
    fn line(&self) -> String {
        let (published, decimals) = match self.published {
            Utilisation(right) => (format!("{right}"), 1),
            Above(least) => (format!("> {least}"), 1),
            AtLeast(least) => (format!("> {}", thousands(least, 0)), 0),
            Figure(right, decimals) => (thousands(right, decimals), decimals),
        };
        let simulated = thousands(self.simulated, decimals);
        let Row { point, source, given, parts, .. } = self;
        let verdict = format!("{:?}", self.verdict()).to_lowercase();
        let verdict = if verdict == "reproduced" { verdict } else { format!("**{verdict}**") };
        format!("| {point} | {source} | {published} | {given} | {simulated}{parts} | {verdict} |\n")
    }
}

/// `25,221`, `1.70`.
fn thousands(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",") + rest
}

/// The table, and how many points are what by their best try.
fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "Near enough is within {POINTS} points of utilisation and half of what is lost, or {:.0} % of any other figure.\n\n",
        100.0 * SHARE
    );
    text += "| point | source | published | taken from | simulated | verdict |\n";
    text += "| --- | --- | --- | --- | --- | --- |\n";
    text.extend(rows.iter().map(Row::line));
    let same = |row: &Row, other: &Row| (row.point, row.source) == (other.point, other.source);
    let points: Vec<&[Row]> = rows.chunk_by(same).collect();
    let best = |point: &&[Row]| point.iter().map(Row::verdict).min().unwrap();
    let count = |verdict| points.iter().filter(|point| best(point) == verdict).count();
    text + &format!(
        "\n{} published points: **{} reproduced** without a fitted figure, **{} fitted**, **{} misfits**.\n",
        points.len(),
        count(Verdict::Reproduced),
        count(Verdict::Fitted),
        count(Verdict::Misfit),
    )
}

#[test]
fn the_table_of_the_document_is_what_the_simulation_gives() {
    let rows: Vec<Row> = [juicefs::rows(), others::rows(), rescale::rows()].into_iter().flatten().collect();
    let table = table(&rows);
    let document = include_str!("../../../../../docs/simulation.md");
    assert!(document.contains(&table), "docs/simulation.md has another table than this one:\n\n{table}");
}

#[test]
fn a_verdict_follows_from_the_figures() {
    let verdict = |published, simulated, is_fitted| {
        let (point, source, given, parts) = ("", "", "", String::new());
        Row { point, source, published, given, is_fitted, simulated, parts }.verdict()
    };
    assert_eq!(verdict(Utilisation(49.0), 51.0, false), Verdict::Reproduced);
    assert_eq!(verdict(Utilisation(49.0), 51.0, true), Verdict::Fitted);
    assert_eq!(verdict(Utilisation(49.0), 51.1, true), Verdict::Misfit);
    // Where 1 % is lost, nothing lost is a misfit.
    assert_eq!(verdict(Utilisation(99.0), 100.0, false), Verdict::Misfit);
    assert_eq!(verdict(Above(98.0), 98.0, false), Verdict::Misfit);
    assert_eq!(verdict(Figure(1.75, 2), 1.93, false), Verdict::Misfit);
    assert_eq!(verdict(AtLeast(4000.0), 4001.0, false), Verdict::Reproduced);
}

const GBIT: f64 = 1e9 / 8.0;

pub fn question(workload_name: &str, accelerator_name: &str, accelerators: u64) -> Question {
    let step = accelerator::shipped(accelerator_name).unwrap().step(workload_name).unwrap().clone();
    Question {
        step_seconds: step.step_seconds,
        workload: step.applied(workload::shipped(workload_name).unwrap()),
        accelerators,
        steps: 100,
        epochs: 1,
        store: Store::default(),
        cache: Cache::default(),
        nodes: Nodes::default(),
        overhead: Overhead::default(),
    }
}

/// A store that has nothing but bandwidth.
fn wide(bytes_per_second: f64) -> Store {
    Store { bytes_per_second: Some(bytes_per_second), ..Store::default() }
}

fn answer(question: Question, seeds: &[u64]) -> Answer {
    ask(&[question], seeds, 2, &|_| ()).unwrap().remove(0)
}

fn au(question: Question) -> f64 {
    answer(question, &[1, 2, 3]).au_percent().mean
}

fn rates(shares: &[f64]) -> Cache {
    Cache { rule: Rule::Rates(shares.to_vec()), ..Cache::default() }
}

/// What a loop that has come to rest takes: bytes/s.
fn steady_bytes(answer: &Answer) -> f64 {
    let Question { workload, accelerators, step_seconds, .. } = &answer.question;
    let demand = (accelerators * workload.read.batch) as f64 * workload.bytes_per_sample() / step_seconds;
    answer.au_percent().mean / 100.0 * demand
}

/// The same in samples/s.
fn steady_samples(answer: &Answer) -> f64 {
    steady_bytes(answer) / answer.question.workload.bytes_per_sample()
}
