//! What a run on its way is waiting for, so that whoever waits for its blocks can say why. The tiers that a run
//! passes name each stretch; nothing here decides, and the clock is passed in.
//!
//! Invariant: the stretches of a course follow each other without a gap, so the time between two looks at it is the
//! sum of what it spent between them.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Why somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Bytes of a body are arriving, or a request waits because more at once would bring no more bytes.
    Bandwidth,
    /// A request was sent and not answered yet, or waits for one that was sent before it.
    Requests,
    /// The store asked to slow down.
    Throttling,
    /// A request failed and is soon repeated.
    Errors,
    /// Another member was asked and has not answered yet.
    Peer,
    /// A file of the cache is read or written.
    Disk,
    /// Checksums are computed.
    Cpu,
    /// None of these.
    Unknown,
}

impl Cause {
    pub const ALL: [Cause; 8] = [
        Cause::Bandwidth,
        Cause::Requests,
        Cause::Throttling,
        Cause::Errors,
        Cause::Peer,
        Cause::Disk,
        Cause::Cpu,
        Cause::Unknown,
    ];
}

/// Tells the time. Two calls may tell the same time, a later one never an earlier.
pub type Clock = fn() -> Instant;

/// What must be left of a patience for another try, or a tenth of it if that is less.
const LAST_TRY: Duration = Duration::from_secs(1);

/// What is left of a patience for its last try.
pub fn last_try(patience: Duration) -> Duration {
    LAST_TRY.min(patience / 10)
}

/// Time by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent([Duration; Cause::ALL.len()]);

impl Spent {
    pub fn on(&self, cause: Cause) -> Duration {
        self.0[cause as usize]
    }

    pub fn add(&mut self, cause: Cause, time: Duration) {
        self.0[cause as usize] += time;
    }

    /// What was spent since an earlier look.
    pub fn since(&self, earlier: &Spent) -> Spent {
        Spent(std::array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at])))
    }

    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }
}

/// The way of one run through the tiers. The default notes nothing.
#[derive(Clone, Default)]
pub struct Course(Option<Arc<Timed>>);

struct Timed {
    clock: Clock,
    press: Mutex<Press>,
    stretch: Mutex<Stretch>,
}

/// How soon it is wanted.
#[derive(Default)]
struct Press {
    /// A reader waits for it.
    is_urgent: bool,
    /// When one will, if somebody knows.
    due: Option<Instant>,
    /// As which asker its owner counts it; 0 if nobody said.
    ticket: u64,
    /// Who is to be woken when any of that changes.
    waiting: Vec<Waker>,
}

struct Stretch {
    cause: Cause,
    since: Instant,
    spent: Spent,
}

impl Course {
    /// A course that begins now, with nothing known. `is_urgent`: a reader waits for the run from the first.
    pub fn begin(clock: Clock, is_urgent: bool) -> Course {
        Course::wanted(clock, is_urgent, None)
    }

    /// A course that begins now, for a reader who will wait from this moment on.
    pub fn until_due(clock: Clock, due: Instant) -> Course {
        Course::wanted(clock, false, Some(due))
    }

    /// A course that begins now, for a reader who waits already or will wait from a moment on, if somebody knows.
    pub fn wanted(clock: Clock, is_urgent: bool, due: Option<Instant>) -> Course {
        Course::of(clock, Press { is_urgent, due: due.filter(|_| !is_urgent), ..Press::default() })
    }

    fn of(clock: Clock, press: Press) -> Course {
        let stretch = Stretch { cause: Cause::Unknown, since: clock(), spent: Spent::default() };
        Course(Some(Arc::new(Timed { clock, press: press.into(), stretch: stretch.into() })))
    }

    /// When a reader will wait for the run, if somebody knows.
    pub fn due(&self) -> Option<Instant> {
        self.0.as_ref()?.press().due
    }

    /// Whether a reader waits for the run, rather than may come to.
    pub fn is_urgent(&self) -> bool {
        self.0.as_ref().is_none_or(|timed| timed.press().is_urgent)
    }

    /// From now on a reader waits for the run.
    pub fn urge(&self) {
        self.press(|press| !std::mem::replace(&mut press.is_urgent, true));
    }

    /// A reader will wait for the run from this moment on, and perhaps another one sooner. Of a run for which nobody knew when,
    /// nobody does.
    pub fn hasten(&self, due: Instant) {
        self.press(|press| {
            let is_sooner = press.due.is_some_and(|known| due < known);
            press.due = if is_sooner { Some(due) } else { press.due };
            is_sooner
        });
    }

