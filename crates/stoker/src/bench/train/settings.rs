//! `--set NAME=VALUE` and `--shape-disk`, as values.
//!
//! Invariant: a name or a value that means nothing is refused with those that do.

use ::bench::train::Chill;
use block::{Error, Result};
use emulate::parse;
use targets::Shape;
use workload::{Order, Partition, Workload};

/// What is to be otherwise than the workload says.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub step_seconds: Option<f64>,
    step: Option<String>,
    pub repetitions: Option<u64>,
    pub seed: Option<u64>,
    pub chill: Option<Chill>,
    workload: Vec<(String, String)>,
}

const NAMES: &str = "epochs, steps, batch, threads, prefetch, order, partition, shuffle-buffer, step, pause, repetitions, seed, pass, \
    checkpoint-bytes, checkpoint-processes, caches";

/// Names that change how long it runs, not what is asked of the target.
const LENGTHS: [&str; 3] = ["epochs", "steps", "pause"];

impl Changes {
    pub fn parse(texts: &[String]) -> Result<Changes> {
        let mut changes = Changes::default();
        for text in texts {
            let Some((name, value)) = text.split_once('=') else {
                return Err(Error::invalid("a change of the job was not understood", format!("--set {text}"))
                    .hint("write it as NAME=VALUE, such as epochs=3"));
            };
            match name {
                "step" => {
                    let step = parse::duration(value)?.as_secs_f64();
                    changes.step = Some(value.to_owned());
                    changes.step_seconds = Some(step).filter(|step| *step > 0.0);
                    changes.step_seconds.ok_or_else(|| bad(name, value, "a time above 0, such as 20ms"))?;
                }
                "repetitions" => changes.repetitions = Some(number(name, value)?),
                "seed" => changes.seed = Some(value.parse().map_err(|_| bad(name, value, "a whole number"))?),
                "caches" => changes.chill = Some(chill(value)?),
                _ => changes.workload.push((name.to_owned(), value.to_owned())),
            }
        }
        Ok(changes)
    }

    /// How a job is otherwise than its workload and its accelerator say, in words. How long it runs is nothing of the job.
    pub fn told(&self, plain: &Workload) -> Result<Vec<String>> {
        let mut told: Vec<String> = Vec::new();
        for (name, value) in self.workload.iter().filter(|(name, _)| !LENGTHS.contains(&name.as_str())) {
            let mut changed = plain.clone();
            change(&mut changed, name, value)?;
            told.retain(|known| known.split(' ').next() != Some(name));
            if changed != *plain {
                told.push(format!("{name} {value}"));
            }
        }
        told.extend(self.step.as_ref().map(|step| format!("step {step}")));
        Ok(told)
    }

    /// Change the workload.
    pub fn apply(&self, workload: &mut Workload) -> Result<()> {
        self.workload.iter().try_for_each(|(name, value)| change(workload, name, value))
    }
}

fn change(workload: &mut Workload, name: &str, value: &str) -> Result<()> {
    let read = &mut workload.read;
    match name {
        "epochs" => read.epochs = number(name, value)?,
        "steps" => read.steps_max = Some(number(name, value)?),
        "batch" => read.batch = number(name, value)?,
        "threads" => read.threads = number(name, value)?,
        "prefetch" => {
            read.prefetch_batches = value.parse().map_err(|_| bad(name, value, "a whole number"))?;
        }
        "shuffle-buffer" => read.shuffle_buffer = Some(number(name, value)?),
        "order" => read.order = order(value)?,
        "partition" => read.partition = partition(value)?,
        "pause" => {
            let seconds = parse::duration(value)?.as_secs_f64();
            read.pause_seconds = Some(seconds);
            if let Some(shape) = &mut workload.checkpoint {
                shape.pause_seconds = seconds;
            }
        }
        "pass" => {
            read.pass_au_percent = value
                .parse()
                .ok()
                .filter(|percent| (0.0..=100.0).contains(percent))
                .ok_or_else(|| bad(name, value, "percent, from 0 to 100"))?;
        }
        "checkpoint-bytes" | "checkpoint-processes" => {
            let Some(shape) = &mut workload.checkpoint else {
                return Err(Error::invalid("this workload has no checkpoint", &workload.name));
            };
            if name == "checkpoint-bytes" {
                shape.bytes = parse::bytes(value)? as f64;
            } else {
                shape.processes = number(name, value)?;
            }
        }
        _ => {
            return Err(Error::invalid("no such setting is known", name).hint(format!("one of {NAMES}")));
        }
    }
    Ok(())
}

fn bad(name: &str, value: &str, wanted: &str) -> Error {
    Error::invalid("a value was not understood", format!("{name}={value}")).hint(format!("it is {wanted}"))
}

fn number(name: &str, value: &str) -> Result<u64> {
    let found = value.parse().ok().filter(|number| *number > 0);
    found.ok_or_else(|| bad(name, value, "a whole number from 1"))
}

