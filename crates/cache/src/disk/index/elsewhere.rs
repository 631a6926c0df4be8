//! What readers on other members have open: it doesn't give way, as what readers here have open doesn't.
//!
//! Who has it open says so again and again; what nobody speaks of any more is forgotten. Invariant: what is remembered is
//! bounded; what is forgotten too early may give way, which costs a fetch.

use block::ObjectId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a word counts: three times as long as from one to the next.
const COUNTS_FOR: Duration = Duration::from_secs(30);

/// Between two looks for what is too old, while there is no room.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// Segments that are remembered: some 48 bytes each.
const SEGMENTS_MAX: usize = 1 << 16;

/// Segments that are open elsewhere, and when that was said; and when what is too old was last taken off.
#[derive(Default)]
pub struct Elsewhere(HashMap<ObjectId, Instant>, Option<Instant>);

impl Elsewhere {
    /// A reader on another member has it open now.
    pub fn said(&mut self, id: ObjectId, now: Instant) {
        if self.0.len() >= SEGMENTS_MAX && !self.0.contains_key(&id) {
            if self.1.is_none_or(|at| now.saturating_duration_since(at) > SWEPT_EVERY) {
                self.0.retain(|_, at| counts(*at, now));
                self.1 = Some(now);
            }
            if self.0.len() >= SEGMENTS_MAX {
                return;
            }
        }
        self.0.insert(id, now);
    }

    pub fn has(&self, id: ObjectId, now: Instant) -> bool {
        self.0.get(&id).is_some_and(|at| counts(*at, now))
    }
}

fn counts(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < COUNTS_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_counts_for_a_while_and_takes_bounded_room() {
        let (mut elsewhere, now) = (Elsewhere::default(), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        elsewhere.said(ObjectId(7), now);
        assert!(elsewhere.has(ObjectId(7), later(29)) && !elsewhere.has(ObjectId(7), later(30)));
        assert!(!elsewhere.has(ObjectId(8), now));
        (0..2 * SEGMENTS_MAX as u128).for_each(|n| elsewhere.said(ObjectId(n), later(1)));
        assert_eq!(elsewhere.0.len(), SEGMENTS_MAX);
        elsewhere.said(ObjectId(7), later(20));
        elsewhere.said(ObjectId(1 << 90), later(40));
        assert!(elsewhere.has(ObjectId(1 << 90), later(40)) && elsewhere.has(ObjectId(7), later(40)));
        assert_eq!(elsewhere.0.len(), 2, "what was too old made room");
    }
}
