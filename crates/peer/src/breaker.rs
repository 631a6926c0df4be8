//! Whether a member is asked, given how it answered. Pure: no time is taken here.
//!
//! Invariant: while a member fails, readers don't wait for it; one prober at a time finds out whether it is back.

use std::time::Duration;

/// Pauses between probes, doubled from the first to the last. A member that restarts is asked again soon; one that is
/// gone costs a connection in ten seconds.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// The first pause after one that is slow, and may be for long: it is found out again only by readers who wait.
const PAUSE_OF_SLOW: Duration = Duration::from_secs(4);

/// What is known of a member.
#[derive(Debug, Default)]
pub struct Breaker {
    /// It failed, and is probed after such pauses.
    open: Option<Duration>,
}

impl Breaker {
    /// It did not answer, or too slowly. True for whoever is to probe it from now on: everybody else asks others.
    pub fn failed(&mut self, is_slow: bool) -> bool {
        let was_open = self.open.is_some();
        self.open = self.open.or(Some(if is_slow { PAUSE_OF_SLOW } else { PAUSES.0 }));
        !was_open
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
        assert!(breaker.failed(false));
        assert!((0..100).all(|_| !breaker.failed(true)), "many who fail at once are one failure");
        let pauses: Vec<_> = (0..9).filter_map(|_| breaker.pause()).collect();
        assert_eq!((pauses[0], pauses[1], pauses[8], pauses.len()), (PAUSES.0, 2 * PAUSES.0, PAUSES.1, 9));
        breaker.answered();
        assert_eq!((breaker.is_open(), breaker.pause()), (false, None));
        assert!(breaker.failed(false) && breaker.pause() == Some(PAUSES.0), "it begins anew");
        breaker.answered();
        assert!(breaker.failed(true) && breaker.pause() == Some(PAUSE_OF_SLOW));
    }
}
