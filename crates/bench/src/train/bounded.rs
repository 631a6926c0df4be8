//! What the target could give, and the share of it that an epoch reached.
//!
//! Invariants: what a probe found in caches is no bound; a share is only of bytes that storage gave, and one that can't
//! be is a failed check, never a figure; nor is it one where the epoch was too short to tell.

use block::Result;
use report::{Epoch, Report};

use super::counters::{Counters, Disk};
use super::order::Dealing;
use super::{Bench, Chill, Job, Progress, warn};
use crate::bound::{Bound, bound};
use crate::probe::{Asking, GIVEN_MIN_PERCENT, Probe, probe};
use crate::samples::{Run, Set};

/// A share of the bound up to this is noise of the probe; one above it says that the bound or the epoch is wrong.
pub const OVER_PERCENT: f64 = 102.0;

/// Storage with a limit gives so many seconds' worth at once: what it hadn't given before an epoch comes on top of it.
/// So do the kernel's limits on block devices, and token buckets of stores.
const GRAIN_SECONDS: f64 = 0.1;

/// An epoch beside its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    Share(f64),
    /// Caches gave some of its bytes, or may have: the bound, which is of storage, says nothing of it.
    Cached {
        given_percent: Option<f64>,
    },
    /// Faster than the storage that its bytes came from.
    Over(f64),
    /// The same, but by no more than what came at once at its ends.
    Short(f64),
}

/// What an epoch reached, where there is a bound. `grain_percent` of what counts may have come before, or at once.
pub fn against(epoch: &Epoch, grain_percent: f64) -> Option<Against> {
    let share = 100.0 * epoch.au_percent / epoch.bound_percent?;
    let of = |name: &str| epoch.bytes.get(name).map(|bytes| *bytes as f64);
    let given_percent = of("storage").zip(of("asked")).map(|(storage, asked)| 100.0 * storage / asked.max(1.0));
    let is_cached = given_percent.map_or(share > OVER_PERCENT, |given| given < GIVEN_MIN_PERCENT);
    Some(match () {
        () if is_cached => Against::Cached { given_percent },
        () if share > OVER_PERCENT + grain_percent => Against::Over(share),
        () if share > OVER_PERCENT => Against::Short(share),
        () => Against::Share(share),
    })
}

impl Job {
    /// How the samples of an epoch are dealt.
    pub(super) fn dealing(&self, steps: u64) -> Dealing {
        let read = &self.workload.read;
        Dealing {
            order: read.order,
            partition: read.partition,
            seed: self.seed,
            replicas: self.accelerators,
            batch: read.batch,
            // Streams that read a batch together are dealt samples as one.
            streams: if read.prefetch_batches == 0 { 1 } else { read.threads },
            steps,
            shuffle_buffer: read.shuffle_buffer.unwrap_or(0),
        }
    }

    /// In percent of what counts in an epoch, what storage may have given before it or at once: its grain, and for each
    /// stream a batch that was half read.
    fn grain_percent(&self, epoch: &Epoch) -> f64 {
        let read = &self.workload.read;
        let steps = epoch.steps_counted.max(1) as f64;
        let seconds = steps * self.step_seconds / (epoch.au_percent / 100.0).max(f64::MIN_POSITIVE);
        100.0 * (GRAIN_SECONDS / seconds + read.threads.min(read.prefetch_batches).max(1) as f64 / steps)
    }

    /// Where the samples of an epoch lie that doesn't read the whole set, in the order in which they are read.
    pub(super) fn reads(&self, set: &Set, epoch: u64) -> Vec<Run> {
        let Some(steps) = self.workload.read.steps_max.and_then(|_| self.steps(set).ok()) else { return Vec::new() };
        let hand = self.dealing(steps).deal(epoch, &set.numbers);
        let batches = (0..steps).flat_map(|batch| (0..self.accelerators).map(move |lane| (lane, batch)));
        let samples = batches.flat_map(|(lane, batch)| hand.batch(lane, batch));
        samples.flat_map(|samples| set.locate(&samples, &mut None)).collect()
    }
}