    /// From now on its owner counts it as this asker of those who ask for what nobody keeps.
    pub fn counts_as(&self, ticket: u64) {
        self.press(|press| std::mem::replace(&mut press.ticket, ticket) != ticket);
    }

    /// Ends when its owner counts it as an asker after this one.
    pub async fn counts_after(&self, ticket: u64) {
        self.once(|press| press.ticket > ticket).await;
    }

    /// Change how soon it is wanted, and wake who waits for that.
    fn press(&self, change: impl FnOnce(&mut Press) -> bool) {
        let Some(timed) = &self.0 else { return };
        let mut press = timed.press();
        let waiting = if change(&mut press) { std::mem::take(&mut press.waiting) } else { Vec::new() };
        drop(press);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ends when a reader waits for the run.
    pub async fn urged(&self) {
        self.once(|press| press.is_urgent).await;
    }

    /// Ends when a reader will wait for the run sooner than at this moment.
    pub async fn hastened(&self, due: Option<Instant>) {
        self.once(|press| press.due < due).await;
    }

    async fn once(&self, is_so: impl Fn(&Press) -> bool) {
        let Some(timed) = &self.0 else { return };
        let waiting = poll_fn(|context| {
            let mut press = timed.press();
            if is_so(&press) {
                return Poll::Ready(());
            }
            if !press.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                press.waiting.push(context.waker().clone());
            }
            Poll::Pending
        });
        waiting.await;
    }

    /// From now on it is this that the run waits for.
    pub fn enter(&self, cause: Cause) {
        let Some(timed) = &self.0 else { return };
        let mut stretch = timed.stretch();
        if stretch.cause != cause {
            let now = (timed.clock)();
            *stretch = Stretch { cause, since: now, spent: stretch.until(now) };
        }
    }

    /// What was spent until this moment.
    pub fn until(&self, now: Instant) -> Spent {
        self.0.as_ref().map_or_else(Spent::default, |timed| timed.stretch().until(now))
    }
}

impl Timed {
    fn press(&self) -> MutexGuard<'_, Press> {
        self.press.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stretch(&self) -> MutexGuard<'_, Stretch> {
        self.stretch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stretch {
    fn until(&self, now: Instant) -> Spent {
        let mut spent = self.spent;
        spent.add(self.cause, now.saturating_duration_since(self.since));
        spent
    }
}

impl fmt::Debug for Course {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.0.as_ref().map(|timed| timed.stretch().cause);
        out.debug_tuple("Course").field(&cause).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<(Option<Instant>, u64)> = const { Cell::new((None, 0)) };
    }

    /// A clock that stands until it is told to go on.
    fn clock() -> Instant {
        let (began, seconds) = NOW.get();
        let began = began.unwrap_or_else(Instant::now);
        NOW.set((Some(began), seconds));
        began + Duration::from_secs(seconds)
    }

    fn pass(seconds: u64) {
        let (began, before) = NOW.get();
        NOW.set((began, before + seconds));
    }

    #[test]
    fn the_stretches_of_a_course_add_up_to_the_time_between_two_looks() {
        let course = Course::begin(clock, true);
        pass(1);
        course.enter(Cause::Requests);
        pass(2);
        let before = course.until(clock());
        pass(3);
        course.enter(Cause::Bandwidth);
        course.enter(Cause::Bandwidth);
        pass(4);
        course.enter(Cause::Requests);
        pass(5);
        let spent = course.until(clock()).since(&before);
        assert_eq!(spent.on(Cause::Requests), Duration::from_secs(8));
        assert_eq!(spent.on(Cause::Bandwidth), Duration::from_secs(4));
        assert_eq!(spent.total(), Duration::from_secs(12));
        assert_eq!(before.on(Cause::Unknown), Duration::from_secs(1));
    }

    #[tokio::test]
    async fn who_waits_until_a_reader_does_is_woken_then() {
        let course = Course::begin(clock, false);
        let waiting: [_; 2] = std::array::from_fn(|_| {
            let course = course.clone();
            tokio::spawn(async move { course.urged().await })
        });
        tokio::task::yield_now().await;
        assert!(!course.is_urgent() && waiting.iter().all(|one| !one.is_finished()));
        course.urge();
        for one in waiting {
            one.await.expect("woken");
        }
        assert!(course.is_urgent());
        course.urged().await;
        Course::default().urged().await;
    }

    #[test]
    fn who_has_no_course_notes_nothing() {
        let course = Course::default();
        course.enter(Cause::Disk);
        assert_eq!(course.until(clock()), Spent::default());
    }
}
