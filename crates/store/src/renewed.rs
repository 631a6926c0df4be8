//! What somebody hands out for a while, renewed by one task for all who ask.
//!
//! Invariants: what is good is given at once. Whoever hands out is asked by one at a time, by a task that goes on when those who
//! wait for it give up, and is left alone for a while after each answer, unless what it gave has run out.

use block::{Error, Result};
use futures_util::future::BoxFuture;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long whoever hands out is left alone after an answer.
const PAUSE: Duration = Duration::from_secs(5);

/// Whoever hands something out.
pub trait Giver: Send + Sync + 'static {
    type Given: Clone + Send + Sync + 'static;

    /// What it gives now. `on`: in whose name it fails.
    fn give<'a>(&'a self, on: &'a str) -> BoxFuture<'a, Result<Self::Given>>;

    /// Whether what it gave so long ago can be used.
    fn is_good(&self, given: &Self::Given, age: Duration) -> bool;

    /// Whether it is time to ask for more.
    fn is_due(&self, given: &Self::Given) -> bool;
}

/// What it gave last.
pub struct Renewed<G: Giver> {
    giver: Arc<G>,
    state: Arc<Mutex<State<G::Given>>>,
}

type Coming<T> = watch::Receiver<Option<Result<T>>>;

struct State<T> {
    given: Option<(T, Instant)>,
    /// When the last answer came, and why it brought nothing.
    answered: Option<(Instant, Option<Error>)>,
    /// The next answer; of one that came the sender is gone.
    coming: Option<Coming<T>>,
    forgotten: Option<Instant>,
    /// Whether what was given last could be used when it came.
    came_good: bool,
}

impl<G: Giver> Renewed<G> {
    pub fn of(giver: G) -> Renewed<G> {
        let state = State { given: None, answered: None, coming: None, forgotten: None, came_good: false };
        Renewed { giver: Arc::new(giver), state: Arc::new(Mutex::new(state)) }
    }

    pub fn giver(&self) -> &G {
        &self.giver
    }

    /// What can be used now; waited for only if there is nothing.
    pub async fn get(&self, on: &(dyn Display + Sync)) -> Result<G::Given> {
        let in_this_name = |mut error: Error| {
            error.on = on.to_string();
            error
        };
        let mut coming = match self.now(on) {
            Ok(found) => return found.map_err(in_this_name),
            Err(coming) => coming,
        };
        let came = coming.wait_for(Option::is_some).await.ok().and_then(|came| came.clone());
        let nothing = || Err(Error::unavailable("the task that asks for credentials ended", on));
        came.unwrap_or_else(nothing).map_err(in_this_name)
    }

    /// What was given last, and how long ago.
    pub fn last(&self) -> Option<(G::Given, Duration)> {
        self.state().given.as_ref().map(|(given, since)| (given.clone(), since.elapsed()))
    }

    /// Have this asked for anew, unless that was done since. False if it was done just now already.
    pub fn forget(&self, is_this: impl FnOnce(&G::Given) -> bool) -> bool {
        let mut state = self.state();
        if !state.given.as_ref().is_some_and(|(given, _)| is_this(given)) {
            return true;
        }
        if state.forgotten.is_some_and(|when| when.elapsed() < PAUSE) {
            return false;
        }
        (state.given, state.answered, state.forgotten) = (None, None, Some(Instant::now()));
        true
    }

    /// What is known, or the answer that will come.
    fn now(&self, on: &(dyn Display + Sync)) -> Result<Result<G::Given>, Coming<G::Given>> {
        let mut state = self.state();
        let rests = state.answered.as_ref().filter(|(when, _)| when.elapsed() < PAUSE);
        match (&state.given, rests) {
            (Some((given, since)), rests) if self.giver.is_good(given, since.elapsed()) => {
                let given = given.clone();
                if rests.is_none() && self.giver.is_due(&given) {
                    self.ask(&mut state, on);
                }
                Ok(Ok(given))
            }
            (_, Some((_, Some(error)))) => Ok(Err(error.clone())),
            // It was given just now, no better than it is, and there is none that is. If it was good then, a clock has jumped.
            (Some((given, _)), Some((_, None))) if !state.came_good => Ok(Ok(given.clone())),
            _ => Err(self.ask(&mut state, on)),
        }
    }

