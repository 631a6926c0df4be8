//! One epoch: streams read, accelerators step at absolute deadlines, all driven by the thread that calls.
//!
//! It judges nothing and keeps no figures but moments. Invariants: one thread steps all accelerators, however many; a
//! failure of any stream ends the epoch with its error; no thread outlives the call.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use block::{Error, Result};
use ranks::Ranks;
use targets::clock::{Clock, Moment, SECOND, WATCH};

use super::board::Board;
use super::cause::Cause;
use super::order::Hand;
use super::reader::{Manner, Reader};

/// How often somebody may look at the progress, and a stream looks whether it is still wanted.
const LOOK: u64 = SECOND / 4;

/// Readers need little more than the decoder's tables.
const STACK: usize = 512 << 10;

/// What an epoch is run with.
pub struct Course<'a> {
    /// Accelerators of this rank, and the number of the first among all.
    pub lanes: usize,
    pub first: u64,
    pub streams: u64,
    pub batch: u64,
    /// Batches ahead. With 0 all streams of an accelerator read the batch together that it waits for.
    pub window: u64,
    pub steps: u64,
    /// Steps that count.
    pub counted: Range<u64>,
    /// Nanoseconds of a step.
    pub step: u64,
    pub together: bool,
    pub clock: &'a dyn Clock,
    pub ranks: &'a dyn Ranks,
}

impl Course<'_> {
    /// Streams of an accelerator that have something to read.
    fn streams_each(&self) -> u64 {
        self.streams.min(if self.window == 0 { self.batch } else { self.steps })
    }
}

/// What streams and the pace share.
struct Field {
    state: Mutex<State>,
    /// Something happened that the pace waits for.
    news: Condvar,
    /// The window of a lane moved.
    room: Vec<Condvar>,
}

struct State {
    board: Board,
    failure: Option<Error>,
    is_over: bool,
}

/// When an epoch began, and its board at the end.
pub struct Ran {
    pub begun: Moment,
    pub board: Board,
}

/// Run an epoch to its end; `look` is called a few times a second with the steps of all lanes so far.
pub fn run(course: &Course, hand: &Hand, manner: &Manner, look: &dyn Fn(u64)) -> Result<Ran> {
    let board = Board::new(course.lanes, course.together, course.step, course.steps, course.counted.clone());
    let field = Field {
        state: Mutex::new(State { board, failure: None, is_over: false }),
        news: Condvar::new(),
        room: (0..course.lanes).map(|_| Condvar::new()).collect(),
    };
    course.ranks.barrier()?;
    let begun = course.clock.now();
    let paced = thread::scope(|scope| {
        for lane in 0..course.lanes {
            for stream in 0..course.streams_each() {
                let field = &field;
                let work = move || field.live(lane, || field.stream(course, hand, manner, lane, stream));
                if let Err(error) = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
                    let readers = course.lanes as u64 * course.streams;
                    field.fail(
                        Error::io("cannot start a reader", format!("{readers} readers"), &error)
                            .hint("raise the limit on processes (ulimit -u), or ask for fewer accelerators"),
                    );
                }
            }
        }
        // Also where the pace panics: streams would wait for it, and the scope for them.
        let _end = Ends(&field);
        field.pace(course, begun, look)
    });
    let state = field.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.failure {
        Some(error) => Err(error),
        None => paced.map(|()| Ran { begun, board: state.board }),
    }
}

