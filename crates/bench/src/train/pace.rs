//! One epoch: streams read, accelerators step at absolute deadlines, all driven by the thread that calls.
//!
//! It judges nothing and keeps no figures but moments. Invariants: one thread steps all accelerators, however many; a
//! failure of any stream ends the epoch with its error; no thread outlives the call.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};
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
            for stream in 0..course.streams.min(course.steps) {
                let field = &field;
                let work = move || field.stream(course, hand, manner, lane, stream);
                if let Err(error) = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
                    let readers = course.lanes as u64 * course.streams;
                    field.fail(
                        Error::io("cannot start a reader", format!("{readers} readers"), &error)
                            .hint("raise the limit on processes (ulimit -u), or ask for fewer accelerators"),
                    );
                }
            }
        }
        let paced = field.pace(course, begun, look);
        field.end();
        paced
    });
    let state = field.state.into_inner().expect("no thread panics while it holds the board");
    match state.failure {
        Some(error) => Err(error),
        None => paced.map(|()| Ran { begun, board: state.board }),
    }
}

impl Field {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the board")
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
        for batch in (stream..course.steps).step_by(course.streams as usize) {
            let samples = hand.batch(course.first + lane as u64, batch);
            if !self.enter(lane, batch, course.window) {
                return;
            }
            if let Err(error) = reader.read(&samples) {
                return self.fail(error);
            }
            let now = course.clock.now();
            let mut state = self.lock();
            let (was_taken, is_complete) = state.board.deliver(lane, batch, now, &reader.log);
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
        while !state.is_over && batch >= state.board.lanes[lane].taken + window {
            state = self.room[lane].wait(state).expect("no thread panics while it holds the board");
        }
        !state.is_over
    }

    fn begin(&self, party: usize, now: Moment) {
        let moved = self.lock().board.begin(party, now);
        for lane in moved {
            self.room[lane].notify_all();
        }
    }

    /// Begin and end steps until the epoch is over.
    fn pace(&self, course: &Course, begun: Moment, look: &dyn Fn(u64)) -> Result<()> {
        let parties = self.lock().board.parties.len();
        (0..parties).for_each(|party| self.begin(party, begun));
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
                let waited = self.news.wait_timeout(state, wait);
                drop(waited.expect("no thread panics while it holds the board"));
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
            self.begin(party, start);
        }
        Ok(())
    }
}
