//! The rules on checkpoints: of the guidelines (a G before the number), and of the validation rules beside them (a V).
//!
//! It measures nothing. Invariant: every rule on checkpoints is in the answer, validation rules first, in their order.

use report::Report;
use workload::{Checkpoint, Workload};

use super::super::checkpoint::Pass;
use super::{Judgement, OF_SUBMISSION, Rule, Said, kept, kept_if, lasts, unknown};

/// What the rules ask about.
pub struct Written<'a> {
    pub report: &'a Report,
    /// The workload as it is shipped, if it is.
    pub shipped: Option<&'a Workload>,
    /// What was written and read.
    pub shape: &'a Checkpoint,
    pub passes: &'a [Pass],
    /// The storage was slowed down.
    pub is_shaped: bool,
}

/// Models of the benchmark.
const MODELS: [&str; 4] =
    ["checkpoint-llama3-8b", "checkpoint-llama3-70b", "checkpoint-llama3-405b", "checkpoint-llama3-1t"];
/// Processes of a part of the state that is written by one host to its own storage.
const SUBSET: u64 = 8;
/// Times of each kind.
const TIMES: u64 = 10;
/// Fewer processes than this no host has.
const OF_HOST: u64 = 4;
/// What was written has this many times the memory of its host, or caches are emptied.
const MEMORY: u64 = 3;
/// From the last write to the first read.
const BETWEEN_SECONDS: f64 = 30.0;

/// All rules on checkpoints, judged.
pub fn judge(written: &Written) -> Vec<Rule> {
    let model = written.model();
    let rule = |(number, rule, (judgement, figures)): (&'static str, &'static str, Said)| Rule {
        number,
        rule,
        judgement,
        figures,
    };
    let logs = "reports are written when the passes have ended, where --save says";
    [
        ("1.1.1", "storage is measured as fairly as possible", written.fair()),
        ("1.5.1", "storage is persistent", lasts(written.report, true)),
        ("V 4.3.1", "a host writes 3 times its memory, or caches are emptied before reads", written.cold()),
        ("V 4.3.2", "each write ends with an fsync", kept("none counts before its files are durable")),
        ("V 4.3.3", "the model is one of the benchmark", written.known(model)),
        ("V 4.3.4", "the accelerators' memory holds the state", unknown("accelerators have no memory here")),
        ("V 4.3.5", "a subset has 8 processes, and isn't of the 8B model", written.subset(model)),
        ("V 4.4.1-4.4.2", "logs lie on another file system", unknown(logs)),
        ("V 4.6.1", "processes are those of the model", written.processes(model)),
        ("V 4.6.2", "each host has more than 4 processes", written.hosts()),
        ("V 4.6.3", "10 writes and 10 reads, or none of one of them", written.times()),
        ("V 4.7.1", "at most 30 s lie between writing and reading", written.between()),
        ("V 4.7.2", "the test lasts from the first write to the last read", written.lasted()),
        ("V 4.7.3-4.7.4", "remapping and sharing are described", unknown(OF_SUBMISSION)),
        ("G 2.2.3", "the duration is the slowest process's, the throughput the lowest", written.metrics()),
        ("G 2.2.3", "the benchmark is executed five times", unknown("other reports aren't seen")),
    ]
    .map(rule)
    .into()
}