/// Ends the epoch when it goes.
struct Ends<'a>(&'a Field);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Field {
    /// A thread that panicked with the board in its hands has failed the epoch, and nobody looks at the board any more.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream that panics fails the epoch; the pace would wait for its batches for ever.
    fn live(&self, lane: usize, stream: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(stream)).is_err() {
            self.fail(
                Error::corrupt("a reader panicked, which is a fault of stoker", format!("accelerator {lane}"))
                    .hint("report it with what it said above; other samples may do"),
            );
        }
    }

    fn fail(&self, error: Error) {
        self.lock().failure.get_or_insert(error);
        self.news.notify_one();
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.room.iter().for_each(Condvar::notify_all);
    }

    /// The batches of one stream, each begun as soon as the window allows.
    fn stream(&self, course: &Course, hand: &Hand, manner: &Manner, lane: usize, stream: u64) {
        let mut reader = Reader::new(manner);
        let (first, stride, parts) =
            if course.window == 0 { (0, 1, course.streams_each()) } else { (stream, course.streams, 1) };
        for batch in (first..course.steps).step_by(stride as usize) {
            let samples = part(hand.batch(course.first + lane as u64, batch), stream % parts, parts);
            if !self.enter(lane, batch, course.window) {
                return;
            }
            if let Err(error) = reader.read(&samples) {
                return self.fail(error);
            }
            let now = course.clock.now();
            let mut state = self.lock();
            let (was_taken, is_complete) = state.board.deliver_part(lane, batch, parts, now, &reader.log);
            drop(state);
            if was_taken {
                self.room[lane].notify_all();
            }
            if is_complete {
                self.news.notify_one();
            }
        }
    }

    /// Wait until a batch is in the window; false if it is not wanted any more.
    fn enter(&self, lane: usize, batch: u64, window: u64) -> bool {
        let mut state = self.lock();
        while !state.is_over && batch >= state.board.room(lane, window) {
            state = self.room[lane].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_over
    }

    fn begin(&self, course: &Course, party: usize, now: Moment) {
        let mut state = self.lock();
        let moved = state.board.begin(party, now);
        let wanted = state.board.parties[party].lanes.clone().filter(|_| course.window == 0);
        drop(state);
        for lane in moved.into_iter().chain(wanted) {
            self.room[lane].notify_all();
        }
    }

    /// Begin and end steps until the epoch is over.
    fn pace(&self, course: &Course, begun: Moment, look: &dyn Fn(u64)) -> Result<()> {
        let parties = self.lock().board.parties.len();
        (0..parties).for_each(|party| self.begin(course, party, begun));
        let mut looked = begun;
        loop {
            let now = course.clock.now();
            let state = self.lock();
            if state.failure.is_some() || state.board.done() {
                return Ok(());
            }
            if now >= looked + LOOK {
                let steps = state.board.steps_done();
                drop(state);
                look(steps);
                looked = now;
                continue;
            }
            let next = state.board.next();
            let until = next.map_or(looked + LOOK, |(_, deadline)| deadline.saturating_sub(WATCH).min(looked + LOOK));
            if now < until {
                let wait = Duration::from_nanos(until - now);
                drop(self.news.wait_timeout(state, wait));
                continue;
            }
            drop(state);
            if let Some((party, deadline)) = next {
                course.clock.sleep_until(deadline);
                self.turn(course, party, deadline)?;
            }
        }
    }

    /// End a step, and begin the next.
    fn turn(&self, course: &Course, party: usize, deadline: Moment) -> Result<()> {
        let follows = self.lock().board.end(party, course.clock.now());
        let mut start = deadline;
        if course.together && course.ranks.size() > 1 {
            course.ranks.barrier()?;
            start = course.clock.now();
            if follows {
                self.lock().board.waited(party, Cause::Barrier, start - deadline);
            }
        }
        if follows {
            self.begin(course, party, start);
        }
        Ok(())
    }
}

/// The samples of a batch that one of so many streams reads, where they read it together.
fn part(samples: Vec<Range<u64>>, number: u64, parts: u64) -> Vec<Range<u64>> {
    let all: u64 = samples.iter().map(|run| run.end - run.start).sum();
    let own = number * all / parts..(number + 1) * all / parts;
    let mut before = 0;
    let cut = |run: Range<u64>| {
        let at = before;
        before += run.end - run.start;
        let place = |wanted: u64| run.start + wanted.clamp(at, before) - at;
        place(own.start)..place(own.end)
    };
    samples.into_iter().map(cut).filter(|run| !run.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_batch_are_the_batch() {
        let batch = vec![4..5, 9..10, 2..8, 0..1];
        for parts in 1..12 {
            let of = |number| part(batch.clone(), number, parts).into_iter().flatten();
            let all: Vec<u64> = (0..parts).flat_map(of).collect();
            assert_eq!(all, batch.iter().cloned().flatten().collect::<Vec<_>>());
            assert!((0..parts).all(|number| of(number).count() <= all.len().div_ceil(parts as usize)));
        }
    }
}
