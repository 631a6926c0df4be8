//! Whose turn it is among requests that nobody waits for yet: one at a time, the one that is due first.
//!
//! Invariant: a turn that is given up, at whatever moment, goes to the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// When it is due, and a number of its own, so that of those due at once the first comes first.
type Place = (Instant, u64);

/// Who waits for a turn.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<Line>>);

#[derive(Default)]
struct Line {
    is_taken: bool,
    numbers: u64,
    waiting: BTreeMap<Place, oneshot::Sender<Turn>>,
}

/// A turn, passed on when it is dropped.
pub struct Turn(Turns);

/// A place in the line, left when it is dropped.
struct Waiting<'a>(&'a Turns, Place);

impl Turns {
    pub async fn take(&self, due: Instant) -> Turn {
        let (waiting, turn) = {
            let mut line = self.line();
            if !line.is_taken {
                line.is_taken = true;
                return Turn(self.clone());
            }
            let (sender, turn) = oneshot::channel();
            line.numbers += 1;
            let place = (due, line.numbers);
            line.waiting.insert(place, sender);
            (Waiting(self, place), turn)
        };
        let turn = turn.await.expect("who leaves the line is not waited for");
        drop(waiting);
        turn
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.line().waiting.remove(&self.1);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut line = self.0.line();
            let next = line.waiting.pop_first();
            line.is_taken = next.is_some();
            next
        };
        // One that nobody receives any more is dropped there, and goes on to the one after.
        if let Some((_, next)) = next {
            let _ = next.send(Turn(self.0.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn who_is_due_first_is_first_and_who_leaves_holds_up_nobody() {
        let (turns, now) = (Turns::default(), Instant::now());
        let held = turns.take(now).await;
        let after = |seconds| Box::pin(turns.take(now + Duration::from_secs(seconds)));
        let mut all = [9, 3, 5, 3, 1].map(after);
        assert!(all.iter_mut().all(|one| one.now_or_never().is_none()));
        let [nine, mut three, five, mut also_three, mut one] = all;
        drop((held, five));
        let first = one.as_mut().now_or_never().expect("due first");
        assert!(three.as_mut().now_or_never().is_none());
        drop(first);
        // It was given its turn and didn't take it.
        drop(three);
        let third = also_three.as_mut().now_or_never().expect("the one that came later");
        let mut nine = nine;
        assert!(nine.as_mut().now_or_never().is_none());
        drop(third);
        drop(nine.as_mut().now_or_never().expect("the last"));
        assert!(after(0).as_mut().now_or_never().is_some(), "nobody waits");
    }
}
