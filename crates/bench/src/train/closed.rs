//! The rules of MLPerf Storage v2.0 for its closed division, each by its own number, and whether a run keeps it.
//!
//! It measures nothing, and what a run doesn't tell is named as such, with why: none broken doesn't make a submission.
//! Numbers are those of the rules (`Rules.md` of mlcommons/storage); with a G before them, of the submission guidelines
//! beside them (`Submission_guidelines.md`), where the rules are silent.
//!
//! Invariant: every rule about training is in the answer, in the order of the documents; those on checkpoints are in `state`.

mod runs;
pub mod state;

use super::{Chill, Job};
use report::Report;
use runs::{Runs, average};
use serde::Serialize;
use workload::Workload;
use workload::accelerator;

/// What the numbers are of.
pub const DOCUMENT: &str = "MLPerf Storage v2.0";

/// A rule, and what is said of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    pub number: &'static str,
    pub rule: &'static str,
    pub judgement: Judgement,
    /// What it was judged by, or why it can't be.
    pub figures: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Judgement {
    Kept,
    Broken,
    #[serde(rename = "not judgeable")]
    NotJudgeable,
}

impl Judgement {
    pub fn name(self) -> &'static str {
        match self {
            Judgement::Kept => "kept",
            Judgement::Broken => "broken",
            Judgement::NotJudgeable => "not judgeable",
        }
    }
}

/// What the rules ask about, beside the job.
pub struct Circumstances<'a> {
    /// What was measured so far.
    pub report: &'a Report,
    /// The workload as it is shipped with this accelerator's changes, if it is shipped.
    pub shipped: Option<&'a Workload>,
    pub set_bytes: u64,
    /// Whether there is a set at all.
    pub is_real: bool,
    /// The storage was slowed down.
    pub is_shaped: bool,
    /// Since the measurement began, all that lies between runs included.
    pub seconds: f64,
}

/// Models of the benchmark: their workloads, the numbers of the rules that allow them, and the least utilisation.
const MODELS: [(&str, &str, f64); 3] =
    [("unet3d", "2.1.1", 90.0), ("resnet50", "2.1.2", 90.0), ("cosmoflow", "2.1.3", 70.0)];
const ACCELERATORS: [&str; 2] = ["a100", "h100"];

/// A set has at least so many times the memory of the hosts, and an epoch so many steps.
const MEMORY: u64 = 5;
const STEPS: u64 = 500;
/// Runs of a result, and how far they may lie from it.
const RUNS: usize = 5;
const APART_PERCENT: f64 = 5.0;
/// Utilisation that a submission with the most accelerators keeps.
const SUBMISSION_AU: f64 = 90.0;
/// Memory of a host for each accelerator.
const ACCELERATOR_BYTES: f64 = 0.5e9;
/// File systems whose bytes don't outlive a loss of power, and some whose do.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
const ON_DISK: [&str; 7] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"];

/// All rules, judged.
pub fn judge(job: &Job, around: &Circumstances) -> Vec<Rule> {
    let bar = Bar { job, around, runs: Runs::of(around.report), rules: Vec::new() };
    bar.fairness().storage().consecution().model().emulation().utilisation().set().made().runs().hosts().fixed().rules
}

/// A job before the rules.
struct Bar<'a> {
    job: &'a Job,
    around: &'a Circumstances<'a>,
    runs: Runs,
    rules: Vec<Rule>,
}

type Said = (Judgement, String);

fn kept_if(is_kept: bool, figures: impl Into<String>) -> Said {
    (if is_kept { Judgement::Kept } else { Judgement::Broken }, figures.into())
}

fn kept(figures: impl Into<String>) -> Said {
    kept_if(true, figures)
}

fn unknown(why: impl Into<String>) -> Said {
    (Judgement::NotJudgeable, why.into())
}