fn chill(value: &str) -> Result<Chill> {
    match value.to_ascii_lowercase().as_str() {
        "keep" => Ok(Chill::Never),
        "first" => Ok(Chill::First),
        "each" => Ok(Chill::Each),
        _ => Err(bad("caches", value, "keep, first (empty them before each repetition) or each (before each epoch)")),
    }
}

fn order(value: &str) -> Result<Order> {
    match value.to_ascii_lowercase().as_str() {
        "sequential" => Ok(Order::Sequential),
        "shuffled" => Ok(Order::Shuffled),
        "shards" => Ok(Order::Shards),
        "random" => Ok(Order::Random),
        _ => Err(bad("order", value, "sequential, shuffled, shards or random")),
    }
}

fn partition(value: &str) -> Result<Partition> {
    match value.to_ascii_lowercase().as_str() {
        "fresh" => Ok(Partition::Fresh),
        "fixed" => Ok(Partition::Fixed),
        _ => Err(bad("partition", value, "fresh (samples are dealt anew each epoch) or fixed (each keeps its own)")),
    }
}

/// `160MB/s,10000iops,5ms`: any of them, each once.
pub fn shape(text: &str) -> Result<Shape, String> {
    let mut shape = Shape::default();
    let refused =
        |part: &str| format!("`{part}` was not understood; write it like 160MB/s,10000iops or 500MB/s,500iops,5ms");
    for part in text.split(',').map(str::trim) {
        if let Some(count) = part.strip_suffix("iops") {
            let count = count.trim().parse().ok().filter(|count| *count > 0);
            shape.operations_per_second = Some(count.ok_or_else(|| refused(part))?);
        } else if part.contains("/s") || part.ends_with("ps") {
            shape.bytes_per_second = Some(parse::bandwidth(part).map_err(|_| refused(part))?);
        } else {
            shape.latency_seconds = Some(parse::duration(part).map_err(|_| refused(part))?.as_secs_f64());
        }
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_takes_some_time() {
        let parse = |text: &str| Changes::parse(&[text.to_owned()]);
        assert_eq!(parse("step=20ms").unwrap().step_seconds, Some(0.02));
        assert!(parse("step=0ms").err().unwrap().hint.contains("above 0"));
    }

    #[test]
    fn limits_of_a_disk_are_read_as_a_catalogue_writes_them() {
        let found = shape("160MB/s,10000iops").unwrap();
        assert_eq!((found.bytes_per_second, found.operations_per_second), (Some(160_000_000), Some(10_000)));
        assert_eq!(shape("5ms").unwrap().latency_seconds, Some(0.005));
        for text in ["", "fast", "0iops", "160MB", "10000 iops/s"] {
            assert!(shape(text).unwrap_err().contains("160MB/s"), "{text}");
        }
    }

    #[test]
    fn what_was_changed_is_told_but_not_what_only_lengthens_the_run() {
        let workload = workload::shipped("unet3d").unwrap();
        let told = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            Changes::parse(&texts).unwrap().told(&workload).unwrap()
        };
        assert_eq!(told(&["batch=40", "step=0.5ms", "epochs=9", "seed=5", "batch=41"]), ["batch 41", "step 0.5ms"]);
        assert_eq!(told(&[&format!("threads={}", workload.read.threads)]), [""; 0], "as it is shipped");
    }

    #[test]
    fn changes_reach_the_workload_and_unknown_ones_are_refused() {
        let mut workload = workload::shipped("unet3d").unwrap();
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let changes = Changes::parse(&texts(&[
            "epochs=2",
            "steps=10",
            "order=Shards",
            "partition=Fixed",
            "step=20ms",
            "caches=keep",
        ]))
        .unwrap();
        changes.apply(&mut workload).unwrap();
        assert_eq!((workload.read.epochs, workload.read.steps_max, workload.read.order), (2, Some(10), Order::Shards));
        assert_eq!(workload.read.partition, Partition::Fixed);
        assert_eq!((changes.step_seconds, changes.chill), (Some(0.02), Some(Chill::Never)));
        let mut state = workload::shipped("checkpoint-llama3-8b").unwrap();
        Changes::parse(&texts(&["pause=0s"])).unwrap().apply(&mut state).unwrap();
        assert_eq!(state.checkpoint.unwrap().pause_seconds, 0.0, "between its writes");
        for wrong in ["epochs=0", "order=any", "partition=some", "colour=red", "pass=101", "checkpoint-bytes=1GB"] {
            let applied = Changes::parse(&texts(&[wrong])).and_then(|changes| changes.apply(&mut workload));
            assert!(applied.is_err(), "{wrong}");
        }
        assert!(Changes::parse(&texts(&["epochs"])).is_err() && Changes::parse(&texts(&["caches=hot"])).is_err());
    }
}
