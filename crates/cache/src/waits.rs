//! How long readers waited, and for what. Figures for people, never decisions: so the clock is read here.
//!
//! Invariant: each moment of a reader's wait is booked once; what nothing is known of is booked as unknown.

use block::{Cause, Course, Spent};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The time by which waits are measured. The runtime's, so that tests can stop it.
pub fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What readers waited for so far, in nanoseconds by cause.
#[derive(Default)]
pub struct Waits([AtomicU64; Cause::ALL.len()]);

impl Waits {
    /// A reader begins to wait, for nothing that is known yet. The wait ends when it is dropped.
    pub fn begin(&self) -> Wait<'_> {
        self.begin_for(Cause::Unknown)
    }

    /// A reader begins to wait for this.
    pub fn begin_for(&self, cause: Cause) -> Wait<'_> {
        Wait { waits: self, cause, since: clock(), along: None }
    }

    pub fn seconds(&self, cause: Cause) -> f64 {
        self.0[cause as usize].load(Relaxed) as f64 / 1e9
    }

    fn book(&self, cause: Cause, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0[cause as usize].fetch_add(ns, Relaxed);
    }
}

/// A reader that waits.
pub struct Wait<'a> {
    waits: &'a Waits,
    /// Why, where no course tells.
    cause: Cause,
    since: Instant,
    /// The run that it waits for, and what that had spent before.
    along: Option<(Course, Spent)>,
}

impl Wait<'_> {
    /// From now on it waits for this run.
    pub fn follow(&mut self, course: &Course) {
        let now = clock();
        self.settle(now);
        self.along = Some((course.clone(), course.until(now)));
    }

    /// Book what passed until now.
    fn settle(&mut self, now: Instant) {
        let mut unnamed = now.saturating_duration_since(self.since);
        if let Some((course, before)) = self.along.take() {
            let spent = course.until(now).since(&before);
            for cause in Cause::ALL.into_iter().filter(|cause| *cause != Cause::Unknown) {
                self.waits.book(cause, spent.on(cause));
                unnamed = unnamed.saturating_sub(spent.on(cause));
            }
        }
        self.waits.book(self.cause, unnamed);
        self.since = now;
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.settle(clock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_booked_to_what_its_run_waited_for_meanwhile() {
        let (waits, course) = (Waits::default(), Course::begin(clock, true));
        course.enter(Cause::Requests);
        pass(9).await;
        let mut wait = waits.begin();
        pass(1).await;
        wait.follow(&course);
        pass(2).await;
        course.enter(Cause::Bandwidth);
        pass(3).await;
        drop(wait);
        pass(9).await;
        drop(waits.begin_for(Cause::Disk));
        let all = [Cause::Unknown, Cause::Requests, Cause::Bandwidth, Cause::Disk].map(|cause| waits.seconds(cause));
        assert_eq!(all, [1.0, 2.0, 3.0, 0.0]);
    }
}