    /// The answer that is on its way, or will be.
    fn ask(&self, state: &mut State<G::Given>, on: &(dyn Display + Sync)) -> Coming<G::Given> {
        if let Some(coming) = state.coming.as_ref().filter(|coming| coming.has_changed().is_ok()) {
            return coming.clone();
        }
        let (answer, coming) = watch::channel(None);
        state.coming = Some(coming.clone());
        let (asking, on) = (Renewed { giver: self.giver.clone(), state: self.state.clone() }, on.to_string());
        tokio::spawn(async move {
            let came = asking.giver.give(&on).await;
            asking.take_down(&came);
            answer.send_replace(Some(came));
        });
        coming
    }

    fn take_down(&self, came: &Result<G::Given>) {
        let mut state = self.state();
        let now = Instant::now();
        match came {
            Ok(given) => {
                state.came_good = self.giver.is_good(given, Duration::ZERO);
                (state.given, state.answered) = (Some((given.clone(), now)), Some((now, None)));
            }
            Err(error) => {
                if state.given.as_ref().is_some_and(|(given, since)| self.giver.is_good(given, since.elapsed())) {
                    tracing::warn!(%error, "credentials can't be renewed yet");
                }
                state.answered = Some((now, Some(error.clone())));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<G::Given>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    const TAKES: Duration = Duration::from_secs(11);
    const GOOD_FOR: Duration = Duration::from_secs(60);

    /// Hands out numbers, slowly, from the second on while it is there.
    #[derive(Default)]
    struct Desk {
        asked: AtomicU32,
        is_away: std::sync::atomic::AtomicBool,
    }

    impl Giver for Desk {
        type Given = u32;

        fn give<'a>(&'a self, on: &'a str) -> BoxFuture<'a, Result<u32>> {
            Box::pin(async move {
                let number = self.asked.fetch_add(1, Relaxed);
                tokio::time::sleep(TAKES).await;
                if self.is_away.load(Relaxed) { Err(Error::denied("away", on)) } else { Ok(number) }
            })
        }

        fn is_good(&self, _: &u32, age: Duration) -> bool {
            age < GOOD_FOR
        }

        fn is_due(&self, _: &u32) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_goes_on_when_those_who_wait_for_it_give_up() {
        let desk = Renewed::of(Desk::default());
        for _ in 0..2 {
            let waiting = tokio::time::timeout(TAKES / 2, desk.get(&"o"));
            assert!(waiting.await.is_err(), "it takes longer");
        }
        assert_eq!(desk.get(&"o").await.expect("it goes on"), 0);
        assert_eq!(desk.giver().asked.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_good_is_given_at_once_and_after_each_answer_there_is_a_pause() {
        let desk = Renewed::of(Desk::default());
        assert_eq!(desk.get(&"o").await.expect("a number"), 0);
        let began = Instant::now();
        for is_away in [false, true] {
            desk.giver().is_away.store(is_away, Relaxed);
            let before = desk.giver().asked.load(Relaxed);
            for _ in 0..3_000 {
                desk.get(&"o").await.expect("it is good");
                tokio::time::advance(Duration::from_millis(10)).await;
            }
            // An answer each sixteen seconds.
            let asked = desk.giver().asked.load(Relaxed) - before;
            assert!((1..=2).contains(&asked), "{is_away}: {asked}");
        }
        assert_eq!(began.elapsed(), Duration::from_secs(60), "nobody waited");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_told_to_all_who_ask_in_the_pause_and_each_in_his_name() {
        let desk = Renewed::of(Desk::default());
        desk.giver().is_away.store(true, Relaxed);
        let (one, other) = tokio::join!(desk.get(&"one"), desk.get(&"other"));
        let late = desk.get(&"late").await;
        let on = [one, other, late].map(|answer| answer.expect_err("it is away").on);
        assert_eq!((on, desk.giver().asked.load(Relaxed)), (["one", "other", "late"].map(String::from), 1));
        desk.giver().is_away.store(false, Relaxed);
        tokio::time::advance(PAUSE).await;
        assert_eq!(desk.get(&"o").await.expect("it is back"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_server_refuses_is_asked_for_anew_once_in_a_while() {
        let desk = Renewed::of(Desk::default());
        let number = desk.get(&"o").await.expect("a number");
        assert!(
            desk.forget(|given| *given == number) && desk.forget(|given| *given == number),
            "the second has it done"
        );
        assert_eq!(desk.get(&"o").await.expect("another"), number + 1);
        assert!(desk.forget(|given| *given == number), "a late word is not about this one");
        assert_eq!(desk.get(&"o").await.expect("the same"), number + 1);
        assert!(desk.forget(|_| true), "it took longer than the pause");
        assert_eq!(desk.get(&"o").await.expect("another"), number + 2);
    }
}