impl Written<'_> {
    /// The model's own checkpoint.
    fn model(&self) -> Option<&Checkpoint> {
        self.shipped.filter(|shipped| MODELS.contains(&shipped.name.as_str()))?.checkpoint.as_ref()
    }

    fn of(&self, what: &str) -> impl Iterator<Item = &Pass> {
        self.passes.iter().filter(move |pass| pass.what == what)
    }

    fn fair(&self) -> Said {
        match self.is_shaped {
            true => kept_if(false, "the storage was slowed down: --shape-disk"),
            false => unknown("fairness is more than figures"),
        }
    }

    fn cold(&self) -> Said {
        let (reads, cold) = (self.of("read").count(), self.of("read").filter(|pass| pass.cold == Some(true)).count());
        let environment = &self.report.environment;
        let each = self.shape.bytes / environment.ranks.max(1) as f64;
        let is_large = environment.ranks == 1 && each >= (MEMORY * environment.memory_bytes) as f64;
        match reads {
            0 => unknown("nothing was read"),
            _ => kept_if(
                cold == reads || is_large,
                format!("{cold} of {reads} reads were proven cold; each rank wrote {:.1} GB", each / 1e9),
            ),
        }
    }

    fn known(&self, model: Option<&Checkpoint>) -> Said {
        let name = self.shipped.map_or("a file of one's own", |shipped| &shipped.name);
        let Some(model) = model else {
            return kept_if(false, format!("{name}; known are {}", MODELS.join(", ")));
        };
        let (here, there) = (self.shape.bytes / self.shape.processes as f64, model.bytes / model.processes as f64);
        kept_if(
            (here / there - 1.0).abs() < 1e-6,
            format!("{name}: {:.2} GB a process, and there {:.2} GB", here / 1e9, there / 1e9),
        )
    }

    fn is_subset(&self, model: &Checkpoint) -> bool {
        self.shape.processes == SUBSET && model.processes != SUBSET
    }

    fn subset(&self, model: Option<&Checkpoint>) -> Said {
        match model {
            None => unknown("it is no model of the benchmark"),
            Some(model) if self.is_subset(model) => kept("it is one: the part of the state of 8 processes"),
            Some(_) => kept("it is none"),
        }
    }

    fn processes(&self, model: Option<&Checkpoint>) -> Said {
        let Some(model) = model else { return unknown("it is no model of the benchmark") };
        let text = format!("{} of {}", self.shape.processes, model.processes);
        kept_if(self.shape.processes == model.processes || self.is_subset(model), text)
    }

    fn hosts(&self) -> Said {
        match self.report.environment.ranks {
            1 => kept_if(self.shape.processes > OF_HOST, format!("one host has {}", self.shape.processes)),
            ranks => unknown(format!("which of {ranks} ranks share a host isn't kept")),
        }
    }

    fn times(&self) -> Said {
        let (writes, reads) = (self.of("write").count() as u64, self.of("read").count() as u64);
        let is_right = [writes, reads].iter().all(|times| [0, TIMES].contains(times)) && writes + reads > 0;
        kept_if(is_right, format!("{writes} writes and {reads} reads"))
    }

    fn between(&self) -> Said {
        let (Some(last), Some(first)) = (self.of("write").last(), self.of("read").next()) else {
            return unknown("there are not both writes and reads");
        };
        let passed = first.start_seconds - (last.start_seconds + last.seconds);
        kept_if(passed <= BETWEEN_SECONDS, format!("{passed:.1} s"))
    }

    fn lasted(&self) -> Said {
        match self.passes.last() {
            Some(last) => kept(format!("{:.1} s, pauses included", last.start_seconds + last.seconds)),
            None => unknown("there is no pass"),
        }
    }

    fn metrics(&self) -> Said {
        let figures = |what: &str| {
            let (count, sums) = self.of(what).fold((0.0, [0.0; 2]), |(count, [seconds, rate]), pass| {
                (count + 1.0, [seconds + pass.seconds, rate + pass.slowest_bytes_per_second])
            });
            let [seconds, rate] = sums.map(|sum| sum / count);
            (count > 0.0).then(|| format!("{what}s {seconds:.2} s, {:.2} GB/s", rate / 1e9))
        };
        let found: Vec<String> = ["write", "read"].into_iter().filter_map(figures).collect();
        let text = format!("in the mean: {}", found.join(", "));
        if found.is_empty() { (Judgement::NotJudgeable, "there is no pass".into()) } else { kept(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Environment, Kind};
    use workload::shipped;

    struct Case {
        report: Report,
        shipped: Option<Workload>,
        shape: Checkpoint,
        passes: Vec<Pass>,
        is_shaped: bool,
    }

    impl Case {
        fn new(model: &str) -> Case {
            let environment = Environment {
                memory_bytes: 1_000_000_000_000,
                file_system: Some("ext4".into()),
                ranks: 1,
                ..Environment::default()
            };
            let shipped = shipped(model).unwrap();
            let pass = |place: u64| Pass {
                what: if place < 10 { "write" } else { "read" }.into(),
                number: place % 10 + 1,
                start_seconds: 15.0 * place as f64,
                seconds: 10.0,
                bytes: 100,
                bytes_per_second: 10.0,
                slowest_bytes_per_second: 10.0,
                mean_bytes_per_second: 11.0,
                p50_seconds: 9.0,
                process_seconds: vec![9.0, 10.0],
                cold: (place >= 10).then_some(true),
            };
            Case {
                report: Report::begin(Kind::Measured, "train", "/data", environment, 0.0),
                shape: shipped.checkpoint.clone().unwrap(),
                shipped: Some(shipped),
                passes: (0..20).map(pass).collect(),
                is_shaped: false,
            }
        }

        fn said(&self, number: &str) -> Judgement {
            let Case { report, shipped, shape, passes, is_shaped } = self;
            let rules = judge(&Written { report, shipped: shipped.as_ref(), shape, passes, is_shaped: *is_shaped });
            assert!(rules.iter().all(|rule| !rule.figures.is_empty()), "each says by what it was judged, or why not");
            rules.iter().find(|rule| rule.number == number).expect("it is in the answer").judgement
        }
    }

    #[test]
    fn each_rule_is_kept_without_and_broken_with_a_change() {
        use Judgement::{Broken, Kept};
        type Change = fn(&mut Case);
        let breaks: [(&str, Change); 11] = [
            ("1.5.1", |case| case.report.environment.file_system = Some("tmpfs".into())),
            ("V 4.3.1", |case| case.passes[12].cold = Some(false)),
            ("V 4.3.3", |case| case.shape.bytes *= 0.5),
            ("V 4.3.3", |case| case.shipped = None),
            ("V 4.6.1", |case| case.shape.processes = 16),
            ("V 4.6.2", |case| case.shape.processes = 4),
            ("V 4.6.3", |case| drop(case.passes.drain(15..))),
            ("V 4.6.3", |case| drop(case.passes.drain(..))),
            ("V 4.7.1", |case| case.passes[10].start_seconds += 31.0),
            ("V 4.3.1", |case| case.passes[10].cold = None),
            ("V 4.6.3", |case| drop(case.passes.remove(0))),
        ];
        for model in ["checkpoint-llama3-8b", "checkpoint-llama3-70b"] {
            for (number, change) in breaks {
                let mut case = Case::new(model);
                assert_eq!(case.said(number), Kept, "{model} {number}");
                change(&mut case);
                assert_eq!(case.said(number), Broken, "{model} {number}");
            }
        }
        // A host that wrote so much more than its memory can't hold it.
        let mut case = Case::new("checkpoint-llama3-8b");
        case.passes.iter_mut().for_each(|pass| pass.cold = None);
        case.report.environment.memory_bytes = 16_000_000_000;
        assert_eq!(case.said("V 4.3.1"), Kept);
        case.shape.bytes = 47e9;
        assert_eq!(case.said("V 4.3.1"), Broken);
        case.is_shaped = true;
        assert_eq!(case.said("1.1.1"), Broken);
        // Eight processes of a larger model, each with its part.
        let mut case = Case::new("checkpoint-llama3-70b");
        (case.shape.processes, case.shape.bytes) = (8, case.shape.bytes / 8.0);
        assert_eq!([case.said("V 4.6.1"), case.said("V 4.3.3"), case.said("V 4.3.5")], [Kept; 3]);
    }
}
