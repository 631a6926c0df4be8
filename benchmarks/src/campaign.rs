//! The whole run: rounds outermost, targets inside in an order that turns from round to round.
//!
//! Prints nothing: an observer is called with what happens. The record is saved after each cell, and a
//! failure of one target is a line in it, never the end of the run.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::cell::Bench;
use crate::dataset::wipe;
use crate::interrupt;
use crate::mount::Mounted;
use crate::record::{Record, Sample};
use crate::server::{Server, counted};
use crate::target::{Paths, Target};
use crate::workload::{Phase, Workload};

const DROP: &str = "/proc/sys/vm/drop_caches";

pub enum Event<'a> {
    /// One target's turn with one workload begins.
    Turn {
        round: u32,
        target: &'a str,
        workload: Workload,
    },
    Cell(&'a Sample),
    Absent {
        target: &'a str,
        why: &'a str,
    },
}

pub struct Campaign<'a> {
    pub bench: Bench,
    pub server: Server,
    pub targets: Vec<(Box<dyn Target>, Paths)>,
    pub record: Record,
    /// Where the record is kept.
    pub out: PathBuf,
    pub observer: &'a mut dyn FnMut(Event),
}

impl Campaign<'_> {
    pub fn run(&mut self) -> Result<()> {
        self.prepare()?;
        for round in 1..=self.record.settings.rounds {
            for workload in self.record.settings.workloads.clone() {
                for index in turns(self.targets.len(), round) {
                    self.turn(round, workload, index)?;
                }
            }
        }
        Ok(())
    }

    /// A target that can't be prepared is taken out, and the record says why.
    fn prepare(&mut self) -> Result<()> {
        for (target, place) in std::mem::take(&mut self.targets) {
            fs::create_dir_all(&place.kept)?;
            let Err(error) = target.prepare(&place) else {
                self.targets.push((target, place));
                continue;
            };
            interrupt::check()?;
            let why = format!("{error:#}");
            (self.observer)(Event::Absent { target: target.name(), why: &why });
            for subject in &mut self.record.targets {
                if subject.name == target.name() {
                    subject.absent = Some(why.clone());
                }
            }
        }
        self.record.save(&self.out)
    }

    /// One life of one target's cache: all phases of one workload.
    fn turn(&mut self, round: u32, workload: Workload, index: usize) -> Result<()> {
        let name = self.targets[index].0.name();
        if self.record.complete(round, name, workload) {
            return Ok(());
        }
        self.record.forget(round, name, workload);
        (self.observer)(Event::Turn { round, target: name, workload });
        let mut mounted = None;
        let mut broken: Option<String> = None;
        for phase in workload.phases() {
            let mut sample = Sample::blank(round, name, workload, *phase);
            sample.at = seconds_since_epoch();
            match &broken {
                // Without the phase before, this one would measure another state.
                Some(phase) => sample.failure = Some(format!("not reached: {phase} failed")),
                None => {
                    if let Err(error) = self.phase(index, &mut mounted, &mut sample) {
                        interrupt::check()?;
                        // Dropped here: the mount is detached and its daemon ended.
                        mounted = None;
                        sample.failure = Some(format!("{error:#}"));
                        broken = Some(phase.name().to_owned());
                    }
                }
            }
            (self.observer)(Event::Cell(&sample));
            self.record.samples.push(sample);
            self.record.save(&self.out)?;
        }
        mounted.map_or(Ok(()), Mounted::end)
    }

    fn phase(&mut self, index: usize, mounted: &mut Option<Mounted>, sample: &mut Sample) -> Result<()> {
        let cache = &self.targets[index].1.cache;
        match sample.phase {
            Phase::Cold => {
                wipe(cache)?;
                drop_caches()?;
                *mounted = Some(self.mount(index, sample)?);
            }
            // What is dirty is written now, not in the middle of a measurement.
            Phase::Kept => rustix::fs::sync(),
            Phase::Dropped => drop_caches()?,
            Phase::Restart => {
                if let Some(old) = mounted.take() {
                    old.end()?;
                }
                drop_caches()?;
                *mounted = Some(self.mount(index, sample)?);
            }
        }
        let mount = mounted.as_ref().expect("the cold phase mounts, and comes first");
        self.bench.measure(mount, &mut self.server, sample)?;
        if sample.phase == Phase::Cold && sample.workload.fills_after_cold() {
            self.bench.fill(mount, sample).context("filling the cache after the cold phase")?;
        }
        Ok(())
    }

    /// A listing made here is asked of the store like any other: it is kept with the sample.
    fn mount(&mut self, index: usize, sample: &mut Sample) -> Result<Mounted> {
        let (target, place) = &self.targets[index];
        let before = self.server.counters()?;
        let mounted = Mounted::start(target.as_ref(), place)?;
        if !mounted.pids().is_empty() {
            sample.mount_seconds = Some(mounted.seconds);
            sample.mount_requests = counted(&before, &self.server.counters()?);
        }
        Ok(mounted)
    }
}

/// The order of the targets in a round: each begins as often as any other.
fn turns(count: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| (place + round as usize - 1) % count)
}

fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write(DROP, "3").with_context(|| format!("writing {DROP}, which needs root"))
}

fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_target() {
        let orders: Vec<Vec<usize>> = (1..=3).map(|round| turns(3, round).collect()).collect();
        assert_eq!(orders, [vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1]]);
    }
}