/// Whether what a report was measured on outlives a loss of power.
fn lasts(report: &Report, is_real: bool) -> Said {
    match report.environment.file_system.as_deref() {
        _ if !is_real => kept_if(false, "there are no files"),
        Some(name) if IN_MEMORY.contains(&name) => kept_if(false, format!("{name} lies in memory")),
        Some(name) if ON_DISK.contains(&name) => kept(name),
        name => unknown(format!("what lies behind {} isn't seen", name.unwrap_or("a store"))),
    }
}

const OF_SUBMISSION: &str = "it is of a submission, not of a run";
const ONE_RUN: &str = "there is one run: --set repetitions=6 makes a warm-up and five";

impl Bar<'_> {
    fn rule(&mut self, number: &'static str, rule: &'static str, (judgement, figures): Said) {
        self.rules.push(Rule { number, rule, judgement, figures });
    }

    fn model_of(&self) -> Option<(&'static str, f64)> {
        let name = &self.around.shipped?.name;
        MODELS.iter().find(|(model, ..)| model == name).map(|(_, number, least)| (*number, *least))
    }

    /// 1.1 to 1.4.
    fn fairness(mut self) -> Self {
        let fair = match self.around.is_shaped {
            true => kept_if(false, "the storage was slowed down: --shape-disk"),
            false => unknown("fairness is more than figures"),
        };
        self.rule("1.1.1", "storage is measured as fairly as possible", fair);
        self.rule(
            "1.1.2",
            "results can be replicated",
            unknown("others have to; runs of this report are held against 1.1.3"),
        );
        let apart = match self.runs.apart_percent() {
            Some(percent) => kept_if(
                percent <= APART_PERCENT,
                format!("{} runs lie within {percent:.2} % of their mean", self.runs.tested.len()),
            ),
            None => unknown(ONE_RUN),
        };
        self.rule("1.1.3", "replicated results lie within 5 %", apart);
        self.rule("1.2", "the system is available, or made so on demand", unknown(OF_SUBMISSION));
        self.rule(
            "1.3.1",
            "the data are made from the fixed seed",
            unknown("files don't tell by which seed they were made"),
        );
        let seed = format!("orders come from the seed {}, whose source isn't seen", self.job.seed);
        self.rule("1.3.2", "seeds come from the clock, the system or another seed", unknown(seed));
        self.rule("1.3.3", "the storage isn't told the seed", unknown("what the storage is told isn't seen"));
        self.rule("1.4.1", "results are rounded to two decimals", kept("those named here are"));
        self
    }

    /// 1.5.
    fn storage(mut self) -> Self {
        let lasts = lasts(self.around.report, self.around.is_real);
        self.rule("1.5.1", "storage is persistent", lasts);
        let there = if self.around.is_real { "the set was listed before" } else { "there are no files" };
        self.rule("1.5.2", "data lie there before the benchmark begins", kept_if(self.around.is_real, there));
        self
    }

    /// 1.6 and 1.7.
    fn consecution(mut self) -> Self {
        let count = self.runs.all.len();
        let one = || unknown(ONE_RUN);
        let in_order = if count > 1 { kept(format!("{count} runs of one command")) } else { one() };
        self.rule("1.6.1", "runs are executed one after the other", in_order);
        let (shortest, between) = (self.runs.shortest_seconds(), self.around.seconds - self.runs.seconds());
        let text = format!("all that is no run took {between:.1} s, the shortest run {shortest:.1} s");
        let near = if count < 2 {
            one()
        } else if between < shortest {
            kept(text)
        } else {
            unknown(format!("{text}; how much of it lay between two runs isn't kept"))
        };
        self.rule("1.6.2", "between runs passes less time than one takes", near);
        self.rule("1.6.3", "results aren't picked", unknown("other reports aren't seen"));
        self.rule("1.7.1-1.7.3", "system descriptions and all logs are submitted", unknown(OF_SUBMISSION));
        let failed = if count > 1 { kept("one that failed would have ended this command") } else { one() };
        self.rule("1.7.4", "no failed run lies between those that are submitted", failed);
        self
    }

    /// 2.1.
    fn model(mut self) -> Self {
        let name = &self.job.workload.name;
        match self.model_of() {
            Some((number, _)) => self.rule(number, "the model is one of the benchmark", kept(name)),
            None => {
                let known = MODELS.map(|(name, ..)| name).join(", ");
                let own = if self.around.shipped.is_none() { ", from a file of one's own" } else { "" };
                let said = kept_if(false, format!("{name}{own}; known are {known}"));
                self.rule("2.1", "the model is one of the benchmark", said);
            }
        }
        self
    }

    /// 2.2.
    fn emulation(mut self) -> Self {
        self.rule(
            "2.2.2",
            "accelerators are emulated by DLIO",
            unknown("this is Stoker's loop: a submission is run by mlpstorage"),
        );
        let plain = match self.job.decode {
            true => kept_if(false, "images were decoded besides: --decode"),
            false => kept("each step sleeps"),
        };
        self.rule("2.2.3", "a call of sleep stands for training", plain);
        let name = self.around.report.accelerator.as_deref();
        let shipped = name.and_then(|name| accelerator::shipped(name).ok());
        let step = shipped.as_ref().and_then(|shipped| shipped.step(&self.job.workload.name).ok());
        let here = format!("{} s for a batch of {}", self.job.step_seconds, self.job.workload.read.batch);
        let time = match (step, self.around.shipped) {
            (Some(step), Some(shipped)) => {
                let is_same = step.step_seconds.total_cmp(&self.job.step_seconds).is_eq()
                    && shipped.read.batch == self.job.workload.read.batch;
                kept_if(is_same, format!("{here}, and there {} s for {}", step.step_seconds, shipped.read.batch))
            }
            _ => kept_if(false, format!("{here}, of no accelerator and model of the benchmark")),
        };
        self.rule("2.2.4", "its time is that of batch and accelerator", time);
        let is_known = name.is_some_and(|name| ACCELERATORS.contains(&name));
        let named = format!("{}; known are {}", name.unwrap_or("none was named"), ACCELERATORS.join(", "));
        self.rule("2.2.5", "the accelerator is one of the benchmark", kept_if(is_known, named));
        self
    }

    /// 2.3.
    fn utilisation(mut self) -> Self {
        let rate = format!("{:.2} samples/s", average(&self.runs.tested, |run| run.samples_per_second));
        let is_run = !self.runs.all.is_empty();
        let metric = if is_run { kept(&rate) } else { unknown(NO_RUN) };
        self.rule("2.3.1", "the metric is samples per second", metric);
        let least = self.model_of().map(|(_, least)| least);
        let busy = self.busy(least, "it is no model of the benchmark, so no least utilisation is known");
        self.rule("2.3.2", "utilisation is at least 90 % (70 % of CosmoFlow)", busy);
        let own = average(&self.runs.tested, |run| run.own_au_percent);
        let formula =
            if is_run { kept(format!("as DLIO has it; of a steady loop {own:.2} %")) } else { unknown(NO_RUN) };
        self.rule("2.3.3-2.3.5", "utilisation leaves out the first step, and the metric doesn't", formula);
        self
    }

    /// The mean over epochs and runs, held against this.
    fn busy(&self, least: Option<f64>, no_least: &str) -> Said {
        let found = average(&self.runs.tested, |run| run.au_percent);
        let text = || format!("{found:.2} % in the mean of {}", super::several(self.runs.tested.len() as u64, "run"));
        match (least, self.around.report.invalid()) {
            _ if self.runs.all.is_empty() => unknown(NO_RUN),
            (_, Some(why)) => unknown(format!("{}, and no verdict stands on it: {why}", text())),
            (None, _) => unknown(no_least),
            (Some(least), None) => kept_if(found >= least, text()),
        }
    }

    /// 2.4.
    fn set(mut self) -> Self {
        let shared = match self.around.is_real {
            true => unknown("whether others can reach it isn't seen"),
            false => kept_if(false, "there are no files"),
        };
        self.rule("2.4.1", "the set lies in shared persistent storage", shared);
        let hosts = self.runs.hosts.len() as u64;
        let least = MEMORY * hosts * self.around.report.environment.memory_bytes;
        let (gigabytes, wanted) = (self.around.set_bytes as f64 / 1e9, least as f64 / 1e9);
        let text = format!(
            "{gigabytes:.1} GB; {MEMORY} times the memory of {} is {wanted:.1} GB",
            super::several(hosts, "host")
        );
        self.rule(
            "2.4.2",
            "the set has 5 times the memory of all hosts",
            kept_if(self.around.set_bytes >= least, text),
        );
        let steps = match self.runs.steps {
            Some(steps) => kept_if(steps >= STEPS, super::several(steps, "step")),
            None => unknown(NO_RUN),
        };
        self.rule("2.4.3", "an epoch has at least 500 steps", steps);
        let files = &self.job.workload.files;
        let here = format!(
            "{}, {} samples a file of {} bytes (+- {})",
            files.format.name(),
            files.samples_per_file,
            files.sample_bytes,
            files.sample_bytes_stdev
        );
        let content = match self.around.shipped.filter(|_| self.model_of().is_some()) {
            Some(shipped) => kept_if(workload::Files { count: files.count, ..shipped.files.clone() } == *files, here),
            None => unknown("it is no model of the benchmark"),
        };
        self.rule("2.4.4", "format, size and number of samples are those of the model", content);
        self
    }

    /// 2.5.
    fn made(mut self) -> Self {
        let script = unknown("mlpstorage wasn't asked; what it computes is held against 2.4.2 and 2.4.3");
        self.rule("2.5.1", "the size of the set is computed by mlpstorage", script);
        self.rule("2.5.2", "the data are made by DLIO", unknown("files don't tell who made them"));
        self.rule("2.5.3", "logs of their making are submitted", unknown(OF_SUBMISSION));
        self
    }

    /// 2.6 and 2.7.
    fn runs(mut self) -> Self {
        let (all, tested) = (self.runs.all.len(), self.runs.tested.len());
        let emptied =
            if self.job.chill == Chill::Never { "" } else { "; caches were emptied before the others all the same" };
        let warm = match all {
            0 => unknown(NO_RUN),
            _ if all > tested => kept(format!("the first of {all} runs{emptied}")),
            _ => kept_if(false, format!("none of {all}: of --set repetitions=6, the first is one")),
        };
        self.rule("2.6.1", "a warm-up run comes before the five", warm);
        let seeds = if all > 1 { kept("each run draws its own orders") } else { unknown(ONE_RUN) };
        self.rule("2.6.2", "each run has another seed", seeds);
        self.rule(
            "2.7.1",
            "five runs are executed",
            kept_if(tested == RUNS, format!("{tested} after the warm-up, if any")),
        );
        let rates: Vec<String> = self.runs.tested.iter().map(|run| format!("{:.2}", run.samples_per_second)).collect();
        let mean = match tested {
            0 => unknown(NO_RUN),
            RUNS => kept(format!(
                "{:.2} of {} samples/s",
                average(&self.runs.tested, |run| run.samples_per_second),
                rates.join(", ")
            )),
            _ => kept_if(false, format!("of {tested}: {} samples/s", rates.join(", "))),
        };
        self.rule("2.7.2", "the result is the mean of the five", mean);
        let read = &self.job.workload.read;
        let (epochs, is_cut) = (self.around.shipped.map(|shipped| shipped.read.epochs), read.steps_max.is_some());
        let cut = if is_cut { ", each cut short: --set steps" } else { "" };
        let said = kept_if(epochs == Some(read.epochs) && !is_cut, format!("{} epochs{cut}", read.epochs));
        self.rule("2.7.3", "a run ends after the epochs of its model", said);
        self
    }

    /// 2.8 of one host, 2.9 of several.
    fn hosts(mut self) -> Self {
        let hosts = self.runs.hosts.len();
        let found = self.around.report.sections.get("find_max").and_then(|found| found["accelerators"].as_u64());
        let most = match found {
            Some(most) => kept(format!("--find-max found {most}")),
            None => unknown("one number was tried: --find-max looks for the most"),
        };
        let least = self.model_of().map(|(_, least)| least);
        let busy = match self.busy(Some(SUBMISSION_AU), "") {
            (Judgement::Broken, text) if least.is_some_and(|least| least < SUBMISSION_AU) => {
                unknown(format!("{text}; 2.3.2 asks for less of this model"))
            }
            said => said,
        };
        if hosts == 1 {
            self.rule("2.8.1", "one host has the most accelerators that it keeps busy", most);
            self.rule("2.8.2", "utilisation is above 90 % with them", busy);
            let each = self.around.report.environment.memory_bytes as f64 / self.job.accelerators as f64;
            let text = format!("{:.2} GB", each / 1e9);
            self.rule("2.8.3", "a host has about 0.5 GB of memory for each", kept_if(each >= ACCELERATOR_BYTES, text));
            return self;
        }
        let listed =
            kept_if(self.around.is_real, format!("each of {} ranks read it", self.around.report.environment.ranks));
        self.rule("2.9.1", "all hosts reach all data", listed);
        let counts: Vec<String> = self.runs.hosts.iter().map(|(node, ranks)| format!("{node} {ranks}")).collect();
        let mut numbers = self.runs.hosts.values();
        let is_same = numbers.next().is_some_and(|first| numbers.all(|other| other == first));
        self.rule(
            "2.9.2",
            "all hosts have the same number of accelerators",
            kept_if(is_same, format!("ranks: {}", counts.join(", "))),
        );
        self.rule("2.9.3", "the most accelerators are those of all hosts", most);
        self.rule("2.9.4", "utilisation is above 90 % with them", busy);
        self.rule("2.9.5", "only data are parallel", kept("each accelerator reads its part of the samples"));
        self
    }

    /// What the guidelines leave free, and what not.
    fn fixed(mut self) -> Self {
        let barrier = if self.job.together { "after each step" } else { "each accelerator is by itself: --processes" };
        self.rule("G 9", "accelerators wait for each other after each step", kept_if(self.job.together, barrier));
        let read = &self.job.workload.read;
        let Some(shipped) = self.around.shipped.filter(|_| self.model_of().is_some()) else {
            self.rule("G 10.1", "nothing but what is free is changed", unknown("it is no model of the benchmark"));
            return self;
        };
        let theirs = &shipped.read;
        let changed: Vec<&str> = [
            ("order", read.order != theirs.order),
            ("partition", read.partition != theirs.partition),
            ("shuffle-buffer", read.shuffle_buffer != theirs.shuffle_buffer),
            ("pause", read.pause_seconds != theirs.pause_seconds),
        ]
        .into_iter()
        .filter_map(|(name, is_changed)| is_changed.then_some(name))
        .collect();
        let text =
            if changed.is_empty() { "nothing else is".to_owned() } else { format!("changed: {}", changed.join(", ")) };
        self.rule(
            "G 10.1",
            "nothing but files, threads, transfer size and prefetch is changed",
            kept_if(changed.is_empty(), text),
        );
        // DLIO deals its 0 (two of each reader), 1 or 2 batches out to the readers of an accelerator.
        let (threads, ahead) = (read.threads, read.prefetch_batches);
        let is_free = [1, 2, threads, 2 * threads].contains(&ahead);
        let text = format!("{ahead} batches ahead with {}", super::several(threads, "thread"));
        self.rule("G 10.1", "prefetch_size is 0, 1 or 2", kept_if(is_free, text));
        self
    }
}

const NO_RUN: &str = "there is no run: tries of --find-max are none";

#[cfg(test)]
mod tests;