impl Bench<'_> {
    /// Ask the target what it gives, all ranks at once. What is `read` next is left alone as far as the set allows: longest
    /// what is read first.
    pub fn probe(&mut self, read: &[Run]) -> Result<()> {
        (self.outside.look)(&Progress { what: "probe".into(), ..Progress::default() });
        if self.job.chill != Chill::Never {
            (self.outside.chill)(self.set)?;
        }
        let workload = &self.job.workload;
        let asking = Asking {
            target: self.target,
            set: self.set,
            clock: self.outside.clock,
            ranks: self.outside.ranks,
            streams: self.job.accelerators * workload.read.busy(),
            seed: self.job.seed,
            given: &|| self.counters().given,
            forget: self.outside.forget,
            is_kept: self.job.chill == Chill::Never,
        };
        self.probe = Some(probe(&asking, read)?);
        Ok(())
    }

    /// The same, with what came out in the report.
    pub fn probed(&mut self, read: &[Run], report: &mut Report) -> Result<()> {
        if !self.set.real {
            return Ok(());
        }
        self.probe(read)?;
        let Some(found) = self.probe else { return Ok(()) };
        let mut section = serde_json::to_value(found).expect("numbers");
        if let Some(reason) = found.no_bound() {
            section["no_bound"] = serde_json::json!(reason);
            warn(report, format!("no bound: {reason}"));
        } else if found.given_percent.is_none() {
            warn(
                report,
                "nobody counts what this target reads: whether the probe's bytes came from storage is not known",
            );
        }
        if self.set.is_of_store() {
            section["request_bytes"] = serde_json::json!(self.set.piece);
        }
        report.sections.insert("probe".into(), section);
        Ok(())
    }

    pub fn bound(&self) -> Option<Bound> {
        let demand = self.job.demand(self.set);
        Some(bound(&demand, &self.trusted()?.supply(demand.all_streams())))
    }

    /// What the machine counts, and the target where it counts itself: a shaped disk stands for the one below it.
    pub(super) fn counters(&self) -> Counters {
        let machine = (self.outside.counters)();
        let Some(own) = self.target.given() else { return machine };
        let disk = own.busy.map(|busy| Disk {
            reads: own.reads,
            read_bytes: own.bytes,
            busy_ms: busy / 1_000_000,
            ..Disk::default()
        });
        Counters { given: Some(own.bytes), disk: disk.or(machine.disk), ..machine }
    }

    /// The probe, if it makes a bound.
    pub(super) fn trusted(&self) -> Option<Probe> {
        self.probe.filter(|probe| probe.no_bound().is_none())
    }

    /// Set an epoch beside its bound.
    pub(super) fn beside(&self, epoch: &mut Epoch) {
        epoch.bound_percent = self.bound().map(|bound| bound.au_percent);
        if self.job.steady(Some(self.set)).invalid(self.job, epoch.steps).is_none()
            && let Some(Against::Share(share)) = against(epoch, self.job.grain_percent(epoch))
        {
            epoch.share_of_bound_percent = Some(share);
        }
    }

    /// Say of an epoch why it has no share of the bound. Where nobody knows what the probe's bytes came from, one that is
    /// passed was none.
    pub(super) fn held(&self, epoch: &mut Epoch, what: &str, report: &mut Report) {
        if self.job.steady(Some(self.set)).invalid(self.job, epoch.steps).is_some() {
            return;
        }
        match against(epoch, self.job.grain_percent(epoch)) {
            Some(Against::Over(share)) => report.fail(format!(
                "{what} reached {share:.0} % of what the probe found the storage to give: one of the two is wrong. Storage that is \
                shared or keeps bytes of its own gives more at one time than at another: run it again, with a larger set or longer"
            )),
            Some(Against::Short(share)) => warn(
                report,
                format!(
                    "{what} reached {share:.0} % of what the probe found the storage to give, and is too short to judge it: what came \
                    at once weighs so much in it. It has no share of the bound"
                ),
            ),
            Some(Against::Cached { given_percent: Some(given) }) => warn(
                report,
                format!("{what} got {:.0} % of its bytes from memory: it has no share of a bound of storage", 100.0 - given),
            ),
            Some(Against::Cached { given_percent: None }) => {
                epoch.bound_percent = None;
                warn(
                    report,
                    format!(
                        "{what} was faster than the probe found the target, and nobody counts what that reads: caches, or what it \
                        fetched ahead, may have given it. It has no bound"
                    ),
                );
            }
            Some(Against::Share(_)) | None => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(au: f64, cold: bool, given: Option<u64>) -> Epoch {
        let mut epoch = Epoch { au_percent: au, cold, bound_percent: Some(50.0), ..Epoch::default() };
        epoch.bytes.insert("asked".into(), 1000);
        epoch.bytes.extend(given.map(|given| ("storage".to_owned(), given)));
        epoch
    }

    #[test]
    fn a_share_is_only_of_bytes_that_storage_gave() {
        let against = |epoch: &Epoch| against(epoch, 0.0);
        assert_eq!(against(&epoch(49.0, false, Some(960))), Some(Against::Share(98.0)));
        assert_eq!(against(&epoch(49.0, true, Some(940))), Some(Against::Cached { given_percent: Some(94.0) }));
        assert_eq!(against(&epoch(90.0, true, Some(1000))), Some(Against::Over(180.0)));
        assert_eq!(against(&epoch(90.0, false, Some(1000))), Some(Against::Over(180.0)));
        // Where nobody counts, a program may have fetched ahead what the probe didn't ask for, and nothing contradicts.
        for cold in [true, false] {
            assert_eq!(against(&epoch(90.0, cold, None)), Some(Against::Cached { given_percent: None }));
        }
        assert_eq!(against(&epoch(40.0, false, None)), Some(Against::Share(80.0)));
        assert_eq!(against(&Epoch { bound_percent: None, ..epoch(40.0, false, None) }), None);
    }

    #[test]
    fn a_share_above_the_bound_fails_unless_the_epoch_is_too_short_to_tell() {
        let epoch = |au, seconds: f64| Epoch { steps_counted: (seconds / 0.01) as u64, ..epoch(au, true, Some(1000)) };
        let mut job = super::super::tests::job(1, 0.005);
        job.workload.read.threads = 1;
        let judged = |epoch: &Epoch| against(epoch, job.grain_percent(epoch));
        // A quarter of a second at half utilisation, of which a tenth came at once: 140 % is honest there, 150 % isn't.
        let short = |au| epoch(au, 0.25);
        assert!(matches!(judged(&short(68.0)), Some(Against::Short(_))), "{:?}", judged(&short(68.0)));
        assert!(matches!(judged(&short(95.0)), Some(Against::Over(_))), "{:?}", judged(&short(95.0)));
        assert!(matches!(judged(&epoch(53.0, 60.0)), Some(Against::Over(_))));
        assert!(matches!(judged(&short(50.0)), Some(Against::Share(_))));
    }
}
