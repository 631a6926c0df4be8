//! Whether a member is asked, given how it answered. Pure: it is told the time.
//!
//! Invariant: while a member fails, readers don't wait for it; one prober at a time finds out whether it is back.

use std::time::Duration;
use tokio::time::Instant;

/// Pauses between probes, doubled from the first to the last. A member that restarts is asked again soon; one that is
/// gone costs a connection in ten seconds.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Pauses after one that is slow, doubled from the first to the last where it is slow again soon. It is found out only by readers
/// who wait, so one that stays slow is asked seldom; a full link that starves somebody for a moment is no reason to go around it
/// for long.
const PAUSES_OF_SLOW: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));

/// Within which after a pause it is slow again, and not anew.
const AGAIN_WITHIN: Duration = Duration::from_secs(4);

/// How a member failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is away.
    Gone,
    /// It gave too little while a reader waited.
    Slow,
    /// It gave nothing for as long as anybody is patient.
    Hung,
}

/// What is known of a member.
#[derive(Debug, Default)]
pub struct Breaker {
    /// It failed, and is probed after such pauses.
    open: Option<Duration>,
    /// The pause when it was slow last, and when that was.
    slow: Option<(Duration, Instant)>,
}

impl Breaker {
    /// It did not answer, or too slowly. True for whoever is to probe it from now on: everybody else asks others.
    pub fn failed(&mut self, how: How, now: Instant) -> bool {
        if self.open.is_some() {
            return false;
        }
        self.open = Some(match how {
            How::Gone => PAUSES.0,
            How::Slow => self.pause_of_slow(now),
            How::Hung => PAUSES_OF_SLOW.1,
        });
        true
    }

    fn pause_of_slow(&mut self, now: Instant) -> Duration {
        let again = self.slow.filter(|(pause, at)| now.saturating_duration_since(*at) < *pause + AGAIN_WITHIN);
        let pause = again.map_or(PAUSES_OF_SLOW.0, |(pause, _)| (2 * pause).min(PAUSES_OF_SLOW.1));
        self.slow = Some((pause, now));
        pause
    }

    /// The pause before the next probe; none if it answers.
    pub fn pause(&mut self) -> Option<Duration> {
        let pause = self.open?;
        self.open = Some((2 * pause).min(PAUSES.1));
        Some(pause)
    }

    /// It answered.
    pub fn answered(&mut self) {
        self.open = None;
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_failed_has_one_prober_who_comes_ever_less_often() {
        let mut breaker = Breaker::default();
        assert_eq!((breaker.is_open(), breaker.pause()), (false, None));
        let now = Instant::now();
        assert!(breaker.failed(How::Gone, now));
        assert!((0..100).all(|_| !breaker.failed(How::Slow, now)), "many who fail at once are one failure");
        let pauses: Vec<_> = (0..9).filter_map(|_| breaker.pause()).collect();
        assert_eq!((pauses[0], pauses[1], pauses[8], pauses.len()), (PAUSES.0, 2 * PAUSES.0, PAUSES.1, 9));
        breaker.answered();
        assert_eq!((breaker.is_open(), breaker.pause()), (false, None));
        assert!(breaker.failed(How::Gone, now) && breaker.pause() == Some(PAUSES.0), "it begins anew");
        breaker.answered();
        assert!(breaker.failed(How::Hung, now) && breaker.pause() == Some(PAUSES_OF_SLOW.1));
    }

    #[test]
    fn a_member_that_stays_slow_is_passed_over_for_longer_than_one_that_was_once() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        let mut slow_after = |later: Duration| {
            now += later;
            assert!(breaker.failed(How::Slow, now) && !breaker.failed(How::Slow, now));
            let pause = breaker.pause().expect("it is open");
            breaker.answered();
            pause.as_millis()
        };
        let again = [0, 1, 2, 4, 8].map(|seconds| slow_after(Duration::from_secs(seconds)));
        assert_eq!(again, [500, 1000, 2000, 4000, 500], "and anew once it was not for a while");
    }
}
